//! Metrics of calculations, and the engine context of a query, for the command line and for the progress of jobs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pennon_analytics::{ProjectContext, Query};
use pennon_core::error::ApiResult;
use pennon_core::model::Project;
use pennon_eventstore::ScanStats;

use super::definitions::{DefinitionLookup, direct_references};
use super::{Calculator, context};
use crate::errors::event_store_error;
use crate::query_state::QueryProgress;

/// Statistics of a calculator's scans, and the progress of its calculations. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct CalculationMetrics(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    scans: Mutex<Vec<ScanStats>>,
    rows: AtomicU64,
    busy_micros: AtomicU64,
}

impl CalculationMetrics {
    pub(super) fn add(&self, stats: ScanStats) {
        self.0.scans.lock().unwrap_or_else(PoisonError::into_inner).push(stats);
    }

    pub(super) fn add_rows(&self, rows: u64, took: Duration) {
        self.0.rows.fetch_add(rows, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0.busy_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Adds what another process has read for a part of a query, and its CPU time.
    pub(crate) fn add_part(&self, rows: u64, bytes_read: u64, busy: Duration) {
        self.add(ScanStats { rows, bytes_read, ..ScanStats::default() });
        self.add_rows(rows, busy);
    }

    /// The progress of a calculation that has run for `elapsed`.
    pub(crate) fn progress(&self, elapsed: Duration) -> QueryProgress {
        let scans = self.scans();
        QueryProgress {
            bytes_read: scans.iter().map(|scan| scan.bytes_read).sum(),
            rows_read: self.0.rows.load(Ordering::Relaxed),
            estimated_rows_total: scans.iter().map(|scan| scan.rows).sum(),
            time_elapsed: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            active_cpu_time: self.0.busy_micros.load(Ordering::Relaxed),
        }
    }

    /// The statistics of all scans so far.
    pub fn scans(&self) -> Vec<ScanStats> {
        self.0.scans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Calculator {
    /// The same calculator with metrics. They grow with each scan: for a job or a command, not for a server.
    #[must_use]
    pub fn measured(self) -> (Calculator, CalculationMetrics) {
        let metrics = CalculationMetrics::default();
        (Calculator { metrics: Some(metrics.clone()), ..self }, metrics)
    }

    /// The engine context of `query`, with its definitions and, if needed, the earliest event.
    pub async fn context(
        &self,
        project: &Project,
        query: &Query,
        known: &DefinitionLookup,
    ) -> ApiResult<ProjectContext> {
        let used = known.of(project.id, &direct_references(query, Some(project)))?;
        let mut context = context(project, used.definitions)?;
        if query.needs_earliest() {
            context.earliest_event = self.events.earliest(project.id).await.map_err(event_store_error)?;
        }
        Ok(context)
    }
}
