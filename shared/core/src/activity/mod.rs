//! The activity log: one entry per change, written in the change's own transaction.
//!
//! The entry itself lies in the log of its scope, by month; the item's own log has a pointer to it; a counter says how
//! many entries a scope has on a day. Must stay true: the three are written together, so that what a log says of its
//! length is so, and a page far inside is found by counting days; entries come in the order of their instants, whatever
//! the clock does ([`WriteTimes`]).

mod log;
mod page;
mod places;
mod write_times;

pub use log::{item_log, scope_log};
pub use page::{LIMIT_DEFAULT, LIMIT_MAX};
pub(crate) use write_times::logs_of;
pub use write_times::{WriteTimes, write_time};

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::clock::timestamp;
use crate::model::User;
use crate::store::keys::{self, ProjectId};
use crate::store::{Guard, Item, Key, StoreError, Write};

/// The scope of keys that reading a log asks for.
pub const READ: &str = "activity_log:read";

/// What somebody did to an item.
#[derive(Debug, Clone)]
pub struct Entry<'a> {
    /// What kind of item, in the log's word: `FeatureFlag`, `Insight`.
    pub scope: &'a str,
    /// Its number.
    pub item: u64,
    /// What was done: `created`, `updated`, `deleted`, `restored` ...
    pub activity: &'a str,
    /// Who did it.
    pub user: &'a User,
    /// When.
    pub at: DateTime<Utc>,
    /// What changed, in the form of the scope.
    pub detail: Value,
}

impl Entry<'_> {
    /// The writes that store the entry under the id `id`.
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

/// The writes that store several entries, each under its id, in one transaction: an item of the store may be touched
/// once only in it, so that days are counted together.
pub fn writes(project: ProjectId, entries: &[(&Entry<'_>, Uuid)]) -> Result<Vec<Write>, StoreError> {
    let mut days: BTreeMap<Key, i64> = BTreeMap::new();
    let mut writes = Vec::with_capacity(entries.len() * 2 + 1);
    for (entry, id) in entries {
        let at = keys::activity(project, entry.scope, entry.at, *id);
        writes.push(Write::Put(Item::new(at, &entry.body(*id))?, Guard::Absent));
        let pointer = keys::activity_of(project, entry.scope, entry.item, entry.at, *id);
        writes.push(Write::Put(Item::empty(pointer), Guard::Absent));
        *days.entry(keys::activity_day(project, entry.scope, entry.at)).or_default() += 1;
    }
    writes.extend(days.into_iter().map(|(day, count)| Write::Add(day, count)));
    Ok(writes)
}
