//! Programs spread over the lanes of a tile.
//!
//! Every operation becomes `to = ±c ± a b`: sums take in the products that only they use, and what is
//! no product multiplies by one. So lanes never part. In each round a lane does one operation, whose
//! operands were computed in earlier rounds; the longest chains go first.

use super::program::{Compiled, Instruction, Program};
use nalgebra::Complex;
use std::collections::HashMap;

/// Bits of a slot's number in a word.
const BITS: u32 = 15;
/// Slots that words can name.
pub const MAX_SLOTS: usize = 1 << BITS;

/// A number of a program: an input, a constant, or what an operation gives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Value {
    Input(u32),
    Constant(u64, u64),
    Result(usize),
}

impl Value {
    fn result(self) -> Option<usize> {
        match self {
            Value::Result(i) => Some(i),
            _ => None,
        }
    }
}

const ZERO: Value = Value::Constant(0, 0);
const ONE: Value = Value::Constant(0x3ff0_0000_0000_0000, 0);

fn constant(value: Complex<f64>) -> Value {
    Value::Constant(value.re.to_bits(), value.im.to_bits())
}

/// `±c ± a b`
#[derive(Clone, Copy, Debug)]
struct Operation {
    c: Value,
    a: Value,
    b: Value,
    /// The signs are minus.
    minus: [bool; 2],
}

impl Operation {
    fn product(a: Value, b: Value) -> Self {
        Self { c: ZERO, a, b, minus: [false; 2] }
    }

    fn operands(&self) -> [Value; 3] {
        [self.c, self.a, self.b]
    }

    fn is_sum(&self) -> bool {
        self.b == ONE
    }

    fn is_product(&self) -> bool {
        self.c == ZERO && !self.is_sum()
    }

    fn results(&self) -> impl Iterator<Item = usize> {
        self.operands().into_iter().filter_map(Value::result)
    }
}

/// Operations under way, and how late their results are.
struct Fused {
    list: Vec<Operation>,
    depth: Vec<usize>,
    wide: bool,
}

impl Fused {
    fn depth(&self, value: Value) -> usize {
        value.result().map_or(0, |i| self.depth[i])
    }

    fn push(&mut self, operation: Operation) -> Value {
        let latest = operation.operands().into_iter().map(|v| self.depth(v)).max();
        self.depth.push(1 + latest.unwrap_or(0));
        self.list.push(operation);
        Value::Result(self.list.len() - 1)
    }

    /// The sum of values and of products, those with `true` taken away: round after round of what is
    /// there.
    fn sum(&mut self, mut values: Vec<(Value, bool)>, mut products: Vec<(Value, Value, bool)>) -> Value {
        for time in 0.. {
            if products.is_empty() && values.len() <= 1 {
                break;
            }
            let is_there = |v: &Value| self.depth(*v) <= time;
            let (mut now, later): (Vec<_>, Vec<_>) =
                products.into_iter().partition(|(a, b, _)| is_there(a) && is_there(b));
            products = later;
            let (mut ready, later): (Vec<_>, Vec<_>) = values.into_iter().partition(|(v, _)| is_there(v));
            values = later;
            while let (Some(&(c, less_c)), Some(&(a, b, less))) = (ready.last(), now.last()) {
                ready.pop();
                now.pop();
                values.push((self.push(Operation { c, a, b, minus: [less_c, less] }), false));
            }
            let starts = match self.wide {
                true => (now.len() + 1).saturating_sub(values.len()) / 2,
                false => usize::from(values.is_empty() && !now.is_empty()),
            };
            for (a, b, less) in now.drain(..starts.min(now.len())) {
                values.push((self.push(Operation { c: ZERO, a, b, minus: [false, less] }), false));
            }
            if self.wide || (products.is_empty() && now.is_empty()) {
                while let [.., (c, less_c), (a, less)] = ready[..] {
                    ready.truncate(ready.len() - 2);
                    values.push((self.push(Operation { c, a, b: ONE, minus: [less_c, less] }), false));
                }
            }
            products.append(&mut now);
            values.append(&mut ready);
        }
        match values.first() {
            Some((value, false)) => *value,
            Some((c, true)) => self.push(Operation { c: *c, a: ZERO, b: ZERO, minus: [true, false] }),
            None => ZERO,
        }
    }
}

