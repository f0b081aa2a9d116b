//! Dashboards over HTTP.
//!
//! Must stay true: a deletion is one write, after which nobody meets the dashboard; its tiles stay as they are until they
//! are swept, so that a restoration before that brings it back as it was.

use axum::extract::State;
use axum::response::Response;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, created, deliver, json};
use pennon_core::idempotency::{create_idempotently, idempotency_write};
use pennon_core::store::{Item, StoreError, back_off_after_conflict};
use serde_json::Value;

use super::content::{self, Placed};
use super::input::DashboardInput;
use super::record::DashboardRecord;
use super::shown::View;
use super::{removal, shown};
use crate::resource::{self, Judged, list};
use crate::{Insights, limits};

const READ: &str = "dashboard:read";
const WRITE: &str = "dashboard:write";
/// What lists leave out unless they are asked for it, as a start of names.
const GENERATED_PREFIX: &str = "Generated Dashboard";

/// `GET P/dashboards/`: pinned ones first, then by name.
pub async fn index(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let wanted = |name: &str| call.query_value(name).filter(|value| !value.is_empty());
    let tags: Vec<String> =
        call.query().iter().filter(|(name, _)| name == "tags").map(|(_, tag)| tag.to_lowercase()).collect();
    let found = list::page_of::<DashboardRecord>(
        &state,
        &call,
        READ,
        |rows| {
            rows.retain(|row| tags.is_empty() || row.tags.iter().any(|tag| tags.contains(tag)));
            if let Some(mode) = wanted("creation_mode") {
                rows.retain(|row| row.creation_mode.as_deref().unwrap_or("default") == mode);
            }
            if wanted("exclude_generated") == Some("true") {
                rows.retain(|row| !row.name.as_ref().is_some_and(|name| name.starts_with(GENERATED_PREFIX)));
            }
            Ok(())
        },
        |left, right| (right.pinned, &left.name).cmp(&(left.pinned, &right.name)),
    );
    let found = Box::pin(found).await?;
    let shown = |dashboard: &DashboardRecord| shown::basic(dashboard, &found.access).to_string();
    let results: Vec<String> = found.records.iter().map(shown).collect();
    found.page.reply(&call, found.count, &results)
}

/// `GET P/dashboards/{id}/`
pub async fn retrieve(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, item) = resource::find::<DashboardRecord>(&state, &call, READ).await?;
    let view = View::of(&call)?;
    let (dashboard, _) = resource::read::<DashboardRecord>(item)?;
    if dashboard.deleted {
        return Err(ApiError::not_found());
    }
    let placed = content::of(&state.app.store.records, access.project.id, dashboard.id).await?;
    let answer = Box::pin(shown::full(&state, &view, &access, &dashboard, &placed)).await?;
    deliver(&call.headers, answer.to_string().into_bytes()).ok_or_else(shown::too_long)
}

/// `POST P/dashboards/`
pub async fn create(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let shown = |call| retrieve(State(state.clone()), call);
    create_idempotently(&state.app, call, |call| make(state.clone(), call), shown).await
}

async fn make(state: Insights, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, WRITE, |_| []).await?;
    let input = DashboardInput::parse(&call.fields()?, false)?;
    let view = View::of(&call)?;
    let records = &state.app.store.records;
    let id = resource::reserve::<DashboardRecord>(records).await?;
    let now = access.write_time(call.now);
    let dashboard = DashboardRecord::create(id, &input, access.caller.user(), now);
    let judged = Judged { access: &access, now, before: None, after: &dashboard };
    let mut writes = judged.writes()?;
    writes.extend(idempotency_write(&call, id)?);
    records.transact(writes).await?;
    Ok(created(Box::pin(shown::full(&state, &view, &access, &dashboard, &[])).await?))
}

