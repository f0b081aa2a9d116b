//! Feature flags: the CRUD API (a delete is a soft delete through an update), the flag values for one person, and the
//! definitions that SDKs evaluate locally.
//!
//! A gateway may route a request for a route of another function to this one, because of a trailing slash. The function serves
//! the role access routes for that, and redirects a request for the impact of a flag.

mod call_times;
mod evaluation;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handlers;
mod local_evaluation;
mod persons;
pub mod store;
mod usage_dashboard;
mod user;

use axum::Router;
use axum::extract::FromRef;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::IntoResponse;
use pennon_core::app::App;
use pennon_core::routes::Routes;
use pennon_eventstore::EventStore;

pub use evaluation::CompiledProjectCache;
pub use local_evaluation::FeedCache;
pub use persons::cohorts::CohortCache;
pub use persons::scan::PersonScanPermits;
pub use store::FlagCache;

const LIST: &str = "/api/projects/{project_id}/feature_flags";
const ONE: &str = "/api/projects/{project_id}/feature_flags/{id}";
const EVALUATION_REASONS: &str = "/api/projects/{project_id}/feature_flags/evaluation_reasons";
const MY_FLAGS: &str = "/api/projects/{project_id}/feature_flags/my_flags";
const BLAST_RADIUS: &str = "/api/projects/{project_id}/feature_flags/user_blast_radius";
const STATIC_COHORT: &str = "/api/projects/{project_id}/feature_flags/{id}/create_static_cohort_for_flag";
const REMOTE_CONFIG: &str = "/api/projects/{project_id}/feature_flags/{key}/remote_config";
const LOCAL_EVALUATION: &str = "/api/projects/{project_id}/feature_flags/local_evaluation";
/// The same endpoint for SDKs: the project comes from the project token or the API key.
const LOCAL_EVALUATION_BY_TOKEN: &str = "/api/feature_flag/local_evaluation";
const DEFINITIONS: &str = "/flags/definitions";

/// Scope of the read endpoints.
pub const READ_SCOPE: &str = "feature_flag:read";
/// Scope of the write endpoints.
pub const WRITE_SCOPE: &str = "feature_flag:write";

/// State of the handlers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Flags {
    /// The store, the clock and the authentication.
    pub app: App,
    /// The persons and groups that flags are evaluated for.
    pub events: EventStore,
    /// Cache of summary rows, flag records and rendered flags.
    pub memory: FlagCache,
    /// Cache of the local evaluation feeds.
    pub feeds: FeedCache,
    /// Cache of cohorts.
    pub cohorts: CohortCache,
    /// Cache of projects with compiled flags.
    pub compiled: CompiledProjectCache,
    /// Limits the concurrent scans over all persons.
    pub scan_permits: PersonScanPermits,
}

impl Flags {
    /// The state for `app` and the persons in `events`.
    pub fn new(app: App, events: EventStore) -> Flags {
        Flags {
            app,
            events,
            memory: FlagCache::default(),
            feeds: FeedCache::default(),
            cohorts: CohortCache::default(),
            compiled: CompiledProjectCache::default(),
            scan_permits: PersonScanPermits::default(),
        }
    }
}

impl FromRef<Flags> for App {
    fn from_ref(flags: &Flags) -> App {
        flags.app.clone()
    }
}

/// The routes of the flag API, authenticated with an API key.
pub fn routes() -> Routes<Flags> {
    Routes::new()
        .add(Method::GET, LIST, handlers::list)
        .add(Method::POST, LIST, handlers::create)
        .add(Method::GET, ONE, handlers::retrieve)
        .add(Method::PATCH, ONE, handlers::update)
        .add(Method::PUT, ONE, handlers::replace)
        .add(Method::DELETE, ONE, handlers::destroy)
        .add(Method::GET, EVALUATION_REASONS, handlers::evaluation_reasons)
        .add(Method::GET, MY_FLAGS, handlers::my_flags)
        .add(Method::POST, BLAST_RADIUS, handlers::user_blast_radius)
        .add(Method::POST, STATIC_COHORT, handlers::create_static_cohort_for_flag)
        .add(Method::GET, REMOTE_CONFIG, handlers::remote_config)
        .add(Method::GET, LOCAL_EVALUATION, handlers::local_evaluation)
        .add(Method::GET, LOCAL_EVALUATION_BY_TOKEN, handlers::local_evaluation)
        .add(Method::GET, DEFINITIONS, handlers::flag_definitions)
        .add(Method::GET, &format!("{LIST}/activity"), handlers::all_activity)
        .add(Method::GET, &format!("{ONE}/activity"), handlers::activity)
        .add(Method::GET, &format!("{ONE}/status"), handlers::status)
        .add(Method::POST, &format!("{ONE}/dashboard"), handlers::dashboard)
        .add(Method::POST, &format!("{ONE}/enrich_usage_dashboard"), handlers::enrich_usage_dashboard)
}

/// The routes of SDKs and browsers, authenticated with a project token only.
pub fn open_routes() -> Routes<Flags> {
    Routes::sdk()
        .add(Method::POST, "/flags", evaluation::evaluate)
        .add(Method::GET, "/flags", evaluation::no_flags)
        .add(Method::POST, "/decide", evaluation::decide)
        .add(Method::GET, "/decide", evaluation::no_decision)
        .add(Method::GET, "/array/{token}/config", evaluation::config)
        .add(Method::GET, "/array/{token}/config.js", evaluation::config_script)
        .add(Method::GET, "/api/surveys", evaluation::surveys)
        .add(Method::GET, "/api/early_access_features", evaluation::early_access_features)
        .add(Method::POST, "/ofrep/v1/evaluate/flags", evaluation::evaluate_all)
        .add(Method::POST, "/ofrep/v1/evaluate/flags/{key}", evaluation::evaluate_one)
}

/// All flag routes over `state`, without the edge middleware.
pub fn router(state: &Flags) -> Router {
    let app = &state.app;
    routes().into_router(state.clone(), app).merge(open_routes().into_router(state.clone(), app))
}

/// All routes that the function serves.
pub fn function_router(state: &Flags) -> Router {
    let redirects = slash_redirects().into_router(state.clone(), &state.app);
    router(state).merge(pennon_role_access::router(&state.app)).merge(redirects)
}

/// The routes that are redirected to the path without a trailing slash, for which the gateway has an exact route. To calculate
/// the impact of a flag, this function would have to be a third larger.
pub fn slash_redirects() -> Routes<Flags> {
    Routes::open().add(Method::POST, &format!("{ONE}/impact"), redirect_to_impact)
}

/// Relative, because a stage or a proxy may add a prefix to the path. The client has to repeat method and body.
async fn redirect_to_impact(uri: Uri) -> impl IntoResponse {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, format!("../impact{query}"))])
}
