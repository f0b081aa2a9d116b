//! The summary rows of a project's insights: fetched in one round trip, verified by a checksum, and cached.
//!
//! Must stay true: rows are *verified* as the state of a version when their checksums add up to the sum stored with its
//! number; so they can be fetched in parallel with the version, and only verified rows are cached. Rows that could not be
//! verified are still correct for a response: each was read after the request began.

use std::sync::Arc;

use futures::future::{try_join, try_join_all};
use pennon_core::byte_limited_cache::ByteLimitedCache;
use pennon_core::store::keys::{self, INSIGHT_ROW_SHARDS, ProjectId};
use pennon_core::store::{Item, Page, Query, RowChecksums, StoreError, Table, VersionBump, Write};
use pennon_engine::flag::stamp;

use crate::summary_row::InsightRow;

/// Most attempts to fetch rows that match the version; after that they are used unverified.
const ATTEMPTS: u32 = 3;
/// Approximate size limit of the cache in bytes.
const CACHE_BYTES_MAX: usize = 48 << 20;

/// Cache of summary rows by project. Clones share it.
#[derive(Debug, Clone)]
pub struct SummaryRowCache(Arc<ByteLimitedCache<ProjectId, SummaryRows>>);

impl Default for SummaryRowCache {
    fn default() -> SummaryRowCache {
        SummaryRowCache(Arc::new(ByteLimitedCache::new(CACHE_BYTES_MAX)))
    }
}

impl SummaryRowCache {
    fn get(&self, project: ProjectId) -> Option<SummaryRows> {
        self.0.get(&project)
    }

    fn insert(&self, project: ProjectId, rows: &SummaryRows) {
        let bytes = rows.rows.iter().map(InsightRow::bytes).sum();
        self.0.insert(project, rows.clone(), bytes);
    }
}

/// The version of a project's summary rows: each write of an insight increments its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowsVersion {
    number: i64,
    /// The sum of the checksums of the rows at that number.
    checksum: i64,
    /// The insight that the last write changed; 0 if there were several.
    last_changed: i64,
}

impl RowsVersion {
    /// Decodes the row of the version.
    pub fn from_item(item: Option<&Item>) -> RowsVersion {
        item.map_or_else(RowsVersion::default, |item| RowsVersion {
            number: item.count,
            checksum: item.sums.rows,
            last_changed: item.sums.last,
        })
    }
}

/// The summary rows of a project's insights that are not deleted.
#[derive(Debug, Clone)]
pub struct SummaryRows {
    version: RowsVersion,
    is_verified: bool,
    rows: Arc<Vec<InsightRow>>,
}

impl SummaryRows {
    fn new(version: RowsVersion, rows: Vec<InsightRow>) -> SummaryRows {
        let checksum =
            rows.iter().fold(0_i64, |sum, row| sum.wrapping_add(row_checksum(row.id, row.item_version)));
        SummaryRows { version, is_verified: checksum == version.checksum, rows: Arc::new(rows) }
    }

    /// All rows, in no particular order.
    pub fn all(&self) -> &[InsightRow] {
        &self.rows
    }
}

fn row_checksum(id: u64, item_version: u64) -> i64 {
    stamp(i64::try_from(id).unwrap_or(i64::MAX), item_version)
}

/// The change of the checksum sum of a project's rows by a write.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowsChecksumDelta {
    by: i64,
    /// The insight that is changed; 0 if there are several.
    last_changed: i64,
    count: usize,
}

