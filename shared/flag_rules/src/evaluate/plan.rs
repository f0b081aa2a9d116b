//! A selection of flags with their dependencies, ready to be evaluated for subjects.

use std::{borrow::Cow, collections::BTreeSet};

use super::{
    CompiledFlag, Evaluation, Evaluator, Subject,
    required_data::{DataLookups, RequiredData},
    state::{EvaluationState, PersonTestResults},
};

/// Flags of an [`Evaluator`], including their dependencies.
#[derive(Debug, Clone)]
pub(super) struct FlagSet {
    /// Their indexes, ascending (topological order).
    flags: Vec<usize>,
    /// Positions in `flags`, in the order of the flags' keys.
    key_order: Vec<usize>,
    /// The dynamic cohorts that affect any result, ascending.
    cohorts: Vec<usize>,
    /// The merged requirements of all flags, when the set is reused by many requests.
    merged_needs: Option<RequiredData>,
}

impl FlagSet {
    /// A set of these flags, which are ascending and closed under dependencies, except for flags that count as off.
    pub fn new(evaluator: &Evaluator, flags: Vec<usize>) -> Self {
        let used = flags.iter().flat_map(|flag| evaluator.flags[*flag].cohorts.iter().copied());
        let cohorts = evaluator.cohorts.closure(used);
        let mut key_order: Vec<usize> = (0..flags.len()).collect();
        key_order.sort_unstable_by_key(|position| &*evaluator.flags[flags[*position]].key);
        Self { flags, key_order, cohorts, merged_needs: None }
    }

    /// Precomputes the merged requirements, for reuse by many requests.
    pub fn with_merged_requirements(self, evaluator: &Evaluator) -> Self {
        let mut merged = RequiredData::default();
        self.flags.iter().for_each(|flag| merged.add(&evaluator.flags[*flag].needs));
        Self { merged_needs: Some(merged), ..self }
    }
}

/// Flags of an [`Evaluator`] with their dependencies.
#[derive(Debug)]
pub struct EvaluationPlan<'a> {
    evaluator: &'a Evaluator,
    set: Cow<'a, FlagSet>,
    /// Position of the flag that the plan was made for, if any.
    target: Option<usize>,
}

impl<'a> EvaluationPlan<'a> {
    /// A plan of these flags, which are ascending and closed under dependencies, except for flags that count as off.
    pub(super) fn new(evaluator: &'a Evaluator, flags: Vec<usize>) -> Self {
        Self { evaluator, set: Cow::Owned(FlagSet::new(evaluator, flags)), target: None }
    }

    /// A plan of a set that the evaluator caches.
    pub(super) fn of(evaluator: &'a Evaluator, set: &'a FlagSet) -> Self {
        Self { evaluator, set: Cow::Borrowed(set), target: None }
    }

    /// Sets the flag that the plan is made for.
    pub(super) fn with_target(self, flag: usize) -> Self {
        Self { target: self.set.flags.binary_search(&flag).ok(), ..self }
    }

    /// The number of flags.
    pub fn len(&self) -> usize {
        self.set.flags.len()
    }

    /// Whether it has no flag.
    pub fn is_empty(&self) -> bool {
        self.set.flags.is_empty()
    }

    /// The data that must be loaded for a subject that contains only the data of the request.
    pub fn lookups(&self, subject: &Subject<'_>) -> DataLookups {
        let mut lookups = DataLookups::default();
        self.needs().for_each(|needs| needs.look_up(subject, &mut lookups));
        lookups
    }

    /// The static cohorts whose membership affects any result.
    pub fn static_cohorts(&self) -> BTreeSet<i64> {
        self.needs().flat_map(|needs| needs.static_cohorts.iter().copied()).collect()
    }

    /// Whether an override of experience continuity may affect any flag.
    pub fn needs_overrides(&self) -> bool {
        self.needs().any(|needs| needs.overrides)
    }

    /// The person properties that affect any result.
    pub fn person_properties(&self) -> BTreeSet<String> {
        self.needs().flat_map(|needs| needs.person_properties().iter().cloned()).collect()
    }

    fn needs(&self) -> impl Iterator<Item = &RequiredData> {
        let FlagSet { flags, merged_needs, .. } = &*self.set;
        let single = if merged_needs.is_none() { flags.as_slice() } else { &[] };
        merged_needs.iter().chain(single.iter().map(|flag| &self.evaluator.flags[*flag].needs))
    }

    /// Evaluates all flags for one subject; sorted by key.
    pub fn evaluate_all(&self, subject: &Subject<'_>) -> Vec<(&'a CompiledFlag, Evaluation)> {
        let evaluator = self.evaluator;
        let mut evaluations = self.evaluations(subject);
        let in_key_order = self.set.key_order.iter().map(|position| {
            let evaluation = &mut evaluations[*position];
            let placeholder = Evaluation::off(evaluation.reason, None);
            (&evaluator.flags[self.set.flags[*position]], std::mem::replace(evaluation, placeholder))
        });
        in_key_order.collect()
    }

    /// Evaluates the flag that the plan was made for.
    pub fn evaluate(&self, subject: &Subject<'_>) -> Option<Evaluation> {
        Some(self.evaluations(subject).swap_remove(self.target?))
    }

    /// The evaluations by position.
    fn evaluations(&self, subject: &Subject<'_>) -> Vec<Evaluation> {
        let FlagSet { flags, cohorts, .. } = &*self.set;
        let members = self.evaluator.cohorts.evaluate(cohorts, subject);
        let person_tests = PersonTestResults::of(self.evaluator.person_tests);
        let evaluations = Vec::with_capacity(flags.len());
        let mut state = EvaluationState { subject, person_tests, members, flags, evaluations };
        for flag in flags {
            let evaluation = self.evaluator.flags[*flag].evaluate(&state);
            state.evaluations.push(evaluation);
        }
        state.evaluations
    }
}
