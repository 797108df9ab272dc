// Real roots of polynomials: src/estimation/solvers/polynomial.rs, operation by operation, where it is
// explained.
#ifndef FLASHREG_POLYNOMIAL_CUH
#define FLASHREG_POLYNOMIAL_CUH
#include "common.cuh"

namespace polynomial {
constexpr u32 DEGREE = 10;
constexpr int HALVINGS = 20, STEPS = 60;
constexpr double CLOSE = 1e-8;

// By which the coefficient k counts in the node i.
struct Nodes {
    double at[DEGREE + 1][DEGREE + 1];

    __device__ constexpr Nodes() : at() {
        for (u32 i = 0; i <= DEGREE; ++i) {
            at[i][0] = 1.0;
            for (u32 k = 1; k <= i; ++k) at[i][k] = at[i][k - 1] * (double)(i + 1 - k) / (double)(DEGREE + 1 - k);
        }
    }
};
__constant__ Nodes NODES;

// What is left of a search: a bracket with one root and where to begin, or two ends of a piece that may have
// two.
struct Leaf {
    double x, low, high;
    // 1: a falling polynomial, 2: a rising one, 0: both ends.
    u32 kind;
};

// Number k of the polynomial that is searched in [0, 1]: as it is or reversed, and mirrored or not.
__device__ inline double coefficient(const double* c, bool is_reversed, bool is_mirrored, u32 k) {
    const double value = c[is_reversed ? DEGREE - k : k];
    return is_mirrored && k % 2 == 1 ? -value : value;
}

__device__ inline u32 crossings(const double (&polygon)[DEGREE + 1]) {
    u32 n = 0;
#pragma unroll
    for (u32 k = 0; k < DEGREE; ++k) n += (polygon[k] < 0.0) != (polygon[k + 1] < 0.0);
    return n;
}

// The pieces of [0, 1] with roots, in their order; how many of them. No more are asked for than there can be
// roots.
__device__ inline u32 isolate(const double* c, bool is_reversed, bool is_mirrored, Leaf (&leaves)[DEGREE + 1]) {
    double polygon[DEGREE + 1], waiting[HALVINGS][DEGREE + 1], from[HALVINGS], low = 0.0, width = 1.0;
    int left[HALVINGS], halvings = HALVINGS, count = 0;
#pragma unroll 1
    for (u32 i = 0; i <= DEGREE; ++i) {
        double sum = coefficient(c, is_reversed, is_mirrored, 0);
        for (u32 k = 1; k <= i; ++k) sum += NODES.at[i][k] * coefficient(c, is_reversed, is_mirrored, k);
        waiting[0][i] = sum;
    }
#pragma unroll
    for (u32 i = 0; i <= DEGREE; ++i) polygon[i] = waiting[0][i];
    u32 n = 0, roots = 0;
    for (;;) {
        const u32 signs = crossings(polygon);
        if (signs > 1 && halvings > 0) {
            width = 0.5 * width;
            --halvings;
            double right[DEGREE + 1];
#pragma unroll
            for (u32 i = 0; i <= DEGREE; ++i) right[i] = polygon[i];
#pragma unroll
            for (u32 k = 1; k <= DEGREE; ++k) {
#pragma unroll
                for (u32 i = 0; i <= DEGREE - k; ++i) right[i] = 0.5 * (right[i] + right[i + 1]);
                polygon[k] = right[0];
            }
#pragma unroll
            for (u32 i = 0; i <= DEGREE; ++i) waiting[count][i] = right[i];
            from[count] = low + width;
            left[count] = halvings;
            ++count;
            continue;
        }
        if (signs == 1 && roots <= DEGREE) {
            const bool is_rising = polygon[0] < 0.0;
            // The first edge that crosses, or else the last.
            double first = polygon[DEGREE - 1], second = polygon[DEGREE], at = DEGREE - 1;
#pragma unroll
            for (int k = DEGREE - 2; k >= 0; --k) {
                if ((polygon[k + 1] < 0.0) != is_rising) {
                    first = polygon[k];
                    second = polygon[k + 1];
                    at = k;
                }
            }
            const double share = (at + first / (first - second)) / (double)DEGREE;
            leaves[n++] = {low + share * width, low, low + width, is_rising ? 2u : 1u};
            roots += 1;
        } else if (signs > 1 && roots < DEGREE) {
            leaves[n++] = {0.0, low, low + width, 0};
            roots += 2;
        }
        if (count == 0) return n;
        --count;
#pragma unroll
        for (u32 i = 0; i <= DEGREE; ++i) polygon[i] = waiting[count][i];
        low = from[count];
        halvings = left[count];
        width = 1.0;
        for (int k = halvings; k < HALVINGS; ++k) width = 0.5 * width;
    }
}

// The only root of a leaf.
__device__ inline double root(const double* c, bool is_reversed, bool is_mirrored, const Leaf& leaf) {
    double form[DEGREE + 1], x = leaf.x, low = leaf.low, high = leaf.high;
    const bool is_rising = leaf.kind == 2;
#pragma unroll
    for (u32 k = 0; k <= DEGREE; ++k) form[k] = coefficient(c, is_reversed, is_mirrored, k);
    for (int step = 0; step < STEPS; ++step) {
        double value = form[DEGREE], slope = 0.0;
#pragma unroll
        for (int k = DEGREE - 1; k >= 0; --k) {
            slope = slope * x + value;
            value = value * x + form[k];
        }
        const bool is_below = (value < 0.0) == is_rising;
        low = is_below ? x : low;
        high = is_below ? high : x;
        const double newton = x - value / slope;
        const double next = newton >= low && newton <= high ? newton : 0.5 * (low + high), by = next - x;
        x = next;
        if (by < CLOSE && by > -CLOSE) break;
    }
    return x;
}
}  // namespace polynomial
#endif
