//! The relative pose of two calibrated cameras from five points.

use super::polynomial::{real_roots, Polynomial, DEGREE};
use super::vector::{array, cross, dot, longest, minus, scaled, times, unit, Matrix3, Vector3};
use crate::geometry::{Pose, Vector};
use nalgebra::Matrix3 as Rotation;

/// Poses that five points can have.
pub const MOST: usize = DEGREE;

/// Steps of Newton's method for a pose.
const STEPS: usize = 8;
/// Where the equations are met so well and a step is as short, it is the last one.
const CLOSE: f64 = 1e-11;
/// The parallax of five points, root of the sum of squares, is taken to be no less.
const LEAST_PARALLAX: f64 = 1e-8;
/// A residual of more, the volume of a baseline and two bearings of length one, is no solution.
const RESIDUAL: f64 = 1e-12;
/// Poses that differ by less are the same.
const SAME: f64 = 1e-8;

/// A linear form in the four shares `x, y, z, w`.
type Linear = [f64; 4];
/// By `xx xy yy xz yz xw yw zz zw ww`.
type Quadratic = [f64; 10];
/// By `xxx xxy xyy yyy, xxz xyz yyz, xxw xyw yyw, xzz xzw xww, yzz yzw yww, zzz zzw zww www`.
type Cubic = [f64; 20];

const QUADRATIC: [[usize; 4]; 4] = [[0, 1, 3, 5], [1, 2, 4, 6], [3, 4, 7, 8], [5, 6, 8, 9]];
const CUBIC: [[usize; 4]; 10] = [
    [0, 1, 4, 7],
    [1, 2, 5, 8],
    [2, 3, 6, 9],
    [4, 5, 10, 11],
    [5, 6, 13, 14],
    [7, 8, 11, 12],
    [8, 9, 14, 15],
    [10, 13, 16, 17],
    [11, 14, 17, 18],
    [12, 15, 18, 19],
];

/// All poses `b_t_a` with translations of length one with which five points are seen in the directions `a` by one
/// camera and `b` by the other (unit vectors, optical frames), in front of both: `db b = R da a + t`, `da` and `db`
/// not below zero. How many there are.
///
/// Essential matrices are combinations of the four that meet the epipolar constraints, three of which are
/// eliminated by the ten cubic conditions (Nister 2004), in homogeneous shares: none has to differ from zero. The
/// second view is turned towards the first before: with a small baseline an essential matrix is skew but for little,
/// which is a share of its own in units of the parallax, and the conditions keep their digits. The
/// polynomial of degree ten in the ratio of two shares is searched in [-1, 1] and so is its reverse. Newton's
/// method on rotation and translation ends it. Where a pose with the same baseline and the rotation turned by half a
/// turn about it has the points in front, that is the one.
pub fn five_point(a: &[Vector; 5], b: &[Vector; 5], out: &mut [Pose; MOST]) -> usize {
    let (a, mut b) = (arrays(a), arrays(b));
    let Some(turn) = turn(&a, &b) else { return 0 };
    // From here on `b` is turned towards `a`.
    for v in &mut b {
        *v = times(&turn, v);
    }
    let basis = null_space(&a, &b);
    let Some(rows) = eliminated(&basis) else { return 0 };
    let hidden = Hidden::new(&rows);
    let polynomial = hidden.determinant();
    let mut count = 0;
    for is_reversed in [false, true] {
        let mut form = polynomial;
        if is_reversed {
            for k in 0..=DEGREE {
                form[k] = polynomial[DEGREE - k];
            }
        }
        let mut roots = [0.0; DEGREE + 1];
        let n = real_roots(&form, &mut roots);
        for root in roots.iter().take(n) {
            let (z, w) = if is_reversed { (1.0, *root) } else { (*root, 1.0) };
            let Some([x, y, s]) = hidden.rest(z, w) else { continue };
            let shares = [x, y, s * z, s * w];
            let Some(motion) = Motion::of_essential(&essential(&basis, &shares)) else { continue };
            let Some(motion) = motion.refined(&a, &b).and_then(|m| m.in_front(&a, &b)) else { continue };
            let motion = motion.turned_back(&turn);
            let pose = motion.pose();
            let mut is_new = pose.is_finite();
            for other in out.iter().take(count) {
                is_new = is_new && !motion.is_same(other);
            }
            if is_new && count < MOST {
                out[count] = pose;
                count += 1;
            }
        }
    }
    count
}

fn arrays(v: &[Vector; 5]) -> [Vector3; 5] {
    [array(&v[0]), array(&v[1]), array(&v[2]), array(&v[3]), array(&v[4])]
}

