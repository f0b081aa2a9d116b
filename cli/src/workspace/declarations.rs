//! The stored declarations, and their state after a file is applied.
//!
//! Every declaration is stored as one row. All other rows (keys with their owner's snapshot, projects, tokens ...) are derived
//! from the declarations by a pure function, so that applying a file is idempotent and the next run completes an interrupted
//! one.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use pennon_core::auth::{KeySpec, Secret, hash_key, mask_key};
use pennon_core::clock::never_before;
use pennon_core::ids;
use pennon_core::model::Declared;
use pennon_core::store::{Item, Key, PartitionQuery, StoreError, Table, keys};
use serde::Serialize;
use serde_json::Value;

use super::file::{
    ActionSpec, CohortSpec, DashboardSpec, OrganizationSpec, ProjectSpec, RoleSpec, UserSpec, Workspace,
};

/// All declarations, by their ids.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Declarations {
    /// By id.
    pub organizations: BTreeMap<String, Declared<OrganizationSpec>>,
    /// By number.
    pub users: BTreeMap<String, Declared<UserSpec>>,
    /// By number.
    pub projects: BTreeMap<String, Declared<ProjectSpec>>,
    /// By hash of the secret.
    pub keys: BTreeMap<String, Declared<KeySpec>>,
    /// By id.
    pub roles: BTreeMap<String, Declared<RoleSpec>>,
    /// By project and number.
    pub actions: BTreeMap<String, Declared<ActionSpec>>,
    /// By project and number.
    pub cohorts: BTreeMap<String, Declared<CohortSpec>>,
    /// By project and number.
    pub dashboards: BTreeMap<String, Declared<DashboardSpec>>,
}

/// A created key, whose secret is shown once.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct NewKey {
    /// Its label.
    pub label: String,
    /// Its owner's mail address.
    pub user: String,
    /// The secret.
    #[serde(rename = "key")]
    pub secret: String,
}

impl Declarations {
    /// Loads the declarations of the installation.
    pub async fn load(records: &Table) -> Result<Declarations, StoreError> {
        let mut state = Declarations::default();
        for item in records.query(PartitionQuery::partition(keys::INSTALLATION)).await? {
            state.insert(&item)?;
        }
        Ok(state)
    }

    fn insert(&mut self, item: &Item) -> Result<(), StoreError> {
        let Some((kind, id)) = item.key.sk.split_once('#') else { return Ok(()) };
        let id = id.to_owned();
        match kind {
            "ORG" => _ = self.organizations.insert(id, item.body()?),
            "USER" => _ = self.users.insert(id, item.body()?),
            "PROJECT" => _ = self.projects.insert(id, item.body()?),
            "KEY" => _ = self.keys.insert(id, item.body()?),
            "ROLE" => _ = self.roles.insert(id, item.body()?),
            "ACTION" => _ = self.actions.insert(id, item.body()?),
            "COHORT" => _ = self.cohorts.insert(id, item.body()?),
            "DASHBOARD" => _ = self.dashboards.insert(id, item.body()?),
            _ => {}
        }
        Ok(())
    }

    /// Whether nothing is declared.
    pub fn is_empty(&self) -> bool {
        self.organizations.is_empty() && self.users.is_empty() && self.projects.is_empty()
    }

    /// Whether project `id` is declared.
    pub fn has_project(&self, id: u64) -> bool {
        self.projects.contains_key(&id.to_string())
    }

    /// The project of an option, or the only declared one.
    pub fn resolve_project(&self, option: Option<u64>) -> Result<u64, String> {
        let ids: Vec<u64> = self.projects.values().map(|project| project.spec.id).collect();
        match (option, ids.as_slice()) {
            (Some(id), _) => Ok(id),
            (None, [only]) => Ok(*only),
            (None, []) => Err(
                "nothing is declared here; `pennon apply` declares projects, a first `pennon serve` makes a demo".to_owned(),
            ),
            (None, several) => Err(format!("there are several projects: name one of {several:?} with --project")),
        }
    }

    /// The group types of every project, by index.
    pub fn group_types(&self) -> BTreeMap<u64, Vec<String>> {
        self.projects.values().map(|project| (project.spec.id, project.spec.group_types.clone())).collect()
    }

    /// The rows of the declarations.
    pub fn declaration_rows(&self) -> Result<BTreeMap<Key, Value>, serde_json::Error> {
        fn add<T: Serialize>(
            rows: &mut BTreeMap<Key, Value>,
            kind: &str,
            map: &BTreeMap<String, Declared<T>>,
        ) -> Result<(), serde_json::Error> {
            for (id, declared) in map {
                rows.insert(keys::declared(kind, id), serde_json::to_value(declared)?);
            }
            Ok(())
        }
        let mut rows = BTreeMap::new();
        add(&mut rows, "ORG", &self.organizations)?;
        add(&mut rows, "USER", &self.users)?;
        add(&mut rows, "PROJECT", &self.projects)?;
        add(&mut rows, "KEY", &self.keys)?;
        add(&mut rows, "ROLE", &self.roles)?;
        add(&mut rows, "ACTION", &self.actions)?;
        add(&mut rows, "COHORT", &self.cohorts)?;
        add(&mut rows, "DASHBOARD", &self.dashboards)?;
        Ok(rows)
    }

    /// The declarations as one file.
    pub fn workspace(&self) -> Workspace {
        fn specs<T: Clone>(map: &BTreeMap<String, Declared<T>>) -> Vec<T> {
            map.values().map(|declared| declared.spec.clone()).collect()
        }
        Workspace {
            organizations: specs(&self.organizations),
            users: specs(&self.users),
            projects: specs(&self.projects),
            keys: specs(&self.keys),
            roles: specs(&self.roles),
            actions: specs(&self.actions),
            cohorts: specs(&self.cohorts),
            dashboards: specs(&self.dashboards),
            // Only the digests of these are stored.
            flags: Vec::new(),
            insights: Vec::new(),
        }
    }

