// Part of homotopy.cu.
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
        u64 next = PREPARE_WORDS[threadIdx.x];
        for (int r = 0; r < PREPARE_ROUNDS; r++) {
            const u64 word = next;
            if (r + 1 < PREPARE_ROUNDS) next = PREPARE_WORDS[(r + 1) * PREPARE_LANES + threadIdx.x];
            const u32 low = (u32)word, high = (u32)(word >> 32);
            const Z* c = slots + (low >> 16 & 0x7fff) * COUNT;
            const Z* a = slots + (high & 0x7fff) * COUNT;
            const Z* b = slots + (high >> 16) * COUNT;
            Z* to = slots + (low & 0x7fff) * COUNT;
            const double sign_c = low >> 31 ? -1 : 1, sign_a = high & 0x8000 ? -1 : 1;
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

// Paths of so many instances. start: parameters at their beginning; targets: those at their ends. slots:
// PREPARE_SLOTS * TERMS for each block, if shared memory has no room. The queue is made new. Others as below.
extern "C" __global__ void __launch_bounds__(PREPARE_LANES)
    prepare(const Z* __restrict__ start, const Z* __restrict__ targets, u32 instances, Z* slots, Z* series,
            Z* ends, Queue* queue) {
    constexpr bool FITS = PREPARE_SLOTS * TERMS * sizeof(Z) <= 40 << 10;
    __shared__ Z own[FITS ? PREPARE_SLOTS * TERMS : 1];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    // Tracks may get ready meanwhile.
    asm volatile("griddepcontrol.launch_dependents;");
#endif
    if (blockIdx.x == 0 && threadIdx.x == 0) *queue = {Tile::now(), {}, {}};
    slots = FITS ? own : slots + (u64)blockIdx.x * PREPARE_SLOTS * TERMS;
    for (u32 instance = blockIdx.x; instance < instances; instance += gridDim.x) {
        const Z* target = targets + (u64)instance * PARAMETERS;
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
