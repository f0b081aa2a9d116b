//! Marks in the object store: the installation id and the version of each manifest.
//!
//! Must stay true: marks are created and never changed, so a slow writer cannot lower one; the highest mark of
//! a project counts.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use pennon_core::store::keys::{ProjectId, padded};
use serde_json::json;
use uuid::Uuid;

use crate::error::EventStoreError;
use crate::objects::Objects;

/// Folder of the marks.
pub(super) const FOLDER: &str = "installation";
const OF_PROJECT: &str = "project=";

/// The marks in the object store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// Installation ids.
    pub ids: BTreeSet<Uuid>,
    /// The highest version of each project's manifest.
    pub heads: BTreeMap<ProjectId, u64>,
    /// Superseded marks.
    pub overtaken: Vec<(ProjectId, u64)>,
}

impl Marks {
    pub(super) async fn list(objects: &Objects) -> Result<Marks, EventStoreError> {
        let listed = objects.list(FOLDER).await?;
        Ok(Marks::of(listed.iter().map(|object| object.name.as_str())))
    }

    fn of<'a>(names: impl Iterator<Item = &'a str>) -> Marks {
        let mut marks = Marks::default();
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

fn name(id: Uuid, project: ProjectId, head: u64) -> String {
    format!("{FOLDER}/{OF_PROJECT}{project}/{}-{id}", padded(head))
}

/// The name of the mark that the objects belong to installation `id`.
pub(super) fn installation_name(id: Uuid) -> String {
    format!("{FOLDER}/{id}")
}

/// Marks the objects as belonging to installation `id`.
pub(super) async fn claim(objects: &Objects, id: Uuid) -> Result<(), EventStoreError> {
    let body = json!({"format": 1, "installation": id}).to_string();
    objects.put_standalone(&installation_name(id), Bytes::from(body)).await
}

/// Marks that the manifest of `project` has reached version `head`.
pub(super) async fn put(
    objects: &Objects,
    id: Uuid,
    project: ProjectId,
    head: u64,
) -> Result<(), EventStoreError> {
    let body = json!({"format": 1, "installation": id, "project": project, "head": head}).to_string();
    objects.put_standalone(&name(id, project, head), Bytes::from(body)).await
}

/// As above, and deletes the mark of the previous version.
pub(super) async fn advance(
    objects: &Objects,
    id: Uuid,
    project: ProjectId,
    head: u64,
) -> Result<(), EventStoreError> {
    put(objects, id, project, head).await?;
    match head.checked_sub(1) {
        Some(before) => remove(objects, id, project, before).await,
        None => Ok(()),
    }
}

/// Deletes a mark; a missing one is no error.
pub(super) async fn remove(
    objects: &Objects,
    id: Uuid,
    project: ProjectId,
    head: u64,
) -> Result<(), EventStoreError> {
    objects.remove_standalone(&[name(id, project, head)]).await
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
            let marks = Marks::of(names.iter().map(String::as_str));
            assert_eq!((marks.ids, marks.heads), (BTreeSet::from([id]), heads.clone()));
            let mut overtaken = marks.overtaken;
            overtaken.sort_unstable();
            assert_eq!(overtaken, [(1, 9), (1, 10)]);
        }
    }

    #[test]
    fn other_objects_say_nothing() {
        let names = ["installation/x", "installation/project=x/1-2", "project=1/events/a", "installation"];
        assert_eq!(Marks::of(names.into_iter()), Marks::default());
    }
}
