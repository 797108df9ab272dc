// SOG scores and the pivots chosen by them (FlashReg Eqs. 4 and 7): the K edges u < v with the
// highest positive scores, ties by (u, v).
//
// Exact and independent of the order of execution. Scores are not stored: a first pass counts how
// many edges have each score, which gives the score of the K-th; a second pass counts, for the
// rows that reach it, the edges above and at it; a third writes them to their places.
#include "common.cuh"

#define BLOCK 128
// Lanes that count one edge together.
#define GROUP 16
#define GROUPS (BLOCK / GROUP)
// Words of a row whose edges are listed at a time.
#define CHUNK WARP
// Scores counted in shared memory; higher ones, which are rare or all alike, are counted directly.
#define LOW_SCORES 1024

// One row and the list of its edges.
struct Row {
    // Its words that are not zero, and where they stand.
    u64 word[MAX_WORDS];
    u16 index[MAX_WORDS];
    u32 words;
    // Ends of edges above the row within a chunk, ascending.
    u16 ends[CHUNK * 64];
    u32 count;
};

__device__ void compress(Row& row, const u64* __restrict__ bits, u32 words) {
    __syncthreads();
    if (threadIdx.x == 0) row.words = 0;
    __syncthreads();
    for (u32 base = 0; base < words; base += BLOCK) {
        const u32 k = base + threadIdx.x;
        const u64 word = k < words ? bits[k] : 0;
        const u32 vote = __ballot_sync(FULL, word != 0);
        u32 place = 0;
        if (lane_id() == 0 && vote != 0) place = atomicAdd(&row.words, __popc(vote));
        place = __shfl_sync(FULL, place, 0) + __popc(vote & lanes_below());
        if (word != 0) {
            row.word[place] = word;
            row.index[place] = (u16)k;
        }
    }
    __syncthreads();
}

// Lists the edges of row u to columns above u in words first .. first + CHUNK whose score can
// reach `least`.
__device__ void list_edges(
    Row& row, const u64* __restrict__ bits, u32 words, u32 u, u32 first, u32 least,
    const u32* __restrict__ degrees) {
    __syncthreads();
    if (warp_id() == 0) {
        const u32 k = first + lane_id();
        u64 word = k < words ? bits[k] : 0;
        if (k == u / 64) word &= (~0ull << (u % 64)) & ~(1ull << (u % 64));
        if (k < u / 64) word = 0;
        for (u64 rest = word; rest != 0; rest &= rest - 1) {
            const u32 bit = __ffsll(rest) - 1;
            // The degree of u is looked at by the caller.
            if (score_bound(degrees[k * 64 + bit], MAX_ROWS) < least) word &= ~(1ull << bit);
        }
        const u32 mine = __popcll(word), upto = warp_prefix(mine);
        u32 place = upto - mine;
        for (u64 rest = word; rest != 0; rest &= rest - 1) {
            row.ends[place++] = (u16)(k * 64 + __ffsll(rest) - 1);
        }
        if (lane_id() == WARP - 1) row.count = upto;
    }
    __syncthreads();
}

// Common neighbours of the row and another one, counted by a group of lanes. All lanes of the
// warp must come here.
__device__ inline u32 count_common(const Row& row, const u64* __restrict__ other) {
    u32 sum = 0;
    for (u32 k = lane_id() % GROUP; k < row.words; k += GROUP) {
        sum += __popcll(row.word[k] & other[row.index[k]]);
    }
    for (u32 step = GROUP / 2; step > 0; step /= 2) sum += __shfl_xor_sync(FULL, sum, step);
    return sum;
}

