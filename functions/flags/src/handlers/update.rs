//! `PATCH P/feature_flags/{id}/` (and PUT): updates, soft-deletes or restores a flag.

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
use pennon_flag_rules::flag::conflict;
use pennon_flag_rules::flag::transition::{self, LinkedRecords};
use pennon_flag_rules::relations::body_references::{self, BodyReferences};
use pennon_flag_rules::relations::dependencies::{RelatedFlag, dependents_of};
use pennon_flag_rules::{Flag, FlagInput, References, ValidationContext, WriteKind, is_possible_key};
use serde_json::Value;

use super::{MAX_ATTEMPTS, require_edit};
use crate::Flags;
use crate::call_times::{authorize_with_call_times, store_pending_calls};
use crate::local_evaluation::check_feed_size;
use crate::referenced_records::{ReferenceIds, ResolvedReferences, resolve_references};
use crate::store::{
    FlagPreconditions, FlagWriteOutcome, ProjectVersion, StoredFlag, flag_record_key, flag_template,
    load_dependents, prefetch_dependents,
};
use crate::usage_dashboard::update_dashboard_key;
use crate::user::user_ref;
use pennon_role_access::payloads::{encrypt_payloads, require_decrypted, revealed};
use pennon_role_access::permissions::{FlagOwnership, FlagPermissions, fetch_cohort_names};
use pennon_role_access::validation_error;

/// Changes the fields in the body.
pub async fn update(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    update_flag(&state, &call, WriteKind::Update).await
}

/// As [`update`], but `key` is required.
pub async fn replace(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    update_flag(&state, &call, WriteKind::Replace).await
}

async fn update_flag(state: &Flags, call: &Call, kind: WriteKind) -> ApiResult<Response> {
    let (app, records) = (&state.app, &state.app.store.records);
    let mut body = call.credential().and_then(|_| call.fields().ok());
    let Some(mut plan) = call.id("id").map(|id| ReadPlan::of(id, body.as_ref())) else {
        app.project(call, crate::WRITE_SCOPE, |_| []).await?;
        return Err(ApiError::not_found());
    };
    let access = authorize_and_prefetch(state, call, &plan);
    let (access, (mut items, mut dependents), mut calls) =
        authorize_with_call_times(state, call, access).await?;
    let project = access.project.id;
    let mut needs_size_check = false;
    for _ in 0..MAX_ATTEMPTS {
        let mut inputs = plan.decode(&items, dependents)?.ok_or_else(ApiError::not_found)?;
        let before = inputs.before.clone();
        let ownership = FlagOwnership::from(&before.flag);
        let permissions = FlagPermissions::load(app, &access, std::iter::once(ownership)).await?;
        require_edit(&permissions, &before.flag)?;
        let body_fields = match &body {
            Some(body) => body,
            None => &*body.insert(call.fields()?),
        };
        // Payloads are validated decrypted and stored encrypted.
        let decrypted_before = revealed(&app.payload_keys, project, &before.flag);
        require_decrypted(
            &decrypted_before,
            body_fields.contains_key("filters") || body_fields.contains_key("has_encrypted_payloads"),
        )?;
        if let Cow::Owned(flag) = &decrypted_before {
            inputs.before.flag = flag.clone();
        }
        let ValidatedUpdate { after, mut preconditions, references } =
            validate_update(state, &access, call, body_fields, kind, inputs).await?;
        let record =
            encrypt_payloads(&app.payload_keys, project, &after, Some((&before.flag, &decrypted_before)))?;
        if needs_size_check || preconditions.feed_growth.exceeds_limit() {
            let changed = StoredFlag { flag: record.clone().into_owned(), version: before.version + 1 };
            let types = &access.project.group_types;
            preconditions.feed_growth =
                check_feed_size(state, project, types, Some(&before), &changed, preconditions.feed_growth)
                    .await?;
        }
        let user = access.caller.user();
        let unnamed_cohorts: BTreeSet<i64> =
            after.cohort_ids().into_iter().filter(|id| !references.cohorts.contains_key(id)).collect();
        if after.key != before.flag.key || after.deleted && !before.flag.deleted {
            store_pending_calls(state, project, &before.flag, &mut calls, call.now).await?;
        }
        let extra_writes =
            update_dashboard_key(records, project, &before.flag, &after, user, after.updated_at).await?;
        // Read in parallel with the write, which saves a round trip.
        let (outcome, names) = tokio::join!(
            crate::store::update(records, project, &before, &record, user, preconditions, extra_writes),
            fetch_cohort_names(app, project, &unnamed_cohorts),
        );
        let outcome = outcome?;
        if outcome == FlagWriteOutcome::Written {
            state.compiled.invalidate(project);
            let mut names = match names {
                Ok(names) => names,
                Err(_) => cohort_names_after_write(state, project, &before, &unnamed_cohorts).await,
            };
            names.extend(references.cohort_names());
            let stored = StoredFlag { version: before.version + 1, flag: after };
            let text = flag_template(state, project, &stored, &names).render(
                permissions.viewer(ownership),
                call.now,
                &calls,
            );
            return Ok(json_text(StatusCode::OK, text));
        }
        needs_size_check = outcome == FlagWriteOutcome::VersionConflict;
        plan.also_check_key_of(&before.flag);
        (items, dependents) = plan.fetch(records, project).await?;
    }
    Err(ApiError::busy(1))
}

