//! What wakes compaction, and who may run it: rows of the records table.
//!
//! A captured block inserts a row, at most one a minute and project. The table's stream carries it to the worker, which runs
//! the task under a lease. A task that is not finished, or that finds other work, inserts a row again. Must stay true: rows and
//! leases only save work: two runs of a task at the same time change no result, and the schedule finds what nothing woke.

use pennon_analytics::scan::Micros;
use pennon_core::ids::random_below;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key, StoreError, Table, Write, WriteCondition};

use crate::keys;

/// Microseconds of a minute.
const MINUTE: Micros = 60_000_000;
/// Seconds after which the store deletes a row that woke compaction.
const WAKE_KEPT_SECONDS: i64 = 24 * 3600;

/// A part of a project's compaction that runs on its own, because merges take longer than blocks may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CompactionTask {
    /// Turns waiting blocks into segments.
    Blocks(ProjectId),
    /// Merges segments.
    Merges(ProjectId),
}

impl CompactionTask {
    /// The task that the inserted row at `key` wakes.
    pub fn of_wake(key: &Key) -> Option<CompactionTask> {
        let (project, is_merges) = keys::compaction_of_wake(key)?;
        Some(if is_merges { CompactionTask::Merges(project) } else { CompactionTask::Blocks(project) })
    }

    fn pk(self) -> String {
        match self {
            CompactionTask::Blocks(project) => keys::block_compaction_pk(project),
            CompactionTask::Merges(project) => keys::segment_merges_pk(project),
        }
    }

    /// Inserts the row of the minute of `now`, if no process has.
    pub(crate) async fn wake_once_a_minute(self, records: &Table, now: Micros) -> Result<(), StoreError> {
        match self.put_wake(records, &format!("{:012}", minute_of(now)), now, WriteCondition::Absent).await {
            Err(StoreError::Condition { .. }) => Ok(()),
            written => written,
        }
    }

    /// Inserts a row of its own, for work that is left.
    pub(crate) async fn wake_again(self, records: &Table, now: Micros) -> Result<(), StoreError> {
        let name = format!("{:012}#{:016x}", minute_of(now), random_below(u64::MAX));
        self.put_wake(records, &name, now, WriteCondition::None).await
    }

    async fn put_wake(
        self,
        records: &Table,
        name: &str,
        now: Micros,
        condition: WriteCondition,
    ) -> Result<(), StoreError> {
        let row = Item::empty(keys::compaction_wake(self.pk(), name));
        records.put(row.expiring(now / 1_000_000 + WAKE_KEPT_SECONDS), condition).await
    }

    /// Takes the lease of the task until `until`; none while another process holds it.
    pub(crate) async fn lease(
        self,
        records: &Table,
        now: Micros,
        until: Micros,
    ) -> Result<Option<CompactionLease>, StoreError> {
        let lease = CompactionLease {
            key: keys::compaction_lease(self.pk()),
            token: 1 + random_below(i64::MAX as u64),
        };
        match lease.put(records, until, WriteCondition::CountAtMost(now)).await {
            Ok(()) => Ok(Some(lease)),
            Err(StoreError::Condition { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The minute of an instant since the epoch.
pub(crate) fn minute_of(now: Micros) -> Micros {
    now.div_euclid(MINUTE)
}

/// The exclusive right to run a task, until it expires.
#[derive(Debug)]
pub struct CompactionLease {
    key: Key,
    /// The version of the row, which no other lease has.
    token: u64,
}

impl CompactionLease {
    /// Extends the lease. Returns false if it expired and another process took it.
    pub(crate) async fn renew(&self, records: &Table, until: Micros) -> Result<bool, StoreError> {
        match self.put(records, until, WriteCondition::Version(self.token)).await {
            Ok(()) => Ok(true),
            Err(StoreError::Condition { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends the lease, if it has not expired.
    pub(crate) async fn release(self, records: &Table) -> Result<(), StoreError> {
        let delete = Write::Delete(self.key, WriteCondition::Version(self.token));
        match records.transact(vec![delete]).await {
            Err(StoreError::Condition { .. }) => Ok(()),
            deleted => deleted,
        }
    }

    async fn put(&self, records: &Table, until: Micros, condition: WriteCondition) -> Result<(), StoreError> {
        let row = Item { count: until, ..Item::empty(self.key.clone()) };
        let row = row.with_version(self.token).expiring(until / 1_000_000 + WAKE_KEPT_SECONDS);
        records.put(row, condition).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_wakes_names_its_task() {
        for task in [CompactionTask::Blocks(7), CompactionTask::Merges(7)] {
            let key = keys::compaction_wake(task.pk(), "000028333333");
            assert_eq!(CompactionTask::of_wake(&key), Some(task));
            assert_eq!(CompactionTask::of_wake(&keys::compaction_lease(task.pk())), None);
        }
        for (pk, sk) in [("JOB#7", "WAKE#1"), ("COMPACTION#x", "WAKE#1"), ("COMPACTION#7#OTHER", "WAKE#1")] {
            assert_eq!(CompactionTask::of_wake(&Key::new(pk, sk)), None, "{pk}");
        }
    }
}
