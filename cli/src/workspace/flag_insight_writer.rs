//! Writes the flags and insights of a file through the API's routes, in process, so that they are validated, written and logged
//! like API requests.
//!
//! The digest of each declaration is stored, so that the next run finds changed ones. Must stay true: a digest is stored after
//! its record was written, so the next run completes an interrupted one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use pennon_core::auth::{KeyRecord, hash_bytes};
use pennon_core::http::{RestoredRecord, RestoredTile};
use pennon_core::model::{Level, UserRecord};
use pennon_core::store::keys::{self, Counter, ProjectId, RecordKind};
use pennon_core::store::{Item, Key, PartitionQuery, StoreError, Table, WriteCondition};
use pennon_insights::counter_value_of_id;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::apply::{ApplyError, ApplyOptions, ApplyResult, apply};
use super::declarations::Declarations;
use super::file::Workspace;
use super::flag_insight_specs::remove_masked_payloads;
use crate::api::{InProcessApi, Services, in_process_key};

/// Most roles of a flag that are compared with the file.
const ROLES_MAX: usize = 1000;

/// Makes the installation match `file`, flags and insights included.
pub async fn apply_all(
    services: &Services,
    file: &Workspace,
    options: ApplyOptions,
    now: DateTime<Utc>,
) -> Result<ApplyResult, ApplyError> {
    let records = &services.app.store.records;
    let mut result = apply(records, file, options, now).await?;
    let changes = Changes::compute(records, file, options.prune).await?;
    result.plan.extend(changes.plan_lines());
    if !options.dry_run && !changes.is_empty() {
        result.plan.extend(changes.write(services, now).await?);
    }
    Ok(result)
}

/// A declared flag or insight.
struct DeclaredRecord {
    kind: RecordKind,
    project: ProjectId,
    id: u64,
    label: String,
    digest: String,
    creator: Option<String>,
    /// The body of the request.
    fields: Map<String, Value>,
    restored: RestoredRecord,
    roles: Option<Vec<Uuid>>,
}

/// The stored digest of a declaration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredDigest {
    digest: String,
    label: String,
}

/// The difference between a file and the stored digests.
struct Changes {
    /// New and changed declarations, with whether they are new.
    changed: Vec<(DeclaredRecord, bool)>,
    /// Kind, project, id and label of removed declarations.
    removed: Vec<(RecordKind, ProjectId, u64, String)>,
}

fn kind_name(kind: RecordKind) -> &'static str {
    if kind == RecordKind::Flag { "flag" } else { "insight" }
}

fn digest_key(kind: RecordKind, project: ProjectId, id: u64) -> Key {
    keys::declared(&kind_name(kind).to_uppercase(), &format!("{project}/{id}"))
}

/// The stored digests of the declarations of earlier files, by project and id.
async fn load_digests(
    records: &Table,
    kind: RecordKind,
) -> Result<BTreeMap<(ProjectId, u64), StoredDigest>, StoreError> {
    let prefix = format!("{}#", kind_name(kind).to_uppercase());
    let items = records.query(PartitionQuery::partition(keys::INSTALLATION).prefix(prefix.clone())).await?;
    let mut digests = BTreeMap::new();
    for item in items {
        let place = item.key.sk.strip_prefix(&prefix).and_then(|place| place.split_once('/'));
        let place = place.and_then(|(project, id)| Some((project.parse().ok()?, id.parse().ok()?)));
        digests.extend(place.map(|place| Ok::<_, StoreError>((place, item.body()?))).transpose()?);
    }
    Ok(digests)
}

