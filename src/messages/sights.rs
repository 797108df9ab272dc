//! Views of point clouds that hold features of a camera: topics `correspondences_2d3d` and
//! `correspondences_2d2d`.
//!
//! | field of 2D-3D | meaning |
//! |---|---|
//! | `u v` | pixel in the image that the CameraInfo is of: column, row; the centre of the first one is (0, 0) |
//! | `x y z` | or the bearing in the optical frame, of any length above zero |
//! | `tx ty tz` | the landmark in the map, m |
//!
//! | field of 2D-2D | meaning |
//! |---|---|
//! | `u v`, `tu tv` | pixel in the current view and in the reference view, of the same camera |
//! | `x y z`, `tx ty tz` | or the bearings in their optical frames |
//!
//! Both have `weight` and `id` as [3D-3D](super::correspondences) has them. Where there are both pixels and bearings,
//! pixels count if the calibration of the camera is known.

use super::camera_info::CameraInfoError;
use super::columns::{read, Dropped, Rows};
use super::point_cloud::{Column, PointCloudView};
use super::MessageError;
use crate::estimation::{AbsoluteProblem, AbsoluteRow, RelativeProblem, RelativeRow, Sight};
use crate::geometry::{Camera, Vector};

/// Largest residual of an inlier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Where pixels are given, px.
    pub pixel: f64,
    /// Where bearings are given, rad.
    pub angle: f64,
}

/// Features matched with points of the map, all required fields present and usable.
#[derive(Debug, Clone)]
pub struct AbsoluteView<'a> {
    rows: Rows<'a>,
    features: Features<2, 3>,
    point: [Column; 3],
}

/// Features matched with those of a reference view, all required fields present and usable.
#[derive(Debug, Clone)]
pub struct RelativeView<'a> {
    rows: Rows<'a>,
    /// Those of the current view, then those of the reference view.
    features: Features<4, 6>,
}

impl<'a> AbsoluteView<'a> {
    /// Reads a message; see [`PointCloudView::parse`] and [`AbsoluteView::new`].
    pub fn parse(cdr: &'a [u8], force_little_endian: bool) -> Result<Self, MessageError> {
        Self::new(PointCloudView::parse(cdr)?, force_little_endian)
    }

    /// Finds the columns; refused as for [`super::correspondences::CorrespondenceView::new`].
    pub fn new(cloud: PointCloudView<'a>, force_little_endian: bool) -> Result<Self, MessageError> {
        let rows = Rows::new(cloud, force_little_endian)?;
        let point = [rows.required("tx")?, rows.required("ty")?, rows.required("tz")?];
        let column = |name| rows.required(name);
        let pixels = || Ok([column("u")?, column("v")?]);
        let bearings = || Ok([column("x")?, column("y")?, column("z")?]);
        let features = Features::new(pixels(), bearings())?;
        rows.check_byte_order(features.columns().chain(&point))?;
        Ok(Self { rows, features, point })
    }

    /// The message: the header tells when and in which frame the features were seen.
    pub fn cloud(&self) -> &PointCloudView<'a> {
        &self.rows.cloud
    }

    /// There are pixels only: nothing can be done without the calibration of the camera.
    pub fn needs_camera_info(&self) -> bool {
        self.features.bearings.is_none()
    }

    /// Replaces the rows of `problem` by the usable ones, in their order.
    ///
    /// # Errors
    /// Pixels without a camera, or most of them outside its image; `problem` is empty then.
    pub fn fill(
        &self,
        problem: &mut AbsoluteProblem,
        camera: Option<&Camera>,
        thresholds: &Thresholds,
    ) -> Result<Dropped, MessageError> {
        problem.clear();
        let mut tally = Tally::default();
        let seen = self.features.choose(camera, self.rows.cloud.frame)?;
        if let Some(camera) = seen.camera() {
            problem.set_intrinsics(camera.into());
        }
        for point in self.rows.cloud.points() {
            let sight = match seen {
                Seen::Pixels(columns, camera) => pixel(read(columns, point), camera, thresholds),
                Seen::Bearings(columns) => bearing(read(columns, point), thresholds),
            };
            let (weight, id) = (self.rows.weight(point), self.rows.id(point));
            let row =
                sight.map(|sight| AbsoluteRow { sight, point: read(&self.point, point).into(), weight, id });
            tally.count(match row {
                Ok(row) if problem.push(row) => Ok(()),
                Ok(row) if row.point.iter().all(|v| v.is_finite()) => Err(Unusable::Weight),
                Ok(_) => Err(Unusable::NonFinite),
                Err(cause) => Err(cause),
            });
        }
        tally.finish(seen.camera()).inspect_err(|_| problem.clear())
    }
}

