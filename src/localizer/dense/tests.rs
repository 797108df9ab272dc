use super::*;
use crate::features::Surface;
use crate::geometry::{pose_error, Point, Vector};
use nalgebra::{Translation3, UnitQuaternion, Vector6};
use rand::{Rng, SeedableRng};
use std::sync::Arc;

const VOXEL: f64 = 0.1;

/// Points on faces: a corner, two edges, the normal is across both. About one a voxel, moved by noise.
fn faces(faces: &[[[f64; 3]; 3]], noise: f64, seed: u64) -> Surface {
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let mut out = Surface::default();
    for face in faces {
        let [corner, a, b] = face.map(Vector::from);
        let normal = a.cross(&b).normalize();
        let [n, m] = [a, b].map(|edge| (edge.norm() / VOXEL).ceil());
        for i in 0..n as usize {
            for j in 0..m as usize {
                let mut within = |k: usize| k as f64 + random.random_range(0.2..0.8);
                let at = corner + a * (within(i) / n) + b * (within(j) / m);
                let tilt = Vector::from_fn(|_, _| random.random_range(-0.05..0.05));
                out.points.push(Point::from(at + normal * (noise * random.random_range(-1.7..1.7))));
                out.normals.push((normal + tilt).normalize());
            }
        }
    }
    out
}

const FLOOR: [[f64; 3]; 3] = [[0.0, 0.0, 0.0], [12.0, 0.0, 0.0], [0.0, 8.0, 0.0]];

/// A room with a cupboard and a step in a wall.
fn room() -> Vec<[[f64; 3]; 3]> {
    let up = [0.0, 0.0, 3.0];
    vec![
        FLOOR,
        [[0.0, 0.0, 0.0], [0.0, 8.0, 0.0], up],
        [[12.0, 0.0, 0.0], [0.0, 8.0, 0.0], up],
        [[0.0, 0.0, 0.0], [7.0, 0.0, 0.0], up],
        [[7.0, 0.0, 0.0], [0.0, 1.0, 0.0], up],
        [[7.0, 1.0, 0.0], [5.0, 0.0, 0.0], up],
        [[0.0, 8.0, 0.0], [12.0, 0.0, 0.0], up],
        [[2.0, 7.0, 0.0], [1.5, 0.0, 0.0], [0.0, 0.0, 2.0]],
        [[2.0, 7.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]],
        [[3.5, 7.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]],
    ]
}

/// Two walls, floor and ceiling, without ends.
fn corridor() -> Vec<[[f64; 3]; 3]> {
    let along = [16.0, 0.0, 0.0];
    vec![
        [[0.0, 0.0, 0.0], along, [0.0, 2.5, 0.0]],
        [[0.0, 0.0, 2.5], along, [0.0, 2.5, 0.0]],
        [[0.0, 0.0, 0.0], along, [0.0, 0.0, 2.5]],
        [[0.0, 2.5, 0.0], along, [0.0, 0.0, 2.5]],
    ]
}

fn rigid(shift: [f64; 3], turn: [f64; 3]) -> Rigid {
    Rigid::from_parts(Translation3::from(Vector::from(shift)), UnitQuaternion::from_scaled_axis(turn.into()))
}

fn seen_from(pose: &Rigid, map: &Surface, reach: f64) -> Surface {
    let back = pose.inverse();
    let mut out = Surface::default();
    for (point, normal) in map.points.iter().zip(&map.normals) {
        let point = back * point;
        if point.coords.xy().norm() < reach {
            out.points.push(point);
            out.normals.push(back.rotation * normal);
        }
    }
    out
}

fn aligner(threads: usize) -> Aligner {
    Aligner::new(Arc::new(rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()))
}

fn pose() -> Rigid {
    rigid([5.0, 4.2, 1.0], [0.02, -0.03, 0.4])
}

fn moved(pose: &Rigid, shift: [f64; 3], turn: [f64; 3]) -> Rigid {
    let turn = UnitQuaternion::from_scaled_axis(turn.into());
    Rigid::from_parts(Translation3::from(pose.translation.vector + Vector::from(shift)), turn * pose.rotation)
}

