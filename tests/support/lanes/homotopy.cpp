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
    const u32 roots = sizes[0], instances = sizes[1], tracks = roots * instances;
    const Settings settings = take<Settings>(1)[0];
    const std::vector<Z> start = take<Z>(PARAMETERS), targets = take<Z>((size_t)instances * PARAMETERS);
    const std::vector<Z> starts = take<Z>((size_t)roots * N);
    std::vector<Z> points((size_t)tracks * N);
    std::vector<End> results(tracks);
    std::vector<Z> slots(PREPARE_SLOTS * TERMS), series((size_t)instances * C * TERMS), ends((size_t)instances * C);
    std::vector<Key> keys((size_t)tracks * IMAGES);
    std::vector<u32> list(tracks);
    Queue queue = {77, {77, 77}, {77, 77}};
    lanes::run(PREPARE_LANES, [&] {
        prepare(start.data(), 0, targets.data(), instances, slots.data(), series.data(), ends.data(), &queue, 1);
    });
    const auto follow = [&](u32 jobs, const u32* list, u32 level, u32 mode) {
        lanes::run(WARPS * WARP, [&] {
            track(series.data(), ends.data(), starts.data(), roots, jobs, list, settings, 0, &queue, level, mode,
                  points.data(), results.data());
        });
    };
    const auto told_apart = [&](u32 level, u32 last) {
        lanes::run(MEET_LANES, [&] {
            meet(points.data(), results.data(), roots, instances, level, last, keys.data(), &queue, list.data());
        });
    };
    follow(tracks, nullptr, 0, FIRST);
    fwrite(points.data(), sizeof(Z), points.size(), stdout);
    fwrite(results.data(), sizeof(End), results.size(), stdout);
    // What the second half of each instance found is lost: it repeats the first half, or was given up.
    for (u32 i = 0; i < instances; i++) {
        for (u32 k = roots / 2, from = i * roots; k < roots; k++) {
            image(k % IMAGES, &points[(size_t)(from + k - roots / 2) * N], &points[(size_t)(from + k) * N]);
            if (k % 2) results[from + k].status = MIN_STEP;
        }
    }
    told_apart(1, 0);
    // It is found again.
    follow(0, list.data(), 1, AGAIN);
    fwrite(queue.count, sizeof(u32), LEVELS, stdout);
    fwrite(points.data(), sizeof(Z), points.size(), stdout);
    fwrite(results.data(), sizeof(End), results.size(), stdout);
    // What is not the first of its kind is named.
    for (u32 i = 0; i < instances; i++) {
        memcpy(&points[(size_t)i * roots * N + N], &points[(size_t)i * roots * N], sizeof(Z) * N);
    }
    told_apart(1, 1);
    fwrite(results.data(), sizeof(End), results.size(), stdout);
    // The roots of the last instance, the last first, by a middle.
    const Z* target = &targets[(size_t)(instances - 1) * PARAMETERS];
    std::vector<Z> middle(PARAMETERS);
    for (int k = 0; k < PARAMETERS; k++) {
        const Z way = minus(target[k], start[k]);
        middle[k] = {start[k].re + 0.5 * way.re - 0.6 * way.im, start[k].im + 0.5 * way.im + 0.6 * way.re};
    }
    const auto on_the_way = [&](const std::vector<Z>& from, const Z* to, u32 fresh) {
        lanes::run(PREPARE_LANES, [&] {
            prepare(from.data(), PARAMETERS, to, 1, slots.data(), series.data(), ends.data(), &queue, fresh);
        });
    };
    for (u32 k = 0; k < roots; k++) list[k] = roots - 1 - k;
    on_the_way(start, middle.data(), 1);
    follow(roots, list.data(), 0, FIRST);
    on_the_way(middle, target, 0);
    follow(roots, list.data(), 1, ONWARD);
    fwrite(points.data(), sizeof(Z), (size_t)roots * N, stdout);
    fwrite(results.data(), sizeof(End), roots, stdout);
}
