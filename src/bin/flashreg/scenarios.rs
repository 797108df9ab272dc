//! The drives of `flashreg bench localization`, and the lines of its tables.

use anyhow::Context;
use clap::ValueEnum;
use flashreg::replay::metrics::{Limit, Summary};
use flashreg::replay::result::ResultFile;
use flashreg::simulate::faults::Fault;
use flashreg::simulate::motion::Departure;
use flashreg::simulate::scene::{Layout, Place, Scene};
use flashreg::simulate::write::MapChange;
use flashreg::simulate::{Options, Topics};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// A pose beyond this is wrong: degrees and metres.
const WRONG: Limit = Limit { re_deg: 5.0, te_m: 1.0 };
/// Time that an unknown start is given, s: more than the two that it may take.
const START: f64 = 3.0;
/// Most unknown starts of a drive.
const STARTS: usize = 20;
/// Seeds of other places.
const ELSEWHERE: u64 = 1_000_000;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Table {
    /// Unknown starts
    Starts,
    /// Unknown starts after the place has changed, among many people
    Changed,
    /// A robot that stands in one of two rooms that are the same
    Twins,
    /// What must be refused: scans of another place, empty ones, bare ground, mirrored and scaled maps
    Refusals,
    /// A robot that is carried away
    Kidnap,
    /// Long drives
    Tracking,
    /// Tunnels: the covariance along them
    Corridor,
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.to_possible_value().map(|value| value.get_name().to_owned());
        f.write_str(&name.unwrap_or_default())
    }
}

impl Table {
    pub const ALL: [Self; 7] = [
        Self::Starts,
        Self::Changed,
        Self::Twins,
        Self::Refusals,
        Self::Kidnap,
        Self::Tracking,
        Self::Corridor,
    ];

    /// The heads of its columns.
    pub fn head(self) -> String {
        let columns = match self {
            Self::Starts | Self::Changed | Self::Twins | Self::Refusals => {
                "starts  in time  share %  wrong  never  first s p50    p95    max  error m    deg  refused as"
            }
            Self::Kidnap => "kidnaps  noticed s p50    max  right s p50    max  never  wrong poses",
            Self::Tracking | Self::Corridor => {
                "frames  accepted %  wrong  rmse m    deg  2 sigma %  x    y    z   rx   ry   rz  ms p50     p99"
            }
        };
        format!("\n{:32} {columns}", self.to_string())
    }
}

/// How many and which.
pub struct Wanted<'a> {
    pub starts: usize,
    pub seconds: f64,
    pub seed: u64,
    pub lidar: &'a str,
}

/// Of which place the map is.
#[derive(Clone)]
pub enum MapOf {
    /// Of this one, or what is made of it.
    Place(MapChange),
    /// Of one with this seed.
    Other(u64),
}

/// A drive.
pub struct Case {
    pub table: Table,
    /// What it is counted with.
    pub line: String,
    pub name: String,
    pub options: Options,
    pub map: MapOf,
    pub restart_every: Option<f64>,
    /// It begins with an initial pose.
    pub starts_known: bool,
    pub wrong: Limit,
}

fn name_of(place: Place) -> &'static str {
    match place {
        Place::Building => "building",
        Place::Warehouse => "warehouse",
        Place::Outdoor => "outdoor",
        Place::Tunnel => "tunnel",
    }
}

/// The drives of a table, those of a line one after another.
pub fn cases(table: Table, wanted: &Wanted) -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    match table {
        Table::Starts => {
            for place in [Place::Building, Place::Outdoor] {
                cases.extend(starts(table, name_of(place), place, wanted)?);
            }
        }
        Table::Changed => {
            for place in [Place::Building, Place::Outdoor] {
                for mut case in starts(table, name_of(place), place, wanted)? {
                    case.options.faults.push(fault("changed-map")?);
                    case.options.people = 24;
                    cases.push(case);
                }
            }
        }
        Table::Twins => cases.extend(twins(wanted)?),
        Table::Refusals => {
            for place in [Place::Building, Place::Outdoor] {
                cases.extend(refusals(place, wanted)?);
            }
        }
        Table::Kidnap => {
            for place in [Place::Building, Place::Outdoor] {
                for k in 0..wanted.starts.div_ceil(10) {
                    let mut case = Case::new(table, name_of(place), place, k, 24.0, wanted)?;
                    case.options.faults.push(fault("kidnap@12")?);
                    cases.push(case);
                }
            }
        }
        Table::Tracking => {
            for place in [Place::Building, Place::Outdoor] {
                cases.push(Case::new(table, name_of(place), place, 0, wanted.seconds, wanted)?);
            }
        }
        Table::Corridor => {
            for k in 0..4 {
                let mut case =
                    Case::new(table, "tunnel", Place::Tunnel, k, (wanted.seconds / 10.0).max(5.0), wanted)?;
                case.starts_known = true;
                cases.push(case);
            }
        }
    }
    Ok(cases)
}

