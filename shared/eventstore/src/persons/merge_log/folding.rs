//! The older part of the log as one object.
//!
//! Must stay true: an object holds all merges up to the row that its entry names; rows go only when two entries that are
//! listed hold them and the newest one has been read back, so that one damaged object loses nothing; but rows and objects
//! from before an erasure, which name who was erased, are used by nobody once it is done, and go whatever is damaged. The
//! last row never goes, because the next one is numbered after it; they go in their order, by which a writer knows the
//! last one ([`super::append`]). A reader that finds the
//! rows it needs gone sees it by their numbers and reads the manifest again. The objects lie apart from those of events:
//! nothing that looks for objects which no segment or import names comes upon them.

use bytes::Bytes;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Guard, TRANSACTION_WRITES_MAX, Write};
use pennon_engine::scan::Micros;
use serde::{Deserialize, Serialize};

use super::{MergeLogRow, PersonMerge, decode, encode};
use crate::EventStore;
use crate::compaction::sweep::GRACE_MICROS;
use crate::error::EventStoreError;
use crate::integrity::formats;
use crate::keys;
use crate::manifest::state::{Manifest, new_id};
use crate::time::WorkClock;

/// Rows of the log that are left as they are: less than a page of the store.
const ROWS_LEFT: usize = 256;
/// Of folded merges, one row for so many of them may wait: folding writes all of them again.
const MERGES_A_ROW: u64 = 64;

/// The entry of an object with folded merges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoldedMergesEntry {
    pub id: String,
    /// Form of the object.
    #[serde(default = "formats::first")]
    pub format: u32,
    pub object: String,
    /// Number of the last row that is in it.
    pub through: u64,
    /// How many merges it holds.
    pub merges: u64,
    /// How many erasures the log has been through: what was remembered before the last one is not to be used.
    #[serde(default)]
    pub erasures: u64,
    /// When it was listed.
    pub at: Micros,
    /// The version of the manifest that it came with.
    #[serde(default)]
    pub head: u64,
}

/// The newest object that is not known to be damaged, or within that none where the log begins with its first row.
/// None at all where somebody was erased from the log since: its rows would bring them back.
fn whole(manifest: &Manifest) -> Option<Option<&FoldedMergesEntry>> {
    let erasures = manifest.erasures();
    let mut of_now = manifest.merges.iter().rev().filter(|entry| entry.erasures == erasures);
    let whole = of_now.find(|entry| !manifest.damaged.contains(&entry.id));
    (whole.is_some() || erasures == 0).then_some(whole)
}

/// What a sweep leaves.
struct RetainedObjects<'a> {
    newest: &'a FoldedMergesEntry,
    /// The object before, where there is one that nobody was erased since and that is not known to be damaged.
    spare: Option<&'a FoldedMergesEntry>,
    /// Rows before this one are from before an erasure, or have gone already.
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
        // The first object since the erasure, or if that is gone by now, one before which the rows went before it.
        let first = manifest.merges.iter().find(is_of_now).filter(|_| newest.erasures > 0);
        let erased_through = first.map_or(0, |first| first.through);
        let held_through = spare.map_or(0, |spare| spare.through);
        Some(RetainedObjects { newest, spare, erased_through, held_through })
    }
}

impl EventStore {
    /// Folds the rows of the log into an object, if there are many. Returns how many rows that were.
    pub(crate) async fn fold_merges(
        &self,
        project: ProjectId,
        clock: WorkClock,
    ) -> Result<usize, EventStoreError> {
        let manifest = Manifest::load(&self.inner.store, project).await?;
        // Where the newest object is damaged, what the one before holds is folded with the rows that are kept for it.
        let newest = manifest.merges.last().map_or(0, |entry| entry.through);
        let Some(folded) = whole(&manifest) else { return Ok(0) };
        let through = folded.map_or(0, |entry| entry.through);
        let rows = self.merges_after(project, through).await?;
        let left = ROWS_LEFT + (folded.map_or(0, |entry| entry.merges) / MERGES_A_ROW) as usize;
        let next = rows.first().map(|row| row.number);
        // Rows that do not follow the object are of somebody who folds too.
        let last = rows.last().map_or(through, |row| row.number);
        let is_lost = through < newest && newest <= last;
        if (rows.len() <= left && !is_lost) || next != Some(through + 1) {
            return Ok(0);
        }
        let mut merges = match folded {
            Some(entry) => match self.folded(entry).await {
                Ok(merges) => merges,
                // It is noted, and the next run begins with the one before.
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
        self.inner.objects.create_all(&[(entry.object.clone(), bytes)]).await?;
        entry.at = clock.now();
        if manifest.add(self, project, keys::MERGES, &entry.id, &entry).await? {
            return Ok(count);
        }
        // Somebody else changed the manifest; the next run folds.
        self.inner.objects.delete_all(vec![entry.object]).await?;
        Ok(0)
    }

    /// Removes the rows that two objects hold, and after the grace period the objects before these two: who finds the
    /// newest one damaged has the other one, and the rows since.
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
            // Without a spare one, what is damaged stays as well: it tells up to where rows went.
            !is_kept && kept.spare.is_some() && entry.erasures == kept.newest.erasures && is_due(kept.newest)
        });
        let older = older.collect::<Vec<_>>();
        if !held && older.is_empty() {
            return Ok(());
        }
        match self.folded(kept.newest).await {
            Ok(_) => {}
            // It is noted, and the next folding writes another one.
            Err(EventStoreError::Damaged { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
        self.drop_merge_rows(project, &rows, kept.held_through).await?;
        self.drop_folded(project, &older).await
    }

    /// Removes those of `rows` that are before row `through`, in their order.
    async fn drop_merge_rows(
        &self,
        project: ProjectId,
        rows: &[MergeLogRow],
        through: u64,
    ) -> Result<(), EventStoreError> {
        let held = rows.iter().filter(|row| row.number < through);
        let held = held.map(|row| Write::Delete(keys::merge(project, row.number), Guard::None));
        let held = held.collect::<Vec<_>>();
        // Each transaction is seen whole or not at all, so no row is gone while one before it is there.
        for some in held.chunks(TRANSACTION_WRITES_MAX) {
            self.inner.store.records.transact(some.to_vec()).await?;
        }
        Ok(())
    }

    /// Removes objects, their entries and what is noted of them.
    async fn drop_folded(
        &self,
        project: ProjectId,
        entries: &[&FoldedMergesEntry],
    ) -> Result<(), EventStoreError> {
        for entry in entries {
            self.inner.objects.delete_all(vec![entry.object.clone()]).await?;
            let keys = [keys::MERGES, keys::DAMAGED].map(|prefix| keys::entry(project, prefix, &entry.id));
            self.inner.store.records.sweep(keys.to_vec()).await?;
        }
        Ok(())
    }

    /// The merges of an object.
    pub(crate) async fn folded(
        &self,
        entry: &FoldedMergesEntry,
    ) -> Result<Vec<PersonMerge>, EventStoreError> {
        let bytes = self.inner.objects.get(&entry.object).await?;
        let read = tokio::task::spawn_blocking(move || decode(&bytes));
        read.await?
    }
}
