// The ends of a frame: what comes in and what goes out, between the memory of the host and that of
// the device, without copies that the host would have to queue for each frame.
#include "common.cuh"

// Copies `arrays` arrays that are `stride` apart, 16 bytes at a time, which both sides are aligned
// to. All threads at once: what is far away takes long to come.
template <typename T>
__device__ inline void take(T* to, const T* from, u32 arrays, u32 stride, u32 count) {
    const u32 threads = gridDim.x * blockDim.x, wide = count * sizeof(T) / sizeof(uint4);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < arrays * wide; i += threads) {
        const u64 at = i / wide * ((u64)stride * sizeof(T) / sizeof(uint4)) + i % wide;
        reinterpret_cast<uint4*>(to)[at] = reinterpret_cast<const uint4*>(from)[at];
    }
}

// Takes the problem in, and clears what a frame counts in.
extern "C" __global__ void __launch_bounds__(256) receive(const Memory m, const u32) {
    arrive();
    begin(m, 0, UPLOAD);
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    const Frame& frame = *m.inbox;
    const u32 padded = frame.padded, d = m.stride;
    if (!frame.is_here) {
        take(m.numbers, m.inbox_numbers, 7, d, padded);
        if (frame.has_heights) take(m.heights, m.inbox_heights, 2, d, padded);
        if (frame.has_ids) take(m.ids, m.inbox_ids, 2, d, padded);
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
    for (u32 i = thread; i < 2 * frame.table; i += threads) m.cells[i] = 0;
    if (thread == 0) *m.done = 0;
}

// Hands over what was found.
extern "C" __global__ void __launch_bounds__(256) report(const Memory m, const u32) {
    arrive();
    if (threadIdx.x == 0) begin(m, 0, END);
    if (threadIdx.x < 2) m.findings->totals[threadIdx.x] = m.totals[threadIdx.x];
    __syncthreads();
    const u32* findings = reinterpret_cast<const u32*>(m.findings);
    for (u32 i = threadIdx.x; i < sizeof(Findings) / sizeof(u32); i += blockDim.x) {
        reinterpret_cast<u32*>(m.outbox)[i] = findings[i];
    }
    for (u32 i = threadIdx.x; i < m.frame->words; i += blockDim.x) m.outbox_mask[i] = m.mask[i];
}
