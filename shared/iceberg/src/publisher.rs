//! Publishes new versions of the two tables of a project.
//!
//! Must stay true: the version that a new one follows is read before the manifest, so no version is older than the one before it;
//! files are stored before the version that names them, and deleted ten minutes after a version replaced them, as long as
//! the segments that they name exist; a publisher that stops anywhere leaves the table as it was, or the new version; one that
//! fails deletes what it has written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use pennon_analytics::scan::Micros;
use pennon_core::ids;
use pennon_core::store::StoreError;
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{EventStore, EventStoreError, SegmentColumns, TableFiles, TableInputs, TableSegment};
use tokio::time::Instant;
use uuid::Uuid;

use crate::columns::{TableSchema, events_schema};
use crate::manifest_files::{DataFile, SnapshotIds, manifest, manifest_list};
use crate::metadata::{LAYOUT, NewSnapshot, ReplacedFile, TableState, TableVersion};
use crate::persons::{persons_schema, write_persons};
use crate::publication::{Clock, Publication, PublicationMode};
use crate::version_log::VersionLog;

#[cfg(test)]
mod tests;

/// Attempts to publish while other publishers do.
const ATTEMPTS: usize = 5;
/// Time between versions of the persons table. Its data is written as a whole.
const PERSONS_INTERVAL: Micros = 10 * 60 * 1_000_000;
/// Footers of segments that are read concurrently.
const FOOTERS_AT_ONCE: usize = 16;
/// In place of the data of a persons table: the project has too many.
const TOO_MANY: &str = "too many persons";

/// A table of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Table {
    Events,
    Persons,
}

impl Table {
    pub(crate) fn folder(self, project: ProjectId) -> String {
        let name = match self {
            Table::Events => "events",
            Table::Persons => "persons",
        };
        format!("{}/{name}", project_folder(project))
    }
}

pub(crate) fn project_folder(project: ProjectId) -> String {
    format!("project={project}")
}

/// The content of a new version.
struct TableContent {
    schema: TableSchema,
    files: Vec<DataFile>,
    /// Names of files of the folder of tables that were written for it.
    written: Vec<String>,
}

/// What a call publishes, and how long it may take.
struct PublicationRequest<'a> {
    project: ProjectId,
    mode: PublicationMode,
    clock: Clock<'a>,
    start: Instant,
    time: Duration,
}

impl PublicationRequest<'_> {
    fn interval(&self, table: Table) -> Micros {
        match (table, self.mode) {
            (Table::Persons, PublicationMode::Regular) => PERSONS_INTERVAL,
            _ => 0,
        }
    }
}

type ColumnsByObject = HashMap<String, Arc<SegmentColumns>>;

/// Publishes the tables of all projects. Remembers the newest versions, so a call that has nothing to publish reads no object.
#[derive(Debug)]
pub struct TablePublisher {
    pub(crate) events: EventStore,
    pub(crate) files: TableFiles,
    newest: Mutex<HashMap<(ProjectId, Table), TableVersion>>,
    /// The columns of the segments of the last version.
    columns: Mutex<HashMap<ProjectId, ColumnsByObject>>,
    /// When a project had too many persons.
    refused: Mutex<HashMap<ProjectId, Micros>>,
}

impl TablePublisher {
    /// A publisher of the events of `events`.
    pub fn new(events: EventStore) -> TablePublisher {
        let files = events.table_files().clone();
        let (newest, columns, refused) = Default::default();
        TablePublisher { events, files, newest, columns, refused }
    }

    /// Publishes the tables of a project if they changed, and deletes files that were replaced ten minutes ago. What is not
    /// collected within `time` is not published.
    ///
    /// A failure of one table does not keep the other from being published; the first error is returned.
    pub async fn publish(
        &self,
        project: ProjectId,
        mode: PublicationMode,
        clock: Clock<'_>,
        time: Duration,
    ) -> Result<Publication, EventStoreError> {
        let request = PublicationRequest { project, mode, clock, start: Instant::now(), time };
        let (events, persons) = self.publish_tables(&request).await;
        Ok(Publication { events: events?, persons: persons? })
    }

    /// As [`TablePublisher::publish`] without a limit of time, if the project has tables. Returns none if it has not.
    pub async fn republish(
        &self,
        project: ProjectId,
        mode: PublicationMode,
        clock: Clock<'_>,
    ) -> Result<Option<Publication>, EventStoreError> {
        let listed = self.files.list(&project_folder(project)).await?;
        if listed.is_empty() {
            return Ok(None);
        }
        let request = PublicationRequest { project, mode, clock, start: Instant::now(), time: Duration::MAX };
        let (events, persons) = self.publish_tables(&request).await;
        if mode == PublicationMode::AfterErasure && matches!(persons, Ok(true)) {
            self.remove_unnamed_data(project, listed).await?;
        }
        Ok(Some(Publication { events: events?, persons: persons? }))
    }

