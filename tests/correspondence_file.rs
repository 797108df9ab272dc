//! The reader of correspondence files: formats, errors with their place, and that no input makes
//! it panic.

use flashreg::io::correspondence_file::CorrespondenceFile;
use flashreg::io::table::FileError;
use proptest::prelude::*;

fn read(bytes: impl AsRef<[u8]>) -> Result<CorrespondenceFile, FileError> {
    CorrespondenceFile::read(bytes.as_ref())
}

fn numbers(file: &CorrespondenceFile) -> Vec<[f64; 7]> {
    let numbers = |r: &flashreg::registration::Correspondence| {
        let (s, t) = (r.source, r.target);
        [s.x, s.y, s.z, t.x, t.y, t.z, f64::from(r.weight)]
    };
    file.rows.iter().map(numbers).collect()
}

/// An npy file as numpy writes it.
fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

const TWO: [[f64; 7]; 2] = [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.0], [-1.5, 0.0, 1e3, 0.25, 8.0, 9.0, 1.0]];

#[test]
fn spaces_tabs_commas_semicolons_and_comments_give_the_same_rows() {
    for text in [
        "1 2 3 4 5 6\n-1.5 0 1e3 .25 8 9\n",
        "1\t2\t3\t4\t5\t6\n\n-1.5\t0\t1e3\t.25\t8\t9",
        "1,2,3,4,5,6\r\n-1.5,0,1e3,.25,8,9\r\n",
        "# a comment\n1; 2; 3; 4; 5; 6 # the first\n-1.5;0;1e3;.25;8;9\n",
        "\u{feff}sx,sy,sz,tx,ty,tz\n1,2,3,4,5,6\n-1.5,0,1e3,.25,8,9\n",
        "tz ty tx z y x\n6 5 4 3 2 1\n9 8 .25 1e3 0 -1.5\n",
        "\"X\",\"Y\",\"Z\",\"note\",\"TX\",\"TY\",\"TZ\"\n1,2,3,wall,4,5,6\n-1.5,0,1e3,door,.25,8,9\n",
    ] {
        let file = read(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        assert_eq!(numbers(&file), TWO, "{text:?}");
        assert_eq!((file.total, file.numbers), (2, vec![0, 1]));
    }
}

#[test]
fn weights_and_identities_are_read() {
    let file = read("1 2 3 4 5 6 0.5\n").unwrap();
    assert_eq!(file.rows[0].weight, 0.5);
    let file = read("sx,sy,sz,tx,ty,tz,weight,id,sid\n1,2,3,4,5,6,2,7,-1\n").unwrap();
    assert_eq!((file.rows[0].weight, file.rows[0].target_id, file.rows[0].source_id), (2.0, Some(7), None));
}

#[test]
fn rows_that_are_not_finite_or_weigh_nothing_are_dropped_and_counted() {
    let text = "nan 2 3 4 5 6 1\n1 2 3 4 5 6 0\n1 2 3 4 5 6 1\n1 2 3 4 5 inf 1\n1 2 3 4 5 6 -1\n\
                1 2 3 4 5 6 nan\n1 2 3 4 5 6 1e-60\n";
    let file = read(text).unwrap();
    assert_eq!((file.total, file.rows.len(), file.numbers.clone()), (7, 1, vec![2]));
    assert_eq!((file.dropped.non_finite, file.dropped.weight), (2, 4));
}

#[test]
fn errors_name_line_and_column() {
    for (text, message) in [
        ("1 2 3 4 5 6\n1 2 x 4 5 6\n", "line 2, column 5: 'x' is not a number"),
        ("1,2,3,4,5,6\n1,2,,4,5,6\n", "line 2, column 5: '' is not a number"),
        ("1 2 3 4 5 6\n1 2 3 4 5\n", "line 2, column 1: 5 columns, 6 as in the first line needed"),
        ("1 2 3\n", "line 1, column 1: 3 columns, 6 or 7 needed: sx sy sz tx ty tz [weight]"),
        ("# c\nsx sy sz tx ty\n", "line 2, column 1: no numbers and no column named 'tz'"),
        ("sx sy sz tx ty tz sx\n", "line 1, column 19: column 'sx' twice"),
        ("", "no correspondences in it"),
        ("# nothing\n\n", "no correspondences in it"),
        ("sx sy sz tx ty tz\n", "no correspondences in it"),
    ] {
        assert_eq!(read(text).unwrap_err().to_string(), message, "{text:?}");
    }
    assert!(read(b"1 2 3 4 5 \xff6\n").unwrap_err().to_string().starts_with("line 1, column 11: not UTF-8"));
    assert!(read(vec![b'1'; 200_000]).unwrap_err().to_string().contains("longer than"));
}

#[test]
fn npy_of_both_types_orders_and_byte_orders_is_read() {
    let c: Vec<f64> = TWO.iter().flat_map(|r| r[..6].to_vec()).collect();
    let fortran: Vec<f64> = (0..6).flat_map(|i| [TWO[0][i], TWO[1][i]]).collect();
    let little = |v: &[f64]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    let single = |v: &[f64]| v.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect::<Vec<_>>();
    let big = |v: &[f64]| v.iter().flat_map(|x| x.to_be_bytes()).collect::<Vec<_>>();
    for bytes in [
        npy("<f8", false, "(2, 6)", &little(&c)),
        npy("<f8", true, "(2, 6)", &little(&fortran)),
        npy("<f4", false, "(2, 6)", &single(&c)),
        npy("<f4", true, "(2, 6)", &single(&fortran)),
        npy(">f8", false, "(2, 6)", &big(&c)),
    ] {
        assert_eq!(numbers(&read(bytes).unwrap()), TWO);
    }
    let weighted = npy("<f8", false, "(1, 7)", &little(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.5]));
    assert_eq!(read(weighted).unwrap().rows[0].weight, 0.5);
}

