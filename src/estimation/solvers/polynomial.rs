//! Real roots of polynomials.

/// Degree of the polynomial of the five-point problem.
pub(super) const DEGREE: usize = 10;
/// Coefficients, that of the power `k` at `k`.
pub(super) type Polynomial = [f64; DEGREE + 1];

/// How far a step of Newton's method may be the last one.
const CLOSE: f64 = 1e-9;
/// A bracket is halved at most so often; a double has not more digits.
const HALVINGS: usize = 60;
/// A polynomial that comes so close to zero between two roots of its derivative, relative to its
/// coefficients, may have two roots there but for rounding.
const TOUCH: f64 = 1e-9;

/// Horner's scheme.
fn value(c: &Polynomial, degree: usize, x: f64) -> f64 {
    let mut sum = c[degree];
    for k in (0..degree).rev() {
        sum = sum * x + c[k];
    }
    sum
}

/// The root between `low` and `high`, where the polynomial has values of different sign: Newton's method,
/// held in the bracket.
fn between(c: &Polynomial, slope: &Polynomial, degree: usize, bracket: [f64; 2], is_rising: bool) -> f64 {
    let [mut low, mut high] = bracket;
    let mut x = 0.5 * (low + high);
    for _ in 0..HALVINGS {
        let v = value(c, degree, x);
        if v == 0.0 {
            break;
        }
        if (v < 0.0) == is_rising {
            low = x;
        } else {
            high = x;
        }
        let mut next = x - v / value(slope, degree - 1, x);
        if !(next > low && next < high) {
            next = 0.5 * (low + high);
        }
        let step = next - x;
        x = next;
        if step < CLOSE && step > -CLOSE {
            break;
        }
    }
    x
}

/// The real roots in [-1, 1], in ascending order, and places where the polynomial touches zero but for rounding;
/// how many.
///
/// Between two neighbouring roots of the derivative a polynomial has one root at most: the roots of all
/// derivatives are found from the linear one upwards. A polynomial without a number in it has no roots.
pub(super) fn real_roots(c: &Polynomial, roots: &mut Polynomial) -> usize {
    // All derivatives, by degree.
    let mut forms = [[0.0; DEGREE + 1]; DEGREE + 1];
    forms[DEGREE] = *c;
    for d in (1..DEGREE).rev() {
        for k in 0..=d {
            forms[d][k] = forms[d + 1][k + 1] * (k + 1) as f64;
        }
    }
    let mut size = 0.0;
    for v in c {
        size += v.abs();
    }
    forms[0][0] = forms[1][1];
    let mut count = 0;
    for d in 1..=DEGREE {
        let form = &forms[d];
        let mut found = [0.0; DEGREE + 1];
        let mut n = 0;
        let mut low = -1.0;
        let mut at_low = value(form, d, low);
        // Falls towards zero, or rises to it, before `low`.
        let mut approached = false;
        for k in 0..=count {
            let high = if k < count { roots[k] } else { 1.0 };
            let at_high = value(form, d, high);
            if (at_low < 0.0 && at_high >= 0.0) || (at_low > 0.0 && at_high <= 0.0) {
                if n < DEGREE {
                    found[n] = between(form, &forms[d - 1], d, [low, high], at_low < 0.0);
                    n += 1;
                }
                approached = false;
            } else {
                let nearer = at_high.abs() < at_low.abs();
                if d == DEGREE && approached && !nearer && at_low.abs() <= TOUCH * size && n < DEGREE {
                    found[n] = low;
                    n += 1;
                }
                approached = nearer;
            }
            (low, at_low) = (high, at_high);
        }
        *roots = found;
        count = n;
    }
    count
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
        for (root, truth) in roots.iter().zip(&known[1..8]) {
            assert!((root - truth).abs() < 1e-9, "{root} {truth}");
        }
    }

    #[test]
    fn double_roots_are_found_once_or_twice_and_nothing_else() {
        let known = [0.25, 0.25, -0.6, -0.6, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let mut roots = [0.0; DEGREE + 1];
        let n = real_roots(&product(&known), &mut roots);
        assert!((2..=4).contains(&n), "{n}");
        let at = |truth: f64| roots[..n].iter().filter(|r| (**r - truth).abs() < 1e-6).count();
        assert!(at(0.25) >= 1 && at(-0.6) >= 1 && at(0.25) + at(-0.6) == n, "{roots:?}");
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
