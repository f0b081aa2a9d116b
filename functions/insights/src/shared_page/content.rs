//! The content of a shared page: the insight, or the insights of the dashboard, with their results.
//!
//! Must stay true: deleted records are 404; of a dashboard, insights whose restriction level is higher than its own are left
//! out; one insight that cannot be calculated does not fail the page; all calculations share the deadline of one request.

use chrono::{DateTime, Utc};
use pennon_analytics::kinds::TableRows;
use pennon_analytics::{ParsedQuery, Query};
use pennon_calculation::{QueryResult, RefreshMode};
use pennon_core::auth::{Access, SharedRecordId};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use pennon_core::store::Item;
use serde_json::{Map, Value};

use crate::Insights;
use crate::dashboards::{DashboardRecord, content};
use crate::insight::Insight;
use crate::placement::{Dashboards, Placement, tiles};
use crate::results::{self, InsightResult, ResultRequest, overrides, redaction};
use crate::sharing::{self, Sharing};

/// The query parameter that selects one insight of a dashboard for a CSV file: the id of its tile.
pub const TILE: &str = "tile";

const UNTITLED: &str = "Untitled";
const TOO_LARGE: &str = "The results of this dashboard are too large for one page. This insight can be shared by a link of its own.";
const NO_QUERY: &str = "This insight has no query.";
const NOT_CALCULATED: &str = "The result could not be calculated.";

/// The content of a page.
#[derive(Debug)]
pub struct SharedContent {
    /// The name of the insight or of the dashboard.
    pub title: String,
    /// Its description; may be empty.
    pub description: String,
    /// The settings of the sharing configuration.
    pub settings: Map<String, Value>,
    /// The insights, in the order of the page.
    pub insights: Vec<SharedInsight>,
    /// Whether it is a dashboard, so that each insight has a title of its own.
    pub is_dashboard: bool,
}

/// An insight of a page.
#[derive(Debug)]
pub struct SharedInsight {
    /// The id of its tile, on a dashboard.
    pub tile: Option<u64>,
    /// Its name.
    pub title: String,
    /// Its description; may be empty.
    pub description: String,
    /// Its result, or the reason why there is none.
    pub result: Result<SharedResult, String>,
}

/// The result of an insight, without users and links.
#[derive(Debug)]
pub struct SharedResult {
    /// The query.
    pub query: Query,
    /// In the contract's `result` shape.
    pub result: Value,
    /// When it was calculated.
    pub last_refresh: DateTime<Utc>,
}

impl SharedResult {
    /// The result as a table; the first row has the headings.
    pub fn table(&self) -> TableRows {
        self.query.table(&self.result)
    }
}

/// The insight or the dashboard of a token, without results.
struct SharedSource {
    access: Access,
    title: String,
    description: String,
    settings: Map<String, Value>,
    /// The insights as they are calculated, with the ids of their tiles.
    insights: Vec<(Option<u64>, Insight)>,
    dashboard_id: Option<u64>,
}

/// Loads the content of the page with this sharing token; 404 where the token opens nothing.
pub async fn load(state: &Insights, call: &Call, token: &str) -> ApiResult<SharedContent> {
    let source = load_source(state, call, token).await?;
    let insights: Vec<Insight> = source.insights.iter().map(|(_, insight)| insight.clone()).collect();
    let results = calculate(state, call, &source, &insights).await?;
    let shared = source.insights.into_iter().zip(results).map(|((tile, insight), result)| SharedInsight {
        tile,
        title: name_of(&insight),
        description: insight.description.clone().unwrap_or_default(),
        result: shared_result(&insight, result),
    });
    Ok(SharedContent {
        title: source.title,
        description: source.description,
        settings: source.settings,
        insights: shared.collect(),
        is_dashboard: source.dashboard_id.is_some(),
    })
}

/// Loads one insight of a shared record, for a CSV file: the insight itself, or that of the tile in the query string.
pub async fn load_insight(state: &Insights, call: &Call, token: &str) -> ApiResult<SharedInsight> {
    let mut source = load_source(state, call, token).await?;
    let requested = call.query_value(TILE).map(|id| id.parse::<u64>().ok());
    if source.dashboard_id.is_some() {
        let Some(requested) = requested else {
            let detail = "The link is of a dashboard. Send the id of one of its tiles.";
            return Err(ApiError::invalid("required", detail, Some(TILE)));
        };
        source.insights.retain(|(tile, _)| tile.is_some() && *tile == requested);
    }
    let Some((tile, insight)) = source.insights.pop() else { return Err(ApiError::not_found()) };
    let results = calculate(state, call, &source, std::slice::from_ref(&insight)).await?;
    let result = results.into_iter().next().unwrap_or(Err(NOT_CALCULATED));
    Ok(SharedInsight {
        tile,
        title: name_of(&insight),
        description: insight.description.clone().unwrap_or_default(),
        result: shared_result(&insight, result),
    })
}

