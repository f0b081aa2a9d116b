//! When flags were last called, as requests read it: the row of the project that compaction and imports write, and the
//! events that wait for compaction.
//!
//! Must stay true: both are read beside what authorizes the request where the path names the project by its number; flags are
//! answered even where events cannot be read.

use chrono::{DateTime, Utc};
use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::http::Call;
use pennon_core::store::keys::ProjectId;
use pennon_engine::flag::calls::CallsByKey;
use pennon_engine::flag::{CallTimes, Flag};

use crate::Flags;

/// What `access` comes to, and when the flags of its project were last called.
pub async fn with_calls<T>(
    state: &Flags,
    call: &Call,
    access: impl Future<Output = ApiResult<(Access, T)>>,
) -> ApiResult<(Access, T, CallTimes)> {
    let named = call.id("project_id").filter(|_| call.credential().is_some());
    let early = async {
        match named {
            Some(project) => Some(call_times(state, project, call.now).await),
            None => None,
        }
    };
    let (access, early) = tokio::join!(access, early);
    let (access, other) = access?;
    let calls = match early.filter(|_| named == Some(access.project.id)) {
        Some(calls) => calls,
        None => call_times(state, access.project.id, call.now).await,
    };
    Ok((access, other, calls))
}

/// When flags were last called; none were where that cannot be read.
async fn call_times(state: &Flags, project: ProjectId, now: DateTime<Utc>) -> CallTimes {
    match state.events.flag_calls(project).await {
        Ok(known) => CallTimes::new(known, now),
        Err(error) => {
            tracing::warn!(project, %error, "flags are answered without their calls, which could not be read");
            CallTimes::none()
        }
    }
}

/// Stores the waiting calls of `flag`, which is about to lose its key: what belongs to whom is found by the key when events
/// are compacted.
pub async fn keep_waiting_calls(
    state: &Flags,
    project: ProjectId,
    flag: &Flag,
    times: &mut CallTimes,
    now: DateTime<Utc>,
) -> ApiResult<()> {
    let Some(at) = times.waiting_of(flag.id, &flag.key) else { return Ok(()) };
    let mut calls = CallsByKey::default();
    calls.add(&flag.key, at);
    state.events.store_flag_calls(project, &calls, now.timestamp_micros()).await?;
    times.advance(flag.id, at);
    Ok(())
}
