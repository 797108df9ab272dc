// Follows roots of a polynomial system along paths of parameters: the algorithm of
// src/homotopy/track.rs, where it is explained, with a tile of lanes for each track.
//
// What a lane has: unknown number `lane`, equation number `lane`, and its row of the Jacobian matrix,
// which becomes a row of the inverse. The programs of the system (system.cuh, made by
// src/homotopy/gpu.rs) are spread over the lanes: in each round a lane computes one
// `to = +-c +- a b` on numbers in shared memory. Decisions are made by all lanes alike.
//
// Where the CPU divides, takes roots and compares sizes this is only as exact as the decision needs,
// so steps are not the same to the bit; roots are polished at the end.
// In single precision, and for any system (ANY: up to N unknowns, its sizes and programs are tables that
// the host fills in), only tracks are followed: the host makes coefficients and tells roots apart, and
// what is single it polishes.
#include "approximate.cuh"
#include "system.cuh"
#define ONLY_TRACKS (SINGLE || ANY)

#define HISTORY 3
// Statuses, in the order of src/status.rs; the last one is of no end.
enum Status { OK, DIVERGED, SINGULAR, MIN_STEP, BUDGET, DUPLICATE, RUNNING = 99 };

// See `Settings` of track.rs.
struct Settings {
    float tolerance, contraction, min_step, infinity, end_zone, brief, bow;
    u32 max_steps;
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

// Numbers of track.rs; single precision has larger errors.
constexpr real ROUNDING = SINGLE ? 1e-4 : 1e-8, MOST_ROUNDING = SINGLE ? 1e-3 : 1e-5;
constexpr real SMALL = 1e-8, NEAR_END = 1e-4, STILL = 1e-13, GROWTH = 0.05, FIRST_STEP = 1e-2;
constexpr real STEADY = 0.9, FAR = 30, DOUBTFUL = 1e7, MOST_CONDITION = 1e12, BESIDE = 1e-6, EPSILON = 2.220446049250313e-16;
constexpr int CORRECTIONS = 2;
#define SLOW 4

constexpr int TILES = WARP / LANES;
// Slots: unknowns, their rates, coefficients, their rates; constants; the MATRIX; H and its rate.
constexpr int RATES = N, COEFFICIENTS = 2 * N;
constexpr int VECTORS = 2;
// Written out step by step: larger ones are slower so, as their code does not fit the nearest cache.
constexpr bool SMALL_N = N <= 6;
constexpr int ORDER = SMALL_N ? N : 1;

struct Shared {
    // The pivot's row, its inverse and its right side, for steps in turn.
    Z pivot[2][N + 2];
    // Right sides, and right sides in the order of the pivots.
    Z given[VECTORS][N], right[VECTORS][N];
    // For any system there is room behind it.
    Z slots[ANY ? 1 : SLOTS];
};

// Sizes are kept as their binary logarithms: no step has this one.
constexpr float NONE = -1e30f;

struct Track {
    real time, step, target;
    // See `Settings` of track.rs.
    real bow;
    // The length of the attempt; how far back the other points are; inverses of the distances between
    // the first and the second point, the first and the third, the second and the third.
    real made, gap1, gap2, per1, per2, per12;
    // The length goes with this power of the error.
    float exponent;
    // A correction of this size may be rounding errors.
    float rounding;
    // The first correction of an attempt that failed just before; the longest of these attempts.
    float failed;
    real longest;
    // Since when it grows as a path to infinity does: what was left then, or zero, and how fast it grew.
    real since, grew;
    u32 known, steps;

    // Chooses where the next attempt goes.
    __device__ void plan() {
        if (known == 0) return;
        // Not a tiny step at the end.
        target = time + real(1.01) * step >= 1 ? 1 : time + step;
        made = target - time;
        const float length = (float)made;
        float power = 1;
        if (known > 1) power = fused(length, per(length + (float)gap1), power);
        if (known > 2) power = fused(length, per(length + (float)gap2), power);
        exponent = -0.5f * per(power);
    }

    // What the length of the attempt is to be multiplied by, as `length` of track.rs.
    __device__ float stretch(float error) const { return power_of_2(exponent * (1 + fmaxf(error, -30))); }

