// The capacities of the paper (FlashReg Eqs. 5 and 6), in place of the first phase of sog.cu: the
// first L neighbours of a row vote, its first L edges u < v that get a vote are kept, and the best m
// of these, ties by v, are offered as pivots. As src/registration/bounded.rs and `select_bounded` of
// the CPU.
//
// The list then holds the edges that are kept, those of a row together and ascending, with their
// scores: once for the search of triples, and once for the selection of pivots, where those that
// are not offered have none. A row takes places by eights before it is known how many of its edges
// get a vote; what is over has no score.
#include "sog.cu"

// Edges of a row that are scored at a time, and those of a thread.
#define ENDS 1024
#define OWN_ENDS (ENDS / SOG_THREADS)

// Shared memory of a block.
struct Bound {
    u32 low[LOW_SCORES];
    u32 sums[SOG_WARPS];
    // Where the edges of the row go.
    u32 start;
    // Voters of the row, and ends of the edges that are kept, as bits.
    uint4 voters[MAX_WORDS / 2], kept[MAX_WORDS / 2];
    // Ends of some edges and their scores.
    u16 ends[ENDS], scores[ENDS];
};
static_assert(MAX_WORDS / 2 <= SOG_THREADS, "a thread has 16 bytes of the row");

// The first bits of a word.
__device__ inline u64 first_bits(u64 word, u32 count) {
    if (__popcll(word) <= count) return word;
    u64 rest = word;
    for (u32 i = 0; i < count; ++i) rest &= rest - 1;
    return word ^ rest;
}

__device__ inline uint4 as_quad(u64 low, u64 high) {
    return make_uint4((u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32));
}

