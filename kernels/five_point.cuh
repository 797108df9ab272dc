// The relative pose of two calibrated cameras from five points: src/estimation/solvers/five_point.rs,
// operation by operation, where it is explained. A tile of lanes has a sample; what no order of rounding
// hangs on is spread over them.
#ifndef FLASHREG_FIVE_POINT_CUH
#define FLASHREG_FIVE_POINT_CUH
#include "polynomial.cuh"
#include "sights.cuh"

namespace five_point {
using polynomial::DEGREE;
using polynomial::Leaf;
constexpr u32 MOST = DEGREE, TOGETHER = 16;
// Searches of the polynomial: as it is or reversed, each mirrored or not; roots of all.
constexpr u32 SEARCHES = 4, ROOTS = 2 * (DEGREE + 1);
constexpr int STEPS = 8;
constexpr double RESIDUAL = 1e-12, SAME = 1e-8, CLOSE = 1e-11, LEAST_PARALLAX = 1e-8, HALF = 0.7071067811865476;

// Where products of the shares stand, a byte for each second factor.
__device__ constexpr u32 quadratic(int i, int j) {
    return (i == 0 ? 0x05030100u : i == 1 ? 0x06040201u : i == 2 ? 0x08070403u : 0x09080605u) >> 8 * j & 0xff;
}
__device__ constexpr u32 cubic(int i, int j) {
    return (i == 0   ? 0x07040100u
            : i == 1 ? 0x08050201u
            : i == 2 ? 0x09060302u
            : i == 3 ? 0x0b0a0504u
            : i == 4 ? 0x0e0d0605u
            : i == 5 ? 0x0c0b0807u
            : i == 6 ? 0x0f0e0908u
            : i == 7 ? 0x11100d0au
            : i == 8 ? 0x12110e0bu
                     : 0x13120f0cu) >>
               8 * j &
           0xff;
}

__device__ inline Triad longest(const Triad& a, const Triad& b, const Triad& c) {
    const double of_a = dot(a, a), of_b = dot(b, b), of_c = dot(c, c);
    return of_a >= of_b && of_a >= of_c ? a : of_b >= of_c ? b : c;
}

struct Motion {
    Triad rows[3], shift;
};

// What the lanes of a tile share.
struct Bench {
    // The second is turned towards the first.
    Triad a[5], b[5], turn[3];
    // Basis of the null space: entry by entry, the four matrices.
    double entries[9][4];
    double polynomial[DEGREE + 1];
    // Three equations whose coefficients are polynomials.
    double hidden[3][3][5];
    union {
        // Of each pair, how far its directions are from one line.
        double sizes[10];
        struct {
            double row[9], factor, parallax[5];
        } reflection;
        struct {
            // E E' - tr / 2 by its entries, and minors of the first row.
            double products[3][3][10], minors[3][10];
            double column[10], pivot[20], rows[6][10];
        } conditions;
        double minors[3][7];
        struct {
            Leaf leaves[SEARCHES][DEGREE + 1];
            // The last one: roots of the first two searches.
            u32 counts[SEARCHES + 1], order[ROOTS], count;
            Motion motions[ROOTS];
        } roots;
    };
};

// A tile: its lanes wait for each other.
struct Tile {
    u32 lane, mask;

