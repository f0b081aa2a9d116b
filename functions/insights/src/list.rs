//! The list of insights.
//!
//! Must stay true: filters and order work on summary rows, the page's records alone are read in full; whoever comes by a
//! public link sees the one insight that it opens; a page is never shorter than its `limit` unless it is the last.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use chrono::DateTime;
use chrono_tz::Tz;
use futures::{StreamExt, TryStreamExt};
use pennon_calculation::Format;
use pennon_core::auth::Access;
use pennon_core::clock::timestamp;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page};
use pennon_core::model::UserRecord;
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Key, StoreError, Table};
use serde_json::{Value, json};

use crate::dashboards::Dashboards;
use crate::handlers::{READ, refresh_for};
use crate::input::invalid;
use crate::listing::{self, InsightQuery};
use crate::numbers::{self, Wish};
use crate::placement::Placement;
use crate::record::Insight;
use crate::row::InsightRow;
use crate::shown::{self, Viewer};
use crate::store::Version;
use crate::views::{self, Views};
use crate::{Insights, limits, overrides, store, tiles};

/// Records that are searched for a flag at a time, and how many times side by side.
const RECORDS_AT_ONCE: usize = 100;
const SEARCHES_AT_ONCE: usize = 4;
/// How often a page is read of which insights are deleted meanwhile. Clients take a page that is short for the last one.
const TRIES: u32 = 5;

/// `GET P/insights/`
pub async fn list(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, mut rows) = match call.link()? {
        Some(token) => linked(&state, &call, token).await?,
        None => access_and_rows(&state, &call).await?,
    };
    Format::of(&call)?;
    let query = InsightQuery::parse(call.query(), local_now(&access, &call)?).map_err(invalid)?;
    require_users(&state, &access, &query, rows.all()).await?;
    for _ in 1..TRIES {
        if let Some(reply) = answer(&state, &call, &access, &query, rows.all()).await? {
            return Ok(reply);
        }
        rows = match rows {
            Found::Rows(_) => Found::Rows(rows_now(&state, access.project.id).await?),
            // The one that the link opens has been deleted.
            Found::Linked(_) => Found::Linked(Vec::new()),
        };
    }
    let last = answer(&state, &call, &access, &query, rows.all()).await?;
    last.ok_or_else(|| StoreError::Conflict.into())
}

/// The rows that a list is made of.
enum Found {
    Rows(store::Rows),
    Linked(Vec<InsightRow>),
}

impl Found {
    fn all(&self) -> &[InsightRow] {
        match self {
            Found::Rows(rows) => rows.all(),
            Found::Linked(rows) => rows,
        }
    }
}

/// The page of what `query` selects from `rows`; none when insights of it were deleted since the rows were read.
async fn answer(
    state: &Insights,
    call: &Call,
    access: &Access,
    query: &InsightQuery,
    rows: &[InsightRow],
) -> ApiResult<Option<Response>> {
    let (records, project) = (&state.app.store.records, access.project.id);
    let all_dashboards = async {
        let asked = rows.iter().filter(|_| query.asks_dashboards());
        Dashboards::load(records, project, asked.flat_map(|row| row.dashboards.iter().copied())).await
    };
    let all_views = async {
        match query.asks_views() {
            true => Ok::<_, ApiError>(Some(views::all(records, project).await?)),
            false => Ok(None),
        }
    };
    let (dashboards, all_views) = tokio::try_join!(all_dashboards, all_views)?;
    let selected = matching(state, access, query, rows, &dashboards, all_views.as_ref()).await?;

    let page = Page::of(call);
    let wanted = page.slice(&selected);
    // Of a page that nobody could take, only as much is read as tells how much somebody could.
    let fits = fitting(wanted);
    let ids: Vec<u64> = wanted[..fits].iter().map(|row| row.id).collect();
    let on: BTreeSet<u64> = wanted[..fits].iter().flat_map(|row| row.dashboards.iter().copied()).collect();
    let unread = on.iter().copied().filter(|_| !query.asks_dashboards());
    let (insights, read, views) = tokio::try_join!(
        store::insights(records, project, &ids),
        Dashboards::load(records, project, unread),
        async {
            match all_views {
                Some(all) => Ok::<_, ApiError>(all),
                None => Ok(views::of(records, project, &ids).await?),
            }
        },
    )?;
    if insights.len() < fits {
        return Ok(None);
    }
    let dashboards = with_late(state, access, &insights, dashboards.and(read), &on).await?;
    let results = shown(state, call, access, query, &insights, &dashboards, &views).await?;
    if fits < wanted.len() {
        return Err(page.refusal(call, selected.len(), &results));
    }
    page.reply(call, selected.len(), &results).map(Some)
}

