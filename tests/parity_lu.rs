//! Small linear systems: the solver against nalgebra, and the GPU against the CPU, to the bit. What
//! needs a GPU is skipped where there is no CUDA device.

use flashreg::homotopy::lu::{Failure, Number, Solver};
use nalgebra::{Complex, DMatrix, DVector};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

type Z = Complex<f64>;

/// Kinds of matrices: what is done to random numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    /// Rows and columns between 1e-6 and 1e6.
    BadlyScaled,
    /// Each number anywhere between 1e-25 and 1e25.
    Wild,
    /// A permutation: zeros on the diagonal.
    Permutation,
    /// Zeros and ones only: many pivots are equally large.
    Ties,
    ZeroRow,
    ZeroColumn,
    /// Multiples of one row, all powers of two: rounding leaves no rest.
    Dependent,
    NotANumber,
    Infinite,
}

const KINDS: [Kind; 10] = [
    Kind::Plain,
    Kind::BadlyScaled,
    Kind::Wild,
    Kind::Permutation,
    Kind::Ties,
    Kind::ZeroRow,
    Kind::ZeroColumn,
    Kind::Dependent,
    Kind::NotANumber,
    Kind::Infinite,
];

/// A matrix, column by column, and a right side.
struct System<T> {
    a: Vec<T>,
    b: Vec<T>,
}

fn random<T: Number>(rng: &mut Pcg64Mcg) -> T {
    T::of(rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0))
}

fn scaled<T: Number>(number: T, factor: f64) -> T {
    let [re, im] = number.parts();
    T::of(re * factor, im * factor)
}

fn system<T: Number>(rng: &mut Pcg64Mcg, n: usize, kind: Kind) -> System<T> {
    let one = T::of(1.0, 0.0);
    let mut a: Vec<T> = (0..n * n).map(|_| random(rng)).collect();
    let b = (0..n).map(|_| random(rng)).collect();
    let (row, column) = (rng.random_range(0..n), rng.random_range(0..n));
    match kind {
        Kind::Plain => {}
        Kind::BadlyScaled => {
            let mut factors = || (0..n).map(|_| 10f64.powi(rng.random_range(-6..=6))).collect::<Vec<_>>();
            let (rows, columns) = (factors(), factors());
            for (at, number) in a.iter_mut().enumerate() {
                *number = scaled(*number, rows[at % n] * columns[at / n]);
            }
        }
        Kind::Wild => {
            a.iter_mut().for_each(|number| *number = scaled(*number, 10f64.powi(rng.random_range(-25..=25))));
        }
        Kind::Permutation => {
            for (at, number) in a.iter_mut().enumerate() {
                *number = if (at % n + row) % n == at / n { one } else { T::ZERO };
            }
        }
        Kind::Ties => a.iter_mut().for_each(|number| *number = [T::ZERO, one][rng.random_range(0..2)]),
        Kind::ZeroRow => (0..n).for_each(|j| a[j * n + row] = T::ZERO),
        Kind::ZeroColumn => a[column * n..][..n].fill(T::ZERO),
        Kind::Dependent => {
            for (at, number) in a.iter_mut().enumerate() {
                *number = T::of(f64::from(1 << (at % n % 4)) / f64::from(1 << (at / n % 5)), 0.0);
            }
        }
        Kind::NotANumber => a[column * n + row] = T::of(f64::NAN, 0.0),
        Kind::Infinite => a[column * n + row] = T::of(f64::INFINITY, 0.0),
    }
    System { a, b }
}

fn solve<T: Number>(n: usize, system: &System<T>) -> (Vec<T>, Result<(), Failure>) {
    let mut x = vec![random(&mut Pcg64Mcg::seed_from_u64(1)); n];
    let done = Solver::new(n).solve(&system.a, &system.b, &mut x);
    (x, done)
}

fn z<T: Number>(number: T) -> Z {
    let [re, im] = number.parts();
    Z::new(re, im)
}

/// |A x - b| over |A| |x| + |b|, the largest of all rows, in double precision.
fn backward_error<T: Number>(n: usize, system: &System<T>, x: &[T]) -> f64 {
    let row = |i: usize| {
        let terms = (0..n).map(|j| (z(system.a[j * n + i]), z(x[j])));
        let (sum, size) = terms.fold((-z(system.b[i]), z(system.b[i]).norm()), |(sum, size), (a, x)| {
            (sum + a * x, size + a.norm() * x.norm())
        });
        if size == 0.0 {
            0.0
        } else {
            sum.norm() / size
        }
    };
    (0..n).map(row).fold(0.0, f64::max)
}

fn nalgebra_solves<T: Number>(n: usize, system: &System<T>) -> Option<DVector<Z>> {
    let a = DMatrix::from_iterator(n, n, system.a.iter().map(|number| z(*number)));
    a.lu().solve(&DVector::from_iterator(n, system.b.iter().map(|number| z(*number))))
}

