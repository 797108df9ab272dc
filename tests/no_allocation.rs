//! Between a message and its registration nothing is allocated once the memory is warm.

mod common;

use common::{encode_transforms, honest_rows, CameraInfo, Cloud, SIX};
use flashreg::estimation::{AbsoluteProblem, RelativeProblem};
use flashreg::localizer::transforms::TransformBuffer;
use flashreg::messages::camera_info::CameraInfoView;
use flashreg::messages::correspondences::CorrespondenceView;
use flashreg::messages::sights::{AbsoluteView, RelativeView, Thresholds};
use flashreg::messages::transforms::TransformsView;
use flashreg::messages::Stamp;
use flashreg::registration::Problem;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the allocations of each thread.
struct Counting;

thread_local!(static ALLOCATIONS: Cell<usize> = const { Cell::new(0) });

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn reading_a_message_and_looking_up_its_transforms_allocates_nothing() {
    let at = |i: usize| Stamp::default().plus(i as f64 * 0.01);
    let mut problem = Problem::with_capacity(500);
    let mut buffer = TransformBuffer::new(1.0);
    let cloud = Cloud::new(&SIX, &honest_rows(500, [3.0; 3])).encode();
    let mut transforms = (0..1000).map(|i| {
        let odom = ("odom", "base_link", at(i), [0.1 * i as f64, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]);
        let mount = ("base_link", "lidar", at(i), [0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]);
        encode_transforms(&[odom, mount], false)
    });
    let mut frame = |message: &[u8], i: usize| {
        for sample in TransformsView::parse(message).expect("readable") {
            buffer.insert(&sample, false).expect("taken");
        }
        buffer.lookup("odom", "lidar", at(i)).expect("known");
        CorrespondenceView::parse(&cloud, false).expect("readable").fill(&mut problem);
        problem.keep_heaviest(400);
    };
    for (i, message) in transforms.by_ref().take(500).enumerate() {
        frame(&message, i);
    }
    let warm: Vec<Vec<u8>> = transforms.collect();
    let before = ALLOCATIONS.get();
    for (i, message) in warm.iter().enumerate() {
        frame(message, 500 + i);
    }
    assert_eq!(ALLOCATIONS.get(), before);
}

#[test]
fn reading_a_calibration_and_the_features_of_a_camera_allocates_nothing() {
    let info = CameraInfo::new().encode();
    let pixels: Vec<Vec<f64>> =
        (0..500).map(|i| vec![f64::from(i) + 0.5, 100.25, f64::from(i), 3.0, 50.0]).collect();
    let absolute_fields = [("u", 7), ("v", 7), ("tx", 7), ("ty", 7), ("tz", 7)];
    let [by_pixels, by_bearings] =
        [Cloud::new(&absolute_fields, &pixels), Cloud::new(&SIX, &honest_rows(500, [1.0; 3]))];
    let pairs = Cloud::new(&[("u", 7), ("v", 7), ("tu", 7), ("tv", 7)], &pixels).encode();
    let [by_pixels, by_bearings] = [by_pixels, by_bearings].map(|cloud| cloud.encode());
    let mut absolute = AbsoluteProblem::with_capacity(500);
    let mut relative = RelativeProblem::with_capacity(500);
    let thresholds = Thresholds { pixel: 4.0, angle: 0.01 };
    let mut frame = || {
        let camera = CameraInfoView::parse(&info).expect("readable").camera(false).expect("calibrated");
        for (cdr, camera) in [(&by_pixels, Some(&camera)), (&by_bearings, None)] {
            let view = AbsoluteView::parse(cdr, false).expect("readable");
            view.fill(&mut absolute, camera, &thresholds).expect("usable");
            assert_eq!(absolute.rows().len(), 500);
        }
        let view = RelativeView::parse(&pairs, false).expect("readable");
        view.fill(&mut relative, Some(&camera), &thresholds).expect("usable");
        assert_eq!(relative.rows().len(), 500);
    };
    frame();
    let before = ALLOCATIONS.get();
    (0..20).for_each(|_| frame());
    assert_eq!(ALLOCATIONS.get(), before);
}
