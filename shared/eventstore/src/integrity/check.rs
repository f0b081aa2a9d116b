//! Full verification of stored data, and removal of damaged data on request.
//!
//! Must stay true: every byte of every object in the manifest, and of every waiting block, is read and
//! verified; memory is bounded; a damage marker is removed only when all objects of the segment are intact;
//! events are dropped only when an operator names their segment or block.

use std::sync::Arc;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;

use crate::blocks::BlockLog;
use crate::error::EventStoreError;
use crate::keys::BlockId;
use crate::manifest::{
    ChangeOutcome, FoldedMergesEntry, ManifestChange, ManifestStore, RecordsEntry, SegmentEntry,
};
use crate::objects::{Damage, Objects, Quarantine, RetryBudget};
use crate::persons::MergeLog;
use crate::segments::{NewSegment, SegmentStore};
use crate::settings::Settings;
use crate::time::WorkClock;

/// Bytes of one read.
const PIECE: u64 = 8 << 20;

/// Progress of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckProgress {
    /// Objects read so far.
    pub objects: usize,
    /// Objects in total.
    pub of: usize,
}

/// Result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Intact objects, without checksum files.
    pub objects: usize,
    /// Intact blocks.
    pub blocks: usize,
    /// The bytes of both.
    pub bytes: u64,
    /// What is damaged.
    pub damaged: Vec<DamagedSegment>,
    /// Ids of segments, imports and blocks whose damage marker was removed, because they are intact.
    pub lifted: Vec<String>,
    /// Ids that are marked as damaged although they are intact.
    pub restored: Vec<String>,
}

/// A damaged segment, import of persons or groups, object with folded merges, or block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedSegment {
    /// Its id.
    pub id: String,
    /// What it holds: `events`, `persons`, `groups` or `merges`; `block` is a block of captured
    /// events, and `merge row` a row of the log of merges.
    pub kind: &'static str,
    /// Number of items; 0 for a block, whose number is unknown.
    pub events: u64,
    /// Time of its first event, in microseconds since the epoch. For persons and groups the time of the import,
    /// for merges of the folding, for a block its arrival.
    pub from: Micros,
    /// Time of its last event; otherwise as above.
    pub to: Micros,
    /// The error, by object.
    pub findings: Vec<Damage>,
}

/// The objects of one manifest entry.
struct CheckedEntry {
    id: String,
    kind: &'static str,
    rows: u64,
    times: (Micros, Micros),
    objects: Vec<String>,
}

impl CheckedEntry {
    fn of_segment(entry: &SegmentEntry) -> CheckedEntry {
        CheckedEntry {
            id: entry.id.clone(),
            kind: "events",
            rows: entry.rows,
            times: (entry.min_time, entry.max_time),
            objects: entry.objects().cloned().collect(),
        }
    }

    fn of_merges(entry: &FoldedMergesEntry) -> CheckedEntry {
        let (id, rows, times) = (entry.id.clone(), entry.merges, (entry.at, entry.at));
        CheckedEntry { id, kind: "merges", rows, times, objects: vec![entry.object.clone()] }
    }

    fn of_records(kind: &'static str, entry: &RecordsEntry) -> CheckedEntry {
        let (id, rows, times) = (entry.id.clone(), entry.rows, (entry.at, entry.at));
        CheckedEntry { id, kind, rows, times, objects: entry.files().collect() }
    }
}

/// Verifies stored data completely, and drops damaged data on request.
#[derive(Debug)]
pub(crate) struct IntegrityChecker {
    pub(super) manifests: Arc<ManifestStore>,
    pub(super) quarantine: Quarantine,
    objects: Objects,
    pub(super) blocks: Arc<BlockLog>,
    segments: Arc<SegmentStore>,
    log: Arc<MergeLog>,
    settings: Settings,
}

impl IntegrityChecker {
    pub(crate) fn new(
        manifests: Arc<ManifestStore>,
        objects: Objects,
        quarantine: Quarantine,
        blocks: Arc<BlockLog>,
        segments: Arc<SegmentStore>,
        log: Arc<MergeLog>,
        settings: Settings,
    ) -> IntegrityChecker {
        IntegrityChecker { manifests, quarantine, objects, blocks, segments, log, settings }
    }

