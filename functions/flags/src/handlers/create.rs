//! `POST P/feature_flags/`: a new flag.

use axum::extract::State;
use axum::response::Response;
use pennon_core::app::App;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, created};
use pennon_core::store::Unchanged;
use pennon_core::store::keys::{self, Counter, ProjectId};
use pennon_engine::flag::{Flag, FlagInput, Surroundings, Write, mentions};

use super::TRIES;
use crate::Flags;
use crate::mentioned::look_up;
use crate::store::{Holders, Outcome, Version, holders, proven};
use crate::usage::Reserved;
use crate::user::user_ref;
use pennon_role_access::refused;
use pennon_role_access::viewer::Viewers;

/// Creates a flag. Deleted flags that had its key are removed for good.
pub async fn create(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let app = &state.app;
    let (access, mut early, mut version) = access_and_holders(app, &call).await?;
    let body = call.fields()?;
    let mut id = None;
    let mut reserved: Option<Reserved> = None;
    for _ in 0..TRIES {
        let Judged { input, held, when } = judge(&state, &access, &body, version, early.take()).await?;
        let id = match id {
            Some(id) => id,
            None => *id.insert(app.store.records.increment(&keys::counter(Counter::Flag), 1).await?),
        };
        let user = access.caller.user();
        let flag = Flag::create(id, &input, call.now, &user_ref(user)).map_err(refused)?;
        let records = &app.store.records;
        let project = access.project.id;
        if input.should_create_usage_dashboard && reserved.is_none() {
            reserved = Some(Reserved::reserve(records).await?);
        }
        let (flag, beside) = match &reserved {
            Some(reserved) => reserved.make(project, &flag, user, call.now)?,
            None => (flag, Vec::new()),
        };
        // Looked up before the write, so that a write that was done is answered as done.
        let viewers = Viewers::load(app, &access, &[&flag]).await?;
        let held = &held.deleted;
        let written = crate::store::create(records, project, &flag, held, user, when, beside).await?;
        if written == Outcome::Done {
            return Ok(created(viewers.show(&flag, call.now)));
        }
        version = Version::of(records.get(&keys::project_version(project)).await?.as_ref());
    }
    Err(ApiError::busy(1))
}

/// The project, who has the key that the body names, and the version of the project's flags.
///
/// Where the path names the project by its number, the key's holders are read beside the API key, which saves a wait.
async fn access_and_holders(app: &App, call: &Call) -> ApiResult<(Access, Option<Holders>, Version)> {
    let named = call.id("project_id").filter(|_| call.credential().is_some());
    let key = named.and_then(|_| mentions::of_body(&call.fields().ok()?, None).key);
    let early = async {
        match named.zip(key) {
            Some((project, key)) => Some(holders_of(app, project, Some(&key)).await),
            None => None,
        }
    };
    let version = |project| [keys::project_version(project)];
    let (access, early) = tokio::join!(app.project(call, crate::WRITE, version), early);
    let (access, [version]) = access?;
    let early = early.filter(|_| named == Some(access.project.id)).transpose()?;
    Ok((access, early, Version::of(version.as_ref())))
}

async fn holders_of(app: &App, project: ProjectId, key: Option<&String>) -> ApiResult<Holders> {
    match key {
        Some(key) if is_short(key) => Ok(holders(&app.store.records, project, key).await?),
        _ => Ok(Holders::default()),
    }
}

/// A body that may be written.
struct Judged {
    input: FlagInput,
    /// Who has had the key.
    held: Holders,
    /// What of the project's version the judgement rests on.
    when: Unchanged,
}

/// Judges the body; `early` is who had its key a moment ago, where that is known.
async fn judge(
    state: &Flags,
    access: &Access,
    body: &Fields,
    version: Version,
    early: Option<Holders>,
) -> ApiResult<Judged> {
    let app = &state.app;
    let project = access.project.id;
    let mentions = mentions::of_body(body, None);
    let held = async {
        match early {
            Some(held) => Ok(held),
            None => holders_of(app, project, mentions.key.as_ref()).await,
        }
    };
    let found = async {
        let rows =
            if mentions.flag_ids.is_empty() { None } else { Some(proven(state, project, version).await?) };
        let found = look_up(app, project, &mentions, rows.as_ref()).await?;
        Ok((found, rows.map_or(Unchanged::Any, |rows| rows.unchanged())))
    };
    let (held, (found, when)) = tokio::try_join!(held, found)?;
    let around = Surroundings {
        stored: None,
        key_taken: held.live,
        references: &found.references,
        dashboards: &found.dashboards,
        linked_to_early_access: false,
    };
    let input = FlagInput::parse(body, Write::Create, &around).map_err(refused)?;
    if input.has_encrypted_payloads == Some(Some(true)) {
        let detail = "Encrypted payloads are not supported yet.";
        return Err(ApiError::invalid("invalid_input", detail, Some("has_encrypted_payloads")));
    }
    Ok(Judged { input, held, when })
}

/// Whether a key can be looked up at all; longer ones are refused when the body is judged.
pub(super) fn is_short(key: &str) -> bool {
    key.chars().count() <= pennon_engine::flag::limits::KEY_CHARS && !key.contains('#')
}
