//! Matching on the CPU: the reference that the GPU must reproduce.
//!
//! With |a - b|^2 = |a|^2 + |b|^2 - 2ab all pairs are a product of matrices. A task is a chunk of the targets,
//! which stays in the cache while all sources pass; both directions come out of the same distances. A distance
//! and an index within a chunk or a block fit one word (22 and 10 bits), so that the smallest word is the nearest
//! neighbour, ties by index.

use super::Targets;
use crate::features::{Descriptor, Match};
use crate::registration::lanes::{Deadline, Lanes, OverBudget, Shared};
use std::time::Instant;

/// Descriptors side by side.
const WIDTH: usize = 8;
/// Pairs of bins.
const PAIRS: usize = 18;
/// Sources that pass a group of targets together.
const TOGETHER: usize = 4;
/// Targets of a task: they fit the first cache.
const CHUNK: usize = 512;
/// Sources whose indices a word holds.
const BLOCK: usize = 1024;
/// Bits of an index within a chunk or a block.
const INDEX_BITS: u32 = 10;
/// Nothing there.
const NONE: u32 = u32::MAX;

const _: () = assert!(CHUNK <= 1 << INDEX_BITS && BLOCK <= 1 << INDEX_BITS);
const _: () = assert!((36 * 255 * 255) >> (32 - INDEX_BITS) == 0 && 2 * PAIRS == 36);

/// Eight targets side by side.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
struct Group {
    /// Two bins of each, one pair of bins after the other.
    pairs: [[i16; 2 * WIDTH]; PAIRS],
    /// Squared lengths.
    norms: [u32; WIDTH],
    /// Indices within the chunk; [`NONE`] in the padding.
    tags: [u32; WIDTH],
}

/// A source.
#[derive(Debug, Clone, Copy)]
struct Source {
    /// Two bins in a word, times -2.
    pairs: [i32; PAIRS],
    /// Squared length.
    norm: u32,
    /// Index within the block; [`NONE`] in the padding.
    tag: u32,
}

/// The nearest target of a source in a chunk, and the second: words of distance and index.
#[derive(Debug, Clone, Copy)]
struct Nearest {
    best: u32,
    second: u32,
}

const NOTHING: Nearest = Nearest { best: NONE, second: NONE };

/// Matches on the CPU.
pub(super) struct Cpu {
    lanes: Lanes<()>,
    /// Of each set of targets, its groups.
    sets: Vec<Vec<Group>>,
    sources: Vec<Source>,
    tasks: Vec<Task>,
    /// Of each task, the nearest targets of all sources.
    nearest: Vec<Nearest>,
    /// Of the targets of each task, the nearest source: distance, index.
    nearest_sources: Vec<(u32, u32)>,
}

/// A chunk of a set: groups `first..end`.
struct Task {
    set: usize,
    first: usize,
    end: usize,
}