    /// The events first, as segments that their last version names are being deleted.
    async fn publish_tables(
        &self,
        request: &PublicationRequest<'_>,
    ) -> (Result<bool, EventStoreError>, Result<bool, EventStoreError>) {
        let events = self.publish_table(request, Table::Events).await;
        let persons = match request.mode {
            PublicationMode::EventsOnly => Ok(false),
            _ => self.publish_table(request, Table::Persons).await,
        };
        (events, persons)
    }

    async fn publish_table(
        &self,
        request: &PublicationRequest<'_>,
        table: Table,
    ) -> Result<bool, EventStoreError> {
        let published = self.publish_new(request, table).await;
        // Also when nothing can be published.
        let removed = self.remove_due_of_remembered(request.project, table, (request.clock)()).await;
        let published = published?;
        removed.map(|()| published)
    }

    async fn publish_new(
        &self,
        request: &PublicationRequest<'_>,
        table: Table,
    ) -> Result<bool, EventStoreError> {
        let project = request.project;
        if table == Table::Persons && self.is_refused(request) {
            return Ok(false);
        }
        let log = VersionLog::new(self.files.clone(), table.folder(project));
        for _ in 0..ATTEMPTS {
            // Before the manifest.
            let remembered = self.remembered(project, table);
            let is_remembered = remembered.is_some();
            let former = match remembered {
                Some(version) => Some(version),
                None => log.newest().await?,
            };
            if let Some(former) = &former {
                self.remember(project, table, former.clone());
            }
            let inputs = self.events.table_inputs(project).await?;
            let state = self.state(project, table, &inputs);
            if is_current(former.as_ref(), &state, &inputs, (request.clock)(), request.interval(table)) {
                return Ok(false);
            }
            if let Some(former) = &former
                && is_remembered
                && !log.is_newest(former.number).await?
            {
                // Other publishers were faster, maybe so long ago that their metadata was deleted and could be created again.
                self.forget(project, table);
                continue;
            }
            let (content, state) = match self.content(request, table, &inputs, former.as_ref()).await {
                Err(EventStoreError::TooLarge(cause)) if table == Table::Persons => {
                    tracing::warn!(project, cause, "the project has too many persons for a table of them");
                    match self.withdraw_persons(request, former.as_ref(), state).await? {
                        Some(empty) => empty,
                        None => return Ok(false),
                    }
                }
                content => (content?, state),
            };
            match self.commit(&log, former, state, content, request).await? {
                Some(version) => {
                    self.remember(project, table, version);
                    return Ok(true);
                }
                None => self.forget(project, table),
            }
        }
        Err(EventStoreError::Contended)
    }

    fn state(&self, project: ProjectId, table: Table, inputs: &TableInputs) -> TableState {
        let (merges, data) = match table {
            Table::Events => (String::new(), inputs.live.clone()),
            Table::Persons => (inputs.merges.clone(), inputs.distinct_ids.clone()),
        };
        TableState { layout: LAYOUT, location: self.files.location(&table.folder(project)), merges, data }
    }

    /// Collects the data files of a new version. Those of persons are written, and deleted if not all can be.
    async fn content(
        &self,
        request: &PublicationRequest<'_>,
        table: Table,
        inputs: &TableInputs,
        former: Option<&TableVersion>,
    ) -> Result<TableContent, EventStoreError> {
        let written = Mutex::default();
        let content = async {
            match table {
                Table::Events => self.events_content(request, inputs, former).await,
                Table::Persons => self.persons_content(request.project, &written).await,
            }
        };
        let left = request.time.saturating_sub(request.start.elapsed());
        let content = tokio::time::timeout(left, content).await.unwrap_or_else(|_| {
            let cause = "the time for tables is over; the next run starts again".to_owned();
            Err(StoreError::Busy(cause).into())
        });
        if content.is_err() {
            self.discard(&written.into_inner().unwrap_or_else(PoisonError::into_inner)).await;
        }
        content
    }

