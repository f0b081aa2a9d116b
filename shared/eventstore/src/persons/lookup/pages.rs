//! Iterates over all persons of a project, a page at a time, with all their data.
//!
//! Must stay true: the count and the iteration cover the same persons, whatever waits for compaction; memory
//! holds the ids of all persons and one page of data; no page reads a row of the table for each person.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::scan_all::{check_rows, too_many};
use super::{PersonDetails, PersonLookup, PersonsSnapshot};
use crate::error::EventStoreError;
use crate::persons::profiles::Profile;

/// Most persons of an iteration.
const COUNTED_MAX: usize = 5_000_000;
/// Persons of a page, at least and at most. Each page opens the profile file of every segment.
const PAGE: RangeInclusive<usize> = 10_000..=250_000;
/// Compressed bytes of data of a page, on average.
const PAGE_BYTES: u64 = 8 << 20;

/// An iteration over the persons of a project at one moment.
pub struct PersonScan {
    project: ProjectId,
    now: PersonsSnapshot,
    /// Remaining ids, ascending.
    ids: Vec<Uuid>,
    at: usize,
    /// Persons of a page.
    page: usize,
}

impl PersonScan {
    /// Number of persons.
    pub fn count(&self) -> usize {
        self.ids.len()
    }
}

impl PersonLookup {
    /// Counts the persons of a project.
    ///
    /// [`EventStoreError::TooLarge`] above five million.
    pub(crate) async fn count_people(&self, project: ProjectId) -> Result<u64, EventStoreError> {
        let now = self.now(project, None).await?;
        Ok(self.person_ids(project, &now).await?.len() as u64)
    }

    /// Starts an iteration for [`PersonLookup::next_person_page`].
    ///
    /// [`EventStoreError::TooLarge`] above five million.
    pub(crate) async fn scan_all_persons(&self, project: ProjectId) -> Result<PersonScan, EventStoreError> {
        let now = self.now(project, None).await?;
        let found = self.person_ids(project, &now).await?;
        let sorted = tokio::task::spawn_blocking(move || {
            let mut ids: Vec<Uuid> = found.into_iter().collect();
            ids.sort_unstable();
            ids
        });
        let ids = sorted.await?;
        let page = page_of(ids.len(), profile_bytes(&now));
        Ok(PersonScan { project, now, ids, at: 0, page })
    }

    /// The next page; empty at the end.
    pub(crate) async fn next_person_page(
        &self,
        every: &mut PersonScan,
    ) -> Result<Vec<PersonDetails>, EventStoreError> {
        let PersonScan { project, now, ids, at, page } = every;
        let page = &ids[*at..(*at + *page).min(ids.len())];
        *at += page.len();
        match page {
            [] => Ok(Vec::new()),
            page => self.persons_without_marks(*project, now, page).await,
        }
    }

    /// Collects the ids of all persons.
    async fn person_ids(
        &self,
        project: ProjectId,
        now: &PersonsSnapshot,
    ) -> Result<HashSet<Uuid>, EventStoreError> {
        check_rows(now)?;
        let objects = self.imports.persons_objects(project, &now.manifest).await?;
        let merge_state = now.merge_state.clone();
        let found = tokio::task::spawn_blocking(move || {
            let ids = objects.iter().flat_map(|object| object.records()).filter_map(<[Uuid]>::first);
            ids.map(|id| merge_state.person_merges.person(*id)).collect::<HashSet<_>>()
        });
        let mut found = found.await?;
        for entry in now.manifest.segments.iter().filter(|entry| entry.has_profiles()) {
            let Some(ids) = entry.id_file()? else { continue };
            let file = self.segments.open_profile_file(ids).await?;
            for group in 0..file.groups() {
                let decoded = file.decode(group, None, &["id"]).await?;
                let merge_state = now.merge_state.clone();
                let added = tokio::task::spawn_blocking(move || {
                    for batch in &decoded.batches {
                        let ids = crate::segments::reader::ids(batch, "id")?;
                        found.extend(ids.into_iter().map(|id| merge_state.person_merges.person(id)));
                    }
                    Ok::<_, EventStoreError>(found)
                });
                found = added.await??;
                if found.len() > COUNTED_MAX {
                    return Err(too_many("persons", COUNTED_MAX));
                }
            }
        }
        let waiting_events =
            self.duplicates.not_in_segments(&now.manifest, now.waiting_events.clone()).await?;
        // As in segments, an id that an event names besides its own counts too.
        let waiting_events = Profile::of_rows(project, &waiting_events);
        found.extend(waiting_events.ids.keys().map(|id| now.merge_state.person_merges.person(*id)));
        Ok(found)
    }
}

/// The size of the stored data of all persons.
fn profile_bytes(now: &PersonsSnapshot) -> u64 {
    let of_events = now.manifest.segments.iter().filter_map(|entry| Some(entry.ids.as_ref()?.bytes));
    of_events.chain(now.manifest.persons.iter().map(|entry| entry.bytes)).sum()
}

/// How many persons a page has, of this many persons with data of this size.
fn page_of(persons: usize, bytes: u64) -> usize {
    let bytes_of_one = (bytes / persons.max(1) as u64).max(1);
    let fitting = usize::try_from(PAGE_BYTES / bytes_of_one).unwrap_or(usize::MAX);
    fitting.clamp(*PAGE.start(), *PAGE.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_little_data_have_more_persons() {
        assert_eq!(page_of(0, 0), 250_000);
        assert_eq!(page_of(1_000_000, 20_000_000), 250_000, "20 bytes each");
        assert_eq!(page_of(1_000_000, 100_000_000), 83_886);
        assert_eq!(page_of(1_000_000, 100_000_000_000), 10_000);
    }
}
