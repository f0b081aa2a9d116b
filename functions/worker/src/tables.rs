//! Publication of tables for other engines, after compaction.
//!
//! Must stay true: a table that cannot be published is logged and fails nothing else, as the next run publishes it; where
//! publication is switched off, tables of an earlier setting are deleted, because nothing else keeps them from naming files that no
//! longer exist, or persons that were erased.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{CompactionTask, EventStore, EventStoreError};
use pennon_iceberg::{PublicationMode, TablePublisher};
use tokio::time::Instant;

use crate::RunClock;

/// Publishes tables, or deletes them where publication is switched off.
#[derive(Debug, Clone)]
pub struct TableMaintenance {
    events: EventStore,
    publisher: Arc<TablePublisher>,
    is_enabled: bool,
}

impl TableMaintenance {
    /// The maintenance of the tables of `events`; `is_enabled` by the setting `PENNON_ICEBERG`.
    pub fn new(events: EventStore, is_enabled: bool) -> TableMaintenance {
        TableMaintenance { publisher: Arc::new(TablePublisher::new(events.clone())), events, is_enabled }
    }

    /// Publishes the events of the projects of these tasks, if publication is switched on, starting at `now`, for at most `time`.
    /// Persons, which take longer, are left to the schedule, as the records behind these tasks wait.
    pub async fn publish_after_tasks(&self, tasks: &[CompactionTask], now: DateTime<Utc>, time: Duration) {
        if !self.is_enabled {
            return;
        }
        let project = |task: &CompactionTask| match task {
            CompactionTask::Blocks(project) | CompactionTask::Merges(project) => *project,
        };
        let mut projects = tasks.iter().map(project).collect::<Vec<_>>();
        projects.sort_unstable();
        projects.dedup();
        let clock = RunClock { start: Instant::now(), now, time };
        self.maintain(projects, PublicationMode::EventsOnly, &clock, false).await;
    }

    /// Publishes the tables of all projects, if publication is switched on, starting at `now`, for at most `time`. One call in
    /// `sweep_one_in` also deletes files that no table needs. Fails only if the projects cannot be listed.
    pub async fn maintain_all(
        &self,
        now: DateTime<Utc>,
        time: Duration,
        sweep_one_in: u64,
    ) -> Result<(), EventStoreError> {
        let sweeps = pennon_core::ids::random_below(sweep_one_in) == 0;
        if !self.is_enabled && !sweeps {
            return Ok(());
        }
        let clock = RunClock { start: Instant::now(), now, time };
        let projects = self.events.projects().await?;
        self.maintain(projects, PublicationMode::Regular, &clock, sweeps).await;
        Ok(())
    }

    async fn maintain(
        &self,
        mut projects: Vec<ProjectId>,
        mode: PublicationMode,
        clock: &RunClock,
        sweeps: bool,
    ) {
        // Start with a random project, so that runs that always time out still reach all of them.
        let first = pennon_core::ids::random_below(projects.len() as u64);
        projects.rotate_left(usize::try_from(first).unwrap_or(0));
        for project in projects {
            if clock.is_over() {
                tracing::warn!("tables were not published in time; the next run publishes them");
                return;
            }
            if let Err(error) = self.maintain_project(project, mode, clock, sweeps).await {
                tracing::error!(project, %error, "the tables of a project could not be published; the next run repeats it");
            }
        }
    }

    async fn maintain_project(
        &self,
        project: ProjectId,
        mode: PublicationMode,
        clock: &RunClock,
        sweeps: bool,
    ) -> Result<(), EventStoreError> {
        if self.is_enabled {
            let now = || clock.now_micros();
            let published = self.publisher.publish(project, mode, &now, clock.time_left()).await;
            // Also when nothing could be published.
            if sweeps {
                self.publisher.sweep(project, clock.now_micros()).await?;
            }
            let published = published?;
            if published.events || published.persons {
                tracing::info!(project, ?published, "tables were published");
            }
        } else if sweeps {
            let files = self.publisher.remove_tables(project).await?;
            if files > 0 {
                tracing::info!(project, files, "tables were deleted, as PENNON_ICEBERG is not on");
            }
        }
        Ok(())
    }
}
