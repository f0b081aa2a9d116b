//! The lease of a query that is calculated in parts: the caller renews it, and its parts watch it.
//!
//! Must stay true: a part that was not cancelled otherwise stops at most two seconds after its query ended or was cancelled, and
//! some seconds after its query lost its process; it does not stop because a busy machine or a busy table delays a renewal. Clocks of
//! two machines are never compared: a part counts how often it has seen no change.

use std::time::Duration;

use pennon_core::ids::new_uuid;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, StoreError, Table, WriteCondition};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::query_state::row_expiry;

/// How often the lease is renewed and watched.
const BEAT: Duration = Duration::from_millis(400);
/// How often in a row a part reads a lease that was not renewed until it stops: five seconds of beats.
const UNCHANGED_MAX: u32 = 12;

/// The project of a query, and the id of its lease.
pub(super) type LeaseId = (ProjectId, Uuid);

/// What the row of a lease says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum LeaseState {
    /// The query runs; the number is that of the renewal.
    Renewed(u64),
    /// The query has ended.
    Ended,
}

/// A lease that is renewed until it is ended or dropped.
#[derive(Debug)]
pub(super) struct Lease {
    /// The project, and the id of the lease.
    pub id: LeaseId,
    /// Ends the renewal when it is dropped.
    running: oneshot::Sender<()>,
    renewal: JoinHandle<()>,
}

impl Lease {
    /// Begins a lease. Its row exists when this returns.
    pub(super) async fn begin(records: &Table, project: ProjectId) -> Result<Lease, StoreError> {
        let id = (project, new_uuid());
        write_state(records, id, LeaseState::Renewed(0)).await?;
        let (running, ended) = oneshot::channel();
        let renewal = tokio::spawn(renew_until_ended(records.clone(), id, ended));
        Ok(Lease { id, running, renewal })
    }

    /// Ends the lease, and returns when its parts can see that.
    pub(super) async fn end(self) {
        drop(self.running);
        if let Err(error) = self.renewal.await {
            tracing::warn!(%error, "the renewal of the lease of a query in parts failed");
        }
    }
}

/// Renews a lease until its query has ended, and writes that then. One task writes all states, so that no renewal comes after the end. If
/// the end cannot be written, parts stop as those of a query that lost its process.
async fn renew_until_ended(records: Table, id: LeaseId, mut ended: oneshot::Receiver<()>) {
    let mut count = 0;
    let mut state = LeaseState::Renewed(count);
    while state != LeaseState::Ended {
        state = tokio::select! {
            _ = &mut ended => LeaseState::Ended,
            () = tokio::time::sleep(BEAT) => {
                count += 1;
                LeaseState::Renewed(count)
            }
        };
        if let Err(error) = write_state(&records, id, state).await {
            tracing::warn!(%error, "the lease of a query in parts could not be written");
        }
    }
}

async fn write_state(records: &Table, (project, id): LeaseId, state: LeaseState) -> Result<(), StoreError> {
    records
        .put(Item::new(keys::part_lease(project, id), &state)?.expiring(row_expiry()), WriteCondition::None)
        .await
}

/// What a part has seen of a lease.
#[derive(Debug, Default)]
struct WatchedLease {
    last: Option<LeaseState>,
    /// How often in a row it was read as before.
    unchanged: u32,
}

impl WatchedLease {
    /// Adds a read. Returns whether the query goes on.
    fn is_running_after(&mut self, read: Result<LeaseState, StoreError>) -> bool {
        match read {
            Ok(LeaseState::Ended) => return false,
            Ok(state) if self.last == Some(state) => self.unchanged += 1,
            Ok(state) => *self = WatchedLease { last: Some(state), unchanged: 0 },
            // A store that cannot be read does not end the query.
            Err(error) => tracing::warn!(%error, "the lease of a query in parts could not be read"),
        }
        self.unchanged < UNCHANGED_MAX
    }
}

/// Resolves when the query of a lease has ended, or no longer renews it.
pub(super) async fn watch(records: &Table, id: LeaseId) {
    let mut watched = WatchedLease::default();
    while watched.is_running_after(read_state(records, id).await) {
        tokio::time::sleep(BEAT).await;
    }
}

async fn read_state(records: &Table, (project, id): LeaseId) -> Result<LeaseState, StoreError> {
    let item = records.get(&keys::part_lease(project, id)).await?;
    item.map_or(Ok(LeaseState::Ended), |item| item.body::<LeaseState>())
}

#[cfg(test)]
mod tests {
    use super::LeaseState::{Ended, Renewed};
    use super::*;

    /// How many of these states a part reads until it stops.
    fn reads_until_the_end(states: impl IntoIterator<Item = Option<LeaseState>>) -> usize {
        let mut watched = WatchedLease::default();
        let unreadable = || StoreError::Corrupt("a row".to_owned());
        let reads = states.into_iter().map(|state| watched.is_running_after(state.ok_or_else(unreadable)));
        reads.take_while(|is_running| *is_running).count() + 1
    }

    #[test]
    fn a_part_stops_with_the_first_read_after_the_end() {
        let states = [Renewed(0), Renewed(1), Ended, Renewed(2)].map(Some);
        assert_eq!(reads_until_the_end(states), 3);
    }

    #[test]
    fn a_part_stops_seconds_after_the_last_renewal_and_not_because_one_is_late() {
        let unchanged = UNCHANGED_MAX as usize;
        assert_eq!(reads_until_the_end([Some(Renewed(7)); 100]), unchanged + 1);
        assert!((4..=6).contains(&(BEAT * UNCHANGED_MAX).as_secs()));
        let late = std::iter::repeat_n(Some(Renewed(0)), unchanged);
        let states = late.chain([Some(Renewed(1)), Some(Ended)]);
        assert_eq!(reads_until_the_end(states), unchanged + 2);
    }

    #[test]
    fn a_part_does_not_stop_while_its_lease_cannot_be_read() {
        let unreadable = std::iter::repeat_n(None, 100).chain([Some(Ended)]);
        assert_eq!(reads_until_the_end(unreadable), 101);
    }
}
