// SOG scores and the pivots chosen by them (FlashReg Eqs. 4 and 7): the K edges u < v with the
// highest positive scores, ties by (u, v).
//
// Exact, and independent of the order of execution. The first phase counts how many edges have
// each score, which gives the score of the K-th, the threshold. The second writes the edges above
// it, and those at it if there is room for them all: whoever puts them in order leaves out what is
// not wanted. Where many edges have the same score there is no room; then the second phase counts
// those of each row, by which each can be found again. The phases are one kernel whose blocks wait
// for each other, or two.
//
// Where there is room, edges and scores are kept in a list between the phases. A dense graph has
// more edges than room: then the phases find and score them again, in rows where there are any.
#ifndef FLASHREG_SOG_CU
#define FLASHREG_SOG_CU
#include "common.cuh"

#define SOG_THREADS 256
#define SOG_WARPS (SOG_THREADS / WARP)
// Words of a row whose edges are one task of a warp, without the list.
#define SEGMENT 4
// Without the list: words of the row that a lane keeps in registers, edges counted at a time.
#define HELD 4
#define ABREAST 4
// With it: lanes that count for an edge together, 16 bytes of the row that each keeps, and of the
// other row at a time.
#define TEAM 8
#define HELD_QUADS 8
#define LOADED_QUADS 4
// Scores counted in shared memory; higher ones, which are rare or all alike, are counted directly.
#define LOW_SCORES 1024
// Scores of which a thread reads the counts at a time.
#define BINS 4

// Shared memory of a block.
struct Sog {
    u32 low[LOW_SCORES];
    u16 ends[SOG_WARPS][SEGMENT * 64];
    u32 sums[SOG_WARPS];
    u32 threshold, above, at;
};

// Four counts below 2^15 per lane; lane i < 4 gets the sum of the i-th over the warp.
__device__ inline u32 sum_of_four(const u32* sum) {
    const u32 low = warp_sum(sum[0] | sum[1] << 16), high = warp_sum(sum[2] | sum[3] << 16);
    const u32 two = lane_id() < 2 ? low : high;
    return lane_id() % 2 == 0 ? two & 0xffffu : two >> 16;
}

// Scores the edges of the list, keeps the scores, and calls use(score) for each. A warp takes
// neighbouring edges, which mostly share their row u.
template <typename Use>
__device__ inline void score_list(const Work& m, u32 listed, Use use) {
    const u32 quads = m.words / 2, part = lane_id() % TEAM, team = lane_id() / TEAM;
    const u32 warps = gridDim.x * SOG_WARPS, teams = WARP / TEAM;
    const u32 each = (listed + teams * warps - 1) / (teams * warps) * teams;
    const u32 start = (blockIdx.x * SOG_WARPS + warp_id()) * each;
    const u32 end = start + each < listed ? start + each : listed;
    const uint4* rows = reinterpret_cast<const uint4*>(m.rows);
    uint4 own[HELD_QUADS];
    // Which of them are not zero.
    u32 some = 0, held = MAX_ROWS;
    for (u32 first = start; first < end; first += WARP) {
        const u32 edges = m.edges[first + lane_id() < end ? first + lane_id() : end - 1];
#pragma unroll 1
        for (u32 s = 0; s < WARP && first + s < end; s += teams) {
            const u32 edge = __shfl_sync(FULL, edges, s + team), u = edge >> 16;
            const uint4* row_u = rows + (u64)u * quads;
            const uint4* row_v = rows + (u64)(edge & 0xffffu) * quads;
            if (u != held) {
                held = u;
                some = 0;
#pragma unroll
                for (u32 h = 0; h < HELD_QUADS; ++h) {
                    const u32 q = TEAM * h + part;
                    own[h] = q < quads ? row_u[q] : make_uint4(0, 0, 0, 0);
                }
#pragma unroll
                for (u32 h = 0; h < HELD_QUADS; ++h) {
                    some |= ((own[h].x | own[h].y | own[h].z | own[h].w) != 0 ? 1u : 0u) << h;
                }
            }
            BitCount bits;
#pragma unroll
            for (u32 begin = 0; begin < HELD_QUADS; begin += LOADED_QUADS) {
                if (TEAM * begin >= quads) break;
                uint4 other[LOADED_QUADS];
#pragma unroll
                for (u32 h = 0; h < LOADED_QUADS; ++h) {
                    const u32 q = begin + h;
                    if (TEAM * q >= quads) break;
                    other[h] = some >> q & 1 ? row_v[TEAM * q + part] : make_uint4(0, 0, 0, 0);
                }
#pragma unroll
                for (u32 h = 0; h < LOADED_QUADS; ++h) {
                    if (TEAM * (begin + h) >= quads) break;
                    bits.add_common(own[begin + h], other[h]);
                }
            }
#pragma unroll 1
            for (u32 q = TEAM * HELD_QUADS + part; q < quads; q += TEAM) bits.add_common(row_u[q], row_v[q]);
            u32 score = bits.total();
#pragma unroll
            for (u32 step = TEAM / 2; step > 0; step /= 2) score += __shfl_xor_sync(FULL, score, step);
            const u32 e = first + s + team;
            if (part == 0 && e < end) {
                m.scores[e] = (u16)score;
                use(score);
            }
        }
    }
}

