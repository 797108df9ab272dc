// SOG scores and the pivots chosen by them (FlashReg Eqs. 4 and 7): the K edges u < v with the
// highest positive scores, ties by (u, v).
//
// Exact, and independent of the order of execution. The first pass counts how many edges have
// each score, which gives the score of the K-th, the threshold. The second writes the edges above
// it and counts, per row, those at it; the third writes as many of these as are wanted. What is
// written gets its order at last.
//
// Where there is room, edges and scores are kept in a list between the passes. A dense graph has
// more edges than room: then the passes find and score them again, in rows where there are any.
#include "common.cuh"

#define THREADS 256
// Words of a row whose edges are one task. A task belongs to a warp.
#define SEGMENT 4
// Words of the row that a lane keeps in registers.
#define HELD 4
// Edges counted at a time.
#define ABREAST 4
// Scores counted in shared memory; higher ones, which are rare or all alike, are counted directly.
#define LOW_SCORES 1024

// Room for `room` edges u << 16 | v and their scores.
struct List {
    u32* edges;
    u16* scores;
    u32 room;
};

// Lists the edges u < v, those of a row together and ascending; a warp a row.
extern "C" __global__ void __launch_bounds__(THREADS) sog_list(
    const u64* __restrict__ rows, const u32* __restrict__ degrees, u32 n, u32 words, List list,
    Totals* __restrict__ totals) {
    __shared__ u32 places[THREADS / WARP];
    const u32 lane = lane_id(), warp = warp_id(), u = blockIdx.x * (THREADS / WARP) + warp;
    // The end of an edge that scores has another neighbour.
    const bool any = u < n && degrees[u] > 1;
    const u64* row = rows + (u64)(any ? u : 0) * words;
    const u64 first_mask = (~0ull << (u % 64)) & ~(1ull << (u % 64));
    u32 count = 0;
    if (any) {
        for (u32 k = u / 64 + lane; k < words; k += WARP) {
            count += __popcll(k == u / 64 ? row[k] & first_mask : row[k]);
        }
    }
    count = warp_sum(count);
    if (lane == 0) places[warp] = count;
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 all = 0;
        for (u32 w = 0; w < THREADS / WARP; ++w) all += places[w];
        u32 place = all > 0 ? atomicAdd(&totals->listed, all) : 0;
        for (u32 w = 0; w < THREADS / WARP; ++w) {
            const u32 here = places[w];
            places[w] = place;
            place += here;
        }
    }
    __syncthreads();
    u32 place = places[warp];
    if (count == 0 || place + count > list.room) return;
    for (u32 first = u / 64; first < words; first += WARP) {
        const u32 k = first + lane;
        u64 rest = k < words ? row[k] : 0;
        if (k == u / 64) rest &= first_mask;
        const u32 mine = __popcll(rest), upto = warp_prefix(mine);
        u32 to = place + upto - mine;
        for (; rest != 0; rest &= rest - 1) list.edges[to++] = u << 16 | (k * 64 + __ffsll(rest) - 1);
        place += __shfl_sync(FULL, upto, WARP - 1);
    }
}

// Four counts below 2^15 per lane; lane i < 4 gets the sum of the i-th over the warp.
__device__ inline u32 sum_of_four(const u32* sum) {
    const u32 low = warp_sum(sum[0] | sum[1] << 16), high = warp_sum(sum[2] | sum[3] << 16);
    const u32 two = lane_id() < 2 ? low : high;
    return lane_id() % 2 == 0 ? two & 0xffffu : two >> 16;
}

// Scores the edges of the list, keeps the scores, and calls use(u, v, score) for each.
template <typename Use>
__device__ inline void score_list(
    const u64* __restrict__ rows, u32 words, const List& list, u32 listed, Use use) {
    const u32 lane = lane_id(), warps = gridDim.x * (THREADS / WARP);
    u32 base = (blockIdx.x * (THREADS / WARP) + warp_id()) * ABREAST;
    for (; base < listed; base += warps * ABREAST) {
        const u64 *own[ABREAST], *other[ABREAST];
        u32 sum[ABREAST] = {};
#pragma unroll
        for (u32 i = 0; i < ABREAST; ++i) {
            const u32 edge = list.edges[base + i < listed ? base + i : base];
            own[i] = rows + (u64)(edge >> 16) * words;
            other[i] = rows + (u64)(edge & 0xffffu) * words;
        }
        for (u32 w = lane; w < words; w += WARP) {
#pragma unroll
            for (u32 i = 0; i < ABREAST; ++i) {
                const u64 mine = own[i][w];
                if (mine != 0) sum[i] += __popcll(mine & other[i][w]);
            }
        }
        const u32 score = sum_of_four(sum);
        if (lane < ABREAST && base + lane < listed) {
            const u32 edge = list.edges[base + lane];
            list.scores[base + lane] = (u16)score;
            use(edge >> 16, edge & 0xffffu, score);
        }
    }
}

