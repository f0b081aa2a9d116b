//! The context for compiling filters: the time zone, the cache of regular expressions, and the equality rule.
//!
//! Must stay true: one compiler serves all flags and cohorts of an evaluator, so that each pattern is compiled once.

use chrono_tz::Tz;

use super::{patterns::Patterns, predicate::Equality};

/// Compiles the filters of one evaluator.
#[derive(Debug)]
pub struct Compiler {
    pub(super) zone: Tz,
    pub(super) patterns: Patterns,
    pub(super) equality: Equality,
}

impl Compiler {
    /// A compiler for flags: dates without an offset are in `zone`. Relative dates count from the instant of each
    /// evaluation.
    pub fn new(zone: Tz) -> Self {
        Self { zone, patterns: Patterns::default(), equality: Equality::Loose }
    }

    /// The same, but values are equal when their string forms are.
    pub fn by_text(zone: Tz) -> Self {
        Self { equality: Equality::Text, ..Self::new(zone) }
    }
}
