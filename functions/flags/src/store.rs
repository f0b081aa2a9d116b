//! Flags in the table: which rows a flag has, and the transactions that change them.
//!
//! Must stay true: a flag's record, its summary row, the claim on its key and its activity entry change together; a key
//! has one `LIVE` row at most, so two live flags of a project never share one; a writer names the item version it read,
//! and where other flags bear on its judgement, the project's version too.

use chrono::{DateTime, Utc};
use pennon_core::activity::Entry;
use pennon_core::ids;
use pennon_core::model::User;
use pennon_core::store::keys::{self, Kind, ProjectId};
use pennon_core::store::{Guard, Item, Key, Query, StoreError, Table, Write};
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

/// The version of a project's flags: each write of one raises it. `item` is its row, as read before anything that a
/// judgement rests on.
pub fn version_in(item: Option<&Item>) -> i64 {
    item.map_or(0, |item| item.count)
}

/// Raises the project's version; with `seen`, only if nothing was written since it was read.
fn raise_version(project: ProjectId, seen: Option<i64>) -> Write {
    let row = keys::project_version(project);
    match seen {
        Some(seen) => Write::AddAt(row, 1, seen),
        None => Write::Add(row, 1),
    }
}

/// At most `limit` of the summary rows, and whether these are all.
pub async fn first_rows(
    records: &Table,
    project: ProjectId,
    limit: usize,
) -> Result<Option<Vec<FlagRow>>, StoreError> {
    let query = Query::partition(keys::records_pk(project, Kind::FlagRow)).limit(limit + 1);
    let items = records.query(query).await?;
    if items.len() > limit {
        return Ok(None);
    }
    items.iter().map(Item::body).collect::<Result<_, _>>().map(Some)
}

/// The summary rows of all flags of a project that are not deleted.
pub async fn rows(records: &Table, project: ProjectId) -> Result<Vec<FlagRow>, StoreError> {
    let items = records.query(Query::partition(keys::records_pk(project, Kind::FlagRow))).await?;
    items.iter().map(Item::body).collect()
}

/// Who has a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holders {
    /// Whether a live flag has it.
    pub live: bool,
    /// The deleted flags that have it.
    pub deleted: Vec<u64>,
}

/// Who has `key` in `project`.
pub async fn holders(records: &Table, project: ProjectId, key: &str) -> Result<Holders, StoreError> {
    let prefix = keys::flag_key_prefix(key);
    let query = Query::partition(keys::flag_keys_pk(project)).prefix(prefix.clone());
    let mut holders = Holders::default();
    for item in records.query(query).await? {
        let state = item.key.sk.strip_prefix(&prefix).unwrap_or_default();
        match state.strip_prefix(keys::FLAG_KEY_DELETED) {
            Some(id) => holders.deleted.extend(id.parse::<u64>().ok()),
            None => holders.live = true,
        }
    }
    Ok(holders)
}

/// What a write leaves behind.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was written.
    Done,
    /// Somebody was faster: read again and judge again.
    Lost,
}

/// Deleted flags that a create removes in its own transaction, which takes a hundred writes.
const REPLACED_AT_ONCE: usize = 40;

/// Stores a new flag; the deleted flags `replaced`, which had its key, are gone for good. `seen` is the project's
/// version that the judgement of the flag rests on, if it rests on other flags.
pub async fn create(
    records: &Table,
    project: ProjectId,
    flag: &Flag,
    replaced: &[u64],
    user: &User,
    seen: Option<i64>,
) -> Result<Outcome, StoreError> {
    let (now, before) = replaced.split_at(replaced.len().min(REPLACED_AT_ONCE));
    for some in before.chunks(REPLACED_AT_ONCE) {
        if send(records, removals(project, &flag.key, some).collect()).await? == Outcome::Lost {
            return Ok(Outcome::Lost);
        }
    }
    let id = number(flag.id);
    let mut writes = vec![
        Write::Put(Item::new(flag_at(project, id), flag)?.with_version(1), Guard::Absent),
        Write::Put(Item::empty(keys::flag_key_live(project, &flag.key)), Guard::Absent),
        Write::Put(Item::new(keys::record(project, Kind::FlagRow, id), &FlagRow::from(flag))?, Guard::Absent),
        raise_version(project, seen),
    ];
    writes.extend(activity(project, None, flag, user, flag.updated_at)?);
    writes.extend(removals(project, &flag.key, now));
    send(records, writes).await
}

/// The writes that remove deleted flags which had `key`.
fn removals<'a>(project: ProjectId, key: &'a str, ids: &'a [u64]) -> impl Iterator<Item = Write> + 'a {
    ids.iter().flat_map(move |id| {
        let claim = Write::Delete(keys::flag_key_deleted(project, key, *id), Guard::Present);
        [claim, Write::Delete(flag_at(project, *id), Guard::None)]
    })
}

/// Stores `after` over `before`. `seen` is as for [`create`].
pub async fn update(
    records: &Table,
    project: ProjectId,
    before: &Stored,
    after: &Flag,
    user: &User,
    seen: Option<i64>,
) -> Result<Outcome, StoreError> {
    let id = number(after.id);
    let record = Item::new(flag_at(project, id), after)?.with_version(before.version + 1);
    let row = keys::record(project, Kind::FlagRow, id);
    let row = if after.deleted {
        Write::Delete(row, Guard::None)
    } else {
        Write::Put(Item::new(row, &FlagRow::from(after))?, Guard::None)
    };
    let mut writes =
        vec![Write::Put(record, Guard::Version(before.version)), row, raise_version(project, seen)];
    let (old, new) = (claim(project, &before.flag), claim(project, after));
    if old != new {
        writes.push(Write::Delete(old, Guard::Present));
        writes.push(Write::Put(Item::empty(new), Guard::Absent));
    }
    writes.extend(activity(project, Some(&before.flag), after, user, after.updated_at)?);
    send(records, writes).await
}

/// The row by which a flag holds its key.
fn claim(project: ProjectId, flag: &Flag) -> Key {
    if flag.deleted {
        keys::flag_key_deleted(project, &flag.key, number(flag.id))
    } else {
        keys::flag_key_live(project, &flag.key)
    }
}

fn activity(
    project: ProjectId,
    before: Option<&Flag>,
    after: &Flag,
    user: &User,
    at: DateTime<Utc>,
) -> Result<[Write; 2], StoreError> {
    let changes = before.map_or_else(Vec::new, |before| changes::between(before, after));
    let detail =
        json!({"changes": changes, "trigger": null, "type": null, "name": after.key, "short_id": null});
    let kind = changes::kind(before, after);
    let entry = Entry { scope: SCOPE, item: number(after.id), activity: kind.as_str(), user, at, detail };
    entry.writes(project, ids::new_uuid())
}

async fn send(records: &Table, writes: Vec<Write>) -> Result<Outcome, StoreError> {
    match records.transact(writes).await {
        Ok(()) => Ok(Outcome::Done),
        Err(StoreError::Condition { .. }) => Ok(Outcome::Lost),
        Err(other) => Err(other),
    }
}

/// A flag's number as the table's keys have it. Numbers come from a counter that starts at one.
pub fn number(id: i64) -> u64 {
    id.unsigned_abs()
}