/// The flags and insights of a file, flags first.
fn list_declared(file: &Workspace) -> Result<Vec<DeclaredRecord>, serde_json::Error> {
    let digest = |spec: Vec<u8>| hash_bytes(&spec);
    let mut declared = Vec::new();
    for flag in &file.flags {
        declared.push(DeclaredRecord {
            kind: RecordKind::Flag,
            project: flag.project,
            id: flag.id,
            label: flag.fields.get("key").and_then(Value::as_str).unwrap_or_default().to_owned(),
            digest: digest(serde_json::to_vec(flag)?),
            creator: flag.created_by.clone(),
            fields: flag.fields.clone(),
            restored: RestoredRecord {
                id: flag.id,
                usage_dashboard: flag.usage_dashboard,
                ..RestoredRecord::default()
            },
            roles: flag.roles.clone(),
        });
    }
    for insight in &file.insights {
        let mut fields = insight.fields.clone();
        let tiles = insight.tiles.iter().flatten();
        if insight.tiles.is_some() {
            let dashboards: Vec<u64> = tiles.clone().map(|tile| tile.dashboard).collect();
            fields.insert("dashboards".to_owned(), json!(dashboards));
        }
        let restored = tiles.map(|tile| RestoredTile {
            dashboard: tile.dashboard,
            layouts: Value::Object(tile.layouts.clone()),
            color: tile.color.clone(),
        });
        declared.push(DeclaredRecord {
            kind: RecordKind::Insight,
            project: insight.project,
            id: insight.id,
            label: insight.fields.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            digest: digest(serde_json::to_vec(insight)?),
            creator: insight.created_by.clone(),
            fields,
            restored: RestoredRecord {
                id: insight.id,
                short_id: insight.short_id.clone(),
                created_at: insight.created_at,
                usage_dashboard: None,
                tiles: restored.collect(),
            },
            roles: None,
        });
    }
    Ok(declared)
}

impl Changes {
    async fn compute(records: &Table, file: &Workspace, prune: bool) -> Result<Changes, ApplyError> {
        let mut known = BTreeMap::new();
        for kind in [RecordKind::Flag, RecordKind::Insight] {
            let digests = load_digests(records, kind).await?;
            known.extend(digests.into_iter().map(|(id, digest)| ((kind_name(kind), id), (kind, digest))));
        }
        let mut changed = Vec::new();
        for record in list_declared(file)? {
            let before = known.remove(&(kind_name(record.kind), (record.project, record.id)));
            if before.as_ref().is_none_or(|(_, stored)| stored.digest != record.digest) {
                changed.push((record, before.is_none()));
            }
        }
        // In reverse order: the newest first. Insights and flags do not reference each other.
        let removed = known.into_iter().rev().filter(|_| prune);
        let removed = removed.map(|((_, (project, id)), (kind, stored))| (kind, project, id, stored.label));
        Ok(Changes { changed, removed: removed.collect() })
    }

    fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    /// The lines of the plan.
    fn plan_lines(&self) -> Vec<String> {
        let line = |sign: &str, kind: RecordKind, project: ProjectId, id: u64, label: &str| {
            format!("{sign} {} {project}/{id} \"{label}\"", kind_name(kind))
        };
        let changed = self.changed.iter().map(|(record, is_new)| {
            let sign = if *is_new { "+" } else { "~" };
            line(sign, record.kind, record.project, record.id, &record.label)
        });
        let removed =
            self.removed.iter().map(|(kind, project, id, label)| line("-", *kind, *project, *id, label));
        changed.chain(removed).collect()
    }

    /// Writes the changes. Returns notes to add to the plan.
    async fn write(self, services: &Services, now: DateTime<Utc>) -> Result<Vec<String>, ApplyError> {
        let records = &services.app.store.records;
        for (counter, kind) in [(Counter::Flag, RecordKind::Flag), (Counter::Insight, RecordKind::Insight)] {
            let ids =
                self.changed.iter().filter(|(record, _)| record.kind == kind).map(|(record, _)| record.id);
            let highest =
                ids.map(|id| if kind == RecordKind::Insight { counter_value_of_id(id) } else { id }).max();
            if let Some(highest) = highest.and_then(|id| i64::try_from(id).ok()) {
                records.raise(&keys::counter(counter), highest).await?;
            }
        }
        let mut client = RecordWriter::new(services, now).await?;
        self.write_with(&mut client).await
    }

