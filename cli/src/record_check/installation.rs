//! The rows of an installation: declarations, the rows that are derived from them, and scheduled tasks.
//!
//! Must stay true: [`InstallationRows::check`] is pure, and has the rows as they were read.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::auth::KeyRecord;
use pennon_core::store::keys::{self, ProjectId, RecordKind, ScheduledTask};
use pennon_core::store::{Item, Key, Table};
use pennon_eventstore::BlockPartitions;
use serde::Deserialize;
use serde_json::{Value, json};

use super::finding::{Finding, Findings, Rule, different_fields, row_name};
use super::project_rows::Declared;
use super::reader::Reader;
use crate::workspace::{Declarations, derive_rows};

/// The rows of the installation, as they were read.
#[derive(Debug, Default)]
pub struct InstallationRows {
    /// The number of rows.
    pub count: usize,
    /// Rows that could not be decoded, with the causes.
    unreadable: BTreeMap<Key, String>,
    /// The bodies of the declarations.
    declarations: BTreeMap<Key, Value>,
    /// The rows that the declarations have, with their bodies.
    derived: BTreeMap<Key, Value>,
    /// The bodies of the stored rows of [`InstallationRows::derived`], and of the partitions of organizations.
    stored: BTreeMap<Key, Value>,
    /// Declared flags and insights that exist.
    existing: BTreeSet<Key>,
    /// The keys of scheduled tasks.
    tasks: BTreeSet<Key>,
}

impl InstallationRows {
    /// Loads the rows.
    pub async fn load(records: &Table) -> Result<InstallationRows, String> {
        let mut reader = Reader::new(records);
        let mut rows = InstallationRows::default();
        let declarations = &mut rows.declarations;
        reader.visit_partition(keys::INSTALLATION, |item| insert_body(declarations, item)).await?;
        if reader.unreadable.is_empty() {
            let state = Declarations::load(records).await.map_err(|e| e.to_string())?;
            rows.derived = derive_rows(&state).map_err(|e| e.to_string())?;
        }
        let stored = reader.get_all(rows.derived.keys().cloned().collect()).await?;
        for item in stored.into_values() {
            insert_or_keep(&mut reader, &mut rows.stored, &item);
        }
        for organization in rows.derived.keys().filter(|key| key.sk == "ORG").map(|key| key.pk.clone()) {
            let stored = &mut rows.stored;
            reader.visit_partition(&organization, |item| insert_body(stored, item)).await?;
        }
        let declared = rows.declarations.keys().filter_map(declared_record).collect();
        rows.existing = reader.get_all(declared).await?.into_keys().collect();
        let tasks = &mut rows.tasks;
        reader
            .visit_partition(keys::SCHEDULED_TASKS, |item| {
                keys::parse_scheduled_task(&item.key).ok_or("it is no known task")?;
                tasks.insert(item.key.clone());
                Ok(())
            })
            .await?;
        (rows.count, rows.unreadable) = (reader.rows, reader.unreadable);
        Ok(rows)
    }

    /// The declared projects.
    pub fn projects(&self) -> BTreeSet<ProjectId> {
        self.ids("PROJECT#").filter_map(|id| id.parse().ok()).collect()
    }

    /// The ids of the declared users.
    pub fn users(&self) -> BTreeSet<u64> {
        self.ids(keys::DECLARED_USERS).filter_map(|id| id.parse().ok()).collect()
    }

    /// The declared records of a project.
    pub fn declared(&self, project: ProjectId) -> Declared {
        let of_kind = |kind: &str| {
            let prefix = format!("{kind}#{project}/");
            self.ids(&prefix).filter_map(|id| id.parse().ok()).collect()
        };
        Declared {
            dashboards: of_kind("DASHBOARD"),
            cohorts: of_kind("COHORT"),
            actions: of_kind("ACTION"),
            removed_dashboards: self
                .tasks
                .iter()
                .filter_map(|task| removed_dashboard(task, project))
                .collect(),
        }
    }

