//! Hard-links, then copies, the objects that a snapshot of the tables references.
//!
//! An object is removed 10 minutes after it was replaced, and copying many objects takes longer. So all of them are hard-linked
//! at once, inside the data directory, which keeps their content when their names are removed.
//!
//! Must stay true: a missing required object is an error with its name; the installation's own files are only read.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::staging::{LINKS, Staging};
use super::{ProgressCallback, path_error};
use crate::data::EVENTS;

/// The objects of a snapshot, by their paths below the events directory.
#[derive(Debug, Default)]
pub(super) struct ReferencedObjects {
    /// Objects that the tables require.
    pub needed: Vec<String>,
    /// Cached results, which are calculated again if they are missing.
    pub results: Vec<String>,
}

/// Why objects could not be copied.
#[derive(Debug)]
pub(super) enum CopyError {
    /// This required object is missing.
    ObjectMissing(String),
    /// Any other error, as its message.
    Failed(String),
}

/// How objects are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyMode {
    /// The bytes.
    Bytes,
    /// By a hard link.
    Link,
    /// By a hard link, or the bytes if the destination is on another file system.
    LinkIfPossible,
}

/// Objects that are hard-linked until this is dropped.
pub(super) struct LinkedObjects {
    from: PathBuf,
    names: Vec<String>,
    /// The directory of the links; `None` on a file system without hard links.
    _links: Option<Staging>,
}

/// Hard-links `objects` of the data directory `data`.
pub(super) fn link_objects(data: &Path, objects: &ReferencedObjects) -> Result<LinkedObjects, CopyError> {
    let live = data.join(EVENTS);
    let links = Staging::new(&data.join(LINKS), true).map_err(CopyError::Failed)?;
    let mut names = Vec::with_capacity(objects.needed.len() + objects.results.len());
    let needed = objects.needed.iter().map(|name| (name, true));
    for (name, is_needed) in needed.chain(objects.results.iter().map(|name| (name, false))) {
        let to = links.path().join(name);
        match create_parent(&to).and_then(|()| std::fs::hard_link(live.join(name), &to)) {
            Ok(()) => names.push(name.clone()),
            Err(e) if e.kind() == ErrorKind::NotFound && is_needed => {
                return Err(CopyError::ObjectMissing(name.clone()));
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            // Without hard links the objects are copied from their own names; one that is removed meanwhile is missing.
            Err(_) => {
                let names = objects.needed.iter().chain(&objects.results).cloned().collect();
                return Ok(LinkedObjects { from: live, names, _links: None });
            }
        }
    }
    Ok(LinkedObjects { from: links.path().to_owned(), names, _links: Some(links) })
}

impl LinkedObjects {
    /// Copies the objects into the directory `to`.
    pub(super) fn copy(
        &self,
        to: &Path,
        mode: CopyMode,
        progress: ProgressCallback<'_>,
    ) -> Result<(), CopyError> {
        let total = self.names.len() as u64;
        for (done, name) in self.names.iter().enumerate() {
            let (from, to) = (self.from.join(name), to.join(name));
            create_parent(&to).map_err(path_error(&to, "made")).map_err(CopyError::Failed)?;
            copy_object(&from, &to, mode).map_err(|e| match e.kind() {
                ErrorKind::NotFound => CopyError::ObjectMissing(name.clone()),
                ErrorKind::CrossesDevices => CopyError::Failed(format!(
                    "{} lies on another file system: leave --link out",
                    to.display()
                )),
                _ => CopyError::Failed(path_error(&to, "written")(e)),
            })?;
            progress("copying", done as u64 + 1, total);
        }
        Ok(())
    }
}

fn copy_object(from: &Path, to: &Path, mode: CopyMode) -> std::io::Result<()> {
    let copy_bytes = || std::fs::copy(from, to).map(|_| ());
    match mode {
        CopyMode::Bytes => copy_bytes(),
        CopyMode::Link => std::fs::hard_link(from, to),
        CopyMode::LinkIfPossible => std::fs::hard_link(from, to).or_else(|_| copy_bytes()),
    }
}

/// Creates the parent directory of `path`.
pub(super) fn create_parent(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_linked_object_is_copied_although_it_was_removed_and_a_missing_one_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let (data, to) = (directory.path().join("data"), directory.path().join("to"));
        std::fs::create_dir_all(data.join("events/p")).unwrap();
        std::fs::write(data.join("events/p/a.parquet"), "segment").unwrap();
        let mut objects =
            ReferencedObjects { needed: vec!["p/a.parquet".into()], results: vec!["results/gone".into()] };
        let linked = link_objects(&data, &objects).unwrap();
        std::fs::remove_file(data.join("events/p/a.parquet")).unwrap();
        linked.copy(&to, CopyMode::Bytes, &mut |_, _, _| {}).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("p/a.parquet")).unwrap(), "segment");
        drop(linked);
        assert_eq!(std::fs::read_dir(&data).unwrap().count(), 1, "nothing is left in the data directory");
        objects.needed.push("p/b.parquet".into());
        let result = link_objects(&data, &objects);
        assert!(matches!(result, Err(CopyError::ObjectMissing(name)) if name == "p/a.parquet"));
    }
}
