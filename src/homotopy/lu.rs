//! Small dense systems A x = b: LU with partial pivoting of the augmented matrix [A|b].
//!
//! The twin of `kernels/lu.cuh`: the same operations in the same order, so the same bits. Sums of
//! products are fused where the code says so and nowhere else. The pivot of a column is the row with
//! the largest |re| + |im|, the first of several.

#[cfg(feature = "cuda")]
pub mod gpu;

use multiversion::multiversion;
use nalgebra::Complex;

/// Most unknowns of a system on the GPU.
pub const MAX_SIZE: usize = 32;

/// Numbers of a system: real or complex, in single or double precision.
pub trait Number: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// |re| + |im| as bits, which are ordered like it; what is not finite comes last.
    type Size: Copy + Ord + Default;
    /// Zero.
    const ZERO: Self;
    /// The least size that is not finite.
    const INFINITE: Self::Size;

    /// The nearest number; a real one has no `im`.
    fn of(re: f64, im: f64) -> Self;
    /// Real and imaginary part.
    fn parts(self) -> [f64; 2];
    /// |re| + |im|.
    fn size(self) -> Self::Size;
    /// 1 / self.
    fn reciprocal(self) -> Self;
    /// self * b.
    fn product(self, b: Self) -> Self;
    /// self - a * b.
    fn less_product(self, a: Self, b: Self) -> Self;
}

macro_rules! numbers {
    ($real:ty, $bits:ty, $digits:literal, $bias:literal) => {
        impl Number for $real {
            type Size = $bits;
            const ZERO: Self = 0.0;
            const INFINITE: Self::Size = <$real>::INFINITY.to_bits();

            fn of(re: f64, _: f64) -> Self {
                re as $real
            }

            fn parts(self) -> [f64; 2] {
                [f64::from(self), 0.0]
            }

            #[inline(always)]
            fn size(self) -> Self::Size {
                self.abs().to_bits()
            }

            #[inline(always)]
            fn reciprocal(self) -> Self {
                1.0 / self
            }

            #[inline(always)]
            fn product(self, b: Self) -> Self {
                self * b
            }

            #[inline(always)]
            fn less_product(self, a: Self, b: Self) -> Self {
                (-a).mul_add(b, self)
            }
        }

        impl Number for Complex<$real> {
            type Size = $bits;
            const ZERO: Self = Complex::new(0.0, 0.0);
            const INFINITE: Self::Size = <$real>::INFINITY.to_bits();

            fn of(re: f64, im: f64) -> Self {
                Self::new(re as $real, im as $real)
            }

            fn parts(self) -> [f64; 2] {
                [f64::from(self.re), f64::from(self.im)]
            }

            #[inline(always)]
            fn size(self) -> Self::Size {
                (self.re.abs() + self.im.abs()).to_bits()
            }

            #[inline(always)]
            fn reciprocal(self) -> Self {
                // Scaled by a power of two, so that squares neither overflow nor vanish.
                let exponent = (self.size() >> $digits).min(2 * $bias - 1);
                let scale = <$real>::from_bits((2 * $bias - exponent) << $digits);
                let (re, im) = (self.re * scale, self.im * scale);
                let per = 1.0 / re.mul_add(re, im * im);
                Self::new(re * per * scale, -(im * per) * scale)
            }

            #[inline(always)]
            fn product(self, b: Self) -> Self {
                let re = self.re.mul_add(b.re, -(self.im * b.im));
                Self::new(re, self.re.mul_add(b.im, self.im * b.re))
            }

            #[inline(always)]
            fn less_product(self, a: Self, b: Self) -> Self {
                let re = (-a.re).mul_add(b.re, a.im.mul_add(b.im, self.re));
                Self::new(re, (-a.re).mul_add(b.im, (-a.im).mul_add(b.re, self.im)))
            }
        }
    };
}
numbers!(f32, u32, 23, 127);
numbers!(f64, u64, 52, 1023);

/// Why there are no unknowns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The matrix is singular, to the last bit, or holds numbers that are not finite.
    #[error("the pivot of step {0} is zero or not finite")]
    Pivot(usize),
    /// The unknowns exceed the numbers.
    #[error("the unknowns are not finite")]
    Overflow,
    /// The arrays do not fit the size.
    #[error("{matrix} numbers of a matrix, {right} of a right side and {unknowns} unknowns do not fit size {size}")]
    Lengths {
        /// Unknowns of the solver.
        size: usize,
        /// Numbers of the matrix that was given.
        matrix: usize,
        /// Numbers of the right side that was given.
        right: usize,
        /// Room for unknowns that was given.
        unknowns: usize,
    },
}

