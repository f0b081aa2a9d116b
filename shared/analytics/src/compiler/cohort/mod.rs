//! Compiles cohorts and evaluates their membership.
//!
//! Must stay true: membership is evaluated as of now, once for each actor of a partition; the lists are in topological
//! order (a cohort follows the cohorts that it references, a behaviour follows those that its event filters depend on), so
//! they can be evaluated front to back. A cohort that references itself is an error.

mod behaviour;
mod behaviour_pattern;
mod criteria;

use std::collections::{BTreeMap, BTreeSet};

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::operator::ValueTest;
use pennon_filters::work_budget::WorkBudget;
use uuid::Uuid;

use crate::compiler::Compiler;
use crate::join::{self, JoinData};
use crate::limits;
use crate::scan::{JoinedColumnKey, Partition};
use behaviour::Behaviour;
pub use behaviour::{BEHAVIOUR_UNITS, BEHAVIOURS};

/// The compiled cohorts of a query, including those that they reference.
#[derive(Debug, Clone, Default)]
pub(crate) struct CohortRules {
    /// Cohort id and rule, in topological order.
    rules: Vec<(u64, Rule)>,
    /// In the order of [`crate::join::DataRequirements::behaviours`].
    behaviours: Vec<Behaviour>,
    /// The JSON criterion of each behaviour, to deduplicate equal ones.
    criteria: Vec<serde_json::Value>,
    /// The stack of cohorts being compiled, for cycle detection: each references the next.
    compiling: Vec<u64>,
}

/// A condition on a person.
#[derive(Debug, Clone)]
enum Rule {
    All(Vec<Rule>),
    Any(Vec<Rule>),
    Not(Box<Rule>),
    /// A property of the person passes the test.
    Person(String, ValueTest),
    /// Member of a static cohort.
    StaticList(u64),
    /// Member of another cohort.
    Member(u64),
    /// Matches the behaviour with this index.
    Behaviour(usize),
}

/// Compiles a cohort and all cohorts that it references.
pub(crate) fn compile(id: u64, compiler: &mut Compiler<'_>, attr: &str) -> CalcResult<()> {
    if compiler.cohorts.rules.iter().any(|(known, _)| *known == id) {
        return Ok(());
    }
    let definitions = compiler.definitions;
    let Some(cohort) = definitions.cohorts.get(&id) else {
        return Err(CalcError::invalid(attr, format!("There is no cohort {id}.")));
    };
    let open = &compiler.cohorts.compiling;
    if open.contains(&id) {
        return Err(CalcError::invalid(attr, format!("The cohort {id} leads back to itself.")));
    }
    if open.len() >= limits::COHORT_DEPTH {
        return Err(limits::too_many(attr, "cohorts inside each other", limits::COHORT_DEPTH));
    }
    let rule = if cohort.is_static {
        compiler.needs.cohort_lists.insert(id);
        Rule::StaticList(id)
    } else {
        compiler.cohorts.compiling.push(id);
        let rule = criteria::rule(cohort, compiler, attr);
        compiler.cohorts.compiling.pop();
        rule.map_err(|error| error.inside(format_args!("cohort {id}")))?
    };
    compiler.cohorts.rules.push((id, rule));
    Ok(())
}

/// Validates the rules of a cohort, and of the cohorts that it references.
pub(crate) fn validate(id: u64, compiler: &mut Compiler<'_>) -> CalcResult<()> {
    let definitions = compiler.definitions;
    let Some(cohort) = definitions.cohorts.get(&id).filter(|cohort| !cohort.is_static) else { return Ok(()) };
    compiler.cohorts.compiling.push(id);
    let attr = if criteria::has_filters(cohort) { "filters" } else { "groups" };
    criteria::rule(cohort, compiler, attr).map(drop)
}

impl CohortRules {
    /// Joins the columns `keys` to the rows of a person partition.
    pub(crate) fn join(
        &self,
        partition: &mut Partition,
        keys: &BTreeSet<JoinedColumnKey>,
        join_data: &JoinData,
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        let reads_membership = keys.iter().any(|key| matches!(key, JoinedColumnKey::InCohort(_)));
        let members = if reads_membership {
            self.evaluate_membership(&partition.actors, join_data, work)?
        } else {
            BTreeMap::new()
        };
        join::join(partition, keys, join_data, &members, work)
    }

    /// The persons of a partition of the behaviour's scan that match it. `join_data` must have all earlier behaviours.
    pub(crate) fn matching_persons(
        &self,
        index: usize,
        partition: &mut Partition,
        join_data: &JoinData,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Uuid>> {
        let Some(behaviour) = self.behaviours.get(index) else { return Ok(Vec::new()) };
        self.join(partition, &behaviour.joined_columns, join_data, work)?;
        behaviour.matching_persons(partition, work)
    }

    /// Counts how many of `persons` are members of cohort `id`.
    pub(crate) fn count(
        &self,
        id: u64,
        persons: &[Uuid],
        join_data: &JoinData,
        work: &WorkBudget<'_>,
    ) -> CalcResult<usize> {
        let members = self.evaluate_membership(persons, join_data, work)?;
        Ok(members.get(&id).map_or(0, |members| members.iter().filter(|is_member| **is_member).count()))
    }

    /// For each cohort: whether each actor is a member.
    fn evaluate_membership(
        &self,
        actors: &[Uuid],
        join_data: &JoinData,
        work: &WorkBudget<'_>,
    ) -> CalcResult<BTreeMap<u64, Vec<bool>>> {
        let mut members = BTreeMap::new();
        for (id, rule) in &self.rules {
            work.check()?;
            let is_member = rule.evaluate(actors, join_data, &members, work)?;
            members.insert(*id, is_member);
        }
        Ok(members)
    }
}

impl Rule {
    /// Whether each actor meets the rule.
    fn evaluate(
        &self,
        actors: &[Uuid],
        join_data: &JoinData,
        members: &BTreeMap<u64, Vec<bool>>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<bool>> {
        work.consume(actors.len())?;
        let in_list = |list: Option<&std::collections::HashSet<Uuid>>| {
            actors.iter().map(|actor| list.is_some_and(|list| list.contains(actor))).collect()
        };
        let combine = |rules: &[Self], start: bool, combine: fn(&mut bool, bool)| {
            let mut passes = vec![start; actors.len()];
            for rule in rules {
                let more = rule.evaluate(actors, join_data, members, work)?;
                passes.iter_mut().zip(more).for_each(|(passes, more)| combine(passes, more));
            }
            Ok(passes)
        };
        Ok(match self {
            Self::All(rules) => combine(rules, true, |passes, more| *passes &= more)?,
            Self::Any(rules) => combine(rules, false, |passes, more| *passes |= more)?,
            Self::Not(rule) => {
                rule.evaluate(actors, join_data, members, work)?.into_iter().map(|passes| !passes).collect()
            }
            Self::Person(key, test) => {
                let column = join_data.persons.column(actors.iter().map(Some), key);
                let passes = column.values.iter().map(|value| test.matches_within_budget(Some(value), work));
                let passes: Vec<bool> = passes.collect::<CalcResult<_>>()?;
                let missing = test.holds(None);
                let of_code = |code: &u32| usize::try_from(*code).ok().and_then(|code| passes.get(code));
                column.codes.iter().map(|code| of_code(code).copied().unwrap_or(missing)).collect()
            }
            Self::StaticList(id) => in_list(join_data.cohort_lists.get(id)),
            Self::Member(id) => members.get(id).cloned().unwrap_or_else(|| vec![false; actors.len()]),
            Self::Behaviour(index) => in_list(join_data.behaviours.get(*index)),
        })
    }
}
