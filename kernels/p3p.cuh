// The pose of a calibrated camera from three points: src/estimation/solvers/p3p.rs, operation by operation,
// where it is explained. What is picked by a computed index is picked by comparisons here, so that it
// stays in registers.
#ifndef FLASHREG_P3P_CUH
#define FLASHREG_P3P_CUH
#include "sights.cuh"

namespace p3p {
constexpr u32 MOST = 4;
constexpr int CUBIC_STEPS = 20, STEPS = 8;
constexpr double CLOSE = 1e-9, RESIDUAL = 1e-12, DOUBLE = 1e-9, FLAT = 1e-12, SAME = 1e-9;

// Entries 00, 11, 22, 01, 02, 12.
struct Conic {
    double m[6];
};

struct Problem {
    double sigma, k[3], b[3];
};

__device__ inline int largest(double a, double b, double c) { return a >= b && a >= c ? 0 : b >= c ? 1 : 2; }

template <typename T>
__device__ inline T pick(int k, const T& a, const T& b, const T& c) {
    return k == 0 ? a : k == 1 ? b : c;
}

__device__ inline double square_distance(const Triad& a, const Triad& b) {
    const Triad d = minus(a, b);
    return dot(d, d);
}

// a + s b
__device__ inline Conic combined(const Conic& a, const Conic& b, double s) {
    Conic c;
#pragma unroll
    for (int i = 0; i < 6; ++i) c.m[i] = a.m[i] + s * b.m[i];
    return c;
}

__device__ inline Conic adjugate(const Conic& c) {
    const double* m = c.m;
    return {{m[1] * m[2] - m[5] * m[5], m[0] * m[2] - m[4] * m[4], m[0] * m[1] - m[3] * m[3],
             m[4] * m[5] - m[3] * m[2], m[3] * m[5] - m[4] * m[1], m[3] * m[4] - m[0] * m[5]}};
}

__device__ inline double trace(const Conic& a, const Conic& b) {
    return (a.m[0] * b.m[0] + a.m[1] * b.m[1] + a.m[2] * b.m[2]) +
           2.0 * (a.m[3] * b.m[3] + a.m[4] * b.m[4] + a.m[5] * b.m[5]);
}

// det(a + g b) by the powers of g.
__device__ inline void cubic(const Conic& a, const Conic& b, double (&c)[4]) {
    const Conic of_a = adjugate(a), of_b = adjugate(b);
    c[0] = trace(of_a, a) / 3.0;
    c[1] = trace(of_a, b);
    c[2] = trace(of_b, a);
    c[3] = trace(of_b, b) / 3.0;
}

__device__ inline Triad depths(const Problem& p, const Triad& x) {
    return {{x.v[2] + p.sigma * x.v[0], x.v[2] + p.sigma * x.v[1], x.v[2]}};
}

__device__ inline Triad left(const Problem& p, const Triad& x) {
    const Triad d = depths(p, x);
    const double between = x.v[0] - x.v[1];
    return {{between * between + p.k[0] * (d.v[0] * d.v[1]), x.v[0] * x.v[0] + p.k[1] * (d.v[0] * d.v[2]),
             x.v[1] * x.v[1] + p.k[2] * (d.v[1] * d.v[2])}};
}

// Two conics that all solutions meet.
__device__ inline void pencil(const Problem& p, Conic& first, Conic& second) {
    const double s = p.sigma;
    const double half[3] = {0.5 * (p.k[0] * s), 0.5 * (p.k[1] * s), 0.5 * (p.k[2] * s)};
    const Conic f0 = {{1.0, 1.0, p.k[0], half[0] * s - 1.0, half[0], half[0]}};
    const Conic f1 = {{1.0, 0.0, p.k[1], 0.0, half[1], 0.0}};
    const Conic f2 = {{0.0, 1.0, p.k[2], 0.0, 0.0, half[2]}};
    const int last = largest(p.b[0], p.b[1], p.b[2]);
    const Conic of_last = pick(last, f0, f1, f2);
    const Conic a = combined(pick(last, f1, f2, f0), of_last, -pick(last, p.b[1], p.b[2], p.b[0]));
    const Conic b = combined(pick(last, f2, f0, f1), of_last, -pick(last, p.b[2], p.b[0], p.b[1]));
    double c[4];
    cubic(a, b, c);
    const double sum = (c[0] + c[2]) + (c[1] + c[3]), difference = (c[0] + c[2]) - (c[1] + c[3]);
    const double shorter = 0.3535533905932738;
    const double sizes[4] = {fabs(c[0]), fabs(c[3]), shorter * fabs(sum), shorter * fabs(difference)};
    int best = 0;
    double most = sizes[0];
#pragma unroll
    for (int k = 1; k < 4; ++k) {
        if (sizes[k] > most) {
            best = k;
            most = sizes[k];
        }
    }
    first = best == 1 ? a : b;
    second = best == 0 ? a : best == 1 ? b : combined(a, b, best == 2 ? 1.0 : -1.0);
}

// The real root of c0 + c1 x + c2 x^2 + c3 x^3 that is farthest from the others.
__device__ inline double isolated_root(const double (&c)[4]) {
    const double b2 = c[2] / c[3], b1 = c[1] / c[3], b0 = c[0] / c[3];
    const double m = -b2 / 3.0;
    const double p = b1 + b2 * m, q = ((m + b2) * m + b1) * m + b0;
    const double size = fabs(q);
    const double quarter = __dsqrt_rn(__dsqrt_rn(size));
    const double third = quarter * __dsqrt_rn(__dsqrt_rn(quarter));
    double t;
    if (p < 0.0) {
        const double twice = 2.0 * __dsqrt_rn(-p / 3.0), other = 1.7 * third;
        t = twice > other ? twice : other;
    } else {
        const double other = size / p;
        t = other < 1.1 * third ? other : 1.1 * third;
    }
    for (int k = 0; k < CUBIC_STEPS; ++k) {
        const double next = t - ((t * t + p) * t - size) / (3.0 * (t * t) + p);
        const bool is_last = fabs(t - next) <= 1e-9 * t;
        t = next;
        if (is_last) break;
    }
    const double x = m + (q > 0.0 ? -t : t);
    const double slope = (3.0 * x + 2.0 * b2) * x + b1;
    const double step = (((x + b2) * x + b1) * x + b0) / slope;
    return fabs(step) < 1e-6 * (1.0 + fabs(x)) ? x - step : x;
}

// The two lines of a degenerate conic in the pencil.
__device__ inline bool lines(const Conic& first, const Conic& second, Triad (&found)[2]) {
    double c[4];
    cubic(first, second, c);
    const Conic conic = combined(first, second, isolated_root(c)), adjoint = adjugate(conic);
    const double *m = conic.m, *a = adjoint.m;
    int k = 0;
    double most = fabs(a[0]);
#pragma unroll
    for (int i = 1; i < 3; ++i) {
        if (fabs(a[i]) > most) {
            k = i;
            most = fabs(a[i]);
        }
    }
    const double size = __dsqrt_rn(-pick(k, a[0], a[1], a[2]));
    Triad p = {{0.0, 0.0, 0.0}};
    if (size > 0.0) {
        p = {{pick(k, a[0], a[3], a[4]) / size, pick(k, a[3], a[1], a[5]) / size, pick(k, a[4], a[5], a[2]) / size}};
    }
    const Triad n[3] = {{{m[0], m[3] - p.v[2], m[4] + p.v[1]}},
                        {{m[3] + p.v[2], m[1], m[5] - p.v[0]}},
                        {{m[4] - p.v[1], m[5] + p.v[0], m[2]}}};
    int row = 0, column = 0;
    most = fabs(n[0].v[0]);
#pragma unroll
    for (int i = 0; i < 9; ++i) {
        const double entry = fabs(n[i / 3].v[i % 3]);
        if (entry > most) {
            row = i / 3;
            column = i % 3;
            most = entry;
        }
    }
    found[0] = pick(row, n[0], n[1], n[2]);
#pragma unroll
    for (int i = 0; i < 3; ++i) found[1].v[i] = pick(column, n[i].v[0], n[i].v[1], n[i].v[2]);
    return most > 0.0;
}

// Where a line meets a conic.
__device__ inline bool meet(const Triad& line, const Conic& conic, Triad (&found)[2]) {
    const double *l = line.v, *m = conic.m;
    const int k = largest(fabs(l[0]), fabs(l[1]), fabs(l[2]));
    // i and j are the indices behind k, in a circle.
    const double of_k = pick(k, l[0], l[1], l[2]);
    const double u = -pick(k, l[1], l[2], l[0]) / of_k, v = -pick(k, l[2], l[0], l[1]) / of_k;
    const double ii = pick(k, m[1], m[2], m[0]), jj = pick(k, m[2], m[0], m[1]), kk = pick(k, m[0], m[1], m[2]);
    const double ij = pick(k, m[5], m[4], m[3]), ik = pick(k, m[3], m[5], m[4]), jk = pick(k, m[4], m[3], m[5]);
    const double a = ii + u * (2.0 * ik + u * kk);
    const double b = ij + v * ik + u * (jk + v * kk);
    const double c = jj + v * (2.0 * jk + v * kk);
    double discriminant = b * b - a * c;
    if (discriminant < 0.0 && discriminant > -DOUBLE * (b * b + fabs(a * c))) discriminant = 0.0;
    if (!(discriminant >= 0.0)) return false;
    const double root = __dsqrt_rn(discriminant);
    const double w = b < 0.0 ? root - b : -root - b;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        const double first = n == 0 ? w : c, second = n == 0 ? a : w, third = u * first + v * second;
        found[n] = {{pick(k, third, second, first), pick(k, first, third, second), pick(k, second, first, third)}};
    }
    return true;
}

