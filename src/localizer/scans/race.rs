//! Lost: the places that the scans may come from, until one of them is sure.

use super::places::{judge_overlap, Place, Places};
use super::search::Engine;
use super::track::Tracked;
use super::{Answer, Scan};
use crate::features::Surface;
use crate::geometry::{pose_error, Point, Rigid, Vector};
use crate::localizer::covariance::sensor_to_base;
use crate::localizer::dense::Settings;
use crate::params::Params;
use crate::registration::{Registrar, RunnerUp};
use crate::status::Status;
use nalgebra::Matrix6;
use std::collections::VecDeque;
use std::time::Instant;

/// Views that are kept.
const VIEWS: usize = 6;
/// A view is another one after this way (voxels) or turn (rad).
const OTHER: (f64, f64) = (4.0, 0.3);
/// How far a place that is known may be off at the next scan, voxels.
const OFF: f64 = 3.0;
/// How far a hint may be off at most, voxels.
const HINT_OFF: f64 = 10.0;
/// Scans for which a hint is tried.
const HINTED: u32 = 20;
/// Turns that are tried about a hint, rad.
const TURNS: [f64; 5] = [0.0, 0.2, -0.2, 0.4, -0.4];
/// From one of them to the next.
const BETWEEN: f64 = 0.2;

/// Scans from the same position from one search to the next: at first and at most.
const SHORTEST_PAUSE: u32 = 2;
const LONGEST_PAUSE: u32 = 8;

/// A scan from another position than those before.
#[derive(Debug, Default)]
struct View {
    number: u64,
    surface: Surface,
    odom_t_sensor: Rigid,
}

/// A pose of the base that somebody gave.
#[derive(Debug, Clone)]
struct Hint {
    map_t_base: Rigid,
    covariance: Matrix6<f64>,
    /// Scans for which it is tried.
    left: u32,
}

/// The race of the places.
#[derive(Debug, Default)]
pub struct Race {
    views: VecDeque<View>,
    /// Views so far.
    count: u64,
    places: Places,
    /// Of each place and view; in the order of both.
    hint: Option<Hint>,
    local: Surface,
    points: Vec<Point>,
    /// A place that was known before.
    former: Option<Rigid>,
    pace: Pace,
}

/// When the whole map is searched: at each new view, and at scans from the same position ever more rarely, as they
/// say next to the same.
#[derive(Debug, Default)]
struct Pace {
    /// Scans since the last search, and after how many the next is due.
    scans: u32,
    pause: u32,
}

impl Pace {
    fn is_due(&mut self, is_other: bool) -> bool {
        self.scans += 1;
        let is_due = is_other || self.scans >= self.pause;
        if is_due {
            self.scans = 0;
            self.pause = if is_other { SHORTEST_PAUSE } else { (2 * self.pause).min(LONGEST_PAUSE) };
        }
        is_due
    }
}

impl Race {
    /// Forgets all places and views, and the hint.
    pub fn clear(&mut self) {
        self.views.clear();
        self.places.clear();
        self.hint = None;
        self.former = None;
        self.pace = Pace::default();
    }

    /// No place is in the race.
    pub fn is_empty(&self) -> bool {
        self.places.0.is_empty()
    }

    /// A pose to be tried first.
    pub fn hint(&mut self, map_t_base: &Rigid, covariance: &Matrix6<f64>) {
        self.hint = Some(Hint { map_t_base: *map_t_base, covariance: *covariance, left: HINTED });
    }

    /// A place that was lost is tried as others are.
    pub fn remember(&mut self, tracked: &Tracked) {
        self.former = Some(tracked.map_t_odom);
    }

    /// Takes a scan. The place that is sure now, if one is.
    pub(super) fn step(
        &mut self,
        engine: &mut Engine,
        scan: &Scan,
        registrar: &mut Registrar,
        params: &Params,
        answer: &mut Answer,
    ) -> Option<Tracked> {
        let started = Instant::now();
        let voxel = engine.index.voxel();
        self.follow(engine, scan, params);
        let is_other = self.take_view(scan, voxel);
        answer.times.track = started.elapsed().as_secs_f64() * 1e6;

        self.try_hint(engine, scan, params);
        let is_hinted = self.places.0.iter().any(|place| place.hinted && place.misses == 0);
        let mut poses: Vec<Rigid> = Vec::new();
        poses.extend(self.former.take().map(|map_t_odom| map_t_odom * scan.odom_t_sensor));
        if !is_hinted && self.pace.is_due(is_other) {
            let local = self.local(engine, scan);
            let times = &mut answer.times;
            let found = engine.search(&local, &scan.surface, &scan.vertical, registrar, params, times);
            self.local = local;
            match found {
                Ok(found) => poses.extend(found.iter().map(|c| c.alignment.map_t_sensor)),
                Err(fault) => {
                    answer.decline(Status::GpuFault, format_args!("{fault}"));
                    return None;
                }
            }
        }

        let started = Instant::now();
        let max = params.localization.max_places.max(2) as usize;
        poses.truncate(max);
        for pose in poses {
            self.enter(engine, scan, params, &pose, OFF * voxel, None);
        }
        self.weigh(engine);
        self.places.tidy(&scan.odom_t_sensor, voxel, max);
        self.places.prefer_hinted(params);
        let verdict = self.places.decide(params, &mut answer.why);
        answer.status = Some(verdict.status);
        answer.margin = verdict.margin;
        let mut sure = None;
        if let Some((best, others)) = self.places.0.split_first() {
            answer.take(&best.alignment, &best.evidence);
            answer.others.extend(others.iter().map(|other| RunnerUp {
                target_t_source: other.alignment.map_t_sensor,
                score: other.total,
                inliers: other.alignment.inliers,
            }));
            sure = (verdict.status == Status::Ok).then(|| Tracked::new(&best.alignment, scan));
        }
        answer.times.places += started.elapsed().as_secs_f64() * 1e6;
        sure
    }

