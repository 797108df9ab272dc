//! Round numbers on an axis.

use std::ops::Range;

/// At most `most` multiples of 1, 2 or 5 times a power of ten within a range.
pub fn linear_ticks(range: &Range<f64>, most: usize) -> Vec<f64> {
    let length = range.end - range.start;
    if !(length > 0.0 && length.is_finite()) || most == 0 {
        return Vec::new();
    }
    let least = length / most as f64;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * power);
    let (first, last) = ((range.start / step).ceil() as i64, (range.end / step).floor() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

/// Powers of ten within a range of positive numbers; with twice and five times them where there are
/// few; every second or third where there are many.
pub fn log_ticks(range: &Range<f64>, most: usize) -> Vec<f64> {
    if !(range.start > 0.0 && range.end > range.start && range.end.is_finite()) || most == 0 {
        return Vec::new();
    }
    let (first, last) = (range.start.log10().floor() as i32, range.end.log10().ceil() as i32);
    let within = |ticks: Vec<f64>| -> Vec<f64> {
        let slack = 1e-9;
        let is_in = |tick: &f64| (range.start * (1.0 - slack)..=range.end * (1.0 + slack)).contains(tick);
        ticks.into_iter().filter(is_in).collect()
    };
    let decades = |every: usize| (first..=last).step_by(every).map(|power| 10f64.powi(power)).collect();
    let fine: Vec<f64> = (first..=last).flat_map(|p| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(p))).collect();
    let fine = within(fine);
    if fine.len() <= most {
        return fine;
    }
    (1..).map(|every| within(decades(every))).find(|ticks| ticks.len() <= most).unwrap_or_default()
}

/// A tick in as few digits as it needs.
pub fn tick_label(value: f64) -> String {
    let rounded = format!("{value:.6}");
    let text = rounded.trim_end_matches('0').trim_end_matches('.');
    match text {
        "" | "-" | "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(linear_ticks(&(0.0..10.0), 6), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(linear_ticks(&(-3.0..47.0), 5), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!(log_ticks(&(0.1..1.0), 6), [0.1, 0.2, 0.5, 1.0]);
        assert_eq!(log_ticks(&(0.01..100.0), 5), [0.01, 0.1, 1.0, 10.0, 100.0]);
        assert_eq!(log_ticks(&(1e-6..1e6), 4).len(), 4);
    }

    #[test]
    fn a_range_that_is_none_has_no_ticks() {
        for range in [0.0..0.0, 1.0..f64::INFINITY, f64::NAN..1.0, 2.0..1.0] {
            assert_eq!(linear_ticks(&range, 5), [] as [f64; 0], "{range:?}");
            assert_eq!(log_ticks(&range, 5), [] as [f64; 0], "{range:?}");
        }
    }

    #[test]
    fn labels_are_short() {
        let labels = [0.0, 0.30000000000000004, 20.0, -0.0000001, 0.001, 100.0].map(tick_label);
        assert_eq!(labels, ["0", "0.3", "20", "0", "0.001", "100"]);
    }
}
