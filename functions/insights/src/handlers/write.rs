//! Creation and update of insights.
//!
//! Must stay true: the body is validated and the result calculated before anything is written; on a version conflict, the
//! update is re-validated against the new record, at most [`limits::WRITE_ATTEMPTS`] times.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_calculation::ResponseFormat;
use pennon_core::auth::Access;
use pennon_core::clock::never_before;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, deliver, json};
use pennon_core::idempotency::{create_idempotently, idempotency_write};
use pennon_core::ids;
use pennon_core::retry::{ConflictRetries, PrefetchedItem};
use pennon_core::store::keys::Counter;
use pennon_core::store::{Item, Key, StoreError};
use serde_json::Value;

use super::{path_id, retrieve};
use crate::insight::{self, Insight, InsightInput, WRITE, dashboard_change, id_of_count};
use crate::placement::{self, Dashboards, Placement, pointers, tiles};
use crate::resource::{RecordWrite, reserve_ids};
use crate::results::response::{self, InsightViewer};
use crate::results::{self, ResultRequest};
use crate::{Insights, limits};

/// `POST P/insights/`
pub async fn create(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    call.link()?;
    let respond = |call| retrieve(State(state.clone()), call);
    create_idempotently(&state.app, call, |call| try_create(state.clone(), call), respond).await
}

