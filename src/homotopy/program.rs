//! Straight-line programs: what the CPU interprets and what CUDA source is printed from.
//!
//! A system becomes coefficients, which are polynomials of the parameters alone, and equations in
//! unknowns and coefficients. Along a path the parameters are linear in `t`, so a coefficient is a
//! polynomial of `t`, computed once per instance. Two programs remain for the tracker:
//! `jacobian` gives H and its derivatives by the unknowns; `tangent` gives H and its rate of
//! change when unknowns and coefficients change at given rates.

use super::graph::{Graph, Id, Node};
use super::pack::{Pack, WIDTH};
use super::system::System;
use nalgebra::Complex;
use std::collections::HashMap;

/// One operation; the numbers are slots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Instruction {
    /// `to = a + b`
    Add {
        /// Where the result goes.
        to: u32,
        /// First operand.
        a: u32,
        /// Second operand.
        b: u32,
    },
    /// `to = a - b`
    Sub {
        /// Where the result goes.
        to: u32,
        /// First operand.
        a: u32,
        /// Second operand.
        b: u32,
    },
    /// `to = a * b`
    Mul {
        /// Where the result goes.
        to: u32,
        /// First operand.
        a: u32,
        /// Second operand.
        b: u32,
    },
    /// `to = by * a`
    Scale {
        /// Where the result goes.
        to: u32,
        /// Operand.
        a: u32,
        /// A real number.
        by: f64,
    },
}

impl Instruction {
    /// The same with other slots.
    #[cfg(feature = "cuda")]
    pub(super) fn moved(self, slot: impl Fn(u32) -> u32) -> Self {
        match self {
            Self::Add { to, a, b } => Self::Add { to: slot(to), a: slot(a), b: slot(b) },
            Self::Sub { to, a, b } => Self::Sub { to: slot(to), a: slot(a), b: slot(b) },
            Self::Mul { to, a, b } => Self::Mul { to: slot(to), a: slot(a), b: slot(b) },
            Self::Scale { to, a, by } => Self::Scale { to: slot(to), a: slot(a), by },
        }
    }
}

/// A list of operations on slots: first the inputs, then constants, then results.
#[derive(Debug, Clone)]
pub struct Program {
    /// How many inputs there are.
    pub inputs: usize,
    /// Constants, in the slots after the inputs.
    pub constants: Vec<Complex<f64>>,
    /// What to do, in order.
    pub code: Vec<Instruction>,
    /// Slots of the results.
    pub outputs: Vec<u32>,
    /// How many slots there are.
    pub slots: usize,
}

impl Program {
    /// The program that computes `outputs`; symbols are the inputs, `inputs` of them.
    fn new(graph: &Graph, inputs: usize, outputs: &[Id]) -> Self {
        let needed = graph.needed(outputs);
        let mut last_use: Vec<usize> = vec![0; needed.len()];
        for i in (0..needed.len()).filter(|&i| needed[i]) {
            for o in graph.nodes()[i].operands() {
                last_use[o.index()] = i;
            }
        }
        for id in outputs {
            last_use[id.index()] = usize::MAX;
        }
        // Real factors are part of their instruction; all other constants have slots.
        let mut constants = Vec::new();
        let mut slot_of: Vec<u32> = vec![0; needed.len()];
        let factor = |id: Id| graph.node(id).value().filter(|v| v.im == 0.0);
        let mut stored = vec![false; needed.len()];
        for i in (0..needed.len()).filter(|&i| needed[i]) {
            let node = graph.nodes()[i];
            for o in node.operands() {
                let folded = matches!(node, Node::Mul(a, _) if a == o && factor(a).is_some());
                stored[o.index()] |= !folded;
            }
        }
        outputs.iter().for_each(|id| stored[id.index()] = true);
        for i in (0..needed.len()).filter(|&i| stored[i]) {
            if let Some(value) = graph.nodes()[i].value() {
                slot_of[i] = (inputs + constants.len()) as u32;
                constants.push(value);
            }
        }
        let mut slots = inputs + constants.len();
        let mut free: Vec<u32> = Vec::new();
        let mut code = Vec::new();
        for i in (0..needed.len()).filter(|&i| needed[i]) {
            let node = graph.nodes()[i];
            match node {
                Node::Symbol(s) => slot_of[i] = s,
                Node::Constant(..) => {}
                _ => {
                    let of: Vec<u32> = node.operands().map(|o| slot_of[o.index()]).collect();
                    // Slots of operands that nobody needs any more are free for the result.
                    let mut operands: Vec<Id> = node.operands().collect();
                    operands.dedup();
                    for o in operands {
                        let result = !matches!(graph.node(o), Node::Symbol(_) | Node::Constant(..));
                        if result && last_use[o.index()] == i {
                            free.push(slot_of[o.index()]);
                        }
                    }
                    let to = free.pop().unwrap_or_else(|| {
                        slots += 1;
                        slots as u32 - 1
                    });
                    slot_of[i] = to;
                    code.push(match (node, of.as_slice()) {
                        (Node::Mul(a, _), [_, b]) if factor(a).is_some() => {
                            Instruction::Scale { to, a: *b, by: factor(a).map_or(1.0, |v| v.re) }
                        }
                        (Node::Mul(..), [a, b]) => Instruction::Mul { to, a: *a, b: *b },
                        (Node::Add(..), [a, b]) => Instruction::Add { to, a: *a, b: *b },
                        // Division and roots are refused where equations are read.
                        (_, [a, b]) => Instruction::Sub { to, a: *a, b: *b },
                        (_, [a]) => Instruction::Scale { to, a: *a, by: f64::NAN },
                        _ => Instruction::Scale { to, a: to, by: f64::NAN },
                    });
                }
            }
        }
        let outputs = outputs.iter().map(|id| slot_of[id.index()]).collect();
        Self { inputs, constants, code, outputs, slots }
    }

