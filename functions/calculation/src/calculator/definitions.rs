//! The actions and cohorts that queries refer to, directly or transitively, from the records table.
//!
//! Must stay true: all definitions of a query are fetched before it is planned, or the query is rejected; the records of
//! one level are fetched in one batch, those of the first level in the batch that finds the project.

use std::collections::{BTreeMap, BTreeSet};

use pennon_analytics::{Action, Cohort, DefinitionIds, Definitions, Query};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_core::store::keys::{self, ProjectId, RecordKind};
use pennon_core::store::{Item, Key, StoreError, Table};
use pennon_eventstore::cohort_lists::CohortList;
use serde_json::Value;

use super::cache::digest;

/// Most actions and cohorts that are fetched for the queries of one request.
pub(crate) const DEFINITIONS_MAX: usize = 200;
/// Most levels of references, including the query's own: each level is a round trip.
pub(crate) const LEVELS_MAX: usize = 34;

/// An action or a cohort of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DefinitionId {
    Action(u64),
    Cohort(u64),
}

impl DefinitionId {
    /// The key of its record.
    pub(super) fn key(self, project: ProjectId) -> Key {
        match self {
            DefinitionId::Action(id) => keys::record(project, RecordKind::Action, id),
            DefinitionId::Cohort(id) => keys::record(project, RecordKind::Cohort, id),
        }
    }
}

fn definition_ids(referenced: &DefinitionIds) -> BTreeSet<DefinitionId> {
    let actions = referenced.actions.iter().map(|id| DefinitionId::Action(*id));
    actions.chain(referenced.cohorts.iter().map(|id| DefinitionId::Cohort(*id))).collect()
}

/// The definitions that a query itself refers to; with a project, also those of its test account filters.
pub(crate) fn direct_references(query: &Query, project: Option<&Project>) -> BTreeSet<DefinitionId> {
    let mut referenced = query.direct_references();
    if let Some(project) = project.filter(|_| query.uses_test_account_filters()) {
        project.test_account_filters.iter().for_each(|filter| referenced.take(filter));
    }
    definition_ids(&referenced)
}

#[derive(Debug, Clone)]
enum Definition {
    Action(Action),
    Cohort(Cohort, CohortList),
}

/// A definition that exists and is not deleted.
#[derive(Debug, Clone)]
struct DefinitionRecord {
    definition: Definition,
    references: BTreeSet<DefinitionId>,
    version: u64,
    text: String,
}

/// The definitions that another one refers to, directly or transitively.
#[derive(Debug, Clone, Default)]
pub struct TransitiveDefinitions {
    /// Those that exist; deleted ones are left out.
    pub definitions: Definitions,
    /// The member lists of the static cohorts among them.
    pub cohort_lists: BTreeMap<u64, CohortList>,
    /// The key of each record, and the version that was read.
    pub versions: Vec<(Key, u64)>,
}

impl TransitiveDefinitions {
    /// Fetches everything reachable from `referenced`; 400 beyond [`DEFINITIONS_MAX`] definitions or [`LEVELS_MAX`] levels.
    pub async fn fetch(
        records: &Table,
        project: ProjectId,
        referenced: &DefinitionIds,
    ) -> ApiResult<TransitiveDefinitions> {
        let roots = definition_ids(referenced);
        let mut known = DefinitionLookup::default();
        known.fetch_missing(records, project, &roots).await?;
        let used = known.of(project, &roots)?;
        let existing = known.records.iter().filter_map(|(id, record)| Some((id, record.as_ref()?)));
        let versions = existing.map(|(id, record)| (id.key(project), record.version)).collect();
        Ok(TransitiveDefinitions { definitions: used.definitions, cohort_lists: used.cohort_lists, versions })
    }
}

/// The definitions that were looked up, and the erasure counter.
#[derive(Debug, Clone, Default)]
pub struct DefinitionLookup {
    /// `None` for those that do not exist or were deleted.
    records: BTreeMap<DefinitionId, Option<DefinitionRecord>>,
    /// The number of erasures of events of the project.
    erasures: i64,
}

