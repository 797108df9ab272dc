//! PCD and PLY files: every form is read exactly, every broken one is refused by name.
//!
//! `FLASHREG_CASES` sets how many damaged files are tried (default 2000). Files of other programs are read from
//! ../shared/data/clouds (or $FLASHREG_DATA/clouds) if they are there.

use flashreg::geometry::Point;
use flashreg::io::cloud_files::{parse, read, write_pcd, CloudError, CloudFile};
use ply_rs_bw::ply::{
    Addable, DefaultElement, ElementDef, Encoding, Ply, Property, PropertyDef, PropertyType, ScalarType,
};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn points(rows: &[[f64; 3]]) -> Vec<Point> {
    rows.iter().map(|[x, y, z]| Point::new(*x, *y, *z)).collect()
}

/// A header of version 0.7 for so many points.
fn header(fields: &str, size: &str, kind: &str, count: &str, points: usize, data: &str) -> Vec<u8> {
    format!(
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\nFIELDS {fields}\nSIZE {size}\nTYPE {kind}\n\
         COUNT {count}\nWIDTH {points}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {points}\nDATA {data}\n"
    )
    .into_bytes()
}

fn xyz(points: usize, data: &str) -> Vec<u8> {
    header("x y z", "4 4 4", "F F F", "1 1 1", points, data)
}

fn good(file: &[u8]) -> CloudFile {
    parse(file)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&file[..file.len().min(400)])))
}

fn refused(file: &[u8]) -> String {
    parse(file).expect_err("refused").to_string()
}

#[test]
fn ascii_pcd_keeps_every_digit() {
    let text = b"intensity_is_ignored 431234.5678901234 5361234.000000001 -1e-3\r\n\n7 1 nan 3\n8 -1 +2.5 .5";
    let file = [header("i x y z", "4 8 8 8", "U F F F", "1 1 1 1", 3, "ascii"), text.to_vec()].concat();
    let cloud = good(&file);
    assert_eq!(cloud.points, points(&[[431234.5678901234, 5361234.000000001, -1e-3], [-1.0, 2.5, 0.5]]));
    assert_eq!((cloud.total, cloud.non_finite), (3, 1));
    // Several numbers in a field before.
    let file =
        [header("h x y z", "4 4 4 4", "F F F F", "3 1 1 1", 1, "ascii"), b"9 9 9 1 2 3\n".to_vec()].concat();
    assert_eq!(good(&file).points, points(&[[1.0, 2.0, 3.0]]));
}

#[test]
fn every_type_of_numbers_is_read() {
    for (kind, size, bytes, value) in [
        ("F", 4, 1.5f32.to_le_bytes().to_vec(), 1.5),
        ("F", 8, 431234.5678901234f64.to_le_bytes().to_vec(), 431234.5678901234),
        ("I", 1, vec![0xfe], -2.0),
        ("U", 1, vec![0xfe], 254.0),
        ("I", 2, (-300i16).to_le_bytes().to_vec(), -300.0),
        ("U", 2, 65535u16.to_le_bytes().to_vec(), 65535.0),
        ("I", 4, (-70000i32).to_le_bytes().to_vec(), -70000.0),
        ("U", 4, u32::MAX.to_le_bytes().to_vec(), 4294967295.0),
    ] {
        // z before x, two numbers of padding between, y in float32.
        let header = header(
            "z _ x y",
            &format!("{size} 2 {size} 4"),
            &format!("{kind} U {kind} F"),
            "1 2 1 1",
            2,
            "binary",
        );
        let point = [bytes.clone(), vec![1, 2, 3, 4], bytes, 0.25f32.to_le_bytes().to_vec()].concat();
        let cloud = good(&[header, point.clone(), point, b"what follows is not looked at".to_vec()].concat());
        assert_eq!(cloud.points, points(&[[value, 0.25, value]; 2]), "{kind}{size}");
    }
    for (kind, size) in [("I", 8), ("U", 8), ("F", 2), ("F", 1)] {
        let header = header("x y z", &format!("{size} 4 4"), &format!("{kind} F F"), "1 1 1", 1, "binary");
        assert!(refused(&[header, vec![0; 64]].concat()).starts_with("bad_field:x"), "{kind}{size}");
    }
}

