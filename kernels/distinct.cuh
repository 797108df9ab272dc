// Tells roots apart, as src/homotopy/distinct.rs does. Part of homotopy.cu.
__device__ inline Z plus(Z a, Z b) { return {a.re + b.re, a.im + b.im}; }
__device__ inline Z quotient(Z a, Z b) {
    const double scale = 1 / norm2(b);
    const Z up = product(a, Z{b.re, -b.im});
    return {up.re * scale, up.im * scale};
}
// The root with a real part that is not negative, as that of graph.rs.
__device__ inline Z square_root(Z a) {
    const double length = sqrt(norm2(a));
    const double re = sqrt(fmax((length + a.re) * 0.5, 0.0)), im = sqrt(fmax((length - a.re) * 0.5, 0.0));
    return {re, a.im < 0 ? -im : im};
}

// Made for this system by src/homotopy/gpu/symmetries.rs: how many IMAGES a root has, itself counted, how
// many threads tell the roots of an instance apart, and `image(which, x, y)`, of which number 0 is the root itself.
#include "symmetries.cuh"

constexpr double SAME = 1e-6;

// A number that is nearly the same for roots that are, and how much "nearly" is; of what is no root it
// is no number.
struct Key {
    double key, width;

    __device__ static Key of(const Z* x) {
        double key = 0, size = 1e-300, weight = 0.618;
        for (int i = 0; i < N; i++) {
            key += x[i].re * weight + x[i].im * (1.1 - weight);
            size += fabs(x[i].re) + fabs(x[i].im);
            weight += 0.618;
            if (weight >= 1) weight -= 1;
        }
        return {key, 2 * SAME * (size + 0.01 * (size < 1 ? size : 1))};
    }
};

// Image `which` of root `a` is root `b`, by `distance` of src/homotopy/system.rs.
__device__ inline bool is_same(const Z* a, u32 which, const Z* b) {
    Z of_a[N];
    image(which, a, of_a);
    double size2 = 0;
    for (int i = 0; i < N; i++) size2 = fmax(size2, norm2(of_a[i]));
    const double size = sqrt(size2), floor = fmax(0.01 * (size < 1 ? size : 1), SMALL);
    bool same = true;
    for (int i = 0; i < N; i++) {
        const double apart = sqrt(norm2(minus(of_a[i], b[i])));
        same = same && apart < SAME * fmax(sqrt(norm2(of_a[i])), floor);
    }
    return same;
}

// What `meet` notes of a track: its root is its own; it is the first of several; an earlier one has it, or
// there is none; its conjugate is not there.
enum Mark { OWN, FIRST_OF, WANTING, ALONE };

// A root that is the same as this one or an image of it, from number `from` on up to `to`; `to` if there
// is none.
__device__ inline u32 find(const Z* y, const Key own, const Z* x, const Key* key, u32 from, u32 to) {
    for (u32 i = from * IMAGES; i < to * IMAGES; i++) {
        if (fabs(key[i].key - own.key) <= own.width && is_same(x + (u64)(i / IMAGES) * N, i % IMAGES, y)) {
            return i / IMAGES;
        }
    }
    return to;
}

// An instance a block. Tracks whose root an earlier one has, or an image of it, and those that found
// nothing are wanting. If equations are `real`, conjugates of roots that are not there take their places.
// In the `last` round, those of them that repeat a root have the status duplicate; else, what may find more
// if it is followed more carefully is listed for `level`, the first of its kind as well. keys: IMAGES for
// each track; marks: for each track; list: for all.
extern "C" __global__ void __launch_bounds__(MEET_LANES)
    meet(Z* points, End* results, u32 roots, u32 instances, u32 real, u32 level, u32 last, Key* keys, u32* marks,
         Queue* queue, u32* list) {
    __shared__ u32 wanting;
    for (u32 instance = blockIdx.x; instance < instances; instance += gridDim.x) {
        const u32 first = instance * roots;
        Z* x = points + (u64)first * N;
        Key* key = keys + (u64)first * IMAGES;
        u32* mark = marks + first;
        if (threadIdx.x == 0) wanting = 0;
        for (u32 i = threadIdx.x; i < roots * IMAGES; i += MEET_LANES) {
            Z y[N];
            image(i % IMAGES, x + (u64)(i / IMAGES) * N, y);
            key[i] = Key::of(y);
            if (results[first + i / IMAGES].status != OK) key[i].key = UNBOUNDED - UNBOUNDED;
        }
        __syncthreads();
        for (u32 k = threadIdx.x; k < roots; k += MEET_LANES) {
            const Z* y = x + (u64)k * N;
            const u32 status = results[first + k].status;
            u32 is = status == MIN_STEP || status == BUDGET || status == SINGULAR ? WANTING : OWN;
            if (status == OK) {
                const Key own = key[k * IMAGES];
                if (find(y, own, x, key, 0, k) < k) is = WANTING;
                else if (find(y, own, x, key, k + 1, roots) < roots) is = FIRST_OF;
            }
            mark[k] = is;
            if (is == WANTING) atomicAdd(&wanting, 1);
        }
        __syncthreads();
        const u32 count = wanting;
        if (count == 0) continue;
        for (u32 k = threadIdx.x; real && k < roots; k += MEET_LANES) {
            if (mark[k] == WANTING || results[first + k].status != OK) continue;
            Z y[N];
            for (int i = 0; i < N; i++) y[i] = {x[(u64)k * N + i].re, -x[(u64)k * N + i].im};
            if (find(y, Key::of(y), x, key, 0, roots) == roots) mark[k] = ALONE;
        }
        __syncthreads();
        // In order, so that the outcome is the same each time.
        for (u32 k = threadIdx.x; k < roots; k += MEET_LANES) {
            if (mark[k] != WANTING) continue;
            u32 before = 0, from = 0;
            for (u32 i = 0; i < k; i++) before += mark[i] == WANTING;
            while (from < roots && (mark[from] != ALONE || before-- > 0)) from++;
            End& end = results[first + k];
            const bool repeats = end.status == OK;
            if (from < roots) {
                end = {results[first + from].residual, results[first + from].condition, OK, end.steps};
                for (int i = 0; i < N; i++) {
                    const Z of = x[(u64)from * N + i];
                    x[(u64)k * N + i] = {of.re, -of.im};
                }
                continue;
            }
            if (last && repeats) end = {UNBOUNDED, UNBOUNDED, DUPLICATE, end.steps};
            if (!last && (repeats || end.status == SINGULAR)) {
                list[atomicAdd(&queue->count[level], 1)] = first + k;
                wanting = 0;
            }
        }
        __syncthreads();
        // With what repeats it the first of its kind is in doubt.
        for (u32 k = threadIdx.x; wanting == 0 && k < roots; k += MEET_LANES) {
            if (mark[k] == FIRST_OF) list[atomicAdd(&queue->count[level], 1)] = first + k;
        }
        __syncthreads();
    }
}
