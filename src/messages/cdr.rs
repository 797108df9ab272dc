//! Reader of CDR, the encoding of ROS 2 messages.
//!
//! XCDR1 plain: four bytes of encapsulation header that name the byte order, then values aligned
//! to their own size, counted from after the header (DDS-XTypes 1.3, 7.4.1).

use super::{MessageError, Stamp};

/// Reads values one after the other. Borrows, checks every length, never allocates.
#[derive(Debug, Clone)]
pub struct CdrReader<'a> {
    /// All that follows the encapsulation header.
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

impl<'a> CdrReader<'a> {
    /// Reads the encapsulation header. Refused: anything but plain CDR (0x0000 big-endian,
    /// 0x0001 little-endian).
    pub fn new(cdr: &'a [u8]) -> Result<Self, MessageError> {
        let (header, bytes) =
            cdr.split_first_chunk::<4>().ok_or(MessageError::CdrTooShort { got: cdr.len(), need: 4 })?;
        let [high, low, _, _] = *header;
        match u16::from_be_bytes([high, low]) {
            0 => Ok(Self { bytes, at: 0, big_endian: true }),
            1 => Ok(Self { bytes, at: 0, big_endian: false }),
            other => Err(MessageError::CdrEncapsulation(other)),
        }
    }

    /// The next `N` bytes, aligned to `N`.
    fn primitive<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        self.at = self.at.next_multiple_of(N);
        let mut value = [0; N];
        value.copy_from_slice(self.take(N)?);
        // The reader turns every value into little-endian, so that there is one way to decode it.
        if self.big_endian {
            value.reverse();
        }
        Ok(value)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], MessageError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let taken = rest.get(..n).ok_or(MessageError::CdrTooShort { got: rest.len(), need: n })?;
        self.at += n;
        Ok(taken)
    }

    /// An octet.
    pub fn u8(&mut self) -> Result<u8, MessageError> {
        self.primitive().map(u8::from_le_bytes)
    }

    /// A bool; any octet but zero is true.
    pub fn bool(&mut self) -> Result<bool, MessageError> {
        Ok(self.u8()? != 0)
    }

    /// A 32-bit unsigned integer.
    pub fn u32(&mut self) -> Result<u32, MessageError> {
        self.primitive().map(u32::from_le_bytes)
    }

    /// A 32-bit signed integer.
    pub fn i32(&mut self) -> Result<i32, MessageError> {
        self.primitive().map(i32::from_le_bytes)
    }

    /// A 64-bit floating-point number.
    pub fn f64(&mut self) -> Result<f64, MessageError> {
        self.primitive().map(f64::from_le_bytes)
    }

    /// `N` 64-bit floating-point numbers.
    pub fn f64s<const N: usize>(&mut self) -> Result<[f64; N], MessageError> {
        let mut values = [0.0; N];
        for value in &mut values {
            *value = self.f64()?;
        }
        Ok(values)
    }

    /// A string, without the NUL that ends it.
    pub fn str(&mut self) -> Result<&'a str, MessageError> {
        let bytes = self.octets()?;
        let text = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        std::str::from_utf8(text).map_err(|_| MessageError::CdrString)
    }

    /// A sequence of octets.
    pub fn octets(&mut self) -> Result<&'a [u8], MessageError> {
        let len = self.sequence(1)?;
        self.take(len as usize)
    }

    /// The length of a sequence whose elements take at least `element_size` bytes each. Refused:
    /// a length that the bytes left cannot hold.
    pub fn sequence(&mut self, element_size: usize) -> Result<u32, MessageError> {
        let got = self.u32()?;
        let max = self.bytes.len().saturating_sub(self.at) / element_size.max(1);
        if got as usize > max {
            return Err(MessageError::CdrLength { got, max });
        }
        Ok(got)
    }

    /// A `std_msgs/Header`: stamp and frame.
    pub fn header(&mut self) -> Result<(Stamp, &'a str), MessageError> {
        let (sec, nanosec) = (self.i32()?, self.u32()?);
        Ok((Stamp::new(sec, nanosec), self.str()?))
    }
}
