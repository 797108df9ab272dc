//! What a parameter is: its value, its range, and why one is refused.

use std::fmt;

/// The value of a parameter, as YAML and ROS know it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// true or false
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A real number.
    Float(f64),
    /// Text.
    Text(String),
}

impl Value {
    /// The type, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Bool(_) => "bool",
            Value::Int(_) => "integer",
            Value::Float(_) => "number",
            Value::Text(_) => "string",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(v) => write!(f, "{v}"),
            Value::Int(v) => write!(f, "{v}"),
            // Debug keeps the decimal point: a YAML reader must see a number, not an integer.
            Value::Float(v) => write!(f, "{v:?}"),
            Value::Text(v) => write!(f, "{v}"),
        }
    }
}

/// Which values a parameter may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// Any value of the type.
    Any,
    /// A text that is not empty.
    NonEmpty,
    /// A number within both bounds, which are included.
    Within(f64, f64),
    /// One of these words.
    OneOf(&'static [&'static str]),
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Range::Any => write!(f, "any"),
            Range::NonEmpty => write!(f, "not empty"),
            Range::Within(low, high) => write!(f, "{low} .. {high}"),
            Range::OneOf(words) => write!(f, "{}", words.join(", ")),
        }
    }
}

/// What is known of one parameter.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Full dotted name, e.g. `registration.tau`.
    pub name: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// Unit, empty where there is none.
    pub unit: &'static str,
    /// Allowed values.
    pub range: Range,
    /// May be changed while the node runs.
    pub live: bool,
}

/// Why a parameter was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParamError {
    /// No parameter has this name.
    #[error("unknown parameter '{name}'; did you mean '{nearest}'?")]
    Unknown {
        /// the name given
        name: String,
        /// the most similar valid name
        nearest: &'static str,
    },
    /// The value has the wrong type.
    #[error("parameter '{name}' must be of type {expected}, got {got}")]
    Type {
        /// the parameter
        name: &'static str,
        /// type wanted
        expected: &'static str,
        /// type and value given
        got: String,
    },
    /// The value is outside the range.
    #[error("parameter '{name}' = {value} is out of range: {range}")]
    Range {
        /// the parameter
        name: &'static str,
        /// value given
        value: String,
        /// allowed values
        range: Range,
    },
    /// The value is a list, or no value at all.
    #[error("parameter '{name}' must be a single value, got {got}")]
    NotSingle {
        /// the parameter
        name: &'static str,
        /// what was given
        got: String,
    },
    /// Two parameters contradict each other.
    #[error("parameter '{name}': {why}")]
    Conflict {
        /// the parameter
        name: &'static str,
        /// what is wrong
        why: String,
    },
    /// The parameter is read at start only.
    #[error("parameter '{0}' is read at start and cannot be changed while the node runs")]
    StartOnly(&'static str),
    /// The YAML text cannot be read.
    #[error("parameter file: {0}")]
    Yaml(String),
}

/// A type that a parameter can have.
pub(super) trait ParamType: Sized {
    const KIND: &'static str;
    fn to_value(&self) -> Value;
    fn from_value(value: &Value) -> Option<Self>;
}

impl ParamType for bool {
    const KIND: &'static str = "bool";
    fn to_value(&self) -> Value {
        Value::Bool(*self)
    }
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(v) => Some(*v),
            _ => None,
        }
    }
}

impl ParamType for i64 {
    const KIND: &'static str = "integer";
    fn to_value(&self) -> Value {
        Value::Int(*self)
    }
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Int(v) => Some(*v),
            _ => None,
        }
    }
}

impl ParamType for f64 {
    const KIND: &'static str = "number";
    fn to_value(&self) -> Value {
        Value::Float(*self)
    }
    /// A whole number is taken for a real one: `tau: 1` in YAML means 1.0.
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Float(v) => Some(*v),
            Value::Int(v) => Some(*v as f64),
            _ => None,
        }
    }
}

impl ParamType for String {
    const KIND: &'static str = "string";
    fn to_value(&self) -> Value {
        Value::Text(self.clone())
    }
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(v) => Some(v.clone()),
            _ => None,
        }
    }
}

/// Declares an enumeration whose variants are words in YAML.
macro_rules! words {
    ($(#[$m:meta])* $name:ident { $($(#[$vm:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$m])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$vm])* $variant),+ }
        impl $name {
            /// The words, in the order of the variants.
            pub const WORDS: &'static [&'static str] = &[$($word),+];
            /// The word of this variant.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
        impl ParamType for $name {
            const KIND: &'static str = "word";
            fn to_value(&self) -> Value { Value::Text(self.word().to_owned()) }
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    $(Value::Text(v) if v == $word => Some(Self::$variant),)+
                    // YAML 1.1 readers take a bare `off` for false.
                    Value::Bool(false) if Self::WORDS.contains(&"off") => Self::from_value(&Value::Text("off".into())),
                    _ => None,
                }
            }
        }
    };
}
pub(super) use words;

/// `Err(true)`: of the right type but out of range; `Err(false)`: of the wrong type.
pub(super) fn check_range(range: Range, value: &Value) -> Result<(), bool> {
    let fits = match (range, value) {
        (Range::Any, _) => true,
        (Range::NonEmpty, Value::Text(t)) => !t.trim().is_empty(),
        (Range::Within(low, high), Value::Int(v)) => (low..=high).contains(&(*v as f64)),
        (Range::Within(low, high), Value::Float(v)) => (low..=high).contains(v),
        (Range::OneOf(words), Value::Text(t)) => words.contains(&t.as_str()),
        (Range::OneOf(words), Value::Bool(false)) if words.contains(&"off") => true,
        _ => return Err(false),
    };
    if fits {
        Ok(())
    } else {
        Err(true)
    }
}
