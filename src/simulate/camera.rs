//! What a camera with a tracker of landmarks would report: what it sees and the landmarks or the sights of
//! an earlier view that this was matched with, some of them wrongly.

use super::levels::{CameraLevels, Levels};
use super::motion::Motion;
use super::mount;
use super::random::Random;
use super::sensors::first_hit;
use super::world::{Solid, World};
use crate::geometry::{self, CameraError, Distortion, Point, Rigid, Vector};
use nalgebra::{Quaternion, Translation3, UnitQuaternion};

/// What kind of camera.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CameraModel {
    /// Pixels, with a distortion of `plumb_bob`.
    #[default]
    Pinhole,
    /// Pixels of a fisheye lens, with a distortion of `equidistant`.
    Fisheye,
    /// Directions instead of pixels, also behind the camera: of a lens that no model of CameraInfo describes.
    Bearings,
}

/// How the camera works.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CameraOptions {
    /// What kind it is.
    pub model: CameraModel,
    /// The rows of the image are read one after another while the robot moves.
    pub rolling_shutter: bool,
    /// Views per second, Hz. None: it is triggered by the sweeps.
    pub rate: Option<f64>,
}

/// Where something is seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sight {
    /// In the raw image: column, row.
    Pixel([f64; 2]),
    /// Unit vector in the camera's axes.
    Bearing(Vector),
}

impl Sight {
    /// Two numbers of a pixel, three of a bearing.
    pub fn numbers(&self) -> impl Iterator<Item = f64> + '_ {
        let numbers: &[f64] = match self {
            Self::Pixel(pixel) => pixel,
            Self::Bearing(bearing) => bearing.as_slice(),
        };
        numbers.iter().copied()
    }
}

/// Something seen, matched with a landmark.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LandmarkMatch {
    /// Where it is seen.
    pub sight: Sight,
    /// The landmark it was matched with, in the map frame.
    pub landmark: Point,
    /// Index of that landmark in the map.
    pub id: u32,
    /// It is the landmark that was seen.
    pub right: bool,
    /// How far to trust it; 1 if no weights are asked for.
    pub weight: f32,
}

/// Something seen, matched with something of the reference view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SightMatch {
    /// Where it is seen.
    pub sight: Sight,
    /// Where it was seen in the reference view.
    pub reference: Sight,
    /// Both show the same landmark.
    pub right: bool,
    /// How far to trust it; 1 if no weights are asked for.
    pub weight: f32,
}

/// One view.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Time of the first row, s from the start.
    pub seconds: f64,
    /// True pose of the camera at that time, z forward.
    pub map_t_camera: Rigid,
    /// Landmarks matched.
    pub landmarks: Vec<LandmarkMatch>,
    /// Pose of this camera in the reference view, and what was matched. `None` before there is one.
    pub reference: Option<(Rigid, Vec<SightMatch>)>,
}

/// What maps directions to sights.
#[derive(Debug, Clone, Copy)]
enum Optics {
    /// A lens with an image, and the largest angle that it lets in, rad.
    Image(geometry::Camera, f64),
    /// None: every direction up to this angle from the axis, rad.
    Bearings(f64),
}

/// A camera and the landmarks of the map.
#[derive(Debug, Clone)]
pub struct Camera {
    levels: CameraLevels,
    /// Mean weight of right and of wrong matches, deviation of both; if weights are asked for.
    weights: Option<[f64; 3]>,
    optics: Optics,
    distortion: Distortion,
    /// From the first row to the last, s.
    readout: f64,
    base_t_camera: Rigid,
    landmarks: Vec<(u32, Point)>,
}

/// Where the robot is, and what is there.
pub(super) struct Scenery<'a> {
    pub world: &'a World,
    pub people: &'a [Solid],
    pub motion: &'a Motion,
}

