//! Folds the older rows of the merge log into one object.
//!
//! Must stay true: an object holds all merges up to the row that its entry names. Rows are deleted only when
//! two listed objects hold them and the newest one was read back, so a single damaged object loses nothing.
//! Rows and objects from before an erasure, which name erased persons, are unused once it is committed, and are
//! deleted even if something is damaged. The last row is never deleted, because the next one is numbered after
//! it; rows are deleted in order, so that a writer finds the last one ([`super::append`]). A reader that misses
//! rows notices it by their numbers and reads the manifest again. The objects are outside the folder of events,
//! so the search for orphans ignores them.

use bytes::Bytes;
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{TRANSACTION_WRITES_MAX, Write, WriteCondition};

use super::{MergeLog, MergeLogRow, PersonMerge, decode, encode};
use crate::error::EventStoreError;
use crate::formats;
use crate::keys;
use crate::manifest::{EntryKind, FoldedMergesEntry, GRACE_MICROS, Manifest, new_id};
use crate::time::WorkClock;

/// One more row may wait per so many folded merges: folding rewrites all of them.
const MERGES_A_ROW: u64 = 64;

/// The newest undamaged object; the inner `None` means the log starts with its first row. The outer `None`
/// means that an erasure forbids to use the rows, which would restore erased persons.
fn whole(manifest: &Manifest) -> Option<Option<&FoldedMergesEntry>> {
    let erasures = manifest.erasures();
    let mut of_now = manifest.merges.iter().rev().filter(|entry| entry.erasures == erasures);
    let whole = of_now.find(|entry| !manifest.damaged.contains(&entry.id));
    (whole.is_some() || erasures == 0).then_some(whole)
}

/// What a sweep keeps.
struct RetainedObjects<'a> {
    newest: &'a FoldedMergesEntry,
    /// The previous undamaged object since the last erasure, if there is one.
    spare: Option<&'a FoldedMergesEntry>,
    /// Rows before this one predate an erasure, or are deleted already.
    erased_through: u64,
    /// Rows before this one are in both objects.
    held_through: u64,
}

impl RetainedObjects<'_> {
    fn of(manifest: &Manifest) -> Option<RetainedObjects<'_>> {
        let (newest, older) = manifest.merges.split_last()?;
        let is_of_now = |entry: &&FoldedMergesEntry| entry.erasures == newest.erasures;
        let is_whole = |entry: &&FoldedMergesEntry| !manifest.damaged.contains(&entry.id);
        let spare = older.iter().rev().filter(is_of_now).find(is_whole);
        // The first object since the erasure; or, if it is deleted already, a later one, before which the rows
        // were deleted first.
        let first = manifest.merges.iter().find(is_of_now).filter(|_| newest.erasures > 0);
        let erased_through = first.map_or(0, |first| first.through);
        let held_through = spare.map_or(0, |spare| spare.through);
        Some(RetainedObjects { newest, spare, erased_through, held_through })
    }
}

impl MergeLog {
    /// Folds the rows of the log into an object, if there are many. Returns how many rows.
    pub(crate) async fn fold_merges(
        &self,
        project: ProjectId,
        clock: WorkClock,
    ) -> Result<usize, EventStoreError> {
        let manifest = self.manifests.load(project).await?;
        // If the newest object is damaged, the previous one is folded with the rows that are kept for this
        // case.
        let newest = manifest.merges.last().map_or(0, |entry| entry.through);
        let Some(folded) = whole(&manifest) else { return Ok(0) };
        let through = folded.map_or(0, |entry| entry.through);
        let rows = self.merges_after(project, through).await?;
        let left = self.rows_left + (folded.map_or(0, |entry| entry.merges) / MERGES_A_ROW) as usize;
        let next = rows.first().map(|row| row.number);
        // A gap after the object means that another process folds.
        let last = rows.last().map_or(through, |row| row.number);
        let is_lost = through < newest && newest <= last;
        if (rows.len() <= left && !is_lost) || next != Some(through + 1) {
            return Ok(0);
        }
        let mut merges = match folded {
            Some(entry) => match self.folded(entry).await {
                Ok(merges) => merges,
                // The damage is recorded, and the next run starts with the previous object.
                Err(EventStoreError::Damaged { .. }) => return Ok(0),
                Err(error) => return Err(error),
            },
            None => Vec::new(),
        };
        let (through, count) = (last, rows.len());
        merges.extend(rows.into_iter().flat_map(|row| row.merges));
        let bytes = Bytes::from(encode(&merges));
        let id = new_id(clock.now());
        let mut entry = FoldedMergesEntry {
            format: formats::MERGES,
            object: format!("merges/project={project}/{id}.bin"),
            through,
            merges: merges.len() as u64,
            erasures: manifest.erasures(),
            at: 0,
            head: 0,
            id,
        };
        self.objects.create_all(&[(entry.object.clone(), bytes)]).await?;
        entry.at = clock.now();
        if self.manifests.add(project, &manifest, EntryKind::FoldedMerges, &entry).await? {
            return Ok(count);
        }
        // Version conflict; the next run folds.
        self.objects.delete_all(vec![entry.object]).await?;
        Ok(0)
    }

