// The ends of a frame: what comes in and what goes out, between the memory of the host and that of
// the device, without copies that the host would have to queue for each frame.
#include "common.cuh"

// 16 bytes at a time; both sides are aligned to them.
template <typename T>
__device__ inline void take(T* to, const T* from, u32 count) {
    const u32 threads = gridDim.x * blockDim.x, wide = count * sizeof(T) / sizeof(uint4);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < wide; i += threads) {
        reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
}

// Takes the problem in, and clears what a frame counts in.
extern "C" __global__ void __launch_bounds__(256) receive(const Memory m, const u32) {
    begin(m, 0, UPLOAD);
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    const Frame& frame = *m.inbox;
    const u32 padded = frame.padded, d = m.stride;
    for (u32 k = 0; k < 7; ++k) take(m.numbers + k * (u64)d, m.inbox_numbers + k * (u64)d, padded);
    if (frame.has_heights) {
        for (u32 k = 0; k < 2; ++k) take(m.heights + k * (u64)d, m.inbox_heights + k * (u64)d, padded);
    }
    if (frame.has_ids) {
        for (u32 k = 0; k < 2; ++k) take(m.ids + k * (u64)d, m.inbox_ids + k * (u64)d, padded);
    }
    u32* findings = reinterpret_cast<u32*>(m.findings);
    u32* totals = reinterpret_cast<u32*>(m.totals);
    const u32* header = reinterpret_cast<const u32*>(m.inbox);
    // The stamps, which come last, are written anew.
    for (u32 i = thread; i < (sizeof(Findings) - sizeof(m.findings->stamps)) / sizeof(u32); i += threads) findings[i] = 0;
    for (u32 i = thread; i < 2 * sizeof(Totals) / sizeof(u32); i += threads) totals[i] = 0;
    for (u32 i = thread; i < sizeof(Frame) / sizeof(u32); i += threads) {
        reinterpret_cast<u32*>(m.frame)[i] = header[i];
    }
    for (u32 i = thread; i < 2 * m.table; i += threads) m.cells[i] = 0;
    if (thread == 0) *m.done = 0;
}

// Hands over what was found.
extern "C" __global__ void __launch_bounds__(256) report(const Memory m, const u32) {
    if (threadIdx.x == 0) begin(m, 0, END);
    if (threadIdx.x < 2) m.findings->totals[threadIdx.x] = m.totals[threadIdx.x];
    __syncthreads();
    const u32* findings = reinterpret_cast<const u32*>(m.findings);
    for (u32 i = threadIdx.x; i < sizeof(Findings) / sizeof(u32); i += blockDim.x) {
        reinterpret_cast<u32*>(m.outbox)[i] = findings[i];
    }
    for (u32 i = threadIdx.x; i < m.frame->words; i += blockDim.x) m.outbox_mask[i] = m.mask[i];
}
