//! `POST P/feature_flags/`: a new flag.

use super::retrieve::retrieve;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_core::app::App;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, json_text};
use pennon_core::idempotency::{create_idempotently, idempotency_write};
use pennon_core::store::keys::{self, Counter, ProjectId};
use pennon_core::store::{Item, Key};
use pennon_engine::flag::mentions::{self, Mentions};
use pennon_engine::flag::{CallTimes, Flag, FlagInput, Surroundings, Write, is_possible_key};

use super::TRIES;
use crate::Flags;
use crate::definitions::measured;
use crate::mentioned::{Mentioned, Sought, look_up};
use crate::store::{Outcome, Stored, Version, prepared};
use crate::usage::Reserved;
use crate::user::user_ref;
use pennon_role_access::payloads::concealed;
use pennon_role_access::refused;
use pennon_role_access::viewer::{Owned, Viewers};

/// Creates a flag. Deleted flags that had its key stay as they are.
pub async fn create(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let shown = |call| retrieve(State(state.clone()), call);
    create_idempotently(&state.app, call, |call| make(state.clone(), call), shown).await
}

async fn make(state: Flags, call: Call) -> ApiResult<Response> {
    let app = &state.app;
    let sent = call.credential().and_then(|_| call.fields().ok());
    let mentions = sent.as_ref().map_or_else(Mentions::default, |body| mentions::of_body(body, None));
    let plan = Plan { sought: Sought::of(&mentions), mentions };
    let (access, items) = app.project_with(&call, crate::WRITE, |project| plan.keys(project)).await?;
    let project = access.project.id;
    let mut seen = Some(plan.around(&items)?);
    let body = match sent {
        Some(body) => body,
        None => call.fields()?,
    };
    let restored = call.restored.clone();
    let mut id = restored.as_ref().and_then(|it| i64::try_from(it.id).ok());
    let mut reserved: Option<Reserved> = None;
    let mut needs_measure = false;
    for _ in 0..TRIES {
        let around = match seen.take() {
            Some(around) => around,
            None => plan.read(app, project).await?,
        };
        let (input, mentioned) = judge(&state, project, &body, &plan, around).await?;
        let id = match id {
            Some(id) => id,
            None => *id.insert(app.store.records.increment(&keys::counter(Counter::Flag), 1).await?),
        };
        let user = access.caller.user();
        let at = access.write_time(call.now);
        let mut flag = Flag::create(id, &input, at, &user_ref(user)).map_err(refused)?;
        if let Some(restored) = &restored {
            flag.usage_dashboard = restored.usage_dashboard;
            // What is switched on where it was before is not switched on anew.
            flag.performed_rollback = input.performed_rollback.flatten();
        }
        let records = &app.store.records;
        if input.should_create_usage_dashboard && reserved.is_none() {
            reserved = Some(Reserved::reserve(records).await?);
        }
        let (flag, mut beside) = match &reserved {
            Some(reserved) => reserved.make(project, &flag, user, at)?,
            None => (flag, Vec::new()),
        };
        beside.extend(idempotency_write(&call, id)?);
        // Whoever makes a flag may edit it, and its cohorts were looked up: no wait here.
        let viewers = Viewers::rights(app, &access, std::iter::once(Owned::from(&flag))).await?;
        let record = concealed(&app.payload_keys, project, &flag, None)?;
        let mut rests = mentioned.rests(project, flag.id);
        rests.room = mentioned.room(&flag);
        if needs_measure || rests.room.is_too_much() {
            let changed = Stored { flag: record.clone().into_owned(), version: 1 };
            let types = &access.project.group_types;
            rests.room = measured(&state, project, types, None, &changed, rests.room).await?;
        }
        let written = crate::store::create(records, project, &record, user, rests, beside).await?;
        if written == Outcome::Done {
            state.compiled.look_again(project);
            let viewer = viewers.viewer(&flag);
            let text =
                prepared(&state, project, &Stored { flag, version: 1 }, &mentioned.references.cohort_names());
            return Ok(json_text(StatusCode::CREATED, text.text(viewer, call.now, &CallTimes::none())));
        }
        needs_measure = written == Outcome::Version;
    }
    Err(ApiError::busy(1))
}

/// What a create reads before it judges.
struct Plan {
    mentions: Mentions,
    sought: Sought,
}

/// What it found.
struct Around {
    /// The live flag that has the key.
    holder: Option<i64>,
    version: Version,
    mentioned: Mentioned,
}

impl Plan {
    /// The key that the flag is to have, where a flag may have it.
    fn key(&self) -> Option<&String> {
        self.mentions.key.as_ref().filter(|key| is_possible_key(key))
    }

    /// The row of the key, the project's version where flags are mentioned, and what is mentioned.
    fn keys(&self, project: ProjectId) -> Vec<Key> {
        let claim = self.key().map(|key| keys::flag_key_live(project, key));
        let version = self.sought.has_flags().then(|| keys::project_version(project));
        claim.into_iter().chain(version).chain(self.sought.keys(project)).collect()
    }

    /// What came back from the keys.
    fn around(&self, items: &[Option<Item>]) -> ApiResult<Around> {
        let mut items = items.iter();
        let claim = self.key().and_then(|_| items.next()).and_then(Option::as_ref);
        let version = if self.sought.has_flags() { items.next().and_then(Option::as_ref) } else { None };
        Ok(Around {
            holder: claim.map(|claim| claim.count),
            version: Version::of(version),
            mentioned: Mentioned::read(&self.sought, items.as_slice())?,
        })
    }

    async fn read(&self, app: &App, project: ProjectId) -> ApiResult<Around> {
        let keys = self.keys(project);
        match keys.is_empty() {
            true => self.around(&[]),
            false => self.around(&app.store.records.batch_get(&keys).await?),
        }
    }
}

/// The body as input, and what it refers to.
async fn judge(
    state: &Flags,
    project: ProjectId,
    body: &Fields,
    plan: &Plan,
    around: Around,
) -> ApiResult<(FlagInput, Mentioned)> {
    let Around { holder, version, mentioned } = around;
    let found = look_up(state, project, version, &plan.mentions, mentioned).await?;
    let around = Surroundings {
        stored: None,
        key_holder: holder,
        references: &found.references,
        dashboards: &found.dashboards,
        linked_to_early_access: false,
    };
    let input = FlagInput::parse(body, Write::Create, &around).map_err(refused)?;
    Ok((input, found))
}
