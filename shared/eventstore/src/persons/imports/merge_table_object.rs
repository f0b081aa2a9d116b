//! The merges of all imports in one object: the encoded table of [`PersonMerges::encode`].
//!
//! The ids sidecars hold the same information per record, but combining them costs a cold process more than
//! most queries. So compaction writes this object whenever the imports have changed; a reader that finds none
//! for the current imports reads the sidecars. Must stay true: an entry names the import objects that it was
//! made from, in order, and is used only for exactly these; a damaged object is rewritten, and no query fails
//! because of it.

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use sha2::{Digest, Sha256};

use super::ImportedRecords;
use super::ids_sidecar::links;
use crate::error::EventStoreError;
use crate::formats;
use crate::manifest::{EntryKind, GRACE_MICROS, ImportedMergesEntry, Manifest, new_id};
use crate::persons::person_merges::PersonMerges;
use crate::time::WorkClock;

/// Digest of the imports of `manifest`.
fn digest(manifest: &Manifest) -> String {
    let mut digest = Sha256::new();
    for entry in &manifest.persons {
        digest.update(entry.object.as_bytes());
        digest.update([0]);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Manifest {
    /// The newest entry for the current imports that is not marked as damaged.
    fn current_imported_merges(&self) -> Option<&ImportedMergesEntry> {
        let of = digest(self);
        self.links.iter().rev().find(|entry| entry.of == of && !self.damaged.contains(&entry.id))
    }
}

impl ImportedRecords {
    /// The merges of all imports.
    pub(crate) async fn imported_merges(
        &self,
        project: ProjectId,
        manifest: &Manifest,
    ) -> Result<PersonMerges, EventStoreError> {
        if manifest.persons.is_empty() {
            return Ok(PersonMerges::default());
        }
        let known = self.states.get(project);
        if let Some(known) = known.filter(|known| known.has_objects_of(manifest)) {
            return Ok(known.imported_merges.clone());
        }
        if let Some(entry) = manifest.current_imported_merges() {
            match self.read_imported_merges(entry).await {
                Ok(person_merges) => return Ok(person_merges),
                // Contended: it was replaced and removed while it was read.
                Err(
                    error @ (EventStoreError::Damaged { .. }
                    | EventStoreError::Corrupt(_)
                    | EventStoreError::Contended),
                ) => {
                    tracing::warn!(project, %error, "who is who is read from the imports themselves");
                }
                Err(error) => return Err(error),
            }
        }
        self.by_records(project, manifest).await
    }

    /// Computes the merges from the sidecars of the imports.
    async fn by_records(
        &self,
        project: ProjectId,
        manifest: &Manifest,
    ) -> Result<PersonMerges, EventStoreError> {
        let mut imports = Vec::with_capacity(manifest.persons.len());
        for entry in &manifest.persons {
            imports.push(self.record_ids(project, entry).await?);
        }
        Ok(tokio::task::spawn_blocking(move || PersonMerges::of(links(&imports))).await?)
    }

    async fn read_imported_merges(
        &self,
        entry: &ImportedMergesEntry,
    ) -> Result<PersonMerges, EventStoreError> {
        let Some(object) = &entry.object else { return Ok(PersonMerges::default()) };
        let pairs = self.objects.get(object).await?;
        let read = tokio::task::spawn_blocking(move || PersonMerges::decode(pairs));
        read.await?
    }

    /// Writes the object for the current imports, if there is none. Returns whether the manifest changed.
    pub(crate) async fn write_imported_merges(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        clock: WorkClock,
    ) -> Result<bool, EventStoreError> {
        let no_imports = manifest.persons.is_empty() && manifest.links.is_empty();
        let all_readable = manifest.persons.iter().all(|entry| !manifest.damaged.contains(&entry.id));
        if no_imports || !all_readable || manifest.current_imported_merges().is_some() {
            return Ok(false);
        }
        let person_merges = self.by_records(project, manifest).await?;
        let pairs = tokio::task::spawn_blocking(move || person_merges.encode()).await?;
        let id = new_id(clock.now());
        let object = (!pairs.is_empty()).then(|| format!("project={project}/links/{id}.pairs"));
        let mut entry =
            ImportedMergesEntry { id, format: formats::LINKS, object, of: digest(manifest), at: 0, head: 0 };
        let files = entry.object.iter().map(|object| (object.clone(), pairs.clone())).collect::<Vec<_>>();
        self.objects.create_all(&files).await?;
        entry.at = clock.now();
        let added = self.manifests.add(project, manifest, EntryKind::ImportedMerges, &entry).await?;
        if !added {
            // Version conflict; the next run writes it.
            self.objects.delete_all(entry.object.into_iter().collect()).await?;
        }
        Ok(added)
    }

    /// Removes all but the newest object, once that has been there for the grace period.
    pub(crate) async fn sweep_imported_merges(
        &self,
        project: ProjectId,
        manifest: &Manifest,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let Some((newest, older)) = manifest.links.split_last() else { return Ok(()) };
        if newest.at.saturating_add(GRACE_MICROS) > now {
            return Ok(());
        }
        for entry in older {
            self.objects.delete_all(entry.object.iter().cloned().collect()).await?;
            self.manifests.remove(project, EntryKind::ImportedMerges, &entry.id).await?;
        }
        Ok(())
    }
}
