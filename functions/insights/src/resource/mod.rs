//! The code that saved insights, dashboards, cohorts and actions share: records with summary rows, and logged writes.
//!
//! [`Resource`] is the trait of a kind, [`RecordWrite`] a validated write. [`ListedResource`] adds the lists and the workspace
//! files of dashboards, cohorts and actions. Insights have neither: a project may have twenty thousand, so their rows are
//! cached and verified by checksums, and a workspace file writes them over HTTP, where their queries are validated.
//!
//! Must stay true: a record, its summary row and its activity entry are written in one transaction, on the condition that the
//! record is unchanged since it was read; a record that is not deleted has a row and a deleted one has none, for all writers.

pub(crate) mod activity_entry;
pub(crate) mod body;
pub(crate) mod list;
mod row;
mod row_backfill;

use std::collections::BTreeMap;
use std::ops::Range;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use pennon_core::activity::{Entry, list_item_entries, list_scope_entries};
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::ids;
use pennon_core::model::User;
use pennon_core::store::keys::{self, Counter, ProjectId, RecordKind};
use pennon_core::store::{Item, Key, StoreError, Table, Write, WriteCondition};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use row::SummaryRow;

use crate::Insights;

/// A kind of record that is managed over HTTP.
pub trait Resource: Serialize + DeserializeOwned + Clone + Send + Sync {
    /// Kind of the records.
    const KIND: RecordKind;
    /// Counter of their ids.
    const COUNTER: Counter;
    /// Scope of their activity entries.
    const SCOPE: &'static str;
    /// `type` in the detail of an activity entry.
    const LOGGED_TYPE: Option<&'static str> = None;
    /// Whether writes of a record without a name are logged.
    const LOGS_UNNAMED: bool = true;
    /// The methods of a record's path.
    const METHODS: &'static str = "GET, HEAD, OPTIONS, PATCH, PUT";

    /// Its id.
    fn id(&self) -> u64;
    /// Its name, if it has one.
    fn name(&self) -> Option<&str>;
    /// Whether it is soft-deleted.
    fn is_deleted(&self) -> bool;
    /// Its short id, if the kind has one.
    fn short_id(&self) -> Option<&str> {
        None
    }
    /// The write of its summary row, or the deletion of that. `record` is the item of the record.
    fn row_write(&self, project: ProjectId, record: &Item) -> Result<Write, StoreError>;
    /// Stores in the record the version with which its row is written. Only verified rows need it.
    fn set_row_version(&mut self, _version: u64) {}
    /// Further writes of the transaction that replaces `before` by `after`: `before` is the record and the item that was read,
    /// `None` for a new record.
    fn linked_writes(
        _project: ProjectId,
        _before: Option<(&Self, &Item)>,
        _after: &Self,
    ) -> Result<Vec<Write>, StoreError> {
        Ok(Vec::new())
    }
    /// The fields that the activity log compares, in the order of the log.
    fn logged_fields(&self) -> Vec<(&'static str, Value)>;
    /// The activity of an update in the log.
    fn activity(before: &Self, after: &Self) -> &'static str {
        match (before.is_deleted(), after.is_deleted()) {
            (false, true) => "deleted",
            (true, false) => "restored",
            _ => "updated",
        }
    }
}

/// A kind of record whose summary rows are in one partition, and that workspace files declare.
pub trait ListedResource: Resource {
    /// Kind of the summary rows.
    const ROWS: RecordKind;

    /// Its summary row.
    fn row(&self) -> SummaryRow;
    /// Keys of the rows that make its name unique while it is not deleted.
    fn unique_names(&self, _project: ProjectId) -> Vec<Key> {
        Vec::new()
    }
    /// The key of its sharing configuration, if it can be shared.
    fn sharing_configuration(&self, _project: ProjectId) -> Option<Key> {
        None
    }
    /// Further writes when a workspace file replaces it by `after`, or removes it.
    fn replacement_writes(
        &self,
        _after: Option<&Self>,
        _project: ProjectId,
        _now: DateTime<Utc>,
    ) -> Result<Vec<Write>, StoreError> {
        Ok(Vec::new())
    }
    /// Adjusts a stored record before the fields that a workspace file declares are applied.
    fn declare(_stored: &mut BTreeMap<String, Value>, _declared: &BTreeMap<String, Value>) {}
}

/// The key of a record.
pub fn key<R: Resource>(project: ProjectId, id: u64) -> Key {
    keys::record(project, R::KIND, id)
}

/// The version of a record's item after a write. `before` is the item that was read.
pub fn next_version(before: Option<&Item>) -> u64 {
    before.map_or(0, |item| item.version) + 1
}

/// Reserves `count` ids of a counter. No request where `count` is 0.
pub async fn reserve_ids(records: &Table, counter: Counter, count: usize) -> ApiResult<Range<u64>> {
    if count == 0 {
        return Ok(0..0);
    }
    let wrong = |error: std::num::TryFromIntError| ApiError::internal(&error);
    let last = records.increment(&keys::counter(counter), i64::try_from(count).map_err(wrong)?).await?;
    let end = u64::try_from(last).map_err(wrong)?.saturating_add(1);
    Ok(end.saturating_sub(count as u64)..end)
}

