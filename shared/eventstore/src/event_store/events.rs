//! Capture, import, listing and scanning of events.

use std::sync::Arc;

use pennon_analytics::scan::{Micros, ScanRequest};
use pennon_core::store::keys::ProjectId;
use pennon_flag_rules::calls::{CallsByKey, FlagCalls};
use tokio::time::Instant;

use super::EventStore;
use crate::blocks::{CapturedBatch, EncodedBatch};
use crate::definitions::{EventName, PropertyNames};
use crate::error::EventStoreError;
use crate::event::Event;
use crate::event_list::{EventListBudget, EventListFilter, EventListResult, EventListSink, EventSink};
use crate::ingest::{BufferedMessage, BufferedReport, EventColumns, IngestReport};
use crate::memory::QueryMemory;
use crate::objects::TableFiles;
use crate::persons::GroupType;
use crate::scan::{FirstEventTimes, MovedRows, PartScan, PinnedScan, Scan, ScanStats};
use crate::snapshots::{LiveFiles, SegmentColumns, TableInputs, TableSegment};

impl EventStore {
    /// Stores a captured batch that arrived at `now`. When it returns, the events are durable and counted, and
    /// the person merges that they request are applied.
    pub async fn append(
        &self,
        project: ProjectId,
        events: &[Event],
        now: Micros,
    ) -> Result<(), EventStoreError> {
        if events.is_empty() {
            return Ok(());
        }
        self.append_encoded(project, CapturedBatch::of(events).encode()?, now).await
    }

    /// As [`EventStore::append`], for a batch that was encoded before.
    pub async fn append_encoded(
        &self,
        project: ProjectId,
        batch: EncodedBatch,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        self.components.capture.append_encoded(project, batch, now).await
    }

    /// The message by which a batch that arrived at `now` waits in a queue for [`EventStore::append_messages`], after the person merges
    /// that it requests were applied. `None`, and nothing was done, if a message cannot hold it: append it instead.
    pub async fn buffered_message(
        &self,
        project: ProjectId,
        batch: &EncodedBatch,
        now: Micros,
    ) -> Result<Option<String>, EventStoreError> {
        self.components.capture.buffered_message(project, batch, now).await
    }

    /// Appends the batches of `messages`, those of a project as few blocks that arrived at `now`, until `end`. Messages may be
    /// repeated, and in any order.
    pub async fn append_messages(
        &self,
        messages: Vec<BufferedMessage>,
        now: Micros,
        end: Instant,
    ) -> BufferedReport {
        self.components.capture.append_messages(messages, now, end).await
    }

    /// Lists the projects that have events, imported persons or groups.
    pub async fn projects(&self) -> Result<Vec<ProjectId>, EventStoreError> {
        self.components.projects.projects().await
    }

    /// Imports events as a segment, each with its line number. `now` is the start of the import and the same
    /// for all its calls, so that line order is arrival order.
    ///
    /// [`EventStoreError::TooLarge`] above [`EVENTS_PER_SEGMENT_MAX`] events; nothing is stored then.
    pub async fn ingest(
        &self,
        project: ProjectId,
        events: Vec<(u64, Event)>,
        now: Micros,
    ) -> Result<IngestReport, EventStoreError> {
        self.components.importer.ingest(project, events, now).await
    }

    /// As [`EventStore::ingest`], for events in columns.
    ///
    /// [`EventStoreError::Contended`] after repeated version conflicts; nothing is stored then.
    pub async fn ingest_columns(
        &self,
        project: ProjectId,
        events: EventColumns,
    ) -> Result<IngestReport, EventStoreError> {
        self.components.importer.ingest_columns(project, events).await
    }

    /// Scans the events that `request` selects. `group_types` are the names of the group types of the project,
    /// by index.
    pub async fn scan(
        &self,
        project: ProjectId,
        group_types: &[String],
        request: &ScanRequest,
    ) -> Result<Scan, EventStoreError> {
        self.scan_within(project, group_types, request, &self.query_memory()).await
    }

    /// The memory reservation of one query. Its scans together may take [`crate::Settings::scan_bytes`], and
    /// all queries at one time [`crate::Settings::memory_bytes`].
    pub fn query_memory(&self) -> QueryMemory {
        self.components.memory.start_query(self.components.settings.scan_bytes)
    }

    /// As [`EventStore::scan`], for one of several scans that share `memory`.
    pub async fn scan_within(
        &self,
        project: ProjectId,
        group_types: &[String],
        request: &ScanRequest,
        memory: &QueryMemory,
    ) -> Result<Scan, EventStoreError> {
        self.components.scanner.scan_within(project, group_types, request, memory).await
    }

    /// Pins the events that `request` selects as of now, within `memory`: to scan them whole, or in parts.
    pub async fn pin_scan(
        &self,
        project: ProjectId,
        group_types: &[String],
        request: &ScanRequest,
        memory: &QueryMemory,
    ) -> Result<PinnedScan, EventStoreError> {
        self.components.scanner.pin_scan(project, group_types, request, memory).await
    }

