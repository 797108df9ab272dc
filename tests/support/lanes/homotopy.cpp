// Runs kernels/homotopy.cu on the CPU (lanes.h): numbers of bytes from the standard input, results to
// the standard output, both as src/homotopy/gpu/host.rs has them.
#include "lanes.h"

#include "homotopy.cu"

template <class T>
static std::vector<T> take(size_t count) {
    std::vector<T> items(count);
    if (fread(items.data(), sizeof(T), count, stdin) != count) exit(2);
    return items;
}

int main() {
    const std::vector<u32> sizes = take<u32>(2);
    const u32 roots = sizes[0], instances = sizes[1], jobs = roots * instances;
    const Settings settings = take<Settings>(1)[0];
    const std::vector<Z> start = take<Z>(PARAMETERS), targets = take<Z>((size_t)instances * PARAMETERS);
    const std::vector<Z> starts = take<Z>((size_t)roots * N);
    std::vector<Z> points((size_t)jobs * N);
    std::vector<End> results(jobs);
    std::vector<Z> slots(PREPARE_SLOTS * TERMS), series((size_t)instances * C * TERMS), ends((size_t)instances * C);
    u32 next = 77;
    lanes::run(PREPARE_LANES, [&] {
        prepare(start.data(), targets.data(), instances, slots.data(), series.data(), ends.data(), &next);
    });
    lanes::run(WARPS * WARP, [&] {
        track(series.data(), ends.data(), starts.data(), roots, jobs, settings, 0, &next, points.data(),
              results.data());
    });
    fwrite(points.data(), sizeof(Z), points.size(), stdout);
    fwrite(results.data(), sizeof(End), results.size(), stdout);
}