impl<'a> RelativeView<'a> {
    /// Reads a message; see [`PointCloudView::parse`] and [`RelativeView::new`].
    pub fn parse(cdr: &'a [u8], force_little_endian: bool) -> Result<Self, MessageError> {
        Self::new(PointCloudView::parse(cdr)?, force_little_endian)
    }

    /// Finds the columns; refused as for [`super::correspondences::CorrespondenceView::new`].
    pub fn new(cloud: PointCloudView<'a>, force_little_endian: bool) -> Result<Self, MessageError> {
        let rows = Rows::new(cloud, force_little_endian)?;
        let column = |name| rows.required(name);
        let pixels = || Ok([column("u")?, column("v")?, column("tu")?, column("tv")?]);
        let bearings =
            || Ok([column("x")?, column("y")?, column("z")?, column("tx")?, column("ty")?, column("tz")?]);
        let features = Features::new(pixels(), bearings())?;
        rows.check_byte_order(features.columns())?;
        Ok(Self { rows, features })
    }

    /// The message: the header tells when and in which frame the current view was taken.
    pub fn cloud(&self) -> &PointCloudView<'a> {
        &self.rows.cloud
    }

    /// There are pixels only: nothing can be done without the calibration of the camera.
    pub fn needs_camera_info(&self) -> bool {
        self.features.bearings.is_none()
    }

    /// Replaces the rows of `problem` by the usable ones, in their order. `camera` took both views.
    ///
    /// # Errors
    /// Pixels without a camera, or most of them outside its image; `problem` is empty then.
    pub fn fill(
        &self,
        problem: &mut RelativeProblem,
        camera: Option<&Camera>,
        thresholds: &Thresholds,
    ) -> Result<Dropped, MessageError> {
        problem.clear();
        let mut tally = Tally::default();
        let seen = self.features.choose(camera, self.rows.cloud.frame)?;
        if let Some(camera) = seen.camera() {
            problem.set_intrinsics(camera.into());
        }
        for point in self.rows.cloud.points() {
            let sights = match seen {
                Seen::Pixels(columns, camera) => {
                    let [u, v, tu, tv] = read(columns, point);
                    both([[u, v], [tu, tv]].map(|at| pixel(at, camera, thresholds)))
                }
                Seen::Bearings(columns) => {
                    let [x, y, z, tx, ty, tz] = read(columns, point);
                    both([[x, y, z], [tx, ty, tz]].map(|ray| bearing(ray, thresholds)))
                }
            };
            let (weight, id) = (self.rows.weight(point), self.rows.id(point));
            tally.count(sights.and_then(|[sight, reference]| {
                problem
                    .push(RelativeRow { sight, reference, weight, id })
                    .then_some(())
                    .ok_or(Unusable::Weight)
            }));
        }
        tally.finish(seen.camera()).inspect_err(|_| problem.clear())
    }
}

/// The columns of pixels and of bearings, at least one of which is there.
#[derive(Debug, Clone, Copy)]
struct Features<const P: usize, const B: usize> {
    pixels: Option<[Column; P]>,
    bearings: Option<[Column; B]>,
}

/// The columns that count.
#[derive(Clone, Copy)]
enum Seen<'a, const P: usize, const B: usize> {
    Pixels(&'a [Column; P], &'a Camera),
    Bearings(&'a [Column; B]),
}

