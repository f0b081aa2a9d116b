//! Flags and insights of a file become those of the installation: over the API's own routes, in process, so that they are
//! judged, written and logged as if somebody had sent them.
//!
//! Of each the digest of its declaration is kept, by which the next run knows whether the file says something new. Must stay
//! true: what a file says is noted after it was written, so a run that is cut off is finished by the next one; the key
//! by which the routes are asked is gone when this ends, and would stop working by itself within an hour.

use std::collections::{BTreeMap, HashMap};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use chrono::{DateTime, Duration, Utc};
use pennon_core::auth::{KeyRecord, Membership, hash_bytes, hash_key};
use pennon_core::http::{Restored, RestoredTile};
use pennon_core::ids;
use pennon_core::model::{Level, User, UserRecord};
use pennon_core::store::keys::{self, Counter, Kind, ProjectId};
use pennon_core::store::{Guard, Item, Key, Query, StoreError, Table};
use pennon_insights::count_of_id;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tower::ServiceExt;
use uuid::Uuid;

use super::apply::{Applied, ApplyError, Options, apply};
use super::file::Workspace;
use super::saved::without_masks;
use super::state::State;
use crate::serve::{Services, api};

/// Far above any answer to what is asked here.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// For how long a key works at most by which the routes are asked.
const KEY_HOURS: i64 = 1;
/// Most roles of a flag that are compared with the file.
const ROLES_MAX: usize = 1000;

/// Makes the installation match `file`, flags and insights included.
pub async fn apply_all(
    services: &Services,
    file: &Workspace,
    options: Options,
    now: DateTime<Utc>,
) -> Result<Applied, ApplyError> {
    let records = &services.app.store.records;
    let mut applied = apply(records, file, options, now).await?;
    let change = Change::of(records, file, options.prune).await?;
    applied.plan.extend(change.plan());
    if !options.dry_run && !change.is_empty() {
        applied.plan.extend(change.write(services, now).await?);
    }
    Ok(applied)
}

/// A flag or an insight of the file.
struct Thing {
    kind: Kind,
    project: ProjectId,
    id: u64,
    label: String,
    digest: String,
    creator: Option<String>,
    /// What is sent.
    fields: Map<String, Value>,
    restored: Restored,
    roles: Option<Vec<Uuid>>,
}

/// What is kept of a declaration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Noted {
    digest: String,
    label: String,
}

/// What a run has to do.
struct Change {
    /// Each with whether it is declared for the first time.
    changed: Vec<(Thing, bool)>,
    gone: Vec<(Kind, ProjectId, u64, String)>,
}

fn word(kind: Kind) -> &'static str {
    if kind == Kind::Flag { "flag" } else { "insight" }
}

fn noted_at(kind: Kind, project: ProjectId, id: u64) -> Key {
    keys::declared(&word(kind).to_uppercase(), &format!("{project}/{id}"))
}

/// What the installation noted of earlier files.
async fn noted(records: &Table, kind: Kind) -> Result<BTreeMap<(ProjectId, u64), Noted>, StoreError> {
    let prefix = format!("{}#", word(kind).to_uppercase());
    let items = records.query(Query::partition(keys::INSTALLATION).prefix(prefix.clone())).await?;
    let mut noted = BTreeMap::new();
    for item in items {
        let place = item.key.sk.strip_prefix(&prefix).and_then(|place| place.split_once('/'));
        let place = place.and_then(|(project, id)| Some((project.parse().ok()?, id.parse().ok()?)));
        noted.extend(place.map(|place| Ok::<_, StoreError>((place, item.body()?))).transpose()?);
    }
    Ok(noted)
}

