//! Moves objects to another folder, and lists the objects of events.
//!
//! Must stay true: an object always exists in at least one of both places; an interrupted move is completed by
//! the next one.

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt};
use pennon_core::store::keys::ProjectId;

use super::{Objects, Shared};
use crate::error::EventStoreError;
use crate::keys::PROJECT_FOLDER;
use crate::objects::checksums;

/// The folder of objects with folded merges.
const MERGES: &str = "merges";

impl Objects {
    /// Moves each object to the name that `renamed` returns; a missing one is no error. In a bucket this is
    /// copy and delete.
    pub(crate) async fn move_all(
        &self,
        names: &[String],
        renamed: impl Fn(&str) -> String,
    ) -> Result<(), EventStoreError> {
        let is_sums = |name: &&String| checksums::object_of(name) == **name;
        // The checksum file last: a reader of an object still needs it.
        let (sums, others): (Vec<_>, Vec<_>) = names.iter().partition(is_sums);
        for name in others.into_iter().chain(sums) {
            let (from, to) = (self.path(name), self.path(&renamed(name)));
            self.whole.with(|| rename_if_there(self.store.clone(), from.clone(), to.clone())).await?;
        }
        Ok(())
    }

    /// Whether any object of events, persons, groups or merges exists.
    pub(crate) async fn has_event_objects(&self) -> Result<bool, EventStoreError> {
        for folder in self.event_folders().await? {
            let path = self.path(&folder);
            let first = self.whole.with(|| async { self.store.list(Some(&path)).try_next().await }).await?;
            if first.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Names of all objects of events, persons, groups and merges, including checksum files.
    pub(crate) async fn list_event_objects(&self) -> Result<Vec<String>, EventStoreError> {
        let mut names = Vec::new();
        for folder in self.event_folders().await? {
            names.extend(self.list(&folder).await?.into_iter().map(|object| object.name));
        }
        Ok(names)
    }

    /// The projects that have folders.
    pub(crate) async fn event_projects(&self) -> Result<Vec<ProjectId>, EventStoreError> {
        let folders = self.event_folders().await?;
        Ok(folders.iter().filter_map(|folder| folder.strip_prefix(PROJECT_FOLDER)?.parse().ok()).collect())
    }

    async fn event_folders(&self) -> Result<Vec<String>, EventStoreError> {
        let root = Path::from(self.prefix.trim_end_matches('/'));
        let listed = self.whole.with(|| self.store.list_with_delimiter(Some(&root))).await?;
        let folders = listed.common_prefixes.iter().filter_map(|path| {
            let name = path.as_ref().strip_prefix(self.prefix.as_str())?;
            (name == MERGES || name.starts_with(PROJECT_FOLDER)).then(|| name.to_owned())
        });
        Ok(folders.collect())
    }
}

async fn rename_if_there(store: Shared, from: Path, to: Path) -> Result<(), Error> {
    match store.rename(&from, &to).await {
        Err(Error::NotFound { .. }) => Ok(()),
        other => other,
    }
}
