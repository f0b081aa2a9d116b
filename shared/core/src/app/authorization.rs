//! Authenticates a request and authorizes the caller for its project.
//!
//! Must stay true: checks run in the contract's order (401, project 404, limits of the key, scope, membership, rate limit);
//! the key, the project and the records that a handler needs are read in one batch if the project is known or can be
//! predicted from an earlier request: a prediction is verified by rows of the same batch, and the records are read again if
//! it was wrong.

use std::sync::Arc;

use uuid::Uuid;

use super::App;
use crate::auth::{Access, Caller, InProcessKey, KeyRecord, ProjectPrediction, Scope, hash_key, record_use};
use crate::clock::CacheInstant;
use crate::error::{ApiError, ApiResult};
use crate::http::{Call, CredentialSource};
use crate::model::{Project, TokenRow};
use crate::request_metrics;
use crate::store::keys::{self, ProjectId};
use crate::store::{Item, Key, PartitionQuery};
use crate::throttle::Bucket;

/// How a request identifies its project.
enum ProjectReference {
    Id(ProjectId),
    Token(String),
    /// `@current`, or no project at all.
    Current,
    /// Not a valid id.
    Invalid,
}

impl ProjectReference {
    fn parse(call: &Call) -> ApiResult<ProjectReference> {
        let token = call.query_value("token").filter(|token| !token.is_empty());
        if let Some(token) = token {
            let fits = token.len() <= keys::TOKEN_BYTES_MAX;
            return if fits {
                Ok(ProjectReference::Token(token.to_owned()))
            } else {
                Err(ApiError::bad_token())
            };
        }
        let segment = call.param("project_id");
        if segment.is_empty() || segment == "@current" {
            return Ok(ProjectReference::Current);
        }
        let digits = segment.bytes().all(|byte| byte.is_ascii_digit());
        Ok(digits
            .then(|| segment.parse().ok())
            .flatten()
            .map_or(ProjectReference::Invalid, ProjectReference::Id))
    }
}

/// The API key of a request, not yet authenticated.
struct PresentedKey {
    hash: String,
    source: CredentialSource,
    /// Its record, if it is cached, or the key of a request of this process itself.
    cached: Option<Arc<KeyRecord>>,
    /// Before its record is read: how long a cached one counts as current begins here.
    read_at: CacheInstant,
}

/// A project in the list of its organization.
type OrganizationProject = (Uuid, ProjectId);

impl App {
    /// Authenticates a request without a project: 401 without a valid key, else the error of `check`.
    pub async fn caller(
        &self,
        call: &Call,
        check: impl FnOnce(&Caller) -> ApiResult<()>,
    ) -> ApiResult<Caller> {
        let presented = self.read_credential(call)?;
        let key_item = match &presented.cached {
            Some(_) => None,
            None => self.store.records.get(&keys::api_key(&presented.hash)).await?,
        };
        let caller = self.authenticate(call, &presented, key_item)?;
        check(&caller)?;
        self.check_rate_limit(call, &presented, Bucket::General).await?;
        Ok(caller)
    }

    /// Authorizes the caller for the request's project and `scope`. Returns the access and the records at
    /// `record_keys(project)`.
    ///
    /// The records are read in the same round trip if the path has the project's id, or if this process has seen the token or
    /// the key before.
    pub async fn project<const N: usize>(
        &self,
        call: &Call,
        scope: impl Into<Scope>,
        record_keys: impl Fn(ProjectId) -> [Key; N],
    ) -> ApiResult<(Access, [Option<Item>; N])> {
        let (access, items) = self.authorize_project_with(call, scope, |id| record_keys(id).to_vec()).await?;
        let items = <[Option<Item>; N]>::try_from(items)
            .map_err(|_| ApiError::internal(&"a batch read returned fewer items than keys"))?;
        Ok((access, items))
    }

    /// As [`App::project`], for any number of records. A route without a project segment means the project of the parameter
    /// `token`, else the key's current project, like `@current`.
    pub async fn authorize_project_with(
        &self,
        call: &Call,
        scope: impl Into<Scope>,
        record_keys: impl Fn(ProjectId) -> Vec<Key>,
    ) -> ApiResult<(Access, Vec<Option<Item>>)> {
        self.authorize_project_in_bucket(call, scope, Bucket::General, record_keys).await
    }

