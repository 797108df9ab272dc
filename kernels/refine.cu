// From the hypotheses worth refining to the best pose. The arithmetic is that of
// src/registration/refine.rs, operation by operation.
#ifndef FLASHREG_REFINE_CU
#define FLASHREG_REFINE_CU
#include "choose.cu"
#include "frame.cu"

#define CUT2 9.0
#define ITERATIONS 30
#define FEW_ITERATIONS 16
#define FINE 1e-6
#define COARSE 1e-3
#define PATIENCE 4
#define HOPELESS 0.25
#define DAMPING 1e-9
#define SCALE (1.0 / 0.99)
#define DEFINITE 1e-3
#define LEVEL (1.0 + 1e-12)
#define COST 28
// See `Comparison` of src/registration/findings.rs.
#define APART_UNIT 1024.0f
#define FARTHEST 1e6f

// A pose in single precision: rows of four, three of the rotation and one of the translation.
struct Single {
    float4 row[3];
};

__device__ inline Single single_of(const double* p) {
    Single s;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        s.row[k] = make_float4((float)p[3 * k], (float)p[3 * k + 1], (float)p[3 * k + 2], (float)p[9 + k]);
    }
    return s;
}

// Where the pose takes a point.
__device__ inline float3 place(const Single& pose, const float3& s) {
    const float4 rx = pose.row[0], ry = pose.row[1], rz = pose.row[2];
    return make_float3(((rx.x * s.x + rx.y * s.y) + rx.z * s.z) + rx.w,
                       ((ry.x * s.x + ry.y * s.y) + ry.z * s.z) + ry.w,
                       ((rz.x * s.x + rz.y * s.y) + rz.z * s.z) + rz.w);
}

// Point i of three arrays that are `stride` apart.
__device__ inline float3 point_at(const float* arrays, u64 stride, u32 i) {
    return make_float3(__ldg(arrays + i), __ldg(arrays + stride + i), __ldg(arrays + 2 * stride + i));
}

__device__ inline float square_distance(const float3& a, const float3& b) {
    const float x = a.x - b.x, y = a.y - b.y, z = a.z - b.z;
    return (x * x + y * y) + z * z;
}

// Squared residual of row i of arrays as `numbers`, NaN in the padding.
__device__ inline float square_residual(const Work& m, const Single& pose, const float* arrays, u32 i) {
    const u64 d = m.padded;
    return square_distance(place(pose, point_at(arrays, d, i)), point_at(arrays + 3 * d, d, i));
}

// Fours of correspondences of a thread at a time: that many loads are on their way.
#define BATCH 3

// Calls use(i, squares) for the correspondences of the block: squared residuals of the four from i
// on, a whole warp for 128 at a time.
template <typename Use>
__device__ inline void scan(const Work& m, const Single& pose, Use use) {
    const u64 d = m.padded;
    for (u32 first = 4 * threadIdx.x; first < m.padded; first += 4 * BATCH * LANES) {
        float4 numbers[BATCH][6];
#pragma unroll
        for (u32 b = 0; b < BATCH; ++b) {
            const u32 i = first + 4 * b * LANES;
            if (i >= m.padded) break;
#pragma unroll
            for (u32 c = 0; c < 6; ++c) numbers[b][c] = __ldg(reinterpret_cast<const float4*>(m.numbers + c * d + i));
        }
#pragma unroll
        for (u32 b = 0; b < BATCH; ++b) {
            const u32 i = first + 4 * b * LANES;
            if (i >= m.padded) break;
            const float4* f = numbers[b];
            const float squares[4] = {
                square_distance(place(pose, make_float3(f[0].x, f[1].x, f[2].x)), make_float3(f[3].x, f[4].x, f[5].x)),
                square_distance(place(pose, make_float3(f[0].y, f[1].y, f[2].y)), make_float3(f[3].y, f[4].y, f[5].y)),
                square_distance(place(pose, make_float3(f[0].z, f[1].z, f[2].z)), make_float3(f[3].z, f[4].z, f[5].z)),
                square_distance(place(pose, make_float3(f[0].w, f[1].w, f[2].w)), make_float3(f[3].w, f[4].w, f[5].w))};
            use(i, squares);
        }
    }
}

