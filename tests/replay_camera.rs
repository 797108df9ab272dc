//! Simulated cameras, replayed: what is accepted is right, in the map and between two views.

use flashreg::io::bag::Bag;
use flashreg::localizer::{Input, Localizer};
use flashreg::params::{BackendChoice, Params};
use flashreg::replay::drive::{drive, Options as DriveOptions};
use flashreg::replay::metrics::{Evaluation, InputSummary, Options as Asked, RelativeSummary, Truths};
use flashreg::replay::truth::{relative_topic, Source, Truth};
use flashreg::replay::FrameRecord;
use flashreg::simulate::camera::{CameraModel, CameraOptions};
use flashreg::simulate::levels::Levels;
use flashreg::simulate::{write, Options, Simulation, Topics};
use flashreg::status::Status;
use std::fs::File;
use std::io::BufWriter;
use std::sync::atomic::AtomicBool;

/// Seconds of a drive; `FLASHREG_SECONDS` makes it longer.
fn seconds() -> f64 {
    std::env::var("FLASHREG_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4.0)
}

/// A drive with a camera alone, and a map from few sweeps: what takes long is the map.
fn options(camera: CameraOptions) -> Options {
    let mut levels = Levels::default();
    levels.places.building.mapping_step = 4.0;
    let topics = Topics { correspondences: false, camera: true, ..Topics::default() };
    Options { seed: 2, duration: seconds(), rate: 5.0, topics, levels, camera, ..Options::default() }
}

struct Driven {
    frames: Vec<FrameRecord>,
    evaluation: Evaluation,
}

impl Driven {
    fn absolute(&self) -> &InputSummary {
        self.evaluation.summary.inputs.first().expect("2D-3D")
    }

    fn relative(&self) -> &RelativeSummary {
        self.evaluation.summary.relative.as_ref().expect("2D-2D")
    }

    fn told(&self) -> String {
        let (absolute, relative) = (self.absolute(), self.relative());
        let (ate, statuses) = (&absolute.ate, &absolute.statuses);
        format!(
            "{statuses:?} {ate:?} {:?}\n{relative:?}",
            self.evaluation.summary.inputs.get(1).map(|i| &i.statuses)
        )
    }
}

/// Simulates, writes, reads, drives and measures.
fn driven(options: Options) -> Driven {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("drive.mcap");
    let simulation = Simulation::new(options).expect("a building");
    let file = BufWriter::new(File::create(&path).expect("a file"));
    write::mcap(&simulation, file, |_| ()).expect("written");
    let bag = Bag::open(&path).expect("a bag");
    let mut params = Params::default();
    params.backend.kind = BackendChoice::Cpu;
    params.registration.max_correspondences = 256;
    let source = Source::Topic("/ground_truth".to_owned());
    let drive_options = DriveOptions::default();
    let truth = Truth::read(&source, &bag, &params, &drive_options.topic, None).expect("a truth");
    let topic = relative_topic(&bag, None).expect("a relative truth");
    let relative = Truth::read_relative(&topic, &bag, &params).expect("a relative truth");
    assert!(truth.notes.is_empty() && relative.notes.is_empty(), "{:?} {:?}", truth.notes, relative.notes);
    let mut localizer = Localizer::new(&params).expect("the CPU");
    let mut frames = Vec::new();
    let stop = AtomicBool::new(false);
    let seen = |frame: &FrameRecord, _| frames.push(*frame);
    let outcome = drive(&bag, &mut localizer, &params, &drive_options, &stop, seen).expect("driven");
    assert!(outcome.complete && outcome.notes.is_empty(), "{outcome:?}");
    let truths = Truths { absolute: Some(&truth.trajectory), relative: Some(&relative.trajectory) };
    let evaluation = Evaluation::new(&frames, truths, &Asked::default());
    Driven { frames, evaluation }
}

/// Most poses in the map are accepted and near the truth; of the relative ones at least some (few landmarks are in
/// both views where the robot turns); and none is wrong.
fn is_good(driven: &Driven, least_relative: usize) {
    let told = driven.told();
    let (absolute, relative) = (driven.absolute(), driven.relative());
    assert_eq!(absolute.input, Input::Sights2d3d.name());
    assert_eq!((absolute.frames, absolute.with_truth), ((5.0 * seconds()) as usize, absolute.frames));
    assert!(absolute.accepted * 10 >= absolute.frames * 9, "{told}");
    let ate = absolute.ate.expect("poses");
    assert!(ate.translation_m.median < 0.02 && ate.rotation_deg.median < 0.2, "{told}");
    assert_eq!(absolute.wrong.map(|wrong| wrong.accepted), Some(0), "{told}");
    assert_eq!(relative.still.frames, 0);
    assert!(relative.accepted * 10 >= relative.frames * least_relative, "{told}");
    assert_eq!(relative.wrong.map_or(0, |wrong| wrong.accepted), 0, "{told}");
}

#[test]
fn poses_of_a_pinhole_are_right() {
    is_good(&driven(options(CameraOptions::default())), 1);
}

#[test]
fn poses_of_a_fisheye_are_right() {
    let camera = CameraOptions { model: CameraModel::Fisheye, ..CameraOptions::default() };
    is_good(&driven(options(camera)), 0);
}

#[test]
fn poses_of_bearings_are_right_without_a_calibration() {
    let camera = CameraOptions { model: CameraModel::Bearings, ..CameraOptions::default() };
    is_good(&driven(options(camera)), 0);
}

#[test]
fn relative_poses_of_a_camera_that_stands_are_refused() {
    let mut ordered = options(CameraOptions::default());
    ordered.duration = 4.0;
    ordered.faults = vec!["stop@0.5,3".parse().expect("a fault")];
    let driven = driven(ordered);
    let told = driven.told();
    let still = driven.relative().still;
    // Views of 1.5 to 3 s have a reference of 1 to 2.5 s: it stood then too.
    assert!(still.frames >= 7 && still.accepted == 0 && still.degenerate > 0, "{told}");
    // Where it is in the map can be told all the same.
    let in_map = driven.frames.iter().filter(|frame| frame.input == Input::Sights2d3d);
    let accepted = in_map.clone().filter(|frame| frame.status == Status::Ok).count();
    assert!(accepted * 10 >= in_map.count() * 8, "{told}");
    assert_eq!(driven.absolute().wrong.map(|wrong| wrong.accepted), Some(0), "{told}");
}
