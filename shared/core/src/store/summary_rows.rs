//! Summary rows: for each record of a project a small row with the fields that lists filter and sort by.
//!
//! The rows of a kind are spread over partitions, because the pages of one partition can only be read sequentially. A version
//! row counts the writes of the kind and has the sum of the checksums of its rows; every write of a record changes its row and
//! the version row in one transaction. [`SummaryRowCache`] loads the rows; [`SummaryRowKind`] is what a kind of records
//! implements.
//!
//! Must stay true: rows are *verified* as the state of a version when their checksums add up to the sum stored with its number;
//! so they may be read in parallel with the version, and only verified rows are cached. Unverified rows are still correct for a
//! response: each was read after the request started.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use futures::future::{try_join, try_join_all};

use super::keys::ProjectId;
use super::{Item, Key, PartitionQuery, QueryPage, RowChecksums, StoreError, Table};
use crate::byte_limited_cache::ByteLimitedCache;

/// How many times rows and version are read before unverified rows are used.
const MAX_ATTEMPTS: u32 = 3;
/// Approximate bytes of the rows of one kind that a process caches.
const CACHE_BYTES_MAX: usize = 48 << 20;

/// A kind of records that has summary rows.
pub trait SummaryRowKind: Debug + Clone + Send + Sync + 'static {
    /// The summary of one record.
    type Row: Debug + Clone + Send + Sync;

    /// The partitions of the rows of `project`.
    fn partitions(project: ProjectId) -> Vec<String>;
    /// The key of the version row of `project`.
    fn version_key(project: ProjectId) -> Key;
    /// Decodes a row.
    fn decode(item: &Item) -> Result<Self::Row, StoreError>;
    /// The id of the record.
    fn id(row: &Self::Row) -> i64;
    /// The row's contribution to the checksum of the version.
    fn checksum(row: &Self::Row) -> i64;
    /// Approximate size in memory.
    fn bytes(row: &Self::Row) -> usize;
}

/// The version of the summary rows of a project: each write increments its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowsVersion {
    /// The number of writes.
    pub number: i64,
    /// Checksums of the rows at that number.
    pub sums: RowChecksums,
}

impl RowsVersion {
    /// Decodes the version row; an absent row is version 0.
    pub fn from_item(item: Option<&Item>) -> RowsVersion {
        item.map_or_else(RowsVersion::default, |item| RowsVersion { number: item.count, sums: item.sums })
    }

    /// The id of the record that the only write since `before` changed; `None` for any other difference.
    pub fn single_change_since(self, before: RowsVersion) -> Option<i64> {
        let is_next = before.number + 1 == self.number;
        Some(self.sums.last).filter(|id| is_next && *id > 0)
    }
}

/// The summary rows of the live records of a project.
#[derive(Debug, Clone)]
pub struct SummaryRows<K: SummaryRowKind> {
    /// The version that was read with them.
    pub version: RowsVersion,
    /// Whether the checksum proves that they are exactly the rows of that version.
    pub is_verified: bool,
    /// Sorted by id.
    all: Arc<Vec<K::Row>>,
}

impl<K: SummaryRowKind> SummaryRows<K> {
    fn new(version: RowsVersion, mut all: Vec<K::Row>) -> SummaryRows<K> {
        all.sort_unstable_by_key(K::id);
        let checksum = all.iter().fold(0_i64, |sum, row| sum.wrapping_add(K::checksum(row)));
        SummaryRows { version, is_verified: checksum == version.sums.rows, all: Arc::new(all) }
    }

    /// A version number that the rows are at least as new as. `before` is the version that was read before the rows.
    /// Unverified rows were read in parallel with their version, so each may be older than it.
    pub fn min_version(&self, before: RowsVersion) -> i64 {
        if self.is_verified { self.version.number } else { before.number }
    }

    /// All rows, sorted by id.
    pub fn all(&self) -> &[K::Row] {
        &self.all
    }

    /// The row of the record `id`.
    pub fn get(&self, id: i64) -> Option<&K::Row> {
        self.all.binary_search_by_key(&id, K::id).ok().map(|at| &self.all[at])
    }