    // Takes the target for the latest point.
    __device__ void advance() {
        per12 = per1;
        gap2 = made + gap1;
        gap1 = made;
        per1 = per(gap1);
        per2 = per(gap2);
        time = target;
        if (known < HISTORY) known++;
    }
};

// Binary logarithms of `tolerance` and `contraction` of the settings and of MOST_ROUNDING.
struct Limits {
    float tolerance, contraction, most_rounding;
};

struct Tile {
    Shared& shared;
    const u64* words;
    // Number of this lane in its tile; the tile's first lane.
    u32 lane, first;
    bool is_row;
    // A row of the inverse matrix, and of which unknown; the lane that has the row of this lane's.
    Z row[N];
    u32 unknown, owner;
    // Rows that gave the pivots, in turn.
    u32 order[ORDER];
    // Coefficients as polynomials, this lane's: k = lane, lane + LANES, ... Few are KEPT in registers.
    Z series[KEPT][KEPT_TERMS];
    // The last points and rates, the latest first; of this lane's unknown.
    Z points[HISTORY], rates[HISTORY];
    // The corrected point and its rate.
    Z point, rate;
    // Squares below this count as this where sizes are relative; the inverse of this lane's.
    real floor, per_square;

    // Of the lanes of this tile. Waiting for a number that the compiler knows is faster.
    __device__ u32 mask() const { return LANES == WARP ? FULL : FULL >> (WARP - LANES) << first; }

    __device__ void sync() const { __syncwarp(mask()); }

    __device__ u32 most(u32 value) const { return tile_max(mask(), LANES, value); }

    // The largest of numbers of all lanes that are not negative, nearly.
    __device__ real largest(real value) const {
        const u32 bits = most(high_bits(value));
        return bits > INFINITE ? real(UNBOUNDED) : of_bits(bits);
    }

    __device__ void run(const u64* program, int rounds) {
        u64 word = program[lane], next = program[LANES + lane];
#pragma unroll 6
        for (int r = 0; r < rounds; r++) {
            const u32 low = (u32)word, high = (u32)(word >> 32);
            Z c = shared.slots[low >> 16 & 0x7fff], a = shared.slots[high & 0x7fff];
            const Z b = shared.slots[high >> 16];
            word = next;
            // There are two words after the last one.
            next = program[(r + 2) * LANES + lane];
            const int less_c = (int)(low & 0x80000000u), less_a = (int)(high << 16 & 0x80000000u);
            c = {flipped(c.re, less_c), flipped(c.im, less_c)};
            a = {flipped(a.re, less_a), flipped(a.im, less_a)};
            shared.slots[low & 0x7fff] = {fused(-a.im, b.im, fused(a.re, b.re, c.re)),
                                          fused(a.im, b.re, fused(a.re, b.im, c.im))};
            sync();
        }
    }

    __device__ void load_row() {
#pragma unroll
        for (int j = 0; j < N; j++) row[j] = is_row ? shared.slots[MATRIX + lane * PITCH + j] : Z{0, 0};
    }

    // Inverts the matrix in place (Gauss and Jordan), pivots by row, and gives the solution for a right
    // side, which goes along: a product with the inverse would lose twice the digits where the matrix is
    // badly conditioned. Columns move one place to the left in each step, so that each step is the same
    // code. The next pivot is looked for as soon as its column is there.
    __device__ Z invert(Z right) {
        bool open = is_row;
        Z own = conjugate_inverse(row[0]);
        u32 best = most(vote(open));
#pragma unroll(SMALL_N ? N : 1)
        for (int k = 0; k < N; k++) {
            const u32 winner = 31 - (best & 31);
            const bool is_pivot = lane == winner;
            Z* pivot = shared.pivot[k % 2];
            if (lane == k) owner = winner;
            if (SMALL_N) order[k % ORDER] = winner;
            if (is_pivot) {
                open = false;
                unknown = k;
                pivot[N] = own;
                pivot[N + 1] = right;
#pragma unroll
                for (int j = 1; j < N; j++) pivot[j] = row[j];
            }
            sync();
            const Z by = pivot[N];
            Z factor = conjugate_product(row[0], by);
            if (is_pivot) factor = {-by.re, by.im};
            // All of it before lanes vote, so that they need not wait for the vote to go on.
            Z above[N];
#pragma unroll
            for (int j = 1; j < N; j++) above[j] = pivot[j];
#pragma unroll
            for (int j = 1; j < N; j++) {
                row[j - 1] = less_product(is_pivot ? Z{0, 0} : row[j], factor, above[j]);
                if (j == 1) {
                    own = conjugate_inverse(row[0]);
                    best = most(vote(open));
                }
            }
            row[N - 1] = {-factor.re, -factor.im};
            right = less_product(is_pivot ? Z{0, 0} : right, factor, pivot[N + 1]);
        }
        return {of_owner(right.re), of_owner(right.im)};
    }