/// The definitions that one query uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueryDefinitions {
    pub definitions: Definitions,
    /// The member lists of the static cohorts among them.
    pub cohort_lists: BTreeMap<u64, CohortList>,
    /// Digest over all of them.
    pub digest: String,
}

impl DefinitionLookup {
    /// No definitions yet; the counter of [`keys::erasures`].
    pub(super) fn with_erasures(erasures: Option<&Item>) -> DefinitionLookup {
        DefinitionLookup { erasures: erasures.map_or(0, |item| item.count), ..DefinitionLookup::default() }
    }

    /// The number of erasures of events of the project, read before any event.
    pub(crate) fn erasures(&self) -> i64 {
        self.erasures
    }

    /// Adds the item of a definition, or that it does not exist.
    pub(super) fn insert(
        &mut self,
        project: ProjectId,
        id: DefinitionId,
        item: Option<Item>,
    ) -> Result<(), StoreError> {
        let record = match item {
            None => None,
            Some(item) => decode_record(project, id, item)?,
        };
        self.records.insert(id, record);
        Ok(())
    }

    /// Fetches the definitions reachable from `roots` that are still missing, within the limits.
    pub(super) async fn fetch_missing(
        &mut self,
        records: &Table,
        project: ProjectId,
        roots: &BTreeSet<DefinitionId>,
    ) -> ApiResult<()> {
        for _ in 0..LEVELS_MAX {
            let missing: Vec<DefinitionId> = self.traverse(roots).1.into_iter().collect();
            if missing.is_empty() || self.records.len() + missing.len() > DEFINITIONS_MAX {
                break;
            }
            let keys: Vec<Key> = missing.iter().map(|id| id.key(project)).collect();
            for (id, item) in missing.into_iter().zip(records.batch_get(&keys).await?) {
                self.insert(project, id, item)?;
            }
        }
        Ok(())
    }

    /// The definitions reachable from `roots`: those that were looked up, and those that were not.
    fn traverse(&self, roots: &BTreeSet<DefinitionId>) -> (BTreeSet<DefinitionId>, BTreeSet<DefinitionId>) {
        let (mut known, mut missing) = (BTreeSet::new(), BTreeSet::new());
        let mut open: Vec<DefinitionId> = roots.iter().copied().collect();
        while let Some(id) = open.pop() {
            match self.records.get(&id) {
                None => drop(missing.insert(id)),
                Some(record) => {
                    if known.insert(id) {
                        open.extend(record.iter().flat_map(|record| &record.references));
                    }
                }
            }
        }
        (known, missing)
    }

    /// The definitions that a query with these direct references uses.
    pub(crate) fn of(
        &self,
        project: ProjectId,
        roots: &BTreeSet<DefinitionId>,
    ) -> ApiResult<QueryDefinitions> {
        let (known, missing) = self.traverse(roots);
        if !missing.is_empty() {
            let detail = format!(
                "Too many actions and cohorts: at most {DEFINITIONS_MAX}, referring to each other at most {LEVELS_MAX} levels deep, are allowed."
            );
            return Err(ApiError::invalid("invalid_input", detail, None));
        }
        let mut used = QueryDefinitions::default();
        let mut texts = Vec::new();
        for id in known {
            let Some(Some(record)) = self.records.get(&id) else { continue };
            let key = id.key(project);
            texts.push((key.pk, key.sk, &record.text));
            match (&record.definition, id) {
                (Definition::Action(action), DefinitionId::Action(id)) => {
                    used.definitions.actions.insert(id, action.clone());
                }
                (Definition::Cohort(cohort, cohort_list), DefinitionId::Cohort(id)) => {
                    used.definitions.cohorts.insert(id, cohort.clone());
                    if cohort.is_static {
                        used.cohort_lists.insert(id, cohort_list.clone());
                    }
                }
                _ => {}
            }
        }
        if !texts.is_empty() {
            used.digest = digest(
                &Value::from_iter(
                    texts.into_iter().map(|(pk, sk, text)| Value::from_iter([pk, sk, text.clone()])),
                )
                .to_string(),
            );
        }
        Ok(used)
    }
}

