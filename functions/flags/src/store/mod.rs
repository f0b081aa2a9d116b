//! Flags in the table: which rows a flag has, and the transactions that change them.
//!
//! Must stay true: a flag's record, its summary row, the claim on its key, its activity entry and the project's version
//! change together; a key has one `LIVE` row at most, so two live flags of a project never share one; a writer names the
//! item version it read, and where other flags bear on its judgement, the project's version too.

mod dependents;
mod memory;
mod names;
mod room;
mod rows;
mod shown;

pub use dependents::{dependents, first_dependents};
pub use memory::{ByteLimitedCache, Memory};
pub use names::names;
pub use room::{Room, added, of_cohorts};
pub use rows::{
    Early, RECORDS_KIB_MAX, Rows, Version, early, flags_of, kib, load, proven, read as read_row, record,
    remembered,
};
pub use shown::{Shown, prepared, shown};

use chrono::{DateTime, Utc};
use pennon_core::activity::Entry;
use pennon_core::ids;
use pennon_core::model::User;
use pennon_core::store::keys::{self, Kind, ProjectId};
use pennon_core::store::{
    Guard, Item, Key, Precondition, RowChecksums, StoreError, Table, VersionBump, Write,
};
use pennon_engine::flag::{Flag, FlagRow, changes};
use serde_json::json;

/// The activity log's word for flags.
pub const SCOPE: &str = "FeatureFlag";

/// A flag as read, with the version that a writer has to name.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The flag.
    pub flag: Flag,
    /// The version of its item.
    pub version: u64,
}

impl Stored {
    /// The flag in `item`.
    pub fn read(item: &Item) -> Result<Stored, StoreError> {
        Ok(Stored { flag: item.body()?, version: item.version })
    }
}

/// Where the record of flag `id` lies.
pub fn flag_at(project: ProjectId, id: u64) -> Key {
    keys::record(project, Kind::Flag, id)
}

/// What a write leaves behind.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was written.
    Done,
    /// Somebody was faster: read again and judge again.
    Lost,
    /// The project's version was not as demanded: somebody was faster, or the feed has no room by what is known of it.
    Version,
}

/// What other records a judgement rests on: what has to be true of them when the flag is written.
#[derive(Debug, Default)]
pub struct Rests {
    /// What of the project's version has to be as it was seen.
    pub when: Precondition,
    /// Conditions on single rows.
    pub conditions: Vec<Write>,
    /// What the flag takes of the feed's room.
    pub room: Room,
}

/// Stores a new flag and what is written `beside` it, which is at most twenty writes. Deleted flags that had its key stay
/// as they are.
pub async fn create(
    records: &Table,
    project: ProjectId,
    flag: &Flag,
    user: &User,
    rests: Rests,
    beside: Vec<Write>,
) -> Result<Outcome, StoreError> {
    let mut writes = change(project, None, flag, rests.when, rests.room)?;
    writes.extend(rests.conditions);
    writes.extend(activity(project, None, flag, user, flag.updated_at)?);
    writes.extend(beside);
    send_change(records, writes).await
}

