//! Messages for the tests: an encoder of CDR, point clouds of any layout, and recorded bags.
#![allow(dead_code, unused_imports)] // each test program uses a part of it

pub mod bags;
pub mod cases;
pub mod problems;

use flashreg::messages::Stamp;
use std::path::PathBuf;

/// Writes CDR (XCDR1 plain).
pub struct CdrWriter {
    bytes: Vec<u8>,
    big_endian: bool,
}

impl CdrWriter {
    pub fn new(big_endian: bool) -> Self {
        Self { bytes: vec![0, u8::from(!big_endian), 0, 0], big_endian }
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn primitive<const N: usize>(&mut self, mut little_endian: [u8; N]) -> &mut Self {
        while !(self.bytes.len() - 4).is_multiple_of(N) {
            self.bytes.push(0xAA);
        }
        if self.big_endian {
            little_endian.reverse();
        }
        self.bytes.extend(little_endian);
        self
    }

    pub fn u8(&mut self, v: u8) -> &mut Self {
        self.primitive([v])
    }

    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.primitive(v.to_le_bytes())
    }

    pub fn f64(&mut self, v: f64) -> &mut Self {
        self.primitive(v.to_le_bytes())
    }

    pub fn str(&mut self, v: &str) -> &mut Self {
        self.u32(v.len() as u32 + 1);
        self.bytes.extend(v.bytes());
        self.u8(0)
    }

    pub fn octets(&mut self, v: &[u8]) -> &mut Self {
        self.u32(v.len() as u32);
        self.bytes.extend(v);
        self
    }

    pub fn header(&mut self, stamp: Stamp, frame: &str) -> &mut Self {
        let (sec, nanosec) = stamp.to_ros();
        self.u32(sec as u32).u32(nanosec).str(frame)
    }
}

/// A field of a cloud as it goes on the wire.
#[derive(Debug, Clone)]
pub struct Field {
    pub name: String,
    pub offset: u32,
    pub datatype: u8,
    pub count: u32,
}

/// A `sensor_msgs/PointCloud2` to write; every number can be made wrong before it is.
#[derive(Debug, Clone)]
pub struct Cloud {
    pub stamp: Stamp,
    pub frame: String,
    pub height: u32,
    pub width: u32,
    pub fields: Vec<Field>,
    pub is_bigendian: bool,
    pub point_step: u32,
    pub row_step: u32,
    pub data: Vec<u8>,
    pub cdr_big_endian: bool,
}

pub const SIX: [(&str, u8); 6] = [("x", 7), ("y", 7), ("z", 7), ("tx", 7), ("ty", 7), ("tz", 7)];

/// Bytes of a number of a PointField type.
pub fn size_of(datatype: u8) -> u32 {
    [1, 1, 2, 2, 4, 4, 4, 8].get(usize::from(datatype).wrapping_sub(1)).copied().unwrap_or(4)
}

fn number(value: f64, datatype: u8, big_endian: bool) -> Vec<u8> {
    let mut bytes = match datatype {
        1 => (value as i8).to_le_bytes().to_vec(),
        2 => (value as u8).to_le_bytes().to_vec(),
        3 => (value as i16).to_le_bytes().to_vec(),
        4 => (value as u16).to_le_bytes().to_vec(),
        5 => (value as i32).to_le_bytes().to_vec(),
        6 => (value as u32).to_le_bytes().to_vec(),
        8 => value.to_le_bytes().to_vec(),
        _ => (value as f32).to_le_bytes().to_vec(),
    };
    if big_endian {
        bytes.reverse();
    }
    bytes
}

impl Cloud {
    /// A cloud of one row whose points follow each other without padding. `rows` has one number
    /// per field.
    pub fn new(fields: &[(&str, u8)], rows: &[Vec<f64>]) -> Self {
        Self::with_layout(fields, rows, 0, 1, 0, false)
    }