#[test]
fn a_pose_is_found_from_half_a_metre_and_five_degrees() {
    let map = SurfaceIndex::new(&faces(&room(), 0.01, 1), VOXEL);
    let scan = seen_from(&pose(), &faces(&room(), 0.01, 2), 20.0);
    let mut aligner = aligner(2);
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(3);
    for _ in 0..20 {
        let way = Vector::from_fn(|_, _| random.random_range(-1.0..1.0)).normalize() * 0.5;
        let turn = [0.0, 0.0, 0.0873 * if random.random_bool(0.5) { 1.0 } else { -1.0 }];
        let guess = moved(&pose(), way.into(), turn);
        let found = aligner.align(&map, &scan, &guess, None, &Settings::new(1.0));
        let (turn, shift) = pose_error(&found.map_t_sensor, &pose());
        assert!(shift < 0.01 && turn < 0.1f64.to_radians(), "{shift} {turn}");
        assert!(found.converged && found.observed == 6 && found.overlap > 0.95, "{found:?}");
        assert!(found.covariance.diagonal().iter().all(|v| *v > 0.0 && *v < 2.5e-3), "{}", found.covariance);
        let evidence = aligner.verify(&map, &scan, &found.map_t_sensor);
        assert!(evidence.score > 20.0 && evidence.through < 0.02, "{evidence:?}");
    }
}

#[test]
fn a_corridor_leaves_the_way_along_it_to_the_prior() {
    let map = SurfaceIndex::new(&faces(&corridor(), 0.01, 1), VOXEL);
    let truth = rigid([8.0, 1.2, 1.0], [0.0, 0.0, 0.1]);
    let scan = seen_from(&truth, &faces(&corridor(), 0.01, 2), 5.0);
    let sigma = Vector6::new(0.2, 0.2, 0.2, 0.05, 0.05, 0.05);
    let prior = Matrix6::from_diagonal(&sigma.component_mul(&sigma));
    let guess = moved(&truth, [0.15, 0.1, -0.05], [0.0, 0.0, 0.03]);
    let mut aligner = aligner(2);
    let found = aligner.align(&map, &scan, &guess, Some(&prior), &Settings::new(0.5));
    assert_eq!(found.observed, 5);
    let error = found.map_t_sensor.translation.vector - truth.translation.vector;
    assert!((error.x - 0.15).abs() < 0.02 && error.y.abs() < 0.01 && error.z.abs() < 0.01, "{error}");
    let deviation = found.covariance.diagonal().map(f64::sqrt);
    assert!((deviation[0] - 0.2).abs() < 0.02 && deviation[1] < 0.05 && deviation[5] < 0.02, "{deviation}");
    let evidence = aligner.verify(&map, &scan, &found.map_t_sensor);
    assert!(evidence.on > 0.95 && evidence.score < 20.0, "{evidence:?}");
}

#[test]
fn bare_ground_fixes_three_directions_and_proves_nothing() {
    let map = SurfaceIndex::new(&faces(&room(), 0.01, 1), VOXEL);
    let scan = seen_from(&pose(), &faces(&[FLOOR], 0.01, 2), 3.5);
    let mut aligner = aligner(2);
    let found =
        aligner.align(&map, &scan, &moved(&pose(), [0.1, 0.1, 0.1], [0.0; 3]), None, &Settings::new(0.4));
    assert_eq!(found.observed, 3);
    let deviation = found.covariance.diagonal().map(f64::sqrt);
    assert!(
        deviation[0] > 0.2 && deviation[1] > 0.2 && deviation[2] < 0.1 && deviation[5] > 0.05,
        "{deviation}"
    );
    let evidence = aligner.verify(&map, &scan, &found.map_t_sensor);
    assert!(evidence.on > 0.9 && evidence.score < 20.0, "{evidence:?}");
}

#[test]
fn a_sphere_leaves_the_rotation_to_the_prior() {
    let ball = |seed: u64| {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
        let mut out = Surface::default();
        for _ in 0..6000 {
            let way = Vector::from_fn(|_, _| random.random_range(-1.0..1.0f64)).normalize();
            let tilt = Vector::from_fn(|_, _| random.random_range(-0.05..0.05));
            out.points.push(Point::from(way * 3.0));
            out.normals.push((way + tilt).normalize());
        }
        out
    };
    let map = SurfaceIndex::new(&ball(1), VOXEL);
    let guess = rigid([0.1, 0.0, -0.1], [0.0, 0.0, 0.02]);
    let found = aligner(1).align(&map, &ball(2), &guess, None, &Settings::new(0.4));
    assert_eq!(found.observed, 3);
    assert!(found.map_t_sensor.translation.vector.norm() < 0.01, "{found:?}");
}

