//! Expressions as a graph in which every subexpression exists once.
//!
//! Nodes are made through constructors that fold constants and find an equal node if there is one,
//! so that what is written twice, or comes out of two derivatives, is computed once. A node only
//! refers to nodes before it: the numbers of the nodes are an order of evaluation.

use nalgebra::Complex;
use std::collections::HashMap;

/// A node of a [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(u32);

impl Id {
    /// Its place in the order of evaluation.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Node {
    /// A number, its real and imaginary part as bits.
    Constant(u64, u64),
    /// An input.
    Symbol(u32),
    /// Sum.
    Add(Id, Id),
    /// Difference.
    Sub(Id, Id),
    /// Product.
    Mul(Id, Id),
    /// Quotient.
    Div(Id, Id),
    /// Square root, either one.
    Sqrt(Id),
}

impl Node {
    /// The nodes it uses.
    pub fn operands(self) -> impl Iterator<Item = Id> {
        let (a, b) = match self {
            Node::Constant(..) | Node::Symbol(_) => (None, None),
            Node::Add(a, b) | Node::Sub(a, b) | Node::Mul(a, b) | Node::Div(a, b) => (Some(a), Some(b)),
            Node::Sqrt(a) => (Some(a), None),
        };
        a.into_iter().chain(b)
    }

    /// The number of a constant.
    pub fn value(self) -> Option<Complex<f64>> {
        match self {
            Node::Constant(re, im) => Some(Complex::new(f64::from_bits(re), f64::from_bits(im))),
            _ => None,
        }
    }
}

/// Expressions that share their parts.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    known: HashMap<Node, Id>,
}

impl Graph {
    /// What a node computes.
    pub fn node(&self, id: Id) -> Node {
        self.nodes[id.index()]
    }