/// The writes that put `after` in the place of `before`: record, summary row, what it depends on, claim on its key, and
/// the project's version. The record is the first, the version the second. They leave no activity entry.
pub fn change(
    project: ProjectId,
    before: Option<&Stored>,
    after: &Flag,
    when: Precondition,
    room: Room,
) -> Result<Vec<Write>, StoreError> {
    let id = number(after.id);
    let version = before.map_or(0, |before| before.version) + 1;
    let guard = before.map_or(Guard::Absent, |before| Guard::Version(before.version));
    let record = Item::new(flag_at(project, id), after)?.with_version(version);
    let old = before.filter(|old| !old.flag.deleted).map(|old| FlagRow::from(&old.flag).at(old.version));
    let new = (!after.deleted).then(|| FlagRow::from(after).at(version).sized(record.text.len()));
    let sum = |row: Option<&FlagRow>| row.map_or(0, FlagRow::stamp);
    let (old_edge, new_edge) = (edge(old.as_ref()), edge(new.as_ref()));
    let by = RowChecksums {
        rows: sum(new.as_ref()) - sum(old.as_ref()),
        edges: sum(new_edge.as_ref()) - sum(old_edge.as_ref()),
        last: after.id,
        used: 0,
    };
    let mut raise = VersionBump { by, when, used: None };
    room.take(&mut raise, before.map(|before| &before.flag), after, record.text.len());
    let version = Write::BumpVersion(keys::project_version(project), raise);
    let mut writes = vec![Write::Put(record, guard), version];
    writes.extend(in_place_of(keys::flag_row(project, id), old.as_ref(), new.as_ref())?);
    writes.extend(in_place_of(keys::dependent(project, id), old_edge.as_ref(), new_edge.as_ref())?);
    let (had, has) = (before.and_then(|before| claim(project, &before.flag)), claim(project, after));
    if had != has {
        writes.extend(had.map(|had| Write::Delete(had, Guard::Present)));
        let taken = has.map(|has| Item { count: after.id, ..Item::empty(has) });
        writes.extend(taken.map(|row| Write::Put(row, Guard::Absent)));
    }
    Ok(writes)
}

/// The row of a flag that depends on others.
fn edge(row: Option<&FlagRow>) -> Option<FlagRow> {
    row.filter(|row| !row.depends_on.is_empty()).map(FlagRow::of_dependent)
}

/// The write that makes `new` of what was `old` at `key`; none when neither is there.
fn in_place_of(key: Key, old: Option<&FlagRow>, new: Option<&FlagRow>) -> Result<Option<Write>, StoreError> {
    Ok(match (old, new) {
        (_, Some(row)) => Some(Write::Put(Item::new(key, row)?.with_version(row.item_version), Guard::None)),
        (Some(_), None) => Some(Write::Delete(key, Guard::None)),
        (None, None) => None,
    })
}

/// Stores `after` over `before`. `beside` is as for [`create`].
pub async fn update(
    records: &Table,
    project: ProjectId,
    before: &Stored,
    after: &Flag,
    user: &User,
    rests: Rests,
    beside: Vec<Write>,
) -> Result<Outcome, StoreError> {
    let mut writes = change(project, Some(before), after, rests.when, rests.room)?;
    writes.extend(rests.conditions);
    writes.extend(activity(project, Some(&before.flag), after, user, after.updated_at)?);
    writes.extend(beside);
    send_change(records, writes).await
}

/// Sends what begins with the writes of [`change`].
async fn send_change(records: &Table, writes: Vec<Write>) -> Result<Outcome, StoreError> {
    match records.transact(writes).await {
        Err(StoreError::Condition { index: 1 }) => Ok(Outcome::Version),
        other => outcome(other),
    }
}

/// The row by which a flag holds its key; a deleted flag holds none.
fn claim(project: ProjectId, flag: &Flag) -> Option<Key> {
    (!flag.deleted).then(|| keys::flag_key_live(project, &flag.key))
}

fn activity(
    project: ProjectId,
    before: Option<&Flag>,
    after: &Flag,
    user: &User,
    at: DateTime<Utc>,
) -> Result<Vec<Write>, StoreError> {
    let changes = before.map_or_else(Vec::new, |before| changes::between(before, after));
    let detail =
        json!({"changes": changes, "trigger": null, "type": null, "name": after.key, "short_id": null});
    let kind = changes::kind(before, after);
    let entry = Entry { scope: SCOPE, item: number(after.id), activity: kind.as_str(), user, at, detail };
    entry.writes(project, ids::new_uuid())
}

/// Sends the writes of one change.
pub async fn send(records: &Table, writes: Vec<Write>) -> Result<Outcome, StoreError> {
    outcome(records.transact(writes).await)
}

fn outcome(sent: Result<(), StoreError>) -> Result<Outcome, StoreError> {
    match sent {
        Ok(()) => Ok(Outcome::Done),
        Err(StoreError::Condition { .. }) => Ok(Outcome::Lost),
        Err(other) => Err(other),
    }
}

/// A flag's number as the table's keys have it. Numbers come from a counter that starts at one.
pub fn number(id: i64) -> u64 {
    id.unsigned_abs()
}
