// What the kernels share. No header of the toolkit is needed, so that the run-time compiler
// finds everything.
//
// Rounding: compiled without contraction of products and sums, with exact division and square
// roots and with subnormal numbers kept, so every operation gives the bits of the CPU.
#ifndef FLASHREG_COMMON_CUH
#define FLASHREG_COMMON_CUH

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "sizes of the host");

#define WARP 32
#define FULL 0xffffffffu

// Most correspondences: an index fits 16 bits.
#define MAX_ROWS 32768
// Words of 64 bits in the longest row.
#define MAX_WORDS (MAX_ROWS / 64)
// Most triples kept per pivot.
#define MAX_PER_PIVOT 16

// Facts of one search, read by later kernels and by the host. The same layout is in
// src/registration/gpu_memory.rs.
struct Totals {
    // Edges of the graph.
    u64 edges;
    // Edges with this score are pivots in the order of their ends; above it all are.
    u32 threshold;
    // Edges above the threshold.
    u32 above;
    // Edges at the threshold that are pivots.
    u32 ties;
    // Pivots: above + ties.
    u32 pivots;
    // Triples found.
    u32 triples;
    // Triples that gave a pose.
    u32 posed;
    // Hypotheses with an inlier.
    u32 usable;
    // Pivots written so far.
    u32 placed;
    // The row of which only some edges at the threshold are pivots, plus one.
    u32 cut;
    // Blocks that are done, per kernel that ends with one block.
    u32 done[3];
    // Edges that the list would hold; they are in it if there is room for all.
    u32 listed;
    u32 reserved;
};

__device__ inline u32 lane_id() { return threadIdx.x & (WARP - 1); }
__device__ inline u32 warp_id() { return threadIdx.x / WARP; }

// Lanes below this one.
__device__ inline u32 lanes_below() { return (1u << lane_id()) - 1; }

__device__ inline u32 warp_sum(u32 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_add_sync(FULL, value);
#else
    for (u32 step = WARP / 2; step > 0; step /= 2) value += __shfl_xor_sync(FULL, value, step);
    return value;
#endif
}

// Sum over the lanes up to and with this one.
__device__ inline u32 warp_prefix(u32 value) {
    for (u32 step = 1; step < WARP; step *= 2) {
        const u32 other = __shfl_up_sync(FULL, value, step);
        if (lane_id() >= step) value += other;
    }
    return value;
}

// An edge u < v and its score as one number; the better pivot is the greater. As `Pivot` of the
// CPU.
__device__ inline u64 pivot_key(u32 u, u32 v, u32 score) {
    return (u64)score << 32 | (u64)(0xffffu - u) << 16 | (u64)(0xffffu - v);
}
__device__ inline u32 pivot_u(u64 key) { return 0xffffu - (u32)(key >> 16 & 0xffffu); }
__device__ inline u32 pivot_v(u64 key) { return 0xffffu - (u32)(key & 0xffffu); }
__device__ inline u32 pivot_score(u64 key) { return (u32)(key >> 32); }

// No score of an edge is above this: an end votes neither for itself nor for its own edge.
__device__ inline u32 score_bound(u32 degree_a, u32 degree_b) {
    const u32 less = degree_a < degree_b ? degree_a : degree_b;
    return less > 0 ? less - 1 : 0;
}

#endif
