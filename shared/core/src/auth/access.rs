//! From a request to the caller, and to the project that the caller may use.
//!
//! Must stay true: checks come in the contract's order (401, project 404, limits of the key, scope, membership); key,
//! project and the records that a handler needs come in one batch where the path names the project by its number; a
//! revoked key works for [`REMEMBERED_SECONDS`] at most.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::key::{KeyRecord, RoleMembership, hash_key};
use super::scope::grants;
use crate::app::App;
use crate::clock::Mark;
use crate::error::{ApiError, ApiResult};
use crate::http::{Call, CredentialSource};
use crate::model::{Level, Project, TokenRow, User};
use crate::store::keys::{self, ProjectId};
use crate::store::{Item, Key, Query};

/// How long a key is remembered by a process.
pub const REMEMBERED_SECONDS: u64 = 5;
const REMEMBERED_KEYS_MAX: usize = 10_000;

/// Keys seen a moment ago.
#[derive(Debug, Clone, Default)]
pub struct KeyCache(Arc<Mutex<HashMap<String, Remembered>>>);

/// A key, and since when it is remembered.
type Remembered = (Arc<KeyRecord>, Mark);

impl KeyCache {
    fn get(&self, hash: &str) -> Option<Arc<KeyRecord>> {
        let keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (record, mark) = keys.get(hash)?;
        mark.is_younger_than(Duration::from_secs(REMEMBERED_SECONDS)).then(|| record.clone())
    }

    fn remember(&self, hash: String, record: Arc<KeyRecord>) {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= REMEMBERED_KEYS_MAX {
            keys.clear();
        }
        keys.insert(hash, (record, Mark::here()));
    }

    /// Forgets every key, as a new process would.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Who calls.
#[derive(Debug, Clone)]
pub struct Caller {
    key: Arc<KeyRecord>,
}

impl Caller {
    /// The key's owner.
    pub fn user(&self) -> &User {
        &self.key.user
    }

    /// The key.
    pub fn key(&self) -> &KeyRecord {
        &self.key
    }

    /// 403 unless the key has `scope`.
    pub fn require(&self, scope: &str) -> ApiResult<()> {
        if grants(&self.key.scopes, scope) {
            return Ok(());
        }
        Err(ApiError::forbidden(format!("API key missing required scope '{scope}'")))
    }

    /// 403 if the key is limited to projects, for endpoints that have none.
    pub fn require_unbound(&self) -> ApiResult<()> {
        if self.key.projects.is_empty() {
            return Ok(());
        }
        let detail = "API keys with scoped projects are only supported on project-based endpoints.";
        Err(ApiError::forbidden(detail))
    }

    /// Whether the key's limits let it reach `organization`, of which the user is a member.
    pub fn reaches_organization(&self, organization: Uuid) -> bool {
        let limits = &self.key.organizations;
        (limits.is_empty() || limits.contains(&organization)) && self.key.level_in(organization).is_some()
    }

    /// Whether the key's limits let it reach project `id`.
    pub fn reaches_project(&self, id: ProjectId) -> bool {
        self.key.projects.is_empty() || self.key.projects.contains(&id)
    }
}

/// A project that the caller may use. What handlers read and write of a project, they do through this.
#[derive(Debug, Clone)]
pub struct Access {
    /// Who calls.
    pub caller: Caller,
    /// The project.
    pub project: Project,
    level: Level,
}

impl Access {
    /// What the caller may do in the project's organization.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The caller's roles in the project's organization.
    pub fn roles(&self) -> impl Iterator<Item = &RoleMembership> {
        let organization = self.project.organization;
        self.caller.key.roles.iter().filter(move |role| role.organization == organization)
    }

    fn check(caller: Caller, project: Project, scope: &str) -> ApiResult<Access> {
        let key = &caller.key;
        if !caller.reaches_project(project.id) {
            let detail = format!("API key does not have access to the requested project: ID {}.", project.id);
            return Err(ApiError::forbidden(detail));
        }
        if !key.organizations.is_empty() && !key.organizations.contains(&project.organization) {
            let id = project.organization;
            let detail = format!("API key does not have access to the requested organization: ID {id}.");
            return Err(ApiError::forbidden(detail));
        }
        caller.require(scope)?;
        let level = key
            .level_in(project.organization)
            .ok_or_else(|| ApiError::forbidden("You don't have access to the project."))?;
        Ok(Access { caller, project, level })
    }
}

/// What the project segment of a path says.
enum Segment {
    Number(ProjectId),
    Current,
    Unknown,
}

impl Segment {
    fn of(text: &str) -> Segment {
        if text == "@current" {
            return Segment::Current;
        }
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten().map_or(Segment::Unknown, Segment::Number)
    }
}

/// A key of the request on its way to being a caller.
struct Presented {
    hash: String,
    source: CredentialSource,
    cached: Option<Arc<KeyRecord>>,
}

impl App {
    /// The caller of a request that names no project; 401 without a live key.
    pub async fn caller(&self, call: &Call) -> ApiResult<Caller> {
        let presented = self.presented(call)?;
        let found = match &presented.cached {
            Some(_) => None,
            None => self.store.records.get(&keys::api_key(&presented.hash)).await?,
        };
        self.known(call, presented, found)
    }

