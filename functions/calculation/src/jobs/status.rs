//! What callers are told of a calculation: `query_status`.

use chrono::{DateTime, Utc};
use pennon_core::clock::timestamp;
use pennon_core::store::keys::ProjectId;
use serde_json::{Value, json};

use super::state::{Failure, LIFETIME, Progress, Seen};

/// The status of a calculation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// By which name it is asked for.
    pub id: String,
    /// When it was asked for.
    pub start_time: DateTime<Utc>,
    /// When somebody began to calculate.
    pub pickup_time: Option<DateTime<Utc>>,
    /// When it ended, well or badly.
    pub end_time: Option<DateTime<Utc>>,
    /// Why there is no result, where it has failed.
    pub failure: Option<Failure>,
    /// The number of the calculation, where it is one in the background.
    pub task_id: Option<String>,
    /// How far it is.
    pub progress: Option<Progress>,
}

impl Status {
    pub(crate) fn of(id: String, seen: Seen) -> Status {
        let (end_time, failure) = seen.end.map_or((None, None), |end| (Some(end.at), end.failure));
        Status {
            id,
            start_time: seen.start_time,
            pickup_time: seen.pickup_time,
            end_time,
            failure,
            task_id: Some(seen.generation.to_string()),
            progress: seen.progress,
        }
    }

    /// Of a calculation that failed at once.
    pub fn failed(id: String, failure: Failure, now: DateTime<Utc>) -> Status {
        Status {
            id,
            start_time: now,
            pickup_time: Some(now),
            end_time: Some(now),
            failure: Some(failure),
            task_id: None,
            progress: None,
        }
    }

    /// Why there is no result, where that may be told.
    pub fn failed_with(self) -> Option<String> {
        self.failure?.message
    }

    /// As answers show it.
    pub fn shown(&self, project: ProjectId, insight: Option<u64>, dashboard: Option<u64>) -> Value {
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
            "expiration_time": self.end_time.map(|end| timestamp(end + LIFETIME)),
            "task_id": self.task_id,
            "query_progress": self.progress,
            "labels": null,
        })
    }
}
