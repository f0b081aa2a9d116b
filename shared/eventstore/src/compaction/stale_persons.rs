//! Finds segments in which many persons were merged since they were written.
//!
//! A query moves the rows of such persons at read time, every time; so a segment with many of them is rewritten
//! under the canonical persons. Must stay true: a run checks a bounded number of segments and selects one. A
//! checked segment is not checked again before enough further persons were merged. A rewritten segment is not
//! selected again for the same merges, so this ends. Merges stay in the log after the rewrite: they also map
//! distinct ids that appear again later.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::compact::Compactor;
use super::merge_failures::FailedMerges;
use crate::error::EventStoreError;
use crate::manifest::{Manifest, SegmentEntry};
use crate::persons::PersonMerges;

/// A segment is rewritten when one in so many of its persons was merged.
const SHARE: usize = 8;
/// Segments whose persons one run reads.
const LOOKED_AT_ONCE: usize = 8;
/// Segments smaller than this fraction of a person range are left to the merge policy.
const SMALL: u64 = 8;
/// Most remembered segments.
const REMEMBERED: usize = 16_384;

/// By segment id: the number of merged persons from which the segment is checked again.
#[derive(Debug, Default)]
pub(crate) struct StalePersonChecks(Mutex<HashMap<String, usize>>);

impl StalePersonChecks {
    fn known(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_early(&self, id: &str, linked: usize) -> bool {
        self.known().get(id).is_some_and(|due| linked < *due)
    }

    fn note(&self, id: &str, due: usize) {
        let mut known = self.known();
        // Drops entries of segments that no longer exist, too.
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(id.to_owned(), due);
    }
}

impl Compactor {
    /// Selects a segment to rewrite because of merged persons, if there is one.
    pub(crate) async fn segment_with_stale_persons(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        failed: &FailedMerges,
    ) -> Result<Option<SegmentEntry>, EventStoreError> {
        let person_merges = self.index.person_merges(project).await?;
        let linked = person_merges.count();
        if linked == 0 {
            return Ok(None);
        }
        let least = (self.segments.range_rows as u64 / SMALL).max(1);
        let due = manifest.segments.iter().filter(|entry| {
            entry.rows >= least
                && !manifest.damaged.contains(&entry.id)
                && !failed.is_excluded(&entry.id)
                && !self.stale_person_checks.is_early(&entry.id, linked)
        });
        for entry in due.take(LOOKED_AT_ONCE) {
            let bytes = match self.segments.person_ids(entry).await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => continue,
                // Damage is recorded elsewhere; or the segment was replaced meanwhile. The others go on.
                Err(EventStoreError::Damaged { .. } | EventStoreError::Contended) => continue,
                Err(error) => return Err(error),
            };
            let person_merges = person_merges.clone();
            let (moved, all) = tokio::task::spawn_blocking(move || moved(&bytes, &person_merges)).await?;
            if moved > 0 && moved * SHARE >= all {
                return Ok(Some(entry.clone()));
            }
            // Each merge moves one person, and those merged into it before.
            self.stale_person_checks
                .note(&entry.id, linked + (all.div_ceil(SHARE) - moved.min(all / SHARE)).max(1));
        }
        Ok(None)
    }
}

/// Of these person ids, 16 bytes each: how many were merged, and how many there are.
fn moved(persons: &[u8], person_merges: &PersonMerges) -> (usize, usize) {
    let (ids, _) = persons.as_chunks::<16>();
    let is_moved = |id: &&[u8; 16]| {
        let id = Uuid::from_bytes(**id);
        person_merges.person(id) != id
    };
    (ids.iter().filter(is_moved).count(), ids.len())
}
