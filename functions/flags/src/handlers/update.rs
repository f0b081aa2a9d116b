//! `PATCH P/feature_flags/{id}/` (and PUT): a change, a soft deletion or a restore.

use axum::extract::State;
use axum::response::Response;
use pennon_core::app::App;
use pennon_core::auth::Access;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, json};
use pennon_core::store::keys;
use pennon_engine::flag::dependencies::{Related, dependents_of};
use pennon_engine::flag::mentions::{self, Mentions};
use pennon_engine::flag::transition::{self, Links};
use pennon_engine::flag::{Flag, FlagInput, FlagRow, Surroundings, Write, conflict};
use serde_json::Value;

use super::TRIES;
use super::create::{depends_on_flags, is_short};
use crate::mentioned::{Mentioned, look_up};
use crate::store::{Outcome, Stored, flag_at, holders, rows, version_in};
use crate::user::user_ref;
use pennon_role_access::refused;
use pennon_role_access::viewer::Viewers;

/// Changes the fields that were sent.
pub async fn update(State(app): State<App>, call: Call) -> ApiResult<Response> {
    change(&app, &call, Write::Update).await
}

/// As [`update`], with a key that has to be there.
pub async fn replace(State(app): State<App>, call: Call) -> ApiResult<Response> {
    change(&app, &call, Write::Replace).await
}

async fn change(app: &App, call: &Call, write: Write) -> ApiResult<Response> {
    let id = call.id("id");
    let wanted =
        |project| id.map_or_else(Vec::new, |id| vec![flag_at(project, id), keys::project_version(project)]);
    let (access, mut items) = app.project_with(call, crate::WRITE, wanted).await?;
    let project = access.project.id;
    let mut body = None;
    for _ in 0..TRIES {
        let [Some(item), version] = &items[..] else { return Err(ApiError::not_found()) };
        let before = Stored::read(item)?;
        let seen = version_in(version.as_ref());
        let viewers = Viewers::load(app, &access, &[&before.flag]).await?;
        if !viewers.can_edit(&before.flag) {
            return Err(ApiError::forbidden("You don't have edit permissions for this feature flag."));
        }
        let body = match &body {
            Some(body) => body,
            None => &*body.insert(call.fields()?),
        };
        let after = judge(app, &access, call, body, write, &before).await?;
        let user = access.caller.user();
        // Looked up before the write, so that a write that was done is answered as done.
        let cohorts_as_before = after.cohort_ids() == before.flag.cohort_ids();
        let viewers =
            if cohorts_as_before { viewers } else { Viewers::load(app, &access, &[&after]).await? };
        let rests_on_others = switches(body) || depends_on_flags(&after);
        let seen = rests_on_others.then_some(seen);
        let records = &app.store.records;
        if crate::store::update(records, project, &before, &after, user, seen).await? == Outcome::Done {
            return Ok(json(viewers.show(&after, call.now)));
        }
        items = records.batch_get(&wanted(project)).await?;
    }
    Err(ApiError::busy(1))
}

/// The flag after the change, if the body allows it.
async fn judge(
    app: &App,
    access: &Access,
    call: &Call,
    body: &Fields,
    write: Write,
    before: &Stored,
) -> ApiResult<Flag> {
    let flag = &before.flag;
    let around = Around::look(app, access, body, flag).await?;
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
        None => Ok(after),
    }
}

/// What the project has that bears on a change.
struct Around {
    key_taken: bool,
    dependents: Vec<Related>,
    mentioned: Mentioned,
}

impl Around {
    async fn look(app: &App, access: &Access, body: &Fields, flag: &Flag) -> ApiResult<Around> {
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
            let rows: Vec<FlagRow> =
                if needs_rows { rows(&app.store.records, project).await? } else { Vec::new() };
            let mentioned = look_up(app, project, &mentions, &rows).await?;
            Ok((mentioned, dependents_of(flag.id, &rows)))
        };
        let (key_taken, (mentioned, dependents)) = tokio::try_join!(taken, found)?;
        Ok(Around { key_taken, dependents, mentioned })
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
