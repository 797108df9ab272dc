//! What a registration says of problems whose answer is known. Each name is a sentence.

mod common;

use common::problems::*;
use flashreg::geometry::{pose_error, Point, Rigid, Vector};
use flashreg::params::{Params, Value};
use flashreg::registration::{Correspondence, Problem, Reason, Registrar, Registration};
use flashreg::status::Status;
use nalgebra::UnitQuaternion;
use rand::seq::SliceRandom;
use rand::Rng;

fn register(rows: &[Correspondence], params: &Params) -> Registration {
    Registrar::new(params).expect("the CPU").register(&problem(rows), params).clone()
}

fn assert_right(r: &Registration, truth: &Rigid, rotation: f64, translation: f64) {
    assert_eq!(r.status, Status::Ok, "{}", r.reason);
    let (re, te) = pose_error(&r.target_t_source.expect("a pose"), truth);
    assert!(re < rotation && te < translation, "{re} rad {te} m");
}

#[test]
fn a_planted_pose_is_found_among_outliers() {
    for (outdoor, size, radius, seed) in [(false, ROOM, 0.03, 1), (true, STREET, 0.2, 2)] {
        for (n, inliers) in [(40, 40), (500, 250), (2000, 100), (5000, 120)] {
            let mut rng = random(seed * 100 + n as u64);
            let truth = random_pose(&mut rng, 20.0);
            let rows = planted(&mut rng, n, inliers, size, radius, &truth);
            let r = register(&rows, &preset(outdoor));
            assert_right(&r, &truth, 0.02, if outdoor { 0.5 } else { 0.08 });
            assert!(r.inliers as f64 > 0.9 * inliers as f64, "{} of {inliers}", r.inliers);
            assert_eq!(r.inlier_mask.iter().filter(|m| **m).count(), r.inliers);
            assert_eq!(r.inlier_mask.len(), n);
        }
    }
}

#[test]
fn exact_correspondences_give_an_exact_pose() {
    let mut rng = random(3);
    for reach in [1.0, 1e3, 1e6] {
        let truth = random_pose(&mut rng, reach);
        let rows = planted(&mut rng, 300, 300, ROOM, 0.0, &truth);
        let r = register(&rows, &preset(false));
        assert_right(&r, &truth, 1e-6, 1e-6 * 5.0 + reach * 1e-12);
    }
}

#[test]
fn map_coordinates_of_a_whole_country_lose_nothing() {
    let mut rng = random(4);
    let truth = random_pose(&mut rng, 0.0);
    let utm = Vector::new(512_345.678, 5_403_210.987, 431.25);
    let rows: Vec<_> = planted(&mut rng, 1000, 150, ROOM, 0.02, &truth)
        .into_iter()
        .map(|row| Correspondence { target: row.target + utm, ..row })
        .collect();
    let truth = Rigid::from_parts((truth.translation.vector + utm).into(), truth.rotation);
    assert_right(&register(&rows, &preset(false)), &truth, 0.01, 0.03);
}

#[test]
fn a_source_frame_whose_origin_is_far_away_makes_no_pose_worse() {
    for offset in [1e3, 1e5, 1e8] {
        let mut rng = random(19);
        let truth = random_pose(&mut rng, 5.0);
        let (a, b) = (Vector::new(offset, -offset, 0.3 * offset), Vector::new(-offset, offset, 0.0));
        let rows: Vec<_> = planted(&mut rng, 800, 150, ROOM, 0.03, &truth)
            .into_iter()
            .map(|r| Correspondence { source: r.source + a, target: r.target + b, ..r })
            .collect();
        let r = register(&rows, &preset(false));
        assert_eq!(r.status, Status::Ok, "{offset}: {}", r.reason);
        // Where the correspondences are, the pose is as good as ever.
        let pose = r.target_t_source.expect("a pose");
        for row in rows.iter().zip(&r.inlier_mask).filter(|(_, inlier)| **inlier).map(|(row, _)| row) {
            let expected = truth * (row.source - a) + b;
            assert!((pose * row.source - expected).norm() < 0.02 + 1e-9 * offset);
        }
        // At the origin it is as uncertain as the lever is long.
        let std = r.covariance.fixed_view::<3, 3>(0, 0).into_owned().symmetric_eigenvalues().max().sqrt();
        assert!((1e-4..1e-2).contains(&(std / offset)), "{std}");
    }
}