    async fn write_with(self, client: &mut RecordWriter) -> Result<Vec<String>, ApplyError> {
        let mut notes = Vec::new();
        let mut pending: Vec<DeclaredRecord> = self.changed.into_iter().map(|(record, _)| record).collect();
        // Retry rejected records while others succeed: a flag may depend on a later one, or take the key that another one
        // gives up.
        while !pending.is_empty() {
            let (count, mut rejected) = (pending.len(), Vec::new());
            for record in pending {
                match client.put(&record).await? {
                    Ok(record_notes) => notes.extend(record_notes),
                    Err(reason) => rejected.push((record, reason)),
                }
            }
            if let Some((record, reason)) = rejected.first().filter(|_| rejected.len() == count) {
                let DeclaredRecord { kind, project, id, label, .. } = record;
                return Err(ApplyError::Invalid(format!(
                    "{} {project}/{id} \"{label}\": {reason}",
                    kind_name(*kind)
                )));
            }
            pending = rejected.into_iter().map(|(record, _)| record).collect();
        }
        let mut removed = self.removed;
        while !removed.is_empty() {
            let (count, mut rejected) = (removed.len(), Vec::new());
            for (kind, project, id, label) in removed {
                if let Err(reason) = client.remove(kind, project, id).await? {
                    rejected.push(((kind, project, id, label), reason));
                }
            }
            if let Some(((kind, project, id, label), reason)) =
                rejected.first().filter(|_| rejected.len() == count)
            {
                return Err(ApplyError::Invalid(format!(
                    "{} {project}/{id} \"{label}\": {reason}",
                    kind_name(*kind)
                )));
            }
            removed = rejected.into_iter().map(|(record, _)| record).collect();
        }
        Ok(notes)
    }
}

/// Sends requests to the API's routes as users of the installation.
struct RecordWriter {
    api: InProcessApi,
    records: Table,
    state: Declarations,
    now: DateTime<Utc>,
    /// The keys of the requests, by user.
    keys: HashMap<u64, Arc<KeyRecord>>,
}

/// The reason why the API rejected a request.
type RejectionReason = String;

impl RecordWriter {
    async fn new(services: &Services, now: DateTime<Utc>) -> Result<RecordWriter, ApplyError> {
        let records = services.app.store.records.clone();
        let state = Declarations::load(&records).await?;
        Ok(RecordWriter { api: InProcessApi::new(services), records, state, now, keys: HashMap::new() })
    }

    /// The id of the user as whom a record of a project is written: its creator, else an owner, admin or member, else any user.
    fn author_id(&self, project: ProjectId, creator: Option<&str>) -> Option<u64> {
        let organization = self.state.projects.get(&project.to_string())?.spec.organization;
        let users = || self.state.users.values().map(|user| &user.spec);
        let named = users().find(|user| Some(user.email.as_str()) == creator);
        let level = |level: Level| {
            users().find(|user| {
                user.memberships.iter().any(|it| it.organization == organization && it.level == level)
            })
        };
        let by_level = [Level::Owner, Level::Admin, Level::Member].into_iter().find_map(level);
        named.or(by_level).or_else(|| users().next()).map(|user| user.id)
    }

    /// The key of this user's requests.
    async fn get_or_create_key(&mut self, user: u64) -> Result<Arc<KeyRecord>, StoreError> {
        if let Some(key) = self.keys.get(&user) {
            return Ok(key.clone());
        }
        let stored = self.records.get(&keys::user(user)).await?;
        let stored = stored.ok_or_else(|| StoreError::Corrupt(format!("user {user} has no record")))?;
        let UserRecord { user: owner, .. } = stored.body()?;
        let organizations = self.state.organizations.values().map(|it| it.spec.id);
        let key = Arc::new(in_process_key(owner, organizations, "workspace file", self.now));
        self.keys.insert(user, key.clone());
        Ok(key)
    }

