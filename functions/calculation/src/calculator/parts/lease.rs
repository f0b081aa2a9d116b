//! The lease of a query that is calculated in parts: the caller renews it, and its parts watch it.
//!
//! Must stay true: a part that was not cancelled otherwise stops at most two seconds after its query ended, was cancelled, or lost
//! its process. Clocks of two machines are never compared: a part counts how long it has seen no change.

use std::time::Duration;

use pennon_core::ids::new_uuid;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, StoreError, Table, WriteCondition};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::query_state::row_expiry;

/// How often the lease is renewed and watched.
const BEAT: Duration = Duration::from_millis(400);
/// How long a lease holds without a renewal.
const LEASE: Duration = Duration::from_millis(1_400);

/// The project of a query, and the id of its lease.
pub(super) type LeaseId = (ProjectId, Uuid);

/// A lease that is renewed until it is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    /// The project, and the id of the lease.
    pub id: LeaseId,
    renewal: JoinHandle<()>,
}

impl Lease {
    /// Begins a lease. Its row exists when this returns.
    pub(super) async fn begin(records: &Table, project: ProjectId) -> Result<Lease, StoreError> {
        let id = (project, new_uuid());
        write(records, id, 0).await?;
        let records = records.clone();
        let renewal = tokio::spawn(async move {
            for count in 1.. {
                tokio::time::sleep(BEAT).await;
                if let Err(error) = write(&records, id, count).await {
                    tracing::warn!(%error, "the lease of a query in parts could not be renewed");
                }
            }
        });
        Ok(Lease { id, renewal })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

async fn write(records: &Table, (project, id): LeaseId, count: u64) -> Result<(), StoreError> {
    records
        .put(Item::new(keys::part_lease(project, id), &count)?.expiring(row_expiry()), WriteCondition::None)
        .await
}

/// Resolves when a lease is no longer renewed.
pub(super) async fn watch(records: &Table, (project, id): LeaseId) {
    let mut seen = (None, Instant::now());
    while seen.1.elapsed() < LEASE {
        match records.get(&keys::part_lease(project, id)).await {
            Ok(None) => return,
            Ok(Some(item)) => {
                let count = item.body::<u64>().ok();
                if seen.0 != count {
                    seen = (count, Instant::now());
                }
            }
            // A store that cannot be read does not end the query.
            Err(error) => {
                tracing::warn!(%error, "the lease of a query in parts could not be read");
                seen.1 = Instant::now();
            }
        }
        tokio::time::sleep(BEAT).await;
    }
}