// The solution of three linear equations.
__device__ inline Triad solved(const Triad (&rows)[3], const Triad& right) {
    const Triad columns[3] = {cross(rows[1], rows[2]), cross(rows[2], rows[0]), cross(rows[0], rows[1])};
    const double determinant = dot(rows[0], columns[0]);
    Triad x;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        x.v[i] = (columns[0].v[i] * right.v[0] + columns[1].v[i] * right.v[1] + columns[2].v[i] * right.v[2]) /
                 determinant;
    }
    return x;
}

// The solution to which a point of the conics leads.
__device__ inline bool refined(const Problem& p, const Triad& point, Triad& kept) {
    const Triad at = left(p, point);
    const double length = __dsqrt_rn((p.b[0] + p.b[1] + p.b[2]) / (at.v[0] + at.v[1] + at.v[2]));
    Triad x = scaled(point, point.v[2] < 0.0 ? -length : length);
    double last = 1.0 / 0.0;
    kept = x;
    for (int step = 0; step <= STEPS; ++step) {
        const Triad values = left(p, x);
        const Triad miss = {{values.v[0] - p.b[0], values.v[1] - p.b[1], values.v[2] - p.b[2]}};
        const double size = fabs(miss.v[0]) + fabs(miss.v[1]) + fabs(miss.v[2]);
        if (!(size < last)) break;
        last = size;
        kept = x;
        const Triad d = depths(p, x);
        const double s = p.sigma, between = 2.0 * (x.v[0] - x.v[1]);
        const Triad slopes[3] = {
            {{between + p.k[0] * s * d.v[1], p.k[0] * s * d.v[0] - between, p.k[0] * (d.v[0] + d.v[1])}},
            {{2.0 * x.v[0] + p.k[1] * s * d.v[2], 0.0, p.k[1] * (d.v[0] + d.v[2])}},
            {{0.0, 2.0 * x.v[1] + p.k[2] * s * d.v[2], p.k[2] * (d.v[1] + d.v[2])}}};
        const Triad by = solved(slopes, miss);
        x = minus(x, by);
        if (size < CLOSE && dot(by, by) < CLOSE * CLOSE * dot(x, x)) {
            last = 0.0;
            kept = x;
            break;
        }
    }
    const Triad d = depths(p, kept);
    return last <= RESIDUAL && d.v[0] > 0.0 && d.v[1] > 0.0 && d.v[2] > 0.0;
}

