//! The summary rows of a project's flags: reading them all in one wait, and knowing that they are those of a version.
//!
//! Must stay true: rows are *proven* to be the state of a version when their stamps add up to the sum that stands beside
//! the version's number; so they may be read beside the version and not after it, and only proven rows are remembered.
//! Rows that could not be proven are still right for an answer: each was read after the request began.

use std::sync::Arc;

use futures::future::{try_join, try_join_all};
use pennon_core::store::keys::{self, FLAG_ROW_SHARDS, ProjectId};
use pennon_core::store::{Item, Page, Query, RowChecksums, StoreError, Table};
use pennon_engine::flag::FlagRow;

use super::{Stored, flag_at, number};
use crate::Flags;

/// How often rows are read together with the version before they are taken as they are.
const TRIES: u32 = 3;

/// Most KiB of records that are read for one request. Decoded they take several times as much memory; the template's
/// `MemorySize` has room for that beside what a process remembers.
pub const RECORDS_KIB_MAX: usize = 48 * 1024;

/// How many KiB the records of the flags of `rows` have at most.
pub fn kib<'a>(rows: impl IntoIterator<Item = &'a FlagRow>) -> usize {
    // What a row says is rounded down.
    rows.into_iter().fold(0, |sum: usize, row| sum.saturating_add(row.kib).saturating_add(1))
}

/// The version of a project's flags: each write of a flag, cohort or group type raises its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Version {
    /// How many writes there were.
    pub number: i64,
    /// What the rows of that number add up to.
    pub sums: RowChecksums,
}

impl Version {
    /// The version in its row.
    pub fn of(item: Option<&Item>) -> Version {
        item.map_or_else(Version::default, |item| Version { number: item.count, sums: item.sums })
    }
}

/// The summary rows of a project's live flags.
#[derive(Debug, Clone)]
pub struct Rows {
    /// The version that they were read with.
    pub version: Version,
    /// Whether they are exactly that version's.
    pub proven: bool,
    /// By id.
    all: Arc<Vec<FlagRow>>,
}

impl Rows {
    fn new(version: Version, mut all: Vec<FlagRow>) -> Rows {
        all.sort_unstable_by_key(|row| row.id);
        Rows { version, proven: sum(&all) == version.sums.rows, all: Arc::new(all) }
    }

    /// The number of a version that the rows are not older than, `before` being the version that was read before they
    /// were. Rows that are not proven were read *beside* their version, so that each may be older than it.
    pub fn not_older_than(&self, before: Version) -> i64 {
        if self.proven { self.version.number } else { before.number }
    }

    /// All of them, by id.
    pub fn all(&self) -> &[FlagRow] {
        &self.all
    }

    /// The row of flag `id`.
    pub fn find(&self, id: i64) -> Option<&FlagRow> {
        self.all.binary_search_by_key(&id, |row| row.id).ok().map(|at| &self.all[at])
    }

    /// About how much memory they take.
    pub(super) fn bytes(&self) -> usize {
        let texts = |row: &FlagRow| row.key.len() + row.name.len() + row.tags.len() * 40;
        let ids = |row: &FlagRow| (row.depends_on.len() + row.cohort_ids.len()) * 8;
        self.all.iter().map(|row| size_of::<FlagRow>() + texts(row) + ids(row)).sum()
    }
}

fn sum(rows: &[FlagRow]) -> i64 {
    rows.iter().fold(0, |sum, row| sum.wrapping_add(row.stamp()))
}

/// The first page of each shard, read before it is known whether the key opens the project.
#[derive(Debug)]
pub struct Early {
    project: ProjectId,
    shards: Vec<Page>,
}

/// The start of the rows of `project`, unless this process remembers some: at most 1 MB a shard.
pub async fn early(flags: &Flags, project: ProjectId) -> Result<Option<Early>, StoreError> {
    if flags.memory.rows(project).is_some() {
        return Ok(None);
    }
    let records = &flags.app.store.records;
    let shards = (0..FLAG_ROW_SHARDS).map(|shard| async move {
        records.page(&Query::partition(keys::flag_rows_pk(project, shard)), None).await
    });
    Ok(Some(Early { project, shards: try_join_all(shards).await? }))
}

/// The rows of `project`, whose version was read a moment ago. `early` is the start of them, where it was read beside
/// the version.
///
/// No round trip when they are remembered and unchanged, or `early` is all of them; else one, as a rule.
pub async fn load(
    flags: &Flags,
    project: ProjectId,
    version: Version,
    early: Option<Early>,
) -> Result<Rows, StoreError> {
    let records = &flags.app.store.records;
    if let Some(rows) = remembered(flags, project, version) {
        return Ok(rows);
    }
    if let Some(known) = flags.memory.rows(project)
        && let Some(rows) = one_change(flags, project, &known, version).await?
    {
        flags.memory.keep_rows(project, &rows);
        flags.memory.carry_names(project, known.version.number, version.number);
        return Ok(rows);
    }
    let first = match early.filter(|early| early.project == project) {
        Some(early) => rest(records, project, early).await?,
        None => all(records, project).await?,
    };
    let mut rows = Rows::new(version, first);
    for _ in 1..TRIES {
        if rows.proven {
            break;
        }
        // Something was written between the version and the rows.
        let row = keys::project_version(project);
        let (item, list) = try_join(records.get(&row), all(records, project)).await?;
        rows = Rows::new(Version::of(item.as_ref()), list);
    }
    if rows.proven {
        flags.memory.keep_rows(project, &rows);
    }
    Ok(rows)
}

