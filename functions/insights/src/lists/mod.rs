//! The list of insights. `query` has the parameters: filters and order.
//!
//! Must stay true: filters and order use the summary rows, only the records of the page are read; a sharing token lists the
//! one insight that it opens; a page is never shorter than its `limit` unless it is the last.

pub(crate) mod query;

pub use query::is_true;

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use chrono::DateTime;
use chrono_tz::Tz;
use futures::{StreamExt, TryStreamExt};
use pennon_calculation::ResponseFormat;
use pennon_core::auth::Access;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page};
use pennon_core::model::UserRecord;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::summary_rows::{PrefetchedRows, RowsVersion, SummaryRows};
use pennon_core::store::{Key, StoreError, Table};
use serde_json::{Value, json};

use crate::insight::{self, Insight, InsightRow, InsightRowKind, READ, refers_to_flag};
use crate::placement::{Dashboards, Placement, tiles};
use crate::resource::body::invalid;
use crate::results::response::{self, InsightViewer};
use crate::results::{self, ResultRequest, overrides, permitted_refresh};
use crate::views::view_times::{self, ViewTimes};
use crate::{Insights, limits};
use query::InsightListQuery;

/// Records of one batch of a search for a flag, and batches in parallel.
const SEARCH_BATCH: usize = 100;
const PARALLEL_SEARCHES: usize = 4;
/// Most attempts at a page of which insights are deleted concurrently: clients take a short page for the last one.
const ATTEMPTS: u32 = 5;

/// `GET P/insights/`
pub async fn list(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, mut rows) = match call.link()? {
        Some(token) => authenticate_shared(&state, &call, token).await?,
        None => access_and_rows(&state, &call).await?,
    };
    ResponseFormat::of(&call)?;
    let query = InsightListQuery::parse(call.query(), local_now(&access, &call)?).map_err(invalid)?;
    require_users(&state, &access, &query, rows.all()).await?;
    for _ in 1..ATTEMPTS {
        if let Some(response) = try_respond(&state, &call, &access, &query, rows.all()).await? {
            return Ok(response);
        }
        rows = match rows {
            ListRows::Project(_) => ListRows::Project(reload_rows(&state, access.project.id).await?),
            // The shared insight has been deleted.
            ListRows::Shared(_) => ListRows::Shared(Vec::new()),
        };
    }
    let last = try_respond(&state, &call, &access, &query, rows.all()).await?;
    last.ok_or_else(|| StoreError::Conflict.into())
}

/// The summary rows that a list selects from.
enum ListRows {
    /// All rows of the project.
    Project(SummaryRows<InsightRowKind>),
    /// The row of the insight that a sharing token opens.
    Shared(Vec<InsightRow>),
}

impl ListRows {
    fn all(&self) -> &[InsightRow] {
        match self {
            ListRows::Project(rows) => rows.all(),
            ListRows::Shared(rows) => rows,
        }
    }
}

/// The page of the `rows` that `query` selects; `None` when insights of it were deleted since the rows were read.
async fn try_respond(
    state: &Insights,
    call: &Call,
    access: &Access,
    query: &InsightListQuery,
    rows: &[InsightRow],
) -> ApiResult<Option<Response>> {
    let (records, project) = (&state.app.store.records, access.project.id);
    let all_dashboards = async {
        let rows = rows.iter().filter(|_| query.needs_dashboards());
        Dashboards::load(records, project, rows.flat_map(|row| row.dashboards.iter().copied())).await
    };
    let all_view_times = async {
        match query.needs_view_times() {
            true => Ok::<_, ApiError>(Some(view_times::fetch_all(records, project).await?)),
            false => Ok(None),
        }
    };
    let (dashboards, all_view_times) = tokio::try_join!(all_dashboards, all_view_times)?;
    let selected = select_rows(state, access, query, rows, &dashboards, all_view_times.as_ref()).await?;

    let page = Page::of(call);
    let page_rows = page.slice(&selected);
    // If the page exceeds the size limit, read only as many records as fit, to report the largest limit that works.
    let fits = count_fitting(page_rows);
    let ids: Vec<u64> = page_rows[..fits].iter().map(|row| row.id).collect();
    let dashboard_ids: BTreeSet<u64> =
        page_rows[..fits].iter().flat_map(|row| row.dashboards.iter().copied()).collect();
    let unread = dashboard_ids.iter().copied().filter(|_| !query.needs_dashboards());
    let (insights, read, view_times) = tokio::try_join!(
        insight::fetch_insights(records, project, &ids),
        Dashboards::load(records, project, unread),
        async {
            match all_view_times {
                Some(all) => Ok::<_, ApiError>(all),
                None => Ok(view_times::fetch(records, project, &ids).await?),
            }
        },
    )?;
    if insights.len() < fits {
        return Ok(None);
    }
    let dashboards =
        with_added_dashboards(state, access, &insights, dashboards.merge(read), &dashboard_ids).await?;
    let results = results_json(state, call, access, query, &insights, &dashboards, &view_times).await?;
    if fits < page_rows.len() {
        return Err(page.refusal(call, selected.len(), &results));
    }
    page.reply(call, selected.len(), &results).map(Some)
}

