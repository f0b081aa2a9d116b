//! Scans all persons of a project with selected properties.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, RecordBatch};
use pennon_analytics::scan::{Micros, Seq};
use pennon_core::store::keys::ProjectId;
use serde::de::DeserializeSeed;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::json_members::SelectedMembers;
use super::{PersonLookup, PersonsSnapshot};
use crate::error::EventStoreError;
use crate::event::arrival;
use crate::manifest::SegmentEntry;
use crate::memory::{MemoryLease, Purpose, QueryMemory};
use crate::persons::imports::records::{EMPTY_PROPERTIES, PersonsObject};
use crate::persons::person_merge_state::PersonMergeState;
use crate::persons::profiles::Profile;
use crate::persons::profiles::changes::{
    OrderedMerge, ProfileChanges, ProfilePart, merged_properties, value_bytes,
};
use crate::persons::profiles::file::{self, each_id, texts};

/// Most persons of a scan.
pub const PEOPLE_MAX: usize = 500_000;
/// Approximate limit of the bytes of the selected properties.
pub const VALUES_BYTES_MAX: usize = 128 << 20;
/// Approximate overhead of a person: its entry in the map and a distinct id.
const CLUSTER_BYTES: usize = 2 * size_of::<(Uuid, Cluster)>() + 48;
/// Step of memory reservations in bytes.
const RESERVED_STEP: usize = 256 << 10;
/// Most rows of files to read.
pub(super) const ROWS_MAX: u64 = 20_000_000;

/// The persons of a project.
#[derive(Debug)]
pub struct People {
    /// The selected properties; if all are selected, those met so far.
    keys: Vec<String>,
    /// Indices of all keys met so far; none if only named ones are selected.
    places: Option<HashMap<String, u16>>,
    clusters: HashMap<Uuid, Cluster>,
    merge_state: Arc<PersonMergeState>,
    bytes: usize,
    /// The memory reservation.
    lease: Option<MemoryLease>,
}

/// A person after imported merges; captured merges are applied on top.
#[derive(Debug, Default)]
struct Cluster {
    /// Position of its first distinct id: those of records first, others by their first event.
    first: Seq,
    distinct_id: Box<str>,
    /// Selected properties of its latest record, by index in `keys`.
    base: Box<[(u16, Value)]>,
    changes: Option<Box<ProfileChanges>>,
    /// When it was first seen: from its first record, else its first event.
    created: Option<Micros>,
}

/// A person of the scan.
pub(super) struct PersonEntry<'a> {
    pub id: Uuid,
    /// Its first distinct id.
    pub distinct_id: &'a str,
    /// The selected properties.
    pub properties: &'a Map<String, Value>,
    pub created: Option<Micros>,
}

/// Greater than every position in a record.
const OF_EVENT: Seq = 1 << 127;

impl PersonLookup {
    /// As [`PersonLookup::people`], within the memory of a query.
    pub(crate) async fn load_people(
        &self,
        project: ProjectId,
        keys: &BTreeSet<String>,
        memory: &QueryMemory,
    ) -> Result<People, EventStoreError> {
        let keys = keys.iter().take(usize::from(u16::MAX)).cloned().collect();
        self.people_with(project, keys, None, memory).await
    }

    /// As above, with all properties.
    pub(crate) async fn load_people_with_all_properties(
        &self,
        project: ProjectId,
        memory: &QueryMemory,
    ) -> Result<People, EventStoreError> {
        self.people_with(project, Vec::new(), Some(HashMap::new()), memory).await
    }

    async fn people_with(
        &self,
        project: ProjectId,
        keys: Vec<String>,
        places: Option<HashMap<String, u16>>,
        memory: &QueryMemory,
    ) -> Result<People, EventStoreError> {
        let now = self.now(project, None).await?;
        check_rows(&now)?;
        let lease = Some(memory.lease(Purpose::Known));
        let mut people = People {
            keys,
            places,
            clusters: HashMap::new(),
            merge_state: now.merge_state.clone(),
            bytes: 0,
            lease,
        };
        for (place, object) in
            self.imports.persons_objects(project, &now.manifest).await?.into_iter().enumerate()
        {
            people = self.add_records_of(people, place, object).await?;
        }
        for entry in now.manifest.segments.iter().filter(|entry| entry.has_profiles()) {
            people = self.add_segment_to(people, entry).await?;
        }
        let waiting_events = self.duplicates.not_in_segments(&now.manifest, now.waiting_events).await?;
        let added = tokio::task::spawn_blocking(move || {
            let profile = Profile::of_rows(project, &waiting_events);
            people.add_profile(profile).map(|()| people)
        });
        added.await?
    }

