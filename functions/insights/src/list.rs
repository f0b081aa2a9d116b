//! The list of insights.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use chrono::DateTime;
use chrono_tz::Tz;
use pennon_calculation::require_json;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Page, json};
use pennon_core::model::UserRecord;
use pennon_core::store::Key;
use pennon_core::store::keys;
use serde_json::Value;

use crate::dashboards::Dashboards;
use crate::handlers::READ;
use crate::input::invalid;
use crate::listing::{self, InsightQuery};
use crate::numbers::{self, Wish};
use crate::placement::Placement;
use crate::record::Insight;
use crate::row::InsightRow;
use crate::shown::{self, Viewer};
use crate::{Insights, overrides, store};

/// Records that are searched for a flag at a time.
const RECORDS_AT_ONCE: usize = 100;

/// `GET P/insights/`
pub async fn list(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, rows) = access_and_rows(&state, &call).await?;
    require_json(&call)?;
    let query = InsightQuery::parse(call.query(), local_now(&access, &call)?).map_err(invalid)?;
    let (refresh, explicit) = numbers::wanted(&call)?;
    let over = overrides::of(&call)?;
    let on = rows.iter().flat_map(|row| row.dashboards.iter().copied());
    let dashboards = Dashboards::load(&state.app.store.records, access.project.id, on);
    let (dashboards, ()) = tokio::try_join!(dashboards, require_users(&state, &access, &query, &rows))?;
    let ids = matching(&state, &access, &query, rows, &dashboards).await?;

    let page = Page::of(&call);
    let mut insights = store::insights(&state.app.store.records, access.project.id, page.slice(&ids)).await?;
    let viewer = Viewer::new(&access, explicit);
    let place = |insight: &Insight| Placement::of(insight, &dashboards, &access);
    let results: Vec<Value> = if query.basic {
        insights.iter().map(|insight| shown::short(insight, &place(insight), &viewer)).collect()
    } else {
        if let Some(over) = over {
            insights = insights.iter().map(|insight| overrides::apply(insight, &over)).collect();
        }
        let wish = Wish::of(&call, &access.project, refresh);
        let numbers = state.numbers_of_page(&insights, wish).await?;
        insights
            .iter()
            .zip(&numbers)
            .map(|(insight, numbers)| shown::full(insight, numbers, &place(insight), &viewer, None))
            .collect()
    };
    Ok(json(page.envelope(&call, ids.len(), results)))
}

/// The project, and the summary rows of its insights.
///
/// Where the path names the project by its number, the rows are read beside the key and not after it, which saves a
/// wait; nothing of them is shown unless the key opens the project.
async fn access_and_rows(state: &Insights, call: &Call) -> ApiResult<(Access, Vec<InsightRow>)> {
    let records = &state.app.store.records;
    let named = call.id("project_id").filter(|_| call.credential().is_some());
    let early = async {
        match named {
            Some(project) => Some(store::rows(records, project).await),
            None => None,
        }
    };
    let (access, early) = tokio::join!(state.app.project(call, READ, |_| []), early);
    let (access, []) = access?;
    let rows = match early {
        Some(early) if named == Some(access.project.id) => early?,
        _ => store::rows(records, access.project.id).await?,
    };
    Ok((access, rows))
}

fn local_now(access: &Access, call: &Call) -> ApiResult<DateTime<Tz>> {
    let zone: Tz = access.project.timezone.parse().map_err(|error| ApiError::internal(&error))?;
    Ok(call.now.with_timezone(&zone))
}

/// Refuses to list the insights of somebody who is neither in the organization nor the maker of any of them.
async fn require_users(
    state: &Insights,
    access: &Access,
    query: &InsightQuery,
    rows: &[InsightRow],
) -> ApiResult<()> {
    let makers: BTreeSet<u64> = rows.iter().map(|row| row.created_by).collect();
    let named = query.created_by.iter().flatten().copied().collect::<BTreeSet<u64>>();
    let unknown: Vec<Key> = named.difference(&makers).map(|id| keys::user(*id)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
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

/// The numbers of all insights that the list shows, in its order.
async fn matching(
    state: &Insights,
    access: &Access,
    query: &InsightQuery,
    mut rows: Vec<InsightRow>,
    dashboards: &Dashboards,
) -> ApiResult<Vec<u64>> {
    let caller = access.caller.user().id;
    rows.retain(|row| query.matches(row, caller, dashboards));
    rows.sort_by(|left, right| query.compare(left, right));
    let ids: Vec<u64> = rows.iter().map(|row| row.id).collect();
    let Some(flag) = &query.feature_flag else { return Ok(ids) };
    let mut matching = Vec::new();
    for ids in ids.chunks(RECORDS_AT_ONCE) {
        let insights = store::insights(&state.app.store.records, access.project.id, ids).await?;
        let mention = |insight: &&Insight| listing::mentions_flag(insight, flag);
        matching.extend(insights.iter().filter(mention).map(|insight| insight.id));
    }
    Ok(matching)
}