// Puts the bits of the four correspondences from i on, of a whole warp, in their words.
__device__ inline void put_bits(u32* words, u32 i, const float* squares, float limit2) {
    u32 bits = 0;
#pragma unroll
    for (u32 k = 0; k < 4; ++k) bits |= (squares[k] < limit2 ? 1u : 0u) << k;
    bits <<= 4 * (lane_id() % 8);
    for (u32 step = 1; step < 8; step *= 2) bits |= __shfl_xor_sync(FULL, bits, step);
    if (lane_id() % 8 == 0) words[i / WARP] = bits;
}

// Which correspondences a block gathers, as bits; shared.
struct Chosen {
    u32 words[MAX_ROWS / WARP];
    u32 counts[LANE_WARPS];
};

// The numbers of the correspondences whose bits are set, one after another in their order; `own` has
// room for all of them and, behind, for their indices. Returns how many. Called by a whole block.
__device__ u32 gather(const Work& m, Chosen& chosen, float* own, bool weighted) {
    const u32 words = m.padded / WARP;
    const u64 d = m.padded;
    u32* indices = reinterpret_cast<u32*>(own + 7 * d);
    __syncthreads();
    // A thread takes neighbouring words.
    const u32 each = (words + LANES - 1) / LANES, start = threadIdx.x * each, end = min(start + each, words);
    u32 count = 0;
    for (u32 w = start; w < end; ++w) count += __popc(chosen.words[w]);
    const u32 upto = warp_prefix(count);
    if (lane_id() == WARP - 1) chosen.counts[warp_id()] = upto;
    __syncthreads();
    u32 place = upto - count, all = 0;
    for (u32 w = 0; w < LANE_WARPS; ++w) {
        if (w < warp_id()) place += chosen.counts[w];
        all += chosen.counts[w];
    }
    for (u32 w = start; w < end; ++w) {
        for (u32 rest = chosen.words[w]; rest != 0; rest &= rest - 1) indices[place++] = w * WARP + __ffs(rest) - 1;
    }
    __syncthreads();
    for (u32 k = threadIdx.x; k < all; k += LANES) {
        const float* from = m.numbers + indices[k];
        float number[7];
#pragma unroll
        for (u32 c = 0; c < 7; ++c) number[c] = __ldg(from + c * d);
#pragma unroll
        for (u32 c = 0; c < 6; ++c) own[c * d + k] = number[c];
        own[6 * d + k] = weighted ? number[6] : 1.0f;
    }
    __syncthreads();
    return all;
}

// Where the pose takes a point.
__device__ inline void apply(const double* p, const double* s, double* out) {
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        out[k] = ((p[3 * k] * s[0] + p[3 * k + 1] * s[1]) + p[3 * k + 2] * s[2]) + p[9 + k];
    }
}

__device__ inline double influence(double r2, double weight) {
    const double g = 1.0 / (1.0 + r2);
    return r2 < CUT2 ? (g * g - 0.01) * (SCALE * weight) : 0.0;
}

// Determinant, cofactors and whether all minors are positive, of a symmetric matrix xx yy zz xy xz
// yz.
struct Cofactors {
    double determinant, a, b, c, d, e, f;
    bool definite;
};

__device__ inline Cofactors cofactors(double xx, double yy, double zz, double xy, double xz, double yz) {
    Cofactors m;
    m.a = yy * zz - yz * yz;
    m.b = xx * zz - xz * xz;
    m.c = xx * yy - xy * xy;
    m.d = xz * yz - xy * zz;
    m.e = xy * yz - xz * yy;
    m.f = xy * xz - xx * yz;
    m.determinant = (xx * m.a + xy * m.d) + xz * m.e;
    m.definite = xx > 0.0 && m.c > 0.0 && m.determinant > 0.0;
    return m;
}

__device__ inline void solve(const Cofactors& m, double x, double y, double z, double* out) {
    const double per = 1.0 / m.determinant;
    out[0] = ((m.a * x + m.d * y) + m.e * z) * per;
    out[1] = ((m.d * x + m.b * y) + m.f * z) * per;
    out[2] = ((m.e * x + m.f * y) + m.c * z) * per;
}

__device__ inline double quadratic(
    double xx, double yy, double zz, double xy, double xz, double yz, const double* u) {
    const double x = (xx * u[0] + xy * u[1]) + xz * u[2];
    const double y = (xy * u[0] + yy * u[1]) + yz * u[2];
    const double z = (xz * u[0] + yz * u[1]) + zz * u[2];
    return (u[0] * x + u[1] * y) + u[2] * z;
}