#[test]
fn wrong_places_are_told_from_the_right_one_after_aligning() {
    let map = SurfaceIndex::new(&faces(&room(), 0.01, 1), VOXEL);
    let scan = seen_from(&pose(), &faces(&room(), 0.01, 2), 20.0);
    let mut aligner = aligner(2);
    let half = std::f64::consts::PI;
    for wrong in [
        moved(&pose(), [0.0; 3], [0.0, 0.0, half]),
        moved(&pose(), [0.0; 3], [0.0, 0.0, half / 2.0]),
        moved(&pose(), [2.0, 0.0, 0.0], [0.0; 3]),
        moved(&pose(), [0.0, -1.5, 0.0], [0.0; 3]),
    ] {
        let found = aligner.align(&map, &scan, &wrong, None, &Settings::new(0.5));
        let evidence = aligner.verify(&map, &scan, &found.map_t_sensor);
        assert!(evidence.score < 0.0, "{wrong}: {evidence:?}");
    }
    for scale in [0.9, 1.1] {
        let points = scan.points.iter().map(|p| p * scale).collect();
        let scaled = Surface { points, normals: scan.normals.clone() };
        let found = aligner.align(&map, &scaled, &pose(), None, &Settings::new(0.5));
        let evidence = aligner.verify(&map, &scaled, &found.map_t_sensor);
        assert!(evidence.score < 0.0, "{scale}: {evidence:?}");
    }
}

#[test]
fn threads_do_not_change_a_bit_and_large_coordinates_little() {
    let surface = faces(&room(), 0.01, 1);
    let scan = seen_from(&pose(), &faces(&room(), 0.01, 2), 20.0);
    let guess = moved(&pose(), [0.2, -0.1, 0.05], [0.0, 0.0, 0.05]);
    let map = SurfaceIndex::new(&surface, VOXEL);
    let run = |threads: usize| {
        let mut aligner = aligner(threads);
        let found = aligner.align(&map, &scan, &guess, None, &Settings::new(0.6));
        let evidence = aligner.verify(&map, &scan, &found.map_t_sensor);
        (found, evidence)
    };
    let one = run(1);
    assert_eq!(one, run(3));
    let far = Vector::new(500_000.0, 5_600_000.0, 100.0);
    let shifted = surface.points.iter().map(|p| p + far).collect();
    let map = SurfaceIndex::new(&Surface { points: shifted, normals: surface.normals.clone() }, VOXEL);
    let found =
        aligner(2).align(&map, &scan, &moved(&guess, far.into(), [0.0; 3]), None, &Settings::new(0.6));
    let back = moved(&found.map_t_sensor, (-far).into(), [0.0; 3]);
    let (turn, shift) = pose_error(&back, &one.0.map_t_sensor);
    assert!(shift < 2e-3 && turn < 1e-3, "{shift} {turn}");
}

#[test]
fn nothing_and_nonsense_give_no_pose() {
    let surface = faces(&room(), 0.01, 1);
    let scan = seen_from(&pose(), &surface, 20.0);
    let nan =
        Surface { points: vec![Point::new(f64::NAN, 0.0, f64::INFINITY); 9], normals: vec![Vector::z(); 9] };
    let maps = [&Surface::default(), &nan, &surface].map(|surface| SurfaceIndex::new(surface, VOXEL));
    let mut aligner = aligner(1);
    for (map, scan, guess) in [
        (&maps[0], &scan, pose()),
        (&maps[1], &scan, pose()),
        (&maps[2], &Surface::default(), pose()),
        (&maps[2], &nan, pose()),
        (&maps[2], &scan, moved(&pose(), [1e9, 0.0, 0.0], [0.0; 3])),
        (&maps[2], &scan, moved(&pose(), [f64::NAN, 0.0, 0.0], [0.0; 3])),
    ] {
        let found = aligner.align(map, scan, &guess, None, &Settings::new(0.5));
        assert!(!found.converged && found.inliers == 0 && found.observed == 0, "{found:?}");
        assert!(found.covariance.iter().all(|v| v.is_finite()));
        let evidence = aligner.verify(map, scan, &found.map_t_sensor);
        assert!(evidence.on == 0.0 && evidence.score <= 0.0, "{evidence:?}");
    }
    assert!(maps[2].nearest(&Point::new(f64::NAN, 0.0, 0.0), 1.0).is_none());
    assert!(maps[2].cast(&Point::origin(), &Vector::new(f64::NAN, 0.0, 0.0), 0.0, 1.0).is_none());
}

