//! The summary of a flag that lists, dependency checks and look-ups work on, so that they need not read full records.
//!
//! Must stay true: a row is a function of its flag and is written with it; whatever a list filters, orders or searches
//! by is in it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{
    Flag, filter_view as view, references,
    status::{self, Reason, Status, Usage},
    timestamp,
};

/// The summary of a flag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlagRow {
    /// As in the flag.
    pub id: i64,
    /// As in the flag.
    pub key: String,
    /// As in the flag.
    pub name: String,
    /// As in the flag; lists leave deleted flags out.
    pub deleted: bool,
    /// As in the flag.
    pub active: bool,
    /// As in the flag.
    #[serde(with = "timestamp")]
    pub created_at: DateTime<Utc>,
    /// As in the flag.
    #[serde(with = "timestamp")]
    pub updated_at: DateTime<Utc>,
    /// As in the flag.
    pub version: i64,
    /// The id of its creator.
    pub created_by_id: Option<i64>,
    /// As in the flag.
    pub tags: Vec<String>,
    /// As in the flag.
    pub evaluation_runtime: Option<String>,
    /// As in the flag, null being false.
    pub is_remote_configuration: bool,
    /// The number of its variants.
    pub variants: usize,
    /// As in the flag.
    #[serde(with = "timestamp::nullable")]
    pub last_called_at: Option<DateTime<Utc>>,
    /// Whether everybody gets the same value.
    pub fully_rolled_out: bool,
    /// Whether its filters are just an empty list of conditions, which the list of stale flags leaves out.
    pub only_empty_groups: bool,
    /// The ids of the flags that it depends on.
    pub depends_on: Vec<i64>,
    /// The ids of the cohorts that it names.
    pub cohort_ids: Vec<i64>,
}

impl From<&Flag> for FlagRow {
    fn from(flag: &Flag) -> Self {
        let only_groups = flag.filters.len() == 1 && flag.filters.get("groups").is_some();
        Self {
            id: flag.id,
            key: flag.key.clone(),
            name: flag.name.clone(),
            deleted: flag.deleted,
            active: flag.active,
            created_at: flag.created_at,
            updated_at: flag.updated_at,
            version: flag.version,
            created_by_id: flag.created_by.as_ref().map(|user| user.id),
            tags: flag.tags.clone(),
            evaluation_runtime: flag.evaluation_runtime.clone(),
            is_remote_configuration: flag.is_remote_configuration.unwrap_or(false),
            variants: view::variants(&flag.filters).len(),
            last_called_at: flag.last_called_at,
            fully_rolled_out: status::full_rollout(&flag.filters).is_some(),
            only_empty_groups: only_groups && view::groups(&flag.filters).is_empty(),
            depends_on: references::flag_ids(&flag.filters),
            cohort_ids: flag.cohort_ids(),
        }
    }
}

impl FlagRow {
    /// The status of the flag at an instant.
    pub fn status(&self, now: DateTime<Utc>) -> Status {
        let usage = Usage {
            deleted: self.deleted,
            active: self.active,
            created_at: self.created_at,
            last_called_at: self.last_called_at,
            fully_rolled_out: self.fully_rolled_out,
        };
        Reason::of(usage, now).status()
    }

    /// Whether the list of stale flags shows the flag.
    pub fn is_listed_as_stale(&self, now: DateTime<Utc>) -> bool {
        self.status(now) == Status::Stale && !self.only_empty_groups
    }
}