#[test]
fn versions_and_absent_entries() {
    let body = b"1 2 3\n4 5 6\n";
    for version in [".5", "0.5", ".6", "0.6", ".7", "0.7"] {
        let head = format!("VERSION {version}\nFIELDS x y z\nWIDTH 2\nHEIGHT 1\nPOINTS 2\nDATA ascii\n");
        assert_eq!(good(&[head.as_bytes(), body].concat()).points.len(), 2, "{version}");
    }
    for head in ["COLUMNS x y z\nPOINTS 2\nDATA ascii\n", "FIELDS x y z\nWIDTH 1\nHEIGHT 2\nDATA ascii\n"] {
        assert_eq!(good(&[head.as_bytes(), body].concat()).points.len(), 2, "{head}");
    }
    assert_eq!(
        refused(b"VERSION .4\nFIELDS x y z\nPOINTS 2\nDATA ascii\n1 2 3\n4 5 6\n"),
        "unsupported_version: .4"
    );
}

#[test]
fn broken_pcd_files_are_refused_by_name() {
    let with = |from: &str, to: &str| {
        let text = String::from_utf8(xyz(2, "ascii")).expect("text").replace(from, to) + "1 2 3\n4 5 6\n";
        refused(text.as_bytes())
    };
    for (from, to, expected) in [
        ("FIELDS x y z", "FIELDS x y u", "missing_field:z"),
        ("FIELDS x y z", "FIELDS", "bad_header: line 4: 3 values for 0 fields"),
        ("SIZE 4 4 4", "SIZE 4 4", "bad_header: line 4: 2 values for 3 fields"),
        ("SIZE 4 4 4", "SIZE 4 4 -4", "bad_header: line 4: '-4'"),
        ("TYPE F F F", "TYPE F F X", "bad_header: line 5: 'X'"),
        ("COUNT 1 1 1", "COUNT 1 1 2", "bad_field:z: COUNT 2"),
        (
            "COUNT 1 1 1",
            "COUNT 1 1 18446744073709551615",
            "bad_header: line 11: the size of a point is absurd",
        ),
        ("HEIGHT 1", "HEIGHT 2", "bad_header: line 11: POINTS 2, but WIDTH x HEIGHT is 4"),
        (
            "WIDTH 2\nHEIGHT 1",
            "WIDTH 4294967296\nHEIGHT 4294967296",
            "bad_header: line 11: WIDTH x HEIGHT is absurd",
        ),
        (
            "WIDTH 2\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS 2\n",
            "",
            "bad_header: line 7: neither POINTS nor WIDTH",
        ),
        ("WIDTH 2", "WIDTH two", "bad_header: line 7: WIDTH 'two'"),
        ("DATA ascii", "DATA gzip", "bad_header: line 11: DATA 'gzip'"),
        ("HEIGHT", "HIGHT", "bad_header: line 8: 'HIGHT' is no entry of a PCD header"),
        ("WIDTH 2\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS 2", "POINTS 3", "truncated: 2 of 3 points"),
        (
            "WIDTH 2\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS 2",
            "POINTS 18446744073709551615",
            "truncated: 2 of 18446744073709551615 points",
        ),
        ("2\nDATA ascii\n", "2\nDATA ascii\n1 2\n", "bad_row: line 12: 2 numbers where the header has 3"),
        ("2\nDATA ascii\n", "2\nDATA ascii\n1 2 x\n", "bad_row: line 12: 'x' is no number"),
        ("WIDTH 2\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS 2", "POINTS 0", "empty: no usable point of 0"),
    ] {
        assert_eq!(with(from, to), expected);
    }
    assert_eq!(refused(b""), "not_a_cloud: neither a PCD nor a PLY file");
    assert_eq!(refused(b"\x89PNG\r\n"), "not_a_cloud: neither a PCD nor a PLY file");
    assert_eq!(refused(b"# just a comment\n"), "bad_header: line 1: it ends before DATA");
    assert!(refused(&b"# long\n".repeat(20_000)).starts_with("header_too_long"));
    let binary = [xyz(3, "binary"), vec![0; 35]].concat();
    assert_eq!(refused(&binary), "truncated: 2 of 3 points");
    assert_eq!(refused(&xyz(usize::MAX / 2, "binary")), format!("truncated: 0 of {} points", usize::MAX / 2));
    let nan = [xyz(2, "binary"), [f32::NAN.to_le_bytes(); 6].concat()].concat();
    assert_eq!(refused(&nan), "empty: no usable point of 2");
}