    /// `point_padding` bytes come before each field, `height` rows, `row_padding` bytes after each.
    pub fn with_layout(
        fields: &[(&str, u8)],
        rows: &[Vec<f64>],
        point_padding: u32,
        height: u32,
        row_padding: u32,
        big_endian: bool,
    ) -> Self {
        let mut offset = 0;
        let described: Vec<Field> = fields
            .iter()
            .map(|(name, datatype)| {
                let at = offset + point_padding;
                offset = at + size_of(*datatype);
                Field { name: (*name).to_owned(), offset: at, datatype: *datatype, count: 1 }
            })
            .collect();
        let point_step = offset + point_padding;
        let width = rows.len() as u32 / height;
        let row_step = point_step * width + row_padding;
        let mut data = vec![0xAA; (row_step * height) as usize];
        for (i, row) in rows.iter().enumerate() {
            let start = (i as u32 / width.max(1)) * row_step + (i as u32 % width.max(1)) * point_step;
            for (field, value) in described.iter().zip(row) {
                let bytes = number(*value, field.datatype, big_endian);
                let at = (start + field.offset) as usize;
                data[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        Self {
            stamp: Stamp::new(100, 0),
            frame: "lidar".to_owned(),
            height,
            width,
            fields: described,
            is_bigendian: big_endian,
            point_step,
            row_step,
            data,
            cdr_big_endian: false,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut w = CdrWriter::new(self.cdr_big_endian);
        w.header(self.stamp, &self.frame).u32(self.height).u32(self.width).u32(self.fields.len() as u32);
        for field in &self.fields {
            w.str(&field.name).u32(field.offset).u8(field.datatype).u32(field.count);
        }
        w.u8(u8::from(self.is_bigendian)).u32(self.point_step).u32(self.row_step).octets(&self.data).u8(0);
        w.finish()
    }
}

/// A `sensor_msgs/CameraInfo` to write; every number can be made wrong before it is.
#[derive(Debug, Clone)]
pub struct CameraInfo {
    pub frame: String,
    pub height: u32,
    pub width: u32,
    pub model: String,
    pub d: Vec<f64>,
    pub k: [f64; 9],
    pub r: [f64; 9],
    pub p: [f64; 12],
    pub binning: [u32; 2],
    /// x, y, height, width
    pub roi: [u32; 4],
    pub cdr_big_endian: bool,
}

impl CameraInfo {
    /// A camera of 640 x 480 pixels, its raw image distorted, its rectified image another one.
    pub fn new() -> Self {
        Self {
            frame: "camera_optical".to_owned(),
            height: 480,
            width: 640,
            model: "plumb_bob".to_owned(),
            d: vec![-0.28, 0.09, 0.0012, -0.0007, -0.015],
            k: [612.5, 0.0, 331.25, 0.0, 608.75, 247.5, 0.0, 0.0, 1.0],
            r: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
            p: [500.0, 0.0, 320.0, 0.0, 0.0, 510.0, 240.0, 0.0, 0.0, 0.0, 1.0, 0.0],
            binning: [0; 2],
            roi: [0; 4],
            cdr_big_endian: false,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut w = CdrWriter::new(self.cdr_big_endian);
        w.header(Stamp::new(100, 0), &self.frame).u32(self.height).u32(self.width).str(&self.model);
        w.u32(self.d.len() as u32);
        for v in self.d.iter().chain(&self.k).chain(&self.r).chain(&self.p) {
            w.f64(*v);
        }
        for v in self.binning.iter().chain(&self.roi) {
            w.u32(*v);
        }
        w.u8(0);
        w.finish()
    }
}

/// Rows `x y z tx ty tz` of points well spread, the map shifted by `shift`.
pub fn honest_rows(n: usize, shift: [f64; 3]) -> Vec<Vec<f64>> {
    (0..n)
        .map(|i| {
            let t = i as f64;
            let p = [7.3 * (1.3 * t).sin(), 5.1 * (0.7 * t + 1.0).cos(), 1.7 * (2.1 * t).sin() + 0.3];
            p.into_iter().chain(p.into_iter().zip(shift).map(|(a, b)| a + b)).collect()
        })
        .collect()
}

/// A transform to write: parent, child, stamp, translation, quaternion x y z w.
pub type Transform<'a> = (&'a str, &'a str, Stamp, [f64; 3], [f64; 4]);

/// A `tf2_msgs/TFMessage`.
pub fn encode_transforms(transforms: &[Transform], big_endian: bool) -> Vec<u8> {
    let mut w = CdrWriter::new(big_endian);
    w.u32(transforms.len() as u32);
    for (parent, child, stamp, translation, rotation) in transforms {
        w.header(*stamp, parent).str(child);
        for v in translation.iter().chain(rotation) {
            w.f64(*v);
        }
    }
    w.finish()
}

/// Topic and bytes of the messages of a type in a bag of the shared test data; none if it is not
/// there.
pub fn recorded(bag: &str, schema: &str) -> Option<Vec<(String, Vec<u8>)>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data/bags").join(bag);
    let Ok(bytes) = std::fs::read(&path) else {
        println!("skipped: no data at {}", path.display());
        return None;
    };
    let stream = mcap::MessageStream::new(&bytes).expect("an MCAP file");
    let of_schema = stream.map(|m| m.expect("a message")).filter_map(|m| {
        let named = m.channel.schema.as_ref().is_some_and(|s| s.name == schema);
        named.then(|| (m.channel.topic.clone(), m.data.to_vec()))
    });
    Some(of_schema.collect())
}
