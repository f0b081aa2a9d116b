//! `PATCH P/feature_flags/{id}/` (and PUT): a change, a soft deletion or a restore.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_core::auth::Access;
use pennon_core::clock::never_before;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields, json_text};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Item, Key, Page, StoreError, Table};
use pennon_engine::flag::dependencies::{Related, dependents_of};
use pennon_engine::flag::mentions::{self, Mentions};
use pennon_engine::flag::transition::{self, Links};
use pennon_engine::flag::{Flag, FlagInput, References, Surroundings, Write, conflict, is_possible_key};
use serde_json::Value;

use super::{TRIES, require_edit};
use crate::Flags;
use crate::calls::{keep_waiting_calls, with_calls};
use crate::definitions::measured;
use crate::mentioned::{Mentioned, Sought, look_up};
use crate::store::{Outcome, Rests, Stored, Version, dependents, first_dependents, flag_at, prepared};
use crate::usage::follow_key;
use crate::user::user_ref;
use pennon_role_access::payloads::{check_opened, concealed, revealed};
use pennon_role_access::refused;
use pennon_role_access::viewer::{Owned, Viewers, cohort_names};

/// Changes the fields that were sent.
pub async fn update(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    change(&state, &call, Write::Update).await
}

/// As [`update`], with a key that has to be there.
pub async fn replace(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    change(&state, &call, Write::Replace).await
}

async fn change(state: &Flags, call: &Call, write: Write) -> ApiResult<Response> {
    let (app, records) = (&state.app, &state.app.store.records);
    let sent = call.credential().and_then(|_| call.fields().ok());
    let Some(mut plan) = call.id("id").map(|id| Plan::of(id, sent.as_ref())) else {
        app.project(call, crate::WRITE, |_| []).await?;
        return Err(ApiError::not_found());
    };
    let around = access_and_around(state, call, &plan);
    let (access, (mut items, mut page), mut calls) = with_calls(state, call, around).await?;
    let project = access.project.id;
    let mut sent = sent;
    let mut needs_measure = false;
    for _ in 0..TRIES {
        let mut seen = plan.seen(&items, page)?.ok_or_else(ApiError::not_found)?;
        let before = seen.before.clone();
        let owned = Owned::from(&before.flag);
        let viewers = Viewers::rights(app, &access, std::iter::once(owned)).await?;
        require_edit(&viewers, &before.flag)?;
        let body = match &sent {
            Some(body) => body,
            None => &*sent.insert(call.fields()?),
        };
        // Payloads are judged in clear and stored encrypted.
        let clear = revealed(&app.payload_keys, project, &before.flag);
        check_opened(&clear, body.contains_key("filters") || body.contains_key("has_encrypted_payloads"))?;
        if let Cow::Owned(clear) = &clear {
            seen.before.flag = clear.clone();
        }
        let Judged { after, mut rests, references } = judge(state, &access, call, body, write, seen).await?;
        let record = concealed(&app.payload_keys, project, &after, Some((&before.flag, &clear)))?;
        if needs_measure || rests.room.is_too_much() {
            let changed = Stored { flag: record.clone().into_owned(), version: before.version + 1 };
            let types = &access.project.group_types;
            rests.room = measured(state, project, types, Some(&before), &changed, rests.room).await?;
        }
        let user = access.caller.user();
        let unnamed: BTreeSet<i64> =
            after.cohort_ids().into_iter().filter(|id| !references.cohorts.contains_key(id)).collect();
        if after.key != before.flag.key || after.deleted && !before.flag.deleted {
            keep_waiting_calls(state, project, &before.flag, &mut calls, call.now).await?;
        }
        let beside = follow_key(records, project, &before.flag, &after, user, after.updated_at).await?;
        // Read beside the write and not before it, which saves a wait.
        let (written, names) = tokio::join!(
            crate::store::update(records, project, &before, &record, user, rests, beside),
            cohort_names(app, project, &unnamed),
        );
        let written = written?;
        if written == Outcome::Done {
            state.compiled.look_again(project);
            let mut names = match names {
                Ok(names) => names,
                Err(_) => names_after_all(state, project, &before, &unnamed).await,
            };
            names.extend(references.cohort_names());
            let stored = Stored { version: before.version + 1, flag: after };
            let text =
                prepared(state, project, &stored, &names).text(viewers.viewer(owned), call.now, &calls);
            return Ok(json_text(StatusCode::OK, text));
        }
        needs_measure = written == Outcome::Version;
        plan.ask_for_key_of(&before.flag);
        (items, page) = plan.read(records, project).await?;
    }
    Err(ApiError::busy(1))
}

