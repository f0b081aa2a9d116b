//! `pennon export`: all that an installation holds, as files that others take.
//!
//! A directory with `workspace.json`, which `pennon apply` takes, and for each project a directory with lines of its
//! groups, persons and events, which `pennon import` takes, or as events that the vendor's own import takes. Must stay
//! true: events, waiting ones included, come whole or the export fails; memory does not grow with their number; the
//! directory appears when everything is in it, so half an export is never taken for one; it holds no key, and secrets
//! only where they were asked for.

mod events;
mod files;
mod place;
mod sorter;
mod vendor;
mod workspace;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{EventStore, EventStoreError, GroupType, PersonInFull};
use serde::Serialize;

use crate::args::{Export, ExportForm};
use crate::serve::Services;
use crate::workspace::State;
use events::Wanted;
use place::Unfinished;

/// How far an export is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being written or read.
    pub what: &'static str,
    /// How many of them are done.
    pub done: u64,
    /// Of how many.
    pub total: u64,
}

/// Called with each step, from any thread.
pub type ReportProgress = Arc<dyn Fn(Progress) + Send + Sync>;

/// What an export needs.
pub struct Exporting<'a> {
    /// The records of the installation.
    pub state: &'a State,
    /// What reads the rest of it.
    pub services: &'a Services,
    /// Called with the progress.
    pub report: ReportProgress,
    /// Now.
    pub now: DateTime<Utc>,
}

/// What was written of a project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Events.
    pub events: u64,
    /// Persons.
    pub persons: u64,
    /// Groups.
    pub groups: u64,
    /// Distinct ids that belong to a person although no exported event can show it.
    pub unlinked_distinct_ids: u64,
}

/// How many records of each kind a workspace file declares.
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

/// What an export wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// Where it is.
    pub directory: PathBuf,
    /// What the workspace file declares beside organizations, users, projects, keys and roles.
    pub records: RecordCounts,
    /// What is not in the workspace file and why, a sentence each.
    pub notes: Vec<String>,
    /// What the files of each project hold.
    pub projects: BTreeMap<ProjectId, Counts>,
}

impl Exported {
    /// Lines for people.
    pub fn lines(&self) -> Vec<String> {
        let RecordCounts { flags, insights, dashboards, cohorts, actions } = self.records;
        let mut lines = vec![format!(
            "{flags} flags, {insights} insights, {dashboards} dashboards, {cohorts} cohorts, {actions} actions"
        )];
        lines.extend(self.notes.iter().cloned());
        for (project, counts) in &self.projects {
            let Counts { events, persons, groups, unlinked_distinct_ids } = counts;
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

impl Exporting<'_> {
    /// Its events.
    fn events(&self) -> &EventStore {
        &self.services.events
    }
}

/// Exports to `options.out`.
pub async fn export(exporting: &Exporting<'_>, options: &Export) -> Result<Exported, String> {
    let unfinished = Unfinished::begin(&options.out)?;
    let (records, notes) = workspace::write(exporting, options, unfinished.path()).await?;
    let mut exported = Exported { directory: options.out.clone(), records, notes, projects: BTreeMap::new() };
    for project in projects(exporting, options).await? {
        let directory = unfinished.path().join(format!("project-{project}"));
        std::fs::create_dir_all(&directory).map_err(|e| files::failed(&directory, &e))?;
        let wanted = Wanted { exporting, project, directory: &directory };
        let counts = match options.form {
            ExportForm::Pennon => of_project(&wanted).await?,
            ExportForm::Posthog => vendor::of_project(&wanted).await?,
        };
        exported.projects.insert(project, counts);
        remove_if_empty(&directory);
    }
    unfinished.finish()?;
    Ok(exported)
}

/// The projects that are declared or have events, or the one that is wanted.
async fn projects(exporting: &Exporting<'_>, options: &Export) -> Result<Vec<ProjectId>, String> {
    let mut projects = exporting.events().projects().await.map_err(|e| e.to_string())?;
    projects.extend(exporting.state.projects.values().map(|project| project.spec.id));
    projects.sort_unstable();
    projects.dedup();
    match options.project {
        None => Ok(projects),
        Some(id) if projects.contains(&id) => Ok(vec![id]),
        Some(id) => Err(format!("there is no project {id}")),
    }
}

/// A project without events has no files.
fn remove_if_empty(directory: &Path) {
    // It stays when there is something in it.
    let _ = std::fs::remove_dir(directory);
}

/// Groups, persons and events as lines that `pennon import` takes.
async fn of_project(wanted: &Wanted<'_>) -> Result<Counts, String> {
    let sorted = wanted.sorted(events::Plain { project: wanted.project }).await?;
    let mut counts = Counts { events: sorted.count(), ..Counts::default() };
    let mut groups = wanted.files("groups");
    for group_type in wanted.group_types() {
        for group in wanted.groups(&group_type).await? {
            groups.line(&events::group_line(wanted.project, &group_type, group))?;
            counts.groups += 1;
        }
    }
    groups.finish()?;
    let mut persons = wanted.files("persons");
    counts.persons = wanted
        .each_person("persons", |person| persons.line(&events::person_line(wanted.project, person)))
        .await?;
    persons.finish()?;
    wanted.write_sorted(sorted, wanted.files("events")).await?;
    Ok(counts)
}

impl Wanted<'_> {
    /// The group types of the project, by their places.
    fn group_types(&self) -> Vec<GroupType> {
        let names = self.exporting.state.group_types().remove(&self.project).unwrap_or_default();
        (0..).zip(names).map(|(index, name)| GroupType { index, name }).collect()
    }

    /// The groups of a type.
    async fn groups(&self, group_type: &GroupType) -> Result<Vec<pennon_eventstore::Group>, String> {
        let groups = self.exporting.events().every_group_of(self.project, group_type).await;
        groups.map_err(|e| unread(&e))
    }

    /// Calls `each` for every person. Returns how many there are.
    async fn each_person(
        &self,
        what: &'static str,
        mut each: impl FnMut(PersonInFull) -> Result<(), String>,
    ) -> Result<u64, String> {
        let events = self.exporting.events();
        let failed = |e: EventStoreError| unread(&e);
        let mut every = events.every_person(self.project).await.map_err(failed)?;
        let (total, mut done, mut written) = (every.count() as u64, 0, 0);
        loop {
            let page = events.next_persons(&mut every).await.map_err(failed)?;
            if page.is_empty() {
                return Ok(written);
            }
            done += page.len() as u64;
            for person in page.into_iter().filter(|person| !person.distinct_ids.is_empty()) {
                each(with_own_id_first(self.project, person))?;
                written += 1;
            }
            (self.exporting.report)(Progress { what, done, total });
        }
    }
}

/// Why nothing was exported.
fn unread(error: &EventStoreError) -> String {
    match error {
        EventStoreError::Contended => {
            "what was to be read has been replaced and removed meanwhile; nothing was exported. Stop the \
             server, or run it again"
                .to_owned()
        }
        other => format!("{other}; nothing was exported"),
    }
}

/// The person, its distinct ids beginning with that which made it who it is: so it stays the same where it is imported.
fn with_own_id_first(project: ProjectId, mut person: PersonInFull) -> PersonInFull {
    let own = person.distinct_ids.iter().position(|id| pennon_eventstore::derived(project, id) == person.id);
    if let Some(place) = own {
        person.distinct_ids[..=place].rotate_right(1);
    }
    person
}