impl RowsChecksumDelta {
    /// A write that changes the summary row of insight `id` from version `before` to `after`. `None` is no row: of a new or a
    /// deleted insight.
    pub fn new(id: u64, before: Option<u64>, after: Option<u64>) -> RowsChecksumDelta {
        let checksum = |version: Option<u64>| version.map_or(0, |version| row_checksum(id, version));
        RowsChecksumDelta {
            by: checksum(after).wrapping_sub(checksum(before)),
            last_changed: i64::try_from(id).unwrap_or(0),
            count: 1,
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: RowsChecksumDelta) -> RowsChecksumDelta {
        RowsChecksumDelta {
            by: self.by.wrapping_add(other.by),
            last_changed: if self.count == 0 { other.last_changed } else { 0 },
            count: self.count + other.count,
        }
    }

    /// The write of the version: one for each transaction, however many insights it writes.
    pub fn version_write(self, project: ProjectId) -> Write {
        let by = RowChecksums { rows: self.by, edges: 0, last: self.last_changed, used: 0 };
        Write::BumpVersion(keys::insights_version(project), VersionBump { by, ..VersionBump::default() })
    }
}

/// The first page of each shard (at most 1 MB), fetched before the access to the project is verified. `None` where rows are
/// cached.
pub async fn prefetch(
    records: &Table,
    cache: &SummaryRowCache,
    project: ProjectId,
) -> Result<Option<Vec<Page>>, StoreError> {
    if cache.get(project).is_some() {
        return Ok(None);
    }
    let shards = shards(project).map(|query| async move { records.page(&query, None).await });
    Ok(Some(try_join_all(shards).await?))
}

/// The rows of `project`. `version` was just read; `prefetched` are their first pages, if they were fetched.
///
/// No round trip if they are cached and unchanged, or `prefetched` is complete; else usually one.
pub async fn load(
    records: &Table,
    cache: &SummaryRowCache,
    project: ProjectId,
    version: RowsVersion,
    prefetched: Option<Vec<Page>>,
) -> Result<SummaryRows, StoreError> {
    let cached = cache.get(project);
    if let Some(cached) = cached {
        if cached.version.checksum == version.checksum {
            return Ok(SummaryRows { version, ..cached });
        }
        if let Some(rows) = apply_last_change(records, project, &cached, version).await? {
            cache.insert(project, &rows);
            return Ok(rows);
        }
    }
    let first = match prefetched {
        Some(prefetched) => finish_prefetch(records, project, prefetched).await?,
        None => fetch_all(records, project).await?,
    };
    let mut rows = SummaryRows::new(version, first);
    for _ in 1..ATTEMPTS {
        if rows.is_verified {
            break;
        }
        // An insight was written between the reads of the version and the rows.
        let version_key = keys::insights_version(project);
        let (item, list) = try_join(records.get(&version_key), fetch_all(records, project)).await?;
        rows = SummaryRows::new(RowsVersion::from_item(item.as_ref()), list);
    }
    if rows.is_verified {
        cache.insert(project, &rows);
    }
    Ok(rows)
}

/// The rows of `version` if it is one write after `cached`: only the changed row is fetched.
async fn apply_last_change(
    records: &Table,
    project: ProjectId,
    cached: &SummaryRows,
    version: RowsVersion,
) -> Result<Option<SummaryRows>, StoreError> {
    let Some(id) = u64::try_from(version.last_changed).ok().filter(|id| *id > 0) else { return Ok(None) };
    if cached.version.number + 1 != version.number {
        return Ok(None);
    }
    let item = records.get(&keys::insight_row(project, id)).await?;
    let mut list: Vec<InsightRow> = cached.rows.iter().filter(|row| row.id != id).cloned().collect();
    list.extend(item.as_ref().map(InsightRow::from_item).transpose()?);
    Ok(Some(SummaryRows::new(version, list)).filter(|rows| rows.is_verified))
}

fn shards(project: ProjectId) -> impl Iterator<Item = Query> {
    (0..INSIGHT_ROW_SHARDS).map(move |shard| Query::partition(keys::insight_rows_pk(project, shard)))
}

/// All rows: the shards in parallel, the pages of a shard in sequence.
async fn fetch_all(records: &Table, project: ProjectId) -> Result<Vec<InsightRow>, StoreError> {
    let shards = try_join_all(shards(project).map(|query| records.query(query))).await?;
    shards.iter().flatten().map(InsightRow::from_item).collect()
}

/// Fetches the remaining pages after [`prefetch`].
async fn finish_prefetch(
    records: &Table,
    project: ProjectId,
    prefetched: Vec<Page>,
) -> Result<Vec<InsightRow>, StoreError> {
    let shards = shards(project).zip(prefetched).map(|(query, page)| async move {
        let Page { mut items, mut next } = page;
        while next.is_some() {
            let page = records.page(&query, next).await?;
            items.extend(page.items);
            next = page.next;
        }
        items.iter().map(InsightRow::from_item).collect::<Result<Vec<_>, _>>()
    });
    Ok(try_join_all(shards).await?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_add_up_to_the_checksums_of_the_rows() {
        let steps = [
            RowsChecksumDelta::new(1, None, Some(1)),
            RowsChecksumDelta::new(2, None, Some(1)),
            RowsChecksumDelta::new(1, Some(1), Some(2)),
            RowsChecksumDelta::new(2, Some(1), None),
            RowsChecksumDelta::new(2, None, Some(3)),
        ];
        let sum = steps.into_iter().fold(RowsChecksumDelta::default(), RowsChecksumDelta::plus);
        assert_eq!(sum.by, row_checksum(1, 2).wrapping_add(row_checksum(2, 3)));
        assert_eq!((sum.last_changed, sum.count), (0, 5), "0 for several insights");
        assert_eq!(RowsChecksumDelta::default().plus(steps[2]).last_changed, 1);
    }
}
