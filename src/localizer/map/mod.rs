//! The map: what dense alignment and global localization need of it, made once and kept beside the file.
//!
//! ```text
//! file -> points -> voxels, normals (Surface) -> features -> those of each tile (Submap)
//!      <- NAME.pcd.flashreg, if it was made from the same file in the same way
//! ```

mod cache;
mod check;
mod tiles;

pub use check::{findings, Finding};
pub use tiles::Tiles;

use crate::features::{Features, FrontEnd, Lengths, Surface};
use crate::geometry::{Point, Vector};
use crate::io::cloud_files::{self, CloudError};
use crate::params::Params;
use std::fmt;
use std::path::{Path, PathBuf};

/// Fewer surface points than this are no map.
const MIN_SURFACE: usize = 100;
/// A map whose points lie further apart is none: coordinates are in metres, the earth is 4e7 m around. m
const MAX_EXTENT: f64 = 1e6;
/// Points that the extent is judged by at most.
const JUDGED: usize = 100_000;
/// Share of them on either side that may lie anywhere.
const STRAY: f64 = 1e-3;

/// A map that is ready for use.
#[derive(Debug, Clone)]
pub struct Map {
    /// Lengths that surface and features were made with.
    pub lengths: Lengths,
    /// Sampled points with normals.
    pub surface: Surface,
    /// Smallest and largest coordinates of the surface.
    pub bounds: [Point; 2],
    /// Usable points of the file.
    pub raw_points: u64,
    /// Points of the file that were not finite.
    pub non_finite: u64,
    /// Parts that a scan is matched with, which overlap.
    pub submaps: Vec<Submap>,
    /// What became of the file beside the map.
    pub cache: CacheUse,
}

/// A part of the map.
#[derive(Debug, Clone, PartialEq)]
pub struct Submap {
    /// Its centre.
    pub center: Point,
    /// All of its features are within this horizontal distance of the centre, m.
    pub radius: f64,
    /// Its features.
    pub features: Features,
}

/// How a map is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Edge of the voxels, m; 0 chooses it from the extent ([`Lengths::for_extent`]).
    pub voxel: f64,
    /// Edge of the submaps, m; 0 derives it from the edge of the voxels ([`Tiles`]).
    pub submap: f64,
    /// Features of a submap at most.
    pub max_features: usize,
    /// Threads; 0: one per core. The map is the same with any number.
    pub threads: usize,
    /// Keep the result beside the file, and take it from there.
    pub cache: bool,
    /// Where all of it was seen from, m: the map is one cloud of a sensor. Without it, z is up, and normals are turned
    /// to where robots on floors are.
    pub viewpoint: Option<Point>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { voxel: 0.0, submap: 0.0, max_features: 10_000, threads: 0, cache: true, viewpoint: None }
    }
}

impl From<&Params> for Settings {
    fn from(params: &Params) -> Self {
        Self {
            voxel: params.scan.voxel_size,
            submap: params.map.submap_size,
            cache: params.map.cache,
            ..Self::default()
        }
    }
}

/// What became of the file beside the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheUse {
    /// There is none, and none was wanted.
    Unused,
    /// The map was read from it.
    Read,
    /// It was written; where another was in its place, why that was of no use.
    Written(Option<String>),
    /// It could not be written; the map is made anew at every start.
    NotWritten(String),
}

impl fmt::Display for CacheUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unused => f.write_str("not used"),
            Self::Read => f.write_str("read"),
            Self::Written(None) => f.write_str("written"),
            Self::Written(Some(why)) => write!(f, "written anew ({why})"),
            Self::NotWritten(why) => write!(f, "not written ({why})"),
        }
    }
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading the file.
    Read,
    /// Sampling the points, and normals.
    Surface,
    /// Features.
    Features,
    /// Writing the file beside the map.
    Write,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "reading",
            Self::Surface => "surface",
            Self::Features => "features",
            Self::Write => "writing",
        })
    }
}

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Steps of the stage that are done.
    pub done: usize,
    /// Steps of the stage.
    pub total: usize,
}

/// Why there is no map. The text begins with a fixed word that scripts may rely on.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The file gives no points.
    #[error("{}: {source}", path.display())]
    File {
        /// the file
        path: PathBuf,
        /// why
        source: CloudError,
    },
    /// Too few places of the surface.
    #[error("too_few: {got} occupied voxels, {MIN_SURFACE} are needed")]
    TooFew {
        /// occupied voxels
        got: usize,
    },
    /// Coordinates that cannot be metres in one map.
    #[error("absurd_extent: the points spread over {0:e} m, more than {MAX_EXTENT:e} m")]
    AbsurdExtent(f64),
    /// The voxels cannot hold the coordinates.
    #[error("bad_voxel_size: {0} m")]
    BadVoxel(f64),
    /// No place of it looks like anything.
    #[error("no_features: none of {0} surface points has a descriptor")]
    NoFeatures(usize),
    /// No threads.
    #[error("threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

