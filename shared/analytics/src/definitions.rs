//! Actions and cohorts, which queries reference by id.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The actions and cohorts that a query references, directly or through each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Definitions {
    /// By id, without deleted ones.
    pub actions: BTreeMap<u64, Action>,
    /// By id, without deleted ones.
    pub cohorts: BTreeMap<u64, Cohort>,
}

/// A named set of events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Action {
    /// Its name.
    pub name: String,
    /// Steps as stored, of which an event has to match one. An action without steps matches every event.
    pub steps: Vec<Value>,
}

/// A named set of persons.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cohort {
    /// Its name.
    pub name: String,
    /// Has a member list instead of rules.
    pub is_static: bool,
    /// Its rules `{"properties": {...}}` as stored; null if it has none.
    pub filters: Value,
    /// Its rules in the legacy format; null if it has none.
    pub groups: Value,
}

/// The ids that a query, action or cohort references.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefinitionIds {
    /// Actions.
    pub actions: BTreeSet<u64>,
    /// Cohorts.
    pub cohorts: BTreeSet<u64>,
}

impl DefinitionIds {
    /// True if nothing is referenced.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty() && self.cohorts.is_empty()
    }
}
