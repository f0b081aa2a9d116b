//! Property filters: one tree from every shape that requests use, compiled once a query.
//!
//! Must stay true: parsing is strict about structure and lenient about incomplete filters, which restrict nothing; a
//! filter of a type that is not calculated yet is refused, never skipped.

mod events;
mod json;
mod operator;
mod parse;
mod persons;
mod predicate;

use serde_json::Value;

use crate::sql::Expression;
pub use events::{EventFilter, TestedEvent};
pub use json::{filter_json, list_json};
pub use operator::Operator;
pub(crate) use operator::{Bound, ComparisonOperator, CompileBudget, ValueTest};
pub(crate) use parse::Parser;
pub use persons::PersonFilter;
pub(crate) use predicate::{Mask, Predicate};

/// A property filter, or a group of them.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// Every member must hold. Without members: always true.
    All(Vec<Filter>),
    /// One member must hold. Parsing makes none without members.
    Any(Vec<Filter>),
    /// A test of one value.
    Property(PropertyFilter),
    /// The person is in a cohort, or is not.
    Cohort {
        /// The cohort's id.
        id: u64,
        /// Those outside of it pass.
        negated: bool,
    },
    /// An SQL expression holds.
    Expression(Box<Expression>),
}

impl Filter {
    /// The filter that everything passes.
    pub const fn none() -> Self {
        Self::All(Vec::new())
    }

    /// Calls back with the id of every cohort that is asked for.
    pub fn cohorts(&self, back: &mut dyn FnMut(u64)) {
        match self {
            Self::All(members) | Self::Any(members) => members.iter().for_each(|member| member.cohorts(back)),
            Self::Property(_) | Self::Expression(_) => {}
            Self::Cohort { id, .. } => back(*id),
        }
    }

    /// True when nothing is restricted.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::All(members) if members.iter().all(Self::is_none))
    }
}

/// Where a filter looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A property of the event.
    Event,
    /// A property of the event that tells a feature flag's value; its key is the flag's.
    Feature,
    /// A column of the event: its name or its distinct id.
    Metadata,
    /// A property of the event's person.
    Person,
    /// A property of the group that the event has of the type with this index.
    Group(u8),
    /// A field of the event's session.
    Session,
    /// The elements of an autocapture event.
    Element,
}

impl Target {
    /// The name that requests use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Feature => "feature",
            Self::Metadata => "event_metadata",
            Self::Person => "person",
            Self::Group(_) => "group",
            Self::Session => "session",
            Self::Element => "element",
        }
    }
}

/// A test of one value.
#[derive(Debug, Clone, PartialEq)]
pub struct PropertyFilter {
    /// Where to look.
    pub target: Target,
    /// What to look at.
    pub key: String,
    /// The comparison.
    pub operator: Operator,
    /// What to compare with: a scalar or a list of scalars; null for operators that need nothing.
    pub value: Value,
}
