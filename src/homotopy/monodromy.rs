//! Start sets by monodromy: a root is carried around loops in the space of parameters and comes
//! back as another one, until no new ones come.
//!
//! The first root comes from a known solution, or from Newton's method on unknowns and parameters
//! together. Whether all are there is tested by the trace: on a line of parameters `a + s b`, roots
//! `(x, s)` form a curve; when the curve is cut by `(l x - 1) (s - c) = g`, the sum of the points
//! is linear in `g` if and only if none is missing.

use super::check::Newton;
use super::distinct::Distinct;
use super::follow::follow;
use super::graph::{Graph, Id};
use super::program::{Compiled, Path};
use super::start::{StartError, StartSet};
use super::system::System;
use super::track::Settings;
use nalgebra::{Complex, DMatrix, DVector};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::time::Instant;

/// Unknowns and parameters.
pub type Pair = (Vec<Complex<f64>>, Vec<Complex<f64>>);

/// How a start set is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Decides everything that is random.
    pub seed: u64,
    /// Loops in a row without a new root after which it stops.
    pub quiet: usize,
    /// It stops when there are so many.
    pub most: usize,
    /// It stops then.
    pub deadline: Option<Instant>,
    /// Typical sizes of the parameters; one for all if empty.
    pub scales: Vec<f64>,
    /// Unknowns close to a solution, and the parameters of it.
    pub known: Option<Pair>,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 1, quiet: 8, most: 100_000, deadline: None, scales: Vec::new(), known: None }
    }
}

/// How far it is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Loops so far.
    pub loops: usize,
    /// Loops in a row that brought nothing new.
    pub quiet: usize,
    /// Roots so far.
    pub roots: usize,
}

/// Beginnings that are tried for a first root.
const SEEDS: usize = 50;

/// Makes a start set of a system with parameters.
pub fn monodromy(
    system: &System,
    options: &Options,
    mut progress: impl FnMut(Progress),
) -> Result<StartSet, StartError> {
    if system.parameters.is_empty() {
        return Err(StartError::NoParameters);
    }
    let compiled = Compiled::new(system);
    let mut random = Pcg64Mcg::seed_from_u64(options.seed);
    let settings = Settings::default().tighter(10.0);
    let mut found = Distinct::new(system);
    let mut roots: Vec<Vec<Complex<f64>>> = Vec::new();
    let base = seed(system, &compiled, options, &mut random, &mut roots)?;
    roots.iter().for_each(|r| {
        found.insert(r);
    });
    let mut state = Progress { loops: 0, quiet: 0, roots: roots.len() };
    let over = |deadline: Option<Instant>| deadline.is_some_and(|end| Instant::now() >= end);
    while state.quiet < options.quiet && roots.len() < options.most && !over(options.deadline) {
        let [first, second] = [draw(system, options, &mut random), draw(system, options, &mut random)];
        let corners = [&base, &first, &second, &base];
        go_round(&compiled, settings, corners, &mut roots, &mut found, &mut state, options.deadline);
        progress(state);
    }
    Ok(StartSet { parameters: base, roots, note: String::new() })
}

/// Carries roots around a loop of parameters; what is new joins them.
fn go_round(
    compiled: &Compiled,
    settings: Settings,
    corners: [&Vec<Complex<f64>>; 4],
    roots: &mut Vec<Vec<Complex<f64>>>,
    found: &mut Distinct,
    state: &mut Progress,
    deadline: Option<Instant>,
) {
    let mut carried = roots.clone();
    for leg in corners.windows(2) {
        let path = compiled.path(leg[0], leg[1]);
        carried = carry(compiled, settings, &path, &carried, deadline);
    }
    let before = roots.len();
    roots.extend(carried.into_iter().filter(|root| found.insert(root)));
    state.loops += 1;
    state.quiet = if roots.len() > before { 0 } else { state.quiet + 1 };
    state.roots = roots.len();
}

