//! Draws the steps of a history from the seed.

use pennon_eventstore::{ErasureTarget, Event, GRACE_MICROS, MergeMode};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::model::{IDS, id};
use super::random::Random;
use super::steps::{FIRST_DAY, MINUTE, Operation, Step};
use super::switch::Fate;
use super::worlds::PROJECTS;

const DAY: i64 = 24 * 60 * MINUTE;
/// How far the clock moves.
const ADVANCES: [i64; 5] = [MINUTE, GRACE_MICROS + 2 * MINUTE, 3 * 60 * MINUTE, 26 * 60 * MINUTE, 40 * DAY];
/// Most events of a batch.
const BATCH_MAX: u64 = 9;
/// Times of events are so many minutes apart, so that many are equal.
const SLOT_MINUTES: i64 = 120;
const SLOTS: u64 = 36;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Capture,
    Import,
    CompactBlocks,
    CompactDueBlocks,
    Compact,
    FoldMerges,
    MergeDue,
    MergeFewest,
    Sweep,
    SweepOrphans,
    ErasePerson,
    EraseBefore,
    EraseProject,
    Check,
}

const KINDS: [(u64, Kind); 14] = [
    (36, Kind::Capture),
    (6, Kind::Import),
    (12, Kind::CompactBlocks),
    (2, Kind::CompactDueBlocks),
    (3, Kind::Compact),
    (2, Kind::FoldMerges),
    (6, Kind::MergeDue),
    (6, Kind::MergeFewest),
    (7, Kind::Sweep),
    (2, Kind::SweepOrphans),
    (6, Kind::ErasePerson),
    (3, Kind::EraseBefore),
    (1, Kind::EraseProject),
    (1, Kind::Check),
];

/// Where the events of a batch come from.
#[derive(Debug, Clone, PartialEq)]
enum Source {
    /// All are new.
    New,
    /// Some are duplicates, of others than these: which event of two batches at once counts depends on when they arrived, and not on
    /// when they were acknowledged.
    WithDuplicates { except: Vec<Uuid> },
}

/// Draws steps.
pub struct Plan {
    random: Random,
    uuids: u128,
    /// Acknowledged events with their projects, of which duplicates are sent.
    pub acknowledged: Vec<(u64, Event)>,
}

impl Plan {
    pub fn new(seed: u64) -> Plan {
        Plan { random: Random::new(seed), uuids: 0, acknowledged: Vec::new() }
    }

    /// How many steps the history has.
    pub fn length(&mut self) -> u64 {
        30 + self.random.below(31)
    }

    /// A choice of the checks after a step.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// As [`Plan::below`], true for one of them.
    pub fn one_in(&mut self, bound: u64) -> bool {
        self.random.one_in(bound)
    }

    pub fn next(&mut self) -> Step {
        let process = self.random.below(2) as usize;
        match self.random.below(100) {
            0..10 => Step::AdvanceClock(*self.random.pick(&ADVANCES)),
            10..14 => Step::Restart(process),
            14..18 => Step::SendAgain { process },
            choice => {
                let project = if self.random.one_in(4) { PROJECTS[1] } else { PROJECTS[0] };
                let operation = self.operation(project, &Source::WithDuplicates { except: Vec::new() });
                if choice < 34 {
                    let others = self.others(project, &operation);
                    return Step::RunBeside { process, project, operation, at: self.call(), others };
                }
                Step::Run { process, project, operation, fate: self.fate() }
            }
        }
    }

    /// What the other process does meanwhile. Beside an erasure at most one batch of new events: those may be erased or not.
    fn others(&mut self, project: u64, operation: &Operation) -> Vec<(u64, Operation)> {
        let is_erasure = matches!(operation, Operation::Erase(_));
        let except = operation.events().iter().map(|event| event.uuid).collect();
        let source = if is_erasure { Source::New } else { Source::WithDuplicates { except } };
        let mut others = Vec::new();
        for _ in 0..=self.random.below(3) {
            let project = if self.random.one_in(8) { PROJECTS[0] } else { project };
            let other = self.operation(project, &source);
            let adds_events = |other: &Operation| !other.events().is_empty();
            let is_second = adds_events(&other) && others.iter().any(|(_, known)| adds_events(known));
            if !(is_erasure && is_second) {
                others.push((project, other));
            }
        }
        others
    }

    /// The number of a call: early ones are more likely than late ones.
    fn call(&mut self) -> u64 {
        let most = 1 << (1 + self.random.below(6));
        1 + self.random.below(most)
    }

