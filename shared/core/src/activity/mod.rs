//! The activity log: one entry per change, written in the transaction of the change.
//!
//! The entry is stored in the log of its scope, partitioned by month; the log of the item has a pointer to it; a counter has
//! the number of a scope's entries per day. Must stay true: the three are written together, so that the length of a log is
//! exact and a page far inside is found by adding up days; entries are in the order of their instants, even if the clock
//! goes back ([`WriteTimes`](crate::write_times::WriteTimes)).

mod page_ranges;
mod page_request;
mod reader;

pub use page_request::{LIMIT_DEFAULT, LIMIT_MAX};
pub use reader::{list_item_entries, list_scope_entries};

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::clock::timestamp;
use crate::model::User;
use crate::store::keys::{self, ProjectId};
use crate::store::{Item, Key, StoreError, Write, WriteCondition};

/// The scope that reading a log requires.
pub const READ: &str = "activity_log:read";

/// A change of an item by a user.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// The kind of item: `FeatureFlag`, `Insight`.
    pub scope: &'a str,
    /// The item's id.
    pub item: u64,
    /// The action: `created`, `updated`, `deleted`, `restored` ...
    pub activity: &'a str,
    /// The user who made the change.
    pub user: &'a User,
    /// The time of the change.
    pub at: DateTime<Utc>,
    /// The changed fields, in the format of the scope.
    pub detail: Value,
}

impl Entry<'_> {
    /// The writes that store the entry with this id.
    pub fn writes(&self, project: ProjectId, id: Uuid) -> Result<Vec<Write>, StoreError> {
        writes(project, &[(self, id)])
    }

    fn body(&self, id: Uuid) -> Value {
        json!({
            "id": id,
            "user": {"first_name": self.user.first_name, "email": self.user.email},
            "activity": self.activity,
            "scope": self.scope,
            "item_id": self.item.to_string(),
            "created_at": timestamp(self.at),
            "detail": self.detail,
        })
    }
}

/// The writes that store several entries with their ids in one transaction. A transaction may write each item only once, so
/// the entries of a day are counted together.
pub fn writes(project: ProjectId, entries: &[(&Entry<'_>, Uuid)]) -> Result<Vec<Write>, StoreError> {
    let mut days: BTreeMap<Key, i64> = BTreeMap::new();
    let mut writes = Vec::with_capacity(entries.len() * 2 + 1);
    for (entry, id) in entries {
        let at = keys::activity(project, entry.scope, entry.at, *id);
        writes.push(Write::Put(Item::new(at, &entry.body(*id))?, WriteCondition::Absent));
        let pointer = keys::activity_of(project, entry.scope, entry.item, entry.at, *id);
        writes.push(Write::Put(Item::empty(pointer), WriteCondition::Absent));
        *days.entry(keys::activity_day(project, entry.scope, entry.at)).or_default() += 1;
    }
    writes.extend(days.into_iter().map(|(day, count)| Write::Add(day, count)));
    Ok(writes)
}