// One step, and the centroid as the point that the next one is about; squares of the turn and of
// the way of the centroid. False without weight. By one warp: three lanes have a system each to
// solve, later twelve have a number of the pose each. `pose` and `about` are shared.
__device__ bool advance(
    double* pose, double* about, const double* s, bool upright, const double* u, bool newton,
    double* moved) {
    const u32 lane = lane_id();
    const double weight = s[0];
    if (!(weight > 0.0 && weight <= 1.7976931348623157e308)) return false;
    const double per_weight = 1.0 / weight;
    double c[3] = {s[1] * per_weight, s[2] * per_weight, s[3] * per_weight};
    double d[3] = {s[4] * per_weight, s[5] * per_weight, s[6] * per_weight};
    const double pxx = s[7] - s[1] * c[0], pyy = s[8] - s[2] * c[1], pzz = s[9] - s[3] * c[2];
    const double xx = pyy + pzz, yy = pxx + pzz, zz = pxx + pyy;
    const double xy = -(s[10] - s[1] * c[1]), xz = -(s[11] - s[1] * c[2]), yz = -(s[12] - s[2] * c[2]);
    const double torque[3] = {
        s[13] - (c[1] * s[6] - c[2] * s[5]), s[14] - (c[2] * s[4] - c[0] * s[6]),
        s[15] - (c[0] * s[5] - c[1] * s[4])};
    const double cxx = xx - s[22], cyy = yy - s[23], czz = zz - s[24];
    const double cxy = xy - s[25], cxz = xz - s[26], cyz = yz - s[27];
    // Lane 0: the turn of reweighting; 1: that of Newton; 2: Newton's translation.
    const double damping = DAMPING * ((xx + yy) + zz);
    const bool plain = lane == 0, flat = lane == 2;
    const Cofactors own = cofactors(
        flat ? weight - s[16] : (plain ? xx : cxx) + damping, flat ? weight - s[17] : (plain ? yy : cyy) + damping,
        flat ? weight - s[18] : (plain ? zz : czz) + damping, flat ? -s[19] : plain ? xy : cxy,
        flat ? -s[20] : plain ? xz : cxz, flat ? -s[21] : plain ? yz : cyz);
    double solved[3];
    solve(own, flat ? s[4] : torque[0], flat ? s[5] : torque[1], flat ? s[6] : torque[2], solved);
    const double of_plain = __shfl_sync(FULL, own.determinant, 0);
    const double least = flat ? (weight * weight) * weight : of_plain;
    const u32 usable = __ballot_sync(FULL, own.definite && own.determinant > DEFINITE * least);
    double turn[3] = {0.0, 0.0, 0.0};
    if (newton && usable >> 2 & 1) {
#pragma unroll
        for (int k = 0; k < 3; ++k) d[k] = __shfl_sync(FULL, solved[k], 2);
    }
    if (!upright) {
        const bool better = newton && usable >> 1 & 1;
        if (better || of_plain > 0.0) {
#pragma unroll
            for (int k = 0; k < 3; ++k) turn[k] = __shfl_sync(FULL, solved[k], better ? 1 : 0);
        }
    } else {
        const double plain_form = quadratic(xx, yy, zz, xy, xz, yz, u);
        const double curved_form = quadratic(cxx, cyy, czz, cxy, cxz, cyz, u);
        const double taken = newton && curved_form > 0.1 * plain_form ? curved_form : plain_form;
        if (taken > 0.0) {
            const double angle = ((u[0] * torque[0] + u[1] * torque[1]) + u[2] * torque[2]) / taken;
#pragma unroll
            for (int k = 0; k < 3; ++k) turn[k] = u[k] * angle;
        }
    }
    const double turn2 = (turn[0] * turn[0] + turn[1] * turn[1]) + turn[2] * turn[2];
    const double x = turn[0] * 0.5, y = turn[1] * 0.5, z = turn[2] * 0.5;
    const double f = 2.0 / (1.0 + turn2 * 0.25);
    const double q[3][3] = {
        {1.0 - f * (y * y + z * z), f * (x * y - z), f * (x * z + y)},
        {f * (x * y + z), 1.0 - f * (x * x + z * z), f * (y * z - x)},
        {f * (x * z - y), f * (y * z + x), 1.0 - f * (x * x + y * y)}};
#pragma unroll
    for (int k = 0; k < 3; ++k) c[k] = about[k] + c[k];
    // Number `lane` of the pose: of row i, column j of the rotation, or of the translation.
    const u32 i = lane < 9 ? lane / 3 : lane % 3, j = lane % 3;
    const double q0 = i == 0 ? q[0][0] : i == 1 ? q[1][0] : q[2][0];
    const double q1 = i == 0 ? q[0][1] : i == 1 ? q[1][1] : q[2][1];
    const double q2 = i == 0 ? q[0][2] : i == 1 ? q[1][2] : q[2][2];
    const double to = i == 0 ? c[0] + d[0] : i == 1 ? c[1] + d[1] : c[2] + d[2];
    const bool turns = lane < 9;
    const double v0 = turns ? pose[j] : pose[9] - c[0], v1 = turns ? pose[3 + j] : pose[10] - c[1];
    const double v2 = turns ? pose[6 + j] : pose[11] - c[2];
    const double turned = (q0 * v0 + q1 * v1) + q2 * v2;
    __syncwarp();
    if (lane < 12) pose[lane] = turns ? turned : turned + to;
    if (lane < 3) about[lane] = lane == 0 ? c[0] : lane == 1 ? c[1] : c[2];
    moved[0] = turn2;
    moved[1] = (d[0] * d[0] + d[1] * d[1]) + d[2] * d[2];
    return true;
}