/// The names of cohorts that could not be read beside a write. The write is done, so its answer does not depend on them:
/// they are read once more, else those are shown that the flag was last shown with.
async fn names_after_all(
    state: &Flags,
    project: ProjectId,
    before: &Stored,
    ids: &BTreeSet<i64>,
) -> BTreeMap<i64, String> {
    if let Ok(names) = cohort_names(&state.app, project, ids).await {
        return names;
    }
    let shown = state.memory.prepared(project, before.flag.id, before.version);
    shown.map(|shown| shown.cohort_names()).unwrap_or_default()
}

/// The project and what the plan reads, in one wait where the path names the project by its number.
async fn access_and_around(
    state: &Flags,
    call: &Call,
    plan: &Plan,
) -> ApiResult<(Access, (Vec<Option<Item>>, Option<Page>))> {
    let named = call.id("project_id").filter(|_| call.credential().is_some());
    let page = async {
        match named.filter(|_| plan.switches_off) {
            Some(project) => Some(first_dependents(&state.app.store.records, project).await),
            None => None,
        }
    };
    let access = state.app.project_with(call, crate::WRITE, |project| plan.keys(project));
    let (access, page) = tokio::join!(access, page);
    let (access, items) = access?;
    let page = page.filter(|_| named == Some(access.project.id)).transpose()?;
    Ok((access, (items, page)))
}

/// What a change reads before it judges, as far as the path and the body tell.
struct Plan {
    id: u64,
    /// The key that the flag is to have, whose claim is looked up.
    key: Option<String>,
    sought: Sought,
    /// Whether the body may delete the flag or switch it off, which dependents may stand against.
    switches_off: bool,
    needs_version: bool,
}

/// What it found.
struct Seen {
    before: Stored,
    version: Version,
    /// The live flag that has the key.
    holder: Option<i64>,
    mentioned: Mentioned,
    dependents: Option<Page>,
}

impl Plan {
    fn of(id: u64, body: Option<&Fields>) -> Plan {
        let mentions = body.map_or_else(Mentions::default, |body| mentions::of_body(body, None));
        let sought = Sought::of(&mentions);
        let switches = body.is_some_and(|body| body.contains_key("active") || body.contains_key("deleted"));
        Plan {
            id,
            key: mentions.key.filter(|key| is_possible_key(key)),
            switches_off: body.is_some_and(may_switch_off),
            needs_version: switches || sought.has_flags(),
            sought,
        }
    }

    fn keys(&self, project: ProjectId) -> Vec<Key> {
        let mut keys = vec![flag_at(project, self.id)];
        keys.extend(self.needs_version.then(|| keys::project_version(project)));
        keys.extend(self.key.as_ref().map(|key| keys::flag_key_live(project, key)));
        keys.extend(self.sought.keys(project));
        keys
    }

    /// What came back from the keys; none when there is no flag.
    fn seen(&self, items: &[Option<Item>], dependents: Option<Page>) -> ApiResult<Option<Seen>> {
        let Some((Some(item), rest)) = items.split_first() else { return Ok(None) };
        let mut rest = rest.iter();
        let version = if self.needs_version { rest.next().and_then(Option::as_ref) } else { None };
        let claim = self.key.as_ref().and_then(|_| rest.next()).and_then(Option::as_ref);
        Ok(Some(Seen {
            before: Stored::read(item)?,
            version: Version::of(version),
            holder: claim.map(|claim| claim.count),
            mentioned: Mentioned::read(&self.sought, rest.as_slice())?,
            dependents,
        }))
    }

