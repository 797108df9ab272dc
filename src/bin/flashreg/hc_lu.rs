//! `flashreg hc lu`: batches of small linear systems, ours beside cuBLAS.

use super::{say, write_json};
use anyhow::{bail, Context as _};
use clap::{Args, ValueEnum};
use flashreg::gpu::buffers::DeviceBuffer;
use flashreg::gpu::bundle::cache_folder;
use flashreg::gpu::context::{Context, Event, Stream};
use flashreg::gpu::cublas::{Batch, BlasNumber, Cublas};
use flashreg::gpu::GpuError;
use flashreg::homotopy::lu::gpu::{BatchedLu, DeviceNumber, Tiling, MAX_WARPS};
use flashreg::homotopy::lu::MAX_SIZE;
use flashreg::latency::Percentiles;
use nalgebra::Complex;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;
use serde::Serialize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Numbers that are copied on the device before each measurement: it is busy meanwhile, so that what
/// is measured lies ready in its queue.
const HEAD_START: usize = 64 << 20;
/// Sets of matrices that take turns, at most.
const SETS: usize = 64;
/// Systems whose unknowns are checked.
const CHECKED: usize = 1000;

#[derive(Args)]
pub struct BenchLu {
    /// Unknowns: numbers and ranges, such as 4..20 or 3,8..10
    #[arg(long, default_value = "4..20", value_delimiter = ',', value_parser = sizes, value_name = "N,...")]
    n: Vec<RangeInclusive<usize>>,
    /// Systems of a batch
    #[arg(long, default_value = "1000,100000", value_delimiter = ',', value_name = "COUNT,...",
        value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    batch: Vec<u32>,
    /// Kinds of numbers
    #[arg(long, default_value = "c64,c128", value_delimiter = ',', value_name = "KIND,...")]
    numbers: Vec<Kind>,
    /// Measure every number of lanes and warps that makes sense and say which is best, in place of the
    /// one that is chosen by itself
    #[arg(long)]
    tune: bool,
    /// Measurements of which the median is told
    #[arg(long, default_value_t = 51, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// Decides everything that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write one JSON object; `-` prints it in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Kind {
    F32,
    F64,
    C64,
    C128,
}

fn sizes(text: &str) -> Result<RangeInclusive<usize>, String> {
    let number = |text: &str| text.parse::<usize>().map_err(|e| format!("{text}: {e}"));
    let range = match text.split_once("..") {
        Some((first, last)) => number(first)?..=number(last)?,
        None => number(text)?..=number(text)?,
    };
    match !range.is_empty() && *range.start() >= 1 && *range.end() <= MAX_SIZE {
        true => Ok(range),
        false => Err(format!("from 1 to {MAX_SIZE} unknowns are possible")),
    }
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    device: String,
    repeats: u32,
    lines: Vec<Line>,
    means: Vec<Mean>,
}

#[derive(Serialize)]
struct Line {
    numbers: &'static str,
    n: usize,
    batch: usize,
    /// The fastest of those measured.
    lanes: u32,
    warps: u32,
    us: Percentiles,
    cublas_us: Percentiles,
    /// cuBLAS' median over ours.
    ratio: f64,
    /// What has to be read and written in our median, TB/s.
    tb_per_s: f64,
    /// Largest |b - A x| / (|A| |x| + |b|), maximum norms.
    backward_error: f64,
    cublas_backward_error: f64,
    /// |x - x'| / |x'| where x' is that of cuBLAS.
    difference: Percentiles,
    /// Systems that were said to have no solution.
    failed: usize,
    /// Medians of all that were measured.
    tilings: Vec<Timed>,
}

#[derive(Serialize, Clone, Copy)]
struct Timed {
    lanes: u32,
    warps: u32,
    us: f64,
}

/// Geometric mean of the ratios.
#[derive(Serialize)]
struct Mean {
    numbers: &'static str,
    batch: usize,
    ratio: f64,
    least: f64,
}

impl BenchLu {
    pub fn run(self) -> anyhow::Result<()> {
        let context = Context::first()?;
        let cublas = Cublas::new(Stream::new(&context)?)?;
        let to_stdout = self.json.as_deref() == Some(Path::new("-"));
        let print = |line: String| {
            if !to_stdout {
                say(line);
            }
        };
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION"),
            device: context.device().name.clone(),
            repeats: self.repeats,
            lines: Vec::new(),
            means: Vec::new(),
        };
        print(report.head());
        for kind in &self.numbers {
            let mut add = |line: Line| {
                print(line.text());
                report.lines.push(line);
            };
            match kind {
                Kind::F32 => Bench::<f32>::new(&self, "f32", &cublas)?.run(&mut add)?,
                Kind::F64 => Bench::<f64>::new(&self, "f64", &cublas)?.run(&mut add)?,
                Kind::C64 => Bench::<Complex<f32>>::new(&self, "c64", &cublas)?.run(&mut add)?,
                Kind::C128 => Bench::<Complex<f64>>::new(&self, "c128", &cublas)?.run(&mut add)?,
            }
        }
        report.add_means();
        report.means.iter().for_each(|mean| print(mean.text()));
        if let Some(path) = &self.json {
            write_json(path, &report)?;
        }
        Ok(())
    }

    fn sizes(&self) -> impl Iterator<Item = usize> + '_ {
        self.n.iter().cloned().flatten()
    }
}

