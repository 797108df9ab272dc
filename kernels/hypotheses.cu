// Poses of the triples and their scores over all correspondences (appendix A8 and A9 of the
// design). The arithmetic is that of src/geometry/align.rs and src/registration/hypotheses.rs,
// operation by operation; sums over correspondences are whole numbers, so their order is free.
#ifndef FLASHREG_HYPOTHESES_CU
#define FLASHREG_HYPOTHESES_CU
#include "triad.cuh"

// The other lane's number, of a pair.
__device__ inline double other(double value) { return __shfl_xor_sync(FULL, value, 1); }
__device__ inline Triad other(const Triad& p) { return {{other(p.v[0]), other(p.v[1]), other(p.v[2])}}; }

// The best pose of three correspondences, by a pair of lanes: the first has the corners `p` in the
// source, the second has those in the target. False if a triangle has no area or is within `min_height`
// of a line. Else the first lane calls put(k, row, number) for each row of the rotation and number of
// the translation.
template <typename Put>
__device__ inline bool align_three(const Triad* p, double min_height, Put put) {
    const Triad centre = centroid(p);
    TriangleFrame f = {};
    const bool fine = frame_of(p, f);
    double c = 0.0, d = 0.0;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        const Triad own = minus(p[k], centre);
        const double px = dot(own, f.x), py = dot(own, f.y), qx = other(px), qy = other(py);
        c += px * qx + py * qy;
        d += px * qy - py * qx;
    }
    // The second lane has the opposite.
    const double of_first = other(d);
    if (lane_id() % 2 > 0) d = of_first;
    const double length = __dsqrt_rn(c * c + d * d), its = other(f.height);
    const u32 fine_lanes = __ballot_sync(FULL, fine);
    const bool good = (fine_lanes >> (lane_id() & ~1u) & 3u) == 3u && is_positive(length) &&
                      (f.height < its ? f.height : its) > min_height;
    c = c / length;
    d = d / length;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        const double x = other(f.x.v[i] * c + f.y.v[i] * d), y = other(f.y.v[i] * c - f.x.v[i] * d);
        const double z = other(f.z.v[i]);
        Triad row;
#pragma unroll
        for (int j = 0; j < 3; ++j) row.v[j] = (x * f.x.v[j] + y * f.y.v[j]) + z * f.z.v[j];
        const double of_target = other(centre.v[i]);
        if (good && lane_id() % 2 == 0) put(i, row, of_target - dot(row, centre));
    }
    return good;
}

// Length of the horizontal part of a side.
__device__ inline double horizontal(const Triad& a, const Triad& b, const Triad& up) {
    const Triad d = minus(a, b);
    const double along = dot(up, d);
    const Triad rest = {{d.v[0] - up.v[0] * along, d.v[1] - up.v[1] * along, d.v[2] - up.v[2] * along}};
    return __dsqrt_rn(dot(rest, rest));
}

// The same with known verticals: the best rotation about the vertical.
template <typename Put>
__device__ inline bool align_three_about(const Triad* p, const Vertical& vertical, double min_extent, Put put) {
    Triad up_source, up;
    for (int k = 0; k < 3; ++k) {
        up_source.v[k] = vertical.source[k];
        up.v[k] = vertical.target[k];
    }
    const double extent =
        fmax(fmax(horizontal(p[0], p[1], up_source), horizontal(p[0], p[2], up_source)),
             horizontal(p[1], p[2], up_source));
    const Triad centre = centroid(p);
    Triad r0[3];
    for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 3; ++j) r0[i].v[j] = vertical.rotation[3 * i + j];
    }
    double c = 0.0, d = 0.0;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        const Triad own = minus(p[k], centre), q = other(own);
        const Triad a = {{dot(r0[0], own), dot(r0[1], own), dot(r0[2], own)}};
        c += dot(a, q) - dot(a, up) * dot(q, up);
        d += dot(up, cross(a, q));
    }
    const double length = __dsqrt_rn(c * c + d * d);
    const bool good = extent > min_extent && is_positive(length);
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
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        Triad row;
#pragma unroll
        for (int j = 0; j < 3; ++j) {
            row.v[j] = (turn[i][0] * r0[0].v[j] + turn[i][1] * r0[1].v[j]) + turn[i][2] * r0[2].v[j];
        }
        const double of_target = other(centre.v[i]);
        if (good && lane_id() % 2 == 0) put(i, row, of_target - dot(row, centre));
    }
    return good;
}

// A slot without a pose is known by NaN at the start of its `singles`.
__device__ inline void clear_support(const Work& m, u32 slot, bool has_pose) {
    m.support[slot] = make_uint2(0, 0);
    if (has_pose) return;
    for (int k = 0; k < 3; ++k) m.singles[3 * (u64)slot + k] = make_float4(nanf(""), 0.0f, 0.0f, 0.0f);
}

// The pose of the triple of a slot, in double and in single precision. By a warp: a pair of lanes has a
// slot; `is`: it has one; `some`: there is a triple in it.
__device__ inline void write_pose(const Work& m, u32 slot, bool is, bool some, u32 u, u32 v, u32 w) {
    const Frame& frame = *m.frame;
    const u64 d = m.padded;
    const float* points = m.numbers + lane_id() % 2 * 3 * d;
    const u32 corners[3] = {u, v, w};
    Triad p[3];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        const float* corner = points + corners[k];
        p[k] = {{(double)corner[0], (double)corner[d], (double)corner[2 * d]}};
    }
    const bool own = is && lane_id() % 2 == 0;
    double* pose = m.poses + 12 * (u64)slot;
    // Rows of four: three of the rotation, one of the translation.
    float4* single = m.singles + 3 * (u64)slot;
    auto put = [&](int k, const Triad& row, double number) {
        if (!own) return;
#pragma unroll
        for (int j = 0; j < 3; ++j) pose[3 * k + j] = row.v[j];
        pose[9 + k] = number;
        single[k] = make_float4((float)row.v[0], (float)row.v[1], (float)row.v[2], (float)number);
    };
    const bool fine = frame.has_vertical ? align_three_about(p, frame.vertical, frame.min_height, put)
                                         : align_three(p, frame.min_height, put);
    if (own) clear_support(m, slot, fine && some);
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
            for (u32 c = 0; c < 6; ++c) p[e][c] = within ? m.numbers[c * (u64)m.padded + i] : nanf("");
            // In units of the score; a power of two does not round.
            weight[e] = within ? m.numbers[6 * (u64)m.padded + i] * 65536.0f : 0.0f;
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
    begin(m, round, HYPOTHESES);
    const u32 count = m.pivots_wanted * m.per_pivot, metric = m.frame->metric;
    if (metric == 0) {
        score_slots<0>(m, count);
    } else if (metric == 1) {
        score_slots<1>(m, count);
    } else {
        score_slots<2>(m, count);
    }
}
#endif