// Counts the voters that are joined to each of the ends.
__device__ inline void count_votes(const Work& m, u32 count, Bound& b) {
    const u32 quads = m.words / 2, part = lane_id() % TEAM;
    for (u32 first = warp_id() * (WARP / TEAM); first < count; first += SOG_THREADS / TEAM) {
        const u32 e = first + lane_id() / TEAM;
        const uint4* row = reinterpret_cast<const uint4*>(m.rows) + (u64)b.ends[e < count ? e : first] * quads;
        BitCount votes;
        for (u32 begin = part; begin < quads; begin += TEAM * LOADED_QUADS) {
            uint4 own[LOADED_QUADS], other[LOADED_QUADS];
#pragma unroll
            for (u32 h = 0; h < LOADED_QUADS; ++h) {
                const u32 q = begin + TEAM * h;
                own[h] = q < quads ? b.voters[q] : make_uint4(0, 0, 0, 0);
                other[h] = (own[h].x | own[h].y | own[h].z | own[h].w) != 0 ? row[q] : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (u32 h = 0; h < LOADED_QUADS; ++h) votes.add_common(own[h], other[h]);
        }
        u32 score = votes.total();
#pragma unroll
        for (u32 step = TEAM / 2; step > 0; step /= 2) score += __shfl_xor_sync(FULL, score, step);
        if (part == 0 && e < count) b.scores[e] = (u16)score;
    }
}

// Offers the best of the `kept` edges that a row has from `start` on, in a room of `room`; none has
// a score above `most`. By a warp; gives the best score that the lane has seen.
__device__ inline u32 offer(const Work& m, u32 start, u32 kept, u32 room, u32 most, Bound& b) {
    const u32 pool = m.frame->pool_size;
    const u16* scores = m.kept_scores + start;
    auto reach = [&](u32 least) {
        u32 some = 0;
        for (u32 i = lane_id(); i < kept; i += WARP) some += scores[i] >= least;
        return warp_sum(some);
    };
    // All above the threshold, and the first ones at it.
    u32 threshold = 0, ties = 0;
    if (kept > pool) {
        for (u32 bit = 1u << (31 - __clz(most)); bit > 0; bit /= 2) {
            if (reach(threshold | bit) >= pool) threshold |= bit;
        }
        ties = pool - reach(threshold + 1);
    }
    u32 best = 0;
    for (u32 first = 0; first < room; first += WARP) {
        const u32 i = first + lane_id(), score = i < kept ? scores[i] : 0;
        const u32 at = __ballot_sync(FULL, score == threshold);
        const u32 before = __popc(at & ((1u << lane_id()) - 1)), here = __popc(at);
        const bool offered = score > threshold || (score == threshold && before < ties);
        ties -= here < ties ? here : ties;
        if (i < room) m.scores[start + i] = (u16)(offered ? score : 0);
        if (i < room && i >= kept) m.edges[start + i] = 0;
        if (offered) {
            atomicAdd(score < LOW_SCORES ? &b.low[score] : &m.histogram[score], 1u);
            best = score > best ? score : best;
        }
    }
    return best;
}

// A block a row at a time. Follows `prune`, which lists nothing then.
extern "C" __global__ void __launch_bounds__(SOG_THREADS, 4) bound(const Memory memory, const u32 round) {
    const Work m(memory, round);
    __shared__ Bound b;
    Totals& totals = m.findings->totals[round];
    const u32 n = m.n, words = m.words, capacity = m.frame->row_capacity, k = 2 * threadIdx.x;
    clear_low(b.low);
    u32 best = 0, cut_rows = 0, cut_voters = 0, cut_edges = 0, cut_pool = 0;
    for (u32 u = blockIdx.x; u < n; u += gridDim.x) {
        const u64* row = m.rows + (u64)u * words;
        const u64 low = k < words ? row[k] : 0, high = k < words ? row[k + 1] : 0;
        const u64 low_above = low & bits_above(u, k), high_above = high & bits_above(u, k + 1);
        // Neighbours, and from bit 16 on those above u.
        const u32 bits_low = __popcll(low), above = __popcll(low_above) + __popcll(high_above);
        const u32 bits = (bits_low + __popcll(high)) | above << 16;
        u32 all;
        const u32 less = block_prefix(bits, b.sums, all) - bits, before = less & 0xffffu, place = less >> 16;
        const u32 left = before < capacity ? capacity - before : 0;
        b.voters[threadIdx.x] =
            as_quad(first_bits(low, left), first_bits(high, bits_low < left ? left - bits_low : 0));
        b.kept[threadIdx.x] = make_uint4(0, 0, 0, 0);
        // The end of an edge that scores has another neighbour.
        const u32 degree = all & 0xffffu, edges = degree > 1 ? all >> 16 : 0;
        const u32 voters = degree < capacity ? degree : capacity;
        const u32 room = ((edges < capacity ? edges : capacity) + 7) / 8 * 8;
        if (threadIdx.x == 0) {
            b.start = room > 0 ? atomicAdd(&totals.listed, room) : 0;
            m.starts[u] = b.start;
        }

        u32 with_votes = 0;
        for (u32 base = 0; base < edges; base += ENDS) {
            const u32 count = edges - base < ENDS ? edges - base : ENDS;
            // Wraps around for those listed before.
            u32 to = place - base;
            for (u64 rest = low_above; rest != 0; rest &= rest - 1, ++to) {
                if (to < ENDS) b.ends[to] = (u16)(k * 64 + __ffsll(rest) - 1);
            }
            for (u64 rest = high_above; rest != 0; rest &= rest - 1, ++to) {
                if (to < ENDS) b.ends[to] = (u16)((k + 1) * 64 + __ffsll(rest) - 1);
            }
            __syncthreads();
            count_votes(m, count, b);
            __syncthreads();
            const u32 first = OWN_ENDS * threadIdx.x;
            u32 own = 0, here;
#pragma unroll
            for (u32 i = 0; i < OWN_ENDS; ++i) own += first + i < count && b.scores[first + i] > 0;
            u32 nth = with_votes + block_prefix(own, b.sums, here) - own;
#pragma unroll
            for (u32 i = 0; i < OWN_ENDS; ++i) {
                const u32 e = first + i;
                if (e >= count || b.scores[e] == 0 || nth >= capacity) continue;
                const u32 v = b.ends[e];
                m.edges[b.start + nth] = u << 16 | v;
                m.kept_scores[b.start + nth] = b.scores[e];
                atomicOr(reinterpret_cast<u32*>(b.kept) + v / 32, 1u << (v % 32));
                ++nth;
            }
            with_votes += here;
            __syncthreads();
        }
        const u32 kept = with_votes < capacity ? with_votes : capacity;
        if (k < words) reinterpret_cast<uint4*>(m.kept)[(u64)u * (words / 2) + threadIdx.x] = b.kept[threadIdx.x];
        if (warp_id() == 0 && room > 0) {
            const u32 of_row = offer(m, b.start, kept, room, voters, b);
            best = of_row > best ? of_row : best;
        }
        cut_rows += degree > voters;
        cut_voters += degree - voters;
        cut_edges += with_votes - kept;
        cut_pool += kept > m.frame->pool_size ? kept - m.frame->pool_size : 0;
    }
    add_low(m, totals, b.low, b.sums, best);
    if (threadIdx.x == 0) {
        if (cut_rows > 0) atomicAdd(&totals.cut_rows, cut_rows);
        if (cut_voters > 0) atomicAdd(&totals.cut_voters, cut_voters);
        if (cut_edges > 0) atomicAdd(&totals.cut_edges, cut_edges);
        if (cut_pool > 0) atomicAdd(&totals.cut_pool, cut_pool);
    }
}
