// The search of a camera estimation: samples are solved, their poses scored over all rows, the best
// kept. The arithmetic is that of src/estimation, operation by operation; scores are sums of whole
// numbers, so the order of rows is free.
//
// A round is three kernels: a thread or a tile of lanes solves a sample, a block scores the poses of a sample, one block
// chooses. The poses of sample s are the slots s * ROOTS + k, k below its count: no order depends on
// which block is done first. The structures stand in src/estimation/gpu/memory.rs too.
#ifndef FLASHREG_ESTIMATE_CU
#define FLASHREG_ESTIMATE_CU
#include "absolute.cuh"
#include "relative.cuh"

#define SIGHT_THREADS 128
#define SIGHT_WARPS (SIGHT_THREADS / WARP)
#define KEEP_THREADS 512
#define KEEP_WARPS (KEEP_THREADS / WARP)
// Rows of a block of columns, `LANES` of src/estimation/columns.rs.
#define BLOCK 16
// Most poses that are kept of a round.
#define MOST_KEPT 16

// A pose that is kept; its slot is the number of the sample times SLOTS_OF_SAMPLE plus that of the solution, the
// same for every kind of problem.
#define SLOTS_OF_SAMPLE 64
struct Kept {
    double pose[12];
    u32 score, slot;
};

// What a round finds: poses in all, and the best of them in their order.
struct Finds {
    u32 poses, count;
    Kept kept[MOST_KEPT];
};

// One round: what there is, and where.
struct Round {
    u32 rows, samples, keep, reserved;
    // Of each row, what samples are solved from, and, in blocks of BLOCK rows side by side, what poses are
    // scored with.
    const double* exact;
    const float* blocks;
    // Row indices of the samples; on the host, or copied.
    const u32* drawn;
    // Poses of each sample; poses and scores of the slots.
    u32* counts;
    double* poses;
    u32* scores;
    // On the host.
    Finds* outbox;
};

static_assert(sizeof(Kept) == 104 && sizeof(Finds) == 1672 && sizeof(Round) == 72, "sizes of the host");

template <typename Kind>
__device__ inline void solve_samples(const Round& s) {
    arrive();
    constexpr u32 TILES = SOLVE_THREADS / Kind::TOGETHER;
    for (u32 sample = blockIdx.x * TILES + threadIdx.x / Kind::TOGETHER; sample < s.samples; sample += gridDim.x * TILES) {
        const u32 count =
            Kind::solve(s.exact, s.drawn + Kind::SAMPLE * (u64)sample, s.poses + 12 * (u64)(Kind::ROOTS * sample));
        if (threadIdx.x % Kind::TOGETHER == 0) s.counts[sample] = count;
    }
}

template <typename Kind>
__device__ inline void score_samples(const Round& s) {
    arrive();
    __shared__ float models[Kind::ROOTS][Kind::MODEL];
    __shared__ u32 sums[Kind::ROOTS][SIGHT_WARPS];
    for (u32 sample = blockIdx.x; sample < s.samples; sample += gridDim.x) {
        const u32 count = s.counts[sample], first = Kind::ROOTS * sample;
        if (threadIdx.x < count) Kind::model(s.poses + 12 * (u64)(first + threadIdx.x), models[threadIdx.x]);
        __syncthreads();
        u32 sum[Kind::ROOTS];
#pragma unroll
        for (u32 k = 0; k < Kind::ROOTS; ++k) sum[k] = 0;
        for (u32 i = threadIdx.x; i < s.rows && count > 0; i += SIGHT_THREADS) {
            const float* block = s.blocks + i / BLOCK * (u64)(Kind::COLUMNS * BLOCK) + i % BLOCK;
            float row[Kind::COLUMNS];
#pragma unroll
            for (u32 c = 0; c < Kind::COLUMNS; ++c) row[c] = __ldg(block + c * BLOCK);
#pragma unroll
            for (u32 k = 0; k < Kind::ROOTS; ++k) {
                if (k < count) sum[k] += Kind::gain(models[k], row);
            }
        }
#pragma unroll
        for (u32 k = 0; k < Kind::ROOTS; ++k) {
            const u32 all = warp_sum(sum[k]);
            if (lane_id() == 0) sums[k][warp_id()] = all;
        }
        __syncthreads();
        if (threadIdx.x < count) {
            u32 score = 0;
            for (u32 w = 0; w < SIGHT_WARPS; ++w) score += sums[threadIdx.x][w];
            s.scores[first + threadIdx.x] = score;
        }
    }
}

