// Vectors of three numbers, and the frame of a triangle: as src/geometry/align.rs and
// src/estimation/solvers/vector.rs, operation by operation.
#ifndef FLASHREG_TRIAD_CUH
#define FLASHREG_TRIAD_CUH
#include "common.cuh"

struct Triad {
    double v[3];
};

__device__ inline Triad minus(const Triad& a, const Triad& b) {
    return {{a.v[0] - b.v[0], a.v[1] - b.v[1], a.v[2] - b.v[2]}};
}

__device__ inline double dot(const Triad& a, const Triad& b) {
    return (a.v[0] * b.v[0] + a.v[1] * b.v[1]) + a.v[2] * b.v[2];
}

__device__ inline Triad cross(const Triad& a, const Triad& b) {
    return {{a.v[1] * b.v[2] - a.v[2] * b.v[1], a.v[2] * b.v[0] - a.v[0] * b.v[2],
             a.v[0] * b.v[1] - a.v[1] * b.v[0]}};
}

__device__ inline Triad scaled(const Triad& a, double s) { return {{a.v[0] * s, a.v[1] * s, a.v[2] * s}}; }

// Of length one; false if the length is zero or no number.
__device__ inline bool unit(const Triad& a, Triad& to) {
    const double length = __dsqrt_rn(dot(a, a));
    to = scaled(a, 1.0 / length);
    return length > 0.0;
}

__device__ inline Triad centroid(const Triad* p) {
    Triad c;
    for (int k = 0; k < 3; ++k) c.v[k] = ((p[0].v[k] + p[1].v[k]) + p[2].v[k]) / 3.0;
    return c;
}

// Above zero and finite; false for NaN.
__device__ inline bool is_positive(double value) { return value > 0.0 && value <= 1.7976931348623157e308; }

struct TriangleFrame {
    Triad x, y, z;
    double height;
};

// Right-handed frame of a triangle: x along the first side, z normal to the plane.
__device__ inline bool frame_of(const Triad* p, TriangleFrame& f) {
    const Triad e1 = minus(p[1], p[0]), e2 = minus(p[2], p[0]), e3 = minus(p[2], p[1]);
    const Triad n = cross(e1, e2);
    const double area2 = __dsqrt_rn(dot(n, n));
    const double side = __dsqrt_rn(dot(e1, e1));
    const double second = __dsqrt_rn(dot(e2, e2)), third = __dsqrt_rn(dot(e3, e3));
    const double longest = fmax(fmax(side, second), third);
    if (!is_positive(area2) || !is_positive(side)) return false;
    for (int k = 0; k < 3; ++k) {
        f.x.v[k] = e1.v[k] / side;
        f.z.v[k] = n.v[k] / area2;
    }
    f.y = cross(f.z, f.x);
    f.height = area2 / longest;
    return true;
}
#endif
