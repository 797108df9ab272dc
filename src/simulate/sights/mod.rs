//! Features of a camera with a planted pose: some matches follow it, the others follow nothing.
//!
//! Plainer than a drive: any number of matches, any share of right ones, no place that could help or
//! mislead. [`absolute`] and [`relative`] also make input that fixes no pose, or hardly one, or another
//! one than it seems. A function of the seed and the index of the instance, the same on every machine.
//!
//! Conventions: optical frames look along +z, x to the right and y down in the image; metres, pixels.

pub mod absolute;
pub mod relative;

use super::random::{Purpose, Random};
use super::turn;
use crate::estimation::{AbsoluteProblem, AbsoluteRow, RelativeProblem, RelativeRow, Sight};
use crate::geometry::{Point, Rigid, Vector};
use nalgebra::{Matrix2x3, Quaternion, Translation3, UnitQuaternion};

/// Depths of points in a room, m.
pub const ROOM: [f64; 2] = [1.5, 8.0];
/// Depths of points in a street, m.
pub const STREET: [f64; 2] = [4.0, 60.0];
/// Standard deviation of a pixel's coordinate, px.
pub const NOISE: f64 = 1.0;

/// A pinhole camera; its distortion is the first coefficient of `plumb_bob`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pinhole {
    /// Focal length, px.
    pub focal: f64,
    /// Principal point, px.
    pub center: [f64; 2],
    /// Width and height of the image, px.
    pub size: [f64; 2],
    /// Distortion: a point at radius `r` (tangent of its angle) appears at `r (1 + k1 r^2)`.
    pub k1: f64,
}

impl Pinhole {
    /// 640 x 480 pixels, 65 degrees wide, no distortion.
    pub const VGA: Self = Self { focal: 500.0, center: [320.0, 240.0], size: [640.0, 480.0], k1: 0.0 };

    /// Where a point of the optical frame appears; `None` behind the camera or outside the image.
    pub fn project(&self, p: &Point) -> Option<[f64; 2]> {
        let pixel = self.pixel(p);
        let within = pixel.iter().zip(self.size).all(|(v, size)| (0.0..size).contains(v));
        (p.z > 0.0 && within).then_some(pixel)
    }

    /// The same without limits: points behind the camera appear where their mirror image does.
    fn pixel(&self, p: &Point) -> [f64; 2] {
        let (x, y) = (p.x / p.z, p.y / p.z);
        let scale = self.focal * (1.0 + self.k1 * (x * x + y * y));
        [scale * x + self.center[0], scale * y + self.center[1]]
    }

    /// The ray of a pixel, distortion ignored; its z is one.
    pub fn ray(&self, pixel: [f64; 2]) -> Vector {
        let [x, y] = [0, 1].map(|i| (pixel[i] - self.center[i]) / self.focal);
        Vector::new(x, y, 1.0)
    }

    /// A pixel with its threshold (px) as the estimation takes it, distortion ignored. `None`: not finite.
    pub fn sight(&self, pixel: [f64; 2], threshold: f64) -> Option<Sight> {
        let bearing = self.ray(pixel).try_normalize(0.0).filter(|b| b.iter().all(|v| v.is_finite()))?;
        // Derivative of focal * (X/Z, Y/Z) at the bearing.
        let scale = self.focal / (threshold * bearing.z);
        let [x, y] = [bearing.x / bearing.z, bearing.y / bearing.z];
        let metric = Matrix2x3::new(1.0, 0.0, -x, 0.0, 1.0, -y) * scale;
        Some(Sight { bearing, metric, pixel: Some(pixel) })
    }

    /// A pixel anywhere in the image.
    fn anywhere(&self, random: &mut Random) -> [f64; 2] {
        self.size.map(|size| random.between(0.0, size))
    }

