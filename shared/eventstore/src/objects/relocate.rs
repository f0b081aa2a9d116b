//! Moving objects to another folder, and finding out which objects of events there are.
//!
//! Must stay true: an object is never in neither place; a move that was cut off is made whole by the next one.

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt};
use pennon_core::store::keys::ProjectId;

use super::{Objects, Shared};
use crate::error::EventStoreError;
use crate::integrity::checksums;
use crate::keys::PROJECT_FOLDER;

/// The folder of objects with folded merges.
const MERGES: &str = "merges";

impl Objects {
    /// Moves each object to the name that `renamed` gives it; that one is gone already is no error. A bucket copies and
    /// removes.
    pub(crate) async fn move_all(
        &self,
        names: &[String],
        renamed: impl Fn(&str) -> String,
    ) -> Result<(), EventStoreError> {
        let is_sums = |name: &&String| checksums::object_of(name) == **name;
        // The checksums last: whoever still reads an object needs them.
        let (sums, others): (Vec<_>, Vec<_>) = names.iter().partition(is_sums);
        for name in others.into_iter().chain(sums) {
            let (from, to) = (self.path(name), self.path(&renamed(name)));
            self.whole.with(|| rename_if_there(self.store.clone(), from.clone(), to.clone())).await?;
        }
        Ok(())
    }

    /// Whether there is any object of events, persons, groups or merges.
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

    /// The names of all objects of events, persons, groups and merges, checksums included.
    pub(crate) async fn list_event_objects(&self) -> Result<Vec<String>, EventStoreError> {
        let mut names = Vec::new();
        for folder in self.event_folders().await? {
            names.extend(self.list(&folder).await?.into_iter().map(|object| object.name));
        }
        Ok(names)
    }

    /// The projects that there are folders of.
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