    fn fate(&mut self) -> Fate {
        let (at, is_done) = (self.call(), self.random.one_in(2));
        match self.random.below(20) {
            0..5 => Fate::Dies { at, is_done },
            5 => Fate::LosesConnection { at, is_done },
            _ => Fate::Unharmed,
        }
    }

    fn operation(&mut self, project: u64, source: &Source) -> Operation {
        match self.random.weighted(&KINDS) {
            Kind::Capture => Operation::Capture(self.batch(project, source)),
            Kind::Import => Operation::Import(self.imported()),
            Kind::CompactBlocks => Operation::CompactBlocks,
            Kind::CompactDueBlocks => Operation::CompactDueBlocks,
            Kind::Compact => Operation::Compact,
            Kind::FoldMerges => Operation::FoldMerges,
            Kind::MergeDue => Operation::MergeSegments(MergeMode::Due),
            Kind::MergeFewest => Operation::MergeSegments(MergeMode::Fewest),
            Kind::Sweep => Operation::Sweep,
            Kind::SweepOrphans => Operation::SweepOrphans,
            Kind::ErasePerson => Operation::Erase(ErasureTarget::Person(self.id())),
            Kind::EraseBefore => {
                let slot = self.random.below(SLOTS / 2) as i64;
                Operation::Erase(ErasureTarget::Before(FIRST_DAY + slot * SLOT_MINUTES * MINUTE))
            }
            Kind::EraseProject => Operation::Erase(ErasureTarget::Project),
            Kind::Check => Operation::Check,
        }
    }

    fn id(&mut self) -> String {
        // Some have many events.
        let bound = if self.random.one_in(2) { IDS } else { 3 };
        id(self.random.below(bound as u64) as usize)
    }

    fn new_uuid(&mut self) -> Uuid {
        self.uuids += 1;
        Uuid::from_u128(self.uuids)
    }

    fn batch(&mut self, project: u64, source: &Source) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..=self.random.below(BATCH_MAX) {
            let duplicate = match source {
                Source::WithDuplicates { except } if self.random.one_in(6) => {
                    self.duplicate(project, &events, except)
                }
                _ => None,
            };
            let event = match duplicate {
                Some(event) => event,
                None if self.random.one_in(5) => self.merging_event(),
                None => self.event(),
            };
            events.push(event);
        }
        events
    }

    fn imported(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..=self.random.below(2 * BATCH_MAX) {
            events.push(self.event());
        }
        events
    }

    /// An event with the uuid of an earlier one, the same or with another content.
    fn duplicate(&mut self, project: u64, batch: &[Event], except: &[Uuid]) -> Option<Event> {
        let earlier = self.acknowledged.iter().filter(|(of, _)| *of == project).map(|(_, event)| event);
        let known = earlier.chain(batch).filter(|event| !except.contains(&event.uuid));
        let known = known.cloned().collect::<Vec<_>>();
        if known.is_empty() {
            return None;
        }
        let event = self.random.pick(&known).clone();
        if self.random.one_in(2) {
            return Some(event);
        }
        Some(Event { uuid: event.uuid, ..self.event() })
    }

    fn time(&mut self) -> i64 {
        FIRST_DAY + self.random.below(SLOTS) as i64 * SLOT_MINUTES * MINUTE
    }

    fn event(&mut self) -> Event {
        let event = *self.random.pick(&["seen", "seen", "bought", "left"]);
        let mut properties = Map::new();
        properties.insert("k".to_owned(), json!(self.random.below(5)));
        if self.random.one_in(3) {
            properties.insert("list".to_owned(), json!([self.random.below(2), {"deep": 1.5}]));
        }
        if event == "left" {
            let value = self.random.below(4);
            let (name, change) = match self.random.below(3) {
                0 => ("$set", json!({"plan": value})),
                1 => ("$set_once", json!({"first": value})),
                _ => ("$unset", json!(["plan"])),
            };
            properties.insert(name.to_owned(), change);
        }
        // A minute later: no purchase has the time of a view, nor is one exactly a day after it.
        let offset = if event == "bought" { MINUTE } else { 0 };
        let (uuid, distinct_id) = (self.new_uuid(), self.id());
        Event { uuid, event: event.to_owned(), distinct_id, timestamp: self.time() + offset, properties }
    }

    fn merging_event(&mut self) -> Event {
        let (event, key) = self.random.weighted(&[
            (6, ("$identify", "$anon_distinct_id")),
            (2, ("$create_alias", "alias")),
            (2, ("$merge_dangerously", "alias")),
        ]);
        let properties = Map::from_iter([(key.to_owned(), Value::String(self.id()))]);
        let (uuid, distinct_id) = (self.new_uuid(), self.id());
        Event { uuid, event: event.to_owned(), distinct_id, timestamp: self.time(), properties }
    }
}