    __device__ inline void meet() const { __syncwarp(mask); }
};

// Along the middle of two directions, along their normal, and the third.
__device__ inline bool axes(const Triad& first, const Triad& second, Triad (&to)[3]) {
    const Triad sum = {{first.v[0] + second.v[0], first.v[1] + second.v[1], first.v[2] + second.v[2]}};
    if (!unit(cross(first, second), to[1]) || !unit(sum, to[0])) return false;
    to[2] = cross(to[0], to[1]);
    return true;
}

// Turns the second view towards the first.
__device__ inline bool turn(const Tile& tile, Bench& bench) {
    // Pairs 01 02 03 04 12 13 14 23 24 34.
    const auto first_of = [](u32 pair) { return pair < 4 ? 0u : pair < 7 ? 1u : pair < 9 ? 2u : 3u; };
    const auto second_of = [](u32 pair) { return pair < 4 ? pair + 1 : pair < 7 ? pair - 2 : pair < 9 ? pair - 4 : 4u; };
    if (tile.lane < 10) {
        const u32 i = first_of(tile.lane), j = second_of(tile.lane);
        const Triad p = cross(bench.a[i], bench.a[j]), q = cross(bench.b[i], bench.b[j]);
        bench.sizes[tile.lane] = dot(p, p) * dot(q, q);
    }
    tile.meet();
    double widest = 0.0;
    u32 pair = 10;
#pragma unroll
    for (u32 k = 0; k < 10; ++k) {
        if (bench.sizes[k] > widest) {
            pair = k;
            widest = bench.sizes[k];
        }
    }
    if (pair == 10) return false;
    const u32 i = first_of(pair), j = second_of(pair);
    Triad of_a[3], of_b[3], rows[3];
    if (!axes(bench.a[i], bench.a[j], of_a) || !axes(bench.b[i], bench.b[j], of_b)) return false;
#pragma unroll
    for (int k = 0; k < 9; ++k) {
        const int row = k / 3, column = k % 3;
        rows[row].v[column] = of_a[0].v[row] * of_b[0].v[column] + of_a[1].v[row] * of_b[1].v[column] +
                              of_a[2].v[row] * of_b[2].v[column];
    }
    tile.meet();
    if (tile.lane < 5) bench.b[tile.lane] = {{dot(rows[0], bench.b[tile.lane]), dot(rows[1], bench.b[tile.lane]), dot(rows[2], bench.b[tile.lane])}};
    if (tile.lane < 3) bench.turn[tile.lane] = tile.lane == 0 ? rows[0] : tile.lane == 1 ? rows[1] : rows[2];
    tile.meet();
    return true;
}

// Four orthogonal matrices that meet the epipolar constraints: a lane has a row, then a matrix.
__device__ inline void null_space(const Tile& tile, Bench& bench) {
    double row[9], vectors[5][9], factors[5];
    const u32 own = tile.lane < 5 ? tile.lane : 4;
    {
        const double *a = bench.a[own].v, *b = bench.b[own].v;
        const Triad skew = cross(bench.a[own], bench.b[own]);
        if (tile.lane < 5) bench.reflection.parallax[own] = dot(skew, skew);
        row[0] = b[0] * a[0];
        row[1] = b[1] * a[1];
        row[2] = b[2] * a[2];
        row[3] = HALF * (b[1] * a[2] + b[2] * a[1]);
        row[4] = HALF * (b[2] * a[0] + b[0] * a[2]);
        row[5] = HALF * (b[0] * a[1] + b[1] * a[0]);
        row[6] = HALF * skew.v[0];
        row[7] = HALF * skew.v[1];
        row[8] = HALF * skew.v[2];
    }
#pragma unroll
    for (int i = 0; i < 5; ++i) {
        if (tile.lane == i) {
            double square = 0.0, factor = 0.0;
#pragma unroll
            for (int k = i; k < 9; ++k) square += row[k] * row[k];
            const double length = __dsqrt_rn(square);
            if (length > 0.0) {
                const double first = row[i];
                row[i] = first < 0.0 ? first - length : first + length;
                factor = 1.0 / (square + fabs(first) * length);
            }
#pragma unroll
            for (int k = i; k < 9; ++k) bench.reflection.row[k] = row[k];
            bench.reflection.factor = factor;
            // No reflection at all is not the same as one by nothing.
            if (!(length > 0.0)) bench.reflection.factor = -1.0;
        }
        tile.meet();
        factors[i] = bench.reflection.factor;
        double sum = 0.0;
#pragma unroll
        for (int k = i; k < 9; ++k) {
            vectors[i][k] = bench.reflection.row[k];
            sum += vectors[i][k] * row[k];
        }
        if (tile.lane > i && factors[i] != -1.0) {
            sum *= factors[i];
#pragma unroll
            for (int k = i; k < 9; ++k) row[k] -= sum * vectors[i][k];
        }
        tile.meet();
    }
    double square = 0.0;
#pragma unroll
    for (int i = 0; i < 5; ++i) square += bench.reflection.parallax[i];
    const double parallax = __dsqrt_rn(square), least = parallax > LEAST_PARALLAX ? parallax : LEAST_PARALLAX;
    const double scale = least < 1.0 ? least : 1.0;
    double v[9];
#pragma unroll
    for (int k = 0; k < 9; ++k) v[k] = k == 6 + (int)tile.lane ? 1.0 : k == 5 && tile.lane == 3 ? scale : 0.0;
#pragma unroll
    for (int i = 4; i >= 0; --i) {
        const double factor = factors[i] == -1.0 ? 0.0 : factors[i];
        double sum = 0.0;
#pragma unroll
        for (int k = i; k < 9; ++k) sum += vectors[i][k] * v[k];
        sum *= factor;
#pragma unroll
        for (int k = i; k < 9; ++k) v[k] -= sum * vectors[i][k];
    }
    if (tile.lane < 4) {
        const double matrix[9] = {v[0], HALF * (v[5] - v[8]), HALF * (v[4] + v[7]), HALF * (v[5] + v[8]), v[1],
                                  HALF * (v[3] - v[6]), HALF * (v[4] - v[7]), HALF * (v[3] + v[6]), v[2]};
#pragma unroll
        for (int k = 0; k < 9; ++k) bench.entries[k][tile.lane] = matrix[k];
    }
    tile.meet();
}

// The ten conditions on an essential matrix, one for each lane.
__device__ inline void conditions(const Tile& tile, Bench& bench, double (&row)[20]) {
    auto& shared = bench.conditions;
    const u32 lane = tile.lane;
    if (lane < 9) {
        // Entries 00, 01, 02, 11, 12, 22 of the product, then the minors.
        const u32 i = lane < 3 ? 0 : lane < 5 ? 1 : lane < 6 ? 2 : (lane - 5) % 3;
        const u32 j = lane < 3 ? lane : lane < 5 ? lane - 2 : lane < 6 ? 2 : (lane - 4) % 3;
        double sum[10];
#pragma unroll
        for (int k = 0; k < 10; ++k) sum[k] = 0.0;
#pragma unroll 1
        for (u32 k = 0; k < (lane < 6 ? 3u : 2u); ++k) {
            const double* first = bench.entries[lane < 6 ? 3 * i + k : 3 + (k == 0 ? i : j)];
            const double* second = bench.entries[lane < 6 ? 3 * j + k : 6 + (k == 0 ? j : i)];
            const double sign = lane < 6 || k == 0 ? 1.0 : -1.0;
            double a[4], b[4];
#pragma unroll
            for (int l = 0; l < 4; ++l) {
                a[l] = first[l];
                b[l] = second[l];
            }
#pragma unroll
            for (int l = 0; l < 16; ++l) sum[quadratic(l / 4, l % 4)] += sign * (a[l / 4] * b[l % 4]);
        }
#pragma unroll
        for (int k = 0; k < 10; ++k) {
            if (lane < 6) {
                shared.products[i][j][k] = sum[k];
                shared.products[j][i][k] = sum[k];
            } else {
                shared.minors[lane - 6][k] = sum[k];
            }
        }
    }
    tile.meet();
    if (lane < 10) {
        double(&p)[3][3][10] = shared.products;
        const double half = 0.5 * (p[0][0][lane] + p[1][1][lane] + p[2][2][lane]);
#pragma unroll
        for (int i = 0; i < 3; ++i) p[i][i][lane] -= half;
    }
    tile.meet();
#pragma unroll
    for (int k = 0; k < 20; ++k) row[k] = 0.0;
    if (lane < 10) {
#pragma unroll 1
        for (u32 k = 0; k < 3; ++k) {
            const double* first = lane < 9 ? shared.products[lane / 3][k] : shared.minors[k];
            const double* second = bench.entries[lane < 9 ? 3 * k + lane % 3 : k];
            double b[4];
#pragma unroll
            for (int l = 0; l < 4; ++l) b[l] = second[l];
#pragma unroll
            for (int i = 0; i < 10; ++i) {
                const double a = first[i];
#pragma unroll
                for (int j = 0; j < 4; ++j) row[cubic(i, j)] += a * b[j];
            }
        }
    }
}

// Six products by the ten others; a lane has a row, which keeps its place in the matrix when rows are
// exchanged.
__device__ inline bool eliminated(const Tile& tile, Bench& bench) {
    double row[20];
    conditions(tile, bench, row);
    auto& shared = bench.conditions;
    int place = tile.lane;
#pragma unroll
    for (int column = 0; column < 10; ++column) {
        if (place < 10) shared.column[place] = fabs(row[column]);
        tile.meet();
        int pivot = column;
        double most = shared.column[column];
#pragma unroll
        for (int other = column + 1; other < 10; ++other) {
            const double size = shared.column[other];
            if (size > most) {
                pivot = other;
                most = size;
            }
        }
        if (!(most > 0.0)) return false;
        place = place == pivot ? column : place == column ? pivot : place;
        if (place == column) {
            const double inverse = 1.0 / row[column];
#pragma unroll
            for (int k = column; k < 20; ++k) {
                row[k] *= inverse;
                shared.pivot[k] = row[k];
            }
        }
        tile.meet();
        // The first four rows are not asked for.
        if (place > column || (place >= 4 && place != column)) {
            const double factor = row[column];
#pragma unroll
            for (int k = column; k < 20; ++k) row[k] -= factor * shared.pivot[k];
        }
    }
    if (place >= 4 && place < 10) {
#pragma unroll
        for (int k = 0; k < 10; ++k) shared.rows[place - 4][k] = row[10 + k];
    }
    tile.meet();
    return true;
}

// The three equations, and their determinant.
__device__ inline void hide(const Tile& tile, Bench& bench) {
    const u32 lane = tile.lane;
    if (lane < 9) {
        const u32 i = lane / 3, column = lane % 3, degree = column < 2 ? 2 : 3;
        double* m = bench.hidden[i][column];
        const double *of_z = bench.conditions.rows[i], *of_w = bench.conditions.rows[3 + i];
        for (u32 k = 0; k < 5; ++k) m[k] = 0.0;
        for (u32 k = 0; k <= degree; ++k) {
            const u32 at = 3 * column + degree - k;
            m[k + 1] += of_w[at];
            m[k] -= of_z[at];
        }
    }
    tile.meet();
    const double(&m)[3][3][5] = bench.hidden;
    for (u32 entry = lane; entry < 21; entry += TOGETHER) {
        const u32 row = entry / 7, power = entry % 7, i = (row + 1) % 3, j = (row + 2) % 3;
        double sum = 0.0;
        for (u32 k = 0; k < 4; ++k) {
            if (power < k || power - k > 3) continue;
            const u32 l = power - k;
            sum += m[i][0][k] * m[j][1][l] - m[i][1][k] * m[j][0][l];
        }
        bench.minors[row][power] = sum;
    }
    tile.meet();
    if (lane <= DEGREE) {
        double sum = 0.0;
        for (u32 row = 0; row < 3; ++row) {
            for (u32 k = 0; k < 7; ++k) {
                if (lane < k || lane - k > 4) continue;
                sum += bench.minors[row][k] * m[row][2][lane - k];
            }
        }
        bench.polynomial[lane] = sum;
    }
    tile.meet();
}

// x, y and the common factor of z and w.
__device__ inline bool rest(const Bench& bench, double z, double w, Triad& to) {
    Triad m[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
#pragma unroll
        for (int j = 0; j < 3; ++j) {
            const int degree = j < 2 ? 3 : 4;
            const double* c = bench.hidden[i][j];
            double v = w == 1.0 ? c[degree] : c[0];
#pragma unroll
            for (int k = 1; k <= degree; ++k) v = w == 1.0 ? v * z + c[degree - k] : v * w + c[k];
            m[i].v[j] = v;
        }
    }
    return unit(longest(cross(m[0], m[1]), cross(m[1], m[2]), cross(m[2], m[0])), to);
}

__device__ inline Triad times(const Triad (&m)[3], const Triad& v) { return {{dot(m[0], v), dot(m[1], v), dot(m[2], v)}}; }

// One of the four motions of an essential matrix given by its columns.
__device__ inline bool motion_of(const Triad (&e)[3], Motion& motion) {
    const Triad cofactors[3] = {cross(e[1], e[2]), cross(e[2], e[0]), cross(e[0], e[1])};
    if (!unit(longest(cofactors[0], cofactors[1], cofactors[2]), motion.shift)) return false;
    const double square = 0.5 * (dot(e[0], e[0]) + dot(e[1], e[1]) + dot(e[2], e[2]));
    const double length = __dsqrt_rn(square);
    Triad rows[2];
#pragma unroll
    for (int j = 0; j < 3; ++j) {
        const Triad turned = cross(motion.shift, e[j]);
#pragma unroll
        for (int i = 0; i < 2; ++i) rows[i].v[j] = cofactors[j].v[i] / square - turned.v[i] / length;
    }
    Triad* r = motion.rows;
    if (!unit(rows[0], r[0])) return false;
    if (!unit(minus(rows[1], scaled(r[0], dot(r[0], rows[1]))), r[1])) return false;
    r[2] = cross(r[0], r[1]);
    return true;
}

// The solution of five linear equations, right sides in the last column.
__device__ inline void solved(double (&m)[5][6], double (&x)[5]) {
#pragma unroll
    for (int column = 0; column < 5; ++column) {
        int pivot = column;
        double most = fabs(m[column][column]);
#pragma unroll
        for (int row = column + 1; row < 5; ++row) {
            if (fabs(m[row][column]) > most) {
                pivot = row;
                most = fabs(m[row][column]);
            }
        }
#pragma unroll
        for (int row = column + 1; row < 5; ++row) {
#pragma unroll
            for (int k = 0; k < 6; ++k) {
                const double upper = m[column][k], lower = m[row][k];
                m[column][k] = pivot == row ? lower : upper;
                m[row][k] = pivot == row ? upper : lower;
            }
        }
#pragma unroll
        for (int row = column + 1; row < 5; ++row) {
            const double factor = m[row][column] / m[column][column];
#pragma unroll
            for (int k = column; k < 6; ++k) m[row][k] -= factor * m[column][k];
        }
    }
#pragma unroll
    for (int row = 4; row >= 0; --row) {
        double sum = m[row][5];
#pragma unroll
        for (int k = row + 1; k < 5; ++k) sum -= m[row][k] * x[k];
        x[row] = sum / m[row][row];
    }
}

// Turned by the first three numbers and moved by the last two, both with another sign.
__device__ inline bool moved(const Motion& from, const double (&step)[5], const Triad& right, const Triad& down, Motion& to) {
    const Triad h = {{-0.5 * step[0], -0.5 * step[1], -0.5 * step[2]}};
    const double square = dot(h, h), scale = 1.0 / (1.0 + square), diagonal = 1.0 - square;
    const double turn[3][3] = {
        {diagonal + 2.0 * (h.v[0] * h.v[0]), 2.0 * (h.v[0] * h.v[1] - h.v[2]), 2.0 * (h.v[0] * h.v[2] + h.v[1])},
        {2.0 * (h.v[1] * h.v[0] + h.v[2]), diagonal + 2.0 * (h.v[1] * h.v[1]), 2.0 * (h.v[1] * h.v[2] - h.v[0])},
        {2.0 * (h.v[2] * h.v[0] - h.v[1]), 2.0 * (h.v[2] * h.v[1] + h.v[0]), diagonal + 2.0 * (h.v[2] * h.v[2])}};
    const Triad* r = from.rows;
    Triad shift;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
#pragma unroll
        for (int j = 0; j < 3; ++j) {
            to.rows[i].v[j] = scale * (turn[i][0] * r[0].v[j] + turn[i][1] * r[1].v[j] + turn[i][2] * r[2].v[j]);
        }
        shift.v[i] = from.shift.v[i] - (right.v[i] * step[3] + down.v[i] * step[4]);
    }
    return unit(shift, to.shift);
}

