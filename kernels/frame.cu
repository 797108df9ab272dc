// The ends of a frame: what comes in, which the host has copied already or which is taken from it where
// host and device share their memory, and what goes out.
#include "common.cuh"

// Takes the problem in, and clears what a frame counts in.
extern "C" __global__ void __launch_bounds__(256) receive(const Memory m, const u32) {
    arrive();
    begin(m, 0, UPLOAD);
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    const Frame& frame = m.inbox != nullptr ? *m.inbox : *m.frame;
    if (m.inbox != nullptr) {
        const uint4* from = reinterpret_cast<const uint4*>(m.inbox);
        uint4* to = reinterpret_cast<uint4*>(m.frame);
        for (u32 i = thread; i < frame.bytes / sizeof(uint4); i += threads) to[i] = from[i];
    }
    u32* findings = reinterpret_cast<u32*>(m.findings);
    u32* totals = reinterpret_cast<u32*>(m.totals);
    // The stamps, which come last, are written anew.
    for (u32 i = thread; i < (sizeof(Findings) - sizeof(m.findings->stamps)) / sizeof(u32); i += threads) findings[i] = 0;
    for (u32 i = thread; i < 2 * sizeof(Totals) / sizeof(u32); i += threads) totals[i] = 0;
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