    /// What it costs, in real multiplications and additions.
    pub fn flops(&self) -> usize {
        let cost = |i: &Instruction| match i {
            Instruction::Mul { .. } => 6,
            _ => 2,
        };
        self.code.iter().map(cost).sum()
    }

    /// Runs it; inputs and constants are in their slots.
    #[inline(always)]
    pub fn run(&self, slots: &mut [Pack]) {
        for instruction in &self.code {
            match *instruction {
                Instruction::Add { to, a, b } => slots[to as usize] = slots[a as usize] + slots[b as usize],
                Instruction::Sub { to, a, b } => slots[to as usize] = slots[a as usize] - slots[b as usize],
                Instruction::Mul { to, a, b } => slots[to as usize] = slots[a as usize] * slots[b as usize],
                Instruction::Scale { to, a, by } => {
                    slots[to as usize] = slots[a as usize].scale(&[by; WIDTH]);
                }
            }
        }
    }

    /// The results when the inputs are polynomials of one variable, cut off after `terms` terms.
    /// `inputs` and the results hold `terms` numbers for each.
    fn run_series(&self, inputs: &[Complex<f64>], terms: usize) -> Vec<Complex<f64>> {
        let zero = Complex::new(0.0, 0.0);
        let mut slots = inputs.to_vec();
        for constant in &self.constants {
            slots.push(*constant);
            slots.extend(std::iter::repeat_n(zero, terms - 1));
        }
        slots.resize(self.slots * terms, zero);
        // Terms of each up to the last that is not zero: most have few.
        let length = |x: &[Complex<f64>]| x.iter().rposition(|v| *v != zero).map_or(0, |k| k + 1);
        let mut lengths: Vec<usize> = slots.chunks(terms).map(length).collect();
        let mut result = vec![zero; terms];
        for instruction in &self.code {
            let at = |slot: u32, k: usize| slots[slot as usize * terms + k];
            let length = |slot: u32| lengths[slot as usize];
            let (to, filled) = match *instruction {
                Instruction::Add { to, a, b } => {
                    let filled = length(a).max(length(b));
                    (0..filled).for_each(|k| result[k] = at(a, k) + at(b, k));
                    (to, filled)
                }
                Instruction::Sub { to, a, b } => {
                    let filled = length(a).max(length(b));
                    (0..filled).for_each(|k| result[k] = at(a, k) - at(b, k));
                    (to, filled)
                }
                Instruction::Mul { to, a, b } => {
                    let (m, n) = (length(a), length(b));
                    let filled = if m > 0 && n > 0 { (m + n - 1).min(terms) } else { 0 };
                    for (k, sum) in result[..filled].iter_mut().enumerate() {
                        let first = (k + 1).saturating_sub(n);
                        *sum = (first..m.min(k + 1)).map(|j| at(a, j) * at(b, k - j)).sum();
                    }
                    (to, filled)
                }
                Instruction::Scale { to, a, by } => {
                    (0..length(a)).for_each(|k| result[k] = at(a, k) * by);
                    (to, length(a))
                }
            };
            result[filled..].fill(zero);
            slots[to as usize * terms..][..terms].copy_from_slice(&result);
            lengths[to as usize] = filled;
        }
        let output = |slot: &u32| slots[*slot as usize * terms..][..terms].to_vec();
        self.outputs.iter().flat_map(output).collect()
    }
}

