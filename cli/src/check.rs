//! `pennon check`: is what is stored still what was written?
//!
//! Must stay true: a check changes nothing but what is noted of damage; events go only where a segment is named.

use chrono::{DateTime, Utc};
use pennon_eventstore::{CheckProgress, Checked, EventStore};

use crate::args::Check;

/// What a check tells.
#[derive(Debug, Default)]
pub struct Report {
    /// For people, a line each.
    pub lines: Vec<String>,
    /// How many segments and imports are damaged.
    pub damaged: usize,
}

/// Checks the objects of a project or of all, after dropping the segment that is to go.
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
            return Err(format!("project {project} has no segment {segment}"));
        }
        report.lines.push(format!("project {project}: segment {segment} is gone, with all that it held"));
    }
    let projects = match options.project {
        Some(project) => vec![project],
        None => events.projects().await.map_err(failed)?,
    };
    for project in projects {
        let checked = events.check(project, options.lift, progress).await.map_err(failed)?;
        report.damaged += checked.damaged.len();
        tell(project, &checked, &mut report.lines);
    }
    Ok(report)
}

fn tell(project: u64, checked: &Checked, lines: &mut Vec<String>) {
    let Checked { objects, bytes, .. } = checked;
    lines.push(format!("project {project}: {objects} objects, {bytes} bytes are what was written"));
    for found in &checked.damaged {
        let (from, to) = (instant(found.from), instant(found.to));
        let (kind, id, count) = (found.kind, &found.id, found.events);
        lines.push(format!(
            "project {project}: {count} {kind} from {from} to {to}, segment {id}, are damaged"
        ));
        for finding in &found.findings {
            lines.push(format!("  {}: {}", finding.object, finding.what));
        }
        // Merges are in the folding before too, and cannot be given up alone.
        lines.push(match kind {
            "merges" => "  compaction makes another object of the one before, where that is there; else put this one back \
                         and run `pennon check --lift`"
                .to_owned(),
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

fn instant(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros).map_or_else(|| micros.to_string(), |at| at.to_rfc3339())
}