fn fault(text: &str) -> anyhow::Result<Fault> {
    text.parse().with_context(|| format!("fault {text}"))
}

/// Drives through different places with an unknown start every few seconds. Each second one goes the other way; in
/// each fourth the robot stands while it starts.
fn starts(table: Table, line: &str, place: Place, wanted: &Wanted) -> anyhow::Result<Vec<Case>> {
    let drives = wanted.starts.div_ceil(STARTS);
    let mut cases = Vec::new();
    for k in 0..drives {
        // As even as can be.
        let n = (wanted.starts * (k + 1)) / drives - (wanted.starts * k) / drives;
        let mut case = Case::new(table, line, place, k, START * n as f64, wanted)?;
        case.restart_every = Some(START);
        if k % 4 == 3 {
            for start in 0..n {
                // Until its time is over.
                case.options.faults.push(fault(&format!("stop@{},2.2", START * start as f64))?);
            }
        }
        cases.push(case);
    }
    Ok(cases)
}

/// A robot that stands deep in one of two rooms that are the same, in one drive in each.
fn twins(wanted: &Wanted) -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for k in 0..wanted.starts.div_ceil(10) {
        let mut case = Case::new(Table::Twins, "twin rooms", Place::Building, k / 2, START, wanted)?;
        let layout = Layout { twins: true, ..Layout::default() };
        let scene = Scene::new(Place::Building, case.options.seed, layout).context("no building")?;
        let room = scene.twins.and_then(|twins| twins.get(k % 2).copied()).context("no twin rooms")?;
        let along = scene.route.deepest_in(room).context("the route enters no twin room")?;
        let begin = Some(along / scene.route.length());
        case.options.departure = Departure { begin, reverse: false, stand: START };
        case.options.faults.push(fault("identical-rooms")?);
        case.options.people = 0;
        case.restart_every = Some(0.5 * START);
        case.name = format!("{}-{}", case.options.seed, if k % 2 == 0 { "first" } else { "second" });
        cases.push(case);
    }
    Ok(cases)
}

/// What must be refused, each kind a line of its own.
fn refusals(place: Place, wanted: &Wanted) -> anyhow::Result<Vec<Case>> {
    let whole = |kind: &str| fault(&format!("{kind}@0,86400"));
    let kinds: [(&str, Option<Fault>, Option<MapChange>); 6] = [
        ("another place", None, None),
        ("empty", Some(whole("empty")?), Some(MapChange::default())),
        ("only ground", Some(whole("only-ground")?), Some(MapChange::default())),
        ("mirrored map", None, Some(MapChange { mirror: true, ..MapChange::default() })),
        ("map at 0.9", None, Some(MapChange { scale: 0.9, ..MapChange::default() })),
        ("map at 1.1", None, Some(MapChange { scale: 1.1, ..MapChange::default() })),
    ];
    let mut cases = Vec::new();
    for (kind, fault, change) in kinds {
        for mut case in starts(Table::Refusals, &format!("{}, {kind}", name_of(place)), place, wanted)? {
            case.options.faults.extend(fault);
            case.map = match change {
                Some(change) => MapOf::Place(change),
                None => MapOf::Other(case.options.seed + ELSEWHERE),
            };
            // Nothing is right there.
            case.name = format!("{}-{}", case.name, kind.replace(' ', "-"));
            cases.push(case);
        }
    }
    Ok(cases)
}

