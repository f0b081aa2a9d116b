//! Role accesses in the table.
//!
//! Must stay true: record and uniqueness row are written and deleted in one transaction, and only added to an existing
//! flag.

use std::cmp::Reverse;

use chrono::{DateTime, Utc};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, PartitionQuery, StoreError, Table, Write, WriteCondition};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The access of a role to a flag. It is immutable: it is added and removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleAccess {
    /// Unique in the installation, never reused.
    pub id: u64,
    /// The role.
    pub role: Uuid,
    /// When it was added.
    pub added_at: DateTime<Utc>,
}

/// The role accesses of a flag, sorted by id.
pub async fn list(records: &Table, project: ProjectId, flag: u64) -> Result<Vec<RoleAccess>, StoreError> {
    let queries = partition_queries(project, flag).map(|query| records.query(query));
    decode_accesses(futures::future::try_join_all(queries).await?.into_iter().flatten())
}

/// The role accesses of a flag, sorted by id; `None` when one of their partitions has more than `limit`.
pub async fn list_up_to(
    records: &Table,
    project: ProjectId,
    flag: u64,
    limit: usize,
) -> Result<Option<Vec<RoleAccess>>, StoreError> {
    let queries = partition_queries(project, flag).map(|query| records.query(query.limit(limit + 1)));
    let partitions = futures::future::try_join_all(queries).await?;
    if partitions.iter().any(|rows| rows.len() > limit) {
        return Ok(None);
    }
    decode_accesses(partitions.into_iter().flatten()).map(Some)
}

fn partition_queries(project: ProjectId, flag: u64) -> impl Iterator<Item = PartitionQuery> {
    (0..keys::ROLE_ACCESS_PARTS)
        .map(move |part| PartitionQuery::partition(keys::role_accesses_pk(project, flag, part)))
}

/// Decodes accesses, one of each role, sorted by id. Their partitions are read at different times, so the rows can hold an access that
/// was removed meanwhile beside the one that the role got after it. The one with the higher id is returned.
fn decode_accesses(rows: impl Iterator<Item = Item>) -> Result<Vec<RoleAccess>, StoreError> {
    let mut all = rows.map(|item| item.body::<RoleAccess>()).collect::<Result<Vec<_>, _>>()?;
    all.sort_unstable_by_key(|access| (access.role, Reverse(access.id)));
    all.dedup_by_key(|access| access.role);
    all.sort_unstable_by_key(|access| access.id);
    Ok(all)
}

/// Result of adding or removing a role access.
#[derive(Debug, PartialEq, Eq)]
pub enum RoleAccessWriteOutcome {
    /// The write was committed.
    Written,
    /// The role already has access.
    AlreadyExists,
    /// The flag or the role access does not exist.
    NotFound,
}

/// Adds a role access to an existing flag.
pub async fn add(
    records: &Table,
    project: ProjectId,
    flag: u64,
    access: &RoleAccess,
    idempotency_write: Option<Write>,
) -> Result<RoleAccessWriteOutcome, StoreError> {
    let uniqueness_key = keys::role_access_of_role(project, flag, access.role);
    let record = Item::new(keys::role_access(project, flag, access.id), access)?;
    let mut writes = vec![
        Write::Put(Item::new(uniqueness_key, &access.id)?, WriteCondition::Absent),
        Write::Put(record, WriteCondition::Absent),
        Write::Check(keys::record(project, keys::RecordKind::Flag, flag), WriteCondition::Present),
    ];
    writes.extend(idempotency_write);
    match records.transact(writes).await {
        Ok(()) => Ok(RoleAccessWriteOutcome::Written),
        Err(error) if error.is_condition(0) => Ok(RoleAccessWriteOutcome::AlreadyExists),
        Err(error) if error.is_condition(2) => Ok(RoleAccessWriteOutcome::NotFound),
        Err(error) => Err(error),
    }
}

/// Removes a role access.
pub async fn remove(
    records: &Table,
    project: ProjectId,
    flag: u64,
    access: &RoleAccess,
) -> Result<RoleAccessWriteOutcome, StoreError> {
    let writes = vec![
        Write::Delete(keys::role_access(project, flag, access.id), WriteCondition::Present),
        Write::Delete(keys::role_access_of_role(project, flag, access.role), WriteCondition::None),
    ];
    match records.transact(writes).await {
        Ok(()) => Ok(RoleAccessWriteOutcome::Written),
        Err(error) if error.is_condition(0) => Ok(RoleAccessWriteOutcome::NotFound),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_access_that_was_removed_while_others_were_read_is_left_out() {
        let row = |id, role| {
            let access = RoleAccess { id, role: Uuid::from_u128(role), added_at: DateTime::UNIX_EPOCH };
            Item::new(keys::role_access(1, 2, id), &access).unwrap()
        };
        let rows = [row(478, 7), row(441, 7), row(460, 6), row(12, 8)];
        let accesses = decode_accesses(rows.into_iter()).unwrap();
        assert_eq!(accesses.iter().map(|access| access.id).collect::<Vec<_>>(), [12, 460, 478]);
    }
}
