//! Writes a project's events, persons and groups as JSON lines in the format of `pennon import`.
//!
//! Must stay true: events are in the order of queries, (time, arrival), and a file never ends between two events with the
//! same time; so an import, which uses the order of lines as the order of arrival, has the same order.

use std::path::{Path, PathBuf};

use chrono::{DateTime, SecondsFormat};
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{EventSink, Group, GroupType, PersonDetails, StoredEvent};
use serde_json::{Value, json};

use super::files::{LineFiles, write_error};
use super::sorter::{ExternalSorter, SortKey, SortedLines};
use super::{ExportContext, ExportProgress, ReportProgress, read_error};

/// Events between two progress reports.
const REPORT_INTERVAL: u64 = 20_000;

/// The export of one project.
pub(super) struct ProjectExport<'a> {
    pub context: &'a ExportContext<'a>,
    pub project: ProjectId,
    pub directory: &'a Path,
}

/// Formats an event as a JSON line.
pub(super) trait EventFormat: Send + 'static {
    fn line(&mut self, event: StoredEvent) -> Value;
}

/// The format of `pennon import`.
pub(super) struct NativeFormat {
    pub project: ProjectId,
}

impl EventFormat for NativeFormat {
    fn line(&mut self, StoredEvent { event, .. }: StoredEvent) -> Value {
        json!({
            "project": self.project.to_string(),
            "event": event.event,
            "distinct_id": event.distinct_id,
            "timestamp": format_time(event.timestamp),
            "uuid": event.uuid,
            "properties": event.properties,
        })
    }
}

/// The line of a person.
pub(super) fn person_line(project: ProjectId, person: PersonDetails) -> Value {
    let created_at = person.created_at.map(format_time);
    json!({"project": project.to_string(), "person": {
        "distinct_ids": person.distinct_ids, "properties": person.properties, "created_at": created_at,
    }})
}

/// The line of a group.
pub(super) fn group_line(project: ProjectId, group_type: &GroupType, group: Group) -> Value {
    json!({"project": project.to_string(), "group": {
        "type": group_type.name, "index": group_type.index, "key": group.key, "properties": group.properties,
    }})
}

/// A time in RFC 3339 with microseconds.
pub(super) fn format_time(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Formats the events of a scan, and adds them to the sorter.
struct EventCollector<F> {
    format: F,
    sorter: ExternalSorter,
    report: ReportProgress,
    progress: ExportProgress,
    error: Option<String>,
    directory: PathBuf,
}

impl<F: EventFormat> EventSink for EventCollector<F> {
    fn expect(&mut self, events: u64) {
        self.progress.total = events;
        (self.report)(self.progress);
    }

    fn take(&mut self, event: StoredEvent) {
        let key = event.place();
        let line = serde_json::to_vec(&self.format.line(event)).map_err(|e| e.to_string());
        let added = line.and_then(|line| {
            self.sorter.add(key, &line).map_err(|error| write_error(&self.directory, &error))
        });
        self.error = self.error.take().or(added.err());
        self.progress.done += 1;
        if self.progress.done.is_multiple_of(REPORT_INTERVAL) {
            (self.report)(self.progress);
        }
    }

    fn is_done(&self) -> bool {
        self.error.is_some()
    }
}

impl ProjectExport<'_> {
    /// Numbered files with this name.
    pub(super) fn files(&self, name: &'static str) -> LineFiles {
        LineFiles::new(self.directory, name)
    }

    /// The events of the project in order and in this format.
    pub(super) async fn sort_events(&self, format: impl EventFormat) -> Result<SortedLines, String> {
        Ok(self.sort_events_with_format(format).await?.0)
    }

    /// As [`ProjectExport::sort_events`]; returns also the format, which may have a state.
    pub(super) async fn sort_events_with_format<F: EventFormat>(
        &self,
        format: F,
    ) -> Result<(SortedLines, F), String> {
        let directory = self.directory.with_extension("parts");
        std::fs::create_dir_all(&directory).map_err(|e| write_error(&directory, &e))?;
        let collector = EventCollector {
            format,
            sorter: ExternalSorter::new(directory.clone()),
            report: self.context.report.clone(),
            progress: ExportProgress { what: "reading events", done: 0, total: 0 },
            error: None,
            directory: directory.clone(),
        };
        let collector = self.context.events().each_event(self.project, collector).await;
        let collector = collector.map_err(|e| read_error(&e))?;
        if let Some(error) = collector.error {
            return Err(error);
        }
        let sorter = collector.sorter;
        let sorted = tokio::task::spawn_blocking(move || sorter.finish()).await.map_err(|e| e.to_string())?;
        Ok((sorted.map_err(|e| write_error(&directory, &e))?, collector.format))
    }

    /// Writes sorted lines into `files`, and finishes them.
    pub(super) async fn write_sorted(&self, sorted: SortedLines, files: LineFiles) -> Result<(), String> {
        self.append_sorted(sorted, files).await?.finish()
    }

    /// Appends sorted lines to `files`.
    pub(super) async fn append_sorted(
        &self,
        mut sorted: SortedLines,
        mut files: LineFiles,
    ) -> Result<LineFiles, String> {
        let parts = self.directory.with_extension("parts");
        let report = self.context.report.clone();
        let written = tokio::task::spawn_blocking(move || {
            let mut progress = ExportProgress { what: "writing events", done: 0, total: sorted.count() };
            let mut last: Option<SortKey> = None;
            while let Some((key, line)) = sorted.next().map_err(|e| write_error(&parts, &e))? {
                let is_later = last.is_none_or(|(time, _)| time < key.0);
                files.write_line(&line, is_later)?;
                last = Some(key);
                progress.done += 1;
                if progress.done.is_multiple_of(REPORT_INTERVAL) || progress.done == progress.total {
                    report(progress);
                }
            }
            std::fs::remove_dir(&parts).map_err(|e| write_error(&parts, &e))?;
            Ok(files)
        });
        written.await.map_err(|e| e.to_string())?
    }
}
