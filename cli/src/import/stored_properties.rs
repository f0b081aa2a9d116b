//! Merges the properties of persons and groups of a file with the stored ones: a file sets only the properties that it has, and
//! the others stay.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pennon_eventstore::{EventStore, EventStoreError, GroupRecord, PersonRecord, derive_person_id};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::people::FoldedPeople;

/// Persons that are read from the store at once.
const READ_BATCH: usize = 10_000;

/// Adds the stored properties that the file does not set to the persons and groups of `people`. `report` is called with the
/// number of persons and groups that are done.
pub(super) async fn merge_with_stored(
    store: &EventStore,
    people: &mut FoldedPeople,
    report: &mut dyn FnMut(u64),
) -> Result<(), EventStoreError> {
    let mut done = 0;
    for part in people.persons.chunk_by_mut(|a, b| a.0 == b.0) {
        let Some(project) = part.first().map(|(project, _)| *project) else { continue };
        let finals = store.canonical_persons(project).await?;
        for part in part.chunks_mut(READ_BATCH) {
            let ids = |record: &PersonRecord| -> BTreeSet<Uuid> {
                record.distinct_ids.iter().map(|id| finals.of(derive_person_id(project, id))).collect()
            };
            let with_properties =
                part.iter_mut().map(|(_, record)| record).filter(|record| !record.properties.is_empty());
            let mut records: Vec<&mut PersonRecord> = with_properties.collect();
            let person_ids: BTreeSet<Uuid> = records.iter().flat_map(|record| ids(record)).collect();
            let person_ids: Vec<Uuid> = person_ids.into_iter().collect();
            let stored = store.persons(project, &person_ids).await?;
            let stored: HashMap<Uuid, Map<String, Value>> =
                person_ids.into_iter().zip(stored.into_iter().map(|person| person.properties)).collect();
            for record in &mut records {
                let from_file = std::mem::take(&mut record.properties);
                for id in ids(record) {
                    record.properties.extend(stored.get(&id).cloned().unwrap_or_default());
                }
                record.properties.extend(from_file);
            }
            done += part.len() as u64;
            report(done);
        }
    }
    let mut stored: BTreeMap<(u64, u32, String), Map<String, Value>> = BTreeMap::new();
    let projects: BTreeSet<u64> = people.groups.iter().map(|(project, _)| *project).collect();
    for project in projects {
        let groups = store.groups(project).await?.into_iter();
        stored.extend(
            groups.map(|GroupRecord { index, key, properties, .. }| ((project, index, key), properties)),
        );
    }
    for (project, group) in &mut people.groups {
        if let Some(mut properties) = stored.remove(&(*project, group.index, group.key.clone())) {
            properties.extend(std::mem::take(&mut group.properties));
            group.properties = properties;
        }
    }
    if !people.groups.is_empty() {
        report(done + people.groups.len() as u64);
    }
    Ok(())
}
