//! Erasure and retention: a person, a project's whole history, or what is older than an instant, gone for good.
//!
//! Segments are written without what is erased, and all take the place of the old ones in one transaction: whoever reads
//! the manifest afterwards finds none of it, in scans, persons, flags and groups alike, and no reader has to know of
//! erasure. The old objects go with the sweep, after the grace period. Events that wait in blocks are compacted first, so
//! what was acknowledged before the erasure began is erased with it; what arrives later counts. Where a block is damaged
//! nothing is erased: what it holds cannot be known. A person goes with all
//! that was imported of it, with the merges that made it one ([`crate::persons::merge_log`]), and from the lists of static cohorts
//! ([`crate::persons::cohort_lists`]), and its overrides of experience continuity; so whoever comes with one of its distinct ids later is somebody new. A project's whole history
//! goes without a look into it ([`everything`]). Must stay true: of events, persons and merges all happens or nothing;
//! nothing of anybody else changes; whatever was left undone is done by the same call again.

mod rewrite;
mod whole_project;

use std::collections::BTreeSet;
use std::sync::Arc;

use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Micros;
use uuid::Uuid;

use crate::EventStore;
use crate::error::EventStoreError;
use crate::event::Row;
use crate::keys;
use crate::manifest::state::{ChangeOutcome, Manifest, ManifestChange, SegmentEntry};
use crate::persons::cohort_lists;
use crate::persons::continuity;
use crate::persons::imports::entry::RecordsEntry;
use crate::persons::merge_log::PersonMerge;
use crate::persons::person_ids::derived;
use crate::persons::person_merge_cache::PersonMergeState;
use crate::persons::person_merges::PersonMerges;
use rewrite::RewrittenFiles;

/// Most segments that are written anew by one erasure: they are swapped in one transaction.
const SEGMENTS_MAX: usize = 80;

/// What is to be erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doomed {
    /// Everything that is known of somebody: by distinct id, or by the id of the person.
    Person(String),
    /// All events, persons and groups of the project, and everybody from the lists of its static cohorts.
    Project,
    /// Events that happened before this instant. Persons and groups stay.
    Before(Micros),
}

/// What was erased, or would be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Erased {
    /// Events.
    pub events: u64,
    /// Persons.
    pub persons: u64,
    /// Segments that were written anew, or taken away.
    pub segments: usize,
    /// Static cohorts from whose lists somebody was taken.
    pub cohorts: usize,
    /// Whether there are more events or persons, which could not be counted: of a whole project what is damaged goes too.
    pub uncounted: bool,
}

/// What is left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct ErasureFilter {
    /// Events of these persons, as they are in the end or were when a segment was written, and all else of them.
    pub persons: Arc<BTreeSet<Uuid>>,
    /// Events before this instant.
    pub before: Option<Micros>,
    /// All that the project has.
    pub everything: bool,
}

/// What takes the place of what is there.
#[derive(Default)]
struct Remainder {
    segments: Vec<SegmentEntry>,
    records: Vec<(&'static str, u64, RecordsEntry)>,
}

impl ErasureFilter {
    /// Whether nothing of a segment's events stays.
    pub(crate) fn covers(&self, entry: &SegmentEntry) -> bool {
        self.everything || self.before.is_some_and(|before| entry.max_time < before)
    }

    /// Whether the person that a distinct id is by itself goes.
    pub(crate) fn takes(&self, person: Uuid) -> bool {
        self.everything || self.persons.contains(&person)
    }

    /// Whether a merge goes because it names somebody who does.
    pub(crate) fn names_merge(&self, merged: &PersonMerge) -> bool {
        self.takes(merged.link.from) || self.takes(merged.link.to)
    }

    /// Whether persons go, and not only events.
    pub(crate) fn is_of_persons(&self) -> bool {
        self.everything || !self.persons.is_empty()
    }