    /// Scans all pinned events.
    pub async fn scan_pinned(
        &self,
        pinned: PinnedScan,
        memory: &QueryMemory,
    ) -> Result<Scan, EventStoreError> {
        self.components.scanner.scan_pinned(pinned, memory).await
    }

    /// Scans the events of one part of a pinned scan, perhaps of another process.
    pub async fn scan_part(&self, part: PartScan, memory: &QueryMemory) -> Result<Scan, EventStoreError> {
        self.components.scanner.scan_part(part, memory).await
    }

    /// The rows that a part finds for persons of other parts, see [`PinnedScan::has_merges`], and what it has read.
    pub async fn moved_rows(
        &self,
        part: PartScan,
        memory: &QueryMemory,
    ) -> Result<(MovedRows, ScanStats), EventStoreError> {
        self.components.scanner.moved_rows(part, memory).await
    }

    /// The times of the earliest events of all persons, up to now, for one of several scans that share `memory`.
    pub async fn first_event_times(
        &self,
        project: ProjectId,
        memory: &QueryMemory,
    ) -> Result<FirstEventTimes, EventStoreError> {
        self.components.scanner.first_event_times(project, memory).await
    }

    /// Passes matching events to `take`, newest first, until it breaks or `budget` is used up. At least one
    /// batch is processed.
    pub async fn list_newest_events<T: EventListSink>(
        &self,
        project: ProjectId,
        requested: EventListFilter,
        budget: EventListBudget,
        to: T,
    ) -> Result<(T, EventListResult), EventStoreError> {
        self.components
            .event_list
            .list_newest_events(project, requested, budget, to, &self.query_memory())
            .await
    }

    /// Exports all events of a project to `to`.
    pub async fn each_event<T: EventSink>(&self, project: ProjectId, to: T) -> Result<T, EventStoreError> {
        self.components.event_list.each_event(project, to).await
    }

    /// All event names of a project, ascending.
    ///
    /// [`EventStoreError::TooLarge`] above [`EVENT_NAMES_MAX`] names.
    pub async fn event_names(&self, project: ProjectId) -> Result<Vec<EventName>, EventStoreError> {
        self.components.definitions.event_names(project, &self.query_memory()).await
    }

    /// The property names of events: of each segment its columns, at most 250, and its other keys if there are
    /// at most 2,000, whose type is unknown.
    pub async fn event_property_names(&self, project: ProjectId) -> Result<PropertyNames, EventStoreError> {
        self.components.definitions.event_property_names(project, &self.query_memory()).await
    }

    /// The property names of persons.
    ///
    /// [`EventStoreError::TooLarge`] as for [`EventStore::people`].
    pub async fn person_property_names(&self, project: ProjectId) -> Result<PropertyNames, EventStoreError> {
        self.components.definitions.person_property_names(project, &self.query_memory()).await
    }

    /// The property names of groups of a type.
    ///
    /// [`EventStoreError::TooLarge`] as for [`EventStore::groups_of`].
    pub async fn group_property_names(
        &self,
        project: ProjectId,
        group_type: &GroupType,
    ) -> Result<PropertyNames, EventStoreError> {
        self.components.definitions.group_property_names(project, group_type, &self.query_memory()).await
    }

    /// The time of the earliest event, if there is one.
    pub async fn earliest(&self, project: ProjectId) -> Result<Option<Micros>, EventStoreError> {
        self.components.snapshots.earliest(project).await
    }

    /// Lists the live files of a project.
    pub async fn live_files(&self, project: ProjectId) -> Result<LiveFiles, EventStoreError> {
        self.components.snapshots.live_files(project).await
    }

    /// Reads what the tables of a project are made of.
    pub async fn table_inputs(&self, project: ProjectId) -> Result<TableInputs, EventStoreError> {
        self.components.snapshots.table_inputs(project).await
    }

    /// Reads the columns of a segment of a table; the footers of 256 segments are cached.
    pub async fn segment_columns(&self, segment: &TableSegment) -> Result<SegmentColumns, EventStoreError> {
        self.components.snapshots.segment_columns(segment).await
    }

    /// The files of published tables.
    pub fn table_files(&self) -> &TableFiles {
        &self.components.table_files
    }

    /// Raises the last call times of the flags in `calls`; future times count as `now`. Keys of no live flag
    /// are ignored.
    pub async fn store_flag_calls(
        &self,
        project: ProjectId,
        calls: &CallsByKey,
        now: Micros,
    ) -> Result<(), EventStoreError> {
        self.components.flag_calls.store_flag_calls(project, calls, now).await
    }

    /// The last call times of flags: the stored ones, and those of the newest blocks that they do not include
    /// yet (at most one page per shard). One round trip; cached for five seconds, unless this process has
    /// stored events since. Unreadable blocks are skipped.
    pub async fn flag_calls(&self, project: ProjectId) -> Result<Arc<FlagCalls>, EventStoreError> {
        self.components.flag_calls.flag_calls(project).await
    }
}