// What a block shares while it refines.
struct Workbench {
    double warps[LANE_WARPS][SUMS], totals[SUMS];
    double pose[12], about[3];
    // Where the last step of Newton came from, and whether the last step was one.
    double old_totals[SUMS], old_pose[12], old_about[3];
    u32 was_newton, state;
};

// The step of one iteration, by one warp; of the state 0 goes on, 1 is done, 2 fails.
__device__ void step_once(const Frame& frame, Workbench& bench, u32 iteration, double step, double least) {
    const u32 lane = lane_id();
    bool newton = iteration > 0;
    const bool worse = bench.was_newton && bench.totals[COST] > bench.old_totals[COST] * LEVEL;
    __syncwarp();
    if (worse) {
        bench.totals[lane] = bench.old_totals[lane];
        if (lane < 12) bench.pose[lane] = bench.old_pose[lane];
        if (lane < 3) bench.about[lane] = bench.old_about[lane];
        newton = false;
    } else {
        bench.old_totals[lane] = bench.totals[lane];
        if (lane < 12) bench.old_pose[lane] = bench.pose[lane];
        if (lane < 3) bench.old_about[lane] = bench.about[lane];
    }
    __syncwarp();
    if (iteration >= PATIENCE && bench.totals[0] < least) {
        if (lane == 0) bench.state = 1;
        return;
    }
    double moved[2] = {0.0, 0.0};
    const bool fine =
        advance(bench.pose, bench.about, bench.totals, frame.has_vertical, frame.vertical.target, newton, moved);
    const double theta = frame.theta;
    const bool done = moved[0] < step * step && moved[1] < (step * theta) * (step * theta);
    if (lane == 0) {
        bench.was_newton = newton;
        bench.state = !fine ? 2 : done ? 1 : 0;
    }
}

