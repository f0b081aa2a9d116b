//! What stands around a calculation, for those who look into it: what its scans took, and what a question is planned with.

use std::sync::{Arc, Mutex, PoisonError};

use pennon_core::error::ApiResult;
use pennon_core::model::Project;
use pennon_engine::{ProjectContext, Query};
use pennon_eventstore::ScanStats;

use super::definitions::{Known, named_by};
use super::{Calculator, context};
use crate::errors::unreadable;

/// What the scans of a calculator took, one after the other. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Measured(Arc<Mutex<Vec<ScanStats>>>);

impl Measured {
    pub(super) fn add(&self, stats: ScanStats) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(stats);
    }

    /// All scans so far.
    pub fn scans(&self) -> Vec<ScanStats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