    /// As [`App::authorize_project_with`], for calls that count against the rate limits of `bucket`.
    pub async fn authorize_project_in_bucket(
        &self,
        call: &Call,
        scope: impl Into<Scope>,
        bucket: Bucket,
        record_keys: impl Fn(ProjectId) -> Vec<Key>,
    ) -> ApiResult<(Access, Vec<Option<Item>>)> {
        let scope = scope.into();
        let presented = self.read_credential(call)?;
        let reference = ProjectReference::parse(call)?;
        let prediction = self.predict_project(&reference, &presented);

        let mut batch = Vec::new();
        if presented.cached.is_none() {
            batch.push(keys::api_key(&presented.hash));
        }
        if let ProjectReference::Token(token) = &reference {
            batch.push(keys::token(token));
        }
        if let Some(prediction) = &prediction {
            batch.push(keys::project(prediction.project));
            batch.extend(record_keys(prediction.project));
        }
        let predicted_organizations =
            prediction.as_ref().map_or(&[][..], |prediction| &prediction.organizations);
        let predicted = prediction.as_ref().map(|prediction| prediction.project);
        let (items, listed, write_times) = tokio::join!(
            self.store.records.batch_get(&batch),
            self.list_projects(predicted_organizations),
            self.load_write_times(call, scope, predicted)
        );
        let mut items = items?.into_iter();
        let key_item = if presented.cached.is_none() { items.next().flatten() } else { None };
        let caller = self.authenticate(call, &presented, key_item)?;

        let actual = match &reference {
            ProjectReference::Id(id) => ProjectPrediction { project: *id, organizations: Vec::new() },
            ProjectReference::Token(token) => {
                let row = items.next().flatten().ok_or_else(ApiError::bad_token)?;
                let actual =
                    ProjectPrediction { project: row.body::<TokenRow>()?.project, organizations: Vec::new() };
                self.keys.insert_prediction(token, actual.clone());
                actual
            }
            ProjectReference::Current => {
                let actual = self.resolve_current_project(&caller, predicted_organizations, listed?).await?;
                let actual = actual.ok_or_else(ApiError::project_not_found)?;
                self.keys.insert_prediction(&presented.hash, actual.clone());
                actual
            }
            ProjectReference::Invalid => return Err(ApiError::project_not_found()),
        };
        let (project, items) = if prediction.is_some_and(|prediction| prediction.project == actual.project) {
            (items.next().flatten(), items.collect())
        } else {
            self.fetch_project(actual.project, &record_keys).await?
        };
        let project = project.ok_or_else(ApiError::project_not_found)?.body::<Project>()?;
        request_metrics::record(|metrics| metrics.set_project(project.id));
        let mut access = Access::check(caller, project, scope)?;
        self.check_rate_limit(call, &presented, bucket).await?;
        write_times?;
        if predicted != Some(access.project.id) {
            self.load_write_times(call, scope, Some(access.project.id)).await?;
        }
        access.write_times = self.write_times.clone();
        Ok((access, items))
    }

    /// Loads the newest instants of the activity logs of `project` that a call with `scope` may write to.
    async fn load_write_times(&self, call: &Call, scope: Scope, project: Option<ProjectId>) -> ApiResult<()> {
        match project {
            Some(project) => {
                Ok(self.write_times.load(&self.store.records, project, scope.logs(), call.now).await?)
            }
            None => Ok(()),
        }
    }

    /// Counts the call against the rate limits, if there are any. The last check before the records and the body are validated.
    async fn check_rate_limit(&self, call: &Call, presented: &PresentedKey, bucket: Bucket) -> ApiResult<()> {
        match &self.rates {
            Some(rates) => rates.count(&self.store.records, &presented.hash, bucket, call.now).await,
            None => Ok(()),
        }
    }

    /// Predicts the project of the request, to prefetch its records.
    fn predict_project(
        &self,
        reference: &ProjectReference,
        presented: &PresentedKey,
    ) -> Option<ProjectPrediction> {
        match reference {
            ProjectReference::Id(id) => Some(ProjectPrediction { project: *id, organizations: Vec::new() }),
            ProjectReference::Token(token) => self.keys.predict_project(token),
            ProjectReference::Current => self.keys.predict_project(&presented.hash),
            ProjectReference::Invalid => None,
        }
    }

