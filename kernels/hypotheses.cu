// Poses of the triples and their scores over all correspondences (appendix A8 and A9 of the
// design). The arithmetic is that of src/geometry/align.rs and src/registration/hypotheses.rs,
// operation by operation; sums over correspondences are whole numbers, so their order is free.
#include "common.cuh"

// Known verticals of both frames, and some rotation that carries the first onto the second.
struct Vertical {
    u32 known;
    u32 reserved;
    double source[3], target[3];
    // Row by row.
    double rotation[9];
};

struct Scoring {
    // 0 inliers, 1 linear, 2 quadratic.
    u32 metric;
    float theta2, per_theta2;
};

// A scored pose as the host reads it. The same layout is in src/registration/gpu_memory.rs.
struct Ranked {
    // Rotation row by row, then translation, between the centred frames.
    double pose[12];
    u32 score, inliers;
    // Which triple.
    u32 slot;
    u32 reserved;
};

struct Triad {
    double v[3];
};

__device__ inline Triad minus(const Triad& a, const Triad& b) {
    return {{a.v[0] - b.v[0], a.v[1] - b.v[1], a.v[2] - b.v[2]}};
}

__device__ inline double dot(const Triad& a, const Triad& b) {
    return (a.v[0] * b.v[0] + a.v[1] * b.v[1]) + a.v[2] * b.v[2];
}

__device__ inline Triad cross(const Triad& a, const Triad& b) {
    return {{a.v[1] * b.v[2] - a.v[2] * b.v[1], a.v[2] * b.v[0] - a.v[0] * b.v[2],
             a.v[0] * b.v[1] - a.v[1] * b.v[0]}};
}

__device__ inline Triad centroid(const Triad* p) {
    Triad c;
    for (int k = 0; k < 3; ++k) c.v[k] = ((p[0].v[k] + p[1].v[k]) + p[2].v[k]) / 3.0;
    return c;
}

// Above zero and finite; false for NaN.
__device__ inline bool is_positive(double value) { return value > 0.0 && value <= 1.7976931348623157e308; }

struct Frame {
    Triad x, y, z;
    double height;
};

// Right-handed frame of a triangle: x along the first side, z normal to the plane.
__device__ bool frame_of(const Triad* p, Frame& f) {
    const Triad e1 = minus(p[1], p[0]), e2 = minus(p[2], p[0]), e3 = minus(p[2], p[1]);
    const Triad n = cross(e1, e2);
    const double area2 = __dsqrt_rn(dot(n, n));
    const double side = __dsqrt_rn(dot(e1, e1));
    const double second = __dsqrt_rn(dot(e2, e2)), third = __dsqrt_rn(dot(e3, e3));
    const double longest = fmax(fmax(side, second), third);
    if (!is_positive(area2) || !is_positive(side)) return false;
    for (int k = 0; k < 3; ++k) {
        f.x.v[k] = e1.v[k] / side;
        f.z.v[k] = n.v[k] / area2;
    }
    f.y = cross(f.z, f.x);
    f.height = area2 / longest;
    return true;
}

// The best pose of three correspondences; false if a triangle has no area or is within
// `min_height` of a line. `pose`: rotation row by row, then translation.
__device__ bool align_three(const Triad* s, const Triad* t, double min_height, double* pose) {
    const Triad cs = centroid(s), ct = centroid(t);
    Frame a, b;
    if (!frame_of(s, a) || !frame_of(t, b)) return false;
    double c = 0.0, d = 0.0;
    for (int k = 0; k < 3; ++k) {
        const Triad p = minus(s[k], cs), q = minus(t[k], ct);
        const double px = dot(p, a.x), py = dot(p, a.y);
        const double qx = dot(q, b.x), qy = dot(q, b.y);
        c += px * qx + py * qy;
        d += px * qy - py * qx;
    }
    const double length = __dsqrt_rn(c * c + d * d);
    if (!is_positive(length)) return false;
    c = c / length;
    d = d / length;
    for (int i = 0; i < 3; ++i) {
        const double x = b.x.v[i] * c + b.y.v[i] * d;
        const double y = b.y.v[i] * c - b.x.v[i] * d;
        Triad row;
        for (int j = 0; j < 3; ++j) row.v[j] = (x * a.x.v[j] + y * a.y.v[j]) + b.z.v[i] * a.z.v[j];
        for (int j = 0; j < 3; ++j) pose[3 * i + j] = row.v[j];
        pose[9 + i] = ct.v[i] - dot(row, cs);
    }
    const double height = a.height < b.height ? a.height : b.height;
    return height > min_height;
}

