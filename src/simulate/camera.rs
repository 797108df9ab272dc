//! What a camera with a tracker of landmarks would report: pixels and the landmarks or the pixels of
//! an earlier view that they were matched with, some of them wrongly.

use super::levels::CameraLevels;
use super::mount;
use super::random::Random;
use super::sensors::first_hit;
use super::world::{Solid, World};
use crate::geometry::{Point, Rigid};
use nalgebra::{Quaternion, Translation3, UnitQuaternion};

/// A pixel matched with a landmark.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LandmarkMatch {
    /// Where it is seen, in the raw image.
    pub pixel: [f64; 2],
    /// The landmark it was matched with, in the map frame.
    pub landmark: Point,
    /// Index of that landmark in the map.
    pub id: u32,
    /// It is the landmark that was seen.
    pub right: bool,
}

/// A pixel matched with one of the reference view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PixelMatch {
    /// In the raw image.
    pub pixel: [f64; 2],
    /// In the raw image of the reference view.
    pub reference: [f64; 2],
    /// Both show the same landmark.
    pub right: bool,
}

/// One view.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// True pose of the camera, z forward.
    pub map_t_camera: Rigid,
    /// Landmarks matched.
    pub landmarks: Vec<LandmarkMatch>,
    /// Pose of this camera in the reference view, and the pixels matched. `None` before there is one.
    pub reference: Option<(Rigid, Vec<PixelMatch>)>,
}

/// A camera and the landmarks of the map.
#[derive(Debug, Clone)]
pub struct Camera {
    levels: CameraLevels,
    base_t_camera: Rigid,
    landmarks: Vec<(u32, Point)>,
}

impl Camera {
    pub(super) fn new(levels: &CameraLevels, landmarks: Vec<(u32, Point)>) -> Self {
        // From z forward to x forward.
        let optical = UnitQuaternion::from_quaternion(Quaternion::new(0.5, -0.5, 0.5, -0.5));
        let base_t_camera = mount(&levels.mount) * Rigid::from_parts(Translation3::identity(), optical);
        Self { levels: *levels, base_t_camera, landmarks }
    }

    /// Where it sits on the robot, z forward.
    pub fn base_t_camera(&self) -> Rigid {
        self.base_t_camera
    }

    /// Its intrinsics.
    pub fn levels(&self) -> &CameraLevels {
        &self.levels
    }

    /// Where a point in the camera's axes is seen in the raw image: `plumb_bob`, as OpenCV has it.
    pub fn project(&self, p: &Point) -> Option<[f64; 2]> {
        let [near, far] = self.levels.range;
        let (x, y) = (p.x / p.z, p.y / p.z);
        let r2 = x * x + y * y;
        // Beyond 60 degrees the polynomials of a distortion may turn back into the image.
        if p.z <= 0.0 || r2 > 3.0 || !(near..=far).contains(&p.coords.norm()) {
            return None;
        }
        let [k1, k2, p1, p2, k3] = self.levels.distortion;
        let radial = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3));
        let bent = [
            x * radial + 2.0 * p1 * x * y + p2 * (r2 + 2.0 * x * x),
            y * radial + p1 * (r2 + 2.0 * y * y) + 2.0 * p2 * x * y,
        ];
        let pixel: [f64; 2] = std::array::from_fn(|i| self.levels.focal[i] * bent[i] + self.levels.center[i]);
        self.within(pixel).then_some(pixel)
    }

    /// The pixel lies within the image.
    fn within(&self, pixel: [f64; 2]) -> bool {
        pixel.iter().zip(self.levels.size).all(|(v, size)| (0.0..f64::from(size)).contains(v))
    }

    /// What is seen from a pose of the robot, and matched with the map and with the view from an
    /// earlier pose.
    pub(super) fn view(
        &self,
        world: &World,
        people: &[Solid],
        map_t_base: &Rigid,
        earlier: Option<&Rigid>,
        random: &mut Random,
    ) -> View {
        let map_t_camera = map_t_base * self.base_t_camera;
        let map_t_reference = earlier.map(|base| base * self.base_t_camera);
        let mut view = View {
            map_t_camera,
            landmarks: Vec::new(),
            reference: map_t_reference.map(|pose| (pose.inverse() * map_t_camera, Vec::new())),
        };
        let camera_t_map = map_t_camera.inverse();
        let mut candidates: Vec<(usize, [f64; 2])> = self
            .landmarks
            .iter()
            .enumerate()
            .filter_map(|(index, (_, p))| Some((index, self.project(&(camera_t_map * p))?)))
            .collect();
        let all = candidates.len();
        random.shuffle_front(&mut candidates, all);
        for (index, pixel) in candidates {
            let (id, landmark) = self.landmarks[index];
            if !sees(world, people, &map_t_camera, &landmark) {
                continue;
            }
            let pixel = self.noisy(pixel, random);
            let right = random.chance(self.levels.inlier_rate);
            let (id, matched) =
                if right { (id, landmark) } else { self.landmarks[random.below(self.landmarks.len())] };
            view.landmarks.push(LandmarkMatch { pixel, landmark: matched, id, right });
            if let (Some(pose), Some((_, matches))) = (&map_t_reference, &mut view.reference) {
                let seen = self.project(&(pose.inverse() * landmark));
                if let Some(reference) = seen.filter(|_| sees(world, &[], pose, &landmark)) {
                    let reference = self.noisy(reference, random);
                    matches.push(PixelMatch { pixel, reference, right: true });
                }
            }
            if view.landmarks.len() == self.levels.features {
                break;
            }
        }
        if let Some((_, matches)) = &mut view.reference {
            // Wrong ones point to the pixel of another match.
            let pixels: Vec<[f64; 2]> = matches.iter().map(|m| m.reference).collect();
            for (i, m) in matches.iter_mut().enumerate() {
                let other = random.below(pixels.len());
                if !random.chance(self.levels.inlier_rate) && other != i {
                    (m.reference, m.right) = (pixels[other], false);
                }
            }
        }
        view
    }

    /// The pixel as a detector finds it, within the image.
    fn noisy(&self, pixel: [f64; 2], random: &mut Random) -> [f64; 2] {
        let found = pixel.map(|v| v + random.normal(self.levels.pixel_noise));
        std::array::from_fn(|i| found[i].clamp(0.0, f64::from(self.levels.size[i].max(1) - 1)))
    }
}

/// Nothing stands between the camera and a landmark. It lies on a surface, up to the errors of the
/// map, so that the ray may end a little before it.
fn sees(world: &World, people: &[Solid], map_t_camera: &Rigid, landmark: &Point) -> bool {
    let origin = Point::from(map_t_camera.translation.vector);
    let way = landmark - origin;
    let far = way.norm();
    let slack = 0.1 + 0.02 * far;
    first_hit(world, people, &origin, &(way / far), far).is_none_or(|hit| hit.range > far - slack)
}
