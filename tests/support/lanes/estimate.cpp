// Runs the kernels of kernels/estimate.cu on the CPU (lanes.h): bytes as src/estimation/gpu/host.rs has
// them.
#include "lanes.h"

#include "estimate.cu"

template <class Kind>
static void run(Round search) {
    const size_t rows = search.rows, slots = (size_t)search.samples * Kind::ROOTS;
    const std::vector<double> exact = take<double>(rows * EXACT);
    const std::vector<float> blocks = take<float>((rows + BLOCK - 1) / BLOCK * (BLOCK * Kind::COLUMNS));
    const std::vector<u32> drawn = take<u32>((size_t)search.samples * Kind::SAMPLE);
    std::vector<u32> counts(search.samples, 77), scores(slots, 77);
    std::vector<double> poses(slots * 12, 77.0);
    Finds finds;
    memset(&finds, 0, sizeof finds);
    search.exact = exact.data();
    search.blocks = blocks.data();
    search.drawn = drawn.data();
    search.counts = counts.data();
    search.poses = poses.data();
    search.scores = scores.data();
    search.outbox = &finds;
    const auto launch = [&](unsigned blocks, unsigned threads, void (*kernel)(const Round&)) {
        gridDim.x = blocks;
        for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) lanes::run(threads, [&] { kernel(search); });
    };
    // More samples than threads and blocks: each has several.
    launch(2, SOLVE_THREADS, solve_samples<Kind>);
    launch(3, SIGHT_THREADS, score_samples<Kind>);
    launch(1, KEEP_THREADS, keep_best<Kind>);
    fwrite(counts.data(), sizeof(u32), counts.size(), stdout);
    fwrite(poses.data(), sizeof(double), poses.size(), stdout);
    fwrite(scores.data(), sizeof(u32), scores.size(), stdout);
    fwrite(&finds, sizeof finds, 1, stdout);
}

int main() {
    const std::vector<u32> sizes = take<u32>(4);
    Round search = {};
    search.rows = sizes[1];
    search.samples = sizes[2];
    search.keep = sizes[3];
    if (sizes[0]) {
        run<Relative>(search);
    } else {
        run<Absolute>(search);
    }
}
