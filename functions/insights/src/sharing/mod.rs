//! `GET` and `PATCH P/insights/{id}/sharing/`, `POST P/insights/{id}/sharing/refresh/`: the sharing token of an insight.
//!
//! Must stay true: a read writes nothing; the row of a token exists exactly while sharing is enabled, and is written in one
//! transaction with the record and its activity entry; only the hash of a token is stored.

mod record;
mod tokens;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use pennon_calculation::ResponseFormat;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json};
use pennon_core::ids;
use pennon_core::retry::ConflictRetries;
use pennon_core::store::{Item, Key, StoreError, Write, keys};
use serde_json::{Value, json as object};

use crate::insight::{self, Insight};
use crate::placement::{Dashboards, Placement, tiles};
use crate::resource::Resource;
use crate::resource::activity_entry::{self, change_json};
use crate::{Insights, limits};
use record::{Sharing, SharingInput};
use tokens::Tokens;

const READ: &str = "sharing_configuration:read";
const WRITE: &str = "sharing_configuration:write";

/// An insight and its sharing configuration.
struct SharedInsight {
    insight: Insight,
    /// `None` until it was first changed.
    sharing: Option<(Sharing, Item)>,
}

impl SharedInsight {
    /// Decodes the items of [`row_keys`]; 404 where the insight does not exist or is deleted.
    fn from_items(items: Vec<Option<Item>>) -> ApiResult<SharedInsight> {
        let missing = || ApiError::missing("Insight not found.");
        let mut items = items.into_iter();
        let insight: Insight = items.next().flatten().ok_or_else(missing)?.body()?;
        if insight.deleted {
            return Err(missing());
        }
        let sharing = items.next().flatten();
        let sharing = sharing.map(|item| Ok::<_, StoreError>((item.body()?, item))).transpose()?;
        Ok(SharedInsight { insight, sharing })
    }
}

fn row_keys(call: &Call) -> impl Fn(u64) -> Vec<Key> {
    let id = call.id("id");
    move |project| id.map_or(Vec::new(), |id| vec![insight::key(project, id), keys::sharing(project, id)])
}

/// The sharing configuration of an insight.
pub async fn retrieve(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, items) = state.app.authorize_project_with(&call, READ, row_keys(&call)).await?;
    ResponseFormat::of(&call)?;
    let shared = SharedInsight::from_items(items)?;
    let tokens = Tokens { app: &state.app, project: access.project.id, insight: shared.insight.id };
    Ok(json(match &shared.sharing {
        Some((sharing, _)) => sharing.to_json(&tokens.get_current(sharing).await?),
        None => Sharing::default_json(&tokens.create(0).await?),
    }))
}

/// Enables or disables sharing, or changes its settings.
pub async fn update(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    change(&state, &call, SharingChange::Update).await
}

/// Replaces the token; the previous one is revoked.
pub async fn refresh(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    change(&state, &call, SharingChange::RotateToken).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SharingChange {
    /// Apply the body.
    Update,
    /// Replace the token.
    RotateToken,
}

async fn change(state: &Insights, call: &Call, change: SharingChange) -> ApiResult<Response> {
    let keys = row_keys(call);
    let (access, mut items) = state.app.authorize_project_with(call, WRITE, &keys).await?;
    ResponseFormat::of(call)?;
    let records = &state.app.store.records;
    let mut retries = ConflictRetries::new(limits::WRITE_ATTEMPTS);
    loop {
        let before = SharedInsight::from_items(items)?;
        let dashboard_ids = tiles::current_dashboards(&before.insight.tiles);
        let dashboards = Dashboards::load(records, access.project.id, dashboard_ids).await?;
        Placement::new(&before.insight.tiles, &dashboards, &access).require_edit()?;
        let tokens = Tokens { app: &state.app, project: access.project.id, insight: before.insight.id };
        let now = access.write_time(call.now);
        let old = before.sharing.as_ref().map(|(sharing, _)| sharing);
        let (after, token) = match change {
            SharingChange::Update => {
                let input = SharingInput::parse(&call.json_fields()?)?;
                let token = match old {
                    Some(old) => tokens.get_current(old).await?,
                    None => tokens.create(0).await?,
                };
                (Sharing::updated(old, &input, &token, now), token)
            }
            SharingChange::RotateToken => {
                let rotation = old.map_or(0, |old| old.rotation).saturating_add(1);
                let token = tokens.create(rotation).await?;
                (Sharing::rotated(old, rotation, &token, now), token)
            }
        };
        match records.transact(writes(&access, now, &before, &after)?).await {
            Ok(()) => return Ok(json(after.to_json(&token))),
            Err(StoreError::Condition { .. }) => {
                retries.back_off().await?;
                items = records.batch_get(&keys(access.project.id)).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The writes of the record, the row of the token, and the activity entry.
fn writes(
    access: &Access,
    now: DateTime<Utc>,
    before: &SharedInsight,
    after: &Sharing,
) -> Result<Vec<Write>, StoreError> {
    let (project, insight) = (access.project.id, &before.insight);
    let old = before.sharing.as_ref();
    let mut writes = vec![after.write(keys::sharing(project, insight.id), old.map(|(_, item)| item))?];
    writes.extend(after.token_writes(project, insight.id, old.map(|(sharing, _)| sharing))?);
    let was_enabled = old.is_some_and(|(old, _)| old.enabled);
    let was_rotated = old.map_or(0, |(old, _)| old.rotation) != after.rotation;
    let (activity, field, value) = if was_enabled != after.enabled {
        let activity = if after.enabled { "sharing enabled" } else { "sharing disabled" };
        (activity, "sharing", object!(after.enabled))
    } else if was_rotated {
        // The log does not contain the token.
        ("updated", "sharing_access_token", Value::Null)
    } else {
        return Ok(writes);
    };
    let changes = object!([change_json(Insight::SCOPE, "changed", Some(field), &Value::Null, &value)]);
    if let Some(entry) = activity_entry::with_changes(insight, activity, changes, access.caller.user(), now) {
        writes.extend(entry.writes(project, ids::new_uuid())?);
    }
    Ok(writes)
}
