// What the kernels share. No header of the toolkit is needed, so that the run-time compiler
// finds everything.
//
// Rounding: compiled without contraction of products and sums, with exact division and square
// roots and with subnormal numbers kept, so every operation gives the bits of the CPU.
//
// Every kernel of a frame takes the same arguments: where the memory is, and which search it
// belongs to (0: the first, 1: that of the rivals). What changes from frame to frame stands in
// `Frame`, which is uploaded with the points, and grids do not depend on it: so the same launches
// serve every frame, one by one or captured as a graph. The structures stand in
// src/registration/gpu/memory.rs too.
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
// Most hypotheses refined after a search.
#define MAX_CANDIDATES 4

// Known verticals of both frames, and some rotation that carries the first onto the second.
struct Vertical {
    double source[3], target[3];
    // Row by row.
    double rotation[9];
};

// One problem and its parameters.
struct Frame {
    // Correspondences; rows with padding, a multiple of 128 (NaN, weight zero); words of a row.
    u32 n, padded, words;
    // Pivots of the first search and of that of the rivals, triples per pivot.
    u32 pivots[2], per_pivot;
    // What there is besides the points; 0 or 1.
    u32 has_heights, has_ids, has_vertical, has_weights;
    // Length of what came in, a multiple of 16.
    u32 bytes;
    // 0 inliers, 1 linear, 2 quadratic.
    u32 metric;
    // Rule of the edges, and factors of its condition without square roots.
    float tau, min_length, per_sum, per_square;
    // Squared inlier threshold, its inverse; squared distances of influence and of reach.
    float theta2, per_theta2, cut2, reach2;
    // Samples of the chance count.
    u32 samples;
    // Capacities of the bounded search: voters and edges that a row keeps, edges that it offers as
    // pivots. Zero: the search is exact.
    u32 row_capacity, pool_size;
    u32 reserved;
    double theta, min_height;
    Vertical vertical;
    // Mean of some source points and of their products xx yy zz xy xz yz: tells poses apart.
    float probe_mean[3], probe_square[6];
    // Places of a table of cells: a power of two, at most `table` of `Memory`.
    u32 table;
};

// Facts of one search.
struct Totals {
    // Sum of the degrees: twice the edges of the graph.
    u64 ends;
    // Edges with this score are pivots in the order of their ends; above it all are.
    u32 threshold;
    // Edges at the threshold that are pivots, if there is no room for all at it.
    u32 ties;
    // Pivots.
    u32 pivots;
    // Triples found.
    u32 triples;
    // Hypotheses with an inlier.
    u32 usable;
    // Keys written, and edges at the threshold beside them, more than are wanted.
    u32 placed, tied;
    // Edges that the list would hold; they are in it if there is room for all.
    u32 listed;
    // Best score of an edge.
    u32 best;
    // What the capacities of the bounded search cut off, see `Truncation` of
    // src/registration/result.rs.
    u32 cut_rows, cut_voters, cut_edges, cut_pool;
    u32 reserved;
};

// A pose (rotation row by row, translation, between the centred frames) with its support.
struct Scored {
    double pose[12];
    u32 score, inliers;
    // 0: there is none.
    u32 valid;
    u32 reserved;
};

// Another pose compared with the best, see `Comparison` of src/registration/findings.rs.
struct Rival {
    Scored other;
    u64 apart;
    u32 of_either, only_pose, only_other;
    u32 reserved;
};

// Counters of blocks that are done: those that refine after the first search; those that a frame ends
// with.
enum Counter { REFINED, FRAME, COUNTERS };

#define MAX_RIVALS (MAX_CANDIDATES + 1 + MAX_CANDIDATES)

// Stages whose beginnings are noted.
enum Stage { FOG, SOG, PIVOTS, CLIQUES, HYPOTHESES, REFINE, END, STAGES };

