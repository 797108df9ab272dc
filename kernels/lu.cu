// Batches of small square systems, each solved by a tile of lanes (lu.cuh). Compiled for one kind of
// number, size and tile at a time.
#include "lu.cuh"

#ifndef LU_NUMBER
#define LU_NUMBER Complex<float>
#define LU_SIZE 16
#define LU_LANES 8
#define LU_WARPS 2
#endif

typedef LuTile<LU_NUMBER, LU_SIZE, LU_LANES> Tile;

// Rows of a lane that one access reads or writes: as many as 16 bytes hold and all addresses allow.
template <int MOST>
constexpr int AT_ONCE = Tile::ROWS % MOST || LU_SIZE % MOST ? AT_ONCE<MOST / 2> : MOST;
template <>
constexpr int AT_ONCE<1> = 1;
constexpr int GROUP = AT_ONCE<Tile::PER>;

struct alignas(GROUP * sizeof(LU_NUMBER)) Group {
    LU_NUMBER v[GROUP];
};

// a: `count` matrices, column by column; b and x: right sides and unknowns; failed: see
// `LuTile::solve`, whose x is zero then. Blocks have LU_WARPS warps.
extern "C" __global__ void __launch_bounds__(LU_WARPS* WARP)
    lu_solve(const LU_NUMBER* __restrict__ a, const LU_NUMBER* __restrict__ b, LU_NUMBER* __restrict__ x,
             u32* __restrict__ failed, u32 count) {
    __shared__ Tile::Shared shared[LU_WARPS];
    Tile tile(shared[warp_id()]);
    const u32 warp = blockIdx.x * LU_WARPS + warp_id();
    const u64 matrix = (u64)warp * Tile::TILES + tile.tile;
    const bool is_there = tile.tile < Tile::TILES && matrix < count;
    const u32 row = tile.lane * Tile::ROWS;
#pragma unroll
    for (int j = 0; j <= LU_SIZE; j++) {
        const LU_NUMBER* column = j < LU_SIZE ? a + (matrix * LU_SIZE + j) * LU_SIZE : b + matrix * LU_SIZE;
#pragma unroll
        for (int r = 0; r < Tile::ROWS; r += GROUP) {
            Group group = {};
            if (is_there && row + r < LU_SIZE) group = *(const Group*)(column + row + r);
#pragma unroll
            for (int i = 0; i < GROUP; i++) tile.a[r + i][j] = group.v[i];
        }
    }
    const u32 step = tile.solve();
    if (!is_there) return;
    const LU_NUMBER* unknowns = tile.unknowns();
#pragma unroll
    for (int r = 0; r < Tile::ROWS; r += GROUP) {
        if (row + r >= LU_SIZE) break;
        Group group = {};
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            if (step == 0) group.v[i] = unknowns[row + r + i];
        }
        *(Group*)(x + matrix * LU_SIZE + row + r) = group;
    }
    if (tile.lane == 0) failed[matrix] = step;
}
