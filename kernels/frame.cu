// The ends of a frame: what comes in, which the host has copied already or which is taken from it where
// host and device share their memory, and what goes out.
#ifndef FLASHREG_FRAME_CU
#define FLASHREG_FRAME_CU
#include "common.cuh"

// Takes the problem in.
extern "C" __global__ void __launch_bounds__(256) receive(const Memory m, const u32) {
    arrive();
    begin(m, 0, FOG);
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    const uint4* from = reinterpret_cast<const uint4*>(m.inbox);
    uint4* to = reinterpret_cast<uint4*>(m.frame);
    for (u32 i = thread; i < m.inbox->bytes / sizeof(uint4); i += threads) to[i] = from[i];
}

// Clears what a frame counts in. By the first kernel behind the arrival, which counts nothing.
__device__ inline void clear_counts(const Memory& m) {
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    u32* findings = reinterpret_cast<u32*>(m.findings);
    // The stamps, which come last, are written anew.
    const u32 length = (sizeof(Findings) - sizeof(m.findings->stamps)) / sizeof(u32), places = 2 * m.frame->table;
    for (u32 i = thread; i < length; i += threads) findings[i] = 0;
    for (u32 i = thread; i < places; i += threads) m.cells[i] = 0;
    if (thread < COUNTERS) m.done[thread] = 0;
}

// Adds to a counter of blocks that are done; all threads get what it was. The block that finds all others
// done sees what they wrote.
__device__ inline u32 ticket(u32* done, u32 mine) {
    __shared__ u32 before;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        before = atomicAdd(done, mine);
        __threadfence();
    }
    __syncthreads();
    return before;
}

// The end of the two kernels that a frame ends with; the last block of both hands over what was found.
__device__ inline void finish(const Memory& m) {
    // The blocks of a kernel add up to half of what the counter holds.
    const u32 mine = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    if (ticket(m.done + FRAME, mine) + mine != 0) return;
    if (threadIdx.x == 0) note(m, 0, END);
    __syncthreads();
    const u32* findings = reinterpret_cast<const u32*>(m.findings);
    u32* outbox = reinterpret_cast<u32*>(m.outbox);
    for (u32 i = threadIdx.x; i < sizeof(Findings) / sizeof(u32); i += blockDim.x) outbox[i] = __ldcg(findings + i);
    for (u32 i = threadIdx.x; i < m.frame->words; i += blockDim.x) m.outbox_mask[i] = __ldcg(m.mask + i);
}
#endif
