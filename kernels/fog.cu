// FOG, the first-order compatibility graph as rows of bits (FlashReg Eqs. 1 to 3). The arithmetic
// is that of src/registration/fog.rs, operation by operation.
#include "frame.cu"

#define FOG_THREADS 256
// Rows and columns that a warp compares at a time.
#define TILE 32
// Rows and columns of a task of a block: 4 by 4 tiles, two of them, side by side, a warp. Their
// words of a row are 16 bytes.
#define SIDE 128

// A correspondence: source and target.
struct Match {
    float sx, sy, sz, tx, ty, tz;
};

__device__ inline Match match_of(const Work& m, u32 i) {
    const float* p = m.numbers + i;
    const u64 d = m.padded;
    return {p[0], p[d], p[2 * d], p[3 * d], p[4 * d], p[5 * d]};
}

struct Rule {
    float tau, min_length;
    // Factors of the condition without square roots.
    float per_sum, per_square;
};

// Negative (the sign bit set) wherever the rule can hold: the condition without square roots, its
// products contracted. Its slack covers the rounding of both: four times as much in the lengths as
// the rule alone asks for, and 2^-38 leaves room for that.
__device__ inline float surplus(const Rule& rule, const Match& p, const Match& q) {
    const float sx = p.sx - q.sx, sy = p.sy - q.sy, sz = p.sz - q.sz;
    const float tx = p.tx - q.tx, ty = p.ty - q.ty, tz = p.tz - q.tz;
    const float a = __fmaf_rn(sz, sz, __fmaf_rn(sy, sy, sx * sx));
    const float b = __fmaf_rn(tz, tz, __fmaf_rn(ty, ty, tx * tx));
    const float difference = a - b, sum = a + b;
    return __fmaf_rn(difference, difference, -(sum * __fmaf_rn(rule.per_square, sum, rule.per_sum)));
}

__device__ inline bool joins(const Rule& rule, const Match& p, const Match& q) {
    const float sx = p.sx - q.sx, sy = p.sy - q.sy, sz = p.sz - q.sz;
    const float tx = p.tx - q.tx, ty = p.ty - q.ty, tz = p.tz - q.tz;
    const float a = (sx * sx + sy * sy) + sz * sz, b = (tx * tx + ty * ty) + tz * tz;
    const float difference = a - b, sum = a + b;
    if (!(difference * difference < sum * (rule.per_sum + rule.per_square * sum))) return false;
    const float ls = __fsqrt_rn(a), lt = __fsqrt_rn(b);
    return fabsf(ls - lt) < rule.tau && ls + lt > rule.min_length;
}

// What the vertical and the identities allow.
__device__ inline bool allowed(const Work& m, float tau, u32 i, u32 j) {
    bool allow = true;
    if (m.frame->has_heights) {
        const float *source = m.heights(), *target = source + m.padded;
        const float difference = (source[i] - source[j]) - (target[i] - target[j]);
        allow = fabsf(difference) < tau;
    }
    if (m.frame->has_ids) {
        const u64 *source = m.ids(), *target = source + m.padded;
        allow = allow && source[i] != source[j] && target[i] != target[j];
    }
    return allow;
}

// Bit k of lane i becomes bit i of lane k.
__device__ inline u32 transpose(u32 word) {
#pragma unroll
    for (u32 step = TILE / 2; step > 0; step /= 2) {
        const u32 other = __shfl_xor_sync(FULL, word, step);
        // Bits whose number lacks the step.
        const u32 lower = FULL / ((1u << step) + 1);
        word = lane_id() & step ? (word & ~lower) | (other >> step & lower)
                                : (word & lower) | (other & lower) << step;
    }
    return word;
}

