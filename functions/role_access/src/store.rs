//! Role accesses in the table.

use chrono::{DateTime, Utc};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Guard, Item, Query, StoreError, Table, Write};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// That a role has access to a flag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleAccess {
    /// Unique over the installation, never given twice.
    pub id: u64,
    /// The flag.
    pub flag: u64,
    /// The role.
    pub role: Uuid,
    /// Since when.
    pub added_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

/// The role accesses of a flag, by id.
pub async fn list(records: &Table, project: ProjectId, flag: u64) -> Result<Vec<RoleAccess>, StoreError> {
    let query = Query::partition(keys::flag_children_pk(project, flag)).prefix(keys::ROLE_ACCESSES);
    records.query(query).await?.iter().map(Item::body).collect()
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
pub async fn add(records: &Table, project: ProjectId, access: &RoleAccess) -> Result<Outcome, StoreError> {
    let unique = keys::role_access_of_role(project, access.flag, access.role);
    let record = Item::new(keys::role_access(project, access.flag, access.id), access)?;
    let writes = vec![
        Write::Put(Item::new(unique, &access.id)?, Guard::Absent),
        Write::Put(record, Guard::Absent),
        Write::Check(keys::record(project, keys::Kind::Flag, access.flag), Guard::Present),
    ];
    match records.transact(writes).await {
        Ok(()) => Ok(Outcome::Done),
        Err(error) if error.is_condition(0) => Ok(Outcome::Taken),
        Err(error) if error.is_condition(2) => Ok(Outcome::Gone),
        Err(error) => Err(error),
    }
}

/// Removes a role access.
pub async fn remove(records: &Table, project: ProjectId, access: &RoleAccess) -> Result<Outcome, StoreError> {
    let writes = vec![
        Write::Delete(keys::role_access(project, access.flag, access.id), Guard::Present),
        Write::Delete(keys::role_access_of_role(project, access.flag, access.role), Guard::None),
    ];
    match records.transact(writes).await {
        Ok(()) => Ok(Outcome::Done),
        Err(error) if error.is_condition(0) => Ok(Outcome::Gone),
        Err(error) => Err(error),
    }
}