impl Camera {
    pub(super) fn new(
        levels: &Levels,
        options: &CameraOptions,
        weights: bool,
        landmarks: Vec<(u32, Point)>,
    ) -> Result<Self, CameraError> {
        let all = &levels.camera;
        let image = |size, focal, center, distortion: Distortion, max_angle| {
            let lens = geometry::Camera::new(size, focal, center, &distortion)?;
            Ok((Optics::Image(lens, max_angle), distortion))
        };
        let (optics, distortion) = match options.model {
            CameraModel::Pinhole => {
                let distortion = Distortion::PlumbBob(all.distortion);
                image(all.size, all.focal, all.center, distortion, std::f64::consts::PI)?
            }
            CameraModel::Fisheye => {
                let fisheye = &all.fisheye;
                let distortion = Distortion::Equidistant(fisheye.distortion);
                let max_angle = fisheye.max_angle_deg.to_radians();
                image(fisheye.size, fisheye.focal, fisheye.center, distortion, max_angle)?
            }
            CameraModel::Bearings => {
                (Optics::Bearings(all.bearings.max_angle_deg.to_radians()), Distortion::None)
            }
        };
        // From z forward to x forward.
        let optical = UnitQuaternion::from_quaternion(Quaternion::new(0.5, -0.5, 0.5, -0.5));
        let base_t_camera = mount(&all.mount) * Rigid::from_parts(Translation3::identity(), optical);
        Ok(Self {
            levels: *all,
            weights: weights.then_some(levels.weights),
            optics,
            distortion,
            readout: if options.rolling_shutter { all.readout } else { 0.0 },
            base_t_camera,
            landmarks,
        })
    }

    /// Where it sits on the robot, z forward.
    pub fn base_t_camera(&self) -> Rigid {
        self.base_t_camera
    }

    /// Its levels.
    pub fn levels(&self) -> &CameraLevels {
        &self.levels
    }

    /// Its intrinsics, if it has an image.
    pub fn intrinsics(&self) -> Option<(&geometry::Camera, &Distortion)> {
        match &self.optics {
            Optics::Image(lens, _) => Some((lens, &self.distortion)),
            Optics::Bearings(_) => None,
        }
    }

    /// Its matches have weights.
    pub fn has_weights(&self) -> bool {
        self.weights.is_some()
    }

    /// Where a point in the camera's axes is seen.
    pub fn project(&self, p: &Point) -> Option<Sight> {
        let [near, far] = self.levels.range;
        let range = p.coords.norm();
        let is_within = |max_angle| libm::atan2(p.coords.xy().norm(), p.z) <= max_angle;
        if !(near..=far).contains(&range) {
            return None;
        }
        match &self.optics {
            Optics::Image(lens, max_angle) => {
                let pixel = lens.project(p).filter(|_| is_within(*max_angle))?;
                let is_inside = |(v, size): (&f64, u32)| (0.0..f64::from(size)).contains(v);
                pixel.iter().zip(lens.size()).all(is_inside).then_some(Sight::Pixel(pixel))
            }
            Optics::Bearings(max_angle) => is_within(*max_angle).then(|| Sight::Bearing(p.coords / range)),
        }
    }

    /// Where a landmark is seen from a moving robot whose image begins at some time, and the pose of the camera
    /// when its row is read.
    fn see(&self, motion: &Motion, seconds: f64, map_t_camera: &Rigid, p: &Point) -> Option<(Sight, Rigid)> {
        let mut pose = *map_t_camera;
        let mut sight = self.project(&pose.inverse_transform_point(p))?;
        let Optics::Image(lens, _) = &self.optics else { return Some((sight, pose)) };
        if self.readout == 0.0 {
            return Some((sight, pose));
        }
        // The row depends on the pose and that on the row: a fixed point, as images move far less than a height
        // while they are read.
        for _ in 0..MAX_STEPS {
            let Sight::Pixel([_, row]) = sight else { return None };
            pose = motion.pose(seconds + self.row_time(row, lens)) * self.base_t_camera;
            sight = self.project(&pose.inverse_transform_point(p))?;
            if matches!(sight, Sight::Pixel([_, again]) if (again - row).abs() < ROW) {
                return Some((sight, pose));
            }
        }
        None
    }

    /// When a row is read, s after the first.
    fn row_time(&self, row: f64, lens: &geometry::Camera) -> f64 {
        self.readout * row / f64::from(lens.size()[1])
    }

    /// The pose of the camera at a time.
    fn pose(&self, motion: &Motion, seconds: f64) -> Rigid {
        motion.pose(seconds) * self.base_t_camera
    }