/// The ends of those that arrive, at once or with more care.
fn carry(
    compiled: &Compiled,
    settings: Settings,
    path: &Path,
    starts: &[Vec<Complex<f64>>],
    deadline: Option<Instant>,
) -> Vec<Vec<Complex<f64>>> {
    let ends = follow(compiled, settings, starts.len(), |k| (path, starts[k].as_slice()), deadline);
    let mut roots: Vec<_> = ends.iter().filter(|r| r.ok()).map(|r| r.point.to_vec()).collect();
    let lost: Vec<usize> = (0..ends.len()).filter(|&k| !ends.at(k).ok()).collect();
    let job = |k: usize| (path, starts[lost[k]].as_slice());
    let again = follow(compiled, settings.tighter(50.0), lost.len(), job, deadline);
    roots.extend(again.iter().filter(|r| r.ok()).map(|r| r.point.to_vec()));
    roots
}

/// A complex number with normal parts and mean square 1.
pub(super) fn normal(random: &mut Pcg64Mcg) -> Complex<f64> {
    let radius = (-libm::log(1.0 - random.random::<f64>())).sqrt();
    let angle = std::f64::consts::TAU * random.random::<f64>();
    Complex::new(radius * libm::cos(angle), radius * libm::sin(angle))
}

fn draw(system: &System, options: &Options, random: &mut Pcg64Mcg) -> Vec<Complex<f64>> {
    let scale = |k: usize| options.scales.get(k).copied().unwrap_or(1.0);
    (0..system.parameters.len()).map(|k| normal(random) * scale(k)).collect()
}

/// Random parameters of the seed.
pub fn random_parameters(system: &System, options: &Options) -> Vec<Complex<f64>> {
    draw(system, options, &mut Pcg64Mcg::seed_from_u64(options.seed))
}

/// Random parameters and a first root of them.
fn seed(
    system: &System,
    compiled: &Compiled,
    options: &Options,
    random: &mut Pcg64Mcg,
    roots: &mut Vec<Vec<Complex<f64>>>,
) -> Result<Vec<Complex<f64>>, StartError> {
    for _ in 0..SEEDS {
        let (root, parameters) = match &options.known {
            Some((near, parameters)) => match Newton::new(system).run(near.clone(), parameters) {
                Some(root) => (root, parameters.clone()),
                None => break,
            },
            None => {
                let begin = (0..system.unknowns.len()).map(|_| normal(random)).collect();
                match join(system, begin, draw(system, options, random)) {
                    Some(pair) => pair,
                    None => continue,
                }
            }
        };
        let base = draw(system, options, random);
        let path = compiled.path(&parameters, &base);
        let settings = Settings::default().tighter(10.0);
        let ends = follow(compiled, settings, 1, |_| (&path, root.as_slice()), options.deadline);
        let end = ends.iter().find(|r| r.ok()).map(|r| r.point.to_vec());
        if let Some(end) = end {
            roots.push(end);
            return Ok(base);
        }
    }
    Err(StartError::NoSeed(SEEDS))
}

/// Newton's method on unknowns and parameters together, each time the shortest correction.
fn join(system: &System, mut root: Vec<Complex<f64>>, mut parameters: Vec<Complex<f64>>) -> Option<Pair> {
    let (n, p) = system.size();
    let mut graph = system.graph.clone();
    let one = graph.real(1.0);
    let mut outputs = system.equations.clone();
    for s in 0..(n + p) as u32 {
        outputs.extend(graph.derivatives(&system.equations, |symbol| (symbol == s).then_some(one)));
    }
    for _ in 0..60 {
        let at = [root.as_slice(), parameters.as_slice()].concat();
        let values = graph.evaluate(&outputs, &at);
        let h = DVector::from_column_slice(&values[..n]);
        let jacobian = DMatrix::from_column_slice(n, n + p, &values[n..]);
        let normal = &jacobian * jacobian.adjoint();
        let correction = jacobian.adjoint() * normal.lu().solve(&h)?;
        if !correction.iter().all(|v| v.re.is_finite() && v.im.is_finite()) {
            return None;
        }
        for (value, change) in root.iter_mut().chain(&mut parameters).zip(correction.iter()) {
            *value -= change;
        }
        if correction.norm() < 1e-13 {
            return Some((root, parameters));
        }
    }
    None
}

/// What the trace test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trace {
    /// How far the sum of the points is from linear, relative to their size; rounding errors if no
    /// point is missing.
    pub bend: f64,
    /// Roots that these points give at the start parameters, images under symmetries included.
    pub roots: usize,
}

