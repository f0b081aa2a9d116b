//! What a client knows of a record: for each field that it has sent, the values that the field may have.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A kind of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Flags.
    Flag,
    /// Insights.
    Insight,
    /// Dashboards.
    Dashboard,
    /// Cohorts.
    Cohort,
    /// Actions.
    Action,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 5] = [Kind::Flag, Kind::Insight, Kind::Dashboard, Kind::Cohort, Kind::Action];

    /// The kind in paths.
    pub fn path(self) -> &'static str {
        match self {
            Kind::Flag => "feature_flags",
            Kind::Insight => "insights",
            Kind::Dashboard => "dashboards",
            Kind::Cohort => "cohorts",
            Kind::Action => "actions",
        }
    }

    /// The field that is different for each create.
    pub fn name_field(self) -> &'static str {
        if self == Kind::Flag { "key" } else { "name" }
    }

    /// Whether a deleted record is a 404.
    pub fn hides_deleted(self) -> bool {
        matches!(self, Kind::Insight | Kind::Dashboard)
    }
}

/// Fields that responses have as they were sent.
const COMPARED: [&str; 9] =
    ["key", "name", "description", "active", "tags", "favorited", "pinned", "deleted", "restriction_level"];

/// A record that was created.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub kind: Kind,
    pub id: u64,
    allowed: BTreeMap<String, Vec<Value>>,
}

impl Known {
    /// The record that was created by `body`.
    pub fn new(kind: Kind, id: u64, body: &Value) -> Known {
        let mut known = Known { kind, id, allowed: BTreeMap::new() };
        known.acknowledge(&json!({"deleted": false}));
        known.acknowledge(body);
        known
    }

    fn fields(body: &Value) -> impl Iterator<Item = (&String, &Value)> {
        body.as_object().into_iter().flatten().filter(|(name, _)| COMPARED.contains(&name.as_str()))
    }

    /// The fields have the values of `body`.
    pub fn acknowledge(&mut self, body: &Value) {
        for (name, value) in Known::fields(body) {
            self.allowed.insert(name.clone(), vec![value.clone()]);
        }
    }

    /// The fields may have the values of `body`. What a field had before is not known if it was not sent before.
    pub fn allow(&mut self, body: &Value) {
        for (name, value) in Known::fields(body) {
            if let Some(allowed) = self.allowed.get_mut(name) {
                allowed.push(value.clone());
            }
        }
    }

    /// Whether it may be deleted.
    pub fn may_be_deleted(&self) -> bool {
        self.allowed["deleted"].contains(&json!(true))
    }

    /// Whether it is not deleted for certain.
    pub fn is_live(&self) -> bool {
        self.allowed["deleted"] == [json!(false)]
    }

    /// Checks the response of a read.
    pub fn check(&self, shown: &Value) {
        for (name, allowed) in &self.allowed {
            let is_allowed = allowed.contains(&shown[name]);
            assert!(
                is_allowed,
                "{:?} {}: {name} is {}, not one of {allowed:?}",
                self.kind, self.id, shown[name]
            );
        }
    }
}
