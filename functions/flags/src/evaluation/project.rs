//! Resolves a project token to the project with its flags compiled at its current version.
//!
//! Must stay true: flags are compiled once per version and shared by all requests of the process; within
//! [`TOKEN_CACHE_TTL`] after the last check of version and token nothing is read, so an edit is visible everywhere
//! after that time.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono_tz::Tz;
use pennon_core::auth::TOKEN_CACHE_TTL;
use pennon_core::byte_limited_cache::ByteLimitedCache;
use pennon_core::clock::CacheInstant;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_core::request_metrics;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, StoreError};
use pennon_eventstore::WaitingBlocks;
use pennon_flag_rules::evaluate::Evaluator;

use super::records::RecordTemplates;
use crate::Flags;
use crate::persons::check_records_size;
use crate::persons::cohorts::{self, LoadedCohorts};
use crate::store::{ProjectVersion, load_flags, load_rows, prefetch_rows, total_kib};

/// Approximate bytes of cached compiled flags.
const BYTES_MAX: usize = 64 << 20;

/// A project with its compiled flags and cohorts.
#[derive(Debug)]
pub struct CompiledProject {
    /// The project's settings.
    pub settings: Project,
    /// The compiled flags.
    pub evaluator: Evaluator,
    /// The constant parts of all responses.
    pub records: RecordTemplates,
    /// The cohorts that the flags name.
    pub cohorts: Arc<LoadedCohorts>,
    /// The active flags with experience continuity: a person keeps the value across a login.
    pub continuous_flags: BTreeSet<i64>,
    /// Version number that flags and cohorts are at least as new as.
    number: i64,
}

impl CompiledProject {
    /// Group type names with their indexes.
    pub fn group_types(&self) -> impl Iterator<Item = (u32, &String)> {
        (0..).zip(&self.settings.group_types).filter(|(_, name)| !name.is_empty())
    }
}

