//! Models of cameras: from a point to its pixel and back.
//!
//! Conventions are those of ROS (`sensor_msgs/CameraInfo`) and OpenCV: the optical frame looks along +z, x to the
//! right and y down in the image; the centre of the first pixel is (0, 0).

mod distortion;
mod positive;

pub use distortion::Distortion;

use super::{Point, Vector};
use distortion::Lens;
use nalgebra::{Matrix2x3, Matrix3, Vector2};

/// A calibrated camera.
///
/// A lens with distortion maps the rays within some angle of its axis one to one; beyond it the polynomials of the
/// model turn back, and a pixel would have several rays. Here only the rays within the angle have a pixel, and
/// only their pixels have a ray.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Camera {
    size: [u32; 2],
    focal: [f64; 2],
    center: [f64; 2],
    lens: Lens,
    /// From the axes of the lens to those of the frame of points and rays.
    frame_r_lens: Matrix3<f64>,
}

/// Why numbers make no camera.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum CameraError {
    /// The image has no pixels.
    #[error("the image size is {0} x {1}")]
    Size(u32, u32),
    /// A focal length is not above zero.
    #[error("the focal length is {0}")]
    Focal(f64),
    /// A number is not finite.
    #[error("{0} is not finite")]
    NotFinite(&'static str),
}

impl Camera {
    /// `size`: width and height of the image. `focal` and `center` (principal point): x and y. All in pixels.
    ///
    /// # Errors
    /// See [`CameraError`].
    pub fn new(
        size: [u32; 2],
        focal: [f64; 2],
        center: [f64; 2],
        distortion: &Distortion,
    ) -> Result<Self, CameraError> {
        let finite = |values: &[f64]| values.iter().all(|v| v.is_finite());
        let checks = [
            ("the focal length", finite(&focal)),
            ("the principal point", finite(&center)),
            ("the distortion", finite(distortion.coefficients())),
        ];
        if let Some((name, _)) = checks.into_iter().find(|(_, finite)| !finite) {
            return Err(CameraError::NotFinite(name));
        }
        if let Some(focal) = focal.into_iter().find(|f| *f <= 0.0) {
            return Err(CameraError::Focal(focal));
        }
        if size.contains(&0) {
            return Err(CameraError::Size(size[0], size[1]));
        }
        let lens = Lens::new(distortion);
        Ok(Self { size, focal, center, lens, frame_r_lens: Matrix3::identity() })
    }

    /// The same camera for points and rays in a frame whose axes are turned: `frame_r_lens` maps from the axes of
    /// the lens to those of the frame. In ROS this is `R` of CameraInfo, where the frame is that of the rectified
    /// image.
    pub fn turned(self, frame_r_lens: &Matrix3<f64>) -> Self {
        Self { frame_r_lens: frame_r_lens * self.frame_r_lens, ..self }
    }

    /// Width and height of the image, pixels.
    pub fn size(&self) -> [u32; 2] {
        self.size
    }

    /// Focal length in x and y, pixels.
    pub fn focal(&self) -> [f64; 2] {
        self.focal
    }

    /// Principal point, pixels.
    pub fn center(&self) -> [f64; 2] {
        self.center
    }

    /// Largest angle between the axis and a ray that has a pixel, whatever the size of the image; rad.
    pub fn max_angle(&self) -> f64 {
        self.lens.max_angle()
    }

    /// The pixel lies in the image, whose edge is half a pixel beyond the centres of the outermost pixels.
    pub fn contains(&self, pixel: [f64; 2]) -> bool {
        pixel.iter().zip(self.size).all(|(v, size)| (-0.5..=f64::from(size) - 0.5).contains(v))
    }

    /// The pixel of a point, in the image or outside. `None`: no ray to it has a pixel.
    pub fn project(&self, point: &Point) -> Option<[f64; 2]> {
        let (bent, _) = self.lens.bend(&self.frame_r_lens.tr_mul(&point.coords))?;
        let pixel = [0, 1].map(|i| self.focal[i] * bent[i] + self.center[i]);
        pixel.iter().all(|v| v.is_finite()).then_some(pixel)
    }

    /// Unit vector to what a pixel shows. `None`: no ray has this pixel. The pixel of the answer is the one given,
    /// to 1e-13 of the focal length and of the distance from the principal point.
    pub fn bearing(&self, pixel: [f64; 2]) -> Option<Vector> {
        let bent = [0, 1].map(|i| (pixel[i] - self.center[i]) / self.focal[i]);
        let ray = self.lens.unbend(&Vector2::from(bent))?;
        Some(self.frame_r_lens * ray)
    }

    /// Derivative of the pixel by a direction, of any length: two rows, for column and row of the image. Its
    /// product with the direction is zero. `None`: no ray of this direction has a pixel.
    pub fn derivative(&self, direction: &Vector) -> Option<Matrix2x3<f64>> {
        let (_, mut derivative) = self.lens.bend(&self.frame_r_lens.tr_mul(direction))?;
        derivative.row_mut(0).scale_mut(self.focal[0]);
        derivative.row_mut(1).scale_mut(self.focal[1]);
        let derivative = derivative * self.frame_r_lens.transpose();
        derivative.iter().all(|v| v.is_finite()).then_some(derivative)
    }
}

#[cfg(test)]
mod tests;
