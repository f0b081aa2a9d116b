//! `PATCH P/feature_flags/{id}/` (and PUT): updates, soft-deletes or restores a flag.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_core::clock::never_before;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields};
use pennon_core::retry::ConflictRetries;
use pennon_core::store::QueryPage;
use pennon_flag_rules::flag::body_references::{self, BodyReferences};
use pennon_flag_rules::flag::conflict;
use pennon_flag_rules::flag::transition::dependents_of;
use pennon_flag_rules::flag::transition::{self, LinkedRecords};
use pennon_flag_rules::relations::dependencies::RelatedFlag;
use pennon_flag_rules::{CallTimes, Flag, FlagInput, References, ValidationContext, WriteKind};
use pennon_role_access::payloads::{require_decrypted, revealed};
use pennon_role_access::permissions::fetch_cohort_names;
use pennon_role_access::validation_error;
use serde_json::Value;

use super::flag_writer::{FlagChange, FlagWriter};
use super::{WRITE_ATTEMPTS_MAX, require_edit};
use crate::Flags;
use crate::call_times::{authorize_with_call_times, store_pending_calls};
use crate::store::{
    FlagPreconditions, LinkedInputs, ProjectVersion, StoredFlag, WriteReads, load_dependents, may_disable,
    resolve_references,
};
use crate::usage_dashboard::update_dashboard_key;
use crate::user::user_ref;

/// Changes the fields in the body.
pub async fn update(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    update_flag(&state, &call, WriteKind::Update).await
}

/// As [`update`], but `key` is required.
pub async fn replace(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    update_flag(&state, &call, WriteKind::Replace).await
}

/// On a version conflict: re-read, re-validate and retry, at most [`WRITE_ATTEMPTS_MAX`] times, with exponential backoff and
/// jitter.
async fn update_flag(state: &Flags, call: &Call, kind: WriteKind) -> ApiResult<Response> {
    let parsed = call.credential().and_then(|_| call.fields().ok());
    let Some(mut reads) = call.id("id").map(|id| WriteReads::of_update(id, parsed.as_ref())) else {
        state.app.project(call, crate::WRITE_SCOPE, |_| []).await?;
        return Err(ApiError::not_found());
    };
    let access = reads.authorize_and_prefetch(state, call);
    let (access, prefetched, mut calls) = authorize_with_call_times(state, call, access).await?;
    let mut prefetched = Some(prefetched);
    let mut writer = FlagWriter::new(state, call, &access);
    let mut retries = ConflictRetries::new(WRITE_ATTEMPTS_MAX);
    loop {
        // Load.
        let inputs = reads.load(&state.app.store.records, writer.project, prefetched.take()).await?;
        let before = inputs.before.ok_or_else(ApiError::not_found)?;
        // Authorize.
        let permissions = writer.permissions(&before.flag).await?;
        require_edit(&permissions, &before.flag)?;
        // Validate and apply. Payloads are validated in clear and stored encrypted.
        let body = match &parsed {
            Some(body) => Cow::Borrowed(body),
            None => Cow::Owned(call.fields()?),
        };
        let clear = revealed(&state.app.payload_keys, writer.project, &before.flag);
        let touches_payloads = body.contains_key("filters") || body.contains_key("has_encrypted_payloads");
        require_decrypted(&clear, touches_payloads)?;
        let update = validate_and_apply(&writer, &body, kind, &clear, inputs.linked).await?;
        // Write.
        let written = commit(&mut writer, (&before, &clear), update, &mut calls).await?;
        if let Some(WrittenFlag { stored, cohort_names }) = written {
            return Ok(writer.response(StatusCode::OK, &stored, &permissions, &cohort_names, &calls));
        }
        retries.back_off().await?;
    }
}

/// An update that passed validation.
struct ValidatedUpdate {
    after: Flag,
    preconditions: FlagPreconditions,
    references: References,
}

