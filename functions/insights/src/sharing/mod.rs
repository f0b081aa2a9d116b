//! `GET` and `PATCH P/insights/{id}/sharing/`, `POST P/insights/{id}/sharing/refresh/`: the public link to an insight.
//!
//! Must stay true: reading writes nothing; the row by which a token opens the insight is there exactly while sharing is
//! switched on, and changes in one transaction with the record and its log entry; only the hash of a token is stored.

mod record;
mod tokens;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use pennon_calculation::Format;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, json};
use pennon_core::ids;
use pennon_core::store::{Item, Key, StoreError, Write, back_off_after_conflict, keys};

use crate::dashboards::Dashboards;
use crate::placement::Placement;
use crate::record::Insight;
use crate::{Insights, changes, limits, store, tiles};
use record::{Sharing, SharingInput};
use tokens::Tokens;

const READ: &str = "sharing_configuration:read";
const WRITE: &str = "sharing_configuration:write";
const RETRY_AFTER_SECONDS: u32 = 1;

/// What is stored of an insight and of its sharing.
struct Found {
    insight: Insight,
    /// None until it was first changed.
    sharing: Option<(Sharing, Item)>,
}

impl Found {
    /// Reads what was found; 404 unless there is a live insight.
    fn read(found: Vec<Option<Item>>) -> ApiResult<Found> {
        let missing = || ApiError::missing("Insight not found.");
        let mut found = found.into_iter();
        let insight: Insight = found.next().flatten().ok_or_else(missing)?.body()?;
        if insight.deleted {
            return Err(missing());
        }
        let sharing = found.next().flatten();
        let sharing = sharing.map(|item| Ok::<_, StoreError>((item.body()?, item))).transpose()?;
        Ok(Found { insight, sharing })
    }
}

fn wanted(call: &Call) -> impl Fn(u64) -> Vec<Key> {
    let number = call.id("id");
    move |project| number.map_or(Vec::new(), |id| vec![store::key(project, id), keys::sharing(project, id)])
}

/// How an insight is shared.
pub async fn retrieve(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    let (access, found) = state.app.project_with(&call, READ, wanted(&call)).await?;
    Format::of(&call)?;
    let found = Found::read(found)?;
    let tokens = Tokens { app: &state.app, project: access.project.id, insight: found.insight.id };
    Ok(json(match &found.sharing {
        Some((sharing, _)) => sharing.shown(&tokens.stored(sharing).await?),
        None => Sharing::shown_of_none(&tokens.fresh(0).await?),
    }))
}

/// Switches sharing on or off, or changes how the insight is shown to those who come by the link.
pub async fn update(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    change(&state, &call, Change::AsSent).await
}

/// Gives the insight another token; the one before opens nothing from here on.
pub async fn refresh(State(state): State<Insights>, call: Call) -> ApiResult<Response> {
    change(&state, &call, Change::OtherToken).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    AsSent,
    OtherToken,
}

async fn change(state: &Insights, call: &Call, change: Change) -> ApiResult<Response> {
    let wanted = wanted(call);
    let (access, mut found) = state.app.project_with(call, WRITE, &wanted).await?;
    Format::of(call)?;
    let records = &state.app.store.records;
    for tried in 0..limits::WRITE_TRIES {
        back_off_after_conflict(tried).await;
        let before = Found::read(found)?;
        let on = tiles::kept_dashboards(&before.insight.tiles);
        let dashboards = Dashboards::load(records, access.project.id, on).await?;
        Placement::of(&before.insight, &dashboards, &access).require_edit()?;
        let tokens = Tokens { app: &state.app, project: access.project.id, insight: before.insight.id };
        let now = access.write_time(call.now);
        let old = before.sharing.as_ref().map(|(sharing, _)| sharing);
        let (after, token) = match change {
            Change::AsSent => {
                let input = SharingInput::parse(&call.json_fields()?)?;
                let token = match old {
                    Some(old) => tokens.stored(old).await?,
                    None => tokens.fresh(0).await?,
                };
                (Sharing::changed(old, &input, &token, now), token)
            }
            Change::OtherToken => {
                let rotation = old.map_or(0, |old| old.rotation).saturating_add(1);
                let token = tokens.fresh(rotation).await?;
                (Sharing::rotated(old, rotation, &token, now), token)
            }
        };
        match records.transact(writes(&access, now, &before, &after)?).await {
            Ok(()) => return Ok(json(after.shown(&token))),
            Err(StoreError::Condition { .. }) => {
                found = records.batch_get(&wanted(access.project.id)).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(ApiError::busy(RETRY_AFTER_SECONDS))
}

/// The record, the row by which the token opens the insight, and the log entry.
fn writes(
    access: &Access,
    now: DateTime<Utc>,
    before: &Found,
    after: &Sharing,
) -> Result<Vec<Write>, StoreError> {
    let (project, insight) = (access.project.id, &before.insight);
    let old = before.sharing.as_ref();
    let mut writes = vec![after.write(keys::sharing(project, insight.id), old.map(|(_, item)| item))?];
    writes.extend(after.link_writes(project, insight.id, old.map(|(sharing, _)| sharing))?);
    let was_enabled = old.is_some_and(|(old, _)| old.enabled);
    let was_rotated = old.map_or(0, |(old, _)| old.rotation) != after.rotation;
    let user = access.caller.user();
    let entry = if was_enabled != after.enabled {
        changes::sharing_entry(insight, after.enabled, user, now)
    } else if was_rotated {
        changes::token_entry(insight, user, now)
    } else {
        None
    };
    if let Some(entry) = entry {
        writes.extend(entry.writes(project, ids::new_uuid())?);
    }
    Ok(writes)
}
