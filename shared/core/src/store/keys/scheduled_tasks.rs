//! Notes of what is to be done from some instant on.
//!
//! Must stay true: notes lie in the order of their instants, so what is due comes first.

use chrono::{DateTime, Utc};

use super::ProjectId;
use crate::store::Key;

/// Partition of notes of what is to be done from some instant on.
pub const SCHEDULED_TASKS: &str = "DUE";

/// What a note of [`SCHEDULED_TASKS`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduledTask {
    /// The tiles of a deleted dashboard go.
    RemoveDashboardTiles {
        /// Its project.
        project: ProjectId,
        /// Its number.
        dashboard: u64,
    },
    /// The parts of a list of a static cohort go, which the cohort does not name.
    RemoveCohortMembers {
        /// Its project.
        project: ProjectId,
        /// The number of the cohort.
        cohort: u64,
    },
    /// The insights go that are on this deleted dashboard and on no other.
    RemoveDashboardInsights {
        /// Its project.
        project: ProjectId,
        /// Its number.
        dashboard: u64,
    },
}

/// The note that the tiles of a deleted dashboard go, from `at` on.
pub fn dashboard_tiles_task(at: DateTime<Utc>, project: ProjectId, dashboard: u64) -> Key {
    Key::new(SCHEDULED_TASKS, format!("{}#DASHBOARD#{project}#{dashboard}", due_instant(at)))
}

/// The note that the insights of a deleted dashboard go, from `at` on.
pub fn dashboard_insights_task(at: DateTime<Utc>, project: ProjectId, dashboard: u64) -> Key {
    Key::new(SCHEDULED_TASKS, format!("{}#INSIGHTS#{project}#{dashboard}", due_instant(at)))
}

/// The note that the parts of one of a cohort's lists go, from `at` on.
pub fn cohort_members_task(at: DateTime<Utc>, project: ProjectId, cohort: u64, generation: u64) -> Key {
    Key::new(SCHEDULED_TASKS, format!("{}#MEMBERS#{project}#{cohort}#{generation}", due_instant(at)))
}

/// What the note at `key` says.
pub fn parse_scheduled_task(key: &Key) -> Option<ScheduledTask> {
    let mut parts = key.sk.split('#').skip(1);
    let (kind, project, id) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    match kind {
        "DASHBOARD" => Some(ScheduledTask::RemoveDashboardTiles { project, dashboard: id }),
        "INSIGHTS" => Some(ScheduledTask::RemoveDashboardInsights { project, dashboard: id }),
        "MEMBERS" => Some(ScheduledTask::RemoveCohortMembers { project, cohort: id }),
        _ => None,
    }
}

/// Whether the instant of the note at `key` has come.
pub fn is_due(key: &Key, now: DateTime<Utc>) -> bool {
    key.sk.split('#').next().is_some_and(|at| *at <= *due_instant(now))
}

fn due_instant(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%S%.6f").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_note_says_what_it_is_about_and_is_due_from_its_instant_on() {
        let at: DateTime<Utc> = "2026-01-05T10:00:00Z".parse().unwrap();
        let second = chrono::Duration::seconds(1);
        for (key, due) in [
            (
                dashboard_tiles_task(at, 1, 7),
                ScheduledTask::RemoveDashboardTiles { project: 1, dashboard: 7 },
            ),
            (
                dashboard_insights_task(at, 2, 8),
                ScheduledTask::RemoveDashboardInsights { project: 2, dashboard: 8 },
            ),
            (
                cohort_members_task(at, 3, 9, u64::MAX),
                ScheduledTask::RemoveCohortMembers { project: 3, cohort: 9 },
            ),
        ] {
            assert_eq!(parse_scheduled_task(&key), Some(due));
            assert!(is_due(&key, at) && is_due(&key, at + second) && !is_due(&key, at - second));
            assert!(key.sk < dashboard_tiles_task(at + second, 0, 0).sk);
        }
        assert_eq!(parse_scheduled_task(&Key::new(SCHEDULED_TASKS, "2026#OTHER#1#1")), None);
    }
}
