// Follows roots of a polynomial system along paths of parameters: the algorithm of
// src/homotopy/track.rs, where it is explained, with a tile of lanes for each track.
//
// What a lane has: unknown number `lane`, equation number `lane`, and its row of the Jacobian matrix,
// which becomes a row of the inverse. The programs of the system (system.cuh, made by
// src/homotopy/gpu/source.rs) are spread over the lanes: in each round a lane computes one
// `to = +-c +- a b` on numbers in shared memory. Decisions are made by all lanes alike.
//
// Where the CPU divides, takes roots and compares sizes this is only as exact as the decision needs,
// so steps are not the same to the bit; roots are polished at the end.
#include "lu.cuh"
#include "system.cuh"

typedef Complex<double> Z;

#define HISTORY 3
// Statuses, in the order of src/status.rs; the last one is of no end.
enum Status { OK, DIVERGED, SINGULAR, MIN_STEP, BUDGET, DUPLICATE, RUNNING = 99 };

// See `Settings` of track.rs.
struct Settings {
    double tolerance, contraction, min_step, infinity, end_zone;
    u64 max_steps;
};

// What came of a track, besides its point.
struct End {
    double residual, condition;
    u32 status, steps;
};

// Rounds of a call, each with a list of jobs.
#define LEVELS 2

struct Queue {
    // When the call began, ns.
    u64 begin;
    // Jobs that were taken beyond the first of each tile; jobs in the list.
    u32 next[LEVELS], count[LEVELS];
};

// Tracks from the start; again, to be better than they were; from where they came to.
enum Mode { FIRST, AGAIN, ONWARD };

constexpr double SMALL = 1e-8, ROUNDING = 1e-8, MOST_ROUNDING = 1e-5, NEAR_END = 1e-4, STILL = 1e-13, GROWTH = 0.05, FIRST_STEP = 1e-3;
constexpr double STEADY = 0.9, FAR = 30, DOUBTFUL = 1e7, SHORT = 1e-6, BESIDE = 1e-6, EPSILON = 2.220446049250313e-16;
#define SLOW 4
#define UNBOUNDED __longlong_as_double(0x7ff0000000000000ll)

constexpr int TILES = WARP / LANES;
// Slots: unknowns, their rates, coefficients, their rates; constants; the matrix; H and its rate.
constexpr int RATES = N, COEFFICIENTS = 2 * N;
constexpr int MATRIX = FIRST_CONSTANT + CONSTANTS, H = MATRIX + N * PITCH;
constexpr int ROUNDS = JACOBIAN_ROUNDS + TANGENT_ROUNDS;
constexpr int VECTORS = 3;

struct Shared {
    Z slots[SLOTS];
    // The pivot's row and its inverse, for steps in turn.
    Z pivot[2][N + 1];
    Z right[VECTORS][N];
    Z solution[VECTORS][N];
};

// 1 / a to a few units of the last place, without a branch; not finite for what is tiny or not finite.
__device__ inline double per(double a) {
#ifdef __CUDA_ARCH__
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(a));
    y = fused(y, fused(-a, y, 1.0), y);
    return fused(y, fused(-a, y, 1.0), y);
#else
    return 1.0 / a;
#endif
}

__device__ inline double norm2(Z a) { return fused(a.re, a.re, a.im * a.im); }
__device__ inline Z inverse(Z a) {
    const double scale = per(norm2(a));
    return {a.re * scale, -a.im * scale};
}
__device__ inline Z minus(Z a, Z b) { return {a.re - b.re, a.im - b.im}; }
__device__ inline Z plus_scaled(Z a, Z b, double by) { return {fused(b.re, by, a.re), fused(b.im, by, a.im)}; }

// As `bounded` of track.rs: what is not a number is the lower one.
__device__ inline double bounded(double value, double low, double high) {
    return value > low ? (value < high ? value : high) : low;
}

