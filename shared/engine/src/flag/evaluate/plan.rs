//! A selection of flags with all that they depend on, ready for subjects.

use std::{borrow::Cow, collections::BTreeSet};

use super::{
    CompiledFlag, Evaluation, Evaluator, Subject,
    context::Known,
    needs::{Lookups, Needs},
};

/// Flags of an [`Evaluator`], what they depend on included.
#[derive(Debug, Clone)]
pub(super) struct FlagSet {
    /// Their indexes, ascending, each after those that it depends on.
    flags: Vec<usize>,
    /// Positions in `flags`, in the order of the flags' keys.
    key_order: Vec<usize>,
    /// The dynamic cohorts that decide anything, ascending.
    cohorts: Vec<usize>,
    /// What all of them read, where the set is made for more than one request.
    merged_needs: Option<Needs>,
}

impl FlagSet {
    /// A set of these flags, which are ascending and closed under dependencies, but for flags that count as off.
    pub fn new(evaluator: &Evaluator, flags: Vec<usize>) -> Self {
        let used = flags.iter().flat_map(|flag| evaluator.flags[*flag].cohorts.iter().copied());
        let cohorts = evaluator.cohorts.closure(used);
        let mut key_order: Vec<usize> = (0..flags.len()).collect();
        key_order.sort_unstable_by_key(|position| &*evaluator.flags[flags[*position]].key);
        Self { flags, key_order, cohorts, merged_needs: None }
    }

    /// The same, for many requests.
    pub fn with_merged_needs(self, evaluator: &Evaluator) -> Self {
        let mut merged = Needs::default();
        self.flags.iter().for_each(|flag| merged.add(&evaluator.flags[*flag].needs));
        Self { merged_needs: Some(merged), ..self }
    }
}

/// Flags of an [`Evaluator`] with what they depend on.
#[derive(Debug)]
pub struct Plan<'a> {
    evaluator: &'a Evaluator,
    set: Cow<'a, FlagSet>,
    /// Position of the flag that the plan was made for, if it was made for one.
    target: Option<usize>,
}

impl<'a> Plan<'a> {
    /// A plan of these flags, which are ascending and closed under dependencies, but for flags that count as off.
    pub(super) fn new(evaluator: &'a Evaluator, flags: Vec<usize>) -> Self {
        Self { evaluator, set: Cow::Owned(FlagSet::new(evaluator, flags)), target: None }
    }

    /// A plan of a set that the evaluator keeps.
    pub(super) fn of(evaluator: &'a Evaluator, set: &'a FlagSet) -> Self {
        Self { evaluator, set: Cow::Borrowed(set), target: None }
    }

    /// The same, made for this flag.
    pub(super) fn with_target(self, flag: usize) -> Self {
        Self { target: self.set.flags.binary_search(&flag).ok(), ..self }
    }

    /// How many flags it has.
    pub fn len(&self) -> usize {
        self.set.flags.len()
    }

    /// Whether it has no flag.
    pub fn is_empty(&self) -> bool {
        self.set.flags.is_empty()
    }

    /// What has to be looked up for a subject, which is what the request says of it.
    pub fn lookups(&self, subject: &Subject<'_>) -> Lookups {
        let mut lookups = Lookups::default();
        self.needs().for_each(|needs| needs.look_up(subject, &mut lookups));
        lookups
    }

    /// The static cohorts whose membership decides anything.
    pub fn static_cohorts(&self) -> BTreeSet<i64> {
        self.needs().flat_map(|needs| needs.static_cohorts.iter().copied()).collect()
    }

    /// Whether an override of experience continuity may decide the value of some flag.
    pub fn needs_overrides(&self) -> bool {
        self.needs().any(|needs| needs.overrides)
    }

    /// The properties of the person that decide anything.
    pub fn person_properties(&self) -> BTreeSet<String> {
        self.needs().flat_map(|needs| needs.person_properties().iter().cloned()).collect()
    }

    fn needs(&self) -> impl Iterator<Item = &Needs> {
        let FlagSet { flags, merged_needs, .. } = &*self.set;
        let single = if merged_needs.is_none() { flags.as_slice() } else { &[] };
        merged_needs.iter().chain(single.iter().map(|flag| &self.evaluator.flags[*flag].needs))
    }

    /// The evaluations of all flags for one subject, in the order of their keys.
    pub fn evaluate_all(&self, subject: &Subject<'_>) -> Vec<(&'a CompiledFlag, Evaluation)> {
        let evaluator = self.evaluator;
        let mut evaluations = self.evaluations(subject);
        let in_key_order = self.set.key_order.iter().map(|position| {
            let evaluation = &mut evaluations[*position];
            let moved = Evaluation::off(evaluation.reason, None);
            (&evaluator.flags[self.set.flags[*position]], std::mem::replace(evaluation, moved))
        });
        in_key_order.collect()
    }

    /// The evaluation of the flag that the plan was made for.
    pub fn evaluate(&self, subject: &Subject<'_>) -> Option<Evaluation> {
        Some(self.evaluations(subject).swap_remove(self.target?))
    }

    /// The evaluations by position.
    fn evaluations(&self, subject: &Subject<'_>) -> Vec<Evaluation> {
        let FlagSet { flags, cohorts, .. } = &*self.set;
        let members = self.evaluator.cohorts.evaluate(cohorts, subject);
        let mut known = Known { subject, members, flags, evaluations: Vec::with_capacity(flags.len()) };
        for flag in flags {
            let evaluation = self.evaluator.flags[*flag].evaluate(&known);
            known.evaluations.push(evaluation);
        }
        known.evaluations
    }
}