/// A compressed file with these bytes for so many unpacked ones.
fn compressed(points: usize, packed: &[u8], unpacked: usize) -> Vec<u8> {
    let sizes = [packed.len() as u32, unpacked as u32].map(u32::to_le_bytes).concat();
    [xyz(points, "binary_compressed"), sizes, packed.to_vec()].concat()
}

#[test]
fn compressed_pcd_is_unpacked_by_axis() {
    let numbers = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(f32::to_le_bytes).concat();
    let packed = [vec![23], numbers].concat();
    assert_eq!(good(&compressed(2, &packed, 24)).points, points(&[[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]));
    // Four bytes, and 264 + 32 copies of them, which overlap.
    let packed = [vec![3], 1.5f32.to_le_bytes().to_vec(), vec![0xe0, 255, 3, 0xe0, 23, 3]].concat();
    let cloud = good(&compressed(25, &packed, 300));
    assert_eq!(cloud.points, points(&[[1.5, 1.5, 1.5]; 25]));
    for (points, packed, unpacked, expected) in [
        (2, vec![23, 0, 0], 24, "bad_compression: it ends within a run of bytes"),
        (2, vec![0, 0, 32], 24, "bad_compression: it ends within a distance"),
        (2, vec![0, 0, 0xe0], 24, "bad_compression: it ends within a distance"),
        (2, vec![0, 0, 32, 9], 24, "bad_compression: a distance reaches before the start"),
        (2, vec![0, 0, 0xe0, 255, 0], 24, "bad_compression: more than 24 bytes"),
        (2, vec![0, 0], 24, "bad_compression: 1 of 24 bytes"),
        (2, vec![0, 0], 25, "bad_compression: 25 bytes for 2 points of 12"),
        (100_000_000, vec![0, 0], 1_200_000_000, "bad_compression: 2 bytes cannot hold 1200000000"),
    ] {
        assert_eq!(refused(&compressed(points, &packed, unpacked)), expected);
    }
    let cut = compressed(2, &[0; 20], 24);
    assert_eq!(refused(&cut[..cut.len() - 1]), "truncated: 19 of 20 bytes of compressed data");
    assert_eq!(refused(&xyz(2, "binary_compressed")), "truncated: 0 of 8 bytes of compressed data");
}

const PLY: &str = "ply\nformat ascii 1.0\ncomment x\nelement camera 1\nproperty list uchar int a\nelement vertex 2\n\
    property float y\nproperty uchar red\nproperty double x\nproperty float z\nelement face 1\n\
    property list uchar int vertex_indices\nend_header\n3 1 2 3\n2 255 431234.5678901234 3\nnan 0 1 1\n3 0 1 1\n";

#[test]
fn ascii_ply_is_read_and_broken_ones_are_refused() {
    let cloud = good(PLY.as_bytes());
    assert_eq!(cloud.points, points(&[[431234.5678901234, 2.0, 3.0]]));
    assert_eq!((cloud.total, cloud.non_finite), (2, 1));
    assert_eq!(good(PLY.replace('\n', "\r\n").as_bytes()), cloud);
    for (from, to, expected) in [
        ("property float z\n", "", "missing_field:z"),
        ("element vertex", "element vortex", "missing_field:vertex"),
        ("property float z", "property list uchar float z", "bad_field:z: a list"),
        ("property uchar red", "property list uchar uchar red", "bad_field:vertex: a list in a text file"),
        ("property uchar red", "property octet red", "bad_header: line 8: 'octet' is no type"),
        ("ascii 1.0", "ascii 2.0", "unsupported_version: 2.0"),
        ("ascii", "morse", "bad_header: line 2: format 'morse'"),
        ("format ascii 1.0\n", "", "bad_header: line 12: no format"),
        ("vertex 2", "vertex two", "bad_header: line 6: count 'two'"),
        ("vertex 2", "vertex 0", "empty: no usable point of 0"),
        // The row of the face is taken for a vertex, after which there are no more.
        ("vertex 2", "vertex 18446744073709551615", "truncated: 3 of 18446744073709551615 points"),
        ("camera 1", "camera 18446744073709551615", "truncated: 0 of 2 points"),
        ("end_header", "end", "bad_header: line 13: 'end'"),
        ("\nnan 0 1 1", "\nnan 0 1", "bad_row: line 16: 3 numbers where the header has 4"),
    ] {
        let text = PLY.replacen(from, to, 1);
        assert_eq!(refused(text.as_bytes()), expected);
    }
}

/// The same vertices through another program's writer.
fn ply(encoding: Encoding, with_list: bool, rows: &[[f64; 3]]) -> Vec<u8> {
    let mut ply = Ply::<DefaultElement>::new();
    ply.header.encoding = encoding;
    let mut element = ElementDef::new("vertex".into());
    let mut add = |name: &str, kind| element.properties.add(PropertyDef::new(name.into(), kind));
    if with_list {
        add("list", PropertyType::List(ScalarType::UShort, ScalarType::Int));
    }
    add("x", PropertyType::Scalar(ScalarType::Double));
    add("y", PropertyType::Scalar(ScalarType::Double));
    add("label", PropertyType::Scalar(ScalarType::Short));
    add("z", PropertyType::Scalar(ScalarType::Double));
    ply.header.elements.add(element);
    let vertex = |row: &[f64; 3]| {
        let mut vertex = DefaultElement::new();
        if with_list {
            vertex.insert("list".into(), Property::ListInt(vec![7; row[0].abs() as usize % 4]));
        }
        for (name, value) in ["x", "y", "z"].into_iter().zip(row) {
            vertex.insert(name.into(), Property::Double(*value));
        }
        vertex.insert("label".into(), Property::Short(-5));
        vertex
    };
    ply.payload.insert("vertex".into(), rows.iter().map(vertex).collect());
    let mut out = Vec::new();
    ply_rs_bw::writer::Writer::new().write_ply(&mut out, &mut ply).expect("written");
    out
}

#[test]
fn ply_of_another_program_is_read_in_either_byte_order() {
    let rows: Vec<[f64; 3]> =
        (0..100).map(f64::from).map(|i| [431000.25 + i, 5361000.0 + 1.0 / (i + 1.0), -i * 0.1]).collect();
    for encoding in [Encoding::Ascii, Encoding::BinaryLittleEndian, Encoding::BinaryBigEndian] {
        for with_list in [false, true] {
            if with_list && encoding == Encoding::Ascii {
                continue;
            }
            let file = ply(encoding, with_list, &rows);
            assert_eq!(good(&file).points, points(&rows), "{encoding:?} {with_list}");
            let short = parse(&file[..file.len() - 7]).expect_err("cut");
            assert!(
                matches!(short, CloudError::Truncated { got: 99, need: 100, .. } | CloudError::BadRow { .. }),
                "{short}"
            );
        }
    }
}

/// What the other program has read.
fn xyz_of(point: &pcd_rs::DynRecord) -> [f64; 3] {
    let narrow = || point.to_xyz::<f32>().map(|xyz| xyz.map(f64::from));
    point.to_xyz::<f64>().or_else(narrow).expect("x y z")
}

#[test]
fn what_is_written_is_read_by_others_and_exactly_by_us() {
    let near: Vec<Point> = (0..1000).map(f64::from).map(|i| Point::new(i * 0.5, -i * 0.25, 4095.0)).collect();
    let far: Vec<Point> = near.iter().map(|p| p + nalgebra::Vector3::new(431000.1, 5361000.3, 0.7)).collect();
    for (all, size) in [(&near, 4), (&far, 8)] {
        let mut file = Vec::new();
        write_pcd(&mut file, all).expect("written");
        assert_eq!(file.len() - xyz(1000, "binary").len(), 3000 * size);
        assert_eq!(good(&file).points, *all);
        let reader = pcd_rs::DynReader::from_bytes(&file).expect("a PCD");
        for (theirs, ours) in reader.zip(all) {
            assert_eq!(xyz_of(&theirs.expect("a point")), [ours.x, ours.y, ours.z]);
        }
    }
}

#[test]
fn compressed_pcd_of_another_program_is_read() {
    use pcd_rs::{DataKind, DynRecord, DynWriter, Field, FieldDef, Schema, ValueKind, WriterInit};
    let rows: Vec<[f64; 3]> =
        (0..5000).map(f64::from).map(|i| [431000.0 + (i % 70.0), 0.1 * i, -1.0]).collect();
    let field = |name: &str, kind, count| FieldDef { name: name.into(), kind, count };
    let schema: Schema = [
        field("ring", ValueKind::U16, 1),
        field("x", ValueKind::F64, 1),
        field("y", ValueKind::F64, 1),
        field("normal", ValueKind::F32, 3),
        field("z", ValueKind::F64, 1),
    ]
    .into_iter()
    .collect();
    let mut out = std::io::Cursor::new(Vec::new());
    let init = WriterInit {
        width: rows.len() as u64,
        height: 1,
        viewpoint: Default::default(),
        data_kind: DataKind::BinaryCompressed,
        schema: Some(schema),
        version: None,
    };
    let mut writer: DynWriter<_> = init.build_from_writer(&mut out).expect("a writer");
    for [x, y, z] in &rows {
        let fields = vec![
            Field::U16(vec![3]),
            Field::F64(vec![*x]),
            Field::F64(vec![*y]),
            Field::F32(vec![0.0, 0.0, 1.0]),
            Field::F64(vec![*z]),
        ];
        writer.push(&DynRecord(fields)).expect("pushed");
    }
    writer.finish().expect("finished");
    assert_eq!(good(&out.into_inner()).points, points(&rows));
}

fn data() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    std::env::var_os("FLASHREG_DATA").map_or_else(beside, PathBuf::from).join("clouds/pcd-rs")
}