// The power of two's part and twenty bits of a number that is not negative, which are ordered like it;
// what is no number comes last.
__device__ inline u32 high_bits(double a) { return (u32)__double2hiint(a) & 0x7fffffffu; }
__device__ inline double of_high_bits(u32 bits) {
    return bits > 0x7ff00000u ? UNBOUNDED : __hiloint2double((int)bits, 0);
}

struct Track {
    double times[HISTORY];
    double step, target;
    // A correction of this size may be rounding errors.
    double rounding;
    // The first correction of an attempt that failed just before, zero if none did, and the longest of
    // these attempts.
    double failed, longest;
    // Since when it grows as a path to infinity does: what was left then, or zero, and how fast it grew.
    double since, grew;
    u32 known, steps;

    __device__ double back(double h) const {
        double product = h;
        if (known > 1) product *= h + times[0] - times[1];
        if (known > 2) product *= h + times[0] - times[2];
        return product;
    }

    // The length at which the error would be 0.5 if a step of length `made` had `error`.
    __device__ double length(double error, double made) const {
        const double wanted = back(made) * sqrt(0.5 * per(error > 1e-9 ? error : 1e-9));
        const float per_order = known == 1 ? 1.0f : known == 2 ? 0.5f : 1.0f / 3;
        double length = made;
        for (int i = 0; i < 5; i++) {
            const float ratio = (float)(wanted * per(back(length)));
            length *= (double)exp2f(log2f(ratio) * per_order);
        }
        return length;
    }
};

struct Tile {
    Shared& shared;
    const u64* words;
    // Of the lanes of this tile; number of this lane in it; first lane.
    u32 mask, lane, first;
    bool is_row;
    // A row of the inverse matrix, and of which unknown.
    Z row[N];
    u32 unknown;
    // The last points and rates, the latest first; of this lane's unknown.
    Z points[HISTORY], rates[HISTORY];
    // The corrected point and its rate.
    Z point, rate;

    __device__ void sync() const { __syncwarp(mask); }

