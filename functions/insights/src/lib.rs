//! The function `insights`: saved insights and their results, dashboards, cohorts, actions, and sharing.
//!
//! From the bottom to the top, each folder imports only those above it in this list:
//!
//! * `resource`: what all kinds of records share; `placement`: insights on dashboards.
//! * `insight`: saved insights; `results`: their results and their JSON; `views`: when they were viewed.
//! * `lists`, `handlers`: the endpoints of insights.
//! * `dashboards`, `cohorts`, `actions`: the other kinds of records, each with its endpoints.
//! * `sharing`: the links of insights and dashboards; `shared_page`: the pages that they open.
//!
//! `scheduled_tasks` is deferred work, run by the worker; `declarations` are the records of workspace files.
//!
//! Must stay true: a write is one transaction of the record, its summary row, its short id and its activity entry; on a
//! version conflict it is re-read, re-validated and retried; an unsupported feature is rejected before anything is written.
//!
//! The function also serves the calculation routes: a gateway may route a request with a trailing slash, which belongs to
//! them, to this function.

mod actions;
mod cohorts;
mod dashboards;
mod declarations;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handlers;
mod insight;
mod lists;
mod placement;
mod resource;
mod results;
mod scheduled_tasks;
mod shared_page;
mod sharing;
mod views;

pub(crate) use pennon_core::limits::insights as limits;

pub use actions::ActionRecord;
pub use cohorts::{CohortRecord, require_feed_fits};
pub use dashboards::{DashboardRecord, generated};
pub use declarations::{Declaration, declaration, writes as declaration_writes};
pub use insight::{Insight, InsightRow, InsightRowKind, counter_value_of_id, workspace_field_names};
pub use placement::tiles::Tile;
pub use resource::{ListedResource, Resource, SummaryRow, row_of as summary_row};
pub use results::saved;
pub use scheduled_tasks::{ScheduledTaskStats, run_scheduled_tasks};
pub use shared_page::routes as open_routes;
pub use sharing::Sharing;

use axum::Router;
use axum::http::Method;
use pennon_calculation::{Calculation, Calculator, with_csv};
use pennon_core::app::App;
use pennon_core::routes::Routes;
use pennon_core::store::summary_rows::SummaryRowCache;

use handlers::{activity, write};
use results::cancel;
use views::{timing, viewed};

/// State of the handlers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Insights {
    /// Store, clock, rate limits.
    pub app: App,
    /// Calculates queries.
    pub calculator: Calculator,
    /// Cache of the summary rows of insights, for the life of the process.
    row_cache: SummaryRowCache<InsightRowKind>,
}

impl Insights {
    /// The state over `app`; `calculator` calculates the results of insights.
    pub fn new(app: App, calculator: Calculator) -> Insights {
        Insights { app, calculator, row_cache: SummaryRowCache::default() }
    }
}

/// The route table.
pub fn routes() -> Routes<Insights> {
    const LIST: &str = "/api/projects/{project_id}/insights";
    const ONE: &str = "/api/projects/{project_id}/insights/{id}";
    let mut routes = Routes::new()
        .add(Method::GET, ONE, with_csv(handlers::retrieve))
        .add(Method::PATCH, ONE, with_csv(write::update))
        .add(Method::DELETE, ONE, handlers::destroy);
    // The extension selects the format of the response. After an id it is part of the path parameter.
    for ending in ["", ".csv", ".json"] {
        let list = format!("{LIST}{ending}");
        let all = |name: &str| format!("{LIST}/{name}{ending}");
        let one = |name: &str| format!("{ONE}/{name}{ending}");
        routes = routes
            .add(Method::GET, &list, with_csv(lists::list))
            .add(Method::POST, &list, with_csv(write::create))
            .add(Method::GET, &all("activity"), with_csv(activity::all))
            .add(Method::GET, &one("activity"), with_csv(activity::of_one))
            .add(Method::GET, &one("sharing"), with_csv(sharing::retrieve::<Insight>))
            .add(Method::PATCH, &one("sharing"), with_csv(sharing::update::<Insight>))
            .add(Method::GET, &all("my_last_viewed"), with_csv(viewed::my_last))
            .add(Method::POST, &one("sharing/refresh"), with_csv(sharing::refresh::<Insight>))
            .add(Method::POST, &all("viewed"), with_csv(viewed::several))
            .add(Method::POST, &one("viewed"), with_csv(viewed::one))
            .add(Method::POST, &all("cancel"), with_csv(cancel::cancel))
            .add(Method::POST, &all("timing"), with_csv(timing::record));
    }
    workspace_routes(routes)
}

/// The routes of dashboards, cohorts and actions.
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
        .add(Method::GET, &format!("{DASHBOARDS}/activity"), resource::list_all_activity::<DashboardRecord>)
        .add(Method::GET, &format!("{DASHBOARD}/activity"), resource::list_activity::<DashboardRecord>)
        .add(Method::GET, &format!("{DASHBOARD}/sharing"), with_csv(sharing::retrieve::<DashboardRecord>))
        .add(Method::PATCH, &format!("{DASHBOARD}/sharing"), with_csv(sharing::update::<DashboardRecord>))
        .add(
            Method::POST,
            &format!("{DASHBOARD}/sharing/refresh"),
            with_csv(sharing::refresh::<DashboardRecord>),
        )
        .add(Method::GET, DASHBOARD, dashboards::handlers::retrieve)
        .add(Method::PATCH, DASHBOARD, dashboards::handlers::update)
        .add(Method::PUT, DASHBOARD, dashboards::handlers::update)
        .add(Method::DELETE, DASHBOARD, dashboards::handlers::destroy)
        .add(Method::GET, COHORTS, cohorts::index)
        .add(Method::POST, COHORTS, cohorts::create)
        .add(Method::GET, &format!("{COHORTS}/activity"), resource::list_all_activity::<CohortRecord>)
        .add(Method::GET, COHORT, cohorts::retrieve)
        .add(Method::PATCH, COHORT, cohorts::update)
        .add(Method::PUT, COHORT, cohorts::update)
        .add(Method::DELETE, COHORT, cohorts::destroy)
        .add(Method::GET, &format!("{COHORT}/activity"), resource::list_activity::<CohortRecord>)
        .add(Method::PATCH, &format!("{COHORT}/add_persons_to_static_cohort"), cohorts::add_persons)
        .add(Method::PATCH, &format!("{COHORT}/remove_person_from_static_cohort"), cohorts::remove_person)
        .add(Method::GET, ACTIONS, actions::index)
        .add(Method::POST, ACTIONS, actions::create)
        .add(Method::GET, &format!("{ACTIONS}/activity"), resource::list_all_activity::<ActionRecord>)
        .add(Method::GET, &format!("{ACTION}/activity"), resource::list_activity::<ActionRecord>)
        .add(Method::GET, ACTION, actions::retrieve)
        .add(Method::PATCH, ACTION, actions::update)
        .add(Method::PUT, ACTION, actions::update)
        .add(Method::DELETE, ACTION, actions::destroy)
}

/// The router of [`routes`] and [`open_routes`] over `state`, without the edge middleware.
pub fn router(state: &Insights) -> Router {
    routes().into_router(state.clone(), &state.app).merge(open_routes().into_open_router(state.clone()))
}

/// The router of the function: its own routes and those of the calculation.
pub fn function_router(state: &Insights) -> Router {
    let calculation = Calculation { app: state.app.clone(), calculator: state.calculator.clone() };
    router(state).merge(pennon_calculation::router(&calculation))
}
