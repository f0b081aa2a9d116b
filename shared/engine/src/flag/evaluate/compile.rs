//! What compiling of filters needs: the clock, the regular expressions seen so far, and how equality is meant.
//!
//! Must stay true: one compiler serves all flags and cohorts of an evaluation, so that each pattern is there once.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::{instant::Clock, patterns::Patterns, predicate::Equality};

/// Compiles the filters of one evaluation.
#[derive(Debug)]
pub struct Compiler {
    pub(super) clock: Clock,
    pub(super) patterns: Patterns,
    pub(super) equality: Equality,
}

impl Compiler {
    /// A compiler for flags: naive dates are in `zone`, relative ones count from `now`.
    pub fn new(zone: Tz, now: DateTime<Utc>) -> Self {
        Self { clock: Clock { zone, now }, patterns: Patterns::default(), equality: Equality::Loose }
    }

    /// The same, but values are equal when their text forms are.
    pub fn by_text(zone: Tz, now: DateTime<Utc>) -> Self {
        Self { equality: Equality::Text, ..Self::new(zone, now) }
    }
}