    __device__ u32 most(u32 value) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        return __reduce_max_sync(mask, value);
#else
        for (u32 apart = LANES / 2; apart > 0; apart /= 2) {
            const u32 other = __shfl_xor_sync(mask, value, apart);
            value = other > value ? other : value;
        }
        return value;
#endif
    }

    // The largest of numbers of all lanes that are not negative, nearly.
    __device__ double largest(double value) const { return of_high_bits(most(high_bits(value))); }

    __device__ void run(const u64* program, int rounds) {
        u64 next = program[lane];
        for (int r = 0; r < rounds; r++) {
            const u64 word = next;
            // There is a word after the last one.
            next = program[(r + 1) * LANES + lane];
            Z c = shared.slots[word >> 14 & 0x3fff], a = shared.slots[word >> 28 & 0x3fff];
            const Z b = shared.slots[word >> 42 & 0x3fff];
            const bool less_c = word >> 62 & 1, less_a = word >> 63;
            c.re = less_c ? -c.re : c.re;
            c.im = less_c ? -c.im : c.im;
            a.re = less_a ? -a.re : a.re;
            a.im = less_a ? -a.im : a.im;
            shared.slots[word & 0x3fff] = {fused(-a.im, b.im, fused(a.re, b.re, c.re)),
                                           fused(a.im, b.re, fused(a.re, b.im, c.im))};
            sync();
        }
    }

    __device__ void load_row() {
#pragma unroll
        for (int j = 0; j < N; j++) row[j] = is_row ? shared.slots[MATRIX + lane * PITCH + j] : Z{0, 0};
    }

    // Inverts the matrix in place (Gauss and Jordan), pivots by row. Columns move one place to the left
    // in each step, so that each step is the same code.
    __device__ void invert() {
        bool open = is_row;
#pragma unroll 1
        for (int k = 0; k < N; k++) {
            const u32 size = high_bits(fabs(row[0].re) + fabs(row[0].im));
            const u32 winner = 31 - (most(open ? (size & ~31u) | (31 - lane) : 0) & 31);
            const Z own = inverse(row[0]);
            const bool is_pivot = lane == winner;
            Z* pivot = shared.pivot[k % 2];
            if (is_pivot) {
                open = false;
                unknown = k;
#pragma unroll
                for (int j = 1; j < N; j++) pivot[j] = row[j];
                pivot[N] = own;
            }
            sync();
            const Z by = pivot[N];
            Z factor = product(row[0], by);
            if (is_pivot) factor = {-by.re, -by.im};
#pragma unroll
            for (int j = 1; j < N; j++) {
                const Z old = is_pivot ? Z{0, 0} : row[j];
                row[j - 1] = less_product(old, factor, pivot[j]);
            }
            row[N - 1] = {-factor.re, -factor.im};
        }
    }

    // Replaces right sides, of which each lane has that of its equation, by solutions.
    template <int COUNT>
    __device__ void solve(Z (&b)[COUNT]) {
        if (is_row) {
#pragma unroll
            for (int v = 0; v < COUNT; v++) shared.right[v][unknown] = b[v];
        }
        sync();
        Z sums[COUNT] = {};
#pragma unroll
        for (int j = 0; j < N; j++) {
#pragma unroll
            for (int v = 0; v < COUNT; v++) {
                const Z x = shared.right[v][j];
                sums[v] = {fused(row[j].re, x.re, fused(-row[j].im, x.im, sums[v].re)),
                           fused(row[j].re, x.im, fused(row[j].im, x.re, sums[v].im))};
            }
        }
        if (is_row) {
#pragma unroll
            for (int v = 0; v < COUNT; v++) shared.solution[v][unknown] = sums[v];
        }
        sync();
#pragma unroll
        for (int v = 0; v < COUNT; v++) b[v] = is_row ? shared.solution[v][lane] : Z{0, 0};
    }

    // The largest of the lanes' numbers relative to their unknowns, squared, as `relative` of work.rs.
    __device__ double relative(Z value, double size2) const {
        const double mine = norm2(point);
        const double least = 1e-4 * (size2 < 1.0 ? size2 : 1.0);
        const double floor = least > SMALL * SMALL ? least : SMALL * SMALL;
        return largest(norm2(value) * per(mine > floor ? mine : floor));
    }

    // Weights of Hermite's interpolation, and the predicted point and rate.
    __device__ void predict(const Track& track) {
        const double s = track.target;
        point = points[0];
        rate = {0, 0};
#pragma unroll
        for (int i = 0; i < HISTORY; i++) {
            if (i >= (int)track.known) continue;
            double value = 1, slope = 0, own = 0;
#pragma unroll
            for (int j = 0; j < HISTORY; j++) {
                if (j == i || j >= (int)track.known) continue;
                const double width = per(track.times[i] - track.times[j]);
                slope = (slope * (s - track.times[j]) + value) * width;
                value *= (s - track.times[j]) * width;
                own += width;
            }
            const double from = s - track.times[i];
            const double square = value * value, change = 2 * value * slope;
            const double bend = 1 - 2 * from * own;
            if (i > 0) {
                const Z back = minus(points[i], points[0]);
                point = plus_scaled(point, back, bend * square);
                rate = plus_scaled(rate, back, bend * change - 2 * own * square);
            }
            point = plus_scaled(point, rates[i], from * square);
            rate = plus_scaled(rate, rates[i], square + from * change);
        }
    }

    // As `attempt` of work.rs: sizes of both corrections, relative to the point, and of the point, all
    // squared.
    __device__ void attempt(const Track& track, const Z* series, double& first2, double& second2,
                            double& size2) {
        predict(track);
        if (is_row) {
            shared.slots[lane] = point;
            shared.slots[RATES + lane] = rate;
        }
        const double t = track.target;
        for (u32 k = lane; k < C; k += LANES) {
            Z value = {0, 0}, change = {0, 0};
#pragma unroll
            for (int i = TERMS - 1; i >= 0; i--) {
                const Z term = series[k * TERMS + i];
                change = plus_scaled(value, change, t);
                value = plus_scaled(term, value, t);
            }
            shared.slots[COEFFICIENTS + k] = value;
            shared.slots[COEFFICIENTS + C + k] = change;
        }
        sync();
        run(words, JACOBIAN_ROUNDS);
        load_row();
        invert();
        Z one[1] = {is_row ? shared.slots[H + lane] : Z{0, 0}};
        solve(one);
        first2 = relative(one[0], largest(norm2(point)));
        point = minus(point, one[0]);
        if (is_row) shared.slots[lane] = point;
        sync();
        run(words + JACOBIAN_ROUNDS * LANES, TANGENT_ROUNDS);
        Z both[2] = {};
        if (is_row) {
            both[0] = shared.slots[H + lane];
            both[1] = shared.slots[H + N + lane];
        }
        solve(both);
        point = minus(point, both[0]);
        rate = minus(rate, both[1]);
        size2 = largest(norm2(point));
        second2 = relative(both[0], size2);
    }

    // How fast the largest coordinate grows, as `growth` of track.rs.
    __device__ double growth(double target) const {
        sync();
        if (is_row) {
            shared.right[0][lane] = points[0];
            shared.right[1][lane] = rates[0];
        }
        sync();
        double size = 0, growth = 0;
        for (int i = 0; i < N; i++) {
            const Z x = shared.right[0][i], v = shared.right[1][i];
            if (norm2(x) > size) {
                size = norm2(x);
                growth = fused(v.re, x.re, v.im * x.im) / size;
            }
        }
        sync();
        return growth * (1 - target);
    }

    // As `is_good` and `judge` of track.rs.
    __device__ Status judge(Track& track, const Settings& settings, double first2, double second2,
                            double size2) {
        const double first = sqrt(first2), second = sqrt(second2);
        const bool still = second <= track.rounding;
        const double ratio = still ? 0.0 : second * per(first);
        const double error = fmax(first / settings.tolerance, ratio / (0.25 * settings.contraction));
        const double limit = track.known == 0 ? 1e-3 : 4 * settings.tolerance;
        const bool good = first <= limit && (still || second <= settings.contraction * first) && size2 < UNBOUNDED;
        track.steps++;
        const double made = track.target - track.times[0];
        if (!good) {
            if (track.known == 0) return SINGULAR;
            if (track.steps >= settings.max_steps) return BUDGET;
            // A shorter step that predicts no better: what is left is rounding, unless the end is singular.
            const double longest = track.failed > 0 ? track.longest : made;
            const double rounding = fmin(4 * fmax(first, second), MOST_ROUNDING);
            const bool near = 1 - track.times[0] < NEAR_END;
            const bool no_better = !near && track.failed > 0 && first > 0.3 * track.failed;
            if (no_better && first < MOST_ROUNDING && rounding > track.rounding) {
                track.rounding = rounding;
                track.failed = 0;
                track.step = 0.5 * longest;
                return RUNNING;
            }
            track.failed = first;
            track.longest = longest;
            const double wanted = error < UNBOUNDED ? track.length(error, made) : 0.0;
            track.step = bounded(wanted, 0.1 * made, 0.5 * made);
            if (track.step < settings.min_step) return near ? SINGULAR : MIN_STEP;
            return RUNNING;
        }
        track.failed = 0;
#pragma unroll
        for (int h = HISTORY - 1; h > 0; h--) {
            points[h] = points[h - 1];
            rates[h] = rates[h - 1];
        }
        points[0] = point;
        rates[0] = rate;
        if (track.known == 0) {
            track.known = 1;
            track.step = FIRST_STEP;
            return RUNNING;
        }
        const double left = 1 - track.target;
        const double wanted = left > 0 ? track.length(error, made) : 0;
        const bool full = track.known == HISTORY;
#pragma unroll
        for (int h = HISTORY - 1; h > 0; h--) track.times[h] = track.times[h - 1];
        track.times[0] = track.target;
        if (!full) track.known++;
        if (left <= 0) return OK;
        track.step = full ? bounded(wanted, 0.1 * made, 2 * made) : bounded(wanted, made, 4 * made);
        if (size2 > settings.infinity * settings.infinity) return DIVERGED;
        if (left < 1e3 * settings.end_zone) {
            const double rate = growth(track.target);
            const bool grows = rate > GROWTH;
            if (!(grows && size2 > 1e8)) {
                track.since = track.grew = 0;
            } else if (track.since == 0 || left < track.since / FAR) {
                // A path to a large root grows ever more slowly.
                if (track.since > 0 && rate > STEADY * track.grew) return DIVERGED;
                track.since = left;
                track.grew = rate;
            }
            if (left < settings.end_zone && track.step < left) return grows ? DIVERGED : SINGULAR;
        }
        return track.steps >= settings.max_steps ? BUDGET : RUNNING;
    }

    // Follows the root; a `budget` in nanoseconds since `begin` ends it.
    __device__ Status follow(Track& track, const Z* series, Z start, const Settings& settings, u64 begin,
                             u64 budget) {
#pragma unroll
        for (int h = 0; h < HISTORY; h++) {
            points[h] = start;
            rates[h] = {0, 0};
            track.times[h] = 0;
        }
        track.step = track.target = track.failed = track.since = track.grew = 0;
        track.rounding = ROUNDING;
        track.known = track.steps = 0;
        Status status = RUNNING;
        while (status == RUNNING) {
            if (budget && track.steps % 16 == 0 && __any_sync(mask, now() - begin > budget)) return BUDGET;
            if (track.known > 0) {
                const double t = track.times[0];
                // Not a tiny step at the end.
                track.target = t + 1.01 * track.step >= 1 ? 1 : t + track.step;
            }
            double first2, second2, size2;
            attempt(track, series, first2, second2, size2);
            status = judge(track, settings, first2, second2, size2);
        }
        return status;
    }

    __device__ static u64 now() {
        u64 now = 0;
#ifdef __CUDA_ARCH__
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
#endif
        return now;
    }

    // One Newton correction of `point`, as `newton` of work.rs; gives the size of the correction.
    __device__ double newton(double& residual, double& condition) {
        if (is_row) shared.slots[lane] = point;
        sync();
        run(words, JACOBIAN_ROUNDS);
        load_row();
        const double size2 = largest(norm2(point)), size = sqrt(size2);
        const double floor = fmax(0.01 * (size < 1 ? size : 1), SMALL);
        double scale = 0;
#pragma unroll 1
        for (int j = 0; is_row && j < N; j++) {
            const Z entry = shared.slots[MATRIX + lane * PITCH + j];
            scale += sqrt(norm2(entry)) * fmax(sqrt(norm2(shared.slots[j])), floor);
        }
        Z b[VECTORS] = {};
        if (is_row) {
            b[0] = shared.slots[H + lane];
            b[1].re = 0x5a5a5a5a5a5a5a5aull >> lane & 1 ? scale : -scale;
            b[2].re = 0x3c69f00f9696c33cull >> lane & 1 ? scale : -scale;
        }
        const double h = sqrt(norm2(b[0]));
        residual = largest(h == 0 ? 0 : h / scale);
        invert();
        solve(b);
        condition = sqrt(fmax(relative(b[1], size2), relative(b[2], size2)));
        const double correction = sqrt(relative(b[0], size2));
        point = minus(point, b[0]);
        return correction;
    }

    // What Newton's method found: see `Polished` of track.rs.
    struct Polished {
        Z point;
        double residual, error, moved, condition;
        u32 slow;
    };

    // Newton's method from `point` on.
    __device__ Polished refine() {
        Polished found = {point, UNBOUNDED, UNBOUNDED, 0, UNBOUNDED, ~0u};
        u32 slow = 0;
        for (int i = 0; i < 8 && found.error > STILL; i++) {
            const Z before = point;
            double residual, condition;
            const double correction = newton(residual, condition);
            // While corrections get smaller the point gets better.
            if (!(correction < found.error)) break;
            slow = found.error < UNBOUNDED && correction > fmax(0.3 * found.error, STILL) ? slow + 1 : 0;
            found = {correction > STILL ? point : before, residual, correction, found.moved + correction,
                     condition, slow};
        }
        return found;
    }

    // Polishes the last point, reached by a step of length `step`, with the coefficients of the path's
    // end; true if it is a regular root, as `is_regular` of track.rs has it.
    __device__ bool polish(const Z* coefficients, double step, double& residual, double& condition) {
        for (u32 k = lane; k < C; k += LANES) shared.slots[COEFFICIENTS + k] = coefficients[k];
        sync();
        point = points[0];
#pragma unroll 1
        for (bool beside = false;; beside = true) {
            const Polished found = refine();
            // From beside a multiple root it comes back slowly.
            if (beside) return found.slow < SLOW;
            const bool crawled = found.slow >= SLOW && found.error > 16 * EPSILON * found.condition;
            if (!(found.residual < 1e-10 && found.error < 1e-7 && found.moved < 1e-3 && found.condition < 1e12) || crawled) return false;
            points[0] = found.point;
            residual = found.residual;
            condition = found.condition;
            if (condition < DOUBTFUL && step > SHORT) return true;
            const double size = sqrt(largest(norm2(found.point)));
            const double floor = fmax(0.01 * (size < 1 ? size : 1), SMALL);
            point = found.point;
            point.re += fmax(sqrt(norm2(point)), floor) * BESIDE / (lane + 1);
        }
    }
};