/// Cohort names that could not be read in parallel with the write. The write is committed, so its response must not
/// fail: the names are read once more, with the last rendered names as fallback.
async fn cohort_names_after_write(
    state: &Flags,
    project: ProjectId,
    before: &StoredFlag,
    ids: &BTreeSet<i64>,
) -> BTreeMap<i64, String> {
    if let Ok(names) = fetch_cohort_names(&state.app, project, ids).await {
        return names;
    }
    let template = state.memory.get_template(project, before.flag.id, before.version);
    template.map(|template| template.cohort_names()).unwrap_or_default()
}

/// Authorizes the request and runs the planned reads, in one round trip when the path has the numeric project id.
async fn authorize_and_prefetch(
    state: &Flags,
    call: &Call,
    plan: &ReadPlan,
) -> ApiResult<(Access, (Vec<Option<Item>>, Option<Page>))> {
    let path_project = call.id("project_id").filter(|_| call.credential().is_some());
    let page = async {
        match path_project.filter(|_| plan.may_disable) {
            Some(project) => Some(prefetch_dependents(&state.app.store.records, project).await),
            None => None,
        }
    };
    let access = state.app.authorize_project_with(call, crate::WRITE_SCOPE, |project| plan.keys(project));
    let (access, page) = tokio::join!(access, page);
    let (access, items) = access?;
    let page = page.filter(|_| path_project == Some(access.project.id)).transpose()?;
    Ok((access, (items, page)))
}

/// The reads of an update, planned from the path and the body.
struct ReadPlan {
    id: u64,
    /// The requested key, whose claim is read.
    key: Option<String>,
    reference_ids: ReferenceIds,
    /// Whether the body may delete or disable the flag, which flags that depend on it forbid.
    may_disable: bool,
    needs_version: bool,
}

/// The result of those reads.
struct UpdateInputs {
    before: StoredFlag,
    version: ProjectVersion,
    /// Id of the live flag that holds the key.
    key_holder: Option<i64>,
    references: ResolvedReferences,
    /// First page of the flags that depend on others.
    dependents: Option<Page>,
}

impl ReadPlan {
    fn of(id: u64, body: Option<&Fields>) -> ReadPlan {
        let mentioned =
            body.map_or_else(BodyReferences::default, |body| body_references::collect(body, None));
        let reference_ids = ReferenceIds::of(&mentioned);
        let changes_state =
            body.is_some_and(|body| body.contains_key("active") || body.contains_key("deleted"));
        ReadPlan {
            id,
            key: mentioned.key.filter(|key| is_possible_key(key)),
            may_disable: body.is_some_and(may_disable),
            needs_version: changes_state || reference_ids.has_flags(),
            reference_ids,
        }
    }

    fn keys(&self, project: ProjectId) -> Vec<Key> {
        let mut keys = vec![flag_record_key(project, self.id)];
        keys.extend(self.needs_version.then(|| keys::project_version(project)));
        keys.extend(self.key.as_ref().map(|key| keys::flag_key_live(project, key)));
        keys.extend(self.reference_ids.keys(project));
        keys
    }

    /// Decodes the items that were read for the keys; `None` when the flag does not exist.
    fn decode(&self, items: &[Option<Item>], dependents: Option<Page>) -> ApiResult<Option<UpdateInputs>> {
        let Some((Some(item), rest)) = items.split_first() else { return Ok(None) };
        let mut rest = rest.iter();
        let version = if self.needs_version { rest.next().and_then(Option::as_ref) } else { None };
        let key_claim = self.key.as_ref().and_then(|_| rest.next()).and_then(Option::as_ref);
        Ok(Some(UpdateInputs {
            before: StoredFlag::from_item(item)?,
            version: ProjectVersion::from_item(version),
            key_holder: key_claim.map(|key_claim| key_claim.count),
            references: ResolvedReferences::from_items(&self.reference_ids, rest.as_slice())?,
            dependents,
        }))
    }

