//! Roots checked, and refined, by another way than that which finds them: equations and derivatives come
//! from the graph, the equations with twice the digits, so that roots are as exact as their coordinates
//! can be told, however badly conditioned they are.

use super::graph::{Graph, Id};
use super::system::{distance, largest, magnitudes, System};
use super::track::CONDITION;
use super::twice;
use nalgebra::{Complex, DMatrix, DVector};

/// A root is moved by less.
pub const CORRECTION: f64 = 1e-6;

/// Newton's method for the roots of a system.
#[derive(Debug, Clone)]
pub struct Newton {
    graph: Graph,
    equations: Vec<Id>,
    /// Of the equations, by unknown after unknown.
    derivatives: Vec<Id>,
}

impl Newton {
    /// For a system.
    pub fn new(system: &System) -> Self {
        let mut graph = system.graph.clone();
        let one = graph.real(1.0);
        let derivatives = (0..system.equations.len())
            .flat_map(|j| graph.derivatives(&system.equations, |s| (s as usize == j).then_some(one)))
            .collect();
        Self { graph, equations: system.equations.clone(), derivatives }
    }

    /// A step: to where, and how far relative to the coordinates; `None` if it cannot tell.
    fn step(&self, root: &[Complex<f64>], parameters: &[Complex<f64>]) -> Option<(Vec<Complex<f64>>, f64)> {
        let symbols = [root, parameters].concat();
        let h = twice::evaluate(&self.graph, &self.equations, &symbols);
        let step = self.jacobian(&symbols).lu().solve(&DVector::from_vec(h))?;
        let moved: Vec<_> = root.iter().zip(step.iter()).map(|(x, d)| x - d).collect();
        let far = distance(root, &moved);
        Some((moved, far))
    }

    /// Derivatives of the equations, a row each, by the unknowns.
    fn jacobian(&self, symbols: &[Complex<f64>]) -> DMatrix<Complex<f64>> {
        let n = self.equations.len();
        DMatrix::from_vec(n, n, self.graph.evaluate(&self.derivatives, symbols))
    }

    /// How much relative errors of the terms of the equations may grow in the coordinates of a point, at
    /// most; infinite where derivatives are singular.
    pub fn condition(&self, root: &[Complex<f64>], parameters: &[Complex<f64>]) -> f64 {
        let jacobian = self.jacobian(&[root, parameters].concat());
        let sizes = DVector::from_iterator(root.len(), magnitudes(root));
        let terms = jacobian.map(|d| d.norm()) * &sizes;
        let Some(inverse) = jacobian.try_inverse() else { return f64::INFINITY };
        let growth = (inverse.map(|d| d.norm()) * terms).component_div(&sizes);
        largest(growth.iter().copied())
    }

    /// How far a step moves a point, relative to its coordinates: an estimate of the error of a root.
    /// Infinite if it cannot tell.
    pub fn correction(&self, root: &[Complex<f64>], parameters: &[Complex<f64>]) -> f64 {
        self.step(root, parameters).map_or(f64::INFINITY, |(_, far)| far)
    }

    /// The regular root to which a point is close: steps that become ten times smaller each, from less
    /// than `far` on. `None` if there is none.
    pub fn sharpen(
        &self,
        root: &[Complex<f64>],
        parameters: &[Complex<f64>],
        far: f64,
    ) -> Option<Vec<Complex<f64>>> {
        let (mut root, mut limit) = (root.to_vec(), far);
        loop {
            let (moved, far) = self.step(&root, parameters).filter(|(_, far)| *far < limit)?;
            root = moved;
            if far < 1e-12 {
                // Newton's method comes to a curve of roots as fast.
                return (self.condition(&root, parameters) < CONDITION).then_some(root);
            }
            limit = 0.1 * far;
        }
    }

    /// Where Newton's method goes from a point.
    pub fn run(&self, mut root: Vec<Complex<f64>>, parameters: &[Complex<f64>]) -> Option<Vec<Complex<f64>>> {
        for _ in 0..50 {
            let (moved, far) = self.step(&root, parameters)?;
            root = moved;
            if far < 1e-12 {
                return Some(root);
            }
        }
        (self.correction(&root, parameters) < CORRECTION).then_some(root)
    }
}

/// Newton's method leaves the point where it is.
pub fn is_root(system: &System, root: &[Complex<f64>], parameters: &[Complex<f64>]) -> bool {
    Newton::new(system).correction(root, parameters) < CORRECTION
}