    /// The rows of `version`, if it is one write after these and `row` is the changed record's row at that version.
    fn with_change(&self, version: RowsVersion, id: i64, row: Option<K::Row>) -> Option<SummaryRows<K>> {
        let unchanged = self.all.iter().filter(|row| K::id(row) != id).cloned();
        Some(SummaryRows::new(version, unchanged.chain(row).collect())).filter(|rows| rows.is_verified)
    }

    fn bytes(&self) -> usize {
        self.all.iter().map(K::bytes).sum()
    }
}

/// The first page of each partition, prefetched before authorization is known.
#[derive(Debug)]
pub struct PrefetchedRows {
    project: ProjectId,
    pages: Vec<QueryPage>,
}

/// The verified rows of one kind, cached by project for the life of a process. Clones share them.
#[derive(Debug, Clone)]
pub struct SummaryRowCache<K: SummaryRowKind>(Arc<ByteLimitedCache<ProjectId, SummaryRows<K>>>);

impl<K: SummaryRowKind> Default for SummaryRowCache<K> {
    fn default() -> Self {
        SummaryRowCache(Arc::new(ByteLimitedCache::new(CACHE_BYTES_MAX)))
    }
}

impl<K: SummaryRowKind> SummaryRowCache<K> {
    /// The cached rows of `project`, whatever their version is.
    pub fn get(&self, project: ProjectId) -> Option<SummaryRows<K>> {
        self.0.get(&project)
    }

    /// The cached rows of `version`.
    pub fn get_at_version(&self, project: ProjectId, version: RowsVersion) -> Option<SummaryRows<K>> {
        let cached = self.get(project)?;
        (cached.version.sums.rows == version.sums.rows).then_some(SummaryRows { version, ..cached })
    }

    /// Clears the cache, as in a new process.
    pub fn clear(&self) {
        self.0.clear();
    }

    /// Prefetches the first page of each partition (at most 1 MB each); nothing when rows of `project` are cached.
    pub async fn prefetch(
        &self,
        records: &Table,
        project: ProjectId,
    ) -> Result<Option<PrefetchedRows>, StoreError> {
        if self.get(project).is_some() {
            return Ok(None);
        }
        let partitions = K::partitions(project)
            .into_iter()
            .map(|partition| async move { records.page(&PartitionQuery::partition(partition), None).await });
        Ok(Some(PrefetchedRows { project, pages: try_join_all(partitions).await? }))
    }

    /// Loads the rows of `project`, whose version was just read. `prefetched` is the start of them, when it was read in
    /// parallel with the version. `fetch_row` reads the current row of one record; it is used if only that record changed.
    ///
    /// No round trip when the rows are cached and unchanged, or fully prefetched; otherwise usually one.
    pub async fn load<F>(
        &self,
        records: &Table,
        project: ProjectId,
        version: RowsVersion,
        prefetched: Option<PrefetchedRows>,
        fetch_row: impl FnOnce(i64) -> F,
    ) -> Result<SummaryRows<K>, StoreError>
    where
        F: Future<Output = Result<Option<K::Row>, StoreError>>,
    {
        if let Some(rows) = self.get_at_version(project, version) {
            return Ok(rows);
        }
        if let Some(cached) = self.get(project)
            && let Some(id) = version.single_change_since(cached.version)
            && let Some(rows) = cached.with_change(version, id, fetch_row(id).await?)
        {
            self.insert(project, &rows);
            return Ok(rows);
        }
        let prefetched = prefetched.filter(|prefetched| prefetched.project == project);
        let mut rows = SummaryRows::new(version, fetch_all::<K>(records, project, prefetched).await?);
        for _ in 1..MAX_ATTEMPTS {
            if rows.is_verified {
                break;
            }
            // A concurrent write happened between reading the version and the rows.
            let version_key = K::version_key(project);
            let (item, all) =
                try_join(records.get(&version_key), fetch_all::<K>(records, project, None)).await?;
            rows = SummaryRows::new(RowsVersion::from_item(item.as_ref()), all);
        }
        if rows.is_verified {
            self.insert(project, &rows);
        }
        Ok(rows)
    }

