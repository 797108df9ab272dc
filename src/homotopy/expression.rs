//! The text of an equation: `+ - * / ^ ( )`, names, and numbers (`2`, `0.5`, `1e-3`, imaginary `2i`).

use super::graph::{Graph, Id};
use nalgebra::Complex;
use std::collections::HashMap;

/// How deep parentheses may be nested.
const MAX_DEPTH: usize = 100;
/// The highest exponent.
const MAX_EXPONENT: u32 = 64;
/// More nodes than this are no system we can do anything with.
const MAX_NODES: usize = 400_000;

/// What is wrong with a text, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Line of the text, from 1.
    pub line: usize,
    /// Column of the line in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
}

/// What may stand in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grammar {
    /// Sums, products and powers; division by numbers only.
    Polynomial,
    /// Division and `sqrt(...)` as well.
    Algebraic,
}

/// Reads `text` into `graph`; `left = right` reads as `left - right`.
pub fn parse(
    text: &str,
    grammar: Grammar,
    names: &HashMap<String, Id>,
    graph: &mut Graph,
) -> Result<Id, SyntaxError> {
    let chars: Vec<char> = text.chars().collect();
    let mut parser = Parser { chars: &chars, at: 0, depth: 0, grammar, names, graph };
    let mut id = parser.sum()?;
    if parser.take('=') {
        let right = parser.sum()?;
        id = parser.graph.sub(id, right);
    }
    match parser.peek() {
        None => Ok(id),
        Some(c) => Err(parser.error(format!("expected an operator, not `{c}`"))),
    }
}

struct Parser<'a> {
    chars: &'a [char],
    at: usize,
    depth: usize,
    grammar: Grammar,
    names: &'a HashMap<String, Id>,
    graph: &'a mut Graph,
}

impl Parser<'_> {
    fn error_at(&self, at: usize, what: String) -> SyntaxError {
        let before = &self.chars[..at.min(self.chars.len())];
        let line = 1 + before.iter().filter(|&&c| c == '\n').count();
        let column = 1 + before.iter().rev().take_while(|&&c| c != '\n').count();
        SyntaxError { line, column, what }
    }

    fn error(&self, what: String) -> SyntaxError {
        self.error_at(self.at, what)
    }

    /// The next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        while self.chars.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
        self.chars.get(self.at).copied()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn sum(&mut self) -> Result<Id, SyntaxError> {
        let mut sum = self.product()?;
        loop {
            if self.take('+') {
                let term = self.product()?;
                sum = self.graph.add(sum, term);
            } else if self.take('-') {
                let term = self.product()?;
                sum = self.graph.sub(sum, term);
            } else {
                return Ok(sum);
            }
        }
    }

    fn product(&mut self) -> Result<Id, SyntaxError> {
        let mut negative = false;
        while let Some(sign @ ('-' | '+')) = self.peek() {
            negative ^= sign == '-';
            self.at += 1;
        }
        let mut product = self.power()?;
        loop {
            if self.take('*') {
                let factor = self.signed_power()?;
                product = self.graph.mul(product, factor);
            } else if self.take('/') {
                let at = self.at;
                let divisor = self.signed_power()?;
                let number = self.graph.node(divisor).value();
                if self.grammar == Grammar::Polynomial && number.is_none() {
                    return Err(
                        self.error_at(at, "only a number may divide: this is not a polynomial".into())
                    );
                }
                if number.is_some_and(|v| v.norm_sqr() == 0.0) {
                    return Err(self.error_at(at, "division by zero".into()));
                }
                product = self.graph.div(product, divisor);
            } else {
                break;
            }
        }
        if self.graph.len() > MAX_NODES {
            return Err(self.error(format!("more than {MAX_NODES} different subexpressions")));
        }
        Ok(if negative { self.graph.neg(product) } else { product })
    }

    fn signed_power(&mut self) -> Result<Id, SyntaxError> {
        let negative = self.take('-');
        let power = self.power()?;
        Ok(if negative { self.graph.neg(power) } else { power })
    }

    fn power(&mut self) -> Result<Id, SyntaxError> {
        let base = self.atom()?;
        if !self.take('^') {
            return Ok(base);
        }
        self.peek();
        let begin = self.at;
        while self.chars.get(self.at).is_some_and(char::is_ascii_digit) {
            self.at += 1;
        }
        let digits: String = self.chars[begin..self.at].iter().collect();
        match digits.parse() {
            Ok(n) if n <= MAX_EXPONENT => Ok(self.graph.pow(base, n)),
            _ => Err(self.error_at(begin, format!("an exponent is a whole number from 0 to {MAX_EXPONENT}"))),
        }
    }

    fn atom(&mut self) -> Result<Id, SyntaxError> {
        match self.peek() {
            Some('(') => {
                let open = self.at;
                self.at += 1;
                self.parenthesis(open)
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_alphabetic() || c == '_' => self.name(),
            Some(c) => Err(self.error(format!("expected a number, a name or `(`, not `{c}`"))),
            None => Err(self.error("expected a number, a name or `(`, not the end".into())),
        }
    }

    /// What follows `(`, and `)`.
    fn parenthesis(&mut self, open: usize) -> Result<Id, SyntaxError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error_at(open, format!("parentheses nested deeper than {MAX_DEPTH}")));
        }
        let inside = self.sum()?;
        if !self.take(')') {
            return Err(self.error_at(open, "this `(` is not closed".into()));
        }
        self.depth -= 1;
        Ok(inside)
    }

    fn number(&mut self) -> Result<Id, SyntaxError> {
        let begin = self.at;
        let digit = |c: Option<&char>| c.is_some_and(|c| c.is_ascii_digit() || *c == '.');
        while digit(self.chars.get(self.at)) {
            self.at += 1;
        }
        if matches!(self.chars.get(self.at), Some('e' | 'E')) {
            let sign = usize::from(matches!(self.chars.get(self.at + 1), Some('+' | '-')));
            if self.chars.get(self.at + 1 + sign).is_some_and(char::is_ascii_digit) {
                self.at += 1 + sign;
                while self.chars.get(self.at).is_some_and(char::is_ascii_digit) {
                    self.at += 1;
                }
            }
        }
        let text: String = self.chars[begin..self.at].iter().collect();
        let value: f64 = match text.parse() {
            Ok(v) if f64::is_finite(v) => v,
            _ => return Err(self.error_at(begin, format!("`{text}` is not a finite number"))),
        };
        let next = self.chars.get(self.at).copied();
        let imaginary = next == Some('i') && !self.chars.get(self.at + 1).is_some_and(|c| in_name(*c));
        self.at += usize::from(imaginary);
        if !imaginary && next.is_some_and(in_name) {
            return Err(self.error("a `*` is missing".into()));
        }
        let value = if imaginary { Complex::new(0.0, value) } else { Complex::new(value, 0.0) };
        Ok(self.graph.constant(value))
    }

    fn name(&mut self) -> Result<Id, SyntaxError> {
        let begin = self.at;
        while self.chars.get(self.at).is_some_and(|c| in_name(*c)) {
            self.at += 1;
        }
        let name: String = self.chars[begin..self.at].iter().collect();
        if let Some(id) = self.names.get(&name) {
            return Ok(*id);
        }
        if name == "sqrt" && self.grammar == Grammar::Algebraic {
            let open = self.at;
            if !self.take('(') {
                return Err(self.error("expected `(`".into()));
            }
            let inside = self.parenthesis(open)?;
            return Ok(self.graph.sqrt(inside));
        }
        Err(self.error_at(begin, format!("unknown symbol `{name}`")))
    }
}

