//! Roots checked, and refined, by another way than that which finds them.

use super::system::{distance, System};
use nalgebra::{Complex, DMatrix, DVector};

/// The equations and their derivatives, column by column, computed from the graph: no part of what
/// tracks roots.
fn equations(
    system: &System,
    root: &[Complex<f64>],
    parameters: &[Complex<f64>],
) -> (Vec<Complex<f64>>, DMatrix<Complex<f64>>) {
    let n = root.len();
    let mut graph = system.graph.clone();
    let one = graph.real(1.0);
    let mut outputs = system.equations.clone();
    for j in 0..n {
        outputs.extend(graph.derivatives(&system.equations, |s| (s as usize == j).then_some(one)));
    }
    let values = graph.evaluate(&outputs, &[root, parameters].concat());
    (values[..n].to_vec(), DMatrix::from_column_slice(n, n, &values[n..]))
}

/// A step of Newton's method: to where, and how far relative to the coordinates; `None` if it cannot tell.
fn step(
    system: &System,
    root: &[Complex<f64>],
    parameters: &[Complex<f64>],
) -> Option<(Vec<Complex<f64>>, f64)> {
    let (h, jacobian) = equations(system, root, parameters);
    let step = jacobian.lu().solve(&DVector::from_vec(h))?;
    let moved: Vec<_> = root.iter().zip(step.iter()).map(|(x, d)| x - d).collect();
    let far = distance(root, &moved);
    Some((moved, far))
}

/// A root is moved by less.
pub const CORRECTION: f64 = 1e-6;

/// How far Newton's method moves a point, relative to its coordinates: an estimate of the error of a
/// root. Infinite if it cannot tell.
pub fn correction(system: &System, root: &[Complex<f64>], parameters: &[Complex<f64>]) -> f64 {
    step(system, root, parameters).map_or(f64::INFINITY, |(_, far)| far)
}

/// Newton's method leaves the point where it is.
pub fn is_root(system: &System, root: &[Complex<f64>], parameters: &[Complex<f64>]) -> bool {
    correction(system, root, parameters) < CORRECTION
}

/// Where Newton's method goes from a point.
pub fn newton(
    system: &System,
    mut root: Vec<Complex<f64>>,
    parameters: &[Complex<f64>],
) -> Option<Vec<Complex<f64>>> {
    for _ in 0..50 {
        let (moved, far) = step(system, &root, parameters)?;
        root = moved;
        if far < 1e-12 {
            return Some(root);
        }
    }
    is_root(system, &root, parameters).then_some(root)
}