/// Measures one kind of numbers.
struct Bench<'a, T> {
    args: &'a BenchLu,
    name: &'static str,
    cublas: &'a Cublas,
    context: Arc<Context>,
    /// Random numbers, enough for all matrices and then for all right sides.
    pool: DeviceBuffer<T>,
    matrices: usize,
    scratch: [DeviceBuffer<f32>; 2],
    events: [Event; 2],
}

impl<'a, T: DeviceNumber + BlasNumber> Bench<'a, T> {
    fn new(args: &'a BenchLu, name: &'static str, cublas: &'a Cublas) -> anyhow::Result<Self> {
        let context = Arc::clone(cublas.stream().context());
        let most = args.batch.iter().max().map_or(0, |batch| *batch as usize);
        let largest = args.sizes().max().unwrap_or(0);
        let matrices = most * largest * largest;
        let mut numbers = vec![T::ZERO; matrices + most * largest];
        numbers.par_chunks_mut(1 << 16).enumerate().for_each(|(i, chunk)| {
            let mut rng = Pcg64Mcg::seed_from_u64(args.seed.wrapping_add(i as u64));
            chunk.fill_with(|| T::of(rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0)));
        });
        let pool = DeviceBuffer::holding(&numbers, cublas.stream())?;
        let mut scratch =
            [DeviceBuffer::new(&context, HEAD_START)?, DeviceBuffer::new(&context, HEAD_START)?];
        scratch.iter_mut().try_for_each(DeviceBuffer::clear)?;
        let events = [Event::timed(&context)?, Event::timed(&context)?];
        Ok(Self { args, name, cublas, context, pool, matrices, scratch, events })
    }

    fn run(&mut self, add: &mut impl FnMut(Line)) -> anyhow::Result<()> {
        let sizes: Vec<usize> = self.args.sizes().collect();
        let batches: Vec<usize> = self.args.batch.iter().map(|batch| *batch as usize).collect();
        let chosen = |n, batch| Tiling::choose::<T>(n, batch, self.context.processors());
        let mut wanted = Vec::new();
        for n in &sizes {
            let tilings: Vec<Tiling> = match self.args.tune {
                false => batches.iter().map(|batch| chosen(*n, *batch)).collect(),
                true => Tiling::lanes::<T>(*n)
                    .into_iter()
                    .flat_map(|lanes| [1, 2, MAX_WARPS].map(|warps| Tiling { lanes, warps }))
                    .collect(),
            };
            wanted.extend(tilings.into_iter().map(|tiling| (*n, tiling)));
        }
        wanted.dedup();
        // Compiling takes longer than measuring.
        let cache = cache_folder();
        let make = |(n, tiling)| BatchedLu::<T>::new(&self.context, n, tiling, cache.as_deref());
        let kernels = wanted.into_par_iter().map(make).collect::<Result<Vec<_>, _>>()?;
        self.context.bind()?;
        for n in sizes {
            for batch in &batches {
                let tiling = Tiling::choose::<T>(n, *batch, self.context.processors());
                let fits = |lu: &&BatchedLu<T>| lu.size() == n && (self.args.tune || lu.tiling() == tiling);
                let kernels: Vec<_> = kernels.iter().filter(fits).collect();
                let line = self.measure(n, *batch, &kernels);
                add(line.with_context(|| format!("{} {n} x {n}", self.name))?);
            }
        }
        Ok(())
    }

    fn measure(&mut self, n: usize, batch: usize, kernels: &[&BatchedLu<T>]) -> anyhow::Result<Line> {
        let stream = self.cublas.stream();
        let lu = kernels.first().context("there is no kernel")?;
        let mut ours = Ours {
            lu,
            a: DeviceBuffer::new(&self.context, n * n * batch)?,
            b: DeviceBuffer::new(&self.context, n * batch)?,
            x: DeviceBuffer::new(&self.context, n * batch)?,
            failed: DeviceBuffer::new(&self.context, batch)?,
        };
        let mut theirs = Theirs { cublas: self.cublas, batch: Batch::new(n, batch, stream)? };
        let mut timed = Vec::new();
        for lu in kernels {
            ours.lu = lu;
            timed.push((lu.tiling(), self.series(n, batch, &mut ours)?));
        }
        let fastest = timed.iter().min_by(|one, two| one.1.p50.total_cmp(&two.1.p50));
        let (best, us) = *fastest.context("nothing was measured")?;
        let cublas_us = self.series(n, batch, &mut theirs)?;

        let checked = batch.min(CHECKED);
        let theirs = theirs.batch;
        let systems = [ours.a.read(checked * n * n, stream)?, ours.b.read(checked * n, stream)?];
        let (x, other) = (ours.x.read(checked * n, stream)?, theirs.unknowns().read(checked * n, stream)?);
        let count = |codes: Vec<u32>| codes.into_iter().filter(|code| *code != 0).count();
        let failed = count(ours.failed.read(batch, stream)?);
        let of_cublas = count(theirs.info().read(batch, stream)?);
        let (error, other_error) = (backward_error(n, &systems, &x), backward_error(n, &systems, &other));
        let is_single = std::mem::size_of::<T::Size>() == 4;
        let rounding = if is_single { f64::from(f32::EPSILON) } else { f64::EPSILON };
        let is_right = error < 50.0 * n as f64 * rounding;
        if failed != of_cublas || !is_right {
            bail!("wrong: {failed} systems without solution, cuBLAS {of_cublas}; backward error {error:e}");
        }
        let bytes = batch * (std::mem::size_of::<T>() * n * (n + 2) + 4);
        Ok(Line {
            numbers: self.name,
            n,
            batch,
            lanes: best.lanes,
            warps: best.warps,
            us,
            cublas_us,
            ratio: cublas_us.p50 / us.p50,
            tb_per_s: bytes as f64 / us.p50 * 1e-6,
            backward_error: error,
            cublas_backward_error: other_error,
            difference: Percentiles::of(&mut differences(n, &x, &other)),
            failed,
            tilings: timed
                .iter()
                .map(|(t, us)| Timed { lanes: t.lanes, warps: t.warps, us: us.p50 })
                .collect(),
        })
    }

    /// Microseconds of a solution; before each one fresh numbers are loaded. Ends with those of the
    /// first set.
    fn series(
        &mut self,
        n: usize,
        batch: usize,
        subject: &mut impl Subject<T>,
    ) -> anyhow::Result<Percentiles> {
        let stream = self.cublas.stream();
        let sets = (self.matrices / (n * n * batch)).min(SETS);
        let repeats = self.args.repeats as usize;
        let [target, source] = &mut self.scratch;
        let [start, end] = &self.events;
        let mut series = Vec::with_capacity(repeats);
        // Two rounds of warm-up; round 0 is the last.
        for round in (0..repeats + 2).rev() {
            let set = round % sets;
            let right = self.matrices + set * n * batch % (self.pool.len() - self.matrices - n * batch + 1);
            target.copy_from(source, 0, stream)?;
            subject.load(&self.pool, [set * n * n * batch, right], stream)?;
            start.record(stream)?;
            subject.solve(batch, stream)?;
            end.record(stream)?;
            stream.wait()?;
            if round < repeats {
                series.push(end.us_since(start)?);
            }
        }
        Ok(Percentiles::of(&mut series))
    }
}

