//! The summary rows of a project's insights: reading them all in one wait, and knowing that they are those of a version.
//!
//! Must stay true: rows are *proven* to be the state of a version when their stamps add up to the sum that stands beside
//! its number; so they may be read beside the version and not after it, and only proven rows are remembered. Rows that
//! could not be proven are still right for an answer: each was read after the request began.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{try_join, try_join_all};
use pennon_core::byte_limited_cache::ByteLimitedCache;
use pennon_core::store::keys::{self, INSIGHT_ROW_SHARDS, ProjectId};
use pennon_core::store::{Item, Page, Query, RowChecksums, StoreError, Table, VersionBump, Write};
use pennon_engine::flag::stamp;

use crate::row::InsightRow;

/// How often rows are read together with the version before they are taken as they are.
const TRIES: u32 = 3;
/// Bytes of rows that a process remembers, by a rough measure.
const BYTES_MAX: usize = 48 << 20;

/// What a warm process keeps of summary rows. Clones share it.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Mutex<ByteLimitedCache<ProjectId, Rows>>>);

impl Default for Memory {
    fn default() -> Memory {
        Memory(Arc::new(Mutex::new(ByteLimitedCache::new(BYTES_MAX))))
    }
}

impl Memory {
    fn rows(&self, project: ProjectId) -> Option<Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&project).cloned()
    }

    fn keep(&self, project: ProjectId, rows: &Rows) {
        let bytes = rows.all.iter().map(InsightRow::bytes).sum();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(project, rows.clone(), bytes);
    }
}

/// The version of a project's insights: each write of an insight raises its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Version {
    number: i64,
    /// What the stamps of the rows of that number add up to.
    sum: i64,
    /// The insight that the last write changed; 0 where it was several.
    last: i64,
}

impl Version {
    /// The version in its row.
    pub fn of(item: Option<&Item>) -> Version {
        item.map_or_else(Version::default, |item| Version {
            number: item.count,
            sum: item.sums.rows,
            last: item.sums.last,
        })
    }
}

/// The summary rows of a project's insights that are not deleted.
#[derive(Debug, Clone)]
pub struct Rows {
    version: Version,
    proven: bool,
    all: Arc<Vec<InsightRow>>,
}

impl Rows {
    fn new(version: Version, all: Vec<InsightRow>) -> Rows {
        let sum = all.iter().fold(0_i64, |sum, row| sum.wrapping_add(stamp_of(row.id, row.item_version)));
        Rows { version, proven: sum == version.sum, all: Arc::new(all) }
    }

    /// All of them, in any order.
    pub fn all(&self) -> &[InsightRow] {
        &self.all
    }
}

fn stamp_of(id: u64, item_version: u64) -> i64 {
    stamp(i64::try_from(id).unwrap_or(i64::MAX), item_version)
}

/// What writes of rows add to the sum of a project.
#[derive(Debug, Clone, Copy, Default)]
pub struct Difference {
    by: i64,
    /// The insight, as long as it is one.
    last: i64,
    count: usize,
}

