//! Creating and changing insights.
//!
//! Must stay true: a body is judged, and what it asks to calculate is calculated, before anything is written; a change
//! that others overtook is judged again on what they left.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_calculation::Format;
use pennon_core::auth::Access;
use pennon_core::clock::never_before;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, deliver, json};
use pennon_core::idempotency::{create_idempotently, idempotency_write};
use pennon_core::ids;
use pennon_core::store::keys::Counter;
use pennon_core::store::{Item, Key, StoreError, back_off_after_conflict};
use serde_json::Value;

use crate::changes::DashboardChange;
use crate::dashboards::{Dashboards, content};
use crate::handlers::{self, WRITE};
use crate::input::InsightInput;
use crate::numbers::{self, Wish};
use crate::placement::{self, Placement};
use crate::record::{Insight, id_of_count};
use crate::shown::{self, Viewer};
use crate::store::Judged;
use crate::tiles;
use crate::{Insights, limits, store};

/// `POST P/insights/`
pub async fn create(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    call.link()?;
    let shown = |call| handlers::retrieve(State(state.clone()), call);
    create_idempotently(&state.app, call, |call| make(state.clone(), call), shown).await
}

async fn make(state: Insights, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, WRITE, |_| []).await?;
    Format::of(&call)?;
    let input = InsightInput::parse(&call.json_fields()?)?;
    let (refresh, explicit) = numbers::wanted(&call)?;
    let wanted = input.dashboards.clone().unwrap_or_default();
    let (records, project) = (&state.app.store.records, access.project.id);
    let dashboards = Dashboards::load(records, project, wanted.iter().copied()).await?;
    placement::check(&wanted, None, &dashboards, &access)?;
    content::require_room(records, project, &wanted).await?;
    let now = access.write_time(call.now);
    let mut insight = Insight::create(0, String::new(), &input, access.caller.user(), now);
    let wish = Wish::of(&call, &access.project, refresh);
    let numbers = state.numbers(&insight, wish).await?;

    let restored = call.restored.as_ref();
    let (count, tile_ids) = tokio::try_join!(
        store::count(records, Counter::Insight, usize::from(restored.is_none())),
        store::count(records, Counter::Tile, wanted.len())
    )?;
    insight.id = restored.map_or_else(|| id_of_count(count.start), |it| it.id);
    insight.created_at = restored.and_then(|it| it.created_at).unwrap_or(insight.created_at);
    insight.tiles = tiles::placed(&[], &wanted, tile_ids);
    tiles::restore(&mut insight.tiles, restored);
    let short_id = restored.and_then(|it| it.short_id.clone());
    for tried in 0..limits::WRITE_TRIES {
        back_off_after_conflict(tried).await;
        insight.short_id = short_id.clone().unwrap_or_else(|| ids::random_text(limits::SHORT_ID_CHARS));
        let judged = Judged { access: &access, now, before: None, after: &insight, dashboard_change: None };
        let mut writes = judged.writes()?;
        writes.extend(idempotency_write(&call, insight.id)?);
        match records.transact(writes).await {
            Ok(()) => {
                let viewer = Viewer::new(&access, explicit);
                let placement = Placement::of(&insight, &dashboards, &access);
                let answer = shown::full(&insight, &numbers, &placement, &viewer, None);
                return Ok(done(&call, StatusCode::CREATED, answer));
            }
            // The short id is taken, or the same create is done.
            Err(StoreError::Condition { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(ApiError::busy(limits::RETRY_AFTER_SECONDS))
}

/// `PATCH P/insights/{id}/`
pub async fn update(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    call.link()?;
    let number = handlers::number(&call);
    let wanted = |project| number.iter().map(|id| store::key(project, *id)).collect::<Vec<Key>>();
    let (access, found) = state.app.project_with(&call, WRITE, wanted).await?;
    let mut found = found.into_iter().next().flatten();
    for tried in 0..limits::WRITE_TRIES {
        back_off_after_conflict(tried).await;
        let item = found.ok_or_else(ApiError::not_found)?;
        match try_update(&state, &call, &access, &item).await? {
            Some(answer) => return Ok(done(&call, StatusCode::OK, answer)),
            None => found = state.app.store.records.get(&item.key).await?,
        }
    }
    Err(ApiError::busy(limits::RETRY_AFTER_SECONDS))
}

/// The answer about what was written. It is done, so a result that makes the answer too large is not shown, and has to be
/// read elsewhere.
fn done(call: &Call, status: StatusCode, mut answer: Value) -> Response {
    let whole = deliver(&call.headers, answer.to_string().into_bytes());
    let mut response = whole.unwrap_or_else(|| {
        answer["result"] = Value::Null;
        json(answer)
    });
    *response.status_mut() = status;
    response
}

/// Judges and writes the change of the insight in `item`; none when others wrote it since it was read.
async fn try_update(state: &Insights, call: &Call, access: &Access, item: &Item) -> ApiResult<Option<Value>> {
    let before: Insight = item.body()?;
    // Of changes at once the last one that is written has begun at any time.
    let now = never_before(access.write_time(call.now), before.updated_at);
    let fields = call.json_fields();
    if before.deleted && !fields.as_ref().is_ok_and(restores) {
        return Err(ApiError::not_found());
    }
    Format::of(call)?;
    let records = &state.app.store.records;
    let named = tiles::kept_dashboards(&before.tiles).chain(fields.iter().flat_map(named_dashboards));
    let dashboards = Dashboards::load(records, access.project.id, named).await?;
    Placement::of(&before, &dashboards, access).require_edit()?;
    let input = InsightInput::parse(&fields?)?;
    let (refresh, explicit) = numbers::wanted(call)?;
    let mut after = before.apply(&input, access.caller.user(), now);
    if let Some(wanted) = &input.dashboards {
        placement::check(wanted, Some(&before), &dashboards, access)?;
        let on: Vec<u64> = tiles::kept_dashboards(&before.tiles).collect();
        let new: Vec<u64> = wanted.iter().filter(|id| !on.contains(id)).copied().collect();
        content::require_room(records, access.project.id, &new).await?;
        after.tiles = state.place(&before, wanted).await?;
    }
    tiles::restore(&mut after.tiles, call.restored.as_ref());
    let wish = Wish::of(call, &access.project, refresh);
    let numbers = state.numbers(&after, wish).await?;
    let change = |wanted: &Vec<u64>| DashboardChange::of(&before, wanted, &dashboards);
    let judged = Judged {
        access,
        now,
        before: Some((&before, item)),
        after: &after,
        dashboard_change: input.dashboards.as_ref().and_then(change),
    };
    match records.transact(judged.writes()?).await {
        Ok(()) => {
            let placement = Placement::of(&after, &dashboards, access).in_order(input.dashboards.as_ref());
            let viewer = Viewer::new(access, explicit);
            Ok(Some(shown::full(&after, &numbers, &placement, &viewer, None)))
        }
        Err(StoreError::Condition { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a body brings a deleted insight back: only the JSON value false does.
fn restores(fields: &Fields) -> bool {
    fields.get("deleted") == Some(&Value::Bool(false))
}

/// The dashboards that a body seems to name, to be read before it is judged.
fn named_dashboards(fields: &Fields) -> Vec<u64> {
    let sent = fields.get("dashboards").and_then(Value::as_array).into_iter().flatten();
    let number =
        |id: &Value| pennon_engine::flag::fields::as_integer(id).and_then(|id| u64::try_from(id).ok());
    sent.take(limits::DASHBOARDS).filter_map(number).collect()
}

impl Insights {
    /// The tiles of an insight when it is on exactly the wanted dashboards.
    async fn place(&self, before: &Insight, wanted: &[u64]) -> ApiResult<Vec<tiles::Tile>> {
        let missing = tiles::missing(&before.tiles, wanted);
        if before.tiles.len() + missing > limits::TILES {
            let detail = format!("An insight cannot have been on more than {} dashboards.", limits::TILES);
            return Err(ApiError::invalid("invalid_input", detail, Some("dashboards")));
        }
        let ids = store::count(&self.app.store.records, Counter::Tile, missing).await?;
        Ok(tiles::placed(&before.tiles, wanted, ids))
    }
}
