//! The list of projects that have events, imported persons or groups, and what a writer of events knows of them.
//!
//! Must stay true: a process reads the fixed rows of a project before it writes them, because most exist; a number of block
//! partitions that is outdated loses nothing ([`crate::block_partitions`]).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pennon_core::clock::CacheInstant;
use pennon_core::store::keys::{ProjectId, project_ingested};
use pennon_core::store::{Item, Key, PartitionQuery, Table, WriteCondition};

use crate::block_partitions::BlockPartitions;
use crate::error::EventStoreError;
use crate::keys;

/// Time after which a writer reads the number of block partitions again.
const PARTITIONS_TTL: Duration = Duration::from_secs(60);

/// Lists projects by marker rows.
#[derive(Debug)]
pub(crate) struct ProjectList {
    records: Table,
    /// The projects whose marker rows exist.
    started: Mutex<HashMap<ProjectId, StartedProject>>,
}

/// What a process that writes events knows of a project.
#[derive(Debug, Clone, Copy)]
struct StartedProject {
    partitions: BlockPartitions,
    /// When the number of partitions was read.
    read_at: CacheInstant,
}

impl ProjectList {
    pub(crate) fn new(records: Table) -> ProjectList {
        ProjectList { records, started: Mutex::default() }
    }

    /// Marks the project as having events, once per process. Returns the number of its block partitions, read at some time by
    /// this process.
    pub(crate) async fn start_project(&self, project: ProjectId) -> Result<BlockPartitions, EventStoreError> {
        if let Some(started) = self.started().get(&project) {
            return Ok(started.partitions);
        }
        let marks = [keys::project_with_events(project), project_ingested(project)];
        let rows = marks.iter().cloned().chain([keys::block_partitions(project)]).collect::<Vec<_>>();
        let found = self.records.batch_get(&rows).await?;
        let missing = marks.into_iter().zip(&found).filter(|(_, row)| row.is_none());
        for (mark, _) in missing {
            self.put_mark(mark).await?;
        }
        self.remember(project, found.last().and_then(Option::as_ref))
    }

    /// Reads the number of block partitions again, if it was read a minute ago.
    pub(crate) async fn refresh_partitions(&self, project: ProjectId) -> Result<(), EventStoreError> {
        let read_at = self.started().get(&project).map(|started| started.read_at);
        if read_at.is_none_or(|at| at.is_younger_than(PARTITIONS_TTL)) {
            return Ok(());
        }
        let row = self.records.get(&keys::block_partitions(project)).await?;
        self.remember(project, row.as_ref()).map(drop)
    }

    fn remember(&self, project: ProjectId, row: Option<&Item>) -> Result<BlockPartitions, EventStoreError> {
        let partitions = row.map(BlockPartitions::of_row).transpose()?.unwrap_or_default();
        let started = StartedProject { partitions, read_at: CacheInstant::now() };
        self.started().insert(project, started);
        Ok(partitions)
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

    /// Recovers from a poisoned lock: the map stays valid.
    fn started(&self) -> MutexGuard<'_, HashMap<ProjectId, StartedProject>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