// What a frame finds, see src/registration/findings.rs.
struct Findings {
    Totals totals[2];
    Scored best;
    // Candidates of the first search (best first), the unweighted pose, those of the rivals.
    Rival rivals[MAX_RIVALS];
    // Information: weight, points, products, error, count; largest squared distance.
    double information[12];
    double radius2;
    double spread[3];
    double gain, noise2;
    // Of influence, under the best pose.
    double weight;
    u32 mirror_inliers, has_mirror;
    u32 inliers, off_line;
    u32 cells[2];
    u32 chance_hits;
    u32 reserved;
    // Nanoseconds of the device's clock, per search.
    u64 stamps[2][STAGES];
};

// Where everything is on the device.
struct Memory {
    // What came in, all in one piece: at HEAD the numbers (source x y z, target x y z, weight), then
    // heights and identities of source and target, if there are any; arrays of `padded` items.
    Frame* frame;
    u32 room;        // edges that the list can hold
    u32 tie_room;    // of `ties`
    // The graph: rows of `frame->words` words, degrees.
    u64* rows;
    u32* degrees;
    // Rows that the search of the rivals leaves out, as bits.
    u64* gone;
    // Edges u < v as u << 16 | v, those of a row together and ascending, where each row starts,
    // and scores.
    u32* starts;
    u32* edges;
    u16* scores;
    // Of the bounded search: edges that are kept, as rows of bits, and their scores in the order of
    // the list, where `scores` has only those of edges that are offered as pivots.
    u64* kept;
    u16* kept_scores;
    // `scores`, also where the search of triples has `kept_scores` in its place.
    const u16* offered;
    // Edges of each score; per row, edges at the threshold.
    u32* histogram;
    u32* at;
    // Pivots in any order; edges u << 16 | v that are as good as the last of them, if there is room
    // for all of these; pivots best first.
    u64* keys;
    u32* ties;
    u64* pivots;
    // Per triple: corners and score (zero: none); pose in double and single precision; score and
    // inliers.
    uint4* triples;
    double* poses;
    float4* singles;
    uint2* support;
    // Counters of the barrier among the blocks of a grid.
    u32* barrier;
    // Candidates refined after a search.
    Scored* refined;
    // See `Counter`.
    u32* done;
    // Correspondences near a pose, as `numbers`, and their indices, for each block that gathers
    // some; how many each candidate has.
    float* near;
    u32* gathered;
    // Tables of cells, source and target, one after the other.
    u32* cells;
    // Inliers of the best pose as bits.
    u64* mask;
    Findings* findings;
    // On the host: what comes in, if it is not copied to `frame` beforehand, and where findings and
    // mask go.
    const Frame* inbox;
    Findings* outbox;
    u64* outbox_mask;
};

static_assert(sizeof(Frame) == 272 && sizeof(Findings) == 1760 && sizeof(Memory) == 248, "sizes of the host");

// The beginning of every kernel. It may be here while the last blocks of the kernel before it are at
// work: what that wrote is complete after this.
__device__ inline void arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#define HEAD 512
static_assert(sizeof(Frame) <= HEAD, "room before the numbers");

// The memory, and what of `Frame` most kernels need. Made at the beginning of a kernel.
struct Work : Memory {
    u32 n, padded, words, pivots_wanted, per_pivot;
    // Seven arrays, `padded` apart.
    const float* numbers;

    __device__ inline Work(const Memory& m, u32 round) : Memory(m) {
        arrive();
        n = frame->n;
        padded = frame->padded;
        words = frame->words;
        pivots_wanted = frame->pivots[round];
        per_pivot = frame->per_pivot;
        numbers = reinterpret_cast<const float*>(reinterpret_cast<const u8*>(frame) + HEAD);
    }

    // Two arrays each.
    __device__ inline const float* heights() const { return numbers + 7 * (u64)padded; }
    __device__ inline const u64* ids() const {
        return reinterpret_cast<const u64*>(numbers + (frame->has_heights ? 9 : 7) * (u64)padded);
    }
};

