//! Sums of floating-point numbers whose order is fixed, so that every backend gives the same bits.
//!
//! The order is that of a block of 256 threads of a GPU: item `i` is added by lane `i % 256`, in
//! turn; the 32 lanes of a warp are added pairwise (those 16 apart, then 8, 4, 2, 1), and the sums
//! of the eight warps one after another. `kernels/sums.cuh` does the same.

/// Lanes that add.
pub const LANES: usize = 256;
/// Lanes that are added pairwise.
const WARP: usize = 32;

/// `S` sums over the same items.
#[derive(Debug, Clone)]
pub struct Sums<const S: usize> {
    /// What each lane has added so far.
    pub lanes: [[f64; LANES]; S],
}

impl<const S: usize> Sums<S> {
    /// Of nothing.
    pub fn new() -> Self {
        Self { lanes: [[0.0; LANES]; S] }
    }

    /// Adds the values of item `i`.
    pub fn add(&mut self, i: usize, values: [f64; S]) {
        for (lanes, value) in self.lanes.iter_mut().zip(values) {
            lanes[i % LANES] += value;
        }
    }

    /// The sums.
    pub fn totals(&self) -> [f64; S] {
        std::array::from_fn(|s| {
            self.lanes[s].chunks_exact(WARP).fold(None, |sum: Option<f64>, warp| {
                let warp = pairwise(warp);
                Some(sum.map_or(warp, |sum| sum + warp))
            })
        })
        .map(Option::unwrap_or_default)
    }
}

fn pairwise(warp: &[f64]) -> f64 {
    let mut sums = [0.0; WARP];
    sums.copy_from_slice(warp);
    let mut step = WARP / 2;
    while step > 0 {
        for l in 0..step {
            sums[l] += sums[l + step];
        }
        step /= 2;
    }
    sums[0]
}

/// Eigenvalues, largest first, and their axes (unit vectors) of the symmetric matrix with the
/// entries xx, yy, zz, xy, xz, yz. Jacobi's rotations, in an order that is fixed, from axes on that are
/// given: the nearer they are the fewer sweeps are needed.
pub fn symmetric_eigen(m: &[f64; 6], v: [[f64; 3]; 3], sweeps: usize) -> ([f64; 3], [[f64; 3]; 3]) {
    let [xx, yy, zz, xy, xz, yz] = *m;
    let dot = |a: &[f64; 3], b: &[f64; 3]| (a[0] * b[0] + a[1] * b[1]) + a[2] * b[2];
    let mv = v.map(|v| [dot(&[xx, xy, xz], &v), dot(&[xy, yy, yz], &v), dot(&[xz, yz, zz], &v)]);
    let d = [dot(&v[0], &mv[0]), dot(&v[1], &mv[1]), dot(&v[2], &mv[2])];
    let o = [dot(&v[1], &mv[2]), dot(&v[0], &mv[2]), dot(&v[0], &mv[1])];
    let mut e = Eigen { d, o, v };
    for _ in 0..sweeps {
        e.rotate(0, 1, 2);
        e.rotate(0, 2, 1);
        e.rotate(1, 2, 0);
    }
    // Columns of v are the axes; ordered by three exchanges.
    for (p, q) in [(0, 1), (0, 2), (1, 2)] {
        if e.d[q] > e.d[p] {
            e.d.swap(p, q);
            e.v.swap(p, q);
        }
    }
    (e.d, e.v)
}

/// Sweeps that are enough from any axes on.
pub const SWEEPS: usize = 8;
/// The axes of the coordinates.
pub const AXES: [[f64; 3]; 3] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
/// Square of a share of the diagonal below which an entry beside it is zero.
const NEGLIGIBLE: f64 = 1e-36;

/// Diagonal, entries beside it (each named by the axis that it does not touch), axes.
struct Eigen {
    d: [f64; 3],
    o: [f64; 3],
    v: [[f64; 3]; 3],
}

impl Eigen {
    /// Makes the entry (p, q) zero; r is the third index.
    fn rotate(&mut self, p: usize, q: usize, r: usize) {
        let (dp, dq, pq) = (self.d[p], self.d[q], self.o[r]);
        if pq * pq <= NEGLIGIBLE * (dp * dq).abs() {
            return;
        }
        let (d, twice) = (dq - dp, 2.0 * pq);
        let size = d.abs() + (d * d + twice * twice).sqrt();
        let t = if d < 0.0 { -twice } else { twice } / size;
        let c = 1.0 / (t * t + 1.0).sqrt();
        let s = t * c;
        self.d[p] = dp - t * pq;
        self.d[q] = dq + t * pq;
        self.o[r] = 0.0;
        // (r, p) is named q, (r, q) is named p.
        let (rp, rq) = (self.o[q], self.o[p]);
        self.o[q] = c * rp - s * rq;
        self.o[p] = s * rp + c * rq;
        for k in 0..3 {
            let (a, b) = (self.v[p][k], self.v[q][k]);
            self.v[p][k] = c * a - s * b;
            self.v[q][k] = s * a + c * b;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{Matrix3, Vector3};
    use rand::{Rng, SeedableRng};

    #[test]
    fn the_order_is_that_of_the_lanes() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        let values: Vec<f64> = (0..1000).map(|_| rng.random_range(-1.0..1.0)).collect();
        let mut sums = Sums::<2>::new();
        values.iter().enumerate().for_each(|(i, v)| sums.add(i, [*v, 1.0]));
        let [sum, count] = sums.totals();
        assert_eq!(count, 1000.0);
        assert!((sum - values.iter().sum::<f64>()).abs() < 1e-12);
        // 2^53 + 1 is lost in one lane and kept between lanes of which the order is known.
        let mut sums = Sums::<1>::new();
        sums.add(0, [9_007_199_254_740_992.0]);
        sums.add(1, [1.0]);
        sums.add(17, [1.0]);
        // Lanes 1 and 17 are added to each other first.
        assert_eq!(sums.totals(), [9_007_199_254_740_994.0]);
    }

    #[test]
    fn eigenvalues_and_axes_are_those_of_the_matrix() {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(2);
        for k in 0..2000 {
            let scale = 10f64.powf(rng.random_range(-6.0..6.0));
            let flat = [1.0, 1e-3, 1e-9, 0.0][k % 4];
            let points: Vec<Vector3<f64>> = (0..5)
                .map(|_| {
                    Vector3::from_fn(|a, _| rng.random_range(-1.0..1.0) * if a == 2 { flat } else { 1.0 })
                })
                .collect();
            let m: Matrix3<f64> = points.iter().map(|p| p * p.transpose() * scale).sum();
            let entries = [m[(0, 0)], m[(1, 1)], m[(2, 2)], m[(0, 1)], m[(0, 2)], m[(1, 2)]];
            let (values, axes) = symmetric_eigen(&entries, AXES, SWEEPS);
            assert!(values[0] >= values[1] && values[1] >= values[2]);
            for (value, axis) in values.iter().zip(&axes) {
                let axis = Vector3::from(*axis);
                assert!((axis.norm() - 1.0).abs() < 1e-12);
                assert!((m * axis - axis * *value).norm() < 1e-12 * values[0], "{m} {values:?}");
            }
        }
        assert_eq!(symmetric_eigen(&[0.0; 6], AXES, SWEEPS).0, [0.0; 3]);
    }
}
