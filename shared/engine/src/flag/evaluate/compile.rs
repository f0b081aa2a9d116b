//! What compiling of filters needs: the time zone, the regular expressions seen so far, and how equality is meant.
//!
//! Must stay true: one compiler serves all flags and cohorts of an evaluation, so that each pattern is there once.

use chrono_tz::Tz;

use super::{patterns::Patterns, predicate::Equality};

/// Compiles the filters of one evaluation.
#[derive(Debug)]
pub struct Compiler {
    pub(super) zone: Tz,
    pub(super) patterns: Patterns,
    pub(super) equality: Equality,
}

impl Compiler {
    /// A compiler for flags: naive dates are in `zone`. Relative ones count from the instant of each evaluation.
    pub fn new(zone: Tz) -> Self {
        Self { zone, patterns: Patterns::default(), equality: Equality::Loose }
    }

    /// The same, but values are equal when their text forms are.
    pub fn by_text(zone: Tz) -> Self {
        Self { equality: Equality::Text, ..Self::new(zone) }
    }
}