#[test]
fn moving_both_frames_moves_the_answer_and_nothing_else() {
    let mut rng = random(5);
    let truth = random_pose(&mut rng, 5.0);
    let rows = planted(&mut rng, 800, 100, ROOM, 0.02, &truth);
    let (a, b) = (random_pose(&mut rng, 50.0), random_pose(&mut rng, 50.0));
    let moved: Vec<_> =
        rows.iter().map(|r| Correspondence { source: a * r.source, target: b * r.target, ..*r }).collect();
    let (before, after) = (register(&rows, &preset(false)), register(&moved, &preset(false)));
    let expected = b * before.target_t_source.expect("a pose") * a.inverse();
    let (re, te) = pose_error(&after.target_t_source.expect("a pose"), &expected);
    assert!(re < 1e-4 && te < 1e-2, "{re} {te}");
    assert_eq!(before.inlier_mask, after.inlier_mask);
}

#[test]
fn the_order_of_the_rows_does_not_matter() {
    let mut rng = random(6);
    let truth = random_pose(&mut rng, 5.0);
    let mut rows = planted(&mut rng, 1000, 120, ROOM, 0.02, &truth);
    let before = register(&rows, &preset(false));
    rows.shuffle(&mut rng);
    let after = register(&rows, &preset(false));
    let (re, te) =
        pose_error(&after.target_t_source.expect("a pose"), &before.target_t_source.expect("a pose"));
    assert!(re < 1e-5 && te < 1e-4, "{re} {te}");
}

#[test]
fn fewer_than_three_are_too_few() {
    let row = Correspondence::new(Point::origin(), Point::origin());
    for n in 0..3 {
        let r = register(&vec![row; n], &preset(false));
        assert_eq!((r.status, r.reason), (Status::TooFew, Reason::TooFew(n)));
        assert!(r.target_t_source.is_none());
    }
}

#[test]
fn more_than_there_is_memory_for_are_refused() {
    let mut rng = random(7);
    let params = with(preset(false), "registration.max_correspondences", Value::Int(100));
    let truth = random_pose(&mut rng, 5.0);
    let r = register(&planted(&mut rng, 101, 101, ROOM, 0.0, &truth), &params);
    assert_eq!((r.status, r.reason), (Status::BadInput, Reason::TooMany { got: 101, max: 100 }));
}

#[test]
fn points_on_a_line_or_in_a_point_are_degenerate() {
    let mut rng = random(8);
    for noise_radius in [0.0, 0.005, 0.03] {
        for outliers in [0, 60] {
            for coincident in [true, false] {
                let truth = random_pose(&mut rng, 5.0);
                let direction = Vector::new(1.0, 2.0, -0.5).normalize();
                let mut rows: Vec<_> = (0..120)
                    .map(|_| {
                        let along = if coincident { 0.0 } else { rng.random_range(-4.0..4.0) };
                        let source = Point::from(direction * along + noise(&mut rng, noise_radius));
                        Correspondence::new(source, truth * source + noise(&mut rng, noise_radius))
                    })
                    .collect();
                rows.extend(planted(&mut rng, outliers, 0, ROOM, 0.0, &truth));
                let r = register(&rows, &preset(false));
                let expected: &[Status] = match (coincident, outliers) {
                    // Outliers around a point: nothing that three rows agree on.
                    (true, 60) => &[Status::Degenerate, Status::LowInliers],
                    _ => &[Status::Degenerate],
                };
                assert!(
                    expected.contains(&r.status),
                    "{noise_radius} {outliers} {coincident}: {} {}",
                    r.status,
                    r.reason
                );
            }
        }
    }
}

#[test]
fn a_plane_is_enough() {
    let mut rng = random(9);
    let truth = random_pose(&mut rng, 5.0);
    let rows = planted(&mut rng, 600, 200, [5.0, 4.0, 0.0], 0.02, &truth);
    assert_right(&register(&rows, &preset(false)), &truth, 0.02, 0.05);
}

#[test]
fn mirrored_correspondences_are_never_ok() {
    for seed in 0..40 {
        let mut rng = random(1000 + seed);
        let outdoor = seed % 2 == 0;
        let (mut size, radius) = if outdoor { (STREET, 0.2) } else { (ROOM, 0.03) };
        if seed % 4 < 2 {
            // Flat, as the ground: the harder case.
            size[2] = 1.0;
        }
        let truth = random_pose(&mut rng, 5.0);
        let n = rng.random_range(60..1500);
        let inliers = n * rng.random_range(20..=100) / 100;
        let rows: Vec<_> = planted(&mut rng, n, inliers, size, radius, &truth)
            .into_iter()
            .map(|row| Correspondence {
                source: Point::new(row.source.x, row.source.y, -row.source.z),
                ..row
            })
            .collect();
        let r = register(&rows, &preset(outdoor));
        assert!(
            matches!(r.status, Status::Degenerate | Status::LowInliers),
            "seed {seed} n {n} inliers {inliers}: {} {}",
            r.status,
            r.reason
        );
    }
}

