//! Records that a workspace file declares, which may have been changed over HTTP since.
//!
//! Must stay true: where a file says something new of a record, the fields that the file has go by the file, and the
//! others stay; a record that was changed between reading and writing is not written over.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use pennon_core::store::keys::{self, Kind, ProjectId};
use pennon_core::store::{Guard, Item, Key, StoreError, Table, Write};
use serde_json::Value;

use super::{Resource, key, row_of};
use crate::actions::Action;
use crate::cohorts::CohortRecord;
use crate::dashboards::DashboardRecord;

/// Something that a file says, or says no more.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// Whose it is.
    pub project: ProjectId,
    /// What kind of record it is about.
    pub kind: Kind,
    /// Its number.
    pub id: u64,
    /// The fields that follow from the file; none where the record goes.
    pub record: Option<Value>,
}

/// The declaration that a write of `record` at `key` is; none where no such kind lies there. Without a record it goes.
pub fn declaration(key: &Key, record: Option<&Item>) -> Result<Option<Declaration>, StoreError> {
    let Some((project, kind, id)) = place(key) else { return Ok(None) };
    let record = record.map(Item::body).transpose()?;
    Ok(Some(Declaration { project, kind, id, record }))
}

/// The project, the kind and the number of the record at `key`.
fn place(key: &Key) -> Option<(ProjectId, Kind, u64)> {
    let (project, _) = key.pk.strip_prefix("PROJECT#")?.split_once('#')?;
    let (project, id) = (project.parse().ok()?, key.sk.parse().ok()?);
    let kinds = [Kind::Action, Kind::Cohort, Kind::Dashboard];
    let kind = kinds.into_iter().find(|kind| keys::record(project, *kind, id) == *key)?;
    Some((project, kind, id))
}

/// The writes that make the declarations true, in their order.
pub async fn writes(
    records: &Table,
    declarations: Vec<Declaration>,
    now: DateTime<Utc>,
) -> Result<Vec<Write>, StoreError> {
    let at = |it: &Declaration| keys::record(it.project, it.kind, it.id);
    let wanted: Vec<Key> = declarations.iter().map(at).collect();
    let mut changes = Changes { now, writes: Vec::new(), taken: BTreeMap::new(), left: BTreeMap::new() };
    for (declaration, stored) in declarations.into_iter().zip(records.batch_get(&wanted).await?) {
        match declaration.kind {
            Kind::Action => changes.add::<Action>(declaration, stored)?,
            Kind::Cohort => changes.add::<CohortRecord>(declaration, stored)?,
            Kind::Dashboard => changes.add::<DashboardRecord>(declaration, stored)?,
            _ => {}
        }
    }
    changes.writes(records).await
}

/// What becomes of records, and of the names that they have to themselves.
struct Changes {
    now: DateTime<Utc>,
    writes: Vec<Write>,
    /// Who takes a name; of several the last.
    taken: BTreeMap<Key, u64>,
    /// Who had a name until now.
    left: BTreeMap<Key, u64>,
}

impl Changes {
    fn add<R: Resource>(&mut self, declaration: Declaration, stored: Option<Item>) -> Result<(), StoreError> {
        let Declaration { project, id, record, .. } = declaration;
        let before = stored.as_ref().map(Item::body::<R>).transpose()?;
        let had = before.iter().filter(|it| !it.is_deleted()).flat_map(|it| it.names(project));
        self.left.extend(had.map(|name| (name, id)));
        let Some(said) = record else {
            self.writes.push(Write::Delete(key::<R>(project, id), Guard::None));
            self.writes.push(Write::Delete(keys::record(project, R::ROWS, id), Guard::None));
            if let Some(before) = &before {
                self.writes.extend(before.replaced(None, project, self.now)?);
            }
            return Ok(());
        };
        let after: R = serde_json::from_value(merged::<R>(stored.as_ref(), said)?)
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let guard = stored.as_ref().map_or(Guard::Absent, |item| Guard::Version(item.version));
        let version = stored.as_ref().map_or(0, |item| item.version + 1);
        let mut item = Item::new(key::<R>(project, id), &after)?.with_version(version);
        if let Some(stored) = &stored {
            item = item.replacing(stored);
        }
        self.writes.push(Write::Put(item, guard));
        self.writes.push(row_of(project, &after)?);
        if let Some(before) = &before {
            self.writes.extend(before.replaced(Some(&after), project, self.now)?);
        }
        if !after.is_deleted() {
            self.taken.extend(after.names(project).into_iter().map(|name| (name, id)));
        }
        Ok(())
    }

    async fn writes(mut self, records: &Table) -> Result<Vec<Write>, StoreError> {
        let gone: Vec<Key> =
            self.left.keys().filter(|name| !self.taken.contains_key(name)).cloned().collect();
        for row in records.batch_get(&gone).await?.into_iter().flatten() {
            // Somebody else may have it by now.
            if self.left.get(&row.key) == Some(&row.version) {
                self.writes.push(Write::Delete(row.key, Guard::Version(row.version)));
            }
        }
        self.writes.extend(taken(self.taken));
        Ok(self.writes)
    }
}

/// The writes by which names are somebody's, whoever had them before.
pub(super) fn taken(names: BTreeMap<Key, u64>) -> impl Iterator<Item = Write> {
    names.into_iter().map(|(name, id)| Write::Put(Item::empty(name).with_version(id), Guard::None))
}

/// The stored record with what the file says of it.
fn merged<R: Resource>(stored: Option<&Item>, said: Value) -> Result<Value, StoreError> {
    let Some(stored) = stored else { return Ok(said) };
    let mut record: BTreeMap<String, Value> = stored.body()?;
    let Value::Object(said) = said else { return Ok(said) };
    let mut said: BTreeMap<String, Value> = said.into_iter().collect();
    said.remove("created_at");
    if said.get("created_by").is_some_and(Value::is_null) {
        said.remove("created_by");
    }
    R::declare(&mut record, &said);
    record.extend(said);
    Ok(record.into_iter().collect())
}
