// Third vertices: the best 3-cliques of each pivot (FlashReg Eqs. 8 and 9, Algorithm 1), and their poses.
//
// For a pivot (u, v) every w > v joined to both gives the triple u < v < w with the sum of the
// three edge scores; the best T are kept, ties by w. A block a pivot at a time.
#include "hypotheses.cu"

#define CLIQUE_THREADS 64
#define CLIQUE_WARPS (CLIQUE_THREADS / WARP)
// Blocks that a multiprocessor holds at least: fewer of the newer ones, for which more registers are needed.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define CLIQUE_BLOCKS 6
#else
#define CLIQUE_BLOCKS 8
#endif
// Words of a row that are looked at together: a thread has 16 bytes.
#define STRETCH_WORDS (2 * CLIQUE_THREADS)
// Candidates at a time, and those of a thread.
#define CANDIDATES 512
#define OWN_CANDIDATES (CANDIDATES / CLIQUE_THREADS)
// Lanes that count for one candidate together.
#define GROUP 16

// A candidate as one number, the better the greater: score, then lower w. Zero is none.
__device__ inline u64 candidate_key(u32 score, u32 w) { return (u64)score << 32 | (0xffffu - w); }

__device__ inline u64 warp_max(u64 value) {
    const u32 high = warp_max((u32)(value >> 32));
    return (u64)high << 32 | warp_max(value >> 32 == high ? (u32)value : 0);
}

// The best `most` of the warp's keys, which differ; lane i gets the i-th, or zero.
template <u32 COUNT>
__device__ inline u64 best_of_warp(const u64 (&keys)[COUNT], u32 most) {
    u64 below = ~0ull, mine = 0;
    for (u32 i = 0; i < most; ++i) {
        u64 best = 0;
#pragma unroll
        for (u32 k = 0; k < COUNT; ++k) {
            if (keys[k] < below && keys[k] > best) best = keys[k];
        }
        best = warp_max(best);
        if (best == 0) break;
        if (lane_id() == i) mine = best;
        below = best;
    }
    return mine;
}

// Shared memory of a block.
struct alignas(16) Clique {
    // Words of the two rows, and how many bits are before them, low and high half.
    u64 words[2][STRETCH_WORDS];
    u32 before[STRETCH_WORDS];
    // Candidates, and the scores of their two edges together.
    u16 ends[CANDIDATES];
    u32 scores[CANDIDATES];
    // The best so far, then the best of each warp.
    u64 best[1 + CLIQUE_WARPS][MAX_PER_PIVOT];
    // Of each warp: better pivots, bits of u before the words, bits of the words, candidates.
    u32 better[CLIQUE_WARPS], skipped[CLIQUE_WARPS], bits[CLIQUE_WARPS], found[CLIQUE_WARPS];
    // While a tie is looked for: its row, which of those in the row, and the edge.
    u32 sums[CLIQUE_WARPS], row, nth, tie;
};

__device__ inline u32 sum_of_warps(const u32 (&sums)[CLIQUE_WARPS]) {
    u32 sum = 0;
    for (u32 w = 0; w < CLIQUE_WARPS; ++w) sum += sums[w];
    return sum;
}

// Scores of the edges (u, w) and (v, w) together, counted for all candidates.
__device__ inline void count_candidates(const Work& m, u32 u, u32 v, u32 count, Clique& c) {
    const u32 quads = m.words / 2, part = lane_id() % GROUP;
    const uint4* rows = reinterpret_cast<const uint4*>(m.rows);
    const uint4 *row_u = rows + (u64)u * quads, *row_v = rows + (u64)v * quads;
    for (u32 base = warp_id() * (WARP / GROUP); base < count; base += CLIQUE_THREADS / GROUP) {
        const u32 e = base + lane_id() / GROUP;
        const uint4* row_w = rows + (u64)(e < count ? c.ends[e] : u) * quads;
        BitCount bits;
        for (u32 q = part; q < quads; q += GROUP) {
            const uint4 other = row_w[q];
            bits.add_common(row_u[q], other);
            bits.add_common(row_v[q], other);
        }
        u32 sum = bits.total();
        for (u32 step = GROUP / 2; step > 0; step /= 2) sum += __shfl_xor_sync(FULL, sum, step);
        if (part == 0 && e < count) c.scores[e] = sum;
    }
}

