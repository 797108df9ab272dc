//! Start sets: parameters and the roots they have.

use super::distinct::Distinct;
use super::follow::follow;
use super::program::Compiled;
use super::system::System;
use super::track::Settings;
use nalgebra::Complex;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const MAGIC: &[u8; 8] = b"FRSTART1";
/// A total-degree start with more paths than this is refused.
pub const MAX_PATHS: u128 = 200_000;

/// Why there is no start set.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The bytes are no start set.
    #[error("not a start set, or one of another version")]
    Format,
    /// It was made for other equations.
    #[error("the start set belongs to other equations than `{0}`; make it again")]
    Other(String),
    /// Numbers are missing or too many.
    #[error("the start set has {got} {what}, needed: {need}")]
    Size {
        /// Of what.
        what: &'static str,
        /// How many there are.
        got: usize,
        /// How many there should be.
        need: usize,
    },
    /// Roots that are none.
    #[error("{bad} of {all} start roots are no regular roots of the start parameters")]
    Bad {
        /// How many.
        bad: usize,
        /// Of how many.
        all: usize,
    },
    /// The degrees are too high for a start of this kind.
    #[error("{0} paths by the degrees of the equations, the limit is {MAX_PATHS}")]
    TooManyPaths(u128),
    /// No point with a regular root was found.
    #[error("no parameters with a regular root were found from {0} random beginnings")]
    NoSeed(usize),
    /// Parameters that are no numbers.
    #[error("the parameters are not finite")]
    NotFinite,
    /// Monodromy needs something to vary.
    #[error("the system has no parameters, and its terms are too many to make them so")]
    NoParameters,
}

/// Parameters and their roots; of roots that symmetries carry to each other, one.
#[derive(Debug, Clone, PartialEq)]
pub struct StartSet {
    /// The parameters.
    pub parameters: Vec<Complex<f64>>,
    /// Their roots.
    pub roots: Vec<Vec<Complex<f64>>>,
    /// How the parameters were chosen, for people; empty if they are as drawn.
    pub note: String,
}

impl StartSet {
    /// As bytes: magic, fingerprint of the equations, three counts (u32), parameters in double and
    /// roots in single precision, all little-endian; then, unless it is empty, length (u32) and bytes of
    /// the note.
    pub fn to_bytes(&self, system: &System) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(system.fingerprint().to_le_bytes());
        let (n, p) = system.size();
        for count in [p, n, self.roots.len()] {
            bytes.extend((count as u32).to_le_bytes());
        }
        for value in &self.parameters {
            bytes.extend(value.re.to_le_bytes());
            bytes.extend(value.im.to_le_bytes());
        }
        for value in self.roots.iter().flatten() {
            bytes.extend((value.re as f32).to_le_bytes());
            bytes.extend((value.im as f32).to_le_bytes());
        }
        if !self.note.is_empty() {
            bytes.extend((self.note.len() as u32).to_le_bytes());
            bytes.extend(self.note.as_bytes());
        }
        bytes
    }

    /// Reads what [`StartSet::to_bytes`] wrote for the same equations; roots are polished and checked.
    pub fn from_bytes(bytes: &[u8], system: &System) -> Result<Self, StartError> {
        let mut rest = bytes.strip_prefix(MAGIC).ok_or(StartError::Format)?;
        if u64::from_le_bytes(take(&mut rest)?) != system.fingerprint() {
            return Err(StartError::Other(system.name.clone()));
        }
        let mut count = || Ok(u32::from_le_bytes(take(&mut rest)?) as usize);
        let (p, n, roots) = (count()?, count()?, count()?);
        let numbers = 16 * p as u128 + 8 * n as u128 * roots as u128;
        if (n, p) != system.size() || (rest.len() as u128) < numbers {
            return Err(StartError::Format);
        }
        let mut double = || Ok(f64::from_le_bytes(take(&mut rest)?));
        let parameters = (0..p).map(|_| Ok(Complex::new(double()?, double()?))).collect::<Result<_, _>>()?;
        let mut single = || Ok(f64::from(f32::from_le_bytes(take(&mut rest)?)));
        let mut root =
            || (0..n).map(|_| Ok(Complex::new(single()?, single()?))).collect::<Result<Vec<_>, _>>();
        let roots = (0..roots).map(|_| root()).collect::<Result<_, StartError>>()?;
        let length = if rest.is_empty() { 0 } else { u32::from_le_bytes(take(&mut rest)?) as usize };
        if rest.len() != length {
            return Err(StartError::Format);
        }
        let note = std::str::from_utf8(rest).map_err(|_| StartError::Format)?.to_owned();
        Self { parameters, roots, note }.checked(system)
    }

    /// Polishes the roots, refuses the set if one is no regular root, and keeps one of those that
    /// are the same or that symmetries carry to each other.
    pub fn checked(self, system: &System) -> Result<Self, StartError> {
        let need = system.size().1;
        if self.parameters.len() != need {
            return Err(StartError::Size { what: "parameters", got: self.parameters.len(), need });
        }
        let n = system.size().0;
        if let Some(root) = self.roots.iter().find(|r| r.len() != n) {
            return Err(StartError::Size { what: "numbers in a root", got: root.len(), need: n });
        }
        let compiled = Compiled::new(system);
        // A path that stays where it is: tracks end at once, polished.
        let path = compiled.path(&self.parameters, &self.parameters);
        let job = |k: usize| (&path, self.roots[k].as_slice());
        let polished = follow(&compiled, Settings::default(), self.roots.len(), job, None);
        let mut distinct = Distinct::new(system);
        let bad = polished.iter().filter(|r| !r.ok()).count();
        if bad > 0 || polished.is_empty() {
            return Err(StartError::Bad { bad, all: polished.len() });
        }
        let roots = polished.iter().map(|r| r.point.to_vec()).filter(|r| distinct.insert(r)).collect();
        Ok(Self { roots, ..self })
    }

    /// The start by the degrees of the equations, for a system whose parameters are given: a family
    /// with two parameters which has the simple system at its start and this one at (0, 1), with
    /// its start set. The factor between both is random.
    pub fn total_degree(
        system: &System,
        values: &[Complex<f64>],
        seed: u64,
    ) -> Result<(System, Self), StartError> {
        let paths = system.bezout();
        if paths > MAX_PATHS {
            return Err(StartError::TooManyPaths(paths));
        }
        if values.iter().any(|v| !(v.re.is_finite() && v.im.is_finite())) {
            return Err(StartError::NotFinite);
        }
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let (family, sizes) = system.blended(values);
        let unit = |random: &mut Pcg64Mcg| {
            let angle = std::f64::consts::TAU * random.random::<f64>();
            Complex::new(libm::cos(angle), libm::sin(angle))
        };
        let parameters = vec![unit(&mut random), Complex::new(0.0, 0.0)];
        let mut roots: Vec<Vec<Complex<f64>>> = vec![Vec::new()];
        for (degree, size) in system.degrees.iter().zip(sizes) {
            let of_one = |k: u32| {
                let angle = std::f64::consts::TAU * f64::from(k) / f64::from(*degree);
                Complex::new(libm::cos(angle), libm::sin(angle)) * size
            };
            let extended = |root: &Vec<Complex<f64>>| {
                let root = root.clone();
                (0..*degree).map(move |k| [root.clone(), vec![of_one(k)]].concat())
            };
            roots = roots.iter().flat_map(extended).collect();
        }
        Ok((family, Self { parameters, roots, note: String::new() }))
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], StartError> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(StartError::Format)?;
    *rest = tail;
    Ok(*head)
}
