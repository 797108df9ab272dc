use crate::features::{Descriptor, Match};
use crate::gpu::fallback::BackendError;
use crate::params::Params;
use rayon::prelude::*;

#[derive(Default)]
pub struct Matcher {
    sets: Vec<Vec<Descriptor>>,
}

fn d(a: &Descriptor, b: &Descriptor) -> u32 {
    a.iter().zip(b).map(|(a, b)| (i32::from(*a) - i32::from(*b)).pow(2) as u32).sum()
}

impl Matcher {
    pub fn new(_: &Params) -> Result<Self, BackendError> {
        Ok(Self::default())
    }
    pub fn set_targets(&mut self, sets: &[&[Descriptor]]) -> Result<(), crate::gpu::GpuError> {
        self.sets = sets.iter().map(|s| s.to_vec()).collect();
        Ok(())
    }
    pub fn matches(
        &mut self,
        source: &[Descriptor],
        targets: &[usize],
        _ratio: f64,
        out: &mut Vec<Vec<Match>>,
    ) -> Result<(), crate::gpu::GpuError> {
        out.resize_with(targets.len(), Vec::new);
        for (t, out) in targets.iter().zip(out.iter_mut()) {
            out.clear();
            let set = &self.sets[*t];
            let fwd: Vec<(u32, u32, u32)> = source
                .par_iter()
                .map(|s| {
                    let mut best = (u32::MAX, u32::MAX, u32::MAX);
                    for (j, t) in set.iter().enumerate() {
                        let x = d(s, t);
                        if x < best.0 {
                            best = (x, j as u32, best.0);
                        } else if x < best.2 {
                            best.2 = x;
                        }
                    }
                    best
                })
                .collect();
            let back: Vec<u32> = set
                .par_iter()
                .map(|t| (0..source.len()).min_by_key(|i| d(&source[*i], t)).unwrap_or(0) as u32)
                .collect();
            for (i, (x, j, second)) in fwd.iter().enumerate() {
                if back.get(*j as usize) == Some(&(i as u32)) {
                    out.push(Match { source: i as u32, target: *j, distance: *x, second: *second });
                }
            }
            out.sort_by(|a, b| {
                (u64::from(a.distance) * u64::from(b.second))
                    .cmp(&(u64::from(b.distance) * u64::from(a.second)))
                    .then(a.distance.cmp(&b.distance))
                    .then(a.source.cmp(&b.source))
            });
        }
        Ok(())
    }
}
