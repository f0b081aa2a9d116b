//! The project settings that calculations depend on.

use chrono_tz::Tz;
use pennon_filters::dates::WeekStart;
use serde_json::Value;

use crate::definitions::Definitions;
use crate::scan::{ActorKind, Micros};

/// Project settings that a calculation depends on.
#[derive(Debug, Clone)]
pub struct ProjectContext {
    /// The project id as used in URL paths; links in results begin with it.
    pub project_id: String,
    /// Time zone of all dates.
    pub timezone: Tz,
    /// First day of a week.
    pub week_start: WeekStart,
    /// Filters that are added when a query sets `filter_test_accounts`.
    pub test_account_filters: Vec<Value>,
    /// Path cleaning filters, in the order in which they are applied when a query uses them.
    pub path_cleaning_filters: Vec<Value>,
    /// Time of the earliest event; read only if [`crate::Query::needs_earliest`] is true.
    pub earliest_event: Option<Micros>,
    /// Count distinct ids instead of persons.
    pub aggregate_by_distinct_id: bool,
    /// The actions and cohorts that the query references, see [`crate::Query::direct_references`].
    pub definitions: Definitions,
}

impl ProjectContext {
    /// The actors that a query counts: groups if a group type is given, else the project's setting.
    pub(crate) fn actor_kind(&self, group_type: Option<u8>) -> ActorKind {
        match group_type {
            Some(index) => ActorKind::Groups(index),
            None if self.aggregate_by_distinct_id => ActorKind::DistinctIds,
            None => ActorKind::Persons,
        }
    }
}
