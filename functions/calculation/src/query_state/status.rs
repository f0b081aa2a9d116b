//! The status of a background calculation in responses: `query_status`.

use chrono::{DateTime, Utc};
use pennon_core::clock::timestamp;
use pennon_core::store::keys::ProjectId;
use serde_json::{Value, json};

use super::state::{Failure, QueryProgress, RunSummary, STATUS_TTL};

/// The status of a calculation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryStatus {
    /// The id by which clients poll it.
    pub id: String,
    /// When it was requested.
    pub start_time: DateTime<Utc>,
    /// When a worker began to calculate.
    pub pickup_time: Option<DateTime<Utc>>,
    /// When it ended, with a result or a failure.
    pub end_time: Option<DateTime<Utc>>,
    /// Why there is no result, if it has failed.
    pub failure: Option<Failure>,
    /// Generation of the background calculation, if it is one.
    pub task_id: Option<String>,
    /// How far it is.
    pub progress: Option<QueryProgress>,
}

impl QueryStatus {
    pub(crate) fn new(id: String, run: RunSummary) -> QueryStatus {
        let (end_time, failure) = run.end.map_or((None, None), |end| (Some(end.at), end.failure));
        QueryStatus {
            id,
            start_time: run.start_time,
            pickup_time: run.pickup_time,
            end_time,
            failure,
            task_id: Some(run.generation.to_string()),
            progress: run.progress,
        }
    }

    /// The status of a calculation that failed before it was started.
    pub fn failed(id: String, failure: Failure, now: DateTime<Utc>) -> QueryStatus {
        QueryStatus {
            id,
            start_time: now,
            pickup_time: Some(now),
            end_time: Some(now),
            failure: Some(failure),
            task_id: None,
            progress: None,
        }
    }

    /// Why there is no result, where clients may see it.
    pub fn into_error_message(self) -> Option<String> {
        self.failure?.message
    }

    /// The `query_status` of a response.
    pub fn to_json(&self, project: ProjectId, insight: Option<u64>, dashboard: Option<u64>) -> Value {
        json!({
            "id": self.id,
            "team_id": project,
            "insight_id": insight,
            "dashboard_id": dashboard,
            "query_async": true,
            "complete": self.end_time.is_some(),
            "error": self.failure.is_some(),
            "error_message": self.failure.as_ref().and_then(|failure| failure.message.as_ref()),
            "results": null,
            "start_time": timestamp(self.start_time),
            "pickup_time": self.pickup_time.map(timestamp),
            "end_time": self.end_time.map(timestamp),
            "expiration_time": self.end_time.map(|end| timestamp(end + STATUS_TTL)),
            "task_id": self.task_id,
            "query_progress": self.progress,
            "labels": null,
        })
    }
}
