//! `POST P/insights/{id}/viewed/`, `POST P/insights/viewed/`, `GET P/insights/my_last_viewed/`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures::{StreamExt, TryStreamExt};
use pennon_calculation::ResponseFormat;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, empty, json};
use pennon_core::store::Key;
use pennon_filters::body::fields;
use serde_json::Value;

use super::view_times;
use crate::insight::{self, Insight, READ};
use crate::placement::{Dashboards, Placement, tiles};
use crate::resource::body::invalid;
use crate::results::response::{self, InsightViewer};
use crate::{Insights, limits};

/// Insights in the response of `my_last_viewed`.
const LAST_VIEWED_COUNT: usize = 5;
/// Records of one batch in the search for insights that are not deleted.
const RECORD_BATCH: usize = 10;
/// Views that are written in parallel.
const PARALLEL_WRITES: usize = 20;

/// Records that the caller views an insight. The body is ignored.
pub async fn one(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let id = call.id("id");
    let keys = |project| id.iter().map(|id| insight::row_key(project, *id)).collect::<Vec<Key>>();
    let (access, items) = state.app.authorize_project_with(&call, READ, keys).await?;
    ResponseFormat::of(&call)?;
    let (Some(id), Some(_)) = (id, items.into_iter().next().flatten()) else {
        return Err(ApiError::not_found());
    };
    let user = access.caller.user().id;
    view_times::record(&state.app.store.records, access.project.id, user, id, call.now).await?;
    Ok(empty(StatusCode::OK))
}

/// Records that the caller views several insights. Those that do not exist are ignored.
pub async fn several(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let sent = insight_ids(&call);
    let ids = sent.as_deref().unwrap_or_default();
    let keys = |project| ids.iter().map(|id| insight::row_key(project, *id)).collect::<Vec<Key>>();
    let (access, items) = state.app.authorize_project_with(&call, READ, keys).await?;
    ResponseFormat::of(&call)?;
    let ids = sent.as_ref().map_err(Clone::clone)?;
    let (records, project, user) = (&state.app.store.records, access.project.id, access.caller.user().id);
    let live: Vec<u64> = ids.iter().zip(items).filter_map(|(id, row)| row.map(|_| *id)).collect();
    let writes: Vec<_> =
        live.into_iter().map(|id| view_times::record(records, project, user, id, call.now)).collect();
    futures::stream::iter(writes).buffer_unordered(PARALLEL_WRITES).try_collect::<()>().await?;
    Ok(empty(StatusCode::OK))
}

/// The ids in `insight_ids`, without duplicates and without negative ones.
fn insight_ids(call: &Call) -> ApiResult<Vec<u64>> {
    const NAME: &str = "insight_ids";
    let body = call.json_fields()?;
    let sent = match body.get(NAME) {
        None | Some(Value::Null) => {
            return Err(ApiError::invalid("required", "This field is required.", Some(NAME)));
        }
        Some(sent) => fields::list(NAME, sent).map_err(invalid)?,
    };
    if sent.is_empty() {
        return Err(ApiError::invalid("empty", "This list may not be empty.", Some(NAME)));
    }
    if sent.len() > limits::VIEWS {
        let detail = format!("At most {} entries are allowed.", limits::VIEWS);
        return Err(ApiError::invalid("invalid_input", detail, Some(NAME)));
    }
    let mut ids = Vec::with_capacity(sent.len());
    for id in sent {
        ids.extend(u64::try_from(fields::integer_key(NAME, id).map_err(invalid)?));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The insights that the caller has viewed last.
pub async fn my_last(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, READ, |_| []).await?;
    ResponseFormat::of(&call)?;
    let (records, project) = (&state.app.store.records, access.project.id);
    let ids = view_times::list_viewed_by(records, project, access.caller.user().id).await?;
    let mut latest: Vec<Insight> = Vec::new();
    for ids in ids.chunks(RECORD_BATCH) {
        latest.extend(insight::fetch_insights(records, project, ids).await?);
        if latest.len() >= LAST_VIEWED_COUNT {
            break;
        }
    }
    latest.truncate(LAST_VIEWED_COUNT);
    let on = latest.iter().flat_map(|insight| tiles::current_dashboards(&insight.tiles));
    let dashboards = Dashboards::load(records, project, on).await?;
    let viewer = InsightViewer::new(&access, false);
    let short = |insight: &Insight| {
        response::short_json(insight, &Placement::new(&insight.tiles, &dashboards, &access), &viewer)
    };
    Ok(json(latest.iter().map(short).collect::<Vec<Value>>()))
}
