//! The event store: durable capture, compaction to Parquet, import, erasure, and scans for queries.
//!
//! A captured batch becomes a *block* in DynamoDB ([`EventStore::append`]). Compaction turns blocks into
//! *segments*, Parquet files in an object store. Imported history is written directly as segments
//! ([`EventStore::ingest`]). The *manifest*, a set of rows in DynamoDB, lists the segments and what each of
//! them replaces. A scan ([`EventStore::scan`]) reads the manifest, the blocks and the needed pages of the
//! segments, applies person merges, and returns columns to the engine.
//!
//! Invariants of the whole crate:
//!
//! 1. An acknowledged event is counted from then on, exactly once, regardless of compaction, retries and
//!    crashes.
//! 2. The key of an event is (project, uuid). Duplicates count once: the one that arrived first wins, and one
//!    in a segment wins over any in a block, so a duplicate that is sent later never changes a result.
//! 3. Events with equal times keep their arrival order: by block in order of arrival, by line within an import.
//! 4. Segments hold no duplicates of each other's events: a writer compares a new segment with all segments
//!    that the manifest lists, and adds it only if the manifest has not changed since (optimistic concurrency).

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

pub use compaction::{
    CompactionReport, GRACE_MICROS, MergeMode, ORPHANED_MICROS, ORPHANS_KEPT_DAYS, Orphan, SweepReport,
};
pub use definitions::{EVENT_NAMES_MAX, EventName, PropertyNames, ValueType};
pub use erasure::{ErasureReport, ErasureTarget};
pub use error::{EventStoreError, memory_in_use};
pub use event::Event;
pub use event_list::{
    EventKey, EventListBudget, EventListFilter, EventListResult, EventListSink, EventSink, ListedEvent,
    StoredEvent,
};
pub use ingest::{
    CapturedBatch, CapturedEvent, Cell, EVENTS_PER_SEGMENT_MAX, EncodedBatch, EventColumns, IngestReport,
    JsonLimitError, Meter, Packed, PackedProperties, ParquetImport, ParquetImportRows, Properties,
    PropertiesSeed, TEXT_BYTES_MAX, ValueSeed, read_properties, without_nul,
};
pub use installation::{AdoptionReport, installation_marker};
pub use integrity::{CheckProgress, Checked, Damage, DamagedSegment};
pub use manifest::{CanonicalPersons, LiveFiles};
pub use memory::{QueryMemory, ThreadMeter};
pub use objects::ResultObject;
pub use persons::{
    GROUPS_MAX, Group, GroupColumns, GroupRecord, GroupType, MERGES_MAX, PEOPLE_MAX, People, PeoplePage,
    Person, PersonColumns, PersonDetails, PersonRecord, PersonScan, Subject, VALUES_BYTES_MAX, WaitingBlocks,
    derived, is_usable_id, requested_merge,
};
pub use persons::{cohort_lists as members, continuity};
pub use scan::{Scan, ScanStats};
pub use settings::Settings;
pub use time::{parse_four_digit_year, parse_timestamp};

use cache::Cache;
use compaction::Backlog;
use compaction::MergeFailures;
use compaction::StalePersonChecks;
use integrity::Quarantine;
use keys::BlockId;
use memory::MemoryBudget;
use objects::Objects;
use objects::RetryBudget;
use persons::PersonMergeState;
use persons::imports::records::{self, PersonsObject};
use persons::imports::{LegacyIdsReader, RecordIds};
use persons::merge_log::LogTails;
use scan::DecodeBudget;
use scan::PieceCache;
use segments::parquet_io::ParquetFile;
use segments::reader::SegmentFile;

/// The event store of all projects. Cheap to clone.
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
    /// Uuids by segment and hash: confirms hash matches of the uuid index.
    uuids: quick_cache::sync::Cache<(String, u64), Arc<[Uuid]>>,
    pieces: Arc<PieceCache>,
    /// Shared by queries and the piece cache.
    memory: MemoryBudget,
    /// Limits the memory of pages that are being decoded.
    decode_budget: DecodeBudget,
    replaced: Cache<Arc<Vec<BlockId>>>,
}