#[test]
fn npy_of_another_shape_or_type_or_length_is_refused() {
    let data = [0u8; 96];
    for (bytes, part) in [
        (npy("<f8", false, "(2, 5)", &data), "shape [2, 5]"),
        (npy("<f8", false, "(12,)", &data), "shape [12]"),
        (npy("<i8", false, "(2, 6)", &data), "float32 or float64 needed"),
        (npy("<f8", false, "(3, 6)", &data), "npy:"),
        (npy("<f8", false, "(0, 6)", &[]), "no correspondences"),
        (npy("<f8", false, "(4611686018427387904, 6)", &data), "rows"),
        (npy("<f8", false, "(18446744073709551615, 18446744073709551615, 6)", &data), "shape"),
        (b"\x93NUMPY".to_vec(), "npy:"),
    ] {
        let message = read(&bytes).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[-0-9.eE+nNaAiIfF,; \t\r\n#sxtyz\"µ]{0,300}") {
        let _ = read(text);
    }

    #[test]
    fn no_npy_header_makes_it_panic(
        descr in "[<>|=]?[a-zA-Z]{0,2}[0-9]{0,3}", fortran: bool,
        shape in proptest::collection::vec(any::<u64>(), 0..4), data in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let shape: String = shape.iter().map(|n| format!("{n},")).collect();
        let _ = read(npy(&descr, fortran, &format!("({shape})"), &data));
    }

    #[test]
    fn no_damaged_npy_makes_it_panic(at in 0usize..224, byte: u8) {
        let mut bytes = npy("<f8", false, "(2, 6)", &[0; 96]);
        if let Some(b) = bytes.get_mut(at) {
            *b = byte;
        }
        let _ = read(bytes);
    }

    #[test]
    fn text_gives_back_what_was_written(rows in proptest::collection::vec(proptest::array::uniform6(-1e6f64..1e6), 1..20)) {
        let text: String = rows.iter().map(|r| r.iter().map(|v| format!("{v:?} ")).collect::<String>() + "\n").collect();
        let read: Vec<[f64; 6]> =
            numbers(&read(text).unwrap()).iter().map(|r| std::array::from_fn(|i| r[i])).collect();
        prop_assert_eq!(read, rows);
    }
}
