//! From a request to the project that the caller may use.
//!
//! Must stay true: checks come in the contract's order (401, project 404, limits of the key, scope, membership, rate);
//! key,
//! project and the records that a handler needs come in one batch wherever the project is known or was met before: a
//! guess is proven by rows that are read beside it, and read again where it was wrong.

use std::sync::Arc;

use uuid::Uuid;

use super::access::{Access, Caller};
use super::cache::Guess;
use super::key::{KeyRecord, hash_key};
use super::scope::Scope;
use super::used;
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::http::{Call, CredentialSource};
use crate::model::{Project, TokenRow};
use crate::request_metrics;
use crate::store::keys::{self, ProjectId};
use crate::store::{Item, Key, Query};
use crate::throttle::Bucket;

/// How a request names its project.
enum Named {
    Number(ProjectId),
    Token(String),
    /// By `@current`, or not at all.
    Current,
    Unknown,
}

impl Named {
    fn of(call: &Call) -> ApiResult<Named> {
        let token = call.query_value("token").filter(|token| !token.is_empty());
        if let Some(token) = token {
            let fits = token.len() <= keys::TOKEN_BYTES_MAX;
            return if fits { Ok(Named::Token(token.to_owned())) } else { Err(ApiError::bad_token()) };
        }
        let segment = call.param("project_id");
        if segment.is_empty() || segment == "@current" {
            return Ok(Named::Current);
        }
        let digits = segment.bytes().all(|byte| byte.is_ascii_digit());
        Ok(digits.then(|| segment.parse().ok()).flatten().map_or(Named::Unknown, Named::Number))
    }
}

/// A key of the request on its way to being a caller.
struct Presented {
    hash: String,
    source: CredentialSource,
    cached: Option<Arc<KeyRecord>>,
}

/// A project, and the organization in whose list it was found.
type Listed = (Uuid, ProjectId);

impl App {
    /// The caller of a request that names no project, if `check` lets it through; 401 without a live key.
    pub async fn caller(
        &self,
        call: &Call,
        check: impl FnOnce(&Caller) -> ApiResult<()>,
    ) -> ApiResult<Caller> {
        let presented = self.presented(call)?;
        let found = match &presented.cached {
            Some(_) => None,
            None => self.store.records.get(&keys::api_key(&presented.hash)).await?,
        };
        let caller = self.known(call, &presented, found)?;
        check(&caller)?;
        self.count(call, &presented, Bucket::General).await?;
        Ok(caller)
    }

    /// The project that the request names, for a caller with `scope`, and the records at `wanted(project)`.
    ///
    /// The records are read in the same round trip where the path names the project by its number, or where this
    /// process has met the token or the key before.
    pub async fn project<const N: usize>(
        &self,
        call: &Call,
        scope: impl Into<Scope>,
        wanted: impl Fn(ProjectId) -> [Key; N],
    ) -> ApiResult<(Access, [Option<Item>; N])> {
        let (access, items) = self.project_with(call, scope, |id| wanted(id).to_vec()).await?;
        let items = <[Option<Item>; N]>::try_from(items)
            .map_err(|_| ApiError::internal(&"a batch came back short"))?;
        Ok((access, items))
    }

    /// As [`App::project`], for a number of records that is not known beforehand. A route without a project segment
    /// means the project of `token`, else that of the key, as `@current` does.
    pub async fn project_with(
        &self,
        call: &Call,
        scope: impl Into<Scope>,
        wanted: impl Fn(ProjectId) -> Vec<Key>,
    ) -> ApiResult<(Access, Vec<Option<Item>>)> {
        self.project_counted(call, scope, Bucket::General, wanted).await
    }

    /// As [`App::project_with`], for calls that count in `bucket`.
    pub async fn project_counted(
        &self,
        call: &Call,
        scope: impl Into<Scope>,
        bucket: Bucket,
        wanted: impl Fn(ProjectId) -> Vec<Key>,
    ) -> ApiResult<(Access, Vec<Option<Item>>)> {
        let scope = scope.into();
        let presented = self.presented(call)?;
        let named = Named::of(call)?;
        let guess = self.guess(&named, &presented);

        let mut batch = Vec::new();
        if presented.cached.is_none() {
            batch.push(keys::api_key(&presented.hash));
        }
        if let Named::Token(token) = &named {
            batch.push(keys::token(token));
        }
        if let Some(guess) = &guess {
            batch.push(keys::project(guess.project));
            batch.extend(wanted(guess.project));
        }
        let compared = guess.as_ref().map_or(&[][..], |guess| &guess.organizations);
        let guessed = guess.as_ref().map(|guess| guess.project);
        let (found, listed, times) = tokio::join!(
            self.store.records.batch_get(&batch),
            self.listed(compared),
            self.load_write_times(call, scope, guessed)
        );
        let mut found = found?.into_iter();
        let key_item = if presented.cached.is_none() { found.next().flatten() } else { None };
        let caller = self.known(call, &presented, key_item)?;

        let actual = match &named {
            Named::Number(id) => Guess { project: *id, organizations: Vec::new() },
            Named::Token(token) => {
                let row = found.next().flatten().ok_or_else(ApiError::bad_token)?;
                let actual = Guess { project: row.body::<TokenRow>()?.project, organizations: Vec::new() };
                self.keys.remember_guess(token, actual.clone());
                actual
            }
            Named::Current => {
                let actual = self.current(&caller, compared, listed?).await?;
                let actual = actual.ok_or_else(ApiError::project_not_found)?;
                self.keys.remember_guess(&presented.hash, actual.clone());
                actual
            }
            Named::Unknown => return Err(ApiError::project_not_found()),
        };
        let (project, items) = if guess.is_some_and(|guess| guess.project == actual.project) {
            (found.next().flatten(), found.collect())
        } else {
            self.project_and(actual.project, &wanted).await?
        };
        let project = project.ok_or_else(ApiError::project_not_found)?.body::<Project>()?;
        request_metrics::record(|metrics| metrics.set_project(project.id));
        let mut access = Access::check(caller, project, scope)?;
        self.count(call, &presented, bucket).await?;
        times?;
        if guessed != Some(access.project.id) {
            self.load_write_times(call, scope, Some(access.project.id)).await?;
        }
        access.write_times = self.write_times.clone();
        Ok((access, items))
    }

