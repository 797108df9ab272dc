//! Systems of polynomial equations, as people write them down.
//!
//! ```yaml
//! name: circle_and_line
//! unknowns: [x, y]
//! parameters: [a, b]          # may be left out; names with numbers as a range: p1..p9
//! define:                     # names for parts, each may use those before it; may be left out
//!   square: x^2
//! equations:
//!   - square + y^2 = 1
//!   - a*x + b*y
//! values: {a: 1, b: [0.5, -2]}  # the parameters of the target, real or [re, im]; may be left out
//! symmetries:                 # maps that carry roots to roots; may be left out
//!   - {x: -x, y: -y}
//! ```

use super::expression::{parse, Grammar, SyntaxError};
use super::graph::{Graph, Id};
use super::polynomial::Polynomial;
use super::scale::sizes;
use nalgebra::Complex;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};

/// The most unknowns of a system.
pub const MAX_UNKNOWNS: usize = 64;
/// The most parameters of a system.
pub const MAX_PARAMETERS: usize = 4096;
/// The highest degree of an equation in the unknowns.
pub const MAX_DEGREE: u32 = 40;
/// The highest degree of an equation in the parameters.
pub const MAX_PARAMETER_DEGREE: u32 = 24;
/// Longer forms than this are not read, bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// More images of a root are not looked for.
pub const MOST_IMAGES: usize = 64;
/// An expanded form longer than this is not used, terms.
const MAX_TERMS: usize = 5_000;

/// Why a system is refused.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum SystemError {
    /// Not YAML, or not a form of ours.
    #[error("the form cannot be read: {0}")]
    Form(String),
    /// An expression makes no sense.
    #[error("{place}: {what}")]
    Syntax {
        /// Line and column of the file where they can be told, and which expression.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// As many equations as unknowns are needed.
    #[error("not square: {equations} equations, {unknowns} unknowns")]
    NotSquare {
        /// How many equations.
        equations: usize,
        /// How many unknowns.
        unknowns: usize,
    },
    /// A name is given twice, or is none.
    #[error("`{0}` is not a name, or is given twice")]
    Name(String),
    /// Values or symmetries name something that is not there.
    #[error("{0}: no such name")]
    Unknown(String),
    /// Too many or too high.
    #[error("{what}: {got}, the limit is {limit}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How many there are.
        got: usize,
        /// How many there may be.
        limit: usize,
    },
    /// An equation without unknowns.
    #[error("equation {0} has no unknown in it")]
    Constant(usize),
    /// A number of a form that is none, or too large.
    #[error("{0}: a number that is not finite")]
    NotFinite(String),
    /// Values for some parameters only.
    #[error("no value for parameter `{0}`")]
    NoValue(String),
}

/// A square system of polynomial equations.
#[derive(Debug, Clone)]
pub struct System {
    /// What it is called.
    pub name: String,
    /// What it is about, where its equations come from.
    pub about: String,
    /// Names of the unknowns.
    pub unknowns: Vec<String>,
    /// Names of the parameters.
    pub parameters: Vec<String>,
    /// The expressions; unknowns are the first symbols, parameters the next.
    pub(crate) graph: Graph,
    /// Each is zero at a root.
    pub(crate) equations: Vec<Id>,
    /// Degrees of the equations in the unknowns.
    pub degrees: Vec<u32>,
    /// Parameters of the target, if the form has them or there are no parameters.
    pub values: Option<Vec<Complex<f64>>>,
    /// Maps of the unknowns that carry roots to roots.
    pub(crate) symmetries: Vec<Vec<Id>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default)]
    name: String,
    #[serde(default)]
    about: String,
    unknowns: Vec<String>,
    #[serde(default)]
    parameters: Vec<String>,
    #[serde(default)]
    define: serde_yaml::Mapping,
    equations: Vec<Text>,
    #[serde(default)]
    values: BTreeMap<String, Number>,
    #[serde(default)]
    symmetries: Vec<BTreeMap<String, Text>>,
}

/// An expression; YAML takes `1` for a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Text(String),
    Number(f64),
}