/// The operations of a program, and its outputs.
struct Operations {
    list: Vec<Operation>,
    outputs: Vec<Value>,
}

impl Operations {
    fn of(program: &Program) -> Self {
        let mut values: Vec<Value> = (0..program.inputs as u32).map(Value::Input).collect();
        values.extend(program.constants.iter().map(|v| constant(*v)));
        values.resize(program.slots, ZERO);
        let mut list = Vec::new();
        for instruction in &program.code {
            let value = |slot: u32| values[slot as usize];
            let (to, operation) = match *instruction {
                Instruction::Add { to, a, b } => {
                    (to, Operation { c: value(a), a: value(b), b: ONE, minus: [false; 2] })
                }
                Instruction::Sub { to, a, b } => {
                    (to, Operation { c: value(a), a: value(b), b: ONE, minus: [false, true] })
                }
                Instruction::Mul { to, a, b } => (to, Operation::product(value(a), value(b))),
                Instruction::Scale { to, a, by } => {
                    (to, Operation::product(value(a), constant(Complex::new(by, 0.0))))
                }
            };
            values[to as usize] = Value::Result(list.len());
            list.push(operation);
        }
        let outputs = program.outputs.iter().map(|slot| values[*slot as usize]).collect();
        Self { list, outputs }
    }

    /// The same outputs with sums that take in products. `wide`: sums of many are made side by side,
    /// which takes more operations and fewer rounds.
    fn fused(&self, wide: bool) -> Self {
        let mut uses = vec![0usize; self.list.len()];
        let outputs = self.outputs.iter().filter_map(|v| v.result());
        let operands = self.list.iter().flat_map(Operation::results);
        outputs.chain(operands).for_each(|i| uses[i] += 1);
        // Operations that only one sum needs are part of it.
        let mut is_part = vec![false; self.list.len()];
        for sum in self.list.iter().filter(|o| o.is_sum()) {
            for k in [sum.c, sum.a].into_iter().filter_map(Value::result) {
                is_part[k] = uses[k] == 1 && (self.list[k].is_sum() || self.list[k].is_product());
            }
        }
        let mut fused = Fused { list: Vec::new(), depth: Vec::new(), wide };
        let mut value_of = vec![ZERO; self.list.len()];
        for i in (0..self.list.len()).filter(|i| !is_part[*i]) {
            let operation = self.list[i];
            let moved = |v: Value| v.result().map_or(v, |k| value_of[k]);
            if !operation.is_sum() {
                let [c, a, b] = operation.operands().map(moved);
                value_of[i] = fused.push(Operation { c, a, b, ..operation });
                continue;
            }
            let (mut values, mut products) = (Vec::new(), Vec::new());
            let mut open = vec![(operation.c, operation.minus[0]), (operation.a, operation.minus[1])];
            while let Some((value, minus)) = open.pop() {
                match value.result().filter(|k| is_part[*k]).map(|k| self.list[k]) {
                    Some(part) if part.is_sum() => {
                        open.push((part.a, minus != part.minus[1]));
                        open.push((part.c, minus != part.minus[0]));
                    }
                    Some(product) => products.push((moved(product.a), moved(product.b), minus)),
                    None if value == ZERO => {}
                    None => values.push((moved(value), minus)),
                }
            }
            value_of[i] = fused.sum(values, products);
        }
        let outputs = self.outputs.iter().map(|v| v.result().map_or(*v, |k| value_of[k])).collect();
        Self { list: fused.list, outputs }
    }

