// The hypotheses worth refining: the best that lie apart. The arithmetic is that of
// src/registration/{candidates,layout}.rs, operation by operation.
#ifndef FLASHREG_CHOOSE_CU
#define FLASHREG_CHOOSE_CU
#include "sums.cuh"

#define NO_SLOT 0xffffffffu
// Slots of a thread that are looked at together.
#define SLOTS 8

// Mean squared distance by which two poses lay the points of the probe apart.
__device__ inline float apart2(const Frame& frame, const float4* a, const float4* b) {
    const float *m = frame.probe_mean, *p = frame.probe_square;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        const float4 u = a[k], v = b[k];
        const float d0 = u.x - v.x, d1 = u.y - v.y, d2 = u.z - v.z, t = u.w - v.w;
        const float squares = (d0 * d0 * p[0] + d1 * d1 * p[1]) + d2 * d2 * p[2];
        const float products = (d0 * d1 * p[3] + d0 * d2 * p[4]) + d1 * d2 * p[5];
        const float along = (d0 * m[0] + d1 * m[1]) + d2 * m[2];
        sum += ((squares + 2.0f * products) + (2.0f * t) * along) + t * t;
    }
    return sum;
}

// A hypothesis: score, inliers, and its slot from behind; the better is the greater.
struct Rank {
    u32 score, inliers, from_behind;

    __device__ inline bool above(const Rank& other) const {
        if (score != other.score) return score > other.score;
        if (inliers != other.inliers) return inliers > other.inliers;
        return from_behind > other.from_behind;
    }

    // The best of the warp.
    __device__ inline Rank best() const {
        Rank found;
        found.score = warp_max(score);
        bool in = score == found.score;
        found.inliers = warp_max(in ? inliers : 0);
        in = in && inliers == found.inliers;
        found.from_behind = warp_max(in ? from_behind : 0);
        return found;
    }
};

// Slot of hypothesis `nth` (from 0) of those worth refining: the best that lie apart, best first, the
// order being score, inliers, then the order of the triples. A whole block finds it, and those before
// it, for itself.
__device__ u32 choose(const Work& m, u32 round, u32 nth) {
    __shared__ float4 chosen[MAX_CANDIDATES][3];
    __shared__ Rank ranks[LANE_WARPS];
    const Rank none = {0, 0, 0};
    const Frame& frame = *m.frame;
    const u32 count = m.pivots_wanted * m.per_pivot;
    u32 best = 0;
    // Slots of the thread that are near one that was chosen; for those beyond the bits it is found again.
    u64 out_of_it = 0;
    for (u32 found = 0;; ++found) {
        Rank first = none;
        u32 usable = 0;
        for (u32 start = threadIdx.x, k = 0; start < count; start += SLOTS * LANES, k += SLOTS) {
            uint2 support[SLOTS];
#pragma unroll
            for (u32 i = 0; i < SLOTS; ++i) {
                const u32 s = start + i * LANES;
                support[i] = s < count ? m.support[s] : make_uint2(0, 0);
            }
#pragma unroll
            for (u32 i = 0; i < SLOTS; ++i) {
                const u32 s = start + i * LANES;
                const u64 bit = k < 64 ? 1ull << (k + i) : 0;
                const Rank own = {support[i].x, support[i].y, ~s};
                usable += own.inliers > 0;
                // Less than half the support of the best is not refined to beat it.
                if (out_of_it & bit || own.inliers == 0 || 2 * (u64)own.score < best) continue;
                // From those before the last it is apart already, or was found not to be.
                bool apart = true;
                for (u32 c = bit != 0 && found > 0 ? found - 1 : 0; c < found; ++c) {
                    apart = apart && apart2(frame, chosen[c], m.singles + 3 * (u64)s) > frame.theta2;
                }
                if (!apart) out_of_it |= bit;
                if (apart && own.above(first)) first = own;
            }
        }
        if (nth == 0) {
            usable = warp_sum(usable);
            if (lane_id() == 0 && usable > 0) atomicAdd(&m.findings->totals[round].usable, usable);
        }
        // The best of the block.
        first = first.best();
        __syncthreads();
        if (lane_id() == 0) ranks[warp_id()] = first;
        __syncthreads();
        first = ranks[lane_id() % LANE_WARPS].best();
        if (first.inliers == 0) return NO_SLOT;
        const u32 slot = ~first.from_behind;
        if (found == nth) return slot;
        if (found == 0) best = first.score;
        if (threadIdx.x < 3) chosen[found][threadIdx.x] = m.singles[3 * (u64)slot + threadIdx.x];
        __syncthreads();
    }
}
#endif