#[test]
fn files_of_other_programs_are_read_or_refused_rightly() {
    if !data().is_dir() {
        println!("skipped: no data");
        return;
    }
    for (name, expected) in [
        ("ascii", Ok((213, 0))),
        ("binary", Ok((28944, 0))),
        ("corrupt_compressed", Err("bad_compression")),
        ("empty_compressed", Err("empty")),
        ("empty_compressed_debug", Err("empty")),
        ("highly_compressed", Ok((1000, 0))),
        ("highly_uncompressed", Ok((1000, 0))),
        ("large_compressed", Ok((10000, 0))),
        ("mixed_types_compressed", Err("missing_field:z")),
        ("output_binary", Ok((3, 0))),
        ("output_compressed", Ok((3, 0))),
        ("single_compressed", Ok((1, 0))),
        ("test_unsupported_version", Err("unsupported_version")),
        ("test_v05_ascii", Ok((2, 0))),
        ("test_v05_no_viewpoint", Err("missing_field:y")),
        ("test_v06_binary", Ok((1, 0))),
        ("test_v06_mixed_types", Err("missing_field:x")),
        ("test_v5_compressed", Err("truncated")),
        ("test_v6_compressed", Err("truncated")),
    ] {
        let path = data().join(name).with_extension("pcd");
        match (read(&path), expected) {
            (Ok(cloud), Ok(counts)) => {
                assert_eq!((cloud.total, cloud.non_finite), counts, "{name}");
                let theirs: Vec<[f64; 3]> = pcd_rs::DynReader::open(&path)
                    .expect("a PCD")
                    .map(|point| xyz_of(&point.expect("a point")))
                    .collect();
                let theirs: Vec<Point> =
                    points(&theirs).into_iter().filter(|p| p.iter().all(|v| v.is_finite())).collect();
                // They read text as float32.
                let worst = cloud.points.iter().zip(&theirs).map(|(a, b)| (a - b).norm()).fold(0.0, f64::max);
                assert!(theirs.len() == cloud.points.len() && worst <= 1e-6, "{name}: {worst}");
            }
            (Err(error), Err(word)) => assert!(error.to_string().starts_with(word), "{name}: {error}"),
            (got, expected) => panic!("{name}: {got:?}, not {expected:?}"),
        }
    }
    assert_eq!(
        read(&data().join("highly_compressed.pcd")).expect("read").points,
        read(&data().join("highly_uncompressed.pcd")).expect("read").points
    );
}

