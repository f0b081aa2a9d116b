//! Loads the time of the last call of each flag (`$feature_flag_called` events): the stored calls of the project, which
//! compaction and imports write, plus the events that are not compacted yet.
//!
//! Must stay true: both are fetched in parallel with authorization when the path has the numeric project id; flags are
//! returned even when the events cannot be read.

use chrono::{DateTime, Utc};
use pennon_core::auth::Access;
use pennon_core::error::ApiResult;
use pennon_core::http::Call;
use pennon_core::store::keys::ProjectId;
use pennon_flag_rules::calls::CallsByKey;
use pennon_flag_rules::{CallTimes, Flag};

use crate::Flags;

/// Runs the authorization `access` and loads the call times of its project in parallel.
pub async fn authorize_with_call_times<T>(
    state: &Flags,
    call: &Call,
    access: impl Future<Output = ApiResult<(Access, T)>>,
) -> ApiResult<(Access, T, CallTimes)> {
    let path_project = call.id("project_id").filter(|_| call.credential().is_some());
    let prefetched = async {
        match path_project {
            Some(project) => Some(load_call_times(state, project, call.now).await),
            None => None,
        }
    };
    let (access, prefetched) = tokio::join!(access, prefetched);
    let (access, items) = access?;
    let calls = match prefetched.filter(|_| path_project == Some(access.project.id)) {
        Some(calls) => calls,
        None => load_call_times(state, access.project.id, call.now).await,
    };
    Ok((access, items, calls))
}

/// The call times of the project; none when they cannot be read.
async fn load_call_times(state: &Flags, project: ProjectId, now: DateTime<Utc>) -> CallTimes {
    match state.events.flag_calls(project).await {
        Ok(calls) => CallTimes::new(calls, now),
        Err(error) => {
            tracing::warn!(project, %error, "the times of flag calls could not be read; flags are returned without them");
            CallTimes::none()
        }
    }
}

/// Stores the pending calls of `flag` before its key changes: compaction attributes events to flags by key.
pub async fn store_pending_calls(
    state: &Flags,
    project: ProjectId,
    flag: &Flag,
    call_times: &mut CallTimes,
    now: DateTime<Utc>,
) -> ApiResult<()> {
    let Some(called_at) = call_times.pending_call(flag.id, &flag.key) else { return Ok(()) };
    let mut calls = CallsByKey::default();
    calls.add(&flag.key, called_at);
    state.events.store_flag_calls(project, &calls, now.timestamp_micros()).await?;
    call_times.advance(flag.id, called_at);
    Ok(())
}
