//! Objects that no manifest names: their writer stopped before it listed them, or they could not be removed.
//!
//! Must stay true: nothing goes that a manifest names or a writer may still list. Objects are listed before the manifest
//! is read, and only those go that are older than any writer takes.

use std::collections::{HashMap, HashSet};

use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Micros;

use crate::EventStore;
use crate::checksums;
use crate::error::EventStoreError;
use crate::manifest::Manifest;
use crate::records_entry::RecordsEntry;

/// How old an object is that no writer is going to list any more, in microseconds: a day.
pub const ORPHANED_MICROS: Micros = 24 * 3600 * 1_000_000;

impl EventStore {
    /// Removes objects of the project that no entry of the manifest has, written more than [`ORPHANED_MICROS`] before
    /// `now`. Returns how many.
    pub async fn sweep_orphans(&self, project: ProjectId, now: Micros) -> Result<usize, EventStoreError> {
        let mut listed = self.inner.objects.list(&format!("project={project}")).await?;
        listed.extend(self.inner.objects.list(&format!("merges/project={project}")).await?);
        let manifest = Manifest::load(&self.inner.store, project).await?;
        let segments = manifest.all_segments.iter().map(|(_, entry)| entry.id.as_str());
        // Records that some were erased from lie under another name than their entry's.
        let rewritten = manifest.rewritten.iter().map(|(_, _, entry)| entry);
        let records = manifest.persons.iter().chain(&manifest.groups).chain(rewritten);
        let records = records.flat_map(RecordsEntry::objects).map(|name| id_of(name));
        let links = manifest.links.iter().map(|entry| entry.id.as_str());
        let merges = manifest.merges.iter().map(|entry| entry.id.as_str());
        let known = segments.chain(records).chain(links).chain(merges).collect::<HashSet<_>>();
        let mut orphans: HashMap<&str, Vec<String>> = HashMap::new();
        for object in listed.iter().filter(|object| object.at.saturating_add(ORPHANED_MICROS) <= now) {
            let (start, _) = checksums::split(&object.name);
            if !known.contains(id_of(&object.name)) {
                orphans.entry(start).or_default().push(object.name.clone());
            }
        }
        let count = orphans.values().map(Vec::len).sum();
        for (start, objects) in orphans {
            tracing::info!(
                project,
                start,
                objects = objects.len(),
                "objects that no manifest names are removed"
            );
            self.inner.objects.delete_all(objects).await?;
        }
        Ok(count)
    }
}

/// The id that an object's name begins with.
fn id_of(name: &str) -> &str {
    let (start, _) = checksums::split(name);
    start.rsplit('/').next().unwrap_or(start)
}
