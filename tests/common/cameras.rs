//! Camera problems with a known answer.

use flashreg::estimation::{AbsoluteProblem, AbsoluteRow, RelativeProblem, RelativeRow, Sight};
use flashreg::geometry::{Point, Rigid, Vector};
use nalgebra::{Matrix2x3, UnitQuaternion};
use rand::{Rng, SeedableRng};

pub type Random = rand_pcg::Pcg64Mcg;

pub fn random(seed: u64) -> Random {
    Random::seed_from_u64(seed)
}

/// A camera without distortion.
#[derive(Debug, Clone, Copy)]
pub struct Pinhole {
    pub focal: f64,
    pub size: [f64; 2],
    /// Largest reprojection error of an inlier, pixels.
    pub threshold: f64,
}

pub const CAMERA: Pinhole = Pinhole { focal: 600.0, size: [640.0, 480.0], threshold: 4.0 };

impl Pinhole {
    pub fn project(&self, x: &Vector) -> [f64; 2] {
        [0, 1].map(|k| self.focal * x[k] / x.z + self.size[k] / 2.0)
    }

    pub fn sight(&self, pixel: [f64; 2]) -> Sight {
        let [x, y] = [0, 1].map(|k| (pixel[k] - self.size[k] / 2.0) / self.focal);
        let bearing = Vector::new(x, y, 1.0).normalize();
        let scale = self.focal / (self.threshold * bearing.z);
        let metric = Matrix2x3::new(1.0, 0.0, -x, 0.0, 1.0, -y) * scale;
        Sight { bearing, metric, pixel: Some(pixel) }
    }

    pub fn anywhere(&self, rng: &mut Random) -> [f64; 2] {
        self.size.map(|size| rng.random_range(0.0..size))
    }

    /// The point of the optical frame at a pixel and a depth.
    pub fn at(&self, pixel: [f64; 2], depth: f64) -> Vector {
        let [x, y] = [0, 1].map(|k| (pixel[k] - self.size[k] / 2.0) / self.focal);
        Vector::new(x, y, 1.0) * depth
    }
}

/// Normally distributed (Box and Muller).
pub fn normal(rng: &mut Random) -> f64 {
    let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

pub fn noisy(rng: &mut Random, pixel: [f64; 2], noise: f64) -> [f64; 2] {
    pixel.map(|v| v + noise * normal(rng))
}

pub fn direction(rng: &mut Random) -> Vector {
    Vector::new(normal(rng), normal(rng), normal(rng)).normalize()
}

pub fn any_pose(rng: &mut Random, reach: f64) -> Rigid {
    let turn = UnitQuaternion::from_scaled_axis(direction(rng) * rng.random_range(0.0..3.1));
    Rigid::from_parts((direction(rng) * reach).into(), turn)
}

/// How the points of a scene lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// Depths from 2 to 10 m.
    Deep,
    /// On a plane tilted by so much, rad, 5 m away.
    Plane(f64),
    /// On a line.
    Line,
    /// So far away, m.
    Far(f64),
}

/// A point in view of the camera, in the optical frame.
pub fn point(rng: &mut Random, camera: &Pinhole, shape: Shape) -> Vector {
    let pixel = camera.anywhere(rng);
    match shape {
        Shape::Deep => camera.at(pixel, rng.random_range(2.0..10.0)),
        Shape::Far(depth) => camera.at(pixel, depth * rng.random_range(1.0..2.0)),
        Shape::Plane(tilt) => {
            let ray = camera.at(pixel, 1.0);
            let normal = Vector::new(tilt.sin(), 0.0, -tilt.cos());
            ray * (-5.0 * tilt.cos() / normal.dot(&ray))
        }
        Shape::Line => {
            let along = rng.random_range(-1.0..1.0);
            Vector::new(1.5 * along, 0.8 * along, 5.0 + 1.2 * along)
        }
    }
}

/// `count` rows with noise (pixels) of which a share are mismatches, in random order, and the pose.
pub fn absolute_rows(
    rng: &mut Random,
    camera: &Pinhole,
    count: usize,
    outliers: f64,
    noise: f64,
    shape: Shape,
) -> (Vec<AbsoluteRow>, Rigid) {
    let map_t_camera = any_pose(rng, 20.0);
    let wrong = (count as f64 * outliers).round() as usize;
    let mut rows: Vec<AbsoluteRow> = (0..count)
        .map(|i| {
            let x = point(rng, camera, shape);
            let pixel = noisy(rng, camera.project(&x), noise);
            let pixel = if i < wrong { camera.anywhere(rng) } else { pixel };
            let point = map_t_camera * Point::from(x);
            AbsoluteRow { sight: camera.sight(pixel), point, weight: 1.0, id: None }
        })
        .collect();
    shuffle(rng, &mut rows);
    (rows, map_t_camera)
}

/// The same for two views; the baseline is `baseline` m long.
pub fn relative_rows(
    rng: &mut Random,
    camera: &Pinhole,
    count: usize,
    outliers: f64,
    noise: f64,
    shape: Shape,
    baseline: f64,
) -> (Vec<RelativeRow>, Rigid) {
    let turn = UnitQuaternion::from_scaled_axis(direction(rng) * 0.15);
    let along = direction(rng);
    let reference_t_camera = Rigid::from_parts((along * baseline).into(), turn);
    let wrong = (count as f64 * outliers).round() as usize;
    let mut rows = Vec::with_capacity(count);
    while rows.len() < count {
        let x = point(rng, camera, shape);
        let y = (reference_t_camera * Point::from(x)).coords;
        let seen = camera.project(&y);
        if y.z < 0.5 || (0..2).any(|k| !(0.0..camera.size[k]).contains(&seen[k])) {
            continue;
        }
        let current = noisy(rng, camera.project(&x), noise);
        let reference = if rows.len() < wrong { camera.anywhere(rng) } else { noisy(rng, seen, noise) };
        rows.push(RelativeRow {
            sight: camera.sight(current),
            reference: camera.sight(reference),
            weight: 1.0,
            id: None,
        });
    }
    shuffle(rng, &mut rows);
    (rows, Rigid::from_parts(along.into(), turn))
}

pub fn shuffle<T>(rng: &mut Random, rows: &mut [T]) {
    for i in (1..rows.len()).rev() {
        rows.swap(i, rng.random_range(0..=i));
    }
}

pub fn absolute_problem(rows: &[AbsoluteRow]) -> AbsoluteProblem {
    let mut problem = AbsoluteProblem::with_capacity(rows.len());
    assert!(rows.iter().all(|row| problem.push(*row)), "a row was refused");
    problem
}

pub fn relative_problem(rows: &[RelativeRow]) -> RelativeProblem {
    let mut problem = RelativeProblem::with_capacity(rows.len());
    assert!(rows.iter().all(|row| problem.push(*row)), "a row was refused");
    problem
}

/// Angle of the rotation between two poses, and distance of their origins.
pub fn errors(a: &Rigid, b: &Rigid) -> (f64, f64) {
    (a.rotation.angle_to(&b.rotation), (a.translation.vector - b.translation.vector).norm())
}
