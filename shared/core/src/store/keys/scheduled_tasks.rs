//! Scheduled clean-up tasks, which the worker runs from a given instant on.
//!
//! Must stay true: rows are sorted by their instants, so that due tasks come first.

use chrono::{DateTime, Utc};

use super::ProjectId;
use crate::store::Key;

/// The partition of scheduled tasks.
pub const SCHEDULED_TASKS: &str = "DUE";

/// A task of [`SCHEDULED_TASKS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduledTask {
    /// Delete the tiles of a deleted dashboard.
    RemoveDashboardTiles {
        /// The project.
        project: ProjectId,
        /// The dashboard's id.
        dashboard: u64,
    },
    /// Delete the unreferenced parts of a static cohort's member list.
    RemoveCohortMembers {
        /// The project.
        project: ProjectId,
        /// The cohort's id.
        cohort: u64,
    },
    /// Delete the insights that are only on this deleted dashboard.
    RemoveDashboardInsights {
        /// The project.
        project: ProjectId,
        /// The dashboard's id.
        dashboard: u64,
    },
}

/// The task to delete a dashboard's tiles from `at` on.
pub fn dashboard_tiles_task(at: DateTime<Utc>, project: ProjectId, dashboard: u64) -> Key {
    Key::new(SCHEDULED_TASKS, format!("{}#DASHBOARD#{project}#{dashboard}", format_instant(at)))
}

/// The task to delete a dashboard's insights from `at` on.
pub fn dashboard_insights_task(at: DateTime<Utc>, project: ProjectId, dashboard: u64) -> Key {
    Key::new(SCHEDULED_TASKS, format!("{}#INSIGHTS#{project}#{dashboard}", format_instant(at)))
}

/// The task to delete the parts of one generation of a cohort's member list from `at` on.
pub fn cohort_members_task(at: DateTime<Utc>, project: ProjectId, cohort: u64, generation: u64) -> Key {
    Key::new(SCHEDULED_TASKS, format!("{}#MEMBERS#{project}#{cohort}#{generation}", format_instant(at)))
}

/// Parses the task at `key`; `None` for an unknown kind.
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

/// Whether the task at `key` is due at `now`.
pub fn is_due(key: &Key, now: DateTime<Utc>) -> bool {
    key.sk.split('#').next().is_some_and(|at| *at <= *format_instant(now))
}

fn format_instant(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%S%.6f").to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tasks_round_trip_and_are_due_from_their_instant_on() {
        let at: DateTime<Utc> = "2026-01-05T10:00:00Z".parse().unwrap();
        let second = chrono::Duration::seconds(1);
        for (key, task) in [
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
            assert_eq!(parse_scheduled_task(&key), Some(task));
            assert!(is_due(&key, at) && is_due(&key, at + second) && !is_due(&key, at - second));
            assert!(key.sk < dashboard_tiles_task(at + second, 0, 0).sk);
        }
        assert_eq!(parse_scheduled_task(&Key::new(SCHEDULED_TASKS, "2026#OTHER#1#1")), None);
    }
}
