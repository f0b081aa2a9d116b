//! The whole API: the state and the routers of all functions, merged for one process.

mod admission;
mod health;
mod in_process;

use axum::Router;
use axum::routing::get;
use pennon_calculation::clickhouse::ClickhouseServer;
use pennon_calculation::{CalculationLimits, Calculator};
use pennon_core::app::App;
use pennon_core::config::max_response_wait;
use pennon_core::http::edge;
use pennon_core::routes::Route;
use pennon_eventstore::EventStore;
use pennon_flags::Flags;
use pennon_insights::Insights;
use serde::Serialize;

use crate::data::open_events;

pub use admission::Admission;
pub use health::Health;
pub use in_process::{InProcessApi, in_process_key};

/// The shared state of all functions.
#[derive(Debug, Clone)]
pub struct Services {
    /// The store, the clock and the keys.
    pub app: App,
    /// The events.
    pub events: EventStore,
    /// Calculates queries over the events.
    pub calculator: Calculator,
    /// The flags and their cache.
    pub flags: Flags,
    /// The check of `/_health`.
    pub health: Health,
    /// How many requests run and wait.
    pub admission: Admission,
}

impl Services {
    /// Services over `app`, with the events at `events_url`, and the ClickHouse server of the environment.
    pub fn open(app: App, events_url: &str) -> Result<Services, String> {
        let events = open_events(&app.store, events_url)?;
        let services = Services::new(app, events);
        let calculator = services.calculator.with_clickhouse(ClickhouseServer::from_env(events_url)?);
        Ok(Services { calculator, ..services })
    }

    /// Services over `app` and `events`.
    pub fn new(app: App, events: EventStore) -> Services {
        let calculator =
            Calculator::with_limits(&app, events.clone(), CalculationLimits::within(max_response_wait()));
        let flags = Flags::new(app.clone(), events.clone());
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Services {
            app,
            events,
            calculator,
            flags,
            health: Health::default(),
            admission: Admission::new(cores),
        }
    }
}

/// The whole API: every function's router, and `/_health`.
pub fn api(services: &Services) -> Router {
    let app = &services.app;
    let insights = Insights::new(app.clone(), services.calculator.clone());
    let health = services.health.clone();
    let routes = Router::new()
        .merge(pennon_flags::router(&services.flags))
        .merge(pennon_role_access::router(app))
        .merge(pennon_insights::function_router(&insights))
        .merge(pennon_capture::router(app, &services.events))
        .merge(pennon_projects::router(app))
        .merge(pennon_reference::router());
    let routes = services.admission.clone().control(routes);
    edge(routes.route("/_health", get(move || health.clone().response())), app.clock)
}

/// A route, and the function that serves it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FunctionRoute {
    /// The function.
    pub group: &'static str,
    /// The method.
    pub method: String,
    /// The path pattern, without a trailing slash.
    pub path: String,
    /// Whether the function only redirects requests with a trailing slash to the path without it.
    pub is_redirect: bool,
}

/// The routes for which a function redirects requests with a trailing slash, because another function serves them.
pub fn slash_redirects() -> Vec<FunctionRoute> {
    let redirects = function_table("flags", pennon_flags::slash_redirects().table());
    redirects.into_iter().map(|route| FunctionRoute { is_redirect: true, ..route }).collect()
}

/// Every route of every function, sorted. A route that several functions serve is listed for each.
pub fn function_routes() -> Vec<FunctionRoute> {
    let role_access = pennon_role_access::routes().table();
    let mut all = function_table("flags", pennon_flags::routes().table());
    all.extend(function_table("flags", role_access.clone()));
    all.extend(function_table("role_access", role_access));
    let calculation = pennon_calculation::routes().table();
    all.extend(function_table("calculation", calculation.clone()));
    all.extend(function_table("insights", calculation));
    all.extend(function_table("insights", pennon_insights::routes().table()));
    all.extend(function_table("insights", pennon_insights::open_routes().table()));
    all.extend(function_table("capture", pennon_capture::routes().table()));
    all.extend(function_table("flags", pennon_flags::open_routes().table()));
    all.extend(function_table("projects", pennon_projects::routes().table()));
    all.extend(function_table("reference", pennon_reference::routes().table()));
    all.sort();
    all
}

fn function_table(group: &'static str, routes: Vec<Route>) -> Vec<FunctionRoute> {
    routes
        .into_iter()
        .map(|route| FunctionRoute { group, method: route.method, path: route.path, is_redirect: false })
        .collect()
}
