//! Evaluation: the value of a flag for a person or a group, and why.
//!
//! [`Evaluator`] compiles the flags and cohorts of a project once: texts in lower case, numbers, dates, regular
//! expressions, the order in which dependencies are evaluated. [`Plan`] is one flag of it with what it depends on, made
//! once for many subjects.
//!
//! Must stay true: equal to what the SDKs compute from the definitions of the same flags; any stored JSON evaluates to
//! something, in time bounded by its size and without recursion over dependencies; nothing that cannot be compared (an
//! invalid pattern, a text as a number) ever matches.

mod answer;
pub(in crate::flag) mod cohorts;
mod compile;
mod context;
pub(in crate::flag) mod graph;
mod instant;
pub(in crate::flag) mod order;
mod patterns;
pub(in crate::flag) mod predicate;
mod program;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

pub use self::answer::{Evaluation, FlagValue, GroupSubject, Reason, Subject};
use self::program::Program;
pub(in crate::flag) use self::{
    cohorts::Cohorts,
    compile::Compiler,
    context::Known,
    program::{GROUP_KEY, Leaf},
};
use super::Flag;
pub use super::cohort::Cohort;

/// The flags and cohorts of a project, compiled.
#[derive(Debug)]
pub struct Evaluator {
    /// What a flag depends on comes before it, where it can be evaluated at all.
    programs: Vec<Program>,
    cohorts: Cohorts,
    by_id: BTreeMap<i64, usize>,
}

impl Evaluator {
    /// Compiles the flags that are not deleted, and the cohorts. Naive dates are in `zone`, relative ones count from
    /// `now`.
    pub fn new<'a>(
        flags: impl IntoIterator<Item = &'a Flag>,
        cohorts: impl IntoIterator<Item = Cohort>,
        zone: Tz,
        now: DateTime<Utc>,
    ) -> Self {
        let compiler = Compiler::new(zone, now);
        let cohorts = Cohorts::new(cohorts, &compiler);
        let graph = graph::Graph::new(flags);
        let programs = program::compile_all(&graph, &cohorts, &compiler);
        Self { programs, cohorts, by_id: graph.numbers().clone() }
    }

    /// One flag with what it depends on, ready for many subjects. None: no such flag.
    pub fn plan(&self, flag_id: i64) -> Option<Plan<'_>> {
        let flag = *self.by_id.get(&flag_id)?;
        let mut flags = order::reachable([flag], |index| self.programs[index].flags.as_slice());
        flags.pop();
        let programs = flags.iter().chain([&flag]).map(|index| &self.programs[*index]);
        let cohorts = self.cohorts.closure(programs.flat_map(|program| program.cohorts.iter().copied()));
        Some(Plan { evaluator: self, flag, flags, cohorts })
    }

    /// The value of one flag. None: no such flag.
    pub fn evaluate(&self, flag_id: i64, subject: &Subject<'_>) -> Option<Evaluation> {
        Some(self.plan(flag_id)?.evaluate(subject))
    }

    /// The values of all flags by id, each evaluated once.
    pub fn evaluate_all(&self, subject: &Subject<'_>) -> BTreeMap<i64, Evaluation> {
        let all: Vec<usize> = (0..self.programs.len()).collect();
        let used = self.programs.iter().flat_map(|program| program.cohorts.iter().copied());
        let members = self.cohorts.evaluate(&self.cohorts.closure(used), subject);
        let mut known = Known { subject, members, flags: &all, values: Vec::with_capacity(all.len()) };
        let mut evaluations = BTreeMap::new();
        for program in &self.programs {
            let evaluation = program.evaluate(&known);
            known.values.push(evaluation.value.clone());
            evaluations.insert(program.id, evaluation);
        }
        evaluations
    }

    /// The static cohorts whose membership decides anything, so that callers look up only these.
    pub fn static_cohorts(&self) -> BTreeSet<i64> {
        self.static_cohorts_of(self.programs.iter())
    }

    fn static_cohorts_of<'a>(&self, programs: impl Iterator<Item = &'a Program>) -> BTreeSet<i64> {
        let mut ids = BTreeSet::new();
        let mut used = Vec::new();
        for program in programs {
            ids.extend(program.static_cohorts.iter().copied());
            used.extend(program.cohorts.iter().copied());
        }
        for cohort in self.cohorts.closure(used.into_iter()) {
            ids.extend(self.cohorts.static_cohorts_of(cohort));
        }
        ids
    }
}

/// One flag of an [`Evaluator`] with what it depends on.
#[derive(Debug)]
pub struct Plan<'a> {
    evaluator: &'a Evaluator,
    flag: usize,
    /// The flags it depends on at any depth, ascending.
    flags: Vec<usize>,
    /// The dynamic cohorts that decide anything, ascending.
    cohorts: Vec<usize>,
}

impl Plan<'_> {
    /// The value for one subject.
    pub fn evaluate(&self, subject: &Subject<'_>) -> Evaluation {
        let programs = &self.evaluator.programs;
        let members = self.evaluator.cohorts.evaluate(&self.cohorts, subject);
        let mut known =
            Known { subject, members, flags: &self.flags, values: Vec::with_capacity(self.flags.len()) };
        for index in &self.flags {
            let value = programs[*index].evaluate(&known).value;
            known.values.push(value);
        }
        programs[self.flag].evaluate(&known)
    }

    /// The static cohorts whose membership decides anything about this flag.
    pub fn static_cohorts(&self) -> BTreeSet<i64> {
        let indexes = self.flags.iter().chain([&self.flag]);
        self.evaluator.static_cohorts_of(indexes.map(|index| &self.evaluator.programs[*index]))
    }
}

#[cfg(test)]
mod robustness;
#[cfg(test)]
mod tests;