    /// The project that the path names, for a caller with `scope`, and the records at `wanted(project)`.
    ///
    /// The records are read in the same round trip where the path names the project by its number.
    pub async fn project<const N: usize>(
        &self,
        call: &Call,
        scope: &str,
        wanted: impl Fn(ProjectId) -> [Key; N],
    ) -> ApiResult<(Access, [Option<Item>; N])> {
        let (access, items) = self.project_with(call, scope, |id| wanted(id).to_vec()).await?;
        let items = <[Option<Item>; N]>::try_from(items)
            .map_err(|_| ApiError::internal(&"a batch came back short"))?;
        Ok((access, items))
    }

    /// As [`App::project`], for a number of records that is not known beforehand.
    pub async fn project_with(
        &self,
        call: &Call,
        scope: &str,
        wanted: impl Fn(ProjectId) -> Vec<Key>,
    ) -> ApiResult<(Access, Vec<Option<Item>>)> {
        let presented = self.presented(call)?;
        let segment = Segment::of(call.param("project_id"));
        let token = call.query_value("token").filter(|token| !token.is_empty());
        if token.is_some_and(|token| token.len() > keys::TOKEN_BYTES_MAX) {
            return Err(ApiError::bad_token());
        }

        let mut batch = Vec::new();
        if presented.cached.is_none() {
            batch.push(keys::api_key(&presented.hash));
        }
        match (token, &segment) {
            (Some(token), _) => batch.push(keys::token(token)),
            (None, Segment::Number(id)) => {
                batch.push(keys::project(*id));
                batch.extend(wanted(*id));
            }
            _ => {}
        }
        let mut found = self.store.records.batch_get(&batch).await?.into_iter();
        let key_item = if presented.cached.is_none() { found.next().flatten() } else { None };
        let caller = self.known(call, presented, key_item)?;

        let (project, items) = match (token, segment) {
            (Some(_), _) => {
                let row = found.next().flatten().ok_or_else(ApiError::bad_token)?;
                self.project_and(row.body::<TokenRow>()?.project, &wanted).await?
            }
            (None, Segment::Number(_)) => (found.next().flatten(), found.collect()),
            (None, Segment::Current) => match self.current_project(&caller).await? {
                Some(id) => self.project_and(id, &wanted).await?,
                None => return Err(ApiError::project_not_found()),
            },
            (None, Segment::Unknown) => return Err(ApiError::project_not_found()),
        };
        let project = project.ok_or_else(ApiError::project_not_found)?.body::<Project>()?;
        Ok((Access::check(caller, project, scope)?, items))
    }

    async fn project_and(
        &self,
        id: ProjectId,
        wanted: &impl Fn(ProjectId) -> Vec<Key>,
    ) -> ApiResult<(Option<Item>, Vec<Option<Item>>)> {
        let mut batch = vec![keys::project(id)];
        batch.extend(wanted(id));
        let mut found = self.store.records.batch_get(&batch).await?.into_iter();
        Ok((found.next().flatten(), found.collect()))
    }

    fn presented(&self, call: &Call) -> ApiResult<Presented> {
        let credential = call.credential().ok_or_else(ApiError::not_authenticated)?;
        let hash = hash_key(&credential.key);
        let cached = self.keys.get(&hash);
        Ok(Presented { hash, source: credential.source, cached })
    }

    fn known(&self, call: &Call, presented: Presented, found: Option<Item>) -> ApiResult<Caller> {
        let key = match (presented.cached, found) {
            (Some(key), _) => key,
            (None, Some(item)) => {
                let key = Arc::new(item.body::<KeyRecord>()?);
                self.keys.remember(presented.hash, key.clone());
                key
            }
            (None, None) => return Err(ApiError::bad_key(presented.source.name())),
        };
        if !key.is_live(call.now) {
            return Err(ApiError::bad_key(presented.source.name()));
        }
        Ok(Caller { key })
    }

    /// The project that `@current` means: the only one the key is limited to, else the lowest that it reaches.
    async fn current_project(&self, caller: &Caller) -> ApiResult<Option<ProjectId>> {
        if let [only] = caller.key.projects[..] {
            return Ok(Some(only));
        }
        Ok(self.reachable_projects(caller).await?.into_iter().min())
    }

    /// Every project of the caller's organizations that the key's limits let through, ascending.
    pub async fn reachable_projects(&self, caller: &Caller) -> ApiResult<Vec<ProjectId>> {
        let organizations = caller.key.memberships.iter().map(|membership| membership.organization);
        let queries = organizations.filter(|id| caller.reaches_organization(*id)).map(|id| {
            let query = Query::partition(keys::organization_pk(id)).prefix(keys::ORGANIZATION_PROJECTS);
            self.store.records.query(query)
        });
        let mut projects = Vec::new();
        for item in futures::future::try_join_all(queries).await?.into_iter().flatten() {
            let id = item.key.sk.strip_prefix(keys::ORGANIZATION_PROJECTS).and_then(|text| text.parse().ok());
            projects.extend(id.filter(|id| caller.reaches_project(*id)));
        }
        projects.sort_unstable();
        Ok(projects)
    }
}
