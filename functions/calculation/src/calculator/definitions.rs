//! The actions and cohorts that questions refer to, directly or through each other, read from the records table.
//!
//! Must stay true: what a question refers to is known whole before it is planned, or the question is refused; records
//! of one level come in one batch, those of the first in the batch that finds the project.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_core::store::keys::{self, Kind, ProjectId};
use pennon_core::store::{Item, Key, StoreError, Table};
use pennon_engine::{Action, Cohort, Definitions, Mentions, Query};
use pennon_eventstore::members::Roster;
use serde_json::Value;

use super::cache::digest;

/// Most actions and cohorts that are read for the questions of one request.
pub(crate) const DEFINITIONS_MAX: usize = 200;
/// How often definitions may refer to further ones, the question's own counted: each time is a round trip.
pub(crate) const LEVELS_MAX: usize = 34;

/// An action or a cohort of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Action(u64),
    Cohort(u64),
}

impl Name {
    /// Where its record lies.
    pub(super) fn key(self, project: ProjectId) -> Key {
        match self {
            Name::Action(id) => keys::record(project, Kind::Action, id),
            Name::Cohort(id) => keys::record(project, Kind::Cohort, id),
        }
    }
}

fn names(mentions: &Mentions) -> BTreeSet<Name> {
    let actions = mentions.actions.iter().map(|id| Name::Action(*id));
    actions.chain(mentions.cohorts.iter().map(|id| Name::Cohort(*id))).collect()
}

/// What the question itself refers to; with a project, what its test account filters refer to as well.
pub(crate) fn named_by(query: &Query, project: Option<&Project>) -> BTreeSet<Name> {
    let mut mentions = query.mentions();
    if let Some(project) = project.filter(|_| query.common().filter_test_accounts) {
        project.test_account_filters.iter().for_each(|filter| mentions.take(filter));
    }
    names(&mentions)
}

#[derive(Debug, Clone)]
enum Meaning {
    Action(Action),
    Cohort(Cohort, Roster),
}

/// A record that exists.
#[derive(Debug, Clone)]
struct Record {
    meaning: Meaning,
    names: BTreeSet<Name>,
    version: u64,
    text: String,
}

/// What a definition refers to, directly or through others.
#[derive(Debug, Clone, Default)]
pub struct Reached {
    /// What was found; what was deleted is not here.
    pub definitions: Definitions,
    /// The lists of the static cohorts among it.
    pub rosters: BTreeMap<u64, Roster>,
    /// Where each of these lies, and the version that was read.
    pub versions: Vec<(Key, u64)>,
}

impl Reached {
    /// Reads everything that can be reached from `mentions`; 400 when that is too much.
    pub async fn from(records: &Table, project: ProjectId, mentions: &Mentions) -> ApiResult<Reached> {
        let roots = names(mentions);
        let mut known = Known::default();
        known.complete(records, project, &roots).await?;
        let used = known.of(project, &roots)?;
        let there = known.records.iter().filter_map(|(name, record)| Some((name, record.as_ref()?)));
        let versions = there.map(|(name, record)| (name.key(project), record.version)).collect();
        Ok(Reached { definitions: used.definitions, rosters: used.rosters, versions })
    }
}

/// The records that were looked up, and the events' past.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// None for those that do not exist or were deleted.
    records: BTreeMap<Name, Option<Record>>,
    /// How often events of the project had been erased.
    erasures: i64,
}

/// What one question uses of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Used {
    pub definitions: Definitions,
    /// The lists of the static cohorts among them.
    pub rosters: BTreeMap<u64, Roster>,
    /// Changes with any of them.
    pub digest: String,
}

impl Known {
    /// Nothing yet but the counter of [`keys::erasures`].
    pub(super) fn after(erasures: Option<&Item>) -> Known {
        Known { erasures: erasures.map_or(0, |item| item.count), ..Known::default() }
    }

    /// How often events of the project had been erased, before anything was read of them.
    pub(crate) fn erasures(&self) -> i64 {
        self.erasures
    }

    /// Takes in what was found of `name`.
    pub(super) fn take(
        &mut self,
        project: ProjectId,
        name: Name,
        item: Option<Item>,
    ) -> Result<(), StoreError> {
        let record = match item {
            None => None,
            Some(item) => record(project, name, item)?,
        };
        self.records.insert(name, record);
        Ok(())
    }

    /// Reads what is still missing of everything that `roots` refer to, as far as the limits go.
    pub(super) async fn complete(
        &mut self,
        records: &Table,
        project: ProjectId,
        roots: &BTreeSet<Name>,
    ) -> ApiResult<()> {
        for _ in 0..LEVELS_MAX {
            let missing: Vec<Name> = self.reach(roots).1.into_iter().collect();
            if missing.is_empty() || self.records.len() + missing.len() > DEFINITIONS_MAX {
                break;
            }
            let keys: Vec<Key> = missing.iter().map(|name| name.key(project)).collect();
            for (name, item) in missing.into_iter().zip(records.batch_get(&keys).await?) {
                self.take(project, name, item)?;
            }
        }
        Ok(())
    }

