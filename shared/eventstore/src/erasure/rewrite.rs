//! Rewrites segments and imports without the erased persons, as new objects.
//!
//! Must stay true: nothing is listed here; after a version conflict, rewritten objects are reused only for the
//! same erasure of the same source objects.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use bytes::Bytes;
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::Eraser;
use crate::error::EventStoreError;
use crate::manifest::{EntryKind, Manifest, RecordsEntry, SegmentEntry};
use crate::persons::{ErasureFilter, PersonMerges};
use crate::segments::NewSegment;
use crate::segments::reader::times;

/// Rewritten objects that are not listed yet.
#[derive(Default)]
pub(super) struct RewrittenFiles {
    /// The persons that were left out.
    persons: Arc<BTreeSet<Uuid>>,
    /// By source segment id.
    pub segments: HashMap<String, NewSegment>,
    /// By source object: an import entry keeps its id when another erasure rewrites it.
    records: HashMap<String, RecordsEntry>,
}

impl Eraser {
    /// Returns `rewritten` if it was made for the same persons; otherwise deletes it.
    pub(super) async fn reusable_for(
        &self,
        rewritten: RewrittenFiles,
        persons: &Arc<BTreeSet<Uuid>>,
    ) -> Result<RewrittenFiles, EventStoreError> {
        if rewritten.persons == *persons {
            return Ok(rewritten);
        }
        self.discard(rewritten).await?;
        Ok(RewrittenFiles { persons: persons.clone(), ..RewrittenFiles::default() })
    }

    /// Deletes the unused objects.
    pub(super) async fn discard(&self, rewritten: RewrittenFiles) -> Result<(), EventStoreError> {
        for new in rewritten.segments.values() {
            self.segments.drop_objects(new).await?;
        }
        self.imports.delete_unlisted(rewritten.records.into_values()).await
    }
}

impl RewrittenFiles {
    /// Forgets the entries that are listed now.
    pub(super) fn listed(&mut self, segments: &[SegmentEntry], records: &[(EntryKind, u64, RecordsEntry)]) {
        self.segments.retain(|_, new| segments.iter().all(|entry| entry.id != new.entry.id));
        self.records
            .retain(|_, rewritten| records.iter().all(|(_, _, entry)| entry.object != rewritten.object));
    }
}

impl Eraser {
    /// Writes the replacement of segment `entry` and returns its entry; its objects are stored.
    pub(super) async fn rewrite_segment(
        &self,
        project: ProjectId,
        entry: &SegmentEntry,
        (erase, person_merges): (&ErasureFilter, &PersonMerges),
        rewritten: &mut RewrittenFiles,
        now: Micros,
    ) -> Result<SegmentEntry, EventStoreError> {
        if let Some(known) = rewritten.segments.get(&entry.id) {
            return Ok(known.entry.clone());
        }
        let entries = std::slice::from_ref(entry);
        let mut new = self.merger.merged_segment(project, entries, erase, person_merges, now).await?;
        self.segments.write_objects(&new).await?;
        new.forget_content();
        let left = new.entry.clone();
        rewritten.segments.insert(entry.id.clone(), new);
        Ok(left)
    }

    /// Rewrites the imports that have records of `erase.persons`, without these records.
    pub(super) async fn rewrite_records(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        erase: &ErasureFilter,
        rewritten: &mut RewrittenFiles,
        now: Micros,
    ) -> Result<Vec<(EntryKind, u64, RecordsEntry)>, EventStoreError> {
        let mut records = Vec::new();
        let objects = self.imports.persons_objects(project, manifest).await?;
        for (entry, object) in manifest.persons.iter().zip(objects) {
            let named = |ids: &[Uuid]| ids.iter().any(|id| erase.persons.contains(id));
            let stays = object.records().map(|ids| !named(ids)).collect::<Vec<_>>();
            if stays.iter().all(|stays| *stays) {
                continue;
            }
            let left = match rewritten.records.get(&entry.object).cloned() {
                Some(left) => left,
                None => self.imports.write_kept(project, entry, &object, stays, now).await?,
            };
            rewritten.records.insert(entry.object.clone(), left.clone());
            records.push((EntryKind::Persons, manifest.version_of(&entry.id), left));
        }
        Ok(records)
    }

    /// Counts the events of a segment that the filter selects.
    pub(super) async fn count_in(
        &self,
        entry: &SegmentEntry,
        erase: &ErasureFilter,
    ) -> Result<u64, EventStoreError> {
        if entry.rows == 0 || erase.before.is_some_and(|before| entry.min_time >= before) {
            return Ok(0);
        }
        if erase.covers(entry) {
            return Ok(entry.rows);
        }
        let file = self.segments.open(entry).await?;
        let persons = match erase.persons.is_empty() {
            true => Bytes::new(),
            false => self.segments.person_ids(entry).await?.unwrap_or_default(),
        };
        let mut persons = persons.as_chunks::<16>().0;
        let (mut count, before) = (0, erase.before.unwrap_or(Micros::MIN));
        for (group, range) in file.footer.ranges.iter().enumerate() {
            let own = persons.split_off(..(range.persons as usize).min(persons.len())).unwrap_or_default();
            let is_named = own.iter().map(|id| erase.persons.contains(&Uuid::from_bytes(*id)));
            let named = is_named.collect::<Vec<_>>();
            if erase.before.is_none() && !named.contains(&true) {
                continue;
            }
            let columns = ["person_code".to_owned(), "timestamp".to_owned()];
            for batch in file.decode(group, None, &columns).await?.batches {
                let codes = batch.column_by_name("person_code");
                let codes = codes.and_then(|codes| codes.as_primitive_opt::<UInt32Type>());
                let codes =
                    codes.ok_or_else(|| EventStoreError::corrupt("a segment without person codes"))?;
                let rows = codes.values().iter().zip(times(&batch)?);
                let is_erased = |(code, time): &(&u32, Micros)| {
                    *time < before || named.get(**code as usize) == Some(&true)
                };
                count += rows.filter(is_erased).count() as u64;
            }
        }
        Ok(count)
    }
}
