//! A batch of records of a file, in columns, to be stored at once.
//!
//! Must stay true: a full chunk fits into one segment per project, and two chunks and an encoded segment fit into the memory
//! of an import; memory is measured at least every 8 MiB, however long the lines are.

use std::collections::BTreeMap;

use pennon_eventstore::{
    EVENTS_PER_SEGMENT_MAX, EventColumns, EventStore, EventStoreError, GroupColumns, PersonColumns,
};

use super::Summary;
use super::people::FoldedPeople;
use super::record::{ImportRecord, SourceRecord};

/// Most bytes of memory of a chunk.
const MEMORY_BYTES_MAX: usize = 160 << 20;
/// Most bytes of texts of a chunk, before deduplication.
const TEXT_BYTES_MAX: usize = 384 << 20;
/// Most persons and groups of a chunk.
const PEOPLE_MAX: usize = 100_000;
/// Most bytes of persons and groups: writing them takes a few times as much memory.
const CHUNK_PEOPLE_BYTES_MAX: usize = 96 << 20;
/// Memory is measured after this many events.
const MEASURE_AFTER_EVENTS: usize = 4096;
/// Memory is measured after this many bytes, plus the last line.
const MEASURE_AFTER_BYTES: usize = 8 << 20;

/// Records by project.
pub(super) struct Chunk {
    /// The number of records of the file that were read for it.
    pub records: u64,
    now: i64,
    events_max: usize,
    events: BTreeMap<u64, EventColumns>,
    persons: BTreeMap<u64, PersonColumns>,
    groups: BTreeMap<u64, GroupColumns>,
    event_count: usize,
    /// The number of persons and groups, and their bytes.
    people_count: usize,
    people_bytes: usize,
    unmeasured: PendingMeasurement,
    /// Whether a memory limit was exceeded.
    is_over_memory: bool,
}

/// What was added since memory was measured.
#[derive(Default)]
struct PendingMeasurement {
    events: usize,
    bytes: usize,
    /// The project of the event that is being added, and the bytes of its columns before.
    adding: Option<(u64, usize)>,
}

impl Chunk {
    /// An empty chunk of an import that began at `now`, in microseconds since the epoch.
    pub(super) fn new(now: i64) -> Chunk {
        Chunk {
            records: 0,
            now,
            events_max: EVENTS_PER_SEGMENT_MAX,
            events: BTreeMap::new(),
            persons: BTreeMap::new(),
            groups: BTreeMap::new(),
            event_count: 0,
            people_count: 0,
            people_bytes: 0,
            unmeasured: PendingMeasurement::default(),
            is_over_memory: false,
        }
    }

    /// Whether the next record belongs into another chunk.
    pub(super) fn is_full(&mut self) -> bool {
        self.measure_if_due();
        self.is_over_memory || self.event_count >= self.events_max || self.people_count >= PEOPLE_MAX
    }

    /// The columns of a project, to which the caller adds one event.
    pub(super) fn columns(&mut self, project: u64) -> &mut EventColumns {
        self.measure_if_due();
        self.event_count += 1;
        let columns = self.events.entry(project).or_insert_with(|| EventColumns::new(self.now));
        self.unmeasured.adding = Some((project, columns.taken_bytes()));
        columns
    }

    /// Measures the memory if enough was added since the last time.
    fn measure_if_due(&mut self) {
        let Some((project, before)) = self.unmeasured.adding.take() else { return };
        let after = self.events.get(&project).map_or(0, EventColumns::taken_bytes);
        self.unmeasured.events += 1;
        self.unmeasured.bytes += after.saturating_sub(before);
        if self.unmeasured.events >= MEASURE_AFTER_EVENTS || self.unmeasured.bytes >= MEASURE_AFTER_BYTES {
            self.unmeasured = PendingMeasurement::default();
            let memory = self.events.values().map(EventColumns::memory).sum::<usize>();
            let texts = self.events.values().map(EventColumns::text_bytes).sum::<usize>();
            self.is_over_memory |= memory > MEMORY_BYTES_MAX || texts > TEXT_BYTES_MAX;
        }
    }

    /// Adds a record.
    pub(super) fn push(&mut self, source: SourceRecord) -> Result<(), EventStoreError> {
        let project = source.project;
        match source.record {
            ImportRecord::Event(event) => {
                self.columns(project).push(source.line, &event);
                return Ok(());
            }
            ImportRecord::Person(person) => {
                let persons = self.persons.entry(project).or_insert_with(|| PersonColumns::new(project));
                let before = persons.bytes();
                persons.push(&person)?;
                self.people_bytes += persons.bytes() - before;
            }
            ImportRecord::Group(group) => {
                let groups = self.groups.entry(project).or_default();
                let before = groups.bytes();
                groups.push(&group)?;
                self.people_bytes += groups.bytes() - before;
            }
        }
        self.people_count += 1;
        self.is_over_memory |= self.people_bytes > CHUNK_PEOPLE_BYTES_MAX;
        Ok(())
    }

    /// Stores the chunk. Groups and persons come first, so that events are stored with their final persons.
    pub(super) async fn store(
        self,
        store: &EventStore,
        summary: &mut Summary,
    ) -> Result<(), EventStoreError> {
        let now = self.now;
        for (project, groups) in self.groups {
            summary.groups += groups.len() as u64;
            summary.projects.insert(project);
            store.add_group_columns(project, groups, now).await?;
        }
        for (project, persons) in self.persons {
            summary.persons += persons.len() as u64;
            summary.projects.insert(project);
            store.add_person_columns(persons, now).await?;
        }
        for (project, events) in self.events {
            let ingested = store.ingest_columns(project, events).await?;
            summary.events += ingested.stored;
            summary.copies += ingested.copies;
            summary.projects.insert(project);
        }
        Ok(())
    }
}

/// Chunks of the persons and groups that were folded from a file.
pub(super) fn chunks_of_people(people: FoldedPeople, now: i64) -> Result<Vec<Chunk>, EventStoreError> {
    let persons = people.persons.into_iter().map(|(project, person)| (project, ImportRecord::Person(person)));
    let groups = people.groups.into_iter().map(|(project, group)| (project, ImportRecord::Group(group)));
    let mut chunks: Vec<Chunk> = Vec::new();
    for (project, record) in persons.chain(groups) {
        if chunks.last_mut().is_none_or(Chunk::is_full) {
            chunks.push(Chunk::new(now));
        }
        if let Some(chunk) = chunks.last_mut() {
            chunk.push(SourceRecord { line: 0, project, record })?;
        }
    }
    Ok(chunks)
}
