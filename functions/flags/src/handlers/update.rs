//! `PATCH P/feature_flags/{id}/` (and PUT): a change, a soft deletion or a restore.

use axum::extract::State;
use axum::response::Response;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, json};
use pennon_core::store::{Unchanged, keys};
use pennon_engine::flag::dependencies::{Related, dependents_of};
use pennon_engine::flag::mentions::{self, Mentions};
use pennon_engine::flag::transition::{self, Links};
use pennon_engine::flag::{Flag, FlagInput, Surroundings, Write, conflict};
use serde_json::Value;

use super::create::is_short;
use super::{TRIES, require_edit};
use crate::Flags;
use crate::mentioned::{Mentioned, look_up};
use crate::store::{Outcome, Stored, Version, flag_at, holders, proven};
use crate::usage::follow_key;
use crate::user::user_ref;
use pennon_role_access::refused;
use pennon_role_access::viewer::Viewers;

/// Changes the fields that were sent.
pub async fn update(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    change(&state, &call, Write::Update).await
}

/// As [`update`], with a key that has to be there.
pub async fn replace(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    change(&state, &call, Write::Replace).await
}

async fn change(state: &Flags, call: &Call, write: Write) -> ApiResult<Response> {
    let app = &state.app;
    let id = call.id("id");
    let wanted =
        |project| id.map_or_else(Vec::new, |id| vec![flag_at(project, id), keys::project_version(project)]);
    let (access, mut items) = app.project_with(call, crate::WRITE, wanted).await?;
    let project = access.project.id;
    let mut body = None;
    for _ in 0..TRIES {
        let [Some(item), version] = &items[..] else { return Err(ApiError::not_found()) };
        let before = Stored::read(item)?;
        let version = Version::of(version.as_ref());
        let viewers = Viewers::load(app, &access, &[&before.flag]).await?;
        require_edit(&viewers, &before.flag)?;
        let body = match &body {
            Some(body) => body,
            None => &*body.insert(call.fields()?),
        };
        let (after, when) = judge(state, &access, call, body, write, &before, version).await?;
        let user = access.caller.user();
        // Looked up before the write, so that a write that was done is answered as done.
        let cohorts_as_before = after.cohort_ids() == before.flag.cohort_ids();
        let viewers =
            if cohorts_as_before { viewers } else { Viewers::load(app, &access, &[&after]).await? };
        let records = &app.store.records;
        let beside = follow_key(records, project, &before.flag, &after, user, call.now).await?;
        let written = crate::store::update(records, project, &before, &after, user, when, beside).await?;
        if written == Outcome::Done {
            return Ok(json(viewers.show(&after, call.now)));
        }
        items = records.batch_get(&wanted(project)).await?;
    }
    Err(ApiError::busy(1))
}

/// The flag after the change, if the body allows it.
async fn judge(
    state: &Flags,
    access: &Access,
    call: &Call,
    body: &Fields,
    write: Write,
    before: &Stored,
    version: Version,
) -> ApiResult<(Flag, Unchanged)> {
    let flag = &before.flag;
    let around = Around::look(state, access, body, flag, version).await?;
    let surroundings = Surroundings {
        stored: Some(flag),
        key_taken: around.key_taken,
        references: &around.mentioned.references,
        dashboards: &around.mentioned.dashboards,
        linked_to_early_access: false,
    };
    let input = FlagInput::parse(body, write, &surroundings).map_err(refused)?;
    if input.has_encrypted_payloads == Some(Some(true)) {
        let detail = "Encrypted payloads are not supported yet.";
        return Err(ApiError::invalid("invalid_input", detail, Some("has_encrypted_payloads")));
    }
    let after = flag.apply(&input, call.now, &user_ref(access.caller.user()));
    let links = Links {
        early_access: false,
        live_experiments: &[],
        deleted_experiments: false,
        dependents: &around.dependents,
        references: &around.mentioned.references,
        key_taken: around.key_taken,
    };
    transition::check(flag, &after, &links).map_err(refused)?;
    match conflict::overlap(body, &input, flag) {
        Some(detail) => Err(ApiError::conflict(detail)),
        None => Ok((after, around.when)),
    }
}

/// What the project has that bears on a change.
struct Around {
    key_taken: bool,
    dependents: Vec<Related>,
    mentioned: Mentioned,
    when: Unchanged,
}

impl Around {
    async fn look(
        state: &Flags,
        access: &Access,
        body: &Fields,
        flag: &Flag,
        version: Version,
    ) -> ApiResult<Around> {
        let app = &state.app;
        let project = access.project.id;
        let mentions = relevant(mentions::of_body(body, Some(flag)), body);
        let switches = switches(body);
        let needs_rows = switches || !mentions.flag_ids.is_empty();
        let key = mentions.key.clone().filter(|key| is_short(key) && (flag.deleted || *key != flag.key));
        let taken = async {
            match &key {
                // A flag's own live claim is no obstacle to itself.
                Some(key) => Ok(holders(&app.store.records, project, key).await?.live),
                None => Ok::<_, ApiError>(false),
            }
        };
        let found = async {
            let rows = if needs_rows { Some(proven(state, project, version).await?) } else { None };
            let mentioned = look_up(app, project, &mentions, rows.as_ref()).await?;
            let dependents = rows.as_ref().map_or_else(Vec::new, |rows| dependents_of(flag.id, rows.all()));
            Ok((mentioned, dependents, rows.map_or(Unchanged::Any, |rows| rows.unchanged())))
        };
        let (key_taken, (mentioned, dependents, when)) = tokio::try_join!(taken, found)?;
        Ok(Around { key_taken, dependents, mentioned, when })
    }
}

/// Whether the body can delete, restore or switch a flag, which other flags may stand against.
fn switches(body: &Fields) -> bool {
    body.contains_key("deleted") || body.contains_key("active")
}

/// What of `mentions` has to be looked up: nothing that the flag names already, when the body neither sends filters nor
/// switches the flag.
fn relevant(mut mentions: Mentions, body: &Fields) -> Mentions {
    let sends_filters = body.get("filters").is_some_and(Value::is_object);
    if !sends_filters {
        mentions.cohort_ids.clear();
        if !switches(body) {
            mentions.flag_ids.clear();
        }
    }
    mentions
}
