// Runs kernels/homotopy.cu on the CPU (lanes.h): numbers of bytes from the standard input, results to
// the standard output, both as src/homotopy/gpu/host.rs has them.
#include "lanes.h"

#include "homotopy.cu"

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
    std::vector<u32> list(tracks), marks(tracks);
    Queue queue = {77, {77, 77}, {77, 77}};
    lanes::run(PREPARE_LANES, [&] {
        prepare(start.data(), targets.data(), instances, slots.data(), series.data(), ends.data(), &queue);
    });
    const auto follow = [&](u32 jobs, const u32* list, u32 level, const Settings& settings) {
        lanes::run(WARPS * WARP, [&] {
            track(series.data(), ends.data(), starts.data(), roots, jobs, list, settings, 0, &queue, level,
                  points.data(), results.data());
        });
    };
    const auto told_apart = [&](u32 real, u32 last) {
        lanes::run(MEET_LANES, [&] {
            meet(points.data(), results.data(), roots, instances, real, 1, last, keys.data(), marks.data(), &queue,
                 list.data());
        });
    };
    follow(tracks, nullptr, 0, settings);
    fwrite(points.data(), sizeof(Z), points.size(), stdout);
    fwrite(results.data(), sizeof(End), results.size(), stdout);
    const std::vector<Z> found = points;
    const std::vector<End> all = results;
    // What the second half of each instance found is lost: it repeats the first half, or ended elsewhere.
    for (u32 i = 0; i < instances; i++) {
        for (u32 k = roots / 2, from = i * roots; k < roots; k++) {
            image(k % IMAGES, &points[(size_t)(from + k - roots / 2) * N], &points[(size_t)(from + k) * N]);
            if (k % 2) results[from + k].status = SINGULAR;
        }
    }
    told_apart(0, 0);
    // It is found again.
    follow(0, list.data(), 1, settings);
    fwrite(queue.count, sizeof(u32), LEVELS, stdout);
    fwrite(points.data(), sizeof(Z), points.size(), stdout);
    fwrite(results.data(), sizeof(End), results.size(), stdout);
    // What is not the first of its kind is named.
    for (u32 i = 0; i < instances; i++) {
        memcpy(&points[(size_t)i * roots * N + N], &points[(size_t)i * roots * N], sizeof(Z) * N);
    }
    told_apart(0, 1);
    fwrite(results.data(), sizeof(End), results.size(), stdout);
    // Of each pair of conjugate roots the second is lost, and comes back.
    points = found;
    results = all;
    for (u32 i = 0; i < instances; i++) {
        for (u32 a = i * roots; a < (i + 1) * roots; a++) {
            Z y[N];
            for (int j = 0; j < N; j++) y[j] = {points[(size_t)a * N + j].re, -points[(size_t)a * N + j].im};
            for (u32 b = a + 1; b < (i + 1) * roots; b++) {
                bool same = false;
                for (u32 which = 0; which < IMAGES; which++) same |= is_same(&points[(size_t)b * N], which, y);
                if (same) results[b].status = BUDGET;
            }
        }
    }
    fwrite(results.data(), sizeof(End), results.size(), stdout);
    told_apart(1, 1);
    fwrite(points.data(), sizeof(Z), points.size(), stdout);
    fwrite(results.data(), sizeof(End), results.size(), stdout);
    // In a bow.
    Settings aside = settings;
    aside.bow = 0.5;
    queue.next[0] = 0;
    follow(tracks, nullptr, 0, aside);
    fwrite(points.data(), sizeof(Z), points.size(), stdout);
    fwrite(results.data(), sizeof(End), results.size(), stdout);
}
