// What is measured under the best pose: what fixes it, what chance would give, how a reflection
// fits. The arithmetic is that of src/registration/examine.rs, operation by operation.
#include "refine.cu"

#define CELL 2.0
#define ROUNDING 1e-6
#define LINES 6
// Sweeps for axes, from those of the coordinates on and from the last ones on.
#define SWEEPS 8
#define FEW_SWEEPS 1
// Samples of a block of the chance count at a time.
#define SAMPLES 4
// Numbers that are added up at most.
#define FEW_SUMS (SUMS / 2)

// Jobs of the blocks; candidates follow from RIVALS on, and behind them all blocks count.
enum Job { MIRROR, LINE, INFORMATION, UNWEIGHTED, RIVALS, COUNTS = RIVALS + MAX_CANDIDATES };

__device__ inline bool is_inlier(const Work& m, u32 i) { return __ldg(m.mask + i / 64) >> (i % 64) & 1; }

// Gathers the inliers of the best pose.
__device__ u32 gather_inliers(const Work& m, Chosen& chosen, float* near) {
    const u32* mask = reinterpret_cast<const u32*>(m.mask);
    for (u32 w = threadIdx.x; w < m.padded / WARP; w += LANES) chosen.words[w] = mask[w];
    return gather(m, chosen, near, true);
}

__device__ inline void source_of(const float* numbers, u64 stride, u32 i, double* p) {
#pragma unroll
    for (int k = 0; k < 3; ++k) p[k] = numbers[k * stride + i];
}

// Point under the pose and squared residual.
__device__ inline double residual(const Work& m, const double* pose, u32 i, double* p) {
    double s[3];
    source_of(m.numbers, m.padded, i, s);
    apply(pose, s, p);
    const float* t = m.numbers + 3 * (u64)m.padded + i;
    const double e[3] = {__ldg(t) - p[0], __ldg(t + m.padded) - p[1], __ldg(t + 2 * (u64)m.padded) - p[2]};
    return (e[0] * e[0] + e[1] * e[1]) + e[2] * e[2];
}

struct Scatter {
    double centre[3], values[3], axes[3][3];
    u32 fine;
};

// Centroid, eigenvalues and axes of gathered points, weighted; the sums are taken about a point, and
// the axes are looked for from those that are there. A whole block; `out` is shared.
template <typename Weight>
__device__ void scatter(
    Workbench& bench, const float* points, u64 stride, u32 count, const double* about, int sweeps, Scatter& out,
    Weight weight) {
    double sum[FEW_SUMS], p[3];
#pragma unroll
    for (int k = 0; k < FEW_SUMS; ++k) sum[k] = 0.0;
    for (u32 i = threadIdx.x; i < count; i += LANES) {
        source_of(points, stride, i, p);
        const double w = weight(p);
        const double d[3] = {p[0] - about[0], p[1] - about[1], p[2] - about[2]};
        const double wd[3] = {w * d[0], w * d[1], w * d[2]};
        sum[0] += w;
        sum[1] += wd[0];
        sum[2] += wd[1];
        sum[3] += wd[2];
        sum[4] += wd[0] * d[0];
        sum[5] += wd[1] * d[1];
        sum[6] += wd[2] * d[2];
        sum[7] += wd[0] * d[1];
        sum[8] += wd[0] * d[2];
        sum[9] += wd[1] * d[2];
    }
    block_totals(sum, bench.warps, bench.totals);
    if (threadIdx.x == 0) {
        const double* s = bench.totals;
        const double total = s[0];
        const bool fine = total > 0.0 && total <= 1.7976931348623157e308;
        const double c[3] = {s[1] / total, s[2] / total, s[3] / total};
        const double second[6] = {
            s[4] / total - c[0] * c[0], s[5] / total - c[1] * c[1], s[6] / total - c[2] * c[2],
            s[7] / total - c[0] * c[1], s[8] / total - c[0] * c[2], s[9] / total - c[1] * c[2]};
        double values[3], axes[3][3];
#pragma unroll
        for (int k = 0; k < 9; ++k) axes[k / 3][k % 3] = out.axes[k / 3][k % 3];
        if (fine) symmetric_eigen(second, sweeps, values, axes);
#pragma unroll
        for (int k = 0; k < 3; ++k) {
            out.centre[k] = about[k] + c[k];
            out.values[k] = fine ? values[k] : 0.0;
#pragma unroll
            for (int j = 0; j < 3; ++j) out.axes[k][j] = axes[k][j];
        }
        out.fine = fine;
    }
    __syncthreads();
}