    /// Lays the scan upon the pose that somebody gave, until it fits there. What was given is taken to hold at the
    /// scan: it is a rough pose, and the robot is slow.
    fn try_hint(&mut self, engine: &mut Engine, scan: &Scan, params: &Params) {
        let Some(mut hint) = self.hint.take().filter(|hint| hint.left > 0) else { return };
        hint.left -= 1;
        let voxel = engine.index.voxel();
        let deviation = hint.covariance.diagonal().rows(0, 3).max().max(0.0).sqrt();
        let off = (3.0 * deviation).clamp(OFF * voxel, HINT_OFF * voxel);
        for turn in TURNS {
            let turn = Rigid::rotation(Vector::z() * turn);
            let pose = hint.map_t_base * turn * scan.base_t_sensor;
            let mut prior = sensor_to_base(&hint.covariance, &hint.map_t_base, &pose);
            prior[(5, 5)] += BETWEEN * BETWEEN;
            self.enter(engine, scan, params, &pose, off, Some(prior));
        }
        let fits = self.places.0.iter().any(|place| place.hinted && place.scans > 0);
        self.hint = (!fits).then_some(hint);
    }

    /// Lays the scan upon the places that are known.
    fn follow(&mut self, engine: &mut Engine, scan: &Scan, params: &Params) {
        let voxel = engine.index.voxel();
        let mut why = String::new();
        for place in &mut self.places.0 {
            let guess = place.map_t_odom * scan.odom_t_sensor;
            let laid = engine.lay(&scan.surface, &guess, place.prior.as_ref(), OFF * voxel);
            (place.alignment, place.evidence) = (laid.alignment, laid.evidence);
            if judge_overlap(&place.evidence, place.hinted, params, &mut why) == Status::Ok {
                place.map_t_odom = place.alignment.map_t_sensor * scan.odom_t_sensor.inverse();
                place.scans += 1;
                place.misses = 0;
            } else {
                place.scans = place.scans.saturating_sub(1);
                place.misses += 1;
            }
        }
    }

    /// Lays the scan upon a pose; a new place if it fits there. `prior`: the covariance of a pose that was hinted at.
    fn enter(
        &mut self,
        engine: &mut Engine,
        scan: &Scan,
        params: &Params,
        guess: &Rigid,
        off: f64,
        prior: Option<Matrix6<f64>>,
    ) {
        let hinted = prior.is_some();
        let settings = Settings::new(off);
        let Some(alignment) = engine.try_pose(&scan.surface, guess, prior.as_ref(), &settings, params) else {
            return;
        };
        let evidence = engine.aligner.verify(&engine.index, &scan.surface, &alignment.map_t_sensor);
        // What says nothing for a place that was searched for is not worth weighing.
        if evidence.on < 0.5 * params.localization.min_overlap || (!hinted && evidence.score <= 0.0) {
            return;
        }
        let agrees = judge_overlap(&evidence, hinted, params, &mut String::new()) == Status::Ok;
        let map_t_odom = alignment.map_t_sensor * scan.odom_t_sensor.inverse();
        let scans = u32::from(agrees);
        let place = Place {
            map_t_odom,
            alignment,
            evidence,
            total: 0.0,
            scores: Vec::new(),
            scans,
            misses: 0,
            clear: 0,
            hinted,
            prior,
        };
        self.places.add(place, &scan.odom_t_sensor, engine.index.voxel());
    }

    /// Keeps the scan if it is from another position; true if it is.
    fn take_view(&mut self, scan: &Scan, voxel: f64) -> bool {
        let is_other = self.views.back().is_none_or(|view| {
            let (turn, way) = pose_error(&view.odom_t_sensor, &scan.odom_t_sensor);
            way > OTHER.0 * voxel || turn > OTHER.1
        });
        if is_other {
            let mut view = match self.views.len() < VIEWS {
                true => View::default(),
                false => self.views.pop_front().unwrap_or_default(),
            };
            self.count += 1;
            view.number = self.count;
            view.surface.clone_from(&scan.surface);
            view.odom_t_sensor = scan.odom_t_sensor;
            self.views.push_back(view);
        }
        is_other
    }

    /// All views and the scan in the frame of the sensor now.
    fn local(&mut self, engine: &mut Engine, scan: &Scan) -> Surface {
        let mut out = std::mem::take(&mut self.local);
        if self.views.len() <= 1 {
            out.clone_from(&scan.surface);
            return out;
        }
        let points = &mut self.points;
        points.clear();
        points.extend_from_slice(&scan.surface.points);
        for view in &self.views {
            let now_t_then = scan.odom_t_sensor.inv_mul(&view.odom_t_sensor);
            points.extend(view.surface.points.iter().map(|p| now_t_then * p));
        }
        engine.front.surface(points, engine.index.voxel(), Some(Point::origin()), &mut out);
        out
    }

    /// Sums the evidence of the views; that of the newest view is what the newest scan says.
    fn weigh(&mut self, engine: &mut Engine) {
        let Self { views, places, .. } = self;
        let former = views.len().saturating_sub(1);
        for place in &mut places.0 {
            place.scores.retain(|(number, _)| views.iter().any(|view| view.number == *number));
            for view in views.iter().take(former) {
                if !place.scores.iter().any(|(number, _)| *number == view.number) {
                    let pose = place.map_t_odom * view.odom_t_sensor;
                    let evidence = engine.aligner.verify(&engine.index, &view.surface, &pose);
                    place.scores.push((view.number, evidence.score));
                }
            }
            place.total = place.evidence.score + place.scores.iter().map(|(_, score)| score).sum::<f64>();
        }
    }
}
