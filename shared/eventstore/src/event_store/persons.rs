//! Persons and groups: imports and lookups.

use std::collections::BTreeSet;

use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::EventStore;
use crate::error::EventStoreError;
use crate::memory::QueryMemory;
use crate::persons::{
    EvaluationSubject, Group, GroupColumns, GroupRecord, GroupType, People, PeoplePage, PersonColumns,
    PersonDetails, PersonRecord, PersonScan, WaitingBlocks,
};
use crate::snapshots::CanonicalPersons;

impl EventStore {
    /// Imports persons. Their events count as theirs at once, including earlier and captured ones.
    pub async fn add_persons(
        &self,
        project: ProjectId,
        persons: Vec<PersonRecord>,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        self.components.imports.add_persons(project, persons, now).await
    }

    /// As [`EventStore::add_persons`], for persons in columns.
    pub async fn add_person_columns(
        &self,
        persons: PersonColumns,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        self.components.imports.add_person_columns(persons, now).await
    }

    /// Imports groups.
    pub async fn add_groups(
        &self,
        project: ProjectId,
        groups: Vec<GroupRecord>,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        self.components.imports.add_groups(project, groups, now).await
    }

    /// As [`EventStore::add_groups`], for groups in columns.
    pub async fn add_group_columns(
        &self,
        project: ProjectId,
        groups: GroupColumns,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        self.components.imports.add_group_columns(project, groups, now).await
    }

    /// All imported groups, by type index and key.
    pub async fn groups(&self, project: ProjectId) -> Result<Vec<GroupRecord>, EventStoreError> {
        self.components.imports.groups(project).await
    }

    /// The canonical persons as of now, for many lookups.
    pub async fn canonical_persons(&self, project: ProjectId) -> Result<CanonicalPersons, EventStoreError> {
        self.components.snapshots.canonical_persons(project).await
    }

    /// The canonical person of a distinct id.
    pub async fn person_of(&self, project: ProjectId, distinct_id: &str) -> Result<Uuid, EventStoreError> {
        self.components.snapshots.person_of(project, distinct_id).await
    }

    /// Prefetches the waiting blocks if they are few, before it is known whether they are needed.
    pub async fn waiting_blocks_if_few(
        &self,
        project: ProjectId,
    ) -> Result<Option<WaitingBlocks>, EventStoreError> {
        self.components.lookup.waiting_blocks_if_few(project).await
    }

    /// The ids of the person of `distinct_id` from the cache alone. A prefetch by these ids is valid if
    /// [`EventStore::subject`] returns no others.
    pub async fn cached_person_ids(
        &self,
        project: ProjectId,
        distinct_id: &str,
    ) -> Result<BTreeSet<Uuid>, EventStoreError> {
        self.components.lookup.cached_person_ids(project, distinct_id).await
    }

    /// The person of `distinct_id` and the groups with these keys. `waiting_blocks` is the result of
    /// [`EventStore::waiting_blocks_if_few`].
    pub async fn subject(
        &self,
        project: ProjectId,
        distinct_id: &str,
        groups: &[(GroupType, String)],
        waiting_blocks: Option<WaitingBlocks>,
    ) -> Result<EvaluationSubject, EventStoreError> {
        self.components.lookup.subject(project, distinct_id, groups, waiting_blocks).await
    }

    /// As [`EventStore::subject`]; without `with_properties` only the ids of the person are read.
    pub async fn subject_parts(
        &self,
        project: ProjectId,
        distinct_id: &str,
        with_properties: bool,
        groups: &[(GroupType, String)],
        waiting_blocks: Option<WaitingBlocks>,
    ) -> Result<EvaluationSubject, EventStoreError> {
        self.components
            .lookup
            .subject_parts(project, distinct_id, with_properties, groups, waiting_blocks)
            .await
    }

    /// Looks up the persons that these ids belong to now, in order and under these ids. An unknown person has no distinct ids.
    pub async fn persons(
        &self,
        project: ProjectId,
        requested: &[Uuid],
    ) -> Result<Vec<PersonDetails>, EventStoreError> {
        self.components.lookup.persons(project, requested).await
    }

    /// Looks up the person that `id` belongs to now, after all merges. An unknown person has no distinct ids.
    pub async fn current_person(
        &self,
        project: ProjectId,
        id: Uuid,
    ) -> Result<PersonDetails, EventStoreError> {
        self.components.lookup.current_person(project, id).await
    }