/// The number of first rows whose records are within [`limits::PAGE_KIB`].
fn count_fitting(rows: &[&InsightRow]) -> usize {
    let mut kib = 0;
    let fits = |row: &&&InsightRow| {
        kib += row.kib;
        kib <= limits::PAGE_KIB
    };
    rows.iter().take_while(fits).count()
}

/// The dashboards, with those that insights were added to since their rows were read.
async fn with_added_dashboards(
    state: &Insights,
    access: &Access,
    insights: &[Insight],
    dashboards: Dashboards,
    known: &BTreeSet<u64>,
) -> ApiResult<Dashboards> {
    let on = insights.iter().flat_map(|insight| tiles::current_dashboards(&insight.tiles));
    let added: BTreeSet<u64> = on.filter(|id| !known.contains(id)).collect();
    let added = Dashboards::load(&state.app.store.records, access.project.id, added).await?;
    Ok(dashboards.merge(added))
}

/// The JSON text of each insight of the list.
async fn results_json(
    state: &Insights,
    call: &Call,
    access: &Access,
    query: &InsightListQuery,
    insights: &[Insight],
    dashboards: &Dashboards,
    view_times: &ViewTimes,
) -> ApiResult<Vec<String>> {
    let (refresh, explicit) = results::parse_refresh(call)?;
    let overriding = overrides::parse(call)?.filter(|_| !access.is_shared_link());
    let viewer = InsightViewer::new(access, explicit);
    let place = |insight: &Insight| Placement::new(&insight.tiles, dashboards, access);
    let text = |insight: &Insight, mut body: Value| {
        body["last_viewed_at"] = json!(view_times.get(&insight.id).map(|at| timestamp(*at)));
        body.to_string()
    };
    if query.basic {
        let short = |insight| text(insight, response::short_json(insight, &place(insight), &viewer));
        return Ok(insights.iter().map(short).collect());
    }
    let merged: Vec<Insight> = match overriding {
        Some(overriding) => insights.iter().map(|insight| overrides::apply(insight, &overriding)).collect(),
        None => insights.to_vec(),
    };
    let request = ResultRequest::new(call, &access.project, permitted_refresh(access, refresh));
    let results = state.insight_results(&merged, request).await?;
    let full = |(insight, result)| {
        text(insight, response::full_json(insight, result, &place(insight), &viewer, None))
    };
    Ok(merged.iter().zip(&results).map(full).collect())
}

/// The project, and the summary rows of its insights.
///
/// Where the path has the id of the project, the rows are prefetched in parallel with the API key, which saves a round trip.
/// They are only used if the key has access to the project.
async fn access_and_rows(state: &Insights, call: &Call) -> ApiResult<(Access, ListRows)> {
    let path_id = call.id("project_id").filter(|_| call.credential().is_some());
    let prefetch = async {
        match path_id {
            Some(project) => state.row_cache.prefetch(&state.app.store.records, project).await,
            None => Ok(None),
        }
    };
    let version = |project| [keys::insights_version(project)];
    let (access, prefetched) = tokio::join!(state.app.project(call, READ, version), prefetch);
    let (access, [version]) = access?;
    let version = RowsVersion::from_item(version.as_ref());
    let rows = load_rows(state, access.project.id, version, prefetched?).await?;
    Ok((access, ListRows::Project(rows)))
}

/// The current rows.
async fn reload_rows(state: &Insights, project: ProjectId) -> ApiResult<SummaryRows<InsightRowKind>> {
    let version = state.app.store.records.get(&keys::insights_version(project)).await?;
    Ok(load_rows(state, project, RowsVersion::from_item(version.as_ref()), None).await?)
}