impl Map {
    /// Reads a map file. What it costs to make a map of it is kept beside it, as `NAME.flashreg`, and taken from there
    /// if the file has the same content and the settings are the same.
    ///
    /// # Errors
    /// See [`MapError`]. A file beside the map that is broken, foreign or cannot be written is none: see
    /// [`Map::cache`] and the log.
    pub fn load(
        path: &Path,
        settings: &Settings,
        mut progress: impl FnMut(Progress),
    ) -> Result<Self, MapError> {
        let wrong = |source| MapError::File { path: path.to_owned(), source };
        progress(Progress { stage: Stage::Read, done: 0, total: 1 });
        let bytes = cloud_files::bytes(path).map_err(wrong)?;
        let beside = cache::path(path);
        let key = settings.cache.then(|| cache::key(&bytes, settings));
        let mut unusable = None;
        if let Some(key) = &key {
            match cache::read(&beside, key) {
                Ok(map) => {
                    progress(Progress { stage: Stage::Read, done: 1, total: 1 });
                    return Ok(map);
                }
                Err(cache::Unusable::Absent) => {}
                Err(why) => unusable = Some(why.to_string()),
            }
        }
        let cloud = cloud_files::parse(&bytes).map_err(wrong)?;
        drop(bytes);
        progress(Progress { stage: Stage::Read, done: 1, total: 1 });
        let mut map = Self::from_points(&cloud.points, settings, &mut progress)?;
        map.non_finite += cloud.non_finite;
        drop(cloud);
        if let Some(key) = &key {
            progress(Progress { stage: Stage::Write, done: 0, total: 1 });
            map.cache = match cache::write(&beside, key, &map) {
                Ok(()) => CacheUse::Written(unusable),
                Err(why) => CacheUse::NotWritten(why.to_string()),
            };
            match &map.cache {
                CacheUse::Written(Some(why)) => log::warn!("{}: {why}: made anew", beside.display()),
                CacheUse::NotWritten(why) => log::warn!("{}: not written: {why}", beside.display()),
                _ => {}
            }
            progress(Progress { stage: Stage::Write, done: 1, total: 1 });
        }
        Ok(map)
    }

    /// Makes a map of points.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn from_points(
        points: &[Point],
        settings: &Settings,
        mut progress: impl FnMut(Progress),
    ) -> Result<Self, MapError> {
        progress(Progress { stage: Stage::Surface, done: 0, total: 1 });
        let extent = extent(points);
        let widest = extent.iter().copied().fold(0.0, f64::max);
        if widest > MAX_EXTENT {
            return Err(MapError::AbsurdExtent(widest));
        }
        let lengths = match settings.voxel {
            0.0 => Lengths::for_extent(extent),
            voxel if voxel.is_finite() && voxel >= 1e-3 => Lengths::new(voxel),
            voxel => return Err(MapError::BadVoxel(voxel)),
        };
        let mut front_end = FrontEnd::new(settings.threads)?;
        let mut surface = Surface::default();
        front_end.surface(points, lengths.voxel, settings.viewpoint, &mut surface);
        if surface.points.len() < MIN_SURFACE {
            return Err(MapError::TooFew { got: surface.points.len() });
        }
        let bounds = bounds(&surface.points);
        progress(Progress { stage: Stage::Surface, done: 1, total: 1 });

        let tiles = Tiles::new(&surface.points, &lengths, settings.submap);
        let mut submaps = Vec::with_capacity(tiles.len());
        let told = |done, total| progress(Progress { stage: Stage::Features, done, total });
        front_end.describe(&surface, &lengths, told);
        for tile in tiles.iter() {
            let mut features = Features::default();
            front_end.choose(&surface, tile.members(), settings.max_features, &mut features);
            let submap = tile.submap(features);
            if !submap.features.points.is_empty() {
                submaps.push(submap);
            }
        }
        if submaps.is_empty() {
            return Err(MapError::NoFeatures(surface.points.len()));
        }
        let raw_points = points.iter().filter(|point| is_finite(point)).count() as u64;
        Ok(Self {
            lengths,
            surface,
            bounds,
            raw_points,
            non_finite: points.len() as u64 - raw_points,
            submaps,
            cache: CacheUse::Unused,
        })
    }

    /// Features of all submaps. Those where submaps overlap are counted in each.
    pub fn features(&self) -> usize {
        self.submaps.iter().map(|submap| submap.features.points.len()).sum()
    }

    /// Memory that it takes, bytes.
    pub fn bytes(&self) -> usize {
        let surface = self.surface.points.capacity() * size_of::<Point>()
            + self.surface.normals.capacity() * size_of::<Vector>();
        let features = |submap: &Submap| {
            submap.features.points.capacity() * size_of::<Point>()
                + submap.features.descriptors.capacity() * size_of::<crate::features::Descriptor>()
        };
        surface + self.submaps.iter().map(features).sum::<usize>()
    }
}

fn is_finite(point: &Point) -> bool {
    point.iter().all(|v| v.is_finite())
}

/// Smallest and largest coordinates.
fn bounds(points: &[Point]) -> [Point; 2] {
    let start = [Point::from([f64::INFINITY; 3]), Point::from([f64::NEG_INFINITY; 3])];
    points.iter().fold(start, |[low, high], p| [low.inf(p), high.sup(p)])
}

/// Edges of the box that holds all points but a few strays on either side, m.
fn extent(points: &[Point]) -> Vector {
    let every = points.len().div_ceil(JUDGED).max(1);
    let judged: Vec<&Point> = points.iter().step_by(every).filter(|point| is_finite(point)).collect();
    let cut = (judged.len() as f64 * STRAY) as usize;
    let mut values = Vec::with_capacity(judged.len());
    let mut edge = |axis: usize| {
        values.clear();
        values.extend(judged.iter().map(|point| point.coords.as_slice().get(axis).copied().unwrap_or(0.0)));
        values.sort_unstable_by(f64::total_cmp);
        let low = values.get(cut).copied().unwrap_or(0.0);
        let high = values.iter().rev().nth(cut).copied().unwrap_or(0.0);
        (high - low).max(0.0)
    };
    Vector::new(edge(0), edge(1), edge(2))
}
