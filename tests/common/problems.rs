//! Registration problems with a known answer, and the real ones where their data is at hand.

use flashreg::geometry::{Point, Rigid, Vector};
use flashreg::params::{Params, Value};
use flashreg::registration::{Correspondence, Problem, Registration};
use nalgebra::UnitQuaternion;
use rand::SeedableRng;
use std::path::{Path, PathBuf};

pub use flashreg::simulate::planted::*;

pub type Random = rand_pcg::Pcg64Mcg;

pub fn random(seed: u64) -> Random {
    Random::seed_from_u64(seed)
}

pub fn problem(rows: &[Correspondence]) -> Problem {
    let mut problem = Problem::with_capacity(rows.len());
    assert!(rows.iter().all(|row| problem.push(*row)), "a row was refused");
    problem
}

/// Parameters with a preset's three lengths, on the CPU.
pub fn preset(outdoor: bool) -> Params {
    let mut params = Params::default();
    let text = match outdoor {
        true => include_str!("../../config/outdoor.yaml"),
        false => include_str!("../../config/indoor.yaml"),
    };
    params.apply_yaml(text, "flashreg").expect("the preset is valid");
    with(params, "backend.kind", Value::Text("cpu".into()))
}

/// Every digit of a result but its times and the name of the backend, to be compared.
pub fn every_digit(result: &Registration) -> String {
    let mut result = result.clone();
    result.stages = Default::default();
    result.backend = "";
    format!("{result:?}")
}

pub fn with(mut params: Params, name: &str, value: Value) -> Params {
    params.set(name, &value).expect("a valid parameter");
    params
}

/// A real pair of scans.
pub struct RealPair {
    pub name: String,
    pub rows: Vec<Correspondence>,
    pub truth: Rigid,
    pub outdoor: bool,
    /// Right when within these: rad, m.
    pub bound: (f64, f64),
}

/// The real pairs in the folder `FLASHREG_DATA` or beside the project, or `None` with a note where
/// they are absent.
pub fn real_pairs() -> Option<Vec<RealPair>> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/registration");
    let folder = std::env::var_os("FLASHREG_DATA").map_or_else(beside, PathBuf::from);
    let Ok(truth) = std::fs::read_to_string(folder.join("truth.json")) else {
        println!("skipped: no data");
        return None;
    };
    let truth: serde_json::Value = serde_json::from_str(&truth).expect("truth.json is JSON");
    let mut pairs = Vec::new();
    for (pair, facts) in truth.as_object().expect("an object") {
        for how in facts["correspondences"].as_object().expect("an object").keys() {
            let number = |key: &str| facts[key].as_f64().expect("a number");
            pairs.push(RealPair {
                name: format!("{pair} {how}"),
                rows: read_rows(&folder.join(pair).join(format!("corr_{how}.txt"))),
                truth: read_pose(&folder.join(pair).join("gt.txt")),
                outdoor: facts["outdoor"].as_bool().expect("a bool"),
                bound: (number("max_rotation_deg").to_radians(), number("max_translation_m")),
            });
        }
    }
    Some(pairs)
}

fn numbers(path: &PathBuf) -> Vec<f64> {
    let text = std::fs::read_to_string(path).expect("readable");
    text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

fn read_rows(path: &PathBuf) -> Vec<Correspondence> {
    let row = |v: &[f64]| Correspondence::new(Point::new(v[0], v[1], v[2]), Point::new(v[3], v[4], v[5]));
    numbers(path).chunks_exact(6).map(row).collect()
}

fn read_pose(path: &PathBuf) -> Rigid {
    let m = nalgebra::Matrix4::from_row_slice(&numbers(path));
    let rotation = nalgebra::Rotation3::from_matrix(&m.fixed_view::<3, 3>(0, 0).into_owned());
    let translation = Vector::new(m[(0, 3)], m[(1, 3)], m[(2, 3)]);
    Rigid::from_parts(translation.into(), UnitQuaternion::from_rotation_matrix(&rotation))
}
