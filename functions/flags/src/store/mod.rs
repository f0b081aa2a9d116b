//! Flags in DynamoDB: the items of a flag and the transactions that change them.
//!
//! Must stay true: a flag's record, its summary row, the claim on its key, its activity entry and the project's version
//! change in one transaction; a key has at most one `LIVE` row, so two live flags of a project never share a key; every
//! write checks the item version that it read, and the project's version too when the validation depends on other flags
//! (optimistic concurrency).

mod cache;
mod cohort_names;
mod dependents;
mod feed_size;
mod flag_templates;
mod referenced_records;
mod rows;
mod update_records;
mod write_reads;

pub use cache::{ByteLimitedCache, FlagCache};
pub use cohort_names::{fetch_names_of_written, load_cohort_names};
pub use dependents::prefetch_dependents;
pub use feed_size::{FeedGrowth, max_growth};
pub use flag_templates::{ListedFlag, flag_template, load_templates};
pub use referenced_records::{ResolvedReferences, resolve_references};
pub use rows::{
    FlagRows, PrefetchedRows, ProjectVersion, RECORDS_KIB_MAX, cached_rows, decode_flag, decode_row,
    load_flags, load_rows, load_verified_rows, prefetch_rows, total_kib,
};
pub use update_records::resolve_update_records;
pub use write_reads::{LinkedInputs, WriteReads};

use chrono::{DateTime, Utc};
use pennon_core::activity::Entry;
use pennon_core::ids;
use pennon_core::model::User;
use pennon_core::store::keys::{self, ProjectId, RecordKind};
use pennon_core::store::{
    Item, Key, Precondition, RowChecksums, StoreError, Table, VersionBump, Write, WriteCondition,
};
use pennon_flag_rules::flag::changes;
use pennon_flag_rules::{Flag, FlagRow};
use serde_json::json;

/// The scope of flags in the activity log.
pub const SCOPE: &str = "FeatureFlag";

/// A flag with the item version for optimistic concurrency.
#[derive(Debug, Clone)]
pub struct StoredFlag {
    /// The flag.
    pub flag: Flag,
    /// The version of its item.
    pub version: u64,
}

impl StoredFlag {
    /// Decodes the flag in `item`.
    pub fn from_item(item: &Item) -> Result<StoredFlag, StoreError> {
        Ok(StoredFlag { flag: item.body()?, version: item.version })
    }
}

/// Table key of the record of flag `id`.
pub fn flag_record_key(project: ProjectId, id: u64) -> Key {
    keys::record(project, RecordKind::Flag, id)
}

/// Result of a conditional write.
#[derive(Debug, PartialEq, Eq)]
pub enum FlagWriteOutcome {
    /// The write was committed.
    Written,
    /// A condition failed because of a concurrent write: re-read, re-validate and retry.
    Conflict,
    /// The condition on the project's version failed: a concurrent write, or the recorded feed size is too large for
    /// the flag. Retry with a measured feed size.
    ProjectVersionConflict,
}

/// The conditions on other records that the validation of a write depends on.
#[derive(Debug, Default)]
pub struct FlagPreconditions {
    /// Conditions on the project's version.
    pub version: Precondition,
    /// Conditions on single items.
    pub checks: Vec<Write>,
    /// Growth of the definitions feed.
    pub feed_growth: FeedGrowth,
}

/// A validated write of a flag.
#[derive(Debug)]
pub struct FlagWrite<'a> {
    /// The stored flag that is replaced; `None` on create. Deleted flags that had the same key are not changed.
    pub before: Option<&'a StoredFlag>,
    /// The flag to store.
    pub after: &'a Flag,
    /// The user who writes it.
    pub user: &'a User,
    /// The conditions on other records.
    pub preconditions: FlagPreconditions,
    /// At most 20 writes of other records.
    pub extra_writes: Vec<Write>,
}

/// Commits a write, with its activity entry, if no condition is violated.
pub async fn write(
    records: &Table,
    project: ProjectId,
    write: FlagWrite<'_>,
) -> Result<FlagWriteOutcome, StoreError> {
    let FlagWrite { before, after, user, preconditions, extra_writes } = write;
    let mut writes = change(project, before, after, preconditions.version, preconditions.feed_growth)?;
    writes.extend(preconditions.checks);
    let before = before.map(|before| &before.flag);
    writes.extend(activity_writes(project, before, after, user, after.updated_at)?);
    writes.extend(extra_writes);
    match records.transact(writes).await {
        Err(StoreError::Condition { index: 1 }) => Ok(FlagWriteOutcome::ProjectVersionConflict),
        other => write_outcome(other),
    }
}