// Without the list: calls use(u, v, score) for every edge u < v of the rows that are wanted whose
// score can be at least `least`; some lane of some warp does it, and warps are not together then.
template <typename Wanted, typename Use>
__device__ inline void walk(const Work& m, Sog& sog, u32 least, Wanted wanted, Use use) {
    u16* ends = sog.ends[warp_id()];
    const u32 lane = lane_id(), n = m.n, words = m.words;
    const u32 segments = (words + SEGMENT - 1) / SEGMENT, warps = gridDim.x * SOG_WARPS;
    // Neighbouring warps take different rows, so that long ones are shared out.
    for (u32 task = blockIdx.x * SOG_WARPS + warp_id(); task < n * segments; task += warps) {
        const u32 u = task % n, first = task / n * SEGMENT;
        if (first + SEGMENT <= u / 64 || !wanted(u)) continue;
        const u64* row = m.rows + (u64)u * words;
        // A lane lists the edges of eight columns.
        const u32 k = first + lane / 8, column = k * 64 + 8 * (lane % 8);
        const u64 word = k < words ? row[k] & bits_above(u, k) : 0;
        u32 mine = (u32)(word >> (8 * (lane % 8))) & 0xffu;
        if (least > 1) {
            for (u32 rest = mine; rest != 0; rest &= rest - 1) {
                const u32 bit = __ffs(rest) - 1;
                // The degree of u is not below: its best score reaches `least`.
                if (score_bound(m.degrees[column + bit], MAX_ROWS) < least) mine &= ~(1u << bit);
            }
        }
        if (!__any_sync(FULL, mine != 0)) continue;
        const u32 upto = warp_prefix(__popc(mine));
        u32 place = upto - __popc(mine);
        for (u32 rest = mine; rest != 0; rest &= rest - 1) {
            ends[place++] = (u16)(column + __ffs(rest) - 1);
        }
        const u32 count = __shfl_sync(FULL, upto, WARP - 1);
        u64 held[HELD];
#pragma unroll
        for (u32 h = 0; h < HELD; ++h) {
            held[h] = lane + WARP * h < words ? row[lane + WARP * h] : 0;
        }
        __syncwarp();
        for (u32 base = 0; base < count; base += ABREAST) {
            const u64* other[ABREAST];
            u32 sum[ABREAST] = {};
#pragma unroll
            for (u32 i = 0; i < ABREAST; ++i) {
                const u32 e = base + i < count ? base + i : base;
                other[i] = m.rows + (u64)ends[e] * words;
            }
#pragma unroll
            for (u32 h = 0; h < HELD; ++h) {
                if (held[h] == 0) continue;
#pragma unroll
                for (u32 i = 0; i < ABREAST; ++i) {
                    sum[i] += __popcll(held[h] & other[i][lane + WARP * h]);
                }
            }
            for (u32 w = lane + WARP * HELD; w < words; w += WARP) {
                const u64 own = row[w];
                if (own == 0) continue;
#pragma unroll
                for (u32 i = 0; i < ABREAST; ++i) sum[i] += __popcll(own & other[i][w]);
            }
            const u32 score = sum_of_four(sum);
            if (lane < ABREAST && base + lane < count) use(u, (u32)ends[base + lane], score);
        }
        __syncwarp();
    }
}

// at[u]: edges of row u at the threshold; from bit 16 on, without the list, its best score.
__device__ inline u32 best_of(const Work& m, u32 u) { return __ldcg(m.at + u) >> 16; }

__device__ inline void clear_low(u32* low) {
    for (u32 s = threadIdx.x; s < LOW_SCORES; s += SOG_THREADS) low[s] = 0;
    __syncthreads();
}