// Solutions with positive depths; how many.
__device__ inline u32 solve(const Problem& p, Triad (&out)[MOST]) {
    Conic first, second;
    pencil(p, first, second);
    Triad both[2];
    if (!lines(first, second, both)) return 0;
    u32 n = 0;
#pragma unroll 1
    for (int k = 0; k < 4; ++k) {
        Triad pair[2], x;
        if (!meet(k < 2 ? both[0] : both[1], second, pair)) continue;
        if (!refined(p, k % 2 == 0 ? pair[0] : pair[1], x)) continue;
        bool is_new = true;
#pragma unroll
        for (u32 i = 0; i < MOST; ++i) {
            if (i < n) is_new = is_new && square_distance(x, out[i]) > SAME * SAME * dot(x, x);
        }
        if (!is_new) continue;
#pragma unroll
        for (u32 i = 0; i < MOST; ++i) {
            if (i == n) out[i] = x;
        }
        ++n;
    }
    return n;
}

__device__ inline bool is_finite(double a) { return fabs(a) <= 1.7976931348623157e308; }

// Axes of a triangle: along its first side, and along its normal; the second is between. False if it is flat.
__device__ inline bool frame(const Triad (&p)[3], Triad (&axes)[3]) {
    const Triad side = minus(p[1], p[0]), other = minus(p[2], p[0]);
    if (!unit(side, axes[0])) return false;
    const Triad height = minus(other, scaled(axes[0], dot(axes[0], other)));
    const Triad second = minus(height, scaled(axes[0], dot(axes[0], height)));
    if (dot(second, second) <= FLAT * FLAT * dot(other, other) || !unit(second, axes[1])) return false;
    axes[2] = cross(axes[0], axes[1]);
    return true;
}