/// What is measured.
trait Subject<T> {
    /// Queues copies of matrices and right sides, from two places of `pool`.
    fn load(&mut self, pool: &DeviceBuffer<T>, places: [usize; 2], stream: &Stream) -> Result<(), GpuError>;
    /// Queues the solution.
    fn solve(&mut self, batch: usize, stream: &Stream) -> Result<(), GpuError>;
}

struct Ours<'a, T> {
    lu: &'a BatchedLu<T>,
    a: DeviceBuffer<T>,
    b: DeviceBuffer<T>,
    x: DeviceBuffer<T>,
    failed: DeviceBuffer<u32>,
}

impl<T: DeviceNumber> Subject<T> for Ours<'_, T> {
    fn load(&mut self, pool: &DeviceBuffer<T>, [a, b]: [usize; 2], stream: &Stream) -> Result<(), GpuError> {
        self.a.copy_from(pool, a, stream)?;
        self.b.copy_from(pool, b, stream)
    }

    fn solve(&mut self, batch: usize, stream: &Stream) -> Result<(), GpuError> {
        self.lu.solve(batch, [&self.a, &self.b], &mut self.x, &mut self.failed, stream)
    }
}

struct Theirs<'a, T> {
    cublas: &'a Cublas,
    batch: Batch<T>,
}

