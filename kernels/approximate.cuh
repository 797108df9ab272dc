// Numbers of the tracker: as exact as decisions about steps need them, and no slower. Part of homotopy.cu.
#include "lu.cuh"

// The options may say that tracks are followed in single precision: then nothing here is of double.
#ifndef SINGLE
#define SINGLE 0
#endif
#if SINGLE
typedef float real;
#else
typedef double real;
#endif
typedef Complex<real> Z;
#define UNBOUNDED __longlong_as_double(0x7ff0000000000000ll)

// 1 / a but for the last bits, without a branch; not finite for what is tiny or not finite. Pivots need
// all digits: what is not eliminated counts as an error of the matrix.
__device__ inline double per(double a) {
#ifdef __CUDA_ARCH__
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(a));
    // Twenty bits, tripled.
    const double left = fused(-a, y, 1.0);
    return fused(y, fused(left, left, left), y);
#else
    return 1.0 / a;
#endif
}

__device__ inline float per(float a) {
#ifdef __CUDA_ARCH__
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(a));
    return a;
#else
    return 1.0f / a;
#endif
}

// The square root of what is not negative, to six digits.
__device__ inline double root(double a) {
#ifdef __CUDA_ARCH__
    double y;
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(a));
    return a > 1e-300 && a < UNBOUNDED ? a * y : a;
#else
    return sqrt(a);
#endif
}

__device__ inline float root(float a) {
#ifdef __CUDA_ARCH__
    asm("sqrt.approx.ftz.f32 %0, %0;" : "+f"(a));
    return a;
#else
    return sqrtf(a);
#endif
}

// The binary logarithm and its inverse, to six digits.
__device__ inline float log2_of(float a) {
#ifdef __CUDA_ARCH__
    asm("lg2.approx.ftz.f32 %0, %0;" : "+f"(a));
    return a;
#else
    return log2f(a);
#endif
}
__device__ inline float power_of_2(float a) {
#ifdef __CUDA_ARCH__
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(a));
    return a;
#else
    return exp2f(a);
#endif
}

__device__ inline real norm2(Z a) { return fused(a.re, a.re, a.im * a.im); }
// The conjugate of 1 / a, and the product with a conjugate: changing a sign would take as long as a sum.
__device__ inline Z conjugate_inverse(Z a) {
    const real scale = per(norm2(a));
    return {a.re * scale, a.im * scale};
}
__device__ inline Z conjugate_product(Z a, Z b) {
    return {fused(a.re, b.re, a.im * b.im), fused(a.im, b.re, -(a.re * b.im))};
}
__device__ inline Z minus(Z a, Z b) { return {a.re - b.re, a.im - b.im}; }
// a + b c
__device__ inline Z plus_product(Z a, Z b, Z c) {
    return {fused(b.re, c.re, fused(-b.im, c.im, a.re)), fused(b.re, c.im, fused(b.im, c.re, a.im))};
}
__device__ inline Z plus_scaled(Z a, Z b, real by) { return {fused(b.re, by, a.re), fused(b.im, by, a.im)}; }

// As `bounded` of track.rs: what is not a number is the lower one.
__device__ inline real bounded(real value, real low, real high) {
    return value > low ? (value < high ? value : high) : low;
}

// With another sign if that bit is set.
__device__ inline double flipped(double a, int sign) {
    return __hiloint2double(__double2hiint(a) ^ sign, __double2loint(a));
}
__device__ inline float flipped(float a, int sign) {
    return __uint_as_float(__float_as_uint(a) ^ (u32)sign);
}

// A number that is not negative by its first 32 bits, which are ordered like it; what is no number comes
// last.
__device__ inline u32 high_bits(double a) { return (u32)__double2hiint(a) & 0x7fffffffu; }
__device__ inline u32 high_bits(float a) { return __float_as_uint(a) & 0x7fffffffu; }

// Bits of the fraction among them, the exponent of one.
constexpr int FRACTION = SINGLE ? 23 : 20, BIAS = SINGLE ? 127 : 1023;
constexpr u32 INFINITE = SINGLE ? 0x7f800000 : 0x7ff00000;
// Twice the binary logarithm of EXACT of work.rs.
constexpr float EXACT2 = -53.151f;

// The number that has these bits, and otherwise zeros.
__device__ inline real of_bits(u32 bits) {
    return SINGLE ? (real)__uint_as_float(bits) : (real)__hiloint2double((int)bits, 0);
}

// The binary logarithm of such a number; more than a hundred if it is not finite.
__device__ inline float log_of(u32 bits) {
    const u32 fraction = bits << (23 - FRACTION) & 0x7fffff;
    return (float)((int)(bits >> FRACTION) - BIAS) + log2_of(__uint_as_float(0x3f800000u | fraction));
}
