//! `flashreg hc start`: start sets made, checked, and moved to where tracks are short.

use super::hc::{load, state, with_bar, FEW_PATHS};
use super::say;
use anyhow::{bail, Context};
use clap::Args;
use flashreg::homotopy::monodromy::{monodromy, random_parameters, trace_test, Options, STRAIGHT};
use flashreg::homotopy::problems::{Problem, Random};
use flashreg::homotopy::tune::{self, tuned};
use flashreg::homotopy::{Settings, Solver, StartSet, System};
use nalgebra::Complex;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Way {
    Degrees,
    Monodromy,
}

#[derive(Args)]
pub struct Start {
    /// A form (FILE.yaml), or a problem of the library
    system: String,
    /// Where it is written [default: NAME.start]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Decides everything that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How: by the degrees of the equations at random parameters, which finds all regular roots, or
    /// by monodromy, which finds those that loops connect with the first one [default: monodromy for
    /// problems of the library and for many paths]
    #[arg(long)]
    by: Option<Way>,
    /// Loops in a row without a new root after which it stops
    #[arg(long, default_value_t = 10)]
    quiet: usize,
    /// Leave the trace test out
    #[arg(long)]
    no_trace: bool,
    /// A start set that is there already, to be moved only
    #[arg(long, value_name = "FILE", conflicts_with_all = ["by", "quiet", "no_trace"])]
    from: Option<PathBuf>,
    /// So many start parameters are tried: for problems of the library on random instances, for a form
    /// with values on random numbers of their sizes
    #[arg(long, default_value_t = 200)]
    candidates: usize,
    /// It gives up after so many seconds
    #[arg(long, default_value_t = 3600)]
    seconds: u64,
}

impl Start {
    pub fn run(self) -> anyhow::Result<()> {
        let (mut system, problem) = load(&self.system)?;
        if system.parameters.is_empty() {
            system =
                system.free_coefficients().context("no parameters, and too many terms to make them so")?;
        }
        let deadline = Instant::now() + Duration::from_secs(self.seconds);
        let start = match &self.from {
            Some(path) => {
                let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                StartSet::from_bytes(&bytes, &system)?
            }
            None => self.make(&system, problem.as_ref(), deadline)?,
        };
        let start = self.moved(&system, problem.as_ref(), start, deadline);
        let out = self.out.unwrap_or_else(|| PathBuf::from(format!("{}.start", system.name)));
        let bytes = start.to_bytes(&system);
        std::fs::write(&out, &bytes).with_context(|| format!("cannot write {}", out.display()))?;
        say(format!("{}: {} bytes", out.display(), bytes.len()));
        Ok(())
    }

    /// A start set at random parameters, with the trace test.
    fn make(
        &self,
        system: &System,
        problem: Option<&Problem>,
        deadline: Instant,
    ) -> anyhow::Result<StartSet> {
        let mut options =
            Options { seed: self.seed, quiet: self.quiet, deadline: Some(deadline), ..Options::default() };
        if let Some(problem) = problem {
            options.scales = tune::scales(&drawn(problem, 30));
            options.known = problem.instance(self.seed).map(|i| (i.near, i.parameters));
        }
        let begin = Instant::now();
        let few = problem.is_none() && system.bezout() <= FEW_PATHS;
        let way = self.by.unwrap_or(if few { Way::Degrees } else { Way::Monodromy });
        let start = match way {
            Way::Degrees => by_degrees(system, &options)?,
            Way::Monodromy => with_bar("monodromy", |show| monodromy(system, &options, |p| show(state(p))))?,
        };
        let start = start.checked(system)?;
        let took = begin.elapsed();
        say(format!(
            "{}: {} roots up to symmetry, seed {}, {took:.1?}",
            system.name,
            start.roots.len(),
            self.seed
        ));
        if way == Way::Monodromy && !self.no_trace {
            let all: usize = start.roots.iter().map(|r| system.orbit(r).len()).sum();
            match with_bar("trace test", |show| trace_test(system, &start, &options, |p| show(state(p)))) {
                Some(t) if t.bend < STRAIGHT && t.roots == all => {
                    say(format!("complete by the trace test: {all} roots with images, bend {:.1e}", t.bend));
                }
                Some(t) => {
                    let (bend, roots) = (t.bend, t.roots);
                    bail!(
                        "the trace test fails: bend {bend:.1e}, {roots} roots on the curve, {all} in the set"
                    );
                }
                None => say("the trace test could not be made: points were lost, or time ran out"),
            }
        }
        Ok(start)
    }

    /// The start set moved to where tracks are short.
    fn moved(
        &self,
        system: &System,
        problem: Option<&Problem>,
        start: StartSet,
        deadline: Instant,
    ) -> StartSet {
        // Many tracks tell as much as many instances.
        let count = (12_000 / start.roots.len().max(1)).clamp(8, 128);
        let mut targets = problem.map_or(Vec::new(), |problem| drawn(problem, count));
        if let (true, Some(values)) = (targets.is_empty(), &system.values) {
            let mut random = Random::new(self.seed);
            let mut like = |v: &Complex<f64>| Complex::new(v.norm() * random.normal(1.0), 0.0);
            targets = (0..count).map(|_| values.iter().map(&mut like).collect()).collect();
        }
        if targets.is_empty() || self.candidates == 0 {
            return start;
        }
        let options =
            tune::Options { seed: self.seed, candidates: self.candidates, deadline: Some(deadline) };
        let solver = Solver::new(system.clone(), start, Settings::default());
        let (start, [before, after]) = with_bar("start parameters", |show| {
            tuned(&solver, &targets, &options, |tried, best| {
                show(format!("{tried} tried, {:.1} steps, {:.1} the longest", best.steps, best.longest));
            })
        });
        say(format!(
            "on {count} instances: steps {:.1} -> {:.1}, longest track {:.1} -> {:.1}, found {:.3} % -> {:.3} %",
            before.steps,
            after.steps,
            before.longest,
            after.longest,
            100.0 * before.found,
            100.0 * after.found
        ));
        start
    }
}

/// Parameters of instances that no benchmark and no test has; none if the problem is one system only.
fn drawn(problem: &Problem, count: usize) -> Vec<Vec<Complex<f64>>> {
    const FIRST: u64 = 1 << 40;
    (FIRST..).take(count).map_while(|seed| problem.instance(seed)).map(|i| i.parameters).collect()
}

/// All regular roots of random parameters, from the start that the degrees give.
fn by_degrees(system: &System, options: &Options) -> anyhow::Result<StartSet> {
    let parameters = random_parameters(system, options);
    let (blend, start) = StartSet::total_degree(system, &parameters, options.seed)?;
    let target = blend.values.clone().unwrap_or_default();
    let solver = Solver::new(blend, start, Settings::default());
    let solution = solver.solve(&[target], options.deadline).remove(0);
    let roots = solution.found().map(|r| r.point.to_vec()).collect();
    Ok(StartSet { parameters, roots, note: String::new() })
}