fn cases() -> u32 {
    std::env::var("FLASHREG_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(2000)
}

/// A small file of each kind.
fn any_file() -> impl Strategy<Value = Vec<u8>> {
    let rows = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]];
    let mut binary = Vec::new();
    write_pcd(&mut binary, &points(&rows)).expect("written");
    let numbers = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(f32::to_le_bytes).concat();
    let packed = compressed(4, &[vec![23], numbers, vec![0xe0, 15, 3]].concat(), 48);
    assert!(parse(&packed).is_ok());
    proptest::sample::select(vec![
        binary,
        [xyz(3, "ascii"), b"1 2 3\n4 5 6\n7 8 9\n".to_vec()].concat(),
        packed,
        PLY.as_bytes().to_vec(),
        ply(Encoding::BinaryLittleEndian, false, &rows),
        ply(Encoding::BinaryBigEndian, true, &rows),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_makes_it_panic(
        file in any_file(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        digits in proptest::collection::vec((any::<prop::sample::Index>(), b'0'..=b'9'), 0..3),
        cut in any::<prop::sample::Index>(), is_cut: bool,
    ) {
        let mut file = file;
        for (at, byte) in flips {
            let at = at.index(file.len());
            file[at] = byte;
        }
        // Digits in place of digits: absurd sizes in sound headers.
        for (at, digit) in digits {
            let places: Vec<usize> = (0..file.len()).filter(|i| file[*i].is_ascii_digit()).collect();
            if !places.is_empty() {
                let at = places[at.index(places.len())];
                file.splice(at..at + 1, [digit; 9]);
            }
        }
        if is_cut {
            file.truncate(cut.index(file.len() + 1));
        }
        if let Ok(cloud) = parse(&file) {
            prop_assert!(!cloud.points.is_empty());
            prop_assert_eq!(cloud.total, cloud.points.len() as u64 + cloud.non_finite);
            prop_assert!(cloud.points.iter().all(|p| p.iter().all(|v| v.is_finite())));
            // No more than a small multiple of the file.
            prop_assert!(cloud.points.capacity() <= 100 * file.len());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(
        start in proptest::sample::select(vec!["", "ply\n", "# .PCD\n", "VERSION 0.7\nFIELDS x y z\n"]),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = parse(&[start.as_bytes(), &bytes].concat());
    }
}
