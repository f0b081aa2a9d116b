//! Segments in which many persons have become others since they were written.
//!
//! A question puts the rows of such persons where they belong, each time anew; so a segment with many of them is written
//! once more, under the persons of now. Must stay true: a run looks at a bounded number of segments and writes one; a
//! segment that was looked at is left alone until so many more persons have been linked that it may be due; once written
//! anew it is not due by the same links, so that this ends. Links stay in the log whatever is folded into segments: they
//! are also what tells who a distinct id is that comes again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::manifest::state::{Manifest, SegmentEntry};
use crate::persons::person_merges::PersonMerges;

/// One in so many persons of a segment makes it worth writing anew.
const SHARE: usize = 8;
/// Segments of which one run reads the persons.
const LOOKED_AT_ONCE: usize = 8;
/// A segment of fewer rows than this part of a person range is left to the tiers: it will be merged soon.
const SMALL: u64 = 8;
/// Segments that are remembered.
const REMEMBERED: usize = 16_384;

/// By id of a segment: at how many linked persons it may be due.
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
        // Of segments that are gone by now nobody asks any more.
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(id.to_owned(), due);
    }
}

impl EventStore {
    /// A segment that is to be written anew because of its persons, if there is one.
    pub(crate) async fn segment_with_stale_persons(
        &self,
        project: ProjectId,
        manifest: &Manifest,
    ) -> Result<Option<SegmentEntry>, EventStoreError> {
        let failed = self.inner.merge_failures.failed();
        let person_merges = self.person_merges(project).await?;
        let linked = person_merges.count();
        if linked == 0 {
            return Ok(None);
        }
        let least = (self.range_rows() as u64 / SMALL).max(1);
        let due = manifest.segments.iter().filter(|entry| {
            entry.rows >= least
                && !manifest.damaged.contains(&entry.id)
                && !failed.is_excluded(&entry.id)
                && !self.inner.stale_person_checks.is_early(&entry.id, linked)
        });
        for entry in due.take(LOOKED_AT_ONCE) {
            let Some(persons) = &entry.persons else { continue };
            let bytes = match self.inner.objects.get(persons).await {
                Ok(bytes) => bytes,
                // That is noted; or it was replaced meanwhile. The others go on.
                Err(EventStoreError::Damaged { .. } | EventStoreError::Contended) => continue,
                Err(error) => return Err(error),
            };
            let person_merges = person_merges.clone();
            let (moved, all) = tokio::task::spawn_blocking(move || moved(&bytes, &person_merges)).await?;
            if moved > 0 && moved * SHARE >= all {
                return Ok(Some(entry.clone()));
            }
            // Each link moves one person, and those who are that person already.
            self.inner
                .stale_person_checks
                .note(&entry.id, linked + (all.div_ceil(SHARE) - moved.min(all / SHARE)).max(1));
        }
        Ok(None)
    }
}

/// How many of these persons, 16 bytes each, are others by now; and how many there are.
fn moved(persons: &[u8], person_merges: &PersonMerges) -> (usize, usize) {
    let (ids, _) = persons.as_chunks::<16>();
    let is_moved = |id: &&[u8; 16]| {
        let id = Uuid::from_bytes(**id);
        person_merges.person(id) != id
    };
    (ids.iter().filter(is_moved).count(), ids.len())
}