    // Size of this lane's pivot, and the lane; zero if its row gave one.
    __device__ u32 vote(bool open) const {
        const u32 re = high_bits(row[0].re), im = high_bits(row[0].im);
        return open ? ((re > im ? re : im) & ~31u) | (31 - lane) : 0;
    }

    // Solutions for right sides that stand one behind the other from a slot on.
    template <int COUNT>
    __device__ void solve(const Z* right, Z (&x)[COUNT]) {
        if (!SMALL_N) {
            // In the order of the pivots.
            if (is_row) {
#pragma unroll
                for (int v = 0; v < COUNT; v++) shared.right[v][unknown] = right[v * N + lane];
            }
            sync();
            right = shared.right[0];
        }
        // Four short chains of sums instead of one.
        Z sums[COUNT][4] = {};
#pragma unroll
        for (int j = 0; j < N; j++) {
#pragma unroll
            for (int v = 0; v < COUNT; v++) {
                const Z b = right[v * N + (SMALL_N ? order[j % ORDER] : j)];
                Z &one = sums[v][j % 2 * 2], &other = sums[v][j % 2 * 2 + 1];
                one = {fused(row[j].re, b.re, one.re), fused(row[j].re, b.im, one.im)};
                other = {fused(-row[j].im, b.im, other.re), fused(row[j].im, b.re, other.im)};
            }
        }
#pragma unroll
        for (int v = 0; v < COUNT; v++) {
            const Z *sum = sums[v];
            x[v] = {of_owner((sum[0].re + sum[1].re) + (sum[2].re + sum[3].re)),
                    of_owner((sum[0].im + sum[1].im) + (sum[2].im + sum[3].im))};
        }
    }

    __device__ real of_owner(real value) const {
        return __shfl_sync(mask(), value, first + owner);
    }

    // The largest of the lanes' numbers relative to their unknowns, squared, as `relative` of work.rs; as
    // bits.
    __device__ u32 relative(Z value) const { return most(high_bits(norm2(value) * per_square)); }

    // Makes sizes relative to the point.
    __device__ void measure() {
        const real mine = norm2(point);
        per_square = per(mine > floor ? mine : floor);
    }

    // What `relative` asks for, from the largest coordinate squared.
    __device__ void set_floor(real size2) {
        const real least = real(1e-4) * (size2 < 1 ? size2 : 1);
        floor = least > SMALL * SMALL ? least : SMALL * SMALL;
    }

    // The predicted point and rate, by Hermite's interpolation.
    __device__ void predict(const Track& track) {
        const real a = track.made, b = a + track.gap1, c = a + track.gap2;
        const real p1 = track.per1, p2 = track.per2, p12 = track.per12;
        point = points[0];
        rate = {0, 0};
        // Lagrange's polynomials: value and slope at the target, slope at their points.
        if (track.known == HISTORY) {
            const real p = p1 * p2, q = p1 * p12, r = p2 * p12;
            add(0, a, b * c * p, (b + c) * p, p1 + p2);
            add(1, b, -(a * c) * q, -(a + c) * q, p12 - p1);
            add(2, c, a * b * r, (a + b) * r, -p2 - p12);
        } else if (track.known == 2) {
            add(0, a, b * p1, p1, p1);
            add(1, b, -a * p1, -p1, -p1);
        } else {
            add(0, a, 1, 0, 0);
        }
    }

    __device__ void add(int i, real from, real value, real slope, real own) {
        const real square = value * value, change = 2 * value * slope;
        if (i > 0) {
            const real bend = 1 - 2 * from * own;
            const Z back = minus(points[i], points[0]);
            point = plus_scaled(point, back, bend * square);
            rate = plus_scaled(rate, back, bend * change - 2 * own * square);
        }
        point = plus_scaled(point, rates[i], from * square);
        rate = plus_scaled(rate, rates[i], square + from * change);
    }

