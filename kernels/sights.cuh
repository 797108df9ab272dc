// What the kinds of problems of kernels/estimate.cu share.
#ifndef FLASHREG_SIGHTS_CUH
#define FLASHREG_SIGHTS_CUH
#include "triad.cuh"

// Numbers of a row that samples are solved from.
#define EXACT 6

// A row that samples are solved from: two vectors.
__device__ inline void load(const double* exact, u32 row, Triad& first, Triad& second) {
    const double* at = exact + EXACT * (u64)row;
    first = {{at[0], at[1], at[2]}};
    second = {{at[3], at[4], at[5]}};
}

// Threads of a block of the kernels that solve samples: few, so that samples come to many multiprocessors.
#define SOLVE_THREADS 32

// What a row adds to the score of a pose: e / q is the square of its residual in thresholds.
__device__ inline u32 gain_of(float e, float q, bool in_front) {
    return in_front && e < q ? __float2uint_rz(65536.0f * (1.0f - e / q)) : 0;
}
#endif