    /// Operations copy outputs that are inputs, constants or twice there, so that each output has an
    /// operation of its own; gives the number of the output of those that have one.
    fn own_outputs(&mut self) -> Vec<Option<usize>> {
        let mut output_of = vec![None; self.list.len()];
        for (k, value) in self.outputs.iter_mut().enumerate() {
            match *value {
                Value::Result(i) if output_of[i].is_none() => output_of[i] = Some(k),
                other => {
                    self.list.push(Operation { c: other, ..Operation::product(ZERO, ZERO) });
                    output_of.push(Some(k));
                    *value = Value::Result(self.list.len() - 1);
                }
            }
        }
        output_of
    }

    /// Operations of each round.
    fn rounds(&self, lanes: usize) -> Vec<Vec<usize>> {
        let count = self.list.len();
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut waits = vec![0; count];
        for (i, operation) in self.list.iter().enumerate() {
            for k in operation.results() {
                users[k].push(i);
                waits[i] += 1;
            }
        }
        // The longest chain of users.
        let mut chain = vec![0usize; count];
        for i in (0..count).rev() {
            chain[i] = users[i].iter().map(|u| 1 + chain[*u]).max().unwrap_or(0);
        }
        let key = |i: usize| (chain[i], std::cmp::Reverse(i));
        let mut ready: std::collections::BinaryHeap<_> =
            (0..count).filter(|i| waits[*i] == 0).map(key).collect();
        let mut rounds = Vec::new();
        while !ready.is_empty() {
            let round: Vec<usize> = (0..lanes).map_while(|_| ready.pop()).map(|(_, i)| i.0).collect();
            for user in round.iter().flat_map(|i| &users[*i]) {
                waits[*user] -= 1;
                if waits[*user] == 0 {
                    ready.push(key(*user));
                }
            }
            rounds.push(round);
        }
        rounds
    }
}

/// Slots from the first temporary on, those that are free again first.
struct Temporaries {
    next: usize,
    free: Vec<usize>,
}

/// Where a tile keeps its numbers, and what its lanes do in each round.
pub struct Schedule {
    /// Lanes of the tile.
    pub lanes: usize,
    /// Constants and the first of their slots; the first of them is zero.
    pub constants: Vec<Complex<f64>>,
    /// See `constants`.
    pub first_constant: usize,
    /// Words of each program, a round after the other.
    pub words: Vec<Vec<u64>>,
    /// All slots.
    pub slots: usize,
}