/// The rotation that carries the two directions `b` that are farthest from one line onto the plane and the middle
/// of those of `a`.
fn turn(a: &[Vector3; 5], b: &[Vector3; 5]) -> Option<Matrix3> {
    let (mut pair, mut widest) = ((0, 0), 0.0);
    for i in 0..4 {
        for j in i + 1..5 {
            let (p, q) = (cross(&a[i], &a[j]), cross(&b[i], &b[j]));
            let size = dot(&p, &p) * dot(&q, &q);
            if size > widest {
                (pair, widest) = ((i, j), size);
            }
        }
    }
    let (of_a, of_b) = (axes(&a[pair.0], &a[pair.1])?, axes(&b[pair.0], &b[pair.1])?);
    let mut rows = [[0.0; 3]; 3];
    for i in 0..3 {
        for j in 0..3 {
            rows[i][j] = of_a[0][i] * of_b[0][j] + of_a[1][i] * of_b[1][j] + of_a[2][i] * of_b[2][j];
        }
    }
    Some(rows)
}

/// Along the middle of two directions, along their normal, and the third.
fn axes(first: &Vector3, second: &Vector3) -> Option<[Vector3; 3]> {
    let normal = unit(&cross(first, second))?;
    let middle = unit(&[first[0] + second[0], first[1] + second[1], first[2] + second[2]])?;
    Some([middle, normal, cross(&middle, &normal)])
}

/// `1 / sqrt(2)`
const HALF: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// Four orthogonal matrices `E`, row by row, with `b' E a = 0` for all pairs: what the products of the pairs leave
/// free, by Householder's reflections. With a small parallax the first three are skew but for little, and the last
/// is as long as the parallax.
fn null_space(a: &[Vector3; 5], b: &[Vector3; 5]) -> [[f64; 9]; 4] {
    let mut m = [[0.0; 9]; 5];
    let mut parallax = 0.0;
    for i in 0..5 {
        let (a, b) = (&a[i], &b[i]);
        let skew = cross(a, b);
        parallax += dot(&skew, &skew);
        m[i] = [
            b[0] * a[0],
            b[1] * a[1],
            b[2] * a[2],
            HALF * (b[1] * a[2] + b[2] * a[1]),
            HALF * (b[2] * a[0] + b[0] * a[2]),
            HALF * (b[0] * a[1] + b[1] * a[0]),
            HALF * skew[0],
            HALF * skew[1],
            HALF * skew[2],
        ];
    }
    // Reflections v with 2 / |v|^2.
    let mut factors = [0.0; 5];
    for i in 0..5 {
        let mut square = 0.0;
        for k in i..9 {
            square += m[i][k] * m[i][k];
        }
        let length = square.sqrt();
        if length.is_nan() || length <= 0.0 {
            continue;
        }
        let first = m[i][i];
        m[i][i] = if first < 0.0 { first - length } else { first + length };
        factors[i] = 1.0 / (square + first.abs() * length);
        for j in i + 1..5 {
            let mut sum = 0.0;
            for k in i..9 {
                sum += m[i][k] * m[j][k];
            }
            sum *= factors[i];
            for k in i..9 {
                m[j][k] -= sum * m[i][k];
            }
        }
    }
    let parallax = parallax.sqrt();
    let least = if parallax > LEAST_PARALLAX { parallax } else { LEAST_PARALLAX };
    let scale = if least < 1.0 { least } else { 1.0 };
    let mut basis = [[0.0; 9]; 4];
    for n in 0..4 {
        let mut v = [0.0; 9];
        v[if n < 3 { 6 + n } else { 5 }] = if n < 3 { 1.0 } else { scale };
        for i in (0..5).rev() {
            let mut sum = 0.0;
            for k in i..9 {
                sum += m[i][k] * v[k];
            }
            sum *= factors[i];
            for k in i..9 {
                v[k] -= sum * m[i][k];
            }
        }
        // `b' E a` has `e12 (b1 a2)`, and the skew part is `a2 b3 - a3 b2` and so on.
        basis[n] = [
            v[0],
            HALF * (v[5] - v[8]),
            HALF * (v[4] + v[7]),
            HALF * (v[5] + v[8]),
            v[1],
            HALF * (v[3] - v[6]),
            HALF * (v[4] - v[7]),
            HALF * (v[3] + v[6]),
            v[2],
        ];
    }
    basis
}

/// Adds `s a b`.
fn add_quadratic(sum: &mut Quadratic, a: &Linear, b: &Linear, s: f64) {
    for i in 0..4 {
        for j in 0..4 {
            sum[QUADRATIC[i][j]] += s * (a[i] * b[j]);
        }
    }
}

