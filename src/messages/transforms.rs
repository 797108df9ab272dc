//! View of a `tf2_msgs/TFMessage`.

use super::cdr::CdrReader;
use super::{MessageError, Stamp};

/// One transform as a message has it, not yet checked: `parent_t_child` at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransformSample<'a> {
    /// Frame that the transform maps to (`header.frame_id`).
    pub parent: &'a str,
    /// Frame that it maps from (`child_frame_id`).
    pub child: &'a str,
    /// When it held.
    pub stamp: Stamp,
    /// Origin of the child in the parent, m.
    pub translation: [f64; 3],
    /// Orientation of the child in the parent: quaternion x y z w.
    pub rotation: [f64; 4],
}

/// The transforms of a message.
#[derive(Debug, Clone)]
pub struct TransformsView<'a> {
    reader: CdrReader<'a>,
    left: u32,
}

impl<'a> TransformsView<'a> {
    /// Bytes that a transform takes at least: stamp, two empty names, seven numbers.
    const MIN_BYTES: usize = 8 + 4 + 4 + 7 * 8;

    /// Reads a message. Refused: broken CDR.
    pub fn parse(cdr: &'a [u8]) -> Result<Self, MessageError> {
        let mut reader = CdrReader::new(cdr)?;
        let left = reader.sequence(Self::MIN_BYTES)?;
        let view = Self { reader: reader.clone(), left };
        for _ in 0..left {
            read_transform(&mut reader)?;
        }
        Ok(view)
    }
}

impl<'a> Iterator for TransformsView<'a> {
    type Item = TransformSample<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        read_transform(&mut self.reader).ok()
    }
}

fn read_transform<'a>(reader: &mut CdrReader<'a>) -> Result<TransformSample<'a>, MessageError> {
    let (stamp, parent) = reader.header()?;
    let child = reader.str()?;
    let (translation, rotation) = (reader.f64s()?, reader.f64s()?);
    Ok(TransformSample { parent, child, stamp, translation, rotation })
}
