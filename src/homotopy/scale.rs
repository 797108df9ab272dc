//! How large the unknowns of badly scaled equations are.

use super::polynomial::Polynomial;
use nalgebra::{DMatrix, DVector};

/// Sizes of unknowns and of equations at which the terms of each equation are as equal as can be.
///
/// Least squares in the logarithms of the terms (after Morgan 1987). Sizes of unknowns are powers of
/// ten, one where the equations do not decide.
pub(super) fn sizes(equations: &[Polynomial], unknowns: usize) -> (Vec<f64>, Vec<f64>) {
    let terms: Vec<Vec<(f64, DVector<f64>)>> = equations.iter().map(|p| logarithms(p, unknowns)).collect();
    // Nearly nothing, but more than rounding: the shortest of several solutions.
    let mut normal = DMatrix::identity(unknowns, unknowns) * 1e-6;
    let mut right = DVector::zeros(unknowns);
    for terms in &terms {
        let count = terms.len().max(1) as f64;
        let level = terms.iter().map(|(log, _)| log).sum::<f64>() / count;
        let mean = terms.iter().fold(DVector::zeros(unknowns), |sum, (_, power)| sum + power) / count;
        for (log, power) in terms {
            let power = power - &mean;
            right -= &power * (log - level);
            normal += &power * power.transpose();
        }
    }
    let solved = normal.cholesky().map(|c| c.solve(&right));
    let exponents = solved.unwrap_or_else(|| DVector::zeros(unknowns)).map(|c| c.round().clamp(-30.0, 30.0));
    let scales: Vec<f64> = exponents.iter().map(|c| libm::pow(10.0, *c)).collect();
    let largest = |p: &Polynomial| {
        let scale = |symbol: u32| scales.get(symbol as usize).copied().unwrap_or(1.0);
        let power = |m: &[(u32, u32)]| m.iter().map(|(s, e)| scale(*s).powi(*e as i32)).product::<f64>();
        let most = p.terms().map(|(m, c)| c.norm_sqr().sqrt() * power(m)).fold(0.0, f64::max);
        if most > 0.0 && most.is_finite() {
            most
        } else {
            1.0
        }
    };
    let of_equations = equations.iter().map(largest).collect();
    (scales, of_equations)
}

/// The logarithm of the coefficient of each term, and its powers.
fn logarithms(polynomial: &Polynomial, unknowns: usize) -> Vec<(f64, DVector<f64>)> {
    let log = |size: f64| libm::log10(size);
    let usable = polynomial.terms().filter(|(_, c)| c.norm_sqr() > 0.0 && c.norm_sqr().is_finite());
    let powers = |monomial: &[(u32, u32)]| {
        let mut powers = DVector::zeros(unknowns);
        for (symbol, power) in monomial {
            if let Some(cell) = powers.get_mut(*symbol as usize) {
                *cell = f64::from(*power);
            }
        }
        powers
    };
    usable.map(|(monomial, c)| (0.5 * log(c.norm_sqr()), powers(monomial))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homotopy::System;

    fn of(equations: &str) -> Vec<i32> {
        let yaml = format!("unknowns: [x, y]\nequations: {equations}\n");
        let system = System::from_yaml(&yaml).expect("a system");
        let all = Polynomial::expand(&system.graph, &system.equations, 1000).expect("polynomials");
        sizes(&all, 2).0.into_iter().map(|size| size.log10().round() as i32).collect()
    }

    #[test]
    fn sizes_are_those_of_the_roots() {
        assert_eq!(of("[x^2 - 1e12, y^2 - 3]"), [6, 0]);
        assert_eq!(of("[x^2 - 4e-10, x*y - 1e-2]"), [-5, 3]);
        assert_eq!(of("[x^2 + y^2 - 2, x - 3*y]"), [0, 0]);
        // Nothing decides about y.
        assert_eq!(of("[x^2 - 1e6, x*y]"), [3, 0]);
    }
}