// By Newton's method; false if that does not meet the constraints.
__device__ inline bool refined(Motion current, const Triad* a, const Triad* b, Motion& kept) {
    double last = 1.0 / 0.0;
    bool any = false;
#pragma unroll 1
    for (int k = 0; k <= STEPS; ++k) {
        const Triad& t = current.shift;
        const double sizes[3] = {fabs(t.v[0]), fabs(t.v[1]), fabs(t.v[2])};
        const int least = sizes[0] <= sizes[1] && sizes[0] <= sizes[2] ? 0 : sizes[1] <= sizes[2] ? 1 : 2;
        const Triad axis = {{least == 0 ? 1.0 : 0.0, least == 1 ? 1.0 : 0.0, least == 2 ? 1.0 : 0.0}};
        Triad right;
        if (!unit(cross(t, axis), right)) return false;
        const Triad down = cross(t, right);
        double m[5][6], size = 0.0;
#pragma unroll
        for (int i = 0; i < 5; ++i) {
            const Triad ray = times(current.rows, a[i]), normal = cross(ray, b[i]);
            const double miss = dot(t, normal), along = dot(t, ray), cosine = dot(ray, b[i]);
            const Triad turn = minus(scaled(b[i], along), scaled(t, cosine));
            m[i][0] = turn.v[0];
            m[i][1] = turn.v[1];
            m[i][2] = turn.v[2];
            m[i][3] = dot(right, normal);
            m[i][4] = dot(down, normal);
            m[i][5] = miss;
            size += fabs(miss);
        }
        if (!(size < last)) break;
        double step[5];
        solved(m, step);
        Motion next;
        const bool fine = moved(current, step, right, down, next);
        if (size < CLOSE && fabs(step[0]) < CLOSE && fabs(step[1]) < CLOSE && fabs(step[2]) < CLOSE &&
            fabs(step[3]) < CLOSE && fabs(step[4]) < CLOSE) {
            kept = next;
            return fine;
        }
        kept = current;
        any = true;
        last = size;
        if (!fine) return false;
        current = next;
    }
    return any && last <= RESIDUAL;
}

