//! The sharing token of an insight or a dashboard: `GET` and `PATCH P/insights/{id}/sharing/`, `POST P/insights/{id}/sharing/refresh/`,
//! and the same below `P/dashboards/{id}/`. [`Shareable`] is what differs between the two.
//!
//! Must stay true: a read writes nothing; the row of a token exists exactly while sharing is enabled, and is written in one
//! transaction with the configuration and its activity entry; only the hash of a token is stored.

pub(crate) mod record;
mod shareable;
mod tokens;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use pennon_calculation::ResponseFormat;
use pennon_core::auth::{Access, SharedRecord};
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json};
use pennon_core::ids;
use pennon_core::retry::ConflictRetries;
use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key, StoreError, Write};
use serde_json::{Value, json as object};

use crate::resource::activity_entry::{self, change_json};
use crate::{Insights, limits, resource};
use record::SharingInput;
use tokens::Tokens;

pub use record::Sharing;
pub use shareable::Shareable;

const READ: &str = "sharing_configuration:read";
const WRITE: &str = "sharing_configuration:write";

/// A record and its sharing configuration.
struct SharedState<R> {
    record: R,
    /// The item of the record.
    item: Item,
    /// `None` until it was first changed.
    sharing: Option<(Sharing, Item)>,
}

impl<R: Shareable> SharedState<R> {
    /// Decodes the items of [`row_keys`]; 404 where the record does not exist or is deleted.
    fn from_items(items: Vec<Option<Item>>) -> ApiResult<SharedState<R>> {
        let missing = || ApiError::missing(R::MISSING);
        let mut items = items.into_iter();
        let item = items.next().flatten().ok_or_else(missing)?;
        let record: R = item.body()?;
        if record.is_deleted() {
            return Err(missing());
        }
        let sharing = items.next().flatten();
        let sharing = sharing.map(|item| Ok::<_, StoreError>((item.body()?, item))).transpose()?;
        Ok(SharedState { record, item, sharing })
    }

    fn tokens<'a>(&self, state: &'a Insights, project: ProjectId) -> Tokens<'a> {
        Tokens { app: &state.app, project, subject: R::token_subject(self.record.id()) }
    }
}

/// The keys of a record and of its sharing configuration.
pub fn record_keys<R: Shareable>(project: ProjectId, id: u64) -> Vec<Key> {
    vec![resource::key::<R>(project, id), R::sharing_key(project, id)]
}

fn row_keys<R: Shareable>(call: &Call) -> impl Fn(ProjectId) -> Vec<Key> + use<R> {
    let id = call.id("id");
    move |project| id.map_or(Vec::new(), |id| record_keys::<R>(project, id))
}

/// The sharing configuration of a record.
pub async fn retrieve<R: Shareable>(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, items) = state.app.authorize_project_with(&call, READ, row_keys::<R>(&call)).await?;
    ResponseFormat::of(&call)?;
    let shared = SharedState::<R>::from_items(items)?;
    let tokens = shared.tokens(&state, access.project.id);
    Ok(json(match &shared.sharing {
        Some((sharing, _)) => sharing.to_json(&tokens.get_current(sharing).await?),
        None => Sharing::default_json(&tokens.create(0).await?),
    }))
}

/// Enables or disables sharing, or changes its settings.
pub async fn update<R: Shareable>(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    change::<R>(&state, &call, SharingChange::Update).await
}

/// Replaces the token; the previous one is revoked.
pub async fn refresh<R: Shareable>(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    change::<R>(&state, &call, SharingChange::RotateToken).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SharingChange {
    /// Apply the body.
    Update,
    /// Replace the token.
    RotateToken,
}

async fn change<R: Shareable>(state: &Insights, call: &Call, change: SharingChange) -> ApiResult<Response> {
    let keys = row_keys::<R>(call);
    let (access, mut items) = state.app.authorize_project_with(call, WRITE, &keys).await?;
    ResponseFormat::of(call)?;
    let records = &state.app.store.records;
    let mut retries = ConflictRetries::new(limits::WRITE_ATTEMPTS);
    loop {
        let before = SharedState::<R>::from_items(items)?;
        before.record.require_edit(records, &access).await?;
        let tokens = before.tokens(state, access.project.id);
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

/// The writes of the configuration, the row of the token, the record where it changes, and the activity entry.
fn writes<R: Shareable>(
    access: &Access,
    now: DateTime<Utc>,
    before: &SharedState<R>,
    after: &Sharing,
) -> Result<Vec<Write>, StoreError> {
    let (project, record) = (access.project.id, &before.record);
    let old = before.sharing.as_ref();
    let mut writes = vec![after.write(R::sharing_key(project, record.id()), old.map(|(_, item)| item))?];
    let shared = SharedRecord { project, id: R::shared_id(record.id()) };
    writes.extend(after.token_writes(&shared, old.map(|(sharing, _)| sharing))?);
    let was_enabled = old.is_some_and(|(old, _)| old.enabled);
    let was_rotated = old.map_or(0, |(old, _)| old.rotation) != after.rotation;
    let (activity, field, value) = if was_enabled != after.enabled {
        writes.extend(record.switch_writes(project, &before.item, after.enabled)?);
        let activity = if after.enabled { "sharing enabled" } else { "sharing disabled" };
        (activity, "sharing", object!(after.enabled))
    } else if was_rotated {
        // The log does not contain the token.
        ("updated", "sharing_access_token", Value::Null)
    } else {
        return Ok(writes);
    };
    let changes = object!([change_json(R::SCOPE, "changed", Some(field), &Value::Null, &value)]);
    if let Some(entry) = activity_entry::with_changes(record, activity, changes, access.caller.user(), now) {
        writes.extend(entry.writes(project, ids::new_uuid())?);
    }
    Ok(writes)
}
