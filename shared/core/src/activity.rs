//! The activity log: one entry per change, written in the change's own transaction.
//!
//! The entry itself lies in the log of its scope, by month; the item's own log has a pointer to it.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::clock::timestamp;
use crate::model::User;
use crate::store::keys::{self, ProjectId};
use crate::store::{Guard, Item, StoreError, Write};

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
    pub fn writes(&self, project: ProjectId, id: Uuid) -> Result<[Write; 2], StoreError> {
        let body = json!({
            "id": id,
            "user": {"first_name": self.user.first_name, "email": self.user.email},
            "activity": self.activity,
            "scope": self.scope,
            "item_id": self.item.to_string(),
            "created_at": timestamp(self.at),
            "detail": self.detail,
        });
        let entry = Item::new(keys::activity(project, self.scope, self.at, id), &body)?;
        let pointer = Item::empty(keys::activity_of(project, self.scope, self.item, self.at, id));
        Ok([Write::Put(entry, Guard::Absent), Write::Put(pointer, Guard::Absent)])
    }
}