    /// Learns where the logs of `project` end, for a call that may write to them.
    async fn load_write_times(&self, call: &Call, scope: Scope, project: Option<ProjectId>) -> ApiResult<()> {
        match project {
            Some(project) => {
                Ok(self.write_times.load(&self.store.records, project, scope.logs(), call.now).await?)
            }
            None => Ok(()),
        }
    }

    /// Counts the call, where calls are limited; the last check before the record and the body are looked at.
    async fn count(&self, call: &Call, presented: &Presented, bucket: Bucket) -> ApiResult<()> {
        match &self.rates {
            Some(rates) => rates.count(&self.store.records, &presented.hash, bucket, call.now).await,
            None => Ok(()),
        }
    }

    /// Which project the request will turn out to mean.
    fn guess(&self, named: &Named, presented: &Presented) -> Option<Guess> {
        match named {
            Named::Number(id) => Some(Guess { project: *id, organizations: Vec::new() }),
            Named::Token(token) => self.keys.guess(token),
            Named::Current => self.keys.guess(&presented.hash),
            Named::Unknown => None,
        }
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
        request_metrics::record(|metrics| metrics.set_key(&hash));
        let cached = self.keys.get(&hash);
        Ok(Presented { hash, source: credential.source, cached })
    }

    fn known(&self, call: &Call, presented: &Presented, found: Option<Item>) -> ApiResult<Caller> {
        let refused = || ApiError::bad_key(presented.source.name());
        let (key, read) = match (&presented.cached, &found) {
            (Some(key), _) => (key.clone(), None),
            (None, Some(item)) => (Arc::new(KeyRecord::read(item)?), Some(item)),
            (None, None) => return Err(refused()),
        };
        if !key.is_live(call.now) {
            return Err(refused());
        }
        if let Some(item) = read {
            self.keys.remember(presented.hash.clone(), key.clone());
            used::note(&self.store, &self.keys, &presented.hash, item.count, call.now);
        }
        Ok(Caller { key })
    }

    /// The project that `@current` means: the only one the key is limited to, else the lowest that it reaches.
    /// `listed` are the projects of the organizations `compared`, read while the key was not known yet.
    async fn current(
        &self,
        caller: &Caller,
        compared: &[Uuid],
        listed: Vec<Listed>,
    ) -> ApiResult<Option<Guess>> {
        if let [project] = caller.key.projects[..] {
            return Ok(Some(Guess { project, organizations: Vec::new() }));
        }
        let organizations = reached_organizations(caller);
        let listed = if organizations == compared { listed } else { self.listed(&organizations).await? };
        let project = reached(caller, &listed).into_iter().next();
        Ok(project.map(|project| Guess { project, organizations }))
    }

    /// Every project of the caller's organizations that the key's limits let through, ascending.
    pub async fn reachable_projects(&self, caller: &Caller) -> ApiResult<Vec<ProjectId>> {
        Ok(reached(caller, &self.listed(&reached_organizations(caller)).await?))
    }

    /// The projects of `organizations`.
    async fn listed(&self, organizations: &[Uuid]) -> ApiResult<Vec<Listed>> {
        let queries = organizations.iter().map(|id| {
            let query = Query::partition(keys::organization_pk(*id)).prefix(keys::ORGANIZATION_PROJECTS);
            self.store.records.query(query)
        });
        let found = futures::future::try_join_all(queries).await?;
        let mut listed = Vec::new();
        for (organization, items) in organizations.iter().zip(found) {
            let ids = items.iter().filter_map(|item| {
                item.key.sk.strip_prefix(keys::ORGANIZATION_PROJECTS).and_then(|text| text.parse().ok())
            });
            listed.extend(ids.map(|id: ProjectId| (*organization, id)));
        }
        Ok(listed)
    }
}

/// The caller's organizations that the key's limits let through.
fn reached_organizations(caller: &Caller) -> Vec<Uuid> {
    let organizations = caller.key.memberships.iter().map(|membership| membership.organization);
    organizations.filter(|id| caller.reaches_organization(*id)).collect()
}

/// Those of `listed` that the key's limits let through, ascending.
fn reached(caller: &Caller, listed: &[Listed]) -> Vec<ProjectId> {
    let ids = listed.iter().map(|(_, id)| *id).filter(|id| caller.reaches_project(*id));
    let mut projects: Vec<ProjectId> = ids.collect();
    projects.sort_unstable();
    projects
}
