//! Points of a moving sensor as they would have been measured at one time.

use super::RawCloud;
use crate::geometry::{interpolate, Rigid};
use nalgebra::{Matrix3, Vector3};

/// Parts of the sweep between whose ends poses are taken as linear. In a sweep of 0.1 s with a turn of 3 rad/s, what
/// is left out is (3 * 0.1 / 256)^2 / 8 = 2e-7 of the range.
const PARTS: usize = 256;

/// Moves each point to where the sensor would have seen it at the stamp. `path`: poses of the sensor,
/// `p_stamp = stamp_t_sensor * p_sensor`, at seconds after the stamp, ascending; between them poses are interpolated,
/// before the first and after the last they stand still. Nothing moves without times or without poses. The times stay.
pub fn deskew(cloud: &mut RawCloud, path: &[(f64, Rigid)]) {
    let (Some(first), Some(last)) = (path.first(), path.last()) else { return };
    let part = (last.0 - first.0) / PARTS as f64;
    // One pose, or no time between the first and the last.
    let per_second = if part > 0.0 { 1.0 / part } else { 0.0 };

    let mut poses = [(Matrix3::identity(), Vector3::zeros()); PARTS + 1];
    let mut next = 0;
    for (i, pose) in poses.iter_mut().enumerate() {
        let seconds = first.0 + i as f64 * part;
        while path.get(next).is_some_and(|(time, _)| *time < seconds) {
            next += 1;
        }
        let stamp_t_sensor = match (next.checked_sub(1).and_then(|before| path.get(before)), path.get(next)) {
            (Some((from, a)), Some((to, b))) => interpolate(a, b, (seconds - from) / (to - from)),
            (None, Some((_, only))) | (Some((_, only)), None) => *only,
            (None, None) => return,
        };
        *pose =
            (stamp_t_sensor.rotation.to_rotation_matrix().into_inner(), stamp_t_sensor.translation.vector);
    }

    for (point, time) in cloud.points.iter_mut().zip(&cloud.times) {
        let along = ((time - first.0) * per_second).clamp(0.0, PARTS as f64);
        let i = (along as usize).min(PARTS - 1);
        let (Some((r0, t0)), Some((r1, t1))) = (poses.get(i), poses.get(i + 1)) else { continue };
        let at0 = r0 * point.coords + t0;
        let at1 = r1 * point.coords + t1;
        point.coords = at0 + (at1 - at0) * (along - i as f64);
    }
}
