//! Complex numbers of several tracks side by side, so that one instruction works on all of them.

use std::ops::{Add, Mul, Neg, Sub};

/// How many tracks go side by side.
pub const WIDTH: usize = 4;

/// One real number of each track.
pub type Reals = [f64; WIDTH];

/// One complex number of each track.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C, align(32))]
pub struct Pack {
    /// Real parts.
    pub re: Reals,
    /// Imaginary parts.
    pub im: Reals,
}

#[inline(always)]
fn each(f: impl Fn(usize) -> f64) -> Reals {
    [f(0), f(1), f(2), f(3)]
}

impl Pack {
    /// Zero for all.
    pub const ZERO: Self = Self { re: [0.0; WIDTH], im: [0.0; WIDTH] };

    /// The same number for all.
    pub fn splat(value: nalgebra::Complex<f64>) -> Self {
        Self { re: [value.re; WIDTH], im: [value.im; WIDTH] }
    }

    /// The number of one track.
    #[inline(always)]
    pub fn get(&self, lane: usize) -> nalgebra::Complex<f64> {
        nalgebra::Complex::new(self.re[lane], self.im[lane])
    }

    /// Replaces the number of one track.
    #[inline(always)]
    pub fn set(&mut self, lane: usize, value: nalgebra::Complex<f64>) {
        self.re[lane] = value.re;
        self.im[lane] = value.im;
    }

    /// Times a real number for each.
    #[inline(always)]
    pub fn scale(self, by: &Reals) -> Self {
        Self { re: each(|l| self.re[l] * by[l]), im: each(|l| self.im[l] * by[l]) }
    }

    /// Squares of the absolute values.
    #[inline(always)]
    pub fn norm_sqr(&self) -> Reals {
        each(|l| self.re[l] * self.re[l] + self.im[l] * self.im[l])
    }

    /// Absolute values.
    #[inline(always)]
    pub fn norm(&self) -> Reals {
        let squares = self.norm_sqr();
        each(|l| squares[l].sqrt())
    }

    /// One over each.
    #[inline(always)]
    pub fn inverse(&self) -> Self {
        let squares = self.norm_sqr();
        Self { re: each(|l| self.re[l] / squares[l]), im: each(|l| -self.im[l] / squares[l]) }
    }

    /// All are zero.
    #[inline(always)]
    pub fn is_zero(&self) -> bool {
        self.re == [0.0; WIDTH] && self.im == [0.0; WIDTH]
    }
}

impl Add for Pack {
    type Output = Self;
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        Self { re: each(|l| self.re[l] + o.re[l]), im: each(|l| self.im[l] + o.im[l]) }
    }
}

impl Sub for Pack {
    type Output = Self;
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        Self { re: each(|l| self.re[l] - o.re[l]), im: each(|l| self.im[l] - o.im[l]) }
    }
}

impl Mul for Pack {
    type Output = Self;
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        Self {
            re: each(|l| self.re[l] * o.re[l] - self.im[l] * o.im[l]),
            im: each(|l| self.re[l] * o.im[l] + self.im[l] * o.re[l]),
        }
    }
}

impl Neg for Pack {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self { re: each(|l| -self.re[l]), im: each(|l| -self.im[l]) }
    }
}
