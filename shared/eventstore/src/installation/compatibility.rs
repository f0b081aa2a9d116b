//! Decides whether tables and objects belong together, as a pure function.
//!
//! Must stay true: every state that a killed process leaves behind passes; tables that are older than their
//! objects, or of another installation, do not.

use std::collections::BTreeMap;
use std::fmt;

use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::InstallationRow;
use crate::manifest::StoredMarks;

/// State of the tables.
#[derive(Debug, Clone, Default)]
pub(super) struct Tables {
    pub row: Option<InstallationRow>,
    /// Manifest versions.
    pub heads: BTreeMap<ProjectId, u64>,
    /// The tables were never written.
    pub is_empty: bool,
}

/// Existing data. Used only if the ids do not decide.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Inventory {
    /// Manifests list objects.
    pub lists_objects: bool,
    /// Objects of events exist.
    pub has_objects: bool,
}

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// They belong together.
    Matches(Uuid),
    /// The tables have an id that was not written to the object store yet.
    Complete(Uuid),
    /// Neither has one.
    Claim,
    /// They do not belong together.
    Refuse(Mismatch),
}

/// Why tables and objects do not belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// The tables are empty, and objects of events exist.
    EmptyTables,
    /// The tables have no id, but the objects do.
    NoId { events: Uuid },
    /// The tables have the id of another installation.
    Other { tables: Uuid, events: Uuid },
    /// The tables have an id, and the objects have no known installation.
    NoMark { tables: Uuid },
    /// The tables list objects, and none exist.
    NoObjects,
    /// The objects are of a newer state than the tables.
    OlderTables { project: ProjectId, tables: u64, events: u64 },
}

/// Compares `tables` with the marks of the objects.
pub(super) fn decide(tables: &Tables, marks: &StoredMarks, inventory: Inventory) -> Decision {
    let Inventory { lists_objects, has_objects } = inventory;
    let Some(row) = tables.row else {
        return match marks.ids.first() {
            Some(_) if tables.is_empty => Decision::Refuse(Mismatch::EmptyTables),
            Some(events) => Decision::Refuse(Mismatch::NoId { events: *events }),
            None if tables.is_empty && has_objects => Decision::Refuse(Mismatch::EmptyTables),
            None if lists_objects && !has_objects => Decision::Refuse(Mismatch::NoObjects),
            None => Decision::Claim,
        };
    };
    if let Some(other) = marks.ids.iter().find(|id| **id != row.id) {
        return Decision::Refuse(Mismatch::Other { tables: row.id, events: *other });
    }
    if marks.ids.is_empty() {
        return match (row.complete, lists_objects, has_objects) {
            // A claim was interrupted after the same comparison.
            (false, _, _) | (true, false, false) => Decision::Complete(row.id),
            (true, true, false) => Decision::Refuse(Mismatch::NoObjects),
            (true, _, true) => Decision::Refuse(Mismatch::NoMark { tables: row.id }),
        };
    }
    for (project, mark) in &marks.heads {
        let head = tables.heads.get(project).copied().unwrap_or(0);
        if head < *mark {
            let (project, events) = (*project, *mark);
            return Decision::Refuse(Mismatch::OlderTables { project, tables: head, events });
        }
    }
    if row.complete { Decision::Matches(row.id) } else { Decision::Complete(row.id) }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::EmptyTables => out.write_str(
                "the tables are empty although there are stored events: the database that belongs to these events is missing",
            )?,
            Mismatch::NoId { events } => write!(
                out,
                "the events are of installation {events} and the tables of none: they are a copy from before the events, or \
                 of another installation"
            )?,
            Mismatch::Other { tables, events } => {
                write!(out, "the tables are of installation {tables} and the events of installation {events}")?;
            }
            Mismatch::NoMark { tables } => write!(
                out,
                "the tables are of installation {tables}, and the stored events have no installation id: the folder \
                 `installation` beside them is missing"
            )?,
            Mismatch::NoObjects => {
                out.write_str("the tables list stored events, and there are none: the events folder or bucket is missing")?;
            }
            Mismatch::OlderTables { project, tables, events } => write!(
                out,
                "the tables are older than the events: the tables have version {tables} of the segments of project {project}, and the \
                 events have version {events}"
            )?,
        }
        out.write_str(
            ". Nothing was changed. Put back the tables and the events that belong together, restore a backup (`pennon \
             restore BACKUP --data NEW_DIRECTORY`), or name another directory with --data. To go on with these tables as they \
             are, run `pennon adopt`: it keeps all files that they do not know in the folder `kept`",
        )
    }
}

#[cfg(test)]
mod tests;