/// Adds `a b`.
fn add_cubic(sum: &mut Cubic, a: &Quadratic, b: &Linear) {
    for i in 0..10 {
        for j in 0..4 {
            sum[CUBIC[i][j]] += a[i] * b[j];
        }
    }
}

/// The ten conditions on an essential matrix, `E E' E = tr(E E') E / 2` and `det E = 0`.
fn conditions(basis: &[[f64; 9]; 4]) -> [Cubic; 10] {
    let mut e = [[[0.0; 4]; 3]; 3];
    for i in 0..3 {
        for j in 0..3 {
            for k in 0..4 {
                e[i][j][k] = basis[k][3 * i + j];
            }
        }
    }
    let mut products = [[[0.0; 10]; 3]; 3];
    for i in 0..3 {
        for j in i..3 {
            for k in 0..3 {
                add_quadratic(&mut products[i][j], &e[i][k], &e[j][k], 1.0);
            }
            products[j][i] = products[i][j];
        }
    }
    for k in 0..10 {
        let half = 0.5 * (products[0][0][k] + products[1][1][k] + products[2][2][k]);
        for i in 0..3 {
            products[i][i][k] -= half;
        }
    }
    let mut rows = [[0.0; 20]; 10];
    for i in 0..3 {
        for j in 0..3 {
            for k in 0..3 {
                add_cubic(&mut rows[3 * i + j], &products[i][k], &e[k][j]);
            }
        }
    }
    for k in 0..3 {
        let (i, j) = ((k + 1) % 3, (k + 2) % 3);
        let mut minor = [0.0; 10];
        add_quadratic(&mut minor, &e[1][i], &e[2][j], 1.0);
        add_quadratic(&mut minor, &e[1][j], &e[2][i], -1.0);
        add_cubic(&mut rows[9], &minor, &e[0][k]);
    }
    rows
}

/// The products `xxz, xyz, yyz, xxw, xyw, yyw` by the ten of which at most one factor is `x` or `y`: their sum
/// with each row is zero. `None` if they are not determined.
fn eliminated(basis: &[[f64; 9]; 4]) -> Option<[[f64; 10]; 6]> {
    let mut m = conditions(basis);
    for column in 0..10 {
        let mut pivot = column;
        for row in column + 1..10 {
            if m[row][column].abs() > m[pivot][column].abs() {
                pivot = row;
            }
        }
        if m[pivot][column].is_nan() || m[pivot][column] == 0.0 {
            return None;
        }
        m.swap(pivot, column);
        let (upper, rest) = m.split_at_mut(column);
        let (row, lower) = rest.split_first_mut()?;
        let inverse = 1.0 / row[column];
        for v in row.iter_mut().skip(column) {
            *v *= inverse;
        }
        // The first four rows are not asked for.
        for other in upper.iter_mut().skip(4).chain(lower) {
            let factor = other[column];
            for k in column..20 {
                other[k] -= factor * row[k];
            }
        }
    }
    let mut rows = [[0.0; 10]; 6];
    for i in 0..6 {
        for k in 0..10 {
            rows[i][k] = m[4 + i][10 + k];
        }
    }
    Some(rows)
}

/// Three equations in `x, y, 1` whose coefficients are polynomials in `z` and `w` of degree 3, 3 and 4, that of the
/// power `k` of `z` at `k`.
struct Hidden([[[f64; 5]; 3]; 3]);

impl Hidden {
    /// `z (xxw + ...) - w (xxz + ...)` and so on.
    fn new(rows: &[[f64; 10]; 6]) -> Self {
        let mut m = [[[0.0; 5]; 3]; 3];
        for i in 0..3 {
            let (of_z, of_w) = (&rows[i], &rows[3 + i]);
            for (column, first, degree) in [(0, 0, 2), (1, 3, 2), (2, 6, 3)] {
                for k in 0..=degree {
                    let at = first + degree - k;
                    m[i][column][k + 1] += of_w[at];
                    m[i][column][k] -= of_z[at];
                }
            }
        }
        Self(m)
    }

    fn determinant(&self) -> Polynomial {
        let m = &self.0;
        let mut sum = [0.0; DEGREE + 1];
        for row in 0..3 {
            let (i, j) = ((row + 1) % 3, (row + 2) % 3);
            let mut minor = [0.0; 7];
            for k in 0..4 {
                for l in 0..4 {
                    minor[k + l] += m[i][0][k] * m[j][1][l] - m[i][1][k] * m[j][0][l];
                }
            }
            for k in 0..7 {
                for l in 0..5 {
                    sum[k + l] += minor[k] * m[row][2][l];
                }
            }
        }
        sum
    }