// Calls use(u, v, score) for every edge u < v of the rows that are wanted whose score is at least
// `least`, or can be; some lane of some warp does it, and warps are not together then. FIRST: the
// scores are not in the list yet.
template <bool FIRST, typename Wanted, typename Use>
__device__ inline void score_edges(
    const u64* __restrict__ rows, const u32* __restrict__ degrees, u32 n, u32 words,
    const List& list, u32 listed, u32 least, Wanted wanted, Use use) {
    if (listed <= list.room) {
        if (FIRST) {
            score_list(rows, words, list, listed, use);
            return;
        }
        for (u32 e = blockIdx.x * THREADS + threadIdx.x; e < listed; e += gridDim.x * THREADS) {
            const u32 score = list.scores[e];
            if (score < least) continue;
            const u32 edge = list.edges[e];
            if (wanted(edge >> 16)) use(edge >> 16, edge & 0xffffu, score);
        }
        return;
    }
    __shared__ u16 lists[THREADS / WARP][SEGMENT * 64];
    u16* ends = lists[warp_id()];
    const u32 lane = lane_id(), segments = (words + SEGMENT - 1) / SEGMENT;
    const u32 warps = gridDim.x * (THREADS / WARP);
    // Neighbouring warps take different rows, so that long ones are shared out.
    for (u32 task = blockIdx.x * (THREADS / WARP) + warp_id(); task < n * segments; task += warps) {
        const u32 u = task % n, first = task / n * SEGMENT;
        if (first + SEGMENT <= u / 64 || !wanted(u)) continue;
        const u64* row = rows + (u64)u * words;
        // A lane lists the edges of eight columns.
        const u32 k = first + lane / 8, column = k * 64 + 8 * (lane % 8);
        u64 word = k < words && k >= u / 64 ? row[k] : 0;
        if (k == u / 64) word &= (~0ull << (u % 64)) & ~(1ull << (u % 64));
        u32 mine = (u32)(word >> (8 * (lane % 8))) & 0xffu;
        if (least > 1) {
            for (u32 rest = mine; rest != 0; rest &= rest - 1) {
                const u32 bit = __ffs(rest) - 1;
                // The degree of u is not below: its best score reaches `least`.
                if (score_bound(degrees[column + bit], MAX_ROWS) < least) mine &= ~(1u << bit);
            }
        }
        if (!__any_sync(FULL, mine != 0)) continue;
        const u32 upto = warp_prefix(__popc(mine));
        u32 place = upto - __popc(mine);
        for (u32 rest = mine; rest != 0; rest &= rest - 1) {
            ends[place++] = (u16)(column + __ffs(rest) - 1);
        }
        const u32 count = __shfl_sync(FULL, upto, WARP - 1);
        u64 held[HELD];
#pragma unroll
        for (u32 h = 0; h < HELD; ++h) {
            held[h] = lane + WARP * h < words ? row[lane + WARP * h] : 0;
        }
        __syncwarp();
        for (u32 base = 0; base < count; base += ABREAST) {
            const u64* other[ABREAST];
            u32 sum[ABREAST] = {};
#pragma unroll
            for (u32 i = 0; i < ABREAST; ++i) {
                const u32 e = base + i < count ? base + i : base;
                other[i] = rows + (u64)ends[e] * words;
            }
#pragma unroll
            for (u32 h = 0; h < HELD; ++h) {
                if (held[h] == 0) continue;
#pragma unroll
                for (u32 i = 0; i < ABREAST; ++i) {
                    sum[i] += __popcll(held[h] & other[i][lane + WARP * h]);
                }
            }
            for (u32 w = lane + WARP * HELD; w < words; w += WARP) {
                const u64 own = row[w];
                if (own == 0) continue;
#pragma unroll
                for (u32 i = 0; i < ABREAST; ++i) sum[i] += __popcll(own & other[i][w]);
            }
            const u32 score = sum_of_four(sum);
            if (lane < ABREAST && base + lane < count) use(u, (u32)ends[base + lane], score);
        }
        __syncwarp();
    }
}

