//! A filtered, paged list of persons, newest first.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{PersonDetails, PersonLookup};
use crate::error::EventStoreError;
use crate::memory::QueryMemory;

/// A page of a list of persons.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PeoplePage {
    /// Number of matching persons on all pages.
    pub total: usize,
    /// The persons of the page.
    pub persons: Vec<PersonDetails>,
}

impl PersonLookup {
    /// Lists the persons that match `fits`, which gets the person id and the properties in `keys`: `limit`
    /// persons after the first `offset`, newest first. `is_due` is polled for the time limit.
    ///
    /// [`EventStoreError::TooLarge`] as for [`PersonLookup::people`]; [`EventStoreError::Contended`] at the time
    /// limit.
    pub(crate) async fn list_people(
        &self,
        project: ProjectId,
        keys: &BTreeSet<String>,
        mut fits: impl FnMut(Uuid, &Map<String, Value>) -> bool + Send + 'static,
        (offset, limit): (usize, usize),
        is_due: impl Fn() -> bool + Send + 'static,
        memory: &QueryMemory,
    ) -> Result<PeoplePage, EventStoreError> {
        let people = self.load_people(project, keys, memory).await?;
        let found = tokio::task::spawn_blocking(move || {
            let mut found: Vec<(Reverse<Option<Micros>>, Uuid)> = Vec::new();
            let mut in_time = true;
            people.each_one(|one| {
                if fits(one.id, one.properties) {
                    found.push((Reverse(one.created), one.id));
                }
                in_time = !is_due();
                if in_time { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            found.sort_unstable();
            if in_time { Ok(found) } else { Err(EventStoreError::Contended) }
        });
        let found = found.await??;
        let page: Vec<Uuid> = found.iter().skip(offset).take(limit).map(|(_, id)| *id).collect();
        Ok(PeoplePage { total: found.len(), persons: self.persons(project, &page).await? })
    }
}
