//! Which data an erasure removes.

use std::collections::BTreeSet;
use std::sync::Arc;

use pennon_analytics::scan::Micros;
use uuid::Uuid;

use crate::event::PersonEvent;
use crate::manifest::SegmentEntry;
use crate::persons::PersonMerges;
use crate::persons::merge_log::PersonMerge;

/// Selects the data to erase.
#[derive(Debug, Clone, Default)]
pub(crate) struct ErasureFilter {
    /// All data of these persons, by canonical id or by the id in a segment.
    pub persons: Arc<BTreeSet<Uuid>>,
    /// Events before this instant.
    pub before: Option<Micros>,
    /// All data of the project.
    pub everything: bool,
}

impl ErasureFilter {
    /// Whether all events of a segment are erased.
    pub(crate) fn covers(&self, entry: &SegmentEntry) -> bool {
        self.everything || self.before.is_some_and(|before| entry.max_time < before)
    }

    /// Whether the person of a distinct id is erased.
    pub(crate) fn takes(&self, person: Uuid) -> bool {
        self.everything || self.persons.contains(&person)
    }

    /// Whether a merge is erased because it names an erased person.
    pub(crate) fn names_merge(&self, merged: &PersonMerge) -> bool {
        self.takes(merged.link.from) || self.takes(merged.link.to)
    }

    /// Whether persons are erased, and not only events.
    pub(crate) fn is_of_persons(&self) -> bool {
        self.everything || !self.persons.is_empty()
    }

    /// Whether an event is erased.
    pub(crate) fn names(&self, row: &PersonEvent, person_merges: &PersonMerges) -> bool {
        let person = [row.person, person_merges.person(row.person)].iter().any(|id| self.takes(*id));
        person || self.before.is_some_and(|before| row.event.timestamp < before)
    }
}
