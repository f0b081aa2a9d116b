//! `POST P/feature_flags/`: creates a flag.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use pennon_core::error::ApiResult;
use pennon_core::http::{Call, Fields};
use pennon_core::idempotency::{create_idempotently, idempotency_write};
use pennon_core::retry::ConflictRetries;
use pennon_core::store::Write;
use pennon_core::store::keys::{self, Counter};
use pennon_flag_rules::flag::body_references;
use pennon_flag_rules::{CallTimes, Flag, FlagInput, ValidationContext, WriteKind};
use pennon_role_access::validation_error;

use super::flag_writer::{FlagChange, FlagWriter};
use super::retrieve::retrieve;
use super::{WRITE_ATTEMPTS_MAX, parse_authenticated};
use crate::Flags;
use crate::store::{LinkedInputs, ResolvedReferences, StoredFlag, WriteReads, resolve_references};
use crate::usage_dashboard::ReservedDashboardIds;
use crate::user::user_ref;

/// Creates a flag. Deleted flags that had its key stay as they are.
pub async fn create(State(state): State<Flags>, call: Call) -> ApiResult<Response> {
    let retrieve_again = |call| retrieve(State(state.clone()), call);
    create_idempotently(&state.app, call, |call| create_flag(state.clone(), call), retrieve_again).await
}

/// If a concurrent write was committed first: re-read, re-validate and retry, at most [`WRITE_ATTEMPTS_MAX`] times, with exponential backoff and
/// jitter.
async fn create_flag(state: Flags, call: Call) -> ApiResult<Response> {
    let body = parse_authenticated(&call);
    let mut reads = WriteReads::of_create(body.as_ref().ok());
    let (access, prefetched) = reads.authorize_and_prefetch(&state, &call).await?;
    let body = body?;
    let mut prefetched = Some(prefetched);
    let mut writer = FlagWriter::new(&state, &call, &access);
    let mut ids = ReservedIds::of(&call);
    let mut retries = ConflictRetries::new(WRITE_ATTEMPTS_MAX);
    loop {
        // Load.
        let inputs = reads.load(&state.app.store.records, writer.project, prefetched.take()).await?;
        // Validate and apply.
        let (input, resolved) = validate(&writer, &body, inputs.linked).await?;
        let (flag, mut extra_writes) = apply(&writer, &input, &mut ids).await?;
        extra_writes.extend(idempotency_write(&call, flag.id)?);
        // The creator may edit the flag, and its cohorts are loaded: no round trip here.
        let permissions = writer.permissions(&flag).await?;
        // Write.
        let preconditions = resolved.preconditions(writer.project, &flag);
        let change = FlagChange { before: None, after: &flag, preconditions, extra_writes };
        if writer.commit(change).await? {
            let (written, names) = (StoredFlag { flag, version: 1 }, resolved.references.cohort_names());
            let status = StatusCode::CREATED;
            return Ok(writer.response(status, &written, &permissions, &names, &CallTimes::none()));
        }
        retries.back_off().await?;
    }
}

/// Validates the body and loads the records that it refers to.
async fn validate(
    writer: &FlagWriter<'_>,
    body: &Fields,
    linked: LinkedInputs,
) -> ApiResult<(FlagInput, ResolvedReferences)> {
    let LinkedInputs { key_holder, version, references, .. } = linked;
    let body_references = body_references::collect(body, None);
    let resolved =
        resolve_references(writer.state, writer.project, version, &body_references, references).await?;
    let context = ValidationContext {
        stored: None,
        key_holder,
        references: &resolved.references,
        dashboards: &resolved.dashboards,
        linked_to_early_access: false,
    };
    let input = FlagInput::parse(body, WriteKind::Create, &context).map_err(validation_error)?;
    Ok((input, resolved))
}

/// The ids of a new flag and of its usage dashboard. They are reused when the write is retried.
struct ReservedIds {
    flag: Option<i64>,
    dashboard: Option<ReservedDashboardIds>,
}

impl ReservedIds {
    /// None yet, except for the id of a flag that is restored from an export.
    fn of(call: &Call) -> ReservedIds {
        let restored = call.restored.as_ref().and_then(|restored| i64::try_from(restored.id).ok());
        ReservedIds { flag: restored, dashboard: None }
    }
}

/// The new flag, and the writes of its usage dashboard if one was requested.
async fn apply(
    writer: &FlagWriter<'_>,
    input: &FlagInput,
    ids: &mut ReservedIds,
) -> ApiResult<(Flag, Vec<Write>)> {
    let (records, user) = (&writer.state.app.store.records, writer.access.caller.user());
    let id = match ids.flag {
        Some(id) => id,
        None => *ids.flag.insert(records.increment(&keys::counter(Counter::Flag), 1).await?),
    };
    let now = writer.access.write_time(writer.call.now);
    let mut flag = Flag::create(id, input, now, &user_ref(user)).map_err(validation_error)?;
    if let Some(restored) = &writer.call.restored {
        flag.usage_dashboard = restored.usage_dashboard;
        // A restored flag that was enabled before is not enabled anew.
        flag.performed_rollback = input.values.performed_rollback;
    }
    if input.should_create_usage_dashboard && ids.dashboard.is_none() {
        ids.dashboard = Some(ReservedDashboardIds::reserve(records).await?);
    }
    match &ids.dashboard {
        Some(dashboard) => Ok(dashboard.build(writer.project, &flag, user, now)?),
        None => Ok((flag, Vec::new())),
    }
}