// Of the four motions with this essential matrix the one that has all points in front of both cameras.
__device__ inline bool in_front(Motion& motion, const Triad* a, const Triad* b) {
    const Triad& t = motion.shift;
    Triad twisted[3];
#pragma unroll
    for (int j = 0; j < 3; ++j) {
        const Triad column = {{motion.rows[0].v[j], motion.rows[1].v[j], motion.rows[2].v[j]}};
        const double along = 2.0 * dot(t, column);
#pragma unroll
        for (int i = 0; i < 3; ++i) twisted[i].v[j] = along * t.v[i] - column.v[i];
    }
#pragma unroll 1
    for (int k = 0; k < 2; ++k) {
        if (k == 1) {
#pragma unroll
            for (int i = 0; i < 3; ++i) motion.rows[i] = twisted[i];
        }
        bool is_front = true, is_back = true;
        for (int i = 0; i < 5; ++i) {
            const Triad ray = times(motion.rows, a[i]), normal = cross(ray, b[i]);
            const double first = dot(cross(b[i], t), normal), second = dot(cross(ray, t), normal);
            is_front = is_front && first >= 0.0 && second >= 0.0;
            is_back = is_back && first <= 0.0 && second <= 0.0;
        }
        if (is_front) return true;
        if (is_back) {
            motion.shift = scaled(t, -1.0);
            return true;
        }
    }
    return false;
}

