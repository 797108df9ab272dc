//! View of a `sensor_msgs/CameraInfo`.

use super::cdr::CdrReader;
use super::{MessageError, Stamp};
use crate::geometry::{Camera, CameraError, Distortion};
use nalgebra::{Matrix3, RowVector3};

/// A calibration as a message has it, not yet checked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CameraInfoView<'a> {
    /// When it was sent; of no importance here.
    pub stamp: Stamp,
    /// Optical frame of the camera.
    pub frame: &'a str,
    /// Height of the image, pixels.
    pub height: u32,
    /// Width of the image, pixels.
    pub width: u32,
    /// Name of the model of distortion.
    pub distortion_model: &'a str,
    /// The first coefficients of it: all that any model has.
    pub d: [f64; MAX_COEFFICIENTS],
    /// How many there are in the message.
    pub d_len: u32,
    /// Intrinsics of the raw image, row-major.
    pub k: [f64; 9],
    /// Rotation from the raw camera to the rectified one, row-major.
    pub r: [f64; 9],
    /// Projection of the rectified image, row-major.
    pub p: [f64; 12],
    /// Pixels of the sensor in one of the image: x, y.
    pub binning: [u32; 2],
    /// Part of the sensor that the image shows: x, y, height, width.
    pub roi: [u32; 4],
}

/// Coefficients of OpenCV's longest model.
const MAX_COEFFICIENTS: usize = 14;

