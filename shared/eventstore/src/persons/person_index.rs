//! The current person merges of a project: imported merges first, then captured ones, cached by the process.
//!
//! Must stay true: a cached state is used only with the import objects that it was made from, with all later
//! rows of the log, and until the next erasure; a cold process computes the same state.

use std::sync::Arc;

use pennon_core::store::keys::ProjectId;

use crate::error::EventStoreError;
use crate::manifest::{Manifest, ManifestStore};
use crate::persons::imports::ImportedRecords;
use crate::persons::merge_log::{MergeLog, MergeLogRow, PersonMerge};
use crate::persons::person_merge_state::{PersonMergeState, PersonMergeStates};
use crate::persons::person_merges::PersonMerges;

/// Read attempts while merges are being folded.
const TRIES: usize = 5;

/// Resolves person ids: loads the merge state of a project together with its manifest.
#[derive(Debug)]
pub(crate) struct PersonIndex {
    manifests: Arc<ManifestStore>,
    imports: Arc<ImportedRecords>,
    log: Arc<MergeLog>,
    states: Arc<PersonMergeStates>,
}

impl PersonIndex {
    pub(crate) fn new(
        manifests: Arc<ManifestStore>,
        imports: Arc<ImportedRecords>,
        log: Arc<MergeLog>,
        states: Arc<PersonMergeStates>,
    ) -> PersonIndex {
        PersonIndex { manifests, imports, log, states }
    }

    /// The cached merge state of a project.
    pub(crate) fn cached_state(&self, project: ProjectId) -> Option<Arc<PersonMergeState>> {
        self.states.get(project)
    }

    /// Loads the manifest and the merge state. A reader of blocks reads those first.
    pub(crate) async fn manifest_and_persons(
        &self,
        project: ProjectId,
    ) -> Result<(Manifest, Arc<PersonMergeState>), EventStoreError> {
        let mut known = self.states.get(project);
        for _ in 0..TRIES {
            let after = known.as_ref().map_or(0, |known| known.through);
            let manifest = self.manifests.load(project);
            let (manifest, rows) = futures::try_join!(manifest, self.log.merges_after(project, after))?;
            if let Some(merge_state) = self.merge_state(project, &manifest, known.take(), rows).await? {
                return Ok((manifest, merge_state));
            }
        }
        Err(EventStoreError::Contended)
    }

    /// Loads the current person merges.
    pub(crate) async fn person_merges(&self, project: ProjectId) -> Result<PersonMerges, EventStoreError> {
        Ok(self.manifest_and_persons(project).await?.1.person_merges.clone())
    }

    /// Brings the cached state `known` up to date with `rows`. None when rows are missing because they were
    /// folded into an object that `manifest` does not list yet.
    async fn merge_state(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        known: Option<Arc<PersonMergeState>>,
        mut rows: Vec<MergeLogRow>,
    ) -> Result<Option<Arc<PersonMergeState>>, EventStoreError> {
        let mut base = known.unwrap_or_default();
        let complete_prefetch = base.through;
        let is_current = base.is_of(manifest);
        if is_current && rows.is_empty() {
            return Ok(Some(base));
        }
        let mut damage = None;
        if !follow(&rows, base.through) || !is_current {
            let (rebuild, damaged) = match self.rebuild(project, manifest, &base).await {
                // An object was replaced and removed during the read.
                Err(EventStoreError::Contended) => return Ok(None),
                made => made?,
            };
            (base, damage) = (Arc::new(rebuild), damaged);
        }
        rows.retain(|row| row.number > base.through);
        // Rows before the read position may be missing too, if an object that ends earlier replaced the cached
        // state.
        let last = rows.last().map_or(base.through, |row| row.number);
        let is_short = damage.is_some() && manifest.merges.last().is_some_and(|newest| newest.through > last);
        if !follow(&rows, base.through) || base.through < complete_prefetch || is_short {
            return damage.filter(|_| complete_prefetch == 0).map_or(Ok(None), Err);
        }
        let made = tokio::task::spawn_blocking(move || Arc::new(base.with(rows)));
        let merge_state = made.await?;
        self.states.put(project, merge_state.clone());
        Ok(Some(merge_state))
    }

    /// Rebuilds the state from the manifest, and from the merges of `known` if these are newer and no erasure
    /// happened. If an object is damaged, returns the state before it and the error; it is valid if the rows
    /// since exist.
    async fn rebuild(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        known: &PersonMergeState,
    ) -> Result<(PersonMergeState, Option<EventStoreError>), EventStoreError> {
        let imported_merges = self.imports.imported_merges(project, manifest).await?;
        let (merges, through, damage) = self.load_merge_log(manifest, known).await?;
        let objects = manifest.persons.iter().map(|entry| entry.object.clone()).collect();
        let none = PersonMergeState::of_imports(objects, manifest.erasures(), imported_merges);
        Ok((tokio::task::spawn_blocking(move || none.with_merges(merges, through)).await?, damage))
    }

    /// The merges of the newest undamaged object, or those of `known` if newer and no erasure happened; the
    /// last row included; and the error of a damaged newer object.
    async fn load_merge_log(
        &self,
        manifest: &Manifest,
        known: &PersonMergeState,
    ) -> Result<(Vec<PersonMerge>, u64, Option<EventStoreError>), EventStoreError> {
        let erasures = manifest.erasures();
        let is_of_now = known.erasures == erasures;
        let after = if is_of_now { known.through } else { 0 };
        let entries = manifest.merges.iter().rev();
        let mut damage = None;
        for entry in entries.filter(|entry| entry.erasures == erasures && entry.through > after) {
            match self.log.folded(entry).await {
                Ok(merges) => return Ok((merges, entry.through, damage)),
                Err(error @ EventStoreError::Damaged { .. }) => drop(damage.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        match damage {
            damage if is_of_now => Ok((known.log().copied().collect(), after, damage)),
            // Rows from before an erasure would restore erased persons.
            Some(error) if erasures > 0 => Err(error),
            // The manifest predates the first erasure that `known` includes.
            damage => Ok((Vec::new(), 0, damage)),
        }
    }
}

/// Whether `rows` continue the log after row `after` without gaps: rows that are removed during the read may be
/// missing anywhere.
fn follow(rows: &[MergeLogRow], after: u64) -> bool {
    (after + 1..).zip(rows).all(|(number, row)| row.number == number)
}