impl Text {
    fn text(&self) -> String {
        match self {
            Text::Text(text) => text.clone(),
            Text::Number(v) => v.to_string(),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Real(f64),
    Complex([f64; 2]),
}

impl System {
    /// Reads a form.
    pub fn from_yaml(source: &str) -> Result<Self, SystemError> {
        limit("bytes", source.len(), MAX_BYTES)?;
        let form: Form = serde_yaml::from_str(source).map_err(|e| SystemError::Form(e.to_string()))?;
        let unknowns = expand_ranges(&form.unknowns)?;
        let parameters = expand_ranges(&form.parameters)?;
        limit("unknowns", unknowns.len(), MAX_UNKNOWNS)?;
        limit("parameters", parameters.len(), MAX_PARAMETERS)?;
        if form.equations.len() != unknowns.len() || unknowns.is_empty() {
            return Err(SystemError::NotSquare { equations: form.equations.len(), unknowns: unknowns.len() });
        }
        let mut graph = Graph::default();
        let mut names = HashMap::new();
        for (name, index) in unknowns.iter().chain(&parameters).zip(0..) {
            declare(&mut names, name, graph.symbol(index))?;
        }
        for (key, text) in &form.define {
            let (Some(key), Some(text)) = (key.as_str(), as_text(text)) else {
                return Err(SystemError::Form("define: names and expressions".into()));
            };
            let id = parse(&text, Grammar::Polynomial, &names, &mut graph)
                .map_err(|e| located(source, &text, &format!("define {key}"), e))?;
            declare(&mut names, key, id)?;
        }
        let mut equations = Vec::new();
        for (text, i) in form.equations.iter().map(Text::text).zip(1..) {
            let id = parse(&text, Grammar::Polynomial, &names, &mut graph)
                .map_err(|e| located(source, &text, &format!("equation {i}"), e))?;
            equations.push(id);
        }
        let mut symmetries = Vec::new();
        for map in &form.symmetries {
            let mut images: Vec<Id> = (0..unknowns.len() as u32).map(|i| graph.symbol(i)).collect();
            for (name, text) in map {
                let Some(i) = unknowns.iter().position(|u| u == name) else {
                    return Err(SystemError::Unknown(name.clone()));
                };
                let text = text.text();
                images[i] = parse(&text, Grammar::Algebraic, &names, &mut graph)
                    .map_err(|e| located(source, &text, &format!("symmetry of {name}"), e))?;
            }
            symmetries.push(images);
        }
        let values = values(&form.values, &parameters)?;
        let name = if form.name.is_empty() { "unnamed".to_owned() } else { form.name };
        let about = form.about;
        Self { name, about, unknowns, parameters, graph, equations, degrees: Vec::new(), values, symmetries }
            .with_degrees()
    }

    /// A system made by a program.
    pub(crate) fn from_parts(
        unknowns: Vec<String>,
        parameters: Vec<String>,
        graph: Graph,
        equations: Vec<Id>,
    ) -> Result<Self, SystemError> {
        let (name, about, degrees, symmetries) = (String::new(), String::new(), Vec::new(), Vec::new());
        Self { name, about, unknowns, parameters, graph, equations, degrees, values: None, symmetries }
            .with_degrees()
    }

    fn with_degrees(mut self) -> Result<Self, SystemError> {
        let n = self.unknowns.len() as u32;
        for (id, i) in self.equations.iter().zip(1..) {
            let needed = self.graph.needed(std::slice::from_ref(id));
            let mut values =
                self.graph.nodes().iter().zip(needed).filter(|(_, n)| *n).filter_map(|(n, _)| n.value());
            if values.any(|v| !(v.re.is_finite() && v.im.is_finite())) {
                return Err(SystemError::NotFinite(format!("equation {i}")));
            }
        }
        let bound = |which: &dyn Fn(u32) -> bool| degree_bounds(&self.graph, which);
        let (unknown, parameter) = (bound(&|s| s < n), bound(&|s| s >= n));
        let expanded = self.expanded();
        for (i, id) in self.equations.iter().enumerate() {
            let exact = expanded.as_ref().map(|e| (e[i].degree(|s| s < n), e[i].degree(|s| s >= n)));
            let (degree, of_parameters) = exact.unwrap_or((unknown[id.index()], parameter[id.index()]));
            limit("degree in the unknowns", degree as usize, MAX_DEGREE as usize)?;
            limit("degree in the parameters", of_parameters as usize, MAX_PARAMETER_DEGREE as usize)?;
            if degree == 0 {
                return Err(SystemError::Constant(i + 1));
            }
            self.degrees.push(degree);
        }
        Ok(self)
    }

    /// The equations as sums of terms, unless they are too long.
    pub(crate) fn expanded(&self) -> Option<Vec<Polynomial>> {
        Polynomial::expand(&self.graph, &self.equations, MAX_TERMS)
    }

    /// The product of the degrees: how many paths a total-degree start has.
    pub fn bezout(&self) -> u128 {
        self.degrees.iter().fold(1u128, |product, d| product.saturating_mul(u128::from(*d)))
    }

    /// The same equations with a parameter in place of each number: the family of all systems with
    /// these monomials. The numbers become the values of the target. `None` if the expanded form is
    /// too long, or the system has parameters already.
    pub fn free_coefficients(&self) -> Option<Self> {
        if !self.parameters.is_empty() {
            return None;
        }
        let n = self.unknowns.len() as u32;
        let (mut graph, mut parameters, mut values) = (Graph::default(), Vec::new(), Vec::new());
        (0..n).for_each(|i| {
            graph.symbol(i);
        });
        let mut equations = Vec::new();
        for (polynomial, i) in self.expanded()?.iter().zip(1..) {
            let mut sum = graph.real(0.0);
            for ((monomial, factor), k) in polynomial.terms().zip(1..) {
                let mut term = graph.symbol(n + parameters.len() as u32);
                for (symbol, exponent) in monomial {
                    let symbol = graph.symbol(*symbol);
                    let power = graph.pow(symbol, *exponent);
                    term = graph.mul(term, power);
                }
                sum = graph.add(sum, term);
                parameters.push(format!("c{i}_{k}"));
                values.push(*factor);
            }
            equations.push(sum);
        }
        let (unknowns, degrees) = (self.unknowns.clone(), self.degrees.clone());
        // Symmetries of the numbers at hand are not symmetries of the family.
        let (name, about, symmetries) = (self.name.clone(), self.about.clone(), Vec::new());
        Some(Self {
            name,
            about,
            unknowns,
            parameters,
            graph,
            equations,
            degrees,
            values: Some(values),
            symmetries,
        })
    }

    /// `a ((x_i/s_i)^d_i - 1) + b f_i` with the parameters `a` and `b`, where `f` are the equations of
    /// this system with the given values, divided by their size; and the sizes `s` of the unknowns.
    pub(crate) fn blended(&self, values: &[Complex<f64>]) -> (Self, Vec<f64>) {
        let n = self.unknowns.len() as u32;
        let mut graph = Graph::default();
        let symbols: Vec<Id> = (0..n + 2).map(|i| graph.symbol(i)).collect();
        let given: Vec<Id> = values.iter().map(|v| graph.constant(*v)).collect();
        let zero = graph.real(0.0);
        let copies = self.graph.replaced(&mut graph, |s| match s.checked_sub(n) {
            None => symbols[s as usize],
            Some(k) => given.get(k as usize).copied().unwrap_or(zero),
        });
        let plain: Vec<Id> = self.equations.iter().map(|id| copies[id.index()]).collect();
        let (scales, sizes) = match Polynomial::expand(&graph, &plain, MAX_TERMS) {
            Some(all) => sizes(&all, self.unknowns.len()),
            None => (vec![1.0; plain.len()], vec![1.0; plain.len()]),
        };
        let (a, b) = (symbols[n as usize], symbols[n as usize + 1]);
        let mut equations = Vec::new();
        for (i, (id, size)) in plain.into_iter().zip(sizes).enumerate() {
            let one = graph.real(1.0);
            let shrink = graph.real(1.0 / scales[i]);
            let shrunk = graph.mul(shrink, symbols[i]);
            let power = graph.pow(shrunk, self.degrees[i]);
            let simple = graph.sub(power, one);
            let scale = graph.real(1.0 / size);
            let scaled = graph.mul(scale, id);
            let (left, right) = (graph.mul(a, simple), graph.mul(b, scaled));
            equations.push(graph.add(left, right));
        }
        let zero_one = vec![Complex::new(0.0, 0.0), Complex::new(1.0, 0.0)];
        let family = Self {
            name: self.name.clone(),
            about: self.about.clone(),
            unknowns: self.unknowns.clone(),
            parameters: vec!["a".into(), "b".into()],
            graph,
            equations,
            degrees: self.degrees.clone(),
            values: Some(zero_one),
            // The simple system does not have them.
            symmetries: Vec::new(),
        };
        (family, scales)
    }

    /// `n`, `p`: how many unknowns and parameters.
    pub fn size(&self) -> (usize, usize) {
        (self.unknowns.len(), self.parameters.len())
    }

    /// The equations have no complex constants.
    pub fn is_real(&self) -> bool {
        let needed = self.graph.needed(&self.equations);
        let nodes = self.graph.nodes().iter().zip(needed).filter(|(_, needed)| *needed);
        nodes.filter_map(|(node, _)| node.value()).all(|value| value.im == 0.0)
    }

    /// A number that changes with the equations: what a start system belongs to.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut eat = |text: &str| {
            for byte in text.bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        eat(&format!("{:?}{:?}", self.size(), self.equations));
        self.graph.nodes().iter().for_each(|node| eat(&format!("{node:?}")));
        hash
    }

    /// The images of a root under all symmetries and what they generate, the root first.
    pub fn orbit(&self, root: &[Complex<f64>]) -> Vec<Vec<Complex<f64>>> {
        orbit(&self.graph, &self.symmetries, root)
    }

    /// The symmetries by themselves: their graph, and the nodes of each.
    pub fn part_of_symmetries(&self) -> (Graph, Vec<Vec<Id>>) {
        let (graph, ids) = self.graph.part(&self.symmetries.concat());
        (graph, ids.chunks(self.unknowns.len().max(1)).map(<[Id]>::to_vec).collect())
    }
}

/// As [`System::orbit`], for symmetries of a graph.
pub fn orbit(graph: &Graph, symmetries: &[Vec<Id>], root: &[Complex<f64>]) -> Vec<Vec<Complex<f64>>> {
    let mut orbit = vec![root.to_vec()];
    let mut next = 0;
    while next < orbit.len() && orbit.len() < MOST_IMAGES {
        for images in symmetries {
            let image = graph.evaluate(images, &orbit[next]);
            let new = image.iter().all(|v| v.re.is_finite() && v.im.is_finite())
                && orbit.iter().all(|known| distance(known, &image) > 1e-7);
            if new {
                orbit.push(image);
            }
        }
        next += 1;
    }
    orbit
}

/// Coordinates smaller than this count as so large when something is relative to them.
pub const SMALL: f64 = 1e-8;

/// How far apart two roots are: the largest difference of a coordinate, relative to its size (and
/// to a hundredth of one, or of the largest coordinate if all are small, never less than 1e-8).
pub fn distance(a: &[Complex<f64>], b: &[Complex<f64>]) -> f64 {
    let terms = a.iter().zip(b).zip(magnitudes(a)).map(|((u, v), size)| (u - v).norm_sqr().sqrt() / size);
    largest(terms)
}

/// The largest of numbers that are not negative. Not `max`: NaN stays.
pub fn largest(numbers: impl IntoIterator<Item = f64>) -> f64 {
    numbers.into_iter().fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}

/// What differences of the coordinates of a root are relative to.
pub fn magnitudes(root: &[Complex<f64>]) -> impl Iterator<Item = f64> + '_ {
    let size = root.iter().map(|v| v.norm_sqr()).fold(0.0, f64::max).sqrt();
    let floor = (0.01 * size.min(1.0)).max(SMALL);
    root.iter().map(move |v| v.norm_sqr().sqrt().max(floor))
}