impl Case {
    fn new(
        table: Table,
        line: &str,
        place: Place,
        k: usize,
        duration: f64,
        wanted: &Wanted,
    ) -> anyhow::Result<Self> {
        let default = Options::default();
        let seed = wanted.seed + k as u64;
        let topics =
            Topics { correspondences: false, clouds: true, odometry: false, imu: false, camera: false };
        let departure = Departure { reverse: k % 2 == 1, ..Departure::default() };
        let lidar = default.levels.lidar(wanted.lidar)?;
        Ok(Self {
            table,
            line: line.to_owned(),
            name: format!("{}-{seed}", name_of(place)),
            options: Options { seed, place, duration, lidar, topics, departure, ..default },
            map: MapOf::Place(MapChange::default()),
            restart_every: None,
            starts_known: false,
            wrong: WRONG,
        })
    }

    /// `flashreg simulate` and `flashreg replay` for the same.
    pub fn commands(&self, lidar: &str) -> [String; 2] {
        let Options { seed, place, duration, people, departure, .. } = &self.options;
        let mut words = format!(
            "flashreg simulate --scene {} --seed {seed} --duration {duration} --lidar {lidar} --people {people} \
             --no-correspondences --lidar-clouds",
            name_of(*place)
        );
        departure.begin.iter().for_each(|begin| words += &format!(" --begin {begin}"));
        words += if departure.reverse { " --reverse" } else { "" };
        if departure.stand > 0.0 {
            words += &format!(" --stand {}", departure.stand);
        }
        for fault in &self.options.faults {
            let numbers: Vec<String> =
                fault.at.into_iter().chain(fault.duration).map(|v| v.to_string()).collect();
            let at = if numbers.is_empty() { String::new() } else { format!("@{}", numbers.join(",")) };
            words += &format!(" --fault {}{at}", fault.kind.name());
        }
        words += " --out drive.mcap";
        match &self.map {
            MapOf::Place(change) => {
                words += " --map map.pcd";
                if change.scale != 1.0 {
                    words += &format!(" --map-scale {}", change.scale);
                }
                words += if change.mirror { " --map-mirror" } else { "" };
            }
            MapOf::Other(other) => {
                words += &format!(
                    "; flashreg simulate --scene {} --seed {other} --lidar {lidar} --map map.pcd",
                    name_of(*place)
                );
            }
        }
        let Limit { re_deg, te_m } = self.wrong;
        let mut replay =
            format!("flashreg replay drive.mcap --map map.pcd --gt /ground_truth --wrong {re_deg},{te_m}");
        self.restart_every.iter().for_each(|every| replay += &format!(" --restart-every {every}"));
        replay += if self.starts_known { " --initial-pose" } else { "" };
        [words, replay]
    }
}

/// A line of a table.
#[derive(Serialize)]
pub struct Row {
    pub table: Table,
    pub line: String,
    /// It is what the localizer has to reach; none: nothing is asked of it.
    pub passed: Option<bool>,
    pub starts: Option<StartsRow>,
    pub kidnaps: Option<KidnapsRow>,
    pub tracking: Option<TrackingRow>,
}

/// Unknown starts of all drives.
#[derive(Serialize)]
pub struct StartsRow {
    pub count: usize,
    pub localized: usize,
    /// Starts with a wrong accepted pose; where all are refused rightly, with any.
    pub wrong: usize,
    pub never: usize,
    /// Seconds to the first accepted pose: p50, p95, max.
    pub first_s: Option<[f64; 3]>,
    /// Median error of the first poses that are right: m, degrees.
    pub error: Option<[f64; 2]>,
    /// How often which status stood longest at a start without a pose.
    pub refused_as: BTreeMap<String, usize>,
}

/// Kidnaps of all drives.
#[derive(Serialize)]
pub struct KidnapsRow {
    pub count: usize,
    /// Seconds until it was noticed: p50, max.
    pub noticed_s: Option<[f64; 2]>,
    /// Seconds until the pose was right again: p50, max.
    pub recovered_s: Option<[f64; 2]>,
    pub never: usize,
    pub wrong: usize,
}

/// Tracked drives, frames of all of them alike.
#[derive(Serialize)]
pub struct TrackingRow {
    pub frames: usize,
    pub accepted: usize,
    pub wrong: usize,
    pub rmse_m: Option<f64>,
    pub rmse_deg: Option<f64>,
    /// Shares of the errors within 2 sigma: x y z, rotation about x y z.
    pub coverage: Option<[f64; 6]>,
    /// Longest p50 and p99 of the time to an answer while tracking, ms.
    pub ms: Option<[f64; 2]>,
}