    /// After a version conflict: another flag may have claimed the key that a restored flag needs.
    fn also_check_key_of(&mut self, flag: &Flag) {
        self.key.get_or_insert_with(|| flag.key.clone());
    }

    async fn fetch(
        &self,
        records: &Table,
        project: ProjectId,
    ) -> Result<(Vec<Option<Item>>, Option<Page>), StoreError> {
        let page = async {
            match self.may_disable {
                true => prefetch_dependents(records, project).await.map(Some),
                false => Ok(None),
            }
        };
        let keys = self.keys(project);
        tokio::try_join!(records.batch_get(&keys), page)
    }
}

/// An update that passed validation.
struct ValidatedUpdate {
    after: Flag,
    preconditions: FlagPreconditions,
    references: References,
}

/// Validates the body and returns the flag after the update. 400 or 409 when the update is refused.
async fn validate_update(
    state: &Flags,
    access: &Access,
    call: &Call,
    body: &Fields,
    kind: WriteKind,
    inputs: UpdateInputs,
) -> ApiResult<ValidatedUpdate> {
    let UpdateInputs { before, version, key_holder, references, dependents } = inputs;
    let (flag, project) = (&before.flag, access.project.id);
    // The claim of the flag itself is no obstacle: a concurrent request may have restored it.
    let key_holder = key_holder.filter(|holder| *holder != flag.id);
    let to_check = references_to_check(body, flag);
    let (resolved, (dependents, dependents_checksum)) = tokio::try_join!(
        resolve_references(state, project, version, &to_check, references),
        load_enabled_dependents(state, project, version, body, flag, dependents),
    )?;
    let mut preconditions = resolved.preconditions(project, flag.id);
    preconditions.version.edges = dependents_checksum;
    let context = ValidationContext {
        stored: Some(flag),
        key_holder,
        references: &resolved.references,
        dashboards: &resolved.dashboards,
        linked_to_early_access: false,
    };
    let input = FlagInput::parse(body, kind, &context).map_err(validation_error)?;
    let now = never_before(access.write_time(call.now), flag.updated_at);
    let after = flag.apply(&input, now, &user_ref(access.caller.user()));
    preconditions.feed_growth = resolved.feed_growth(&after);
    let linked = LinkedRecords {
        early_access: false,
        live_experiments: &[],
        deleted_experiments: false,
        dependents: &dependents,
        references: &resolved.references,
        key_holder,
    };
    transition::check(flag, &after, &linked).map_err(validation_error)?;
    match conflict::detect(body, &input, flag) {
        Some(detail) => Err(ApiError::conflict(detail)),
        None => Ok(ValidatedUpdate { after, preconditions, references: resolved.references }),
    }
}

/// The enabled flags that depend on `flag`, when the body may delete or disable it, and the checksum that must be
/// unchanged when it is written.
async fn load_enabled_dependents(
    state: &Flags,
    project: ProjectId,
    version: ProjectVersion,
    body: &Fields,
    flag: &Flag,
    page: Option<Page>,
) -> ApiResult<(Vec<RelatedFlag>, Option<i64>)> {
    if !may_disable(body) || flag.deleted && !flag.active {
        return Ok((Vec::new(), None));
    }
    let dependents = load_dependents(&state.app.store.records, project, version, page).await?;
    Ok((dependents_of(flag.id, &dependents.rows), Some(dependents.checksum)))
}

/// Whether the body may delete or disable a flag. Values are validated later, so only the plain opposite counts as no.
fn may_disable(body: &Fields) -> bool {
    body.get("deleted").is_some_and(|sent| *sent != false)
        || body.get("active").is_some_and(|sent| *sent != true)
}

/// The references to load: those of the filters in the body, and the dependencies of the stored flag when it may be
/// enabled or restored.
fn references_to_check(body: &Fields, flag: &Flag) -> BodyReferences {
    let may_enable = !flag.active && body.get("active").is_some_and(|sent| *sent != false);
    let may_restore = flag.deleted && body.get("deleted").is_some_and(|sent| *sent != true);
    let mut mentioned = body_references::collect(body, (may_enable || may_restore).then_some(flag));
    if !body.get("filters").is_some_and(Value::is_object) {
        mentioned.cohort_ids.clear();
    }
    mentioned
}
