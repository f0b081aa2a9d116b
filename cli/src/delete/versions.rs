//! `pennon delete --versions`: deletes the old versions that a bucket keeps of replaced and deleted objects.
//!
//! Must stay true: no object that a query may read is deleted; objects and files of replaced tables are swept first, so that an
//! erasure from more than ten minutes ago is covered as a whole.

use chrono::{DateTime, TimeDelta, Utc};
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{EventStore, GRACE_MICROS, VersionReport};
use pennon_iceberg::TablePublisher;
use serde_json::{Value, json};

/// The old versions that a command line requests to delete: of one project, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldVersions {
    /// The project; `None` for all.
    pub project: Option<ProjectId>,
}

impl OldVersions {
    /// Counts the old versions, and with `removes` deletes them. `now` is the current time; `progress` gets the counts so far.
    pub async fn remove(
        &self,
        events: &EventStore,
        removes: bool,
        now: DateTime<Utc>,
        progress: &(dyn Fn(VersionReport) + Sync),
    ) -> Result<VersionReport, String> {
        let failed = |e: pennon_eventstore::EventStoreError| e.to_string();
        if removes {
            let all = events.projects().await.map_err(failed)?;
            let projects = all.into_iter().filter(|id| self.project.is_none_or(|project| project == *id));
            let tables = TablePublisher::new(events.clone());
            for project in projects {
                events.sweep(project, now.timestamp_micros()).await.map_err(failed)?;
                tables.remove_replaced(project, now.timestamp_micros()).await.map_err(failed)?;
            }
        }
        let report = events.remove_old_versions(self.project, removes, progress).await.map_err(failed)?;
        report.ok_or_else(|| "the events are in a directory, which keeps no versions".to_owned())
    }

    /// The counts as a line of text.
    pub fn describe(&self, report: &VersionReport) -> String {
        let VersionReport { versions, bytes } = report;
        let place = self.project.map_or_else(|| "all projects".to_owned(), |id| format!("project {id}"));
        format!("{place}: {versions} old versions of objects, {bytes} bytes")
    }

    /// The counts as JSON.
    pub fn to_json(&self, report: &VersionReport, now: DateTime<Utc>) -> Value {
        json!({
            "project": self.project, "versions": report.versions, "bytes": report.bytes,
            "complete_for_erasures_before": complete_before(now).to_rfc3339(),
        })
    }
}

/// Erasures before this instant have left nothing but old versions, at `now`.
pub fn complete_before(now: DateTime<Utc>) -> DateTime<Utc> {
    now - TimeDelta::microseconds(GRACE_MICROS)
}
