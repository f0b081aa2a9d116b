//! The number of persons in a cohort.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use chrono::{DateTime, Utc};
use pennon_core::error::ApiResult;
use pennon_core::model::Project;
use tokio::time::Instant;
use uuid::Uuid;

use super::execution::{self, CancellationGuard, ExecutionError};
use super::{Calculator, TransitiveDefinitions, context, with_deadline};
use crate::errors::{engine_error, event_store_error};

impl Calculator {
    /// The number of persons in the cohort `id` of these definitions; 503 when it is not known by `deadline`.
    pub async fn count_members(
        &self,
        project: &Project,
        id: u64,
        definitions: &TransitiveDefinitions,
        now: DateTime<Utc>,
        deadline: Instant,
    ) -> ApiResult<u64> {
        let cancellation = CancellationGuard::until(deadline);
        let work = Box::pin(async {
            let membership = context(project, definitions.definitions.clone())?.membership(id, now);
            let membership = membership.map_err(engine_error)?;
            let permit = self.acquire_shared_permit().await?;
            let memory = self.events.query_memory();
            let join_data =
                self.load_join_data(project, membership.needs(), &definitions.cohort_lists, &memory).await?;
            let people = self.events.load_people(project.id, &BTreeSet::new(), &memory).await;
            let people = people.map_err(event_store_error)?;
            let is_cancelled = cancellation.cancellation_check();
            let counted = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                let mut persons: Vec<Uuid> = Vec::new();
                people.each(|id, _, _| {
                    persons.push(id);
                    if is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                // If the loop was cancelled, so is this: no partial count is returned.
                execution::metered(&memory, &is_cancelled, |is_cancelled| {
                    membership.count(&persons, join_data, is_cancelled)
                })
            });
            Ok(counted.await.map_err(ExecutionError::from)??)
        });
        Ok(with_deadline(project, deadline, work).await? as u64)
    }
}