/// Reserves an id for a new record.
pub async fn reserve_id<R: Resource>(records: &Table) -> ApiResult<u64> {
    Ok(reserve_ids(records, R::COUNTER, 1).await?.start)
}

/// A validated write of a record, with its activity entry.
#[derive(Debug)]
pub struct RecordWrite<'a, R> {
    /// The user and the project.
    pub access: &'a Access,
    /// The instant.
    pub now: DateTime<Utc>,
    /// The record before it, and the item that was read; `None` for a new one.
    pub before: Option<(&'a R, &'a Item)>,
    /// The record after it.
    pub after: &'a R,
    /// Changes for the activity log besides those of the fields.
    pub linked_changes: Vec<Value>,
}

impl<R: Resource> RecordWrite<'_, R> {
    /// Whether it has an activity entry.
    pub fn is_logged(&self) -> bool {
        self.activity_entry().is_some()
    }

    /// The transaction: record, summary row, linked rows, activity entry. It fails if the record was changed since it was read.
    pub fn writes(&self) -> Result<Vec<Write>, StoreError> {
        let project = self.access.project.id;
        let mut writes = record_writes(project, self.before.map(|(_, item)| item), self.after)?;
        writes.extend(R::linked_writes(project, self.before, self.after)?);
        if let Some(entry) = self.activity_entry() {
            writes.extend(entry.writes(project, ids::new_uuid())?);
        }
        Ok(writes)
    }

    fn activity_entry(&self) -> Option<Entry<'_>> {
        let (before, changes) = (self.before.map(|(before, _)| before), self.linked_changes.clone());
        activity_entry::of_write(before, self.after, changes, self.access.caller.user(), self.now)
    }
}

/// The writes of the record and its summary row. `before` is the item that was read; `None` for a new record.
pub fn record_writes<R: Resource>(
    project: ProjectId,
    before: Option<&Item>,
    after: &R,
) -> Result<Vec<Write>, StoreError> {
    let guard = before.map_or(WriteCondition::Absent, |item| WriteCondition::Version(item.version));
    let version = next_version(before);
    let mut after = after.clone();
    after.set_row_version(version);
    let mut record = Item::new(key::<R>(project, after.id()), &after)?.with_version(version);
    if let Some(item) = before {
        record = record.replacing(item);
    }
    let row = after.row_write(project, &record)?;
    Ok(vec![Write::Put(record, guard), row])
}

/// The write of the summary row, or its deletion.
pub fn row_of<R: ListedResource>(project: ProjectId, after: &R) -> Result<Write, StoreError> {
    let key = keys::record(project, R::ROWS, after.id());
    Ok(match after.is_deleted() {
        true => Write::Delete(key, WriteCondition::None),
        false => Write::Put(Item::new(key, &after.row())?, WriteCondition::None),
    })
}

/// The writes that claim names for records, even if other records have them.
pub fn claim_names(names: BTreeMap<Key, u64>) -> impl Iterator<Item = Write> {
    names.into_iter().map(|(name, id)| Write::Put(Item::empty(name).with_version(id), WriteCondition::None))
}

/// The project of a request, and the record with the id of the path.
pub async fn get_record<R: Resource>(
    state: &Insights,
    call: &Call,
    scope: &'static str,
) -> ApiResult<(Access, Option<Item>)> {
    let id = call.id("id");
    let keys = |project| id.map(|id| key::<R>(project, id)).into_iter().collect::<Vec<Key>>();
    let (access, items) = state.app.authorize_project_with(call, scope, keys).await?;
    Ok((access, items.into_iter().next().flatten()))
}

/// `DELETE`: 405 for a caller with write access, whether or not the record exists.
pub async fn destroy<R: Resource>(state: &Insights, call: &Call, scope: &'static str) -> ApiResult<Response> {
    state.app.project(call, scope, |_| []).await?;
    Err(ApiError::method_not_allowed(call.method.as_str(), R::METHODS).without_body())
}

/// `GET P/{kind}/activity/`: the log of all records of a kind.
pub async fn list_all_activity<R: Resource>(
    State(state): State<Insights>,
    call: Call,
) -> ApiResult<Response> {
    list_scope_entries(&state.app, &call, R::SCOPE).await
}

/// `GET P/{kind}/{id}/activity/`: the log of one; 404 without a body where there is none.
pub async fn list_activity<R: Resource>(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    list_item_entries(&state.app, &call, R::SCOPE, key::<R>, |_| Ok(true)).await
}

/// Decodes a record; 404 where there is none.
pub fn require_record<R: Resource>(item: Option<Item>) -> ApiResult<(R, Item)> {
    let item = item.ok_or_else(ApiError::not_found)?;
    Ok((item.body()?, item))
}

/// The `user_access_level` of the caller. It depends on the creator and the membership only.
pub fn access_level(creator: Option<&User>, access: &Access) -> &'static str {
    let own = creator.is_some_and(|user| user.id == access.caller.user().id);
    if own || access.level().is_admin() { "manager" } else { "editor" }
}
