//! The project of a token, with its flags compiled for the version that it has.
//!
//! Must stay true: flags are compiled once per version and shared by all requests of the process; within
//! [`TOKENS_REMEMBERED`] of the last look at version and token nothing is read, so an edit shows everywhere by then.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono_tz::Tz;
use pennon_core::auth::TOKENS_REMEMBERED;
use pennon_core::byte_limited_cache::ByteLimitedCache;
use pennon_core::clock::MonotonicInstant;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::model::Project;
use pennon_core::request_metrics;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, StoreError};
use pennon_engine::flag::evaluate::Evaluator;
use pennon_eventstore::Hot;

use super::records::RecordTemplates;
use crate::Flags;
use crate::persons::cohorts::{self, Cohorts};
use crate::persons::require_readable;
use crate::store::{Version, early, flags_of, kib, load};

/// Bytes of compiled flags that a process keeps, by a rough measure.
const BYTES_MAX: usize = 64 << 20;

/// A project with its flags and cohorts, compiled.
#[derive(Debug)]
pub struct CompiledProject {
    /// The project's settings.
    pub settings: Project,
    /// Its flags.
    pub evaluator: Evaluator,
    /// What is the same in all answers with them.
    pub records: RecordTemplates,
    /// The cohorts that they name.
    pub cohorts: Arc<Cohorts>,
    /// The active flags whose value follows a person through a login.
    pub continuous_flags: BTreeSet<i64>,
    /// Number of the version that flags and cohorts are not older than.
    number: i64,
}

impl CompiledProject {
    /// Names of the group types with their indexes.
    pub fn group_types(&self) -> impl Iterator<Item = (u32, &String)> {
        (0..).zip(&self.settings.group_types).filter(|(_, name)| !name.is_empty())
    }
}

