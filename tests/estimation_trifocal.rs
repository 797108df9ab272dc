//! Three views of a camera whose focal length is unknown, some rows wrong.

use flashreg::estimation::{Intrinsics, Trifocal};
use flashreg::geometry::{pose_error, Pose, Vector};
use flashreg::homotopy::problems::Random;
use flashreg::homotopy::Backend;

const FOCAL: f64 = 600.0;

#[test]
fn three_views_tell_the_poses_and_the_focal_length() {
    let mut random = Random::new(4);
    let mut view = |x: f64| Pose {
        rotation: random.turn(0.2).to_rotation_matrix().into_inner(),
        translation: Vector::new(x, random.between(-0.3, 0.3), random.between(-0.5, 0.5)),
    };
    let (second, third) = (view(1.0), view(-1.2));
    let views = [Pose::identity(), second, third];
    let mut random = Random::new(5);
    let mut rows = Vec::new();
    while rows.len() < 40 {
        let point = random.seen();
        let other = random.seen();
        let seen = views.map(|view| {
            let at = view.apply(if rows.len() < 4 && view == third { &other } else { &point });
            let noise = [random.normal(0.5), random.normal(0.5)];
            (at.z > 0.5).then_some([0, 1].map(|k| FOCAL * at[k] / at.z + noise[k] + [320.0, 240.0][k]))
        });
        if let [Some(a), Some(b), Some(c)] = seen {
            rows.push([a, b, c]);
        }
    }
    let trifocal = Trifocal::new(Backend::Cpu, 4).expect("a solver");
    let intrinsics = Intrinsics { focal: [500.0; 2], centre: [320.0, 240.0] };
    let found = trifocal.estimate(&rows, &intrinsics, 3.0, 4, 1).expect("three views");
    let unit = second.translation.norm();
    let scaled = |pose: &Pose| Pose { translation: pose.translation / unit, ..*pose }.to_rigid();
    let focal = (found.focal / FOCAL - 1.0).abs();
    println!("{} inliers, focal length off by {:.2} %", found.inliers, 100.0 * focal);
    assert!(focal < 0.03 && found.inliers >= 34, "{} {}", found.focal, found.inliers);
    for (pose, truth) in found.poses.iter().zip([second, third]) {
        let (turn, shift) = pose_error(&pose.to_rigid(), &scaled(&truth));
        println!("{:.2} mrad, {:.4} of the first baseline", 1e3 * turn, shift);
        assert!(turn < 0.02 && shift < 0.05, "{turn} {shift}");
    }
    assert!(trifocal.estimate(&rows[..7], &intrinsics, 3.0, 1, 1).is_none());
}
