//! A part of a file on its way into the store.
//!
//! Must stay true: a chunk that is full fits into one segment a project, and two of them beside an encoded segment into
//! the memory of an import; however long the lines are, memory is looked at before much has come in unseen.

use std::collections::BTreeMap;

use pennon_eventstore::{
    EVENTS_PER_SEGMENT_MAX, EventColumns, EventStore, EventStoreError, GroupColumns, PersonColumns,
};

use super::Summary;
use super::people::FoldedPeople;
use super::record::{Placed, Record};

/// Most bytes of memory of a chunk.
const MEMORY_BYTES: usize = 160 << 20;
/// Most bytes of texts of a chunk, however often each occurs.
const TEXT_BYTES: usize = 384 << 20;
/// Most persons or groups of a chunk.
const OTHERS: usize = 100_000;
/// Most bytes of these: to write them takes a few times as many.
const OTHERS_BYTES: usize = 96 << 20;
/// Events between two looks at the memory.
const LOOK_AFTER: usize = 4096;
/// Bytes that come in between two looks at the memory, but for the last line.
const LOOK_AFTER_BYTES: usize = 8 << 20;

/// A part of a file, by project.
pub(super) struct Chunk {
    pub records: u64,
    now: i64,
    most: usize,
    events: BTreeMap<u64, EventColumns>,
    persons: BTreeMap<u64, PersonColumns>,
    groups: BTreeMap<u64, GroupColumns>,
    /// Events, and persons and groups.
    counts: (usize, usize),
    others_bytes: usize,
    unseen: Unseen,
    /// Whether memory was found used up.
    is_heavy: bool,
}

/// What has come in since memory was looked at.
#[derive(Default)]
struct Unseen {
    events: usize,
    bytes: usize,
    /// The project that takes an event, and how much it had taken before.
    taking: Option<(u64, usize)>,
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
            others_bytes: 0,
            unseen: Unseen::default(),
            is_heavy: false,
        }
    }

    /// Whether another record belongs into the next chunk.
    pub(super) fn is_full(&mut self) -> bool {
        self.look();
        self.is_heavy || self.counts.0 >= self.most || self.counts.1 >= OTHERS
    }

    /// The columns that take the next event of a project.
    pub(super) fn columns(&mut self, project: u64) -> &mut EventColumns {
        self.look();
        self.counts.0 += 1;
        let columns = self.events.entry(project).or_insert_with(|| EventColumns::new(self.now));
        self.unseen.taking = Some((project, columns.taken_bytes()));
        columns
    }

    /// Looks at the memory if enough has come in since the last time.
    fn look(&mut self) {
        let Some((project, before)) = self.unseen.taking.take() else { return };
        let taken = self.events.get(&project).map_or(0, EventColumns::taken_bytes);
        self.unseen.events += 1;
        self.unseen.bytes += taken.saturating_sub(before);
        if self.unseen.events >= LOOK_AFTER || self.unseen.bytes >= LOOK_AFTER_BYTES {
            self.unseen = Unseen::default();
            let memory = self.events.values().map(EventColumns::memory).sum::<usize>();
            let texts = self.events.values().map(EventColumns::text_bytes).sum::<usize>();
            self.is_heavy |= memory > MEMORY_BYTES || texts > TEXT_BYTES;
        }
    }

    /// Adds a record.
    pub(super) fn put(&mut self, placed: Placed) -> Result<(), EventStoreError> {
        let project = placed.project;
        match placed.record {
            Record::Event(event) => {
                self.columns(project).push(placed.line, &event);
                return Ok(());
            }
            Record::Person(person) => {
                let persons = self.persons.entry(project).or_insert_with(|| PersonColumns::new(project));
                let before = persons.bytes();
                persons.push(&person)?;
                self.others_bytes += persons.bytes() - before;
            }
            Record::Group(group) => {
                let groups = self.groups.entry(project).or_default();
                let before = groups.bytes();
                groups.push(&group)?;
                self.others_bytes += groups.bytes() - before;
            }
        }
        self.counts.1 += 1;
        self.is_heavy |= self.others_bytes > OTHERS_BYTES;
        Ok(())
    }

    /// Stores it. Groups and persons first, so that events are written under the persons that they are of.
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

/// The chunks with the persons and groups that a file was folded into.
pub(super) fn of_people(people: FoldedPeople, now: i64) -> Result<Vec<Chunk>, EventStoreError> {
    let persons = people.persons.into_iter().map(|(project, person)| (project, Record::Person(person)));
    let groups = people.groups.into_iter().map(|(project, group)| (project, Record::Group(group)));
    let mut chunks: Vec<Chunk> = Vec::new();
    for (project, record) in persons.chain(groups) {
        if chunks.last_mut().is_none_or(Chunk::is_full) {
            chunks.push(Chunk::new(now));
        }
        if let Some(chunk) = chunks.last_mut() {
            chunk.put(Placed { line: 0, project, record })?;
        }
    }
    Ok(chunks)
}
