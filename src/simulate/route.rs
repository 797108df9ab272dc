//! A smooth closed path over the floor.

/// A point on the floor, m.
pub type Spot = [f64; 2];

/// Distance between two samples of the path, m (at most).
const STEP: f64 = 0.02;

/// A closed path, by its length.
#[derive(Debug, Clone)]
pub struct Route {
    samples: Vec<Spot>,
    /// Length from the start to each sample.
    lengths: Vec<f64>,
}

fn distance(a: Spot, b: Spot) -> f64 {
    ((a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1])).sqrt()
}

fn mix(a: Spot, b: Spot, ta: f64, tb: f64, t: f64) -> Spot {
    let w = (t - ta) / (tb - ta);
    [a[0] + w * (b[0] - a[0]), a[1] + w * (b[1] - a[1])]
}

impl Route {
    /// A centripetal Catmull-Rom spline through the points (Barry and Goldman 1988), which has no
    /// loops or cusps between them. Points closer than 0.3 m to the one before are left out.
    pub(super) fn through(points: &[Spot]) -> Self {
        let mut kept: Vec<Spot> = Vec::new();
        for p in points {
            if kept.last().is_none_or(|last| distance(*last, *p) > 0.3) {
                kept.push(*p);
            }
        }
        while kept.len() > 1 && distance(kept[0], kept[kept.len() - 1]) <= 0.3 {
            kept.pop();
        }
        let n = kept.len();
        let mut samples = Vec::new();
        for i in 0..n {
            let p: [Spot; 4] = std::array::from_fn(|k| kept[(i + n + k - 1) % n]);
            let mut t = [0.0; 4];
            for k in 1..4 {
                t[k] = t[k - 1] + distance(p[k - 1], p[k]).sqrt().max(1e-6);
            }
            let steps = (1.5 * distance(p[1], p[2]) / STEP) as usize + 1;
            for step in 0..steps {
                let u = t[1] + (t[2] - t[1]) * step as f64 / steps as f64;
                let a: [Spot; 3] = std::array::from_fn(|k| mix(p[k], p[k + 1], t[k], t[k + 1], u));
                let b: [Spot; 2] = std::array::from_fn(|k| mix(a[k], a[k + 1], t[k], t[k + 2], u));
                samples.push(mix(b[0], b[1], t[1], t[2], u));
            }
        }
        let mut lengths = vec![0.0];
        for i in 0..samples.len() {
            let step = distance(samples[i], samples[(i + 1) % samples.len()]);
            lengths.push(lengths[i] + step);
        }
        Self { samples, lengths }
    }

    /// The same path the other way; it begins at the same point.
    pub(super) fn reversed(&self) -> Self {
        let (total, mut samples) = (self.length(), self.samples.clone());
        let first = samples.len().min(1);
        samples[first..].reverse();
        let lengths = self.lengths.iter().rev().map(|length| total - length).collect();
        Self { samples, lengths }
    }

    /// The sample of the path that lies deepest within a rectangle of floor (x from, x to, y from, y to): how far
    /// along the path it is, m. None: the path does not enter it.
    pub fn deepest_in(&self, [x0, x1, y0, y1]: [f64; 4]) -> Option<f64> {
        let depth = |[x, y]: Spot| (x - x0).min(x1 - x).min(y - y0).min(y1 - y);
        let samples = self.samples.iter().zip(&self.lengths).map(|(spot, along)| (depth(*spot), *along));
        let deepest = samples.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)))?;
        (deepest.0 > 0.0).then_some(deepest.1)
    }

    /// Length of the whole loop, m.
    pub fn length(&self) -> f64 {
        self.lengths.last().copied().unwrap_or(0.0)
    }

    /// The samples, at most about 2 cm apart.
    pub fn samples(&self) -> &[Spot] {
        &self.samples
    }

    /// The point this far along the loop (any number of rounds).
    pub fn spot(&self, along: f64) -> Spot {
        let along = along.rem_euclid(self.length().max(1e-9));
        let after = self.lengths.partition_point(|l| *l <= along).clamp(1, self.samples.len());
        let (from, to) = (self.samples[after - 1], self.samples[after % self.samples.len()]);
        let (start, end) = (self.lengths[after - 1], self.lengths[after]);
        if end > start {
            mix(from, to, start, end, along)
        } else {
            from
        }
    }

    /// Heading this far along the loop: the direction over 0.3 m, as a robot turns smoothly.
    pub fn heading(&self, along: f64) -> f64 {
        let (back, front) = (self.spot(along - 0.15), self.spot(along + 0.15));
        libm::atan2(front[1] - back[1], front[0] - back[0])
    }
}
