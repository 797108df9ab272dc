//! Numbers of twice the digits: what is left of equations at their roots is lost to rounding otherwise.

use super::graph::{Graph, Id, Node};
use nalgebra::Complex;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A number as a sum of two, the second of which is below the digits of the first.
#[derive(Debug, Clone, Copy)]
struct Twice(f64, f64);

impl Twice {
    /// Of a large and a small number.
    fn of(large: f64, small: f64) -> Self {
        let sum = large + small;
        Self(sum, small - (sum - large))
    }
}

impl Add for Twice {
    type Output = Self;

    fn add(self, b: Self) -> Self {
        let sum = self.0 + b.0;
        let part = sum - self.0;
        let lost = (self.0 - (sum - part)) + (b.0 - part);
        Self::of(sum, lost + (self.1 + b.1))
    }
}

impl Neg for Twice {
    type Output = Self;

    fn neg(self) -> Self {
        Self(-self.0, -self.1)
    }
}

impl Sub for Twice {
    type Output = Self;

    fn sub(self, b: Self) -> Self {
        self + -b
    }
}

impl Mul for Twice {
    type Output = Self;

    fn mul(self, b: Self) -> Self {
        let product = self.0 * b.0;
        let lost = self.0.mul_add(b.0, -product);
        Self::of(product, lost + (self.0 * b.1 + self.1 * b.0))
    }
}

impl Div for Twice {
    type Output = Self;

    fn div(self, b: Self) -> Self {
        let quotient = self.0 / b.0;
        let left = self - Self(quotient, 0.0) * b;
        Self::of(quotient, left.0 / b.0)
    }
}

/// A complex number of such parts.
#[derive(Debug, Clone, Copy)]
struct Exact {
    re: Twice,
    im: Twice,
}

impl From<Complex<f64>> for Exact {
    fn from(z: Complex<f64>) -> Self {
        Self { re: Twice(z.re, 0.0), im: Twice(z.im, 0.0) }
    }
}

impl Add for Exact {
    type Output = Self;

    fn add(self, b: Self) -> Self {
        Self { re: self.re + b.re, im: self.im + b.im }
    }
}

impl Sub for Exact {
    type Output = Self;

    fn sub(self, b: Self) -> Self {
        Self { re: self.re - b.re, im: self.im - b.im }
    }
}

impl Mul for Exact {
    type Output = Self;

    fn mul(self, b: Self) -> Self {
        Self { re: self.re * b.re - self.im * b.im, im: self.re * b.im + self.im * b.re }
    }
}

impl Div for Exact {
    type Output = Self;

    fn div(self, b: Self) -> Self {
        let size = b.re * b.re + b.im * b.im;
        let up = self * Self { re: b.re, im: -b.im };
        Self { re: up.re / size, im: up.im / size }
    }
}

impl Exact {
    fn rounded(self) -> Complex<f64> {
        Complex::new(self.re.0, self.im.0)
    }

    /// A square root: one of half the digits and a correction.
    fn root(self) -> Self {
        let root = Self::from(self.rounded().sqrt());
        if root.rounded() == Complex::new(0.0, 0.0) {
            return root;
        }
        root + (self - root * root) / (root + root)
    }
}

/// Expressions as [`Graph::evaluate`] gives them, rounded at the end only.
pub fn evaluate(graph: &Graph, outputs: &[Id], symbols: &[Complex<f64>]) -> Vec<Complex<f64>> {
    let end = outputs.iter().map(|id| id.index() + 1).max().unwrap_or(0);
    let mut values: Vec<Exact> = Vec::with_capacity(end);
    let nothing = Complex::new(f64::NAN, 0.0);
    for node in &graph.nodes()[..end] {
        values.push(match *node {
            Node::Constant(re, im) => Complex::new(f64::from_bits(re), f64::from_bits(im)).into(),
            Node::Symbol(s) => symbols.get(s as usize).copied().unwrap_or(nothing).into(),
            Node::Add(a, b) => values[a.index()] + values[b.index()],
            Node::Sub(a, b) => values[a.index()] - values[b.index()],
            Node::Mul(a, b) => values[a.index()] * values[b.index()],
            Node::Div(a, b) => values[a.index()] / values[b.index()],
            Node::Sqrt(a) => values[a.index()].root(),
        });
    }
    outputs.iter().map(|id| values[id.index()].rounded()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rounding_would_lose_is_there() {
        let mut g = Graph::default();
        let (x, y) = (g.symbol(0), g.symbol(1));
        let (square, sum) = (g.mul(x, x), g.add(x, y));
        let (other, root) = (g.mul(sum, sum), g.sqrt(square));
        // (x + y)^2 - x^2 - 2 x y - y^2, and so on: all are zero.
        let (mixed, small) = (g.mul(x, y), g.mul(y, y));
        let (a, b) = (g.sub(other, square), g.add(mixed, mixed));
        let (c, ratio) = (g.sub(a, b), g.div(square, x));
        let outputs = [g.sub(c, small), g.sub(ratio, x), g.sub(root, x)];
        let at = [Complex::new(1.0 / 3.0, 0.7), Complex::new(1e-9, -3e-10)];
        for value in evaluate(&g, &outputs, &at) {
            assert!(value.norm() < 1e-31, "{value}");
        }
        assert!(g.evaluate(&outputs, &at)[0].norm() > 1e-19);
    }
}
