//! `pennon export`: writes all data of an installation into files in open formats.
//!
//! The output is a directory with `workspace.json`, for `pennon apply`, and for each project a directory with JSON lines of its
//! groups, persons and events, for `pennon import`, or of events for PostHog's import.
//!
//! Must stay true: all events, waiting ones included, are exported, or the export fails; memory does not grow with their
//! number; the directory gets its name when it is complete; it has no API key, and secrets only with `--with-secrets`.

mod events;
mod files;
mod output_directory;
mod posthog;
mod sorter;
mod workspace;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{EventStore, EventStoreError, GroupType, PersonDetails};
use serde::Serialize;

use crate::api::Services;
use crate::args::{Export, ExportForm};
use crate::workspace::Declarations;
use events::ProjectExport;
use output_directory::OutputDirectory;

/// The progress of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportProgress {
    /// The current step.
    pub what: &'static str,
    /// The number of items that are done.
    pub done: u64,
    /// The number of all items.
    pub total: u64,
}

/// The progress callback; called from any thread.
pub type ReportProgress = Arc<dyn Fn(ExportProgress) + Send + Sync>;

/// The input of an export.
pub struct ExportContext<'a> {
    /// The declarations of the installation.
    pub state: &'a Declarations,
    /// Access to its records and events.
    pub services: &'a Services,
    /// The progress callback.
    pub report: ReportProgress,
    /// The current time.
    pub now: DateTime<Utc>,
}

/// The numbers of exported rows of a project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExportCounts {
    /// Events.
    pub events: u64,
    /// Persons.
    pub persons: u64,
    /// Groups.
    pub groups: u64,
    /// Distinct ids of persons that no exported event can merge, because SDKs send them for users without an id.
    pub unlinked_distinct_ids: u64,
}

/// The numbers of records of a workspace file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RecordCounts {
    /// Flags.
    pub flags: usize,
    /// Insights.
    pub insights: usize,
    /// Dashboards.
    pub dashboards: usize,
    /// Cohorts.
    pub cohorts: usize,
    /// Actions.
    pub actions: usize,
}

/// The result of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExportSummary {
    /// The output directory.
    pub directory: PathBuf,
    /// The records of the workspace file besides organizations, users, projects, keys and roles.
    pub records: RecordCounts,
    /// The omissions of the workspace file with their reasons, a sentence each.
    pub notes: Vec<String>,
    /// The counts by project.
    pub projects: BTreeMap<ProjectId, ExportCounts>,
}

impl ExportSummary {
    /// The summary as lines of text.
    pub fn text_lines(&self) -> Vec<String> {
        let RecordCounts { flags, insights, dashboards, cohorts, actions } = self.records;
        let mut lines = vec![format!(
            "{flags} flags, {insights} insights, {dashboards} dashboards, {cohorts} cohorts, {actions} actions"
        )];
        lines.extend(self.notes.iter().cloned());
        for (project, counts) in &self.projects {
            let ExportCounts { events, persons, groups, unlinked_distinct_ids } = counts;
            lines.push(format!("project {project}: {events} events, {persons} persons, {groups} groups"));
            if *unlinked_distinct_ids > 0 {
                lines.push(format!(
                    "project {project}: {unlinked_distinct_ids} distinct ids belong to persons, but no event can carry \
                     that: they are ids that SDKs send for users without one"
                ));
            }
        }
        lines.push(format!("exported to {}", self.directory.display()));
        lines
    }
}

impl ExportContext<'_> {
    /// The event store.
    fn events(&self) -> &EventStore {
        &self.services.events
    }
}

/// Exports to `options.out`.
pub async fn export(context: &ExportContext<'_>, options: &Export) -> Result<ExportSummary, String> {
    let output = OutputDirectory::create(&options.out)?;
    let (records, notes) = workspace::write(context, options, output.path()).await?;
    let mut summary =
        ExportSummary { directory: options.out.clone(), records, notes, projects: BTreeMap::new() };
    for project in list_projects(context, options).await? {
        let directory = output.path().join(format!("project-{project}"));
        std::fs::create_dir_all(&directory).map_err(|e| files::write_error(&directory, &e))?;
        let export = ProjectExport { context, project, directory: &directory };
        let counts = match options.form {
            ExportForm::Pennon => write_project(&export).await?,
            ExportForm::Posthog => posthog::write_project(&export).await?,
        };
        summary.projects.insert(project, counts);
        remove_if_empty(&directory);
    }
    output.finish()?;
    Ok(summary)
}

