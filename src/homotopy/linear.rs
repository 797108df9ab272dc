//! LU with partial pivoting of small complex matrices, several tracks side by side.

use super::pack::{Pack, Reals, WIDTH};

/// A matrix for each track, and after [`Matrix::factor`] its factors.
#[derive(Debug, Clone)]
pub struct Matrix {
    n: usize,
    /// Row by row. After the factorisation U, the multipliers below it, and on the diagonal the
    /// inverse pivots.
    cells: Vec<Pack>,
    /// The row that was swapped with row `k`.
    swaps: Vec<[u16; WIDTH]>,
}

impl Matrix {
    /// Zeros.
    pub fn new(n: usize) -> Self {
        Self { n, cells: vec![Pack::ZERO; n * n], swaps: vec![[0; WIDTH]; n] }
    }

    /// All cells, row by row.
    pub fn cells(&mut self) -> &mut [Pack] {
        &mut self.cells
    }

    /// Factors the matrices. A singular one gives factors that are not finite.
    #[inline(always)]
    pub fn factor(&mut self) {
        let n = self.n;
        for k in 0..n {
            let mut best: Reals = self.cells[k * n + k].norm_sqr();
            let mut rows = [k as u16; WIDTH];
            for i in k + 1..n {
                let size = self.cells[i * n + k].norm_sqr();
                for l in 0..WIDTH {
                    if size[l] > best[l] {
                        best[l] = size[l];
                        rows[l] = i as u16;
                    }
                }
            }
            self.swaps[k] = rows;
            for (l, row) in rows.into_iter().enumerate() {
                let row = row as usize;
                if row != k {
                    let (upper, lower) = self.cells.split_at_mut(row * n);
                    for (a, b) in upper[k * n..(k + 1) * n].iter_mut().zip(&mut lower[..n]) {
                        std::mem::swap(&mut a.re[l], &mut b.re[l]);
                        std::mem::swap(&mut a.im[l], &mut b.im[l]);
                    }
                }
            }
            let inverse = self.cells[k * n + k].inverse();
            self.cells[k * n + k] = inverse;
            let (upper, lower) = self.cells.split_at_mut((k + 1) * n);
            let pivot = &upper[k * n + k + 1..];
            for row in lower.chunks_exact_mut(n) {
                if row[k].is_zero() {
                    continue;
                }
                let factor = row[k] * inverse;
                row[k] = factor;
                for (a, p) in row[k + 1..].iter_mut().zip(pivot) {
                    *a = *a - factor * *p;
                }
            }
        }
    }

    /// Replaces right-hand sides by solutions.
    #[inline(always)]
    pub fn solve(&self, b: &mut [Pack]) {
        let n = self.n;
        for k in 0..n {
            for l in 0..WIDTH {
                let row = self.swaps[k][l] as usize;
                let (u, v) = (b[k].get(l), b[row].get(l));
                b[k].set(l, v);
                b[row].set(l, u);
            }
        }
        for k in 0..n {
            let mut sum = b[k];
            for (a, x) in self.cells[k * n..k * n + k].iter().zip(b.iter()) {
                sum = sum - *a * *x;
            }
            b[k] = sum;
        }
        for k in (0..n).rev() {
            let mut sum = b[k];
            for (a, x) in self.cells[k * n + k + 1..(k + 1) * n].iter().zip(&b[k + 1..]) {
                sum = sum - *a * *x;
            }
            b[k] = sum * self.cells[k * n + k];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::Complex;
    use rand::{Rng, SeedableRng};

    #[test]
    fn solutions_solve_and_singular_matrices_are_not_finite() {
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(5);
        let mut number = || Complex::new(random.random::<f64>() - 0.5, random.random::<f64>() - 0.5);
        for n in [1, 2, 3, 6, 11, 18, 32] {
            let mut matrix = Matrix::new(n);
            for (i, cell) in matrix.cells().iter_mut().enumerate() {
                (0..WIDTH).for_each(|l| cell.set(l, number()));
                // Zeros on the diagonal: pivoting is needed, another in each track.
                if n > 1 && i % (n + 1) == 0 {
                    cell.set(i % WIDTH, Complex::new(0.0, 0.0));
                }
            }
            // The last track gets two equal rows.
            if n > 1 {
                for j in 0..n {
                    let value = matrix.cells()[j].get(3);
                    matrix.cells()[n + j].set(3, value);
                }
            }
            let original = matrix.clone();
            let b: Vec<Pack> = (0..n)
                .map(|_| {
                    let mut pack = Pack::ZERO;
                    (0..WIDTH).for_each(|l| pack.set(l, number()));
                    pack
                })
                .collect();
            matrix.factor();
            let mut x = b.clone();
            matrix.solve(&mut x);
            for l in 0..WIDTH {
                let residual = (0..n).map(|i| {
                    let row = (0..n).map(|j| original.cells[i * n + j].get(l) * x[j].get(l));
                    (row.sum::<Complex<f64>>() - b[i].get(l)).norm_sqr().sqrt()
                });
                let residual = residual.fold(0.0, |a: f64, b| if b.is_nan() { b } else { a.max(b) });
                if n > 1 && l == 3 {
                    let large = x.iter().any(|v| v.norm()[3].is_nan() || v.norm()[3] > 1e10);
                    assert!(large, "n {n}: the singular matrix has no solution");
                } else {
                    assert!(residual < 1e-12, "n {n}, track {l}: {residual}");
                }
            }
        }
    }
}
