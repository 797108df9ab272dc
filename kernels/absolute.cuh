// A camera among known points: poses of samples of three, and what a row adds to the score of a pose.
// The arithmetic is that of src/estimation/absolute.rs and src/estimation/solvers/p3p.rs, operation by
// operation.
#ifndef FLASHREG_ABSOLUTE_CUH
#define FLASHREG_ABSOLUTE_CUH
#include "sights.cuh"
#include "p3p.cuh"

struct Absolute {
    static constexpr u32 SAMPLE = 3, ROOTS = 4, COLUMNS = 12, MODEL = 12;

    // Lanes that solve a sample.
    static constexpr u32 TOGETHER = 1;

    // Poses (rotation row by row, translation) of a sample; how many.
    static __device__ inline u32 solve(const double* exact, const u32* sample, double* poses) {
        Triad x[3], f[3];
#pragma unroll
        for (int i = 0; i < 3; ++i) load(exact, sample[i], x[i], f[i]);
        return p3p::poses(x, f, poses);
    }

    static __device__ inline void model(const double* pose, float (&model)[MODEL]) {
        for (u32 k = 0; k < MODEL; ++k) model[k] = (float)pose[k];
    }

    // Of a row with point, bearing, and metric row by row.
    static __device__ inline u32 gain(const float (&m)[MODEL], const float (&row)[COLUMNS]) {
        const float x = row[0], y = row[1], z = row[2];
        const float p = ((m[0] * x + m[1] * y) + m[2] * z) + m[9];
        const float q = ((m[3] * x + m[4] * y) + m[5] * z) + m[10];
        const float r = ((m[6] * x + m[7] * y) + m[8] * z) + m[11];
        const float d = (row[3] * p + row[4] * q) + row[5] * r;
        const float u = (row[6] * p + row[7] * q) + row[8] * r;
        const float v = (row[9] * p + row[10] * q) + row[11] * r;
        return gain_of(u * u + v * v, d * d, d > 0.0f);
    }
};
#endif
