//! `POST P/feature_flags/`: a new flag.

use axum::extract::State;
use axum::response::Response;
use pennon_core::app::App;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, created};
use pennon_core::store::keys::{self, Counter, ProjectId};
use pennon_engine::flag::{Flag, FlagInput, Surroundings, Write, mentions, references};

use super::TRIES;
use crate::mentioned::look_up;
use crate::store::{Holders, Outcome, holders, rows, version_in};
use crate::user::user_ref;
use pennon_role_access::refused;
use pennon_role_access::viewer::Viewers;

/// Creates a flag. Deleted flags that had its key are removed for good.
pub async fn create(State(app): State<App>, call: Call) -> ApiResult<Response> {
    let (access, mut early, mut seen) = access_and_holders(&app, &call).await?;
    let body = call.fields()?;
    let mut id = None;
    for _ in 0..TRIES {
        let (input, held) = judge(&app, &access, &body, early.take()).await?;
        let id = match id {
            Some(id) => id,
            None => *id.insert(app.store.records.increment(&keys::counter(Counter::Flag), 1).await?),
        };
        let user = access.caller.user();
        let flag = Flag::create(id, &input, call.now, &user_ref(user)).map_err(refused)?;
        let records = &app.store.records;
        // Looked up before the write, so that a write that was done is answered as done.
        let viewers = Viewers::load(&app, &access, &[&flag]).await?;
        let project = access.project.id;
        let rests_on = depends_on_flags(&flag).then_some(seen);
        let written = crate::store::create(records, project, &flag, &held.deleted, user, rests_on).await?;
        if written == Outcome::Done {
            return Ok(created(viewers.show(&flag, call.now)));
        }
        seen = version_in(records.get(&keys::project_version(project)).await?.as_ref());
    }
    Err(ApiError::busy(1))
}

/// The project, who has the key that the body names, and the version of the project's flags.
///
/// Where the path names the project by its number, the key's holders are read beside the API key, which saves a wait.
async fn access_and_holders(app: &App, call: &Call) -> ApiResult<(Access, Option<Holders>, i64)> {
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
    Ok((access, early, version_in(version.as_ref())))
}

async fn holders_of(app: &App, project: ProjectId, key: Option<&String>) -> ApiResult<Holders> {
    match key {
        Some(key) if is_short(key) => Ok(holders(&app.store.records, project, key).await?),
        _ => Ok(Holders::default()),
    }
}

/// The body as input, and who has had the key; `early` is who had it a moment ago, where that is known.
async fn judge(
    app: &App,
    access: &Access,
    body: &Fields,
    early: Option<Holders>,
) -> ApiResult<(FlagInput, Holders)> {
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
            if mentions.flag_ids.is_empty() { Vec::new() } else { rows(&app.store.records, project).await? };
        look_up(app, project, &mentions, &rows).await
    };
    let (held, found) = tokio::try_join!(held, found)?;
    let around = Surroundings {
        stored: None,
        key_taken: held.live,
        references: &found.references,
        dashboards: &found.dashboards,
        linked_to_early_access: false,
    };
    let input = FlagInput::parse(body, Write::Create, &around).map_err(refused)?;
    if input.should_create_usage_dashboard {
        let detail = "Usage dashboards are not supported yet.";
        return Err(ApiError::invalid("invalid_input", detail, Some("_should_create_usage_dashboard")));
    }
    if input.has_encrypted_payloads == Some(Some(true)) {
        let detail = "Encrypted payloads are not supported yet.";
        return Err(ApiError::invalid("invalid_input", detail, Some("has_encrypted_payloads")));
    }
    Ok((input, held))
}

/// Whether `flag` names other flags, on whose state its own validity rests.
pub(super) fn depends_on_flags(flag: &Flag) -> bool {
    !references::flag_ids(&flag.filters).is_empty()
}

/// Whether a key can be looked up at all; longer ones are refused when the body is judged.
pub(super) fn is_short(key: &str) -> bool {
    key.chars().count() <= pennon_engine::flag::limits::KEY_CHARS && !key.contains('#')
}