/// Decodes an item; `None` for a deleted definition.
fn decode_record(
    project: ProjectId,
    id: DefinitionId,
    item: Item,
) -> Result<Option<DefinitionRecord>, StoreError> {
    let body: Value = item.body()?;
    if body["deleted"] == true {
        return Ok(None);
    }
    let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    let (definition, referenced) = match id {
        DefinitionId::Action(_) => {
            let steps = body["steps"].as_array().cloned().unwrap_or_default();
            let action = Action { name: text("name"), steps };
            let referenced = action.direct_references();
            (Definition::Action(action), referenced)
        }
        DefinitionId::Cohort(_) => {
            let cohort = Cohort {
                name: text("name"),
                is_static: body["is_static"] == true,
                filters: body["filters"].clone(),
                groups: body["groups"].clone(),
            };
            let referenced = cohort.direct_references();
            (Definition::Cohort(cohort, CohortList::of_record(project, &body)), referenced)
        }
    };
    Ok(Some(DefinitionRecord {
        definition,
        references: definition_ids(&referenced),
        version: item.version,
        text: item.text,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn known(records: &[(DefinitionId, Value)]) -> DefinitionLookup {
        let mut known = DefinitionLookup::default();
        for (id, body) in records {
            known.insert(1, *id, Some(Item::new(id.key(1), body).unwrap())).unwrap();
        }
        known
    }

    fn cohort_in(id: u64) -> Value {
        json!({"name": "c", "filters": {"properties": {"type": "OR", "values": [{"type": "cohort", "key": "id", "value": id}]}}})
    }

    #[test]
    fn transitive_references_are_used_and_deleted_definitions_are_left_out() {
        let known = known(&[
            (DefinitionId::Cohort(1), cohort_in(2)),
            (DefinitionId::Cohort(2), cohort_in(1)),
            (DefinitionId::Cohort(3), json!({"name": "gone", "deleted": true})),
            (
                DefinitionId::Action(1),
                json!({"name": "a", "steps": [{"properties": [{"type": "cohort", "value": 3}]}]}),
            ),
        ]);
        let used = known.of(1, &BTreeSet::from([DefinitionId::Cohort(1), DefinitionId::Action(1)])).unwrap();
        assert_eq!(used.definitions.cohorts.keys().copied().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(used.definitions.actions[&1].name, "a");
        assert_eq!(known.of(1, &BTreeSet::new()).unwrap().digest, "");
    }

    #[test]
    fn the_digest_depends_on_the_used_definitions_only() {
        let one = known(&[
            (DefinitionId::Cohort(1), cohort_in(2)),
            (DefinitionId::Cohort(2), json!({"name": "x"})),
        ]);
        let other = known(&[
            (DefinitionId::Cohort(1), cohort_in(2)),
            (DefinitionId::Cohort(2), json!({"name": "y"})),
        ]);
        let digest = |known: &DefinitionLookup, id| {
            known.of(1, &BTreeSet::from([DefinitionId::Cohort(id)])).unwrap().digest
        };
        assert_ne!(digest(&one, 1), digest(&other, 1));
        let more = known(&[
            (DefinitionId::Cohort(2), json!({"name": "x"})),
            (DefinitionId::Action(2), json!({"name": "x"})),
        ]);
        assert_eq!(digest(&one, 2), digest(&more, 2));
    }

    #[test]
    fn a_definition_that_was_not_looked_up_is_an_error() {
        let known = known(&[(DefinitionId::Cohort(1), cohort_in(2))]);
        assert_eq!(
            known.of(1, &BTreeSet::from([DefinitionId::Cohort(1)])).unwrap_err().status().as_u16(),
            400
        );
    }
}
