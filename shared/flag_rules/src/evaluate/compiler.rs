//! The context for compiling filters: the time zone, the cache of regular expressions, and the equality rule.
//!
//! Must stay true: one compiler serves all flags and cohorts of an evaluator, so that each pattern is compiled once, and
//! equal tests of person properties have one number.

use std::{cell::RefCell, collections::HashMap};

use chrono_tz::Tz;
use pennon_filters::operator::Operator;
use serde_json::Value;

use super::{patterns::Patterns, predicate::Equality};

/// Compiles the filters of one evaluator.
#[derive(Debug)]
pub struct FlagCompiler {
    pub(super) zone: Tz,
    pub(super) patterns: Patterns,
    pub(super) equality: Equality,
    /// Numbers of the tests of person properties, by key, operator and value.
    person_tests: RefCell<HashMap<(String, Operator, String), usize>>,
}

impl FlagCompiler {
    /// A compiler for flags: dates without an offset are in `zone`. Relative dates count from the instant of each
    /// evaluation.
    pub fn new(zone: Tz) -> Self {
        let (patterns, person_tests) = (Patterns::default(), RefCell::default());
        Self { zone, patterns, equality: Equality::Loose, person_tests }
    }

    /// The same, but values are equal when their string forms are.
    pub fn by_text(zone: Tz) -> Self {
        Self { equality: Equality::Text, ..Self::new(zone) }
    }

    /// The number of a test of a person property; the same for equal tests.
    pub(super) fn person_test(&self, key: &str, operator: Operator, value: Option<&Value>) -> usize {
        let value = value.map(Value::to_string).unwrap_or_default();
        let mut tests = self.person_tests.borrow_mut();
        let next = tests.len();
        *tests.entry((key.to_owned(), operator, value)).or_insert(next)
    }

    /// How many different tests of person properties there are.
    pub(super) fn person_tests(&self) -> usize {
        self.person_tests.borrow().len()
    }
}
