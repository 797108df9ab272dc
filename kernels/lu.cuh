// Small square systems A x = b: LU with partial pivoting of the augmented matrix [A|b], which lies in
// the registers of a tile of lanes, several consecutive rows in each.
//
// Rows stay where they are: each notes the step whose pivot it gave. The lanes of a tile share the
// pivot's row, and then the unknowns, through shared memory: one load brings what two to four
// shuffles would, and it serves all rows of the lane. Tiles need not be powers of two, so few lanes
// idle: 3 matrices of 20 rows take 3 x 10 lanes.
//
// Every operation is written out, so the bits are those of src/homotopy/lu.rs, however many lanes
// there are.
#ifndef FLASHREG_LU_CUH
#define FLASHREG_LU_CUH

#include "common.cuh"

template <class Real>
struct alignas(2 * sizeof(Real)) Complex {
    Real re, im;
};

__device__ inline float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

// a b
template <class Real>
__device__ inline Real product(Real a, Real b) {
    return a * b;
}
template <class Real>
__device__ inline Complex<Real> product(Complex<Real> a, Complex<Real> b) {
    return {fused(a.re, b.re, -(a.im * b.im)), fused(a.re, b.im, a.im * b.re)};
}

// c - a b
template <class Real>
__device__ inline Real less_product(Real c, Real a, Real b) {
    return fused(-a, b, c);
}
template <class Real>
__device__ inline Complex<Real> less_product(Complex<Real> c, Complex<Real> a, Complex<Real> b) {
    return {fused(-a.re, b.re, fused(a.im, b.im, c.re)), fused(-a.re, b.im, fused(-a.im, b.re, c.im))};
}

// |re| + |im| as bits, which are ordered like it; what is not finite comes last.
__device__ inline u32 size_of(float a) { return __float_as_uint(fabsf(a)); }
__device__ inline u64 size_of(double a) { return (u64)__double_as_longlong(fabs(a)); }
__device__ inline u32 size_of(Complex<float> a) { return __float_as_uint(fabsf(a.re) + fabsf(a.im)); }
__device__ inline u64 size_of(Complex<double> a) {
    return (u64)__double_as_longlong(fabs(a.re) + fabs(a.im));
}
__device__ inline bool is_finite(u32 size) { return size < 0x7f800000u; }
__device__ inline bool is_finite(u64 size) { return size < 0x7ff0000000000000ull; }

// The power of two that brings a number of this size to 1 .. 2, but for the smallest and largest.
__device__ inline float scale_of(u32 size) {
    const u32 exponent = size >> 23;
    return __uint_as_float((254 - (exponent < 253 ? exponent : 253)) << 23);
}
__device__ inline double scale_of(u64 size) {
    const u32 exponent = (u32)(size >> 52);
    return __longlong_as_double((long long)((u64)(2046 - (exponent < 2045 ? exponent : 2045)) << 52));
}

// 1 / a
template <class Real>
__device__ inline Real reciprocal(Real a) {
    return Real(1) / a;
}
template <class Real>
__device__ inline Complex<Real> reciprocal(Complex<Real> a) {
    // Scaled, so that squares neither overflow nor vanish.
    const Real scale = scale_of(size_of(a));
    const Real re = a.re * scale, im = a.im * scale;
    const Real per = Real(1) / fused(re, re, im * im);
    return {re * per * scale, -(im * per) * scale};
}

__device__ inline void set_one(float& a) { a = 1; }
__device__ inline void set_one(double& a) { a = 1; }
template <class Real>
__device__ inline void set_one(Complex<Real>& a) {
    a = {1, 0};
}

// Stores a number by itself: stores that the compiler joins cost more moves between registers.
template <class T>
__device__ inline void store(T& to, T value) {
    to = value;
}
__device__ inline void store(Complex<float>& to, Complex<float> value) {
    *(volatile u64*)&to = (u64)__float_as_uint(value.im) << 32 | __float_as_uint(value.re);
}

// A tile of `LANES` lanes with N rows of [A|b]; all lanes of the warp work on some tile in step.
template <class T, int N, int LANES>
struct LuTile {
    // Rows of a lane; tiles of a warp; numbers of 16 bytes.
    static constexpr int ROWS = (N + LANES - 1) / LANES;
    static constexpr int TILES = WARP / LANES;
    static constexpr int PER = 16 / sizeof(T);
    // Odd, so that equal columns of several tiles lie in different banks.
    static constexpr int PACKS = ((N + PER) / PER) | 1;
    // With a place for the lanes that are left over.
    static constexpr int SLOTS = (WARP + LANES - 1) / LANES;
    // The step of a row that has not given a pivot yet.
    static constexpr int OPEN = N;

