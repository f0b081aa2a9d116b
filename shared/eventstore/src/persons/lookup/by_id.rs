//! Lookup of some persons by id, with all their distinct ids and properties.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use pennon_analytics::scan::Micros;
use pennon_core::store::keys::ProjectId;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{PersonLookup, PersonsSnapshot};
use crate::error::EventStoreError;
use crate::event::arrival;
use crate::persons::imports::records::PersonsObject;
use crate::persons::profiles::changes::{ProfilePart, merged_properties};
use crate::persons::profiles::file::texts;

/// A person with all its data.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PersonDetails {
    /// Its canonical id.
    pub id: Uuid,
    /// Distinct ids: those of records first, then those of events by arrival.
    pub distinct_ids: Vec<String>,
    /// Its current properties.
    pub properties: Map<String, Value>,
    /// When it was first seen, from its records, or else the arrival of its first event.
    pub created_at: Option<Micros>,
    /// Whether a merge named it as the target, or it has several distinct ids. Iterations over all persons do not look it up:
    /// there it is false.
    pub is_identified: bool,
}

/// The data of an imported record.
struct RecordedPerson {
    distinct_ids: Vec<String>,
    properties: Map<String, Value>,
    created_at: Option<Micros>,
}

impl PersonLookup {
    /// Looks up the persons that these ids belong to now, in order and under these ids. An unknown person has no distinct ids.
    pub(crate) async fn persons(
        &self,
        project: ProjectId,
        requested: &[Uuid],
    ) -> Result<Vec<PersonDetails>, EventStoreError> {
        if requested.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.now(project, None).await?;
        // The ids may be of an earlier view, and merged since.
        let canonical =
            requested.iter().map(|id| now.merge_state.person_merges.person(*id)).collect::<Vec<_>>();
        let unique = canonical.iter().copied().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
        let found = self.persons_at(project, &now, &unique).await?;
        let found = found.into_iter().map(|person| (person.id, person)).collect::<HashMap<_, _>>();
        let of = |(id, canonical): (&Uuid, &Uuid)| {
            let person = found.get(canonical).cloned().unwrap_or_default();
            PersonDetails { id: *id, ..person }
        };
        Ok(requested.iter().zip(&canonical).map(of).collect())
    }

