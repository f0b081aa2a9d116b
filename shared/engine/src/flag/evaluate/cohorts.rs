//! Cohorts as trees of criteria, and who belongs to them.
//!
//! Must stay true: a cohort that does not exist, is deleted, has no criteria or leads back to itself has no members; a
//! criterion that a flag cannot ask for (on events) is never met, negated or not. Cohorts inside cohorts are evaluated
//! before those that name them, so no depth of them needs a stack.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    Subject,
    compile::Compiler,
    context::{Known, Members},
    leaf::Leaf,
    needs::Needs,
    order,
};
use crate::flag::{cohort::Cohort, json::Object, references};

/// Groups inside groups of one cohort's criteria; deeper ones are never met.
const DEPTH: usize = 128;

/// What a property of type cohort asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CohortTest {
    /// A list of members, by its id.
    Static(i64),
    /// Criteria, by the index among the compiled cohorts.
    Dynamic(usize),
    /// A cohort without members.
    Empty,
}

/// The compiled cohorts of a project.
#[derive(Debug, Default)]
pub struct Cohorts {
    tests: BTreeMap<i64, CohortTest>,
    /// The dynamic ones; those that one names come before it.
    dynamic: Vec<Dynamic>,
}

#[derive(Debug)]
struct Dynamic {
    criteria: Criteria,
    /// Indexes of the cohorts that the criteria name.
    uses: Vec<usize>,
    /// What the criteria read.
    needs: Needs,
}

#[derive(Debug)]
enum Criteria {
    All(Vec<Criteria>),
    Any(Vec<Criteria>),
    One { leaf: Leaf, negated: bool },
}

impl Cohorts {
    /// Compiles cohorts.
    pub fn new(cohorts: impl IntoIterator<Item = Cohort>, compiler: &Compiler) -> Self {
        let live: BTreeMap<i64, Cohort> =
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
        let order = order::order(&edges);

        let mut compiled = Self::default();
        compiled.tests.extend(live.values().map(|cohort| {
            let test = if cohort.is_static { CohortTest::Static(cohort.id) } else { CohortTest::Empty };
            (cohort.id, test)
        }));
        for number in order.nodes {
            let (id, criteria) = with_criteria[number];
            if !order.circular[number] {
                compiled.add(id, criteria, compiler);
            }
        }
        compiled
    }

    fn add(&mut self, id: i64, criteria: &Object, compiler: &Compiler) {
        compiler.patterns.next_asker();
        let Some(criteria) = self.group(criteria, compiler, 0) else { return };
        let (mut uses, mut needs) = (BTreeSet::new(), Needs::default());
        criteria.for_each_leaf(&mut |leaf| {
            leaf.add_cohorts(&mut uses);
            needs.add_leaf(leaf);
        });
        self.tests.insert(id, CohortTest::Dynamic(self.dynamic.len()));
        self.dynamic.push(Dynamic { criteria, uses: uses.into_iter().collect(), needs });
    }

    /// None for a group without any criterion, which restricts nothing.
    fn group(&self, group: &Object, compiler: &Compiler, depth: usize) -> Option<Criteria> {
        let values = group.get("values").and_then(Value::as_array)?;
        if depth >= DEPTH {
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

    fn leaf(&self, criterion: &Value, compiler: &Compiler) -> Criteria {
        let leaf = Leaf::criterion(criterion, self, compiler);
        let negation = criterion.get("negation").and_then(Value::as_bool).unwrap_or(false);
        // A property that names a cohort has its negation inside.
        let negated = negation && !matches!(leaf, Leaf::Member { .. });
        Criteria::One { leaf, negated }
    }

    /// What a property that names this cohort asks about.
    pub fn test(&self, id: Option<i64>) -> CohortTest {
        id.and_then(|id| self.tests.get(&id)).copied().unwrap_or(CohortTest::Empty)
    }

    /// These dynamic cohorts and those that they name at any depth, ascending.
    pub fn closure(&self, indexes: impl Iterator<Item = usize>) -> Vec<usize> {
        order::reachable(indexes, |index| self.dynamic[index].uses.as_slice())
    }

    /// What the criteria of a dynamic cohort read themselves, without the cohorts that they name.
    pub fn needs(&self, index: usize) -> &Needs {
        &self.dynamic[index].needs
    }

    /// Which of these dynamic cohorts the subject belongs to. They are closed and ascending (see [`Self::closure`]).
    pub fn evaluate(&self, closed: &[usize], subject: &Subject<'_>) -> Members {
        if closed.is_empty() {
            return Members::default();
        }
        let members = Members { indexes: closed.to_vec(), answers: Vec::with_capacity(closed.len()) };
        let mut known = Known { subject, members, flags: &[], evaluations: Vec::new() };
        for index in closed {
            let answer = self.dynamic[*index].criteria.holds(&known);
            known.members.answers.push(answer);
        }
        known.members
    }
}

impl Criteria {
    fn holds(&self, known: &Known<'_>) -> bool {
        match self {
            Self::All(members) => members.iter().all(|member| member.holds(known)),
            Self::Any(members) => members.iter().any(|member| member.holds(known)),
            Self::One { leaf, negated } => leaf.holds(known).is_some_and(|holds| holds != *negated),
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

/// The ids of the cohorts that a group of criteria names, without recursion.
pub fn named_cohorts(group: &Object) -> BTreeSet<i64> {
    let mut ids = BTreeSet::new();
    let mut pending: Vec<&Value> = group.get("values").into_iter().collect();
    while let Some(criterion) = pending.pop() {
        match criterion.as_array().or_else(|| criterion.get("values")?.as_array()) {
            Some(values) => pending.extend(values),
            None if references::is_cohort(criterion) => ids.extend(references::cohort_id(criterion)),
            None => {}
        }
    }
    ids
}
