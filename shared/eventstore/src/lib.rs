//! Events: in, durable at once, counted once, and out in the order that calculations rely on.
//!
//! A captured batch becomes a *block* in DynamoDB ([`EventStore::append`]). Compaction turns blocks into *segments*,
//! Parquet files on an object store; imported history goes straight there ([`EventStore::ingest`]). The *manifest*, rows
//! in DynamoDB, says which segments there are and what each replaces. A scan ([`EventStore::scan`]) reads the manifest,
//! the blocks and the wanted pages of the segments, applies merges of persons, and gives columns to the engine.
//!
//! What must always hold:
//!
//! 1. An event that was acknowledged is counted from then on, exactly once, whatever is compacted, re-sent or stopped.
//! 2. An event is (project, uuid). Copies count once: the one that arrived first, and one in a segment before any in a
//!    block, so that a copy that is sent later never changes an answer.
//! 3. Equal times keep their arrival order: block by block as they came, line by line within an import.
//! 4. Segments hold no copies of each other's events: whoever adds one has compared with all that the manifest lists,
//!    and adds it only if the manifest is still that one.

mod blocks;
mod cache;
mod codec;
mod compaction;
mod definitions;
mod erasure;
mod error;
mod event;
mod event_list;
mod flag_calls;
mod ingest;
mod installation;
mod integrity;
mod keys;
mod manifest;
mod memory;
mod objects;
mod persons;
mod scan;
mod segments;
mod settings;
mod time;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::ObjectStore;
use pennon_core::store::Store;
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

pub use compaction::{Compacted, Effort, GRACE_MICROS, ORPHANED_MICROS, ORPHANS_KEPT_DAYS, Orphan, Swept};
pub use definitions::{EVENT_NAMES_MAX, EventName, PropertyNames, ValueType};
pub use erasure::{Doomed, Erased};
pub use error::{EventStoreError, memory_in_use};
pub use event::Event;
pub use event_list::{EventKey, EventsWanted, ListedEvent, StoredEvent, TakesEvents, WalkBudget, Walked};
pub use ingest::{
    Captured, CapturedEvent, Cell, EVENTS_PER_SEGMENT_MAX, EventColumns, Excess, Ingested, Meter, Packed,
    PackedProperties, Properties, PropertiesSeed, Sealed, TEXT_BYTES_MAX, TableFile, TableRows, ValueSeed,
    read_properties, without_nul,
};
pub use installation::Adopted;
pub use integrity::{CheckProgress, Checked, Damage, DamagedSegment};
pub use manifest::{FinalPersons, LiveFiles};
pub use memory::{QuestionMemory, ThreadMeter};
pub use objects::ResultObject;
pub use persons::{
    EveryPerson, GROUPS_MAX, Group, GroupColumns, GroupRecord, GroupType, Hot, MERGES_MAX, PEOPLE_MAX,
    People, PeoplePage, Person, PersonColumns, PersonInFull, PersonRecord, Subject, VALUES_BYTES_MAX,
    derived, is_usable_id, merge_asked_by,
};
pub use persons::{cohort_lists as members, continuity};
pub use scan::{Scan, ScanStats};
pub use settings::Settings;
pub use time::{parse_four_digit_year, parse_timestamp};

use cache::Cache;
use compaction::backlog::Backlog;
use compaction::merge_failures::MergeFailures;
use compaction::stale_persons::StalePersonChecks;
use integrity::quarantine::Quarantine;
use keys::BlockId;
use memory::MemoryBudget;
use objects::Objects;
use objects::retry::RetryBudget;
use persons::imports::ids_sidecar::{LegacyIdsReader, RecordIds};
use persons::imports::records::{self, PersonsObject};
use persons::merge_log::LogTails;
use persons::person_merge_cache::PersonMergeState;
use scan::decode_budget::DecodeBudget;
use scan::piece::PieceCache;
use segments::parquet_io::file::ParquetFile;
use segments::reader::SegmentFile;

/// The events of all projects. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EventStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    settings: Settings,
    objects: Objects,
    installation: installation::KnownInstallation,
    ties: AtomicU32,
    marked: Mutex<HashSet<ProjectId>>,
    backlog: Backlog,
    flag_calls: flag_calls::FlagCallCache,
    segments: Cache<Arc<SegmentFile>>,
    persons: Cache<Arc<PersonsObject>>,
    record_ids: Cache<Arc<RecordIds>>,
    read_legacy_ids: Option<LegacyIdsReader>,
    person_merge_cache: Cache<Arc<PersonMergeState>>,
    log_tails: LogTails,
    stale_person_checks: StalePersonChecks,
    merge_failures: MergeFailures,
    files: Cache<Arc<ParquetFile>>,
    /// Uuids of segments, by segment and hash.
    uuids: quick_cache::sync::Cache<(String, u64), Arc<[Uuid]>>,
    pieces: Arc<PieceCache>,
    /// For questions and the pieces.
    memory: MemoryBudget,
    /// For what scans decode.
    decode_budget: DecodeBudget,
    replaced: Cache<Arc<Vec<BlockId>>>,
}