impl Difference {
    /// A write that leaves insight `id` with a summary row of version `after`, where it was `before`; none of either is no
    /// row, as deleted ones and new ones have.
    pub fn of(id: u64, before: Option<u64>, after: Option<u64>) -> Difference {
        let stamp = |version: Option<u64>| version.map_or(0, |version| stamp_of(id, version));
        Difference {
            by: stamp(after).wrapping_sub(stamp(before)),
            last: i64::try_from(id).unwrap_or(0),
            count: 1,
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Difference) -> Difference {
        Difference {
            by: self.by.wrapping_add(other.by),
            last: if self.count == 0 { other.last } else { 0 },
            count: self.count + other.count,
        }
    }

    /// The write that tells of it; one in a transaction, whatever number of insights it writes.
    pub fn raise(self, project: ProjectId) -> Write {
        let by = RowChecksums { rows: self.by, edges: 0, last: self.last, used: 0 };
        Write::BumpVersion(keys::insights_version(project), VersionBump { by, ..VersionBump::default() })
    }
}

/// The first page of each shard, read before it is known whether the key opens the project: at most 1 MB a shard. None
/// where this process remembers rows.
pub async fn early(
    records: &Table,
    memory: &Memory,
    project: ProjectId,
) -> Result<Option<Vec<Page>>, StoreError> {
    if memory.rows(project).is_some() {
        return Ok(None);
    }
    let shards = shards(project).map(|query| async move { records.page(&query, None).await });
    Ok(Some(try_join_all(shards).await?))
}

/// The rows of `project`, whose version was read a moment ago; `early` is the start of them, where it was read beside it.
///
/// No round trip when they are remembered and unchanged, or `early` is all of them; else one, as a rule.
pub async fn load(
    records: &Table,
    memory: &Memory,
    project: ProjectId,
    version: Version,
    early: Option<Vec<Page>>,
) -> Result<Rows, StoreError> {
    let known = memory.rows(project);
    if let Some(known) = known {
        if known.version.sum == version.sum {
            return Ok(Rows { version, ..known });
        }
        if let Some(rows) = one_change(records, project, &known, version).await? {
            memory.keep(project, &rows);
            return Ok(rows);
        }
    }
    let first = match early {
        Some(early) => rest(records, project, early).await?,
        None => all(records, project).await?,
    };
    let mut rows = Rows::new(version, first);
    for _ in 1..TRIES {
        if rows.proven {
            break;
        }
        // Something was written between the version and the rows.
        let row = keys::insights_version(project);
        let (item, list) = try_join(records.get(&row), all(records, project)).await?;
        rows = Rows::new(Version::of(item.as_ref()), list);
    }
    if rows.proven {
        memory.keep(project, &rows);
    }
    Ok(rows)
}

/// The rows of `version` when it is one write after `known`: only the row that the write changed is read.
async fn one_change(
    records: &Table,
    project: ProjectId,
    known: &Rows,
    version: Version,
) -> Result<Option<Rows>, StoreError> {
    let Some(id) = u64::try_from(version.last).ok().filter(|id| *id > 0) else { return Ok(None) };
    if known.version.number + 1 != version.number {
        return Ok(None);
    }
    let item = records.get(&keys::insight_row(project, id)).await?;
    let mut list: Vec<InsightRow> = known.all.iter().filter(|row| row.id != id).cloned().collect();
    list.extend(item.as_ref().map(InsightRow::read).transpose()?);
    Ok(Some(Rows::new(version, list)).filter(|rows| rows.proven))
}

fn shards(project: ProjectId) -> impl Iterator<Item = Query> {
    (0..INSIGHT_ROW_SHARDS).map(move |shard| Query::partition(keys::insight_rows_pk(project, shard)))
}

/// All rows, each shard's pages one after the other, the shards beside each other.
async fn all(records: &Table, project: ProjectId) -> Result<Vec<InsightRow>, StoreError> {
    let shards = try_join_all(shards(project).map(|query| records.query(query))).await?;
    shards.iter().flatten().map(InsightRow::read).collect()
}

/// What `early` started, to its end.
async fn rest(records: &Table, project: ProjectId, early: Vec<Page>) -> Result<Vec<InsightRow>, StoreError> {
    let shards = shards(project).zip(early).map(|(query, page)| async move {
        let Page { mut items, mut next } = page;
        while next.is_some() {
            let page = records.page(&query, next).await?;
            items.extend(page.items);
            next = page.next;
        }
        items.iter().map(InsightRow::read).collect::<Result<Vec<_>, _>>()
    });
    Ok(try_join_all(shards).await?.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_add_up_to_the_stamps_of_what_is_there() {
        let steps = [
            Difference::of(1, None, Some(1)),
            Difference::of(2, None, Some(1)),
            Difference::of(1, Some(1), Some(2)),
            Difference::of(2, Some(1), None),
            Difference::of(2, None, Some(3)),
        ];
        let all = steps.into_iter().fold(Difference::default(), Difference::and);
        assert_eq!(all.by, stamp_of(1, 2).wrapping_add(stamp_of(2, 3)));
        assert_eq!((all.last, all.count), (0, 5), "which of several changed is not said");
        assert_eq!(Difference::default().and(steps[2]).last, 1);
    }
}