// With the second view turned back.
__device__ inline Motion turned_back(const Motion& motion, const Triad (&turn)[3]) {
    Motion to = {};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
#pragma unroll
        for (int k = 0; k < 3; ++k) {
            to.shift.v[i] += turn[k].v[i] * motion.shift.v[k];
#pragma unroll
            for (int j = 0; j < 3; ++j) to.rows[i].v[j] += turn[k].v[i] * motion.rows[k].v[j];
        }
    }
    return to;
}

__device__ inline bool is_finite(const Motion& motion) {
    bool finite = true;
#pragma unroll
    for (int i = 0; i < 12; ++i) {
        finite = finite && fabs(i < 9 ? motion.rows[i / 3].v[i % 3] : motion.shift.v[i - 9]) <= 1.7976931348623157e308;
    }
    return finite;
}

__device__ inline bool is_same(const Motion& motion, const double* pose) {
    double apart = 0.0;
    for (int i = 0; i < 3; ++i) {
        const double shift = motion.shift.v[i] - pose[9 + i];
        apart += shift * shift;
        for (int j = 0; j < 3; ++j) {
            const double turn = motion.rows[i].v[j] - pose[3 * i + j];
            apart += turn * turn;
        }
    }
    return apart < SAME * SAME;
}

// The motion of a root; false if it is none.
__device__ inline bool motion_at(const Bench& bench, double z, double w, Motion& motion) {
    Triad x, columns[3];
    if (!rest(bench, z, w, x)) return false;
    const double shares[4] = {x.v[0], x.v[1], x.v[2] * z, x.v[2] * w};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
#pragma unroll
        for (int j = 0; j < 3; ++j) {
            const double* entry = bench.entries[3 * i + j];
            columns[j].v[i] = (entry[0] * shares[0] + entry[1] * shares[1]) + (entry[2] * shares[2] + entry[3] * shares[3]);
        }
    }
    Motion start;
    return motion_of(columns, start) && refined(start, bench.a, bench.b, motion) && in_front(motion, bench.a, bench.b);
}

