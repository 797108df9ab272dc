// Third vertices: the best 3-cliques of each pivot (FlashReg Eqs. 8 and 9, Algorithm 1).
//
// For a pivot (u, v) every w > v joined to both gives the triple u < v < w with the sum of the
// three edge scores; the best T are kept, ties by w. A block a pivot.
#include "common.cuh"

#define CLIQUE_THREADS 256
// Lanes that count for one candidate together.
#define GROUP 16
#define GROUPS (CLIQUE_THREADS / GROUP)
// Words whose candidates are listed at a time.
#define CHUNK WARP

// A candidate as one number, the better the greater: score, then lower w. Zero is none.
__device__ inline u64 candidate_key(u32 score, u32 w) { return (u64)score << 32 | (0xffffu - w); }

__device__ inline u64 warp_max(u64 value) {
    for (u32 step = WARP / 2; step > 0; step /= 2) {
        const u64 other = __shfl_xor_sync(FULL, value, step);
        value = other > value ? other : value;
    }
    return value;
}

// Two rows, the words where either is not zero.
struct Pair {
    u64 u[MAX_WORDS], v[MAX_WORDS];
    u16 index[MAX_WORDS];
    u32 words;
};

// Slot p * per_pivot + t gets triple t of pivot p as (u, v, w, score); score zero means none.
extern "C" __global__ void __launch_bounds__(CLIQUE_THREADS) cliques(
    const u64* __restrict__ rows, u32 words, const u64* __restrict__ pivots, u32 per_pivot,
    uint4* __restrict__ slots, Totals* __restrict__ totals) {
    __shared__ Pair pair;
    __shared__ u16 ends[CHUNK * 64];
    // Candidates of a chunk behind the best so far.
    __shared__ u64 keys[MAX_PER_PIVOT + CHUNK * 64];
    __shared__ u64 warp_best[CLIQUE_THREADS / WARP];
    __shared__ u32 count;
    uint4* out = slots + (u64)blockIdx.x * per_pivot;
    if (blockIdx.x >= totals->pivots) {
        if (threadIdx.x < per_pivot) out[threadIdx.x] = make_uint4(0, 0, 0, 0);
        return;
    }
    const u64 pivot = pivots[blockIdx.x];
    const u32 u = pivot_u(pivot), v = pivot_v(pivot), score_uv = pivot_score(pivot);
    const u64 *row_u = rows + (u64)u * words, *row_v = rows + (u64)v * words;

    if (threadIdx.x == 0) pair.words = 0;
    if (threadIdx.x < MAX_PER_PIVOT) keys[threadIdx.x] = 0;
    __syncthreads();
    for (u32 base = 0; base < words; base += CLIQUE_THREADS) {
        const u32 k = base + threadIdx.x;
        const u64 a = k < words ? row_u[k] : 0, b = k < words ? row_v[k] : 0;
        const bool any = (a | b) != 0;
        const u32 vote = __ballot_sync(FULL, any);
        u32 place = 0;
        if (lane_id() == 0 && vote != 0) place = atomicAdd(&pair.words, __popc(vote));
        place = __shfl_sync(FULL, place, 0) + __popc(vote & lanes_below());
        if (any) {
            pair.u[place] = a;
            pair.v[place] = b;
            pair.index[place] = (u16)k;
        }
    }
    __syncthreads();

    for (u32 first = v / 64; first < words; first += CHUNK) {
        if (warp_id() == 0) {
            const u32 k = first + lane_id();
            u64 word = k < words ? row_u[k] & row_v[k] : 0;
            if (k == v / 64) word &= (~0ull << (v % 64)) & ~(1ull << (v % 64));
            const u32 mine = __popcll(word), upto = warp_prefix(mine);
            u32 place = upto - mine;
            for (u64 rest = word; rest != 0; rest &= rest - 1) {
                ends[place++] = (u16)(k * 64 + __ffsll(rest) - 1);
            }
            if (lane_id() == WARP - 1) count = upto;
        }
        __syncthreads();
        const u32 found = count;
        for (u32 base = warp_id() * (WARP / GROUP); base < found; base += GROUPS) {
            const u32 e = base + lane_id() / GROUP;
            const u32 w = e < found ? ends[e] : u;
            const u64* row_w = rows + (u64)w * words;
            u32 sum = 0;
            for (u32 k = lane_id() % GROUP; k < pair.words; k += GROUP) {
                const u64 other = row_w[pair.index[k]];
                sum += __popcll(pair.u[k] & other) + __popcll(pair.v[k] & other);
            }
            for (u32 step = GROUP / 2; step > 0; step /= 2) sum += __shfl_xor_sync(FULL, sum, step);
            if (lane_id() % GROUP == 0 && e < found) {
                keys[MAX_PER_PIVOT + e] = candidate_key(score_uv + sum, w);
            }
        }
        __syncthreads();
        if (found == 0) continue;
        // The best T of the kept ones and of this chunk, one after another.
        u64 below = ~0ull;
        u64 kept = 0;
        for (u32 t = 0; t < per_pivot; ++t) {
            u64 mine = 0;
            for (u32 i = threadIdx.x; i < MAX_PER_PIVOT + found; i += CLIQUE_THREADS) {
                const u64 key = keys[i];
                if (key < below && key > mine) mine = key;
            }
            mine = warp_max(mine);
            if (lane_id() == 0) warp_best[warp_id()] = mine;
            __syncthreads();
            u64 best = 0;
            for (u32 i = 0; i < CLIQUE_THREADS / WARP; ++i) best = warp_best[i] > best ? warp_best[i] : best;
            __syncthreads();
            if (threadIdx.x == t) kept = best;
            below = best;
            if (best == 0) break;
        }
        if (threadIdx.x < MAX_PER_PIVOT) keys[threadIdx.x] = kept;
        __syncthreads();
    }

    if (threadIdx.x < WARP) {
        const u64 key = threadIdx.x < per_pivot ? keys[threadIdx.x] : 0;
        if (threadIdx.x < per_pivot) {
            const u32 w = 0xffffu - (u32)(key & 0xffffu);
            out[threadIdx.x] = key == 0 ? make_uint4(0, 0, 0, 0) : make_uint4(u, v, w, (u32)(key >> 32));
        }
        const u32 some = __popc(__ballot_sync(FULL, key != 0));
        if (threadIdx.x == 0 && some > 0) atomicAdd(&totals->triples, some);
    }
}
