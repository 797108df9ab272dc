//! Unpacks LZF, the compression of PCD files (the format of liblzf, Marc Lehmann).
//!
//! A control byte below 32 is followed by that many literal bytes and one. Else its upper three bits are a length
//! (7: a byte is added to it), its lower five and the next byte a distance back into what was unpacked: length + 2
//! bytes from distance + 1 before the end.

use super::CloudError;

/// Three bytes give at most 7 + 255 + 2.
const MAX_RATIO: usize = 88;

/// Unpacks to exactly `size` bytes.
pub(super) fn unpack(packed: &[u8], size: usize) -> Result<Vec<u8>, CloudError> {
    let bad = |what: String| CloudError::BadCompression(what);
    if size / MAX_RATIO > packed.len() {
        return Err(bad(format!("{} bytes cannot hold {size}", packed.len())));
    }
    let mut out = Vec::with_capacity(size);
    let mut rest = packed;
    while let Some((&control, tail)) = rest.split_first() {
        let control = usize::from(control);
        if control < 32 {
            let Some((literal, tail)) = tail.split_at_checked(control + 1) else {
                return Err(bad("it ends within a run of bytes".into()));
            };
            out.extend_from_slice(literal);
            rest = tail;
        } else {
            let (more, tail) = match (control >> 5, tail) {
                (7, [more, tail @ ..]) => (usize::from(*more), tail),
                (_, tail) => (0, tail),
            };
            let [low, tail @ ..] = tail else {
                return Err(bad("it ends within a distance".into()));
            };
            let length = (control >> 5) + more + 2;
            let distance = ((control & 31) << 8) + usize::from(*low) + 1;
            let Some(start) = out.len().checked_sub(distance) else {
                return Err(bad("a distance reaches before the start".into()));
            };
            if out.len() + length > size {
                return Err(bad(format!("more than {size} bytes")));
            }
            // The run may overlap what it makes.
            for at in start..start + length {
                let byte = out.get(at).copied().unwrap_or_default();
                out.push(byte);
            }
            rest = tail;
        }
        if out.len() > size {
            return Err(bad(format!("more than {size} bytes")));
        }
    }
    match out.len() == size {
        true => Ok(out),
        false => Err(bad(format!("{} of {size} bytes", out.len()))),
    }
}