#[test]
fn the_nearest_point_is_the_nearest_and_rays_meet_walls() {
    let surface = faces(&room(), 0.0, 1);
    let map = SurfaceIndex::new(&surface, VOXEL);
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(5);
    for _ in 0..300 {
        let p = Point::new(
            random.random_range(-0.5..12.5),
            random.random_range(-0.5..8.5),
            random.random_range(-0.5..3.5),
        );
        let least = surface.points.iter().map(|q| (q - p).norm()).fold(f64::INFINITY, f64::min);
        let found = map.nearest(&p, VOXEL).map(|surfel| (surfel.point - p).norm());
        assert_eq!(found, (least < VOXEL).then_some(least));
    }
    let range = map.cast(&Point::new(5.0, 4.0, 1.0), &Vector::x(), 0.1, 20.0);
    assert!(range.is_some_and(|range| (range - 7.0).abs() < 0.05), "{range:?}");
    assert_eq!(map.cast(&Point::new(5.0, 4.0, 1.0), &Vector::x(), 0.1, 6.0), None);
}

#[test]
fn errors_of_walls_are_those_that_the_covariance_tells() {
    // Every face of the map is off as whole surfaces are after mapping, by a deviation of 3 mm.
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(11);
    let mut aligner = aligner(2);
    let (mut within, mut squares, runs) = ([0; 6], 0.0, 40);
    for run in 0..runs {
        let mut off = room();
        for [corner, a, b] in &mut off {
            let normal = Vector::from(*a).cross(&Vector::from(*b)).normalize();
            let moved = Vector::from(*corner) + normal * random.random_range(-0.005..0.005);
            *corner = moved.into();
        }
        let map = SurfaceIndex::new(&faces(&off, 0.01, 100 + run), VOXEL);
        let scan = seen_from(&pose(), &faces(&room(), 0.01, 200 + run), 20.0);
        let found = aligner.align(&map, &scan, &pose(), None, &Settings::new(0.4));
        let shift = found.map_t_sensor.translation.vector - pose().translation.vector;
        let turn = (found.map_t_sensor.rotation * pose().rotation.inverse()).scaled_axis();
        let error = Vector6::new(shift.x, shift.y, shift.z, turn.x, turn.y, turn.z);
        for (k, within) in within.iter_mut().enumerate() {
            let ratio = error[k] / found.covariance[(k, k)].sqrt();
            *within += i32::from(ratio.abs() < 2.0);
            squares += ratio * ratio;
        }
    }
    assert!(within.iter().all(|n| *n >= 34), "{within:?} of {runs}");
    let mean = squares / (6.0 * runs as f64);
    assert!(mean > 0.1 && mean < 1.5, "mean square {mean} in units of the variance");
}

#[test]
fn little_structure_makes_the_covariance_wide() {
    let map = SurfaceIndex::new(&faces(&room(), 0.01, 1), VOXEL);
    let whole = seen_from(&pose(), &faces(&room(), 0.01, 2), 20.0);
    // One wall and the floor.
    let few = seen_from(&pose(), &faces(&room()[..2], 0.01, 2), 20.0);
    let mut aligner = aligner(2);
    let mut deviation = |scan: &Surface| {
        let found = aligner.align(&map, scan, &pose(), None, &Settings::new(0.4));
        found.covariance.diagonal().map(f64::sqrt)
    };
    let (whole, few) = (deviation(&whole), deviation(&few));
    assert!((0..6).all(|k| few[k] > whole[k]), "{few} {whole}");
    assert!(few[1] > 0.2 && whole.iter().all(|v| *v < 0.02), "{few} {whole}");
}