/// Opened segments, and files beside them, that are remembered: footer and page index of each.
const SEGMENTS_REMEMBERED: usize = 256;
/// Objects with persons that are remembered.
const PERSONS_REMEMBERED: usize = 32;
/// Uuids of segments that are remembered, of which copies wait in blocks.
const UUIDS_REMEMBERED: usize = 32_768;
/// Projects whose merged persons are remembered.
const PERSON_MERGES_CACHED: usize = 16;
/// Lists of replaced blocks that are remembered.
const REPLACED_REMEMBERED: usize = 64;

impl EventStore {
    /// The events in the tables of `store` and the objects at `events_url`: `file:///directory`, which is made when it
    /// is missing, or `s3://bucket/prefix`, with credentials, region and endpoint from the environment.
    pub fn open(store: Store, events_url: &str) -> Result<EventStore, EventStoreError> {
        EventStore::open_with(store, events_url, Settings::default())
    }

    /// As [`EventStore::open`], with settings of the caller's.
    pub fn open_with(
        store: Store,
        events_url: &str,
        settings: Settings,
    ) -> Result<EventStore, EventStoreError> {
        let objects = Objects::open_trusting(events_url, store.roots)?;
        Ok(EventStore::with(store, objects, settings, Some(records::read_legacy_ids)))
    }

    /// As [`EventStore::open`], for a process that only appends events: it needs no reader of Parquet. Events that merge
    /// persons are refused as long as persons that a release before the second form of imports has imported wait for
    /// their first compaction.
    pub fn open_to_append(store: Store, events_url: &str) -> Result<EventStore, EventStoreError> {
        let objects = Objects::open_trusting(events_url, store.roots)?;
        Ok(EventStore::with(store, objects, Settings::default(), None))
    }

    /// The events in the tables of `store` and the objects of another object store, where calls that fail are tried
    /// again after waits no longer than `longest_wait`.
    pub fn over(store: Store, objects: Arc<dyn ObjectStore>, longest_wait: Duration) -> EventStore {
        let objects = Objects::over(objects, "").with_longest_wait(longest_wait);
        EventStore::with(store, objects, Settings::default(), Some(records::read_legacy_ids))
    }

    fn with(
        store: Store,
        objects: Objects,
        settings: Settings,
        read_legacy_ids: Option<LegacyIdsReader>,
    ) -> EventStore {
        let pieces = Arc::new(PieceCache::new(settings.cache_bytes));
        let inner = Inner {
            objects: objects.with_quarantine(Quarantine::new(store.clone())),
            installation: installation::KnownInstallation::default(),
            store,
            settings,
            // A start by chance, so that two processes do not count in step.
            ties: AtomicU32::new(pennon_core::ids::random_below(1 << 31) as u32),
            marked: Mutex::default(),
            backlog: Backlog::default(),
            flag_calls: flag_calls::FlagCallCache::default(),
            segments: Cache::new(SEGMENTS_REMEMBERED),
            persons: Cache::new(PERSONS_REMEMBERED),
            record_ids: Cache::new(PERSONS_REMEMBERED),
            read_legacy_ids,
            person_merge_cache: Cache::new(PERSON_MERGES_CACHED),
            log_tails: LogTails::default(),
            stale_person_checks: StalePersonChecks::default(),
            merge_failures: MergeFailures::default(),
            files: Cache::new(SEGMENTS_REMEMBERED),
            uuids: quick_cache::sync::Cache::new(UUIDS_REMEMBERED),
            memory: MemoryBudget::new(settings.memory_bytes, settings.cache_bytes, pieces.clone()),
            pieces,
            decode_budget: DecodeBudget::new(settings.scan_bytes / 2),
            replaced: Cache::new(REPLACED_REMEMBERED),
        };
        EventStore { inner: Arc::new(inner) }
    }

    /// The tries of work that somebody waits for.
    fn command_retries(&self) -> RetryBudget {
        RetryBudget::for_command(&self.inner.settings)
    }

    /// The tries of work that comes again by itself.
    fn background_retries(&self) -> RetryBudget {
        RetryBudget::for_background_task(&self.inner.settings)
    }

    /// Ascends within the process, for batches that arrive in one microsecond.
    fn next_tie(&self) -> u32 {
        self.inner.ties.fetch_add(1, Ordering::Relaxed)
    }
}

impl Inner {
    /// The projects whose rows this process has made. A panic elsewhere leaves the set usable.
    fn marked(&self) -> MutexGuard<'_, HashSet<ProjectId>> {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