    async fn add_records_of(
        &self,
        mut people: People,
        place: usize,
        object: Arc<PersonsObject>,
    ) -> Result<People, EventStoreError> {
        let mut before = 0;
        for group in 0..object.file.groups() {
            let columns = ["distinct_ids", "properties", "created_at"];
            let decoded = object.file.decode(group, None, &columns).await?;
            let rows = object.file.group_rows(group);
            let object = object.clone();
            let added = tokio::task::spawn_blocking(move || {
                let mut row = before;
                for batch in &decoded.batches {
                    people.add_records(batch, &object, place, row)?;
                    row += batch.num_rows();
                }
                Ok::<_, EventStoreError>(people)
            });
            people = added.await??;
            before += rows;
        }
        Ok(people)
    }

    async fn add_segment_to(
        &self,
        mut people: People,
        entry: &SegmentEntry,
    ) -> Result<People, EventStoreError> {
        let Some(ids) = entry.id_file()? else { return Ok(people) };
        let file = self.segments.open_profile_file(ids).await?;
        let columns: &[&str] = if people.wants_nothing() { &file::PRESENCE } else { &file::ALL };
        for group in 0..file.groups() {
            let decoded = file.decode(group, None, columns).await?;
            let added = tokio::task::spawn_blocking(move || {
                let mut batches = decoded.batches.iter();
                let added = batches.try_for_each(|batch| {
                    each_id(batch, None, |id, distinct_id, first, changes| {
                        let changes = changes.map(ProfileChanges::decode).transpose()?.unwrap_or_default();
                        people.add_id(id, distinct_id, first, changes)
                    })
                });
                added.map(|()| people)
            });
            people = added.await??;
        }
        Ok(people)
    }
}

pub(super) fn too_many(what: &str, most: usize) -> EventStoreError {
    EventStoreError::TooLarge(format!("The project has more than {most} {what}, too many to read each."))
}

pub(super) fn check_rows(now: &PersonsSnapshot) -> Result<(), EventStoreError> {
    let records = now.manifest.persons.iter().map(|entry| entry.rows);
    let rows = records.chain(now.manifest.segments.iter().filter_map(|entry| Some(entry.ids.as_ref()?.rows)));
    let rows = rows.sum::<u64>();
    if rows > ROWS_MAX {
        return Err(EventStoreError::TooLarge(format!(
            "The project's persons are spread over {rows} rows; one query reads at most {ROWS_MAX}."
        )));
    }
    Ok(())
}

impl People {
    /// The canonical id of the person id `id`.
    pub fn person(&self, id: Uuid) -> Uuid {
        self.merge_state.person_merges.person(id)
    }

