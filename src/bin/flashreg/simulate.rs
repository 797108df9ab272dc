//! `flashreg simulate`

use super::say;
use anyhow::{bail, Context};
use clap::{Args, ValueEnum};
use flashreg::simulate::levels::LidarLevels;
use flashreg::simulate::{write, Options, Simulation};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

/// The sensors that are known.
#[derive(Clone, Copy, ValueEnum)]
enum Lidar {
    /// Velodyne VLP-16: 16 beams
    Vlp16,
    /// Hesai PandarXT-32: 32 beams
    Xt32,
}

#[derive(Args)]
pub struct Simulate {
    /// MCAP file to write
    #[arg(long, value_name = "FILE.mcap", required_unless_present = "pair")]
    out: Option<PathBuf>,
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
    /// Length of the drive, s
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
    /// Give right matches somewhat more weight than wrong ones (otherwise all weigh 1)
    #[arg(long)]
    weights: bool,
    /// Sensor
    #[arg(long, value_enum, default_value_t = Lidar::Vlp16)]
    lidar: Lidar,
}

impl Simulate {
    pub fn run(self) -> anyhow::Result<()> {
        let simulation = Simulation::new(Options {
            seed: self.seed,
            duration: self.duration,
            rate: self.rate,
            correspondences: self.correspondences,
            inlier_rate: self.inlier_rate,
            people: self.people,
            weights: self.weights,
            lidar: match self.lidar {
                Lidar::Vlp16 => LidarLevels::VLP16,
                Lidar::Xt32 => LidarLevels::XT32,
            },
            ..Options::default()
        })?;
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
            say(format_args!(
                "{}: {} sweeps, {} correspondences, {:.1} % right, {:.1} MB, seed {}",
                path.display(),
                written.frames,
                written.correspondences,
                100.0 * written.right as f64 / written.correspondences.max(1) as f64,
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

fn create(path: &Path) -> anyhow::Result<impl Write + Seek> {
    Ok(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?))
}
