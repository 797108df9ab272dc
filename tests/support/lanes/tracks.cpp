// Runs the kernel `track` of kernels/homotopy.cu alone on the CPU (lanes.h): bytes as `tracks` of
// src/homotopy/gpu/host.rs has them.
#include "lanes.h"

#include "homotopy.cu"

int main() {
    const std::vector<u32> sizes = take<u32>(2);
    const u32 roots = sizes[0], instances = sizes[1], tracks = roots * instances;
    const Settings settings = take<Settings>(1)[0];
#if ANY
    const std::vector<u64> counts = take<u64>(2);
    const size_t known = sizeof table / sizeof *table - 2;
    const std::vector<u64> given = take<u64>(known);
    memcpy(table, given.data(), known * sizeof *table);
    const std::vector<u64> words = take<u64>(counts[0]);
    const std::vector<Z> constants = take<Z>(counts[1]);
    table[known] = (u64)words.data();
    table[known + 1] = (u64)constants.data();
#endif
    const std::vector<Z> series = take<Z>((size_t)instances * C * TERMS), ends = take<Z>((size_t)instances * C);
    const std::vector<Z> starts = take<Z>((size_t)roots * N);
    std::vector<Z> points((size_t)tracks * N);
    std::vector<End> results(tracks);
    Queue queue = {};
    lanes::run(WARPS * WARP, [&] {
        track(series.data(), ends.data(), starts.data(), roots, tracks, nullptr, settings, 0, &queue, 0, points.data(),
              results.data());
    });
    fwrite(points.data(), sizeof(Z), points.size(), stdout);
    fwrite(results.data(), sizeof(End), results.size(), stdout);
}