/// The projects that are declared or have events, or only that of `--project`.
async fn list_projects(context: &ExportContext<'_>, options: &Export) -> Result<Vec<ProjectId>, String> {
    let mut projects = context.events().projects().await.map_err(|e| e.to_string())?;
    projects.extend(context.state.projects.values().map(|project| project.spec.id));
    projects.sort_unstable();
    projects.dedup();
    match options.project {
        None => Ok(projects),
        Some(id) if projects.contains(&id) => Ok(vec![id]),
        Some(id) => Err(format!("there is no project {id}")),
    }
}

/// Removes the directory of a project without data.
fn remove_if_empty(directory: &Path) {
    // An error means that the directory is not empty.
    let _ = std::fs::remove_dir(directory);
}

/// Writes groups, persons and events in the format of `pennon import`.
async fn write_project(export: &ProjectExport<'_>) -> Result<ExportCounts, String> {
    let sorted = export.sort_events(events::NativeFormat { project: export.project }).await?;
    let mut counts = ExportCounts { events: sorted.count(), ..ExportCounts::default() };
    let mut groups = export.files("groups");
    for group_type in export.group_types() {
        for group in export.list_groups(&group_type).await? {
            groups.write_json(&events::group_line(export.project, &group_type, group))?;
            counts.groups += 1;
        }
    }
    groups.finish()?;
    let mut persons = export.files("persons");
    counts.persons = export
        .for_each_person("persons", |person| persons.write_json(&events::person_line(export.project, person)))
        .await?;
    persons.finish()?;
    export.write_sorted(sorted, export.files("events")).await?;
    Ok(counts)
}

impl ProjectExport<'_> {
    /// The declared group types of the project, with their indexes.
    fn group_types(&self) -> Vec<GroupType> {
        let names = self.context.state.group_types().remove(&self.project).unwrap_or_default();
        (0..).zip(names).map(|(index, name)| GroupType { index, name }).collect()
    }

    /// The groups of a type.
    async fn list_groups(&self, group_type: &GroupType) -> Result<Vec<pennon_eventstore::Group>, String> {
        let groups = self.context.events().load_groups_for_export(self.project, group_type).await;
        groups.map_err(|e| read_error(&e))
    }

    /// Calls `write` for every person with a distinct id. Returns the number of calls.
    async fn for_each_person(
        &self,
        what: &'static str,
        mut write: impl FnMut(PersonDetails) -> Result<(), String>,
    ) -> Result<u64, String> {
        let events = self.context.events();
        let failed = |e: EventStoreError| read_error(&e);
        let mut scan = events.scan_all_persons(self.project).await.map_err(failed)?;
        let (total, mut done, mut written) = (scan.count() as u64, 0, 0);
        loop {
            let page = events.next_person_page(&mut scan).await.map_err(failed)?;
            if page.is_empty() {
                return Ok(written);
            }
            done += page.len() as u64;
            for person in page.into_iter().filter(|person| !person.distinct_ids.is_empty()) {
                write(with_own_id_first(self.project, person))?;
                written += 1;
            }
            (self.context.report)(ExportProgress { what, done, total });
        }
    }
}

/// The error message when events cannot be read.
fn read_error(error: &EventStoreError) -> String {
    match error {
        EventStoreError::Contended => {
            "what was to be read has been replaced and removed meanwhile; nothing was exported. Stop the \
             server, or run it again"
                .to_owned()
        }
        other => format!("{other}; nothing was exported"),
    }
}

/// Moves the distinct id from which the person's id is derived to the front, so that an import gives the person the same id.
fn with_own_id_first(project: ProjectId, mut person: PersonDetails) -> PersonDetails {
    let own = person
        .distinct_ids
        .iter()
        .position(|id| pennon_eventstore::derive_person_id(project, id) == person.id);
    if let Some(place) = own {
        person.distinct_ids[..=place].rotate_right(1);
    }
    person
}