    /// Verifies all objects and waiting blocks of a project. Damage is marked as if a reader had found it; with
    /// `lift`, markers of intact data are removed.
    pub(crate) async fn check(
        &self,
        project: ProjectId,
        lift: bool,
        progress: &mut (dyn FnMut(CheckProgress) + Send),
    ) -> Result<CheckReport, EventStoreError> {
        let manifest = self.manifests.load(project).await?;
        let damage_markers = self.quarantine.damage(project).await?;
        let segments = manifest.segments.iter().map(CheckedEntry::of_segment);
        let persons = manifest.persons.iter().map(|entry| CheckedEntry::of_records("persons", entry));
        let groups = manifest.groups.iter().map(|entry| CheckedEntry::of_records("groups", entry));
        let merges = manifest.merges.iter().map(CheckedEntry::of_merges);
        let entries = segments.chain(persons).chain(groups).chain(merges).collect::<Vec<_>>();
        let of = entries.iter().map(|entry| entry.objects.len()).sum();
        let (mut checked, mut read) = (CheckReport::default(), 0);
        for entry in entries {
            let mut findings = Vec::new();
            for object in &entry.objects {
                match self.check_object(object).await {
                    Ok(bytes) => {
                        checked.objects += 1;
                        checked.bytes += bytes;
                    }
                    Err(EventStoreError::Damaged { object, what }) => {
                        let at = chrono::Utc::now().timestamp_micros();
                        findings.push(Damage { object, what, at });
                    }
                    // Replaced and removed during the check.
                    Err(EventStoreError::Contended) => {}
                    Err(error) => return Err(error),
                }
                read += 1;
                progress(CheckProgress { objects: read, of });
            }
            findings.dedup_by(|a, b| a.object == b.object);
            let (from, to) = entry.times;
            if !findings.is_empty() {
                let (id, kind, events) = (entry.id, entry.kind, entry.rows);
                checked.damaged.push(DamagedSegment { id, kind, events, from, to, findings });
            } else if damage_markers.contains_key(&entry.id) && lift {
                self.quarantine.lift(project, &entry.id).await?;
                checked.lifted.push(entry.id);
            } else if damage_markers.contains_key(&entry.id) {
                checked.restored.push(entry.id);
            }
        }
        checked.damaged.extend(self.check_merge_rows(project).await?);
        self.check_blocks(project, &damage_markers, lift, &mut checked).await?;
        Ok(checked)
    }

    /// The first damaged row of the merge log.
    async fn check_merge_rows(&self, project: ProjectId) -> Result<Option<DamagedSegment>, EventStoreError> {
        match self.log.merges_after(project, 0).await {
            Ok(_) => Ok(None),
            Err(EventStoreError::Damaged { object, what }) => {
                let at = chrono::Utc::now().timestamp_micros();
                let (id, findings) = (object.clone(), vec![Damage { object, what, at }]);
                Ok(Some(DamagedSegment { id, kind: "merge row", events: 0, from: at, to: at, findings }))
            }
            Err(error) => Err(error),
        }
    }

    /// Verifies an object without using cached checksums. Returns its size.
    async fn check_object(&self, object: &str) -> Result<u64, EventStoreError> {
        let objects = &self.objects;
        objects.forget(object);
        let size = objects.size(object).await?;
        objects.require_size(object, size).await?;
        for start in (0..size).step_by(PIECE as usize) {
            objects.ranges(object, std::slice::from_ref(&(start..size.min(start + PIECE)))).await?;
        }
        Ok(size)
    }

    /// Removes a segment or an import from the manifest permanently; its objects are deleted like those of a
    /// replaced one. A block is removed only if it is damaged. Returns false when the project has none with
    /// this id.
    pub(crate) async fn drop_segment(
        &self,
        project: ProjectId,
        id: &str,
        now: Micros,
    ) -> Result<bool, EventStoreError> {
        if let Ok(block) = id.parse::<BlockId>() {
            return self.drop_block(project, block).await;
        }
        let clock = WorkClock::start(now);
        let mut retries = RetryBudget::for_command(&self.settings);
        loop {
            let seen = self.manifests.load(project).await;
            let Some(manifest) = retries.optimistic_read(seen).await? else { continue };
            let now = clock.now();
            let import = manifest.all_records().find(|(_, entry)| entry.id == id);
            let is_segment = manifest.segments.iter().any(|entry| entry.id == id);
            let is_dropped = if let Some((prefix, entry)) = import {
                let records = [(prefix, manifest.version_of(id), entry.emptied(now))];
                let change = ManifestChange { records: &records, ..ManifestChange::default() };
                self.manifests.apply(project, &manifest, &change).await? == ChangeOutcome::Applied
            } else if is_segment {
                // An empty segment that replaces it.
                let mut new = NewSegment::new(project, now);
                new.entry.replaces_segments = vec![id.to_owned()];
                self.segments.list(project, &manifest, &new).await?
            } else {
                return Ok(false);
            };
            if is_dropped {
                tracing::warn!(project, segment = id, "a segment was dropped");
                self.quarantine.lift(project, id).await?;
                return Ok(true);
            }
            retries.after_conflict().await?;
        }
    }
}