/// The compiled projects of a process. Clones share them.
#[derive(Debug, Clone)]
pub struct CompiledProjects(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    projects: Mutex<ByteLimitedCache<ProjectId, Compiled>>,
    /// Held by the request that compiles: others wait for what it makes.
    compiling: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Compiled {
    project: Arc<CompiledProject>,
    /// When its version was last seen to be the current one; none where it has to be looked up.
    seen: Option<MonotonicInstant>,
}

impl Default for CompiledProjects {
    fn default() -> Self {
        let projects = Mutex::new(ByteLimitedCache::new(BYTES_MAX));
        Self(Arc::new(Shared { projects, compiling: tokio::sync::Mutex::default() }))
    }
}

impl CompiledProjects {
    fn get(&self, project: ProjectId) -> Option<Compiled> {
        self.lock().get(&project).cloned()
    }

    /// The project, if its version was looked at a moment ago.
    fn current(&self, project: ProjectId) -> Option<Arc<CompiledProject>> {
        let known = self.get(project)?;
        known.seen.filter(|seen| seen.is_younger_than(TOKENS_REMEMBERED)).map(|_| known.project)
    }

    /// The project, if it is of this version, which was read just now.
    fn of_version(&self, project: ProjectId, number: i64) -> Option<Arc<CompiledProject>> {
        let mut projects = self.lock();
        let known = projects.get_mut(&project).filter(|known| known.project.number == number)?;
        known.seen = Some(MonotonicInstant::now());
        Some(known.project.clone())
    }

    fn keep(&self, compiled: &Arc<CompiledProject>, bytes: usize) {
        let entry = Compiled { project: compiled.clone(), seen: Some(MonotonicInstant::now()) };
        self.lock().insert(compiled.settings.id, entry, bytes);
    }

    /// Has the next request look at the version of a project, which this process has just changed.
    pub fn look_again(&self, project: ProjectId) {
        if let Some(known) = self.lock().get_mut(&project) {
            known.seen = None;
        }
    }

    /// Forgets everything, as a new process would.
    pub fn clear(&self) {
        *self.lock() = ByteLimitedCache::new(BYTES_MAX);
    }

    fn lock(&self) -> MutexGuard<'_, ByteLimitedCache<ProjectId, Compiled>> {
        self.0.projects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A project that a request may ask about.
pub struct OpenedProject {
    /// The project.
    pub project: Arc<CompiledProject>,
    /// Events that wait for compaction, where they were read along.
    pub hot: Option<Hot>,
}

/// The project of `token`; 401 when there is none. `needs_events` says whether a request will want the waiting events of a
/// project: they are then read beside its version.
pub async fn open(
    flags: &Flags,
    token: &str,
    needs_events: impl Fn(&CompiledProject) -> bool,
) -> ApiResult<OpenedProject> {
    let tokens = &flags.app.tokens;
    let known = tokens.remembered(token, TOKENS_REMEMBERED).and_then(|id| flags.compiled.current(id));
    if let Some(project) = known {
        request_metrics::record(|metrics| metrics.set_project(project.settings.id));
        return Ok(OpenedProject { project, hot: None });
    }
    // Where the token led to the last time; the token's row proves it.
    let guess = tokens.guess(token);
    let early = async {
        let wanted = guess.and_then(|id| flags.compiled.get(id)).filter(|known| needs_events(&known.project));
        match wanted {
            Some(known) => flags.events.hot_if_few(known.project.settings.id).await.ok().flatten(),
            None => None,
        }
    };
    let version = |id| vec![keys::project_version(id)];
    let (found, hot) = tokio::join!(tokens.project_and(&flags.app.store, token, version), early);
    let (id, items) = found.map_err(unavailable)?.ok_or_else(ApiError::bad_token)?;
    request_metrics::record(|metrics| metrics.set_project(id));
    let hot = hot.filter(|_| guess == Some(id));
    let version = items.first().map(|item| Version::of(item.as_ref()));
    let known = version.and_then(|version| flags.compiled.of_version(id, version.number));
    let project = match known {
        Some(project) => project,
        None => compile(flags, id).await?,
    };
    Ok(OpenedProject { project, hot })
}

/// Compiles the flags of a project, unless another request just has.
async fn compile(flags: &Flags, id: ProjectId) -> ApiResult<Arc<CompiledProject>> {
    let _compiling = flags.compiled.0.compiling.lock().await;
    let records = &flags.app.store.records;
    let wanted = [keys::project_version(id), keys::project(id)];
    let (items, early) = tokio::join!(records.batch_get(&wanted), early(flags, id));
    let mut items = items.map_err(unavailable)?.into_iter();
    let version = Version::of(items.next().flatten().as_ref());
    if let Some(known) = flags.compiled.of_version(id, version.number) {
        return Ok(known);
    }
    let settings =
        items.next().flatten().as_ref().map(Item::body::<Project>).transpose().map_err(unavailable)?;
    let settings = settings.ok_or_else(ApiError::bad_token)?;
    let zone: Tz = settings.timezone.parse().map_err(|error| ApiError::internal(&error))?;
    let rows = load(flags, id, version, early.map_err(unavailable)?).await.map_err(unavailable)?;
    require_readable(rows.all())?;
    let wanted: Vec<(i64, u64)> = rows.all().iter().map(|row| (row.id, row.item_version)).collect();
    let named = rows.all().iter().flat_map(|row| row.cohort_ids.iter().copied()).collect();
    let cohorts = cohorts::at_version(flags, id, rows.version, named);
    let (stored, cohorts) = tokio::try_join!(flags_of(flags, id, &wanted), cohorts).map_err(unavailable)?;
    let (number, bytes) = (rows.not_older_than(version), kib(rows.all()) * 1024 * 5);
    // Thousands of flags take a while, in which other requests of this process go on.
    let compiled = tokio::task::spawn_blocking(move || {
        let all = stored.iter().map(|stored| &stored.flag);
        let evaluator = Evaluator::new(all, cohorts.by_id.values().cloned(), zone);
        let continuous_flags = evaluator.continuous_flags();
        let records = RecordTemplates::new(evaluator.flags());
        Arc::new(CompiledProject { settings, evaluator, records, cohorts, continuous_flags, number })
    });
    let compiled = compiled.await.map_err(|e| ApiError::internal(&e))?;
    flags.compiled.keep(&compiled, bytes + 1000);
    Ok(compiled)
}

/// The answer where the store does not: 503, which SDKs try again.
pub fn unavailable(error: StoreError) -> ApiError {
    match error {
        StoreError::Corrupt(_) => error.into(),
        error => {
            tracing::warn!(cause = %error, "the store does not answer");
            ApiError::busy(1)
        }
    }
}
