//! The endpoints of dashboards.
//!
//! Must stay true: a deletion is one write, after which the dashboard is treated as absent; its tiles are kept until a
//! scheduled task removes them, so that a restoration before that restores them too.

use axum::extract::State;
use axum::response::Response;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, created, deliver, json};
use pennon_core::idempotency::{create_idempotently, idempotency_write};
use pennon_core::retry::ConflictRetries;
use pennon_core::store::{Item, StoreError};
use serde_json::Value;

use super::content::{self, DashboardInsight};
use super::input::DashboardInput;
use super::record::DashboardRecord;
use super::response::ViewOptions;
use super::{cleanup, response};
use crate::resource::{self, RecordWrite, list};
use crate::{Insights, limits};

const READ: &str = "dashboard:read";
const WRITE: &str = "dashboard:write";
/// Prefix of the names that `exclude_generated` leaves out.
const GENERATED_PREFIX: &str = "Generated Dashboard";

/// `GET P/dashboards/`: pinned ones first, then by name.
pub async fn index(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let parameter = |name: &str| call.query_value(name).filter(|value| !value.is_empty());
    let tags: Vec<String> =
        call.query().iter().filter(|(name, _)| name == "tags").map(|(_, tag)| tag.to_lowercase()).collect();
    let page = list::fetch_page::<DashboardRecord>(
        &state,
        &call,
        READ,
        |rows| {
            rows.retain(|row| tags.is_empty() || row.tags.iter().any(|tag| tags.contains(tag)));
            if let Some(mode) = parameter("creation_mode") {
                rows.retain(|row| row.creation_mode.as_deref().unwrap_or("default") == mode);
            }
            if parameter("exclude_generated") == Some("true") {
                rows.retain(|row| !row.name.as_ref().is_some_and(|name| name.starts_with(GENERATED_PREFIX)));
            }
            Ok(())
        },
        |left, right| (right.pinned, &left.name).cmp(&(left.pinned, &right.name)),
    );
    let page = Box::pin(page).await?;
    let to_json = |dashboard: &DashboardRecord| response::basic_json(dashboard, &page.access).to_string();
    let results: Vec<String> = page.records.iter().map(to_json).collect();
    page.page.reply(&call, page.count, &results)
}

/// `GET P/dashboards/{id}/`
pub async fn retrieve(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, item) = resource::get_record::<DashboardRecord>(&state, &call, READ).await?;
    let view = ViewOptions::parse(&call)?;
    let (dashboard, _) = resource::require_record::<DashboardRecord>(item)?;
    if dashboard.deleted {
        return Err(ApiError::not_found());
    }
    let insights = content::fetch_insights(&state.app.store.records, access.project.id, dashboard.id).await?;
    let body = Box::pin(response::full_json(&state, &view, &access, &dashboard, &insights)).await?;
    deliver(&call.headers, body.to_string().into_bytes()).ok_or_else(response::too_large_error)
}

/// `POST P/dashboards/`
pub async fn create(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let respond = |call| retrieve(State(state.clone()), call);
    create_idempotently(&state.app, call, |call| try_create(state.clone(), call), respond).await
}

async fn try_create(state: Insights, call: Call) -> ApiResult<Response> {
    let (access, []) = state.app.project(&call, WRITE, |_| []).await?;
    let input = DashboardInput::parse(&call.fields()?, false)?;
    let view = ViewOptions::parse(&call)?;
    let records = &state.app.store.records;
    let id = resource::reserve_id::<DashboardRecord>(records).await?;
    let now = access.write_time(call.now);
    let dashboard = DashboardRecord::create(id, &input, access.caller.user(), now);
    let write =
        RecordWrite { access: &access, now, before: None, after: &dashboard, linked_changes: Vec::new() };
    let mut writes = write.writes()?;
    writes.extend(idempotency_write(&call, id)?);
    records.transact(writes).await?;
    Ok(created(Box::pin(response::full_json(&state, &view, &access, &dashboard, &[])).await?))
}