fn against_nalgebra<T: Number>(epsilon: f64) {
    let mut rng = Pcg64Mcg::seed_from_u64(11);
    for n in 1..=32 {
        for kind in [Kind::Plain, Kind::BadlyScaled, Kind::Permutation] {
            for _ in 0..10 {
                let system = system::<T>(&mut rng, n, kind);
                let (x, done) = solve(n, &system);
                assert_eq!(done, Ok(()), "{n} {kind:?}");
                // Partial pivoting bounds it but for the growth of the numbers, which is small here.
                let error = backward_error(n, &system, &x);
                let bound = 8.0 * n as f64 * epsilon;
                if kind != Kind::BadlyScaled {
                    assert!(error < bound, "{n} {kind:?}: {error:e}");
                }
                let other = nalgebra_solves(n, &system).expect("regular");
                let other: Vec<T> = other.iter().map(|value| T::of(value.re, value.im)).collect();
                // nalgebra's, rounded, is as wrong as rounding makes it.
                let reference = backward_error(n, &system, &other);
                assert!(error < 100.0 * reference + bound, "{n} {kind:?}: {error:e}, nalgebra {reference:e}");
            }
        }
    }
}

#[test]
fn residuals_are_as_small_as_rounding_allows() {
    against_nalgebra::<f32>(f64::from(f32::EPSILON));
    against_nalgebra::<f64>(f64::EPSILON);
    against_nalgebra::<Complex<f32>>(f64::from(f32::EPSILON));
    against_nalgebra::<Z>(f64::EPSILON);
}

#[test]
fn unknowns_are_those_of_nalgebra() {
    let mut rng = Pcg64Mcg::seed_from_u64(12);
    for n in 1..=32 {
        for _ in 0..10 {
            let mut system = system::<Z>(&mut rng, n, Kind::Plain);
            // Regular beyond doubt.
            (0..n).for_each(|i| system.a[i * n + (i + 1) % n] += 2.0 * n as f64);
            let (x, done) = solve(n, &system);
            assert_eq!(done, Ok(()));
            let other = nalgebra_solves(n, &system).expect("regular");
            for (one, two) in x.iter().zip(&other) {
                assert!((one - two).norm() < 1e-13, "{n}: {one} {two}");
            }
        }
    }
}

fn failures<T: Number>() {
    let mut rng = Pcg64Mcg::seed_from_u64(13);
    for n in 1..=32 {
        for kind in [Kind::ZeroRow, Kind::ZeroColumn, Kind::Dependent, Kind::NotANumber, Kind::Infinite] {
            if kind == Kind::Dependent && n < 2 {
                continue;
            }
            let (x, done) = solve(n, &system::<T>(&mut rng, n, kind));
            assert!(matches!(done, Err(Failure::Pivot(step)) if step < n), "{n} {kind:?}: {done:?}");
            assert!(x.iter().all(|x| *x == T::ZERO), "{n} {kind:?}");
        }
        // Regular, but its unknowns exceed the numbers.
        let tiny = System { a: diagonal(n, 1e-38), b: vec![T::of(1e38, 0.0); n] };
        let (x, done) = solve(n, &tiny);
        match std::mem::size_of::<T::Size>() {
            4 => assert_eq!((x, done), (vec![T::ZERO; n], Err(Failure::Overflow))),
            _ => assert_eq!(done, Ok(())),
        }
    }
}

fn diagonal<T: Number>(n: usize, value: f64) -> Vec<T> {
    (0..n * n).map(|at| T::of(if at % n == at / n { value } else { 0.0 }, 0.0)).collect()
}

#[test]
fn singular_systems_are_said_to_be() {
    failures::<f32>();
    failures::<f64>();
    failures::<Complex<f32>>();
    failures::<Z>();
}

#[test]
fn extreme_pivots_neither_overflow_nor_vanish() {
    for value in [1e-37, 3e-20, 1e20, 1e37] {
        let system =
            System { a: diagonal::<Complex<f32>>(3, value), b: vec![Complex::new(0.0, value as f32); 3] };
        let (x, done) = solve(3, &system);
        assert_eq!(done, Ok(()), "{value}");
        assert!(x.iter().all(|x| (x - Complex::new(0.0, 1.0)).norm() < 1e-6), "{value}: {x:?}");
    }
    for value in [1e-300, 1e-160, 1e160, 1e300] {
        let system = System { a: diagonal::<Z>(3, value), b: vec![Z::new(0.0, value); 3] };
        let (x, done) = solve(3, &system);
        assert_eq!(done, Ok(()), "{value}");
        assert!(x.iter().all(|x| (x - Z::new(0.0, 1.0)).norm() < 1e-14), "{value}: {x:?}");
    }
}

#[test]
fn arrays_that_do_not_fit_are_refused() {
    let mut solver = Solver::<f64>::new(2);
    let why = solver.solve(&[1.0; 4], &[1.0; 3], &mut [0.0; 2]).expect_err("too long");
    assert_eq!(why.to_string(), "4 numbers of a matrix, 3 of a right side and 2 unknowns do not fit size 2");
    assert!(solver.solve(&[1.0; 3], &[1.0; 2], &mut [0.0; 2]).is_err());
    assert!(solver.solve(&[1.0; 4], &[1.0; 2], &mut [0.0; 1]).is_err());
    assert_eq!(Solver::<f64>::new(0).solve(&[], &[], &mut []), Ok(()));
}

