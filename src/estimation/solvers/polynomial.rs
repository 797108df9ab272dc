//! Real roots of polynomials.

/// Degree of the polynomial of the five-point problem.
pub(super) const DEGREE: usize = 10;
/// Coefficients, that of the power `k` at `k`.
pub(super) type Polynomial = [f64; DEGREE + 1];
/// Values at the nodes of a control polygon (Bernstein's basis): the polynomial has no more roots in the piece than the
/// polygon has, and as many but for an even number.
type Polygon = [f64; DEGREE + 1];

/// Pieces are halved at most so often; where two roots are closer than that, both ends are given.
const HALVINGS: usize = 20;
/// Steps to a root in its bracket; a double has not more digits if each is a halving.
const STEPS: usize = 60;
/// How far a step of Newton's method may be the last one.
const CLOSE: f64 = 1e-8;

/// `binomial(i, k) / binomial(DEGREE, k)`: by which the coefficient `k` counts in the node `i`.
const NODES: [Polygon; DEGREE + 1] = nodes();

const fn nodes() -> [Polygon; DEGREE + 1] {
    let mut table = [[0.0; DEGREE + 1]; DEGREE + 1];
    let mut i = 0;
    while i <= DEGREE {
        table[i][0] = 1.0;
        let mut k = 1;
        while k <= i {
            table[i][k] = table[i][k - 1] * (i + 1 - k) as f64 / (DEGREE + 1 - k) as f64;
            k += 1;
        }
        i += 1;
    }
    table
}

/// Part of [0, 1].
#[derive(Clone, Copy)]
struct Piece {
    polygon: Polygon,
    low: f64,
    width: f64,
    /// How often it may be halved.
    halvings: usize,
}

/// The real roots in [-1, 1], and places where the polynomial touches zero but for rounding; how many. A
/// polynomial without a number in it has none.
///
/// Pieces are halved until their control polygons cross zero once or never (Lane and Riesenfeld 1981). Where the
/// polynomial touches zero exactly at the end of a piece, it is not noticed.
pub(super) fn real_roots(c: &Polynomial, roots: &mut Polynomial) -> usize {
    let mut n = 0;
    for sign in [1.0, -1.0] {
        let mut form = *c;
        for k in (1..=DEGREE).step_by(2) {
            form[k] *= sign;
        }
        let mut polygon = [0.0; DEGREE + 1];
        for i in 0..=DEGREE {
            let mut sum = form[0];
            for k in 1..=i {
                sum += NODES[i][k] * form[k];
            }
            polygon[i] = sum;
        }
        let mut piece = Piece { polygon, low: 0.0, width: 1.0, halvings: HALVINGS };
        let mut waiting = [piece; HALVINGS];
        let mut count = 0;
        loop {
            let crossings = crossings(&piece.polygon);
            if crossings > 1 && piece.halvings > 0 {
                let (left, right) = piece.halved();
                waiting[count] = right;
                count += 1;
                piece = left;
                continue;
            }
            if crossings == 1 && n <= DEGREE {
                roots[n] = sign * root(&form, &piece);
                n += 1;
            } else if crossings > 1 && n < DEGREE {
                roots[n] = sign * piece.low;
                roots[n + 1] = sign * (piece.low + piece.width);
                n += 2;
            }
            if count == 0 {
                break;
            }
            count -= 1;
            piece = waiting[count];
        }
    }
    n
}

/// How often the sign changes from node to node.
fn crossings(polygon: &Polygon) -> usize {
    let mut n = 0;
    for k in 0..DEGREE {
        n += usize::from((polygon[k] < 0.0) != (polygon[k + 1] < 0.0));
    }
    n
}

impl Piece {
    /// De Casteljau's scheme.
    fn halved(&self) -> (Self, Self) {
        let (mut left, mut right) = (self.polygon, self.polygon);
        for k in 1..=DEGREE {
            for i in 0..=DEGREE - k {
                right[i] = 0.5 * (right[i] + right[i + 1]);
            }
            left[k] = right[0];
        }
        let (width, halvings) = (0.5 * self.width, self.halvings - 1);
        let low = self.low + width;
        (Self { polygon: left, width, halvings, ..*self }, Self { polygon: right, low, width, halvings })
    }
}

/// The only root in a piece: Newton's method from where the control polygon crosses zero, held in the bracket.
fn root(c: &Polynomial, piece: &Piece) -> f64 {
    let polygon = &piece.polygon;
    let is_rising = polygon[0] < 0.0;
    let mut k = 0;
    while k < DEGREE - 1 && (polygon[k + 1] < 0.0) == is_rising {
        k += 1;
    }
    let share = (k as f64 + polygon[k] / (polygon[k] - polygon[k + 1])) / DEGREE as f64;
    let (mut low, mut high) = (piece.low, piece.low + piece.width);
    let mut x = low + share * piece.width;
    for _ in 0..STEPS {
        let (mut value, mut slope) = (c[DEGREE], 0.0);
        for k in (0..DEGREE).rev() {
            slope = slope * x + value;
            value = value * x + c[k];
        }
        let is_below = (value < 0.0) == is_rising;
        low = if is_below { x } else { low };
        high = if is_below { high } else { x };
        let newton = x - value / slope;
        let next = if newton >= low && newton <= high { newton } else { 0.5 * (low + high) };
        let step = next - x;
        x = next;
        if step < CLOSE && step > -CLOSE {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The polynomial with these roots.
    fn product(roots: &[f64; DEGREE]) -> Polynomial {
        let mut c = [0.0; DEGREE + 1];
        c[0] = 1.0;
        for r in roots {
            for k in (0..=DEGREE).rev() {
                c[k] = if k > 0 { c[k - 1] } else { 0.0 } - r * c[k];
            }
        }
        c
    }

    #[test]
    fn roots_inside_are_found_and_those_outside_are_not() {
        let known = [-3.0, -0.9, -0.5, -0.1, 0.2, 0.3, 0.7, 0.95, 1.5, 4.0];
        let mut roots = [0.0; DEGREE + 1];
        let n = real_roots(&product(&known), &mut roots);
        assert_eq!(n, 7);
        roots[..7].sort_by(f64::total_cmp);
        for (root, truth) in roots.iter().zip(&known[1..8]) {
            assert!((root - truth).abs() < 1e-12, "{root} {truth}");
        }
    }

    #[test]
    fn double_roots_are_found_once_or_twice_and_nothing_else() {
        let known = [0.26, 0.26, -0.6, -0.6, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let mut roots = [0.0; DEGREE + 1];
        let n = real_roots(&product(&known), &mut roots);
        assert!((2..=4).contains(&n), "{n}");
        let at = |truth: f64| roots[..n].iter().filter(|r| (**r - truth).abs() < 1e-4).count();
        assert!(at(0.26) >= 1 && at(-0.6) >= 1 && at(0.26) + at(-0.6) == n, "{roots:?}");
    }

    #[test]
    fn what_has_no_roots_or_no_numbers_gives_none() {
        let mut roots = [0.0; DEGREE + 1];
        let mut c = [0.0; DEGREE + 1];
        assert_eq!(real_roots(&c, &mut roots), 0);
        (c[0], c[10]) = (1.0, 1.0);
        assert_eq!(real_roots(&c, &mut roots), 0);
        assert_eq!(real_roots(&[f64::NAN; DEGREE + 1], &mut roots), 0);
        assert_eq!(real_roots(&[f64::INFINITY; DEGREE + 1], &mut roots), 0);
    }
}