    async fn events_content(
        &self,
        request: &PublicationRequest<'_>,
        inputs: &TableInputs,
        former: Option<&TableVersion>,
    ) -> Result<TableContent, EventStoreError> {
        let columns = self.segment_columns(request.project, &inputs.segments).await?;
        let (mut segments, mut files) = (Vec::new(), Vec::new());
        for (segment, columns) in inputs.segments.iter().zip(columns) {
            files.push(DataFile {
                location: self.files.location_of_object(segment.object()),
                bytes: segment.bytes(),
                rows: segment.rows(),
                times: Some(segment.times()),
                event_names: columns.event_names.clone(),
            });
            segments.push((segment.rows(), columns));
        }
        let former = former.map_or(&[][..], |former| &former.fields);
        let keeps_former = request.mode != PublicationMode::AfterErasure;
        Ok(TableContent {
            schema: events_schema(&segments, former, keeps_former),
            files,
            written: Vec::new(),
        })
    }

    /// The columns of segments. Reads the footers of those that the last call did not have.
    async fn segment_columns(
        &self,
        project: ProjectId,
        segments: &[TableSegment],
    ) -> Result<Vec<Arc<SegmentColumns>>, EventStoreError> {
        let known = lock(&self.columns).get(&project).cloned().unwrap_or_default();
        let new = segments.iter().filter(|segment| !known.contains_key(segment.object()));
        let read = async |segment: &TableSegment| {
            let columns = self.events.segment_columns(segment).await?;
            Ok::<_, EventStoreError>((segment.object().to_owned(), Arc::new(columns)))
        };
        // Collected, because a closure that is held while waiting keeps the compiler from seeing that this can be sent.
        let reads = new.map(read).collect::<Vec<_>>();
        let reads = futures::stream::iter(reads).buffer_unordered(FOOTERS_AT_ONCE);
        let mut all = reads.try_collect::<ColumnsByObject>().await?;
        all.extend(known);
        let live =
            segments.iter().filter_map(|segment| all.remove_entry(segment.object())).collect::<Vec<_>>();
        let columns = live.iter().map(|(_, columns)| columns.clone()).collect();
        lock(&self.columns).insert(project, live.into_iter().collect());
        Ok(columns)
    }

    /// Writes the data files of persons. Their names are in `written` before they are.
    async fn persons_content(
        &self,
        project: ProjectId,
        written: &Mutex<Vec<String>>,
    ) -> Result<TableContent, EventStoreError> {
        let files = Mutex::new(Vec::new());
        let added = &files;
        write_persons(&self.events, project, |file| async move {
            let name = format!("{}/data/{}.parquet", Table::Persons.folder(project), Uuid::new_v4());
            let bytes = file.bytes.len() as u64;
            lock(written).push(name.clone());
            self.create(&name, file.bytes).await?;
            let location = self.files.location(&name);
            lock(added).push(DataFile { location, bytes, rows: file.rows, times: None, event_names: None });
            Ok(())
        })
        .await?;
        let files = files.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(TableContent { schema: persons_schema(), files, written: lock(written).clone() })
    }

    /// Whether the project had too many persons a short time ago: to find that out, all are read.
    fn is_refused(&self, request: &PublicationRequest<'_>) -> bool {
        let refused = lock(&self.refused).get(&request.project).copied();
        let until = refused.map(|at| at.saturating_add(request.interval(Table::Persons)));
        until.is_some_and(|until| until > (request.clock)())
    }

    /// Ends the persons table of a project with too many. Returns the empty version that follows one with data: readers have ten
    /// minutes; the run after them deletes the table.
    async fn withdraw_persons(
        &self,
        request: &PublicationRequest<'_>,
        former: Option<&TableVersion>,
        state: TableState,
    ) -> Result<Option<(TableContent, TableState)>, EventStoreError> {
        let now = (request.clock)();
        lock(&self.refused).insert(request.project, now);
        let Some(former) = former else { return Ok(None) };
        if former.state.data != TOO_MANY {
            let content = TableContent { schema: persons_schema(), files: Vec::new(), written: Vec::new() };
            return Ok(Some((content, TableState { data: TOO_MANY.to_owned(), ..state })));
        }
        if former.files.replaced.iter().all(|file| file.is_due(now)) {
            self.remove_folder(&Table::Persons.folder(request.project)).await?;
            self.forget(request.project, Table::Persons);
        }
        Ok(None)
    }

