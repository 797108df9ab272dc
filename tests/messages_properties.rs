//! Whatever the bytes are, nothing panics; and messages written by other programs are read.

mod common;

use common::{encode_transforms, honest_rows, recorded, Cloud, SIX};
use flashreg::localizer::transforms::TransformBuffer;
use flashreg::localizer::{Localizer, PoseSample};
use flashreg::messages::correspondences::CorrespondenceView;
use flashreg::messages::point_cloud::PointCloudView;
use flashreg::messages::transforms::{TransformSample, TransformsView};
use flashreg::messages::{Dropped, Stamp};
use flashreg::params::Params;
use flashreg::registration::Problem;
use proptest::prelude::*;
use std::cell::RefCell;

thread_local! {
    static LOCALIZER: RefCell<Localizer> = RefCell::new({
        let mut params = Params::default();
        params.backend.kind = flashreg::params::BackendChoice::Cpu;
        params.registration.max_correspondences = 64;
        params.frames.base = "lidar".into();
        params.tf.mode = flashreg::params::TfMode::MapBase;
        Localizer::new(&params).expect("the CPU is always there")
    });
}

/// Drives everything that reads a message.
fn read_all(cdr: &[u8]) {
    if let Ok(cloud) = PointCloudView::parse(cdr) {
        let sizes: usize = cloud.points().map(<[u8]>::len).sum();
        assert_eq!(sizes, if cloud.is_empty() { 0 } else { cloud.len() * cloud.point_step as usize });
        assert!(cloud.fields().count() <= cdr.len());
    }
    for force in [false, true] {
        if let Ok(view) = CorrespondenceView::parse(cdr, force) {
            let mut problem = Problem::default();
            let Dropped { non_finite, weight, .. } = view.fill(&mut problem);
            assert_eq!(problem.len() + non_finite + weight, view.cloud().len());
            assert!(problem.rows().all(|row| row.is_finite() && row.weight > 0.0));
        }
    }
    if let Ok(view) = TransformsView::parse(cdr) {
        let transforms = LOCALIZER.with_borrow(Localizer::transforms);
        let mut buffer = transforms.lock().expect("whole");
        for sample in view {
            let _ = buffer.insert(&sample, false);
            let _ = buffer.lookup("odom", sample.child, sample.stamp);
        }
    }
    LOCALIZER.with_borrow_mut(|localizer| {
        let now = Stamp::new(100, 0);
        let _ = localizer.needs(cdr, now);
        let _ = localizer.handle_correspondences(cdr, now);
    });
}