fn limit(what: &'static str, got: usize, limit: usize) -> Result<(), SystemError> {
    if got > limit {
        return Err(SystemError::Limit { what, got, limit });
    }
    Ok(())
}

fn declare(names: &mut HashMap<String, Id>, name: &str, id: Id) -> Result<(), SystemError> {
    let begins = name.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_');
    let good = begins && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if !good || names.insert(name.to_owned(), id).is_some() {
        return Err(SystemError::Name(name.to_owned()));
    }
    Ok(())
}

/// `p1..p9` as nine names.
fn expand_ranges(names: &[String]) -> Result<Vec<String>, SystemError> {
    let mut all = Vec::new();
    for name in names {
        let Some((first, last)) = name.split_once("..") else {
            all.push(name.clone());
            continue;
        };
        let stem = first.trim_end_matches(|c: char| c.is_ascii_digit());
        let ends = (first[stem.len()..].parse::<usize>(), last.strip_prefix(stem).map(str::parse::<usize>));
        let (Ok(from), Some(Ok(to))) = ends else {
            return Err(SystemError::Name(name.clone()));
        };
        limit("names in a range", to.saturating_sub(from), MAX_PARAMETERS)?;
        all.extend((from..=to).map(|i| format!("{stem}{i}")));
    }
    Ok(all)
}

