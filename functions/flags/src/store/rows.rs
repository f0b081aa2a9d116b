//! The summary rows of a project's flags: reading all of them in one round trip, and verifying that they belong to one
//! version.
//!
//! Must stay true: rows are *verified* as the state of a version when the sum of their checksums equals the checksum
//! stored with the version number; so they may be read in parallel with the version, and only verified rows are cached.
//! Unverified rows are still correct for a response: each was read after the request started.

use std::sync::Arc;

use futures::future::{try_join, try_join_all};
use pennon_core::store::keys::{self, FLAG_ROW_SHARDS, ProjectId};
use pennon_core::store::{Item, Page, Query, RowChecksums, StoreError, Table};
use pennon_flag_rules::FlagRow;

use super::{StoredFlag, flag_record_key, record_id};
use crate::Flags;

/// How many times rows and version are read before unverified rows are used.
const MAX_ATTEMPTS: u32 = 3;

/// Most KiB of records that one request reads. Decoded they take several times as much memory; `MemorySize` in the
/// template covers that in addition to the caches.
pub const RECORDS_KIB_MAX: usize = 48 * 1024;

/// Upper bound of the record sizes of `rows` in KiB.
pub fn total_kib<'a>(rows: impl IntoIterator<Item = &'a FlagRow>) -> usize {
    // The size in a row is rounded down.
    rows.into_iter().fold(0, |total: usize, row| total.saturating_add(row.kib).saturating_add(1))
}

/// The version of a project's flags: each write of a flag, cohort or group type increments its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProjectVersion {
    /// The number of writes.
    pub number: i64,
    /// Checksums of the rows at that number.
    pub sums: RowChecksums,
}

impl ProjectVersion {
    /// Decodes the version item; an absent item is version 0.
    pub fn from_item(item: Option<&Item>) -> ProjectVersion {
        item.map_or_else(ProjectVersion::default, |item| ProjectVersion {
            number: item.count,
            sums: item.sums,
        })
    }
}

/// The summary rows of a project's live flags.
#[derive(Debug, Clone)]
pub struct FlagRows {
    /// The version that was read with them.
    pub version: ProjectVersion,
    /// Whether the checksum proves that they are exactly the rows of that version.
    pub is_verified: bool,
    /// Sorted by id.
    all: Arc<Vec<FlagRow>>,
}

impl FlagRows {
    fn new(version: ProjectVersion, mut all: Vec<FlagRow>) -> FlagRows {
        all.sort_unstable_by_key(|row| row.id);
        FlagRows { version, is_verified: checksum(&all) == version.sums.rows, all: Arc::new(all) }
    }

    /// A version number that the rows are at least as new as. `before` is the version that was read before the rows.
    /// Unverified rows were read in parallel with their version, so each may be older than it.
    pub fn min_version(&self, before: ProjectVersion) -> i64 {
        if self.is_verified { self.version.number } else { before.number }
    }

    /// All rows, sorted by id.
    pub fn all(&self) -> &[FlagRow] {
        &self.all
    }

    /// The row of flag `id`.
    pub fn get(&self, id: i64) -> Option<&FlagRow> {
        self.all.binary_search_by_key(&id, |row| row.id).ok().map(|at| &self.all[at])
    }

    /// Approximate memory size.
    pub(super) fn bytes(&self) -> usize {
        let texts = |row: &FlagRow| row.key.len() + row.name.len() + row.tags.len() * 40;
        let ids = |row: &FlagRow| (row.depends_on.len() + row.cohort_ids.len()) * 8;
        self.all.iter().map(|row| size_of::<FlagRow>() + texts(row) + ids(row)).sum()
    }
}

fn checksum(rows: &[FlagRow]) -> i64 {
    rows.iter().fold(0, |sum, row| sum.wrapping_add(row.checksum()))
}

/// The first page of each shard, prefetched before authorization is known.
#[derive(Debug)]
pub struct PrefetchedRows {
    project: ProjectId,
    shards: Vec<Page>,
}

