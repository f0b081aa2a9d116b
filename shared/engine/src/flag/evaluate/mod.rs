//! Evaluation: the value of a flag for a person or a group, and why.
//!
//! [`Evaluator`] compiles the flags and cohorts of a project once: texts in lower case, numbers, dates, regular
//! expressions, the order in which dependencies are evaluated. [`Plan`] is a selection of its flags with what they depend
//! on; it says what has to be looked up for a subject ([`Plan::lookups`]) and evaluates them for any number of subjects.
//!
//! Must stay true: equal to what the SDKs compute from the definitions of the same flags; any stored JSON evaluates to
//! something, in time bounded by its size and without recursion over dependencies; nothing that cannot be compared (an
//! invalid pattern, a text as a number) ever matches; an evaluator holds no instant, so it serves for as long as flags and
//! cohorts are the same.

mod answer;
pub(in crate::flag) mod cohorts;
mod compile;
mod compiled_flag;
mod context;
pub(in crate::flag) mod graph;
mod instant;
mod leaf;
mod needs;
pub(in crate::flag) mod order;
mod patterns;
mod plan;
pub(in crate::flag) mod predicate;
mod selection;
mod slow_searches;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use chrono_tz::Tz;

pub use self::{
    answer::{Evaluation, FlagValue, GroupSubject, OpenFeatureReason, Reason, Subject},
    compiled_flag::{CompiledFlag, ENROLLMENT},
    needs::{DISTINCT_ID, Lookups, Unavailable},
    plan::Plan,
    selection::{Runtime, Selection, Sender},
    slow_searches::SlowSearches,
};
pub(in crate::flag) use self::{
    cohorts::Cohorts,
    compile::Compiler,
    context::Known,
    leaf::{GROUP_KEY, Leaf},
    needs::Needs,
};
use self::{plan::FlagSet, selection::SELECTIONS_WITHOUT_KEYS};
use super::Flag;
pub use super::cohort::Cohort;

/// The flags and cohorts of a project, compiled.
#[derive(Debug)]
pub struct Evaluator {
    /// What a flag depends on comes before it, where it can be evaluated at all.
    flags: Vec<CompiledFlag>,
    cohorts: Cohorts,
    by_id: BTreeMap<i64, usize>,
    /// All flags, and those of each selection that names none, from the first request for them on.
    all: OnceLock<FlagSet>,
    selected: [OnceLock<FlagSet>; SELECTIONS_WITHOUT_KEYS],
}

impl Evaluator {
    /// Compiles the flags that are not deleted, and the cohorts. Naive dates are in `zone`.
    pub fn new<'a>(
        flags: impl IntoIterator<Item = &'a Flag>,
        cohorts: impl IntoIterator<Item = Cohort>,
        zone: Tz,
    ) -> Self {
        let compiler = Compiler::new(zone);
        let cohorts = Cohorts::new(cohorts, &compiler);
        let graph = graph::Graph::new(flags);
        let flags = compiled_flag::compile_all(&graph, &cohorts, &compiler);
        let by_id = graph.numbers().clone();
        Self { flags, cohorts, by_id, all: OnceLock::new(), selected: Default::default() }
    }

    /// How many flags there are.
    pub fn len(&self) -> usize {
        self.flags.len()
    }

    /// Whether there is no flag.
    pub fn is_empty(&self) -> bool {
        self.flags.is_empty()
    }

    /// All flags in the order of their indexes.
    pub fn flags(&self) -> &[CompiledFlag] {
        &self.flags
    }

    /// All flags.
    pub fn all(&self) -> Plan<'_> {
        let all = || FlagSet::new(self, (0..self.flags.len()).collect()).with_merged_needs(self);
        Plan::of(self, self.all.get_or_init(all))
    }

    /// One flag with what it depends on. None: no such flag.
    pub fn plan(&self, flag_id: i64) -> Option<Plan<'_>> {
        let flag = *self.by_id.get(&flag_id)?;
        let flags = order::reachable([flag], |index| self.flags[index].flags.as_slice());
        Some(Plan::new(self, flags).with_target(flag))
    }

    /// The flags of a request. Those that it names come with what they depend on; of that, what the request may not see is
    /// left out and counts as off.
    pub fn select(&self, selection: &Selection<'_>) -> Plan<'_> {
        let admitted = |flag: &usize| selection.admits(&self.flags[*flag]);
        if let Some(number) = selection.number() {
            let flags = || (0..self.flags.len()).filter(admitted).collect();
            let selected = || FlagSet::new(self, flags()).with_merged_needs(self);
            return Plan::of(self, self.selected[number].get_or_init(selected));
        }
        let named = (0..self.flags.len()).filter(|flag| selection.names(&self.flags[*flag]));
        let named: Vec<usize> = named.filter(admitted).collect();
        let mut found: BTreeSet<usize> = BTreeSet::new();
        let mut pending = named;
        while let Some(flag) = pending.pop() {
            if found.insert(flag) {
                pending.extend(self.flags[flag].flags.iter().copied().filter(admitted));
            }
        }
        Plan::new(self, found.into_iter().collect())
    }

    /// The value of one flag. None: no such flag.
    pub fn evaluate(&self, flag_id: i64, subject: &Subject<'_>) -> Option<Evaluation> {
        self.plan(flag_id)?.evaluate(subject)
    }

    /// The values of all flags by id, each evaluated once.
    pub fn evaluate_all(&self, subject: &Subject<'_>) -> BTreeMap<i64, Evaluation> {
        let all = self.all().evaluate_all(subject).into_iter();
        all.map(|(flag, evaluation)| (flag.id, evaluation)).collect()
    }

    /// The static cohorts whose membership decides anything, so that callers look up only these.
    pub fn static_cohorts(&self) -> BTreeSet<i64> {
        self.all().static_cohorts()
    }

    /// Whether an override of experience continuity may decide the value of some flag.
    pub fn needs_overrides(&self) -> bool {
        self.all().needs_overrides()
    }

    /// The ids of the active flags whose value follows a person through a login.
    pub fn continuous_flags(&self) -> BTreeSet<i64> {
        self.flags.iter().filter(|flag| flag.active && flag.is_continuous).map(|flag| flag.id).collect()
    }
}

#[cfg(test)]
mod robustness;
#[cfg(test)]
mod tests;
