//! Event names of a project, with first and last time and count.

use std::collections::BTreeMap;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;

use super::DefinitionLists;
use crate::error::EventStoreError;
use crate::memory::QueryMemory;

/// Most distinct event names of a list.
pub const EVENT_NAMES_MAX: usize = 100_000;

/// An event name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventName {
    /// The name.
    pub name: String,
    /// The time of the earliest event.
    pub first: Micros,
    /// The time of the latest event.
    pub last: Micros,
    /// Number of events.
    pub events: u64,
}

/// The names collected so far.
#[derive(Debug, Default)]
struct EventNames(BTreeMap<String, (Micros, Micros, u64)>);

impl EventNames {
    /// Adds `events` events from `first` to `last`.
    fn add(
        &mut self,
        name: &str,
        (first, last): (Micros, Micros),
        events: u64,
        most: usize,
    ) -> Result<(), EventStoreError> {
        if let Some(known) = self.0.get_mut(name) {
            *known = (known.0.min(first), known.1.max(last), known.2 + events);
            return Ok(());
        }
        if self.0.len() >= most {
            return Err(EventStoreError::TooLarge(format!(
                "The project's events have more than {most} different names, too many to list."
            )));
        }
        self.0.insert(name.to_owned(), (first, last, events));
        Ok(())
    }
}

impl DefinitionLists {
    /// All event names of a project, ascending.
    ///
    /// [`EventStoreError::TooLarge`] above [`EVENT_NAMES_MAX`] names.
    pub(crate) async fn event_names(
        &self,
        project: ProjectId,
        memory: &QueryMemory,
    ) -> Result<Vec<EventName>, EventStoreError> {
        let (files, waiting) = self.footers_and_blocks(project, memory).await?;
        let mut names = EventNames::default();
        for file in files {
            for run in file.footer.ranges.iter().flat_map(|range| &range.runs) {
                let name = file.footer.names.get(run.name as usize).ok_or_else(|| {
                    file.named(EventStoreError::corrupt("a run of an event without a name"))
                })?;
                names.add(name, (run.min_time, run.max_time), run.rows.into(), EVENT_NAMES_MAX)?;
            }
        }
        for row in &waiting.rows {
            let at = row.event.timestamp;
            names.add(&row.event.event, (at, at), 1, EVENT_NAMES_MAX)?;
        }
        let name = |(name, (first, last, events))| EventName { name, first, last, events };
        Ok(names.0.into_iter().map(name).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_are_counted_up_to_the_limit() {
        let mut names = EventNames::default();
        names.add("a", (5, 9), 3, 2).unwrap();
        names.add("b", (1, 1), 1, 2).unwrap();
        names.add("a", (2, 6), 2, 2).unwrap();
        assert_eq!(names.0["a"], (2, 9, 5));
        assert_eq!(names.0["b"], (1, 1, 1));
        let refused = names.add("c", (1, 1), 1, 2).unwrap_err();
        assert!(refused.to_string().contains("more than 2 different names"), "{refused}");
    }
}
