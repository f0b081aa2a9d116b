//! The older part of the log as one object.
//!
//! Must stay true: an object holds all merges up to the row that its entry names; rows go only when an entry that is
//! listed holds them, and the last row never goes, because the next one is numbered after it; they go in their order, by which a writer knows the last one
//! ([`super::write`]). A reader that finds the
//! rows it needs gone sees it by their numbers and reads the manifest again. The objects lie apart from those of events:
//! nothing that looks for objects which no segment or import names comes upon them.

use bytes::Bytes;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Guard, TRANSACTION_WRITES_MAX, Write};
use pennon_engine::scan::Micros;
use serde::{Deserialize, Serialize};

use super::{Merged, decode, encode};
use crate::EventStore;
use crate::error::EventStoreError;
use crate::keys;
use crate::manifest::{Manifest, new_id};
use crate::sweep::GRACE_MICROS;

/// Rows of the log that are left as they are: less than a page of the store.
const ROWS_LEFT: usize = 256;
/// Of folded merges, one row for so many of them may wait: folding writes all of them again.
const MERGES_A_ROW: u64 = 64;

/// The entry of an object with folded merges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MergesEntry {
    pub id: String,
    pub object: String,
    /// Number of the last row that is in it.
    pub through: u64,
    /// How many merges it holds.
    pub merges: u64,
    /// How many erasures the log has been through: what was remembered before the last one is not to be used.
    #[serde(default)]
    pub erasures: u64,
    /// When it was written.
    pub at: Micros,
    /// The version of the manifest that it came with.
    #[serde(default)]
    pub head: u64,
}

impl EventStore {
    /// Folds the rows of the log into an object, if there are many. Returns how many rows that were.
    pub(crate) async fn fold_merges(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<usize, EventStoreError> {
        let manifest = Manifest::load(&self.inner.store, project).await?;
        let folded = manifest.merges.last();
        let through = folded.map_or(0, |entry| entry.through);
        let rows = self.merges_after(project, through).await?;
        let left = ROWS_LEFT + (folded.map_or(0, |entry| entry.merges) / MERGES_A_ROW) as usize;
        let next = rows.first().map(|row| row.number);
        // Rows that do not follow the object are of somebody who folds too.
        if rows.len() <= left || next != Some(through + 1) {
            return Ok(0);
        }
        let mut merges = match folded {
            Some(entry) => self.folded(entry).await?,
            None => Vec::new(),
        };
        let through = rows.last().map_or(through, |row| row.number);
        let count = rows.len();
        merges.extend(rows.into_iter().flat_map(|row| row.merges));
        let bytes = Bytes::from(encode(&merges));
        let id = new_id(now);
        let entry = MergesEntry {
            object: format!("merges/project={project}/{id}.bin"),
            through,
            merges: merges.len() as u64,
            erasures: manifest.erasures(),
            at: now,
            head: 0,
            id,
        };
        self.inner.objects.create_all(&[(entry.object.clone(), bytes)]).await?;
        if manifest.add(&self.inner.store, project, keys::MERGES, &entry.id, &entry).await? {
            return Ok(count);
        }
        // Somebody else changed the manifest; the next run folds.
        self.inner.objects.delete_all(vec![entry.object]).await?;
        Ok(0)
    }

    /// Removes the rows that the newest object holds, and older objects after the grace period.
    pub(crate) async fn sweep_merges(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let Some((newest, older)) = manifest.merges.split_last() else { return Ok(()) };
        let rows = self.merges_after(project, 0).await?;
        let held = rows.iter().filter(|row| row.number < newest.through);
        let held = held.map(|row| Write::Delete(keys::merge(project, row.number), Guard::None));
        let held = held.collect::<Vec<_>>();
        // Each transaction is seen whole or not at all, so no row is gone while one before it is there.
        for some in held.chunks(TRANSACTION_WRITES_MAX) {
            self.inner.store.records.transact(some.to_vec()).await?;
        }
        if newest.at.saturating_add(GRACE_MICROS) <= now {
            for entry in older {
                self.inner.objects.delete_all(vec![entry.object.clone()]).await?;
                let key = keys::entry(project, keys::MERGES, &entry.id);
                self.inner.store.records.sweep(vec![key]).await?;
            }
        }
        Ok(())
    }

    /// The merges of an object.
    pub(crate) async fn folded(&self, entry: &MergesEntry) -> Result<Vec<Merged>, EventStoreError> {
        let bytes = self.inner.objects.get(&entry.object).await?;
        let read = tokio::task::spawn_blocking(move || decode(&bytes));
        read.await?
    }
}