#[test]
fn a_mirrored_scene_flatter_than_the_threshold_is_told_from_a_plane() {
    let mut named = 0;
    for seed in 0..60 {
        let mut rng = random(5000 + seed);
        let outdoor = seed % 2 == 0;
        let (mut size, theta) = if outdoor { (STREET, 0.4) } else { (ROOM, 0.1) };
        size[2] = theta;
        let truth = random_pose(&mut rng, 5.0);
        let n = rng.random_range(80..600);
        let radius = theta * rng.random_range(0.0..0.5);
        let rows = planted(&mut rng, n, n * 2 / 3, size, radius, &truth);
        let mirrored: Vec<_> = rows
            .iter()
            .map(|r| Correspondence { source: Point::new(r.source.x, r.source.y, -r.source.z), ..*r })
            .collect();
        let params = preset(outdoor);
        assert_right(&register(&rows, &params), &truth, 0.05, 0.5);
        let r = register(&mirrored, &params);
        assert_ne!(r.status, Status::Ok, "seed {seed} n {n} noise {radius}");
        named += usize::from(matches!(r.reason, Reason::Mirrored { .. }));
    }
    assert!(named >= 57, "{named} of 60 named");
}

#[test]
fn two_equally_good_poses_are_ambiguous() {
    for (seed, share) in [(1, 50), (2, 47), (3, 55), (4, 50)] {
        let mut rng = random(2000 + seed);
        let a = random_pose(&mut rng, 5.0);
        let b = match seed {
            // Two alike rooms: the same orientation elsewhere.
            4 => Rigid::from_parts((a.translation.vector + Vector::new(6.0, 0.0, 0.0)).into(), a.rotation),
            _ => random_pose(&mut rng, 5.0),
        };
        let mut rows = planted(&mut rng, 2 * share, 2 * share, ROOM, 0.02, &a);
        rows.extend(planted(&mut rng, 200 - 2 * share, 200 - 2 * share, ROOM, 0.02, &b));
        rows.extend(planted(&mut rng, 800, 0, ROOM, 0.0, &a));
        let r = register(&rows, &preset(false));
        assert_eq!(r.status, Status::Ambiguous, "seed {seed}: {}", r.reason);
        // Both are reported, whichever comes first.
        let best = r.target_t_source.expect("a pose");
        let other = r.runner_up.expect("a runner-up").target_t_source;
        let near = |x: &Rigid, y: &Rigid| pose_error(x, y).1 < 0.2 && pose_error(x, y).0 < 0.1;
        assert!((near(&best, &a) && near(&other, &b)) || (near(&best, &b) && near(&other, &a)));
        assert!(r.margin < 0.3 && r.margin >= 0.0);
    }
}

#[test]
fn random_correspondences_have_low_support() {
    let mut registrar = Registrar::new(&preset(false)).expect("the CPU");
    for seed in 0..120 {
        let mut rng = random(3000 + seed);
        let outdoor = seed % 2 == 0;
        let size = if outdoor { STREET } else { ROOM };
        let n = [3, 4, 10, 30, 100, 500, 1500, 3000][seed as usize % 8];
        let truth = random_pose(&mut rng, 5.0);
        let rows = planted(&mut rng, n, 0, size, 0.0, &truth);
        let r = registrar.register(&problem(&rows), &preset(outdoor));
        assert!(
            matches!(r.status, Status::LowInliers | Status::Degenerate),
            "seed {seed}: {} {}",
            r.status,
            r.reason
        );
    }
}

#[test]
fn one_correspondence_repeated_is_one_piece_of_evidence() {
    let mut rng = random(10);
    let truth = random_pose(&mut rng, 5.0);
    let four = planted(&mut rng, 4, 4, ROOM, 0.0, &truth);
    let rows: Vec<_> = four.iter().cycle().take(400).copied().collect();
    let r = register(&rows, &preset(false));
    assert_eq!(r.status, Status::LowInliers, "{}", r.reason);
    assert_eq!(r.independent_inliers, 4);
}

