//! What has to be known of a subject before a flag or cohort can be evaluated.
//!
//! Must stay true: whatever an evaluation may look at is in here, so that a request which knows all of it reads nothing
//! that is stored, and a flag that lacks some of it is reported as failed and not as off.

use std::collections::BTreeSet;

use super::{Reason, Subject, cohorts::CohortTest, leaf::Leaf};

/// The person property that is always known: the id of the request.
pub const DISTINCT_ID: &str = "distinct_id";

/// What of a subject could not be looked up.
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

/// What has to be looked up for a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lookups {
    /// The stored properties of the person.
    pub person: bool,
    /// The stored properties of the groups of these types.
    pub groups: BTreeSet<u32>,
    /// Membership in these static cohorts.
    pub static_cohorts: BTreeSet<i64>,
    /// The overrides of experience continuity.
    pub overrides: bool,
}

impl Lookups {
    /// Whether nothing is needed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What flags or cohorts read of a subject.
#[derive(Debug, Clone, Default)]
pub struct Needs {
    person: BTreeSet<String>,
    groups: BTreeSet<(u32, String)>,
    /// Static cohorts.
    pub static_cohorts: BTreeSet<i64>,
    /// The override of experience continuity.
    pub overrides: bool,
}

impl Needs {
    /// Adds what a property of a condition or criterion reads.
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

    /// Adds what something else reads.
    pub fn add(&mut self, other: &Self) {
        self.person.extend(other.person.iter().cloned());
        self.groups.extend(other.groups.iter().cloned());
        self.static_cohorts.extend(other.static_cohorts.iter().copied());
        self.overrides |= other.overrides;
    }

    /// The names of the person's properties.
    pub fn person_properties(&self) -> &BTreeSet<String> {
        &self.person
    }

    /// Adds to `lookups` what `subject` does not have.
    pub fn look_up(&self, subject: &Subject<'_>, lookups: &mut Lookups) {
        lookups.person = lookups.person || self.lacks_person(subject);
        lookups.groups.extend(self.lacking_groups(subject));
        lookups.static_cohorts.extend(self.static_cohorts.iter().copied());
        lookups.overrides |= self.overrides;
    }

    /// Why the subject cannot be evaluated: something that is needed could not be looked up.
    pub fn failure(&self, subject: &Subject<'_>) -> Option<Reason> {
        let Unavailable { person, groups, static_cohorts, overrides } = subject.unavailable;
        if (person && self.lacks_person(subject))
            || (groups && self.lacking_groups(subject).next().is_some())
            || (static_cohorts && !self.static_cohorts.is_empty())
        {
            return Some(Reason::StoreUnavailable);
        }
        (overrides && self.overrides).then_some(Reason::OverrideUnavailable)
    }

    fn lacks_person(&self, subject: &Subject<'_>) -> bool {
        self.person.iter().any(|key| key != DISTINCT_ID && !subject.properties.contains_key(key))
    }

    /// The types of those groups of the request of which some property is not known. What is asked of a type without a
    /// group is answered without looking anything up.
    fn lacking_groups(&self, subject: &Subject<'_>) -> impl Iterator<Item = u32> {
        self.groups.iter().filter_map(move |(index, key)| {
            let group = subject.groups.get(index)?;
            (!group.properties.contains_key(key)).then_some(*index)
        })
    }
}