/// The compiled projects of a process. Clones share them.
#[derive(Debug, Clone)]
pub struct CompiledProjectCache(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    projects: ByteLimitedCache<ProjectId, CacheEntry>,
    /// Held while a project is compiled: other requests wait for the result (single-flight).
    compiling: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct CacheEntry {
    project: Arc<CompiledProject>,
    /// When its version was last confirmed as current; `None` when it has to be checked.
    checked_at: Option<CacheInstant>,
}

impl Default for CompiledProjectCache {
    fn default() -> Self {
        let projects = ByteLimitedCache::new(BYTES_MAX);
        Self(Arc::new(Shared { projects, compiling: tokio::sync::Mutex::default() }))
    }
}

impl CompiledProjectCache {
    fn get(&self, project: ProjectId) -> Option<CacheEntry> {
        self.0.projects.get(&project)
    }

    /// The project, if its version was confirmed within [`TOKEN_CACHE_TTL`].
    fn get_recent(&self, project: ProjectId) -> Option<Arc<CompiledProject>> {
        let cached = self.get(project)?;
        cached
            .checked_at
            .filter(|checked_at| checked_at.is_younger_than(TOKEN_CACHE_TTL))
            .map(|_| cached.project)
    }

    /// The project, if it has this version, whose read began at `read_at`.
    fn get_at_version(
        &self,
        project: ProjectId,
        number: i64,
        read_at: CacheInstant,
    ) -> Option<Arc<CompiledProject>> {
        let confirm = |cached: &mut CacheEntry| {
            let is_current = cached.project.number == number;
            is_current.then(|| {
                cached.checked_at = Some(read_at);
                cached.project.clone()
            })
        };
        self.0.projects.update(&project, confirm).flatten()
    }

    fn put(&self, compiled: &Arc<CompiledProject>, bytes: usize, read_at: CacheInstant) {
        let entry = CacheEntry { project: compiled.clone(), checked_at: Some(read_at) };
        self.0.projects.insert(compiled.settings.id, entry, bytes);
    }

    /// Makes the next request check the version of a project that this process has just changed.
    pub fn invalidate(&self, project: ProjectId) {
        self.0.projects.update(&project, |cached| cached.checked_at = None);
    }

    /// Clears the cache, as in a new process.
    pub fn clear(&self) {
        self.0.projects.clear();
    }
}

/// A project whose token was accepted.
pub struct AuthenticatedProject {
    /// The project.
    pub project: Arc<CompiledProject>,
    /// Events that are not compacted yet, if they were read in parallel.
    pub waiting_blocks: Option<WaitingBlocks>,
}

/// The project of `token`; 401 when there is none. `needs_events` decides whether a request needs the events that are
/// not compacted yet, which are then read in parallel with the version.
pub async fn open_project(
    flags: &Flags,
    token: &str,
    needs_events: impl Fn(&CompiledProject) -> bool,
) -> ApiResult<AuthenticatedProject> {
    let tokens = &flags.app.tokens;
    let cached = tokens.cached_project(token, TOKEN_CACHE_TTL).and_then(|id| flags.compiled.get_recent(id));
    if let Some(project) = cached {
        request_metrics::record(|metrics| metrics.set_project(project.settings.id));
        return Ok(AuthenticatedProject { project, waiting_blocks: None });
    }
    // The project that the token had last time; the token's item confirms it.
    let guess = tokens.predict_project(token);
    let prefetch_events = async {
        let cached =
            guess.and_then(|id| flags.compiled.get(id)).filter(|cached| needs_events(&cached.project));
        match cached {
            Some(cached) => {
                flags.events.waiting_blocks_if_few(cached.project.settings.id).await.ok().flatten()
            }
            None => None,
        }
    };
    let version = |id| vec![keys::project_version(id)];
    let read_at = CacheInstant::now();
    let (found, waiting_blocks) =
        tokio::join!(tokens.fetch_project_with(&flags.app.store, token, version), prefetch_events);
    let (id, items) = found.map_err(store_unavailable)?.ok_or_else(ApiError::bad_token)?;
    request_metrics::record(|metrics| metrics.set_project(id));
    let waiting_blocks = waiting_blocks.filter(|_| guess == Some(id));
    let version = items.first().map(|item| ProjectVersion::from_item(item.as_ref()));
    let cached = version.and_then(|version| flags.compiled.get_at_version(id, version.number, read_at));
    let project = match cached {
        Some(project) => project,
        None => compile(flags, id).await?,
    };
    Ok(AuthenticatedProject { project, waiting_blocks })
}

/// Compiles the flags of a project, unless another request just did.
async fn compile(flags: &Flags, id: ProjectId) -> ApiResult<Arc<CompiledProject>> {
    let _compiling = flags.compiled.0.compiling.lock().await;
    let records = &flags.app.store.records;
    let read_at = CacheInstant::now();
    let keys_to_read = [keys::project_version(id), keys::project(id)];
    let (items, prefetched) = tokio::join!(records.batch_get(&keys_to_read), prefetch_rows(flags, id));
    let mut items = items.map_err(store_unavailable)?.into_iter();
    let version = ProjectVersion::from_item(items.next().flatten().as_ref());
    if let Some(cached) = flags.compiled.get_at_version(id, version.number, read_at) {
        return Ok(cached);
    }
    let settings =
        items.next().flatten().as_ref().map(Item::body::<Project>).transpose().map_err(store_unavailable)?;
    let settings = settings.ok_or_else(ApiError::bad_token)?;
    let zone: Tz = settings.timezone.parse().map_err(|error| ApiError::internal(&error))?;
    let rows = load_rows(flags, id, version, prefetched.map_err(store_unavailable)?)
        .await
        .map_err(store_unavailable)?;
    check_records_size(rows.all())?;
    let flag_ids: Vec<(i64, u64)> = rows.all().iter().map(|row| (row.id, row.item_version)).collect();
    let cohort_ids = rows.all().iter().flat_map(|row| row.cohort_ids.iter().copied()).collect();
    let cohorts = cohorts::load_at_version(flags, id, rows.version, cohort_ids);
    let (stored, cohorts) =
        tokio::try_join!(load_flags(flags, id, &flag_ids), cohorts).map_err(store_unavailable)?;
    let (number, bytes) = (rows.min_version(version), total_kib(rows.all()) * 1024 * 5);
    // Compiling thousands of flags would block other requests of this process.
    let compiled = tokio::task::spawn_blocking(move || {
        let all = stored.iter().map(|stored| &stored.flag);
        let evaluator = Evaluator::new(all, cohorts.by_id.values().cloned(), zone);
        let continuous_flags = evaluator.continuous_flags();
        let records = RecordTemplates::new(evaluator.flags());
        Arc::new(CompiledProject { settings, evaluator, records, cohorts, continuous_flags, number })
    });
    let compiled = compiled.await.map_err(|e| ApiError::internal(&e))?;
    flags.compiled.put(&compiled, bytes + 1000, read_at);
    Ok(compiled)
}

/// The response when the store fails: 503, which SDKs retry.
pub fn store_unavailable(error: StoreError) -> ApiError {
    match error {
        StoreError::Corrupt(_) => error.into(),
        error => {
            tracing::warn!(cause = %error, "the record store does not respond");
            ApiError::busy(1)
        }
    }
}
