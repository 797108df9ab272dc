// A block of threads of the GPU on the CPU: each lane is a fiber, and goes on to the next point where
// the lanes of its tile wait for each other, in an order that changes from one point to the next. So
// what a lane reads before it was written, or writes before it was read, shows in the results.
#pragma once
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define __constant__
#define __restrict__
#define __launch_bounds__(threads)

struct uint2 {
    unsigned x, y;
};
struct uint4 {
    unsigned x, y, z, w;
};
struct float4 {
    float x, y, z, w;
};
struct Index {
    unsigned x = 0;
};
static Index threadIdx, blockIdx, gridDim = {1};

namespace lanes {
constexpr unsigned MOST = 1024;
struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool ended = false;
    // How often it has met the others of its tile or block.
    unsigned meetings = 0;
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static std::function<void()> body;
// What lanes brought to the last meetings: two in turn.
static uint64_t brought[2][MOST];

static void start() {
    body();
    fibers[threadIdx.x].ended = true;
    swapcontext(&fibers[threadIdx.x].context, &scheduler);
}

inline void pause() {
    swapcontext(&fibers[threadIdx.x].context, &scheduler);
}

// Waits for lanes first .. first + count of the block; gives the number of the meeting.
inline unsigned meet(unsigned first, unsigned count, uint64_t value) {
    Fiber& me = fibers[threadIdx.x];
    const unsigned meeting = me.meetings;
    brought[meeting % 2][threadIdx.x] = value;
    me.meetings++;
    for (;;) {
        bool all = true;
        for (unsigned i = first; i < first + count; i++) all &= fibers[i].meetings > meeting;
        if (all) return meeting % 2;
        pause();
    }
}

inline void run(unsigned threads, std::function<void()> what) {
    body = what;
    fibers.assign(threads, Fiber());
    for (Fiber& fiber : fibers) {
        fiber.stack.resize(256 << 10);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, start, 0);
    }
    unsigned left = threads, turn = 0;
    while (left > 0) {
        left = 0;
        // Odd, so that every lane has its turn.
        const unsigned step = turn++ % 2 ? 1 : threads - 1;
        unsigned at = turn * 7 % threads;
        for (unsigned i = 0; i < threads; i++, at = (at + step) % threads) {
            if (fibers[at].ended) continue;
            left++;
            threadIdx.x = at;
            swapcontext(&scheduler, &fibers[at].context);
        }
    }
}

inline unsigned first_of(unsigned mask) { return threadIdx.x / 32 * 32 + __builtin_ctz(mask); }
inline unsigned meet_mask(unsigned mask, uint64_t value) {
    return meet(first_of(mask), __builtin_popcount(mask), value);
}
}  // namespace lanes

inline void __syncwarp(unsigned mask = 0xffffffffu) { lanes::meet_mask(mask, 0); }
inline void __syncthreads() { lanes::meet(0, (unsigned)lanes::fibers.size(), 0); }
template <class T>
inline T __shfl_sync(unsigned mask, T value, unsigned from) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    const unsigned meeting = lanes::meet_mask(mask, bits);
    memcpy(&value, &lanes::brought[meeting][threadIdx.x / 32 * 32 + from % 32], sizeof value);
    return value;
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, unsigned other) {
    return __shfl_sync(mask, value, threadIdx.x % 32 ^ other);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned apart) {
    const unsigned lane = threadIdx.x % 32;
    return __shfl_sync(mask, value, lane < apart ? lane : lane - apart);
}
inline unsigned __ballot_sync(unsigned mask, bool says) {
    const unsigned meeting = lanes::meet_mask(mask, says);
    unsigned all = 0;
    for (unsigned i = 0; i < 32; i++) {
        if (mask >> i & 1) all |= (unsigned)lanes::brought[meeting][threadIdx.x / 32 * 32 + i] << i;
    }
    return all;
}
inline bool __any_sync(unsigned mask, bool says) { return __ballot_sync(mask, says) != 0; }

inline int __ffs(unsigned value) { return __builtin_ffs((int)value); }
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
// As on the device: towards zero, and at the ends of the range what lies beyond.
inline unsigned __float2uint_rz(float a) { return a > 0.0f ? a < 4294967296.0f ? (unsigned)a : 0xffffffffu : 0; }
template <class T>
inline T __ldg(const T* at) {
    return *at;
}
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
template <class To, class From>
inline To bits_as(From value) {
    static_assert(sizeof(To) == sizeof(From), "sizes");
    To to;
    memcpy(&to, &value, sizeof to);
    return to;
}
inline unsigned __float_as_uint(float a) { return bits_as<unsigned>(a); }
inline float __uint_as_float(unsigned a) { return bits_as<float>(a); }
inline long long __double_as_longlong(double a) { return bits_as<long long>(a); }
inline double __longlong_as_double(long long a) { return bits_as<double>(a); }
inline int __double2hiint(double a) { return (int)(bits_as<uint64_t>(a) >> 32); }
inline int __double2loint(double a) { return (int)bits_as<uint64_t>(a); }
inline double __hiloint2double(int high, int low) {
    return bits_as<double>((uint64_t)(unsigned)high << 32 | (unsigned)low);
}
inline unsigned atomicAdd(unsigned* at, unsigned by) {
    const unsigned old = *at;
    *at += by;
    return old;
}
inline unsigned atomicMin(unsigned* at, unsigned with) {
    const unsigned old = *at;
    if (with < old) *at = with;
    return old;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (unsigned shift = 0; shift < 32; shift += 8) c += (a >> shift & 255) * (b >> shift & 255);
    return c;
}

// So many items of the standard input.
template <class T>
static std::vector<T> take(size_t count) {
    std::vector<T> items(count);
    if (fread(items.data(), sizeof(T), count, stdin) != count) exit(2);
    return items;
}
