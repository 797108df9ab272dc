// Poses of the triples and their scores over all correspondences (appendix A8 and A9 of the
// design). The arithmetic is that of src/geometry/align.rs and src/registration/hypotheses.rs,
// operation by operation; sums over correspondences are whole numbers, so their order is free.
#include "common.cuh"

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

struct TriangleFrame {
    Triad x, y, z;
    double height;
};

// Right-handed frame of a triangle: x along the first side, z normal to the plane.
__device__ bool frame_of(const Triad* p, TriangleFrame& f) {
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
    TriangleFrame a, b;
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

__device__ inline Triad point(const float* points, u64 stride, u32 i) {
    return {{(double)points[i], (double)points[stride + i], (double)points[2 * stride + i]}};
}

// False if the corners give no pose.
__device__ inline bool pose_of(const Work& m, const uint4& triple, double* pose) {
    const Frame& frame = *m.frame;
    const u32 corner[3] = {triple.x, triple.y, triple.z};
    Triad s[3], t[3];
    for (int k = 0; k < 3; ++k) {
        s[k] = point(m.numbers, m.stride, corner[k]);
        t[k] = point(m.numbers + 3 * (u64)m.stride, m.stride, corner[k]);
    }
    return frame.has_vertical ? align_three_about(s, t, frame.vertical, frame.min_height, pose)
                              : align_three(s, t, frame.min_height, pose);
}

#define POSE_THREADS 32

// The pose of every slot, in double and in single precision. A slot that has none is known by NaN
// at the start of its `singles`.
extern "C" __global__ void __launch_bounds__(POSE_THREADS) poses(const Memory memory, const u32 round) {
    const Work m(memory, round);
    begin(m, round, HYPOTHESES);
    const u32 count = m.pivots_wanted * m.per_pivot;
    for (u32 slot = blockIdx.x * POSE_THREADS + threadIdx.x; slot < count; slot += gridDim.x * POSE_THREADS) {
        m.support[slot] = make_uint2(0, 0);
        float4* rows = m.singles + 3 * (u64)slot;
        const uint4 triple = m.triples[slot];
        double found[12];
        if (triple.w == 0 || !pose_of(m, triple, found)) {
            for (int k = 0; k < 3; ++k) rows[k] = make_float4(nanf(""), 0.0f, 0.0f, 0.0f);
            continue;
        }
        for (int k = 0; k < 12; ++k) m.poses[12 * (u64)slot + k] = found[k];
        // Rows of four: three of the rotation, one of the translation.
        for (int k = 0; k < 3; ++k) {
            rows[k] = make_float4((float)found[3 * k], (float)found[3 * k + 1], (float)found[3 * k + 2],
                                  (float)found[9 + k]);
        }
    }
}

#define SCORE_THREADS 128
#define SCORE_WARPS (SCORE_THREADS / WARP)
// Hypotheses of a task.
#define POSES 8
// Correspondences of a thread at a time, and of a task.
#define EACH 4
#define STRETCH (SCORE_THREADS * EACH)

// What inliers contribute: 0 all the same, 1 linear, 2 quadratic.
template <u32 METRIC>
__device__ inline float share_of(float square, float per_theta2) {
    if (METRIC == 1) return 1.0f - __fsqrt_rn(square * per_theta2);
    if (METRIC == 2) return 1.0f - square * per_theta2;
    return 1.0f;
}

template <u32 METRIC>
__device__ inline void score_slots(const Work& m, u32 count) {
    __shared__ float4 poses[POSES][3];
    // Score and, from bit 24 on, inliers of each warp.
    __shared__ u32 sums[POSES][SCORE_WARPS];
    const Frame& frame = *m.frame;
    const u32 padded = m.padded, stretches = (padded + STRETCH - 1) / STRETCH;
    const float theta2 = frame.theta2, per_theta2 = frame.per_theta2;
    const u32 tasks = (count + POSES - 1) / POSES * stretches;
    for (u32 task = blockIdx.x; task < tasks; task += gridDim.x) {
        const u32 first = task / stretches * POSES, start = task % stretches * STRETCH;
        if (threadIdx.x < POSES * 3) {
            const bool within = first + threadIdx.x / 3 < count;
            poses[threadIdx.x / 3][threadIdx.x % 3] =
                within ? m.singles[3 * (u64)first + threadIdx.x] : make_float4(nanf(""), 0.0f, 0.0f, 0.0f);
        }
        float p[EACH][6], weight[EACH];
#pragma unroll
        for (u32 e = 0; e < EACH; ++e) {
            const u32 i = start + e * SCORE_THREADS + threadIdx.x;
            const bool within = i < padded;
            for (u32 c = 0; c < 6; ++c) p[e][c] = within ? m.numbers[c * (u64)m.stride + i] : nanf("");
            // In units of the score; a power of two does not round.
            weight[e] = within ? m.numbers[6 * (u64)m.stride + i] * 65536.0f : 0.0f;
        }
        __syncthreads();
        for (u32 k = 0; k < POSES; ++k) {
            const float4 rx = poses[k][0];
            u32 sum = 0;
            if (rx.x == rx.x) {
                const float4 ry = poses[k][1], rz = poses[k][2];
                float square[EACH];
                bool any = false;
#pragma unroll
                for (u32 e = 0; e < EACH; ++e) {
                    const float x = (((rx.x * p[e][0] + rx.y * p[e][1]) + rx.z * p[e][2]) + rx.w) - p[e][3];
                    const float y = (((ry.x * p[e][0] + ry.y * p[e][1]) + ry.z * p[e][2]) + ry.w) - p[e][4];
                    const float z = (((rz.x * p[e][0] + rz.y * p[e][1]) + rz.z * p[e][2]) + rz.w) - p[e][5];
                    square[e] = (x * x + y * y) + z * z;
                    // False for the NaN of the padding.
                    any = any || square[e] < theta2;
                }
                // Most poses have no inlier among these.
                if (__any_sync(FULL, any)) {
#pragma unroll
                    for (u32 e = 0; e < EACH; ++e) {
                        // What rounds to below zero counts nothing.
                        const u32 gain = __float2uint_rz(share_of<METRIC>(square[e], per_theta2) * weight[e]);
                        sum += square[e] < theta2 ? gain + (1u << 24) : 0;
                    }
                    sum = warp_sum(sum);
                }
            }
            if (lane_id() == 0) sums[k][warp_id()] = sum;
        }
        __syncthreads();
        if (threadIdx.x < POSES && first + threadIdx.x < count) {
            u32 score = 0, inliers = 0;
            for (u32 w = 0; w < SCORE_WARPS; ++w) {
                score += sums[threadIdx.x][w] & 0xffffffu;
                inliers += sums[threadIdx.x][w] >> 24;
            }
            if (score > 0) atomicAdd(&m.support[first + threadIdx.x].x, score);
            if (inliers > 0) atomicAdd(&m.support[first + threadIdx.x].y, inliers);
        }
    }
}

// Adds the support of each hypothesis, a stretch of the correspondences at a time: score in units
// of 1/65536, and inliers.
extern "C" __global__ void __launch_bounds__(SCORE_THREADS, 6) score(const Memory memory, const u32 round) {
    const Work m(memory, round);
    const u32 count = m.pivots_wanted * m.per_pivot, metric = m.frame->metric;
    if (metric == 0) {
        score_slots<0>(m, count);
    } else if (metric == 1) {
        score_slots<1>(m, count);
    } else {
        score_slots<2>(m, count);
    }
}
