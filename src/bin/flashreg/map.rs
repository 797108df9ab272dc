//! `flashreg map`

use super::say;
use anyhow::Context;
use clap::{Args, Subcommand};
use flashreg::io::cloud_files;
use flashreg::localizer::map::{findings, Map, Progress, Settings, Stage};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{json, Value};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Longest edge of a picture, dots.
const PICTURE: f64 = 1600.0;

#[derive(Args)]
pub struct MapCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Say what a map holds: points, extent, density, voxels, features, submaps, memory
    Inspect(Inspect),
    /// Say what is wrong with a map: exit code 0 if nothing is, else 2
    Check(Inspect),
}

#[derive(Args)]
struct Inspect {
    /// PCD or PLY file
    file: PathBuf,
    /// Edge of the voxels, m; chosen from the extent unless given
    #[arg(long, value_name = "M", default_value_t = 0.0)]
    voxel: f64,
    /// Edge of the submaps, m; derived from that of the voxels unless given
    #[arg(long, value_name = "M", default_value_t = 0.0)]
    submap: f64,
    /// Neither read nor write FILE.flashreg
    #[arg(long)]
    no_cache: bool,
    /// Draw the map from above, coloured by height
    #[arg(long, value_name = "FILE.png")]
    png: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl MapCommand {
    pub fn run(self) -> ExitCode {
        let done = match self.action {
            Action::Inspect(args) => args.inspect().map(|()| ExitCode::SUCCESS),
            Action::Check(args) => args.check(),
        };
        done.unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        })
    }
}

impl Inspect {
    fn load(&self) -> anyhow::Result<(Map, f64)> {
        let bar = ProgressBar::no_length();
        let style = "{msg:9} {wide_bar} {pos}/{len}";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        let show = |Progress { stage, done, total }| {
            bar.set_message(Stage::to_string(&stage));
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        };
        let (voxel, submap, cache) = (self.voxel, self.submap, !self.no_cache);
        let settings = Settings { voxel, submap, cache, ..Settings::default() };
        let start = Instant::now();
        let map = Map::load(&self.file, &settings, show);
        bar.finish_and_clear();
        let map = map?;
        if let Some(path) = &self.png {
            let write = || anyhow::Ok(std::fs::write(path, picture(&map)?)?);
            write().with_context(|| path.display().to_string())?;
        }
        Ok((map, start.elapsed().as_secs_f64()))
    }

    fn inspect(&self) -> anyhow::Result<()> {
        let (map, seconds) = self.load()?;
        if self.json {
            say(describe(&map, seconds));
            return Ok(());
        }
        let ([low, high], size) = (map.bounds, map.bounds[1] - map.bounds[0]);
        let (surface, submaps) = (map.surface.points.len(), map.submaps.len());
        say(format_args!("points    {} ({} not finite)", map.raw_points, map.non_finite));
        say(format_args!("extent    {:.2} x {:.2} x {:.2} m", size.x, size.y, size.z));
        say(format_args!("from      {:.3} {:.3} {:.3} m", low.x, low.y, low.z));
        say(format_args!("to        {:.3} {:.3} {:.3} m", high.x, high.y, high.z));
        let density = map.raw_points as f64 / surface.max(1) as f64;
        say(format_args!("voxels    {surface} of {} m, {density:.1} points in each", map.lengths.voxel));
        say(format_args!("submaps   {submaps} with {} features", map.features()));
        say(format_args!("memory    {:.1} MB", map.bytes() as f64 / 1e6));
        say(format_args!("time      {seconds:.2} s (file beside the map: {})", map.cache));
        Ok(())
    }

    fn check(&self) -> anyhow::Result<ExitCode> {
        let (map, seconds) = self.load()?;
        let cloud = cloud_files::read(&self.file)?;
        let found: Vec<String> = findings(&map, &cloud.points).iter().map(ToString::to_string).collect();
        if self.json {
            let mut object = describe(&map, seconds);
            object["findings"] = json!(found);
            say(object);
        } else if found.is_empty() {
            say("fit");
        } else {
            found.iter().for_each(say);
        }
        Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
    }
}

fn describe(map: &Map, seconds: f64) -> Value {
    let submap = |submap: &flashreg::localizer::map::Submap| {
        json!({
            "center": submap.center.coords.as_slice(),
            "radius": submap.radius,
            "features": submap.features.points.len(),
        })
    };
    json!({
        "points": map.raw_points,
        "non_finite": map.non_finite,
        "min": map.bounds[0].coords.as_slice(),
        "max": map.bounds[1].coords.as_slice(),
        "voxel": map.lengths.voxel,
        "voxels": map.surface.points.len(),
        "points_per_voxel": map.raw_points as f64 / map.surface.points.len().max(1) as f64,
        "submaps": map.submaps.iter().map(submap).collect::<Value>(),
        "features": map.features(),
        "bytes": map.bytes(),
        "cache": map.cache.to_string(),
        "seconds": seconds,
    })
}

/// The highest point of each dot, blue below to orange above; north is up.
fn picture(map: &Map) -> anyhow::Result<Vec<u8>> {
    let ([low, high], size) = (map.bounds, map.bounds[1] - map.bounds[0]);
    let dot = (size.x.max(size.y) / PICTURE).max(map.lengths.voxel);
    let [width, height] = [size.x, size.y].map(|edge| (edge / dot) as usize + 1);
    let mut tops = vec![f64::NAN; width * height];
    for point in &map.surface.points {
        let (column, row) = (((point.x - low.x) / dot) as usize, ((high.y - point.y) / dot) as usize);
        if let Some(top) = tops.get_mut(row * width + column.min(width - 1)) {
            *top = top.max(point.z);
        }
    }
    let mut heights: Vec<f64> = tops.iter().copied().filter(|z| z.is_finite()).collect();
    heights.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| heights.get((heights.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    let (bottom, range) = (at(0.02), (at(0.98) - at(0.02)).max(1e-6));
    let colour = |z: f64| {
        let share = ((z - bottom) / range).clamp(0.0, 1.0);
        let mix = |a: f64, b: f64| (a + share * (b - a)) as u8;
        [mix(31.0, 237.0), mix(73.0, 135.0), mix(178.0, 26.0)]
    };
    let dots: Vec<u8> = tops.iter().flat_map(|z| if z.is_nan() { [255; 3] } else { colour(*z) }).collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&dots)?;
    writer.finish()?;
    Ok(file)
}