// Notes the time as the beginning of a stage. By one thread.
__device__ inline void note(const Memory& m, u32 round, Stage stage) {
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    m.findings->stamps[round][stage] = now;
}

// Notes when a stage begins.
__device__ inline void begin(const Memory& m, u32 round, Stage stage) {
    if (blockIdx.x == 0 && threadIdx.x == 0) note(m, round, stage);
}

__device__ inline u32 lane_id() { return threadIdx.x & (WARP - 1); }
__device__ inline u32 warp_id() { return threadIdx.x / WARP; }

__device__ inline u32 warp_sum(u32 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_add_sync(FULL, value);
#else
    for (u32 step = WARP / 2; step > 0; step /= 2) value += __shfl_xor_sync(FULL, value, step);
    return value;
#endif
}

// The largest of a tile of so many lanes, which are those of `mask`.
__device__ inline u32 tile_max(u32 mask, u32 lanes, u32 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(mask, value);
#else
    for (u32 step = lanes / 2; step > 0; step /= 2) {
        const u32 other = __shfl_xor_sync(mask, value, step);
        value = other > value ? other : value;
    }
    return value;
#endif
}

__device__ inline u32 warp_max(u32 value) { return tile_max(FULL, WARP, value); }

// Sum over the lanes up to and with this one.
__device__ inline u32 warp_prefix(u32 value) {
    for (u32 step = 1; step < WARP; step *= 2) {
        const u32 other = __shfl_up_sync(FULL, value, step);
        if (lane_id() >= step) value += other;
    }
    return value;
}

// Sum over the threads of a block of WARPS warps up to and with this one; also the sum of all. `sums`
// is shared.
template <u32 WARPS>
__device__ inline u32 block_prefix(u32 value, u32 (&sums)[WARPS], u32& all) {
    u32 upto = warp_prefix(value);
    // The last sums may still be read.
    __syncthreads();
    if (lane_id() == WARP - 1) sums[warp_id()] = upto;
    __syncthreads();
    all = 0;
    for (u32 w = 0; w < WARPS; ++w) {
        if (w == warp_id()) upto += all;
        all += sums[w];
    }
    return upto;
}

// An edge u < v and its score as one number; the better pivot is the greater. As `Pivot` of the
// CPU.
__device__ inline u64 pivot_key(u32 u, u32 v, u32 score) {
    return (u64)score << 32 | (u64)(0xffffu - u) << 16 | (u64)(0xffffu - v);
}
__device__ inline u32 pivot_u(u64 key) { return 0xffffu - (u32)(key >> 16 & 0xffffu); }
__device__ inline u32 pivot_v(u64 key) { return 0xffffu - (u32)(key & 0xffffu); }
__device__ inline u32 pivot_score(u64 key) { return (u32)(key >> 32); }

// The bits of word `k` of a row that stand for indices above `i`.
__device__ inline u64 bits_above(u32 i, u32 k) {
    if (k != i / 64) return k > i / 64 ? ~0ull : 0;
    return (~0ull << (i % 64)) & ~(1ull << (i % 64));
}

// Counts bits, two words at a time: a full adder halves the population counts, which are slow.
struct BitCount {
    u32 ones = 0, twos = 0;
    __device__ inline void add(u32 a, u32 b) {
        twos += __popc((ones & (a | b)) | (a & b));
        ones ^= a ^ b;
    }
    __device__ inline void add_common(const uint4& a, const uint4& b) {
        add(a.x & b.x, a.y & b.y);
        add(a.z & b.z, a.w & b.w);
    }
    __device__ inline u32 total() const { return 2 * twos + __popc(ones); }
};

// No score of an edge is above this: an end votes neither for itself nor for its own edge.
__device__ inline u32 score_bound(u32 degree_a, u32 degree_b) {
    const u32 less = degree_a < degree_b ? degree_a : degree_b;
    return less > 0 ? less - 1 : 0;
}

#endif