// Length of the horizontal part of a side.
__device__ double horizontal(const Triad& a, const Triad& b, const Triad& up) {
    const Triad d = minus(a, b);
    const double along = dot(up, d);
    const Triad rest = {{d.v[0] - up.v[0] * along, d.v[1] - up.v[1] * along, d.v[2] - up.v[2] * along}};
    return __dsqrt_rn(dot(rest, rest));
}

// The same with known verticals: the best rotation about the vertical.
__device__ bool align_three_about(
    const Triad* s, const Triad* t, const Vertical& vertical, double min_extent, double* pose) {
    Triad up_source, up;
    for (int k = 0; k < 3; ++k) {
        up_source.v[k] = vertical.source[k];
        up.v[k] = vertical.target[k];
    }
    const double extent =
        fmax(fmax(horizontal(s[0], s[1], up_source), horizontal(s[0], s[2], up_source)),
             horizontal(s[1], s[2], up_source));
    if (!(extent > min_extent)) return false;
    const Triad cs = centroid(s), ct = centroid(t);
    Triad r0[3];
    for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 3; ++j) r0[i].v[j] = vertical.rotation[3 * i + j];
    }
    double c = 0.0, d = 0.0;
    for (int k = 0; k < 3; ++k) {
        const Triad p = minus(s[k], cs), q = minus(t[k], ct);
        const Triad a = {{dot(r0[0], p), dot(r0[1], p), dot(r0[2], p)}};
        c += dot(a, q) - dot(a, up) * dot(q, up);
        d += dot(up, cross(a, q));
    }
    const double length = __dsqrt_rn(c * c + d * d);
    if (!is_positive(length)) return false;
    c = c / length;
    d = d / length;
    const double rest = 1.0 - c;
    const double turn[3][3] = {
        {up.v[0] * up.v[0] * rest + c, up.v[0] * up.v[1] * rest - up.v[2] * d,
         up.v[0] * up.v[2] * rest + up.v[1] * d},
        {up.v[1] * up.v[0] * rest + up.v[2] * d, up.v[1] * up.v[1] * rest + c,
         up.v[1] * up.v[2] * rest - up.v[0] * d},
        {up.v[2] * up.v[0] * rest - up.v[1] * d, up.v[2] * up.v[1] * rest + up.v[0] * d,
         up.v[2] * up.v[2] * rest + c}};
    for (int i = 0; i < 3; ++i) {
        Triad row;
        for (int j = 0; j < 3; ++j) {
            row.v[j] = (turn[i][0] * r0[0].v[j] + turn[i][1] * r0[1].v[j]) + turn[i][2] * r0[2].v[j];
        }
        for (int j = 0; j < 3; ++j) pose[3 * i + j] = row.v[j];
        pose[9 + i] = ct.v[i] - dot(row, cs);
    }
    return true;
}

__device__ inline Triad point(const float* __restrict__ points, u32 padded, u32 i) {
    return {{(double)points[i], (double)points[padded + i], (double)points[2 * padded + i]}};
}

// The pose of every slot that has one, in double and in single precision, and the list of these
// slots (in any order).
extern "C" __global__ void __launch_bounds__(64) poses(
    const float* __restrict__ points, u32 padded, const uint4* __restrict__ slots, u32 count,
    double min_height, const Vertical* __restrict__ vertical, double* __restrict__ pose,
    float* __restrict__ single, u32* __restrict__ list, uint2* __restrict__ support,
    Totals* __restrict__ totals) {
    const u32 slot = blockIdx.x * blockDim.x + threadIdx.x;
    if (slot >= count) return;
    support[slot] = make_uint2(0, 0);
    const uint4 triple = slots[slot];
    if (triple.w == 0) return;
    const u32 corner[3] = {triple.x, triple.y, triple.z};
    Triad s[3], t[3];
    for (int k = 0; k < 3; ++k) {
        s[k] = point(points, padded, corner[k]);
        t[k] = point(points + 3 * (u64)padded, padded, corner[k]);
    }
    double found[12];
    const bool usable = vertical->known ? align_three_about(s, t, *vertical, min_height, found)
                                        : align_three(s, t, min_height, found);
    if (!usable) return;
    for (int k = 0; k < 12; ++k) pose[12 * (u64)slot + k] = found[k];
    // Rows of four: three of the rotation, one of the translation.
    for (int k = 0; k < 3; ++k) {
        float* row = single + 12 * (u64)slot + 4 * k;
        row[0] = (float)found[3 * k];
        row[1] = (float)found[3 * k + 1];
        row[2] = (float)found[3 * k + 2];
        row[3] = (float)found[9 + k];
    }
    list[atomicAdd(&totals->posed, 1)] = slot;
}

#define SCORE_THREADS 128
// Hypotheses of a block.
#define POSES 8
// Correspondences of a thread at a time, and of a block.
#define EACH 4
#define STRETCH (SCORE_THREADS * EACH)

