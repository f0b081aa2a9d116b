//! The summary row of a record of any kind: the fields that lists filter and sort by.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// The fields of a record that a list needs before it reads the record. One list may read 10,000 rows, so default values are
/// not stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SummaryRow {
    /// Its id.
    pub id: u64,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Sorted, lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// Id of the user who created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<u64>,
    /// Dashboards: listed first.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// Cohorts: defined by a list of members.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_static: bool,
    /// Cohorts: has criteria on events.
    #[serde(default, skip_serializing_if = "is_false")]
    pub behavioral: bool,
    /// Cohorts: other cohorts that the criteria refer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cohorts: Vec<u64>,
    /// Dashboards: how it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_mode: Option<String>,
}

impl SummaryRow {
    /// A row with default values.
    pub fn new(id: u64, created_at: DateTime<Utc>) -> SummaryRow {
        SummaryRow {
            id,
            name: None,
            tags: Vec::new(),
            created_at,
            created_by: None,
            pinned: false,
            is_static: false,
            behavioral: false,
            cohorts: Vec::new(),
            creation_mode: None,
        }
    }

    /// Whether the name or a tag contains `search`, which is in lower case.
    pub fn matches_search(&self, search: &str) -> bool {
        let mut texts = self.name.iter().chain(&self.tags);
        texts.any(|text| text.to_lowercase().contains(search))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}
