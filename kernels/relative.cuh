// Two views: poses of samples of five, and what a row adds to the score of a pose. The arithmetic is that
// of src/estimation/relative.rs and src/estimation/solvers/five_point.rs, operation by operation.
#ifndef FLASHREG_RELATIVE_CUH
#define FLASHREG_RELATIVE_CUH
#include "sights.cuh"
#include "five_point.cuh"

struct Relative {
    static constexpr u32 SAMPLE = 5, ROOTS = 10, COLUMNS = 19, MODEL = 12;

    // Lanes that solve a sample.
    static constexpr u32 TOGETHER = five_point::TOGETHER;

    // Poses (rotation row by row, translation of length one) of a sample; how many.
    static __device__ inline u32 solve(const double* exact, const u32* sample, double* poses) {
        __shared__ five_point::Bench benches[SOLVE_THREADS / TOGETHER];
        five_point::Bench& bench = benches[threadIdx.x / TOGETHER];
        const u32 lane = threadIdx.x % TOGETHER;
        const five_point::Tile tile = {lane, ((1u << TOGETHER) - 1) << (lane_id() - lane)};
        // The sample before may still be looked at.
        tile.meet();
        if (lane < SAMPLE) load(exact, sample[lane], bench.a[lane], bench.b[lane]);
        tile.meet();
        return five_point::poses(tile, bench, poses);
    }

    static __device__ inline void model(const double* pose, float (&model)[MODEL]) {
        for (u32 k = 0; k < MODEL; ++k) model[k] = (float)pose[k];
    }

    // Of a row with the bearings of the current and of the reference view, the directions in which they
    // move by a threshold each (two and two), and how far behind a camera is still called in front.
    static __device__ inline u32 gain(const float (&m)[MODEL], const float (&row)[COLUMNS]) {
        const float *b1 = row, *b2 = row + 3, *a1 = row + 6, *c1 = row + 9, *a2 = row + 12, *c2 = row + 15, *t = m + 9;
        const float slack = row[18];
        float x[3], l1[3], l2[3], n[3];
#pragma unroll
        for (int i = 0; i < 3; ++i) x[i] = (m[3 * i] * b1[0] + m[3 * i + 1] * b1[1]) + m[3 * i + 2] * b1[2];
        cross(t, x, l2);
        cross(b2, t, n);
#pragma unroll
        for (int j = 0; j < 3; ++j) l1[j] = (m[j] * n[0] + m[3 + j] * n[1]) + m[6 + j] * n[2];
        const float e = dot(b2, l2), p = dot(a2, l2), q = dot(c2, l2), u = dot(a1, l1), v = dot(c1, l1);
        const float c = dot(b2, x), g2 = dot(b2, t), g1 = dot(x, t);
        const bool in_front = c * g2 - g1 > -slack && g2 - c * g1 > -slack;
        return gain_of(e * e, (p * p + q * q) + (u * u + v * v), in_front);
    }

    static __device__ inline float dot(const float* a, const float* b) { return (a[0] * b[0] + a[1] * b[1]) + a[2] * b[2]; }

    static __device__ inline void cross(const float* a, const float* b, float (&to)[3]) {
        to[0] = a[1] * b[2] - a[2] * b[1];
        to[1] = a[2] * b[0] - a[0] * b[2];
        to[2] = a[0] * b[1] - a[1] * b[0];
    }
};
#endif
