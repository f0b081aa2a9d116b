//! What is known about a subject while a flag is evaluated.
//!
//! Must stay true: flags and cohorts that are asked for have been evaluated before; one that was not counts as off and
//! as not a member.

use super::{Evaluation, FlagValue, Subject};

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
    /// Their evaluations so far, in the same order.
    pub evaluations: Vec<Evaluation>,
}

impl Known<'_> {
    /// The evaluation of another flag. None: it was left out of the request.
    pub(super) fn evaluation(&self, flag: usize) -> Option<&Evaluation> {
        self.flags.binary_search(&flag).ok().and_then(|position| self.evaluations.get(position))
    }

    /// The value of another flag.
    pub(super) fn value(&self, flag: usize) -> &FlagValue {
        self.evaluation(flag).map_or(&FlagValue::Off, |evaluation| &evaluation.value)
    }
}
