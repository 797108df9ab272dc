//! `flashreg simulate`

use super::say;
use anyhow::{bail, Context};
use clap::{Args, ValueEnum};
use flashreg::simulate::camera::{CameraModel, CameraOptions};
use flashreg::simulate::faults::Fault;
use flashreg::simulate::levels::Levels;
use flashreg::simulate::motion::Departure;
use flashreg::simulate::scene::Place;
use flashreg::simulate::write::MapChange;
use flashreg::simulate::{write, Options, Simulation, Topics};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

/// [`Place`] by the words of the command line.
#[derive(Clone, Copy, ValueEnum)]
enum Scene {
    /// Offices: a corridor, rooms, furniture
    Building,
    /// A hall with rows of pallet racks
    Warehouse,
    /// Streets around blocks of houses
    Outdoor,
    /// A road tunnel
    Tunnel,
}

impl From<Scene> for Place {
    fn from(scene: Scene) -> Self {
        match scene {
            Scene::Building => Self::Building,
            Scene::Warehouse => Self::Warehouse,
            Scene::Outdoor => Self::Outdoor,
            Scene::Tunnel => Self::Tunnel,
        }
    }
}

/// [`CameraModel`] by the words of the command line.
#[derive(Clone, Copy, ValueEnum)]
enum Model {
    /// Pixels, with a distortion of plumb_bob
    Pinhole,
    /// Pixels of a lens of 195 degrees, with a distortion of equidistant
    Fisheye,
    /// Directions up to 110 degrees from the axis, without /camera_info
    Bearings,
}

impl From<Model> for CameraModel {
    fn from(model: Model) -> Self {
        match model {
            Model::Pinhole => Self::Pinhole,
            Model::Fisheye => Self::Fisheye,
            Model::Bearings => Self::Bearings,
        }
    }
}

#[derive(Args)]
pub struct Simulate {
    /// MCAP file to write
    #[arg(long, value_name = "FILE.mcap", required_unless_present_any = ["pair", "map"])]
    out: Option<PathBuf>,
    /// Write the map as a binary PCD file
    #[arg(long, value_name = "FILE.pcd")]
    map: Option<PathBuf>,
    /// Write the map so many times as large: a wrong one
    #[arg(long, value_name = "FACTOR", requires = "map", default_value_t = 1.0)]
    map_scale: f64,
    /// Write the map as in a mirror, west and east exchanged: a wrong one
    #[arg(long, requires = "map")]
    map_mirror: bool,
    /// Write one frame as text, `sx sy sz tx ty tz weight` a row, and its true pose beside it
    /// (FILE.truth.txt, a 4x4 matrix)
    #[arg(long, value_name = "FILE.txt")]
    pair: Option<PathBuf>,
    /// Number of the frame that --pair writes
    #[arg(long, default_value_t = 0, requires = "pair")]
    frame: usize,
    /// Decides everything that is random
    #[arg(long, default_value_t = Options::default().seed)]
    seed: u64,
    /// Where
    #[arg(long, value_enum, default_value_t = Scene::Building)]
    scene: Scene,
    /// Blocks of houses of the outdoor scene, such as 5x5
    #[arg(long, value_name = "COLUMNSxROWS", value_parser = blocks, default_value = "2x1")]
    blocks: [usize; 2],
    /// Where on its route the robot begins, as a share of its length, 0 .. 1 [default: anywhere, by the seed]
    #[arg(long, value_name = "SHARE")]
    begin: Option<f64>,
    /// Drive the route the other way
    #[arg(long)]
    reverse: bool,
    /// Stand so long before the robot drives, s
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    stand: f64,
    /// Length of the drive, s; when the route is done, it goes around again
    #[arg(long, default_value_t = Options::default().duration)]
    duration: f64,
    /// Sweeps per second, Hz
    #[arg(long, default_value_t = Options::default().rate)]
    rate: f64,
    /// Correspondences per sweep
    #[arg(long, default_value_t = Options::default().correspondences)]
    correspondences: usize,
    /// Share of right matches, on average, 0 .. 1
    #[arg(long, default_value_t = Options::default().inlier_rate)]
    inlier_rate: f64,
    /// People who walk about
    #[arg(long, default_value_t = Options::default().people)]
    people: usize,
    /// Give right matches, of LiDAR and camera, somewhat more weight than wrong ones (otherwise all weigh 1)
    #[arg(long)]
    weights: bool,
    /// LiDAR, by its name in the levels: vlp16 (16 beams), xt32 (32), os1-64 (64), or
    /// os1-64-2048 (64, with 131,072 rays a turn)
    #[arg(long, value_name = "NAME", default_value = "vlp16")]
    lidar: String,
    /// Record no /correspondences_3d3d
    #[arg(long)]
    no_correspondences: bool,
    /// Record /points: raw sweeps, taken while robot and people move
    #[arg(long)]
    lidar_clouds: bool,
    /// Record /odom, nav_msgs/Odometry, besides tf
    #[arg(long)]
    odometry: bool,
    /// Record /imu
    #[arg(long)]
    imu: bool,
    /// Record /camera_info, /correspondences_2d3d and /correspondences_2d2d with /ground_truth_2d2d
    #[arg(long)]
    camera: bool,
    /// What the camera gives
    #[arg(long, value_enum, default_value_t = Model::Pinhole, requires = "camera")]
    camera_model: Model,
    /// Read the rows of the image one after another, while the robot moves; the stamp is that of the first
    #[arg(long, requires = "camera")]
    rolling_shutter: bool,
    /// Views of the camera per second, Hz; unless given it is triggered by the sweeps
    #[arg(long, value_name = "HZ", requires = "camera")]
    camera_rate: Option<f64>,
    /// Let something go wrong, T seconds after the start (half way unless given): clock-jump, no-lidar,
    /// no-odometry, no-imu, no-camera, nan, empty,
    /// only-ground, stop, kidnap, and for the whole drive identical-rooms and
    /// changed-map; any number of times
    #[arg(long, value_name = "KIND[@T[,DURATION]]")]
    fault: Vec<Fault>,
    /// Noise, dropout, drift and change in place of config/simulation.yaml
    #[arg(long, value_name = "FILE.yaml")]
    levels: Option<PathBuf>,
}

