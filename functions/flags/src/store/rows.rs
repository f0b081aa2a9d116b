//! The summary rows of a project's flags ([`pennon_core::store::summary_rows`]), and the records that they summarize.
//!
//! Must stay true: a cached row or record is used only at the version that the request read.

use std::sync::Arc;

use pennon_core::store::keys::{self, FLAG_ROW_SHARDS, ProjectId};
pub use pennon_core::store::summary_rows::PrefetchedRows;
use pennon_core::store::summary_rows::{RowsVersion, SummaryRowKind, SummaryRows};
use pennon_core::store::{Item, Key, StoreError};
use pennon_flag_rules::FlagRow;

use super::{StoredFlag, flag_record_key, record_id};
use crate::Flags;

/// Most KiB of records that one request reads. Decoded they take several times as much memory; `MemorySize` in the
/// template covers that in addition to the caches.
pub const RECORDS_KIB_MAX: usize = 48 * 1024;

/// Upper bound of the record sizes of `rows` in KiB.
pub fn total_kib<'a>(rows: impl IntoIterator<Item = &'a FlagRow>) -> usize {
    // The size in a row is rounded down.
    rows.into_iter().fold(0, |total: usize, row| total.saturating_add(row.kib).saturating_add(1))
}

/// The version of a project's flags: each write of a flag, cohort or group type increments its number.
pub type ProjectVersion = RowsVersion;

/// The summary rows of a project's live flags.
pub type FlagRows = SummaryRows<FlagRowKind>;

/// The kind of the summary rows of flags.
#[derive(Debug, Clone)]
pub struct FlagRowKind;

impl SummaryRowKind for FlagRowKind {
    type Row = FlagRow;

    fn partitions(project: ProjectId) -> Vec<String> {
        (0..FLAG_ROW_SHARDS).map(|shard| keys::flag_rows_pk(project, shard)).collect()
    }

    fn version_key(project: ProjectId) -> Key {
        keys::project_version(project)
    }

    fn decode(item: &Item) -> Result<FlagRow, StoreError> {
        decode_row(item)
    }

    fn id(row: &FlagRow) -> i64 {
        row.id
    }

    fn checksum(row: &FlagRow) -> i64 {
        row.checksum()
    }

    fn bytes(row: &FlagRow) -> usize {
        let texts = row.key.len() + row.name.len() + row.tags.len() * 40;
        size_of::<FlagRow>() + texts + (row.depends_on.len() + row.cohort_ids.len()) * 8
    }
}

/// Prefetches the first page of each partition of the rows; nothing when rows of `project` are cached.
pub async fn prefetch_rows(flags: &Flags, project: ProjectId) -> Result<Option<PrefetchedRows>, StoreError> {
    flags.memory.rows.prefetch(&flags.app.store.records, project).await
}

/// Loads the rows of `project`, whose version was just read. `prefetched` is the start of them, when it was read in
/// parallel with the version.
///
/// No round trip when the rows are cached and unchanged, or fully prefetched; otherwise usually one.
pub async fn load_rows(
    flags: &Flags,
    project: ProjectId,
    version: ProjectVersion,
    prefetched: Option<PrefetchedRows>,
) -> Result<FlagRows, StoreError> {
    let cached = flags.memory.rows.get(project).map(|rows| rows.version);
    let fetch_row = |id| fetch_changed_row(flags, project, id);
    let records = &flags.app.store.records;
    let rows = flags.memory.rows.load(records, project, version, prefetched, fetch_row).await?;
    if let Some(cached) = cached
        && version.single_change_since(cached).is_some()
    {
        flags.memory.carry_cohort_names(project, cached.number, version.number);
    }
    Ok(rows)
}

/// The current row of flag `id`; `None` if it is deleted. Reads the record, which the response often needs too.
async fn fetch_changed_row(
    flags: &Flags,
    project: ProjectId,
    id: i64,
) -> Result<Option<FlagRow>, StoreError> {
    let item = flags.app.store.records.get(&flag_record_key(project, record_id(id))).await?;
    let Some(item) = item else { return Ok(None) };
    let stored = decode_flag(flags, project, &item)?;
    let row = FlagRow::from(&stored.flag).with_version(stored.version).with_size(item.text.len());
    Ok((!stored.flag.deleted).then_some(row))
}

/// The cached rows of `version`.
pub fn cached_rows(flags: &Flags, project: ProjectId, version: ProjectVersion) -> Option<FlagRows> {
    flags.memory.rows.get_at_version(project, version)
}

/// As [`load_rows`], for validating a write: verified rows, or a conflict error.
pub async fn load_verified_rows(
    flags: &Flags,
    project: ProjectId,
    version: ProjectVersion,
) -> Result<FlagRows, StoreError> {
    let rows = load_rows(flags, project, version, None).await?;
    if rows.is_verified { Ok(rows) } else { Err(StoreError::Conflict) }
}

/// Decodes the row in `item`.
pub fn decode_row(item: &Item) -> Result<FlagRow, StoreError> {
    Ok(item.body::<FlagRow>()?.with_version(item.version))
}

/// Decodes the record in `item`, or takes it from the cache.
pub fn decode_flag(flags: &Flags, project: ProjectId, item: &Item) -> Result<Arc<StoredFlag>, StoreError> {
    let id = item.key.sk.parse::<i64>().ok();
    if let Some(cached) = id.and_then(|id| flags.memory.get_flag(project, id, item.version)) {
        return Ok(cached);
    }
    let stored = Arc::new(StoredFlag::from_item(item)?);
    flags.memory.put_flag(project, &stored, item.text.len());
    Ok(stored)
}

/// Loads the records of flags in the order of `ids`: pairs of id and item version from their rows. At most one round
/// trip, none when all are cached.
///
/// A flag that changed after its row was read is returned in its current state; one that was deleted is left out.
pub async fn load_flags(
    flags: &Flags,
    project: ProjectId,
    ids: &[(i64, u64)],
) -> Result<Vec<Arc<StoredFlag>>, StoreError> {
    let mut loaded: Vec<Option<Arc<StoredFlag>>> =
        ids.iter().map(|(id, version)| flags.memory.get_flag(project, *id, *version)).collect();
    let missing: Vec<usize> = (0..ids.len()).filter(|at| loaded[*at].is_none()).collect();
    let keys: Vec<_> = missing.iter().map(|at| flag_record_key(project, record_id(ids[*at].0))).collect();
    if !keys.is_empty() {
        let items = flags.app.store.records.batch_get(&keys).await?;
        for (at, item) in missing.into_iter().zip(items) {
            let Some(item) = item else { continue };
            loaded[at] = Some(decode_flag(flags, project, &item)?);
        }
    }
    Ok(loaded.into_iter().flatten().filter(|stored| !stored.flag.deleted).collect())
}