impl Cpu {
    /// With so many threads; 0: one per core.
    pub fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        Ok(Self {
            lanes: Lanes::new(threads, || ())?,
            sets: Vec::new(),
            sources: Vec::new(),
            tasks: Vec::new(),
            nearest: Vec::new(),
            nearest_sources: Vec::new(),
        })
    }

    /// Takes the targets.
    pub fn load(&mut self, targets: &Targets) {
        self.sets = targets.sets().map(groups_of).collect();
    }

    /// Mutual nearest neighbours with each of the sets, in the order of the sources.
    pub fn search(&mut self, source: &[Descriptor], sets: &[usize], found: &mut [Vec<Match>]) {
        self.sources.clear();
        self.sources.extend(source.iter().enumerate().map(|(i, d)| source_of(d, (i % BLOCK) as u32)));
        let padding = Source { tag: NONE, ..source_of(&[0; 36], 0) };
        self.sources.resize(source.len().next_multiple_of(TOGETHER), padding);
        self.tasks.clear();
        for set in sets {
            let groups = self.sets.get(*set).map_or(0, Vec::len);
            let firsts = (0..groups).step_by(CHUNK / WIDTH);
            self.tasks.extend(firsts.map(|first| Task {
                set: *set,
                first,
                end: groups.min(first + CHUNK / WIDTH),
            }));
        }
        self.nearest.resize(self.tasks.len() * self.sources.len(), NOTHING);
        self.nearest_sources.resize(self.tasks.len() * CHUNK, (NONE, NONE));
        let Self { lanes, sets: groups, sources, tasks, nearest, nearest_sources } = self;
        let (sources, tasks) = (sources.as_slice(), tasks.as_slice());
        let by_source = Shared::new(nearest);
        let by_target = Shared::new(nearest_sources);
        let none = Deadline::after_ms(Instant::now(), 0.0);
        let searched = lanes.run(tasks.len(), none, |(), t| {
            // SAFETY: the parts of this task only.
            let (nearest, nearest_sources) = unsafe {
                (by_source.part(t * sources.len(), sources.len()), by_target.part(t * CHUNK, CHUNK))
            };
            let chunk = tasks.get(t).and_then(|task| groups.get(task.set)?.get(task.first..task.end));
            search_chunk(sources, chunk.unwrap_or_default(), nearest, nearest_sources);
        });
        let (nearest, nearest_sources) = (nearest.as_slice(), nearest_sources.as_slice());
        let found = Shared::new(found);
        let chosen = lanes.run(sets.len(), none, |(), k| {
            // SAFETY: one element for each set.
            let found = unsafe { found.part(k, 1) };
            let before = |set: &usize| groups.get(*set).map_or(0, |g| g.len().div_ceil(CHUNK / WIDTH));
            let first: usize = sets.iter().take(k).map(before).sum();
            let chunks = sets.get(k).map_or(0, before);
            if let Some(found) = found.first_mut() {
                found.clear();
                mutual(source.len(), sources.len(), first..first + chunks, nearest, nearest_sources, found);
            }
        });
        // There is no deadline.
        debug_assert_eq!((searched, chosen), (Ok::<(), OverBudget>(()), Ok(())));
    }
}

/// Sources whose nearest target among the chunks has them as its nearest source.
fn mutual(
    sources: usize,
    padded: usize,
    chunks: std::ops::Range<usize>,
    nearest: &[Nearest],
    nearest_sources: &[(u32, u32)],
    found: &mut Vec<Match>,
) {
    for source in 0..sources {
        let (mut best, mut at, mut second) = (NONE, 0, NONE);
        for chunk in chunks.clone() {
            let Some(near) = nearest.get(chunk * padded + source) else { continue };
            let distance = near.best >> INDEX_BITS;
            second = second.min(distance_of(near.second)).min(best.max(distance));
            // Chunks come in order, so the first of equal distances has the smallest index.
            if distance < best {
                best = distance;
                at = chunk * CHUNK + (near.best & ((1 << INDEX_BITS) - 1)) as usize;
            }
        }
        if nearest_sources.get(at).is_some_and(|(_, nearest)| best != NONE && *nearest == source as u32) {
            let target = (at - chunks.start * CHUNK) as u32;
            found.push(Match { source: source as u32, target, distance: best, second });
        }
    }
}

fn distance_of(word: u32) -> u32 {
    if word == NONE {
        NONE
    } else {
        word >> INDEX_BITS
    }
}

fn groups_of(set: &[Descriptor]) -> Vec<Group> {
    let group = |(g, descriptors): (usize, &[Descriptor])| {
        let empty = Group { pairs: [[0; 2 * WIDTH]; PAIRS], norms: [0; WIDTH], tags: [NONE; WIDTH] };
        descriptors.iter().enumerate().fold(empty, |mut group, (lane, descriptor)| {
            for (pairs, [a, b]) in group.pairs.iter_mut().zip(pairs_of(descriptor)) {
                (pairs[2 * lane], pairs[2 * lane + 1]) = (a, b);
            }
            group.norms[lane] = norm(descriptor);
            group.tags[lane] = (g * WIDTH % CHUNK + lane) as u32;
            group
        })
    };
    set.chunks(WIDTH).enumerate().map(group).collect()
}

fn pairs_of(descriptor: &Descriptor) -> impl Iterator<Item = [i16; 2]> + '_ {
    descriptor.chunks_exact(2).map(|pair| [i16::from(pair[0]), i16::from(pair[1])])
}

