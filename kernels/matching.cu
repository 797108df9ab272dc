// Mutual nearest neighbours of descriptors: one scan against many sets of targets at once, as
// src/features/matching/cpu.rs has it. Whole numbers throughout, so the same matches.
//
// |a - b|^2 = |a|^2 + |b|^2 - 2ab, the product four bins at a time. A block holds MATCH_BLOCK sources in its
// registers and passes a chunk of the targets by them: a source keeps its nearest two, a target its nearest
// one. A second kernel brings chunks and blocks together. The structures stand in src/features/matching/gpu.rs
// too.
#ifndef FLASHREG_MATCHING_CU
#define FLASHREG_MATCHING_CU
#include "common.cuh"

#define MATCH_THREADS 256
// Sources of a thread and of a block.
#define MATCH_EACH 4
#define MATCH_BLOCK (MATCH_THREADS * MATCH_EACH)
// Targets of a chunk.
#define MATCH_CHUNK 512
// A distance and an index within a block or a chunk fit one word: the smallest is the nearest, ties by index.
#define MATCH_INDEX_BITS 10
#define MATCH_INDEX ((1u << MATCH_INDEX_BITS) - 1)
#define MATCH_NONE 0xffffffffu
// Words of a descriptor.
#define MATCH_WORDS 9

static_assert(MATCH_BLOCK <= MATCH_INDEX + 1 && MATCH_CHUNK <= MATCH_INDEX + 1, "indices fit");
static_assert(36 * 255 * 255 < 1 << (32 - MATCH_INDEX_BITS), "distances fit");

// A pair of mutual nearest neighbours: indices, squared distance, that to the second target.
struct Matched {
    u32 source, target, distance, second;
};

struct Matching {
    u32 sources, chunks, sets, reserved;
    // Descriptors of the source, word by word, and of all targets.
    const u32* source;
    const u32* targets;
    // Of each chunk, its first target and how many; of each set, its first chunk and how many.
    const uint2* chunk;
    const uint2* set;
    // Words: of each chunk, for every source, the nearest two; of each block of sources and chunk, for every
    // target, the nearest.
    uint2* nearest;
    u32* nearest_sources;
    // Of each set, how many pairs, and which, in no order; these on the host.
    u32* counts;
    Matched* found;
};

static_assert(sizeof(Matched) == 16 && sizeof(Matching) == 80, "sizes of the host");

__device__ inline u32 smaller(u32 a, u32 b) { return a < b ? a : b; }
__device__ inline u32 larger(u32 a, u32 b) { return a < b ? b : a; }

__device__ inline u32 match_distance(u32 word) { return word == MATCH_NONE ? MATCH_NONE : word >> MATCH_INDEX_BITS; }

