// The hypotheses worth refining: the best that lie apart. The arithmetic is that of
// src/registration/{candidates,layout}.rs, operation by operation.
#include "common.cuh"

#define CHOOSE_THREADS 1024

// Mean squared distance by which two poses lay the points of the probe apart.
__device__ double apart2(const Frame& frame, const double* a, const double* b) {
    const double *m = frame.probe_mean, *p = frame.probe_square;
    double sum = 0.0;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        const double d0 = a[3 * k] - b[3 * k], d1 = a[3 * k + 1] - b[3 * k + 1], d2 = a[3 * k + 2] - b[3 * k + 2];
        const double t = a[9 + k] - b[9 + k];
        const double squares = (d0 * d0 * p[0] + d1 * d1 * p[1]) + d2 * d2 * p[2];
        const double products = (d0 * d1 * p[3] + d0 * d2 * p[4]) + d1 * d2 * p[5];
        const double along = (d0 * m[0] + d1 * m[1]) + d2 * m[2];
        sum += ((squares + 2.0 * products) + (2.0 * t) * along) + t * t;
    }
    return sum;
}

// Chooses the best hypotheses that lie apart, best first, the order being score, inliers, then the
// order of the triples. One block.
extern "C" __global__ void __launch_bounds__(CHOOSE_THREADS) choose(const Memory m, const u32 round) {
    arrive();
    __shared__ double chosen[MAX_CANDIDATES][12];
    __shared__ u64 keys[WARP];
    __shared__ u32 slots[WARP];
    begin(m, round, REFINE);
    if (threadIdx.x < WARP) keys[threadIdx.x] = 0;
    const Frame& frame = *m.frame;
    const u32 count = frame.pivots[round] * frame.per_pivot, wanted = frame.candidates[round];
    u32* out = m.chosen + round * (MAX_CANDIDATES + 1);
    u64 best = 0;
    u32 found = 0, usable = 0;
    // Slots of the thread that are out for good; those beyond the bits are looked at again.
    u64 out_of_it = 0;
    for (; found < wanted; ++found) {
        u64 key = 0;
        u32 slot = 0;
#pragma unroll 4
        for (u32 s = threadIdx.x, k = 0; s < count; s += CHOOSE_THREADS, ++k) {
            const u64 bit = k < 64 ? 1ull << k : 0;
            if (out_of_it & bit) continue;
            const uint2 support = m.support[s];
            const u64 own = (u64)support.x << 32 | support.y;
            usable += found == 0 && support.y > 0;
            // Less than half the support of the best is not refined to beat it.
            if (support.y == 0 || 2 * (u64)support.x < best >> 32) {
                out_of_it |= bit;
                continue;
            }
            // From those before the last it is apart already, or was found not to be.
            bool apart = true;
            for (u32 c = bit != 0 && found > 0 ? found - 1 : 0; c < found; ++c) {
                apart = apart && apart2(frame, chosen[c], m.poses + 12 * (u64)s) > frame.theta * frame.theta;
            }
            if (!apart) out_of_it |= bit;
            if (!apart || own <= key) continue;
            key = own;
            slot = s;
        }
        // The best of the block; of equal ones the first.
        for (u32 stage = 0; stage < 2; ++stage) {
            for (u32 step = WARP / 2; step > 0; step /= 2) {
                const u64 other = __shfl_xor_sync(FULL, key, step);
                const u32 its = __shfl_xor_sync(FULL, slot, step);
                if (other > key || (other == key && its < slot)) {
                    key = other;
                    slot = its;
                }
            }
            if (stage > 0) break;
            __syncthreads();
            if (lane_id() == 0) {
                keys[warp_id()] = key;
                slots[warp_id()] = slot;
            }
            __syncthreads();
            key = keys[lane_id()];
            slot = slots[lane_id()];
        }
        if (key == 0) break;
        if (found == 0) best = key;
        if (threadIdx.x < 12) chosen[found][threadIdx.x] = m.poses[12 * (u64)slot + threadIdx.x];
        if (threadIdx.x == 0) out[1 + found] = slot;
        __syncthreads();
    }
    if (threadIdx.x == 0) out[0] = found;
    usable = warp_sum(usable);
    if (lane_id() == 0 && usable > 0) atomicAdd(&m.totals[round].usable, usable);
}