impl Schedule {
    /// Spreads programs of the same inputs over `lanes` lanes. Their outputs have slots of their own:
    /// `outputs` gives for each program the place of each output, counted from the first slot after
    /// the constants. `room` is how many such places there are. `None` if there are too many slots.
    fn new(programs: &[&Program], outputs: &[Vec<usize>], room: usize, lanes: usize) -> Option<Self> {
        // Whichever takes fewer rounds.
        let best = |p: &&Program| {
            let [narrow, wide] = [false, true].map(|wide| Operations::of(p).fused(wide));
            match wide.rounds(lanes).len() < narrow.rounds(lanes).len() {
                true => wide,
                false => narrow,
            }
        };
        let mut all: Vec<Operations> = programs.iter().map(best).collect();
        let owners: Vec<Vec<Option<usize>>> = all.iter_mut().map(Operations::own_outputs).collect();
        let first_constant = programs.first()?.inputs;
        let mut constants: Vec<Value> = vec![ZERO];
        let mut place = HashMap::from([(ZERO, 0)]);
        for value in all.iter().flat_map(|o| &o.list).flat_map(Operation::operands) {
            if matches!(value, Value::Constant(..)) && !place.contains_key(&value) {
                place.insert(value, constants.len());
                constants.push(value);
            }
        }
        let first_output = first_constant + constants.len();
        let outputs: Vec<Vec<usize>> =
            outputs.iter().map(|list| list.iter().map(|at| first_output + at).collect()).collect();
        let mut slots = first_output + room;
        let mut words = Vec::new();
        for ((operations, owner), outputs) in all.iter().zip(&owners).zip(&outputs) {
            let rounds = operations.rounds(lanes);
            let mut last = vec![0; operations.list.len()];
            for (round, list) in rounds.iter().enumerate() {
                list.iter().flat_map(|i| operations.list[*i].results()).for_each(|k| last[k] = round);
            }
            let mut temporaries = Temporaries { next: first_output + room, free: Vec::new() };
            let mut slot_of = vec![0; operations.list.len()];
            let mut ends: Vec<Vec<usize>> = vec![Vec::new(); rounds.len()];
            let mut program = Vec::new();
            for (round, list) in rounds.iter().enumerate() {
                // What was last read in the round before may be written in this one.
                if round > 0 {
                    temporaries.free.append(&mut ends[round - 1]);
                }
                for lane in 0..lanes {
                    // Idle lanes multiply zeros, into the slot of a zero.
                    let Some(&i) = list.get(lane) else {
                        program.push(word(first_constant, [first_constant; 3], [false; 2]));
                        continue;
                    };
                    let to = match owner[i] {
                        Some(k) => outputs[k],
                        None => {
                            let slot = temporaries.free.pop().unwrap_or_else(|| {
                                temporaries.next += 1;
                                temporaries.next - 1
                            });
                            ends[last[i]].push(slot);
                            slot
                        }
                    };
                    slot_of[i] = to;
                    let operation = &operations.list[i];
                    let from = operation.operands().map(|value| match value {
                        Value::Input(k) => k as usize,
                        Value::Result(k) => slot_of[k],
                        other => first_constant + place.get(&other).copied().unwrap_or(0),
                    });
                    program.push(word(to, from, operation.minus));
                }
            }
            slots = slots.max(temporaries.next);
            program.chunks_exact_mut(lanes).for_each(spread);
            words.push(program);
        }
        let constants = constants
            .iter()
            .map(|v| match v {
                Value::Constant(re, im) => Complex::new(f64::from_bits(*re), f64::from_bits(*im)),
                _ => Complex::new(0.0, 0.0),
            })
            .collect();
        (slots <= MAX_SLOTS).then_some(Self { lanes, constants, first_constant, words, slots })
    }

    /// For the steps of a track: the Jacobian matrix row by row, `pitch(n)` slots apart, with H behind
    /// it; then H and its rate of change.
    pub fn of_steps(compiled: &Compiled, lanes: usize) -> Option<Self> {
        let n = compiled.unknowns;
        let room = n * pitch(n) + 2 * n;
        Self::new(&[&compiled.jacobian, &compiled.tangent], &places(compiled), room, lanes)
    }

    /// For the coefficients of an instance.
    pub fn of_coefficients(compiled: &Compiled, lanes: usize) -> Option<Self> {
        let c = compiled.coefficients;
        Self::new(&[&compiled.prepare], &[(0..c).collect()], c, lanes)
    }

    /// Rounds of a program.
    pub fn rounds(&self, program: usize) -> usize {
        self.words.get(program).map_or(0, |w| w.len() / self.lanes)
    }
}

/// Places of the outputs of the Jacobian and of the tangent program.
fn places(compiled: &Compiled) -> [Vec<usize>; 2] {
    let (n, pitch) = (compiled.unknowns, pitch(compiled.unknowns));
    let cells = compiled.entries.iter().map(|(row, column)| *row as usize * pitch + *column as usize);
    [(0..n).map(|i| n * pitch + i).chain(cells).collect(), (0..2 * n).map(|i| n * pitch + i).collect()]
}

/// From one row of the matrix to the next: odd, so that equal columns lie in different banks.
pub fn pitch(n: usize) -> usize {
    n | 1
}

