//! Wakes compaction after a captured block.
//!
//! Must stay true: a process inserts at most one row a minute and project, and of all processes one succeeds; a failure does not
//! fail the capture, because the schedule compacts what nothing woke.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pennon_analytics::scan::Micros;
use pennon_core::store::Table;
use pennon_core::store::keys::ProjectId;

use crate::manifest::{CompactionTask, minute_of};

/// Inserts the rows that wake compaction.
#[derive(Debug)]
pub(crate) struct CompactionWaker {
    /// `None` if nothing reads the stream.
    records: Option<Table>,
    /// The last minute for which this process knows that the row exists, by project.
    woken: Mutex<HashMap<ProjectId, Micros>>,
}

impl CompactionWaker {
    pub(crate) fn new(records: Option<Table>) -> CompactionWaker {
        CompactionWaker { records, woken: Mutex::default() }
    }

    /// Wakes the compaction of the project's blocks, unless this process has in the minute of `now`.
    pub(crate) async fn wake(&self, project: ProjectId, now: Micros) {
        let Some(records) = &self.records else { return };
        let minute = minute_of(now);
        let woken = || self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        if woken().get(&project).is_some_and(|last| *last >= minute) {
            return;
        }
        match CompactionTask::Blocks(project).wake_once_a_minute(records, now).await {
            Ok(()) => {
                woken().insert(project, minute);
            }
            Err(error) => tracing::warn!(project, %error, "compaction was not woken; the schedule runs it"),
        }
    }
}
