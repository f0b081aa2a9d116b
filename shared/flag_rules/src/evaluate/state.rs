//! The state of an evaluation: the subject and the results so far.
//!
//! Must stay true: flags and cohorts are evaluated before those that refer to them; one that was not evaluated counts
//! as off or as not a member.

use std::cell::Cell;

use super::{Evaluation, FlagValue, Subject};

/// Membership in dynamic cohorts, by their indexes in ascending order.
#[derive(Debug, Default)]
pub struct CohortMembership {
    /// Indexes, ascending.
    pub(super) indexes: Vec<usize>,
    /// The result of each index that was evaluated so far.
    pub(super) results: Vec<bool>,
}

impl CohortMembership {
    /// Whether the subject is a member.
    pub(super) fn contains(&self, cohort: usize) -> bool {
        let found = self.indexes.binary_search(&cohort).ok();
        found.and_then(|position| self.results.get(position)).copied().unwrap_or(false)
    }
}

/// The results of tests of person properties so far, by the numbers of the tests: flags often share them. A test beyond
/// the end is repeated each time.
#[derive(Debug, Default)]
pub struct PersonTestResults(Vec<Cell<Option<Option<bool>>>>);

impl PersonTestResults {
    /// Room for the tests below `count`.
    pub fn of(count: usize) -> Self {
        Self(vec![Cell::new(None); count])
    }

    /// The result of a test, which is run if it was not before.
    pub(super) fn get_or_test(&self, test: usize, run: impl FnOnce() -> Option<bool>) -> Option<bool> {
        let Some(known) = self.0.get(test) else { return run() };
        if let Some(result) = known.get() {
            return result;
        }
        let result = run();
        known.set(Some(result));
        result
    }
}

/// The subject, and the results so far.
#[derive(Debug)]
pub struct EvaluationState<'a> {
    /// The subject.
    pub subject: &'a Subject<'a>,
    /// The results of tests of its properties.
    pub person_tests: PersonTestResults,
    /// Its membership in dynamic cohorts.
    pub members: CohortMembership,
    /// Indexes of the flags to evaluate, ascending.
    pub flags: &'a [usize],
    /// Their evaluations so far, in the same order.
    pub evaluations: Vec<Evaluation>,
}

impl EvaluationState<'_> {
    /// The evaluation of another flag. `None`: it was left out of the request.
    pub(super) fn evaluation(&self, flag: usize) -> Option<&Evaluation> {
        self.flags.binary_search(&flag).ok().and_then(|position| self.evaluations.get(position))
    }

    /// The value of another flag.
    pub(super) fn value(&self, flag: usize) -> &FlagValue {
        self.evaluation(flag).map_or(&FlagValue::Off, |evaluation| &evaluation.value)
    }
}