// Parameters to coefficients: the programs of an instance by a block.
struct Prepare {
    // Slots of `TERMS` numbers: parameters, constants, coefficients, others.
    static constexpr int CONSTANTS = PARAMETERS, COEFFICIENTS = CONSTANTS + PREPARE_CONSTANTS;

    // Runs the program on polynomials of so many terms; `first` and `second` terms of the parameters.
    template <int COUNT>
    __device__ static void run(Z* slots, const Z* first, const Z* second) {
        for (int i = threadIdx.x; i < COEFFICIENTS; i += PREPARE_LANES) {
            for (int k = 0; k < COUNT; k++) slots[i * COUNT + k] = {0, 0};
            if (i >= CONSTANTS) {
                const double* number = PREPARE_NUMBERS + 2 * (i - CONSTANTS);
                slots[i * COUNT] = {number[0], number[1]};
            } else if (COUNT == 1) {
                slots[i] = second[i];
            } else {
                slots[i * COUNT] = first[i];
                slots[i * COUNT + 1] = minus(second[i], first[i]);
            }
        }
        __syncthreads();
        for (int r = 0; r < PREPARE_ROUNDS; r++) {
            const u64 word = PREPARE_WORDS[r * PREPARE_LANES + threadIdx.x];
            const Z* c = slots + (word >> 14 & 0x3fff) * COUNT;
            const Z* a = slots + (word >> 28 & 0x3fff) * COUNT;
            const Z* b = slots + (word >> 42 & 0x3fff) * COUNT;
            Z* to = slots + (word & 0x3fff) * COUNT;
            const double sign_c = word >> 62 & 1 ? -1 : 1, sign_a = word >> 63 ? -1 : 1;
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                Z sum = {0, 0};
#pragma unroll
                for (int j = 0; j <= k; j++) {
                    const Z u = a[j], v = b[k - j];
                    sum = {fused(-u.im, v.im, fused(u.re, v.re, sum.re)),
                           fused(u.im, v.re, fused(u.re, v.im, sum.im))};
                }
                to[k] = plus_scaled({sign_c * c[k].re, sign_c * c[k].im}, sum, sign_a);
            }
            __syncthreads();
        }
    }
};

