//! The first actors of a list, in the order of its pages, and the number of all.

use std::sync::Arc;

use pennon_analytics::Plan;
use pennon_analytics::kinds::DataPoint;
use pennon_analytics::people::{MatchedActor, union};
use pennon_analytics::scan::Partition;
use pennon_eventstore::QueryMemory;
use serde::{Deserialize, Serialize};

use super::CalculationPermit;
use super::execution::{self, CancellationGuard, ExecutionError, PlanInputs};

/// The first actors in the order of pages, and the number of all.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FirstActors {
    /// The number of all actors.
    pub(super) total: usize,
    /// The first of them.
    pub(super) actors: Vec<MatchedActor>,
}

impl FirstActors {
    /// Adds the matches of a partition. `limit` is `None` where several partitions match the same actor: all are kept then.
    fn add(mut self, matches: Vec<MatchedActor>, limit: Option<usize>) -> FirstActors {
        self.total += matches.len();
        self.actors.extend(matches);
        if let Some(limit) = limit {
            self.actors.sort_by_key(MatchedActor::page_order);
            self.actors.truncate(limit);
        }
        self
    }

    /// The first actors of several partitions or parts.
    fn merged(parts: impl IntoIterator<Item = FirstActors>, limit: Option<usize>) -> FirstActors {
        parts.into_iter().fold(FirstActors::default(), |first, part| {
            let total = first.total + part.total;
            FirstActors { total, ..first.add(part.actors, limit) }
        })
    }

    /// Merges the matches of the same actor.
    pub(super) fn deduplicated(self) -> FirstActors {
        let mut actors = union(self.actors);
        actors.sort_by_key(MatchedActor::page_order);
        FirstActors { total: actors.len(), actors }
    }
}

/// The first actors behind a number, of loaded events; `kept` is how many, or `None` for all.
pub(super) async fn first_actors(
    plan: Arc<Plan>,
    inputs: PlanInputs,
    (point, kept): (DataPoint, Option<usize>),
    cancellation: &CancellationGuard,
    permit: CalculationPermit,
) -> Result<FirstActors, ExecutionError> {
    let add =
        move |first: FirstActors, plan: &Plan, partition: &Partition, is_cancelled: &dyn Fn() -> bool| {
            Ok(first.add(plan.people(partition, &point, is_cancelled)?, kept))
        };
    let parts = execution::map_partitions(plan, inputs, cancellation, permit, add).await?;
    Ok(FirstActors::merged(parts, kept))
}

/// Merges the first actors of parts, off the runtime's threads.
pub(super) async fn merge_first_actors(
    parts: Vec<FirstActors>,
    (kept, memory): (Option<usize>, QueryMemory),
    cancellation: &CancellationGuard,
    permit: CalculationPermit,
) -> Result<FirstActors, ExecutionError> {
    let is_cancelled = cancellation.cancellation_check();
    let merged = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        execution::metered(&memory, &is_cancelled, |_| Ok(FirstActors::merged(parts, kept)))
    });
    merged.await?
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn matches(ids: &[u128]) -> Vec<MatchedActor> {
        ids.iter()
            .map(|id| MatchedActor {
                actor: Uuid::from_u128(*id),
                key: None,
                times: Vec::new(),
                appearances: Vec::new(),
            })
            .collect()
    }

    #[test]
    fn the_first_ones_are_kept_and_all_are_counted_in_any_order() {
        let most = Some(3);
        let one = FirstActors::default().add(matches(&[5, 1, 9]), most).add(matches(&[4, 2]), most);
        let other = FirstActors::default().add(matches(&[2, 4]), most).add(matches(&[9, 5, 1]), most);
        assert_eq!((one.total, one.actors.clone()), (5, matches(&[1, 2, 4])));
        assert_eq!(one.actors, other.actors);
        assert_eq!(FirstActors::default().add(matches(&[1]), Some(0)).total, 1);
        let shared =
            FirstActors::default().add(matches(&[7, 3]), None).add(matches(&[3, 1]), None).deduplicated();
        assert_eq!((shared.total, shared.actors), (3, matches(&[1, 3, 7])));
    }
}