    fn insert(&self, project: ProjectId, rows: &SummaryRows<K>) {
        let bytes = rows.bytes();
        self.0.insert(project, rows.clone(), bytes);
    }
}

/// Fetches all rows after the prefetched pages: the partitions in parallel, the pages of a partition in sequence.
async fn fetch_all<K: SummaryRowKind>(
    records: &Table,
    project: ProjectId,
    prefetched: Option<PrefetchedRows>,
) -> Result<Vec<K::Row>, StoreError> {
    let first_pages = prefetched.map_or_else(Vec::new, |prefetched| prefetched.pages);
    let mut first_pages = first_pages.into_iter();
    let partitions = K::partitions(project).into_iter().map(|partition| {
        let (query, first_page) = (PartitionQuery::partition(partition), first_pages.next());
        async move {
            let Some(QueryPage { mut items, mut next }) = first_page else {
                return records.query(query).await;
            };
            while next.is_some() {
                let page = records.page(&query, next).await?;
                items.extend(page.items);
                next = page.next;
            }
            Ok(items)
        }
    });
    try_join_all(partitions).await?.iter().flatten().map(K::decode).collect()
}

#[cfg(test)]
mod tests {
    use super::super::keys;
    use super::*;

    /// Rows whose checksum is their second number.
    #[derive(Debug, Clone)]
    struct Pairs;

    impl SummaryRowKind for Pairs {
        type Row = (i64, i64);

        fn partitions(_project: ProjectId) -> Vec<String> {
            Vec::new()
        }

        fn version_key(project: ProjectId) -> Key {
            keys::project_version(project)
        }

        fn decode(_item: &Item) -> Result<(i64, i64), StoreError> {
            Ok((0, 0))
        }

        fn id(row: &(i64, i64)) -> i64 {
            row.0
        }

        fn checksum(row: &(i64, i64)) -> i64 {
            row.1
        }

        fn bytes(_row: &(i64, i64)) -> usize {
            16
        }
    }

    fn version(number: i64, rows: i64, last: i64) -> RowsVersion {
        RowsVersion { number, sums: RowChecksums { rows, last, ..RowChecksums::default() } }
    }

    fn rows(version: RowsVersion, all: &[(i64, i64)]) -> SummaryRows<Pairs> {
        SummaryRows::new(version, all.to_vec())
    }

    #[test]
    fn unverified_rows_do_not_count_as_the_version_read_with_them() {
        let before = version(4, 0, 0);
        let verified = rows(version(7, 0, 0), &[]);
        assert_eq!((verified.is_verified, verified.min_version(before)), (true, 7));
        // A record was created after the rows were read and before the version was read.
        let unverified = rows(version(7, 99, 0), &[]);
        assert_eq!((unverified.is_verified, unverified.min_version(before)), (false, 4));
    }

    #[test]
    fn a_single_change_replaces_adds_or_removes_its_row() {
        let cached = rows(version(4, 30, 0), &[(2, 20), (1, 10)]);
        assert_eq!(
            (cached.all(), cached.get(2), cached.get(3)),
            (&[(1, 10), (2, 20)][..], Some(&(2, 20)), None)
        );
        for (row, checksum, expected) in [
            (Some((2, 21)), 31, vec![(1, 10), (2, 21)]),
            (Some((3, 5)), 35, vec![(1, 10), (2, 20), (3, 5)]),
            (None, 10, vec![(1, 10)]),
        ] {
            let id = row.map_or(2, |row| row.0);
            let after = version(5, checksum, id);
            assert_eq!(after.single_change_since(cached.version), Some(id));
            assert_eq!(cached.with_change(after, id, row).map(|rows| rows.all().to_vec()), Some(expected));
        }
        assert!(cached.with_change(version(5, 32, 2), 2, Some((2, 21))).is_none(), "changed once more");
    }

    #[test]
    fn several_changes_are_no_single_change() {
        let before = version(4, 30, 1);
        assert_eq!(version(6, 31, 2).single_change_since(before), None);
        assert_eq!(version(5, 31, 0).single_change_since(before), None, "one write of several records");
    }
}
