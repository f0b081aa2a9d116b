//! What stands around a calculation, for those who look into it: what its scans took, and what a question is planned with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pennon_core::error::ApiResult;
use pennon_core::model::Project;
use pennon_engine::{ProjectContext, Query};
use pennon_eventstore::ScanStats;

use super::definitions::{Known, named_by};
use super::{Calculator, context};
use crate::errors::unreadable;
use crate::jobs::Progress;

/// What a calculator does: its scans one after the other, and how much of what they gave is counted. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Measured(Arc<Notes>);

#[derive(Debug, Default)]
struct Notes {
    scans: Mutex<Vec<ScanStats>>,
    counted: AtomicU64,
    busy_micros: AtomicU64,
}

impl Measured {
    pub(super) fn add(&self, stats: ScanStats) {
        self.0.scans.lock().unwrap_or_else(PoisonError::into_inner).push(stats);
    }

    pub(super) fn add_counted(&self, rows: u64, took: Duration) {
        self.0.counted.fetch_add(rows, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0.busy_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// How far a calculation is that has taken so long.
    pub(crate) fn progress(&self, elapsed: Duration) -> Progress {
        let scans = self.scans();
        Progress {
            bytes_read: scans.iter().map(|scan| scan.bytes_read).sum(),
            rows_read: self.0.counted.load(Ordering::Relaxed),
            estimated_rows_total: scans.iter().map(|scan| scan.rows).sum(),
            time_elapsed: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            active_cpu_time: self.0.busy_micros.load(Ordering::Relaxed),
        }
    }

    /// All scans so far.
    pub fn scans(&self) -> Vec<ScanStats> {
        self.0.scans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Calculator {
    /// The same calculator, which notes what its scans take. For a process that asks a few questions and ends.
    #[must_use]
    pub fn measured(self) -> (Calculator, Measured) {
        let measured = Measured::default();
        (Calculator { measured: Some(measured.clone()), ..self }, measured)
    }

    /// What `query` is planned with, given what the ids in it mean.
    pub async fn context(
        &self,
        project: &Project,
        query: &Query,
        known: &Known,
    ) -> ApiResult<ProjectContext> {
        let used = known.of(project.id, &named_by(query, Some(project)))?;
        let mut context = context(project, used.definitions)?;
        if query.needs_earliest() {
            context.earliest_event = self.events.earliest(project.id).await.map_err(unreadable)?;
        }
        Ok(context)
    }
}