    /// The groups of a type by key, with the properties in `keys`.
    ///
    /// [`EventStoreError::TooLarge`] when there are more than [`GROUPS_MAX`] rows of group data.
    pub async fn groups_of(
        &self,
        project: ProjectId,
        group_type: &GroupType,
        keys: &BTreeSet<String>,
    ) -> Result<Vec<Group>, EventStoreError> {
        self.load_groups(project, group_type, Some(keys), &self.query_memory()).await
    }

    /// The groups of a type by key, with the properties in `keys`, or all. Their memory stays reserved from `memory` until
    /// the query ends.
    pub async fn load_groups(
        &self,
        project: ProjectId,
        group_type: &GroupType,
        keys: Option<&BTreeSet<String>>,
        memory: &QueryMemory,
    ) -> Result<Vec<Group>, EventStoreError> {
        self.components.lookup.load_groups(project, group_type, keys, memory).await
    }

    /// The groups of a type by key, with all properties.
    pub async fn load_groups_with_all_properties(
        &self,
        project: ProjectId,
        group_type: &GroupType,
    ) -> Result<Vec<Group>, EventStoreError> {
        self.load_groups(project, group_type, None, &self.query_memory()).await
    }

    /// As above, for a command: refused above five million rows.
    pub async fn load_groups_for_export(
        &self,
        project: ProjectId,
        group_type: &GroupType,
    ) -> Result<Vec<Group>, EventStoreError> {
        self.components.lookup.load_groups_for_export(project, group_type).await
    }

    /// The properties of the groups with these keys, in order; an unknown group has none.
    pub async fn load_group_properties(
        &self,
        project: ProjectId,
        groups: &[(GroupType, String)],
    ) -> Result<Vec<Map<String, Value>>, EventStoreError> {
        self.components.lookup.load_group_properties(project, groups).await
    }

    /// Lists the persons that match `fits`, which gets the person id and the properties in `keys`: `limit`
    /// persons after the first `offset`, newest first. `is_due` is polled for the time limit.
    ///
    /// [`EventStoreError::TooLarge`] as for [`EventStore::people`]; [`EventStoreError::Contended`] at the time
    /// limit.
    pub async fn list_people(
        &self,
        project: ProjectId,
        keys: &BTreeSet<String>,
        fits: impl FnMut(Uuid, &Map<String, Value>) -> bool + Send + 'static,
        (offset, limit): (usize, usize),
        is_due: impl Fn() -> bool + Send + 'static,
    ) -> Result<PeoplePage, EventStoreError> {
        self.components
            .lookup
            .list_people(project, keys, fits, (offset, limit), is_due, &self.query_memory())
            .await
    }

    /// Counts the persons of a project.
    ///
    /// [`EventStoreError::TooLarge`] above five million.
    pub async fn count_people(&self, project: ProjectId) -> Result<u64, EventStoreError> {
        self.components.lookup.count_people(project).await
    }

    /// Starts an iteration for [`EventStore::next_person_page`].
    ///
    /// [`EventStoreError::TooLarge`] above five million.
    pub async fn scan_all_persons(&self, project: ProjectId) -> Result<PersonScan, EventStoreError> {
        self.components.lookup.scan_all_persons(project).await
    }

    /// The next page; empty at the end.
    pub async fn next_person_page(
        &self,
        every: &mut PersonScan,
    ) -> Result<Vec<PersonDetails>, EventStoreError> {
        self.components.lookup.next_person_page(every).await
    }

    /// All persons of a project, with the properties in `keys`.
    ///
    /// [`EventStoreError::TooLarge`] when there are more than [`PEOPLE_MAX`], or their values take more than
    /// [`VALUES_BYTES_MAX`].
    pub async fn people(
        &self,
        project: ProjectId,
        keys: &BTreeSet<String>,
    ) -> Result<People, EventStoreError> {
        self.load_people(project, keys, &self.query_memory()).await
    }

    /// As [`EventStore::people`], within the memory of a query.
    pub async fn load_people(
        &self,
        project: ProjectId,
        keys: &BTreeSet<String>,
        memory: &QueryMemory,
    ) -> Result<People, EventStoreError> {
        self.components.lookup.load_people(project, keys, memory).await
    }

    /// The creation times of persons that imports recorded, ascending by canonical person id.
    pub async fn imported_creations(
        &self,
        project: ProjectId,
        memory: &QueryMemory,
    ) -> Result<Vec<(Uuid, Micros)>, EventStoreError> {
        self.components.lookup.imported_creations(project, memory).await
    }

    /// As above, with all properties.
    pub async fn load_people_with_all_properties(
        &self,
        project: ProjectId,
        memory: &QueryMemory,
    ) -> Result<People, EventStoreError> {
        self.components.lookup.load_people_with_all_properties(project, memory).await
    }
}