async fn try_create(state: Insights, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, WRITE, |_| []).await?;
    ResponseFormat::of(&call)?;
    let input = InsightInput::parse(&call.json_fields()?)?;
    let (refresh, explicit) = results::parse_refresh(&call)?;
    let dashboard_ids = input.dashboards.clone().unwrap_or_default();
    let (records, project) = (&state.app.store.records, access.project.id);
    let dashboards = Dashboards::load(records, project, dashboard_ids.iter().copied()).await?;
    placement::validate(&dashboard_ids, &[], &dashboards, &access)?;
    pointers::require_tile_capacity(records, project, &dashboard_ids).await?;
    let now = access.write_time(call.now);
    let mut insight = Insight::create(0, String::new(), &input, access.caller.user(), now);
    let request = ResultRequest::new(&call, &access.project, refresh);
    let result = state.insight_result(&insight, request).await?;

    let restored = call.restored.as_ref();
    let (count, tile_ids) = tokio::try_join!(
        reserve_ids(records, Counter::Insight, usize::from(restored.is_none())),
        reserve_ids(records, Counter::Tile, dashboard_ids.len())
    )?;
    insight.id = restored.map_or_else(|| id_of_count(count.start), |it| it.id);
    insight.created_at = restored.and_then(|it| it.created_at).unwrap_or(insight.created_at);
    insight.tiles = tiles::with_dashboards(&[], &dashboard_ids, tile_ids);
    tiles::restore(&mut insight.tiles, restored);
    let short_id = restored.and_then(|it| it.short_id.clone());
    let mut retries = ConflictRetries::new(limits::WRITE_ATTEMPTS);
    loop {
        insight.short_id = short_id.clone().unwrap_or_else(|| ids::random_text(limits::SHORT_ID_CHARS));
        let write =
            RecordWrite { access: &access, now, before: None, after: &insight, linked_changes: Vec::new() };
        let mut writes = write.writes()?;
        writes.extend(idempotency_write(&call, insight.id)?);
        match records.transact(writes).await {
            Ok(()) => {
                let viewer = InsightViewer::new(&access, explicit);
                let placement = Placement::new(&insight.tiles, &dashboards, &access);
                let body = response::full_json(&insight, &result, &placement, &viewer, None);
                return Ok(write_response(&call, StatusCode::CREATED, body));
            }
            // The short id is in use, or the same creation was done concurrently.
            Err(StoreError::Condition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        retries.back_off().await?;
    }
}

/// `PATCH P/insights/{id}/`
pub async fn update(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    call.link()?;
    let number = path_id(&call);
    let keys = |project| number.iter().map(|id| insight::key(project, *id)).collect::<Vec<Key>>();
    let (access, items) = state.app.authorize_project_with(&call, WRITE, keys).await?;
    let mut prefetched = PrefetchedItem::new(items.into_iter().next().flatten());
    let mut retries = ConflictRetries::new(limits::WRITE_ATTEMPTS);
    loop {
        let item = prefetched.load(&state.app.store.records).await?.ok_or_else(ApiError::not_found)?;
        if let Some(body) = try_update(&state, &call, &access, &item).await? {
            return Ok(write_response(&call, StatusCode::OK, body));
        }
        retries.back_off().await?;
    }
}

/// The response after a write. The write is done, so a result that makes the response too large is left out; the client has
/// to read it separately.
fn write_response(call: &Call, status: StatusCode, mut body: Value) -> Response {
    let delivered = deliver(&call.headers, body.to_string().into_bytes());
    let mut response = delivered.unwrap_or_else(|| {
        body["result"] = Value::Null;
        json(body)
    });
    *response.status_mut() = status;
    response
}

/// Validates and writes the update of the insight in `item`; `None` on a version conflict.
async fn try_update(state: &Insights, call: &Call, access: &Access, item: &Item) -> ApiResult<Option<Value>> {
    let before: Insight = item.body()?;
    // Of concurrent updates, the one that is written last may have begun first.
    let now = never_before(access.write_time(call.now), before.updated_at);
    let fields = call.json_fields();
    if before.deleted && !fields.as_ref().is_ok_and(restores) {
        return Err(ApiError::not_found());
    }
    ResponseFormat::of(call)?;
    let records = &state.app.store.records;
    let dashboard_ids =
        tiles::current_dashboards(&before.tiles).chain(fields.iter().flat_map(sent_dashboards));
    let dashboards = Dashboards::load(records, access.project.id, dashboard_ids).await?;
    Placement::new(&before.tiles, &dashboards, access).require_edit()?;
    let input = InsightInput::parse(&fields?)?;
    let (refresh, explicit) = results::parse_refresh(call)?;
    let mut after = before.apply(&input, access.caller.user(), now);
    if let Some(requested) = &input.dashboards {
        placement::validate(requested, &before.tiles, &dashboards, access)?;
        let current: Vec<u64> = tiles::current_dashboards(&before.tiles).collect();
        let new: Vec<u64> = requested.iter().filter(|id| !current.contains(id)).copied().collect();
        pointers::require_tile_capacity(records, access.project.id, &new).await?;
        after.tiles = state.place_on_dashboards(&before, requested).await?;
    }
    tiles::restore(&mut after.tiles, call.restored.as_ref());
    let request = ResultRequest::new(call, &access.project, refresh);
    let result = state.insight_result(&after, request).await?;
    let change = |requested: &Vec<u64>| dashboard_change(&before, requested, &dashboards);
    let linked_changes = input.dashboards.as_ref().and_then(change).into_iter().collect();
    let write = RecordWrite { access, now, before: Some((&before, item)), after: &after, linked_changes };
    match records.transact(write.writes()?).await {
        Ok(()) => {
            let placement =
                Placement::new(&after.tiles, &dashboards, access).sorted_as_sent(input.dashboards.as_ref());
            let viewer = InsightViewer::new(access, explicit);
            Ok(Some(response::full_json(&after, &result, &placement, &viewer, None)))
        }
        Err(StoreError::Condition { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a body restores a deleted insight: only the JSON value false does.
fn restores(fields: &Fields) -> bool {
    fields.get("deleted") == Some(&Value::Bool(false))
}

/// The dashboard ids of a body before its validation, to fetch the dashboards.
fn sent_dashboards(fields: &Fields) -> Vec<u64> {
    let sent = fields.get("dashboards").and_then(Value::as_array).into_iter().flatten();
    let number =
        |id: &Value| pennon_filters::body::fields::as_integer(id).and_then(|id| u64::try_from(id).ok());
    sent.take(limits::DASHBOARDS).filter_map(number).collect()
}

impl Insights {
    /// The tiles of an insight that is on exactly the requested dashboards.
    async fn place_on_dashboards(&self, before: &Insight, requested: &[u64]) -> ApiResult<Vec<tiles::Tile>> {
        let missing = tiles::count_new(&before.tiles, requested);
        if before.tiles.len() + missing > limits::TILES {
            let detail = format!("An insight cannot have been on more than {} dashboards.", limits::TILES);
            return Err(ApiError::invalid("invalid_input", detail, Some("dashboards")));
        }
        let ids = reserve_ids(&self.app.store.records, Counter::Tile, missing).await?;
        Ok(tiles::with_dashboards(&before.tiles, requested, ids))
    }
}
