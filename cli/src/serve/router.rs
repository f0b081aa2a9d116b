//! Every function's routes behind one edge.

use axum::Router;
use axum::routing::get;
use pennon_calculation::{Calculation, Calculator};
use pennon_core::app::App;
use pennon_core::http::{Route, edge};
use pennon_eventstore::EventStore;
use serde::Serialize;
use tokio::sync::watch;

/// What the functions need.
#[derive(Debug, Clone)]
pub struct Services {
    /// The store, the clock and the keys.
    pub app: App,
    /// The events.
    pub events: EventStore,
    /// What calculates over them.
    pub calculation: Calculation,
}

impl Services {
    /// Over `app`, with events at `events_url`.
    pub fn open(app: App, events_url: &str) -> Result<Services, String> {
        let events = EventStore::open(app.store.clone(), events_url).map_err(|e| e.to_string())?;
        let calculator = Calculator::new(&app, events.clone());
        let calculation = Calculation { app: app.clone(), calculator };
        Ok(Services { app, events, calculation })
    }
}

/// The whole API: every function's router, and `/_health`.
pub fn api(services: &Services) -> Router {
    let app = &services.app;
    let routes = Router::new()
        .route("/_health", get(|| async { "ok" }))
        .merge(pennon_flags::router(app))
        .merge(pennon_role_access::router(app))
        .merge(pennon_calculation::router(&services.calculation))
        .merge(pennon_projects::router(app));
    edge(routes, app.clock)
}

/// A route, and the function that answers it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Group {
    /// The function.
    pub group: &'static str,
    /// The method.
    pub method: String,
    /// The path pattern, without a trailing slash.
    pub path: String,
}

/// Every route of every function. A route that several functions answer is named for each.
pub fn groups() -> Vec<Group> {
    let role_access = pennon_role_access::routes().table();
    let mut all = group("flags", pennon_flags::routes().table());
    all.extend(group("flags", role_access.clone()));
    all.extend(group("role_access", role_access));
    let calculation = pennon_calculation::routes().table();
    all.extend(group("calculation", calculation.clone()));
    all.extend(group("insights", calculation));
    all.extend(group("projects", pennon_projects::routes().table()));
    all.sort();
    all
}

fn group(group: &'static str, routes: Vec<Route>) -> Vec<Group> {
    routes.into_iter().map(|route| Group { group, method: route.method, path: route.path }).collect()
}

/// The work that goes on beside requests, until `stopped`.
pub async fn background(services: Services, mut stopped: watch::Receiver<bool>) {
    let _ = services;
    let _ = stopped.wait_for(|stop| *stop).await;
}