#[test]
fn a_known_vertical_leaves_four_unknowns() {
    let mut rng = random(11);
    let yaw = UnitQuaternion::from_scaled_axis(Vector::z() * 2.0);
    let tilt = UnitQuaternion::from_scaled_axis(Vector::new(0.3, -0.2, 0.0));
    // The sensor is tilted by a known amount; the map's z is up.
    let truth = Rigid::from_parts(Vector::new(3.0, -1.0, 0.4).into(), yaw * tilt);
    let rows = planted(&mut rng, 1500, 60, ROOM, 0.02, &truth);
    let mut problem = problem(&rows);
    assert!(problem.set_up(truth.inverse_transform_vector(&Vector::z()), Vector::z()));
    let params = preset(false);
    let mut registrar = Registrar::new(&params).expect("the CPU");
    let r = registrar.register(&problem, &params).clone();
    assert_right(&r, &truth, 0.02, 0.05);
    let up = r.target_t_source.expect("a pose") * truth.inverse_transform_vector(&Vector::z());
    assert!((up - Vector::z()).norm() < 1e-6, "the vertical is not kept: {up}");
    // Tilt is not estimated, so it has no uncertainty.
    assert!(r.covariance[(3, 3)] < 1e-12 && r.covariance[(5, 5)] > 0.0);
    // A vertical line is not enough, a horizontal one is.
    for (direction, expected) in [(Vector::z(), Status::Degenerate), (Vector::x(), Status::Ok)] {
        let mut problem = Problem::with_capacity(100);
        for _ in 0..100 {
            let map = Point::from(direction * rng.random_range(-4.0..4.0));
            problem.push(Correspondence::new(truth.inverse() * map, map + noise(&mut rng, 0.005)));
        }
        problem.set_up(truth.inverse_transform_vector(&Vector::z()), Vector::z());
        let r = registrar.register(&problem, &params);
        assert_eq!(r.status, expected, "{direction}: {}", r.reason);
    }
}

#[test]
fn weights_decide_between_two_poses() {
    let mut rng = random(12);
    let (a, b) = (random_pose(&mut rng, 5.0), random_pose(&mut rng, 5.0));
    let mut rows = planted(&mut rng, 150, 150, ROOM, 0.02, &a);
    rows.extend(
        planted(&mut rng, 150, 150, ROOM, 0.02, &b).into_iter().map(|r| Correspondence { weight: 0.1, ..r }),
    );
    rows.shuffle(&mut rng);
    let r = register(&rows, &preset(false));
    let (re, te) = pose_error(&r.target_t_source.expect("a pose"), &a);
    assert!(re < 0.02 && te < 0.05, "the heavier pose is the better one: {re} {te}");
    assert_eq!(r.status, Status::Ambiguous, "but the other has as many inliers: {}", r.reason);
}

#[test]
fn heavy_wrong_correspondences_do_not_carry_a_pose_away_from_the_light_ones() {
    let params = preset(false);
    let mut registrar = Registrar::new(&params).expect("the CPU");
    for seed in 0..120 {
        let mut rng = random(6000 + seed);
        let truth = random_pose(&mut rng, 5.0);
        let n = rng.random_range(300..2000);
        let mut rows = planted(&mut rng, n, n / 8, ROOM, 0.03, &truth);
        let heavy = 10f32.powf(rng.random_range(0.0..30.0));
        for row in rows.iter_mut().filter(|row| (truth * row.source - row.target).norm() > 0.3) {
            row.weight = heavy;
        }
        let r = registrar.register(&problem(&rows), &params);
        if r.status == Status::Ok {
            // Two poses that lie nearer to each other count as the same.
            let pose = r.target_t_source.expect("a pose");
            let light = rows.iter().filter(|row| row.weight < heavy || heavy == 1.0);
            let square: Vec<_> =
                light.map(|row| (pose * row.source - truth * row.source).norm_squared()).collect();
            let rms = (square.iter().sum::<f64>() / square.len() as f64).sqrt();
            assert!(rms < 0.22, "seed {seed}: {rms} m, {} inliers of {}", r.inliers, n / 8);
        }
    }
}

#[test]
fn the_heaviest_are_kept_when_there_are_too_many() {
    let mut rng = random(13);
    let truth = random_pose(&mut rng, 5.0);
    let mut rows = planted(&mut rng, 2000, 0, ROOM, 0.0, &truth);
    rows.extend(
        planted(&mut rng, 200, 200, ROOM, 0.02, &truth)
            .into_iter()
            .map(|r| Correspondence { weight: 2.0, ..r }),
    );
    let mut problem = problem(&rows);
    assert_eq!(problem.keep_heaviest(300), 1900);
    // Ties by index: the first hundred of the lighter rows, then the heavier ones, in order.
    let kept: Vec<_> = rows[..100].iter().chain(&rows[2000..]).copied().collect();
    assert!(problem.rows().eq(kept));
}

