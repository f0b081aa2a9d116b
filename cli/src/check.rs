//! `pennon check`: is what is stored still what was written?
//!
//! Must stay true: a check changes nothing but what is noted of damage; events go only where a segment or a damaged block is
//! named.

use chrono::{DateTime, Utc};
use pennon_eventstore::{CheckProgress, Checked, EventStore, Orphan};
use serde_json::{Value, json};

use crate::args::Check;

/// What a check found.
#[derive(Debug, Default)]
pub struct Report {
    /// The segment or block that was given up, and its project.
    pub dropped: Option<(u64, String)>,
    /// What was found of each project.
    pub projects: Vec<ProjectReport>,
}

/// What a check found of a project.
#[derive(Debug)]
pub struct ProjectReport {
    project: u64,
    checked: Checked,
    orphans: Vec<Orphan>,
}

impl Report {
    /// How many segments, imports and blocks are damaged.
    pub fn damaged(&self) -> usize {
        self.projects.iter().map(|of| of.checked.damaged.len()).sum()
    }

    /// For people, a line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some((project, segment)) = &self.dropped {
            lines.push(format!("project {project}: {segment} is gone, with all that it held"));
        }
        for of in &self.projects {
            list_checked(of.project, &of.checked, &mut lines);
            list_orphans(of.project, &of.orphans, &mut lines);
        }
        lines
    }

    /// The same for programs.
    pub fn to_json(&self) -> Value {
        let dropped = self.dropped.as_ref().map(|(project, id)| json!({"project": project, "id": id}));
        let projects: Vec<Value> = self.projects.iter().map(ProjectReport::to_json).collect();
        json!({"dropped": dropped, "damaged": self.damaged(), "projects": projects})
    }
}

impl ProjectReport {
    fn to_json(&self) -> Value {
        let Checked { objects, blocks, bytes, damaged, lifted, restored } = &self.checked;
        let damaged = damaged.iter().map(|found| {
            let findings = found.findings.iter();
            json!({
                "id": found.id, "kind": found.kind, "count": found.events,
                "from": instant(found.from), "to": instant(found.to),
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

/// Checks the objects and waiting blocks of a project or of all, after dropping the segment or block that is to go.
pub async fn check(
    events: &EventStore,
    options: &Check,
    now: DateTime<Utc>,
    progress: &mut (dyn FnMut(CheckProgress) + Send),
) -> Result<Report, String> {
    let failed = |e: pennon_eventstore::EventStoreError| e.to_string();
    let mut report = Report::default();
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

fn list_checked(project: u64, checked: &Checked, lines: &mut Vec<String>) {
    let Checked { objects, blocks, bytes, .. } = checked;
    lines.push(format!(
        "project {project}: {objects} objects and {blocks} waiting blocks, {bytes} bytes are what was written"
    ));
    for found in &checked.damaged {
        let (from, to) = (instant(found.from), instant(found.to));
        let (kind, id, count) = (found.kind, &found.id, found.events);
        lines.push(match kind {
            "block" => format!("project {project}: block {id} of events captured at {from} is damaged"),
            "merge row" => format!("project {project}: {id} is damaged"),
            _ => format!("project {project}: {count} {kind} from {from} to {to}, segment {id}, are damaged"),
        });
        for finding in &found.findings {
            lines.push(format!("  {}: {}", finding.object, finding.what));
        }
        // Merges are in the folding before too, and cannot be given up alone.
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
        lines.push(format!("project {project}: {id} was damaged and is whole again; `--lift` says so"));
    }
    for id in &checked.lifted {
        lines.push(format!("project {project}: {id} is whole again"));
    }
}

/// Lists the objects that no manifest named.
fn list_orphans(project: u64, orphans: &[Orphan], lines: &mut Vec<String>) {
    for Orphan { object, bytes, removed_after } in orphans {
        let day = removed_after.date_naive();
        lines.push(format!(
            "project {project}: {object}, {bytes} bytes, is in no list of segments and goes on {day}"
        ));
    }
}

fn instant(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros).map_or_else(|| micros.to_string(), |at| at.to_rfc3339())
}
