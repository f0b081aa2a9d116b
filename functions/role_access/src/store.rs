//! Role accesses in the table.
//!
//! Must stay true: record and uniqueness row come and go together, and come only to a flag that is there.

use chrono::{DateTime, Utc};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Guard, Item, Query, StoreError, Table, Write};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// That a role has access to a flag. It never changes: it is added and removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleAccess {
    /// Unique over the installation, never given twice.
    pub id: u64,
    /// The role.
    pub role: Uuid,
    /// Since when.
    pub added_at: DateTime<Utc>,
}

/// The role accesses of a flag, by id.
pub async fn list(records: &Table, project: ProjectId, flag: u64) -> Result<Vec<RoleAccess>, StoreError> {
    let parts = parts(project, flag).map(|query| records.query(query));
    by_id(futures::future::try_join_all(parts).await?.into_iter().flatten())
}

/// The role accesses of a flag, by id, unless one of their partitions has more than `limit`.
pub async fn first(
    records: &Table,
    project: ProjectId,
    flag: u64,
    limit: usize,
) -> Result<Option<Vec<RoleAccess>>, StoreError> {
    let parts = parts(project, flag).map(|query| records.query(query.limit(limit + 1)));
    let parts = futures::future::try_join_all(parts).await?;
    if parts.iter().any(|rows| rows.len() > limit) {
        return Ok(None);
    }
    by_id(parts.into_iter().flatten()).map(Some)
}

fn parts(project: ProjectId, flag: u64) -> impl Iterator<Item = Query> {
    (0..keys::ROLE_ACCESS_PARTS)
        .map(move |part| Query::partition(keys::role_accesses_pk(project, flag, part)))
}

fn by_id(rows: impl Iterator<Item = Item>) -> Result<Vec<RoleAccess>, StoreError> {
    let mut all = rows.map(|item| item.body::<RoleAccess>()).collect::<Result<Vec<_>, _>>()?;
    all.sort_unstable_by_key(|access| access.id);
    Ok(all)
}

/// What came of adding or removing.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was written.
    Done,
    /// The role has access already.
    Taken,
    /// The flag, or the role access, is gone.
    Gone,
}

/// Adds a role access to a flag that has to be there.
pub async fn add(
    records: &Table,
    project: ProjectId,
    flag: u64,
    access: &RoleAccess,
    noted: Option<Write>,
) -> Result<Outcome, StoreError> {
    let unique = keys::role_access_of_role(project, flag, access.role);
    let record = Item::new(keys::role_access(project, flag, access.id), access)?;
    let mut writes = vec![
        Write::Put(Item::new(unique, &access.id)?, Guard::Absent),
        Write::Put(record, Guard::Absent),
        Write::Check(keys::record(project, keys::Kind::Flag, flag), Guard::Present),
    ];
    writes.extend(noted);
    match records.transact(writes).await {
        Ok(()) => Ok(Outcome::Done),
        Err(error) if error.is_condition(0) => Ok(Outcome::Taken),
        Err(error) if error.is_condition(2) => Ok(Outcome::Gone),
        Err(error) => Err(error),
    }
}

/// Removes a role access.
pub async fn remove(
    records: &Table,
    project: ProjectId,
    flag: u64,
    access: &RoleAccess,
) -> Result<Outcome, StoreError> {
    let writes = vec![
        Write::Delete(keys::role_access(project, flag, access.id), Guard::Present),
        Write::Delete(keys::role_access_of_role(project, flag, access.role), Guard::None),
    ];
    match records.transact(writes).await {
        Ok(()) => Ok(Outcome::Done),
        Err(error) if error.is_condition(0) => Ok(Outcome::Gone),
        Err(error) => Err(error),
    }
}