fn messages() -> Vec<Vec<u8>> {
    let mut fields = SIX.to_vec();
    fields.extend([("weight", 8), ("id", 6), ("sid", 6)]);
    let rows: Vec<_> =
        honest_rows(8, [1.0; 3]).into_iter().map(|row| [row, vec![1.0, 2.0, 3.0]].concat()).collect();
    let transform = ("odom", "base", Stamp::new(100, 0), [1.0; 3], [0.0, 0.0, 0.0, 1.0]);
    let mut big = Cloud::with_layout(&fields, &rows, 1, 2, 3, true);
    big.cdr_big_endian = true;
    vec![
        Cloud::new(&fields, &rows).encode(),
        big.encode(),
        encode_transforms(&[transform], false),
        encode_transforms(&[transform, transform], true),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), big in 0u8..2) {
        read_all(&bytes);
        let mut plain = vec![0, big, 0, 0];
        plain.extend(bytes);
        read_all(&plain);
    }

    #[test]
    fn mutated_messages_never_panic(
        which in 0usize..4,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut cdr = messages().swap_remove(which);
        for (at, value) in edits {
            let at = at.index(cdr.len());
            cdr[at] = value;
        }
        if let Some(cut) = cut {
            cdr.truncate(cut.index(cdr.len()));
        }
        read_all(&cdr);
    }

    #[test]
    fn mutated_sizes_never_panic(which in 0usize..2, at in any::<prop::sample::Index>(), value in
        prop_oneof![Just(0u32), Just(1), Just(u32::MAX), Just(u32::MAX - 1), Just(1 << 31), any::<u32>()])
    {
        let mut cdr = messages().swap_remove(which);
        let at = 4 + 4 * at.index((cdr.len() - 4) / 4);
        cdr[at..at + 4].copy_from_slice(&value.to_le_bytes());
        read_all(&cdr);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Of any numbers whatever, those that are taken are finite and of unit length.
    #[test]
    fn poses_of_any_numbers_never_panic(
        numbers in proptest::collection::vec(prop_oneof![prop::num::f64::ANY, -2.0..2.0f64, Just(0.0), Just(1e308)], 7),
        variances in proptest::collection::vec(prop_oneof![prop::num::f64::ANY, 0.0..1.0f64, Just(0.0), Just(1e308)], 6),
        unit in any::<bool>(),
    ) {
        let translation = [numbers[0], numbers[1], numbers[2]];
        let rotation = match unit {
            true => [0.0, 0.0, 0.6, 0.8],
            false => [numbers[3], numbers[4], numbers[5], numbers[6]],
        };
        let mut covariance = [0.0; 36];
        variances.iter().enumerate().for_each(|(i, variance)| covariance[7 * i] = *variance);
        let stamp = Stamp::new(100, 0);
        let mut buffer = TransformBuffer::new(10.0);
        let sample = TransformSample { parent: "a", child: "b", stamp, translation, rotation };
        if buffer.insert(&sample, false).is_ok() {
            let pose = buffer.lookup("a", "b", stamp).expect("known");
            prop_assert!(pose.translation.vector.iter().all(|v| v.is_finite()));
            prop_assert!((pose.rotation.coords.norm() - 1.0).abs() < 1e-12);
        }
        let pose = PoseSample { position: translation, orientation: rotation, covariance };
        LOCALIZER.with_borrow_mut(|localizer| {
            let taken = localizer.set_initial_pose("map", stamp, &pose, stamp);
            let usable = pose.position.iter().chain(&covariance).all(|v| v.is_finite())
                && variances.iter().all(|v| *v >= 0.0);
            prop_assert!(usable || taken.is_err());
            if unit && usable && variances.iter().all(|v| *v < 1e100) {
                prop_assert_eq!(taken, Ok(()));
            }
            Ok(())
        })?;
    }
}

#[test]
fn recorded_correspondences_are_read() {
    let bag = "correspondences_demo/correspondences_demo.mcap";
    let Some(messages) = recorded(bag, "sensor_msgs/msg/PointCloud2") else { return };
    let (mut read, mut refused) = (0, 0);
    let mut problem = Problem::default();
    for (topic, cdr) in &messages {
        let cloud = PointCloudView::parse(cdr).expect("a point cloud");
        match CorrespondenceView::new(cloud, false) {
            Ok(view) if topic.contains("3d3d") => {
                let dropped = view.fill(&mut problem);
                assert_eq!((problem.len(), dropped), (1500, Dropped::default()));
                read += 1;
            }
            Ok(_) => {}
            Err(error) => {
                assert!(!topic.contains("3d3d"), "{topic}: {error}");
                refused += 1;
            }
        }
    }
    println!("{read} messages of 1500 correspondences read, {refused} of other kinds refused");
    assert!(read > 0);
}

#[test]
fn a_recorded_lidar_scan_is_read() {
    let bag = "cloudini_lidar/cloudini_lidar.mcap";
    let Some(messages) = recorded(bag, "sensor_msgs/msg/PointCloud2") else { return };
    let (_, cdr) = messages.first().expect("a scan");
    let cloud = PointCloudView::parse(cdr).expect("a point cloud");
    assert_eq!((cloud.len(), cloud.point_step, cloud.is_dense), (64_000, 26, false));
    let column = |name| cloud.column(name).expect("usable").expect("there");
    let (x, y, z) = (column("x"), column("y"), column("z"));
    let (ring, time) = (column("ring"), column("timestamp"));
    let zeros = cloud.points().filter(|p| [x, y, z].iter().all(|c| c.read(p) == 0.0)).count();
    assert_eq!(zeros, 4578);
    assert!(cloud.points().all(|p| ring.read(p).fract() == 0.0 && time.read(p).is_finite()));
    let error = CorrespondenceView::new(cloud, false).expect_err("a scan holds no correspondences");
    assert_eq!(error.to_string(), "missing_field:tx");
}