/// The trace test of a start set. `None` if it could not be made: too many points, or some were
/// lost. Loops on the curve may find roots that the start set lacks: then there are more of them.
pub fn trace_test(
    system: &System,
    start: &StartSet,
    options: &Options,
    mut progress: impl FnMut(Progress),
) -> Option<Trace> {
    let (n, _) = system.size();
    let curve = curve(system)?;
    let compiled = Compiled::new(&curve);
    let mut random = Pcg64Mcg::seed_from_u64(options.seed ^ 0x7ace);
    let settings = Settings::default().tighter(10.0);
    // Parameters of the curve: a, b, l, c, g.
    let direction = draw(system, options, &mut random);
    let fixed = [start.parameters.clone(), direction].concat();
    let cut = |random: &mut Pcg64Mcg| -> Vec<Complex<f64>> { (0..n + 2).map(|_| normal(random)).collect() };
    let with = |rest: Vec<Complex<f64>>| [fixed.clone(), rest].concat();
    // The start roots lie on the curve at s = 0, where c = 0 and g = 0.
    let mut first = cut(&mut random);
    first[n] = Complex::new(0.0, 0.0);
    first[n + 1] = Complex::new(0.0, 0.0);
    let base = cut(&mut random);
    let all: Vec<Vec<Complex<f64>>> = start.roots.iter().flat_map(|r| system.orbit(r)).collect();
    let lifted: Vec<Vec<Complex<f64>>> =
        all.into_iter().map(|r| [r, vec![Complex::new(0.0, 0.0)]].concat()).collect();
    let path = compiled.path(&with(first.clone()), &with(base.clone()));
    let mut points = carry(&compiled, settings, &path, &lifted, options.deadline);
    let mut found = Distinct::new(&curve);
    points.retain(|point| found.insert(point));
    let mut state = Progress { loops: 0, quiet: 0, roots: points.len() };
    let mut bend = None;
    while state.quiet < options.quiet && points.len() < options.most {
        if options.deadline.is_some_and(|end| Instant::now() >= end) {
            return None;
        }
        let [home, one, other] = [base.clone(), cut(&mut random), cut(&mut random)].map(with);
        let corners = [&home, &one, &other, &home];
        go_round(&compiled, settings, corners, &mut points, &mut found, &mut state, options.deadline);
        progress(state);
        if state.quiet > 0 {
            let to = |k: f64| {
                let mut moved = base.clone();
                moved[n + 1] += Complex::new(0.7, 0.4) * k;
                let path = compiled.path(&with(base.clone()), &with(moved));
                carry(&compiled, settings, &path, &points, options.deadline)
            };
            let now = bent([&points, &to(1.0), &to(2.0)]);
            bend = now.into_iter().chain(bend).reduce(f64::min);
            if bend.is_some_and(|b| b < STRAIGHT) {
                break;
            }
        }
    }
    let path = compiled.path(&with(base), &with(first));
    let back = carry(&compiled, settings, &path, &points, options.deadline);
    let roots = back.iter().filter(|point| point[n].norm_sqr() < 1e-16).count();
    bend.map(|bend| Trace { bend, roots })
}

/// A bend smaller than this is rounding.
pub const STRAIGHT: f64 = 1e-4;

/// How far three sums of points are from a straight line; `None` if points are missing in one.
fn bent(lists: [&[Vec<Complex<f64>>]; 3]) -> Option<f64> {
    let [a, b, c] = lists;
    if a.is_empty() || a.len() != b.len() || a.len() != c.len() {
        return None;
    }
    let coordinates = 0..a[0].len();
    let bend = coordinates.map(|i| {
        let sum = |list: &[Vec<Complex<f64>>]| list.iter().map(|p| p[i]).sum::<Complex<f64>>();
        let size = a.iter().map(|p| p[i].norm_sqr().sqrt()).sum::<f64>() / a.len() as f64;
        (sum(a) - sum(b) * 2.0 + sum(c)).norm_sqr().sqrt() / size.max(1e-3)
    });
    Some(bend.fold(0.0, f64::max))
}

