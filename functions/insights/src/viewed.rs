//! `POST P/insights/{id}/viewed/`, `POST P/insights/viewed/`, `GET P/insights/my_last_viewed/`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures::{StreamExt, TryStreamExt};
use pennon_calculation::Format;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, empty, json};
use pennon_core::store::Key;
use pennon_engine::flag::fields;
use serde_json::Value;

use crate::dashboards::Dashboards;
use crate::handlers::READ;
use crate::input::invalid;
use crate::placement::Placement;
use crate::record::Insight;
use crate::shown::{self, Viewer};
use crate::{Insights, limits, store, tiles, views};

/// How many of their latest views people are shown.
const SHOWN: usize = 5;
/// Records that are read at once to find these among deleted ones.
const RECORDS_AT_ONCE: usize = 10;
/// Views that are written side by side.
const WRITES_AT_ONCE: usize = 20;

/// Notes that the caller views an insight. The body says nothing.
pub async fn one(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let number = call.id("id");
    let wanted = |project| number.iter().map(|id| store::row_key(project, *id)).collect::<Vec<Key>>();
    let (access, found) = state.app.project_with(&call, READ, wanted).await?;
    Format::of(&call)?;
    let (Some(id), Some(_)) = (number, found.into_iter().next().flatten()) else {
        return Err(ApiError::not_found());
    };
    let user = access.caller.user().id;
    views::note(&state.app.store.records, access.project.id, user, id, call.now).await?;
    Ok(empty(StatusCode::OK))
}

/// Notes that the caller views those of several insights that are there.
pub async fn several(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let sent = insight_ids(&call);
    let ids = sent.as_deref().unwrap_or_default();
    let wanted = |project| ids.iter().map(|id| store::row_key(project, *id)).collect::<Vec<Key>>();
    let (access, found) = state.app.project_with(&call, READ, wanted).await?;
    Format::of(&call)?;
    let ids = sent.as_ref().map_err(Clone::clone)?;
    let (records, project, user) = (&state.app.store.records, access.project.id, access.caller.user().id);
    let live: Vec<u64> = ids.iter().zip(found).filter_map(|(id, row)| row.map(|_| *id)).collect();
    let notes: Vec<_> =
        live.into_iter().map(|id| views::note(records, project, user, id, call.now)).collect();
    futures::stream::iter(notes).buffer_unordered(WRITES_AT_ONCE).try_collect::<()>().await?;
    Ok(empty(StatusCode::OK))
}

/// The numbers in `insight_ids`, each once; those that no insight can have are left out.
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

/// What the caller has viewed last.
pub async fn my_last(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, READ, |_| []).await?;
    Format::of(&call)?;
    let (records, project) = (&state.app.store.records, access.project.id);
    let ids = views::by_user(records, project, access.caller.user().id).await?;
    let mut latest: Vec<Insight> = Vec::new();
    for ids in ids.chunks(RECORDS_AT_ONCE) {
        latest.extend(store::insights(records, project, ids).await?);
        if latest.len() >= SHOWN {
            break;
        }
    }
    latest.truncate(SHOWN);
    let on = latest.iter().flat_map(|insight| tiles::kept_dashboards(&insight.tiles));
    let dashboards = Dashboards::load(records, project, on).await?;
    let viewer = Viewer::new(&access, false);
    let short = |insight| shown::short(insight, &Placement::of(insight, &dashboards, &access), &viewer);
    Ok(json(latest.iter().map(short).collect::<Vec<Value>>()))
}