impl Simulate {
    fn options(&self) -> anyhow::Result<Options> {
        let levels = match &self.levels {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
                Levels::parse(&text).with_context(|| path.display().to_string())?
            }
            None => Levels::default(),
        };
        Ok(Options {
            seed: self.seed,
            place: self.scene.into(),
            blocks: self.blocks,
            departure: Departure { begin: self.begin, reverse: self.reverse, stand: self.stand },
            duration: self.duration,
            rate: self.rate,
            correspondences: self.correspondences,
            inlier_rate: self.inlier_rate,
            people: self.people,
            weights: self.weights,
            lidar: levels.lidar(&self.lidar)?,
            camera: CameraOptions {
                model: self.camera_model.into(),
                rolling_shutter: self.rolling_shutter,
                rate: self.camera_rate,
            },
            topics: Topics {
                correspondences: !self.no_correspondences,
                clouds: self.lidar_clouds,
                odometry: self.odometry,
                imu: self.imu,
                camera: self.camera,
            },
            faults: self.fault.clone(),
            start: Options::default().start,
            levels,
        })
    }

    pub fn run(self) -> anyhow::Result<()> {
        let simulation = Simulation::new(self.options()?)?;
        if let Some(path) = &self.map {
            let change = MapChange { scale: self.map_scale, mirror: self.map_mirror };
            write::pcd(&simulation, change, create(path)?).with_context(|| path.display().to_string())?;
            say(format_args!("{}: {} points", path.display(), simulation.map().len()));
        }
        if let Some(path) = &self.out {
            let bar = ProgressBar::new(simulation.frames() as u64).with_style(
                ProgressStyle::with_template("{bar:40} {pos}/{len} sweeps {eta}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            let mut file = create(path)?;
            let written = write::mcap(&simulation, &mut file, |n| bar.set_position(n as u64))
                .and_then(|written| Ok((written, file.stream_position()?)))
                .with_context(|| path.display().to_string());
            bar.finish_and_clear();
            let (written, bytes) = written?;
            let share = |right: usize, all: usize| 100.0 * right as f64 / all.max(1) as f64;
            let views = match self.camera {
                true => format!(
                    " {} views, {} landmarks, {:.1} % right,",
                    written.views,
                    written.landmarks,
                    share(written.right_landmarks, written.landmarks)
                ),
                false => String::new(),
            };
            say(format_args!(
                "{}: {} sweeps, {} raw points, {} correspondences, {:.1} % right,{views} {:.1} MB, seed {}",
                path.display(),
                written.frames,
                written.points,
                written.correspondences,
                share(written.right, written.correspondences),
                bytes as f64 * 1e-6,
                self.seed
            ));
        }
        if let Some(path) = &self.pair {
            if self.frame >= simulation.frames() {
                bail!("--frame {}: the drive has {} frames", self.frame, simulation.frames());
            }
            let frame = simulation.frame(self.frame);
            let beside = path.with_extension("truth.txt");
            write::pair(&frame, create(path)?).with_context(|| path.display().to_string())?;
            write::truth(&frame, create(&beside)?).with_context(|| beside.display().to_string())?;
            say(format_args!(
                "{}: {} correspondences, {} right; true pose in {}",
                path.display(),
                frame.matches.len(),
                frame.right(),
                beside.display()
            ));
        }
        Ok(())
    }
}

/// `5x4`: columns and rows.
fn blocks(text: &str) -> Result<[usize; 2], String> {
    let numbers =
        text.split_once('x').and_then(|(a, b)| Some([a.trim().parse().ok()?, b.trim().parse().ok()?]));
    numbers.ok_or_else(|| format!("'{text}': columns and rows needed, such as 5x4"))
}

fn create(path: &Path) -> anyhow::Result<impl Write + Seek> {
    Ok(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?))
}