    /// Fetches a project and the records at `record_keys`.
    async fn fetch_project(
        &self,
        id: ProjectId,
        record_keys: &impl Fn(ProjectId) -> Vec<Key>,
    ) -> ApiResult<(Option<Item>, Vec<Option<Item>>)> {
        let mut batch = vec![keys::project(id)];
        batch.extend(record_keys(id));
        let mut items = self.store.records.batch_get(&batch).await?.into_iter();
        Ok((items.next().flatten(), items.collect()))
    }

    fn read_credential(&self, call: &Call) -> ApiResult<PresentedKey> {
        let credential = call.credential().ok_or_else(ApiError::not_authenticated)?;
        let hash = hash_key(&credential.key);
        request_metrics::record(|metrics| metrics.set_key(&hash));
        let in_process = call.extension::<InProcessKey>().map(|key| key.0.clone());
        let cached = in_process.or_else(|| self.keys.get(&hash));
        Ok(PresentedKey { hash, source: credential.source, cached, read_at: CacheInstant::now() })
    }

    /// The caller of a valid key, from the cache or from `key_item`; 401 for an unknown, expired or inactive key.
    fn authenticate(
        &self,
        call: &Call,
        presented: &PresentedKey,
        key_item: Option<Item>,
    ) -> ApiResult<Caller> {
        let invalid = || ApiError::bad_key(presented.source.name());
        let (key, fresh_item) = match (&presented.cached, &key_item) {
            (Some(key), _) => (key.clone(), None),
            (None, Some(item)) => (Arc::new(KeyRecord::read(item)?), Some(item)),
            (None, None) => return Err(invalid()),
        };
        if !key.is_live(call.now) {
            return Err(invalid());
        }
        if let Some(item) = fresh_item {
            self.keys.insert(presented.hash.clone(), key.clone(), presented.read_at);
            record_use(&self.store, &self.keys, &presented.hash, item.count, call.now);
        }
        Ok(Caller { key })
    }

    /// Resolves `@current`: the only project that the key is limited to, else the lowest id that it may access. `listed` are the
    /// projects of `listed_organizations`, which were prefetched before the key was known.
    async fn resolve_current_project(
        &self,
        caller: &Caller,
        listed_organizations: &[Uuid],
        listed: Vec<OrganizationProject>,
    ) -> ApiResult<Option<ProjectPrediction>> {
        if let [project] = caller.key.projects[..] {
            return Ok(Some(ProjectPrediction { project, organizations: Vec::new() }));
        }
        let organizations = accessible_organizations(caller);
        let listed = if organizations == listed_organizations {
            listed
        } else {
            self.list_projects(&organizations).await?
        };
        let project = accessible_projects(caller, &listed).into_iter().next();
        Ok(project.map(|project| ProjectPrediction { project, organizations }))
    }

    /// All projects of the caller's organizations that the key may access, ascending.
    pub async fn reachable_projects(&self, caller: &Caller) -> ApiResult<Vec<ProjectId>> {
        Ok(accessible_projects(caller, &self.list_projects(&accessible_organizations(caller)).await?))
    }

    /// Lists the projects of `organizations`.
    async fn list_projects(&self, organizations: &[Uuid]) -> ApiResult<Vec<OrganizationProject>> {
        let queries = organizations.iter().map(|id| {
            let query =
                PartitionQuery::partition(keys::organization_pk(*id)).prefix(keys::ORGANIZATION_PROJECTS);
            self.store.records.query(query)
        });
        let lists = futures::future::try_join_all(queries).await?;
        let mut listed = Vec::new();
        for (organization, items) in organizations.iter().zip(lists) {
            let ids = items.iter().filter_map(|item| {
                item.key.sk.strip_prefix(keys::ORGANIZATION_PROJECTS).and_then(|text| text.parse().ok())
            });
            listed.extend(ids.map(|id: ProjectId| (*organization, id)));
        }
        Ok(listed)
    }
}

/// The caller's organizations that the key may access.
fn accessible_organizations(caller: &Caller) -> Vec<Uuid> {
    let organizations = caller.key.memberships.iter().map(|membership| membership.organization);
    organizations.filter(|id| caller.reaches_organization(*id)).collect()
}

/// The projects of `listed` that the key may access, ascending.
fn accessible_projects(caller: &Caller, listed: &[OrganizationProject]) -> Vec<ProjectId> {
    let ids = listed.iter().map(|(_, id)| *id).filter(|id| caller.reaches_project(*id));
    let mut projects: Vec<ProjectId> = ids.collect();
    projects.sort_unstable();
    projects
}