// The order of the roots of all searches: search, leaf and end of each, as one number.
__device__ inline void order_roots(Bench& bench) {
    auto& shared = bench.roots;
    u32 n = 0;
    for (u32 search = 0; search < SEARCHES; ++search) {
        // Two searches are of one polynomial, which has no more roots than there is room for.
        const u32 first = search < 2 ? 0 : shared.counts[SEARCHES];
        for (u32 k = 0; k < shared.counts[search]; ++k) {
            const u32 before = n - first, code = 256 * search + 2 * k;
            if (shared.leaves[search][k].kind != 0) {
                if (before <= DEGREE) shared.order[n++] = code;
            } else if (before < DEGREE) {
                shared.order[n++] = code;
                shared.order[n++] = code + 1;
            }
        }
        if (search == 1) shared.counts[SEARCHES] = n;
    }
    shared.count = n;
}

// Poses of rows with both bearings, which the bench has; how many.
__device__ inline u32 poses(const Tile& tile, Bench& bench, double* out) {
    if (!turn(tile, bench)) return 0;
    null_space(tile, bench);
    if (!eliminated(tile, bench)) return 0;
    hide(tile, bench);
    auto& shared = bench.roots;
    if (tile.lane < SEARCHES) {
        const u32 search = tile.lane;
        shared.counts[search] =
            polynomial::isolate(bench.polynomial, search / 2 == 1, search % 2 == 1, shared.leaves[search]);
    }
    tile.meet();
    if (tile.lane == 0) order_roots(bench);
    tile.meet();
    const u32 roots = shared.count;
    for (u32 k = tile.lane; k < roots; k += TOGETHER) {
        const u32 code = shared.order[k], search = code / 256;
        const bool is_reversed = search / 2 == 1, is_mirrored = search % 2 == 1;
        const Leaf leaf = shared.leaves[search][code % 256 / 2];
        double root = code % 2 == 0 ? leaf.low : leaf.high;
        if (leaf.kind != 0) root = polynomial::root(bench.polynomial, is_reversed, is_mirrored, leaf);
        if (is_mirrored) root = -root;
        Motion motion;
        const bool fine = motion_at(bench, is_reversed ? 1.0 : root, is_reversed ? root : 1.0, motion);
        motion = turned_back(motion, bench.turn);
        shared.motions[k] = motion;
        shared.order[k] = fine && is_finite(motion);
    }
    tile.meet();
    // Each is new unless one that was written before is the same.
    u32 count = 0;
    for (u32 k = 0; k < roots; ++k) {
        const bool fine = shared.order[k] != 0 && count < MOST;
        bool is_new = true;
        for (u32 other = tile.lane; fine && other < count; other += TOGETHER) {
            is_new = is_new && !is_same(shared.motions[k], out + 12 * other);
        }
        is_new = __ballot_sync(tile.mask, !is_new) == 0;
        if (fine && is_new) {
            const Motion& motion = shared.motions[k];
            if (tile.lane < 12) {
                out[12 * count + tile.lane] =
                    tile.lane < 9 ? motion.rows[tile.lane / 3].v[tile.lane % 3] : motion.shift.v[tile.lane - 9];
            }
            ++count;
        }
        tile.meet();
    }
    return count;
}
}  // namespace five_point
#endif
