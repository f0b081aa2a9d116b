//! Erasure and retention: permanently removes a person, the whole history of a project, or events before an
//! instant.
//!
//! Affected segments are rewritten without the erased data and replaced in one transaction, so every later
//! reader of the manifest sees none of it, in scans, persons, flags and groups alike, and no reader needs to
//! know of erasures. The old objects are deleted by the sweep after the grace period. Waiting blocks are
//! compacted first, so events that were acknowledged before the erasure began are erased too; later ones stay.
//! If a block is damaged, nothing is erased, because its content is unknown.
//!
//! A person is erased with its imported records, its merges ([`crate::persons::merge_log`]), its entries in
//! lists of static cohorts ([`crate::persons::cohort_lists`]) and its overrides of experience continuity; one
//! of its distinct ids that appears again is a new person. A whole project is erased without reading its data
//! ([`whole_project`]).
//!
//! Must stay true: events, persons and merges are erased atomically; no data of other persons changes; a
//! partial erasure is completed by repeating the call. The public interface is [`Eraser`].

mod rewrite;
mod whole_project;

use std::sync::Arc;

use pennon_analytics::scan::Micros;
use pennon_core::store::Table;
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use crate::blocks::BlockLog;
use crate::compaction::{Compactor, SegmentMerger};
use crate::error::EventStoreError;
use crate::event::PersonEvent;
use crate::manifest::{
    ChangeOutcome, EntryKind, Manifest, ManifestChange, ManifestStore, RecordsEntry, SegmentEntry,
};
use crate::objects::{Quarantine, RetryBudget};
use crate::person_ids::derive_person_id;
use crate::persons::profiles::ProfileReader;
use crate::persons::{
    ErasureFilter, ImportedRecords, MergeLog, PersonIndex, PersonLookup, PersonMergeState, PersonMerges,
    cohort_lists, continuity,
};
use crate::segments::{DuplicateFinder, SegmentStore};
use crate::settings::Settings;
use crate::snapshots::SnapshotReader;
use rewrite::RewrittenFiles;

/// Most segments that one erasure rewrites: they are replaced in one transaction.
const SEGMENTS_MAX: usize = 80;

/// What is to be erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErasureTarget {
    /// All data of one person, named by a distinct id or the person id.
    Person(String),
    /// All events, persons and groups of the project, and all members of its static cohorts.
    Project,
    /// Events with a timestamp before this instant. Persons and groups stay.
    Before(Micros),
}

/// Counters of an erasure, or of a preview.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErasureReport {
    /// Events.
    pub events: u64,
    /// Persons.
    pub persons: u64,
    /// Segments that were rewritten or removed.
    pub segments: usize,
    /// Static cohorts that listed an erased person.
    pub cohorts: usize,
    /// Whether there were more events or persons that could not be counted: erasing a whole project also
    /// removes damaged data.
    pub uncounted: bool,
}

/// The rewritten entries.
#[derive(Default)]
struct RewrittenEntries {
    segments: Vec<SegmentEntry>,
    records: Vec<(EntryKind, u64, RecordsEntry)>,
}

/// Erases data permanently.
#[derive(Debug)]
pub(crate) struct Eraser {
    /// For the lists of static cohorts and the overrides of experience continuity.
    pub records: Table,
    pub quarantine: Quarantine,
    pub manifests: Arc<ManifestStore>,
    pub blocks: Arc<BlockLog>,
    pub segments: Arc<SegmentStore>,
    pub duplicates: Arc<DuplicateFinder>,
    pub index: Arc<PersonIndex>,
    pub imports: Arc<ImportedRecords>,
    pub log: Arc<MergeLog>,
    pub profiles: Arc<ProfileReader>,
    pub lookup: Arc<PersonLookup>,
    pub snapshots: Arc<SnapshotReader>,
    pub compactor: Arc<Compactor>,
    pub merger: Arc<SegmentMerger>,
    pub settings: Settings,
}