/// `PATCH P/dashboards/{id}/`, and `PUT`: a field that is not sent stays as it is.
pub async fn update(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, mut found) = resource::find::<DashboardRecord>(&state, &call, WRITE).await?;
    for tried in 0..limits::WRITE_TRIES {
        back_off_after_conflict(tried).await;
        let (before, item) = resource::read::<DashboardRecord>(found)?;
        if let Some(changed) = Box::pin(try_update(&state, &call, &access, &before, &item)).await? {
            return Box::pin(changed.answer(&state, &call, &access)).await;
        }
        found = state.app.store.records.get(&item.key).await?;
    }
    Err(ApiError::busy(limits::RETRY_AFTER_SECONDS))
}

/// `DELETE P/dashboards/{id}/`: not served; `deleted` of a change takes its place.
pub async fn destroy(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    resource::destroy(&state, &call, WRITE).await
}

/// What a change left.
struct Changed<'a> {
    dashboard: DashboardRecord,
    placed: Vec<Placed>,
    view: View<'a>,
}

impl Changed<'_> {
    /// The answer. It is done, so where what is on it cannot be shown, that is not said and has to be read elsewhere.
    async fn answer(&self, state: &Insights, call: &Call, access: &Access) -> ApiResult<Response> {
        let (view, dashboard) = (&self.view, &self.dashboard);
        let whole = match Box::pin(shown::full(state, view, access, dashboard, &self.placed)).await {
            Ok(whole) => deliver(&call.headers, whole.to_string().into_bytes()),
            Err(error) if error.status().is_client_error() => None,
            Err(error) => return Err(error),
        };
        if let Some(answer) = whole {
            return Ok(answer);
        }
        let mut answer = Box::pin(shown::full(state, view, access, dashboard, &[])).await?;
        answer["tiles"] = Value::Null;
        Ok(json(answer))
    }
}

/// Judges and writes the change; none when somebody else wrote the dashboard, or an insight that is moved on it, since
/// it was read. Gives what there is then, and what is on it.
async fn try_update<'a>(
    state: &Insights,
    call: &'a Call,
    access: &Access,
    before: &DashboardRecord,
    item: &Item,
) -> ApiResult<Option<Changed<'a>>> {
    let fields = call.fields();
    if before.deleted && !fields.as_ref().is_ok_and(restores) {
        return Err(ApiError::not_found());
    }
    if !before.is_editable_by(access) {
        return Err(ApiError::forbidden("You don't have edit permissions for this dashboard."));
    }
    let input = DashboardInput::parse(&fields?, true)?;
    let view = View::of(call)?;
    if input.restriction_level.is_some() && !before.is_restrictable_by(access) {
        return Err(ApiError::forbidden(
            "Only the dashboard owner and project admins have the restriction rights required to change the \
             dashboard's restriction level.",
        ));
    }
    let (records, project) = (&state.app.store.records, access.project.id);
    let mut after = before.apply(&input);
    let mut placed =
        if after.deleted { Vec::new() } else { content::of(records, project, before.id).await? };
    let now = access.write_time(call.now);
    let mut more = removal::writes(project, before, &mut after, &input, access.caller.user(), now)?;
    more.extend(content::arrange(&mut placed, &input.tiles)?);
    let judged = Judged { access, now, before: Some((before, item)), after: &after };
    let mut writes = judged.writes()?;
    writes.extend(more);
    match records.transact(writes).await {
        Ok(()) => {
            if after.deleted && input.delete_insights {
                Box::pin(removal::remove_insights(records, project, after.id, access.caller.user(), now))
                    .await?;
            }
            Ok(Some(Changed { dashboard: after, placed, view }))
        }
        Err(StoreError::Condition { .. }) => Ok(None),
        Err(StoreError::TooLarge) if !input.tiles.is_empty() => {
            let detail =
                "The insights of these tiles are too large to be written together. Send fewer tiles at once.";
            Err(ApiError::invalid("invalid_input", detail, Some("tiles")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a body brings a deleted dashboard back.
fn restores(fields: &Fields) -> bool {
    let said = fields.get("deleted").filter(|value| !value.is_null());
    said.is_some_and(|value: &Value| pennon_engine::flag::fields::boolean("deleted", value) == Ok(false))
}
