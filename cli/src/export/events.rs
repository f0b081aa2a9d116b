//! The lines of a project's events, persons and groups, in the form that `pennon import` takes.
//!
//! Must stay true: events come in the order by which questions take them, (time, arrival), and a file never ends between
//! two events of one time; so an import, which takes lines for arrivals, gives them the same order.

use std::path::{Path, PathBuf};

use chrono::{DateTime, SecondsFormat};
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{Group, GroupType, PersonInFull, StoredEvent, TakesEvents};
use serde_json::{Value, json};

use super::files::{Files, failed};
use super::sorter::{Place, Sorted, Sorter};
use super::{Exporting, Progress, ReportProgress, unread};

/// Events between two reports of progress.
const TELL_AFTER: u64 = 20_000;

/// A project that is to be written.
pub(super) struct Wanted<'a> {
    pub exporting: &'a Exporting<'a>,
    pub project: ProjectId,
    pub directory: &'a Path,
}

/// Makes the line of an event.
pub(super) trait Form: Send + 'static {
    fn line(&mut self, event: StoredEvent) -> Value;
}

/// The form of `pennon import`.
pub(super) struct Plain {
    pub project: ProjectId,
}

impl Form for Plain {
    fn line(&mut self, StoredEvent { event, .. }: StoredEvent) -> Value {
        json!({
            "project": self.project.to_string(),
            "event": event.event,
            "distinct_id": event.distinct_id,
            "timestamp": instant(event.timestamp),
            "uuid": event.uuid,
            "properties": event.properties,
        })
    }
}

/// The line of a person.
pub(super) fn person_line(project: ProjectId, person: PersonInFull) -> Value {
    let created_at = person.created_at.map(instant);
    json!({"project": project.to_string(), "person": {
        "distinct_ids": person.distinct_ids, "properties": person.properties, "created_at": created_at,
    }})
}

/// The line of a group.
pub(super) fn group_line(project: ProjectId, of: &GroupType, group: Group) -> Value {
    json!({"project": project.to_string(), "group": {
        "type": of.name, "index": of.index, "key": group.key, "properties": group.properties,
    }})
}

/// A time as a text that every import reads.
pub(super) fn instant(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Events on their way into order.
struct Gathering<F> {
    form: F,
    sorter: Sorter,
    report: ReportProgress,
    progress: Progress,
    error: Option<String>,
    directory: PathBuf,
}

impl<F: Form> TakesEvents for Gathering<F> {
    fn expect(&mut self, events: u64) {
        self.progress.total = events;
        (self.report)(self.progress);
    }

    fn take(&mut self, event: StoredEvent) {
        let place = event.place();
        let line = serde_json::to_vec(&self.form.line(event)).map_err(|e| e.to_string());
        let added = line
            .and_then(|line| self.sorter.add(place, &line).map_err(|error| failed(&self.directory, &error)));
        self.error = self.error.take().or(added.err());
        self.progress.done += 1;
        if self.progress.done.is_multiple_of(TELL_AFTER) {
            (self.report)(self.progress);
        }
    }

    fn is_done(&self) -> bool {
        self.error.is_some()
    }
}

impl Wanted<'_> {
    /// Files of this name.
    pub(super) fn files(&self, name: &'static str) -> Files {
        Files::new(self.directory, name)
    }

    /// The events of the project in order, in this form.
    pub(super) async fn sorted(&self, form: impl Form) -> Result<Sorted, String> {
        Ok(self.sorted_and_form(form).await?.0)
    }

    /// The same, and the form with what it noted.
    pub(super) async fn sorted_and_form<F: Form>(&self, form: F) -> Result<(Sorted, F), String> {
        let directory = self.directory.with_extension("parts");
        std::fs::create_dir_all(&directory).map_err(|e| failed(&directory, &e))?;
        let gathering = Gathering {
            form,
            sorter: Sorter::new(directory.clone()),
            report: self.exporting.report.clone(),
            progress: Progress { what: "reading events", done: 0, total: 0 },
            error: None,
            directory: directory.clone(),
        };
        let gathered = self.exporting.events().each_event(self.project, gathering).await;
        let gathered = gathered.map_err(|e| unread(&e))?;
        if let Some(error) = gathered.error {
            return Err(error);
        }
        let sorter = gathered.sorter;
        let sorted = tokio::task::spawn_blocking(move || sorter.sorted()).await.map_err(|e| e.to_string())?;
        Ok((sorted.map_err(|e| failed(&directory, &e))?, gathered.form))
    }

    /// Writes sorted lines into `files`.
    pub(super) async fn write_sorted(&self, sorted: Sorted, files: Files) -> Result<(), String> {
        self.write_sorted_to(sorted, files).await?.finish()
    }

    /// The same; more may be written behind them.
    pub(super) async fn write_sorted_to(
        &self,
        mut sorted: Sorted,
        mut files: Files,
    ) -> Result<Files, String> {
        let parts = self.directory.with_extension("parts");
        let report = self.exporting.report.clone();
        let written = tokio::task::spawn_blocking(move || {
            let mut progress = Progress { what: "writing events", done: 0, total: sorted.count() };
            let mut last: Option<Place> = None;
            while let Some((place, line)) = sorted.next().map_err(|e| failed(&parts, &e))? {
                let is_later = last.is_none_or(|(time, _)| time < place.0);
                files.text(&line, is_later)?;
                last = Some(place);
                progress.done += 1;
                if progress.done.is_multiple_of(TELL_AFTER) || progress.done == progress.total {
                    report(progress);
                }
            }
            std::fs::remove_dir(&parts).map_err(|e| failed(&parts, &e))?;
            Ok(files)
        });
        written.await.map_err(|e| e.to_string())?
    }
}
