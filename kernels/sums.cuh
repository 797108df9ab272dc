// Sums whose order is fixed, as src/registration/sums.rs: a block of 256 threads is the lanes.
#ifndef FLASHREG_SUMS_CUH
#define FLASHREG_SUMS_CUH
#include "common.cuh"

#define LANES 256
#define LANE_WARPS (LANES / WARP)
// Most sums of a block.
#define SUMS 32

// Adds those of the lanes STEP apart; each keeps half of the NUMBERS numbers that it has.
template <u32 STEP, u32 NUMBERS>
__device__ inline void halve(double* v) {
    const bool upper = (lane_id() & STEP) != 0;
#pragma unroll
    for (u32 k = 0; k < NUMBERS / 2; ++k) {
        const double mine = upper ? v[k + NUMBERS / 2] : v[k];
        const double others = upper ? v[k] : v[k + NUMBERS / 2];
        v[k] = mine + __shfl_xor_sync(FULL, others, STEP);
    }
}

// Adds 16 or 32 numbers over the warp, which leaves the sums in `warps` (shared).
template <u32 COUNT>
__device__ inline void warp_totals(double (&v)[COUNT], double (&warps)[LANE_WARPS][SUMS]) {
    static_assert(COUNT == SUMS || COUNT == SUMS / 2, "a lane or two for each");
    const u32 lane = lane_id();
    halve<16, COUNT>(v);
    halve<8, COUNT / 2>(v);
    halve<4, COUNT / 4>(v);
    halve<2, COUNT / 8>(v);
    if (COUNT == SUMS) {
        // Lane s holds number s.
        halve<1, 2>(v);
        warps[warp_id()][lane] = v[0];
    } else {
        // Lanes 2 s and 2 s + 1 hold number s.
        v[0] += __shfl_xor_sync(FULL, v[0], 1);
        if (lane % 2 == 0) warps[warp_id()][lane / 2] = v[0];
    }
}

// Number k over the first warps; the others have nothing.
__device__ inline double total_of(const double (&warps)[LANE_WARPS][SUMS], u32 active, u32 k) {
    double sum = warps[0][k];
#pragma unroll
    for (u32 w = 1; w < LANE_WARPS; ++w) {
        const double more = warps[w][k];
        if (w < active) sum += more;
    }
    return sum;
}

// Adds numbers over the block; all threads find the sums in `totals` (shared).
template <u32 COUNT>
__device__ inline void block_totals(double (&v)[COUNT], double (&warps)[LANE_WARPS][SUMS], double (&totals)[SUMS]) {
    // The last totals may still be read, but not the parts.
    warp_totals(v, warps);
    __syncthreads();
    if (threadIdx.x < COUNT) totals[threadIdx.x] = total_of(warps, LANE_WARPS, threadIdx.x);
    __syncthreads();
}

// Makes the entry (p, q) of a symmetric matrix zero. dp, dq: diagonal; pq, rp, rq: beside it; vp,
// vq: axes.
__device__ inline void rotate(
    double& dp, double& dq, double& pq, double& rp, double& rq, double* vp, double* vq) {
    if (pq * pq <= 1e-36 * fabs(dp * dq)) return;
    const double d = dq - dp, twice = 2.0 * pq;
    const double size = fabs(d) + __dsqrt_rn(d * d + twice * twice);
    const double t = (d < 0.0 ? -twice : twice) / size;
    const double c = 1.0 / __dsqrt_rn(t * t + 1.0), s = t * c;
    dp = dp - t * pq;
    dq = dq + t * pq;
    pq = 0.0;
    const double a = rp, b = rq;
    rp = c * a - s * b;
    rq = s * a + c * b;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        const double x = vp[k], y = vq[k];
        vp[k] = c * x - s * y;
        vq[k] = s * x + c * y;
    }
}

__device__ inline void exchange(double& dp, double& dq, double* vp, double* vq) {
    if (!(dq > dp)) return;
    const double d = dp;
    dp = dq;
    dq = d;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        const double v = vp[k];
        vp[k] = vq[k];
        vq[k] = v;
    }
}

__device__ inline double dot3(const double* a, const double* b) { return (a[0] * b[0] + a[1] * b[1]) + a[2] * b[2]; }

// Eigenvalues, largest first, and axes (rows of `v`) of the matrix xx yy zz xy xz yz. `v` comes with
// axes to begin with: the nearer they are the fewer sweeps are needed.
__device__ inline void symmetric_eigen(const double* m, int sweeps, double* d, double (*v)[3]) {
    double mv[3][3];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        mv[i][0] = (m[0] * v[i][0] + m[3] * v[i][1]) + m[4] * v[i][2];
        mv[i][1] = (m[3] * v[i][0] + m[1] * v[i][1]) + m[5] * v[i][2];
        mv[i][2] = (m[4] * v[i][0] + m[5] * v[i][1]) + m[2] * v[i][2];
    }
    double d0 = dot3(v[0], mv[0]), d1 = dot3(v[1], mv[1]), d2 = dot3(v[2], mv[2]);
    double xy = dot3(v[0], mv[1]), xz = dot3(v[0], mv[2]), yz = dot3(v[1], mv[2]);
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        rotate(d0, d1, xy, xz, yz, v[0], v[1]);
        rotate(d0, d2, xz, xy, yz, v[0], v[2]);
        rotate(d1, d2, yz, xy, xz, v[1], v[2]);
    }
    exchange(d0, d1, v[0], v[1]);
    exchange(d0, d2, v[0], v[2]);
    exchange(d1, d2, v[1], v[2]);
    d[0] = d0;
    d[1] = d1;
    d[2] = d2;
}

#endif
