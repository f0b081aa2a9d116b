//! One simulated installation and its two processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use pennon::embedded::Embedded;
use pennon_core::store::local_backend::LocalBackend;
use pennon_eventstore::{EventStore, EventStoreError, Settings};

use super::defects::Defect;
use super::objects::{ObjectCalls, Objects};
use super::steps::Operation;
use super::switch::{Switch, Trace};
use super::table::{Rows, Table};
use crate::support::NOW;

/// Rows of a page of the table, of which a seed has one.
const PAGES: [usize; 3] = [3, 10, 1000];

/// A process: an event store with caches of its own.
#[derive(Clone)]
pub struct Process {
    pub events: EventStore,
    pub switch: Arc<Switch>,
}

/// Tables, objects and clock.
pub struct Installation {
    rows: Arc<Rows>,
    objects: Arc<Objects>,
    clock: Arc<AtomicI64>,
    trace: Option<Arc<Trace>>,
    started: usize,
}

impl Installation {
    pub fn new(seed: u64, defect: Option<Defect>, trace: Option<Arc<Trace>>) -> Installation {
        let clock = Arc::new(AtomicI64::new(NOW));
        Installation {
            rows: Arc::new(Rows::new(PAGES[(seed % 3) as usize], defect)),
            objects: Arc::new(Objects::new(clock.clone(), defect)),
            clock,
            trace,
            started: 0,
        }
    }

    /// A new process, whose caches are empty.
    pub fn start(&mut self) -> Process {
        self.started += 1;
        let switch = Arc::new(Switch::new(self.started, self.trace.clone()));
        let table = Table { rows: self.rows.clone(), switch: switch.clone() };
        let store = Embedded::store_through(table.clone(), None);
        let backend: Arc<dyn LocalBackend> = Arc::new(table);
        let objects = Arc::new(ObjectCalls { objects: self.objects.clone(), switch: switch.clone() });
        let (turns_in_all, longest_turn_wait) = (Duration::from_secs(2), Duration::from_millis(1));
        let settings = Settings {
            range_rows: 16,
            merge_rows_left: 4,
            turns_in_all,
            longest_turn_wait,
            ..Settings::default()
        };
        let store = store.with_local_backend(&backend);
        let events = EventStore::with_object_store(store, objects, Duration::from_micros(10), settings);
        Process { events, switch }
    }

    pub fn now(&self) -> i64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// The names of the objects that begin with `prefix`.
    pub fn objects_below(&self, prefix: &str) -> Vec<String> {
        self.objects.names().into_iter().filter(|name| name.starts_with(prefix)).collect()
    }

    pub fn advance(&self, by: i64) {
        self.clock.fetch_add(by, Ordering::Relaxed);
    }
}

/// Carries out an operation that begins at `now`.
pub async fn run(
    events: EventStore,
    project: u64,
    operation: Operation,
    now: i64,
) -> Result<(), EventStoreError> {
    match operation {
        Operation::Capture(batch) => events.append(project, &batch, now).await,
        Operation::Import(batch) => events.ingest(project, (1..).zip(batch).collect(), now).await.map(drop),
        Operation::CompactBlocks => events.compact_blocks(project, now).await.map(drop),
        Operation::CompactDueBlocks => events.compact_due_blocks(project, now).await.map(drop),
        Operation::Compact => events.compact(project, now).await.map(drop),
        Operation::FoldMerges => events.is_merge_due(project, now).await.map(drop),
        Operation::MergeSegments(mode) => {
            // Each merge leaves fewer segments, of which there are a few dozens.
            for _ in 0..100 {
                if !events.merge_segments(project, now, mode).await?.has_more_work() {
                    return Ok(());
                }
            }
            panic!("merging does not end")
        }
        Operation::Sweep => events.sweep(project, now).await.map(drop),
        Operation::SweepOrphans => events.sweep_orphans(project, now).await.map(drop),
        Operation::Erase(target) => events.erase(project, &target, &|| now).await.map(drop),
        Operation::Check => {
            let report = events.check(project, false, &mut |_| {}).await?;
            assert!(report.damaged.is_empty(), "damage was found: {:?}", report.damaged);
            Ok(())
        }
    }
}