// Counts the edges of each score, and the best score of each row.
extern "C" __global__ void __launch_bounds__(BLOCK) sog_scores(
    const u64* __restrict__ rows, const u32* __restrict__ degrees, u32 n, u32 words,
    u32* __restrict__ histogram, u32* __restrict__ best, Totals* __restrict__ totals) {
    __shared__ Row row;
    __shared__ u32 low[LOW_SCORES];
    __shared__ u32 next, row_best;
    for (u32 s = threadIdx.x; s < LOW_SCORES; s += BLOCK) low[s] = 0;
    const bool leads = lane_id() % GROUP == 0;
    // Equal scores in a row are counted together.
    u32 last = 0, run = 0;
    auto flush = [&]() {
        if (run > 0 && last > 0) atomicAdd(last < LOW_SCORES ? &low[last] : &histogram[last], run);
        run = 0;
    };
    while (true) {
        __syncthreads();
        if (threadIdx.x == 0) {
            next = atomicAdd(&totals->next_row, 1);
            row_best = 0;
        }
        __syncthreads();
        const u32 u = next;
        if (u >= n) break;
        u32 mine = 0;
        if (degrees[u] > 1) {
            const u64* bits = rows + (u64)u * words;
            compress(row, bits, words);
            for (u32 first = u / 64; first < words; first += CHUNK) {
                list_edges(row, bits, words, u, first, 1, degrees);
                const u32 count = row.count;
                for (u32 base = warp_id() * (WARP / GROUP); base < count; base += GROUPS) {
                    const u32 e = base + lane_id() / GROUP;
                    const u32 v = e < count ? row.ends[e] : u;
                    const u32 score = count_common(row, rows + (u64)v * words);
                    if (leads && e < count) {
                        if (score != last) {
                            flush();
                            last = score;
                        }
                        ++run;
                        mine = score > mine ? score : mine;
                    }
                }
            }
        }
        if (mine > 0) atomicMax(&row_best, mine);
        __syncthreads();
        if (threadIdx.x == 0) best[u] = row_best;
    }
    flush();
    __syncthreads();
    for (u32 s = threadIdx.x; s < LOW_SCORES; s += BLOCK) {
        if (low[s] > 0) atomicAdd(&histogram[s], low[s]);
    }
}

#define WIDE 1024

// Sum over the threads of a block of WIDE threads up to and with this one; also the sum of all.
__device__ u32 block_prefix(u32 value, u32& all) {
    __shared__ u32 sums[WARP];
    const u32 upto = warp_prefix(value);
    __syncthreads();
    if (lane_id() == WARP - 1) sums[warp_id()] = upto;
    __syncthreads();
    if (warp_id() == 0) sums[lane_id()] = warp_prefix(sums[lane_id()]);
    __syncthreads();
    all = sums[WARP - 1];
    return upto + (warp_id() > 0 ? sums[warp_id() - 1] : 0);
}

// The score of the k-th best edge, by one block.
extern "C" __global__ void __launch_bounds__(WIDE) sog_threshold(
    const u32* __restrict__ histogram, const u32* __restrict__ degrees, u32 n, u32 k,
    Totals* __restrict__ totals) {
    __shared__ u64 ends;
    if (threadIdx.x == 0) ends = 0;
    __syncthreads();
    // Scores from the highest, a stretch per thread. Fewer than n scores are possible.
    const u32 each = (n + WIDE - 1) / WIDE;
    u32 stretch = 0;
    u64 degree = 0;
    for (u32 i = threadIdx.x * each; i < n && i < (threadIdx.x + 1) * each; ++i) {
        stretch += histogram[n - 1 - i];
        degree += degrees[i];
    }
    atomicAdd(&ends, degree);
    u32 all;
    const u32 upto = block_prefix(stretch, all);
    if (upto >= k && upto - stretch < k) {
        u32 above = upto - stretch;
        for (u32 i = threadIdx.x * each; i < n; ++i) {
            const u32 here = histogram[n - 1 - i];
            if (above + here >= k) {
                totals->threshold = n - 1 - i;
                totals->above = above;
                totals->ties = k - above;
                totals->pivots = k;
                break;
            }
            above += here;
        }
    }
    if (threadIdx.x == 0 && all < k) {
        // All edges of positive score.
        totals->threshold = 0;
        totals->above = all;
        totals->ties = 0;
        totals->pivots = all;
    }
    __syncthreads();
    if (threadIdx.x == 0) totals->edges = ends / 2;
}

// Whether the row has an edge that can be a pivot.
__device__ inline bool row_matters(u32 best, u32 threshold) { return best > 0 && best >= threshold; }

// Edges of each row above and at the threshold.
extern "C" __global__ void __launch_bounds__(BLOCK) sog_count(
    const u64* __restrict__ rows, const u32* __restrict__ degrees, u32 n, u32 words,
    const u32* __restrict__ best, u32* __restrict__ above, u32* __restrict__ at,
    const Totals* __restrict__ totals) {
    __shared__ Row row;
    __shared__ u32 sums[2];
    const u32 threshold = totals->threshold;
    const u32 least = threshold > 0 ? threshold : 1;
    for (u32 u = blockIdx.x; u < n; u += gridDim.x) {
        if (!row_matters(best[u], threshold)) {
            if (threadIdx.x == 0) above[u] = at[u] = 0;
            continue;
        }
        __syncthreads();
        if (threadIdx.x < 2) sums[threadIdx.x] = 0;
        const u64* bits = rows + (u64)u * words;
        compress(row, bits, words);
        u32 higher = 0, equal = 0;
        for (u32 first = u / 64; first < words; first += CHUNK) {
            list_edges(row, bits, words, u, first, least, degrees);
            const u32 count = row.count;
            for (u32 base = warp_id() * (WARP / GROUP); base < count; base += GROUPS) {
                const u32 e = base + lane_id() / GROUP;
                const u32 v = e < count ? row.ends[e] : u;
                const u32 score = count_common(row, rows + (u64)v * words);
                if (lane_id() % GROUP == 0 && e < count) {
                    higher += score > threshold;
                    equal += score == threshold;
                }
            }
        }
        if (higher > 0) atomicAdd(&sums[0], higher);
        if (equal > 0) atomicAdd(&sums[1], equal);
        __syncthreads();
        if (threadIdx.x == 0) {
            above[u] = sums[0];
            at[u] = sums[1];
        }
    }
}