fn in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Complex<f64>, SyntaxError> {
        let mut graph = Graph::default();
        let names = HashMap::from([("x".to_owned(), graph.symbol(0)), ("y".to_owned(), graph.symbol(1))]);
        let id = parse(text, Grammar::Polynomial, &names, &mut graph)?;
        Ok(graph.evaluate(&[id], &[Complex::new(2.0, 0.0), Complex::new(0.0, 1.0)])[0])
    }

    #[test]
    fn texts_mean_what_they_say() {
        for (text, re, im) in [
            ("1 + 2*3", 7.0, 0.0),
            ("-x^2 + 1", -3.0, 0.0),
            ("-(x - 1)*-3", 3.0, 0.0),
            ("2*x^3/4 - y^2", 5.0, 0.0),
            ("1.5e1i * y", -15.0, 0.0),
            ("x - -1", 3.0, 0.0),
            ("x*y = 2i", 0.0, 0.0),
            ("(x + y)^0", 1.0, 0.0),
            ("x\n + 1e-1", 2.1, 0.0),
        ] {
            let value = read(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
            assert!((value - Complex::new(re, im)).norm() < 1e-15, "{text}: {value}");
        }
    }

    #[test]
    fn errors_say_where() {
        for (text, line, column, what) in [
            ("x + z", 1, 5, "unknown symbol `z`"),
            ("x +\n  2x", 2, 4, "`*` is missing"),
            ("(x + 1", 1, 1, "not closed"),
            ("x ^ -1", 1, 5, "exponent"),
            ("x ^ 65", 1, 5, "exponent"),
            ("1 / x", 1, 4, "not a polynomial"),
            ("1 / (2 - 2)", 1, 4, "division by zero"),
            ("x + ", 1, 5, "not the end"),
            ("x ) y", 1, 3, "expected an operator"),
            ("x = 1 = 2", 1, 7, "expected an operator"),
            ("1e999", 1, 1, "finite"),
            ("1..2", 1, 1, "finite"),
            ("sqrt(x)", 1, 1, "unknown symbol `sqrt`"),
            ("x $ y", 1, 3, "expected an operator"),
        ] {
            let error = read(text).expect_err(text);
            assert_eq!((error.line, error.column), (line, column), "{text}: {}", error.what);
            assert!(error.what.contains(what), "{text}: {}", error.what);
        }
        let deep = "(".repeat(10_000) + "x" + &")".repeat(10_000);
        assert!(read(&deep).is_err_and(|e| e.what.contains("deeper")));
    }
}