/// Validates the body against the stored flag and returns the flag after the update. 400 or 409 when it is refused.
async fn validate_and_apply(
    writer: &FlagWriter<'_>,
    body: &Fields,
    kind: WriteKind,
    flag: &Flag,
    linked: LinkedInputs,
) -> ApiResult<ValidatedUpdate> {
    let LinkedInputs { version, key_holder, references, dependents } = linked;
    // The claim of the flag itself is no obstacle: a concurrent request may have restored it.
    let key_holder = key_holder.filter(|holder| *holder != flag.id);
    let to_check = references_to_check(body, flag);
    let (resolved, (dependents, dependents_checksum)) = tokio::try_join!(
        resolve_references(writer.state, writer.project, version, &to_check, references),
        load_enabled_dependents(writer, version, body, flag, dependents),
    )?;
    let context = ValidationContext {
        stored: Some(flag),
        key_holder,
        references: &resolved.references,
        dashboards: &resolved.dashboards,
        linked_to_early_access: false,
    };
    let input = FlagInput::parse(body, kind, &context).map_err(validation_error)?;
    let now = never_before(writer.access.write_time(writer.call.now), flag.updated_at);
    let after = flag.apply(&input, now, &user_ref(writer.access.caller.user()));
    let linked = LinkedRecords {
        early_access: false,
        live_experiments: &[],
        deleted_experiments: false,
        dependents: &dependents,
        references: &resolved.references,
        key_holder,
    };
    transition::check(flag, &after, &linked).map_err(validation_error)?;
    if let Some(detail) = conflict::detect(body, &input, flag) {
        return Err(ApiError::conflict(detail));
    }
    let mut preconditions = resolved.preconditions(writer.project, &after);
    preconditions.version.edges = dependents_checksum;
    Ok(ValidatedUpdate { after, preconditions, references: resolved.references })
}

/// A flag as written, in clear.
struct WrittenFlag {
    stored: StoredFlag,
    /// The names of the cohorts that it refers to.
    cohort_names: BTreeMap<i64, String>,
}

/// Writes an update of `before`, the flag as stored and in clear. `None` on a version conflict.
async fn commit(
    writer: &mut FlagWriter<'_>,
    (before, clear): (&StoredFlag, &Flag),
    update: ValidatedUpdate,
    calls: &mut CallTimes,
) -> ApiResult<Option<WrittenFlag>> {
    let ValidatedUpdate { after, preconditions, references } = update;
    let (state, project) = (writer.state, writer.project);
    if after.key != before.flag.key || after.deleted && !before.flag.deleted {
        store_pending_calls(state, project, &before.flag, calls, writer.call.now).await?;
    }
    let (records, user) = (&state.app.store.records, writer.access.caller.user());
    let extra_writes =
        update_dashboard_key(records, project, &before.flag, &after, user, after.updated_at).await?;
    let unnamed_cohorts: BTreeSet<i64> =
        after.cohort_ids().into_iter().filter(|id| !references.cohorts.contains_key(id)).collect();
    let change = FlagChange { before: Some((before, clear)), after: &after, preconditions, extra_writes };
    // Read in parallel with the write, which saves a round trip.
    let (is_written, names) =
        tokio::join!(writer.commit(change), fetch_cohort_names(&state.app, project, &unnamed_cohorts));
    if !is_written? {
        return Ok(None);
    }
    let mut cohort_names = match names {
        Ok(names) => names,
        Err(_) => cohort_names_after_write(writer, before, &unnamed_cohorts).await,
    };
    cohort_names.extend(references.cohort_names());
    let stored = StoredFlag { version: before.version + 1, flag: after };
    Ok(Some(WrittenFlag { stored, cohort_names }))
}

/// Cohort names that could not be read in parallel with the write. The write is committed, so its response must not
/// fail: the names are read once more, with the last rendered names as fallback.
async fn cohort_names_after_write(
    writer: &FlagWriter<'_>,
    before: &StoredFlag,
    ids: &BTreeSet<i64>,
) -> BTreeMap<i64, String> {
    if let Ok(names) = fetch_cohort_names(&writer.state.app, writer.project, ids).await {
        return names;
    }
    let template = writer.state.memory.get_template(writer.project, before.flag.id, before.version);
    template.map(|template| template.cohort_names()).unwrap_or_default()
}

/// The enabled flags that depend on `flag`, when the body may delete or disable it, and the checksum that must be
/// unchanged when it is written.
async fn load_enabled_dependents(
    writer: &FlagWriter<'_>,
    version: ProjectVersion,
    body: &Fields,
    flag: &Flag,
    page: Option<QueryPage>,
) -> ApiResult<(Vec<RelatedFlag>, Option<i64>)> {
    if !may_disable(body) || flag.deleted && !flag.active {
        return Ok((Vec::new(), None));
    }
    let records = &writer.state.app.store.records;
    let dependents = load_dependents(records, writer.project, version, page).await?;
    Ok((dependents_of(flag.id, &dependents.rows), Some(dependents.checksum)))
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