    /// After a lost race: somebody may have taken the key that a restored flag would have again.
    fn ask_for_key_of(&mut self, flag: &Flag) {
        self.key.get_or_insert_with(|| flag.key.clone());
    }

    async fn read(
        &self,
        records: &Table,
        project: ProjectId,
    ) -> Result<(Vec<Option<Item>>, Option<Page>), StoreError> {
        let page = async {
            match self.switches_off {
                true => first_dependents(records, project).await.map(Some),
                false => Ok(None),
            }
        };
        let keys = self.keys(project);
        tokio::try_join!(records.batch_get(&keys), page)
    }
}

/// A change that may be written.
struct Judged {
    after: Flag,
    rests: Rests,
    references: References,
}

/// The flag after the change, if the body allows it.
async fn judge(
    state: &Flags,
    access: &Access,
    call: &Call,
    body: &Fields,
    write: Write,
    seen: Seen,
) -> ApiResult<Judged> {
    let Seen { before, version, holder, mentioned, dependents: page } = seen;
    let (flag, project) = (&before.flag, access.project.id);
    // A flag's own claim on its key is no obstacle to itself: somebody may have restored it a moment ago.
    let key_holder = holder.filter(|holder| *holder != flag.id);
    let mentions = relevant(body, flag);
    let (mentioned, (related, edges)) = tokio::try_join!(
        look_up(state, project, version, &mentions, mentioned),
        standing_against(state, project, version, body, flag, page),
    )?;
    let mut rests = mentioned.rests(project, flag.id);
    rests.when.edges = edges;
    let surroundings = Surroundings {
        stored: Some(flag),
        key_holder,
        references: &mentioned.references,
        dashboards: &mentioned.dashboards,
        linked_to_early_access: false,
    };
    let input = FlagInput::parse(body, write, &surroundings).map_err(refused)?;
    let now = never_before(access.write_time(call.now), flag.updated_at);
    let after = flag.apply(&input, now, &user_ref(access.caller.user()));
    rests.room = mentioned.room(&after);
    let links = Links {
        early_access: false,
        live_experiments: &[],
        deleted_experiments: false,
        dependents: &related,
        references: &mentioned.references,
        key_holder,
    };
    transition::check(flag, &after, &links).map_err(refused)?;
    match conflict::overlap(body, &input, flag) {
        Some(detail) => Err(ApiError::conflict(detail)),
        None => Ok(Judged { after, rests, references: mentioned.references }),
    }
}

/// The live flags that depend on `flag` where the body may delete it or switch it off, and the sum that has to be the same
/// when it is written.
async fn standing_against(
    state: &Flags,
    project: ProjectId,
    version: Version,
    body: &Fields,
    flag: &Flag,
    page: Option<Page>,
) -> ApiResult<(Vec<Related>, Option<i64>)> {
    if !may_switch_off(body) || flag.deleted && !flag.active {
        return Ok((Vec::new(), None));
    }
    let found = dependents(&state.app.store.records, project, version, page).await?;
    Ok((dependents_of(flag.id, &found.rows), Some(found.sum)))
}

/// Whether the body may delete a flag or switch it off. Values are judged later; only the plain opposite is certain.
fn may_switch_off(body: &Fields) -> bool {
    body.get("deleted").is_some_and(|sent| *sent != false)
        || body.get("active").is_some_and(|sent| *sent != true)
}

/// What has to be looked up: what the body's filters name, and what the flag depends on if it may be switched on or
/// restored.
fn relevant(body: &Fields, flag: &Flag) -> Mentions {
    let may_switch_on = !flag.active && body.get("active").is_some_and(|sent| *sent != false);
    let may_restore = flag.deleted && body.get("deleted").is_some_and(|sent| *sent != true);
    let mut mentions = mentions::of_body(body, (may_switch_on || may_restore).then_some(flag));
    if !body.get("filters").is_some_and(Value::is_object) {
        mentions.cohort_ids.clear();
    }
    mentions
}
