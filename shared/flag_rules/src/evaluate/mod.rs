//! Evaluation: the value of a flag for a person or a group, with the reason.
//!
//! [`Evaluator`] compiles the flags and cohorts of a project once: lower-case strings, numbers, dates, regular
//! expressions, the order in which dependencies are evaluated. [`EvaluationPlan`] is a selection of its flags with their
//! dependencies; it reports which data must be loaded for a subject ([`EvaluationPlan::lookups`]) and evaluates the flags for any
//! number of subjects.
//!
//! Must stay true: results equal those of the SDKs for the definitions of the same flags; any stored JSON evaluates to
//! something, in time bounded by its size and without recursion over dependencies; a value that cannot be compared (an
//! invalid pattern, a string as a number) never matches; an evaluator contains no instant, so it stays valid until
//! flags or cohorts change.

pub(crate) mod cohorts;
mod compiled_flag;
mod compiler;
mod date_bound;
pub(crate) mod dependency_graph;
mod evaluation;
mod leaf;
mod patterns;
mod plan;
pub(crate) mod predicate;
mod required_data;
mod selection;
mod slow_searches;
mod state;
pub(crate) mod topological_order;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use chrono_tz::Tz;

pub(crate) use self::{
    cohorts::CohortEvaluator,
    compiled_flag::{enrollment_property, holdout_percentage, is_enrolled},
    compiler::FlagCompiler,
    leaf::{GROUP_KEY, Leaf},
    required_data::RequiredData,
    state::{EvaluationState, PersonTestResults},
};
pub use self::{
    compiled_flag::{CompiledFlag, ENROLLMENT},
    evaluation::{Evaluation, EvaluationReason, FlagValue, GroupSubject, OpenFeatureReason, Subject},
    plan::EvaluationPlan,
    required_data::{DISTINCT_ID, DataLookups, Unavailable},
    selection::{Runtime, Selection, Sender},
    slow_searches::SlowSearches,
};
use self::{plan::FlagSet, selection::SELECTIONS_WITHOUT_KEYS};
use crate::flag::Flag;
pub use crate::relations::cohort::FlagCohort;

/// The compiled flags and cohorts of a project.
#[derive(Debug)]
pub struct Evaluator {
    /// Topologically sorted: dependencies come first, unless they form a cycle.
    flags: Vec<CompiledFlag>,
    cohorts: CohortEvaluator,
    /// How many different tests of person properties there are.
    person_tests: usize,
    by_id: BTreeMap<i64, usize>,
    /// All flags, and those of each selection without flag keys, computed on first use.
    all: OnceLock<FlagSet>,
    selected: [OnceLock<FlagSet>; SELECTIONS_WITHOUT_KEYS],
}

impl Evaluator {
    /// Compiles the flags that are not deleted, and the cohorts. Naive dates are in `zone`.
    pub fn new<'a>(
        flags: impl IntoIterator<Item = &'a Flag>,
        cohorts: impl IntoIterator<Item = FlagCohort>,
        zone: Tz,
    ) -> Self {
        let compiler = FlagCompiler::new(zone);
        let cohorts = CohortEvaluator::new(cohorts, &compiler);
        let graph = dependency_graph::DependencyGraph::new(flags);
        let flags = compiled_flag::compile_all(&graph, &cohorts, &compiler);
        let by_id = graph.numbers().clone();
        let person_tests = compiler.person_tests();
        Self { flags, cohorts, person_tests, by_id, all: OnceLock::new(), selected: Default::default() }
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

    /// A plan of all flags.
    pub fn all(&self) -> EvaluationPlan<'_> {
        let all = || FlagSet::new(self, (0..self.flags.len()).collect()).with_merged_requirements(self);
        EvaluationPlan::of(self, self.all.get_or_init(all))
    }

    /// A plan of one flag and its dependencies. `None`: no such flag.
    pub fn plan(&self, flag_id: i64) -> Option<EvaluationPlan<'_>> {
        let flag = *self.by_id.get(&flag_id)?;
        let flags = topological_order::reachable([flag], |index| self.flags[index].flags.as_slice());
        Some(EvaluationPlan::new(self, flags).with_target(flag))
    }

    /// The plan of a request. Requested flags include their dependencies; a dependency that the request may not see is
    /// left out and counts as off.
    pub fn select(&self, selection: &Selection<'_>) -> EvaluationPlan<'_> {
        let admitted = |flag: &usize| selection.admits(&self.flags[*flag]);
        if let Some(number) = selection.number() {
            let flags = || (0..self.flags.len()).filter(admitted).collect();
            let flag_set = || FlagSet::new(self, flags()).with_merged_requirements(self);
            return EvaluationPlan::of(self, self.selected[number].get_or_init(flag_set));
        }
        let named = (0..self.flags.len()).filter(|flag| selection.names(&self.flags[*flag]));
        let named: Vec<usize> = named.filter(admitted).collect();
        let mut selected: BTreeSet<usize> = BTreeSet::new();
        let mut pending = named;
        while let Some(flag) = pending.pop() {
            if selected.insert(flag) {
                pending.extend(self.flags[flag].flags.iter().copied().filter(admitted));
            }
        }
        EvaluationPlan::new(self, selected.into_iter().collect())
    }

    /// The value of one flag. `None`: no such flag.
    pub fn evaluate(&self, flag_id: i64, subject: &Subject<'_>) -> Option<Evaluation> {
        self.plan(flag_id)?.evaluate(subject)
    }

    /// The values of all flags by id, each evaluated once.
    pub fn evaluate_all(&self, subject: &Subject<'_>) -> BTreeMap<i64, Evaluation> {
        let all = self.all().evaluate_all(subject).into_iter();
        all.map(|(flag, evaluation)| (flag.id, evaluation)).collect()
    }

    /// The static cohorts whose membership affects any result; callers load only these.
    pub fn static_cohorts(&self) -> BTreeSet<i64> {
        self.all().static_cohorts()
    }

    /// Whether an override of experience continuity may affect any flag.
    pub fn needs_overrides(&self) -> bool {
        self.all().needs_overrides()
    }

    /// The ids of the active flags with experience continuity: a person keeps the value across a login.
    pub fn continuous_flags(&self) -> BTreeSet<i64> {
        self.flags.iter().filter(|flag| flag.active && flag.is_continuous).map(|flag| flag.id).collect()
    }
}

#[cfg(test)]
mod robustness_tests;
#[cfg(test)]
mod tests;
