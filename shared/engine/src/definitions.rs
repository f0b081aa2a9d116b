//! What a project has defined and questions refer to by id: actions and cohorts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The definitions that a question refers to, directly or through each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Definitions {
    /// By id. What was deleted is not here.
    pub actions: BTreeMap<u64, Action>,
    /// By id. What was deleted is not here.
    pub cohorts: BTreeMap<u64, Cohort>,
}

/// A named set of events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Action {
    /// Its name.
    pub name: String,
    /// What an event must be: one of these, as the record has them. Without any, every event.
    pub steps: Vec<Value>,
}

/// A named set of persons.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cohort {
    /// Its name.
    pub name: String,
    /// A list of persons instead of rules.
    pub is_static: bool,
    /// Its rules `{"properties": {...}}` as the record has them; null for none.
    pub filters: Value,
    /// Its rules in the older form; null for none.
    pub groups: Value,
}

/// The ids that something refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mentions {
    /// Actions.
    pub actions: BTreeSet<u64>,
    /// Cohorts.
    pub cohorts: BTreeSet<u64>,
}

impl Mentions {
    /// Nothing is referred to.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.cohorts.is_empty()
    }
}
