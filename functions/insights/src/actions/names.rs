//! Names that actions have to themselves.
//!
//! Must stay true: a name's row says which live action has it; whoever takes a name asks in the same transaction that
//! nobody has it, so of two that are made at once one is refused.

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Guard, Item, Key, Table, Write};

use super::Action;
use crate::resource::Resource;

/// The names that a change takes and leaves.
#[derive(Debug, Default)]
pub struct Names {
    take: Option<Key>,
    leave: Option<(Key, u64)>,
}

/// What becomes of names when `after` takes the place of `before`; 400 when its name is another one's.
pub async fn judge(
    records: &Table,
    project: ProjectId,
    before: Option<&Action>,
    after: &Action,
) -> ApiResult<Names> {
    let name = |action: &Action| if action.deleted { None } else { action.names(project).pop() };
    let (old, new) = (before.and_then(name), name(after));
    if old == new {
        return Ok(Names::default());
    }
    let wanted: Vec<Key> = old.iter().chain(&new).cloned().collect();
    let rows: Vec<Item> = records.batch_get(&wanted).await?.into_iter().flatten().collect();
    let owner = |key: &Key| rows.iter().find(|row| row.key == *key).map(|row| row.version);
    let mut names = Names::default();
    if let Some(key) = new {
        match owner(&key) {
            None => names.take = Some(key),
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
        names.leave = Some((key, id));
    }
    Ok(names)
}

impl Names {
    /// The writes by which action `id` takes and leaves them.
    pub fn writes(self, id: u64) -> impl Iterator<Item = Write> {
        let take = self.take.map(|key| Write::Put(Item::empty(key).with_version(id), Guard::Absent));
        let leave = self.leave.map(|(key, id)| Write::Delete(key, Guard::Version(id)));
        take.into_iter().chain(leave)
    }
}
