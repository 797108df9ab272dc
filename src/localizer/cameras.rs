//! The calibration of the cameras that have told it.

use super::transforms::normalised;
use crate::geometry::Camera;
use crate::messages::camera_info::{CameraInfoError, CameraInfoView};
use crate::messages::MessageError;
use std::collections::VecDeque;

/// Cameras that are kept at most.
pub const MAX_CAMERAS: usize = 64;

/// The last word of each camera, by the frame of its images.
#[derive(Debug, Default)]
pub(super) struct Cameras {
    known: VecDeque<Known>,
    /// `camera.rectified`
    rectified: bool,
}

#[derive(Debug)]
struct Known {
    frame: String,
    cdr: Vec<u8>,
    /// Or why it cannot be used.
    camera: Result<Camera, CameraInfoError>,
}

impl Cameras {
    pub fn new(rectified: bool) -> Self {
        Self { known: VecDeque::new(), rectified }
    }

    /// Takes a message of `camera_info` (CDR bytes) in place of the one before of the same frame. One that cannot
    /// be used takes its place too; the error says why.
    pub fn insert(&mut self, cdr: &[u8]) -> Result<(), MessageError> {
        let info = CameraInfoView::parse(cdr)?;
        let frame = normalised(info.frame);
        let camera = info.camera(self.rectified);
        let refused = camera.as_ref().err().cloned();
        match self.known.iter_mut().find(|known| known.frame == frame) {
            Some(known) => {
                known.camera = camera;
                known.cdr.clear();
                known.cdr.extend_from_slice(cdr);
            }
            None => {
                // The one that was first heard of gives way.
                if self.known.len() >= MAX_CAMERAS {
                    self.known.pop_front();
                }
                self.known.push_back(Known { frame: frame.to_owned(), cdr: cdr.to_owned(), camera });
            }
        }
        refused.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Says which of its matrices counts.
    pub fn set_rectified(&mut self, rectified: bool) {
        if std::mem::replace(&mut self.rectified, rectified) != rectified {
            for Known { cdr, camera, .. } in &mut self.known {
                // It could be read before.
                if let Ok(info) = CameraInfoView::parse(cdr) {
                    *camera = info.camera(rectified);
                }
            }
        }
    }

    /// The camera of a frame, or why it cannot be used; `None`: nothing has been heard of it.
    pub fn get(&self, frame: &str) -> Option<Result<&Camera, &CameraInfoError>> {
        let known = self.known.iter().find(|known| known.frame == normalised(frame))?;
        Some(known.camera.as_ref())
    }
}
