//! `PATCH P/feature_flags/{id}/` (and PUT): updates, soft-deletes or restores a flag.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_core::clock::never_before;
use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::{Call, Fields};
use pennon_core::retry::ConflictRetries;
use pennon_flag_rules::flag::conflict;
use pennon_flag_rules::flag::transition::{self, LinkedRecords};
use pennon_flag_rules::{CallTimes, Flag, FlagInput, References, ValidationContext, WriteKind};
use pennon_role_access::payloads::{require_decrypted, revealed};
use pennon_role_access::validation_error;

use super::flag_writer::{FlagChange, FlagWriter};
use super::{WRITE_ATTEMPTS_MAX, parse_authenticated, require_edit};
use crate::Flags;
use crate::call_times::{authorize_with_call_times, store_pending_calls};
use crate::store::{
    FlagPreconditions, LinkedInputs, StoredFlag, WriteReads, fetch_names_of_written, resolve_update_records,
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

/// If a concurrent write was committed first: re-read, re-validate and retry, at most [`WRITE_ATTEMPTS_MAX`] times, with exponential backoff and
/// jitter.
async fn update_flag(state: &Flags, call: &Call, kind: WriteKind) -> ApiResult<Response> {
    let body = parse_authenticated(call);
    let Some(mut reads) = call.id("id").map(|id| WriteReads::of_update(id, body.as_ref().ok())) else {
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
        let body = body.as_ref().map_err(ApiError::clone)?;
        let clear = revealed(&state.app.payload_keys, writer.project, &before.flag);
        let touches_payloads = body.contains_key("filters") || body.contains_key("has_encrypted_payloads");
        require_decrypted(&clear, touches_payloads)?;
        let update = validate_and_apply(&writer, body, kind, &clear, inputs.linked).await?;
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
    // The claim of the flag itself is no obstacle: a concurrent request may have restored it.
    let key_holder = linked.key_holder.filter(|holder| *holder != flag.id);
    let resolved = resolve_update_records(writer.state, writer.project, body, flag, linked).await?;
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
        dependents: &resolved.dependents,
        references: &resolved.references,
        key_holder,
    };
    transition::check(flag, &after, &linked).map_err(validation_error)?;
    if let Some(detail) = conflict::detect(body, &input, flag) {
        return Err(ApiError::conflict(detail));
    }
    let preconditions = resolved.preconditions(writer.project, &after);
    Ok(ValidatedUpdate { after, preconditions, references: resolved.references })
}

/// A flag as written, in clear.
struct WrittenFlag {
    stored: StoredFlag,
    /// The names of the cohorts that it refers to.
    cohort_names: BTreeMap<i64, String>,
}

/// Writes an update of `before`, the flag as stored and in clear. `None` if a concurrent write was committed first.
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
    let (is_written, mut cohort_names) =
        tokio::join!(writer.commit(change), fetch_names_of_written(state, project, before, &unnamed_cohorts));
    if !is_written? {
        return Ok(None);
    }
    cohort_names.extend(references.cohort_names());
    let stored = StoredFlag { version: before.version + 1, flag: after };
    Ok(Some(WrittenFlag { stored, cohort_names }))
}