// Tasks on and right of the diagonal; what lies left of it is their transpose.
extern "C" __global__ void __launch_bounds__(FOG_THREADS, 5) fog(const Memory memory, const u32) {
    const Work m(memory, 0);
    if (m.inbox == nullptr) begin(m, 0, FOG);
    clear_counts(m);
    __shared__ float4 row_a[SIDE];
    __shared__ float2 row_b[SIDE];
    // Words of the rows of the task, and of its columns.
    __shared__ uint4 across[SIDE], down[SIDE];
    const Frame& frame = *m.frame;
    const Rule rule = {frame.tau, frame.min_length, frame.per_sum, frame.per_square};
    const bool restricted = frame.has_heights || frame.has_ids;
    const u32 sides = m.padded / SIDE;
    // Of the task: the tile's rows and the lane's first column.
    const u32 first_row = warp_id() / 2 * TILE, tile = warp_id() % 2 * 2, column = tile * TILE + lane_id();
    uint4* rows = reinterpret_cast<uint4*>(m.rows);

    u32 band = 0, along = blockIdx.x;
    for (;; along += gridDim.x) {
        // Band b has `sides` - b tasks.
        for (; band < sides && along >= sides - band; ++band) along -= sides - band;
        if (band >= sides) break;
        const u32 i0 = band * SIDE, j0 = (band + along) * SIDE;
        if (threadIdx.x < SIDE) {
            const Match p = match_of(m, i0 + threadIdx.x);
            row_a[threadIdx.x] = make_float4(p.sx, p.sy, p.sz, p.tx);
            row_b[threadIdx.x] = make_float2(p.ty, p.tz);
        }
        const Match near = match_of(m, j0 + column), far = match_of(m, j0 + column + TILE);
        __syncthreads();

        auto row = [&](u32 r) -> Match {
            const float4 a = row_a[r];
            const float2 b = row_b[r];
            return {a.x, a.y, a.z, a.w, b.x, b.y};
        };
        // Rows that may be joined to the two columns: the signs are shifted in, the last row first.
        u32 of_near = 0, of_far = 0;
#pragma unroll 8
        for (u32 r = TILE; r-- > 0;) {
            const Match p = row(first_row + r);
            of_near = __funnelshift_l(__float_as_uint(surplus(rule, p, near)), of_near, 1);
            of_far = __funnelshift_l(__float_as_uint(surplus(rule, p, far)), of_far, 1);
        }
        // Each lane verifies its own, few at most.
        u64 joined = 0;
        for (u64 rest = (u64)of_far << 32 | of_near; rest != 0; rest &= rest - 1) {
            const u32 bit = __ffsll(rest) - 1, r = first_row + bit % TILE;
            const bool second = bit >= TILE;
            const Match q = {second ? far.sx : near.sx, second ? far.sy : near.sy, second ? far.sz : near.sz,
                             second ? far.tx : near.tx, second ? far.ty : near.ty, second ? far.tz : near.tz};
            if (!joins(rule, row(r), q)) continue;
            if (restricted && !allowed(m, rule.tau, i0 + r, j0 + column + (second ? TILE : 0))) continue;
            joined |= 1ull << bit;
        }
        of_near = (u32)joined;
        of_far = (u32)(joined >> 32);
        u32* words = reinterpret_cast<u32*>(down) + first_row / TILE;
        words[4 * column] = of_near;
        words[4 * (column + TILE)] = of_far;
        if (__any_sync(FULL, joined != 0)) {
            of_near = transpose(of_near);
            of_far = transpose(of_far);
        }
        words = reinterpret_cast<u32*>(across + first_row + lane_id()) + tile;
        words[0] = of_near;
        words[1] = of_far;
        __syncthreads();
        const u32 t = threadIdx.x % SIDE;
        if (threadIdx.x < SIDE) {
            rows[(u64)(i0 + t) * sides + band + along] = across[t];
        } else if (along > 0) {
            rows[(u64)(j0 + t) * sides + band] = down[t];
        }
    }
}

#define PRUNE_THREADS 256
#define PRUNE_WARPS (PRUNE_THREADS / WARP)

// Removes the edges of the rows in `gone` (second search), counts degrees, lists the edges u < v
// of the rows (in the exact search, if there is room for all of them) and clears what the search
// counts in. A warp a row.
extern "C" __global__ void __launch_bounds__(PRUNE_THREADS) prune(const Memory memory, const u32 round) {
    const Work m(memory, round);
    begin(m, round, SOG);
    // Edges of the rows of the block, then where they go.
    __shared__ u32 places[PRUNE_WARPS];
    __shared__ u32 all_ends;
    Totals& totals = m.findings->totals[round];
    const u32 lane = lane_id(), warp = warp_id(), padded = m.padded, words = m.words;
    // Rows with more neighbours are listed: the end of an edge that scores has another one. The bounded
    // search lists for itself.
    const u32 others = m.frame->row_capacity > 0 ? MAX_ROWS : 1;
    if (threadIdx.x == 0) all_ends = 0;
    u32 ends = 0;
    // `padded` is a multiple of the rows of a block.
    for (u32 base = blockIdx.x * PRUNE_WARPS; base < padded; base += gridDim.x * PRUNE_WARPS) {
        const u32 u = base + warp;
        u64* row = m.rows + (u64)u * words;
        const bool all = round > 0 && (m.gone[u / 64] >> (u % 64) & 1);
        // Degree, and from bit 16 on the neighbours above u.
        u32 counts = 0;
        for (u32 k = lane; k < words; k += WARP) {
            u64 word = row[k];
            if (round > 0) {
                const u64 left = all ? 0 : word & ~m.gone[k];
                if (left != word) row[k] = left;
                word = left;
            }
            counts += __popcll(word) | __popcll(word & bits_above(u, k)) << 16;
        }
        counts = warp_sum(counts);
        const u32 degree = counts & 0xffffu;
        const u32 listed = degree > others ? counts >> 16 : 0;
        if (lane == 0) {
            m.degrees[u] = degree;
            m.histogram[u] = 0;
            m.at[u] = 0;
            places[warp] = listed;
            ends += degree;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 sum = 0;
            for (u32 w = 0; w < PRUNE_WARPS; ++w) sum += places[w];
            u32 place = sum > 0 ? atomicAdd(&totals.listed, sum) : 0;
            for (u32 w = 0; w < PRUNE_WARPS; ++w) {
                const u32 here = places[w];
                places[w] = place;
                place += here;
            }
        }
        __syncthreads();
        u32 place = places[warp];
        __syncwarp();
        if (lane == 0) m.starts[u] = place;
        if (listed == 0 || place + listed > m.room) continue;
        for (u32 first = u / 64; first < words; first += WARP) {
            const u32 k = first + lane;
            u64 rest = k < words ? row[k] & bits_above(u, k) : 0;
            const u32 mine = __popcll(rest), upto = warp_prefix(mine);
            u32 to = place + upto - mine;
            for (; rest != 0; rest &= rest - 1) m.edges[to++] = u << 16 | (k * 64 + __ffsll(rest) - 1);
            place += __shfl_sync(FULL, upto, WARP - 1);
        }
    }
    __syncthreads();
    if (lane == 0 && ends > 0) atomicAdd(&all_ends, ends);
    __syncthreads();
    if (threadIdx.x == 0 && all_ends > 0) atomicAdd(&totals.ends, (u64)all_ends);
}