    /// Leaves their memory reserved until the query ends, for a query that keeps what it makes of them.
    pub fn keep_reserved(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.keep();
        }
    }

    /// Calls `each` for every person, in no particular order, with its first distinct id and the selected
    /// properties, until it breaks.
    pub fn each(self, mut each: impl FnMut(Uuid, &str, &Map<String, Value>) -> ControlFlow<()>) {
        self.each_one(|one| each(one.id, one.distinct_id, one.properties));
    }

    /// As above, with all data of each person.
    pub(super) fn each_one(mut self, mut each: impl FnMut(PersonEntry<'_>) -> ControlFlow<()>) {
        let joined = self.joined();
        let mut merged: HashMap<Uuid, Vec<(Uuid, Cluster)>> = HashMap::new();
        let mut properties = Map::new();
        for (id, cluster) in std::mem::take(&mut self.clusters) {
            let person = self.merge_state.person_merges.person(id);
            if joined.contains_key(&person) {
                merged.entry(person).or_default().push((id, cluster));
                continue;
            }
            self.properties_of(&cluster.base, &mut properties);
            if let Some(changes) = &cluster.changes {
                changes.apply(&mut properties);
            }
            let (distinct_id, created) = (&*cluster.distinct_id, cluster.created);
            if each(PersonEntry { id: person, distinct_id, properties: &properties, created }).is_break() {
                return;
            }
        }
        for (person, clusters) in merged {
            let created = clusters.iter().filter_map(|(_, cluster)| cluster.created).min();
            let first = clusters.iter().min_by_key(|(_, cluster)| cluster.first);
            let distinct_id = first.map(|(_, cluster)| cluster.distinct_id.clone()).unwrap_or_default();
            let mut parts = BTreeMap::new();
            for (id, cluster) in clusters {
                let mut base = Map::new();
                self.properties_of(&cluster.base, &mut base);
                let changes = cluster.changes.map(|changes| *changes).unwrap_or_default();
                parts.insert(id, ProfilePart { base, changes });
            }
            let joined = joined.get(&person).map_or(&[][..], Vec::as_slice);
            let properties = &merged_properties(&parts, joined);
            if each(PersonEntry { id: person, distinct_id: &distinct_id, properties, created }).is_break() {
                return;
            }
        }
    }

    /// Number of persons.
    pub fn count(&self) -> u64 {
        let person_merges = &self.merge_state.person_merges;
        if self.merge_state.is_unmerged() {
            return self.clusters.len() as u64;
        }
        self.clusters.keys().map(|id| person_merges.person(*id)).collect::<HashSet<_>>().len() as u64
    }

    /// The captured merges, by canonical person.
    fn joined(&self) -> HashMap<Uuid, Vec<OrderedMerge>> {
        let mut joined: HashMap<Uuid, Vec<OrderedMerge>> = HashMap::new();
        for one in self.merge_state.all_joined() {
            joined.entry(self.merge_state.person_merges.person(one.from)).or_default().push(one);
        }
        joined
    }

    fn properties_of(&self, base: &[(u16, Value)], into: &mut Map<String, Value>) {
        into.clear();
        for (key, value) in base {
            into.insert(self.keys[usize::from(*key)].clone(), value.clone());
        }
    }

    fn add_records(
        &mut self,
        batch: &RecordBatch,
        object: &PersonsObject,
        place: usize,
        first_row: usize,
    ) -> Result<(), EventStoreError> {
        let (distinct_ids, properties) = (texts(batch, "distinct_ids")?, texts(batch, "properties")?);
        let created = batch.column_by_name("created_at");
        let created = created.and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
        let recorded = |row| created.filter(|times| times.is_valid(row)).map(|times| times.value(row));
        for (row, ids) in object.records().skip(first_row).take(batch.num_rows()).enumerate() {
            let Some(id) = ids.first() else { continue };
            let has_properties = properties.value(row) != EMPTY_PROPERTIES;
            let base = if self.wants_nothing() || !has_properties {
                Box::default()
            } else if self.places.is_some() {
                self.placed(serde_json::from_str(properties.value(row))?)?
            } else {
                let mut json = serde_json::Deserializer::from_str(properties.value(row));
                SelectedMembers(&self.keys).deserialize(&mut json)?
            };
            self.bytes += base.iter().map(|(_, value)| value_bytes(value)).sum::<usize>();
            let place = ((place as Seq) << 64) | (first_row + row) as Seq;
            let cluster = self.cluster(*id, place, || {
                let ids: Vec<String> = serde_json::from_str(distinct_ids.value(row))?;
                Ok(ids.into_iter().next().unwrap_or_default())
            })?;
            if has_properties {
                cluster.base = base;
            }
            cluster.created = cluster.created.into_iter().chain(recorded(row)).min();
            self.check()?;
        }
        Ok(())
    }

    /// Only the existence of persons is requested.
    fn wants_nothing(&self) -> bool {
        self.keys.is_empty() && self.places.is_none()
    }

    /// All members of an object, with key indices.
    fn placed(&mut self, object: Map<String, Value>) -> Result<Box<[(u16, Value)]>, EventStoreError> {
        let Some(places) = &mut self.places else { return Ok(Box::default()) };
        let mut placed = Vec::with_capacity(object.len());
        for (key, value) in object {
            let place = match places.get(&key) {
                Some(place) => *place,
                None => {
                    let most = usize::from(u16::MAX);
                    let place =
                        u16::try_from(self.keys.len()).map_err(|_| too_many("different properties", most))?;
                    self.keys.push(key.clone());
                    places.insert(key, place);
                    place
                }
            };
            placed.push((place, value));
        }
        Ok(placed.into())
    }

    fn add_profile(&mut self, profile: Profile) -> Result<(), EventStoreError> {
        for (id, found) in profile.ids {
            self.add_id(id, &found.distinct_id, found.first, found.changes)?;
        }
        Ok(())
    }

    fn add_id(
        &mut self,
        id: Uuid,
        distinct_id: &str,
        first: Seq,
        mut changes: ProfileChanges,
    ) -> Result<(), EventStoreError> {
        if self.places.is_none() {
            let keys = std::mem::take(&mut self.keys);
            changes.keep(|key| keys.binary_search_by(|own| own.as_str().cmp(key)).is_ok());
            self.keys = keys;
        }
        self.bytes += changes.bytes();
        let cluster = self.cluster(id, first | OF_EVENT, || Ok(distinct_id.to_owned()))?;
        // Records are added before events.
        let recorded = cluster.first < OF_EVENT && cluster.created.is_some();
        if !recorded {
            cluster.created = cluster.created.into_iter().chain([arrival(first)]).min();
        }
        if !changes.is_empty() {
            cluster.changes.get_or_insert_default().merge(changes);
        }
        self.check()
    }

    /// The person of `id`; `distinct_id` becomes its first one if `first` is earlier than the known one.
    fn cluster(
        &mut self,
        id: Uuid,
        first: Seq,
        distinct_id: impl FnOnce() -> Result<String, EventStoreError>,
    ) -> Result<&mut Cluster, EventStoreError> {
        let id = self.merge_state.imported_merges.person(id);
        let cluster =
            self.clusters.entry(id).or_insert_with(|| Cluster { first: Seq::MAX, ..Cluster::default() });
        if first < cluster.first {
            cluster.first = first;
            cluster.distinct_id = distinct_id()?.into();
        }
        Ok(cluster)
    }

    fn check(&mut self) -> Result<(), EventStoreError> {
        if self.clusters.len() > PEOPLE_MAX {
            return Err(too_many("persons", PEOPLE_MAX));
        }
        if self.bytes > VALUES_BYTES_MAX {
            let megabytes = VALUES_BYTES_MAX >> 20;
            return Err(EventStoreError::TooLarge(format!(
                "The values of the named properties take more than {megabytes} MB over all persons."
            )));
        }
        let bytes = self.bytes + self.clusters.len() * CLUSTER_BYTES;
        match &mut self.lease {
            Some(lease) if bytes as u64 > lease.bytes() => lease.set((bytes + RESERVED_STEP) as u64),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::persons::profiles::changes::ChangeOrder;
    use serde_json::json;

    fn empty_people(keys: &[&str]) -> People {
        People {
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            places: None,
            clusters: HashMap::new(),
            merge_state: Arc::default(),
            bytes: 0,
            lease: None,
        }
    }

    #[test]
    fn persons_are_accepted_up_to_the_limit() {
        let mut people = empty_people(&[]);
        for n in 0..PEOPLE_MAX as u128 {
            people.add_id(Uuid::from_u128(n), "a", n, ProfileChanges::default()).unwrap();
        }
        people.add_id(Uuid::from_u128(0), "again", 7, ProfileChanges::default()).unwrap();
        let more = people.add_id(Uuid::from_u128(u128::MAX), "more", 7, ProfileChanges::default());
        assert!(matches!(more, Err(EventStoreError::TooLarge(_))));
    }

    #[test]
    fn nested_values_count_towards_the_limit() {
        let at = ChangeOrder { time: 1, seq: 1 };
        // About two megabytes of short texts in lists.
        let nested = json!(vec![vec!["x".repeat(100); 100]; 200]);
        let mut people = empty_people(&["k"]);
        let mut add = |n: u128, value: &Value| {
            let mut changes = ProfileChanges::default();
            changes.set("k", value, at);
            people.add_id(Uuid::from_u128(n), "a", n, changes)
        };
        let refused = (0..64).find(|n| add(*n, &nested).is_err());
        assert!(refused.is_some_and(|n| n > 10), "{refused:?}");
    }

    #[test]
    fn only_the_selected_properties_are_read() {
        let text = json!({"b": {"a": 1}, "a": [1, {"c": 2}], "d": null, "c": "x", "": 0}).to_string();
        let read = |keys: &[&str]| {
            let keys = keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
            let mut json = serde_json::Deserializer::from_str(&text);
            SelectedMembers(&keys).deserialize(&mut json).unwrap().into_vec()
        };
        assert_eq!(read(&["a", "d", "z"]), [(0, json!([1, {"c": 2}])), (1, json!(null))]);
        assert_eq!(read(&["c"]), [(0, json!("x"))]);
        assert_eq!(read(&[]), []);
    }
}
