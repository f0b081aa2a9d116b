//! The record of an insight.

use chrono::{DateTime, Utc};
use pennon_core::model::User;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::placement::tiles::Tile;

/// A saved insight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Insight {
    /// Its id, unique in the installation.
    pub id: u64,
    /// Eight letters and digits, unique in the project, never changed.
    pub short_id: String,
    /// The name that its users gave it.
    pub name: Option<String>,
    /// A name that a client generated.
    pub derived_name: Option<String>,
    /// Its description.
    pub description: Option<String>,
    /// Legacy filters as sent.
    pub filters: Map<String, Value>,
    /// The query node as sent.
    pub query: Option<Value>,
    /// Its position in lists; unset is last.
    pub order: Option<i64>,
    /// Whether it is soft-deleted.
    pub deleted: bool,
    /// Whether it is a favourite.
    pub favorited: bool,
    /// Whether it was saved on purpose.
    pub saved: bool,
    /// Sorted, lower case.
    pub tags: Vec<String>,
    /// Its tiles on dashboards, in the order of their creation; removed ones too.
    #[serde(default)]
    pub tiles: Vec<Tile>,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// Who created it.
    pub created_by: User,
    /// When it was last written.
    pub updated_at: DateTime<Utc>,
    /// When its content last changed.
    pub last_modified_at: DateTime<Utc>,
    /// Who changed its content last.
    pub last_modified_by: User,
    /// The version of the record with which its summary row was last written. Writes of fields that no list needs leave the
    /// row as it is.
    #[serde(default)]
    pub row_version: u64,
}

/// Ids of eight digits are skipped: clients take eight characters for a short id.
const SKIPPED_FROM: u64 = 10_000_000;
const SKIPPED: u64 = 90_000_000;

/// The value the counter must have so that `id` is not assigned again.
pub fn counter_value_of_id(id: u64) -> u64 {
    if id < SKIPPED_FROM { id } else { id.saturating_sub(SKIPPED) }
}

/// The insight id for the counter value `count`.
pub fn id_of_count(count: u64) -> u64 {
    if count < SKIPPED_FROM { count } else { count.saturating_add(SKIPPED) }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::insight::InsightInput;

    pub(crate) fn user(id: u64) -> User {
        User {
            id,
            uuid: uuid::Uuid::from_u128(id.into()),
            distinct_id: format!("d{id}"),
            first_name: format!("User {id}"),
            last_name: String::new(),
            email: format!("user{id}@example.com"),
            is_email_verified: None,
            hedgehog_config: None,
            role_at_organization: None,
        }
    }

    pub(crate) fn instant(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    pub(crate) fn insight(id: u64, body: Value) -> Insight {
        let input = InsightInput::parse(body.as_object().unwrap()).unwrap();
        Insight::create(id, format!("short{id:03}"), &input, &user(1), instant("2024-01-01T00:00:00Z"))
    }

    #[test]
    fn ids_of_eight_digits_are_skipped() {
        for (count, id) in
            [(1, 1), (9_999_999, 9_999_999), (10_000_000, 100_000_000), (10_000_001, 100_000_001)]
        {
            assert_eq!(id_of_count(count), id);
        }
    }
}
