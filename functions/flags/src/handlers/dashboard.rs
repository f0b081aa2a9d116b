//! `POST P/feature_flags/{id}/dashboard/` and `.../enrich_usage_dashboard/`: a dashboard that shows a flag's use.
//!
//! Must stay true: neither counts as an update of the flag: its version stays, and nothing is logged.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use pennon_core::app::App;
use pennon_core::auth::Access;
use pennon_core::clock::never_before;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json};
use pennon_core::store::{Guard, Item, Key, Precondition, StoreError, Write};
use pennon_role_access::viewer::{Owned, Viewers};
use serde_json::json as object;

use super::{TRIES, require_edit};
use crate::store::{Outcome, Room, Stored, change, flag_at, number, send};
use crate::usage::{Reserved, enrich};

/// Makes a new usage dashboard and points the flag at it. The body has no meaning.
pub async fn dashboard(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let records = &app.store.records;
    let (access, mut item) = flag_item(&app, &call).await?;
    let (project, user) = (access.project.id, access.caller.user());
    let mut reserved = None;
    for _ in 0..TRIES {
        let before = editable(&app, &access, item.as_ref()).await?;
        let reserved = match &reserved {
            Some(reserved) => reserved,
            None => &*reserved.insert(Reserved::reserve(records).await?),
        };
        let now = never_before(access.write_time(call.now), before.flag.updated_at);
        let written = async {
            let (after, beside) = reserved.make(project, &before.flag, user, now)?;
            let mut writes =
                change(project, Some(&before), &after, Precondition::default(), Room::default())?;
            writes.extend(beside);
            send(records, writes).await
        };
        match written.await {
            Ok(Outcome::Done) => return Ok(json(object!({"success": true}))),
            Ok(Outcome::Lost | Outcome::Version) => item = records.get(&at(project, &before)).await?,
            Err(StoreError::TooLarge) => return Ok(refusal("Unable to generate usage dashboard")),
            Err(error) => return Err(error.into()),
        }
    }
    Err(ApiError::busy(1))
}

/// Adds insights about the feature behind the flag to its usage dashboard. The body has no meaning.
pub async fn enrich_usage_dashboard(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let records = &app.store.records;
    let (access, mut item) = flag_item(&app, &call).await?;
    let (project, user) = (access.project.id, access.caller.user());
    let mut numbers = None;
    for _ in 0..TRIES {
        let before = editable(&app, &access, item.as_ref()).await?;
        let now = access.write_time(call.now);
        let mut writes = match enrich(records, project, &before.flag, &mut numbers, user, now).await? {
            Ok(writes) => writes,
            Err(refused) => return Ok(refusal(refused.text())),
        };
        // The flag was judged; it must still be as it was.
        writes.push(Write::Check(at(project, &before), Guard::Version(before.version)));
        match send(records, writes).await? {
            Outcome::Done => return Ok(json(object!({"success": true}))),
            Outcome::Lost | Outcome::Version => item = records.get(&at(project, &before)).await?,
        }
    }
    Err(ApiError::busy(1))
}

/// The project, and the item of the flag that the path names.
async fn flag_item(app: &App, call: &Call) -> ApiResult<(Access, Option<Item>)> {
    let id = call.id("id");
    let wanted = |project| id.map(|id| flag_at(project, id)).into_iter().collect();
    let (access, items) = app.project_with(call, crate::WRITE, wanted).await?;
    Ok((access, items.into_iter().next().flatten()))
}

/// The flag in `item`, if the caller may edit it.
async fn editable(app: &App, access: &Access, item: Option<&Item>) -> ApiResult<Stored> {
    let stored = Stored::read(item.ok_or_else(ApiError::not_found)?)?;
    let viewers = Viewers::rights(app, access, std::iter::once(Owned::from(&stored.flag))).await?;
    require_edit(&viewers, &stored.flag)?;
    Ok(stored)
}

fn at(project: u64, stored: &Stored) -> Key {
    flag_at(project, number(stored.flag.id))
}

fn refusal(text: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(object!({"success": false, "error": text}))).into_response()
}