// The scatter of the gathered inliers.
__device__ void scatter_inliers(Workbench& bench, const float* points, u64 stride, u32 count, Scatter& out) {
    double about[3] = {0.0, 0.0, 0.0};
    if (count > 0) source_of(points, stride, 0, about);
    if (threadIdx.x == 0) {
        for (int k = 0; k < 9; ++k) out.axes[k / 3][k % 3] = k % 4 == 0 ? 1.0 : 0.0;
    }
    scatter(bench, points, stride, count, about, SWEEPS, out, [](const double*) { return 1.0; });
}

__device__ inline double beside(const double* p, const double* centre, const double* axis, double per_theta2) {
    const double d[3] = {p[0] - centre[0], p[1] - centre[1], p[2] - centre[2]};
    const double along = (d[0] * axis[0] + d[1] * axis[1]) + d[2] * axis[2];
    return (((d[0] * d[0] + d[1] * d[1]) + d[2] * d[2]) - along * along) * per_theta2;
}

__device__ void mirror_job(const Work& m, Workbench& bench, Chosen& chosen, Scatter& of, float* near) {
    Findings& findings = *m.findings;
    const Frame& frame = *m.frame;
    const u32 count = gather_inliers(m, chosen, near);
    scatter_inliers(bench, near, m.padded, count, of);
    if (threadIdx.x < 3) findings.spread[threadIdx.x] = fmax(of.values[threadIdx.x], 0.0);
    if (threadIdx.x == 0) {
        const double *pose = findings.best.pose, *n = of.axes[2], *c = of.centre;
        const double offset = 2.0 * ((n[0] * c[0] + n[1] * c[1]) + n[2] * c[2]);
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            const double* row = pose + 3 * i;
            const double along = (row[0] * n[0] + row[1] * n[1]) + row[2] * n[2];
#pragma unroll
            for (int j = 0; j < 3; ++j) bench.pose[3 * i + j] = row[j] - (2.0 * along) * n[j];
            bench.pose[9 + i] = pose[9 + i] + offset * along;
        }
    }
    __syncthreads();
    if (!of.fine) return;
    const u32 reached = gather_near(m, bench, chosen, near, true);
    if (!refine(m, bench, near, reached, COARSE, FEW_ITERATIONS, HOPELESS * findings.weight)) return;
    double pose[12], mirror[12], sum[FEW_SUMS], p[3];
#pragma unroll
    for (int k = 0; k < 12; ++k) {
        pose[k] = findings.best.pose[k];
        mirror[k] = bench.pose[k];
    }
#pragma unroll
    for (int k = 0; k < FEW_SUMS; ++k) sum[k] = 0.0;
    const double per_theta2 = 1.0 / (frame.theta * frame.theta);
    u32 inliers = 0;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < m.n; i += LANES) {
        const double of_mirror = fmin(residual(m, mirror, i, p) * per_theta2, 1.0);
        const double of_pose = fmin(residual(m, pose, i, p) * per_theta2, 1.0);
        inliers += of_mirror < 1.0;
        const double gain = of_pose - of_mirror;
        sum[0] += gain;
        sum[1] += gain * gain + ROUNDING * ROUNDING;
    }
    block_totals(sum, bench.warps, bench.totals);
    inliers = warp_sum(inliers);
    if (lane_id() == 0 && inliers > 0) atomicAdd(&findings.mirror_inliers, inliers);
    if (threadIdx.x == 0) {
        findings.has_mirror = 1;
        findings.gain = bench.totals[0];
        findings.noise2 = bench.totals[1];
    }
}