    /// What is seen from a time on, and matched with the map and with the view from an earlier time. Weights come
    /// from random numbers of their own, so that they change nothing else.
    pub(super) fn view(
        &self,
        scenery: &Scenery,
        seconds: f64,
        random: &mut Random,
        weighing: &mut Random,
    ) -> View {
        let Scenery { world, people, motion } = *scenery;
        let map_t_camera = self.pose(motion, seconds);
        let before = seconds - self.levels.reference_age;
        let map_t_reference = (before >= 0.0).then(|| self.pose(motion, before));
        let mut view = View {
            seconds,
            map_t_camera,
            landmarks: Vec::new(),
            reference: map_t_reference.map(|pose| (pose.inverse() * map_t_camera, Vec::new())),
        };
        let seen_now = |(index, (_, p)): (usize, &(u32, Point))| {
            Some((index, self.see(motion, seconds, &map_t_camera, p)?))
        };
        let mut candidates: Vec<(usize, (Sight, Rigid))> =
            self.landmarks.iter().enumerate().filter_map(seen_now).collect();
        let all = candidates.len();
        random.shuffle_front(&mut candidates, all);
        for (index, (sight, pose)) in candidates {
            let (id, landmark) = self.landmarks[index];
            if !sees(world, people, &pose, &landmark) {
                continue;
            }
            let sight = self.noisy(sight, random);
            let right = random.chance(self.levels.inlier_rate);
            let (id, matched) =
                if right { (id, landmark) } else { self.landmarks[random.below(self.landmarks.len())] };
            let weight = self.weight(right, weighing);
            view.landmarks.push(LandmarkMatch { sight, landmark: matched, id, right, weight });
            if let (Some(pose), Some((_, matches))) = (&map_t_reference, &mut view.reference) {
                let seen = self.see(motion, before, pose, &landmark);
                if let Some((reference, _)) = seen.filter(|(_, pose)| sees(world, &[], pose, &landmark)) {
                    let reference = self.noisy(reference, random);
                    matches.push(SightMatch { sight, reference, right: true, weight: 1.0 });
                }
            }
            if view.landmarks.len() == self.levels.features {
                break;
            }
        }
        if let Some((_, matches)) = &mut view.reference {
            // Wrong ones point to what another match saw.
            let references: Vec<Sight> = matches.iter().map(|m| m.reference).collect();
            for (i, m) in matches.iter_mut().enumerate() {
                let other = random.below(references.len());
                if !random.chance(self.levels.inlier_rate) && other != i {
                    (m.reference, m.right) = (references[other], false);
                }
                m.weight = self.weight(m.right, weighing);
            }
        }
        view
    }

    fn weight(&self, right: bool, random: &mut Random) -> f32 {
        self.weights.map_or(1.0, |[of_right, of_wrong, spread]| {
            let mean = if right { of_right } else { of_wrong };
            (mean + random.normal(spread)).clamp(0.05, 1.0) as f32
        })
    }

    /// As a detector finds it: a pixel within the image, a bearing of unit length.
    fn noisy(&self, sight: Sight, random: &mut Random) -> Sight {
        match (sight, &self.optics) {
            (Sight::Pixel(pixel), Optics::Image(lens, _)) => {
                let found = pixel.map(|v| v + random.normal(self.levels.pixel_noise));
                let last = lens.size().map(|size| f64::from(size.max(1) - 1));
                Sight::Pixel(std::array::from_fn(|i| found[i].clamp(0.0, last[i])))
            }
            (Sight::Pixel(_), Optics::Bearings(_)) => sight,
            (Sight::Bearing(bearing), _) => {
                // Two directions at right angles to it.
                let right = Vector::ith(bearing.iamin(), 1.0).cross(&bearing).normalize();
                let [a, b] = [(); 2].map(|()| random.normal(self.levels.bearings.noise));
                Sight::Bearing((bearing + a * right + b * bearing.cross(&right)).normalize())
            }
        }
    }
}

/// Rows closer than this are the same, pixels.
const ROW: f64 = 1e-9;
/// Each step is better by some hundredfold.
const MAX_STEPS: usize = 30;

/// Nothing stands between the camera and a landmark. It lies on a surface, up to the errors of the
/// map, so that the ray may end a little before it.
fn sees(world: &World, people: &[Solid], map_t_camera: &Rigid, landmark: &Point) -> bool {
    let origin = Point::from(map_t_camera.translation.vector);
    let way = landmark - origin;
    let far = way.norm();
    let slack = 0.1 + 0.02 * far;
    first_hit(world, people, &origin, &(way / far), far).is_none_or(|hit| hit.range > far - slack)
}