/// The writes that replace `before` with `after`: record, summary row, dependency row, claim on the key, and the
/// project's version. The record is the first write and the version the second. There is no activity entry.
pub fn change(
    project: ProjectId,
    before: Option<&StoredFlag>,
    after: &Flag,
    when: Precondition,
    feed_growth: FeedGrowth,
) -> Result<Vec<Write>, StoreError> {
    let id = record_id(after.id);
    let version = before.map_or(0, |before| before.version) + 1;
    let guard = before.map_or(WriteCondition::Absent, |before| WriteCondition::Version(before.version));
    let record = Item::new(flag_record_key(project, id), after)?.with_version(version);
    let old =
        before.filter(|old| !old.flag.deleted).map(|old| FlagRow::from(&old.flag).with_version(old.version));
    let new =
        (!after.deleted).then(|| FlagRow::from(after).with_version(version).with_size(record.text.len()));
    let checksum = |row: Option<&FlagRow>| row.map_or(0, FlagRow::checksum);
    let (old_dependency, new_dependency) = (dependency_row(old.as_ref()), dependency_row(new.as_ref()));
    let by = RowChecksums {
        rows: checksum(new.as_ref()) - checksum(old.as_ref()),
        edges: checksum(new_dependency.as_ref()) - checksum(old_dependency.as_ref()),
        last: after.id,
        used: 0,
    };
    let mut raise = VersionBump { by, when, used: None };
    feed_growth.apply_to(&mut raise, before.map(|before| &before.flag), after, record.text.len());
    let version = Write::BumpVersion(keys::project_version(project), raise);
    let mut writes = vec![Write::Put(record, guard), version];
    writes.extend(row_write(keys::flag_row(project, id), old.as_ref(), new.as_ref())?);
    writes.extend(row_write(keys::dependent(project, id), old_dependency.as_ref(), new_dependency.as_ref())?);
    let (old_claim, new_claim) =
        (before.and_then(|before| key_claim(project, &before.flag)), key_claim(project, after));
    if old_claim != new_claim {
        writes.extend(old_claim.map(|key| Write::Delete(key, WriteCondition::Present)));
        let claim = new_claim.map(|key| Item { count: after.id, ..Item::empty(key) });
        writes.extend(claim.map(|row| Write::Put(row, WriteCondition::Absent)));
    }
    Ok(writes)
}

/// The dependency row; none for a flag without dependencies.
fn dependency_row(row: Option<&FlagRow>) -> Option<FlagRow> {
    row.filter(|row| !row.depends_on.is_empty()).map(FlagRow::to_dependency_row)
}

/// The write that replaces `old` with `new` at `key`; none when both are absent.
fn row_write(key: Key, old: Option<&FlagRow>, new: Option<&FlagRow>) -> Result<Option<Write>, StoreError> {
    Ok(match (old, new) {
        (_, Some(row)) => {
            Some(Write::Put(Item::new(key, row)?.with_version(row.item_version), WriteCondition::None))
        }
        (Some(_), None) => Some(Write::Delete(key, WriteCondition::None)),
        (None, None) => None,
    })
}

/// The key of the item that claims the flag key; a deleted flag has no claim.
fn key_claim(project: ProjectId, flag: &Flag) -> Option<Key> {
    (!flag.deleted).then(|| keys::flag_key_live(project, &flag.key))
}

fn activity_writes(
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
    let entry = Entry { scope: SCOPE, item: record_id(after.id), activity: kind.as_str(), user, at, detail };
    entry.writes(project, ids::new_uuid())
}

/// Commits the writes of one change.
pub async fn transact(records: &Table, writes: Vec<Write>) -> Result<FlagWriteOutcome, StoreError> {
    write_outcome(records.transact(writes).await)
}

fn write_outcome(result: Result<(), StoreError>) -> Result<FlagWriteOutcome, StoreError> {
    match result {
        Ok(()) => Ok(FlagWriteOutcome::Written),
        Err(StoreError::Condition { .. }) => Ok(FlagWriteOutcome::Conflict),
        Err(other) => Err(other),
    }
}

/// A record id as the table keys have it. Ids come from a counter that starts at 1.
pub fn record_id(id: i64) -> u64 {
    id.unsigned_abs()
}