// True in all threads of the block that ends last; it sees what the others wrote.
__device__ bool is_last_block(u32* done) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(done, 1) == gridDim.x - 1;
    __syncthreads();
    __threadfence();
    return last;
}

// Sum over the threads of the block up to and with this one; also the sum of all.
__device__ u32 block_prefix(u32 value, u32& all) {
    __shared__ u32 sums[WARP];
    const u32 upto = warp_prefix(value);
    __syncthreads();
    if (lane_id() == WARP - 1) sums[warp_id()] = upto;
    __syncthreads();
    if (warp_id() == 0) {
        const u32 sum = lane_id() < THREADS / WARP ? sums[lane_id()] : 0;
        sums[lane_id()] = warp_prefix(sum);
    }
    __syncthreads();
    all = sums[THREADS / WARP - 1];
    return upto + (warp_id() > 0 ? sums[warp_id() - 1] : 0);
}

// The score of the k-th best edge, by one block.
__device__ void find_threshold(
    const u32* histogram, const u32* __restrict__ degrees, u32 n, u32 k, Totals* totals) {
    __shared__ u64 ends;
    if (threadIdx.x == 0) ends = 0;
    __syncthreads();
    // Scores from the highest, a stretch per thread. Fewer than n scores are possible.
    const u32 each = (n + THREADS - 1) / THREADS, start = threadIdx.x * each;
    u32 stretch = 0;
    u64 degree = 0;
    for (u32 i = start; i < n && i < start + each; ++i) stretch += __ldcg(histogram + (n - 1 - i));
    for (u32 i = threadIdx.x; i < n; i += THREADS) degree += degrees[i];
    atomicAdd(&ends, degree);
    u32 all;
    const u32 upto = block_prefix(stretch, all);
    if (upto >= k && upto - stretch < k) {
        u32 above = upto - stretch;
        for (u32 i = start; i < n; ++i) {
            const u32 here = __ldcg(histogram + (n - 1 - i));
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
    if (threadIdx.x == 0) {
        totals->edges = ends / 2;
        if (all < k) {
            // All edges of positive score.
            totals->threshold = 0;
            totals->above = all;
            totals->ties = 0;
            totals->pivots = all;
        }
    }
}

// Counts the edges of each score, finds the best score of each row and the threshold.
extern "C" __global__ void __launch_bounds__(THREADS) sog_scores(
    const u64* __restrict__ rows, const u32* __restrict__ degrees, u32 n, u32 words, u32 k,
    List list, u32* histogram, u32* best, Totals* totals) {
    __shared__ u32 low[LOW_SCORES];
    for (u32 s = threadIdx.x; s < LOW_SCORES; s += THREADS) low[s] = 0;
    __syncthreads();
    // Equal scores one after another are counted together.
    u32 last = 0, run = 0, last_row = MAX_ROWS, last_best = 0;
    auto flush = [&]() {
        if (run > 0 && last > 0) atomicAdd(last < LOW_SCORES ? &low[last] : &histogram[last], run);
    };
    score_edges<true>(
        rows, degrees, n, words, list, totals->listed, 1, [&](u32 u) { return degrees[u] > 1; },
        [&](u32 u, u32, u32 score) {
            if (score != last) {
                flush();
                last = score;
                run = 0;
            }
            ++run;
            if (u != last_row || score > last_best) {
                last_row = u;
                last_best = score;
                if (score > 0) atomicMax(&best[u], score);
            }
        });
    flush();
    __syncthreads();
    for (u32 s = threadIdx.x; s < LOW_SCORES; s += THREADS) {
        if (low[s] > 0) atomicAdd(&histogram[s], low[s]);
    }
    if (is_last_block(&totals->done[0])) find_threshold(histogram, degrees, n, k, totals);
}

// Writes the edges above the threshold, counts those at it in each row, and turns the counts into
// places: at[u] becomes the number of them in the rows before u, at[n] that of all.
extern "C" __global__ void __launch_bounds__(THREADS) sog_above(
    const u64* __restrict__ rows, const u32* __restrict__ degrees, u32 n, u32 words,
    List list, const u32* __restrict__ best, u32* at, u64* __restrict__ keys, Totals* totals) {
    const u32 threshold = totals->threshold;
    const u32 least = threshold > 0 ? threshold : 1;
    u32 last_row = 0, run = 0;
    auto flush = [&]() {
        if (run > 0) atomicAdd(&at[last_row], run);
    };
    score_edges<false>(
        rows, degrees, n, words, list, totals->listed, least, [&](u32 u) { return best[u] >= least; },
        [&](u32 u, u32 v, u32 score) {
            if (score > threshold) {
                keys[atomicAdd(&totals->placed, 1)] = pivot_key(u, v, score);
            } else if (score == threshold && threshold > 0) {
                if (u != last_row) {
                    flush();
                    last_row = u;
                    run = 0;
                }
                ++run;
            }
        });
    flush();
    if (!is_last_block(&totals->done[1])) return;
    const u32 each = (n + THREADS - 1) / THREADS;
    const u32 start = threadIdx.x * each, end = start + each < n ? start + each : n;
    u32 sum = 0, all;
    for (u32 i = start; i < end; ++i) sum += __ldcg(at + i);
    u32 place = block_prefix(sum, all) - sum;
    for (u32 i = start; i < end; ++i) {
        const u32 count = __ldcg(at + i);
        at[i] = place;
        place += count;
    }
    if (threadIdx.x == 0) at[n] = all;
}

// Writes the edges at the threshold that are pivots: all of the first rows, and the first of the
// row where they run out, whose edges are gathered as bits in `cut`.
extern "C" __global__ void __launch_bounds__(THREADS) sog_at(
    const u64* __restrict__ rows, const u32* __restrict__ degrees, u32 n, u32 words,
    List list, const u32* __restrict__ at, u64* cut, u64* __restrict__ keys, Totals* totals) {
    const u32 threshold = totals->threshold, ties = totals->ties, above = totals->above;
    if (ties == 0) return;
    score_edges<false>(
        rows, degrees, n, words, list, totals->listed, threshold,
        [&](u32 u) { return at[u] < ties && at[u + 1] > at[u]; },
        [&](u32 u, u32 v, u32 score) {
            if (score != threshold) return;
            if (at[u + 1] <= ties) {
                keys[atomicAdd(&totals->placed, 1)] = pivot_key(u, v, score);
            } else {
                atomicOr(&cut[v / 64], 1ull << (v % 64));
                totals->cut = u + 1;
            }
        });
    if (!is_last_block(&totals->done[2]) || warp_id() != 0) return;
    const u32 row = __ldcg(&totals->cut);
    if (row == 0) return;
    const u32 u = row - 1;
    u32 place = at[u];
    for (u32 first = 0; first < words && place < ties; first += WARP) {
        const u32 k = first + lane_id();
        u64 rest = k < words ? __ldcg(cut + k) : 0;
        const u32 mine = __popcll(rest), upto = warp_prefix(mine);
        for (u32 p = place + upto - mine; rest != 0 && p < ties; rest &= rest - 1, ++p) {
            keys[above + p] = pivot_key(u, k * 64 + __ffsll(rest) - 1, threshold);
        }
        place += __shfl_sync(FULL, upto, WARP - 1);
    }
}

// Puts the pivots in order, best first: a warp counts how many are better than one.
extern "C" __global__ void __launch_bounds__(THREADS) pivot_order(
    const u64* __restrict__ keys, u64* __restrict__ pivots, const Totals* __restrict__ totals) {
    const u32 count = totals->pivots;
    const u32 p = blockIdx.x * (THREADS / WARP) + warp_id();
    if (p >= count) return;
    const u64 key = keys[p];
    u32 better = 0;
    for (u32 i = lane_id(); i < count; i += WARP) better += keys[i] > key;
    better = warp_sum(better);
    if (lane_id() == 0) pivots[better] = key;
}
