//! Where a polynomial stays above zero.

/// Coefficients of a polynomial, the constant first.
pub(super) type Polynomial = [f64; SIZE];

/// Enough for the determinants of the models here.
pub(super) const SIZE: usize = 14;

/// The interval of [0, 1] is halved this often: 1e-12.
const HALVINGS: u32 = 40;

/// The largest `x` such that the polynomial is shown to be above zero on `[0, x)`; infinite if everywhere.
/// Never too large; too small by no more than 1e-12 of `(1 + x)^2`, but for a polynomial that comes as close to zero
/// as rounding.
pub(super) fn positive_until(polynomial: &Polynomial) -> f64 {
    // With x = t / (1 - t) the polynomial times (1 - t)^n is one in t, and these are its coefficients in the
    // Bernstein basis. If none is below zero and the first is above, it is above zero on [0, 1).
    let degree = SIZE - 1;
    let mut bernstein = *polynomial;
    let mut binomial = 1.0;
    for (k, value) in bernstein.iter_mut().enumerate() {
        *value /= binomial;
        binomial = binomial * (degree - k) as f64 / (k + 1) as f64;
    }
    match first_doubt(&bernstein, 0.0, 1.0, HALVINGS) {
        Some(t) => t / (1.0 - t),
        None => f64::INFINITY,
    }
}

/// Start of the first part of `[from, from + width)` that is not shown to be above zero.
fn first_doubt(bernstein: &Polynomial, from: f64, width: f64, halvings: u32) -> Option<f64> {
    let [first, rest @ ..] = bernstein;
    if *first > 0.0 && rest.iter().all(|b| *b >= 0.0) {
        return None;
    }
    if halvings == 0 {
        return Some(from);
    }
    let (left, right) = halve(bernstein);
    let half = 0.5 * width;
    first_doubt(&left, from, half, halvings - 1)
        .or_else(|| first_doubt(&right, from + half, half, halvings - 1))
}

/// The coefficients on both halves of the interval (de Casteljau).
fn halve(bernstein: &Polynomial) -> (Polynomial, Polynomial) {
    let (mut left, mut right) = ([0.0; SIZE], *bernstein);
    for (done, value) in left.iter_mut().enumerate() {
        *value = right[0];
        for k in 0..SIZE - 1 - done {
            right[k] = 0.5 * (right[k] + right[k + 1]);
        }
    }
    (left, right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polynomial(coefficients: &[f64]) -> Polynomial {
        std::array::from_fn(|k| coefficients.get(k).copied().unwrap_or(0.0))
    }

    #[test]
    fn the_first_root_ends_it() {
        // (1 - x)(1 - x/3)(1 + x/2)
        let cubic = polynomial(&[1.0, 0.5 - 4.0 / 3.0, 1.0 / 3.0 - 2.0 / 3.0, 1.0 / 6.0]);
        assert!((positive_until(&cubic) - 1.0).abs() < 1e-10);
        assert!((positive_until(&polynomial(&[1.0, 0.0, -1e-4])) - 100.0).abs() < 1e-7);
        assert!((positive_until(&polynomial(&[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1e6])) - 0.1).abs() < 1e-10);
    }

    #[test]
    fn without_a_root_there_is_no_end() {
        assert_eq!(positive_until(&polynomial(&[1.0])), f64::INFINITY);
        // (x - 2)^2 + 1e-6
        assert_eq!(positive_until(&polynomial(&[4.0 + 1e-6, -4.0, 1.0])), f64::INFINITY);
    }

    #[test]
    fn what_is_no_number_is_not_above_zero() {
        assert_eq!(positive_until(&polynomial(&[1.0, f64::NAN])), 0.0);
        assert_eq!(positive_until(&polynomial(&[1.0, f64::NEG_INFINITY])), 0.0);
        assert_eq!(positive_until(&polynomial(&[-1.0])), 0.0);
    }
}
