//! The objects that a snapshot of the tables names: held on to, then copied.
//!
//! An object goes ten minutes after another one took its place, and copying many takes longer. So a hard link is made of each
//! at once, inside the data directory, which keeps its bytes whatever becomes of its name.
//!
//! Must stay true: an object that is needed and gone is told by name; the installation's own files are only ever read.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::staging::{HELD, Staging};
use super::{Progress, at};
use crate::data::EVENTS;

/// The objects of a snapshot, by their names below the events.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// Without these the tables mean nothing.
    pub needed: Vec<String>,
    /// These are calculated anew where they are gone.
    pub results: Vec<String>,
}

/// Why there are no copies.
#[derive(Debug)]
pub(super) enum Missed {
    /// This object was needed and is gone.
    Gone(String),
    /// Anything else.
    Failed(String),
}

/// How a copy is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copying {
    /// Byte by byte.
    Bytes,
    /// By a hard link.
    Link,
    /// By a hard link, or byte by byte where the place lies on another file system.
    LinkIfPossible,
}

/// Objects that stay until this is dropped.
pub(super) struct Held {
    from: PathBuf,
    names: Vec<String>,
    /// The links; none on a file system that has no links.
    _links: Option<Staging>,
}

/// Holds on to the objects of the data directory `data`.
pub(super) fn hold(data: &Path, named: &Named) -> Result<Held, Missed> {
    let live = data.join(EVENTS);
    let links = Staging::of(&data.join(HELD), true).map_err(Missed::Failed)?;
    let mut names = Vec::with_capacity(named.needed.len() + named.results.len());
    let needed = named.needed.iter().map(|name| (name, true));
    for (name, is_needed) in needed.chain(named.results.iter().map(|name| (name, false))) {
        let to = links.path().join(name);
        match make_parent(&to).and_then(|()| std::fs::hard_link(live.join(name), &to)) {
            Ok(()) => names.push(name.clone()),
            Err(e) if e.kind() == ErrorKind::NotFound && is_needed => return Err(Missed::Gone(name.clone())),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            // Then they are copied under their own names, and one that goes meanwhile is missed.
            Err(_) => {
                let names = named.needed.iter().chain(&named.results).cloned().collect();
                return Ok(Held { from: live, names, _links: None });
            }
        }
    }
    Ok(Held { from: links.path().to_owned(), names, _links: Some(links) })
}

impl Held {
    /// Copies them into the directory `to`.
    pub(super) fn copy(&self, to: &Path, copying: Copying, progress: Progress<'_>) -> Result<(), Missed> {
        let total = self.names.len() as u64;
        for (done, name) in self.names.iter().enumerate() {
            let (from, to) = (self.from.join(name), to.join(name));
            make_parent(&to).map_err(at(&to, "made")).map_err(Missed::Failed)?;
            copy_one(&from, &to, copying).map_err(|e| match e.kind() {
                ErrorKind::NotFound => Missed::Gone(name.clone()),
                ErrorKind::CrossesDevices => {
                    Missed::Failed(format!("{} lies on another file system: leave --link out", to.display()))
                }
                _ => Missed::Failed(at(&to, "written")(e)),
            })?;
            progress("copying", done as u64 + 1, total);
        }
        Ok(())
    }
}

fn copy_one(from: &Path, to: &Path, copying: Copying) -> std::io::Result<()> {
    let bytes = || std::fs::copy(from, to).map(|_| ());
    match copying {
        Copying::Bytes => bytes(),
        Copying::Link => std::fs::hard_link(from, to),
        Copying::LinkIfPossible => std::fs::hard_link(from, to).or_else(|_| bytes()),
    }
}

/// Makes the directory that `path` lies in.
pub(super) fn make_parent(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_held_is_copied_although_it_goes_meanwhile_and_what_is_gone_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let (data, to) = (directory.path().join("data"), directory.path().join("to"));
        std::fs::create_dir_all(data.join("events/p")).unwrap();
        std::fs::write(data.join("events/p/a.parquet"), "segment").unwrap();
        let mut named = Named { needed: vec!["p/a.parquet".into()], results: vec!["results/gone".into()] };
        let held = hold(&data, &named).unwrap();
        std::fs::remove_file(data.join("events/p/a.parquet")).unwrap();
        held.copy(&to, Copying::Bytes, &mut |_, _, _| {}).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("p/a.parquet")).unwrap(), "segment");
        drop(held);
        assert_eq!(std::fs::read_dir(&data).unwrap().count(), 1, "nothing is left in the data directory");
        named.needed.push("p/b.parquet".into());
        assert!(matches!(hold(&data, &named), Err(Missed::Gone(name)) if name == "p/a.parquet"));
    }
}
