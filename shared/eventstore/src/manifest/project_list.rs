//! The list of projects that have events, imported persons or groups.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pennon_core::store::keys::{ProjectId, project_ingested};
use pennon_core::store::{Item, Key, PartitionQuery, Table, WriteCondition};

use crate::error::EventStoreError;
use crate::keys;

/// Lists projects by marker rows.
#[derive(Debug)]
pub(crate) struct ProjectList {
    records: Table,
    /// The projects whose marker rows this process has written.
    marked: Mutex<HashSet<ProjectId>>,
}

impl ProjectList {
    pub(crate) fn new(records: Table) -> ProjectList {
        ProjectList { records, marked: Mutex::default() }
    }

    /// Writes the rows that mark the project as having events, once per process.
    pub(crate) async fn mark_project(&self, project: ProjectId) -> Result<(), EventStoreError> {
        if self.marked().contains(&project) {
            return Ok(());
        }
        self.put_mark(keys::project_with_events(project)).await?;
        self.put_mark(project_ingested(project)).await?;
        self.marked().insert(project);
        Ok(())
    }

    /// Writes the row by which [`ProjectList::projects`] lists the project, for imported persons and groups.
    /// Without it a backup and an export would skip them. It does not mark the project as having events.
    pub(crate) async fn list_project(&self, project: ProjectId) -> Result<(), EventStoreError> {
        self.put_mark(keys::project_with_events(project)).await
    }

    async fn put_mark(&self, key: Key) -> Result<(), EventStoreError> {
        match self.records.put(Item::empty(key), WriteCondition::Absent).await {
            Err(error) if !error.is_condition(0) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Lists the projects.
    pub(crate) async fn projects(&self) -> Result<Vec<ProjectId>, EventStoreError> {
        let items = self.records.query(PartitionQuery::partition(keys::PROJECTS_PK)).await?;
        Ok(items.iter().filter_map(|item| keys::project_of_sk(&item.key.sk)).collect())
    }

    /// Recovers from a poisoned lock: the set stays valid.
    fn marked(&self) -> MutexGuard<'_, HashSet<ProjectId>> {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
