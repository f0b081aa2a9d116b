//! Publishes new versions of the two tables of a project, and deletes files that no version needs.
//!
//! Must stay true: the version that a new one follows is read before the manifest, so no version is older than the one before it;
//! files are stored before the version that names them, and deleted ten minutes after a version replaced them, as long as
//! the segments that they name exist; a publisher that stops anywhere leaves the table as it was, or the new version.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use pennon_analytics::scan::Micros;
use pennon_core::ids;
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{
    EventStore, EventStoreError, GRACE_MICROS, ORPHANED_MICROS, TableFiles, TableInputs,
};
use uuid::Uuid;

use crate::columns::{TableSchema, events_schema};
use crate::manifest_files::{DataFile, SnapshotIds, manifest, manifest_list};
use crate::metadata::{LAYOUT, NewSnapshot, ReplacedFile, TableState, TableVersion};
use crate::persons::{persons_schema, write_persons};
use crate::version_log::VersionLog;

/// Attempts to publish while other publishers do.
const ATTEMPTS: usize = 5;
/// Time between versions of the persons table when only distinct ids and properties changed. Its data is written as a whole.
const PERSONS_INTERVAL: Micros = 10 * 60 * 1_000_000;

/// A table of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Table {
    Events,
    Persons,
}

impl Table {
    fn folder(self, project: ProjectId) -> String {
        let name = match self {
            Table::Events => "events",
            Table::Persons => "persons",
        };
        format!("{}/{name}", project_folder(project))
    }
}

fn project_folder(project: ProjectId) -> String {
    format!("project={project}")
}

/// What a call published.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Publication {
    /// Whether a version of the events table was published.
    pub events: bool,
    /// Whether a version of the persons table was published.
    pub persons: bool,
}

/// The content of a new version.
struct TableContent {
    schema: TableSchema,
    files: Vec<DataFile>,
    /// Names of files of the folder of tables that were written for it.
    written: Vec<String>,
}

/// Publishes the tables of all projects. Remembers the newest versions, so a call that has nothing to publish reads no object.
#[derive(Debug)]
pub struct TablePublisher {
    events: EventStore,
    files: TableFiles,
    newest: Mutex<HashMap<(ProjectId, Table), TableVersion>>,
}

impl TablePublisher {
    /// A publisher of the events of `events`.
    pub fn new(events: EventStore) -> TablePublisher {
        let files = events.table_files().clone();
        TablePublisher { events, files, newest: Mutex::default() }
    }

    /// Publishes both tables of a project if they changed, and deletes files that were replaced ten minutes before `now`.
    pub async fn publish(&self, project: ProjectId, now: Micros) -> Result<Publication, EventStoreError> {
        self.publish_all(project, now, PERSONS_INTERVAL).await
    }

    /// As [`TablePublisher::publish`], at once after data was erased, if the project has tables. Returns none if it has not.
    pub async fn republish(
        &self,
        project: ProjectId,
        now: Micros,
    ) -> Result<Option<Publication>, EventStoreError> {
        if self.files.list(&project_folder(project)).await?.is_empty() {
            return Ok(None);
        }
        self.publish_all(project, now, 0).await.map(Some)
    }

    /// The persons first: events whose persons are merged already count right with the new ones only.
    async fn publish_all(
        &self,
        project: ProjectId,
        now: Micros,
        persons_interval: Micros,
    ) -> Result<Publication, EventStoreError> {
        let persons = match self.publish_table(project, Table::Persons, now, persons_interval).await {
            Err(EventStoreError::TooLarge(cause)) => {
                tracing::warn!(project, cause, "the project has too many persons for a table of them");
                self.remove_folder(&Table::Persons.folder(project)).await?;
                self.forget(project, Table::Persons);
                false
            }
            published => published?,
        };
        let events = self.publish_table(project, Table::Events, now, 0).await?;
        Ok(Publication { events, persons })
    }

