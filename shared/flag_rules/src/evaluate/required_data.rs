//! The data about a subject that flags and cohorts need.
//!
//! Must stay true: it covers everything that an evaluation may read, so that a request which contains all of it reads
//! nothing from the store, and a flag with missing data is reported as failed and not as off.

use std::collections::BTreeSet;

use super::{EvaluationReason, Subject, cohorts::CohortTest, leaf::Leaf};

/// The person property that is always known: the distinct id of the request.
pub const DISTINCT_ID: &str = "distinct_id";

/// The data about a subject that could not be loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unavailable {
    /// The stored properties of the person.
    pub person: bool,
    /// The stored properties of the groups.
    pub groups: bool,
    /// Membership in static cohorts.
    pub static_cohorts: bool,
    /// The overrides of experience continuity.
    pub overrides: bool,
}

/// The data that must be loaded for a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataLookups {
    /// The stored properties of the person.
    pub person: bool,
    /// The stored properties of groups of these types.
    pub groups: BTreeSet<u32>,
    /// Membership in these static cohorts.
    pub static_cohorts: BTreeSet<i64>,
    /// The overrides of experience continuity.
    pub overrides: bool,
}

impl DataLookups {
    /// Whether nothing is needed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The data about a subject that flags or cohorts read.
#[derive(Debug, Clone, Default)]
pub struct RequiredData {
    person: BTreeSet<String>,
    groups: BTreeSet<(u32, String)>,
    /// Static cohorts.
    pub static_cohorts: BTreeSet<i64>,
    /// The override of experience continuity.
    pub overrides: bool,
}

impl RequiredData {
    /// Adds the data that a property of a condition or criterion reads.
    pub fn add_leaf(&mut self, leaf: &Leaf) {
        match leaf {
            Leaf::Person { key, .. } => self.add_person(key),
            Leaf::Group { index, key, .. } => drop(self.groups.insert((*index, key.clone()))),
            Leaf::Member { cohort: CohortTest::Static(id), .. } => drop(self.static_cohorts.insert(*id)),
            _ => {}
        }
    }

    /// Adds a property of the person.
    pub fn add_person(&mut self, key: &str) {
        self.person.insert(key.to_owned());
    }

    /// Adds the data of `other`.
    pub fn add(&mut self, other: &Self) {
        self.person.extend(other.person.iter().cloned());
        self.groups.extend(other.groups.iter().cloned());
        self.static_cohorts.extend(other.static_cohorts.iter().copied());
        self.overrides |= other.overrides;
    }

    /// The names of the person properties.
    pub fn person_properties(&self) -> &BTreeSet<String> {
        &self.person
    }

    /// Adds to `lookups` what `subject` does not contain.
    pub fn look_up(&self, subject: &Subject<'_>, lookups: &mut DataLookups) {
        lookups.person = lookups.person || self.lacks_person(subject);
        lookups.groups.extend(self.lacking_groups(subject));
        lookups.static_cohorts.extend(self.static_cohorts.iter().copied());
        lookups.overrides |= self.overrides;
    }

    /// Why the subject cannot be evaluated: required data could not be loaded.
    pub fn failure(&self, subject: &Subject<'_>) -> Option<EvaluationReason> {
        let Unavailable { person, groups, static_cohorts, overrides } = subject.unavailable;
        if (person && self.lacks_person(subject))
            || (groups && self.lacking_groups(subject).next().is_some())
            || (static_cohorts && !self.static_cohorts.is_empty())
        {
            return Some(EvaluationReason::StoreUnavailable);
        }
        (overrides && self.overrides).then_some(EvaluationReason::OverrideUnavailable)
    }

    fn lacks_person(&self, subject: &Subject<'_>) -> bool {
        self.person.iter().any(|key| key != DISTINCT_ID && !subject.properties.contains_key(key))
    }

    /// The types of the subject's groups that lack a required property. A type without a group needs no look-up.
    fn lacking_groups(&self, subject: &Subject<'_>) -> impl Iterator<Item = u32> {
        self.groups.iter().filter_map(move |(index, key)| {
            let group = subject.groups.get(index)?;
            (!group.properties.contains_key(key)).then_some(*index)
        })
    }
}