/// Cached open files: footer and page index of a segment or of a file beside it.
const SEGMENTS_CACHED: usize = 256;
/// Cached objects with imported persons.
const PERSON_OBJECTS_CACHED: usize = 32;
/// Cached uuids of segments that match events waiting in blocks.
const UUIDS_CACHED: usize = 32_768;
/// Projects whose person merges are cached.
const PERSON_MERGES_CACHED: usize = 16;
/// Cached lists of replaced blocks.
const REPLACED_LISTS_CACHED: usize = 64;

impl EventStore {
    /// Opens the event store on the tables of `store` and the objects at `events_url`: `file:///directory`
    /// (created when it is missing) or `s3://bucket/prefix` (credentials, region and endpoint from the
    /// environment).
    pub fn open(store: Store, events_url: &str) -> Result<EventStore, EventStoreError> {
        EventStore::open_with(store, events_url, Settings::default())
    }

    /// As [`EventStore::open`], with the given settings.
    pub fn open_with(
        store: Store,
        events_url: &str,
        settings: Settings,
    ) -> Result<EventStore, EventStoreError> {
        let objects = Objects::open_trusting(events_url, store.roots)?;
        Ok(EventStore::with(store, objects, settings, Some(records::read_legacy_ids)))
    }

    /// As [`EventStore::open`], for a process that only appends events and links no Parquet reader. Events that
    /// merge persons are refused while persons imported by a release before import format 2 wait for their
    /// first compaction.
    pub fn open_to_append(store: Store, events_url: &str) -> Result<EventStore, EventStoreError> {
        let objects = Objects::open_trusting(events_url, store.roots)?;
        Ok(EventStore::with(store, objects, Settings::default(), None))
    }

    /// Opens the event store on the tables of `store` and another object store. Failed calls are retried with
    /// waits no longer than `longest_wait`.
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
            // Starts at a random value, so that two processes do not count in step.
            ties: AtomicU32::new(pennon_core::ids::random_below(1 << 31) as u32),
            marked: Mutex::default(),
            backlog: Backlog::default(),
            flag_calls: flag_calls::FlagCallCache::default(),
            segments: Cache::new(SEGMENTS_CACHED),
            persons: Cache::new(PERSON_OBJECTS_CACHED),
            record_ids: Cache::new(PERSON_OBJECTS_CACHED),
            read_legacy_ids,
            person_merge_cache: Cache::new(PERSON_MERGES_CACHED),
            log_tails: LogTails::default(),
            stale_person_checks: StalePersonChecks::default(),
            merge_failures: MergeFailures::default(),
            files: Cache::new(SEGMENTS_CACHED),
            uuids: quick_cache::sync::Cache::new(UUIDS_CACHED),
            memory: MemoryBudget::new(settings.memory_bytes, settings.cache_bytes, pieces.clone()),
            pieces,
            decode_budget: DecodeBudget::new(settings.scan_bytes / 2),
            replaced: Cache::new(REPLACED_LISTS_CACHED),
        };
        EventStore { inner: Arc::new(inner) }
    }

    /// Retry budget of work that a user waits for.
    fn command_retries(&self) -> RetryBudget {
        RetryBudget::for_command(&self.inner.settings)
    }

    /// Retry budget of background work, which runs again by itself.
    fn background_retries(&self) -> RetryBudget {
        RetryBudget::for_background_task(&self.inner.settings)
    }

    /// Increases within the process. Orders batches that arrive in the same microsecond.
    fn next_tie(&self) -> u32 {
        self.inner.ties.fetch_add(1, Ordering::Relaxed)
    }
}

impl Inner {
    /// The projects whose marker rows this process has written. Recovers from a poisoned lock: the set stays
    /// valid.
    fn marked(&self) -> MutexGuard<'_, HashSet<ProjectId>> {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
