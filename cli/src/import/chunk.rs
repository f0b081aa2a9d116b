//! A part of a file on its way into the store.
//!
//! Must stay true: a chunk that is full fits into one segment a project, and two of them beside an encoded segment into
//! the memory of an import.

use std::collections::BTreeMap;

use pennon_eventstore::{EVENTS_PER_SEGMENT_MAX, EventColumns, EventStore, GroupRecord, PersonRecord};

use super::Summary;
use super::record::{Placed, Record};

/// Most bytes of memory of a chunk.
const MEMORY_BYTES: usize = 160 << 20;
/// Most bytes of texts of a chunk, however often each occurs.
const TEXT_BYTES: usize = 384 << 20;
/// Most persons or groups of a chunk.
const OTHERS: usize = 100_000;
/// Events between two looks at the memory.
const LOOK_AFTER: usize = 4096;

/// A part of a file, by project.
pub(super) struct Chunk {
    pub records: u64,
    now: i64,
    most: usize,
    events: BTreeMap<u64, EventColumns>,
    persons: BTreeMap<u64, Vec<PersonRecord>>,
    groups: BTreeMap<u64, Vec<GroupRecord>>,
    /// Events, and persons and groups.
    counts: (usize, usize),
    /// Whether memory was found used up.
    is_heavy: bool,
}

impl Chunk {
    /// An empty chunk of an import that began at `now`.
    pub(super) fn new(now: i64) -> Chunk {
        Chunk {
            records: 0,
            now,
            most: EVENTS_PER_SEGMENT_MAX,
            events: BTreeMap::new(),
            persons: BTreeMap::new(),
            groups: BTreeMap::new(),
            counts: (0, 0),
            is_heavy: false,
        }
    }

    /// Whether another record belongs into the next chunk.
    pub(super) fn is_full(&self) -> bool {
        self.is_heavy || self.counts.0 >= self.most || self.counts.1 >= OTHERS
    }

    /// The columns that take the next event of a project.
    pub(super) fn columns(&mut self, project: u64) -> &mut EventColumns {
        self.counts.0 += 1;
        if self.counts.0.is_multiple_of(LOOK_AFTER) {
            let memory = self.events.values().map(EventColumns::memory).sum::<usize>();
            let texts = self.events.values().map(EventColumns::text_bytes).sum::<usize>();
            self.is_heavy = memory > MEMORY_BYTES || texts > TEXT_BYTES;
        }
        self.events.entry(project).or_insert_with(|| EventColumns::new(self.now))
    }

    /// Adds a record.
    pub(super) fn put(&mut self, placed: Placed) {
        match placed.record {
            Record::Event(event) => self.columns(placed.project).push(placed.line, &event),
            Record::Person(person) => {
                self.counts.1 += 1;
                self.persons.entry(placed.project).or_default().push(person);
            }
            Record::Group(group) => {
                self.counts.1 += 1;
                self.groups.entry(placed.project).or_default().push(group);
            }
        }
    }

    /// Stores it. Groups and persons first, so that events are written under the persons that they are of.
    pub(super) async fn store(
        self,
        store: &EventStore,
        summary: &mut Summary,
    ) -> Result<(), pennon_eventstore::EventStoreError> {
        let now = self.now;
        for (project, groups) in self.groups {
            summary.groups += groups.len() as u64;
            summary.projects.insert(project);
            store.add_groups(project, groups, now).await?;
        }
        for (project, persons) in self.persons {
            summary.persons += persons.len() as u64;
            summary.projects.insert(project);
            store.add_persons(project, persons, now).await?;
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

/// The chunks with persons that rows name.
pub(super) fn of_persons(persons: Vec<(u64, PersonRecord)>, now: i64) -> Vec<Chunk> {
    let mut chunks: Vec<Chunk> = Vec::new();
    for (project, person) in persons {
        if chunks.last().is_none_or(Chunk::is_full) {
            chunks.push(Chunk::new(now));
        }
        if let Some(chunk) = chunks.last_mut() {
            chunk.records += 1;
            chunk.put(Placed { line: 0, project, record: Record::Person(person) });
        }
    }
    chunks
}
