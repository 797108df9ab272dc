//! Latency of the registration:
//! `cargo bench --no-default-features --features cuda --bench registration [-- FRAMES] [--backend cpu|cuda]`
//! (the CPU unless said otherwise).
//!
//! One line a problem: size, graph, and p50 / p95 / p99 / max of the whole, CPU time of all
//! threads; then the median of each stage (on the GPU: device time between events, the last one
//! host time). Quiet machines only; the figures that were kept stand in RESULTS.md.

#[path = "../tests/common/mod.rs"]
mod common;

use common::problems::*;
use flashreg::params::{Params, Value};
use flashreg::registration::{Correspondence, Registrar, StageTimes};

/// Seconds that the libtorch TurboReg took on two CPU cores with K = 1,000 (recorded beside the
/// data, not measured here).
const TURBOREG_CPU: [(&str, f64); 3] = [
    ("mac_python_test/pair given", 4.7),
    ("turboreg_demo_a/000 fpfh", 4.3),
    ("geotransformer_demo/pair fpfh_v05", 2.5),
];

fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

/// CPU seconds of all threads so far (Linux; 10 ms steps). A busy machine inflates the latencies
/// but hardly this.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|v| v.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

struct Measured {
    median_ms: f64,
}

fn measure(name: &str, rows: &[Correspondence], params: &Params, frames: usize) -> Measured {
    let problem = problem(rows);
    let mut registrar = Registrar::new(params).expect("a backend");
    let (mut total, mut stages) = (Vec::new(), vec![Vec::new(); StageTimes::NAMES.len()]);
    let mut facts = String::new();
    let mut cpu = 0.0;
    for frame in 0..frames + 5 {
        let start = std::time::Instant::now();
        let result = registrar.register(&problem, params);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        if frame == 4 {
            cpu = cpu_seconds();
        }
        assert_eq!(result.backend, params.backend.kind.word(), "{}", result.reason);
        // The first frames touch their memory for the first time.
        if frame < 5 {
            let n = rows.len() as f64;
            let density = 200.0 * result.edges as f64 / (n * (n - 1.0));
            facts = format!("{:6} {:9} {density:6.2} {:12}", rows.len(), result.edges, result.status.name());
            continue;
        }
        total.push(ms);
        for (all, us) in stages.iter_mut().zip(result.stages.values()) {
            all.push(us * 1e-3);
        }
    }
    let cpu_ms = (cpu_seconds() - cpu) * 1e3 / frames as f64;
    total.sort_by(f64::total_cmp);
    stages.iter_mut().for_each(|s| s.sort_by(f64::total_cmp));
    let q = |q: f64| quantile(&total, q);
    let medians: Vec<String> = stages.iter().map(|s| format!("{:8.3}", quantile(s, 0.5))).collect();
    println!(
        "{name:36} {facts} {:8.3} {:8.3} {:8.3} {:8.3} {cpu_ms:8.1} |{}",
        q(0.5),
        q(0.95),
        q(0.99),
        q(1.0),
        medians.join("")
    );
    Measured { median_ms: q(0.5) }
}

fn main() {
    // Cargo passes --bench.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let frames = arguments.iter().find_map(|a| a.parse().ok()).unwrap_or(200);
    let named = arguments.iter().position(|a| a == "--backend").and_then(|i| arguments.get(i + 1));
    let backend = named.map_or("cpu", String::as_str);
    let preset = |outdoor| with(preset(outdoor), "backend.kind", Value::Text(backend.into()));
    let outdoor = preset(true);
    let registrar = Registrar::new(&outdoor).unwrap_or_else(|e| panic!("{e}"));
    println!(
        "{frames} frames a line, {backend} ({}), {} threads, K = 1000, milliseconds",
        registrar.why(),
        registrar.threads()
    );
    drop(registrar);
    println!(
        "{:36} {:>6} {:>9} {:>6} {:12} {:>8} {:>8} {:>8} {:>8} {:>8} | median of {}",
        "problem",
        "N",
        "edges",
        "%",
        "status",
        "p50",
        "p95",
        "p99",
        "max",
        "cpu",
        StageTimes::NAMES.join(", ")
    );
    let mut rng = random(1);
    let truth = random_pose(&mut rng, 20.0);
    let rows = planted(&mut rng, 5000, 540, STREET, 0.05, &truth);
    measure("synthetic street", &rows, &outdoor, frames);
    for n in [1000, 2000, 4000, 8000, 16_000] {
        let rows = planted(&mut rng, n, n / 20, STREET, 0.2, &truth);
        measure("growth, 5 % inliers", &rows, &outdoor, frames / 4 + 1);
    }
    let rows = planted(&mut rng, 10_000, 10_000, STREET, 0.0, &truth);
    let complete = with(outdoor.clone(), "registration.min_length", Value::Float(0.0));
    measure("complete graph", &rows, &complete, 5);

    let Some(pairs) = real_pairs() else { return };
    for pair in &pairs {
        let m = measure(&pair.name, &pair.rows, &preset(pair.outdoor), frames);
        if let Some((_, seconds)) = TURBOREG_CPU.iter().find(|(name, _)| *name == pair.name) {
            println!("{:36} {:.0} times as fast as TurboReg's {seconds} s", "", seconds * 1e3 / m.median_ms);
        }
    }
}
