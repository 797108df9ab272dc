//! The pose of a calibrated camera from three points.

use super::vector::{array, cross, dot, minus, scaled, times, unit, Matrix3, Vector3};
use crate::geometry::{Pose, Vector};
use nalgebra::Matrix3 as Rotation;

/// Poses that three points can have.
pub const MOST: usize = 4;

/// A symmetric matrix by its entries 00, 11, 22, 01, 02, 12.
type Conic = [f64; 6];

/// At which entry of a conic that of a row and column is.
const AT: [[usize; 3]; 3] = [[0, 3, 4], [3, 1, 5], [4, 5, 2]];
/// Steps of Newton's method for the root of the cubic: it starts within twice the root.
const CUBIC_STEPS: usize = 20;
/// Steps of Newton's method for the depths; a double root halves its error with each.
const STEPS: usize = 8;
/// Where the equations are met so well, relative to the longest side, and a step is as short, it is the last one.
const CLOSE: f64 = 1e-9;
/// A residual of more is no solution.
const RESIDUAL: f64 = 1e-12;
/// A discriminant below zero by less, relative to its terms, is zero but for rounding.
const DOUBLE: f64 = 1e-9;
/// A height of less, relative to a side, is none but for rounding.
const FLAT: f64 = 1e-12;
/// Solutions that differ by less, relative to their size, are the same.
const SAME: f64 = 1e-9;

/// All poses `camera_t_target` with which three points of the target frame lie on their bearings (unit
/// vectors, optical frame), in front: `d_i bearing_i = R point_i + t`, `d_i > 0`. How many there are.
///
/// Collinear points and numbers that are not finite have none.
///
/// The depths meet three quadratic equations (Grunert 1841). As unknowns serve the differences of two depths
/// from the third, in units of the widest angle between bearings, and the third: so the equations keep their
/// digits however narrow the view is. Two combinations without a constant are conics in the ratios; the pair of
/// lines in their pencil (Finsterwalder 1903; Persson and Nordberg 2018; Ding et al. 2023) belongs to the root of
/// a cubic that is farthest from the others, and each line meets a conic in up to two points. Newton's method
/// on the three equations ends it.
pub fn p3p(bearings: &[Vector; 3], points: &[Vector; 3], out: &mut [Pose; MOST]) -> usize {
    let f = [array(&bearings[0]), array(&bearings[1]), array(&bearings[2])];
    let x = [array(&points[0]), array(&points[1]), array(&points[2])];
    let square = |a: &Vector3, b: &Vector3| {
        let d = minus(a, b);
        dot(&d, &d)
    };
    // Pairs 12, 13, 23.
    let angles = [square(&f[0], &f[1]), square(&f[0], &f[2]), square(&f[1], &f[2])];
    let sides = [square(&x[0], &x[1]), square(&x[0], &x[2]), square(&x[1], &x[2])];
    let (widest, longest) = (angles[largest(&angles)], sides[largest(&sides)]);
    let is_some = widest > 0.0 && longest > 0.0;
    if !is_some {
        return 0;
    }
    let problem = Problem {
        sigma: widest.sqrt(),
        k: [angles[0] / widest, angles[1] / widest, angles[2] / widest],
        b: [sides[0] / longest, sides[1] / longest, sides[2] / longest],
    };
    let Some(target) = frame(&x) else { return 0 };
    let mut solutions = [[0.0; 3]; MOST];
    let count = problem.solve(&mut solutions);
    let unit = longest.sqrt() / problem.sigma;
    let mut n = 0;
    for solution in solutions.iter().take(count) {
        let depths = scaled(&problem.depths(solution), unit);
        let seen = [scaled(&f[0], depths[0]), scaled(&f[1], depths[1]), scaled(&f[2], depths[2])];
        let Some(camera) = frame(&seen) else { continue };
        let pose = carried(&target, &camera, &x, &seen);
        if pose.is_finite() {
            out[n] = pose;
            n += 1;
        }
    }
    n
}

/// Axes of a triangle: along its first side, and along its normal; the second is between. `None` if it is flat.
fn frame(p: &[Vector3; 3]) -> Option<[Vector3; 3]> {
    let (side, other) = (minus(&p[1], &p[0]), minus(&p[2], &p[0]));
    let first = unit(&side)?;
    // At right angles to the first axis however flat the triangle is.
    let height = minus(&other, &scaled(&first, dot(&first, &other)));
    let second = minus(&height, &scaled(&first, dot(&first, &height)));
    if dot(&second, &second) <= FLAT * FLAT * dot(&other, &other) {
        return None;
    }
    let second = unit(&second)?;
    Some([first, second, cross(&first, &second)])
}