/// The flags and insights of a file, flags first.
fn things(file: &Workspace) -> Result<Vec<Thing>, serde_json::Error> {
    let digest = |spec: Vec<u8>| hash_bytes(&spec);
    let mut things = Vec::new();
    for flag in &file.flags {
        things.push(Thing {
            kind: Kind::Flag,
            project: flag.project,
            id: flag.id,
            label: flag.fields.get("key").and_then(Value::as_str).unwrap_or_default().to_owned(),
            digest: digest(serde_json::to_vec(flag)?),
            creator: flag.created_by.clone(),
            fields: flag.fields.clone(),
            restored: Restored { id: flag.id, usage_dashboard: flag.usage_dashboard, ..Restored::default() },
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
        things.push(Thing {
            kind: Kind::Insight,
            project: insight.project,
            id: insight.id,
            label: insight.fields.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            digest: digest(serde_json::to_vec(insight)?),
            creator: insight.created_by.clone(),
            fields,
            restored: Restored {
                id: insight.id,
                short_id: insight.short_id.clone(),
                created_at: insight.created_at,
                usage_dashboard: None,
                tiles: restored.collect(),
            },
            roles: None,
        });
    }
    Ok(things)
}

impl Change {
    async fn of(records: &Table, file: &Workspace, prune: bool) -> Result<Change, ApplyError> {
        let mut known = BTreeMap::new();
        for kind in [Kind::Flag, Kind::Insight] {
            let of_kind = noted(records, kind).await?;
            known.extend(of_kind.into_iter().map(|(place, noted)| ((word(kind), place), (kind, noted))));
        }
        let mut changed = Vec::new();
        for thing in things(file)? {
            let before = known.remove(&(word(thing.kind), (thing.project, thing.id)));
            if before.as_ref().is_none_or(|(_, noted)| noted.digest != thing.digest) {
                changed.push((thing, before.is_none()));
            }
        }
        // Insights may refer to nothing of flags, nor the other way round; what was made last goes first.
        let gone = known.into_iter().rev().filter(|_| prune);
        let gone = gone.map(|((_, (project, id)), (kind, noted))| (kind, project, id, noted.label));
        Ok(Change { changed, gone: gone.collect() })
    }

    fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.gone.is_empty()
    }

    /// The lines that say what changes.
    fn plan(&self) -> Vec<String> {
        let line = |sign: &str, kind: Kind, project: ProjectId, id: u64, label: &str| {
            format!("{sign} {} {project}/{id} \"{label}\"", word(kind))
        };
        let changed = self.changed.iter().map(|(thing, is_new)| {
            let sign = if *is_new { "+" } else { "~" };
            line(sign, thing.kind, thing.project, thing.id, &thing.label)
        });
        let gone = self.gone.iter().map(|(kind, project, id, label)| line("-", *kind, *project, *id, label));
        changed.chain(gone).collect()
    }

    /// Does it. Returns what has to be said beside the plan.
    async fn write(self, services: &Services, now: DateTime<Utc>) -> Result<Vec<String>, ApplyError> {
        let records = &services.app.store.records;
        for (counter, kind) in [(Counter::Flag, Kind::Flag), (Counter::Insight, Kind::Insight)] {
            let ids = self.changed.iter().filter(|(thing, _)| thing.kind == kind).map(|(thing, _)| thing.id);
            let highest = ids.map(|id| if kind == Kind::Insight { count_of_id(id) } else { id }).max();
            if let Some(highest) = highest.and_then(|id| i64::try_from(id).ok()) {
                records.raise(&keys::counter(counter), highest).await?;
            }
        }
        let mut caller = Caller::new(services, now).await?;
        let written = self.write_by(&mut caller).await;
        caller.end().await?;
        written
    }

    async fn write_by(self, caller: &mut Caller) -> Result<Vec<String>, ApplyError> {
        let mut said = Vec::new();
        let mut pending: Vec<Thing> = self.changed.into_iter().map(|(thing, _)| thing).collect();
        // A flag may depend on one that comes later, or take the key that another one gives up.
        while !pending.is_empty() {
            let (all, mut refused) = (pending.len(), Vec::new());
            for thing in pending {
                match caller.put(&thing).await? {
                    Ok(notes) => said.extend(notes),
                    Err(why) => refused.push((thing, why)),
                }
            }
            if let Some((thing, why)) = refused.first().filter(|_| refused.len() == all) {
                let Thing { kind, project, id, label, .. } = thing;
                return Err(ApplyError::Invalid(format!(
                    "{} {project}/{id} \"{label}\": {why}",
                    word(*kind)
                )));
            }
            pending = refused.into_iter().map(|(thing, _)| thing).collect();
        }
        let mut gone = self.gone;
        while !gone.is_empty() {
            let (all, mut refused) = (gone.len(), Vec::new());
            for (kind, project, id, label) in gone {
                if let Err(why) = caller.remove(kind, project, id).await? {
                    refused.push(((kind, project, id, label), why));
                }
            }
            if let Some(((kind, project, id, label), why)) = refused.first().filter(|_| refused.len() == all)
            {
                return Err(ApplyError::Invalid(format!(
                    "{} {project}/{id} \"{label}\": {why}",
                    word(*kind)
                )));
            }
            gone = refused.into_iter().map(|(thing, _)| thing).collect();
        }
        Ok(said)
    }
}

/// Somebody who asks the routes in the names of users.
struct Caller {
    router: Router,
    records: Table,
    state: State,
    now: DateTime<Utc>,
    /// By user: the secret of a key that is there for this run alone.
    secrets: HashMap<u64, String>,
}

/// What a route refused, in its words.
type Refused = String;

impl Caller {
    async fn new(services: &Services, now: DateTime<Utc>) -> Result<Caller, ApplyError> {
        // This is nobody's request, so no limit counts it.
        let services = Services::over(services.app.clone().with_rate_limits(None), services.events.clone());
        let records = services.app.store.records.clone();
        let state = State::load(&records).await?;
        Ok(Caller { router: api(&services), records, state, now, secrets: HashMap::new() })
    }

    /// Removes the keys.
    async fn end(self) -> Result<(), StoreError> {
        let keys = self.secrets.values().map(|secret| keys::api_key(&hash_key(secret)));
        self.records.sweep(keys.collect()).await
    }

    /// The number of the user in whose name something of a project is written: its creator, else an owner, else anybody.
    fn writer(&self, project: ProjectId, creator: Option<&str>) -> Option<u64> {
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

    /// The secret of a key of this user's, which may do everything.
    async fn secret_of(&mut self, user: u64) -> Result<String, StoreError> {
        if let Some(secret) = self.secrets.get(&user) {
            return Ok(secret.clone());
        }
        let stored = self.records.get(&keys::user(user)).await?;
        let stored = stored.ok_or_else(|| StoreError::Corrupt(format!("user {user} has no record")))?;
        let UserRecord { user: shown, .. } = stored.body()?;
        let secret = ids::new_api_key();
        let record = self.key_of(shown);
        let item = Item::new(keys::api_key(&hash_key(&secret)), &record)?;
        // Should this process die, the store forgets the key.
        let item = item.expiring((Utc::now() + Duration::hours(KEY_HOURS)).timestamp());
        self.records.put(item, Guard::Absent).await?;
        self.secrets.insert(user, secret.clone());
        Ok(secret)
    }

    fn key_of(&self, user: User) -> KeyRecord {
        let organizations = self.state.organizations.values().map(|it| it.spec.id);
        KeyRecord {
            label: "workspace file".to_owned(),
            mask: String::new(),
            user,
            is_active: true,
            scopes: vec!["*".to_owned()],
            projects: Vec::new(),
            organizations: Vec::new(),
            memberships: organizations
                .map(|it| Membership { organization: it, level: Level::Owner })
                .collect(),
            roles: Vec::new(),
            created_at: self.now,
            expires_at: Some(Utc::now() + Duration::hours(KEY_HOURS)),
            last_used_at: None,
        }
    }

    /// Writes a thing and notes that it was. The outer error is none of the file.
    async fn put(&mut self, thing: &Thing) -> Result<Result<Vec<String>, Refused>, ApplyError> {
        let Thing { kind, project, id, .. } = thing;
        let Some(user) = self.writer(*project, thing.creator.as_deref()) else {
            return Ok(Err("nobody is there in whose name it could be written; declare a user".to_owned()));
        };
        let is_there = self.records.get(&keys::record(*project, *kind, *id)).await?.is_some();
        let mut fields = thing.fields.clone();
        let mut notes = Vec::new();
        if !is_there && *kind == Kind::Flag && without_masks(&mut fields) {
            notes.push(format!(
                "! flag {project}/{id} \"{}\": its secret payloads are not in the file",
                thing.label
            ));
        }
        // What was deleted over HTTP is there again.
        fields.entry("deleted").or_insert(json!(false));
        let list = list_of(*kind, *project);
        let (method, path) = match is_there {
            true => ("PATCH", format!("{list}{id}/")),
            false => ("POST", list.clone()),
        };
        let body = Value::Object(fields);
        if let Err(why) = self.ask(user, method, &path, &body, Some(&thing.restored)).await? {
            return Ok(Err(why));
        }
        if let Some(roles) = &thing.roles
            && let Err(why) = self.give_roles(user, &format!("{list}{id}/role_access/"), roles).await?
        {
            return Ok(Err(why));
        }
        let noted = Noted { digest: thing.digest.clone(), label: thing.label.clone() };
        self.records.put(Item::new(noted_at(*kind, *project, *id), &noted)?, Guard::None).await?;
        Ok(Ok(notes))
    }

    /// Makes the roles of a flag these.
    async fn give_roles(
        &mut self,
        user: u64,
        path: &str,
        wanted: &[Uuid],
    ) -> Result<Result<(), Refused>, ApplyError> {
        let page = self.ask(user, "GET", &format!("{path}?limit={ROLES_MAX}"), &Value::Null, None).await?;
        let page = match page {
            Ok(page) => page,
            Err(why) => return Ok(Err(why)),
        };
        let mut missing = wanted.to_vec();
        for given in page["results"].as_array().into_iter().flatten() {
            let role = given["role"]["id"].as_str().and_then(|id| id.parse::<Uuid>().ok());
            match missing.iter().position(|id| Some(*id) == role) {
                Some(place) => drop(missing.remove(place)),
                None => {
                    let path = format!("{path}{}/", given["id"]);
                    if let Err(why) = self.ask(user, "DELETE", &path, &Value::Null, None).await? {
                        return Ok(Err(why));
                    }
                }
            }
        }
        for role in missing {
            if let Err(why) = self.ask(user, "POST", path, &json!({"role_id": role}), None).await? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(()))
    }

    /// Deletes what no file declares any more.
    async fn remove(
        &mut self,
        kind: Kind,
        project: ProjectId,
        id: u64,
    ) -> Result<Result<(), Refused>, ApplyError> {
        let stored = self.records.get(&keys::record(project, kind, id)).await?;
        let is_live = stored.map(|item| item.body::<Value>()).transpose()?;
        let is_live = is_live.is_some_and(|record| record["deleted"] != true);
        if let Some(user) = self.writer(project, None).filter(|_| is_live) {
            let path = format!("{}{id}/", list_of(kind, project));
            let body = json!({"deleted": true});
            if let Err(why) = self.ask(user, "PATCH", &path, &body, None).await? {
                return Ok(Err(why));
            }
        }
        self.records.sweep(vec![noted_at(kind, project, id)]).await?;
        Ok(Ok(()))
    }

    /// Asks a route. A 4xx is refused; whatever else fails is no matter of the file.
    async fn ask(
        &mut self,
        user: u64,
        method: &str,
        path: &str,
        body: &Value,
        restored: Option<&Restored>,
    ) -> Result<Result<Value, Refused>, ApplyError> {
        let failed = |why: String| ApplyError::Store(StoreError::Failed(why));
        let secret = self.secret_of(user).await?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {secret}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(if body.is_null() { Body::empty() } else { Body::from(body.to_string()) })
            .map_err(|e| failed(e.to_string()))?;
        if let Some(restored) = restored {
            request.extensions_mut().insert(restored.clone());
        }
        let Ok(answer) = self.router.clone().oneshot(request).await;
        let status = answer.status();
        let bytes =
            to_bytes(answer.into_body(), ANSWER_BYTES_MAX).await.map_err(|e| failed(e.to_string()))?;
        let told: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        if status.is_success() {
            return Ok(Ok(told));
        }
        let detail = told["detail"].as_str().unwrap_or_default();
        let why = match told["attr"].as_str() {
            Some(field) => format!("{field}: {detail}"),
            None => detail.to_owned(),
        };
        if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
            return Ok(Err(why));
        }
        Err(failed(format!("{method} {path} was answered {status}: {why}")))
    }
}

fn list_of(kind: Kind, project: ProjectId) -> String {
    let list = if kind == Kind::Flag { "feature_flags" } else { "insights" };
    format!("/api/projects/{project}/{list}/")
}
