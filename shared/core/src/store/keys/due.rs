//! Notes of what is to be done from some instant on.
//!
//! Must stay true: notes lie in the order of their instants, so what is due comes first.

use chrono::{DateTime, Utc};

use super::ProjectId;
use crate::store::Key;

/// Partition of notes of what is to be done from some instant on.
pub const DUE: &str = "DUE";

/// What a note of [`DUE`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// The tiles of a deleted dashboard go.
    Dashboard {
        /// Its project.
        project: ProjectId,
        /// Its number.
        dashboard: u64,
    },
    /// The parts of a list of a static cohort go, which the cohort does not name.
    Members {
        /// Its project.
        project: ProjectId,
        /// The number of the cohort.
        cohort: u64,
    },
    /// The insights go that are on this deleted dashboard and on no other.
    Insights {
        /// Its project.
        project: ProjectId,
        /// Its number.
        dashboard: u64,
    },
}

/// The note that the tiles of a deleted dashboard go, from `at` on.
pub fn due_dashboard(at: DateTime<Utc>, project: ProjectId, dashboard: u64) -> Key {
    Key::new(DUE, format!("{}#DASHBOARD#{project}#{dashboard}", due_instant(at)))
}

/// The note that the insights of a deleted dashboard go, from `at` on.
pub fn due_insights(at: DateTime<Utc>, project: ProjectId, dashboard: u64) -> Key {
    Key::new(DUE, format!("{}#INSIGHTS#{project}#{dashboard}", due_instant(at)))
}

/// The note that the parts of one of a cohort's lists go, from `at` on.
pub fn due_members(at: DateTime<Utc>, project: ProjectId, cohort: u64, generation: u64) -> Key {
    Key::new(DUE, format!("{}#MEMBERS#{project}#{cohort}#{generation}", due_instant(at)))
}

/// What the note at `key` says.
pub fn due_of(key: &Key) -> Option<Due> {
    let mut parts = key.sk.split('#').skip(1);
    let (kind, project, id) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    match kind {
        "DASHBOARD" => Some(Due::Dashboard { project, dashboard: id }),
        "INSIGHTS" => Some(Due::Insights { project, dashboard: id }),
        "MEMBERS" => Some(Due::Members { project, cohort: id }),
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
            (due_dashboard(at, 1, 7), Due::Dashboard { project: 1, dashboard: 7 }),
            (due_insights(at, 2, 8), Due::Insights { project: 2, dashboard: 8 }),
            (due_members(at, 3, 9, u64::MAX), Due::Members { project: 3, cohort: 9 }),
        ] {
            assert_eq!(due_of(&key), Some(due));
            assert!(is_due(&key, at) && is_due(&key, at + second) && !is_due(&key, at - second));
            assert!(key.sk < due_dashboard(at + second, 0, 0).sk);
        }
        assert_eq!(due_of(&Key::new(DUE, "2026#OTHER#1#1")), None);
    }
}