/// The pose that carries one of two equal triangles onto the other.
fn carried(from: &[Vector3; 3], to: &[Vector3; 3], x: &[Vector3; 3], y: &[Vector3; 3]) -> Pose {
    let mut rotation = [[0.0; 3]; 3];
    for i in 0..3 {
        for j in 0..3 {
            rotation[i][j] = from[0][j] * to[0][i] + from[1][j] * to[1][i] + from[2][j] * to[2][i];
        }
    }
    let (a, b) = (centroid(x), centroid(y));
    let translation = minus(&b, &times(&rotation, &a));
    Pose { rotation: Rotation::from_fn(|i, j| rotation[i][j]), translation: Vector::from(translation) }
}

fn centroid(p: &[Vector3; 3]) -> Vector3 {
    let third = 1.0 / 3.0;
    [
        third * (p[0][0] + p[1][0] + p[2][0]),
        third * (p[0][1] + p[1][1] + p[2][1]),
        third * (p[0][2] + p[1][2] + p[2][2]),
    ]
}

/// The equations `(p - q)^2 + k12 d1 d2 = b12`, `p^2 + k13 d1 d3 = b13`, `q^2 + k23 d2 d3 = b23` in `(p, q, r)`
/// with the depths `(d1, d2, d3) = (r + sigma p, r + sigma q, r)`.
struct Problem {
    /// Distance between the tips of the bearings that are farthest apart.
    sigma: f64,
    /// Squared distances between tips, relative to that.
    k: [f64; 3],
    /// Squared sides, relative to the longest.
    b: [f64; 3],
}

impl Problem {
    fn depths(&self, x: &Vector3) -> Vector3 {
        [x[2] + self.sigma * x[0], x[2] + self.sigma * x[1], x[2]]
    }

    /// The left sides of the equations.
    fn left(&self, x: &Vector3) -> [f64; 3] {
        let d = self.depths(x);
        let between = x[0] - x[1];
        [
            between * between + self.k[0] * (d[0] * d[1]),
            x[0] * x[0] + self.k[1] * (d[0] * d[2]),
            x[1] * x[1] + self.k[2] * (d[1] * d[2]),
        ]
    }

    /// Solutions with positive depths; how many.
    fn solve(&self, out: &mut [Vector3; MOST]) -> usize {
        let (first, second) = self.pencil();
        let Some(lines) = lines(&first, &second) else { return 0 };
        let mut n = 0;
        for line in &lines {
            let Some(pair) = meet(line, &second) else { continue };
            for point in &pair {
                let Some(x) = self.refined(point) else { continue };
                let mut is_new = true;
                for other in out.iter().take(n) {
                    let apart = minus(&x, other);
                    is_new = is_new && dot(&apart, &apart) > SAME * SAME * dot(&x, &x);
                }
                if is_new && n < MOST {
                    out[n] = x;
                    n += 1;
                }
            }
        }
        n
    }

    /// Two conics that all solutions meet, the second as far from a degenerate one as can be had cheaply.
    fn pencil(&self) -> (Conic, Conic) {
        let (s, k) = (self.sigma, &self.k);
        let half = [0.5 * (k[0] * s), 0.5 * (k[1] * s), 0.5 * (k[2] * s)];
        let forms: [Conic; 3] = [
            [1.0, 1.0, k[0], half[0] * s - 1.0, half[0], half[0]],
            [1.0, 0.0, k[1], 0.0, half[1], 0.0],
            [0.0, 1.0, k[2], 0.0, 0.0, half[2]],
        ];
        // The longest side is one.
        let last = largest(&self.b);
        let (i, j) = ((last + 1) % 3, (last + 2) % 3);
        let a = combined(&forms[i], &forms[last], -self.b[i]);
        let b = combined(&forms[j], &forms[last], -self.b[j]);
        let [c0, c1, c2, c3] = cubic(&a, &b);
        // Determinants of a, b, a + b, a - b, each for matrices of the same length.
        let (sum, difference) = ((c0 + c2) + (c1 + c3), (c0 + c2) - (c1 + c3));
        let shorter = 0.353_553_390_593_273_8;
        let sizes = [c0.abs(), c3.abs(), shorter * sum.abs(), shorter * difference.abs()];
        let mut best = 0;
        for k in 1..4 {
            if sizes[k] > sizes[best] {
                best = k;
            }
        }
        match best {
            0 => (b, a),
            1 => (a, b),
            2 => (b, combined(&a, &b, 1.0)),
            _ => (b, combined(&a, &b, -1.0)),
        }
    }

