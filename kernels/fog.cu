// FOG, the first-order compatibility graph as rows of bits (FlashReg Eqs. 1 to 3). The arithmetic
// is that of src/registration/fog.rs, operation by operation.
#include "common.cuh"

// Side of a tile.
#define TILE 32
// Tiles of a block, side by side: their words of a row fill a sector of memory.
#define TILES 8

struct Rule {
    float tau, min_length;
    // Factors of the condition without square roots.
    float per_sum, per_square;
};

__device__ inline float square_distance(float ax, float ay, float az, float bx, float by, float bz) {
    const float x = ax - bx, y = ay - by, z = az - bz;
    return (x * x + y * y) + z * z;
}

__device__ inline bool joins(const Rule& rule, float a, float b) {
    const float difference = a - b, sum = a + b;
    if (!(difference * difference < sum * (rule.per_sum + rule.per_square * sum))) return false;
    const float ls = __fsqrt_rn(a), lt = __fsqrt_rn(b);
    return fabsf(ls - lt) < rule.tau && ls + lt > rule.min_length;
}

// What the vertical and the identities allow.
__device__ bool allowed(
    const float* heights, const u64* ids, u32 padded, float tau, u32 i, u32 j) {
    bool allow = true;
    if (heights != nullptr) {
        const float* target = heights + padded;
        const float difference = (heights[i] - heights[j]) - (target[i] - target[j]);
        allow = fabsf(difference) < tau;
    }
    if (ids != nullptr) allow = allow && ids[i] != ids[j] && ids[padded + i] != ids[padded + j];
    return allow;
}

// `points`: six arrays of `padded` numbers, source x y z and target x y z. A warp compares the 32
// rows of a tile with its 32 columns, each lane holding a column. Tiles on and right of the
// diagonal are computed, the others are their transposes.
extern "C" __global__ void __launch_bounds__(TILES* WARP) fog(
    const float* __restrict__ points, const float* __restrict__ heights,
    const u64* __restrict__ ids, u32 padded, Rule rule, u32* __restrict__ rows) {
    __shared__ float4 row_a[TILE];
    __shared__ float2 row_b[TILE];
    __shared__ u32 words[TILE][TILES + 1];
    const u32 tiles = padded / TILE, row_tile = blockIdx.y, first_tile = blockIdx.x * TILES;
    // The whole block lies left of the diagonal.
    if (first_tile + TILES <= row_tile) return;

    const u32 lane = lane_id(), warp = warp_id(), i0 = row_tile * TILE;
    if (warp == 0) {
        const float* p = points + i0 + lane;
        row_a[lane] = make_float4(p[0], p[padded], p[2 * padded], p[3 * padded]);
        row_b[lane] = make_float2(p[4 * padded], p[5 * padded]);
    }
    __syncthreads();

    const u32 column_tile = first_tile + warp;
    const bool within = column_tile < tiles && column_tile >= row_tile;
    u32 row_word = 0, column_word = 0;
    if (within) {
        const u32 j = column_tile * TILE + lane;
        const float* p = points + j;
        const float sx = p[0], sy = p[padded], sz = p[2 * padded];
        const float tx = p[3 * padded], ty = p[4 * padded], tz = p[5 * padded];
#pragma unroll 8
        for (u32 r = 0; r < TILE; ++r) {
            const float4 a = row_a[r];
            const float2 b = row_b[r];
            const float source = square_distance(a.x, a.y, a.z, sx, sy, sz);
            const float target = square_distance(a.w, b.x, b.y, tx, ty, tz);
            bool joined = joins(rule, source, target);
            u32 word = __ballot_sync(FULL, joined);
            if (word != 0 && (heights != nullptr || ids != nullptr)) {
                joined = joined && allowed(heights, ids, padded, rule.tau, i0 + r, j);
                word = __ballot_sync(FULL, joined);
            }
            if (lane == r) row_word = word;
            column_word |= (u32)joined << r;
        }
        // The mirrored tile: row j, the columns of the row tile.
        if (column_tile != row_tile) rows[(u64)j * tiles + row_tile] = column_word;
    }
    words[lane][warp] = row_word;
    __syncthreads();
    // Eight neighbouring words of a row are written together.
    const u32 r = threadIdx.x / TILES, c = first_tile + threadIdx.x % TILES;
    if (c < tiles && c >= row_tile) rows[(u64)(i0 + r) * tiles + c] = words[r][threadIdx.x % TILES];
}

// Degrees of all rows, a warp each, after the edges of the rows set in `gone` (null: none) are
// removed. Makes zero what the next search counts in: totals, three arrays of
// `padded` numbers and a row of bits.
extern "C" __global__ void __launch_bounds__(256) prune(
    u64* __restrict__ rows, const u64* __restrict__ gone, u32 padded, u32* __restrict__ degrees,
    u32* __restrict__ histogram, u32* __restrict__ best, u32* __restrict__ at,
    u64* __restrict__ cut, Totals* __restrict__ totals) {
    const u32 lane = lane_id(), words = padded / 64;
    const u32 i = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (blockIdx.x == 0 && threadIdx.x < sizeof(Totals) / sizeof(u32)) {
        reinterpret_cast<u32*>(totals)[threadIdx.x] = 0;
    }
    if (i >= padded) return;
    u64* row = rows + (u64)i * words;
    u32 degree = 0;
    if (gone == nullptr) {
        for (u32 k = lane; k < words; k += WARP) degree += __popcll(row[k]);
    } else {
        const bool all = gone[i / 64] >> (i % 64) & 1;
        for (u32 k = lane; k < words; k += WARP) {
            const u64 before = row[k];
            const u64 after = all ? 0 : before & ~gone[k];
            if (after != before) row[k] = after;
            degree += __popcll(after);
        }
    }
    degree = warp_sum(degree);
    if (lane == 0) {
        degrees[i] = degree;
        histogram[i] = 0;
        best[i] = 0;
        at[i] = 0;
        if (i < words) cut[i] = 0;
    }
}