    /// All nodes, in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    fn insert(&mut self, node: Node) -> Id {
        let nodes = &mut self.nodes;
        *self.known.entry(node).or_insert_with(|| {
            nodes.push(node);
            Id(nodes.len() as u32 - 1)
        })
    }

    /// A number.
    pub fn constant(&mut self, value: Complex<f64>) -> Id {
        // One zero, not four.
        let bits = |v: f64| if v == 0.0 { 0 } else { v.to_bits() };
        self.insert(Node::Constant(bits(value.re), bits(value.im)))
    }

    /// A real number.
    pub fn real(&mut self, value: f64) -> Id {
        self.constant(Complex::new(value, 0.0))
    }

    /// An input.
    pub fn symbol(&mut self, index: u32) -> Id {
        self.insert(Node::Symbol(index))
    }

    fn value(&self, id: Id) -> Option<Complex<f64>> {
        self.node(id).value()
    }

    fn is(&self, id: Id, number: f64) -> bool {
        self.value(id) == Some(Complex::new(number, 0.0))
    }

    /// `-b`, if `id` is that.
    fn negated(&self, id: Id) -> Option<Id> {
        match self.node(id) {
            Node::Mul(a, b) if self.is(a, -1.0) => Some(b),
            _ => None,
        }
    }

    /// `a + b`
    pub fn add(&mut self, a: Id, b: Id) -> Id {
        if let (Some(u), Some(v)) = (self.value(a), self.value(b)) {
            return self.constant(u + v);
        }
        match (self.is(a, 0.0), self.is(b, 0.0)) {
            (true, _) => return b,
            (_, true) => return a,
            _ => {}
        }
        if let Some(b) = self.negated(b) {
            return self.sub(a, b);
        }
        if let Some(a) = self.negated(a) {
            return self.sub(b, a);
        }
        self.insert(Node::Add(a.min(b), a.max(b)))
    }

    /// `a - b`
    pub fn sub(&mut self, a: Id, b: Id) -> Id {
        if let (Some(u), Some(v)) = (self.value(a), self.value(b)) {
            return self.constant(u - v);
        }
        if a == b {
            return self.real(0.0);
        }
        if self.is(b, 0.0) {
            return a;
        }
        if self.is(a, 0.0) {
            return self.neg(b);
        }
        if let Some(b) = self.negated(b) {
            return self.add(a, b);
        }
        self.insert(Node::Sub(a, b))
    }

    /// `-a`
    pub fn neg(&mut self, a: Id) -> Id {
        if let Node::Sub(u, v) = self.node(a) {
            return self.sub(v, u);
        }
        let minus = self.real(-1.0);
        self.mul(minus, a)
    }

    /// `a * b`; a constant stands first.
    pub fn mul(&mut self, a: Id, b: Id) -> Id {
        let (a, b) = match (self.value(a), self.value(b)) {
            (Some(u), Some(v)) => return self.constant(u * v),
            (None, Some(_)) => (b, a),
            (Some(_), None) => (a, b),
            (None, None) => (a.min(b), a.max(b)),
        };
        if let Some(u) = self.value(a) {
            if u == Complex::new(1.0, 0.0) {
                return b;
            }
            if u == Complex::new(0.0, 0.0) {
                return a;
            }
            if let Node::Mul(c, d) = self.node(b) {
                if let Some(v) = self.value(c) {
                    let both = self.constant(u * v);
                    return self.mul(both, d);
                }
            }
        } else if let Some(a) = self.negated(a) {
            let product = self.mul(a, b);
            return self.neg(product);
        } else if let Some(b) = self.negated(b) {
            let product = self.mul(a, b);
            return self.neg(product);
        }
        self.insert(Node::Mul(a, b))
    }

    /// `a / b`
    pub fn div(&mut self, a: Id, b: Id) -> Id {
        match self.value(b) {
            Some(v) => {
                let inverse = self.constant(Complex::new(1.0, 0.0) / v);
                self.mul(a, inverse)
            }
            None => self.insert(Node::Div(a, b)),
        }
    }

    /// A square root of `a`.
    pub fn sqrt(&mut self, a: Id) -> Id {
        self.insert(Node::Sqrt(a))
    }

    /// `a^n` by squaring.
    pub fn pow(&mut self, a: Id, n: u32) -> Id {
        let mut result = self.real(1.0);
        let mut square = a;
        let mut left = n;
        while left > 0 {
            if left & 1 == 1 {
                result = self.mul(result, square);
            }
            left >>= 1;
            if left > 0 {
                square = self.mul(square, square);
            }
        }
        result
    }

    /// Copies all nodes into another graph with other nodes in place of the symbols; the copies in
    /// the order of the nodes.
    pub fn replaced(&self, to: &mut Graph, symbol: impl Fn(u32) -> Id) -> Vec<Id> {
        let mut copies: Vec<Id> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let copy = match *node {
                Node::Constant(..) => to.insert(*node),
                Node::Symbol(s) => symbol(s),
                Node::Add(a, b) => to.add(copies[a.index()], copies[b.index()]),
                Node::Sub(a, b) => to.sub(copies[a.index()], copies[b.index()]),
                Node::Mul(a, b) => to.mul(copies[a.index()], copies[b.index()]),
                Node::Div(a, b) => to.div(copies[a.index()], copies[b.index()]),
                Node::Sqrt(a) => to.sqrt(copies[a.index()]),
            };
            copies.push(copy);
        }
        copies
    }

    /// A graph of the nodes that `outputs` need, and those there.
    pub fn part(&self, outputs: &[Id]) -> (Self, Vec<Id>) {
        let mut part = Self::default();
        let mut copies = vec![Id(0); self.nodes.len()];
        let needed = self.needed(outputs);
        for (i, node) in self.nodes.iter().enumerate().filter(|(i, _)| needed[*i]) {
            let at = |id: Id| copies[id.index()];
            copies[i] = part.insert(match *node {
                Node::Constant(..) | Node::Symbol(_) => *node,
                Node::Add(a, b) => Node::Add(at(a), at(b)),
                Node::Sub(a, b) => Node::Sub(at(a), at(b)),
                Node::Mul(a, b) => Node::Mul(at(a), at(b)),
                Node::Div(a, b) => Node::Div(at(a), at(b)),
                Node::Sqrt(a) => Node::Sqrt(at(a)),
            });
        }
        (part, outputs.iter().map(|id| copies[id.index()]).collect())
    }

    /// The nodes that `outputs` need, themselves included: true for each that is needed.
    pub fn needed(&self, outputs: &[Id]) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        for id in outputs {
            needed[id.index()] = true;
        }
        for i in (0..self.nodes.len()).rev() {
            if needed[i] {
                for o in self.nodes[i].operands() {
                    needed[o.index()] = true;
                }
            }
        }
        needed
    }

    /// For each node whether it depends on a symbol that `which` picks.
    pub fn depends(&self, which: impl Fn(u32) -> bool) -> Vec<bool> {
        let mut depends = vec![false; self.nodes.len()];
        for (i, node) in self.nodes.iter().enumerate() {
            depends[i] = match node {
                Node::Symbol(s) => which(*s),
                _ => node.operands().any(|o| depends[o.index()]),
            };
        }
        depends
    }

    /// The derivatives of `outputs` when the symbol `s` changes at the rate `rate(s)` (`None`: it stays).
    ///
    /// With a rate of one for one symbol these are partial derivatives, with rates that are symbols
    /// themselves a derivative along a direction. Outputs are polynomials: no `Div`, no `Sqrt`.
    pub fn derivatives(&mut self, outputs: &[Id], rate: impl Fn(u32) -> Option<Id>) -> Vec<Id> {
        let needed = self.needed(outputs);
        let zero = self.real(0.0);
        let mut rates = vec![zero; needed.len()];
        for i in (0..needed.len()).filter(|&i| needed[i]) {
            let of = |id: Id, rates: &[Id]| rates[id.index()];
            rates[i] = match self.nodes[i] {
                Node::Symbol(s) => rate(s).unwrap_or(zero),
                Node::Add(a, b) => self.add(of(a, &rates), of(b, &rates)),
                Node::Sub(a, b) => self.sub(of(a, &rates), of(b, &rates)),
                Node::Mul(a, b) if a == b => {
                    let half = self.mul(a, of(a, &rates));
                    self.add(half, half)
                }
                Node::Mul(a, b) => {
                    let (left, right) = (self.mul(of(a, &rates), b), self.mul(a, of(b, &rates)));
                    self.add(left, right)
                }
                Node::Constant(..) | Node::Div(..) | Node::Sqrt(_) => zero,
            };
        }
        outputs.iter().map(|id| rates[id.index()]).collect()
    }

    /// Numbers for the nodes up to the last of `outputs`, given those of the symbols.
    pub fn evaluate(&self, outputs: &[Id], symbols: &[Complex<f64>]) -> Vec<Complex<f64>> {
        let end = outputs.iter().map(|id| id.index() + 1).max().unwrap_or(0);
        let mut values: Vec<Complex<f64>> = Vec::with_capacity(end);
        for node in &self.nodes[..end] {
            let value = match *node {
                Node::Constant(re, im) => Complex::new(f64::from_bits(re), f64::from_bits(im)),
                Node::Symbol(s) => symbols.get(s as usize).copied().unwrap_or(Complex::new(f64::NAN, 0.0)),
                Node::Add(a, b) => values[a.index()] + values[b.index()],
                Node::Sub(a, b) => values[a.index()] - values[b.index()],
                Node::Mul(a, b) => values[a.index()] * values[b.index()],
                Node::Div(a, b) => values[a.index()] / values[b.index()],
                Node::Sqrt(a) => root(values[a.index()]),
            };
            values.push(value);
        }
        outputs.iter().map(|id| values[id.index()]).collect()
    }
}