/// `PATCH P/dashboards/{id}/`, and `PUT`: fields that are not sent are kept.
pub async fn update(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, mut current) = resource::get_record::<DashboardRecord>(&state, &call, WRITE).await?;
    let mut retries = ConflictRetries::new(limits::WRITE_ATTEMPTS);
    loop {
        let (before, item) = resource::require_record::<DashboardRecord>(current)?;
        if let Some(updated) = Box::pin(try_update(&state, &call, &access, &before, &item)).await? {
            return Box::pin(updated.respond(&state, &call, &access)).await;
        }
        retries.back_off().await?;
        current = state.app.store.records.get(&item.key).await?;
    }
}

/// `DELETE P/dashboards/{id}/`: 405; clients set `deleted` instead.
pub async fn destroy(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    resource::destroy::<DashboardRecord>(&state, &call, WRITE).await
}

/// The dashboard after an update.
struct UpdatedDashboard<'a> {
    dashboard: DashboardRecord,
    insights: Vec<DashboardInsight>,
    view: ViewOptions<'a>,
}

impl UpdatedDashboard<'_> {
    /// The response. The update is done, so if its tiles cannot be returned, they are left out; the client has to read them
    /// separately.
    async fn respond(&self, state: &Insights, call: &Call, access: &Access) -> ApiResult<Response> {
        let (view, dashboard) = (&self.view, &self.dashboard);
        let delivered =
            match Box::pin(response::full_json(state, view, access, dashboard, &self.insights)).await {
                Ok(body) => deliver(&call.headers, body.to_string().into_bytes()),
                Err(error) if error.status().is_client_error() => None,
                Err(error) => return Err(error),
            };
        if let Some(response) = delivered {
            return Ok(response);
        }
        let mut body = Box::pin(response::full_json(state, view, access, dashboard, &[])).await?;
        body["tiles"] = Value::Null;
        Ok(json(body))
    }
}

/// Validates and writes the update; `None` if the dashboard, or an insight whose tile changes, was changed concurrently.
async fn try_update<'a>(
    state: &Insights,
    call: &'a Call,
    access: &Access,
    before: &DashboardRecord,
    item: &Item,
) -> ApiResult<Option<UpdatedDashboard<'a>>> {
    let fields = call.fields();
    if before.deleted && !fields.as_ref().is_ok_and(restores) {
        return Err(ApiError::not_found());
    }
    if !before.is_editable_by(access) {
        return Err(ApiError::forbidden("You don't have edit permissions for this dashboard."));
    }
    let input = DashboardInput::parse(&fields?, true)?;
    let view = ViewOptions::parse(call)?;
    if input.restriction_level.is_some() && !before.is_restrictable_by(access) {
        return Err(ApiError::forbidden(
            "Only the dashboard owner and project admins have the restriction rights required to change the \
             dashboard's restriction level.",
        ));
    }
    let (records, project) = (&state.app.store.records, access.project.id);
    let mut after = before.apply(&input);
    let mut insights =
        if after.deleted { Vec::new() } else { content::fetch_insights(records, project, before.id).await? };
    let now = access.write_time(call.now);
    let mut more = cleanup::schedule(project, before, &mut after, &input, access.caller.user(), now)?;
    more.extend(content::update_tiles(&mut insights, &input.tiles)?);
    let write =
        RecordWrite { access, now, before: Some((before, item)), after: &after, linked_changes: Vec::new() };
    let mut writes = write.writes()?;
    writes.extend(more);
    match records.transact(writes).await {
        Ok(()) => {
            if after.deleted && input.delete_insights {
                Box::pin(cleanup::delete_insights(records, project, after.id, access.caller.user(), now))
                    .await?;
            }
            Ok(Some(UpdatedDashboard { dashboard: after, insights, view }))
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

/// Whether a body restores a deleted dashboard.
fn restores(fields: &Fields) -> bool {
    let sent = fields.get("deleted").filter(|value| !value.is_null());
    sent.is_some_and(|value: &Value| pennon_filters::body::fields::boolean("deleted", value) == Ok(false))
}
