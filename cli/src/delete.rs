//! `pennon delete`: erasure and retention.
//!
//! Must stay true: the counts are shown before anything is erased, and nothing is erased without confirmation; when the
//! command has ended, no read returns erased data, cached results included.

mod versions;

use std::io::{BufRead, IsTerminal, Write};

use chrono::{DateTime, NaiveDate, NaiveTime};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{PartitionQuery, Store};
use pennon_eventstore::{ErasureReport, ErasureTarget, EventStore};
use serde_json::{Value, json};

use crate::args::Delete;
pub use versions::{OldVersions, complete_before};

/// The data that a command line requests to erase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteRequest {
    /// The project.
    pub project: ProjectId,
    /// The data of the project to erase.
    pub target: ErasureTarget,
}

impl DeleteRequest {
    /// The request of the command line `options`.
    pub async fn from_options(events: &EventStore, options: &Delete) -> Result<DeleteRequest, String> {
        let projects = events.projects().await.map_err(|e| e.to_string())?;
        let project = match (options.project, &projects[..]) {
            (Some(id), known) if known.contains(&id) => id,
            (Some(id), _) => return Err(format!("project {id} has no events")),
            (None, [one]) => *one,
            (None, []) => return Err("no project has events".to_owned()),
            (None, several) => return Err(format!("choose one with --project: {several:?} have events")),
        };
        let target = match (&options.person, &options.before) {
            (Some(person), _) => ErasureTarget::Person(person.clone()),
            (None, Some(date)) => ErasureTarget::Before(parse_time(date)?),
            (None, None) => ErasureTarget::Project,
        };
        Ok(DeleteRequest { project, target })
    }

    /// Counts the data that would be erased.
    pub async fn count(&self, events: &EventStore) -> Result<ErasureReport, String> {
        events.preview_erasure(self.project, &self.target).await.map_err(|e| e.to_string())
    }

    /// The counts as a line of text.
    pub fn describe(&self, counts: &ErasureReport) -> String {
        let ErasureReport { events, persons, segments, cohorts, uncounted } = counts;
        let project = self.project;
        match &self.target {
            ErasureTarget::Person(person) if *persons == 0 => {
                format!("project {project} has no person {person:?}")
            }
            ErasureTarget::Person(person) => {
                let lists = match cohorts {
                    0 => String::new(),
                    _ => format!("; on the lists of {cohorts} static cohorts"),
                };
                format!(
                    "project {project}, person {person:?}: {events} events, in {segments} segments{lists}"
                )
            }
            ErasureTarget::Before(_) => format!("project {project}: {events} events, in {segments} segments"),
            ErasureTarget::Project if *uncounted => {
                format!(
                    "project {project}, everything: at least {events} events, in {segments} segments, and what \
                     cannot be counted because it is damaged or too much"
                )
            }
            ErasureTarget::Project => {
                format!(
                    "project {project}, everything: {events} events of {persons} persons, in {segments} segments"
                )
            }
        }
    }

    /// The counts as JSON.
    pub fn to_json(&self, counts: &ErasureReport) -> Value {
        let (person, before) = match &self.target {
            ErasureTarget::Person(person) => (Some(person.as_str()), None),
            ErasureTarget::Before(micros) => (None, DateTime::from_timestamp_micros(*micros)),
            ErasureTarget::Project => (None, None),
        };
        json!({
            "project": self.project, "person": person, "before": before.map(|at| at.to_rfc3339()),
            "events": counts.events, "persons": counts.persons, "segments": counts.segments,
            "cohorts": counts.cohorts, "is_least": counts.uncounted,
        })
    }

    /// Erases the data. `now` returns the time in microseconds since the epoch.
    pub async fn erase(
        &self,
        store: &Store,
        events: &EventStore,
        now: &(dyn Fn() -> i64 + Sync),
    ) -> Result<ErasureReport, String> {
        let erased = events.erase(self.project, &self.target, now).await.map_err(|e| e.to_string())?;
        // Cached results may contain erased data. A running calculation may store its result after they are listed below, so
        // first increment the erasure number, by which readers reject such results.
        let failed = |e: pennon_core::store::StoreError| {
            format!("events were erased, but kept results could not be removed ({e}); run it again")
        };
        store.records.increment(&keys::erasures(self.project), 1).await.map_err(failed)?;
        let query = PartitionQuery::partition(keys::result(self.project, "").pk);
        let results = store.records.query(query).await.map_err(failed)?;
        store.records.sweep(results.into_iter().map(|item| item.key).collect()).await.map_err(failed)?;
        let remove_objects = async {
            let objects = events.list_results(Some(self.project)).await?;
            let objects = objects.into_iter().map(|(object, _)| object).collect::<Vec<_>>();
            events.remove_results(&objects).await
        };
        remove_objects.await.map_err(|e| failed(pennon_core::store::StoreError::Failed(e.to_string())))?;
        Ok(erased)
    }
}

/// Parses a day, which stands for its start in UTC, or an instant. Returns microseconds since the epoch.
fn parse_time(text: &str) -> Result<i64, String> {
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").map(|day| day.and_time(NaiveTime::MIN).and_utc());
    let at = day.or_else(|_| DateTime::parse_from_rfc3339(text).map(|at| at.to_utc()));
    at.map(|at| at.timestamp_micros()).map_err(|_| {
        format!("--before {text:?} is neither a day such as 2024-01-31 nor an instant in RFC 3339")
    })
}

/// Requests confirmation on the terminal: the user types `word`, which `meaning` describes.
pub fn is_confirmed(word: &str, meaning: &str) -> Result<bool, String> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err("this cannot be undone: look at it with --dry-run, then add --yes".to_owned());
    }
    eprint!("This cannot be undone. Type {meaning} ({word}) to go on: ");
    std::io::stderr().flush().map_err(|e| e.to_string())?;
    let mut response = String::new();
    input.lock().read_line(&mut response).map_err(|e| e.to_string())?;
    Ok(response.trim() == word)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn days_and_instants_are_parsed() {
        assert_eq!(parse_time("1970-01-02").unwrap(), 86_400_000_000);
        assert_eq!(parse_time("1970-01-01T01:00:00+01:00").unwrap(), 0);
        for wrong in ["", "1970", "1970-02-30", "yesterday", "1970-01-01T00:00:00"] {
            assert!(parse_time(wrong).unwrap_err().contains("--before"), "{wrong}");
        }
    }
}