#[test]
fn exclusive_identities_stop_a_feature_from_voting_twice() {
    // Each of 30 true features is matched to its target and, by a second row, to a copy of it
    // elsewhere. Without identities both poses stand; with the source's identity they still do,
    // but no clique holds both rows of a feature.
    let mut rng = random(14);
    let (a, b) = (random_pose(&mut rng, 5.0), random_pose(&mut rng, 5.0));
    let mut rows = planted(&mut rng, 60, 60, ROOM, 0.01, &a);
    let again: Vec<_> = rows.iter().map(|r| Correspondence { target: b * r.source, ..*r }).collect();
    rows.extend(again);
    for (i, row) in rows.iter_mut().enumerate() {
        row.source_id = Some(i as u32 % 60);
    }
    let r = register(&rows, &preset(false));
    assert_eq!(r.status, Status::Ambiguous, "{}", r.reason);
}

#[test]
fn a_spent_budget_is_said_and_leaves_no_pose() {
    let mut rng = random(15);
    let truth = random_pose(&mut rng, 5.0);
    let rows = planted(&mut rng, 6000, 600, ROOM, 0.02, &truth);
    let params = with(preset(false), "registration.time_budget_ms", Value::Float(0.5));
    let mut registrar = Registrar::new(&params).expect("the CPU");
    let r = registrar.register(&problem(&rows), &params).clone();
    assert_eq!(r.status, Status::OverBudget, "{}", r.reason);
    assert!(r.target_t_source.is_none() && r.inliers == 0);
    // The next frame is none the worse for it.
    let free = with(params, "registration.time_budget_ms", Value::Float(0.0));
    assert_right(registrar.register(&problem(&rows), &free), &truth, 0.01, 0.03);
}

#[test]
fn covariance_covers_the_error() {
    // With uniform noise in a ball the error of each coordinate, in units of its own standard
    // deviation, has a mean square near one.
    let mut square = [0.0; 6];
    let trials = 200;
    let params = preset(false);
    let mut registrar = Registrar::new(&params).expect("the CPU");
    for seed in 0..trials {
        let mut rng = random(4000 + seed);
        let truth = random_pose(&mut rng, 5.0);
        let rows = planted(&mut rng, 300, 150, ROOM, 0.06, &truth);
        let r = registrar.register(&problem(&rows), &params);
        let pose = r.target_t_source.expect("a pose");
        let turn = (pose.rotation * truth.rotation.inverse()).scaled_axis();
        let shift = pose.translation.vector - truth.translation.vector;
        for k in 0..3 {
            square[k] += shift[k].powi(2) / r.covariance[(k, k)] / trials as f64;
            square[k + 3] += turn[k].powi(2) / r.covariance[(k + 3, k + 3)] / trials as f64;
        }
        let eigen = r.covariance.symmetric_eigenvalues();
        assert!(eigen.min() > 0.0 && (r.covariance - r.covariance.transpose()).norm() == 0.0);
    }
    assert!(square.iter().all(|s| (0.5..2.0).contains(s)), "{square:?}");
}

#[test]
fn absurd_numbers_are_survived() {
    let mut rng = random(16);
    let params = preset(false);
    let mut registrar = Registrar::new(&params).expect("the CPU");
    for scale in [0.0, 1e-300, 1e-20, 1e10, 1e19, 1e30, 1e150, 1.7e308] {
        let mut value = || rng.random_range(-1.0..1.0) * scale;
        let rows: Vec<_> = (0..200)
            .map(|_| {
                Correspondence::new(
                    Point::new(value(), value(), value()),
                    Point::new(value(), value(), value()),
                )
            })
            .collect();
        let r = registrar.register(&problem(&rows), &params);
        assert_ne!(r.status, Status::Ok, "{scale}");
    }
    // A few absurd rows do not spoil the others.
    let truth = random_pose(&mut rng, 5.0);
    let mut rows = planted(&mut rng, 500, 200, ROOM, 0.02, &truth);
    for (k, row) in rows.iter_mut().step_by(10).enumerate() {
        row.source = Point::new(1e3_f64.powi(k as i32), -1e30, 1e300);
    }
    assert_right(registrar.register(&problem(&rows), &params), &truth, 0.02, 0.05);
}

#[test]
fn every_metric_finds_the_pose() {
    let mut rng = random(17);
    let truth = random_pose(&mut rng, 5.0);
    let rows = planted(&mut rng, 2000, 150, ROOM, 0.03, &truth);
    for metric in flashreg::params::Metric::WORDS {
        let params = with(preset(false), "registration.metric", Value::Text((*metric).into()));
        let r = register(&rows, &params);
        assert_right(&r, &truth, 0.02, 0.05);
        if *metric == "inliers" {
            assert_eq!(r.score, r.inliers as f64);
        }
    }
}