    fn names(&self, row: &Row, person_merges: &PersonMerges) -> bool {
        let person = [row.person, person_merges.person(row.person)].iter().any(|id| self.takes(*id));
        person || self.before.is_some_and(|before| row.event.timestamp < before)
    }
}

impl EventStore {
    /// Erases from a project what was acknowledged before now. When it returns, no read finds any of it.
    ///
    /// `now` is asked for the time whenever it is needed: an erasure may take longer than replaced objects stay.
    ///
    /// [`EventStoreError::TooLarge`] when more segments than fit into one transaction have to be written anew.
    pub async fn erase(
        &self,
        project: ProjectId,
        doomed: &Doomed,
        now: &(dyn Fn() -> Micros + Sync),
    ) -> Result<Erased, EventStoreError> {
        if *doomed == Doomed::Project {
            return self.erase_everything(project, now).await;
        }
        let mut retries = self.command_retries();
        loop {
            // Done again it does no harm, whatever it ended with.
            let done = self.compact_blocks(project, now()).await;
            let Some(done) = retries.optimistic_read(done).await? else { continue };
            if done.damaged_blocks > 0 {
                // It may hold what is to be erased, and would bring that back when it is put back: an error that names it.
                self.outline(project).await?;
            }
            if !done.more {
                break;
            }
        }
        let mut rewritten = RewrittenFiles::default();
        let mut cohorts = 0;
        let mut had_overrides = false;
        let outcome = loop {
            let seen = self.manifest_and_persons(project).await;
            let (manifest, merge_state) = match retries.optimistic_read(seen).await {
                Ok(Some(seen)) => seen,
                Ok(None) => continue,
                Err(error) => break Err(error),
            };
            let erase =
                self.erasure_filter(project, &manifest, &merge_state.person_merges, &[], doomed).await?;
            rewritten = self.reusable_for(rewritten, &erase.persons).await?;
            // Before the merges go, by which all ids of a person are known: this may be what was not done the last time.
            let records = &self.inner.store.records;
            cohorts += cohort_lists::erase(records, project, &erase, &mut retries).await?;
            if erase.is_of_persons() {
                had_overrides |= continuity::erase(records, project, &erase).await?;
            }
            match self.try_erase(project, &manifest, &merge_state, &erase, &mut rewritten, now).await {
                Ok(Some(erased)) => {
                    let persons = erased.persons.max(u64::from(had_overrides));
                    break Ok(Erased { cohorts, persons, ..erased });
                }
                // Somebody else was faster, or has replaced and removed what was read; nothing was written.
                Ok(None) | Err(EventStoreError::Contended) => {}
                Err(error) => break Err(error),
            }
            if let Err(error) = retries.after_conflict().await {
                break Err(error);
            }
        };
        // What was made for segments that others replaced meanwhile, or for nothing.
        self.discard(rewritten).await?;
        let manifest = Manifest::load(&self.inner.store, project).await?;
        self.sweep_merges(project, &manifest, now()).await?;
        outcome
    }

    /// What [`EventStore::erase`] would erase now. Nothing changes.
    pub async fn would_erase(&self, project: ProjectId, doomed: &Doomed) -> Result<Erased, EventStoreError> {
        if *doomed == Doomed::Project {
            return self.count_everything(project).await;
        }
        let snapshot = self.snapshot(project).await?;
        let (manifest, person_merges) = (&snapshot.manifest, &snapshot.person_merges);
        let erase = self.erasure_filter(project, manifest, person_merges, &snapshot.hot, doomed).await?;
        let known = self.is_known_person(project, manifest, &erase).await?;
        let hot = self.not_in_segments(manifest, snapshot.hot).await?;
        let waiting = hot.iter().filter(|row| erase.names(row, person_merges)).count();
        let mut erased = Erased { events: waiting as u64, ..Erased::default() };
        for entry in &manifest.segments {
            let events = self.count_in(entry, &erase).await?;
            erased.events += events;
            erased.segments += usize::from(events > 0);
        }
        erased.cohorts = cohort_lists::naming(&self.inner.store.records, project, &erase).await?;
        erased.persons = match doomed {
            Doomed::Before(_) | Doomed::Project => 0,
            Doomed::Person(_) => u64::from(erased.events > 0 || known),
        };
        Ok(erased)
    }