// Adds the support of each listed hypothesis among a stretch of the correspondences: score in
// units of 1/65536, and inliers.
extern "C" __global__ void __launch_bounds__(SCORE_THREADS) score(
    const float* __restrict__ points, const float* __restrict__ weights, u32 padded,
    Scoring scoring, const float4* __restrict__ single, const u32* __restrict__ list,
    u32* __restrict__ support, const Totals* __restrict__ totals) {
    __shared__ float4 pose[POSES][3];
    __shared__ u32 sums[POSES][2];
    const u32 posed = totals->posed, first = blockIdx.x * POSES;
    if (first >= posed) return;
    const u32 here = posed - first < POSES ? posed - first : POSES;
    if (threadIdx.x < POSES * 3) {
        const u32 k = threadIdx.x / 3, row = threadIdx.x % 3;
        pose[k][row] = single[3 * (u64)list[first + (k < here ? k : 0)] + row];
    }
    if (threadIdx.x < POSES * 2) sums[threadIdx.x / 2][threadIdx.x % 2] = 0;
    __syncthreads();

    float p[EACH][7];
    for (u32 e = 0; e < EACH; ++e) {
        const u32 i = blockIdx.y * STRETCH + e * SCORE_THREADS + threadIdx.x;
        for (u32 c = 0; c < 6; ++c) p[e][c] = i < padded ? points[c * (u64)padded + i] : nanf("");
        p[e][6] = i < padded ? weights[i] : 0.0f;
    }
    for (u32 k = 0; k < here; ++k) {
        const float4 rx = pose[k][0], ry = pose[k][1], rz = pose[k][2];
        u32 gains = 0, inliers = 0;
#pragma unroll
        for (u32 e = 0; e < EACH; ++e) {
            const float x = (((rx.x * p[e][0] + rx.y * p[e][1]) + rx.z * p[e][2]) + rx.w) - p[e][3];
            const float y = (((ry.x * p[e][0] + ry.y * p[e][1]) + ry.z * p[e][2]) + ry.w) - p[e][4];
            const float z = (((rz.x * p[e][0] + rz.y * p[e][1]) + rz.z * p[e][2]) + rz.w) - p[e][5];
            const float square = (x * x + y * y) + z * z;
            // False for the NaN of the padding.
            if (square < scoring.theta2) {
                float share = 1.0f;
                if (scoring.metric == 1) share = 1.0f - __fsqrt_rn(square * scoring.per_theta2);
                if (scoring.metric == 2) share = 1.0f - square * scoring.per_theta2;
                const int gain = (int)(share * p[e][6] * 65536.0f);
                gains += gain > 0 ? gain : 0;
                ++inliers;
            }
        }
        // Most poses have no inlier among these.
        if (__any_sync(FULL, inliers > 0)) {
            gains = warp_sum(gains);
            inliers = warp_sum(inliers);
            if (lane_id() == 0) {
                atomicAdd(&sums[k][0], gains);
                atomicAdd(&sums[k][1], inliers);
            }
        }
    }
    __syncthreads();
    if (threadIdx.x < here * 2) {
        const u32 k = threadIdx.x / 2, which = threadIdx.x % 2, sum = sums[k][which];
        if (sum > 0) atomicAdd(&support[2 * (u64)list[first + k] + which], sum);
    }
}

// Puts the hypotheses that have inliers in order, best first: score, inliers, then the order of
// the triples. A warp counts how many are better than one.
extern "C" __global__ void __launch_bounds__(256) rank(
    const uint2* __restrict__ support, const u32* __restrict__ list, const double* __restrict__ pose,
    Ranked* __restrict__ ranked, Totals* __restrict__ totals) {
    const u32 posed = totals->posed;
    const u32 h = blockIdx.x * (blockDim.x / WARP) + warp_id();
    if (h >= posed) return;
    const u32 slot = list[h];
    const uint2 own = support[slot];
    if (own.y == 0) return;
    const u64 key = (u64)own.x << 32 | own.y;
    u32 better = 0;
    for (u32 i = lane_id(); i < posed; i += WARP) {
        const u32 other_slot = list[i];
        const uint2 s = support[other_slot];
        const u64 other = (u64)s.x << 32 | s.y;
        better += other > key || (other == key && other_slot < slot);
    }
    better = warp_sum(better);
    Ranked* out = ranked + better;
    if (lane_id() < 12) out->pose[lane_id()] = pose[12 * (u64)slot + lane_id()];
    if (lane_id() == 0) {
        out->score = own.x;
        out->inliers = own.y;
        out->slot = slot;
        out->reserved = 0;
        atomicAdd(&totals->usable, 1);
    }
}