/// Orders the words of a round so that lanes that go to shared memory together, eight of them, seldom
/// want different slots of the same bank.
fn spread(round: &mut [u64]) {
    const TOGETHER: usize = 8;
    let cost = |lanes: &[u64]| -> usize {
        let field = |f: u32| {
            let mut banks = [0; TOGETHER];
            for (i, word) in lanes.iter().enumerate() {
                let slot = |w: &u64| (w >> (16 * f)) as usize & (MAX_SLOTS - 1);
                let is_new = lanes[..i].iter().all(|other| slot(other) != slot(word));
                banks[slot(word) % TOGETHER] += usize::from(is_new);
            }
            // Squares: the way down is not flat.
            banks.iter().map(|count| count * count).sum::<usize>()
        };
        (0..4).map(field).sum()
    };
    let groups = round.len() / TOGETHER;
    let mut better = true;
    while better {
        better = false;
        for (g, h) in (0..groups).flat_map(|g| (0..g).map(move |h| (g, h))) {
            let sum = |round: &[u64]| {
                [g, h].map(|g| cost(&round[g * TOGETHER..][..TOGETHER])).iter().sum::<usize>()
            };
            let mut least = sum(round);
            for (i, j) in
                (0..TOGETHER * TOGETHER).map(|k| (g * TOGETHER + k % TOGETHER, h * TOGETHER + k / TOGETHER))
            {
                round.swap(i, j);
                let new = sum(round);
                if new < least {
                    (least, better) = (new, true);
                } else {
                    round.swap(i, j);
                }
            }
        }
    }
}

fn word(to: usize, [c, a, b]: [usize; 3], minus: [bool; 2]) -> u64 {
    let [less_c, less_a] = minus.map(u64::from);
    to as u64 | (c as u64 | less_c << BITS | (a as u64) << 16 | less_a << 31 | (b as u64) << 32) << 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homotopy::pack::Pack;
    use crate::homotopy::problems::all;

    /// Runs a program as a tile does.
    fn run(schedule: &Schedule, program: usize, slots: &mut [Complex<f64>]) {
        for round in schedule.words[program].chunks_exact(schedule.lanes) {
            let at = |word: u64, field: u32| (word >> (16 * field)) as usize & (MAX_SLOTS - 1);
            let value = |word: u64| {
                let [c, a, b] = [1, 2, 3].map(|field| slots[at(word, field)]);
                let c = if word >> 31 & 1 == 1 { -c } else { c };
                c + if word >> 47 & 1 == 1 { -(a * b) } else { a * b }
            };
            let results: Vec<_> = round.iter().map(|word| (at(*word, 0), value(*word))).collect();
            results.into_iter().for_each(|(to, value)| slots[to] = value);
        }
    }

    #[test]
    fn lanes_compute_what_the_program_does() {
        for problem in all() {
            let compiled = Compiled::new(&problem.system().expect("a system"));
            for lanes in [1, 8, 32] {
                let schedule = Schedule::of_steps(&compiled, lanes).expect("it fits");
                let first = schedule.first_constant + schedule.constants.len();
                let mut slots = vec![Complex::new(0.0, 0.0); schedule.slots];
                for (i, slot) in slots[..schedule.first_constant].iter_mut().enumerate() {
                    *slot = Complex::new(libm::sin(i as f64), libm::cos(1.3 * i as f64));
                }
                slots[schedule.first_constant..][..schedule.constants.len()]
                    .copy_from_slice(&schedule.constants);
                for (p, program) in [&compiled.jacobian, &compiled.tangent].into_iter().enumerate() {
                    let mut packs: Vec<Pack> = slots[..program.inputs]
                        .iter()
                        .chain(&program.constants)
                        .map(|v| Pack::splat(*v))
                        .collect();
                    packs.resize(program.slots, Pack::ZERO);
                    program.run(&mut packs);
                    run(&schedule, p, &mut slots);
                    for (slot, at) in program.outputs.iter().zip(&places(&compiled)[p]) {
                        let (want, got) = (packs[*slot as usize].get(0), slots[first + at]);
                        let apart = (want - got).norm();
                        assert!(apart <= 1e-11 * (1.0 + want.norm()), "{}: {want} {got}", problem.name);
                    }
                }
            }
        }
    }
}