/// How many of the first rows have records that one answer could hold, generously.
fn fitting(rows: &[&InsightRow]) -> usize {
    let mut kib = 0;
    let fits = |row: &&&InsightRow| {
        kib += row.kib;
        kib <= limits::PAGE_KIB
    };
    rows.iter().take_while(fits).count()
}

/// The dashboards, with those on which insights were put since their rows were read.
async fn with_late(
    state: &Insights,
    access: &Access,
    insights: &[Insight],
    dashboards: Dashboards,
    asked: &BTreeSet<u64>,
) -> ApiResult<Dashboards> {
    let on = insights.iter().flat_map(|insight| tiles::kept_dashboards(&insight.tiles));
    let late: BTreeSet<u64> = on.filter(|id| !asked.contains(id)).collect();
    let late = Dashboards::load(&state.app.store.records, access.project.id, late).await?;
    Ok(dashboards.and(late))
}

/// The insights as the list shows them, each a JSON text.
async fn shown(
    state: &Insights,
    call: &Call,
    access: &Access,
    query: &InsightQuery,
    insights: &[Insight],
    dashboards: &Dashboards,
    views: &Views,
) -> ApiResult<Vec<String>> {
    let (refresh, explicit) = numbers::wanted(call)?;
    let over = overrides::of(call)?.filter(|_| !access.is_link());
    let viewer = Viewer::new(access, explicit);
    let place = |insight: &Insight| Placement::of(insight, dashboards, access);
    let text = |insight: &Insight, mut shown: Value| {
        shown["last_viewed_at"] = json!(views.get(&insight.id).map(|at| timestamp(*at)));
        shown.to_string()
    };
    if query.basic {
        let short = |insight| text(insight, shown::short(insight, &place(insight), &viewer));
        return Ok(insights.iter().map(short).collect());
    }
    let merged: Vec<Insight> = match over {
        Some(over) => insights.iter().map(|insight| overrides::apply(insight, &over)).collect(),
        None => insights.to_vec(),
    };
    let wish = Wish::of(call, &access.project, refresh_for(access, refresh));
    let numbers = state.numbers_of_page(&merged, wish).await?;
    let full =
        |(insight, numbers)| text(insight, shown::full(insight, numbers, &place(insight), &viewer, None));
    Ok(merged.iter().zip(&numbers).map(full).collect())
}

/// The project, and the summary rows of its insights.
///
/// Where the path names the project by its number, the rows are read beside the key and not after it, which saves a
/// wait; nothing of them is shown unless the key opens the project.
async fn access_and_rows(state: &Insights, call: &Call) -> ApiResult<(Access, Found)> {
    let (records, memory) = (&state.app.store.records, &state.memory);
    let named = call.id("project_id").filter(|_| call.credential().is_some());
    let early = async {
        match named {
            Some(project) => store::early(records, memory, project).await,
            None => Ok(None),
        }
    };
    let version = |project| [keys::insights_version(project)];
    let (access, early) = tokio::join!(state.app.project(call, READ, version), early);
    let (access, [version]) = access?;
    let project = access.project.id;
    let early = early?.filter(|_| named == Some(project));
    let rows = store::load(records, memory, project, Version::of(version.as_ref()), early).await?;
    Ok((access, Found::Rows(rows)))
}