/// Prefetches the first page of each shard (at most 1 MB each); nothing when rows of `project` are cached.
pub async fn prefetch_rows(flags: &Flags, project: ProjectId) -> Result<Option<PrefetchedRows>, StoreError> {
    if flags.memory.get_rows(project).is_some() {
        return Ok(None);
    }
    let records = &flags.app.store.records;
    let shards = (0..FLAG_ROW_SHARDS).map(|shard| async move {
        records.page(&Query::partition(keys::flag_rows_pk(project, shard)), None).await
    });
    Ok(Some(PrefetchedRows { project, shards: try_join_all(shards).await? }))
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
    let records = &flags.app.store.records;
    if let Some(rows) = cached_rows(flags, project, version) {
        return Ok(rows);
    }
    if let Some(cached) = flags.memory.get_rows(project)
        && let Some(rows) = apply_single_change(flags, project, &cached, version).await?
    {
        flags.memory.put_rows(project, &rows);
        flags.memory.carry_cohort_names(project, cached.version.number, version.number);
        return Ok(rows);
    }
    let list = match prefetched.filter(|prefetched| prefetched.project == project) {
        Some(prefetched) => finish_prefetch(records, project, prefetched).await?,
        None => query_all_rows(records, project).await?,
    };
    let mut rows = FlagRows::new(version, list);
    for _ in 1..MAX_ATTEMPTS {
        if rows.is_verified {
            break;
        }
        // A concurrent write happened between reading the version and the rows.
        let version_key = keys::project_version(project);
        let (item, list) = try_join(records.get(&version_key), query_all_rows(records, project)).await?;
        rows = FlagRows::new(ProjectVersion::from_item(item.as_ref()), list);
    }
    if rows.is_verified {
        flags.memory.put_rows(project, &rows);
    }
    Ok(rows)
}

/// The cached rows of `version`.
pub fn cached_rows(flags: &Flags, project: ProjectId, version: ProjectVersion) -> Option<FlagRows> {
    let cached = flags.memory.get_rows(project)?;
    (cached.version.sums.rows == version.sums.rows).then_some(FlagRows { version, ..cached })
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

/// The rows of `version` when it is exactly one write after `cached`: only the changed flag is read.
async fn apply_single_change(
    flags: &Flags,
    project: ProjectId,
    cached: &FlagRows,
    version: ProjectVersion,
) -> Result<Option<FlagRows>, StoreError> {
    let id = version.sums.last;
    if cached.version.number + 1 != version.number || id <= 0 {
        return Ok(None);
    }
    let item = flags.app.store.records.get(&flag_record_key(project, record_id(id))).await?;
    let mut list: Vec<FlagRow> = cached.all.iter().filter(|row| row.id != id).cloned().collect();
    if let Some(item) = &item {
        let stored = decode_flag(flags, project, item)?;
        if !stored.flag.deleted {
            list.push(FlagRow::from(&stored.flag).with_version(stored.version).with_size(item.text.len()));
        }
    }
    Ok(Some(FlagRows::new(version, list)).filter(|rows| rows.is_verified))
}

/// Queries all rows: the pages of a shard in sequence, the shards in parallel.
async fn query_all_rows(records: &Table, project: ProjectId) -> Result<Vec<FlagRow>, StoreError> {
    let shards =
        (0..FLAG_ROW_SHARDS).map(|shard| records.query(Query::partition(keys::flag_rows_pk(project, shard))));
    try_join_all(shards).await?.iter().flatten().map(decode_row).collect()
}

/// Reads the remaining pages of the prefetched shards.
async fn finish_prefetch(
    records: &Table,
    project: ProjectId,
    prefetched: PrefetchedRows,
) -> Result<Vec<FlagRow>, StoreError> {
    let shards = (0..).zip(prefetched.shards).map(|(shard, page)| async move {
        let query = Query::partition(keys::flag_rows_pk(project, shard));
        let Page { mut items, mut next } = page;
        while next.is_some() {
            let page = records.page(&query, next).await?;
            items.extend(page.items);
            next = page.next;
        }
        items.iter().map(decode_row).collect::<Result<Vec<_>, _>>()
    });
    Ok(try_join_all(shards).await?.into_iter().flatten().collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: i64, rows: i64) -> ProjectVersion {
        ProjectVersion { number, sums: RowChecksums { rows, ..RowChecksums::default() } }
    }

    #[test]
    fn unverified_rows_do_not_count_as_the_version_read_with_them() {
        let before = version(4, 0);
        let is_verified = FlagRows::new(version(7, 0), Vec::new());
        assert_eq!((is_verified.is_verified, is_verified.min_version(before)), (true, 7));
        // A flag was created after the rows were read and before the version was read.
        let unverified = FlagRows::new(version(7, 99), Vec::new());
        assert_eq!((unverified.is_verified, unverified.min_version(before)), (false, 4));
    }
}