    /// The solution to which a point of the conics, of any length and sign, leads.
    fn refined(&self, point: &Vector3) -> Option<Vector3> {
        let left = self.left(point);
        let length = ((self.b[0] + self.b[1] + self.b[2]) / (left[0] + left[1] + left[2])).sqrt();
        let mut x = scaled(point, if point[2] < 0.0 { -length } else { length });
        let (mut last, mut kept) = (f64::INFINITY, x);
        for _ in 0..=STEPS {
            let left = self.left(&x);
            let miss = [left[0] - self.b[0], left[1] - self.b[1], left[2] - self.b[2]];
            let size = miss[0].abs() + miss[1].abs() + miss[2].abs();
            // False also if it is no number.
            let is_better = size < last;
            if !is_better {
                break;
            }
            (last, kept) = (size, x);
            let d = self.depths(&x);
            let (s, k) = (self.sigma, &self.k);
            let between = 2.0 * (x[0] - x[1]);
            let slopes = [
                [between + k[0] * s * d[1], k[0] * s * d[0] - between, k[0] * (d[0] + d[1])],
                [2.0 * x[0] + k[1] * s * d[2], 0.0, k[1] * (d[0] + d[2])],
                [0.0, 2.0 * x[1] + k[2] * s * d[2], k[2] * (d[1] + d[2])],
            ];
            let step = solved(&slopes, &miss);
            x = minus(&x, &step);
            if size < CLOSE && dot(&step, &step) < CLOSE * CLOSE * dot(&x, &x) {
                // What is left is the square of that.
                (last, kept) = (0.0, x);
                break;
            }
        }
        let d = self.depths(&kept);
        (last <= RESIDUAL && d[0] > 0.0 && d[1] > 0.0 && d[2] > 0.0).then_some(kept)
    }
}

fn largest(values: &[f64; 3]) -> usize {
    if values[0] >= values[1] && values[0] >= values[2] {
        0
    } else if values[1] >= values[2] {
        1
    } else {
        2
    }
}

/// `a + s b`
fn combined(a: &Conic, b: &Conic, s: f64) -> Conic {
    let mut sum = [0.0; 6];
    for i in 0..6 {
        sum[i] = a[i] + s * b[i];
    }
    sum
}

/// The adjugate, symmetric too.
fn adjugate(m: &Conic) -> Conic {
    [
        m[1] * m[2] - m[5] * m[5],
        m[0] * m[2] - m[4] * m[4],
        m[0] * m[1] - m[3] * m[3],
        m[4] * m[5] - m[3] * m[2],
        m[3] * m[5] - m[4] * m[1],
        m[3] * m[4] - m[0] * m[5],
    ]
}

/// The trace of the product.
fn trace(a: &Conic, b: &Conic) -> f64 {
    (a[0] * b[0] + a[1] * b[1] + a[2] * b[2]) + 2.0 * (a[3] * b[3] + a[4] * b[4] + a[5] * b[5])
}

/// `det(a + g b)` by the powers of `g`.
fn cubic(a: &Conic, b: &Conic) -> [f64; 4] {
    let (of_a, of_b) = (adjugate(a), adjugate(b));
    [trace(&of_a, a) / 3.0, trace(&of_a, b), trace(&of_b, a), trace(&of_b, b) / 3.0]
}