    /// Looks up the person that `id` belongs to. Both are of one view: if another one resolved the id, a merge between the two would show
    /// a part of a person that never was one by itself.
    pub(crate) async fn current_person(
        &self,
        project: ProjectId,
        id: Uuid,
    ) -> Result<PersonDetails, EventStoreError> {
        let now = self.now(project, None).await?;
        let canonical = now.merge_state.person_merges.person(id);
        let found = self.persons_at(project, &now, &[canonical]).await?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    /// As above, in the view `now`.
    async fn persons_at(
        &self,
        project: ProjectId,
        now: &PersonsSnapshot,
        requested: &[Uuid],
    ) -> Result<Vec<PersonDetails>, EventStoreError> {
        let (mut persons, identified) = futures::try_join!(
            self.persons_without_marks(project, now, requested),
            self.identified(project, now, requested)
        )?;
        persons.iter_mut().for_each(|person| person.is_identified = identified.contains(&person.id));
        Ok(persons)
    }

    /// As above, without looking up whether they are identified, which takes a read of the table for each person.
    pub(super) async fn persons_without_marks(
        &self,
        project: ProjectId,
        now: &PersonsSnapshot,
        requested: &[Uuid],
    ) -> Result<Vec<PersonDetails>, EventStoreError> {
        let ids_of = now.ids_of(requested);
        let all: BTreeSet<Uuid> = ids_of.values().flatten().copied().collect();
        let (profile, recorded) = futures::try_join!(
            self.profile_of(project, now, &all),
            self.recorded_persons(project, now, &all)
        )?;
        let owners: HashMap<Uuid, Uuid> =
            ids_of.iter().flat_map(|(person, ids)| ids.iter().map(|id| (*id, *person))).collect();
        let mut found: HashMap<Uuid, PersonDetails> = HashMap::new();
        let mut parts: HashMap<Uuid, BTreeMap<Uuid, ProfilePart>> = HashMap::new();
        for (id, recorded) in recorded {
            let Some(owner) = owners.get(&id) else { continue };
            let person = found.entry(*owner).or_default();
            person.distinct_ids.extend(recorded.distinct_ids);
            person.created_at = person.created_at.into_iter().chain(recorded.created_at).min();
            // The last record with a value wins.
            let part = parts
                .entry(*owner)
                .or_default()
                .entry(now.merge_state.imported_merges.person(id))
                .or_default();
            if !recorded.properties.is_empty() {
                part.base = recorded.properties;
            }
        }
        let mut of_events: Vec<_> = profile.ids.into_iter().collect();
        of_events.sort_by_key(|(_, recorded)| recorded.first);
        for (id, recorded) in of_events {
            let Some(owner) = owners.get(&id) else { continue };
            let person = found.entry(*owner).or_default();
            // By arrival, so the first one is the first of all.
            person.created_at = person.created_at.or(Some(arrival(recorded.first)));
            person.distinct_ids.push(recorded.distinct_id);
            let part = parts
                .entry(*owner)
                .or_default()
                .entry(now.merge_state.imported_merges.person(id))
                .or_default();
            part.changes.merge(recorded.changes);
        }
        let persons = requested.iter().map(|id| {
            let mut person = found.remove(id).unwrap_or_default();
            let mut seen = BTreeSet::new();
            person.distinct_ids.retain(|distinct_id| seen.insert(distinct_id.clone()));
            let ids = ids_of.get(id).cloned().unwrap_or_default();
            person.properties =
                merged_properties(&parts.remove(id).unwrap_or_default(), &now.merge_state.joined_of(&ids));
            PersonDetails { id: *id, ..person }
        });
        Ok(persons.collect())
    }

    /// Those of `persons` that are identified. Only these can have a second distinct id.
    async fn identified(
        &self,
        project: ProjectId,
        now: &PersonsSnapshot,
        persons: &[Uuid],
    ) -> Result<BTreeSet<Uuid>, EventStoreError> {
        let (linked, alone): (Vec<Uuid>, Vec<Uuid>) =
            persons.iter().copied().partition(|person| now.merge_state.person_merges.is_linked(*person));
        let found = self.log.are_identified(project, &alone).await?;
        let marked = alone.into_iter().zip(found).filter(|(_, is)| *is).map(|(person, _)| person);
        Ok(linked.into_iter().chain(marked).collect())
    }

    /// Reads the records of `ids`, oldest first.
    async fn recorded_persons(
        &self,
        project: ProjectId,
        now: &PersonsSnapshot,
        ids: &BTreeSet<Uuid>,
    ) -> Result<Vec<(Uuid, RecordedPerson)>, EventStoreError> {
        let mut all = Vec::new();
        for object in self.imports.persons_objects(project, &now.manifest).await? {
            let (requested, searched) = (ids.clone(), object.clone());
            let found = tokio::task::spawn_blocking(move || {
                let records = searched.records().enumerate();
                let own = records
                    .filter_map(|(row, of)| Some((row, *of.iter().find(|id| requested.contains(id))?)));
                own.collect::<Vec<_>>()
            });
            let found = found.await?;
            let rows = found.iter().map(|(row, _)| *row).collect::<Vec<_>>();
            let recorded = self.recorded_persons_in(&object, &rows).await?;
            all.extend(found.into_iter().map(|(_, id)| id).zip(recorded));
        }
        Ok(all)
    }

    /// Reads records `rows` (ascending) of `object`.
    async fn recorded_persons_in(
        &self,
        object: &PersonsObject,
        rows: &[usize],
    ) -> Result<Vec<RecordedPerson>, EventStoreError> {
        let mut recorded = Vec::new();
        for (group, selection) in object.selections(rows) {
            let columns = ["distinct_ids", "properties", "created_at"];
            let decoded = object.file.decode(group, Some(selection), &columns).await?;
            for batch in decoded.batches {
                let (distinct_ids, properties) =
                    (texts(&batch, "distinct_ids")?, texts(&batch, "properties")?);
                let created = batch.column_by_name("created_at");
                let created =
                    created.and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
                for row in 0..batch.num_rows() {
                    recorded.push(RecordedPerson {
                        distinct_ids: serde_json::from_str(distinct_ids.value(row))?,
                        properties: serde_json::from_str(properties.value(row))?,
                        created_at: created.filter(|times| times.is_valid(row)).map(|times| times.value(row)),
                    });
                }
            }
        }
        Ok(recorded)
    }
}

impl PersonsSnapshot {
    /// All ids of each of some persons.
    fn ids_of(&self, persons: &[Uuid]) -> BTreeMap<Uuid, BTreeSet<Uuid>> {
        persons.iter().map(|person| (*person, self.merge_state.person_merges.members(*person))).collect()
    }
}