/// The rows of `version`, as far as this process remembers them.
pub fn remembered(flags: &Flags, project: ProjectId, version: Version) -> Option<Rows> {
    let known = flags.memory.rows(project)?;
    (known.version.sums.rows == version.sums.rows).then_some(Rows { version, ..known })
}

/// As [`load`], for a writer's judgement: rows that are proven, or none for now.
pub async fn proven(flags: &Flags, project: ProjectId, version: Version) -> Result<Rows, StoreError> {
    let rows = load(flags, project, version, None).await?;
    if rows.proven { Ok(rows) } else { Err(StoreError::Conflict) }
}

/// The rows of `version` when it is one write after `known`: only the flag that the write changed is read.
async fn one_change(
    flags: &Flags,
    project: ProjectId,
    known: &Rows,
    version: Version,
) -> Result<Option<Rows>, StoreError> {
    let id = version.sums.last;
    if known.version.number + 1 != version.number || id <= 0 {
        return Ok(None);
    }
    let item = flags.app.store.records.get(&flag_at(project, number(id))).await?;
    let mut list: Vec<FlagRow> = known.all.iter().filter(|row| row.id != id).cloned().collect();
    if let Some(item) = &item {
        let stored = record(flags, project, item)?;
        if !stored.flag.deleted {
            list.push(FlagRow::from(&stored.flag).at(stored.version).sized(item.text.len()));
        }
    }
    Ok(Some(Rows::new(version, list)).filter(|rows| rows.proven))
}

/// All rows, each shard's pages one after the other, the shards beside each other.
async fn all(records: &Table, project: ProjectId) -> Result<Vec<FlagRow>, StoreError> {
    let shards =
        (0..FLAG_ROW_SHARDS).map(|shard| records.query(Query::partition(keys::flag_rows_pk(project, shard))));
    try_join_all(shards).await?.iter().flatten().map(read).collect()
}

/// What `early` started, to its end.
async fn rest(records: &Table, project: ProjectId, early: Early) -> Result<Vec<FlagRow>, StoreError> {
    let shards = (0..).zip(early.shards).map(|(shard, page)| async move {
        let query = Query::partition(keys::flag_rows_pk(project, shard));
        let Page { mut items, mut next } = page;
        while next.is_some() {
            let page = records.page(&query, next).await?;
            items.extend(page.items);
            next = page.next;
        }
        items.iter().map(read).collect::<Result<Vec<_>, _>>()
    });
    Ok(try_join_all(shards).await?.into_iter().flatten().collect())
}

/// The row in `item`.
pub fn read(item: &Item) -> Result<FlagRow, StoreError> {
    Ok(item.body::<FlagRow>()?.at(item.version))
}

/// The record in `item`, decoded or remembered.
pub fn record(flags: &Flags, project: ProjectId, item: &Item) -> Result<Arc<Stored>, StoreError> {
    let id = item.key.sk.parse::<i64>().ok();
    if let Some(known) = id.and_then(|id| flags.memory.flag(project, id, item.version)) {
        return Ok(known);
    }
    let stored = Arc::new(Stored::read(item)?);
    flags.memory.keep_flag(project, &stored, item.text.len());
    Ok(stored)
}

/// The records of flags, in the order of `wanted`: pairs of id and version as rows have them. One round trip at most,
/// none when all are remembered.
///
/// A flag that was changed since its row was read comes as it is now; one that was deleted since is left out.
pub async fn flags_of(
    flags: &Flags,
    project: ProjectId,
    wanted: &[(i64, u64)],
) -> Result<Vec<Arc<Stored>>, StoreError> {
    let mut found: Vec<Option<Arc<Stored>>> =
        wanted.iter().map(|(id, version)| flags.memory.flag(project, *id, *version)).collect();
    let missing: Vec<usize> = (0..wanted.len()).filter(|at| found[*at].is_none()).collect();
    let keys: Vec<_> = missing.iter().map(|at| flag_at(project, number(wanted[*at].0))).collect();
    if !keys.is_empty() {
        let items = flags.app.store.records.batch_get(&keys).await?;
        for (at, item) in missing.into_iter().zip(items) {
            let Some(item) = item else { continue };
            found[at] = Some(record(flags, project, &item)?);
        }
    }
    Ok(found.into_iter().flatten().filter(|stored| !stored.flag.deleted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: i64, rows: i64) -> Version {
        Version { number, sums: RowChecksums { rows, ..RowChecksums::default() } }
    }

    #[test]
    fn rows_that_are_not_proven_are_not_taken_for_those_of_the_version_read_beside_them() {
        let before = version(4, 0);
        let proven = Rows::new(version(7, 0), Vec::new());
        assert_eq!((proven.proven, proven.not_older_than(before)), (true, 7));
        // A flag was created after the rows were read and before the version was.
        let mixed = Rows::new(version(7, 99), Vec::new());
        assert_eq!((mixed.proven, mixed.not_older_than(before)), (false, 4));
    }
}
