//! The event store: durable capture, compaction to Parquet, import, erasure, and scans for queries.
//!
//! A captured batch becomes a *block* in DynamoDB ([`EventStore::append`]). Compaction turns blocks into
//! *segments*, Parquet files in an object store. Imported history is written directly as segments
//! ([`EventStore::ingest`]). The *manifest*, a set of rows in DynamoDB, lists the segments and what each of
//! them replaces. A scan ([`EventStore::scan`]) reads the manifest, the blocks and the needed pages of the
//! segments, applies person merges, and returns columns to the engine.
//!
//! Each folder has components that own its rows, objects and caches; the README lists them. A folder imports only from
//! those before it in this order: `memory`, `objects`, `manifest`, `installation`, `blocks`, `flag_calls`, `segments`,
//! `persons`, `snapshots`, `ingest`, `scan`, `event_list`, `definitions`, `compaction`, `erasure`, `integrity`,
//! `event_store`. The files beside this one are below all folders.
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

mod block_partitions;
mod blocks;
mod cache;
mod codec;
mod compaction;
mod definitions;
mod erasure;
mod error;
mod event;
mod event_list;
mod event_store;
mod flag_calls;
mod formats;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod ingest;
mod installation;
mod integrity;
mod keys;
mod manifest;
mod memory;
mod objects;
mod person_ids;
mod persons;
mod property_value;
mod scan;
mod segments;
mod settings;
mod snapshots;
mod threads;
mod time;

pub use block_partitions::BlockPartitions;
pub use blocks::{
    CapturedBatch, CapturedEvent, EncodedBatch, EncodedProperties, JsonLimitError, JsonSizeBudget,
    MESSAGE_BYTES_MAX, PropertiesSeed, PropertyEncoder, ValueSeed, without_nul,
};
pub use compaction::{CompactionReport, MergeMode, ORPHANED_MICROS, ORPHANS_KEPT_DAYS, Orphan, SweepReport};
pub use definitions::{EVENT_NAMES_MAX, EventName, PropertyNames, ValueType};
pub use erasure::{ErasureReport, ErasureTarget};
pub use error::{EventStoreError, memory_in_use};
pub use event::Event;
pub use event_list::{
    EventKey, EventListBudget, EventListFilter, EventListResult, EventListSink, EventSink, ListedEvent,
    StoredEvent,
};
pub use event_store::EventStore;
pub use ingest::{
    BufferedMessage, BufferedReport, EVENTS_PER_SEGMENT_MAX, EventColumns, IngestReport, ParquetImport,
    ParquetImportRows, TEXT_BYTES_MAX,
};
pub use installation::AdoptionReport;
pub use integrity::{CheckProgress, CheckReport, DamagedSegment};
pub use manifest::{CompactionLease, CompactionTask, GRACE_MICROS, installation_marker};
pub use memory::{QueryMemory, ThreadMeter};
pub use objects::{Damage, ResultObject, TableFiles, VersionReport};
pub use person_ids::{derive_person_id, is_usable_id, requested_merge};
pub use persons::{
    EvaluationSubject, GROUPS_MAX, Group, GroupColumns, GroupRecord, GroupType, MERGES_MAX, PEOPLE_MAX,
    People, PeoplePage, Person, PersonColumns, PersonDetails, PersonRecord, PersonScan, VALUES_BYTES_MAX,
    WaitingBlocks,
};
pub use persons::{cohort_lists, continuity};
pub use property_value::{Properties, PropertyValue, read_properties};
pub use scan::{FirstEventTimes, MovedRows, PartScan, PinnedScan, Scan, ScanStats};
pub use segments::{TableColumn, TableColumnType, base_columns};
pub use settings::Settings;
pub use snapshots::{CanonicalPersons, LiveFiles, SegmentColumns, TableInputs, TableSegment};
pub use time::{parse_four_digit_year, parse_timestamp};
