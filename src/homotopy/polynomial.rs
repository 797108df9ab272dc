//! Sparse polynomials: the expanded form of an expression.

use super::graph::{Graph, Id, Node};
use nalgebra::Complex;
use std::collections::BTreeMap;

/// A product of powers: symbols, ascending, each with its exponent.
pub type Monomial = Vec<(u32, u32)>;

/// A sum of numbers times monomials.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Polynomial {
    terms: BTreeMap<Monomial, Complex<f64>>,
}

impl Polynomial {
    /// The terms, in order.
    pub fn terms(&self) -> impl Iterator<Item = (&Monomial, &Complex<f64>)> {
        self.terms.iter()
    }

    /// The highest degree of a term in the symbols that `which` picks.
    pub fn degree(&self, which: impl Fn(u32) -> bool) -> u32 {
        let degree = |m: &Monomial| m.iter().filter(|(s, _)| which(*s)).map(|(_, e)| e).sum();
        self.terms.keys().map(degree).max().unwrap_or(0)
    }

    fn single(monomial: Monomial, factor: Complex<f64>) -> Self {
        Self { terms: BTreeMap::from([(monomial, factor)]) }
    }

    fn plus(&self, other: &Self, sign: f64) -> Self {
        let mut sum = self.clone();
        for (monomial, factor) in &other.terms {
            *sum.terms.entry(monomial.clone()).or_default() += factor * sign;
        }
        sum.terms.retain(|_, f| *f != Complex::default());
        sum
    }

    fn times(&self, other: &Self) -> Self {
        let mut product = Self::default();
        for (m, a) in &self.terms {
            for (n, b) in &other.terms {
                *product.terms.entry(multiply(m, n)).or_default() += a * b;
            }
        }
        product.terms.retain(|_, f| *f != Complex::default());
        product
    }

    /// The expanded forms of `outputs`, or `None` if one of them, or what it is made of, has more
    /// than `limit` terms, or is no polynomial.
    pub fn expand(graph: &Graph, outputs: &[Id], limit: usize) -> Option<Vec<Self>> {
        let needed = graph.needed(outputs);
        let mut known: BTreeMap<usize, Self> = BTreeMap::new();
        for i in (0..needed.len()).filter(|&i| needed[i]) {
            let of = |id: Id| known.get(&id.index());
            let polynomial = match graph.nodes()[i] {
                node @ Node::Constant(..) => match node.value()? {
                    v if v == Complex::default() => Self::default(),
                    v => Self::single(Vec::new(), v),
                },
                Node::Symbol(s) => Self::single(vec![(s, 1)], Complex::new(1.0, 0.0)),
                Node::Add(a, b) => of(a)?.plus(of(b)?, 1.0),
                Node::Sub(a, b) => of(a)?.plus(of(b)?, -1.0),
                Node::Mul(a, b) => {
                    let (a, b) = (of(a)?, of(b)?);
                    if a.terms.len().saturating_mul(b.terms.len()) > limit.saturating_mul(50) {
                        return None;
                    }
                    a.times(b)
                }
                Node::Div(..) | Node::Sqrt(_) => return None,
            };
            if polynomial.terms.len() > limit {
                return None;
            }
            known.insert(i, polynomial);
        }
        outputs.iter().map(|id| known.get(&id.index()).cloned()).collect()
    }

    /// Writes it into a graph: nested by the symbol that `outer` picks and that occurs most often,
    /// then by the next, with the rest of each term as its coefficient.
    pub fn nest(&self, graph: &mut Graph, outer: impl Fn(u32) -> bool) -> Id {
        let mut coefficients: BTreeMap<Monomial, Id> = BTreeMap::new();
        for (monomial, factor) in &self.terms {
            let (out, rest): (Monomial, Monomial) = monomial.iter().partition(|(s, _)| outer(*s));
            let mut term = graph.constant(*factor);
            for (symbol, exponent) in rest {
                let symbol = graph.symbol(symbol);
                let power = graph.pow(symbol, exponent);
                term = graph.mul(power, term);
            }
            let zero = graph.real(0.0);
            let entry = coefficients.entry(out).or_insert(zero);
            *entry = graph.add(*entry, term);
        }
        nest(graph, coefficients.into_iter().collect())
    }
}

fn multiply(m: &Monomial, n: &Monomial) -> Monomial {
    let mut product: BTreeMap<u32, u32> = m.iter().copied().collect();
    for (symbol, exponent) in n {
        *product.entry(*symbol).or_default() += exponent;
    }
    product.into_iter().collect()
}

fn nest(graph: &mut Graph, terms: Vec<(Monomial, Id)>) -> Id {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for (symbol, _) in terms.iter().flat_map(|(m, _)| m) {
        *counts.entry(*symbol).or_default() += 1;
    }
    // The first of those that occur most often.
    let most = counts.iter().max_by_key(|(symbol, count)| (**count, std::cmp::Reverse(**symbol)));
    let Some((&symbol, &count)) = most else {
        let zero = graph.real(0.0);
        return terms.iter().fold(zero, |sum, (_, c)| graph.add(sum, *c));
    };
    if count == 1 {
        let zero = graph.real(0.0);
        return terms.into_iter().fold(zero, |sum, (monomial, coefficient)| {
            // The powers first: other equations have them too.
            let mut product = graph.real(1.0);
            for (symbol, exponent) in monomial {
                let symbol = graph.symbol(symbol);
                let power = graph.pow(symbol, exponent);
                product = graph.mul(product, power);
            }
            let term = graph.mul(coefficient, product);
            graph.add(sum, term)
        });
    }
    let (with, without): (Vec<_>, Vec<_>) =
        terms.into_iter().partition(|(m, _)| m.iter().any(|f| f.0 == symbol));
    let lowered = with.into_iter().map(|(mut monomial, coefficient)| {
        monomial.iter_mut().filter(|f| f.0 == symbol).for_each(|f| f.1 -= 1);
        monomial.retain(|f| f.1 > 0);
        (monomial, coefficient)
    });
    let inner = nest(graph, lowered.collect());
    let variable = graph.symbol(symbol);
    let product = graph.mul(variable, inner);
    let rest = nest(graph, without);
    graph.add(product, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::homotopy::expression::{parse, Grammar};
    use std::collections::HashMap;

    #[test]
    fn expanded_and_nested_forms_have_the_values_of_the_original() {
        let mut graph = Graph::default();
        let names: HashMap<String, Id> =
            ["x", "y", "a", "b"].iter().zip(0..).map(|(n, i)| (n.to_string(), graph.symbol(i))).collect();
        let text = "(x + a*y)^3 - (x - y)*(x + y)*b + 2*x*y - a^2 - 3";
        let f = parse(text, Grammar::Polynomial, &names, &mut graph).expect("a polynomial");
        let expanded = Polynomial::expand(&graph, &[f], 100).expect("few terms").remove(0);
        assert_eq!(expanded.degree(|s| s < 2), 3);
        assert_eq!(expanded.degree(|s| s == 2), 3);
        assert_eq!(expanded.terms().count(), 4 + 2 + 1 + 2);
        let nested = expanded.nest(&mut graph, |s| s < 2);
        let at = [0.3, -1.2, 0.7, 2.5].map(|v| Complex::new(v, 0.5 - v));
        let values = graph.evaluate(&[f, nested], &at);
        assert!((values[0] - values[1]).norm() < 1e-13, "{values:?}");
        assert!(Polynomial::expand(&graph, &[f], 5).is_none(), "too many terms");
    }
}