// Adds what a block has counted in shared memory; `best` is the best score that a thread has seen.
__device__ inline void add_low(const Work& m, Totals& totals, const u32* low, u32 (&sums)[SOG_WARPS], u32 best) {
    best = warp_max(best);
    // The last sums may still be read.
    __syncthreads();
    if (lane_id() == 0) sums[warp_id()] = best;
    __syncthreads();
    for (u32 s = threadIdx.x; s < LOW_SCORES; s += SOG_THREADS) {
        if (low[s] > 0) atomicAdd(&m.histogram[s], low[s]);
    }
    if (threadIdx.x > 0) return;
    for (u32 w = 1; w < SOG_WARPS; ++w) best = sums[w] > best ? sums[w] : best;
    if (best > 0) atomicMax(&totals.best, best);
}

// Counts the edges of each score and finds the best.
__device__ inline void scores_phase(const Work& m, u32 round, Sog& sog) {
    Totals& totals = m.findings->totals[round];
    clear_low(sog.low);
    // Equal scores one after another are counted together.
    u32 last = 0, run = 0, best = 0;
    auto flush = [&]() {
        if (run > 0 && last > 0) atomicAdd(last < LOW_SCORES ? &sog.low[last] : &m.histogram[last], run);
    };
    auto count = [&](u32 score) {
        if (score != last) {
            flush();
            last = score;
            run = 0;
            best = score > best ? score : best;
        }
        ++run;
    };
    const u32 listed = totals.listed;
    if (listed <= m.room) {
        // Edges and scores are read eight at a time.
        if (blockIdx.x == 0 && threadIdx.x < (8 - listed % 8) % 8) {
            m.edges[listed + threadIdx.x] = 0;
            m.scores[listed + threadIdx.x] = 0;
        }
        score_list(m, listed, count);
    } else {
        u32 last_row = MAX_ROWS, last_best = 0;
        walk(m, sog, 1, [&](u32 u) { return m.degrees[u] > 1; }, [&](u32 u, u32, u32 score) {
            count(score);
            if (u != last_row || score > last_best) {
                last_row = u;
                last_best = score;
                atomicMax(&m.at[u], score << 16);
            }
        });
    }
    flush();
    add_low(m, totals, sog.low, sog.sums, best);
}

// The score of the k-th best edge, k > 0, found by every block for itself; zero if there are fewer.
// `fits`: there is room for all edges at it.
__device__ inline u32 find_threshold(const Work& m, Totals& totals, u32 k, Sog& sog, bool& fits) {
    const u32 best = __ldcg(&totals.best);
    u32 above = 0;
    bool found = false;
    // From the best score down to 1, some next to each other a thread.
    for (u32 done = 0; done < best && !found; done += SOG_THREADS * BINS) {
        u32 here[BINS], mine = 0, all;
#pragma unroll
        for (u32 b = 0; b < BINS; ++b) {
            const u32 place = done + threadIdx.x * BINS + b;
            here[b] = place < best ? __ldcg(m.histogram + (best - place)) : 0;
            mine += here[b];
        }
        u32 before = above + block_prefix(mine, sog.sums, all) - mine;
#pragma unroll
        for (u32 b = 0; b < BINS; ++b) {
            if (before < k && before + here[b] >= k) {
                sog.threshold = best - (done + threadIdx.x * BINS + b);
                sog.above = before;
                sog.at = here[b];
            }
            before += here[b];
        }
        above += all;
        found = above >= k;
    }
    __syncthreads();
    const u32 threshold = found ? sog.threshold : 0;
    if (found) above = sog.above;
    fits = !found || sog.at <= m.tie_room;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        totals.threshold = threshold;
        totals.ties = fits ? 0 : k - above;
        totals.pivots = found ? k : above;
    }
    return threshold;
}

// Counts the edges at the threshold in their rows; those of a row one after another together.
struct TieCount {
    u32 row = 0, run = 0;

    __device__ inline void flush(const Work& m) {
        if (run > 0) atomicAdd(&m.at[row], run);
    }
    __device__ inline void add(const Work& m, u32 u) {
        if (u != row) {
            flush(m);
            row = u;
            run = 0;
        }
        ++run;
    }
};

