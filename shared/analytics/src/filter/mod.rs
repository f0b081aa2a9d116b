//! Property filters: all request formats are parsed to one tree, which is compiled once per query.
//!
//! Must stay true: parsing is strict about structure and ignores incomplete filters; a filter of an unsupported type is an
//! error and never ignored.

mod events;
mod json;
mod parse;
mod persons;
mod predicate;

use pennon_filters::operator::Operator;
use serde_json::Value;

use crate::sql::Expression;
pub use events::{EventFilter, FilterableEvent};
pub use json::{filter_json, list_json};
pub(crate) use parse::Parser;
pub use parse::{EVENT_TYPES, NON_EVENT_TYPES};
pub use persons::PersonFilter;
pub(crate) use predicate::Predicate;

/// A property filter, or a group of them.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// AND of all members. Without members: always true.
    All(Vec<Filter>),
    /// OR of all members. The parser never creates it without members.
    Any(Vec<Filter>),
    /// A test of one value.
    Property(PropertyFilter),
    /// The person is in a cohort, or is not.
    Cohort {
        /// The cohort's id.
        id: u64,
        /// Persons outside of the cohort pass.
        negated: bool,
    },
    /// An SQL expression is true.
    Expression(Box<Expression>),
}

impl Filter {
    /// The empty filter, which everything passes.
    pub const fn none() -> Self {
        Self::All(Vec::new())
    }

    /// Calls `back` with the id of every cohort in the filter.
    pub fn cohorts(&self, back: &mut dyn FnMut(u64)) {
        match self {
            Self::All(members) | Self::Any(members) => members.iter().for_each(|member| member.cohorts(back)),
            Self::Property(_) | Self::Expression(_) => {}
            Self::Cohort { id, .. } => back(*id),
        }
    }

    /// True if everything passes.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::All(members) if members.iter().all(Self::is_none))
    }
}

/// The object whose value a filter tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A property of the event.
    Event,
    /// The event property `$feature/<key>` with the value of a feature flag.
    Feature,
    /// A column of the event, such as its name or distinct id.
    Metadata,
    /// A property of the event's person.
    Person,
    /// A property of the event's group of the type with this index.
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
    /// The object.
    pub target: Target,
    /// The property key.
    pub key: String,
    /// The comparison.
    pub operator: Operator,
    /// The value to compare with: a scalar or a list of scalars; null for operators without a value.
    pub value: Value,
}