    /// Deletes the rows that two objects hold, and after the grace period all older objects: if the newest is
    /// damaged, readers have the other one and the rows since.
    pub(crate) async fn sweep_merges(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let Some(kept) = RetainedObjects::of(manifest) else { return Ok(()) };
        let rows = self.merges_after(project, 0).await?;
        let is_due = |of: &FoldedMergesEntry| of.at.saturating_add(GRACE_MICROS) <= now;
        let erased = manifest.merges.iter().filter(|entry| {
            manifest.merges.iter().any(|later| later.erasures > entry.erasures && is_due(later))
        });
        self.drop_merge_rows(project, &rows, kept.erased_through).await?;
        self.drop_folded(project, &erased.collect::<Vec<_>>()).await?;
        let held = rows.iter().any(|row| (kept.erased_through..kept.held_through).contains(&row.number));
        let older = manifest.merges.iter().filter(|entry| {
            let is_kept = entry.id == kept.newest.id || kept.spare.is_some_and(|spare| spare.id == entry.id);
            // Without a spare object, damaged ones stay: they show up to which row the log was deleted.
            !is_kept && kept.spare.is_some() && entry.erasures == kept.newest.erasures && is_due(kept.newest)
        });
        let older = older.collect::<Vec<_>>();
        if !held && older.is_empty() {
            return Ok(());
        }
        match self.folded(kept.newest).await {
            Ok(_) => {}
            // The damage is recorded, and the next folding writes another object.
            Err(EventStoreError::Damaged { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
        self.drop_merge_rows(project, &rows, kept.held_through).await?;
        self.drop_folded(project, &older).await
    }

    /// Deletes the rows before row `through`, in order.
    async fn drop_merge_rows(
        &self,
        project: ProjectId,
        rows: &[MergeLogRow],
        through: u64,
    ) -> Result<(), EventStoreError> {
        let held = rows.iter().filter(|row| row.number < through);
        let held = held.map(|row| Write::Delete(keys::merge(project, row.number), WriteCondition::None));
        let held = held.collect::<Vec<_>>();
        // Each transaction is atomic, so no row is deleted while one before it exists.
        for some in held.chunks(TRANSACTION_WRITES_MAX) {
            self.records.transact(some.to_vec()).await?;
        }
        Ok(())
    }

    /// Deletes objects, their entries and damage markers.
    async fn drop_folded(
        &self,
        project: ProjectId,
        entries: &[&FoldedMergesEntry],
    ) -> Result<(), EventStoreError> {
        for entry in entries {
            self.objects.delete_all(vec![entry.object.clone()]).await?;
            self.manifests.remove(project, EntryKind::FoldedMerges, &entry.id).await?;
        }
        Ok(())
    }

    /// Reads the merges of an object.
    pub(crate) async fn folded(
        &self,
        entry: &FoldedMergesEntry,
    ) -> Result<Vec<PersonMerge>, EventStoreError> {
        let bytes = self.objects.get(&entry.object).await?;
        let read = tokio::task::spawn_blocking(move || decode(&bytes));
        read.await?
    }
}