    /// This state after `file` is applied at `now`, and the keys that were created. With `prune`, declarations that are not in
    /// the file are removed.
    pub fn apply_file(
        &self,
        file: &Workspace,
        prune: bool,
        now: DateTime<Utc>,
    ) -> (Declarations, Vec<NewKey>) {
        let record_id = |project: u64, id: u64| format!("{project}/{id}");
        let mut new_keys = Vec::new();
        let mut hashed_keys = Vec::new();
        for (spec, known) in file.keys.iter().zip(self.key_hashes(file)) {
            let stored = KeySpec { value: None, hash: None, mask: None, ..spec.clone() };
            let (hash, mask) = known.unwrap_or_else(|| {
                let secret = ids::new_api_key();
                let hash_and_mask = (hash_key(&secret), mask_key(&secret));
                new_keys.push(NewKey { label: spec.label.clone(), user: spec.user.clone(), secret });
                hash_and_mask
            });
            hashed_keys.push((hash, stored, mask));
        }
        let projects = file.projects.iter().map(|project| self.keep_partitions(project)).collect::<Vec<_>>();
        let mut keys = merge(&self.keys, hashed_keys.clone(), prune, now);
        // A key whose secret the file changes replaces the key with the same label and owner.
        let declared: BTreeSet<&String> = hashed_keys.iter().map(|(hash, ..)| hash).collect();
        keys.retain(|hash, key| {
            declared.contains(hash)
                || !hashed_keys
                    .iter()
                    .any(|(_, new, _)| new.label == key.spec.label && new.user == key.spec.user)
        });
        let state = Declarations {
            organizations: merge(
                &self.organizations,
                keyed(&file.organizations, |org| org.id.to_string()),
                prune,
                now,
            ),
            users: merge(&self.users, keyed(&file.users, |user| user.id.to_string()), prune, now),
            projects: merge(&self.projects, keyed(&projects, |project| project.id.to_string()), prune, now),
            keys,
            roles: merge(&self.roles, keyed(&file.roles, |role| role.id.to_string()), prune, now),
            actions: merge(
                &self.actions,
                keyed(&file.actions, |it| record_id(it.project, it.id)),
                prune,
                now,
            ),
            cohorts: merge(
                &self.cohorts,
                keyed(&file.cohorts, |it| record_id(it.project, it.id)),
                prune,
                now,
            ),
            dashboards: merge(
                &self.dashboards,
                keyed(&file.dashboards, |it| record_id(it.project, it.id)),
                prune,
                now,
            ),
        };
        (state, new_keys)
    }

    /// The declaration `spec` with the declared number of block partitions, if it names none: the number never gets lower.
    fn keep_partitions(&self, spec: &ProjectSpec) -> ProjectSpec {
        let declared = self.projects.get(&spec.id.to_string()).and_then(|it| it.spec.block_partitions);
        ProjectSpec { block_partitions: spec.block_partitions.or(declared), ..spec.clone() }
    }

    /// Hash and mask of each key of `file`; `None` for a new key without a secret.
    fn key_hashes(&self, file: &Workspace) -> Vec<Option<(String, String)>> {
        let known = |spec: &KeySpec| {
            let same = |key: &Declared<KeySpec>| key.spec.label == spec.label && key.spec.user == spec.user;
            self.keys.iter().find(|(_, key)| same(key)).map(|(hash, key)| (hash.clone(), key.mask.clone()))
        };
        file.keys
            .iter()
            .map(|spec| match (&spec.value, &spec.hash) {
                (Some(Secret(secret)), _) => Some((hash_key(secret), mask_key(secret))),
                (None, Some(hash)) => Some((hash.clone(), spec.mask.clone().unwrap_or_default())),
                (None, None) => known(spec),
            })
            .collect()
    }
}

fn keyed<T: Clone>(specs: &[T], id: impl Fn(&T) -> String) -> Vec<(String, T, String)> {
    specs.iter().map(|spec| (id(spec), spec.clone(), String::new())).collect()
}

/// `old` with `specs` (id, declaration, mask) inserted; with `prune` only these.
fn merge<T: Clone + PartialEq>(
    old: &BTreeMap<String, Declared<T>>,
    specs: Vec<(String, T, String)>,
    prune: bool,
    now: DateTime<Utc>,
) -> BTreeMap<String, Declared<T>> {
    let mut merged = if prune { BTreeMap::new() } else { old.clone() };
    for (id, spec, mask) in specs {
        let declared = match old.get(&id) {
            Some(before) if before.spec == spec => before.clone(),
            Some(before) => Declared {
                spec,
                created_at: before.created_at,
                updated_at: never_before(now, before.updated_at),
                mask,
            },
            None => Declared { spec, created_at: now, updated_at: now, mask },
        };
        merged.insert(id, declared);
    }
    merged
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_changed_declaration_is_never_older_than_before_if_the_clock_is_set_back() {
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let declared = |spec: &str| vec![("id".to_owned(), spec.to_owned(), String::new())];
        let (before, back) = (at("2026-01-01T00:30:00Z"), at("2025-12-31T23:30:00Z"));
        let first = merge(&BTreeMap::new(), declared("a"), false, before);
        assert_eq!(merge(&first, declared("a"), false, back), first, "nothing changed");
        let second = &merge(&first, declared("b"), false, back)["id"];
        assert_eq!((second.created_at, second.updated_at), (before, at("2026-01-01T00:30:00.000001Z")));
    }
}
