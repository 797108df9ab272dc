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

// Made for this system by src/homotopy/gpu/symmetries.rs: how many IMAGES a root has, itself counted,
// and `image(which, x, y)`, of which number 0 is the root itself.
#include "symmetries.cuh"

#define MEET_LANES 256
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

// An instance a block. Roots that are the same as another one or its image are listed to be followed
// again at `level`, and so are tracks that found nothing; in the `last` round those of them that are not
// the first of their kind have the status duplicate. keys: IMAGES for each track; list: for all.
extern "C" __global__ void __launch_bounds__(MEET_LANES)
    meet(const Z* __restrict__ points, End* results, u32 roots, u32 instances, u32 level, u32 last, Key* keys,
         Queue* queue, u32* list) {
    for (u32 instance = blockIdx.x; instance < instances; instance += gridDim.x) {
        const u32 first = instance * roots;
        const Z* x = points + (u64)first * N;
        Key* key = keys + (u64)first * IMAGES;
        for (u32 i = threadIdx.x; i < roots * IMAGES; i += MEET_LANES) {
            Z y[N];
            image(i % IMAGES, x + (u64)(i / IMAGES) * N, y);
            key[i] = Key::of(y);
            if (results[first + i / IMAGES].status != OK) key[i].key = UNBOUNDED - UNBOUNDED;
        }
        __syncthreads();
        for (u32 k = threadIdx.x; k < roots; k += MEET_LANES) {
            const Key own = key[k * IMAGES];
            const u32 others = own.key == own.key ? (last ? k : roots) : 0;
            bool met = false;
            for (u32 i = 0; i < others * IMAGES && !met; i++) {
                met = fabs(key[i].key - own.key) <= own.width && i / IMAGES != k &&
                      is_same(x + (u64)(i / IMAGES) * N, i % IMAGES, x + (u64)k * N);
            }
            const u32 status = results[first + k].status;
            if (last && met) results[first + k].status = DUPLICATE;
            if (!last && (met || status == MIN_STEP || status == BUDGET || status == SINGULAR)) {
                list[atomicAdd(&queue->count[level], 1)] = first + k;
            }
        }
    }
}
