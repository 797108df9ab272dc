//! Minimal solvers: the true pose is found, what is found meets the equations, closed forms and homotopies agree,
//! and samples that determine no pose do no harm. `FLASHREG_CASES` sets how many random samples (default 1000).

use flashreg::estimation::solvers::{five_point, p3p, recall_of_closed_form, Homotopy};
use flashreg::geometry::{pose_error, Pose, Vector};
use flashreg::homotopy::problems::{find, Geometry, Problem, Random};
use flashreg::homotopy::Backend;
use std::collections::BTreeMap;

fn cases() -> usize {
    std::env::var("FLASHREG_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1000)
}

fn problem(name: &str) -> Problem {
    find(name).expect("a problem of the library")
}

fn error(a: &Pose, b: &Pose) -> f64 {
    let (angle, shift) = pose_error(&a.to_rigid(), &b.to_rigid());
    angle.max(shift)
}

/// A rotation matrix to rounding.
fn is_proper(pose: &Pose) -> bool {
    let r = &pose.rotation;
    pose.is_finite()
        && (r.transpose() * r - nalgebra::Matrix3::identity()).norm() < 1e-12
        && r.determinant() > 0.0
}

/// The largest angle (sine) between bearings and points, all of which have to be in front.
fn miss_of_points(pose: &Pose, bearings: &[Vector], points: &[Vector]) -> f64 {
    let one = |(f, x): (&Vector, &Vector)| {
        let y = pose.apply(x).normalize();
        if y.dot(f) > 0.0 {
            y.cross(f).norm()
        } else {
            f64::INFINITY
        }
    };
    bearings.iter().zip(points).map(one).fold(0.0, f64::max)
}

/// The largest volume of the baseline and both bearings.
fn miss_of_pairs(pose: &Pose, a: &[Vector], b: &[Vector]) -> f64 {
    let one = |(a, b): (&Vector, &Vector)| pose.translation.dot(&(pose.rotation * a).cross(b)).abs();
    a.iter().zip(b).map(one).fold(0.0, f64::max)
}

#[test]
fn closed_forms_find_the_true_pose() {
    for name in ["p3p", "p3p_pose", "five_point", "five_point_nullspace"] {
        let row =
            recall_of_closed_form(&problem(name), cases(), 1).expect("equations").expect("a closed form");
        assert_eq!(row.poses, cases(), "{name}");
        assert!(row.misses.len() <= cases() / 1000, "{name}: {:?}", row.misses);
        assert_eq!(row.poses_right + row.misses.len(), row.poses, "{name}");
    }
    assert!(recall_of_closed_form(&problem("triangulation_2"), 3, 1).expect("equations").is_none());
}

/// A scene of three points in the frame of the camera, by what is special about it.
fn triangle(kind: &str, random: &mut Random) -> [Vector; 3] {
    let mut seen = [random.seen(), random.seen(), random.seen()];
    let on_line = seen[0] + (seen[1] - seen[0]) * random.between(-1.0, 2.0);
    match kind {
        "nearly collinear" => seen[2] = on_line + random.vector(1e-3),
        "collinear" => seen[2] = on_line,
        "far" => seen.iter_mut().for_each(|p| p.z += 1e3),
        "narrow" => seen.iter_mut().for_each(|p| *p = Vector::new(1e-3 * p.x, 1e-3 * p.y, p.z)),
        "all around" => seen.iter_mut().for_each(|p| *p = random.rotation() * *p),
        "close" => seen[2] *= 1e-4,
        "twice the same" => seen[2] = seen[0],
        "in the camera" => seen[1] = Vector::zeros(),
        _ => {}
    }
    seen
}

#[test]
fn three_points_have_the_true_pose_however_they_lie_and_none_if_they_do_not_tell_it() {
    let count = cases() / 2;
    // Errors that 99 of 100 have less of; none where there is no pose.
    let kinds = [
        ("any", Some(1e-11)),
        ("nearly collinear", Some(1e-4)),
        ("far", Some(1e-8)),
        ("narrow", Some(1e-6)),
        ("all around", Some(1e-11)),
        ("close", Some(1e-11)),
        ("collinear", None),
        ("twice the same", None),
        ("in the camera", None),
    ];
    for (kind, most) in kinds {
        let mut errors = Vec::new();
        for seed in 0..count as u64 {
            let mut random = Random::new(seed);
            let rotation = random.rotation().to_rotation_matrix().into_inner();
            let truth = Pose { rotation, translation: random.vector(3.0) };
            let seen = triangle(kind, &mut random);
            let points = seen.map(|p| rotation.transpose() * (p - truth.translation));
            let bearings = seen.map(|p| p.normalize());
            let mut poses = [Pose::identity(); 4];
            let n = p3p(&bearings, &points, &mut poses);
            for pose in &poses[..n] {
                assert!(is_proper(pose), "{kind} {seed}: {pose:?}");
                let miss = miss_of_points(pose, &bearings, &points);
                assert!(miss < 1e-8, "{kind} {seed}: {miss:.1e}");
            }
            errors.push(poses[..n].iter().map(|p| error(p, &truth)).fold(f64::INFINITY, f64::min));
        }
        errors.sort_by(f64::total_cmp);
        let worst = errors[count * 99 / 100];
        match most {
            Some(most) => assert!(worst < most, "{kind}: {worst:.1e}"),
            None => assert!(errors[0] > 1e-3, "{kind}: {:.1e}", errors[0]),
        }
    }
}

/// Five points and a motion, by what is special about them.
fn pair(kind: &str, random: &mut Random) -> ([Vector; 5], Pose) {
    let mut turn = random.turn(0.5);
    let mut t = random.vector(1.0);
    let mut first = [0; 5].map(|_| random.seen());
    match kind {
        "planar" => {
            let normal = Vector::new(random.between(-0.5, 0.5), random.between(-0.5, 0.5), 1.0);
            first.iter_mut().for_each(|p| *p *= 5.0 / normal.dot(p));
        }
        "far" => first.iter_mut().for_each(|p| *p *= 1e2),
        "small baseline" => t *= 1e-3,
        "forward" => (turn, t) = (random.turn(1e-9), Vector::z()),
        "sideways" => (turn, t) = (random.turn(1e-9), Vector::x()),
        "all around" => {
            first.iter_mut().for_each(|p| *p = random.rotation() * *p);
            turn = random.rotation();
        }
        "no baseline" => t = Vector::zeros(),
        "twice the same" => first[4] = first[0],
        "collinear" => {
            for k in 2..5 {
                first[k] = first[0] + (first[1] - first[0]) * random.between(-1.0, 2.0);
            }
        }
        "one point" => first = [first[0]; 5],
        _ => {}
    }
    (first, Pose { rotation: turn.to_rotation_matrix().into_inner(), translation: t })
}

#[test]
fn five_points_have_the_true_motion_however_they_lie_and_do_no_harm_if_they_do_not_tell_it() {
    let count = cases() / 2;
    let kinds = [
        ("any", Some(1e-10)),
        ("planar", Some(1e-10)),
        ("far", Some(1e-9)),
        ("small baseline", Some(1e-8)),
        ("forward", Some(1e-10)),
        ("sideways", Some(1e-10)),
        ("all around", Some(1e-10)),
        ("no baseline", None),
        ("twice the same", None),
        ("collinear", None),
        ("one point", None),
    ];
    for (kind, most) in kinds {
        let mut errors = Vec::new();
        for seed in 0..count as u64 {
            let mut random = Random::new(seed);
            let (first, motion) = pair(kind, &mut random);
            let second = first.map(|p| motion.apply(&p));
            let (a, b) = (first.map(|p| p.normalize()), second.map(|p| p.normalize()));
            let mut poses = [Pose::identity(); 10];
            let n = five_point(&a, &b, &mut poses);
            for pose in &poses[..n] {
                assert!(is_proper(pose), "{kind} {seed}: {pose:?}");
                assert!((pose.translation.norm() - 1.0).abs() < 1e-12, "{kind} {seed}");
                let miss = miss_of_pairs(pose, &a, &b);
                assert!(miss < 2e-12, "{kind} {seed}: {miss:.1e}");
            }
            let truth = Pose { translation: motion.translation.normalize(), ..motion };
            errors.push(poses[..n].iter().map(|p| error(p, &truth)).fold(f64::INFINITY, f64::min));
        }
        errors.sort_by(f64::total_cmp);
        let worst = errors[count * 99 / 100];
        assert!(most.is_none_or(|most| worst < most), "{kind}: {worst:.1e}");
    }
}

#[test]
fn numbers_that_are_none_have_no_pose() {
    for bad in [f64::NAN, f64::INFINITY, 1e300] {
        let (f, x) = ([Vector::z(); 3], [Vector::x(), Vector::y(), Vector::z() * 2.0]);
        let mut poses = [Pose::identity(); 4];
        for k in 0..3 {
            let (mut rays, mut points) = (f, x);
            rays[k].x = bad;
            points[k].y = bad;
            for (rays, points) in [(rays, x), (f, points), (rays, points)] {
                let n = p3p(&rays, &points, &mut poses);
                assert!(poses[..n].iter().all(Pose::is_finite));
            }
        }
        let mut random = Random::new(7);
        let (a, motion) = pair("any", &mut random);
        let mut b = a.map(|p| motion.apply(&p).normalize());
        b[3].z = bad;
        let mut poses = [Pose::identity(); 10];
        let n = five_point(&a.map(|p| p.normalize()), &b, &mut poses);
        assert!(poses[..n].iter().all(Pose::is_finite));
    }
}

/// What the roots of samples say, by sample, each geometry once.
fn by_sample(found: &[(usize, Geometry)]) -> BTreeMap<usize, Vec<Geometry>> {
    let mut all: BTreeMap<usize, Vec<Geometry>> = BTreeMap::new();
    for (sample, one) in found {
        let list = all.entry(*sample).or_default();
        if !list.iter().any(|other| other.is_close(one, 1e-7)) {
            list.push(one.clone());
        }
    }
    all
}

#[test]
fn closed_forms_and_homotopies_find_the_same_poses() {
    let count = cases() / 10;
    for name in ["p3p", "five_point"] {
        let problem = problem(name);
        let homotopy = Homotopy::new(problem.clone(), Backend::Cpu, count).expect("a solver");
        let measured: Vec<Vec<f64>> =
            (0..count as u64).filter_map(|seed| problem.instance(seed)).map(|i| i.measured).collect();
        let mut found = Vec::new();
        homotopy.solve(&measured, None, &mut found);
        let told = by_sample(&found);
        for (i, measured) in measured.iter().enumerate() {
            let mut poses = [Pose::identity(); 10];
            let n = closed_form(name, measured, &mut poses);
            let roots = told.get(&i).map_or(&[][..], Vec::as_slice);
            let of = |pose: &Pose| Geometry { poses: vec![*pose], ..Geometry::default() };
            for pose in &poses[..n] {
                let one = of(pose);
                assert!(roots.iter().any(|root| one.is_close(root, 1e-6)), "{name} {i}: {pose:?}");
            }
            for root in roots {
                assert!(poses[..n].iter().any(|p| of(p).is_close(root, 1e-6)), "{name} {i}: {root:?}");
            }
        }
    }
}

fn closed_form(name: &str, measured: &[f64], poses: &mut [Pose; 10]) -> usize {
    if name == "p3p" {
        let all: Vec<Vector> = measured.chunks_exact(3).map(Vector::from_column_slice).collect();
        let mut found = [Pose::identity(); 4];
        let n = p3p(&[all[0], all[1], all[2]], &[all[3], all[4], all[5]], &mut found);
        poses[..n].copy_from_slice(&found[..n]);
        return n;
    }
    let rays: Vec<Vector> =
        measured.chunks_exact(2).map(|d| Vector::new(d[0], d[1], 1.0).normalize()).collect();
    let side = |k: usize| [rays[k], rays[k + 2], rays[k + 4], rays[k + 6], rays[k + 8]];
    five_point(&side(0), &side(1), poses)
}

#[test]
fn samples_keep_their_place_in_a_batch_and_bad_ones_say_nothing() {
    let problem = problem("p4p_focal");
    let homotopy = Homotopy::new(problem.clone(), Backend::Auto, 8).expect("a solver");
    let instances: Vec<_> = (0..6).filter_map(|seed| problem.instance(seed)).collect();
    let mut samples: Vec<Vec<f64>> = instances.iter().map(|i| i.measured.clone()).collect();
    samples[1] = vec![f64::NAN; 20];
    samples[3].truncate(7);
    let mut found = vec![(9, Geometry::default())];
    // Twice, as from frame to frame.
    for _ in 0..2 {
        homotopy.solve(&samples, None, &mut found);
        assert!(found.is_sorted_by_key(|(sample, _)| *sample));
        assert!(found.iter().all(|(sample, one)| ![1, 3].contains(sample) && one.is_in_front()));
        for i in [0, 2, 4, 5] {
            let right =
                |(sample, one): &&(usize, Geometry)| *sample == i && one.is_close(&instances[i].truth, 1e-6);
            assert_eq!(found.iter().filter(right).count(), 1, "{i}");
        }
    }
    homotopy.solve(&[], None, &mut found);
    assert!(found.is_empty());
}

/// Homotopies of samples whose image points have noise: the median of the errors of the best pose (rad) and of the
/// focal length (relative), and how many samples have none.
fn with_noise(name: &str, images: usize, noise: f64, count: usize) -> (f64, f64, usize) {
    let problem = problem(name);
    let homotopy = Homotopy::new(problem.clone(), Backend::Cpu, count).expect("a solver");
    let instances: Vec<_> = (0..count as u64).filter_map(|seed| problem.instance(seed)).collect();
    let mut random = Random::new(1);
    let noisy = instances.iter().map(|instance| {
        let mut measured = instance.measured.clone();
        measured.iter_mut().take(images).for_each(|v| *v += random.normal(noise));
        measured
    });
    let samples: Vec<_> = noisy.collect();
    let mut found = Vec::new();
    homotopy.solve(&samples, None, &mut found);
    let told = by_sample(&found);
    let best = instances.iter().enumerate().filter_map(|(i, instance)| {
        let truth = &instance.truth;
        let of = |one: &Geometry| {
            let angle = pose_error(&one.poses[0].to_rigid(), &truth.poses[0].to_rigid()).0;
            let focal = one.focal.zip(truth.focal).map_or(f64::INFINITY, |(a, b)| (a / b - 1.0).abs());
            (angle, focal)
        };
        told.get(&i)?.iter().map(of).min_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)))
    });
    let (mut angles, mut focals): (Vec<f64>, Vec<f64>) = best.unzip();
    angles.sort_by(f64::total_cmp);
    focals.sort_by(f64::total_cmp);
    (angles[angles.len() / 2], focals[focals.len() / 2], count - angles.len())
}

#[test]
fn unknown_focal_lengths_are_found_with_and_without_noise() {
    let count = cases() / 10;
    for (name, images) in [("p4p_focal", 8), ("six_point_focal", 24)] {
        let (angle, focal, none) = with_noise(name, images, 0.0, count);
        assert!(angle < 1e-10 && focal < 1e-10 && none == 0, "{name}: {angle:.1e} {focal:.1e} {none}");
        // A tenth of a pixel of a camera of 1000 pixels.
        let (angle, focal, none) = with_noise(name, images, 1e-4, count);
        assert!(angle < 1e-2 && focal < 1e-2 && none <= count / 20, "{name}: {angle:.1e} {focal:.1e} {none}");
    }
}