/// The square root with a real part that is not negative, the same on every machine.
fn root(z: Complex<f64>) -> Complex<f64> {
    let length = (z.re * z.re + z.im * z.im).sqrt();
    let re = ((length + z.re) * 0.5).max(0.0).sqrt();
    let im = ((length - z.re) * 0.5).max(0.0).sqrt();
    Complex::new(re, if z.im < 0.0 { -im } else { im })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c(v: f64) -> Complex<f64> {
        Complex::new(v, 0.0)
    }

    #[test]
    fn equal_subexpressions_are_one_node() {
        let mut g = Graph::default();
        let (x, y) = (g.symbol(0), g.symbol(1));
        let (a, b) = (g.mul(x, y), g.mul(y, x));
        assert_eq!(a, b);
        let before = g.len();
        let sum = g.add(a, b);
        assert_eq!(g.sub(sum, sum), g.real(0.0));
        assert_eq!(g.len(), before + 2, "the sum and zero");
    }

    #[test]
    fn derivatives_agree_with_difference_quotients() {
        let mut g = Graph::default();
        let (x, y) = (g.symbol(0), g.symbol(1));
        let cube = g.pow(x, 3);
        let xy = g.mul(x, y);
        let three = g.real(3.0);
        let scaled = g.mul(three, xy);
        let difference = g.sub(cube, scaled);
        let f = g.mul(difference, difference);
        let one = g.real(1.0);
        let dx = g.derivatives(&[f], |s| (s == 0).then_some(one))[0];
        let at = |g: &Graph, x: f64| g.evaluate(&[f, dx], &[c(x), c(0.7)]);
        let h = 1e-6;
        let quotient = (at(&g, 1.3 + h)[0] - at(&g, 1.3 - h)[0]) / (2.0 * h);
        assert!((at(&g, 1.3)[1] - quotient).norm() < 1e-6);
    }

    #[test]
    fn roots_of_complex_numbers_square_to_them() {
        for z in [c(4.0), c(-4.0), Complex::new(3.0, -4.0), Complex::new(-3.0, -0.5), c(0.0)] {
            assert!((root(z) * root(z) - z).norm() < 1e-14, "{z}");
        }
    }
}
