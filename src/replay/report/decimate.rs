//! Fewer points that look the same: no extreme is lost.

/// Points joined by lines.
pub type Line = Vec<(f64, f64)>;

/// Points at ascending times, cut where these jump by more than `gap`.
pub fn cut<T>(points: impl IntoIterator<Item = (f64, T)>, gap: f64) -> Vec<Vec<(f64, T)>> {
    let mut lines: Vec<Vec<(f64, T)>> = Vec::new();
    for point in points {
        match lines.last_mut() {
            Some(line) if line.last().is_some_and(|last| point.0 - last.0 <= gap) => line.push(point),
            _ => lines.push(vec![point]),
        }
    }
    lines
}

/// Of each column of width `column` the first, the lowest, the highest and the last point, in their order;
/// pieces that end in the column in which the next begins are joined. `x` ascends.
pub fn by_columns(lines: &[Line], column: f64) -> Vec<Line> {
    let index = |x: f64| (x / column).floor();
    let mut out: Vec<Line> = Vec::new();
    for line in lines {
        let thin = line.chunk_by(|a, b| index(a.0) == index(b.0)).flat_map(extremes);
        let first = line.first().map(|point| index(point.0));
        match out.last_mut() {
            Some(last) if last.last().map(|point| index(point.0)) == first => last.extend(thin),
            _ => out.push(thin.collect()),
        }
    }
    out
}

fn extremes(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let by_y = |a: &(usize, f64), b: &(usize, f64)| a.1.total_cmp(&b.1);
    let ys = || points.iter().map(|point| point.1).enumerate();
    let mut keep: Vec<usize> =
        [ys().min_by(by_y), ys().max_by(by_y)].into_iter().flatten().map(|p| p.0).collect();
    keep.extend([0, points.len().saturating_sub(1)]);
    keep.sort_unstable();
    keep.dedup();
    keep.into_iter().filter_map(|i| points.get(i).copied()).collect()
}

/// Points at least `distance` from the one kept before, and the last.
pub fn by_distance(line: &[(f64, f64)], distance: f64) -> Line {
    let mut kept: Line = Vec::new();
    for (i, &(x, y)) in line.iter().enumerate() {
        let is_far = kept.last().is_none_or(|last| (x - last.0).hypot(y - last.1) >= distance);
        if is_far || i + 1 == line.len() {
            kept.push((x, y));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_gaps() {
        let lines = cut([(0.0, 1.0), (0.1, 1.0), (0.5, 1.0), (0.6, 2.0)], 0.25);
        assert_eq!(lines, [vec![(0.0, 1.0), (0.1, 1.0)], vec![(0.5, 1.0), (0.6, 2.0)]]);
    }

    #[test]
    fn of_many_points_the_extremes_stay() {
        let mut line: Line = (0..10_000).map(|i| (f64::from(i) * 1e-3, f64::from(i % 7))).collect();
        line[4321].1 = 100.0;
        line[8765].1 = -100.0;
        let thin = by_columns(&[line.clone()], 0.1);
        assert!(thin.iter().map(Vec::len).sum::<usize>() <= 400, "{}", thin.len());
        assert!(thin[0].contains(&line[4321]) && thin[0].contains(&line[8765]));
        assert!(thin[0].is_sorted_by_key(|point| point.0));
        assert_eq!((thin[0].first(), thin[0].last()), (line.first(), line.last()));
    }

    #[test]
    fn pieces_within_a_column_are_one() {
        let lines = [vec![(0.0, 1.0)], vec![(0.05, 2.0)], vec![(0.5, 3.0)]];
        assert_eq!(by_columns(&lines, 0.1).len(), 2);
    }

    #[test]
    fn a_path_keeps_its_excursions() {
        let line = [(0.0, 0.0), (0.01, 0.0), (5.0, 5.0), (0.02, 0.0), (0.021, 0.0)];
        let kept = by_distance(&line, 0.1);
        assert!(kept.contains(&(5.0, 5.0)) && kept.last() == Some(&(0.021, 0.0)), "{kept:?}");
    }
}