    /// The known ones that can be reached from `roots`, and those that were not looked up.
    fn reach(&self, roots: &BTreeSet<Name>) -> (BTreeSet<Name>, BTreeSet<Name>) {
        let (mut known, mut missing) = (BTreeSet::new(), BTreeSet::new());
        let mut open: Vec<Name> = roots.iter().copied().collect();
        while let Some(name) = open.pop() {
            match self.records.get(&name) {
                None => drop(missing.insert(name)),
                Some(record) => {
                    if known.insert(name) {
                        open.extend(record.iter().flat_map(|record| &record.names));
                    }
                }
            }
        }
        (known, missing)
    }

    /// What a question with these roots uses.
    pub(crate) fn of(&self, project: ProjectId, roots: &BTreeSet<Name>) -> ApiResult<Used> {
        let (known, missing) = self.reach(roots);
        if !missing.is_empty() {
            let detail = format!(
                "Too many actions and cohorts: at most {DEFINITIONS_MAX}, referring to each other at most {LEVELS_MAX} levels deep, are allowed."
            );
            return Err(ApiError::invalid("invalid_input", detail, None));
        }
        let mut used = Used::default();
        let mut texts = Vec::new();
        for name in known {
            let Some(Some(record)) = self.records.get(&name) else { continue };
            let key = name.key(project);
            texts.push((key.pk, key.sk, &record.text));
            match (&record.meaning, name) {
                (Meaning::Action(action), Name::Action(id)) => {
                    used.definitions.actions.insert(id, action.clone());
                }
                (Meaning::Cohort(cohort, roster), Name::Cohort(id)) => {
                    used.definitions.cohorts.insert(id, cohort.clone());
                    if cohort.is_static {
                        used.rosters.insert(id, roster.clone());
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

/// The record that an item holds; none for a deleted one.
fn record(project: ProjectId, name: Name, item: Item) -> Result<Option<Record>, StoreError> {
    let body: Value = item.body()?;
    if body["deleted"] == true {
        return Ok(None);
    }
    let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    let (meaning, mentions) = match name {
        Name::Action(_) => {
            let steps = body["steps"].as_array().cloned().unwrap_or_default();
            let action = Action { name: text("name"), steps };
            let mentions = action.mentions();
            (Meaning::Action(action), mentions)
        }
        Name::Cohort(_) => {
            let cohort = Cohort {
                name: text("name"),
                is_static: body["is_static"] == true,
                filters: body["filters"].clone(),
                groups: body["groups"].clone(),
            };
            let mentions = cohort.mentions();
            (Meaning::Cohort(cohort, Roster::of_record(project, &body)), mentions)
        }
    };
    Ok(Some(Record { meaning, names: names(&mentions), version: item.version, text: item.text }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn known(records: &[(Name, Value)]) -> Known {
        let mut known = Known::default();
        for (name, body) in records {
            known.take(1, *name, Some(Item::new(name.key(1), body).unwrap())).unwrap();
        }
        known
    }

    fn cohort_in(id: u64) -> Value {
        json!({"name": "c", "filters": {"properties": {"type": "OR", "values": [{"type": "cohort", "key": "id", "value": id}]}}})
    }

    #[test]
    fn what_is_referred_to_through_others_is_used_and_deleted_ones_are_left_out() {
        let known = known(&[
            (Name::Cohort(1), cohort_in(2)),
            (Name::Cohort(2), cohort_in(1)),
            (Name::Cohort(3), json!({"name": "gone", "deleted": true})),
            (
                Name::Action(1),
                json!({"name": "a", "steps": [{"properties": [{"type": "cohort", "value": 3}]}]}),
            ),
        ]);
        let used = known.of(1, &BTreeSet::from([Name::Cohort(1), Name::Action(1)])).unwrap();
        assert_eq!(used.definitions.cohorts.keys().copied().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(used.definitions.actions[&1].name, "a");
        assert_eq!(known.of(1, &BTreeSet::new()).unwrap().digest, "");
    }

    #[test]
    fn the_digest_changes_with_what_is_used_and_with_nothing_else() {
        let one = known(&[(Name::Cohort(1), cohort_in(2)), (Name::Cohort(2), json!({"name": "x"}))]);
        let other = known(&[(Name::Cohort(1), cohort_in(2)), (Name::Cohort(2), json!({"name": "y"}))]);
        let digest = |known: &Known, id| known.of(1, &BTreeSet::from([Name::Cohort(id)])).unwrap().digest;
        assert_ne!(digest(&one, 1), digest(&other, 1));
        let more = known(&[(Name::Cohort(2), json!({"name": "x"})), (Name::Action(2), json!({"name": "x"}))]);
        assert_eq!(digest(&one, 2), digest(&more, 2));
    }

    #[test]
    fn what_was_not_looked_up_is_a_refusal() {
        let known = known(&[(Name::Cohort(1), cohort_in(2))]);
        assert_eq!(known.of(1, &BTreeSet::from([Name::Cohort(1)])).unwrap_err().status().as_u16(), 400);
    }
}