// Refines the pose of the bench by the correspondences in `near`; false if none is near. It is given
// up if it falls below `least` weight. Called by a whole block.
__device__ bool refine(
    const Work& m, Workbench& bench, const float* near, u32 count, double step, u32 most, double least) {
    const Frame& frame = *m.frame;
    const double theta = frame.theta, per_theta2 = 1.0 / (theta * theta);
    const u64 d = m.padded;
    if (threadIdx.x < 3) bench.about[threadIdx.x] = 0.0;
    if (threadIdx.x == 0) bench.was_newton = 0;
    __syncthreads();
    // Warps that have correspondences.
    const u32 active = min(max((count + WARP - 1) / WARP, 1), LANE_WARPS);
    for (u32 iteration = 0; iteration < most; ++iteration) {
        double pose[12], about[3], sum[SUMS];
#pragma unroll
        for (int k = 0; k < 12; ++k) pose[k] = bench.pose[k];
#pragma unroll
        for (int k = 0; k < 3; ++k) about[k] = bench.about[k];
#pragma unroll
        for (int k = 0; k < SUMS; ++k) sum[k] = 0.0;
        for (u32 i = threadIdx.x; i < count; i += LANES) {
            const double s[3] = {near[i], near[d + i], near[2 * d + i]};
            double p[3];
            apply(pose, s, p);
            const double ex = near[3 * d + i] - p[0], ey = near[4 * d + i] - p[1], ez = near[5 * d + i] - p[2];
            const double qx = p[0] - about[0], qy = p[1] - about[1], qz = p[2] - about[2];
            const double found = ((ex * ex + ey * ey) + ez * ez) * per_theta2;
            const bool within = found < CUT2;
            const double r2 = within ? found : CUT2;
            const double weight = SCALE * near[6 * d + i], g = 1.0 / (1.0 + r2);
            const double w = within ? (g * g - 0.01) * weight : 0.0;
            const double change = within ? ((4.0 * per_theta2) * (g * g)) * (g * weight) : 0.0;
            const double wx = w * qx, wy = w * qy, wz = w * qz;
            sum[0] += w;
            sum[1] += wx;
            sum[2] += wy;
            sum[3] += wz;
            sum[4] += w * ex;
            sum[5] += w * ey;
            sum[6] += w * ez;
            sum[7] += wx * qx;
            sum[8] += wy * qy;
            sum[9] += wz * qz;
            sum[10] += wx * qy;
            sum[11] += wx * qz;
            sum[12] += wy * qz;
            sum[13] += wy * ez - wz * ey;
            sum[14] += wz * ex - wx * ez;
            sum[15] += wx * ey - wy * ex;
            double cx = change * ex, cy = change * ey, cz = change * ez;
            sum[16] += cx * ex;
            sum[17] += cy * ey;
            sum[18] += cz * ez;
            sum[19] += cx * ey;
            sum[20] += cx * ez;
            sum[21] += cy * ez;
            const double tx = qy * ez - qz * ey, ty = qz * ex - qx * ez, tz = qx * ey - qy * ex;
            cx = change * tx;
            cy = change * ty;
            cz = change * tz;
            sum[22] += cx * tx;
            sum[23] += cy * ty;
            sum[24] += cz * tz;
            sum[25] += cx * ty;
            sum[26] += cx * tz;
            sum[27] += cy * tz;
            sum[COST] += (r2 * g - 0.01 * r2) * weight;
        }
        if (warp_id() < active) warp_totals(sum, bench.warps);
        __syncthreads();
        if (threadIdx.x < WARP) {
            bench.totals[threadIdx.x] = total_of(bench.warps, active, threadIdx.x);
            __syncwarp();
            step_once(frame, bench, iteration, step, least);
        }
        __syncthreads();
        if (bench.state == 2) return false;
        if (bench.state == 1) break;
    }
    bool finite = true;
#pragma unroll
    for (int k = 0; k < 12; ++k) finite = finite && fabs(bench.pose[k]) <= 1.7976931348623157e308;
    return finite;
}

// Gathers what is within reach of the pose of the bench.
__device__ u32 gather_near(const Work& m, const Workbench& bench, Chosen& chosen, float* near, bool weighted) {
    const float reach2 = m.frame->reach2;
    scan(m, single_of(bench.pose),
         [&](u32 i, const float* squares) { put_bits(chosen.words, i, squares, reach2); });
    return gather(m, chosen, near, weighted);
}

// Adds up what correspondences contribute to a score.
struct Tally {
    u32 gains = 0, inliers = 0;

    __device__ inline void add(const Frame& frame, float weight, float square) {
        if (!(square < frame.theta2)) return;
        float share = 1.0f;
        if (frame.metric == 1) share = 1.0f - __fsqrt_rn(square * frame.per_theta2);
        if (frame.metric == 2) share = 1.0f - square * frame.per_theta2;
        const int gain = (int)(share * weight * 65536.0f);
        gains += gain > 0 ? gain : 0;
        ++inliers;
    }