/// A system ready for tracking.
///
/// Inputs of `jacobian` and `tangent` are, in this order: N unknowns, N rates of them, C
/// coefficients, C rates of them.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// N, how many unknowns.
    pub unknowns: usize,
    /// P, how many parameters.
    pub parameters: usize,
    /// C, how many coefficients.
    pub coefficients: usize,
    /// Highest degree of a coefficient in the parameters.
    pub degree: usize,
    /// Parameters to coefficients.
    pub prepare: Program,
    /// H, then the derivatives that are not zero.
    pub jacobian: Program,
    /// Row and column of each derivative in `jacobian`.
    pub entries: Vec<(u16, u16)>,
    /// H, then its rate of change.
    pub tangent: Program,
}

/// The coefficients of an instance along a path, and at its end.
#[derive(Debug, Clone)]
pub struct Path {
    /// For each coefficient the numbers of its polynomial in `t`, lowest first.
    pub series: Vec<Complex<f64>>,
    /// The coefficients at `t = 1`, computed from the parameters there.
    pub end: Vec<Complex<f64>>,
}

impl Compiled {
    /// Compiles the equations as they are written, or expanded and nested, whichever costs less.
    pub fn new(system: &System) -> Self {
        let written = Self::from_graph(system, system.graph.clone(), &system.equations);
        let Some(expanded) = system.expanded() else {
            return written;
        };
        let n = system.unknowns.len() as u32;
        let mut graph = Graph::default();
        let equations: Vec<Id> = expanded.iter().map(|p| p.nest(&mut graph, |s| s < n)).collect();
        let nested = Self::from_graph(system, graph, &equations);
        if nested.cost() < written.cost() {
            nested
        } else {
            written
        }
    }

    /// Operations of a step.
    fn cost(&self) -> usize {
        self.jacobian.flops() + self.tangent.flops() + 4 * self.coefficients * (self.degree + 1)
    }

    fn from_graph(system: &System, graph: Graph, equations: &[Id]) -> Self {
        let (n, p) = system.size();
        let of_unknowns = graph.depends(|s| (s as usize) < n);
        let of_parameters = graph.depends(|s| (s as usize) >= n);
        let needed = graph.needed(equations);
        // A coefficient: made of parameters only, and used together with unknowns.
        let mut used = vec![false; graph.len()];
        for i in (0..graph.len()).filter(|&i| needed[i] && of_unknowns[i]) {
            graph.nodes()[i].operands().for_each(|o| used[o.index()] = true);
        }
        let is_coefficient = |i: usize| used[i] && of_parameters[i] && !of_unknowns[i];
        let coefficient_ids: Vec<usize> =
            (0..graph.len()).filter(|&i| needed[i] && is_coefficient(i)).collect();
        let c = coefficient_ids.len();
        // Parameters to coefficients: parameter k is symbol k.
        let mut parameter_graph = Graph::default();
        let wanted: Vec<bool> = {
            let mut wanted = vec![false; graph.len()];
            coefficient_ids.iter().for_each(|&i| wanted[i] = true);
            for i in (0..graph.len()).rev().filter(|&i| !of_unknowns[i]) {
                if wanted[i] {
                    graph.nodes()[i].operands().for_each(|o| wanted[o.index()] = true);
                }
            }
            wanted
        };
        let moved = copy(&graph, &mut parameter_graph, &wanted, |_, s| Some(s - n as u32));
        let outputs: Vec<Id> = coefficient_ids.iter().filter_map(|i| moved.get(i).copied()).collect();
        let degree = degree(&parameter_graph, &outputs);
        let prepare = Program::new(&parameter_graph, p, &outputs);
        // Equations in unknowns (symbols 0..n), their rates, coefficients (from 2 n) and their rates.
        let number: HashMap<usize, u32> =
            coefficient_ids.iter().zip(0..).map(|(i, k)| (*i, 2 * n as u32 + k)).collect();
        let mut inner = Graph::default();
        let wanted: Vec<bool> = (0..graph.len())
            .map(|i| {
                needed[i] && (of_unknowns[i] || number.contains_key(&i) || (used[i] && !of_parameters[i]))
            })
            .collect();
        let moved = copy_with(&graph, &mut inner, &wanted, |i, node| match (number.get(&i), node) {
            (Some(s), _) => Some(*s),
            (None, Node::Symbol(s)) => Some(s),
            _ => None,
        });
        let h: Vec<Id> = equations.iter().filter_map(|id| moved.get(&id.index()).copied()).collect();
        let mut outputs = h.clone();
        let mut entries = Vec::new();
        let (one, zero) = (inner.real(1.0), inner.real(0.0));
        for j in 0..n {
            let column = inner.derivatives(&h, |s| (s as usize == j).then_some(one));
            for (i, id) in column.into_iter().enumerate().filter(|(_, id)| *id != zero) {
                outputs.push(id);
                entries.push((i as u16, j as u16));
            }
        }
        let inputs = 2 * n + 2 * c;
        let jacobian = Program::new(&inner, inputs, &outputs);
        let rates: Vec<Id> = (0..inputs as u32).map(|s| inner.symbol(s)).collect();
        let rate = |s: u32| match s as usize {
            s if s < n => Some(rates[n + s]),
            s if (2 * n..2 * n + c).contains(&s) => Some(rates[s + c]),
            _ => None,
        };
        let change = inner.derivatives(&h, rate);
        let tangent = Program::new(&inner, inputs, &[h, change].concat());
        Self { unknowns: n, parameters: p, coefficients: c, degree, prepare, jacobian, entries, tangent }
    }