    // As `attempt` of work.rs: sizes of both corrections, relative to the point, and of the point, all
    // squared, as bits.
    __device__ void attempt(const Track& track, const Z* from, u32& first2, u32& second2, u32& size2) {
        const real s = track.target;
        const Z t = {s, track.bow * s * (1 - s)}, speed = {1, track.bow * (1 - 2 * s)};
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            const u32 k = lane + i * LANES;
            Z value = {0, 0}, change = {0, 0};
#pragma unroll
            for (int j = TERMS - 1; j >= 0; j--) {
                const Z term = HELD ? series[i % KEPT][j % KEPT_TERMS] : k < C ? from[k * TERMS + j] : Z{0, 0};
                change = plus_product(value, change, t);
                value = plus_product(term, value, t);
            }
            if (k < C) {
                shared.slots[COEFFICIENTS + k] = value;
                shared.slots[COEFFICIENTS + C + k] = product(change, speed);
            }
        }
        predict(track);
        if (is_row) shared.slots[lane] = point;
        measure();
        sync();
        run(words, JACOBIAN_ROUNDS);
        load_row();
        const Z first = invert(is_row ? shared.slots[H + lane] : Z{0, 0});
        first2 = relative(first);
        point = minus(point, first);
#pragma unroll 1
        for (int i = 0; i < CORRECTIONS; i++) {
            if (is_row) {
                shared.slots[lane] = point;
                shared.slots[RATES + lane] = rate;
            }
            sync();
            run(words + JACOBIAN_ROUNDS * LANES, TANGENT_ROUNDS);
            Z both[2];
            solve(shared.slots + H, both);
            point = minus(point, both[0]);
            rate = minus(rate, both[1]);
            if (i == 0) {
                second2 = relative(both[0]);
                if (2 * log_of(second2) - log_of(first2) < EXACT2) break;
            }
        }
        size2 = most(high_bits(norm2(point)));
    }