    fn ids(&self, prefix: &str) -> impl Iterator<Item = &str> {
        let all = self.declarations.keys().chain(self.unreadable.keys());
        all.filter(|key| key.pk == keys::INSTALLATION).filter_map(move |key| key.sk.strip_prefix(prefix))
    }

    /// The violated invariants.
    pub fn check(&self) -> Vec<Finding> {
        let mut findings = Findings::new(None, &self.unreadable);
        for (key, expected) in &self.derived {
            match self.stored.get(key) {
                None if is_project_record(key) => findings.add_missing(key, "declaration"),
                None => findings.add(Rule::Declaration, key, "is missing, and is declared"),
                Some(stored) => self.compare(key, stored, expected, &mut findings),
            }
        }
        for key in self.stored.keys().filter(|key| !self.derived.contains_key(*key)) {
            findings.add(Rule::Declaration, key, "is not declared");
        }
        for (declaration, record) in
            self.declarations.keys().filter_map(|key| Some((key, declared_record(key)?)))
        {
            if !self.existing.contains(&record) {
                let detail = format!("declares {}, which is missing", row_name(&record));
                findings.add(Rule::Declaration, declaration, detail);
            }
        }
        findings.into_sorted()
    }

    /// Compares a stored row with the declared one. Dashboards, cohorts and actions are changed over HTTP too; the settings of
    /// block partitions may have been raised since.
    fn compare(&self, key: &Key, stored: &Value, expected: &Value, findings: &mut Findings) {
        if is_project_record(key) || BlockPartitions::is_row(key) {
            return;
        }
        let (stored, expected) = match key.pk.strip_prefix("KEY#") {
            Some(hash) if *key == keys::api_key(hash) => (key_fields(stored), key_fields(expected)),
            _ => (stored.clone(), expected.clone()),
        };
        if stored != expected {
            let fields = different_fields(&stored, &expected);
            findings.add(Rule::Declaration, key, format!("is not as declared: {fields}"));
        }
    }
}

/// The fields of an API key that its declaration has. The roles of its user are a copy, which the next `pennon apply` updates.
fn key_fields(record: &Value) -> Value {
    match KeyRecord::deserialize(record) {
        Ok(key) => json!({
            "label": key.label, "mask": key.mask, "user": key.user.id, "scopes": key.scopes, "projects": key.projects,
            "organizations": key.organizations, "expires_at": key.expires_at,
        }),
        Err(error) => json!({"error": error.to_string()}),
    }
}

fn insert_body(rows: &mut BTreeMap<Key, Value>, item: &Item) -> Result<(), String> {
    let body = if item.text.is_empty() { Value::Null } else { item.body().map_err(|e| e.to_string())? };
    rows.insert(item.key.clone(), body);
    Ok(())
}

fn insert_or_keep(reader: &mut Reader<'_>, rows: &mut BTreeMap<Key, Value>, item: &Item) {
    if let Err(cause) = insert_body(rows, item) {
        reader.unreadable.insert(item.key.clone(), cause);
    }
}

/// Whether the row is a record of a project.
fn is_project_record(key: &Key) -> bool {
    let kinds = [RecordKind::Action, RecordKind::Cohort, RecordKind::Dashboard];
    let project = key.pk.strip_prefix("PROJECT#").and_then(|rest| rest.split('#').next()?.parse().ok());
    project.is_some_and(|project| kinds.iter().any(|kind| keys::records_pk(project, *kind) == key.pk))
}

/// The record of a declared flag or insight.
fn declared_record(key: &Key) -> Option<Key> {
    let (kind, place) = key.sk.split_once('#')?;
    let kind = match kind {
        "FLAG" => RecordKind::Flag,
        "INSIGHT" => RecordKind::Insight,
        _ => return None,
    };
    let (project, id) = place.split_once('/')?;
    Some(keys::record(project.parse().ok()?, kind, id.parse().ok()?))
}

/// The dashboard of `project` whose tiles a task removes.
fn removed_dashboard(task: &Key, project: ProjectId) -> Option<u64> {
    match keys::parse_scheduled_task(task)? {
        ScheduledTask::RemoveDashboardTiles { project: of, dashboard } if of == project => Some(dashboard),
        _ => None,
    }
}