    /// `x, y` and the common factor of `z` and `w`.
    fn rest(&self, z: f64, w: f64) -> Option<Vector3> {
        let mut m = [[0.0; 3]; 3];
        for i in 0..3 {
            for j in 0..3 {
                let degree = if j < 2 { 3 } else { 4 };
                let c = &self.0[i][j];
                // Horner's scheme in the one of both that is not one.
                let mut value = if w == 1.0 { c[degree] } else { c[0] };
                for k in 1..=degree {
                    value = if w == 1.0 { value * z + c[degree - k] } else { value * w + c[k] };
                }
                m[i][j] = value;
            }
        }
        unit(&longest([cross(&m[0], &m[1]), cross(&m[1], &m[2]), cross(&m[2], &m[0])]))
    }
}

/// The columns of a combination of the basis.
fn essential(basis: &[[f64; 9]; 4], shares: &Linear) -> Matrix3 {
    let mut columns = [[0.0; 3]; 3];
    for i in 0..3 {
        for j in 0..3 {
            let k = 3 * i + j;
            columns[j][i] = (basis[0][k] * shares[0] + basis[1][k] * shares[1])
                + (basis[2][k] * shares[2] + basis[3][k] * shares[3]);
        }
    }
    columns
}

/// `b_t_a`, the translation of length one.
struct Motion {
    /// Rows.
    rotation: Matrix3,
    translation: Vector3,
}

impl Motion {
    /// One of the four of an essential matrix given by its columns: `R = cof(E) - [t]x E` for `E = [t]x R`.
    fn of_essential(e: &Matrix3) -> Option<Self> {
        let cofactors = [cross(&e[1], &e[2]), cross(&e[2], &e[0]), cross(&e[0], &e[1])];
        let translation = unit(&longest(cofactors))?;
        let square = 0.5 * (dot(&e[0], &e[0]) + dot(&e[1], &e[1]) + dot(&e[2], &e[2]));
        let length = square.sqrt();
        let mut rows = [[0.0; 3]; 3];
        for j in 0..3 {
            let turned = cross(&translation, &e[j]);
            for i in 0..3 {
                rows[i][j] = cofactors[j][i] / square - turned[i] / length;
            }
        }
        let first = unit(&rows[0])?;
        let second = unit(&minus(&rows[1], &scaled(&first, dot(&first, &rows[1]))))?;
        Some(Self { rotation: [first, second, cross(&first, &second)], translation })
    }

    /// By Newton's method on `t . (R a x b) = 0`; `None` if that does not meet the constraints.
    fn refined(self, a: &[Vector3; 5], b: &[Vector3; 5]) -> Option<Self> {
        let (mut current, mut kept, mut last) = (self, None, f64::INFINITY);
        for _ in 0..=STEPS {
            let Self { rotation, translation: t } = &current;
            let mut axis = [0.0; 3];
            let sizes = [t[0].abs(), t[1].abs(), t[2].abs()];
            let least = if sizes[0] <= sizes[1] && sizes[0] <= sizes[2] {
                0
            } else if sizes[1] <= sizes[2] {
                1
            } else {
                2
            };
            axis[least] = 1.0;
            let right = unit(&cross(t, &axis))?;
            let down = cross(t, &right);
            let mut m = [[0.0; 6]; 5];
            let mut size = 0.0;
            for i in 0..5 {
                let ray = times(rotation, &a[i]);
                let normal = cross(&ray, &b[i]);
                let miss = dot(t, &normal);
                // (w x ray) x b = ray (w . b) - w (ray . b)
                let (along, cosine) = (dot(t, &ray), dot(&ray, &b[i]));
                let turn = minus(&scaled(&b[i], along), &scaled(t, cosine));
                m[i] = [turn[0], turn[1], turn[2], dot(&right, &normal), dot(&down, &normal), miss];
                size += miss.abs();
            }
            // False also if it is no number.
            let is_better = size < last;
            if !is_better {
                break;
            }
            let step = solved(m);
            let next = current.moved(&step, &right, &down);
            if size < CLOSE && step.iter().all(|v| v.abs() < CLOSE) {
                return next;
            }
            (kept, last) = (Some(current), size);
            current = next?;
        }
        kept.filter(|_| last <= RESIDUAL)
    }