    async fn publish_table(
        &self,
        project: ProjectId,
        table: Table,
        now: Micros,
        interval: Micros,
    ) -> Result<bool, EventStoreError> {
        let log = VersionLog::new(self.files.clone(), table.folder(project));
        for _ in 0..ATTEMPTS {
            // Before the manifest.
            let former = match self.remembered(project, table) {
                Some(version) => Some(version),
                None => log.newest().await?,
            };
            let inputs = self.events.table_inputs(project).await?;
            let state = self.state(project, table, &inputs)?;
            if is_current(former.as_ref(), &state, &inputs, now, interval) {
                if let Some(former) = former {
                    let version = self.remove_replaced(former, now).await?;
                    self.remember(project, table, version);
                }
                return Ok(false);
            }
            let content = self.content(project, table, &inputs, former.as_ref()).await?;
            match self.commit(&log, former, state, content, now).await? {
                Some(version) => {
                    let version = self.remove_replaced(version, now).await?;
                    self.remember(project, table, version);
                    return Ok(true);
                }
                None => self.forget(project, table),
            }
        }
        Err(EventStoreError::Contended)
    }

    fn state(
        &self,
        project: ProjectId,
        table: Table,
        inputs: &TableInputs,
    ) -> Result<TableState, EventStoreError> {
        let (merges, data) = match table {
            Table::Events => (String::new(), inputs.live.clone()),
            Table::Persons => (inputs.merges.clone(), inputs.distinct_ids.clone()),
        };
        Ok(TableState { layout: LAYOUT, location: self.files.location(&table.folder(project)), merges, data })
    }

