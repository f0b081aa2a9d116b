//! What is already stored of the persons and groups that a file has properties of: a file has a part of them only, and the
//! other properties stay.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pennon_eventstore::{EventStore, EventStoreError, GroupRecord, PersonRecord, derived};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::people::FoldedPeople;

/// Persons that are read at once.
const AT_ONCE: usize = 10_000;

/// Lays the properties of a file over those that are stored.
pub(super) async fn lay_over_stored(
    store: &EventStore,
    people: &mut FoldedPeople,
) -> Result<(), EventStoreError> {
    for part in people.persons.chunk_by_mut(|a, b| a.0 == b.0) {
        let Some(project) = part.first().map(|(project, _)| *project) else { continue };
        let finals = store.final_persons(project).await?;
        for part in part.chunks_mut(AT_ONCE) {
            let ids = |record: &PersonRecord| -> BTreeSet<Uuid> {
                record.distinct_ids.iter().map(|id| finals.of(derived(project, id))).collect()
            };
            let with_properties =
                part.iter_mut().map(|(_, record)| record).filter(|record| !record.properties.is_empty());
            let mut records: Vec<&mut PersonRecord> = with_properties.collect();
            let wanted: BTreeSet<Uuid> = records.iter().flat_map(|record| ids(record)).collect();
            let wanted: Vec<Uuid> = wanted.into_iter().collect();
            let stored = store.persons(project, &wanted).await?;
            let stored: HashMap<Uuid, Map<String, Value>> =
                wanted.into_iter().zip(stored.into_iter().map(|person| person.properties)).collect();
            for record in &mut records {
                let own = std::mem::take(&mut record.properties);
                for id in ids(record) {
                    record.properties.extend(stored.get(&id).cloned().unwrap_or_default());
                }
                record.properties.extend(own);
            }
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
    Ok(())
}
