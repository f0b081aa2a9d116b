//! Compiled cohorts: criteria trees, and membership tests.
//!
//! Must stay true: a cohort that does not exist, is deleted, has no criteria or is on a cycle has no members; a
//! criterion that flags cannot evaluate (on events) never matches, negated or not. Nested cohorts are evaluated before
//! those that refer to them, so nesting needs no recursion.

use std::collections::{BTreeMap, BTreeSet};

use pennon_filters::body::json::Object;
use serde_json::Value;

use super::{
    Subject,
    compiler::FlagCompiler,
    leaf::Leaf,
    required_data::RequiredData,
    state::{CohortMembership, EvaluationState, PersonTestResults},
    topological_order,
};
use crate::relations::cohort::{FlagCohort, named_cohorts};

/// Deepest nesting of groups in criteria; deeper ones never match.
const NESTING_MAX: usize = 128;

/// The membership test of a property of type cohort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CohortTest {
    /// A static cohort, by its id.
    Static(i64),
    /// A dynamic cohort, by its index among the compiled cohorts.
    Dynamic(usize),
    /// A cohort without members.
    Empty,
}

/// The compiled cohorts of a project.
#[derive(Debug, Default)]
pub struct CohortEvaluator {
    tests: BTreeMap<i64, CohortTest>,
    /// The dynamic cohorts in topological order.
    dynamic: Vec<DynamicCohort>,
}

#[derive(Debug)]
struct DynamicCohort {
    criteria: Criteria,
    /// Indexes of the cohorts that the criteria refer to.
    uses: Vec<usize>,
    /// The data that the criteria read.
    needs: RequiredData,
}

#[derive(Debug)]
enum Criteria {
    All(Vec<Criteria>),
    Any(Vec<Criteria>),
    One { leaf: Leaf, negated: bool },
}

impl CohortEvaluator {
    /// Compiles cohorts.
    pub fn new(cohorts: impl IntoIterator<Item = FlagCohort>, compiler: &FlagCompiler) -> Self {
        let live: BTreeMap<i64, FlagCohort> =
            cohorts.into_iter().filter(|cohort| !cohort.deleted).map(|cohort| (cohort.id, cohort)).collect();
        let with_criteria: Vec<(i64, &Object)> =
            live.iter().filter_map(|(id, cohort)| Some((*id, cohort.criteria()?))).collect();
        let numbers: BTreeMap<i64, usize> =
            with_criteria.iter().enumerate().map(|(number, (id, _))| (*id, number)).collect();
        let edges: Vec<Vec<usize>> = with_criteria
            .iter()
            .map(|(_, criteria)| {
                let named = named_cohorts(criteria).into_iter();
                named.filter_map(|id| numbers.get(&id).copied()).collect()
            })
            .collect();
        let order = topological_order::topological_order(&edges);

        let mut compiled = Self::default();
        compiled.tests.extend(live.values().map(|cohort| {
            let test = if cohort.is_static { CohortTest::Static(cohort.id) } else { CohortTest::Empty };
            (cohort.id, test)
        }));
        for number in order.nodes {
            let (id, criteria) = with_criteria[number];
            if !order.is_cyclic[number] {
                compiled.add(id, criteria, compiler);
            }
        }
        compiled
    }

    fn add(&mut self, id: i64, criteria: &Object, compiler: &FlagCompiler) {
        compiler.patterns.start_owner();
        let Some(criteria) = self.group(criteria, compiler, 0) else { return };
        let (mut uses, mut needs) = (BTreeSet::new(), RequiredData::default());
        criteria.for_each_leaf(&mut |leaf| {
            leaf.add_cohorts(&mut uses);
            needs.add_leaf(leaf);
        });
        self.tests.insert(id, CohortTest::Dynamic(self.dynamic.len()));
        self.dynamic.push(DynamicCohort { criteria, uses: uses.into_iter().collect(), needs });
    }

    /// `None` for a group without criteria, which restricts nothing.
    fn group(&self, group: &Object, compiler: &FlagCompiler, depth: usize) -> Option<Criteria> {
        let values = group.get("values").and_then(Value::as_array)?;
        if depth >= NESTING_MAX {
            return Some(Criteria::One { leaf: Leaf::Never, negated: false });
        }
        let members: Vec<Criteria> = values
            .iter()
            .filter_map(|value| match value {
                Value::Object(group) if group.contains_key("values") => {
                    self.group(group, compiler, depth + 1)
                }
                Value::Object(_) => Some(self.leaf(value, compiler)),
                _ => None,
            })
            .collect();
        if members.is_empty() {
            return None;
        }
        let kind = group.get("type").and_then(Value::as_str);
        let any = kind.is_some_and(|kind| kind.eq_ignore_ascii_case("or"));
        Some(if any { Criteria::Any(members) } else { Criteria::All(members) })
    }

    fn leaf(&self, criterion: &Value, compiler: &FlagCompiler) -> Criteria {
        let leaf = Leaf::criterion(criterion, self, compiler);
        let negation = criterion.get("negation").and_then(Value::as_bool).unwrap_or(false);
        // The negation of a cohort property is part of the leaf.
        let negated = negation && !matches!(leaf, Leaf::Member { .. });
        Criteria::One { leaf, negated }
    }

    /// The membership test for this cohort id.
    pub fn test(&self, id: Option<i64>) -> CohortTest {
        id.and_then(|id| self.tests.get(&id)).copied().unwrap_or(CohortTest::Empty)
    }

    /// These dynamic cohorts and their transitive references, ascending.
    pub fn closure(&self, indexes: impl Iterator<Item = usize>) -> Vec<usize> {
        topological_order::reachable(indexes, |index| self.dynamic[index].uses.as_slice())
    }

    /// The data that the criteria of a dynamic cohort read, without the cohorts that they refer to.
    pub fn needs(&self, index: usize) -> &RequiredData {
        &self.dynamic[index].needs
    }

    /// Evaluates which of these dynamic cohorts contain the subject. They are transitively closed and ascending (see
    /// [`Self::closure`]).
    pub fn evaluate(&self, cohorts: &[usize], subject: &Subject<'_>) -> CohortMembership {
        if cohorts.is_empty() {
            return CohortMembership::default();
        }
        let members =
            CohortMembership { indexes: cohorts.to_vec(), results: Vec::with_capacity(cohorts.len()) };
        let person_tests = PersonTestResults::default();
        let mut state =
            EvaluationState { subject, person_tests, members, flags: &[], evaluations: Vec::new() };
        for index in cohorts {
            let result = self.dynamic[*index].criteria.holds(&state);
            state.members.results.push(result);
        }
        state.members
    }
}

impl Criteria {
    fn holds(&self, state: &EvaluationState<'_>) -> bool {
        match self {
            Self::All(members) => members.iter().all(|member| member.holds(state)),
            Self::Any(members) => members.iter().any(|member| member.holds(state)),
            Self::One { leaf, negated } => leaf.holds(state).is_some_and(|holds| holds != *negated),
        }
    }

    fn for_each_leaf(&self, visit: &mut impl FnMut(&Leaf)) {
        match self {
            Self::All(members) | Self::Any(members) => {
                members.iter().for_each(|member| member.for_each_leaf(visit));
            }
            Self::One { leaf, .. } => visit(leaf),
        }
    }
}