__device__ void line_job(const Work& m, Workbench& bench, Chosen& chosen, Scatter& of, float* near) {
    Findings& findings = *m.findings;
    const Frame& frame = *m.frame;
    if (frame.has_vertical) {
        if (threadIdx.x == 0) findings.off_line = findings.inliers;
        return;
    }
    const double per_theta2 = 1.0 / (frame.theta * frame.theta);
    const u32 count = gather_inliers(m, chosen, near);
    scatter_inliers(bench, near, m.padded, count, of);
    double centre[3], axis[3];
    for (int line = 0; line <= LINES; ++line) {
        if (!of.fine) return;
#pragma unroll
        for (int k = 0; k < 3; ++k) {
            centre[k] = of.centre[k];
            axis[k] = of.axes[0][k];
        }
        if (line == LINES) break;
        scatter(bench, near, m.padded, count, centre, FEW_SWEEPS, of, [&](const double* p) {
            const double g = 1.0 + beside(p, centre, axis, per_theta2);
            return 1.0 / (g * g);
        });
    }
    u32 off = 0;
    for (u32 i = threadIdx.x; i < count; i += LANES) {
        double p[3];
        source_of(near, m.padded, i, p);
        off += beside(p, centre, axis, per_theta2) > 1.0;
    }
    off = warp_sum(off);
    if (lane_id() == 0 && off > 0) atomicAdd(&findings.off_line, off);
}

__device__ void information_job(const Work& m, Workbench& bench) {
    __shared__ double radii[LANE_WARPS];
    Findings& findings = *m.findings;
    const Frame& frame = *m.frame;
    const double per_theta2 = 1.0 / (frame.theta * frame.theta);
    double pose[12], sum[FEW_SUMS], radius2 = 0.0;
#pragma unroll
    for (int k = 0; k < 12; ++k) pose[k] = findings.best.pose[k];
#pragma unroll
    for (int k = 0; k < FEW_SUMS; ++k) sum[k] = 0.0;
#pragma unroll 4
    for (u32 i = threadIdx.x; i < m.n; i += LANES) {
        double s[3], p[3];
        source_of(m.numbers, m.padded, i, s);
        radius2 = fmax(radius2, (s[0] * s[0] + s[1] * s[1]) + s[2] * s[2]);
        const double e2 = residual(m, pose, i, p);
        const double w = influence(e2 * per_theta2, m.numbers[6 * (u64)m.padded + i]);
        if (w > 0.0) {
            const double x = w * p[0], y = w * p[1], z = w * p[2];
            sum[0] += w;
            sum[1] += x;
            sum[2] += y;
            sum[3] += z;
            sum[4] += x * p[0];
            sum[5] += y * p[1];
            sum[6] += z * p[2];
            sum[7] += x * p[1];
            sum[8] += x * p[2];
            sum[9] += y * p[2];
            sum[10] += w * e2;
            sum[11] += 1.0;
        }
    }
    block_totals(sum, bench.warps, bench.totals);
    if (threadIdx.x < 12) findings.information[threadIdx.x] = bench.totals[threadIdx.x];
    for (u32 step = WARP / 2; step > 0; step /= 2) radius2 = fmax(radius2, __shfl_xor_sync(FULL, radius2, step));
    if (lane_id() == 0) radii[warp_id()] = radius2;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 w = 1; w < LANE_WARPS; ++w) radius2 = fmax(radius2, radii[w]);
        findings.radius2 = radius2;
    }
}

// The pose that correspondences of one weight give, as a rival.
__device__ void unweighted_job(const Work& m, Workbench& bench, Chosen& chosen, float* near) {
    Rival& rival = m.findings->rivals[MAX_CANDIDATES];
    bool valid = m.frame->has_weights;
    if (valid) {
        if (threadIdx.x < 12) bench.pose[threadIdx.x] = m.findings->best.pose[threadIdx.x];
        __syncthreads();
        const u32 reached = gather_near(m, bench, chosen, near, false);
        valid = refine(m, bench, near, reached, COARSE, FEW_ITERATIONS, 0.0);
    }
    write_scored(rival.other, bench, valid, make_uint2(0, 0));
    __syncthreads();
    if (valid) compare(m, rival, single_of(bench.pose));
}