// A score and its slot as one number, above zero; the better is the greater.
__device__ inline u64 rank_of(u32 score, u32 slot) { return (u64)score << 32 | (0xffffffffu - slot); }

// The best of a thread's slots below `limit`; zero if there is none.
template <typename Kind>
__device__ inline u64 best_below(const Round& s, u64 limit) {
    u64 best = 0;
    for (u32 sample = threadIdx.x; sample < s.samples; sample += KEEP_THREADS) {
        const u32 count = s.counts[sample];
        for (u32 k = 0; k < count; ++k) {
            const u32 slot = Kind::ROOTS * sample + k;
            const u64 rank = rank_of(s.scores[slot], slot);
            if (rank < limit && rank > best) best = rank;
        }
    }
    return best;
}

// The greatest of the block; all threads get it.
__device__ inline u64 block_best(u64 rank, u64 (&ranks)[KEEP_WARPS]) {
    const u32 score = warp_max((u32)(rank >> 32));
    const u32 low = warp_max((u32)(rank >> 32) == score ? (u32)rank : 0);
    if (lane_id() == 0) ranks[warp_id()] = (u64)score << 32 | low;
    __syncthreads();
    u64 best = 0;
    for (u32 w = 0; w < KEEP_WARPS; ++w) best = ranks[w] > best ? ranks[w] : best;
    // The next ones are written after all have read these.
    __syncthreads();
    return best;
}

template <typename Kind>
__device__ inline void keep_best(const Round& s) {
    arrive();
    __shared__ u64 ranks[KEEP_WARPS];
    __shared__ u32 sums[KEEP_WARPS];
    u32 poses = 0, all, kept = 0;
    for (u32 sample = threadIdx.x; sample < s.samples; sample += KEEP_THREADS) poses += s.counts[sample];
    block_prefix(poses, sums, all);
    u64 own = best_below<Kind>(s, ~0ull);
    while (kept < s.keep) {
        const u64 best = block_best(own, ranks);
        // A pose that no row speaks for is not worth keeping.
        if (best >> 32 == 0) break;
        const u32 slot = 0xffffffffu - (u32)best;
        Kept& to = s.outbox->kept[kept];
        if (threadIdx.x < 12) to.pose[threadIdx.x] = s.poses[12 * (u64)slot + threadIdx.x];
        if (threadIdx.x == 12) to.score = (u32)(best >> 32);
        if (threadIdx.x == 13) to.slot = slot / Kind::ROOTS * SLOTS_OF_SAMPLE + slot % Kind::ROOTS;
        if (own == best) own = best_below<Kind>(s, best);
        ++kept;
    }
    if (threadIdx.x == 0) {
        s.outbox->poses = all;
        s.outbox->count = kept;
    }
}

extern "C" __global__ void __launch_bounds__(SOLVE_THREADS) absolute_solve(const Round s) { solve_samples<Absolute>(s); }
extern "C" __global__ void __launch_bounds__(SIGHT_THREADS) absolute_score(const Round s) { score_samples<Absolute>(s); }
extern "C" __global__ void __launch_bounds__(KEEP_THREADS) absolute_keep(const Round s) { keep_best<Absolute>(s); }
extern "C" __global__ void __launch_bounds__(SOLVE_THREADS) relative_solve(const Round s) { solve_samples<Relative>(s); }
extern "C" __global__ void __launch_bounds__(SIGHT_THREADS) relative_score(const Round s) { score_samples<Relative>(s); }
extern "C" __global__ void __launch_bounds__(KEEP_THREADS) relative_keep(const Round s) { keep_best<Relative>(s); }
#endif