    /// Collects the data files of a new version. Those of persons are written.
    async fn content(
        &self,
        project: ProjectId,
        table: Table,
        inputs: &TableInputs,
        former: Option<&TableVersion>,
    ) -> Result<TableContent, EventStoreError> {
        if table == Table::Persons {
            return self.persons_content(project).await;
        }
        let (mut segments, mut files) = (Vec::new(), Vec::new());
        for segment in &inputs.segments {
            let columns = self.events.segment_columns(segment).await?;
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
        Ok(TableContent { schema: events_schema(&segments, former), files, written: Vec::new() })
    }

    async fn persons_content(&self, project: ProjectId) -> Result<TableContent, EventStoreError> {
        let content =
            Mutex::new(TableContent { schema: persons_schema(), files: Vec::new(), written: Vec::new() });
        let added = &content;
        write_persons(&self.events, project, |file| async move {
            let name = format!("{}/data/{}.parquet", Table::Persons.folder(project), Uuid::new_v4());
            let bytes = file.bytes.len() as u64;
            self.create(&name, file.bytes).await?;
            let location = self.files.location(&name);
            let mut added = added.lock().unwrap_or_else(PoisonError::into_inner);
            added.files.push(DataFile { location, bytes, rows: file.rows, times: None, event_names: None });
            added.written.push(name);
            Ok(())
        })
        .await?;
        Ok(content.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores the lists of a new version, and publishes it. Returns none if another publisher was faster.
    async fn commit(
        &self,
        log: &VersionLog,
        former: Option<TableVersion>,
        state: TableState,
        content: TableContent,
        now: Micros,
    ) -> Result<Option<TableVersion>, EventStoreError> {
        let TableContent { schema, files, written } = content;
        let mut version = TableVersion::next(former.as_ref(), &schema.fields, state, now);
        let snapshot =
            i64::try_from(ids::random_below(i64::MAX.cast_unsigned())).unwrap_or(version.sequence).max(1);
        let ids = SnapshotIds { snapshot, sequence: version.sequence };
        version.files.own = written;
        let manifest_list = self.write_lists(log, ids, &mut version, &files).await?;
        version.files.replaced = former.iter().flat_map(|former| replaced_files(log, former, now)).collect();
        let snapshot = NewSnapshot {
            id: ids.snapshot,
            manifest_list,
            files: files.len(),
            rows: files.iter().map(|file| file.rows).sum(),
            bytes: files.iter().map(|file| file.bytes).sum(),
        };
        let body = version.encode(&schema, &snapshot)?;
        if log.commit(version.number, body).await? {
            return Ok(Some(version));
        }
        self.files.remove(&version.files.own).await?;
        Ok(None)
    }

    /// Stores manifest and manifest list, and adds them to the files of the version. Returns the location of the list.
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
            self.create(&name, bytes).await?;
            stored = Some((self.files.location(&name), size));
            version.files.own.push(name);
        }
        let stored = stored.as_ref().map(|(location, size)| (location.as_str(), *size));
        let list = manifest_list(ids, stored, files, ids::random_bytes());
        let name = name("list");
        self.create(&name, list).await?;
        let location = self.files.location(&name);
        version.files.own.push(name);
        Ok(location)
    }

    async fn create(&self, name: &str, bytes: Bytes) -> Result<(), EventStoreError> {
        if self.files.create(name, bytes).await? { Ok(()) } else { Err(EventStoreError::Contended) }
    }

    /// Deletes the files that were replaced ten minutes before `now`. Returns the version with those that are left.
    async fn remove_replaced(
        &self,
        mut version: TableVersion,
        now: Micros,
    ) -> Result<TableVersion, EventStoreError> {
        let (due, left): (Vec<_>, Vec<_>) =
            version.files.replaced.into_iter().partition(|file| is_due(file, now));
        let due = due.into_iter().map(|file| file.name).collect::<Vec<_>>();
        self.files.remove(&due).await?;
        version.files.replaced = left;
        Ok(version)
    }

    /// Deletes files that no version names, because a publisher stopped, and that are a day old. Returns their number.
    pub async fn sweep(&self, project: ProjectId, now: Micros) -> Result<usize, EventStoreError> {
        let mut removed = 0;
        for table in [Table::Persons, Table::Events] {
            let folder = table.folder(project);
            let log = VersionLog::new(self.files.clone(), folder.clone());
            let listed = self.files.list(&folder).await?;
            // After the list: a file of a version that was published since is less than a day old.
            let Some(version) = log.newest().await? else { continue };
            let mut needed = HashSet::from([log.metadata_file(version.number), log.hint_file()]);
            needed.extend(version.files.own.iter().cloned());
            needed.extend(version.files.replaced.into_iter().map(|file| file.name));
            let is_old = |at: Micros| at.saturating_add(ORPHANED_MICROS) <= now;
            let unused = listed.into_iter().filter(|(name, at)| is_old(*at) && !needed.contains(name));
            let unused = unused.map(|(name, _)| name).collect::<Vec<_>>();
            self.files.remove(&unused).await?;
            removed += unused.len();
        }
        Ok(removed)
    }

    /// Deletes the tables of a project, which nothing publishes any more. Returns the number of their files.
    pub async fn remove_tables(&self, project: ProjectId) -> Result<usize, EventStoreError> {
        [Table::Persons, Table::Events].into_iter().for_each(|table| self.forget(project, table));
        self.remove_folder(&project_folder(project)).await
    }

    async fn remove_folder(&self, folder: &str) -> Result<usize, EventStoreError> {
        let listed = self.files.list(folder).await?;
        let names = listed.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        self.files.remove(&names).await?;
        Ok(names.len())
    }

    fn versions(&self) -> std::sync::MutexGuard<'_, HashMap<(ProjectId, Table), TableVersion>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self, project: ProjectId, table: Table) -> Option<TableVersion> {
        self.versions().get(&(project, table)).cloned()
    }

    fn remember(&self, project: ProjectId, table: Table, version: TableVersion) {
        self.versions().insert((project, table), version);
    }

    fn forget(&self, project: ProjectId, table: Table) {
        self.versions().remove(&(project, table));
    }
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
    former.state == *state
        || is_early && former.state == TableState { data: former.state.data.clone(), ..state.clone() }
}

fn is_due(file: &ReplacedFile, now: Micros) -> bool {
    file.at.saturating_add(GRACE_MICROS) <= now
}

/// The files that the version after `former` replaces: all of `former`, and those that it replaced itself less than ten minutes
/// before `now`.
fn replaced_files(log: &VersionLog, former: &TableVersion, now: Micros) -> Vec<ReplacedFile> {
    let own = former.files.own.iter().cloned().chain([log.metadata_file(former.number)]);
    let own = own.map(|name| ReplacedFile { name, at: now });
    own.chain(former.files.replaced.iter().cloned()).collect()
}
