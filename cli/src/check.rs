//! `pennon check`: verifies the checksums of all stored events.
//!
//! Must stay true: a check changes nothing but the quarantine of damaged segments; events are dropped only for a segment or
//! damaged block that the user named.

use chrono::{DateTime, Utc};
use pennon_eventstore::{CheckProgress, CheckReport as EventCheckReport, EventStore, Orphan};
use serde_json::{Value, json};

use crate::args::Check;

/// The result of a check.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// The segment or block that was dropped, and its project.
    pub dropped: Option<(u64, String)>,
    /// The results by project.
    pub projects: Vec<ProjectReport>,
}

/// The result of a check of one project.
#[derive(Debug)]
pub struct ProjectReport {
    project: u64,
    checked: EventCheckReport,
    orphans: Vec<Orphan>,
}

impl CheckReport {
    /// The number of damaged segments, imports and blocks.
    pub fn damaged(&self) -> usize {
        self.projects.iter().map(|report| report.checked.damaged.len()).sum()
    }

    /// The report as lines of text.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some((project, segment)) = &self.dropped {
            lines.push(format!("project {project}: {segment} was dropped, with all of its events"));
        }
        for report in &self.projects {
            push_checked(report.project, &report.checked, &mut lines);
            push_orphans(report.project, &report.orphans, &mut lines);
        }
        lines
    }

    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        let dropped = self.dropped.as_ref().map(|(project, id)| json!({"project": project, "id": id}));
        let projects: Vec<Value> = self.projects.iter().map(ProjectReport::to_json).collect();
        json!({"dropped": dropped, "damaged": self.damaged(), "projects": projects})
    }
}

impl ProjectReport {
    fn to_json(&self) -> Value {
        let EventCheckReport { objects, blocks, bytes, damaged, lifted, restored } = &self.checked;
        let damaged = damaged.iter().map(|damage| {
            let findings = damage.findings.iter();
            json!({
                "id": damage.id, "kind": damage.kind, "count": damage.events,
                "from": format_time(damage.from), "to": format_time(damage.to),
                "findings": findings.map(|it| json!({"object": it.object, "what": it.what})).collect::<Vec<_>>(),
            })
        });
        let orphans = self.orphans.iter().map(|orphan| {
            json!({"object": orphan.object, "bytes": orphan.bytes, "removed_after": orphan.removed_after.to_rfc3339()})
        });
        json!({
            "project": self.project, "objects": objects, "waiting_blocks": blocks, "bytes": bytes,
            "damaged": damaged.collect::<Vec<_>>(), "restored": restored, "lifted": lifted,
            "orphans": orphans.collect::<Vec<_>>(),
        })
    }
}

/// Checks the objects and waiting blocks of one project or of all, after dropping the segment or block of `--drop`.
pub async fn check(
    events: &EventStore,
    options: &Check,
    now: DateTime<Utc>,
    progress: &mut (dyn FnMut(CheckProgress) + Send),
) -> Result<CheckReport, String> {
    let failed = |e: pennon_eventstore::EventStoreError| e.to_string();
    let mut report = CheckReport::default();
    if let (Some(segment), Some(project)) = (&options.drop, options.project) {
        if !events.drop_segment(project, segment, now.timestamp_micros()).await.map_err(failed)? {
            return Err(format!("project {project} has no segment and no damaged block {segment}"));
        }
        report.dropped = Some((project, segment.clone()));
    }
    let projects = match options.project {
        Some(project) => vec![project],
        None => events.projects().await.map_err(failed)?,
    };
    for project in projects {
        let checked = events.check(project, options.lift, progress).await.map_err(failed)?;
        let orphans = events.orphans(project).await.map_err(failed)?;
        report.projects.push(ProjectReport { project, checked, orphans });
    }
    Ok(report)
}

fn push_checked(project: u64, checked: &EventCheckReport, lines: &mut Vec<String>) {
    let EventCheckReport { objects, blocks, bytes, .. } = checked;
    lines.push(format!(
        "project {project}: {objects} objects and {blocks} waiting blocks, {bytes} bytes have the checksums they were written with"
    ));
    for damage in &checked.damaged {
        let (from, to) = (format_time(damage.from), format_time(damage.to));
        let (kind, id, count) = (damage.kind, &damage.id, damage.events);
        lines.push(match kind {
            "block" => format!("project {project}: block {id} of events captured at {from} is damaged"),
            "merge row" => format!("project {project}: {id} is damaged"),
            _ => format!("project {project}: {count} {kind} from {from} to {to}, segment {id}, are damaged"),
        });
        for finding in &damage.findings {
            lines.push(format!("  {}: {}", finding.object, finding.what));
        }
        // Merges are also in the previous folded object, and cannot be dropped separately.
        lines.push(match kind {
            "merges" => "  compaction makes another object of the one before, where that is there; else put this one back \
                         and run `pennon check --lift`"
                .to_owned(),
            "merge row" => "  put the row of the records table back from a backup, or restore the backup".to_owned(),
            "block" => format!(
                "  put its rows of the blocks table back from a backup, or give its events up with `pennon check --project \
                 {project} --drop {id}`"
            ),
            _ => format!(
                "  put these objects back and run `pennon check --lift`, or give the {kind} up with `pennon check \
                 --project {project} --drop {id}`"
            ),
        });
    }
    for id in &checked.restored {
        lines.push(format!("project {project}: {id} was damaged and is intact again; `pennon check --lift` ends its quarantine"));
    }
    for id in &checked.lifted {
        lines.push(format!("project {project}: {id} is intact again"));
    }
}

/// Adds the lines of objects that no manifest references.
fn push_orphans(project: u64, orphans: &[Orphan], lines: &mut Vec<String>) {
    for Orphan { object, bytes, removed_after } in orphans {
        let day = removed_after.date_naive();
        lines.push(format!(
            "project {project}: {object}, {bytes} bytes, is in no list of segments and will be deleted on {day}"
        ));
    }
}

fn format_time(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros).map_or_else(|| micros.to_string(), |at| at.to_rfc3339())
}