fn as_text(value: &serde_yaml::Value) -> Option<String> {
    match value {
        serde_yaml::Value::String(text) => Some(text.clone()),
        serde_yaml::Value::Number(v) => Some(v.to_string()),
        _ => None,
    }
}

fn values(
    given: &BTreeMap<String, Number>,
    parameters: &[String],
) -> Result<Option<Vec<Complex<f64>>>, SystemError> {
    if let Some(name) = given.keys().find(|k| !parameters.contains(k)) {
        return Err(SystemError::Unknown(format!("values: {name}")));
    }
    if given.is_empty() && !parameters.is_empty() {
        return Ok(None);
    }
    let value = |name: &String| {
        let [re, im] = match given.get(name) {
            Some(Number::Real(v)) => [*v, 0.0],
            Some(Number::Complex(v)) => *v,
            None => return Err(SystemError::NoValue(name.clone())),
        };
        match re.is_finite() && im.is_finite() {
            true => Ok(Complex::new(re, im)),
            false => Err(SystemError::NotFinite(format!("values: {name}"))),
        }
    };
    parameters.iter().map(value).collect::<Result<_, _>>().map(Some)
}

/// The error with the line and column of the file, where the text stands there as it is.
fn located(source: &str, text: &str, which: &str, error: SyntaxError) -> SystemError {
    let place = match source.find(text) {
        Some(at) if error.line == 1 => {
            let before = &source[..at];
            let line = 1 + before.matches('\n').count();
            let column = before.chars().rev().take_while(|&c| c != '\n').count() + error.column;
            format!("line {line}, column {column} ({which})")
        }
        _ => format!("{which}, line {}, column {}", error.line, error.column),
    };
    SystemError::Syntax { place, what: error.what }
}

