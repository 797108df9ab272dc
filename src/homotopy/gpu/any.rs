//! Kernels for any system of up to so many unknowns, made ahead: for machines without a compiler.

use super::header::{header_of_any, Fitted, TABLE};
use super::{track_sources, Number, WHOLE_WARP};
use crate::gpu::buffers::DeviceBuffer;
use crate::gpu::bundle::{Bundle, Program};
use crate::gpu::context::Stream;
use crate::gpu::GpuError;
use crate::homotopy::program::{self, Compiled};
use nalgebra::Complex;
use std::sync::LazyLock;

/// Unknowns that kernels are made for; what has fewer is filled up.
const SIZES: [usize; 4] = [4, 8, 16, 32];

struct Made {
    name: String,
    sources: [(&'static str, &'static str); 5],
    single: bool,
    unknowns: usize,
}

static HEADERS: LazyLock<[String; SIZES.len()]> =
    LazyLock::new(|| SIZES.map(|n| header_of_any(n, WHOLE_WARP)));

static MADE: LazyLock<Vec<Made>> = LazyLock::new(|| {
    let made = |single: bool| {
        SIZES.iter().zip(HEADERS.iter()).map(move |(&unknowns, header)| Made {
            name: format!("homotopy_{}_{unknowns}", if single { "f32" } else { "f64" }),
            sources: track_sources(header),
            single,
            unknowns,
        })
    };
    made(false).chain(made(true)).collect()
});

impl Made {
    fn program(&'static self) -> (&'static str, Program<'static>) {
        (&self.name, Program { sources: &self.sources, options: options(self.single) })
    }
}

/// Options of the kernels of either precision.
pub fn options(single: bool) -> &'static [&'static str] {
    match single {
        true => &["-DSINGLE=1"],
        false => &[],
    }
}

/// All of them, by their names.
pub fn programs() -> Vec<(&'static str, Program<'static>)> {
    MADE.iter().map(Made::program).collect()
}

/// A system for such kernels.
pub struct Any {
    /// With unknowns that are zero.
    pub fitted: Fitted,
    /// Of the kernels.
    pub unknowns: usize,
    /// Their name and what they are made from.
    pub program: (&'static str, Program<'static>),
}

impl Any {
    /// For a system.
    pub fn of<T: Number>(compiled: &Compiled) -> Result<Self, GpuError> {
        let made = MADE.iter().find(|made| made.single == T::SINGLE && compiled.unknowns <= made.unknowns);
        let too_many =
            || GpuError::Absent(format!("{} unknowns are too many for the kernels", compiled.unknowns));
        let made = made.ok_or_else(too_many)?;
        let fitted = Fitted::new(&filled_up(compiled, made.unknowns), WHOLE_WARP, std::mem::size_of::<T>())?;
        Ok(Self { fitted, unknowns: made.unknowns, program: made.program() })
    }

    /// Tells the loaded kernels of the system; what they read lies in the buffers.
    pub fn fill<T: Number>(
        &self,
        bundle: &Bundle,
        stream: &Stream,
    ) -> Result<(DeviceBuffer<u64>, DeviceBuffer<T>), GpuError> {
        let words: Vec<u64> = self.fitted.schedule.words.iter().flatten().copied().collect();
        let constants: Vec<T> = self.fitted.schedule.constants.iter().map(|v| T::of(*v)).collect();
        let (words, constants) =
            (DeviceBuffer::holding(&words, stream)?, DeviceBuffer::holding(&constants, stream)?);
        let table: Vec<u64> = self.fitted.sizes().chain([words.address(), constants.address()]).collect();
        debug_assert_eq!(table.len(), TABLE);
        bundle.fill("table", &table)?;
        Ok((words, constants))
    }
}

/// The system with more unknowns, `n` together: each with the equation that it is zero.
fn filled_up(compiled: &Compiled, n: usize) -> Compiled {
    let (had, c) = (compiled.unknowns, compiled.coefficients);
    let more = n - had;
    let wider = |program: &program::Program| {
        let (inputs, first_result) = (program.inputs, program.inputs + program.constants.len());
        let slot = move |s: u32| {
            let s = s as usize;
            let moved = match s {
                _ if s < had => s,
                _ if s < 2 * had => s + more,
                _ if s < first_result => s + 2 * more,
                // Two constants more.
                _ => s + 2 * more + 2,
            };
            moved as u32
        };
        let constants = [&program.constants[..], &[Complex::new(0.0, 0.0), Complex::new(1.0, 0.0)]].concat();
        debug_assert_eq!(inputs, 2 * (had + c));
        let zero = (first_result + 2 * more) as u32;
        let wider = program::Program {
            inputs: inputs + 2 * more,
            constants,
            code: program.code.iter().map(|instruction| instruction.moved(slot)).collect(),
            outputs: program.outputs.iter().map(|s| slot(*s)).collect(),
            slots: program.slots + 2 * more + 2,
        };
        (wider, zero)
    };
    let (mut jacobian, zero) = wider(&compiled.jacobian);
    let entries = jacobian.outputs.split_off(had);
    jacobian.outputs.extend(vec![zero; more].into_iter().chain(entries).chain(vec![zero + 1; more]));
    let (mut tangent, zero) = wider(&compiled.tangent);
    let rates = tangent.outputs.split_off(had);
    tangent.outputs.extend(vec![zero; more].into_iter().chain(rates).chain(vec![zero; more]));
    let diagonal = (had..n).map(|i| (i as u16, i as u16));
    let entries = compiled.entries.iter().copied().chain(diagonal).collect();
    Compiled { unknowns: n, jacobian, tangent, entries, ..compiled.clone() }
}