// The edges at the threshold were not written: number `nth` of them, in the order of (u, v). A whole
// block.
__device__ inline u32 find_tie(const Work& m, const Totals& totals, u32 nth, Clique& c) {
    const u32 padded = m.padded, words = m.words, threshold = totals.threshold, listed = totals.listed;
    const bool whole = listed <= m.room;
    // The stretch of rows of a thread, then the row.
    const u32 each = (padded + CLIQUE_THREADS * 4 - 1) / (CLIQUE_THREADS * 4) * 4, start = threadIdx.x * each;
    u32 sum = 0, all;
    for (u32 i = start; i < start + each && i < padded; i += 4) {
        const uint4 four = *reinterpret_cast<const uint4*>(m.at + i);
        sum += (four.x & 0xffffu) + (four.y & 0xffffu) + (four.z & 0xffffu) + (four.w & 0xffffu);
    }
    const u32 before = block_prefix(sum, c.sums, all) - sum;
    if (nth >= before && nth - before < sum) {
        u32 row = start, rest = nth - before;
        for (u32 here; rest >= (here = m.at[row] & 0xffffu); ++row) rest -= here;
        c.row = row;
        c.nth = rest;
    }
    __syncthreads();
    const u32 row = c.row;
    nth = c.nth;
    const u64* row_u = m.rows + (u64)row * words;
    u32 taken = 0, first = whole ? m.starts[row] : row / CLIQUE_THREADS * CLIQUE_THREADS;
    for (; taken <= nth; first += CLIQUE_THREADS) {
        const u32 place = first + threadIdx.x;
        u32 v = place;
        bool tie;
        if (whole) {
            const u32 edge = place < listed ? m.edges[place] : 0;
            v = edge & 0xffffu;
            tie = place < listed && edge >> 16 == row && m.offered[place] == threshold;
        } else {
            // A warp counts for the edges of 32 columns.
            const u32 column = first + WARP * warp_id(), k = column / 64;
            u32 rest = k < words ? (u32)((row_u[k] & bits_above(row, k)) >> (column % 64)) : 0, ties = 0;
            for (; rest != 0; rest &= rest - 1) {
                const u32 bit = __ffs(rest) - 1;
                const u64* row_v = m.rows + (u64)(column + bit) * words;
                u32 score = 0;
                for (u32 w = lane_id(); w < words; w += WARP) score += __popcll(row_u[w] & row_v[w]);
                ties |= (warp_sum(score) == threshold ? 1u : 0u) << bit;
            }
            tie = ties >> lane_id() & 1;
        }
        const u32 upto = taken + block_prefix(tie, c.sums, all);
        if (tie && upto == nth + 1) c.tie = row << 16 | v;
        taken += all;
    }
    __syncthreads();
    return c.tie;
}