    // Of the whole block; the same in all threads.
    __device__ inline uint2 total() const {
        __shared__ u32 sums[2];
        __syncthreads();
        if (threadIdx.x < 2) sums[threadIdx.x] = 0;
        __syncthreads();
        const u32 gain = warp_sum(gains), inlier = warp_sum(inliers);
        if (lane_id() == 0 && inlier > 0) {
            atomicAdd(&sums[0], gain);
            atomicAdd(&sums[1], inlier);
        }
        __syncthreads();
        return make_uint2(sums[0], sums[1]);
    }
};

// Support of the pose of the bench among what was gathered; the same in all threads.
__device__ uint2 support_near(const Work& m, const Workbench& bench, const float* near, u32 count) {
    const Frame& frame = *m.frame;
    const Single pose = single_of(bench.pose);
    Tally tally;
    for (u32 k = threadIdx.x; k < count; k += LANES) {
        tally.add(frame, near[6 * (u64)m.padded + k], square_residual(m, pose, near, k));
    }
    return tally.total();
}

// The pose of the bench with its support; one thread writes it.
__device__ void write_scored(Scored& to, const Workbench& bench, bool valid, uint2 support) {
    if (threadIdx.x < 12) to.pose[threadIdx.x] = bench.pose[threadIdx.x];
    if (threadIdx.x == 0) {
        to.score = support.x;
        to.inliers = support.y;
        to.valid = valid;
        to.reserved = 0;
    }
}

// Where block b gathers.
__device__ inline float* near_of(const Work& m, u32 b) { return m.near + 8 * (u64)m.padded * b; }

// Compares `other`, whose pose is `b`, with the best one, and counts its support; see `rival` of
// src/registration/examine.rs. A whole block.
__device__ void compare(const Work& m, Rival& other, const Single& b) {
    const Frame& frame = *m.frame;
    const Single a = single_of(m.findings->best.pose);
    const u64 d = m.padded;
    Tally tally;
    u64 apart = 0;
    u32 either = 0, only_pose = 0, only_other = 0;
    // Four correspondences at a time; the NaN of the padding is near nothing.
#pragma unroll 2
    for (u32 i = 4 * threadIdx.x; i < m.padded; i += 4 * LANES) {
        alignas(16) float of[7][4];
#pragma unroll
        for (u32 c = 0; c < 7; ++c) {
            *reinterpret_cast<float4*>(of[c]) = __ldg(reinterpret_cast<const float4*>(m.numbers + c * d + i));
        }
        const u32 inliers = __ldg(reinterpret_cast<const u32*>(m.mask) + i / WARP) >> (i % WARP);
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
            const float3 s = make_float3(of[0][k], of[1][k], of[2][k]), q = place(b, s);
            const float square = square_distance(q, make_float3(of[3][k], of[4][k], of[5][k]));
            const bool inlier = inliers >> k & 1, within = square < frame.theta2;
            tally.add(frame, of[6][k], square);
            if (inlier || within) {
                const float apart2 = square_distance(place(a, s), q) * frame.per_theta2;
                apart += (u32)(fminf(apart2, FARTHEST) * APART_UNIT);
                ++either;
            }
            only_pose += inlier && !within;
            only_other += within && !inlier;
        }
    }
    either = warp_sum(either);
    if (!__any_sync(FULL, either > 0)) return;
    for (u32 step = WARP / 2; step > 0; step /= 2) apart += __shfl_xor_sync(FULL, apart, step);
    const u32 gains = warp_sum(tally.gains), inliers = warp_sum(tally.inliers);
    only_pose = warp_sum(only_pose);
    only_other = warp_sum(only_other);
    if (lane_id() == 0) {
        atomicAdd(&other.apart, apart);
        atomicAdd(&other.of_either, either);
        atomicAdd(&other.only_pose, only_pose);
        atomicAdd(&other.only_other, only_other);
        atomicAdd(&other.other.score, gains);
        atomicAdd(&other.other.inliers, inliers);
    }
}