    // How fast the largest coordinate grows, as `growth` of track.rs.
    __device__ real growth(real target) const {
        sync();
        if (is_row) {
            shared.right[0][lane] = points[0];
            shared.right[1][lane] = rates[0];
        }
        sync();
        real size = 0, growth = 0;
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
    __device__ Status judge(Track& track, const Settings& settings, const Limits& limits, u32 first2,
                            u32 second2, u32 size2) {
        const float first = 0.5f * log_of(first2), second = 0.5f * log_of(second2);
        const bool still = second <= track.rounding;
        const float ratio = still ? NONE : second - first;
        const float error = fmaxf(first - limits.tolerance, ratio - limits.contraction + 2);
        const float most = track.known == 0 ? -10 : limits.tolerance + 3;
        const bool good = first <= most && (still || ratio <= limits.contraction) && size2 < INFINITE;
        track.steps++;
        const real made = track.made;
        if (!good) {
            if (track.known == 0) return SINGULAR;
            if (track.steps >= settings.max_steps) return BUDGET;
            // A shorter step that predicts no better: what is left is rounding, unless the end is singular.
            const bool again = track.failed > NONE;
            const real longest = again ? track.longest : made;
            const float rounding = fminf(2 + fmaxf(first, second), limits.most_rounding);
            const bool near = 1 - track.time < NEAR_END;
            const bool no_better = !near && again && first > track.failed - 1.737f;
            if (no_better && first < limits.most_rounding && rounding > track.rounding) {
                track.rounding = rounding;
                track.failed = NONE;
                track.step = longest / 2;
                return RUNNING;
            }
            track.failed = first;
            track.longest = longest;
            track.step = bounded(made * track.stretch(error), made * real(0.1), made / 2);
            if (track.step < settings.min_step) return near ? SINGULAR : MIN_STEP;
            return RUNNING;
        }
        track.failed = NONE;
#pragma unroll
        for (int h = HISTORY - 1; h > 0; h--) {
            points[h] = points[h - 1];
            rates[h] = rates[h - 1];
        }
        points[0] = point;
        rates[0] = rate;
        const real size = of_bits(size2);
        set_floor(size);
        if (track.known == 0) {
            track.known = 1;
            track.step = FIRST_STEP;
            return RUNNING;
        }
        const real left = 1 - track.target;
        const real wanted = made * track.stretch(error);
        const bool full = track.known == HISTORY;
        track.advance();
        if (left <= 0) return OK;
        track.step = full ? bounded(wanted, made * real(0.1), 2 * made) : bounded(wanted, made, 4 * made);
        if (size > real(settings.infinity) * settings.infinity) return DIVERGED;
        if (left < 1000 * settings.end_zone) {
            const real rate = growth(track.target);
            const bool grows = rate > GROWTH;
            if (!(grows && size > real(1e8))) {
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
    __device__ Status follow(Track& track, const Z* from, Z start, const Settings& settings, u64 begin,
                             u64 budget) {
        const Limits limits = {log2_of(settings.tolerance), log2_of(settings.contraction),
                               log2_of((float)MOST_ROUNDING)};
        point = start;
        rate = {0, 0};
#pragma unroll
        for (int h = 0; h < HISTORY; h++) {
            points[h] = start;
            rates[h] = {0, 0};
        }
#pragma unroll
        for (int k = lane, i = 0; HELD && i < PER_LANE; k += LANES, i++) {
#pragma unroll
            for (int j = 0; j < TERMS; j++) series[i % KEPT][j % KEPT_TERMS] = k < C ? from[k * TERMS + j] : Z{0, 0};
        }
        set_floor(largest(norm2(start)));
        track.time = track.step = track.target = track.made = track.longest = 0;
        track.gap1 = track.gap2 = track.per1 = track.per2 = track.per12 = 0;
        track.bow = settings.bow;
        track.rounding = log2_of((float)ROUNDING);
        track.failed = NONE;
        track.since = track.grew = 0;
        track.known = track.steps = 0;
        Status status = RUNNING;
        while (status == RUNNING) {
            if (budget && track.steps % 16 == 0 && __any_sync(mask(), now() - begin > budget)) return BUDGET;
            track.plan();
            u32 first2, second2, size2;
            attempt(track, from, first2, second2, size2);
            status = judge(track, settings, limits, first2, second2, size2);
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
    __device__ real newton(real& residual, real& condition) {
        if (is_row) shared.slots[lane] = point;
        sync();
        run(words, JACOBIAN_ROUNDS);
        load_row();
        const real size = root(largest(norm2(point)));
        const real least = fmax(real(0.01) * (size < 1 ? size : 1), SMALL);
        set_floor(size * size);
        measure();
        if (is_row) shared.right[0][lane].re = fmax(root(norm2(point)), least);
        sync();
        real scale = 0;
#pragma unroll
        for (int j = 0; j < N; j++) scale = fused(root(norm2(row[j])), shared.right[0][j].re, scale);
        const Z value = is_row ? shared.slots[H + lane] : Z{0, 0};
        const real h = root(norm2(value));
        if (is_row) {
            shared.given[0][lane] = {0x5a5a5a5a5a5a5a5aull >> lane & 1 ? scale : -scale, 0};
            shared.given[1][lane] = {0x3c69f00f9696c33cull >> lane & 1 ? scale : -scale, 0};
        }
        residual = largest(h == 0 ? 0 : h / scale);
        const Z correction = invert(value);
        Z grown[VECTORS];
        solve(shared.given[0], grown);
        const u32 one = relative(grown[0]), other = relative(grown[1]);
        condition = root_of(one > other ? one : other);
        point = minus(point, correction);
        return root_of(relative(correction));
    }

    // The square root of a number given by its bits.
    __device__ static real root_of(u32 bits) {
        return bits >= INFINITE ? real(UNBOUNDED) : root(of_bits(bits));
    }

    // What Newton's method found: see `Polished` of track.rs.
    struct Polished {
        Z point;
        real residual, error, moved, condition;
        u32 slow;
    };

    // Newton's method from `point` on.
    __device__ Polished refine() {
        Polished found = {point, real(UNBOUNDED), real(UNBOUNDED), 0, real(UNBOUNDED), ~0u};
        u32 slow = 0, slowest = 0;
        for (int i = 0; i < 8 && found.error > STILL; i++) {
            const Z before = point;
            real residual, condition;
            const real correction = newton(residual, condition);
            // While corrections get smaller the point gets better.
            if (!(correction < found.error)) break;
            slow = found.error < UNBOUNDED && correction > fmax(real(0.3) * found.error, STILL) ? slow + 1 : 0;
            slowest = slow > slowest ? slow : slowest;
            found = {correction > STILL ? point : before, residual, correction, found.moved + correction,
                     condition, slowest};
        }
        return found;
    }

    // Polishes the last point with the coefficients of the path's end; true if it is a regular root, as
    // `is_regular` of track.rs has it. What was not reached by a `long_step` may be a multiple one.
    __device__ bool polish(const Z* coefficients, bool long_step, real& residual, real& condition) {
        for (u32 k = lane; k < C; k += LANES) shared.slots[COEFFICIENTS + k] = coefficients[k];
        sync();
        point = points[0];
#pragma unroll 1
        for (bool beside = false;; beside = true) {
            const Polished found = refine();
            // From beside a multiple root it comes back slowly.
            if (beside) return found.slow < SLOW;
            const bool crawled = found.slow >= SLOW && found.error > 16 * EPSILON * found.condition;
            const bool known = found.residual < 1e-10 && found.error < 1e-7 && found.moved < 1e-3;
            if (crawled || !known || !(found.condition < MOST_CONDITION)) return false;
            points[0] = found.point;
            residual = found.residual;
            condition = found.condition;
            if (condition < DOUBTFUL && long_step) return true;
            point = found.point;
            const real size = root(largest(norm2(point)));
            const real least = fmax(real(0.01) * (size < 1 ? size : 1), SMALL);
            point.re += fmax(root(norm2(point)), least) * BESIDE / (lane + 1);
        }
    }
};

#if !ONLY_TRACKS
#include "prepare.cuh"
#endif
#if ANY
// Memory of a block, as much as it was started with.
__device__ inline u8* memory() {
#ifdef __CUDA_ARCH__
    extern __shared__ u64 bytes[];
#else
    static u64 bytes[6 << 10];
#endif
    return reinterpret_cast<u8*>(bytes);
}
#endif

// series: coefficients of each instance as polynomials; ends: coefficients at the end; starts: roots at
// the start. A track is named by instance * roots + root. jobs: how many there are, zero if the queue
// tells; list: names of tracks that are followed again, or none if it is all tracks in turn. What comes of
// a job is written to the place of its track.
extern "C" __global__ void __launch_bounds__(WARPS* WARP)
    track(const Z* __restrict__ series, const Z* __restrict__ ends, const Z* __restrict__ starts, u32 roots,
          u32 jobs, const u32* __restrict__ list, const Settings settings, u64 budget, Queue* queue, u32 level,
          Z* points, End* results) {
#if ANY
    static_assert(WARPS * TILES == 1, "what is behind it belongs to a tile");
    Shared* tiles = reinterpret_cast<Shared*>(memory());
    u64* words = reinterpret_cast<u64*>(tiles->slots + SLOTS);
#else
    __shared__ Shared tiles[WARPS * TILES];
    __shared__ u64 words[(ROUNDS + 2) * LANES];
#endif
#pragma unroll 8
    for (u32 i = threadIdx.x; i < (u32)(ROUNDS * LANES); i += WARPS * WARP) words[i] = WORDS[i];
    const u32 number = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    Shared& shared = tiles[number];
    for (u32 i = lane; i < SLOTS; i += LANES) {
        const int k = (int)i - FIRST_CONSTANT;
        shared.slots[i] = k >= 0 && k < CONSTANTS ? Z{NUMBERS[2 * k], NUMBERS[2 * k + 1]} : Z{0, 0};
    }
    __syncthreads();
    // What earlier kernels wrote is there after this.
    arrive();
    if (jobs == 0) jobs = queue->count[level];
    // Without a kernel before this one it begins now.
    const u64 begin = queue->begin ? queue->begin : Tile::now();
    const u32 first = lane_id() - lane;
    Tile tile = {shared, words, lane, first, lane < N};
    tile.owner = lane;
    const u32 all = gridDim.x * WARPS * TILES;
    u32 job = blockIdx.x * WARPS * TILES + number;
    while (job < jobs) {
        const u32 name = list ? list[job] : job, instance = name / roots;
        const End before = list ? results[name] : End{0, 0, BUDGET, 0};
        const Z* start = starts + (u64)(name % roots) * N;
        Track track;
        real residual = UNBOUNDED, condition = UNBOUNDED;
        Status status = tile.follow(track, series + (u64)instance * C * TERMS,
                                    tile.is_row ? start[lane] : Z{0, 0}, settings, begin, budget);
        const bool long_step = track.gap1 > settings.brief;
        if (status == OK && !SINGLE && !tile.polish(ends + (u64)instance * C, long_step, residual, condition)) {
            status = SINGULAR;
            residual = condition = UNBOUNDED;
        }
        // What was found is kept if it is not found again, unless it turns out to be a multiple root.
        const bool keeps = before.status == OK && status != OK && status != SINGULAR;
        if (tile.is_row && !keeps) points[(u64)name * N + lane] = tile.points[0];
        if (lane == 0) {
            results[name] = keeps ? before : End{residual, condition, (u32)status, before.steps};
            results[name].steps += track.steps;
        }
        if (lane == 0) job = all + atomicAdd(&queue->next[level], 1);
        job = __shfl_sync(tile.mask(), job, first);
    }
}

#if !ONLY_TRACKS
#include "distinct.cuh"
#endif