// From the list: writes the edges above the threshold, and those at it, if there is room, or counts them.
__device__ inline void count_list(const Work& m, Totals& totals, u32 listed, u32 threshold, bool fits) {
    TieCount tied;
    // A warp has 256 edges at a time.
    for (u32 first = (blockIdx.x * SOG_WARPS + warp_id()) * 256; first < listed; first += gridDim.x * SOG_WARPS * 256) {
        const u32 start = first + 8 * lane_id();
        uint4 scores = make_uint4(0, 0, 0, 0), low = scores, high = scores;
        if (start < listed) scores = __ldcg(reinterpret_cast<const uint4*>(m.scores + start));
        const u32 two[4] = {scores.x, scores.y, scores.z, scores.w};
        u32 above = 0, at = 0;
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            const u32 score = start + i < listed ? two[i / 2] >> (16 * (i % 2)) & 0xffffu : 0;
            above |= (score > threshold ? 1u : 0u) << i;
            at |= (score > 0 && score == threshold ? 1u : 0u) << i;
        }
        if (!__any_sync(FULL, (above | at) != 0)) continue;
        if ((above | at) != 0) {
            const uint4* of = reinterpret_cast<const uint4*>(m.edges + start);
            low = of[0];
            high = of[1];
        }
        const u32 edges[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        // All of the warp take their places at once; ties from bit 16 on.
        const u32 mine = __popc(above) | __popc(at) << 16, upto = warp_prefix(mine);
        u32 key_place = 0, tie_place = 0;
        if (lane_id() == WARP - 1) {
            if ((upto & 0xffffu) > 0) key_place = atomicAdd(&totals.placed, upto & 0xffffu);
            if (fits && (upto >> 16) > 0) tie_place = atomicAdd(&totals.tied, upto >> 16);
        }
        key_place = __shfl_sync(FULL, key_place, WARP - 1) + ((upto - mine) & 0xffffu);
        tie_place = __shfl_sync(FULL, tie_place, WARP - 1) + ((upto - mine) >> 16);
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            const u32 u = edges[i] >> 16, v = edges[i] & 0xffffu;
            if (above >> i & 1) m.keys[key_place++] = pivot_key(u, v, two[i / 2] >> (16 * (i % 2)) & 0xffffu);
            if (!(at >> i & 1)) continue;
            if (fits) {
                m.ties[tie_place++] = edges[i];
            } else {
                tied.add(m, u);
            }
        }
    }
    tied.flush(m);
}

// Without it.
__device__ inline void count_rows(const Work& m, Totals& totals, u32 threshold, bool fits, Sog& sog) {
    const u32 least = threshold > 0 ? threshold : 1;
    TieCount tied;
    walk(m, sog, least, [&](u32 u) { return best_of(m, u) >= least; }, [&](u32 u, u32 v, u32 score) {
        if (score > threshold) {
            m.keys[atomicAdd(&totals.placed, 1)] = pivot_key(u, v, score);
        } else if (fits && score == threshold) {
            m.ties[atomicAdd(&totals.tied, 1)] = u << 16 | v;
        } else if (score == threshold) {
            tied.add(m, u);
        }
    });
    tied.flush(m);
}

// Writes the edges above the threshold, and those at it or how many of these are in each row.
__device__ inline void count_phase(const Work& m, u32 round, Sog& sog) {
    begin(m, round, PIVOTS);
    Totals& totals = m.findings->totals[round];
    const u32 k = m.pivots_wanted, listed = totals.listed;
    if (k == 0) return;
    bool fits;
    const u32 threshold = find_threshold(m, totals, k, sog, fits);
    if (listed <= m.room) {
        count_list(m, totals, listed, threshold, fits);
    } else {
        count_rows(m, totals, threshold, fits, sog);
    }
}

// Waits until all blocks of the grid are here; all must be resident. Bit 31 turns over when the
// last one comes, and the other bits are as before then, so that the next barrier, of this grid or
// of another, finds what it needs.
__device__ inline void grid_barrier(u32* counter) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        const u32 before = atomicAdd(counter, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
        u32 now;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
        } while (((before ^ now) & 0x80000000u) == 0);
        __threadfence();
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(SOG_THREADS, 3) sog(const Memory memory, const u32 round) {
    const Work m(memory, round);
    __shared__ Sog shared;
    scores_phase(m, round, shared);
    grid_barrier(m.barrier);
    count_phase(m, round, shared);
}

extern "C" __global__ void __launch_bounds__(SOG_THREADS, 3) sog_scores(const Memory memory, const u32 round) {
    const Work m(memory, round);
    __shared__ Sog shared;
    scores_phase(m, round, shared);
}

extern "C" __global__ void __launch_bounds__(SOG_THREADS, 4) sog_count(const Memory memory, const u32 round) {
    const Work m(memory, round);
    __shared__ Sog shared;
    count_phase(m, round, shared);
}
#endif