/// For each node a bound of its degree in the symbols that `which` picks.
fn degree_bounds(graph: &Graph, which: &dyn Fn(u32) -> bool) -> Vec<u32> {
    use super::graph::Node;
    let mut degrees: Vec<u32> = Vec::with_capacity(graph.len());
    for node in graph.nodes() {
        let of = |id: Id| degrees[id.index()];
        let degree = match *node {
            Node::Symbol(s) => u32::from(which(s)),
            Node::Constant(..) => 0,
            Node::Add(a, b) | Node::Sub(a, b) => of(a).max(of(b)),
            Node::Mul(a, b) | Node::Div(a, b) => of(a).saturating_add(of(b)),
            Node::Sqrt(a) => of(a),
        };
        degrees.push(degree);
    }
    degrees
}

#[cfg(test)]
mod tests {
    use super::*;

    const CIRCLE: &str =
        "unknowns: [x, y]\nparameters: [a, b]\nequations:\n  - x^2 + y^2 = 1\n  - a*x + b*y\n";

    #[test]
    fn a_form_becomes_a_system() {
        let text = format!("{CIRCLE}values: {{a: 1, b: [0.5, -2]}}\nsymmetries:\n  - {{x: -x, y: -y}}\n");
        let system = System::from_yaml(&text).expect("a system");
        assert_eq!((system.size(), system.degrees.as_slice(), system.bezout()), ((2, 2), &[2, 1][..], 2));
        assert_eq!(system.values, Some(vec![Complex::new(1.0, 0.0), Complex::new(0.5, -2.0)]));
        let root = [Complex::new(0.6, 0.0), Complex::new(0.8, 0.0)];
        assert_eq!(system.orbit(&root), [root.to_vec(), root.iter().map(|v| -v).collect::<Vec<_>>()]);
        let other = System::from_yaml(&CIRCLE.replace("= 1", "= 2")).expect("a system");
        assert_ne!(other.fingerprint(), system.fingerprint());
    }