// Turns the counts into the places where the edges of each row go, by one block. The last entry,
// n, holds the sums.
extern "C" __global__ void __launch_bounds__(WIDE) sog_places(
    u32* __restrict__ above, u32* __restrict__ at, u32 n) {
    const u32 each = (n + WIDE - 1) / WIDE;
    const u32 start = threadIdx.x * each, end = start + each < n ? start + each : n;
    u32* lists[2] = {above, at};
    for (u32 which = 0; which < 2; ++which) {
        u32* list = lists[which];
        u32 sum = 0, all;
        for (u32 i = start; i < end; ++i) sum += list[i];
        u32 place = block_prefix(sum, all) - sum;
        for (u32 i = start; i < end; ++i) {
            const u32 count = list[i];
            list[i] = place;
            place += count;
        }
        if (threadIdx.x == 0) list[n] = all;
    }
}

// Writes the pivots: those above the threshold in any order, then those at it by (u, v).
extern "C" __global__ void __launch_bounds__(BLOCK) sog_collect(
    const u64* __restrict__ rows, const u32* __restrict__ degrees, u32 n, u32 words,
    const u32* __restrict__ above, const u32* __restrict__ at, const Totals* __restrict__ totals,
    u64* __restrict__ keys) {
    __shared__ Row row;
    __shared__ u32 scores[CHUNK * 64];
    const u32 threshold = totals->threshold, ties = totals->ties, higher = totals->above;
    const u32 least = threshold > 0 ? threshold : 1;
    for (u32 u = blockIdx.x; u < n; u += gridDim.x) {
        u32 place_above = above[u], place_at = at[u];
        const bool any_above = above[u + 1] > place_above;
        const bool any_at = at[u + 1] > place_at && place_at < ties;
        if (!any_above && !any_at) continue;
        const u64* bits = rows + (u64)u * words;
        compress(row, bits, words);
        for (u32 first = u / 64; first < words; first += CHUNK) {
            list_edges(row, bits, words, u, first, least, degrees);
            const u32 count = row.count;
            for (u32 base = warp_id() * (WARP / GROUP); base < count; base += GROUPS) {
                const u32 e = base + lane_id() / GROUP;
                const u32 v = e < count ? row.ends[e] : u;
                const u32 score = count_common(row, rows + (u64)v * words);
                if (lane_id() % GROUP == 0 && e < count) scores[e] = score;
            }
            __syncthreads();
            if (warp_id() == 0) {
                for (u32 base = 0; base < count; base += WARP) {
                    const u32 e = base + lane_id();
                    const u32 score = e < count ? scores[e] : 0;
                    const bool is_above = score > threshold;
                    const bool is_at = score == threshold && score > 0;
                    const u32 votes_above = __ballot_sync(FULL, is_above);
                    const u32 votes_at = __ballot_sync(FULL, is_at);
                    const u32 rank_at = place_at + __popc(votes_at & lanes_below());
                    if (is_above) {
                        const u32 place = place_above + __popc(votes_above & lanes_below());
                        keys[place] = pivot_key(u, row.ends[e], score);
                    } else if (is_at && rank_at < ties) {
                        keys[higher + rank_at] = pivot_key(u, row.ends[e], score);
                    }
                    place_above += __popc(votes_above);
                    place_at += __popc(votes_at);
                }
            }
        }
    }
}

// Puts the pivots in order, best first: a warp counts how many are better than one.
extern "C" __global__ void __launch_bounds__(256) pivot_order(
    const u64* __restrict__ keys, u64* __restrict__ pivots, const Totals* __restrict__ totals) {
    const u32 count = totals->pivots;
    const u32 p = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (p >= count) return;
    const u64 key = keys[p];
    u32 better = 0;
    for (u32 i = lane_id(); i < count; i += WARP) better += keys[i] > key;
    better = warp_sum(better);
    if (lane_id() == 0) pivots[better] = key;
}