    /// The point seen at a pixel, at a depth whose logarithm is uniform within bounds.
    fn point(&self, pixel: [f64; 2], depth: [f64; 2], random: &mut Random) -> Point {
        Point::from(self.ray(pixel) * between_logs(depth, random))
    }
}

/// A pixel matched with a point of the map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PointMatch {
    /// Where it is seen.
    pub pixel: [f64; 2],
    /// The point it was matched with, in the map frame, m.
    pub landmark: Point,
    /// Index of that point.
    pub id: u32,
    /// It is the point that was seen.
    pub right: bool,
}

/// A pixel matched with one of the reference view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PixelMatch {
    /// Where it is seen.
    pub pixel: [f64; 2],
    /// In the reference view.
    pub reference: [f64; 2],
    /// Both show the same point.
    pub right: bool,
}

/// One instance: what the estimation is given, and the truth.
#[derive(Debug, Clone, PartialEq)]
pub struct Sights<M> {
    /// The camera as it is believed to be.
    pub camera: Pinhole,
    /// The matches.
    pub matches: Vec<M>,
    /// `map_t_camera`, or `reference_t_camera` with the translation in metres. `None`: nothing in the input
    /// fixes a pose, and whichever is trusted is wrong.
    pub truth: Option<Rigid>,
    /// Median depth of the points that are seen, m: what errors of position are measured by.
    pub depth: f64,
}

impl Sights<PointMatch> {
    /// As the estimation takes it, with the threshold of an inlier in pixels.
    pub fn problem(&self, threshold: f64) -> AbsoluteProblem {
        let mut problem = AbsoluteProblem::with_capacity(self.matches.len());
        for m in &self.matches {
            if let Some(sight) = self.camera.sight(m.pixel, threshold) {
                problem.push(AbsoluteRow { sight, point: m.landmark, weight: 1.0, id: None });
            }
        }
        problem
    }
}

impl Sights<PixelMatch> {
    /// As the estimation takes it, with the threshold of an inlier in pixels.
    pub fn problem(&self, threshold: f64) -> RelativeProblem {
        let mut problem = RelativeProblem::with_capacity(self.matches.len());
        for m in &self.matches {
            let sights = self.camera.sight(m.pixel, threshold).zip(self.camera.sight(m.reference, threshold));
            if let Some((sight, reference)) = sights {
                problem.push(RelativeRow { sight, reference, weight: 1.0, id: None });
            }
        }
        problem
    }
}

/// A kind of input that is hard, or that fixes no pose.
pub struct Kind<M> {
    /// Its name in tables.
    pub name: &'static str,
    /// What it is, and what may come of it.
    pub meaning: &'static str,
    make: fn(&mut Random) -> Sights<M>,
}

impl<M> Kind<M> {
    /// An instance.
    pub fn make(&self, seed: u64, index: u64) -> Sights<M> {
        // Each kind has its own stream, whatever its place in the list.
        let own = self.name.bytes().fold(seed, |hash, byte| super::random::splitmix(hash ^ u64::from(byte)));
        (self.make)(&mut Random::new(own, Purpose::Sights, index))
    }
}

/// Uniform in the logarithm.
fn between_logs([low, high]: [f64; 2], random: &mut Random) -> f64 {
    low * libm::exp(random.unit() * libm::log(high / low))
}

/// Any rotation, all equally likely.
fn any_rotation(random: &mut Random) -> UnitQuaternion<f64> {
    let [w, i, j, k] = [0; 4].map(|_| random.normal(1.0));
    UnitQuaternion::from_quaternion(Quaternion::new(w, i, j, k))
}

/// About any axis, by up to an angle, rad.
fn small_rotation(random: &mut Random, most: f64) -> UnitQuaternion<f64> {
    turn(random.direction().into(), random.between(-most, most))
}

/// Any rotation, and a translation of up to 20 m a coordinate.
fn any_pose(random: &mut Random) -> Rigid {
    let rotation = any_rotation(random);
    let translation = Vector::from_fn(|_, _| random.between(-20.0, 20.0));
    Rigid::from_parts(Translation3::from(translation), rotation)
}