/// The value below which a share of the sorted ones lies.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((share * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
}

fn sorted(values: impl Iterator<Item = f64>) -> Option<Vec<f64>> {
    let mut all: Vec<f64> = values.collect();
    all.sort_unstable_by(f64::total_cmp);
    (!all.is_empty()).then_some(all)
}

impl Row {
    pub fn new<'a>(case: &Case, results: impl Iterator<Item = &'a ResultFile>) -> Self {
        let all: Vec<&Summary> = results.map(|result| &result.summary).collect();
        let mut row = Self {
            table: case.table,
            line: case.line.clone(),
            passed: None,
            starts: None,
            kidnaps: None,
            tracking: None,
        };
        match case.table {
            Table::Starts | Table::Changed | Table::Twins | Table::Refusals => {
                let starts = StartsRow::new(&all, case.table == Table::Refusals);
                row.passed = Some(match case.table {
                    Table::Refusals => starts.wrong == 0,
                    // What is seen through a door may tell the rooms apart; else the answer has to be that it does not.
                    Table::Twins => starts.wrong == 0 && starts.refused_as.keys().all(|s| s == "ambiguous"),
                    _ => starts.wrong == 0 && starts.localized as f64 >= 0.97 * starts.count as f64,
                });
                row.starts = Some(starts);
            }
            Table::Kidnap => {
                let kidnaps = KidnapsRow::new(&all);
                let noticed = kidnaps.noticed_s.is_some_and(|[_, max]| max <= 1.0);
                row.passed = Some(noticed && kidnaps.never == 0 && kidnaps.count > 0);
                row.kidnaps = Some(kidnaps);
            }
            Table::Tracking | Table::Corridor => {
                let tracking = TrackingRow::new(&all);
                let exact =
                    tracking.rmse_m.is_some_and(|m| m < 0.05) && tracking.rmse_deg.is_some_and(|d| d < 0.5);
                let covered =
                    tracking.coverage.is_some_and(|all| all.iter().all(|s| (0.90..=0.99).contains(s)));
                row.passed =
                    Some(tracking.wrong == 0 && if case.table == Table::Tracking { exact } else { covered });
                row.tracking = Some(tracking);
            }
        }
        row
    }
}

impl StartsRow {
    fn new(all: &[&Summary], any_is_wrong: bool) -> Self {
        let each =
            || all.iter().filter_map(|summary| summary.starts.as_ref()).flat_map(|starts| &starts.each);
        let in_time = || all.iter().filter_map(|summary| summary.starts.as_ref());
        let first = sorted(each().filter_map(|start| start.accepted_s));
        let right = || each().filter(|start| start.right == Some(true));
        let (metres, degrees) =
            (sorted(right().filter_map(|s| s.te_m)), sorted(right().filter_map(|s| s.re_deg)));
        let mut refused_as = BTreeMap::new();
        for status in each().filter(|start| start.accepted_s.is_none()).filter_map(|s| s.refused_as.clone()) {
            *refused_as.entry(status).or_default() += 1;
        }
        let wrong = |start: &flashreg::replay::metrics::Start| match any_is_wrong {
            true => start.accepted_s.is_some(),
            false => start.wrong > 0,
        };
        Self {
            count: each().count(),
            localized: if any_is_wrong { 0 } else { in_time().map(|starts| starts.localized).sum() },
            wrong: each().filter(|start| wrong(start)).count(),
            never: each().filter(|start| start.accepted_s.is_none()).count(),
            first_s: first.map(|s| [quantile(&s, 0.5), quantile(&s, 0.95), quantile(&s, 1.0)]),
            error: metres.zip(degrees).map(|(m, deg)| [quantile(&m, 0.5), quantile(&deg, 0.5)]),
            refused_as,
        }
    }
}

impl KidnapsRow {
    fn new(all: &[&Summary]) -> Self {
        let each = || all.iter().flat_map(|summary| &summary.kidnaps);
        let ends = |s: Vec<f64>| [quantile(&s, 0.5), quantile(&s, 1.0)];
        Self {
            count: each().count(),
            noticed_s: sorted(each().filter_map(|kidnap| kidnap.noticed_s)).map(ends),
            recovered_s: sorted(each().filter_map(|kidnap| kidnap.recovered_s)).map(ends),
            never: each().filter(|kidnap| kidnap.recovered_s.is_none()).count(),
            wrong: each().map(|kidnap| kidnap.wrong).sum(),
        }
    }
}