impl Eraser {
    /// Erases data that was acknowledged before the call. When it returns, no read finds any of it.
    ///
    /// `now` returns the current time; it is called repeatedly, because an erasure may take longer than the
    /// grace period.
    ///
    /// [`EventStoreError::TooLarge`] when more segments have to be rewritten than fit into one transaction.
    pub(crate) async fn erase(
        &self,
        project: ProjectId,
        target: &ErasureTarget,
        now: &(dyn Fn() -> Micros + Sync),
    ) -> Result<ErasureReport, EventStoreError> {
        if *target == ErasureTarget::Project {
            return self.erase_everything(project, now).await;
        }
        let mut retries = RetryBudget::for_command(&self.settings);
        loop {
            // Safe to repeat, whatever the outcome was.
            let done = self.compactor.compact_blocks(project, now()).await;
            let Some(done) = retries.optimistic_read(done).await? else { continue };
            if done.damaged_blocks > 0 {
                // The damaged block may hold events to erase and would restore them when it is repaired:
                // returns an error that names it.
                self.snapshots.outline(project).await?;
            }
            if !done.more {
                break;
            }
        }
        let mut rewritten = RewrittenFiles::default();
        let mut cohorts = 0;
        let mut had_overrides = false;
        let outcome = loop {
            let seen = self.index.manifest_and_persons(project).await;
            let (manifest, merge_state) = match retries.optimistic_read(seen).await {
                Ok(Some(seen)) => seen,
                Ok(None) => continue,
                Err(error) => break Err(error),
            };
            let erase =
                self.erasure_filter(project, &manifest, &merge_state.person_merges, &[], target).await?;
            rewritten = self.reusable_for(rewritten, &erase.persons).await?;
            // Before the merges are erased, because they give all ids of a person; this may complete an earlier
            // partial erasure.
            let records = &self.records;
            cohorts += cohort_lists::erase(records, project, &erase, &mut retries).await?;
            if erase.is_of_persons() {
                had_overrides |= continuity::erase(records, project, &erase).await?;
            }
            match self.try_erase(project, &manifest, &merge_state, &erase, &mut rewritten, now).await {
                Ok(Some(erased)) => {
                    let persons = erased.persons.max(u64::from(had_overrides));
                    break Ok(ErasureReport { cohorts, persons, ..erased });
                }
                // Version conflict, or an object was replaced and removed while it was read; nothing was
                // written.
                Ok(None) | Err(EventStoreError::Contended) => {}
                Err(error) => break Err(error),
            }
            if let Err(error) = retries.after_conflict().await {
                break Err(error);
            }
        };
        // Objects written for segments that were replaced meanwhile, or for a failed attempt.
        self.discard(rewritten).await?;
        let manifest = self.manifests.load(project).await?;
        self.log.sweep_merges(project, &manifest, now()).await?;
        outcome
    }

    /// Counts what [`Eraser::erase`] would erase now. Changes nothing.
    pub(crate) async fn preview_erasure(
        &self,
        project: ProjectId,
        target: &ErasureTarget,
    ) -> Result<ErasureReport, EventStoreError> {
        if *target == ErasureTarget::Project {
            return self.count_everything(project).await;
        }
        let snapshot = self.snapshots.snapshot(project).await?;
        let (manifest, person_merges) = (&snapshot.manifest, &snapshot.person_merges);
        let erase =
            self.erasure_filter(project, manifest, person_merges, &snapshot.waiting_events, target).await?;
        let known = self.is_known_person(project, manifest, &erase).await?;
        let waiting_events = self.duplicates.not_in_segments(manifest, snapshot.waiting_events).await?;
        let waiting = waiting_events.iter().filter(|row| erase.names(row, person_merges)).count();
        let mut erased = ErasureReport { events: waiting as u64, ..ErasureReport::default() };
        for entry in &manifest.segments {
            let events = self.count_in(entry, &erase).await?;
            erased.events += events;
            erased.segments += usize::from(events > 0);
        }
        erased.cohorts = cohort_lists::naming(&self.records, project, &erase).await?;
        erased.persons = match target {
            ErasureTarget::Before(_) | ErasureTarget::Project => 0,
            ErasureTarget::Person(_) => u64::from(erased.events > 0 || known),
        };
        Ok(erased)
    }

    /// Resolves the erasure target to a filter.
    async fn erasure_filter(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        person_merges: &PersonMerges,
        waiting_events: &[PersonEvent],
        target: &ErasureTarget,
    ) -> Result<ErasureFilter, EventStoreError> {
        let name = match target {
            ErasureTarget::Project => {
                return Ok(ErasureFilter { everything: true, ..ErasureFilter::default() });
            }
            ErasureTarget::Before(before) => {
                return Ok(ErasureFilter { before: Some(*before), ..ErasureFilter::default() });
            }
            ErasureTarget::Person(name) => name,
        };
        let all_ids_of = |id: Uuid| {
            let person = person_merges.person(id);
            let mut ids = person_merges.members(person);
            ids.extend([id, person]);
            ErasureFilter { persons: Arc::new(ids), ..ErasureFilter::default() }
        };
        let by_distinct_id = all_ids_of(derive_person_id(project, name));
        let Ok(id) = Uuid::parse_str(name) else { return Ok(by_distinct_id) };
        // Person ids and many distinct ids look alike; a match as distinct id takes precedence.
        let waits = waiting_events.iter().any(|row| by_distinct_id.names(row, person_merges));
        let known = waits || self.is_known_person(project, manifest, &by_distinct_id).await?;
        Ok(if known { by_distinct_id } else { all_ids_of(id) })
    }