/// A pixel as a detector finds it.
fn noisy(pixel: [f64; 2], random: &mut Random) -> [f64; 2] {
    pixel.map(|v| v + random.normal(NOISE))
}

/// The median of some depths, 1 if there are none.
fn median(depths: impl Iterator<Item = f64>) -> f64 {
    let mut depths: Vec<f64> = depths.collect();
    depths.sort_unstable_by(f64::total_cmp);
    depths.get(depths.len() / 2).copied().unwrap_or(1.0)
}

/// `n` things that were drawn until they were there; fewer if that takes more than a thousand times as many.
fn draw<T>(n: usize, mut one: impl FnMut() -> Option<T>) -> Vec<T> {
    (0..1000 * n).filter_map(|_| one()).take(n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds whose rows follow their truth under the camera that is believed.
    fn is_plain(name: &str) -> bool {
        !name.starts_with("focal") && !["center_off", "distortion_ignored", "drowned"].contains(&name)
    }

    #[test]
    fn a_sight_has_the_reprojection_error_as_its_residual() {
        let camera = Pinhole::VGA;
        let sight = camera.sight([500.0, 100.0], 4.0).expect("a sight");
        assert!((sight.metric * sight.bearing).norm() < 1e-12);
        let p = Point::from(camera.ray([502.0, 101.0]) * 7.0);
        let residual = sight.metric * p.coords / sight.bearing.dot(&p.coords);
        assert!((residual - nalgebra::Vector2::new(0.5, 0.25)).norm() < 3e-3, "{residual}");
        assert_eq!(camera.sight([f64::NAN, 0.0], 4.0), None);
    }

    #[test]
    fn right_matches_with_points_lie_where_the_truth_has_them() {
        for kind in absolute::KINDS {
            for index in 0..5 {
                let sights = kind.make(3, index);
                assert_eq!(sights, kind.make(3, index), "{}", kind.name);
                assert!(kind.name == "too_few" || sights.matches.len() >= 3, "{}", kind.name);
                let Some(pose) = sights.truth.filter(|_| is_plain(kind.name)) else { continue };
                for m in sights.matches.iter().filter(|m| m.right) {
                    let p = pose.inverse() * m.landmark;
                    let seen = sights.camera.pixel(&p);
                    let off = (seen[0] - m.pixel[0]).hypot(seen[1] - m.pixel[1]);
                    assert!(p.z > 0.0 && off < 6.0 * NOISE, "{}, {index}: {off} px", kind.name);
                }
                let right = sights.matches.iter().filter(|m| m.right).count();
                assert!(10 * right >= 6 * sights.matches.len(), "{}: {right}", kind.name);
            }
        }
        let planted = absolute::planted(1, 0, 200, 0.9);
        assert_eq!(planted.matches.iter().filter(|m| m.right).count(), 20);
    }

    #[test]
    fn right_matches_of_two_views_lie_on_the_lines_of_the_truth() {
        for kind in relative::KINDS {
            for index in 0..5 {
                let sights = kind.make(3, index);
                assert_eq!(sights, kind.make(3, index), "{}", kind.name);
                assert!(kind.name == "too_few" || sights.matches.len() >= 5, "{}", kind.name);
                let Some(pose) = sights.truth.filter(|_| is_plain(kind.name)) else { continue };
                for m in sights.matches.iter().filter(|m| m.right) {
                    let turned = pose.rotation * sights.camera.ray(m.pixel);
                    let line = pose.translation.vector.cross(&turned);
                    let off = line.dot(&sights.camera.ray(m.reference)) / line.x.hypot(line.y);
                    let off = (sights.camera.focal * off).abs();
                    // The pixels of both views have noise.
                    assert!(off < 12.0 * NOISE, "{}, {index}: {off} px", kind.name);
                }
            }
        }
    }
}