/// The real root of `c0 + c1 x + c2 x^2 + c3 x^3` that is farthest from the others.
fn isolated_root(c: &[f64; 4]) -> f64 {
    let (b2, b1, b0) = (c[2] / c[3], c[1] / c[3], c[0] / c[3]);
    // x = m + t, t^3 + p t + q.
    let m = -b2 / 3.0;
    let p = b1 + b2 * m;
    let q = ((m + b2) * m + b1) * m + b0;
    // The root has the other sign than q: t is its size, where t^3 + p t = |q|.
    let size = q.abs();
    let quarter = size.sqrt().sqrt();
    let sixteenth = quarter.sqrt().sqrt();
    // The third root but for little: 1/3 = 1/4 + 1/16 + ...
    let third = quarter * sixteenth;
    // Not below the root, from where Newton's method comes down to it.
    let mut t = if p < 0.0 {
        let twice = 2.0 * (-p / 3.0).sqrt();
        let other = 1.7 * third;
        if twice > other {
            twice
        } else {
            other
        }
    } else {
        let other = size / p;
        if other < 1.1 * third {
            other
        } else {
            1.1 * third
        }
    };
    for _ in 0..CUBIC_STEPS {
        let next = t - ((t * t + p) * t - size) / (3.0 * (t * t) + p);
        let is_last = (t - next).abs() <= 1e-9 * t;
        t = next;
        if is_last {
            break;
        }
    }
    let x = m + if q > 0.0 { -t } else { t };
    // Rounding of the shift.
    let slope = (3.0 * x + 2.0 * b2) * x + b1;
    let step = (((x + b2) * x + b1) * x + b0) / slope;
    if step.abs() < 1e-6 * (1.0 + x.abs()) {
        x - step
    } else {
        x
    }
}

/// The two lines of a degenerate conic in the pencil.
fn lines(first: &Conic, second: &Conic) -> Option<[Vector3; 2]> {
    let g = isolated_root(&cubic(first, second));
    let m = combined(first, second, g);
    let adjugate = adjugate(&m);
    let mut k = 0;
    for i in 1..3 {
        if adjugate[i].abs() > adjugate[k].abs() {
            k = i;
        }
    }
    // Where the lines meet, p: the adjugate is -p p'. A double line has none but for rounding.
    let size = (-adjugate[k]).sqrt();
    let mut p = [0.0; 3];
    if size > 0.0 {
        for i in 0..3 {
            p[i] = adjugate[AT[k][i]] / size;
        }
    }
    let n: Matrix3 = [
        [m[0], m[3] - p[2], m[4] + p[1]],
        [m[3] + p[2], m[1], m[5] - p[0]],
        [m[4] - p[1], m[5] + p[0], m[2]],
    ];
    let (mut row, mut column) = (0, 0);
    for i in 0..3 {
        for j in 0..3 {
            if n[i][j].abs() > n[row][column].abs() {
                (row, column) = (i, j);
            }
        }
    }
    (n[row][column].abs() > 0.0).then(|| [n[row], [n[0][column], n[1][column], n[2][column]]])
}

/// Where a line meets a conic.
fn meet(line: &Vector3, conic: &Conic) -> Option<[Vector3; 2]> {
    let k = largest(&[line[0].abs(), line[1].abs(), line[2].abs()]);
    let (i, j) = ((k + 1) % 3, (k + 2) % 3);
    // x_k = u x_i + v x_j
    let (u, v) = (-line[i] / line[k], -line[j] / line[k]);
    let entry = |row: usize, column: usize| conic[AT[row][column]];
    let a = entry(i, i) + u * (2.0 * entry(i, k) + u * entry(k, k));
    let b = entry(i, j) + v * entry(i, k) + u * (entry(j, k) + v * entry(k, k));
    let c = entry(j, j) + v * (2.0 * entry(j, k) + v * entry(k, k));
    let mut discriminant = b * b - a * c;
    if discriminant < 0.0 && discriminant > -DOUBLE * (b * b + (a * c).abs()) {
        discriminant = 0.0;
    }
    if discriminant.is_nan() || discriminant < 0.0 {
        return None;
    }
    let root = discriminant.sqrt();
    let w = if b < 0.0 { root - b } else { -root - b };
    let mut points = [[0.0; 3]; 2];
    (points[0][i], points[0][j], points[0][k]) = (w, a, u * w + v * a);
    (points[1][i], points[1][j], points[1][k]) = (c, w, u * c + v * w);
    Some(points)
}

/// The solution of three linear equations.
fn solved(rows: &Matrix3, right: &Vector3) -> Vector3 {
    let columns = [cross(&rows[1], &rows[2]), cross(&rows[2], &rows[0]), cross(&rows[0], &rows[1])];
    let determinant = dot(&rows[0], &columns[0]);
    let mut x = [0.0; 3];
    for i in 0..3 {
        let sum = columns[0][i] * right[0] + columns[1][i] * right[1] + columns[2][i] * right[2];
        x[i] = sum / determinant;
    }
    x
}