async fn load_rows(
    state: &Insights,
    project: ProjectId,
    version: RowsVersion,
    prefetched: Option<PrefetchedRows>,
) -> Result<SummaryRows<InsightRowKind>, StoreError> {
    let records = &state.app.store.records;
    let fetch_row = |id: i64| async move {
        let row = records.get(&insight::row_key(project, id.unsigned_abs())).await?;
        row.as_ref().map(InsightRow::from_item).transpose()
    };
    state.row_cache.load(records, project, version, prefetched, fetch_row).await
}

/// The project, and the row of the insight that a sharing token opens, unless it is deleted.
async fn authenticate_shared(state: &Insights, call: &Call, token: &str) -> ApiResult<(Access, ListRows)> {
    let (access, insight, _) = state.app.by_link(call, token, |_| Vec::new()).await?;
    let row = state.app.store.records.get(&insight::row_key(access.project.id, insight)).await?;
    let row = row.as_ref().map(InsightRow::from_item).transpose()?;
    Ok((access, ListRows::Shared(row.into_iter().collect())))
}

fn local_now(access: &Access, call: &Call) -> ApiResult<DateTime<Tz>> {
    let zone: Tz = access.project.timezone.parse().map_err(|error| ApiError::internal(&error))?;
    Ok(call.now.with_timezone(&zone))
}

/// 400 where `created_by` has a user who is neither a member of the organization nor the creator of an insight. Not checked
/// for a sharing token, which must not reveal the members.
async fn require_users(
    state: &Insights,
    access: &Access,
    query: &InsightListQuery,
    rows: &[InsightRow],
) -> ApiResult<()> {
    let Some(users) = query.created_by.as_ref().filter(|_| !access.is_shared_link()) else { return Ok(()) };
    let creators: BTreeSet<u64> = rows.iter().map(|row| row.created_by).collect();
    let unknown: BTreeSet<u64> = users.iter().filter(|id| !creators.contains(id)).copied().collect();
    let unknown: Vec<Key> = unknown.into_iter().map(keys::user).collect();
    for item in state.app.store.records.batch_get(&unknown).await? {
        let record = item.map(|item| item.body::<UserRecord>()).transpose()?;
        let organization = access.project.organization;
        let is_member =
            |record: &UserRecord| record.memberships.iter().any(|it| it.organization == organization);
        if !record.as_ref().is_some_and(is_member) {
            return Err(invalid(query::no_such_user()));
        }
    }
    Ok(())
}

/// The rows that the query selects, in its order.
async fn select_rows<'a>(
    state: &Insights,
    access: &Access,
    query: &InsightListQuery,
    rows: &'a [InsightRow],
    dashboards: &Dashboards,
    view_times: Option<&ViewTimes>,
) -> ApiResult<Vec<&'a InsightRow>> {
    let (caller, none) = (access.caller.user().id, ViewTimes::new());
    let mut rows: Vec<&InsightRow> =
        rows.iter().filter(|row| query.matches(row, caller, dashboards)).collect();
    rows.sort_unstable_by(|left, right| query.compare(left, right, view_times.unwrap_or(&none)));
    if let Some(flag) = &query.feature_flag {
        let referring = insights_with_flag(state, access, &rows, flag).await?;
        rows.retain(|row| referring.contains(&row.id));
    }
    Ok(rows)
}

/// The ids of the insights that refer to a flag. Reads the records of those that can refer to one.
async fn insights_with_flag(
    state: &Insights,
    access: &Access,
    rows: &[&InsightRow],
    flag: &str,
) -> ApiResult<BTreeSet<u64>> {
    let ids: Vec<u64> = rows.iter().filter(|row| row.has_properties).map(|row| row.id).collect();
    let (records, project) = (&state.app.store.records, access.project.id);
    let searches: Vec<_> =
        ids.chunks(SEARCH_BATCH).map(|ids| search_batch(records, project, ids, flag)).collect();
    let found: Vec<Vec<u64>> =
        futures::stream::iter(searches).buffer_unordered(PARALLEL_SEARCHES).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// The ids of those of a batch of insights that refer to a flag.
async fn search_batch(records: &Table, project: ProjectId, ids: &[u64], flag: &str) -> ApiResult<Vec<u64>> {
    let insights = insight::fetch_insights(records, project, ids).await?;
    let referring = insights.iter().filter(|insight| refers_to_flag(insight, flag));
    Ok(referring.map(|insight| insight.id).collect())
}
