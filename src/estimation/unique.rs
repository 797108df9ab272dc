//! Rows that say the same count once.

/// A row and what it shares with those that exclude it in a sample.
pub(crate) type Kept = (usize, u64);

/// Finds duplicates; the buffers are reused.
#[derive(Debug, Default)]
pub(crate) struct Unique {
    hashes: Vec<(u64, u32)>,
    kept: Vec<Kept>,
    /// Of every row, the place among those kept of the one that stands for it.
    place: Vec<u32>,
}

impl Unique {
    /// Room for `n` rows.
    pub fn with_capacity(n: usize) -> Self {
        Self { hashes: Vec::with_capacity(n), kept: Vec::with_capacity(n), place: Vec::with_capacity(n) }
    }

    /// Takes the bits that make rows the same, and their identities.
    pub fn find<const N: usize>(&mut self, rows: impl Iterator<Item = ([u64; N], Option<u32>)>) {
        self.hashes.clear();
        self.kept.clear();
        self.place.clear();
        for (i, (words, id)) in rows.enumerate() {
            // Zero has two signs.
            let words = words.map(|w| if w == 1 << 63 { 0 } else { w });
            let hash = words.iter().fold(N as u64, |hash, word| super::sampler::mix(hash ^ word));
            self.hashes.push((hash, i as u32));
            // Rows without an identity have one each.
            self.kept.push((i, id.map_or((1 << 32) + i as u64, u64::from)));
        }
        self.hashes.sort_unstable();
        self.place.extend(0..self.kept.len() as u32);
        // First of its duplicates, or itself.
        for pair in self.hashes.windows(2) {
            if let [(a, first), (b, later)] = pair {
                if a == b {
                    let first = self.place.get(*first as usize).copied().unwrap_or(*first);
                    if let Some(place) = self.place.get_mut(*later as usize) {
                        *place = first;
                    }
                }
            }
        }
        let place = &self.place;
        self.kept.retain(|(i, _)| place.get(*i) == Some(&(*i as u32)));
        // From rows to places among the kept.
        let mut count = 0;
        for i in 0..self.place.len() {
            let first = self.place[i] as usize;
            self.place[i] = if first == i { count } else { self.place[first] };
            count += u32::from(first == i);
        }
    }

    /// The rows that are kept, in their order.
    pub fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// Of every row, the place among those kept of the one that stands for it.
    pub fn places(&self) -> &[u32] {
        &self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_same_rows_stands_for_all() {
        let mut unique = Unique::default();
        let words = [7u64, 8, 7, 9, 8, 7];
        unique.find(words.iter().map(|w| ([*w, 0], (*w == 9).then_some(5))));
        assert_eq!(unique.kept(), [(0, 1 << 32), (1, (1 << 32) + 1), (3, 5)]);
        assert_eq!(unique.places(), [0, 1, 0, 2, 1, 0]);
    }
}