/// Unknowns x and s; equations with parameters `a + s b`, and `(l x - 1) (s - c) = g`.
fn curve(system: &System) -> Option<System> {
    let (n, p) = system.size();
    let mut graph = Graph::default();
    let symbols: Vec<Id> = (0..n + 1 + 2 * p + n + 2).map(|i| graph.symbol(i as u32)).collect();
    let (s, parameters) = (symbols[n], &symbols[n + 1..]);
    let line: Vec<Id> = (0..p)
        .map(|k| {
            let moved = graph.mul(s, parameters[p + k]);
            graph.add(parameters[k], moved)
        })
        .collect();
    let copies = system.graph.replaced(&mut graph, |k| match (k as usize).checked_sub(n) {
        None => symbols[k as usize],
        Some(parameter) => line[parameter],
    });
    let mut equations: Vec<Id> = system.equations.iter().map(|id| copies[id.index()]).collect();
    let cut = &parameters[2 * p..];
    let minus = graph.real(-1.0);
    let plane = (0..n).fold(minus, |sum, i| {
        let term = graph.mul(cut[i], symbols[i]);
        graph.add(sum, term)
    });
    let shifted = graph.sub(s, cut[n]);
    let product = graph.mul(plane, shifted);
    equations.push(graph.sub(product, cut[n + 1]));
    let name = |stem: &str, count: usize| (0..count).map(|i| format!("{stem}{i}")).collect::<Vec<_>>();
    System::from_parts(
        [system.unknowns.clone(), vec!["the_line".into()]].concat(),
        [name("a", p), name("b", p), name("l", n), name("c", 1), name("g", 1)].concat(),
        graph,
        equations,
    )
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(yaml: &str, seed: u64) -> (System, StartSet) {
        let system = System::from_yaml(yaml).expect("a system");
        let options = Options { seed, ..Options::default() };
        let start = monodromy(&system, &options, |_| {}).expect("a start set");
        (system, start)
    }

    const CUBIC: &str =
        "unknowns: [x, y]\nparameters: [a, b, c, d]\nequations: [x^3 + a*x*y + b, y^2 + c*x + d]\n";

    #[test]
    fn all_roots_are_found_whatever_the_seed_and_the_trace_says_so() {
        for seed in [1, 2, 3] {
            let (system, start) = made(CUBIC, seed);
            assert_eq!(start.roots.len(), 6);
            let options = Options { seed, ..Options::default() };
            let trace = trace_test(&system, &start, &options, |_| {}).expect("a trace");
            assert!(trace.bend < STRAIGHT && trace.roots == 6, "{trace:?}");
            let copy = StartSet::from_bytes(&start.to_bytes(&system), &system).expect("the same");
            assert_eq!((copy.roots.len(), &copy.parameters), (6, &start.parameters));
        }
    }

    #[test]
    fn the_trace_test_shows_what_is_missing() {
        let (system, mut start) = made(CUBIC, 1);
        start.roots.truncate(4);
        let trace = trace_test(&system, &start, &Options::default(), |_| {}).expect("a trace");
        assert_eq!(trace.roots, 6, "{trace:?}");
        let points = |t: f64| -> Vec<Vec<Complex<f64>>> {
            let root = Complex::new(2.0 + t, 0.5).sqrt();
            vec![vec![root], vec![-root]]
        };
        let (a, b, c) = (points(0.0), points(1.0), points(2.0));
        assert!(bent([&a, &b, &c]).is_some_and(|b| b < 1e-12));
        assert!(bent([&a[..1], &b[..1], &c[..1]]).is_some_and(|b| b > 1e-3));
        assert!(bent([&a, &b[..1], &c]).is_none());
    }

    #[test]
    fn of_roots_that_a_symmetry_connects_one_is_kept() {
        let yaml = "unknowns: [x]\nparameters: [a, b]\nequations: [x^4 + a*x^2 + b]\nsymmetries: [{x: -x}]\n";
        assert_eq!(made(yaml, 1).1.roots.len(), 2);
        assert_eq!(made(&yaml.replace("symmetries: [{x: -x}]\n", ""), 1).1.roots.len(), 4);
    }

    #[test]
    fn seeds_give_the_same_bits() {
        assert_eq!(made(CUBIC, 5).1, made(CUBIC, 5).1);
    }
}