fn norm(descriptor: &Descriptor) -> u32 {
    descriptor.iter().map(|bin| u32::from(*bin) * u32::from(*bin)).sum()
}

fn source_of(descriptor: &Descriptor, tag: u32) -> Source {
    let mut source = Source { pairs: [0; PAIRS], norm: norm(descriptor), tag };
    for (word, [a, b]) in source.pairs.iter_mut().zip(pairs_of(descriptor)) {
        *word = i32::from(-2 * a) & 0xffff | i32::from(-2 * b) << 16;
    }
    source
}

/// All sources, a multiple of [`TOGETHER`], against the targets of a chunk: of each source the nearest targets,
/// of each target the nearest source.
fn search_chunk(
    sources: &[Source],
    chunk: &[Group],
    nearest: &mut [Nearest],
    nearest_sources: &mut [(u32, u32)],
) {
    nearest_sources.fill((NONE, NONE));
    for (b, (sources, nearest)) in sources.chunks(BLOCK).zip(nearest.chunks_mut(BLOCK)).enumerate() {
        let mut words = [[NONE; WIDTH]; CHUNK / WIDTH];
        search_block(sources, chunk, nearest, &mut words);
        for ((distance, source), word) in nearest_sources.iter_mut().zip(words.as_flattened()) {
            // Blocks come in order, so the first of equal distances has the smallest index.
            if *word != NONE && word >> INDEX_BITS < *distance {
                *distance = word >> INDEX_BITS;
                *source = b as u32 * BLOCK as u32 + (word & ((1 << INDEX_BITS) - 1));
            }
        }
    }
}

fn search_block(
    sources: &[Source],
    chunk: &[Group],
    nearest: &mut [Nearest],
    words: &mut [[u32; WIDTH]; CHUNK / WIDTH],
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        unsafe { search_block_avx2(sources, chunk, nearest, words) };
        return;
    }
    search_block_with::<[u32; WIDTH]>(sources, chunk, nearest, words);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn search_block_avx2(
    sources: &[Source],
    chunk: &[Group],
    nearest: &mut [Nearest],
    words: &mut [[u32; WIDTH]; CHUNK / WIDTH],
) {
    search_block_with::<avx2::Words>(sources, chunk, nearest, words);
}

/// Eight words side by side.
trait Words: Copy {
    fn load(from: &[u32; WIDTH]) -> Self;
    fn store(self, to: &mut [u32; WIDTH]);
    fn splat(word: u32) -> Self;
    fn add(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    /// To the left, by [`INDEX_BITS`].
    fn shifted(self) -> Self;
    /// Products of the halves of two words, both with signs, added up.
    fn product(self, pairs: &[i16; 2 * WIDTH]) -> Self;
}

#[inline(always)]
fn search_block_with<W: Words>(
    sources: &[Source],
    chunk: &[Group],
    nearest: &mut [Nearest],
    words: &mut [[u32; WIDTH]; CHUNK / WIDTH],
) {
    for (four, nearest) in sources.chunks_exact(TOGETHER).zip(nearest.chunks_exact_mut(TOGETHER)) {
        let Ok(four) = <&[Source; TOGETHER]>::try_from(four) else { continue };
        let mut best = [W::splat(NONE); TOGETHER];
        let mut second = best;
        let (tags, norms) = (four.map(|s| W::splat(s.tag)), four.map(|s| W::splat(s.norm)));
        for (group, words) in chunk.iter().zip(words.iter_mut()) {
            let mut distances = norms.map(|norm| W::load(&group.norms).add(norm));
            for (p, pairs) in group.pairs.iter().enumerate() {
                for (distance, source) in distances.iter_mut().zip(four) {
                    *distance = distance.add(W::splat(source.pairs[p] as u32).product(pairs));
                }
            }
            let (target_tags, mut least) = (W::load(&group.tags), W::load(words));
            for k in 0..TOGETHER {
                let distance = distances[k].shifted();
                let word = distance.or(target_tags);
                second[k] = second[k].min(best[k].max(word));
                best[k] = best[k].min(word);
                least = least.min(distance.or(tags[k]));
            }
            least.store(words);
        }
        for ((nearest, best), second) in nearest.iter_mut().zip(best).zip(second) {
            let mut lanes = [[0; WIDTH]; 2];
            best.store(&mut lanes[0]);
            second.store(&mut lanes[1]);
            *nearest = lanes[0].iter().zip(&lanes[1]).fold(NOTHING, |all, (best, second)| Nearest {
                best: all.best.min(*best),
                second: all.second.min(*second).min(all.best.max(*best)),
            });
        }
    }
}

impl Words for [u32; WIDTH] {
    #[inline(always)]
    fn load(from: &[u32; WIDTH]) -> Self {
        *from
    }
    #[inline(always)]
    fn store(self, to: &mut [u32; WIDTH]) {
        *to = self;
    }
    #[inline(always)]
    fn splat(word: u32) -> Self {
        [word; WIDTH]
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        std::array::from_fn(|k| self[k].wrapping_add(other[k]))
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        std::array::from_fn(|k| self[k] | other[k])
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        std::array::from_fn(|k| self[k].min(other[k]))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        std::array::from_fn(|k| self[k].max(other[k]))
    }
    #[inline(always)]
    fn shifted(self) -> Self {
        self.map(|word| word << INDEX_BITS)
    }
    #[inline(always)]
    fn product(self, pairs: &[i16; 2 * WIDTH]) -> Self {
        std::array::from_fn(|k| {
            let (low, high) = (i32::from(self[k] as i16), self[k] as i32 >> 16);
            (low * i32::from(pairs[2 * k]) + high * i32::from(pairs[2 * k + 1])) as u32
        })
    }
}

/// The compiler does not find the instruction that multiplies pairs by itself.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{INDEX_BITS, WIDTH};
    use std::arch::x86_64::*;

