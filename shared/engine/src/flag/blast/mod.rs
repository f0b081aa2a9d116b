//! How many persons or groups some conditions reach: the conditions of a request as a test of one of them.
//!
//! The way of a request: [`Conditions::parse`] → look up [`Conditions::cohort_ids`] and those that they name →
//! [`Conditions::compile`] → [`Blast::actors`] says whom to go through, [`Blast::matches_person`] or
//! [`Blast::matches_group`] whom to count.
//!
//! Must stay true: values are equal when their text forms are, so `25` and `"25"` are; rollout and variant of a
//! condition mean nothing here; what a flag could not have as a condition is refused.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde_json::Value;

use crate::work::CancellationToken;

use super::{
    cohort::Cohort,
    evaluate::{Cohorts, Compiler, GroupSubject, Known, Leaf, Needs, Subject},
    filter_view as view,
    json::Object,
    references::is_cohort,
};

mod conditions;
mod group_key;

pub use conditions::Conditions;

/// Whom conditions are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actors {
    /// The persons of the project.
    Persons,
    /// The groups of the type with this index.
    Groups(u32),
}

impl Conditions {
    /// Makes them ready. Naive dates are in `zone`, relative ones count from `now`.
    pub fn compile(&self, cohorts: impl IntoIterator<Item = Cohort>, zone: Tz, now: DateTime<Utc>) -> Blast {
        let compiler = Compiler::by_text(zone);
        let cohorts = Cohorts::new(cohorts, &compiler);
        let leaf = |property: &Value| {
            let property = &with_plain_operator(property);
            if is_of_group(property) {
                return Leaf::group(property, None, &compiler).unwrap_or(Leaf::Never);
            }
            Leaf::criterion(property, &cohorts, &compiler)
        };
        let alternatives: Vec<Vec<Leaf>> =
            self.alternatives().iter().map(|properties| properties.iter().map(leaf).collect()).collect();
        let (mut used, mut needs) = (BTreeSet::new(), Needs::default());
        for leaf in alternatives.iter().flatten() {
            leaf.add_cohorts(&mut used);
            needs.add_leaf(leaf);
        }
        let used = cohorts.closure(used.into_iter());
        used.iter().for_each(|cohort| needs.add(cohorts.needs(*cohort)));
        Blast {
            alternatives,
            cohorts,
            used,
            static_cohorts: needs.static_cohorts,
            actors: self.actors(),
            now,
            cancellation: CancellationToken::default(),
        }
    }
}

/// Conditions, ready to test persons or groups.
#[derive(Debug)]
pub struct Blast {
    /// The properties of each condition; one condition whose properties all match is enough.
    alternatives: Vec<Vec<Leaf>>,
    cohorts: Cohorts,
    used: Vec<usize>,
    static_cohorts: BTreeSet<i64>,
    actors: Actors,
    now: DateTime<Utc>,
    cancellation: CancellationToken,
}

impl Blast {
    /// Whom to go through.
    pub fn actors(&self) -> Actors {
        self.actors
    }

    /// Ends a test soon; what it says then means nothing.
    pub fn cancellation(&self) -> CancellationToken {
        self.cancellation.clone()
    }

    /// Whether they reach all of them, so that counting them is enough.
    pub fn reaches_all(&self) -> bool {
        self.alternatives.iter().any(Vec::is_empty)
    }

    /// The static cohorts whose membership decides anything.
    pub fn static_cohorts(&self) -> &BTreeSet<i64> {
        &self.static_cohorts
    }

    /// Whether they reach a person, who is a member of these static cohorts.
    pub fn matches_person(&self, properties: &Object, static_cohorts: &BTreeSet<i64>) -> bool {
        self.matches(Subject::person("", properties, static_cohorts, self.now))
    }

    /// Whether they reach a group.
    pub fn matches_group(&self, key: &str, properties: &Object) -> bool {
        let Actors::Groups(index) = self.actors else { return false };
        let groups = BTreeMap::from([(index, GroupSubject { key, properties })]);
        let (nothing, nowhere) = (Object::new(), BTreeSet::new());
        self.matches(Subject::person("", &nothing, &nowhere, self.now).with_groups(groups))
    }

    fn matches<'a>(&'a self, subject: Subject<'a>) -> bool {
        let subject = &subject.until_cancelled(&self.cancellation);
        let members = self.cohorts.evaluate(&self.used, subject);
        let known = Known { subject, members, flags: &[], evaluations: Vec::new() };
        self.alternatives.iter().any(|leaves| leaves.iter().all(|leaf| leaf.holds(&known) == Some(true)))
    }
}

fn is_of_group(property: &Value) -> bool {
    view::text(property, "type") == Some("group")
}

/// Of properties other than cohorts, `in` and `not_in` ask what `exact` and `is_not` ask of a list.
fn with_plain_operator(property: &Value) -> Value {
    let mut property = property.clone();
    let plain = match view::operator(&property) {
        "in" => "exact",
        "not_in" => "is_not",
        _ => return property,
    };
    if !is_cohort(&property)
        && let Some(property) = property.as_object_mut()
    {
        property.insert("operator".to_owned(), plain.into());
    }
    property
}

#[cfg(test)]
mod tests;
