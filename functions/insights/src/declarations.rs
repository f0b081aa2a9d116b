//! Records that a workspace file declares, which may have been changed over HTTP.
//!
//! Must stay true: fields that the file declares are overwritten, others are kept; a record that was changed since it was read
//! is not overwritten (version precondition).

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use pennon_core::store::keys::{self, ProjectId, RecordKind};
use pennon_core::store::{Item, Key, StoreError, Table, Write, WriteCondition};
use serde_json::Value;

use crate::actions::ActionRecord;
use crate::cohorts::CohortRecord;
use crate::dashboards::DashboardRecord;
use crate::resource::{ListedResource, claim_names, key, row_of};
use crate::sharing::Sharing;

/// A record that a workspace file declares, or no longer declares.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// Its project.
    pub project: ProjectId,
    /// The kind of record.
    pub kind: RecordKind,
    /// Its id.
    pub id: u64,
    /// The declared fields; `None`: the record is removed.
    pub record: Option<Value>,
}

/// The declaration that corresponds to a write of `record` at `key`, or to its deletion; `None` for keys of other kinds.
pub fn declaration(key: &Key, record: Option<&Item>) -> Result<Option<Declaration>, StoreError> {
    let Some((project, kind, id)) = parse_key(key) else { return Ok(None) };
    let record = record.map(Item::body).transpose()?;
    Ok(Some(Declaration { project, kind, id, record }))
}

/// The project, the kind and the id of the record at `key`.
fn parse_key(key: &Key) -> Option<(ProjectId, RecordKind, u64)> {
    let (project, _) = key.pk.strip_prefix("PROJECT#")?.split_once('#')?;
    let (project, id) = (project.parse().ok()?, key.sk.parse().ok()?);
    let kinds = [RecordKind::Action, RecordKind::Cohort, RecordKind::Dashboard];
    let kind = kinds.into_iter().find(|kind| keys::record(project, *kind, id) == *key)?;
    Some((project, kind, id))
}

/// The writes that apply the declarations, in their order.
pub async fn writes(
    records: &Table,
    declarations: Vec<Declaration>,
    now: DateTime<Utc>,
) -> Result<Vec<Write>, StoreError> {
    let record_key = |it: &Declaration| keys::record(it.project, it.kind, it.id);
    let record_keys: Vec<Key> = declarations.iter().map(record_key).collect();
    let mut changes = DeclaredWrites {
        now,
        writes: Vec::new(),
        claimed_names: BTreeMap::new(),
        released_names: BTreeMap::new(),
        removed_sharing: Vec::new(),
    };
    for (declaration, stored) in declarations.into_iter().zip(records.batch_get(&record_keys).await?) {
        match declaration.kind {
            RecordKind::Action => changes.add::<ActionRecord>(declaration, stored)?,
            RecordKind::Cohort => changes.add::<CohortRecord>(declaration, stored)?,
            RecordKind::Dashboard => changes.add::<DashboardRecord>(declaration, stored)?,
            _ => {}
        }
    }
    changes.writes(records).await
}

/// The writes of declared records, and the changes of their unique names.
struct DeclaredWrites {
    now: DateTime<Utc>,
    writes: Vec<Write>,
    /// The records that claim a name; the last one wins.
    claimed_names: BTreeMap<Key, u64>,
    /// The records that had a name before.
    released_names: BTreeMap<Key, u64>,
    /// The sharing configurations of removed records.
    removed_sharing: Vec<Key>,
}

impl DeclaredWrites {
    fn add<R: ListedResource>(
        &mut self,
        declaration: Declaration,
        stored: Option<Item>,
    ) -> Result<(), StoreError> {
        let Declaration { project, id, record, .. } = declaration;
        let before = stored.as_ref().map(Item::body::<R>).transpose()?;
        let old_names = before.iter().filter(|it| !it.is_deleted()).flat_map(|it| it.unique_names(project));
        self.released_names.extend(old_names.map(|name| (name, id)));
        let Some(declared) = record else {
            self.writes.push(Write::Delete(key::<R>(project, id), WriteCondition::None));
            self.writes.push(Write::Delete(keys::record(project, R::ROWS, id), WriteCondition::None));
            if let Some(before) = &before {
                self.writes.extend(before.replacement_writes(None, project, self.now)?);
                self.removed_sharing.extend(before.sharing_configuration(project));
            }
            return Ok(());
        };
        let after: R = serde_json::from_value(merge_declared::<R>(stored.as_ref(), declared)?)
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let guard =
            stored.as_ref().map_or(WriteCondition::Absent, |item| WriteCondition::Version(item.version));
        let version = stored.as_ref().map_or(0, |item| item.version + 1);
        let mut item = Item::new(key::<R>(project, id), &after)?.with_version(version);
        if let Some(stored) = &stored {
            item = item.replacing(stored);
        }
        self.writes.push(Write::Put(item, guard));
        self.writes.push(row_of(project, &after)?);
        if let Some(before) = &before {
            self.writes.extend(before.replacement_writes(Some(&after), project, self.now)?);
        }
        if !after.is_deleted() {
            self.claimed_names.extend(after.unique_names(project).into_iter().map(|name| (name, id)));
        }
        Ok(())
    }

    async fn writes(mut self, records: &Table) -> Result<Vec<Write>, StoreError> {
        let unclaimed: Vec<Key> = self
            .released_names
            .keys()
            .filter(|name| !self.claimed_names.contains_key(name))
            .cloned()
            .collect();
        for row in records.batch_get(&unclaimed).await?.into_iter().flatten() {
            // Another record may have claimed it meanwhile.
            if self.released_names.get(&row.key) == Some(&row.version) {
                self.writes.push(Write::Delete(row.key, WriteCondition::Version(row.version)));
            }
        }
        // A link must not open another record that is declared with the same id later.
        for item in records.batch_get(&self.removed_sharing).await?.into_iter().flatten() {
            let sharing: Sharing = item.body()?;
            self.writes.push(Write::Delete(keys::share(&sharing.hash), WriteCondition::None));
            self.writes.push(Write::Delete(item.key, WriteCondition::Version(item.version)));
        }
        self.writes.extend(claim_names(self.claimed_names));
        Ok(self.writes)
    }
}

/// The stored record with the declared fields applied.
fn merge_declared<R: ListedResource>(stored: Option<&Item>, declared: Value) -> Result<Value, StoreError> {
    let Some(stored) = stored else { return Ok(declared) };
    let mut record: BTreeMap<String, Value> = stored.body()?;
    let Value::Object(declared) = declared else { return Ok(declared) };
    let mut declared: BTreeMap<String, Value> = declared.into_iter().collect();
    declared.remove("created_at");
    if declared.get("created_by").is_some_and(Value::is_null) {
        declared.remove("created_by");
    }
    R::declare(&mut record, &declared);
    record.extend(declared);
    Ok(record.into_iter().collect())
}