// Paths of so many instances. from: parameters at their beginning, `apart` numbers from one instance to
// the next; targets: those at their ends. slots: PREPARE_SLOTS * TERMS for each block. The queue is made
// new if `fresh`. Others as below.
extern "C" __global__ void __launch_bounds__(PREPARE_LANES)
    prepare(const Z* __restrict__ from, u32 apart, const Z* __restrict__ targets, u32 instances, Z* slots,
            Z* series, Z* ends, Queue* queue, u32 fresh) {
    if (fresh && blockIdx.x == 0 && threadIdx.x == 0) *queue = {Tile::now(), {}, {}};
    slots += (u64)blockIdx.x * PREPARE_SLOTS * TERMS;
    for (u32 instance = blockIdx.x; instance < instances; instance += gridDim.x) {
        const Z *start = from + (u64)instance * apart, *target = targets + (u64)instance * PARAMETERS;
        // The end by itself: the sum of the terms has larger errors.
        Prepare::run<1>(slots, start, target);
        for (int k = threadIdx.x; k < C; k += PREPARE_LANES) {
            ends[(u64)instance * C + k] = slots[Prepare::COEFFICIENTS + k];
        }
        __syncthreads();
        Prepare::run<TERMS>(slots, start, target);
        for (int k = threadIdx.x; k < C * TERMS; k += PREPARE_LANES) {
            series[(u64)instance * C * TERMS + k] = slots[Prepare::COEFFICIENTS * TERMS + k];
        }
        __syncthreads();
    }
}

