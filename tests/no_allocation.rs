//! Between a message and its registration nothing is allocated once the memory is warm.

mod common;

use common::{encode_transforms, honest_rows, Cloud, SIX};
use flashreg::localizer::transforms::TransformBuffer;
use flashreg::messages::correspondences::CorrespondenceView;
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