/// Why a calibration cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CameraInfoError {
    /// K is not set, which in ROS means that the camera is not calibrated.
    #[error("K[0] is 0: the camera is not calibrated")]
    Uncalibrated,
    /// P is not set, and the pixels are of the rectified image.
    #[error("P[0] is 0: the image is not rectified")]
    Unrectified,
    /// A matrix is not `[fx 0 cx; 0 fy cy; 0 0 1]`.
    #[error("{0} is not [fx 0 cx; 0 fy cy; 0 0 1]")]
    Matrix(&'static str),
    /// R is neither a rotation nor zero.
    #[error("R is not a rotation")]
    Rotation,
    /// A number is not finite.
    #[error("{0} is not finite")]
    NotFinite(&'static str),
    /// Numbers make no camera.
    #[error("{0}")]
    Camera(#[from] CameraError),
    /// The model is not known here.
    #[error("distortion model '{0}' is not plumb_bob, rational_polynomial or equidistant")]
    Model(String),
    /// The model has another number of coefficients.
    #[error("{got} coefficients in D, {model} has {need}")]
    Coefficients {
        /// the model
        model: &'static str,
        /// coefficients there
        got: u32,
        /// what would be right
        need: &'static str,
    },
    /// The model has terms for a thin prism or a tilted sensor.
    #[error("rational_polynomial with a thin prism or tilt, D[8..], is not supported")]
    ThinPrism,
    /// Pixels are binned.
    #[error("binning {0} x {1} is not supported")]
    Binning(u32, u32),
    /// The image is a part of what was calibrated.
    #[error("roi of {width} x {height} at ({x}, {y}) is not supported, only the whole image")]
    Roi {
        /// column of the sensor where it begins
        x: u32,
        /// row of the sensor where it begins
        y: u32,
        /// pixels
        width: u32,
        /// pixels
        height: u32,
    },
    /// Most pixels of a message are outside the image.
    #[error("wrong image size: {outside} of {all} pixels are outside the {width} x {height} image")]
    ImageSize {
        /// rows with a pixel outside
        outside: usize,
        /// rows with pixels
        all: usize,
        /// of the image, pixels
        width: u32,
        /// of the image, pixels
        height: u32,
    },
}

impl<'a> CameraInfoView<'a> {
    /// Reads a message. Refused: broken CDR.
    pub fn parse(cdr: &'a [u8]) -> Result<Self, MessageError> {
        let mut reader = CdrReader::new(cdr)?;
        let (stamp, frame) = reader.header()?;
        let (height, width) = (reader.u32()?, reader.u32()?);
        let distortion_model = reader.str()?;
        let d_len = reader.sequence(size_of::<f64>())?;
        let mut d = [0.0; MAX_COEFFICIENTS];
        for i in 0..d_len as usize {
            let value = reader.f64()?;
            if let Some(slot) = d.get_mut(i) {
                *slot = value;
            }
        }
        let (k, r, p) = (reader.f64s()?, reader.f64s()?, reader.f64s()?);
        let binning = [reader.u32()?, reader.u32()?];
        let roi = [reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?];
        reader.bool()?;
        Ok(Self { stamp, frame, height, width, distortion_model, d, d_len, k, r, p, binning, roi })
    }

    /// The camera of the raw image, or of the rectified one. Rays are in the frame of the message, which is that of
    /// the rectified image, as `image_geometry` has it: those of the raw image are turned by `R`. They begin in the
    /// centre of this camera, also if `P` is of the second one of a stereo pair. A region of interest as large as the
    /// image and a binning of 1 are what is usual; `R` of zeros counts as none.
    ///
    /// # Errors
    /// See [`CameraInfoError`]. Of the rectified image only `P` and the sizes are looked at.
    pub fn camera(&self, rectified: bool) -> Result<Camera, CameraInfoError> {
        let size = [self.width, self.height];
        if self.binning.iter().any(|n| *n > 1) {
            return Err(CameraInfoError::Binning(self.binning[0], self.binning[1]));
        }
        let [x, y, height, width] = self.roi;
        if self.roi != [0; 4] && self.roi != [0, 0, self.height, self.width] {
            return Err(CameraInfoError::Roi { x, y, width, height });
        }
        if rectified {
            let [p00, p01, p02, _, p10, p11, p12, _, p20, p21, p22, _] = self.p;
            if p00 == 0.0 {
                return Err(CameraInfoError::Unrectified);
            }
            let (focal, center) = intrinsics("P", [p00, p01, p02, p10, p11, p12, p20, p21, p22])?;
            return Ok(Camera::new(size, focal, center, &Distortion::None)?);
        }
        if self.k[0] == 0.0 {
            return Err(CameraInfoError::Uncalibrated);
        }
        let (focal, center) = intrinsics("K", self.k)?;
        let camera = Camera::new(size, focal, center, &self.distortion()?)?;
        Ok(camera.turned(&rotation(&self.r)?))
    }

    fn distortion(&self) -> Result<Distortion, CameraInfoError> {
        let wrong = |model, need| CameraInfoError::Coefficients { model, got: self.d_len, need };
        // What is not in the message is zero in `d`.
        let [k1, k2, third, fourth, k3, k4, k5, k6, more @ ..] = self.d;
        match (self.distortion_model, self.d_len) {
            ("" | "plumb_bob" | "rational_polynomial", 0) => Ok(Distortion::None),
            ("plumb_bob", 4 | 5) => Ok(Distortion::PlumbBob([k1, k2, third, fourth, k3])),
            ("plumb_bob", _) => Err(wrong("plumb_bob", "4 or 5")),
            ("rational_polynomial", 8 | 12 | 14) => match more.iter().all(|v| *v == 0.0) {
                true => Ok(Distortion::RationalPolynomial([k1, k2, third, fourth, k3, k4, k5, k6])),
                false => Err(CameraInfoError::ThinPrism),
            },
            ("rational_polynomial", _) => Err(wrong("rational_polynomial", "8")),
            ("equidistant", 4) => Ok(Distortion::Equidistant([k1, k2, third, fourth])),
            ("equidistant", _) => Err(wrong("equidistant", "4")),
            (other, _) => Err(CameraInfoError::Model(other.to_owned())),
        }
    }
}

/// Focal lengths and principal point of `[fx 0 cx; 0 fy cy; 0 0 1]`.
fn intrinsics(name: &'static str, matrix: [f64; 9]) -> Result<([f64; 2], [f64; 2]), CameraInfoError> {
    if !matrix.iter().all(|v| v.is_finite()) {
        return Err(CameraInfoError::NotFinite(name));
    }
    let [fx, skew, cx, a, fy, cy, b, c, one] = matrix;
    if [skew, a, b, c] != [0.0; 4] || one != 1.0 {
        return Err(CameraInfoError::Matrix(name));
    }
    Ok(([fx, fy], [cx, cy]))
}

/// A matrix that is a rotation but for the digits of a calibration file, made one.
fn rotation(matrix: &[f64; 9]) -> Result<Matrix3<f64>, CameraInfoError> {
    if !matrix.iter().all(|v| v.is_finite()) {
        return Err(CameraInfoError::NotFinite("R"));
    }
    if *matrix == [0.0; 9] {
        return Ok(Matrix3::identity());
    }
    let given = Matrix3::from_row_slice(matrix);
    let [x, y]: [RowVector3<f64>; 2] = [given.row(0).into_owned(), given.row(1).into_owned()];
    let z = x.cross(&y);
    let y = z.cross(&x);
    let axes = [x, y, z].map(|axis| axis.try_normalize(0.5));
    let [Some(x), Some(y), Some(z)] = axes else { return Err(CameraInfoError::Rotation) };
    let rotation = Matrix3::from_rows(&[x, y, z]);
    match (rotation - given).amax() <= ROTATION_DIGITS {
        true => Ok(rotation),
        false => Err(CameraInfoError::Rotation),
    }
}

/// How far a number of a rotation may be off.
const ROTATION_DIGITS: f64 = 1e-3;