__device__ inline Triad centre(const Triad (&p)[3]) {
    const double third = 1.0 / 3.0;
    Triad c;
#pragma unroll
    for (int k = 0; k < 3; ++k) c.v[k] = third * (p[0].v[k] + p[1].v[k] + p[2].v[k]);
    return c;
}

// Writes the pose that carries one of two equal triangles onto the other; false if it is not finite.
__device__ inline bool carry(
    const Triad (&from)[3], const Triad (&to)[3], const Triad (&x)[3], const Triad (&y)[3], double* pose) {
    const Triad a = centre(x), b = centre(y);
    bool finite = true;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        Triad row;
#pragma unroll
        for (int j = 0; j < 3; ++j) {
            row.v[j] = from[0].v[j] * to[0].v[i] + from[1].v[j] * to[1].v[i] + from[2].v[j] * to[2].v[i];
            pose[3 * i + j] = row.v[j];
            finite = finite && is_finite(row.v[j]);
        }
        const double number = b.v[i] - dot(row, a);
        pose[9 + i] = number;
        finite = finite && is_finite(number);
    }
    return finite;
}

// Poses of three points and bearings; how many.
__device__ inline u32 poses(const Triad (&x)[3], const Triad (&f)[3], double* out) {
    const double angles[3] = {square_distance(f[0], f[1]), square_distance(f[0], f[2]), square_distance(f[1], f[2])};
    const double sides[3] = {square_distance(x[0], x[1]), square_distance(x[0], x[2]), square_distance(x[1], x[2])};
    const double widest = pick(largest(angles[0], angles[1], angles[2]), angles[0], angles[1], angles[2]);
    const double longest = pick(largest(sides[0], sides[1], sides[2]), sides[0], sides[1], sides[2]);
    if (!(widest > 0.0 && longest > 0.0)) return 0;
    Problem problem;
    problem.sigma = __dsqrt_rn(widest);
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        problem.k[k] = angles[k] / widest;
        problem.b[k] = sides[k] / longest;
    }
    Triad target[3], camera[3], solutions[MOST];
    if (!frame(x, target)) return 0;
    const u32 count = solve(problem, solutions);
    const double unit = __dsqrt_rn(longest) / problem.sigma;
    u32 n = 0;
#pragma unroll 1
    for (u32 k = 0; k < count; ++k) {
        const Triad solution = k == 0 ? solutions[0] : k == 1 ? solutions[1] : k == 2 ? solutions[2] : solutions[3];
        const Triad d = scaled(depths(problem, solution), unit);
        const Triad seen[3] = {scaled(f[0], d.v[0]), scaled(f[1], d.v[1]), scaled(f[2], d.v[2])};
        n += frame(seen, camera) && carry(target, camera, x, seen, out + 12 * n);
    }
    return n;
}
}  // namespace p3p
#endif
