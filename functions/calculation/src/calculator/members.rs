//! How many persons belong to a cohort.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use chrono::{DateTime, Utc};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use tokio::time::Instant;
use uuid::Uuid;

use super::run::{self, Stop};
use super::{Calculator, Reached, context, in_time};
use crate::errors::{refusal, unreadable};

impl Calculator {
    /// How many persons belong to the cohort `id` of these definitions; 503 when that is not found out by `deadline`.
    pub async fn count_members(
        &self,
        project: &Project,
        id: u64,
        reached: &Reached,
        now: DateTime<Utc>,
        deadline: Instant,
    ) -> ApiResult<u64> {
        let stop = Stop::at(deadline);
        let work = Box::pin(async {
            let membership = context(project, reached.definitions.clone())?.membership(id, now);
            let membership = membership.map_err(refusal)?;
            let turn = self.turn().await?;
            let memory = self.events.question_memory();
            let facts = self.facts(project, membership.needs(), &reached.rosters, &memory).await?;
            let people = self.events.people_within(project.id, &BTreeSet::new(), &memory).await;
            let people = people.map_err(unreadable)?;
            let is_due = stop.is_due();
            let counted = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                let mut persons: Vec<Uuid> = Vec::new();
                people.each(|id, _, _| {
                    persons.push(id);
                    if is_due() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                // Where it is due, counting ends before it begins.
                run::measured(&memory, &is_due, |is_due| membership.count(&persons, facts, is_due))
            });
            counted.await.map_err(|error| ApiError::internal(&error))?
        });
        Ok(in_time(project, deadline, work).await? as u64)
    }
}