impl<T: BlasNumber> Subject<T> for Theirs<'_, T> {
    fn load(&mut self, pool: &DeviceBuffer<T>, places: [usize; 2], stream: &Stream) -> Result<(), GpuError> {
        self.batch.load(pool, places, stream)
    }

    fn solve(&mut self, _: usize, _: &Stream) -> Result<(), GpuError> {
        self.batch.solve(self.cublas)
    }
}

/// Largest |b - A x| / (|A| |x| + |b|), maximum norms, in double precision.
fn backward_error<T: DeviceNumber>(n: usize, [a, b]: &[Vec<T>; 2], x: &[T]) -> f64 {
    let z = |number: &T| {
        let [re, im] = number.parts();
        Complex::new(re, im)
    };
    let norm = |numbers: &[T]| numbers.iter().map(|number| z(number).norm()).fold(0.0, f64::max);
    let systems = a.chunks_exact(n * n).zip(b.chunks_exact(n)).zip(x.chunks_exact(n));
    let errors = systems.map(|((a, b), x)| {
        let (mut rest, mut rows) = (0f64, 0f64);
        for (i, right) in b.iter().enumerate() {
            let terms = || a.iter().skip(i).step_by(n).zip(x);
            rest = rest.max(terms().fold(z(right), |rest, (a, x)| rest - z(a) * z(x)).norm());
            rows = rows.max(terms().map(|(a, _)| z(a).norm()).sum());
        }
        rest / (rows * norm(x) + norm(b))
    });
    // NaN counts as the largest.
    errors.fold(0.0, |most, error| if error <= most { most } else { error })
}

fn differences<T: DeviceNumber>(n: usize, ours: &[T], theirs: &[T]) -> Vec<f64> {
    let apart = |one: &T, two: &T| {
        let ([a, b], [c, d]) = (one.parts(), two.parts());
        (a - c).hypot(b - d)
    };
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let systems = ours.chunks_exact(n).zip(theirs.chunks_exact(n));
    systems
        .map(|(x, y)| {
            let difference = most(&mut x.iter().zip(y).map(|(x, y)| apart(x, y)));
            difference / most(&mut y.iter().map(|y| apart(y, &T::ZERO)))
        })
        .collect()
}

impl Report {
    fn head(&self) -> String {
        format!(
            "flashreg {}, {}, medians of {}; TB/s: what must be read and written; error: |b - A x| / \
             (|A| |x| + |b|), largest; apart: of the unknowns, relative, median and largest\n\
             {:>5} {:>3} {:>8} {:>6} {:>6} {:>9} {:>6} {:>10} {:>6} {:>9} {:>9} {:>9} {:>9}",
            self.version,
            self.device,
            self.repeats,
            "kind",
            "N",
            "batch",
            "lanes",
            "warps",
            "us",
            "TB/s",
            "cuBLAS us",
            "ratio",
            "error",
            "cuBLAS",
            "apart",
            "most",
        )
    }

    fn add_means(&mut self) {
        let lines = &self.lines;
        for line in lines {
            let (numbers, batch) = (line.numbers, line.batch);
            if self.means.iter().any(|mean| mean.numbers == numbers && mean.batch == batch) {
                continue;
            }
            let ratios: Vec<f64> =
                lines.iter().filter(|l| l.numbers == numbers && l.batch == batch).map(|l| l.ratio).collect();
            let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            self.means.push(Mean { numbers, batch, ratio: (sum / ratios.len() as f64).exp(), least });
        }
    }
}

impl Line {
    fn text(&self) -> String {
        let mut text = format!(
            "{:>5} {:>3} {:>8} {:>6} {:>6} {:>9.1} {:>6.2} {:>10.1} {:>6.2} {:>9.1e} {:>9.1e} {:>9.1e} {:>9.1e}",
            self.numbers,
            self.n,
            self.batch,
            self.lanes,
            self.warps,
            self.us.p50,
            self.tb_per_s,
            self.cublas_us.p50,
            self.ratio,
            self.backward_error,
            self.cublas_backward_error,
            self.difference.p50,
            self.difference.max,
        );
        if self.tilings.len() > 1 {
            let all = self.tilings.iter().map(|t| format!(" {}x{}: {:.1}", t.lanes, t.warps, t.us));
            text.extend(["  lanes x warps"].into_iter().map(str::to_owned).chain(all));
        }
        text
    }
}

impl Mean {
    fn text(&self) -> String {
        let Self { numbers, batch, ratio, least } = self;
        format!("{numbers:>5}, batches of {batch}: {ratio:.2} times as fast as cuBLAS (geometric mean), least {least:.2}")
    }
}