    /// Writes a record and stores its digest. The inner error is a rejection of the record, the outer one any other failure.
    async fn put(
        &mut self,
        record: &DeclaredRecord,
    ) -> Result<Result<Vec<String>, RejectionReason>, ApplyError> {
        let DeclaredRecord { kind, project, id, .. } = record;
        let Some(user) = self.author_id(*project, record.creator.as_deref()) else {
            return Ok(Err("there is no user as whom it can be written; declare a user".to_owned()));
        };
        let exists = self.records.get(&keys::record(*project, *kind, *id)).await?.is_some();
        let mut fields = record.fields.clone();
        let mut notes = Vec::new();
        if !exists && *kind == RecordKind::Flag && remove_masked_payloads(&mut fields) {
            notes.push(format!(
                "! flag {project}/{id} \"{}\": its secret payloads are not in the file",
                record.label
            ));
        }
        // Restore a record that was deleted over HTTP.
        fields.entry("deleted").or_insert(json!(false));
        let list = list_path(*kind, *project);
        let (method, path) = match exists {
            true => ("PATCH", format!("{list}{id}/")),
            false => ("POST", list.clone()),
        };
        let body = Value::Object(fields);
        if let Err(reason) = self.send(user, method, &path, &body, Some(&record.restored)).await? {
            return Ok(Err(reason));
        }
        if let Some(roles) = &record.roles
            && let Err(reason) = self.set_roles(user, &format!("{list}{id}/role_access/"), roles).await?
        {
            return Ok(Err(reason));
        }
        let digest = StoredDigest { digest: record.digest.clone(), label: record.label.clone() };
        self.records.put(Item::new(digest_key(*kind, *project, *id), &digest)?, WriteCondition::None).await?;
        Ok(Ok(notes))
    }

    /// Adds and removes the roles of a flag so that it has exactly `roles`.
    async fn set_roles(
        &mut self,
        user: u64,
        path: &str,
        roles: &[Uuid],
    ) -> Result<Result<(), RejectionReason>, ApplyError> {
        let page = self.send(user, "GET", &format!("{path}?limit={ROLES_MAX}"), &Value::Null, None).await?;
        let page = match page {
            Ok(page) => page,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut missing = roles.to_vec();
        for current in page["results"].as_array().into_iter().flatten() {
            let role = current["role"]["id"].as_str().and_then(|id| id.parse::<Uuid>().ok());
            match missing.iter().position(|id| Some(*id) == role) {
                Some(index) => drop(missing.remove(index)),
                None => {
                    let path = format!("{path}{}/", current["id"]);
                    if let Err(reason) = self.send(user, "DELETE", &path, &Value::Null, None).await? {
                        return Ok(Err(reason));
                    }
                }
            }
        }
        for role in missing {
            if let Err(reason) = self.send(user, "POST", path, &json!({"role_id": role}), None).await? {
                return Ok(Err(reason));
            }
        }
        Ok(Ok(()))
    }

    /// Deletes a record whose declaration was removed, and its digest.
    async fn remove(
        &mut self,
        kind: RecordKind,
        project: ProjectId,
        id: u64,
    ) -> Result<Result<(), RejectionReason>, ApplyError> {
        let stored = self.records.get(&keys::record(project, kind, id)).await?;
        let is_live = stored.map(|item| item.body::<Value>()).transpose()?;
        let is_live = is_live.is_some_and(|record| record["deleted"] != true);
        if let Some(user) = self.author_id(project, None).filter(|_| is_live) {
            let path = format!("{}{id}/", list_path(kind, project));
            let body = json!({"deleted": true});
            if let Err(reason) = self.send(user, "PATCH", &path, &body, None).await? {
                return Ok(Err(reason));
            }
        }
        self.records.sweep(vec![digest_key(kind, project, id)]).await?;
        Ok(Ok(()))
    }

    /// Sends a request as `user`. The inner error is a 4xx response other than 429; the outer one any other failure.
    async fn send(
        &mut self,
        user: u64,
        method: &str,
        path: &str,
        body: &Value,
        restored: Option<&RestoredRecord>,
    ) -> Result<Result<Value, RejectionReason>, ApplyError> {
        let failed = |message: String| ApplyError::Store(StoreError::Failed(message));
        let key = self.get_or_create_key(user).await?;
        let (status, bytes) = self.api.send(&key, (method, path, body), restored).await.map_err(failed)?;
        let response_body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        if status.is_success() {
            return Ok(Ok(response_body));
        }
        let detail = response_body["detail"].as_str().unwrap_or_default();
        let reason = match response_body["attr"].as_str() {
            Some(field) => format!("{field}: {detail}"),
            None => detail.to_owned(),
        };
        if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
            return Ok(Err(reason));
        }
        Err(failed(format!("{method} {path} returned {status}: {reason}")))
    }
}

fn list_path(kind: RecordKind, project: ProjectId) -> String {
    let list = if kind == RecordKind::Flag { "feature_flags" } else { "insights" };
    format!("/api/projects/{project}/{list}/")
}
