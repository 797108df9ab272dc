//! The symmetries of a system as a header of the kernels.

use crate::homotopy::graph::{Graph, Id, Node};
use crate::homotopy::system::{distance, System, MOST_IMAGES};
use nalgebra::Complex;
use std::fmt::Write;

/// Expressions for the images of a root under all symmetries and what they generate, itself first.
fn images(system: &System) -> (Graph, Vec<Vec<Id>>) {
    let n = system.unknowns.len();
    let mut graph = Graph::default();
    let root = (0..n as u32).map(|i| graph.symbol(i)).collect();
    // Images that differ at this point are different ones.
    let point = |i: usize| {
        let angle = 1.0 + 2.4 * i as f64;
        Complex::new(libm::sin(angle), libm::cos(1.3 * angle))
    };
    let mut found: Vec<(Vec<Id>, Vec<Complex<f64>>)> = vec![(root, (0..n).map(point).collect())];
    let nothing = graph.real(f64::NAN);
    let mut next = 0;
    while next < found.len() && found.len() < MOST_IMAGES {
        for symmetry in &system.symmetries {
            let (root, point) = &found[next];
            let image = system.graph.evaluate(symmetry, point);
            let finite = image.iter().all(|v| v.re.is_finite() && v.im.is_finite());
            if finite && found.iter().all(|(_, known)| distance(known, &image) > 1e-7) {
                let symbol = |s: u32| root.get(s as usize).copied().unwrap_or(nothing);
                let copies = system.graph.replaced(&mut graph, symbol);
                found.push((symmetry.iter().map(|id| copies[id.index()]).collect(), image));
            }
        }
        next += 1;
    }
    (graph, found.into_iter().map(|(ids, _)| ids).collect())
}

/// A function for the images, and how many there are; `lanes`: threads that tell roots apart.
pub fn header(system: &System, lanes: usize) -> (String, usize) {
    let (graph, images) = images(system);
    let mut text = format!("constexpr int IMAGES = {}, MEET_LANES = {lanes};\n", images.len());
    text += "__device__ inline void image(u32 which, const Z* x, Z* y) {\n    switch (which) {\n";
    // Writing to a string does not fail.
    for (which, outputs) in images.iter().enumerate().skip(1) {
        let _ = writeln!(text, "    case {which}: {{");
        let needed = graph.needed(outputs);
        for (i, node) in graph.nodes().iter().enumerate().filter(|(i, _)| needed[*i]) {
            let name = |id: Id| format!("v{}", id.index());
            let value = match *node {
                Node::Constant(re, im) => format!("Z{{{:?}, {:?}}}", f64::from_bits(re), f64::from_bits(im)),
                Node::Symbol(s) => format!("x[{s}]"),
                Node::Add(a, b) => format!("plus({}, {})", name(a), name(b)),
                Node::Sub(a, b) => format!("minus({}, {})", name(a), name(b)),
                Node::Mul(a, b) => format!("product({}, {})", name(a), name(b)),
                Node::Div(a, b) => format!("quotient({}, {})", name(a), name(b)),
                Node::Sqrt(a) => format!("square_root({})", name(a)),
            };
            let _ = writeln!(text, "        const Z v{i} = {value};");
        }
        for (i, id) in outputs.iter().enumerate() {
            let _ = writeln!(text, "        y[{i}] = v{};", id.index());
        }
        text += "        return;\n    }\n";
    }
    text += "    }\n    for (int i = 0; i < N; i++) y[i] = x[i];\n}\n";
    (text, images.len())
}