// Grid: chunks times blocks of sources, the chunks of a block one after another.
extern "C" __global__ void __launch_bounds__(MATCH_THREADS) match_chunks(const Matching m) {
    arrive();
    // Descriptor, square of its length and index as a word, padding.
    __shared__ uint4 rows[MATCH_CHUNK][3];
    __shared__ u32 nearest_of[MATCH_CHUNK];
    const u32 c = blockIdx.x % m.chunks, first = blockIdx.x / m.chunks * MATCH_BLOCK;
    const uint2 chunk = m.chunk[c];
    if (blockIdx.x == 0) {
        for (u32 s = threadIdx.x; s < m.sets; s += MATCH_THREADS) m.counts[s] = 0;
    }
    for (u32 j = threadIdx.x; j < chunk.y; j += MATCH_THREADS) {
        u32* row = (u32*)rows[j];
        u32 norm = 0;
#pragma unroll
        for (u32 w = 0; w < MATCH_WORDS; ++w) {
            const u32 word = m.targets[(u64)MATCH_WORDS * (chunk.x + j) + w];
            norm = __dp4a(word, word, norm);
            row[w] = word;
        }
        row[MATCH_WORDS] = norm << MATCH_INDEX_BITS | j;
        nearest_of[j] = MATCH_NONE;
    }
    u32 own[MATCH_EACH][MATCH_WORDS], norms[MATCH_EACH], tags[MATCH_EACH], best[MATCH_EACH], second[MATCH_EACH];
#pragma unroll
    for (u32 k = 0; k < MATCH_EACH; ++k) {
        const u32 within = k * MATCH_THREADS + threadIdx.x;
        const bool is_there = first + within < m.sources;
        u32 norm = 0;
#pragma unroll
        for (u32 w = 0; w < MATCH_WORDS; ++w) {
            own[k][w] = is_there ? m.source[(u64)MATCH_WORDS * (first + within) + w] : 0;
            norm = __dp4a(own[k][w], own[k][w], norm);
        }
        norms[k] = norm << MATCH_INDEX_BITS;
        tags[k] = is_there ? within : MATCH_NONE;
        best[k] = second[k] = MATCH_NONE;
    }
    __syncthreads();
    for (u32 j = 0; j < chunk.y; ++j) {
        const uint4 a = rows[j][0], b = rows[j][1], rest = rows[j][2];
        const u32 row[MATCH_WORDS] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w, rest.x};
        u32 nearest = MATCH_NONE;
#pragma unroll
        for (u32 k = 0; k < MATCH_EACH; ++k) {
            u32 product = 0;
#pragma unroll
            for (u32 w = 0; w < MATCH_WORDS; ++w) product = __dp4a(own[k][w], row[w], product);
            // The parts may pass 32 bits, their sum does not.
            const u32 word = norms[k] + rest.y - (product << (MATCH_INDEX_BITS + 1));
            second[k] = smaller(second[k], larger(best[k], word));
            best[k] = smaller(best[k], word);
            nearest = smaller(nearest, (word & ~MATCH_INDEX) | tags[k]);
        }
        nearest = ~warp_max(~nearest);
        if (lane_id() == 0) atomicMin(&nearest_of[j], nearest);
    }
#pragma unroll
    for (u32 k = 0; k < MATCH_EACH; ++k) {
        const u32 source = first + k * MATCH_THREADS + threadIdx.x;
        if (source < m.sources) m.nearest[(u64)c * m.sources + source] = {best[k], second[k]};
    }
    __syncthreads();
    for (u32 j = threadIdx.x; j < chunk.y; j += MATCH_THREADS) {
        m.nearest_sources[(u64)blockIdx.x * MATCH_CHUNK + j] = nearest_of[j];
    }
}

// A thread for each source and set: keeps the pair if it is mutual.
extern "C" __global__ void __launch_bounds__(MATCH_THREADS) match_mutual(const Matching m) {
    arrive();
    const u64 at = (u64)blockIdx.x * MATCH_THREADS + threadIdx.x;
    if (at >= (u64)m.sets * m.sources) return;
    const u32 s = (u32)(at / m.sources), source = (u32)(at % m.sources);
    const uint2 set = m.set[s];
    u32 best = MATCH_NONE, second = MATCH_NONE, chunk = 0, within = 0;
    for (u32 c = set.x; c < set.x + set.y; ++c) {
        const uint2 near = m.nearest[(u64)c * m.sources + source];
        const u32 distance = near.x >> MATCH_INDEX_BITS;
        second = smaller(smaller(second, match_distance(near.y)), larger(best, distance));
        // Chunks come in order, so the first of equal distances has the smallest index.
        if (distance < best) {
            best = distance;
            chunk = c;
            within = near.x & MATCH_INDEX;
        }
    }
    if (best == MATCH_NONE) return;
    u32 back = MATCH_NONE, nearest = 0;
    for (u32 b = 0; b * MATCH_BLOCK < m.sources; ++b) {
        const u32 word = m.nearest_sources[((u64)b * m.chunks + chunk) * MATCH_CHUNK + within];
        if (word >> MATCH_INDEX_BITS < back) {
            back = word >> MATCH_INDEX_BITS;
            nearest = b * MATCH_BLOCK + (word & MATCH_INDEX);
        }
    }
    if (nearest != source) return;
    const Matched pair = {source, (chunk - set.x) * MATCH_CHUNK + within, best, second};
    m.found[(u64)s * m.sources + atomicAdd(&m.counts[s], 1u)] = pair;
}
#endif
