//! What a step of a track costs, in operations of double precision.

use super::program::Compiled;
use super::work::HISTORY;
use serde::Serialize;

/// Real additions and multiplications; a complex product is six, a complex sum two. Matrices count as
/// full: where they have zeros the CPU does less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Operations {
    /// The equations, their derivatives and their rate of change, with the coefficients they need.
    pub evaluation: usize,
    /// One factorisation of the matrix of derivatives.
    pub factorisation: usize,
    /// A step: prediction, evaluation, factorisation, three solutions with it, and the sizes of both
    /// corrections.
    pub step: usize,
    /// A Newton correction where a root is polished: evaluation at the end, factorisation, one solution for
    /// the correction and two for the condition.
    pub correction: usize,
}

impl Compiled {
    /// What a step costs.
    pub fn operations(&self) -> Operations {
        const PRODUCT: usize = 6;
        const SUM: usize = 2;
        const SIZE: usize = 3;
        let n = self.unknowns;
        // Horner's rule in a real variable, for the value and for its rate.
        let coefficients = self.coefficients * (self.degree + 1) * 2 * (2 + SUM);
        let evaluation = self.jacobian.flops() + self.tangent.flops() + coefficients;
        // Row k takes the size of each candidate, one inverse, and for each row below a factor and its
        // multiple of the row.
        let below = |k: usize| n - 1 - k;
        let row = |k: usize| {
            (below(k) + 1) * SIZE + PRODUCT + SIZE + below(k) * (PRODUCT + below(k) * (PRODUCT + SUM))
        };
        let factorisation = (0..n).map(row).sum();
        let solution = n * n.saturating_sub(1) * (PRODUCT + SUM) + n * PRODUCT;
        // Point and rate from the latest point and from the others.
        let prediction = n * (2 * 2 + SUM + (HISTORY - 1) * (SUM + 4 * (2 + SUM)));
        let sizes = 2 * n * (2 * SIZE + 1);
        let corrections = 3 * n * SUM;
        let step = prediction + evaluation + factorisation + 3 * solution + corrections + sizes;
        // Sizes of the terms of the equations too.
        let scales = self.entries.len() * (2 * SIZE + SUM);
        let correction = self.jacobian.flops() + scales + factorisation + 3 * solution + sizes;
        Operations { evaluation, factorisation, step, correction }
    }
}

#[cfg(test)]
mod tests {
    use super::super::system::System;
    use super::*;

    #[test]
    fn a_linear_equation_is_counted_by_hand() {
        let system = System::from_yaml("unknowns: [x]\nparameters: [a, b]\nequations: [a*x + b]\n");
        let operations = Compiled::new(&system.expect("a system")).operations();
        // a x + b is 8, its rate a' x + a x' + b' is 16 and shares nothing but a x + b itself; both
        // coefficients have two terms, 8 operations each.
        assert_eq!(operations.evaluation, 8 + (8 + 16) + 2 * 16);
        assert_eq!(operations.factorisation, 3 + 9);
        assert_eq!(operations.step, 6 + 2 * 18 + 64 + 12 + 3 * 6 + 6 + 14);
        assert_eq!(operations.correction, 8 + 8 + 12 + 3 * 6 + 14);
    }

    #[test]
    fn the_matrix_decides_where_there_are_many_unknowns() {
        let linear = |n: usize| {
            let names: Vec<String> = (0..n).map(|i| format!("x{i}")).collect();
            let equations: Vec<String> = names.iter().map(|x| format!("{x} - 1")).collect();
            let yaml = format!("unknowns: [{}]\nequations: [{}]\n", names.join(", "), equations.join(", "));
            Compiled::new(&System::from_yaml(&yaml).expect("a system")).operations().factorisation as f64
        };
        // 8/3 n^3, and lower orders.
        let ratio = linear(32) / linear(16);
        assert!((6.5..8.0).contains(&ratio), "{ratio}");
    }
}