impl TrackingRow {
    fn new(all: &[&Summary]) -> Self {
        let squares = |of: fn(&Summary) -> Option<(f64, usize)>| {
            let (mut sum, mut n) = (0.0, 0);
            for (rmse, pairs) in all.iter().filter_map(|summary| of(summary)) {
                sum += rmse * rmse * pairs as f64;
                n += pairs;
            }
            (n > 0).then(|| (sum / n as f64).sqrt())
        };
        let consistent = || all.iter().filter_map(|summary| summary.consistency.as_ref());
        let frames: usize = consistent().map(|c| c.frames).sum();
        let share = |k: usize| {
            let within =
                consistent().map(|c| c.coordinates.get(k).map_or(0.0, |[_, two, _]| two * c.frames as f64));
            within.sum::<f64>() / frames as f64
        };
        let tracking =
            || all.iter().flat_map(|summary| &summary.modes).filter(|mode| mode.mode == "tracking");
        let longest =
            |of: fn(&flashreg::replay::metrics::ModeLatency) -> f64| tracking().map(of).reduce(f64::max);
        Self {
            frames: all.iter().map(|summary| summary.frames).sum(),
            accepted: all.iter().map(|summary| summary.accepted).sum(),
            wrong: all.iter().filter_map(|summary| summary.wrong.map(|wrong| wrong.accepted)).sum(),
            rmse_m: squares(|s| s.ate.as_ref().map(|ate| (ate.translation_m.rmse, ate.pairs))),
            rmse_deg: squares(|s| s.ate.as_ref().map(|ate| (ate.rotation_deg.rmse, ate.pairs))),
            coverage: (frames > 0).then(|| std::array::from_fn(share)),
            ms: longest(|mode| mode.ms.p50).zip(longest(|mode| mode.ms.p99)).map(|(p50, p99)| [p50, p99]),
        }
    }
}

impl Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:32} ", self.line)?;
        let number = |value: Option<f64>, width: usize, digits: usize| match value {
            Some(value) => format!("{value:width$.digits$}"),
            None => format!("{:>width$}", "-"),
        };
        if let Some(s) = &self.starts {
            let share = 100.0 * s.localized as f64 / s.count.max(1) as f64;
            let [p50, p95, max] = [0, 1, 2].map(|k| number(s.first_s.and_then(|v| v.get(k).copied()), 6, 2));
            let [m, deg] = [0, 1].map(|k| number(s.error.and_then(|v| v.get(k).copied()), 7, 3));
            let statuses: Vec<String> = s.refused_as.iter().map(|(name, n)| format!("{name} {n}")).collect();
            write!(
                f,
                "{:6} {:8} {share:8.1} {:6} {:6} {p50:>12} {p95} {max}  {m} {deg}",
                s.count, s.localized, s.wrong, s.never
            )?;
            write!(f, "  {}", statuses.join(", "))?;
        }
        if let Some(k) = &self.kidnaps {
            let [n50, nmax] = [0, 1].map(|i| number(k.noticed_s.and_then(|v| v.get(i).copied()), 6, 2));
            let [r50, rmax] = [0, 1].map(|i| number(k.recovered_s.and_then(|v| v.get(i).copied()), 6, 2));
            write!(f, "{:7} {n50:>14} {nmax} {r50:>12} {rmax} {:6} {:12}", k.count, k.never, k.wrong)?;
        }
        if let Some(t) = &self.tracking {
            let accepted = 100.0 * t.accepted as f64 / t.frames.max(1) as f64;
            let (m, deg) = (number(t.rmse_m, 7, 4), number(t.rmse_deg, 6, 3));
            write!(f, "{:6} {accepted:11.1} {:6} {m} {deg}           ", t.frames, t.wrong)?;
            for k in 0..6 {
                write!(f, " {}", number(t.coverage.and_then(|v| v.get(k).map(|s| 100.0 * s)), 4, 1))?;
            }
            let [p50, p99] = [0, 1].map(|k| number(t.ms.and_then(|v| v.get(k).copied()), 7, 2));
            write!(f, " {p50} {p99}")?;
        }
        match self.passed {
            Some(false) => f.write_str("  NOT REACHED"),
            _ => Ok(()),
        }
    }
}
