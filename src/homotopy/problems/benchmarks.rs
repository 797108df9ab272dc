//! Systems of the literature on polynomial systems, without parameters.

use super::{Counted, Problem};
use std::fmt::Write;

/// The system of a name.
pub(super) fn named(name: &str) -> Option<Problem> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let n: usize = name[stem.len()..].parse().ok()?;
    let (form, start, expected): (_, Option<&'static [u8]>, usize) = match (stem, n) {
        ("alea", 6) => (include_str!("alea6.yaml").into(), Some(include_bytes!("alea6.start")), 387),
        ("cyclic", 7) => (cyclic(7), Some(include_bytes!("cyclic7.start")), 924),
        ("cyclic", 2..=16) => (cyclic(n), None, 0),
        ("eco", 12) => (eco(12), Some(include_bytes!("eco12.start")), 1024),
        ("eco", 3..=20) => (eco(n), None, 1 << (n - 2)),
        ("katsura", 1..=20) => (katsura(n), None, 1 << n),
        _ => return None,
    };
    let form: String = form;
    let counted = if expected > 0 { Counted::Literature } else { Counted::Unknown };
    Some(Problem { name: name.into(), form: form.into(), start, expected, counted, scene: None })
}

fn form(name: &str, about: &str, unknowns: &str, equations: impl Iterator<Item = String>) -> String {
    let mut text = format!("name: {name}\nabout: {about}\nunknowns: [{unknowns}]\nequations:\n");
    for equation in equations {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  - {equation}");
    }
    text
}

/// Sums of products of neighbours on a ring of n, and the product of all is one.
fn cyclic(n: usize) -> String {
    let product = |from: usize, length: usize| {
        (0..length).map(|k| format!("x{}", (from + k) % n + 1)).collect::<Vec<_>>().join("*")
    };
    let sum = |length: usize| (0..n).map(|from| product(from, length)).collect::<Vec<_>>().join(" + ");
    let equations = (1..n).map(sum).chain([format!("{} - 1", product(0, n))]);
    form(&format!("cyclic{n}"), "Cyclic roots (Bjorck 1985).", &format!("x1..x{n}"), equations)
}

/// A distribution that is its own autocorrelation.
fn katsura(n: usize) -> String {
    let u = |i: isize| format!("u{}", i.unsigned_abs());
    let inside = |i: isize| i.unsigned_abs() <= n;
    let sum = |m: isize| {
        let range = -(n as isize)..=n as isize;
        let terms = range.filter(|l| inside(m - l)).map(|l| format!("{}*{}", u(l), u(m - l)));
        format!("{} - {}", terms.collect::<Vec<_>>().join(" + "), u(m))
    };
    let total = (1..=n as isize).fold("u0".to_owned(), |text, l| format!("{text} + 2*{}", u(l)));
    let equations = (0..n as isize).map(sum).chain([format!("{total} - 1")]);
    form(&format!("katsura{n}"), "Magnetism (Katsura 1990).", &format!("u0..u{n}"), equations)
}

/// A model of an economy.
fn eco(n: usize) -> String {
    let row = |k: usize| {
        let products = (1..n - k).map(|i| format!(" + x{i}*x{}", i + k));
        format!("(x{k}{})*x{n} - {k}", products.collect::<String>())
    };
    let all = (1..n).map(|i| format!("x{i} + ")).collect::<String>();
    let equations = (1..n).map(row).chain([format!("{all}1")]);
    form(&format!("eco{n}"), "Economics (Morgan 1987).", &format!("x1..x{n}"), equations)
}
