//! The nodes of an expression tree.

use super::function::Function;
use super::value::Value;
use crate::scan::ColumnRef;

/// A node of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    Literal(Value),
    /// The event's name.
    Event,
    /// The event's time.
    Timestamp,
    /// The column with this index.
    Column(usize),
    /// The result of the aggregate with this index.
    Aggregate(usize),
    Not(Box<Node>),
    Negate(Box<Node>),
    Arithmetic(Arithmetic, Box<Node>, Box<Node>),
    Compare(ComparisonSign, Box<Node>, Box<Node>),
    All(Vec<Node>),
    Any(Vec<Node>),
    Like {
        text: Box<Node>,
        pattern: Box<Node>,
        ignore_case: bool,
        negated: bool,
    },
    In {
        value: Box<Node>,
        list: Vec<Node>,
        negated: bool,
    },
    IsNull {
        value: Box<Node>,
        negated: bool,
    },
    Call(Function, Vec<Node>),
    /// Whether the pattern with this index matches a text.
    Match(Box<Node>, usize),
    /// The part of a text that the pattern matches.
    Extract(Box<Node>, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComparisonSign {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Node {
    /// Whether it reads the event's time.
    pub(crate) fn is_timed(&self) -> bool {
        match self {
            Self::Timestamp => true,
            Self::Literal(_) | Self::Event | Self::Column(_) | Self::Aggregate(_) => false,
            Self::Not(inner) | Self::Negate(inner) | Self::Match(inner, _) | Self::Extract(inner, _) => {
                inner.is_timed()
            }
            Self::Arithmetic(_, left, right) | Self::Compare(_, left, right) => {
                left.is_timed() || right.is_timed()
            }
            Self::Like { text, pattern, .. } => text.is_timed() || pattern.is_timed(),
            Self::In { value, list, .. } => value.is_timed() || list.iter().any(Self::is_timed),
            Self::IsNull { value, .. } => value.is_timed(),
            Self::All(nodes) | Self::Any(nodes) | Self::Call(_, nodes) => nodes.iter().any(Self::is_timed),
        }
    }

    /// Whether its value is an instant or a date.
    pub(super) fn gives_time(&self) -> bool {
        match self {
            Self::Timestamp => true,
            Self::Call(function, nodes) if function.chooses() => nodes.iter().any(Self::gives_time),
            Self::Call(function, _) => function.gives_time(),
            _ => false,
        }
    }
}

/// The columns and patterns that nodes reference by index.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SymbolTable {
    /// The columns that are read.
    pub(crate) columns: Vec<ColumnRef>,
    /// Regular expressions.
    pub(crate) patterns: Vec<String>,
}
