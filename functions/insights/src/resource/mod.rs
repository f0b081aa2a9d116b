//! What dashboards, cohorts and actions have in common: a record with a summary row, lists, and changes that are logged.
//!
//! Must stay true: a record, its summary row and its activity entry are written in one transaction, which asks that the
//! record is as it was read; a live record has a row and a deleted one has none, whoever wrote it.

pub(crate) mod body;
pub(crate) mod declared;
mod entry;
pub(crate) mod list;
mod row;
mod whole;

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use pennon_core::activity::{item_log, scope_log};
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::ids;
use pennon_core::model::User;
use pennon_core::store::keys::{self, Counter, Kind, ProjectId};
use pennon_core::store::{Guard, Item, Key, StoreError, Table, Write};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use row::Row;

use crate::Insights;
use crate::store::count;

/// What a record's path allows.
const ALLOWED: &str = "GET, HEAD, OPTIONS, PATCH, PUT";

/// A kind of records that is managed over HTTP and by workspace files alike.
pub trait Resource: Serialize + DeserializeOwned + Clone + Send + Sync {
    /// The records.
    const KIND: Kind;
    /// Their summary rows.
    const ROWS: Kind;
    /// What counts their numbers.
    const COUNTER: Counter;
    /// What the activity log calls them.
    const SCOPE: &'static str;
    /// What the log calls their type in the detail of an entry; none where it says nothing.
    const LOGGED_TYPE: Option<&'static str> = None;

    /// Its number.
    fn id(&self) -> u64;
    /// Its name, if it has one.
    fn name(&self) -> Option<&str>;
    /// Whether it is soft-deleted.
    fn is_deleted(&self) -> bool;
    /// Its summary.
    fn row(&self) -> Row;
    /// What the log compares, in its order.
    fn logged(&self) -> Vec<(&'static str, Value)>;
    /// The word of the log for a change of what was there before.
    fn activity(before: &Self, after: &Self) -> &'static str {
        match (before.is_deleted(), after.is_deleted()) {
            (false, true) => "deleted",
            (true, false) => "restored",
            _ => "updated",
        }
    }
    /// Names that it has to itself while it is there.
    fn names(&self, _project: ProjectId) -> Vec<Key> {
        Vec::new()
    }
    /// The writes that follow when a file puts `after` in its place, or nothing.
    fn replaced(
        &self,
        _after: Option<&Self>,
        _project: ProjectId,
        _now: DateTime<Utc>,
    ) -> Result<Vec<Write>, StoreError> {
        Ok(Vec::new())
    }
    /// What changes in a stored record of the kind when a workspace file declares other things of it.
    fn declare(_stored: &mut BTreeMap<String, Value>, _declared: &BTreeMap<String, Value>) {}
}

/// Where a record lies.
pub fn key<R: Resource>(project: ProjectId, id: u64) -> Key {
    keys::record(project, R::KIND, id)
}

/// A number for a new record.
pub async fn reserve<R: Resource>(records: &Table) -> ApiResult<u64> {
    Ok(count(records, R::COUNTER, 1).await?.start)
}

/// A change that was judged.
#[derive(Debug)]
pub struct Judged<'a, R> {
    /// Who changes it.
    pub access: &'a Access,
    /// When.
    pub now: DateTime<Utc>,
    /// What it was, and the item that was read; none for a new one.
    pub before: Option<(&'a R, &'a Item)>,
    /// What it is then.
    pub after: &'a R,
}

impl<R: Resource> Judged<'_, R> {
    /// Whether the log tells of it.
    pub fn is_logged(&self) -> bool {
        let before = self.before.map(|(before, _)| before);
        entry::of(before, self.after, self.access.caller.user(), self.now).is_some()
    }

    /// The transaction: record, summary row, activity entry.
    pub fn writes(&self) -> Result<Vec<Write>, StoreError> {
        let project = self.access.project.id;
        let mut writes = rows_of(project, self.before.map(|(_, item)| item), self.after)?;
        let before = self.before.map(|(before, _)| before);
        if let Some(entry) = entry::of(before, self.after, self.access.caller.user(), self.now) {
            writes.extend(entry.writes(project, ids::new_uuid())?);
        }
        Ok(writes)
    }
}

/// The record and its summary row. `before` is the item that was read; none for a new record.
pub fn rows_of<R: Resource>(
    project: ProjectId,
    before: Option<&Item>,
    after: &R,
) -> Result<Vec<Write>, StoreError> {
    let guard = before.map_or(Guard::Absent, |item| Guard::Version(item.version));
    let version = before.map_or(0, |item| item.version) + 1;
    let mut record = Item::new(key::<R>(project, after.id()), after)?.with_version(version);
    if let Some(item) = before {
        record = record.replacing(item);
    }
    Ok(vec![Write::Put(record, guard), row_of(project, after)?])
}

/// The summary row alone, or its removal.
pub fn row_of<R: Resource>(project: ProjectId, after: &R) -> Result<Write, StoreError> {
    let key = keys::record(project, R::ROWS, after.id());
    Ok(match after.is_deleted() {
        true => Write::Delete(key, Guard::None),
        false => Write::Put(Item::new(key, &after.row())?, Guard::None),
    })
}

/// The project of a request, and the record that its path names.
pub async fn find<R: Resource>(
    state: &Insights,
    call: &Call,
    scope: &'static str,
) -> ApiResult<(Access, Option<Item>)> {
    let number = call.id("id");
    let wanted = |project| number.map(|id| key::<R>(project, id)).into_iter().collect::<Vec<Key>>();
    let (access, found) = state.app.project_with(call, scope, wanted).await?;
    Ok((access, found.into_iter().next().flatten()))
}

/// The deletion that is none: 405 for whoever may write, whether or not there is such a record.
pub async fn destroy(state: &Insights, call: &Call, scope: &'static str) -> ApiResult<Response> {
    state.app.project(call, scope, |_| []).await?;
    Err(ApiError::method_not_allowed(call.method.as_str(), ALLOWED).without_body())
}

/// `GET P/{kind}/activity/`: the log of all records of a kind.
pub async fn all_activity<R: Resource>(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    scope_log(&state.app, &call, R::SCOPE).await
}

/// `GET P/{kind}/{id}/activity/`: the log of one; 404 without a body where there is none.
pub async fn activity<R: Resource>(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    item_log(&state.app, &call, R::SCOPE, key::<R>, |_| Ok(true)).await
}

/// Reads a record; 404 where there is none.
pub fn read<R: Resource>(item: Option<Item>) -> ApiResult<(R, Item)> {
    let item = item.ok_or_else(ApiError::not_found)?;
    Ok((item.body()?, item))
}

/// What the caller may do with something, in a word: only creation and membership tell.
pub fn access_level(creator: Option<&User>, access: &Access) -> &'static str {
    let own = creator.is_some_and(|user| user.id == access.caller.user().id);
    if own || access.level().is_admin() { "manager" } else { "editor" }
}