impl Failure {
    /// From the number that the kernel writes for a system of `size` unknowns: zero is none.
    pub fn from_code(code: u32, size: usize) -> Option<Self> {
        match code as usize {
            0 => None,
            step if step <= size => Some(Self::Pivot(step - 1)),
            _ => Some(Self::Overflow),
        }
    }
}

/// A row of [A|b] that has not given a pivot yet.
const OPEN: usize = usize::MAX;

/// Solves systems of one size; its memory is allocated once.
#[derive(Debug, Clone)]
pub struct Solver<T> {
    size: usize,
    /// [A|b], row by row.
    rows: Vec<T>,
    /// Steps whose pivots the rows gave.
    steps: Vec<usize>,
    /// The pivot's row of a step: its inverse pivot and what stands to the right of it.
    pivot: Vec<T>,
}

impl<T: Number> Solver<T> {
    /// For systems of `size` unknowns.
    pub fn new(size: usize) -> Self {
        let width = size + 1;
        let (rows, pivot) = (vec![T::ZERO; size * width], vec![T::ZERO; width]);
        Self { size, rows, steps: vec![OPEN; size], pivot }
    }

    /// Solves A x = b; `a` column by column. After a failure `x` is zero.
    pub fn solve(&mut self, a: &[T], b: &[T], x: &mut [T]) -> Result<(), Failure> {
        let size = self.size;
        if a.len() != size * size || b.len() != size || x.len() != size {
            return Err(Failure::Lengths { size, matrix: a.len(), right: b.len(), unknowns: x.len() });
        }
        for (i, row) in self.rows.chunks_exact_mut(size + 1).enumerate() {
            for (entry, column) in row.iter_mut().zip(a.chunks_exact(size).chain([b])) {
                *entry = column[i];
            }
        }
        let solved = eliminate(&mut self.rows, &mut self.steps, &mut self.pivot)
            .and_then(|()| substitute(&mut self.rows, &self.steps, x));
        if solved.is_err() {
            x.fill(T::ZERO);
        }
        solved
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn eliminate<T: Number>(rows: &mut [T], steps: &mut [usize], pivot: &mut [T]) -> Result<(), Failure> {
    let (size, width) = (steps.len(), pivot.len());
    steps.fill(OPEN);
    for k in 0..size {
        let mut largest = (T::Size::default(), 0);
        for (i, row) in rows.chunks_exact(width).enumerate() {
            let size = row[k].size();
            if steps[i] == OPEN && size > largest.0 {
                largest = (size, i);
            }
        }
        if largest.0 == T::Size::default() || largest.0 >= T::INFINITE {
            return Err(Failure::Pivot(k));
        }
        steps[largest.1] = k;
        let chosen = &mut rows[largest.1 * width..][..width];
        chosen[k] = chosen[k].reciprocal();
        pivot.copy_from_slice(chosen);
        for (row, _) in rows.chunks_exact_mut(width).zip(&*steps).filter(|(_, step)| **step == OPEN) {
            let factor = row[k].product(pivot[k]);
            for (entry, above) in row[k + 1..].iter_mut().zip(&pivot[k + 1..]) {
                *entry = entry.less_product(factor, *above);
            }
        }
    }
    Ok(())
}

/// Unknowns from the last to the first.
#[multiversion(targets("x86_64+avx2+fma"))]
fn substitute<T: Number>(rows: &mut [T], steps: &[usize], x: &mut [T]) -> Result<(), Failure> {
    let size = steps.len();
    for k in (0..size).rev() {
        let mut value = T::ZERO;
        for (row, step) in rows.chunks_exact(size + 1).zip(steps) {
            if *step == k {
                value = row[size].product(row[k]);
            }
        }
        for (row, step) in rows.chunks_exact_mut(size + 1).zip(steps) {
            if *step < k {
                row[size] = row[size].less_product(row[k], value);
            }
        }
        x[k] = value;
    }
    match x.iter().all(|value| value.size() < T::INFINITE) {
        true => Ok(()),
        false => Err(Failure::Overflow),
    }
}