#[cfg(feature = "cuda")]
mod gpu {
    use super::*;
    use flashreg::gpu::buffers::DeviceBuffer;
    use flashreg::gpu::context::{Context, Stream};
    use flashreg::gpu::device;
    use flashreg::homotopy::lu::gpu::{BatchedLu, DeviceNumber, Tiling};
    use rayon::prelude::*;
    use std::sync::Arc;

    fn context() -> Option<Arc<Context>> {
        if device::probe().first_device().is_none() {
            println!("skipped: no CUDA device");
            return None;
        }
        Some(Context::first().expect("the device works"))
    }

    /// The bits of numbers; all that are not numbers count as one.
    fn bits<T: Number>(numbers: &[T]) -> Vec<[u64; 2]> {
        numbers.iter().map(|number| number.parts().map(f64::to_bits)).collect()
    }

    fn same_bits<T: DeviceNumber>(context: &Arc<Context>, sizes: &[usize]) {
        // Most of the time goes into compiling.
        sizes.par_iter().for_each(|n| {
            let stream = Stream::new(context).expect("a stream");
            let mut rng = Pcg64Mcg::seed_from_u64(14);
            // Not a multiple of what any warp or block solves.
            let systems: Vec<System<T>> =
                (0..331).map(|i| system(&mut rng, *n, KINDS[i % KINDS.len()])).collect();
            let all = |part: fn(&System<T>) -> &Vec<T>| {
                let numbers: Vec<T> = systems.iter().flat_map(|s| part(s).iter().copied()).collect();
                DeviceBuffer::holding(&numbers, &stream).expect("memory")
            };
            let (a, b) = (all(|s| &s.a), all(|s| &s.b));
            let wanted: Vec<_> = systems.iter().map(|system| solve(*n, system)).collect();
            let fast =
                [1000, 100_000].map(|count| Tiling::choose::<T>(*n, count, context.processors()).lanes);
            let mut lanes = Tiling::lanes::<T>(*n);
            lanes.retain(|lanes| n % 5 == 0 || fast.contains(lanes));
            for lanes in lanes {
                let tiling = Tiling { lanes, warps: 1 + lanes % 4 };
                let lu = BatchedLu::<T>::new(context, *n, tiling, None).expect("it compiles");
                let untouched = random::<T>(&mut rng);
                let mut x = DeviceBuffer::holding(&vec![untouched; 333 * n], &stream).expect("memory");
                let mut failed = DeviceBuffer::holding(&[77; 333], &stream).expect("memory");
                lu.solve(331, [&a, &b], &mut x, &mut failed, &stream).expect("launched");
                let (x, failed) = (x.read(333 * n, &stream), failed.read(333, &stream));
                let (x, failed) = (x.expect("unknowns"), failed.expect("codes"));
                for (i, (unknowns, done)) in wanted.iter().enumerate() {
                    let what = format!("{} {n} x {n}, {lanes} lanes, {:?}", T::NAME, KINDS[i % KINDS.len()]);
                    let failure = Failure::from_code(failed[i], *n);
                    assert_eq!(failure, done.err(), "{what}");
                    assert_eq!(bits(&x[i * n..][..*n]), bits(unknowns), "{what}");
                }
                assert_eq!(
                    (bits(&x[331 * n..]), &failed[331..]),
                    (bits(&vec![untouched; 2 * n]), &[77, 77][..])
                );
            }
        });
    }

    #[test]
    fn the_gpu_gives_the_bits_of_the_cpu() {
        let Some(context) = context() else { return };
        let all: Vec<usize> = (1..=32).collect();
        same_bits::<Complex<f32>>(&context, &all);
        same_bits::<Z>(&context, &all);
        same_bits::<f32>(&context, &[1, 2, 3, 4, 7, 8, 16, 31, 32]);
        same_bits::<f64>(&context, &[1, 2, 3, 4, 7, 8, 16, 31, 32]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let Some(context) = context() else { return };
        let stream = Stream::new(&context).expect("a stream");
        let tiling = |lanes, warps| Tiling { lanes, warps };
        for (n, tiling) in
            [(0, tiling(1, 1)), (33, tiling(32, 1)), (4, tiling(0, 1)), (4, tiling(33, 1)), (4, tiling(4, 5))]
        {
            assert!(BatchedLu::<f64>::new(&context, n, tiling, None).is_err(), "{n} {tiling:?}");
        }
        let lu = BatchedLu::<f64>::new(&context, 4, tiling(4, 1), None).expect("it compiles");
        let of = |len| DeviceBuffer::<f64>::new(&context, len).expect("memory");
        let (a, b, mut x) = (of(32), of(8), of(8));
        let mut failed = DeviceBuffer::new(&context, 2).expect("memory");
        assert!(lu.solve(0, [&a, &b], &mut x, &mut failed, &stream).is_ok());
        assert!(lu.solve(3, [&a, &b], &mut x, &mut failed, &stream).is_err());
    }
}
