//! The summary row: what lists filter and order by, whatever the kind.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// What a list knows of a record before it reads it. Ten thousand of them are read for one list, so what most have in
/// common is left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its number.
    pub id: u64,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Sorted, lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Number of the user who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<u64>,
    /// Dashboards: shown before others.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pinned: bool,
    /// Cohorts: a list of members.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_static: bool,
    /// Cohorts: criteria on events.
    #[serde(default, skip_serializing_if = "is_false")]
    pub behavioral: bool,
    /// Cohorts: other cohorts that the criteria name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cohorts: Vec<u64>,
    /// Dashboards: how it came about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_mode: Option<String>,
}

impl Row {
    /// The row of something with this number, and nothing else to say.
    pub fn new(id: u64, created_at: DateTime<Utc>) -> Row {
        Row {
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
    pub fn mentions(&self, search: &str) -> bool {
        let mut texts = self.name.iter().chain(&self.tags);
        texts.any(|text| text.to_lowercase().contains(search))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}
