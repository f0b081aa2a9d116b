//! What is known about a subject while a flag is evaluated.
//!
//! Must stay true: flags and cohorts that are asked for have been evaluated before; one that was not counts as off and
//! as not a member.

use super::{FlagValue, Subject};

/// Membership in dynamic cohorts, by their indexes in ascending order.
#[derive(Debug, Default)]
pub struct Members {
    /// Indexes, ascending.
    pub(super) indexes: Vec<usize>,
    /// One answer for each index that was evaluated so far.
    pub(super) answers: Vec<bool>,
}

impl Members {
    /// Whether the subject is a member.
    pub(super) fn contains(&self, cohort: usize) -> bool {
        let found = self.indexes.binary_search(&cohort).ok();
        found.and_then(|position| self.answers.get(position)).copied().unwrap_or(false)
    }
}

/// The subject, and what was found out about it.
#[derive(Debug)]
pub struct Known<'a> {
    /// Who is asked about.
    pub subject: &'a Subject<'a>,
    /// Its dynamic cohorts.
    pub members: Members,
    /// Indexes of flags, ascending.
    pub flags: &'a [usize],
    /// The values of these flags, as far as evaluated.
    pub values: Vec<FlagValue>,
}

impl Known<'_> {
    /// The value of another flag.
    pub(super) fn value(&self, flag: usize) -> &FlagValue {
        let found = self.flags.binary_search(&flag).ok();
        found.and_then(|position| self.values.get(position)).unwrap_or(&FlagValue::Off)
    }
}
