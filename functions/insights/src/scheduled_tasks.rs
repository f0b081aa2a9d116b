//! Scheduled tasks: cleanup after the deletion of dashboards and after changes of long cohort lists.
//!
//! A task is a row in the partition [`keys::DUE`], whose sort key begins with the time from which it is due. Must stay true:
//! a run may be interrupted anywhere and repeated, or run twice concurrently; a task that fails does not block the others.

use std::time::Duration;

use chrono::{DateTime, Utc};
use pennon_core::error::ApiResult;
use pennon_core::store::keys::{self, ScheduledTask};
use pennon_core::store::{Item, PartitionQuery, Table, Write, WriteCondition};
use tokio::time::Instant;

use crate::cohorts;
use crate::dashboards::cleanup;

/// Tasks that are read in one query.
const PAGE_TASKS: usize = 100;

/// The outcome of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScheduledTaskStats {
    /// Tasks that were completed.
    pub notes: usize,
    /// Tasks that failed; the cause is logged.
    pub failed: usize,
    /// Whether the time ran out before all due tasks were run; the next run continues.
    pub unfinished: bool,
}

/// Runs the tasks that are due at `now`, for about `time`, but at least one.
pub async fn run_scheduled_tasks(
    records: &Table,
    now: DateTime<Utc>,
    time: Duration,
) -> ApiResult<ScheduledTaskStats> {
    let deadline = Instant::now() + time;
    let mut run = ScheduledTaskStats::default();
    let mut after: Option<String> = None;
    loop {
        let mut query = PartitionQuery::partition(keys::SCHEDULED_TASKS).limit(PAGE_TASKS);
        if let Some(after) = after.take() {
            query = query.after(after);
        }
        let tasks = records.query(query).await?;
        let Some(last) = tasks.last() else { break };
        after = Some(last.key.sk.clone());
        for task in &tasks {
            if !keys::is_due(&task.key, now) {
                return Ok(run);
            }
            if run.notes + run.failed > 0 && Instant::now() >= deadline {
                run.unfinished = true;
                return Ok(run);
            }
            match Box::pin(run_task(records, task)).await {
                Ok(()) => run.notes += 1,
                Err(error) => {
                    run.failed += 1;
                    tracing::error!(note = task.key.sk, cause = error.detail(), "a scheduled task failed");
                }
            }
        }
    }
    if run.notes > 0 {
        tracing::info!(?run, "scheduled tasks were run");
    }
    Ok(run)
}

/// Runs a task and deletes its row.
async fn run_task(records: &Table, task: &Item) -> ApiResult<()> {
    match keys::parse_scheduled_task(&task.key) {
        Some(ScheduledTask::RemoveDashboardInsights { project, dashboard }) => {
            cleanup::run_insight_deletion(records, project, dashboard, task).await
        }
        Some(ScheduledTask::RemoveDashboardTiles { project, dashboard }) => {
            cleanup::run_tile_removal(records, project, dashboard, &task.key).await
        }
        Some(ScheduledTask::RemoveCohortMembers { project, cohort }) => {
            cohorts::run_list_cleanup(records, project, cohort, task).await
        }
        None => {
            tracing::error!(note = task.key.sk, "a scheduled task of unknown kind is deleted");
            Ok(records.transact(vec![Write::Delete(task.key.clone(), WriteCondition::None)]).await?)
        }
    }
}
