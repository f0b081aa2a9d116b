//! Deletion of files that no version needs: replaced ones, those of publishers that stopped, and whole tables.
//!
//! Must stay true: a file that a version names is deleted ten minutes after a later version replaced it, and not before; a file that
//! no version names is deleted only if no publisher can still publish a version that names it.

use std::collections::HashSet;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{EventStoreError, ORPHANED_MICROS};

use crate::metadata::TableVersion;
use crate::publisher::{Table, TablePublisher, project_folder};
use crate::version_log::VersionLog;

const TABLES: [Table; 2] = [Table::Events, Table::Persons];

impl TablePublisher {
    /// Deletes files of both tables that were replaced ten minutes before `now`, and publishes nothing.
    pub async fn remove_replaced(&self, project: ProjectId, now: Micros) -> Result<(), EventStoreError> {
        for table in TABLES {
            let log = VersionLog::new(self.files.clone(), table.folder(project));
            match log.newest().await? {
                Some(version) => self.remember(project, table, version),
                None => self.forget(project, table),
            }
            self.remove_due_of_remembered(project, table, now).await?;
        }
        Ok(())
    }

    /// Deletes the files that were replaced ten minutes before `now`, as far as this process knows them.
    pub(crate) async fn remove_due_of_remembered(
        &self,
        project: ProjectId,
        table: Table,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        let Some(mut version) = self.remembered(project, table) else { return Ok(()) };
        let (due, left): (Vec<_>, Vec<_>) =
            version.files.replaced.into_iter().partition(|file| file.is_due(now));
        if due.is_empty() {
            return Ok(());
        }
        let due = due.into_iter().map(|file| file.name).collect::<Vec<_>>();
        self.files.remove(&due).await?;
        version.files.replaced = left;
        self.remember(project, table, version);
        Ok(())
    }

    /// Deletes data files of persons that were listed before this process published the newest version, and that it does not name:
    /// of publishers that stopped. One that is running follows an earlier version, so it cannot publish any more.
    pub(crate) async fn remove_unnamed_data(
        &self,
        project: ProjectId,
        listed: Vec<(String, Micros)>,
    ) -> Result<(), EventStoreError> {
        let Some(version) = self.remembered(project, Table::Persons) else { return Ok(()) };
        let named = names(&version);
        let data = format!("{}/data/", Table::Persons.folder(project));
        let unnamed = listed.into_iter().map(|(name, _)| name);
        let unnamed = unnamed.filter(|name| name.starts_with(&data) && !named.contains(name.as_str()));
        self.files.remove(&unnamed.collect::<Vec<_>>()).await
    }

    /// Deletes files that no version names, because a publisher stopped, and that are a day old. Returns their number.
    pub async fn sweep(&self, project: ProjectId, now: Micros) -> Result<usize, EventStoreError> {
        let mut removed = 0;
        for table in TABLES {
            let folder = table.folder(project);
            let log = VersionLog::new(self.files.clone(), folder.clone());
            let listed = self.files.list(&folder).await?;
            // After the list: a file of a version that was published since is less than a day old.
            let version = log.newest().await?;
            let mut needed = version.as_ref().map(names).unwrap_or_default();
            let metadata = version.as_ref().map(|version| log.metadata_file(version.number));
            let hint = log.hint_file();
            needed.extend(metadata.as_deref());
            needed.extend(version.as_ref().map(|_| hint.as_str()));
            let is_old = |at: Micros| at.saturating_add(ORPHANED_MICROS) <= now;
            let unused =
                listed.into_iter().filter(|(name, at)| is_old(*at) && !needed.contains(name.as_str()));
            let unused = unused.map(|(name, _)| name).collect::<Vec<_>>();
            self.files.remove(&unused).await?;
            removed += unused.len();
        }
        Ok(removed)
    }

    /// Deletes the tables of a project, which nothing publishes any more. Returns the number of their files.
    pub async fn remove_tables(&self, project: ProjectId) -> Result<usize, EventStoreError> {
        TABLES.into_iter().for_each(|table| self.forget(project, table));
        self.remove_folder(&project_folder(project)).await
    }

    pub(crate) async fn remove_folder(&self, folder: &str) -> Result<usize, EventStoreError> {
        let listed = self.files.list(folder).await?;
        let names = listed.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        self.files.remove(&names).await?;
        Ok(names.len())
    }
}

/// The names of the files of a version and of those that it replaced, its metadata file excepted.
fn names(version: &TableVersion) -> HashSet<&str> {
    let replaced = version.files.replaced.iter().map(|file| file.name.as_str());
    version.files.own.iter().map(String::as_str).chain(replaced).collect()
}
