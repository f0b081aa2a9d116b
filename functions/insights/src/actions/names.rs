//! Unique names of actions.
//!
//! Must stay true: the row of a name has the id of the action that owns it; a write claims a name on the condition that its row
//! is absent, so of two concurrent creations with one name one fails.

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key, Table, Write, WriteCondition};

use super::ActionRecord;
use crate::resource::ListedResource;

/// The names that a write claims and releases.
#[derive(Debug, Default)]
pub struct NameChange {
    claim: Option<Key>,
    release: Option<(Key, u64)>,
}

/// The change of names from `before` to `after`; 400 where another action has the name.
pub async fn claim_name(
    records: &Table,
    project: ProjectId,
    before: Option<&ActionRecord>,
    after: &ActionRecord,
) -> ApiResult<NameChange> {
    let name = |action: &ActionRecord| if action.deleted { None } else { action.unique_names(project).pop() };
    let (old, new) = (before.and_then(name), name(after));
    if old == new {
        return Ok(NameChange::default());
    }
    let name_keys: Vec<Key> = old.iter().chain(&new).cloned().collect();
    let rows: Vec<Item> = records.batch_get(&name_keys).await?.into_iter().flatten().collect();
    let owner = |key: &Key| rows.iter().find(|row| row.key == *key).map(|row| row.version);
    let mut names = NameChange::default();
    if let Some(key) = new {
        match owner(&key) {
            None => names.claim = Some(key),
            Some(id) if before.is_some_and(|before| before.id == id) => {}
            Some(id) => {
                let detail = format!("This project already has an action with this name, ID {id}");
                return Err(ApiError::invalid("unique", detail, Some("name")));
            }
        }
    }
    if let Some(key) = old
        && let Some(id) = owner(&key).filter(|id| before.is_some_and(|before| before.id == *id))
    {
        names.release = Some((key, id));
    }
    Ok(names)
}

impl NameChange {
    /// The writes for action `id`.
    pub fn writes(self, id: u64) -> impl Iterator<Item = Write> {
        let claim =
            self.claim.map(|key| Write::Put(Item::empty(key).with_version(id), WriteCondition::Absent));
        let release = self.release.map(|(key, id)| Write::Delete(key, WriteCondition::Version(id)));
        claim.into_iter().chain(release)
    }
}