    /// What is to be left out.
    async fn erasure_filter(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        person_merges: &PersonMerges,
        hot: &[Row],
        doomed: &Doomed,
    ) -> Result<ErasureFilter, EventStoreError> {
        let name = match doomed {
            Doomed::Project => return Ok(ErasureFilter { everything: true, ..ErasureFilter::default() }),
            Doomed::Before(before) => {
                return Ok(ErasureFilter { before: Some(*before), ..ErasureFilter::default() });
            }
            Doomed::Person(name) => name,
        };
        let everybody = |id: Uuid| {
            let person = person_merges.person(id);
            let mut ids = person_merges.members(person);
            ids.extend([id, person]);
            ErasureFilter { persons: Arc::new(ids), ..ErasureFilter::default() }
        };
        let by_distinct_id = everybody(derived(project, name));
        let Ok(id) = Uuid::parse_str(name) else { return Ok(by_distinct_id) };
        // Ids of persons and many distinct ids look alike; a distinct id goes first.
        let waits = hot.iter().any(|row| by_distinct_id.names(row, person_merges));
        let known = waits || self.is_known_person(project, manifest, &by_distinct_id).await?;
        Ok(if known { by_distinct_id } else { everybody(id) })
    }

    /// Whether anything names somebody of `erase.persons`: a merge, a segment, an imported record, a list of a static
    /// cohort, or what tells who has been identified.
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
            if !self.ids_in_segment(project, entry, &erase.persons).await?.ids.is_empty() {
                return Ok(true);
            }
        }
        let objects = self.persons_objects(project, manifest).await?;
        let named = |ids: &[Uuid]| ids.iter().any(|id| erase.persons.contains(id));
        if objects.iter().any(|object| object.records().any(named)) {
            return Ok(true);
        }
        let records = &self.inner.store.records;
        let marks = erase.persons.iter().map(|person| keys::identified(project, *person)).collect::<Vec<_>>();
        let is_marked = records.batch_get(&marks).await?.iter().any(Option::is_some);
        Ok(is_marked
            || continuity::has_some(records, project, erase).await?
            || cohort_lists::naming(records, project, erase).await? > 0)
    }

    /// Puts what is left in the place of what is there. None when others changed it meanwhile.
    async fn try_erase(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        merge_state: &PersonMergeState,
        erase: &ErasureFilter,
        rewritten: &mut RewrittenFiles,
        now: &(dyn Fn() -> Micros + Sync),
    ) -> Result<Option<Erased>, EventStoreError> {
        let mut erased = Erased::default();
        let is_known = erase.is_of_persons() && self.is_known_person(project, manifest, erase).await?;
        erased.persons = u64::from(is_known);
        if erase.is_of_persons() && !is_known {
            return Ok(Some(erased));
        }
        let erase_by = (erase, &merge_state.person_merges);
        let Remainder { mut segments, mut records } =
            self.rewrite_all(project, manifest, erase_by, rewritten, &mut erased, now()).await?;
        if segments.len() + records.len() > SEGMENTS_MAX {
            return Err(EventStoreError::TooLarge(format!(
                "More than {SEGMENTS_MAX} segments have to be written anew at once. Run `pennon compact` first."
            )));
        }
        // Whoever has begun with what is there reads on for the grace period, however long it took to come here.
        let at = now();
        segments.iter_mut().for_each(|entry| entry.at = at);
        records.iter_mut().for_each(|(_, _, entry)| entry.listed_at(at));
        let change = ManifestChange { segments: &segments, records: &records, ..ManifestChange::default() };
        let is_done = if erase.is_of_persons() {
            self.erase_merges_of(project, manifest, merge_state, erase, &change, at).await?
        } else if segments.is_empty() {
            true
        } else {
            manifest.apply(self, project, &change).await? == ChangeOutcome::Applied
        };
        if is_done {
            rewritten.listed(&segments, &records);
        }
        Ok(is_done.then_some(erased))
    }

    /// What is left of the segments and imports that have something of what `erase` names.
    async fn rewrite_all(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        (erase, person_merges): (&ErasureFilter, &PersonMerges),
        rewritten: &mut RewrittenFiles,
        erased: &mut Erased,
        now: Micros,
    ) -> Result<Remainder, EventStoreError> {
        let mut left = Remainder::default();
        for entry in &manifest.segments {
            let touched = self.count_in(entry, erase).await? > 0
                || !self.ids_in_segment(project, entry, &erase.persons).await?.ids.is_empty();
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
