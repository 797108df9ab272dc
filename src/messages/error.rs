//! Why a message was refused.

use super::camera_info::CameraInfoError;
use crate::status::{Counter, Status};

/// Why a message was refused. The text begins with a fixed word that scripts may rely on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MessageError {
    /// The encapsulation header is not plain CDR (XCDR1).
    #[error("cdr_encapsulation:{0:#06x}")]
    CdrEncapsulation(u16),
    /// The bytes end within a value.
    #[error("cdr_too_short:{got}<{need}")]
    CdrTooShort {
        /// bytes there
        got: usize,
        /// bytes that the value needs
        need: usize,
    },
    /// A sequence claims more elements than the bytes can hold.
    #[error("cdr_length:{got}>{max}")]
    CdrLength {
        /// elements claimed
        got: u32,
        /// elements that would fit at most
        max: usize,
    },
    /// A string is not UTF-8.
    #[error("cdr_string")]
    CdrString,
    /// A required field is absent.
    #[error("missing_field:{0}")]
    MissingField(&'static str),
    /// A field has a type that is not one of PointField's 1 to 8.
    #[error("bad_datatype:{field}={datatype}")]
    BadDatatype {
        /// the field
        field: &'static str,
        /// its type number
        datatype: u8,
    },
    /// A field holds several numbers where one is meant.
    #[error("bad_count:{field}={count}")]
    BadCount {
        /// the field
        field: &'static str,
        /// its count
        count: u32,
    },
    /// A field ends beyond the point.
    #[error("bad_point_step")]
    BadPointStep {
        /// point_step, bytes
        got: u64,
        /// where the field ends, bytes
        need: u64,
    },
    /// The rows, or the data, are shorter than width and height say.
    #[error("data_too_short")]
    DataTooShort {
        /// bytes there
        got: u64,
        /// bytes that width and height need
        need: u64,
    },
    /// No points at all.
    #[error("empty")]
    Empty,
    /// Fewer usable rows than a pose needs.
    #[error("too_few:{got}<{need}")]
    TooFew {
        /// usable rows
        got: usize,
        /// rows that the pose needs
        need: usize,
    },
    /// The numbers make no sense in the byte order that was claimed, and do in the other one.
    #[error(
        "bad_endianness:{}: the values are absurd in this byte order and plausible in the other",
        if *.big_endian { "big" } else { "little" }
    )]
    BadEndianness {
        /// the byte order in which they were read
        big_endian: bool,
    },
    /// Pixels in this frame, and no calibration of its camera.
    #[error("no_camera_info:{0}")]
    NoCameraInfo(String),
    /// The calibration cannot be used, or not for these pixels.
    #[error("camera_info: {0}")]
    CameraInfo(#[from] CameraInfoError),
}

impl MessageError {
    /// What the refusal is counted as.
    pub fn counter(&self) -> Counter {
        match self {
            Self::MissingField(_) => Counter::RefusedMissingField,
            Self::BadDatatype { .. } | Self::BadCount { .. } => Counter::RefusedBadDatatype,
            Self::BadEndianness { .. } => Counter::RefusedEndianness,
            Self::Empty | Self::TooFew { .. } => Counter::RefusedTooFew,
            Self::NoCameraInfo(_) | Self::CameraInfo(_) => Counter::RefusedCameraInfo,
            Self::CdrEncapsulation(_)
            | Self::CdrTooShort { .. }
            | Self::CdrLength { .. }
            | Self::CdrString
            | Self::BadPointStep { .. }
            | Self::DataTooShort { .. } => Counter::RefusedLayout,
        }
    }

    /// The status of a frame whose message is refused so.
    pub fn status(&self) -> Status {
        match self {
            Self::Empty | Self::TooFew { .. } => Status::TooFew,
            _ => Status::BadInput,
        }
    }

    /// Bytes there and bytes needed, where the text does not say them.
    pub fn bytes(&self) -> Option<(u64, u64)> {
        match *self {
            Self::BadPointStep { got, need } | Self::DataTooShort { got, need } => Some((got, need)),
            _ => None,
        }
    }
}