    struct alignas(16) Pack {
        T v[PER];
    };
    // Of a tile. Steps take turns with two rows, so that one barrier a step is enough.
    struct Row {
        Pack packs[PACKS];
    };
    // Of a warp.
    struct Shared {
        Row rows[2][SLOTS];
    };

    // Of the warp: number of this tile and its first lane. Number of this lane in the tile.
    u32 tile, first, lane;
    // Row r of this lane is row lane * ROWS + r of [A|b]; zero if there is none.
    T a[ROWS][N + 1];
    int step[ROWS];
    Shared& shared;

    __device__ LuTile(Shared& shared)
        : tile(lane_id() / LANES), first(tile * LANES), lane(lane_id() - first), shared(shared) {}

    // Unknowns after `solve`.
    __device__ const T* unknowns() const { return row(N)->v; }

    // Solves; gives 0, or the step (from 1) whose pivot is zero or not finite, or N + 1 if unknowns are
    // not finite. Destroys a.
    __device__ u32 solve() {
        u32 failed = 0;
#pragma unroll
        for (int r = 0; r < ROWS; r++) step[r] = lane * ROWS + r < N ? OPEN : -1;
#pragma unroll
        for (int k = 0; k < N; k++) {
            const Pack* pivot = share_pivot(k, failed);
            const T inverse = pivot[k / PER].v[k % PER];
            T factor[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) factor[r] = product(a[r][k], inverse);
#pragma unroll
            for (int p = (k + 1) / PER; p <= N / PER; p++) {
                const Pack pack = pivot[p];
#pragma unroll
                for (int j = p * PER; j < p * PER + PER; j++) {
                    if (j <= k || j > N) continue;
#pragma unroll
                    for (int r = 0; r < ROWS; r++) {
                        if (step[r] == OPEN) a[r][j] = less_product(a[r][j], factor[r], pack.v[j % PER]);
                    }
                }
            }
        }
        substitute();
        // All lanes ask, as they vote.
        const bool bounded = is_bounded();
        return failed ? failed : bounded ? 0 : N + 1;
    }

  private:
    __device__ Pack* row(int k) const { return shared.rows[k % 2][tile].packs; }

    __device__ bool in_tile(bool lane_says) const {
        return (__ballot_sync(FULL, lane_says) >> first & (FULL >> (WARP - LANES))) != 0;
    }

    // Chooses the pivot of step k, the largest of column k and the first of these; its lane keeps its
    // inverse in its place and shares its row.
    __device__ const Pack* share_pivot(int k, u32& failed) {
        decltype(size_of(a[0][0])) size = 0;
        int which = 0;
        T pivot;
        set_one(pivot);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const auto other = size_of(a[r][k]);
            if (step[r] == OPEN && other > size) size = other, which = r, pivot = a[r][k];
        }
        // Of each lane's best, while the best of all is looked for.
        const T inverse = reciprocal(pivot);
        auto largest = size;
#pragma unroll
        for (u32 apart = 1; apart < LANES; apart *= 2) {
            const u32 from = lane + apart < LANES ? lane + apart : lane + apart - LANES;
            const auto other = __shfl_sync(FULL, largest, first + from);
            largest = other > largest ? other : largest;
        }
        if (!failed && (largest == 0 || !is_finite(largest))) failed = k + 1;
        const u32 equal = __ballot_sync(FULL, size == largest) >> first & (FULL >> (WARP - LANES));
        Pack* mine = row(k);
        if (lane + 1 == __ffs(equal)) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (r != which) continue;
                step[r] = k;
                a[r][k] = inverse;
#pragma unroll
                for (int j = k; j <= N; j++) store(mine[j / PER].v[j % PER], a[r][j]);
            }
        }
        __syncwarp();
        return mine;
    }

    // Unknowns from the last to the first.
    __device__ void substitute() {
        T* x = row(N)->v;
#pragma unroll
        for (int k = N - 1; k >= 0; k--) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (step[r] == k) x[k] = product(a[r][N], a[r][k]);
            }
            __syncwarp();
            const T value = x[k];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (step[r] < k) a[r][N] = less_product(a[r][N], a[r][k], value);
            }
        }
    }

    __device__ bool is_bounded() const {
        const T* x = unknowns();
        bool unbounded = false;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const u32 k = lane * ROWS + r;
            unbounded |= k < N && !is_finite(size_of(x[k]));
        }
        return !in_tile(unbounded);
    }
};

#endif