    /// Turned by the first three numbers (rad, to first order) and moved by the last two, both with another sign.
    fn moved(&self, step: &[f64; 5], right: &Vector3, down: &Vector3) -> Option<Self> {
        let h = [-0.5 * step[0], -0.5 * step[1], -0.5 * step[2]];
        // Of the quaternion (1, h).
        let square = dot(&h, &h);
        let (scale, diagonal) = (1.0 / (1.0 + square), 1.0 - square);
        let turn = [
            [diagonal + 2.0 * (h[0] * h[0]), 2.0 * (h[0] * h[1] - h[2]), 2.0 * (h[0] * h[2] + h[1])],
            [2.0 * (h[1] * h[0] + h[2]), diagonal + 2.0 * (h[1] * h[1]), 2.0 * (h[1] * h[2] - h[0])],
            [2.0 * (h[2] * h[0] - h[1]), 2.0 * (h[2] * h[1] + h[0]), diagonal + 2.0 * (h[2] * h[2])],
        ];
        let r = &self.rotation;
        let mut rotation = [[0.0; 3]; 3];
        for i in 0..3 {
            for j in 0..3 {
                rotation[i][j] = scale * (turn[i][0] * r[0][j] + turn[i][1] * r[1][j] + turn[i][2] * r[2][j]);
            }
        }
        let t = &self.translation;
        let side = [
            right[0] * step[3] + down[0] * step[4],
            right[1] * step[3] + down[1] * step[4],
            right[2] * step[3] + down[2] * step[4],
        ];
        Some(Self { rotation, translation: unit(&minus(t, &side))? })
    }

    /// Of the four motions with this essential matrix the one that has all points in front of both cameras.
    fn in_front(self, a: &[Vector3; 5], b: &[Vector3; 5]) -> Option<Self> {
        let t = &self.translation;
        // (2 t t' - 1) R
        let r = &self.rotation;
        let mut twisted = [[0.0; 3]; 3];
        for j in 0..3 {
            let along = 2.0 * (t[0] * r[0][j] + t[1] * r[1][j] + t[2] * r[2][j]);
            for i in 0..3 {
                twisted[i][j] = along * t[i] - r[i][j];
            }
        }
        for rotation in [self.rotation, twisted] {
            let (mut is_front, mut is_back) = (true, true);
            for i in 0..5 {
                let ray = times(&rotation, &a[i]);
                let normal = cross(&ray, &b[i]);
                // Depths times the square of the normal.
                let first = dot(&cross(&b[i], t), &normal);
                let second = dot(&cross(&ray, t), &normal);
                is_front = is_front && first >= 0.0 && second >= 0.0;
                is_back = is_back && first <= 0.0 && second <= 0.0;
            }
            if is_front {
                return Some(Self { rotation, translation: *t });
            }
            if is_back {
                return Some(Self { rotation, translation: scaled(t, -1.0) });
            }
        }
        None
    }

    /// With the second view turned back.
    fn turned_back(&self, turn: &Matrix3) -> Self {
        let mut rotation = [[0.0; 3]; 3];
        let mut translation = [0.0; 3];
        for i in 0..3 {
            for k in 0..3 {
                translation[i] += turn[k][i] * self.translation[k];
                for j in 0..3 {
                    rotation[i][j] += turn[k][i] * self.rotation[k][j];
                }
            }
        }
        Self { rotation, translation }
    }

    fn pose(&self) -> Pose {
        let r = &self.rotation;
        Pose { rotation: Rotation::from_fn(|i, j| r[i][j]), translation: Vector::from(self.translation) }
    }

    fn is_same(&self, other: &Pose) -> bool {
        let mut apart = 0.0;
        for i in 0..3 {
            let shift = self.translation[i] - other.translation[i];
            apart += shift * shift;
            for j in 0..3 {
                let turn = self.rotation[i][j] - other.rotation[(i, j)];
                apart += turn * turn;
            }
        }
        apart < SAME * SAME
    }
}

/// The solution of five linear equations, right sides in the last column: Gauss's elimination with the largest
/// pivot of each column.
fn solved(mut m: [[f64; 6]; 5]) -> [f64; 5] {
    for column in 0..5 {
        let mut pivot = column;
        for row in column + 1..5 {
            if m[row][column].abs() > m[pivot][column].abs() {
                pivot = row;
            }
        }
        m.swap(pivot, column);
        for row in column + 1..5 {
            let factor = m[row][column] / m[column][column];
            for k in column..6 {
                m[row][k] -= factor * m[column][k];
            }
        }
    }
    let mut x = [0.0; 5];
    for row in (0..5).rev() {
        let mut sum = m[row][5];
        for k in row + 1..5 {
            sum -= m[row][k] * x[k];
        }
        x[row] = sum / m[row][row];
    }
    x
}