/// The results of `insights`; the reason for those that do not fit. Cached results are used while they are fresh.
async fn calculate(
    state: &Insights,
    call: &Call,
    source: &SharedSource,
    insights: &[Insight],
) -> ApiResult<Vec<Result<InsightResult, &'static str>>> {
    let request = ResultRequest {
        project: &source.access.project,
        refresh: RefreshMode::Blocking,
        now: call.now,
        query_id: None,
        dashboard_id: source.dashboard_id,
    };
    if insights.is_empty() {
        return Ok(Vec::new());
    }
    let results = Box::pin(state.fitting_insight_results(insights, request)).await?;
    let mut results: Vec<Result<InsightResult, &'static str>> = results.into_iter().map(Ok).collect();
    results.resize_with(insights.len(), || Err(TOO_LARGE));
    Ok(results)
}

fn shared_result(
    insight: &Insight,
    result: Result<InsightResult, &'static str>,
) -> Result<SharedResult, String> {
    let InsightResult { calculated, status, .. } = result?;
    let query = results::parse_query(insight);
    match (calculated, query) {
        (Some(QueryResult { mut result, last_refresh, .. }), Ok(ParsedQuery::Query(query))) => {
            redaction::redact(&mut result);
            Ok(SharedResult { query, result, last_refresh })
        }
        (_, Ok(ParsedQuery::Empty)) => Err(NO_QUERY.to_owned()),
        _ => {
            let reason = status.and_then(|status| status.into_error_message());
            Err(reason.unwrap_or_else(|| NOT_CALCULATED.to_owned()))
        }
    }
}

async fn load_source(state: &Insights, call: &Call, token: &str) -> ApiResult<SharedSource> {
    let (access, id, items) = state
        .app
        .authorize_shared_page(call, token, |shared| match shared.id {
            SharedRecordId::Insight(id) => sharing::record_keys::<Insight>(shared.project, id),
            SharedRecordId::Dashboard(id) => sharing::record_keys::<DashboardRecord>(shared.project, id),
        })
        .await?;
    let mut items = items.into_iter();
    let record = items.next().flatten().ok_or_else(ApiError::not_found)?;
    let settings = settings_of(items.next().flatten().as_ref())?;
    match id {
        SharedRecordId::Insight(_) => {
            let insight: Insight = record.body()?;
            if insight.deleted {
                return Err(ApiError::not_found());
            }
            let description = insight.description.clone().unwrap_or_default();
            let (title, insights) = (name_of(&insight), vec![(None, insight)]);
            Ok(SharedSource { access, title, description, settings, insights, dashboard_id: None })
        }
        SharedRecordId::Dashboard(_) => {
            let dashboard: DashboardRecord = record.body()?;
            if dashboard.deleted {
                return Err(ApiError::not_found());
            }
            let insights = visible_insights(state, &access, &dashboard).await?;
            let title = dashboard.name.clone().filter(|name| !name.is_empty());
            Ok(SharedSource {
                access,
                title: title.unwrap_or_else(|| UNTITLED.to_owned()),
                description: dashboard.description.clone(),
                settings,
                insights,
                dashboard_id: Some(dashboard.id),
            })
        }
    }
}

/// The insights on a dashboard with its filters, in the order of its layout. Insights that are also on a dashboard with a
/// higher restriction level are left out: a link to one dashboard does not open what another one restricts.
async fn visible_insights(
    state: &Insights,
    access: &Access,
    dashboard: &DashboardRecord,
) -> ApiResult<Vec<(Option<u64>, Insight)>> {
    let (records, project) = (&state.app.store.records, access.project.id);
    let placed = content::fetch_insights(records, project, dashboard.id).await?;
    let dashboard_ids = placed.iter().flat_map(|placed| tiles::current_dashboards(&placed.insight.tiles));
    let dashboards = Dashboards::load(records, project, dashboard_ids).await?;
    let filters = overrides::with_dashboard(dashboard.filters(), None);
    let visible = placed.into_iter().filter(|placed| {
        let placement = Placement::new(&placed.insight.tiles, &dashboards, access);
        placement.restriction_level <= dashboard.restriction_level
    });
    let with_filters = visible.map(|placed| {
        let insight = match &filters {
            Some(filters) => overrides::apply(&placed.insight, filters),
            None => placed.insight,
        };
        (Some(placed.tile.id), insight)
    });
    Ok(with_filters.collect())
}

fn settings_of(sharing: Option<&Item>) -> ApiResult<Map<String, Value>> {
    let Some(item) = sharing else { return Ok(Map::new()) };
    Ok(item.body::<Sharing>()?.settings.unwrap_or_default())
}

fn name_of(insight: &Insight) -> String {
    let names = [&insight.name, &insight.derived_name];
    let name = names.into_iter().flatten().find(|name| !name.is_empty());
    name.cloned().unwrap_or_else(|| UNTITLED.to_owned())
}
