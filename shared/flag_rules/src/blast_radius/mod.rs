//! Blast radius: how many persons or groups match the conditions of a request.
//!
//! Usage: [`Conditions::parse`] → load [`Conditions::cohort_ids`] and their transitive references →
//! [`Conditions::compile`] → [`BlastRadius::actors`] returns what to scan, [`BlastRadius::matches_person`] or
//! [`BlastRadius::matches_group`] tests each.
//!
//! Must stay true: values are equal when their string forms are, so `25` and `"25"` are; rollout and variant of a
//! condition are ignored; a condition that a flag could not have is refused; the newer forms of early access and holdout
//! decide before the conditions, as in every evaluation.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use pennon_filters::body::json::Object;
use pennon_filters::operator::Operator;
use pennon_filters::work_budget::CancellationToken;
use serde_json::Value;

use super::evaluate::{
    CohortEvaluator, EvaluationState, FlagCompiler, GroupSubject, Leaf, PersonTestResults, RequiredData,
    Subject, is_enrolled,
};
use crate::conditions::filter_view as view;
use crate::conditions::record_ids::is_cohort;
use crate::hash;
use crate::relations::cohort::FlagCohort;

mod group_key;
mod request;

use request::ConditionOverrides;
pub use request::Conditions;

/// The entities that conditions are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actors {
    /// The persons of the project.
    Persons,
    /// The groups of the type with this index.
    Groups(u32),
}

impl Conditions {
    /// Compiles the conditions. Dates without an offset are in `zone`, relative ones count from `now`.
    pub fn compile(
        &self,
        cohorts: impl IntoIterator<Item = FlagCohort>,
        zone: Tz,
        now: DateTime<Utc>,
    ) -> BlastRadius {
        let compiler = FlagCompiler::by_text(zone);
        let cohorts = CohortEvaluator::new(cohorts, &compiler);
        let leaf = |property: &Value| {
            let property = &with_plain_operator(property);
            if is_of_group(property) {
                return Leaf::group(property, None, &compiler).unwrap_or(Leaf::Never);
            }
            Leaf::criterion(property, &cohorts, &compiler)
        };
        let alternatives: Vec<Vec<Leaf>> =
            self.alternatives().iter().map(|properties| properties.iter().map(leaf).collect()).collect();
        let (mut used, mut needs) = (BTreeSet::new(), RequiredData::default());
        for leaf in alternatives.iter().flatten() {
            leaf.add_cohorts(&mut used);
            needs.add_leaf(leaf);
        }
        let used = cohorts.closure(used.into_iter());
        used.iter().for_each(|cohort| needs.add(cohorts.needs(*cohort)));
        BlastRadius {
            alternatives,
            cohorts,
            used,
            static_cohorts: needs.static_cohorts,
            actors: self.actors(),
            overrides: self.overrides().clone(),
            now,
            cancellation: CancellationToken::default(),
        }
    }
}

/// Compiled conditions for testing persons or groups.
#[derive(Debug)]
pub struct BlastRadius {
    /// The properties of each condition; it is enough that all properties of one condition match.
    alternatives: Vec<Vec<Leaf>>,
    cohorts: CohortEvaluator,
    used: Vec<usize>,
    static_cohorts: BTreeSet<i64>,
    actors: Actors,
    overrides: ConditionOverrides,
    now: DateTime<Utc>,
    cancellation: CancellationToken,
}

impl BlastRadius {
    /// The entities to scan.
    pub fn actors(&self) -> Actors {
        self.actors
    }

    /// Cancels a running test; its result is invalid then.
    pub fn cancellation(&self) -> CancellationToken {
        self.cancellation.clone()
    }

    /// Whether they match every entity, so that counting is enough.
    pub fn matches_all(&self) -> bool {
        let may_decline = self.actors == Actors::Persons && self.overrides.enrollment.is_some();
        !may_decline && self.alternatives.iter().any(Vec::is_empty)
    }

    /// The static cohorts whose membership affects the result.
    pub fn static_cohorts(&self) -> &BTreeSet<i64> {
        &self.static_cohorts
    }

    /// Whether they match the person of `distinct_id`, who is a member of these static cohorts.
    pub fn matches_person(
        &self,
        distinct_id: &str,
        properties: &Object,
        static_cohorts: &BTreeSet<i64>,
    ) -> bool {
        let enrollment = self.overrides.enrollment.as_ref().and_then(|property| properties.get(property));
        if let Some(value) = enrollment {
            return is_enrolled(value);
        }
        self.holds_out(distinct_id)
            || self.matches(Subject::person(distinct_id, properties, static_cohorts, self.now))
    }

    /// Whether they match a group.
    pub fn matches_group(&self, key: &str, properties: &Object) -> bool {
        let Actors::Groups(index) = self.actors else { return false };
        if self.holds_out(key) {
            return true;
        }
        let groups = BTreeMap::from([(index, GroupSubject { key, properties })]);
        let (nothing, nowhere) = (Object::new(), BTreeSet::new());
        self.matches(Subject::person("", &nothing, &nowhere, self.now).with_groups(groups))
    }

    /// Whether the id is held out, which gives it the value of the holdout.
    fn holds_out(&self, id: &str) -> bool {
        self.overrides.holdout.is_some_and(|percentage| hash::in_holdout(id, percentage))
    }

    fn matches<'a>(&'a self, subject: Subject<'a>) -> bool {
        let subject = &subject.until_cancelled(&self.cancellation);
        let members = self.cohorts.evaluate(&self.used, subject);
        let person_tests = PersonTestResults::default();
        let known = EvaluationState { subject, person_tests, members, flags: &[], evaluations: Vec::new() };
        self.alternatives.iter().any(|leaves| leaves.iter().all(|leaf| leaf.holds(&known) == Some(true)))
    }
}

fn is_of_group(property: &Value) -> bool {
    view::text(property, "type") == Some("group")
}

/// For properties other than cohorts, `in` and `not_in` mean `exact` and `is_not` with a list.
fn with_plain_operator(property: &Value) -> Value {
    let mut property = property.clone();
    let plain = match view::operator(&property) {
        Some(Operator::In) => Operator::Exact,
        Some(Operator::NotIn) => Operator::IsNot,
        _ => return property,
    };
    if !is_cohort(&property)
        && let Some(property) = property.as_object_mut()
    {
        property.insert("operator".to_owned(), plain.name().into());
    }
    property
}

#[cfg(test)]
mod tests;