// Refines the hypotheses worth it so far that they can be ranked, a block each. After the first search
// the block that ends last puts them in order, refines the best one to the end, and notes its inliers
// and the rows that the rivals must do without. After the second one each is compared with the best.
extern "C" __global__ void __launch_bounds__(LANES) approach(const Memory memory, const u32 round) {
    const Work m(memory, round);
    begin(m, round, REFINE);
    __shared__ Workbench bench;
    __shared__ Chosen chosen;
    const u32 b = blockIdx.x, slot = choose(m, round, b);
    Findings& findings = *m.findings;
    Rival& rival = findings.rivals[MAX_CANDIDATES + 1 + b];
    Scored& own = round == 0 ? m.refined[b] : rival.other;
    if (slot != NO_SLOT) {
        float* near = near_of(m, b);
        if (threadIdx.x < 12) bench.pose[threadIdx.x] = m.poses[12 * (u64)slot + threadIdx.x];
        __syncthreads();
        const u32 count = gather_near(m, bench, chosen, near, true);
        if (threadIdx.x == 0) m.gathered[b] = count;
        const bool valid = refine(m, bench, near, count, COARSE, FEW_ITERATIONS, 0.0);
        const bool ranked = valid && round == 0;
        write_scored(own, bench, valid, ranked ? support_near(m, bench, near, count) : make_uint2(0, 0));
        if (valid && round > 0) {
            __syncthreads();
            compare(m, rival, single_of(bench.pose));
        }
    } else {
        if (threadIdx.x == 0) m.gathered[b] = 0;
        write_scored(own, bench, false, make_uint2(0, 0));
    }
    if (round > 0) {
        finish(m);
        return;
    }
    if (ticket(m.done + REFINED, 1) != gridDim.x - 1) return;

    __shared__ Scored all[MAX_CANDIDATES];
    __shared__ u32 gathered[MAX_CANDIDATES], order[MAX_CANDIDATES];
    const u32* refined = reinterpret_cast<const u32*>(m.refined);
    for (u32 k = threadIdx.x; k < gridDim.x * (sizeof(Scored) / sizeof(u32)); k += LANES) {
        reinterpret_cast<u32*>(all)[k] = __ldcg(refined + k);
    }
    if (threadIdx.x < gridDim.x) gathered[threadIdx.x] = __ldcg(m.gathered + threadIdx.x);
    __syncthreads();
    if (threadIdx.x < WARP) {
        const u32 lane = lane_id();
        const bool is = lane < gridDim.x;
        const Scored& its = all[is ? lane : 0];
        const u64 mine = is && its.valid ? ((u64)its.score << 32 | its.inliers) + 1 : 0;
        // Equal ones keep their order.
        u32 place = 0;
        for (u32 c = 0; c < gridDim.x; ++c) {
            const u64 other = __shfl_sync(FULL, mine, c);
            place += other > mine || (other == mine && c < lane);
        }
        if (is) order[place] = lane;
    }
    __syncthreads();
    const u32 first = order[0];
    // With their support to come.
    for (u32 k = threadIdx.x; k < gridDim.x * 12; k += LANES) {
        findings.rivals[k / 12].other.pose[k % 12] = all[order[k / 12]].pose[k % 12];
    }
    if (threadIdx.x < gridDim.x) findings.rivals[threadIdx.x].other.valid = all[order[threadIdx.x]].valid;
    const bool any = all[first].valid;
    if (threadIdx.x < 12) bench.pose[threadIdx.x] = all[first].pose[threadIdx.x];
    __syncthreads();
    // What was near at its start.
    const u32 count = gathered[first];
    const bool valid = any && refine(m, bench, near_of(m, first), count, FINE, ITERATIONS, 0.0);
    const Frame& frame = *m.frame;
    const float* weights = m.numbers + 6 * (u64)m.padded;
    u32 *mask = (u32*)m.mask, *gone = (u32*)m.gone;
    Tally tally;
    if (valid) {
        scan(m, single_of(bench.pose), [&](u32 i, const float* squares) {
            const float4 of = __ldg(reinterpret_cast<const float4*>(weights + i));
            tally.add(frame, of.x, squares[0]);
            tally.add(frame, of.y, squares[1]);
            tally.add(frame, of.z, squares[2]);
            tally.add(frame, of.w, squares[3]);
            put_bits(mask, i, squares, frame.theta2);
            put_bits(gone, i, squares, frame.cut2);
        });
    } else {
        for (u32 w = threadIdx.x; w < m.padded / WARP; w += LANES) mask[w] = gone[w] = 0;
    }
    const uint2 support = tally.total();
    write_scored(findings.best, bench, valid, support);
    if (threadIdx.x == 0) {
        findings.inliers = support.y;
        findings.weight = bench.totals[0];
    }
}
#endif