// Searches the triples of edge p of the keys and, behind them, the ties; if it is one of the pivots.
__device__ inline void search(const Work& m, Totals& totals, u32 p, Clique& c) {
    const u32 placed = totals.placed, tied = totals.tied, pivots = totals.pivots;
    u32 edge = 0;
    if (p >= placed) edge = tied > 0 ? m.ties[p - placed] : find_tie(m, totals, p - placed, c);
    const u64 pivot = p < placed ? m.keys[p] : pivot_key(edge >> 16, edge & 0xffffu, totals.threshold);
    const u32 lane = lane_id(), warp = warp_id(), words = m.words, per_pivot = m.per_pivot;
    const u32 u = pivot_u(pivot), v = pivot_v(pivot);
    const u64 *row_u = m.rows + (u64)u * words, *row_v = m.rows + (u64)v * words;
    const bool whole = totals.listed <= m.room;
    // Where the scores of the edges (u, w) and (v, w) are: as many places on as there are edges
    // to ends between.
    u32 place_u = whole ? m.starts[u] : 0, place_v = whole ? m.starts[v] : 0;
    const u32 start = v / 128 * 2;
    u32 better = 0, skipped = 0;
    for (u32 k = u / 64 + threadIdx.x; k < start; k += CLIQUE_THREADS) {
        skipped += __popcll(row_u[k] & bits_above(u, k));
    }
    if (p < placed) {
#pragma unroll 8
        for (u32 i = threadIdx.x; i < placed; i += CLIQUE_THREADS) better += m.keys[i] > pivot;
    } else {
        // All keys are; of the ties those before it, which are in order where they are found.
        if (threadIdx.x == 0) better = tied > 0 ? placed : p;
#pragma unroll 8
        for (u32 i = threadIdx.x; i < tied; i += CLIQUE_THREADS) better += m.ties[i] < edge;
    }
    better = warp_sum(better);
    skipped = warp_sum(skipped);
    if (lane == 0) {
        c.better[warp] = better;
        c.skipped[warp] = skipped;
    }
    if (threadIdx.x < MAX_PER_PIVOT) c.best[0][threadIdx.x] = 0;

    for (u32 first = start; first < words; first += STRETCH_WORDS) {
        const u32 k = first + 2 * threadIdx.x;
        const ulonglong2 none = {0, 0};
        ulonglong2 of_u = k < words ? *reinterpret_cast<const ulonglong2*>(row_u + k) : none;
        ulonglong2 of_v = k < words ? *reinterpret_cast<const ulonglong2*>(row_v + k) : none;
        of_u = {of_u.x & bits_above(u, k), of_u.y & bits_above(u, k + 1)};
        of_v = {of_v.x & bits_above(v, k), of_v.y & bits_above(v, k + 1)};
        const u32 bits_low = __popcll(of_u.x) | __popcll(of_v.x) << 16;
        const u32 bits = bits_low + (__popcll(of_u.y) | __popcll(of_v.y) << 16);
        const u64 both[2] = {of_u.x & of_v.x, of_u.y & of_v.y};
        const u32 mine = __popcll(both[0]) + __popcll(both[1]);
        u32 upto_bits = warp_prefix(bits), upto = warp_prefix(mine);
        if (lane == WARP - 1) {
            c.bits[warp] = upto_bits;
            c.found[warp] = upto;
        }
        __syncthreads();
        if (first == start) {
            better = sum_of_warps(c.better);
            if (better >= pivots) break;
            place_u += sum_of_warps(c.skipped);
        }
        for (u32 w = 0; w < warp; ++w) {
            upto_bits += c.bits[w];
            upto += c.found[w];
        }
        reinterpret_cast<ulonglong2*>(c.words[0])[threadIdx.x] = of_u;
        reinterpret_cast<ulonglong2*>(c.words[1])[threadIdx.x] = of_v;
        reinterpret_cast<uint2*>(c.before)[threadIdx.x] = {upto_bits - bits, upto_bits - bits + bits_low};
        const u32 found = sum_of_warps(c.found), all_bits = sum_of_warps(c.bits);

        for (u32 base = 0; base < found; base += CANDIDATES) {
            const u32 count = found - base < CANDIDATES ? found - base : CANDIDATES;
            // Wraps around for those listed before.
            u32 place = upto - mine - base;
#pragma unroll
            for (u32 h = 0; h < 2; ++h) {
                for (u64 rest = both[h]; rest != 0; rest &= rest - 1, ++place) {
                    if (place < CANDIDATES) c.ends[place] = (u16)((k + h) * 64 + __ffsll(rest) - 1);
                }
            }
            __syncthreads();
            if (whole) {
                for (u32 e = threadIdx.x; e < count; e += CLIQUE_THREADS) {
                    const u32 w = c.ends[e], at = w / 64 - first, before = c.before[at];
                    const u64 below = (1ull << (w % 64)) - 1;
                    const u32 nth_u = (before & 0xffffu) + __popcll(c.words[0][at] & below);
                    const u32 nth_v = (before >> 16) + __popcll(c.words[1][at] & below);
                    c.scores[e] = (u32)m.scores[place_u + nth_u] + m.scores[place_v + nth_v];
                }
            } else {
                count_candidates(m, u, v, count, c);
            }
            __syncthreads();
            u64 keys[OWN_CANDIDATES];
#pragma unroll
            for (u32 i = 0; i < OWN_CANDIDATES; ++i) {
                const u32 e = i * CLIQUE_THREADS + threadIdx.x;
                keys[i] = e < count ? candidate_key(pivot_score(pivot) + c.scores[e], c.ends[e]) : 0;
            }
            const u64 of_warp = best_of_warp(keys, per_pivot);
            if (lane < MAX_PER_PIVOT) c.best[1 + warp][lane] = of_warp;
            __syncthreads();
            if (warp == 0) {
                const u64* best = &c.best[0][0];
                const u32 bests = (1 + CLIQUE_WARPS) * MAX_PER_PIVOT;
                u64 all[(bests + WARP - 1) / WARP];
#pragma unroll
                for (u32 i = 0; i < (bests + WARP - 1) / WARP; ++i) {
                    all[i] = i * WARP + lane < bests ? best[i * WARP + lane] : 0;
                }
                const u64 of_all = best_of_warp(all, per_pivot);
                __syncwarp();
                if (lane < MAX_PER_PIVOT) c.best[0][lane] = of_all;
            }
        }
        place_u += all_bits & 0xffffu;
        place_v += all_bits >> 16;
        __syncthreads();
    }

    if (better >= pivots) {
        // What was summed may still be read.
        __syncthreads();
        return;
    }
    if (threadIdx.x == 0) m.pivots[better] = pivot;
    if (warp == 0) {
        // Two lanes a triple.
        const u32 t = lane / 2, slot = better * per_pivot + t;
        const u64 key = t < per_pivot ? c.best[0][t] : 0;
        // What is read here is cleared for the next pivot.
        __syncwarp();
        const u32 w = key == 0 ? v : 0xffffu - (u32)(key & 0xffffu);
        if (t < per_pivot) m.triples[slot] = key == 0 ? make_uint4(0, 0, 0, 0) : make_uint4(u, v, w, (u32)(key >> 32));
        const u32 some = __popc(__ballot_sync(FULL, key != 0)) / 2;
        if (lane == 0 && some > 0) atomicAdd(&totals.triples, some);
        write_pose(m, slot, t < per_pivot, key != 0, u, v, w);
    }
}

// Puts the pivots in order, best first, and gives slot p * per_pivot + t triple t of pivot p as
// (u, v, w, score); score zero means none. Each slot also gets its pose.
extern "C" __global__ void __launch_bounds__(CLIQUE_THREADS, CLIQUE_BLOCKS) cliques(const Memory memory, const u32 round) {
    const Work m(memory, round);
    begin(m, round, CLIQUES);
    __shared__ Clique shared;
    Totals& totals = m.findings->totals[round];
    const u32 wanted = m.pivots_wanted, per_pivot = m.per_pivot;
    const u32 found = totals.placed + totals.tied + totals.ties;
    for (u32 p = blockIdx.x; p < wanted || p < found; p += gridDim.x) {
        if (p < found) {
            search(m, totals, p, shared);
        } else if (threadIdx.x < per_pivot) {
            m.triples[p * per_pivot + threadIdx.x] = make_uint4(0, 0, 0, 0);
            clear_support(m, p * per_pivot + threadIdx.x, false);
        }
    }
}