    /// Whether anything refers to a person of `erase.persons`: a merge, a segment, an imported record, a static
    /// cohort list, or an identified marker.
    async fn is_known_person(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        erase: &ErasureFilter,
    ) -> Result<bool, EventStoreError> {
        if erase.persons.len() > 1 {
            return Ok(true);
        }
        for entry in &manifest.segments {
            if !self.profiles.ids_in_segment(entry, &erase.persons).await?.ids.is_empty() {
                return Ok(true);
            }
        }
        let objects = self.imports.persons_objects(project, manifest).await?;
        let named = |ids: &[Uuid]| ids.iter().any(|id| erase.persons.contains(id));
        if objects.iter().any(|object| object.records().any(named)) {
            return Ok(true);
        }
        let records = &self.records;
        let persons = erase.persons.iter().copied().collect::<Vec<_>>();
        let is_marked = self.log.are_identified(project, &persons).await?.contains(&true);
        Ok(is_marked
            || continuity::has_some(records, project, erase).await?
            || cohort_lists::naming(records, project, erase).await? > 0)
    }

    /// Commits the rewritten data. Returns none on a version conflict.
    async fn try_erase(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        merge_state: &PersonMergeState,
        erase: &ErasureFilter,
        rewritten: &mut RewrittenFiles,
        now: &(dyn Fn() -> Micros + Sync),
    ) -> Result<Option<ErasureReport>, EventStoreError> {
        let mut erased = ErasureReport::default();
        let is_known = erase.is_of_persons() && self.is_known_person(project, manifest, erase).await?;
        erased.persons = u64::from(is_known);
        if erase.is_of_persons() && !is_known {
            return Ok(Some(erased));
        }
        let erase_by = (erase, &merge_state.person_merges);
        let RewrittenEntries { mut segments, mut records } =
            self.rewrite_all(project, manifest, erase_by, rewritten, &mut erased, now()).await?;
        if segments.len() + records.len() > SEGMENTS_MAX {
            return Err(EventStoreError::TooLarge(format!(
                "More than {SEGMENTS_MAX} segments have to be written anew at once. Run `pennon compact` first."
            )));
        }
        // Readers of the old segments get the whole grace period, however long this took.
        let at = now();
        segments.iter_mut().for_each(|entry| entry.at = at);
        records.iter_mut().for_each(|(_, _, entry)| entry.listed_at(at));
        let change = ManifestChange { segments: &segments, records: &records, ..ManifestChange::default() };
        let is_done = if erase.is_of_persons() {
            self.log.erase_merges_of(project, manifest, merge_state, erase, &change, at).await?
        } else if segments.is_empty() {
            true
        } else {
            self.manifests.apply(project, manifest, &change).await? == ChangeOutcome::Applied
        };
        if is_done {
            rewritten.listed(&segments, &records);
        }
        Ok(is_done.then_some(erased))
    }

    /// Rewrites the segments and imports that contain erased data.
    async fn rewrite_all(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        (erase, person_merges): (&ErasureFilter, &PersonMerges),
        rewritten: &mut RewrittenFiles,
        erased: &mut ErasureReport,
        now: Micros,
    ) -> Result<RewrittenEntries, EventStoreError> {
        let mut left = RewrittenEntries::default();
        for entry in &manifest.segments {
            let touched = self.count_in(entry, erase).await? > 0
                || !self.profiles.ids_in_segment(entry, &erase.persons).await?.ids.is_empty();
            if !touched {
                continue;
            }
            let segment =
                self.rewrite_segment(project, entry, (erase, person_merges), rewritten, now).await?;
            erased.events += entry.rows - segment.rows;
            erased.segments += 1;
            left.segments.push(segment);
        }
        left.records = self.rewrite_records(project, manifest, erase, rewritten, now).await?;
        Ok(left)
    }
}
