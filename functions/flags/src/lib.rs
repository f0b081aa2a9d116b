//! Feature flags: list, create, retrieve, update; deletion is soft and a kind of update. And their values, for SDKs that ask
//! about one person.
//!
//! The function also answers the role access routes: a gateway may hand it a request with a trailing slash that belongs
//! to them.

mod calls;
mod definitions;
mod evaluation;
mod handlers;
mod mentioned;
mod persons;
pub mod store;
mod usage;
mod user;

use axum::Router;
use axum::extract::FromRef;
use axum::http::Method;
use pennon_core::app::App;
use pennon_core::http::Routes;
use pennon_eventstore::EventStore;

pub use definitions::Feeds;
pub use evaluation::CompiledProjects;
pub use persons::all::Turns;
pub use persons::cohorts::CohortMemory;
pub use store::Memory;

const LIST: &str = "/api/projects/{project_id}/feature_flags";
const ONE: &str = "/api/projects/{project_id}/feature_flags/{id}";
const EVALUATION_REASONS: &str = "/api/projects/{project_id}/feature_flags/evaluation_reasons";
const MY_FLAGS: &str = "/api/projects/{project_id}/feature_flags/my_flags";
const BLAST_RADIUS: &str = "/api/projects/{project_id}/feature_flags/user_blast_radius";
const STATIC_COHORT: &str = "/api/projects/{project_id}/feature_flags/{id}/create_static_cohort_for_flag";
const REMOTE_CONFIG: &str = "/api/projects/{project_id}/feature_flags/{key}/remote_config";
const LOCAL_EVALUATION: &str = "/api/projects/{project_id}/feature_flags/local_evaluation";
/// Where SDKs ask for the same, with the project in the token or the key.
const LOCAL_EVALUATION_BY_TOKEN: &str = "/api/feature_flag/local_evaluation";
const DEFINITIONS: &str = "/flags/definitions";

/// The scope that reading asks for.
pub const READ: &str = "feature_flag:read";
/// The scope that writing asks for.
pub const WRITE: &str = "feature_flag:write";

/// What the handlers are given. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Flags {
    /// The store and the clock.
    pub app: App,
    /// Whose persons and groups flags are evaluated for.
    pub events: EventStore,
    /// What this process remembers of flags.
    pub memory: Memory,
    /// The definitions that this process remembers.
    pub feeds: Feeds,
    /// The cohorts that this process remembers.
    pub cohorts: CohortMemory,
    /// The flags that this process has compiled to evaluate them.
    pub compiled: CompiledProjects,
    /// Turns at going through all persons.
    pub turns: Turns,
}

impl Flags {
    /// Flags over `app`, for the persons of `events`.
    pub fn new(app: App, events: EventStore) -> Flags {
        Flags {
            app,
            events,
            memory: Memory::default(),
            feeds: Feeds::default(),
            cohorts: CohortMemory::default(),
            compiled: CompiledProjects::default(),
            turns: Turns::default(),
        }
    }
}

impl FromRef<Flags> for App {
    fn from_ref(flags: &Flags) -> App {
        flags.app.clone()
    }
}

/// The route table of the flags themselves.
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
        .add(Method::GET, DEFINITIONS, handlers::definitions)
        .add(Method::GET, &format!("{LIST}/activity"), handlers::all_activity)
        .add(Method::GET, &format!("{ONE}/activity"), handlers::activity)
        .add(Method::GET, &format!("{ONE}/status"), handlers::status)
        .add(Method::POST, &format!("{ONE}/dashboard"), handlers::dashboard)
        .add(Method::POST, &format!("{ONE}/enrich_usage_dashboard"), handlers::enrich_usage_dashboard)
}

/// The routes of SDKs and browsers, for callers with nothing but a project token.
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

/// The flags' own routes over `state`, without the edge.
pub fn router(state: &Flags) -> Router {
    let app = &state.app;
    routes().into_router(state.clone(), app).merge(open_routes().into_router(state.clone(), app))
}

/// Everything that the function answers.
pub fn function_router(state: &Flags) -> Router {
    router(state).merge(pennon_role_access::router(&state.app))
}