/// The rows as they are by now.
async fn rows_now(state: &Insights, project: u64) -> ApiResult<store::Rows> {
    let records = &state.app.store.records;
    let version = records.get(&keys::insights_version(project)).await?;
    Ok(store::load(records, &state.memory, project, Version::of(version.as_ref()), None).await?)
}

/// The project, and the row of the one insight that a public link opens, unless it is deleted.
async fn linked(state: &Insights, call: &Call, token: &str) -> ApiResult<(Access, Found)> {
    let (access, insight, _) = state.app.by_link(call, token, |_| Vec::new()).await?;
    let row = state.app.store.records.get(&store::row_key(access.project.id, insight)).await?;
    let row = row.as_ref().map(InsightRow::read).transpose()?;
    Ok((access, Found::Linked(row.into_iter().collect())))
}

fn local_now(access: &Access, call: &Call) -> ApiResult<DateTime<Tz>> {
    let zone: Tz = access.project.timezone.parse().map_err(|error| ApiError::internal(&error))?;
    Ok(call.now.with_timezone(&zone))
}

/// Refuses to list the insights of somebody who is neither in the organization nor the maker of any of them; by a
/// public link nobody is told who is.
async fn require_users(
    state: &Insights,
    access: &Access,
    query: &InsightQuery,
    rows: &[InsightRow],
) -> ApiResult<()> {
    let Some(named) = query.created_by.as_ref().filter(|_| !access.is_link()) else { return Ok(()) };
    let makers: BTreeSet<u64> = rows.iter().map(|row| row.created_by).collect();
    let unknown: BTreeSet<u64> = named.iter().filter(|id| !makers.contains(id)).copied().collect();
    let unknown: Vec<Key> = unknown.into_iter().map(keys::user).collect();
    for item in state.app.store.records.batch_get(&unknown).await? {
        let record = item.map(|item| item.body::<UserRecord>()).transpose()?;
        let organization = access.project.organization;
        let is_member =
            |record: &UserRecord| record.memberships.iter().any(|it| it.organization == organization);
        if !record.as_ref().is_some_and(is_member) {
            return Err(invalid(listing::no_such_user()));
        }
    }
    Ok(())
}

/// The rows of all insights that the list shows, in its order.
async fn matching<'a>(
    state: &Insights,
    access: &Access,
    query: &InsightQuery,
    rows: &'a [InsightRow],
    dashboards: &Dashboards,
    views: Option<&Views>,
) -> ApiResult<Vec<&'a InsightRow>> {
    let (caller, none) = (access.caller.user().id, Views::new());
    let mut rows: Vec<&InsightRow> =
        rows.iter().filter(|row| query.matches(row, caller, dashboards)).collect();
    rows.sort_unstable_by(|left, right| query.compare(left, right, views.unwrap_or(&none)));
    if let Some(flag) = &query.feature_flag {
        let mentioning = mentioning(state, access, &rows, flag).await?;
        rows.retain(|row| mentioning.contains(&row.id));
    }
    Ok(rows)
}

/// Which of the rows are of insights that mention a flag: their records tell, of those that can mention any.
async fn mentioning(
    state: &Insights,
    access: &Access,
    rows: &[&InsightRow],
    flag: &str,
) -> ApiResult<BTreeSet<u64>> {
    let ids: Vec<u64> = rows.iter().filter(|row| row.has_properties).map(|row| row.id).collect();
    let (records, project) = (&state.app.store.records, access.project.id);
    let searches: Vec<_> =
        ids.chunks(RECORDS_AT_ONCE).map(|ids| mentioning_of(records, project, ids, flag)).collect();
    let found: Vec<Vec<u64>> =
        futures::stream::iter(searches).buffer_unordered(SEARCHES_AT_ONCE).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

/// The numbers of those of a few insights that mention a flag.
async fn mentioning_of(records: &Table, project: ProjectId, ids: &[u64], flag: &str) -> ApiResult<Vec<u64>> {
    let insights = store::insights(records, project, ids).await?;
    let mention = insights.iter().filter(|insight| listing::mentions_flag(insight, flag));
    Ok(mention.map(|insight| insight.id).collect())
}