impl<const P: usize, const B: usize> Features<P, B> {
    /// Refused: of both kinds a column is missing, or one is unusable.
    fn new(
        pixels: Result<[Column; P], MessageError>,
        bearings: Result<[Column; B], MessageError>,
    ) -> Result<Self, MessageError> {
        use MessageError::MissingField;
        match (pixels, bearings) {
            // Bearings were meant if there are some of their columns and none of pixels.
            (Err(MissingField(pixel)), Err(MissingField(bearing))) => {
                Err(MissingField(if pixel == "u" && bearing != "x" { bearing } else { pixel }))
            }
            (Ok(pixels), Ok(bearings)) => Ok(Self { pixels: Some(pixels), bearings: Some(bearings) }),
            (Ok(pixels), Err(MissingField(_))) => Ok(Self { pixels: Some(pixels), bearings: None }),
            (Err(MissingField(_)), Ok(bearings)) => Ok(Self { pixels: None, bearings: Some(bearings) }),
            (Err(error), Err(MissingField(_)) | Ok(_)) | (_, Err(error)) => Err(error),
        }
    }

    fn columns(&self) -> impl Iterator<Item = &Column> + Clone {
        self.pixels.iter().flatten().chain(self.bearings.iter().flatten())
    }

    /// Pixels if the camera is known, else bearings.
    fn choose<'a>(&'a self, camera: Option<&'a Camera>, frame: &str) -> Result<Seen<'a, P, B>, MessageError> {
        match (&self.pixels, camera, &self.bearings) {
            (Some(pixels), Some(camera), _) => Ok(Seen::Pixels(pixels, camera)),
            (_, _, Some(bearings)) => Ok(Seen::Bearings(bearings)),
            _ => Err(MessageError::NoCameraInfo(frame.to_owned())),
        }
    }
}

impl<const P: usize, const B: usize> Seen<'_, P, B> {
    /// The camera whose pixels count.
    fn camera(&self) -> Option<&Camera> {
        match self {
            Self::Pixels(_, camera) => Some(camera),
            Self::Bearings(_) => None,
        }
    }
}

/// Why a row is not taken.
#[derive(Clone, Copy)]
enum Unusable {
    NonFinite,
    Weight,
    /// A pixel is not in the image.
    Outside,
    /// No ray has the pixel.
    NoRay,
}

fn pixel(at: [f64; 2], camera: &Camera, thresholds: &Thresholds) -> Result<Sight, Unusable> {
    if !at.iter().all(|v| v.is_finite()) {
        return Err(Unusable::NonFinite);
    }
    if !camera.contains(at) {
        return Err(Unusable::Outside);
    }
    Sight::of_pixel(at, camera, thresholds.pixel).ok_or(Unusable::NoRay)
}

fn bearing(ray: [f64; 3], thresholds: &Thresholds) -> Result<Sight, Unusable> {
    Sight::of_bearing(&Vector::from(ray), thresholds.angle).ok_or(Unusable::NonFinite)
}

fn both([a, b]: [Result<Sight, Unusable>; 2]) -> Result<[Sight; 2], Unusable> {
    Ok([a?, b?])
}

/// Counts rows by what became of them.
#[derive(Default)]
struct Tally {
    dropped: Dropped,
    all: usize,
    outside: usize,
}

impl Tally {
    fn count(&mut self, row: Result<(), Unusable>) {
        self.all += 1;
        let Err(cause) = row else { return };
        self.outside += usize::from(matches!(cause, Unusable::Outside));
        *match cause {
            Unusable::NonFinite => &mut self.dropped.non_finite,
            Unusable::Weight => &mut self.dropped.weight,
            Unusable::Outside | Unusable::NoRay => &mut self.dropped.pixel,
        } += 1;
    }

    /// Refused: more than half of the pixels are outside the image of the camera.
    fn finish(&self, camera: Option<&Camera>) -> Result<Dropped, MessageError> {
        let all = self.all - self.dropped.non_finite;
        match camera {
            Some(camera) if 2 * self.outside > all => {
                let [width, height] = camera.size();
                Err(CameraInfoError::ImageSize { outside: self.outside, all, width, height }.into())
            }
            _ => Ok(self.dropped),
        }
    }
}
