//! `pennon delete`: erasure and retention.
//!
//! Must stay true: what will be gone is said before it is, and nothing is erased unasked; when the command has ended, no
//! read finds any of it, kept results included.

use std::io::{BufRead, IsTerminal, Write};

use chrono::{DateTime, NaiveDate, NaiveTime};
use pennon_core::store::keys::{self, ProjectId};
use pennon_core::store::{Query, Store};
use pennon_eventstore::{Doomed, Erased, EventStore};
use serde_json::{Value, json};

use crate::args::Delete;

/// What a command line asks to erase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Of which project.
    pub project: ProjectId,
    /// What of it.
    pub doomed: Doomed,
}

impl Wanted {
    /// What `options` ask for.
    pub async fn of(events: &EventStore, options: &Delete) -> Result<Wanted, String> {
        let projects = events.projects().await.map_err(|e| e.to_string())?;
        let project = match (options.project, &projects[..]) {
            (Some(id), known) if known.contains(&id) => id,
            (Some(id), _) => return Err(format!("project {id} has no events")),
            (None, [one]) => *one,
            (None, []) => return Err("no project has events".to_owned()),
            (None, several) => return Err(format!("say which by --project: {several:?} have events")),
        };
        let doomed = match (&options.person, &options.before) {
            (Some(person), _) => Doomed::Person(person.clone()),
            (None, Some(date)) => Doomed::Before(instant(date)?),
            (None, None) => Doomed::Project,
        };
        Ok(Wanted { project, doomed })
    }

    /// What it would erase.
    pub async fn count(&self, events: &EventStore) -> Result<Erased, String> {
        events.would_erase(self.project, &self.doomed).await.map_err(|e| e.to_string())
    }

    /// The same in words.
    pub fn says(&self, found: &Erased) -> String {
        let Erased { events, persons, segments, cohorts, uncounted } = found;
        let project = self.project;
        match &self.doomed {
            Doomed::Person(person) if *persons == 0 => {
                format!("project {project} knows nobody by {person:?}")
            }
            Doomed::Person(person) => {
                let lists = match cohorts {
                    0 => String::new(),
                    _ => format!("; on the lists of {cohorts} static cohorts"),
                };
                format!(
                    "project {project}, person {person:?}: {events} events, in {segments} segments{lists}"
                )
            }
            Doomed::Before(_) => format!("project {project}: {events} events, in {segments} segments"),
            Doomed::Project if *uncounted => {
                format!(
                    "project {project}, everything: at least {events} events, in {segments} segments, and what \
                     cannot be counted because it is damaged or too much"
                )
            }
            Doomed::Project => {
                format!(
                    "project {project}, everything: {events} events of {persons} persons, in {segments} segments"
                )
            }
        }
    }

    /// The same for programs.
    pub fn to_json(&self, found: &Erased) -> Value {
        let (person, before) = match &self.doomed {
            Doomed::Person(person) => (Some(person.as_str()), None),
            Doomed::Before(micros) => (None, DateTime::from_timestamp_micros(*micros)),
            Doomed::Project => (None, None),
        };
        json!({
            "project": self.project, "person": person, "before": before.map(|at| at.to_rfc3339()),
            "events": found.events, "persons": found.persons, "segments": found.segments,
            "cohorts": found.cohorts, "is_least": found.uncounted,
        })
    }

    /// Erases it. `now` tells the time, in microseconds since the epoch.
    pub async fn erase(
        &self,
        store: &Store,
        events: &EventStore,
        now: &(dyn Fn() -> i64 + Sync),
    ) -> Result<Erased, String> {
        let erased = events.erase(self.project, &self.doomed, now).await.map_err(|e| e.to_string())?;
        // Results that were calculated with it. Calculations that have begun will keep theirs after this has looked, so
        // first the number is raised by which readers tell them.
        let failed = |e: pennon_core::store::StoreError| {
            format!("events were erased, but kept results could not be removed ({e}); run it again")
        };
        store.records.increment(&keys::erasures(self.project), 1).await.map_err(failed)?;
        let query = Query::partition(keys::result(self.project, "").pk);
        let kept = store.records.query(query).await.map_err(failed)?;
        store.records.sweep(kept.into_iter().map(|item| item.key).collect()).await.map_err(failed)?;
        let remove_objects = async {
            let objects = events.list_results(Some(self.project)).await?;
            let objects = objects.into_iter().map(|(object, _)| object).collect::<Vec<_>>();
            events.remove_results(&objects).await
        };
        remove_objects.await.map_err(|e| failed(pennon_core::store::StoreError::Failed(e.to_string())))?;
        Ok(erased)
    }
}

/// The beginning of a day in UTC, or an instant.
fn instant(text: &str) -> Result<i64, String> {
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").map(|day| day.and_time(NaiveTime::MIN).and_utc());
    let at = day.or_else(|_| DateTime::parse_from_rfc3339(text).map(|at| at.to_utc()));
    at.map(|at| at.timestamp_micros()).map_err(|_| {
        format!("--before {text:?} is neither a day such as 2024-01-31 nor an instant in RFC 3339")
    })
}

/// Asks whoever sits at the terminal.
pub fn is_confirmed(wanted: &Wanted) -> Result<bool, String> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err("this cannot be undone: look at it with --dry-run, then add --yes".to_owned());
    }
    eprint!("This cannot be undone. Type the number of the project ({}) to erase it: ", wanted.project);
    std::io::stderr().flush().map_err(|e| e.to_string())?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer).map_err(|e| e.to_string())?;
    Ok(answer.trim() == wanted.project.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn days_and_instants_are_understood() {
        assert_eq!(instant("1970-01-02").unwrap(), 86_400_000_000);
        assert_eq!(instant("1970-01-01T01:00:00+01:00").unwrap(), 0);
        for wrong in ["", "1970", "1970-02-30", "yesterday", "1970-01-01T00:00:00"] {
            assert!(instant(wrong).unwrap_err().contains("--before"), "{wrong}");
        }
    }
}