    /// Made in functions with AVX2 only.
    #[derive(Clone, Copy)]
    pub(super) struct Words(__m256i);

    // SAFETY of all: these are called where AVX2 is; reads and writes are of arrays of 32 bytes.
    impl super::Words for Words {
        #[inline(always)]
        fn load(from: &[u32; WIDTH]) -> Self {
            Self(unsafe { _mm256_loadu_si256(from.as_ptr().cast()) })
        }
        #[inline(always)]
        fn store(self, to: &mut [u32; WIDTH]) {
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), self.0) }
        }
        #[inline(always)]
        fn splat(word: u32) -> Self {
            Self(unsafe { _mm256_set1_epi32(word as i32) })
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            Self(unsafe { _mm256_add_epi32(self.0, other.0) })
        }
        #[inline(always)]
        fn or(self, other: Self) -> Self {
            Self(unsafe { _mm256_or_si256(self.0, other.0) })
        }
        #[inline(always)]
        fn min(self, other: Self) -> Self {
            Self(unsafe { _mm256_min_epu32(self.0, other.0) })
        }
        #[inline(always)]
        fn max(self, other: Self) -> Self {
            Self(unsafe { _mm256_max_epu32(self.0, other.0) })
        }
        #[inline(always)]
        fn shifted(self) -> Self {
            Self(unsafe { _mm256_slli_epi32::<{ INDEX_BITS as i32 }>(self.0) })
        }
        #[inline(always)]
        fn product(self, pairs: &[i16; 2 * WIDTH]) -> Self {
            Self(unsafe { _mm256_madd_epi16(self.0, _mm256_loadu_si256(pairs.as_ptr().cast())) })
        }
    }
}

/// What a block of sources finds among one chunk, portably and as this processor does it.
#[cfg(test)]
pub(super) fn both_ways(source: &[Descriptor], target: &[Descriptor]) -> [Vec<u32>; 2] {
    let sources: Vec<Source> = source.iter().zip(0..).map(|(d, tag)| source_of(d, tag)).collect();
    [search_block_with::<[u32; WIDTH]>, search_block].map(|search| {
        let mut nearest = vec![NOTHING; sources.len()];
        let mut words = [[NONE; WIDTH]; CHUNK / WIDTH];
        search(&sources, &groups_of(target), &mut nearest, &mut words);
        nearest.iter().flat_map(|n| [n.best, n.second]).chain(words.into_iter().flatten()).collect()
    })
}
