//! Saved insights: lists, writes, and their numbers.
//!
//! Must stay true: a write is one transaction of the record, its summary row, its short id and its activity entry; a
//! lost race is read and judged again; whatever an insight cannot do yet is refused before anything is written.
//!
//! The function also answers the calculation routes: a gateway may hand it a request with a trailing slash that belongs
//! to them.

mod actions;
mod activity;
mod cancel;
mod changes;
mod cohorts;
mod dashboards;
mod due;
pub mod generated;
mod handlers;
mod input;
mod limits;
mod list;
mod listing;
mod numbers;
mod overrides;
mod placement;
mod public;
mod record;
mod resource;
mod row;
pub mod saved;
mod sharing;
mod shown;
mod store;
mod tiles;
mod timing;
mod viewed;
mod views;
mod writes;

pub use cohorts::{CohortRecord, require_feed_room};
pub use due::{Followed, follow_due};
pub use record::{Insight, count_of_id};
pub use resource::declared::{Declaration, declaration, writes as declaration_writes};
pub use resource::row_of as summary_row;
pub use tiles::Tile;

use actions::Action;
use axum::Router;
use axum::http::Method;
use pennon_calculation::{Calculation, Calculator, formed};
use pennon_core::app::App;
use pennon_core::http::Routes;

use dashboards::DashboardRecord;

pub use store::Memory;

/// What the handlers are given. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Insights {
    /// The store and the clock.
    pub app: App,
    /// What calculates.
    pub calculator: Calculator,
    /// What this process remembers of insights.
    pub memory: Memory,
}

impl Insights {
    /// Insights over `app`, whose numbers `calculator` knows.
    pub fn new(app: App, calculator: Calculator) -> Insights {
        Insights { app, calculator, memory: Memory::default() }
    }
}

/// The route table.
pub fn routes() -> Routes<Insights> {
    const LIST: &str = "/api/projects/{project_id}/insights";
    const ONE: &str = "/api/projects/{project_id}/insights/{id}";
    let mut routes = Routes::new()
        .add(Method::GET, ONE, formed(handlers::retrieve))
        .add(Method::PATCH, ONE, formed(writes::update))
        .add(Method::DELETE, ONE, handlers::destroy);
    // An ending names the form of the answer; that of the number in the path is read with it.
    for ending in ["", ".csv", ".json"] {
        let list = format!("{LIST}{ending}");
        let all = |name: &str| format!("{LIST}/{name}{ending}");
        let one = |name: &str| format!("{ONE}/{name}{ending}");
        routes = routes
            .add(Method::GET, &list, formed(list::list))
            .add(Method::POST, &list, formed(writes::create))
            .add(Method::GET, &all("activity"), formed(activity::all))
            .add(Method::GET, &one("activity"), formed(activity::of_one))
            .add(Method::GET, &one("sharing"), formed(sharing::retrieve))
            .add(Method::PATCH, &one("sharing"), formed(sharing::update))
            .add(Method::GET, &all("my_last_viewed"), formed(viewed::my_last))
            .add(Method::POST, &one("sharing/refresh"), formed(sharing::refresh))
            .add(Method::POST, &all("viewed"), formed(viewed::several))
            .add(Method::POST, &one("viewed"), formed(viewed::one))
            .add(Method::POST, &all("cancel"), formed(cancel::cancel))
            .add(Method::POST, &all("timing"), formed(timing::note));
    }
    workspace_routes(routes)
}

/// The routes of what insights lie on and refer to.
fn workspace_routes(routes: Routes<Insights>) -> Routes<Insights> {
    const DASHBOARDS: &str = "/api/projects/{project_id}/dashboards";
    const DASHBOARD: &str = "/api/projects/{project_id}/dashboards/{id}";
    const COHORTS: &str = "/api/projects/{project_id}/cohorts";
    const COHORT: &str = "/api/projects/{project_id}/cohorts/{id}";
    const ACTIONS: &str = "/api/projects/{project_id}/actions";
    const ACTION: &str = "/api/projects/{project_id}/actions/{id}";
    routes
        .add(Method::GET, DASHBOARDS, dashboards::handlers::index)
        .add(Method::POST, DASHBOARDS, dashboards::handlers::create)
        .add(Method::GET, &format!("{DASHBOARDS}/activity"), resource::all_activity::<DashboardRecord>)
        .add(Method::GET, &format!("{DASHBOARD}/activity"), resource::activity::<DashboardRecord>)
        .add(Method::GET, DASHBOARD, dashboards::handlers::retrieve)
        .add(Method::PATCH, DASHBOARD, dashboards::handlers::update)
        .add(Method::PUT, DASHBOARD, dashboards::handlers::update)
        .add(Method::DELETE, DASHBOARD, dashboards::handlers::destroy)
        .add(Method::GET, COHORTS, cohorts::index)
        .add(Method::POST, COHORTS, cohorts::create)
        .add(Method::GET, &format!("{COHORTS}/activity"), resource::all_activity::<CohortRecord>)
        .add(Method::GET, COHORT, cohorts::retrieve)
        .add(Method::PATCH, COHORT, cohorts::update)
        .add(Method::PUT, COHORT, cohorts::update)
        .add(Method::DELETE, COHORT, cohorts::destroy)
        .add(Method::GET, &format!("{COHORT}/activity"), resource::activity::<CohortRecord>)
        .add(Method::PATCH, &format!("{COHORT}/add_persons_to_static_cohort"), cohorts::add_persons)
        .add(Method::PATCH, &format!("{COHORT}/remove_person_from_static_cohort"), cohorts::remove_person)
        .add(Method::GET, ACTIONS, actions::index)
        .add(Method::POST, ACTIONS, actions::create)
        .add(Method::GET, &format!("{ACTIONS}/activity"), resource::all_activity::<Action>)
        .add(Method::GET, &format!("{ACTION}/activity"), resource::activity::<Action>)
        .add(Method::GET, ACTION, actions::retrieve)
        .add(Method::PATCH, ACTION, actions::update)
        .add(Method::PUT, ACTION, actions::update)
        .add(Method::DELETE, ACTION, actions::destroy)
}

/// The insights' own routes over `state`, without the edge.
pub fn router(state: &Insights) -> Router {
    routes().into_router(state.clone(), &state.app)
}

/// Everything that the function answers.
pub fn function_router(state: &Insights) -> Router {
    let calculation = Calculation { app: state.app.clone(), calculator: state.calculator.clone() };
    router(state).merge(pennon_calculation::router(&calculation))
}