    /// The coefficients along the straight path from parameters `from` to parameters `to`.
    pub fn path(&self, from: &[Complex<f64>], to: &[Complex<f64>]) -> Path {
        let terms = self.degree + 1;
        let zero = Complex::new(0.0, 0.0);
        let inputs = from.iter().zip(to).flat_map(|(a, b)| {
            (0..terms).map(move |k| match k {
                0 => *a,
                1 => b - a,
                _ => zero,
            })
        });
        let inputs: Vec<_> = inputs.collect();
        Path { series: self.prepare.run_series(&inputs, terms), end: self.prepare.run_series(to, 1) }
    }
}

/// Degrees of `outputs` in all symbols, the highest.
fn degree(graph: &Graph, outputs: &[Id]) -> usize {
    let mut degrees: Vec<usize> = Vec::with_capacity(graph.len());
    for node in graph.nodes() {
        let degree = match *node {
            Node::Constant(..) => 0,
            Node::Symbol(_) => 1,
            Node::Mul(a, b) => degrees[a.index()] + degrees[b.index()],
            _ => node.operands().map(|o| degrees[o.index()]).max().unwrap_or(0),
        };
        degrees.push(degree);
    }
    outputs.iter().map(|id| degrees[id.index()]).max().unwrap_or(0)
}

/// Copies the nodes that `wanted` picks into another graph, symbols renamed.
fn copy(
    from: &Graph,
    to: &mut Graph,
    wanted: &[bool],
    rename: impl Fn(usize, u32) -> Option<u32>,
) -> HashMap<usize, Id> {
    copy_with(from, to, wanted, |i, node| match node {
        Node::Symbol(s) => rename(i, s),
        _ => None,
    })
}

/// Copies the nodes that `wanted` picks; those for which `symbol` gives a number become that symbol.
fn copy_with(
    from: &Graph,
    to: &mut Graph,
    wanted: &[bool],
    symbol: impl Fn(usize, Node) -> Option<u32>,
) -> HashMap<usize, Id> {
    let mut moved: HashMap<usize, Id> = HashMap::new();
    for i in (0..from.len()).filter(|&i| wanted[i]) {
        let node = from.nodes()[i];
        let id = match (symbol(i, node), node, node.value()) {
            (Some(s), ..) => to.symbol(s),
            (None, _, Some(value)) => to.constant(value),
            (None, _, None) => {
                let operands: Vec<Id> =
                    node.operands().filter_map(|o| moved.get(&o.index()).copied()).collect();
                match (node, operands.as_slice()) {
                    (Node::Add(..), [a, b]) => to.add(*a, *b),
                    (Node::Sub(..), [a, b]) => to.sub(*a, *b),
                    (Node::Mul(..), [a, b]) => to.mul(*a, *b),
                    // Equations have no other nodes, and operands come before what uses them.
                    _ => to.real(f64::NAN),
                }
            }
        };
        moved.insert(i, id);
    }
    moved
}
