//! Marks in the object store: the installation id and the version of each manifest.
//!
//! The object store holds them as empty objects with these names:
//!
//! | object | meaning |
//! |---|---|
//! | `installation/{id}` | the objects belong to this installation |
//! | `installation/project={p}/{head}-{id}` | the manifest of project `p` has reached version `head` |
//!
//! A mark is written after the transaction that raised `HEAD`, so it is never ahead of the tables: if it is,
//! the tables are an older copy. Must stay true: marks are created and never changed, so a slow writer cannot lower one; the highest mark of
//! a project counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use bytes::Bytes;
use pennon_core::store::keys::{ProjectId, padded};
use serde_json::json;
use uuid::Uuid;

use crate::error::EventStoreError;
use crate::objects::Objects;

/// Folder of the marks.
const FOLDER: &str = "installation";
const OF_PROJECT: &str = "project=";

/// The marks in the object store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoredMarks {
    /// Installation ids.
    pub ids: BTreeSet<Uuid>,
    /// The highest version of each project's manifest.
    pub heads: BTreeMap<ProjectId, u64>,
    /// Superseded marks.
    pub overtaken: Vec<(ProjectId, u64)>,
}

impl StoredMarks {
    fn of<'a>(names: impl Iterator<Item = &'a str>) -> StoredMarks {
        let mut marks = StoredMarks::default();
        for name in names.filter_map(|name| name.strip_prefix(FOLDER)?.strip_prefix('/')) {
            if let Ok(id) = name.parse() {
                marks.ids.insert(id);
            } else if let Some((project, head, id)) = mark_of(name) {
                marks.ids.insert(id);
                let highest = marks.heads.entry(project).or_insert(head);
                if head != *highest {
                    marks.overtaken.push((project, head.min(*highest)));
                    *highest = head.max(*highest);
                }
            }
        }
        marks
    }
}

/// Parses project, version and installation from the name of a mark.
fn mark_of(name: &str) -> Option<(ProjectId, u64, Uuid)> {
    let (project, mark) = name.strip_prefix(OF_PROJECT)?.split_once('/')?;
    let (head, id) = mark.split_once('-')?;
    Some((project.parse().ok()?, head.parse().ok()?, id.parse().ok()?))
}

/// The name of the object that marks the objects as those of the installation `id`.
pub fn installation_marker(id: Uuid) -> String {
    format!("{FOLDER}/{id}")
}

fn name(id: Uuid, project: ProjectId, head: u64) -> String {
    format!("{FOLDER}/{OF_PROJECT}{project}/{}-{id}", padded(head))
}

/// Writes and lists the marks.
#[derive(Debug)]
pub(crate) struct VersionMarks {
    objects: Objects,
    /// The verified installation id; unset until tables and objects were compared.
    installation: OnceLock<Uuid>,
}

impl VersionMarks {
    pub(crate) fn new(objects: Objects) -> VersionMarks {
        VersionMarks { objects, installation: OnceLock::new() }
    }

    /// The installation id, if tables and objects were compared.
    pub(crate) fn verified(&self) -> Option<Uuid> {
        self.installation.get().copied()
    }

    /// Sets the installation id: tables and objects belong together. Returns the id that was set first.
    pub(crate) fn set_verified(&self, id: Uuid) -> Uuid {
        // Another task of this process may have verified it too.
        *self.installation.get_or_init(|| id)
    }

    /// Lists all marks.
    pub(crate) async fn list(&self) -> Result<StoredMarks, EventStoreError> {
        let listed = self.objects.list(FOLDER).await?;
        Ok(StoredMarks::of(listed.iter().map(|object| object.name.as_str())))
    }

    /// Moves all marks to `folder`.
    pub(crate) async fn move_to(&self, folder: &str) -> Result<(), EventStoreError> {
        let listed = self.objects.list(FOLDER).await?;
        let names = listed.into_iter().map(|mark| mark.name).collect::<Vec<_>>();
        self.objects.move_all(&names, |name| format!("{folder}/{name}")).await
    }

    /// Marks the objects as belonging to installation `id`.
    pub(crate) async fn claim(&self, id: Uuid) -> Result<(), EventStoreError> {
        let body = json!({"format": 1, "installation": id}).to_string();
        self.objects.put_standalone(&installation_marker(id), Bytes::from(body)).await
    }

    /// Marks that the manifest of `project` has reached version `head`.
    pub(crate) async fn put(&self, id: Uuid, project: ProjectId, head: u64) -> Result<(), EventStoreError> {
        let body = json!({"format": 1, "installation": id, "project": project, "head": head}).to_string();
        self.objects.put_standalone(&name(id, project, head), Bytes::from(body)).await
    }

    /// Deletes a mark; a missing one is no error.
    pub(crate) async fn remove(
        &self,
        id: Uuid,
        project: ProjectId,
        head: u64,
    ) -> Result<(), EventStoreError> {
        self.objects.remove_standalone(&[name(id, project, head)]).await
    }

    /// Writes a mark that the manifest of `project` has reached version `head`, and deletes the mark of the
    /// version before. A failure is no error: the change is done, and the next mark supersedes it.
    pub(super) async fn advance(&self, project: ProjectId, head: u64) {
        let Some(id) = self.verified() else { return };
        let advanced = async {
            self.put(id, project, head).await?;
            match head.checked_sub(1) {
                Some(before) => self.remove(id, project, before).await,
                None => Ok(()),
            }
        };
        if let Err(error) = advanced.await {
            tracing::warn!(project, head, %error, "the mark beside the events could not be advanced");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_mark_of_a_project_counts_in_whatever_order_they_are_listed() {
        let id = Uuid::from_u128(7);
        let names =
            [name(id, 1, 9), name(id, 1, 11), name(id, 1, 10), name(id, 2, 3), format!("{FOLDER}/{id}")];
        let heads = BTreeMap::from([(1, 11), (2, 3)]);
        for turned in 0..names.len() {
            let mut names = names.clone();
            names.rotate_left(turned);
            let marks = StoredMarks::of(names.iter().map(String::as_str));
            assert_eq!((marks.ids, marks.heads), (BTreeSet::from([id]), heads.clone()));
            let mut overtaken = marks.overtaken;
            overtaken.sort_unstable();
            assert_eq!(overtaken, [(1, 9), (1, 10)]);
        }
    }

    #[test]
    fn other_objects_are_ignored() {
        let names = ["installation/x", "installation/project=x/1-2", "project=1/events/a", "installation"];
        assert_eq!(StoredMarks::of(names.into_iter()), StoredMarks::default());
    }
}
