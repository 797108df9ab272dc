//! Roots checked, and refined, by another way than that which finds them: equations and derivatives come
//! from the graph, the equations with twice the digits, so that roots are as exact as their coordinates
//! can be told, however badly conditioned they are.

use super::graph::{Graph, Id};
use super::system::{distance, System};
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
        let n = root.len();
        let symbols = [root, parameters].concat();
        let h = twice::evaluate(&self.graph, &self.equations, &symbols);
        let jacobian = DMatrix::from_vec(n, n, self.graph.evaluate(&self.derivatives, &symbols));
        let step = jacobian.lu().solve(&DVector::from_vec(h))?;
        let moved: Vec<_> = root.iter().zip(step.iter()).map(|(x, d)| x - d).collect();
        let far = distance(root, &moved);
        Some((moved, far))
    }

    /// How far a step moves a point, relative to its coordinates: an estimate of the error of a root.
    /// Infinite if it cannot tell.
    pub fn correction(&self, root: &[Complex<f64>], parameters: &[Complex<f64>]) -> f64 {
        self.step(root, parameters).map_or(f64::INFINITY, |(_, far)| far)
    }

    /// The root to which a point is close: steps that become ten times smaller each, from less than
    /// `far` on. `None` if there is none.
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
                return Some(root);
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