    /// Stores the lists of a new version, and publishes it. Returns none if another publisher was faster.
    async fn commit(
        &self,
        log: &VersionLog,
        former: Option<TableVersion>,
        state: TableState,
        content: TableContent,
        request: &PublicationRequest<'_>,
    ) -> Result<Option<TableVersion>, EventStoreError> {
        let TableContent { schema, files, written } = content;
        let mut version = TableVersion::next(former.as_ref(), &schema.fields, state, (request.clock)());
        let snapshot =
            i64::try_from(ids::random_below(i64::MAX.cast_unsigned())).unwrap_or(version.sequence).max(1);
        let ids = SnapshotIds { snapshot, sequence: version.sequence };
        version.files.own = written;
        let stored = self.write_lists(log, ids, &mut version, &files).await;
        // The time of the commit: readers use the former version until then.
        let now = (request.clock)();
        version.files.replaced = former.iter().flat_map(|former| replaced_files(log, former, now)).collect();
        let encoded = stored.and_then(|manifest_list| {
            let snapshot = NewSnapshot {
                id: ids.snapshot,
                manifest_list,
                files: files.len(),
                rows: files.iter().map(|file| file.rows).sum(),
                bytes: files.iter().map(|file| file.bytes).sum(),
            };
            Ok(version.encode(&schema, &snapshot)?)
        });
        let body = match encoded {
            Ok(body) => body,
            Err(error) => {
                self.discard(&version.files.own).await;
                return Err(error);
            }
        };
        // After an error here the version may be published, so its files stay; if it is not, the sweep finds them.
        if log.commit(&version, body).await? {
            return Ok(Some(version));
        }
        self.discard(&version.files.own).await;
        Ok(None)
    }

    /// Stores manifest and manifest list, whose names are added to the files of the version before. Returns the location of the
    /// list.
    async fn write_lists(
        &self,
        log: &VersionLog,
        ids: SnapshotIds,
        version: &mut TableVersion,
        files: &[DataFile],
    ) -> Result<String, EventStoreError> {
        let name = |what: &str| format!("{}-{what}.avro", log.snapshot_file(ids.snapshot));
        let schema = version.schema_json().to_string();
        let mut stored = None;
        if !files.is_empty() {
            let bytes = manifest(ids, (version.schema_id, &schema), files, ids::random_bytes());
            let (name, size) = (name("manifest"), bytes.len() as u64);
            version.files.own.push(name.clone());
            self.create(&name, bytes).await?;
            stored = Some((self.files.location(&name), size));
        }
        let stored = stored.as_ref().map(|(location, size)| (location.as_str(), *size));
        let list = manifest_list(ids, stored, files, ids::random_bytes());
        let name = name("list");
        version.files.own.push(name.clone());
        self.create(&name, list).await?;
        Ok(self.files.location(&name))
    }

    async fn create(&self, name: &str, bytes: Bytes) -> Result<(), EventStoreError> {
        if self.files.create(name, bytes).await? { Ok(()) } else { Err(EventStoreError::Contended) }
    }

    /// Deletes files that no version will name.
    async fn discard(&self, names: &[String]) {
        if let Err(error) = self.files.remove(names).await {
            tracing::warn!(?names, %error, "files of a table that was not published are left to the sweep");
        }
    }

    pub(crate) fn remembered(&self, project: ProjectId, table: Table) -> Option<TableVersion> {
        lock(&self.newest).get(&(project, table)).cloned()
    }

    pub(crate) fn remember(&self, project: ProjectId, table: Table, version: TableVersion) {
        lock(&self.newest).insert((project, table), version);
    }

    pub(crate) fn forget(&self, project: ProjectId, table: Table) {
        lock(&self.newest).remove(&(project, table));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether nothing has to be published. A project without events gets no table, but one that had some keeps an empty one.
fn is_current(
    former: Option<&TableVersion>,
    state: &TableState,
    inputs: &TableInputs,
    now: Micros,
    interval: Micros,
) -> bool {
    let Some(former) = former else { return inputs.segments.is_empty() };
    // Without an interval, a clock that is behind that of the last publisher must not delay anything.
    let is_early = interval > 0 && former.updated_ms.saturating_mul(1000).saturating_add(interval) > now;
    let is_in_place = former.state.layout == state.layout && former.state.location == state.location;
    former.state == *state || is_early && is_in_place
}

/// The files that the version after `former` replaces: all of `former`, and those that it replaced itself less than ten minutes
/// before `now`.
fn replaced_files(log: &VersionLog, former: &TableVersion, now: Micros) -> Vec<ReplacedFile> {
    let own = former.files.own.iter().cloned().chain([log.metadata_file(former.number)]);
    let own = own.map(|name| ReplacedFile { name, at: now });
    own.chain(former.files.replaced.iter().cloned()).collect()
}
