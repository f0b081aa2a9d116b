//! Every function's routes behind one edge.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use pennon_calculation::{Calculator, Limits};
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::answer_time;
use pennon_core::http::{Route, edge};
use pennon_eventstore::EventStore;
use pennon_flags::Flags;
use pennon_insights::Insights;
use pennon_worker::DUE_TIME;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::health::Health;
use crate::data::open_events;
use crate::embedded::Embedded;

/// How often captured events are compacted, and how long a run may take.
const COMPACTION_EVERY: Duration = Duration::from_secs(60);
const COMPACTION_TIME: Duration = Duration::from_secs(50);
/// How often it is looked for what has had its time: expired items, objects of results that nothing names.
const TIDIED_EVERY: Duration = Duration::from_secs(3600);

/// What the functions need.
#[derive(Debug, Clone)]
pub struct Services {
    /// The store, the clock and the keys.
    pub app: App,
    /// The events.
    pub events: EventStore,
    /// What calculates over them.
    pub calculator: Calculator,
    /// The flags, and what is remembered of them.
    pub flags: Flags,
    /// What `/_health` looks at.
    pub health: Health,
}

impl Services {
    /// Over `app`, with events at `events_url`.
    pub fn open(app: App, events_url: &str) -> Result<Services, String> {
        let events = open_events(&app.store, events_url)?;
        Ok(Services::over(app, events))
    }

    /// Over `app` and its events.
    pub fn over(app: App, events: EventStore) -> Services {
        let calculator = Calculator::with_limits(&app, events.clone(), Limits::within(answer_time()));
        let flags = Flags::new(app.clone(), events.clone());
        Services { app, events, calculator, flags, health: Health::default() }
    }
}

/// The whole API: every function's router, and `/_health`.
pub fn api(services: &Services) -> Router {
    let app = &services.app;
    let insights = Insights::new(app.clone(), services.calculator.clone());
    let health = services.health.clone();
    let routes = Router::new()
        .route("/_health", get(move || health.clone().answer()))
        .merge(pennon_flags::router(&services.flags))
        .merge(pennon_role_access::router(app))
        .merge(pennon_insights::function_router(&insights))
        .merge(pennon_capture::router(app, &services.events))
        .merge(pennon_projects::router(app))
        .merge(pennon_reference::router());
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
    all.extend(group("insights", pennon_insights::routes().table()));
    all.extend(group("capture", pennon_capture::routes().table()));
    all.extend(group("flags", pennon_flags::open_routes().table()));
    all.extend(group("projects", pennon_projects::routes().table()));
    all.extend(group("reference", pennon_reference::routes().table()));
    all.sort();
    all
}

fn group(group: &'static str, routes: Vec<Route>) -> Vec<Group> {
    routes.into_iter().map(|route| Group { group, method: route.method, path: route.path }).collect()
}

/// The work that goes on beside requests, until `stopped`: every now and then, and when many wait, captured events are
/// compacted, and what belonged to dashboards that were deleted long ago is removed.
pub async fn background(services: Services, mut stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(COMPACTION_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once; a start has better things to do.
    ticks.tick().await;
    loop {
        let is_tick = tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            _ = ticks.tick() => true,
            () = services.events.filled() => false,
        };
        let now = services.app.clock.now(None);
        let run = async {
            if is_tick
                && let Err(error) =
                    pennon_insights::follow_due(&services.app.store.records, now, DUE_TIME).await
            {
                tracing::error!(cause = error.detail(), "what is due could not be done");
            }
            if let Err(error) = pennon_worker::compact_all(&services.events, now, COMPACTION_TIME).await {
                tracing::error!(%error, "events could not be compacted");
            }
        };
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            () = run => {}
        }
    }
}

/// Removes what has had its time, now and then, until `stopped`.
pub async fn tidying(embedded: Embedded, services: Services, mut stopped: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(TIDIED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let run = async {
            ticks.tick().await;
            // By the machine's clock, as DynamoDB and buckets do it, whatever clock the service is told to have.
            let now = Clock::Running.now(None);
            if let Err(error) = services.calculator.sweep_results(now).await {
                tracing::error!(%error, "objects of results could not be removed");
            }
            if let Err(error) = embedded.tidy().await {
                tracing::error!(%error, "what has expired could not be removed");
            }
        };
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            () = run => {}
        }
    }
}