// Which inlier first lies in each cell; adds the number of cells. Every block takes its rows.
__device__ void count_cells(const Work& m, u32 block, u32 blocks) {
    const Frame& frame = *m.frame;
    const double side = CELL * frame.theta;
    for (u32 which = 0; which < 2; ++which) {
        u32* table = m.cells + which * (u64)frame.table;
        const float* points = m.numbers + 3 * which * (u64)m.padded;
        auto cell = [&](u32 i, int* c) {
#pragma unroll
            for (int k = 0; k < 3; ++k) c[k] = (int)floor(points[k * (u64)m.padded + i] / side);
        };
        u32 fresh = 0;
        for (u32 i = block * LANES + threadIdx.x; i < m.n; i += blocks * LANES) {
            if (!is_inlier(m, i)) continue;
            int own[3];
            cell(i, own);
            u32 at = (u32)own[0] * 0x9e3779b1u ^ (u32)own[1] * 0x85ebca77u ^ (u32)own[2] * 0xc2b2ae3du;
            at ^= at >> 15;
            while (true) {
                at &= frame.table - 1;
                const u32 there = atomicCAS(&table[at], 0, i + 1);
                if (there == 0) {
                    ++fresh;
                    break;
                }
                int its[3];
                cell(there - 1, its);
                if (its[0] == own[0] && its[1] == own[1] && its[2] == own[2]) break;
                ++at;
            }
        }
        fresh = warp_sum(fresh);
        if (lane_id() == 0 && fresh > 0) atomicAdd(&m.findings->cells[which], fresh);
    }
}

__device__ void count_chance(const Work& m, u32 block, u32 blocks) {
    const Frame& frame = *m.frame;
    const float theta2 = (float)(frame.theta * frame.theta);
    const float* targets = m.numbers + 3 * (u64)m.padded;
    double pose[12];
#pragma unroll
    for (int k = 0; k < 12; ++k) pose[k] = m.findings->best.pose[k];
    for (u32 first = block * SAMPLES; first < frame.samples; first += blocks * SAMPLES) {
        float q[SAMPLES][3];
        u32 own[SAMPLES], hits = 0;
#pragma unroll
        for (u32 k = 0; k < SAMPLES; ++k) {
            const u32 sample = first + k;
            own[k] = (u32)((u64)sample * m.n / frame.samples);
            double s[3], p[3] = {0.0, 0.0, 0.0};
            if (sample < frame.samples) {
                source_of(m.numbers, m.padded, own[k], s);
                apply(pose, s, p);
            }
#pragma unroll
            for (int c = 0; c < 3; ++c) q[k][c] = sample < frame.samples ? (float)p[c] : nanf("");
        }
#pragma unroll 2
        for (u32 i = threadIdx.x; i < m.n; i += LANES) {
            const float tx = targets[i], ty = targets[m.padded + i], tz = targets[2 * (u64)m.padded + i];
#pragma unroll
            for (u32 k = 0; k < SAMPLES; ++k) {
                const float x = q[k][0] - tx, y = q[k][1] - ty, z = q[k][2] - tz;
                hits += (x * x + y * y) + z * z < theta2 && i != own[k];
            }
        }
        hits = warp_sum(hits);
        if (lane_id() == 0 && hits > 0) atomicAdd(&m.findings->chance_hits, hits);
    }
}

// The job of a block; the blocks behind the jobs count.
__device__ void examine_best(const Work& m, u32 job) {
    __shared__ Workbench bench;
    __shared__ Chosen chosen;
    __shared__ Scatter of;
    if (job == MIRROR) {
        mirror_job(m, bench, chosen, of, near_of(m, MAX_CANDIDATES));
    } else if (job == LINE) {
        line_job(m, bench, chosen, of, near_of(m, MAX_CANDIDATES + 1));
    } else if (job == INFORMATION) {
        information_job(m, bench);
    } else if (job == UNWEIGHTED) {
        unweighted_job(m, bench, chosen, near_of(m, MAX_CANDIDATES + 2));
    } else if (job < COUNTS) {
        Rival& rival = m.findings->rivals[job - RIVALS];
        if (rival.other.valid) compare(m, rival, single_of(rival.other.pose));
    } else {
        count_cells(m, job - COUNTS, gridDim.x - COUNTS);
        count_chance(m, job - COUNTS, gridDim.x - COUNTS);
    }
}

extern "C" __global__ void __launch_bounds__(LANES) examine(const Memory memory, const u32) {
    const Work m(memory, 0);
    if (m.findings->best.valid) examine_best(m, blockIdx.x);
    finish(m);
}