// series: coefficients of each instance as polynomials; ends: coefficients at the end; starts: roots at
// the start. A track is named by instance * roots + root. jobs: how many there are, zero if the queue
// tells; list: names of their tracks, or none if they are all tracks in turn. What comes of a job is
// written to its own place, or to that of its track if it is followed again.
extern "C" __global__ void __launch_bounds__(WARPS* WARP)
    track(const Z* __restrict__ series, const Z* __restrict__ ends, const Z* __restrict__ starts, u32 roots,
          u32 jobs, const u32* __restrict__ list, const Settings settings, u64 budget, Queue* queue, u32 level,
          u32 mode, Z* points, End* results) {
    __shared__ Shared tiles[WARPS * TILES];
    __shared__ u64 words[(ROUNDS + 1) * LANES];
    if (jobs == 0) jobs = queue->count[level];
    const u64 begin = queue->begin;
    const u32 number = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    u32 job = blockIdx.x * WARPS * TILES + number;
    if (blockIdx.x * WARPS * TILES >= jobs) return;
    for (u32 i = threadIdx.x; i < ROUNDS * LANES; i += WARPS * WARP) words[i] = WORDS[i];
    Shared& shared = tiles[number];
    for (u32 i = lane; i < SLOTS; i += LANES) {
        const int k = (int)i - FIRST_CONSTANT;
        shared.slots[i] = k >= 0 && k < CONSTANTS ? Z{NUMBERS[2 * k], NUMBERS[2 * k + 1]} : Z{0, 0};
    }
    __syncthreads();
    const u32 first = lane_id() - lane;
    Tile tile = {shared, words, FULL >> (WARP - LANES) << first, lane, first, lane < N};
    const u32 all = gridDim.x * WARPS * TILES;
    while (job < jobs) {
        const u32 name = list ? list[job] : job, at = mode == AGAIN ? name : job;
        const End before = mode == FIRST ? End{0, 0, OK, 0} : results[at];
        if (mode == AGAIN || before.status == OK) {
            const u32 instance = name / roots;
            const Z* start = mode == ONWARD ? points + (u64)at * N : starts + (u64)(name % roots) * N;
            Track track;
            double residual = UNBOUNDED, condition = UNBOUNDED;
            Status status = tile.follow(track, series + (u64)instance * C * TERMS,
                                        tile.is_row ? start[lane] : Z{0, 0}, settings, begin, budget);
            if (status == OK && !tile.polish(ends + (u64)instance * C, track.times[0] - track.times[1], residual,
                                             condition)) {
                status = SINGULAR;
                residual = condition = UNBOUNDED;
            }
            // What was found is kept if it is not found again.
            const bool keeps = mode == AGAIN && before.status == OK && status != OK;
            if (tile.is_row && !keeps) points[(u64)at * N + lane] = tile.points[0];
            if (lane == 0) {
                results[at] = keeps ? before : End{residual, condition, (u32)status, before.steps};
                results[at].steps += track.steps;
            }
        }
        if (lane == 0) job = all + atomicAdd(&queue->next[level], 1);
        job = __shfl_sync(tile.mask, job, first);
    }
}

#include "distinct.cuh"
