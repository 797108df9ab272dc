//! Files of complex numbers, one a line: `re im`.

use nalgebra::Complex;

/// Reads such a text; empty lines are skipped, a line with one number is real.
///
/// # Errors
/// The line that is wrong.
pub fn parse(text: &str) -> Result<Vec<Complex<f64>>, String> {
    let mut numbers = Vec::new();
    for (line, i) in text.lines().zip(1..) {
        let mut words = line.split_whitespace().map(str::parse::<f64>);
        let value = match (words.next(), words.next(), words.next()) {
            (None, ..) => continue,
            (Some(Ok(re)), None, _) => Complex::new(re, 0.0),
            (Some(Ok(re)), Some(Ok(im)), None) => Complex::new(re, im),
            _ => return Err(format!("line {i}: expected `re im`, not `{}`", line.trim())),
        };
        if !(value.re.is_finite() && value.im.is_finite()) {
            return Err(format!("line {i}: `{}` is not finite", line.trim()));
        }
        numbers.push(value);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_nonsense_is_named() {
        let third = 1.0 / 3.0;
        let numbers = [Complex::new(third, -2e-300), Complex::new(0.0, 5.0)];
        assert_eq!(parse(&format!("{third:?} -2e-300\n0 5\n")).as_deref(), Ok(&numbers[..]));
        assert_eq!(parse("1.5\n\n 2 3\n"), Ok(vec![Complex::new(1.5, 0.0), Complex::new(2.0, 3.0)]));
        assert_eq!(parse("1 2\n1 2 3\n").map_err(|e| e.starts_with("line 2")), Err(true));
        assert!(parse("1 x").is_err() && parse("1 NaN").is_err() && parse("-inf").is_err());
    }
}
