//! Pairs with a known pose, as folders hold them.

use super::params::Preset;
use anyhow::{bail, Context};
use flashreg::geometry::Rigid;
use nalgebra::{Matrix3, Rotation3, Translation3, UnitQuaternion, Vector3};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A pair.
pub struct Pair {
    /// What it is counted with: a scene, a data set.
    pub set: String,
    pub name: String,
    pub preset: Preset,
    /// The true pose: from the source to the target of the rows.
    pub target_t_source: Rigid,
    /// Their file.
    pub correspondences: PathBuf,
}

/// A pair of clouds.
pub struct Clouds {
    /// Its folder in the folder of all.
    pub name: String,
    /// The data set that it is from: the part of the name before the first slash.
    pub set: String,
    /// The true pose.
    pub target_t_source: Rigid,
    /// A pose is right within so many degrees and metres.
    pub within: [f64; 2],
    pub source: PathBuf,
    pub target: PathBuf,
}

/// The pairs of a `truth.json` that have clouds, `PAIR/src.ply` and `PAIR/dst.ply`.
pub fn clouds(folder: &Path) -> anyhow::Result<Vec<Clouds>> {
    let mut pairs = Vec::new();
    for (name, truth) in truths(folder)?.into_iter().filter(|(_, truth)| truth.clouds) {
        // Those of 3DMatch, and of KITTI odometry.
        let usual = if truth.outdoor { [5.0, 0.6] } else { [15.0, 0.3] };
        let degrees = truth.max_rotation_deg.unwrap_or(usual[0]);
        let metres = truth.max_translation_m.unwrap_or(usual[1]);
        let at = folder.join(&name);
        pairs.push(Clouds {
            set: set_of(&name),
            target_t_source: pose_file(&at.join("gt.txt"))?,
            within: [degrees, metres],
            source: at.join("src.ply"),
            target: at.join("dst.ply"),
            name,
        });
    }
    Ok(pairs)
}

/// All pairs of a folder. It has a `truth.json`; or a `gt.log`; or folders with a `gt.log` each. With
/// `forward`, rows lead from the first fragment that `gt.log` names to the second.
pub fn find(folder: &Path, preset: Preset, forward: bool) -> anyhow::Result<Vec<Pair>> {
    if folder.join("truth.json").is_file() {
        return by_truth_json(folder);
    }
    if folder.join("gt.log").is_file() {
        return by_log(folder, preset, forward);
    }
    let mut folders: Vec<PathBuf> =
        entries(folder)?.into_iter().filter(|p| p.join("gt.log").is_file()).collect();
    folders.sort();
    if folders.is_empty() {
        bail!("neither truth.json nor gt.log in it, nor folders with a gt.log");
    }
    let mut pairs = Vec::new();
    for folder in folders {
        pairs.extend(by_log(&folder, preset, forward).with_context(|| folder.display().to_string())?);
    }
    Ok(pairs)
}

fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// What `truth.json` says of a pair.
#[derive(Deserialize)]
struct Truth {
    outdoor: bool,
    /// By name; the values are not read.
    #[serde(default)]
    correspondences: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    clouds: bool,
    max_rotation_deg: Option<f64>,
    max_translation_m: Option<f64>,
}

fn truths(folder: &Path) -> anyhow::Result<BTreeMap<String, Truth>> {
    let text = std::fs::read_to_string(folder.join("truth.json")).context("truth.json")?;
    serde_json::from_str(&text).context("truth.json")
}

fn set_of(pair: &str) -> String {
    pair.split('/').next().unwrap_or(pair).to_owned()
}

fn pose_file(path: &Path) -> anyhow::Result<Rigid> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    pose(&text).with_context(|| path.display().to_string())
}

/// `truth.json` names the pairs and their correspondences, `PAIR/corr_NAME.txt`; the pose stands in
/// `PAIR/gt.txt`.
fn by_truth_json(folder: &Path) -> anyhow::Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    for (name, truth) in &truths(folder)? {
        let target_t_source = pose_file(&folder.join(name).join("gt.txt"))?;
        for how in truth.correspondences.keys() {
            pairs.push(Pair {
                set: set_of(name),
                name: format!("{name} {how}"),
                preset: if truth.outdoor { Preset::Outdoor } else { Preset::Indoor },
                target_t_source,
                correspondences: folder.join(name).join(format!("corr_{how}.txt")),
            });
        }
    }
    Ok(pairs)
}

/// `gt.log` has five lines for each pair: its two numbers and the number of fragments, and the matrix
/// that takes points of the second fragment to the first (Choi, Zhou and Koltun 2015). The
/// correspondences are in the file beside it whose name has these two numbers and no other.
fn by_log(folder: &Path, preset: Preset, forward: bool) -> anyhow::Result<Vec<Pair>> {
    let text = std::fs::read_to_string(folder.join("gt.log")).context("gt.log")?;
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut files: BTreeMap<[u64; 2], Vec<PathBuf>> = BTreeMap::new();
    for path in entries(folder)? {
        let usable = path.extension().is_some_and(|e| ["txt", "csv", "npy"].iter().any(|known| e == *known));
        if let Some(numbers) = numbers(&name_of(&path)).filter(|_| usable) {
            files.entry(numbers).or_default().push(path);
        }
    }
    let mut pairs = Vec::new();
    for (index, block) in lines.chunks(5).enumerate() {
        let at = || format!("gt.log, pair {}", index + 1);
        let head: Vec<u64> = block[0].split_whitespace().map_while(|v| v.parse().ok()).collect();
        let [i, j, ..] = head[..] else { bail!("{}: '{}' names no pair", at(), block[0]) };
        let first_t_second = pose(&block[1..].join("\n")).with_context(at)?;
        let found = files.get(&[i, j]).map_or(&[][..], Vec::as_slice);
        let [correspondences] = found else {
            bail!("{}: {} files with the numbers {i} and {j} in their names", at(), found.len());
        };
        pairs.push(Pair {
            set: name_of(folder),
            name: format!("{i} {j}"),
            preset,
            target_t_source: if forward { first_t_second.inverse() } else { first_t_second },
            correspondences: correspondences.clone(),
        });
    }
    Ok(pairs)
}

/// The numbers in a name, if they are two.
fn numbers(name: &str) -> Option<[u64; 2]> {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let digits = stem.split(|c: char| !c.is_ascii_digit()).filter(|d| !d.is_empty());
    let all: Vec<u64> = digits.map(|d| d.parse().ok()).collect::<Option<_>>()?;
    all.try_into().ok()
}

/// A pose from the numbers of a 4x4 matrix, row by row.
fn pose(text: &str) -> anyhow::Result<Rigid> {
    let numbers: Vec<f64> = text
        .split_whitespace()
        .map(|v| v.parse().with_context(|| format!("'{v}' is not a number")))
        .collect::<Result<_, _>>()?;
    if numbers.len() != 16 || numbers.iter().any(|v| !v.is_finite()) {
        bail!("a matrix of 4 x 4 finite numbers is needed, not {} numbers", numbers.len());
    }
    let rotation = Matrix3::from_fn(|row, column| numbers[4 * row + column]);
    if (rotation.transpose() * rotation - Matrix3::identity()).amax() > 1e-3 || rotation.determinant() < 0.0 {
        bail!("the matrix holds no rotation");
    }
    // Printed with few digits: the nearest rotation.
    let rotation = UnitQuaternion::from_rotation_matrix(&Rotation3::from_matrix(&rotation));
    let translation = Vector3::from_fn(|row, _| numbers[4 * row + 3]);
    Ok(Rigid::from_parts(Translation3::from(translation), rotation))
}
