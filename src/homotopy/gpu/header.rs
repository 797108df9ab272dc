//! What the kernels know of a system: sizes and programs, compiled with them or as tables.

use super::{Tiling, PREPARE_LANES, WARP};
use crate::gpu::GpuError;
use crate::homotopy::lu::MAX_SIZE;
use crate::homotopy::program::Compiled;
use crate::homotopy::schedule::{pitch, Schedule};
use std::fmt::Write;

/// Shared memory of a block, at most.
const SHARED: usize = 48 << 10;
/// Numbers of a lane's coefficients that are kept in registers, at most.
const HELD: usize = 12;
/// Sizes of a system, by their names in the kernels.
const SIZES: [&str; 11] = [
    "C",
    "TERMS",
    "SLOTS",
    "FIRST_CONSTANT",
    "CONSTANTS",
    "MATRIX",
    "H",
    "JACOBIAN_ROUNDS",
    "TANGENT_ROUNDS",
    "ROUNDS",
    "PER_LANE",
];

/// A system spread over tiles.
pub struct Fitted {
    tiling: Tiling,
    unknowns: usize,
    sizes: [usize; SIZES.len()],
    /// Programs and constants.
    pub schedule: Schedule,
    /// Bytes of shared memory that a block takes.
    pub shared: usize,
}

/// A system and its programs do not fit a block.
fn too_large(unknowns: usize) -> GpuError {
    GpuError::Absent(format!("a system of {unknowns} unknowns and its programs do not fit a block"))
}

impl Fitted {
    /// Spreads a system; `bytes` of a complex number.
    pub fn new(compiled: &Compiled, tiling: Tiling, bytes: usize) -> Result<Self, GpuError> {
        let Tiling { lanes, warps } = tiling;
        let n = compiled.unknowns;
        let allowed = (1..=MAX_SIZE).contains(&n) && n <= lanes && lanes <= WARP && lanes.is_power_of_two();
        let schedule = Some(compiled).filter(|_| allowed).and_then(|c| Schedule::of_steps(c, lanes));
        let schedule = schedule.ok_or_else(|| too_large(n))?;
        let [jacobian, tangent] = [schedule.rounds(0), schedule.rounds(1)];
        let matrix = schedule.first_constant + schedule.constants.len();
        let vectors = 2 * (n + 2) + 4 * n;
        let words = (jacobian + tangent + 2) * lanes * 8;
        // A number more, to be even.
        let shared = words + (schedule.slots + vectors + 1) * bytes * warps * (WARP / lanes);
        if shared > SHARED {
            return Err(too_large(n));
        }
        let sizes = [
            compiled.coefficients,
            terms(compiled),
            schedule.slots,
            schedule.first_constant,
            schedule.constants.len(),
            matrix,
            matrix + n * pitch(n),
            jacobian,
            tangent,
            jacobian + tangent,
            compiled.coefficients.div_ceil(lanes),
        ];
        Ok(Self { tiling, unknowns: n, sizes, schedule, shared })
    }

    /// The system as a header of the kernels.
    pub fn header(&self) -> String {
        let [coefficients, terms, .., per_lane] = self.sizes;
        let held = per_lane * terms <= HELD;
        let kept = if held && coefficients > 0 { [per_lane, terms] } else { [1, 1] };
        let mut text = first_lines(false, self.unknowns, self.tiling, held, kept);
        // Writing to a string does not fail.
        for (name, value) in SIZES.iter().zip(self.sizes) {
            let _ = writeln!(text, "constexpr int {name} = {value};");
        }
        text + &programs("", "real", &self.schedule)
    }

    /// Sizes of the system as the first numbers of `table`, see [`header_of_any`].
    pub fn sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.sizes.iter().map(|size| *size as u64)
    }
}

/// How many numbers `table` has: sizes, then the addresses of words and constants.
pub const TABLE: usize = SIZES.len() + 2;

/// The header of kernels for any system of up to so many unknowns, which are told by `table`.
pub fn header_of_any(unknowns: usize, tiling: Tiling) -> String {
    let mut text = first_lines(true, unknowns, tiling, false, [1, 1]);
    let _ = writeln!(text, "extern \"C\" {{ __constant__ u64 table[{TABLE}]; }}");
    for (i, name) in SIZES.iter().enumerate() {
        let _ = writeln!(text, "#define {name} ((int)table[{i}])");
    }
    let _ = writeln!(text, "#define WORDS ((const u64*)table[{}])", SIZES.len());
    let _ = writeln!(text, "#define NUMBERS ((const real*)table[{}])", SIZES.len() + 1);
    text
}

fn first_lines(any: bool, n: usize, tiling: Tiling, held: bool, [kept, kept_terms]: [usize; 2]) -> String {
    let mut text = format!("// Made by src/homotopy/gpu/header.rs.\n#define ANY {}\n", u32::from(any));
    let numbers = [
        ("N", n),
        ("LANES", tiling.lanes),
        ("WARPS", tiling.warps),
        ("PITCH", pitch(n)),
        ("HELD", usize::from(held)),
        ("KEPT", kept),
        ("KEPT_TERMS", kept_terms),
    ];
    for (name, value) in numbers {
        let _ = writeln!(text, "constexpr int {name} = {value};");
    }
    text
}

/// What a header has besides for coefficients computed and roots told apart on the device, and slots for
/// the coefficients.
pub fn preparation(compiled: &Compiled) -> Result<(String, usize), GpuError> {
    let prepare =
        Schedule::of_coefficients(compiled, PREPARE_LANES).ok_or_else(|| too_large(compiled.unknowns))?;
    let numbers = [
        ("PARAMETERS", compiled.parameters),
        ("PREPARE_LANES", PREPARE_LANES),
        ("PREPARE_SLOTS", prepare.slots),
        ("PREPARE_CONSTANTS", prepare.constants.len()),
        ("PREPARE_ROUNDS", prepare.rounds(0)),
    ];
    let mut text = String::new();
    for (name, value) in numbers {
        let _ = writeln!(text, "constexpr int {name} = {value};");
    }
    Ok((text + &programs("PREPARE_", "double", &prepare), prepare.slots))
}

/// Constants and words as arrays.
fn programs(prefix: &str, real: &str, schedule: &Schedule) -> String {
    let constants = schedule.constants.iter().map(|v| format!("{:?}, {:?}", v.re, v.im));
    let constants = constants.collect::<Vec<_>>().join(", ");
    let words = schedule.words.iter().flatten().map(|w| format!("{w:#x}"));
    // Never empty.
    let words = words.chain(["0".to_owned()]).collect::<Vec<_>>().join(",\n");
    format!(
        "__device__ const {real} {prefix}NUMBERS[] = {{{constants}}};\n\
         __device__ const u64 {prefix}WORDS[] = {{{words}}};\n"
    )
}

/// Terms of a coefficient as a polynomial on the path.
pub fn terms(compiled: &Compiled) -> usize {
    compiled.degree.max(1) + 1
}
