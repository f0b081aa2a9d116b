//! `POST P/feature_flags/{id}/dashboard/` and `.../enrich_usage_dashboard/`: the usage dashboard of a flag.
//!
//! Must stay true: neither counts as an update of the flag: its version stays, and there is no activity entry.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use pennon_core::app::App;
use pennon_core::auth::Access;
use pennon_core::clock::never_before;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json};
use pennon_core::retry::{ConflictRetries, PrefetchedItem};
use pennon_core::store::{Item, Precondition, StoreError, Write, WriteCondition};
use pennon_role_access::permissions::{FlagOwnership, FlagPermissions};
use serde_json::json as object;

use super::{WRITE_ATTEMPTS_MAX, require_edit};
use crate::store::{FeedGrowth, FlagWriteOutcome, StoredFlag, change, flag_record_key, record_id, transact};
use crate::usage_dashboard::{ReservedDashboardIds, enrich};

/// Creates a usage dashboard and links it to the flag. The body is ignored.
pub async fn dashboard(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let records = &app.store.records;
    let (access, mut prefetched) = authorize_and_read_flag(&app, &call).await?;
    let (project, user) = (access.project.id, access.caller.user());
    let mut reserved = None;
    let mut retries = ConflictRetries::new(WRITE_ATTEMPTS_MAX);
    loop {
        let item = prefetched.load(records).await?;
        let before = require_editable(&app, &access, item.as_ref()).await?;
        let reserved = match &reserved {
            Some(reserved) => reserved,
            None => &*reserved.insert(ReservedDashboardIds::reserve(records).await?),
        };
        let now = never_before(access.write_time(call.now), before.flag.updated_at);
        let outcome = async {
            let (after, extra_writes) = reserved.build(project, &before.flag, user, now)?;
            let mut writes =
                change(project, Some(&before), &after, Precondition::default(), FeedGrowth::default())?;
            writes.extend(extra_writes);
            transact(records, writes).await
        };
        match outcome.await {
            Ok(FlagWriteOutcome::Written) => return Ok(json(object!({"success": true}))),
            Ok(FlagWriteOutcome::Conflict | FlagWriteOutcome::ProjectVersionConflict) => {
                retries.back_off().await?
            }
            Err(StoreError::TooLarge) => return Ok(failure_response("Unable to generate usage dashboard")),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Adds insights about usage of the feature behind the flag to its usage dashboard. The body is ignored.
pub async fn enrich_usage_dashboard(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let records = &app.store.records;
    let (access, mut prefetched) = authorize_and_read_flag(&app, &call).await?;
    let (project, user) = (access.project.id, access.caller.user());
    let mut insight_ids = None;
    let mut retries = ConflictRetries::new(WRITE_ATTEMPTS_MAX);
    loop {
        let item = prefetched.load(records).await?;
        let before = require_editable(&app, &access, item.as_ref()).await?;
        let now = access.write_time(call.now);
        let mut writes = match enrich(records, project, &before.flag, &mut insight_ids, user, now).await? {
            Ok(writes) => writes,
            Err(error) => return Ok(failure_response(error.message())),
        };
        // The flag was checked above; it must be unchanged.
        let key = flag_record_key(project, record_id(before.flag.id));
        writes.push(Write::Check(key, WriteCondition::Version(before.version)));
        match transact(records, writes).await? {
            FlagWriteOutcome::Written => return Ok(json(object!({"success": true}))),
            FlagWriteOutcome::Conflict | FlagWriteOutcome::ProjectVersionConflict => {
                retries.back_off().await?
            }
        }
    }
}

/// Authorizes the request and prefetches the flag in the path.
async fn authorize_and_read_flag(app: &App, call: &Call) -> ApiResult<(Access, PrefetchedItem)> {
    let id = call.id("id");
    let keys_to_read = |project| id.map(|id| flag_record_key(project, id)).into_iter().collect();
    let (access, items) = app.authorize_project_with(call, crate::WRITE_SCOPE, keys_to_read).await?;
    Ok((access, PrefetchedItem::new(items.into_iter().next().flatten())))
}

/// Decodes the flag in `item`. 404 without an item, 403 when the caller may not edit the flag.
async fn require_editable(app: &App, access: &Access, item: Option<&Item>) -> ApiResult<StoredFlag> {
    let stored = StoredFlag::from_item(item.ok_or_else(ApiError::not_found)?)?;
    let permissions =
        FlagPermissions::load(app, access, std::iter::once(FlagOwnership::from(&stored.flag))).await?;
    require_edit(&permissions, &stored.flag)?;
    Ok(stored)
}

fn failure_response(text: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(object!({"success": false, "error": text}))).into_response()
}
