//! The map: the same with and without the file beside it, tiles that cover it, what is refused and what is found.

use flashreg::geometry::Point;
use flashreg::io::cloud_files::write_pcd;
use flashreg::localizer::map::{findings, CacheUse, Finding, Map, MapError, Settings};
use std::path::Path;

const EAST: f64 = 431_000.0;
const NORTH: f64 = 5_361_000.0;

/// Walls of different lengths on a floor of `size` m, far from the origin.
fn place(size: f64, walls: bool) -> Vec<Point> {
    let steps = (size / 0.4) as i32;
    let at = |i: i32| f64::from(i) * 0.4 + 0.1;
    let mut points = Vec::new();
    for i in 0..steps {
        for j in 0..steps {
            points.push(Point::new(EAST + at(i), NORTH + at(j), 0.1));
            if walls && i % 25 == 0 && (j / 7 + i / 25) % 3 == 0 {
                points.extend((1..8).map(|k| Point::new(EAST + at(i), NORTH + at(j), at(k))));
            }
        }
    }
    points
}

fn settings() -> Settings {
    Settings { voxel: 0.5, threads: 2, ..Settings::default() }
}

fn save(path: &Path, points: &[Point]) {
    write_pcd(std::fs::File::create(path).expect("a file"), points).expect("written");
}

fn load(path: &Path) -> Map {
    Map::load(path, &settings(), |_| {}).expect("a map")
}

fn same(a: &Map, b: &Map) -> bool {
    a.surface == b.surface && a.submaps == b.submaps && a.bounds == b.bounds && a.raw_points == b.raw_points
}

#[test]
fn the_file_beside_the_map_gives_the_same_and_is_made_anew_when_it_is_of_no_use() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pcd");
    save(&path, &place(40.0, true));
    let first = load(&path);
    assert_eq!(first.cache, CacheUse::Written(None));
    let beside = folder.path().join("a.pcd.flashreg");
    let second = load(&path);
    assert!(second.cache == CacheUse::Read && same(&first, &second));
    let mut bytes = std::fs::read(&beside).expect("bytes");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&beside, bytes).expect("written");
    let third = load(&path);
    assert!(
        matches!(&third.cache, CacheUse::Written(Some(why)) if why.contains("damaged")),
        "{}",
        third.cache
    );
    assert!(same(&first, &third));
    save(&path, &place(41.0, true));
    let other = load(&path);
    assert!(
        matches!(&other.cache, CacheUse::Written(Some(why)) if why.contains("another map")),
        "{}",
        other.cache
    );
    assert!(!same(&first, &other));
    // What is in the way of the file is said, and the map is there all the same.
    std::fs::remove_file(&beside).expect("removed");
    std::fs::create_dir(&beside).expect("a folder");
    std::fs::write(beside.join("x"), "x").expect("written");
    assert!(matches!(load(&path).cache, CacheUse::NotWritten(_)));
}

#[test]
fn the_map_does_not_depend_on_threads() {
    let points = place(40.0, true);
    let [one, two] = [1, 2].map(|threads| {
        Map::from_points(&points, &Settings { threads, ..settings() }, |_| {}).expect("a map")
    });
    assert!(same(&one, &two));
}

#[test]
fn submaps_overlap_and_cover_the_map() {
    let points = place(100.0, true);
    let all = Settings { max_features: usize::MAX, ..settings() };
    let whole = Map::from_points(&points, &all, |_| {}).expect("a map");
    assert_eq!(whole.submaps.len(), 1);
    let parts = Map::from_points(&points, &Settings { submap: 40.0, ..all }, |_| {}).expect("a map");
    assert_eq!(parts.submaps.len(), 16);
    for point in &whole.submaps[0].features.points {
        let holds = parts.submaps.iter().any(|s| s.features.points.contains(point));
        assert!(holds, "{point}");
    }
    for submap in &parts.submaps {
        for point in &submap.features.points {
            let away = (point - submap.center).xy();
            assert!(away.norm() <= submap.radius + 1e-9 && away.amax() <= 20.0 + 1e-9);
        }
    }
    // The descriptors in the middle of a part are those of the whole.
    let all = &whole.submaps[0].features;
    let part = &parts.submaps[5].features;
    for (point, descriptor) in part.points.iter().zip(&part.descriptors) {
        let at = all.points.iter().position(|p| p == point).expect("in the whole");
        assert_eq!(&all.descriptors[at], descriptor);
    }
}

#[test]
fn what_is_no_map_is_refused() {
    let error = |points: &[Point], settings: &Settings| {
        Map::from_points(points, settings, |_| {}).expect_err("refused")
    };
    assert!(matches!(error(&[], &settings()), MapError::TooFew { got: 0 }));
    assert!(matches!(error(&[Point::origin(); 500], &settings()), MapError::TooFew { got: 1 }));
    let spread: Vec<Point> = (0..1000).map(|i| Point::new(f64::from(i) * 1e5, 0.0, 0.0)).collect();
    assert!(matches!(error(&spread, &settings()), MapError::AbsurdExtent(_)));
    let place = place(20.0, true);
    for voxel in [-1.0, f64::NAN, f64::INFINITY, 1e-9] {
        assert!(matches!(error(&place, &Settings { voxel, ..settings() }), MapError::BadVoxel(_)), "{voxel}");
    }
    let none = Path::new("/no/such/map.pcd");
    assert!(Map::load(none, &settings(), |_| {}).expect_err("none").to_string().contains("unreadable"));
}

#[test]
fn a_place_is_fit_and_bare_ground_is_not() {
    let found =
        |points: &[Point]| findings(&Map::from_points(points, &settings(), |_| {}).expect("a map"), points);
    let good = place(60.0, true);
    assert_eq!(found(&good), []);
    assert!(matches!(found(&place(60.0, false))[..], [Finding::NoStructure(_)]));
    assert!(found(&place(10.0, true)).iter().any(|f| matches!(f, Finding::TooSmall(_))));
    let twice = [good.clone(), good.clone()].concat();
    assert_eq!(found(&twice), [Finding::Duplicates(good.len() as u64, twice.len() as u64)]);
}