    #[test]
    fn degrees_are_those_after_cancellation() {
        let system =
            System::from_yaml("unknowns: [x]\nequations: ['(x^2 + 1)^2 - x^4 + x']\n").expect("a system");
        assert_eq!(system.degrees, [2]);
    }

    #[test]
    fn a_system_without_parameters_becomes_its_family() {
        let system =
            System::from_yaml("unknowns: [x]\nequations: [(x - 2)*(x + 3)*x + 5]\n").expect("a system");
        let family = system.free_coefficients().expect("a family");
        let values = family.values.clone().expect("the numbers");
        assert_eq!(values.len(), 4, "x^3, x^2, x, 1");
        let at = [vec![Complex::new(1.5, -0.5)], values].concat();
        let here = system.graph.evaluate(&system.equations, &at);
        assert!((family.graph.evaluate(&family.equations, &at)[0] - here[0]).norm() < 1e-13);
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        for (text, what) in [
            ("unknowns: [x, y]\nequations: [x + y]\n", "not square: 1 equations, 2 unknowns"),
            ("unknowns: []\nequations: []\n", "not square: 0 equations, 0 unknowns"),
            (
                "unknowns: [x]\nequations:\n  - x + 2*u\n",
                "line 3, column 11 (equation 1): unknown symbol `u`",
            ),
            ("unknowns: [x, x]\nequations: [x, x]\n", "`x` is not a name, or is given twice"),
            ("unknowns: [1x]\nequations: [x]\n", "`1x` is not a name"),
            ("unknowns: [x]\nequations: [x^64]\n", "degree in the unknowns: 64, the limit is 40"),
            ("unknowns: [x]\nparameters: [a]\nequations: [a^2 + 1]\n", "equation 1 has no unknown in it"),
            ("unknowns: [x]\nequations: [x]\nvalues: {a: 1}\n", "values: a: no such name"),
            (
                "unknowns: [x]\nparameters: [a, b]\nequations: [a*x+b]\nvalues: {a: 1}\n",
                "no value for parameter `b`",
            ),
            ("unknowns: [x]\nparameters: [a1..a9999]\nequations: [x]\n", "names in a range: 9998"),
            ("unknowns: [x1..x65]\nequations: [x1]\n", "unknowns: 65, the limit is 64"),
            ("unknowns: [x]\nequations: [x - 1e308*1e308]\n", "equation 1: a number that is not finite"),
            (
                "unknowns: [x]\nparameters: [a]\nequations: [a*x]\nvalues: {a: .nan}\n",
                "values: a: a number that is",
            ),
            ("unknowns: x\nequations: [x]\n", "cannot be read"),
            ("unknowns: [x]\nequations: [x]\nstart: 3\n", "unknown field `start`"),
            ("unknowns: [x]\ndefine: {y: x*(x}\nequations: [y]\n", "(define y): this `(` is not closed"),
        ] {
            let error = System::from_yaml(text).expect_err(text).to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
