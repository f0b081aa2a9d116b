//! The times of the earliest events of all persons.
//!
//! Must stay true: events of any name count, in segments and in blocks, and person merges are applied. The times of a range of
//! a segment are cached, 8 bytes a person, and depend on the segment alone: so a repeated query reads no rows of segments, and
//! the rows that the first one reads are not cached.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use pennon_analytics::scan::{EventSelection, Micros, ScanRequest};
use pennon_analytics::{PersonRange, PersonTimes};
use pennon_core::store::keys::ProjectId;
use uuid::Uuid;

use super::compiled_request::{self, CompiledRequest};
use super::load::{LoadStats, LoadedRange, Task};
use super::piece::{CachedPiece, PieceKind, WHOLE};
use super::{ScanStats, Scanner, plan};
use crate::error::EventStoreError;
use crate::memory::{Purpose, QueryMemory};

/// The times of the earliest events.
#[derive(Debug, Default)]
pub struct FirstEventTimes {
    /// Persons with their times. A person may be in several lists: the earliest of its times counts.
    pub lists: Vec<PersonTimes>,
    /// Counters of the scan.
    pub stats: ScanStats,
}

impl Scanner {
    /// The times of the earliest events of all persons of a project.
    pub(crate) async fn first_event_times(
        &self,
        project: ProjectId,
        memory: &QueryMemory,
    ) -> Result<FirstEventTimes, EventStoreError> {
        let request = ScanRequest {
            events: EventSelection::All,
            from: Micros::MIN,
            to: Micros::MAX,
            columns: [].into(),
            arrivals: false,
        };
        let requested =
            Arc::new(CompiledRequest { caches_rows: false, ..CompiledRequest::new(&request, &[]) });
        let snapshot =
            self.snapshots.snapshot_of(project, compiled_request::block_filter(&requested, memory)).await?;
        let mut stats = ScanStats { waiting_rows: snapshot.waiting_event_count, ..ScanStats::default() };
        let waiting_events =
            self.duplicates.not_in_segments(&snapshot.manifest, snapshot.waiting_events).await?;
        let entries = plan::requested_segments(&snapshot.manifest, &requested);
        let files = self.open_segments(&entries).await?;
        stats.segments = files.len() as u64;
        let tasks = plan::of(&files, std::iter::empty(), &requested, PersonRange::ALL).tasks;

        // Events of persons that another list has under another id, or that no segment has.
        let waiting = waiting_events.iter();
        let mut others: Vec<(Uuid, Micros)> =
            waiting.map(|row| (snapshot.person_merges.person(row.person), row.event.timestamp)).collect();
        let mut lists = Vec::with_capacity(tasks.len() + 1);
        // Collected, because a closure that is held while waiting keeps the compiler from seeing that this can be sent.
        let loads = tasks.iter().map(|task| self.first_times_of_range(task, &requested, memory));
        let mut loads =
            futures::stream::iter(loads.collect::<Vec<_>>()).buffered(self.segments.ranges_at_once());
        while let Some((task, list, took)) = loads.try_next().await? {
            stats.add(took);
            memory.take((list.times.len() * size_of::<Micros>()) as u64)?;
            let merged = snapshot.merge_state.moved(task.file.object(), task.group, &list.persons);
            let time = |code: u32| list.times.get(code as usize).copied();
            others.extend(merged.iter().filter_map(|(code, person)| Some((*person, time(*code)?))));
            lists.push(list);
        }
        memory.take((others.len() * size_of::<(Uuid, Micros)>()) as u64)?;
        lists.push(tokio::task::spawn_blocking(move || by_person(others)).await?);
        Ok(FirstEventTimes { lists, stats })
    }

    /// The times of one range, from the cache or from all of its rows.
    async fn first_times_of_range<'t>(
        &self,
        task: &'t Arc<Task>,
        requested: &Arc<CompiledRequest>,
        memory: &QueryMemory,
    ) -> Result<(&'t Task, PersonTimes, LoadStats), EventStoreError> {
        let key = task.key(0, PieceKind::FirstTimes, WHOLE);
        let persons = self.pieces.get(&task.key(0, PieceKind::Persons, WHOLE));
        if let (Some(CachedPiece::Persons(persons)), Some(CachedPiece::FirstTimes(times))) =
            (persons, self.pieces.get(&key))
        {
            return Ok((task, PersonTimes { persons, times }, LoadStats { hits: 1, ..LoadStats::default() }));
        }
        let (loaded, took) = self.load(task, requested, false, memory).await?;
        let mut rows = memory.lease(Purpose::Scan);
        rows.add(loaded.bytes())?;
        let found = tokio::task::spawn_blocking(move || {
            let times = Arc::new(first_times(&loaded));
            // The rows are dropped before their reservation ends.
            let persons = loaded.persons.clone();
            drop(loaded);
            drop(rows);
            PersonTimes { persons, times }
        });
        let found = found.await?;
        self.pieces.put(key, CachedPiece::FirstTimes(found.times.clone()));
        Ok((task, found, took))
    }
}

/// By person of a range: the time of its earliest event.
fn first_times(loaded: &LoadedRange) -> Vec<Micros> {
    let mut first = vec![Micros::MAX; loaded.persons.len()];
    for run in &loaded.runs {
        // Rows are ordered by person and time.
        let mut last = None;
        for (code, time) in run.core.codes.iter().zip(&run.core.times) {
            if last != Some(*code) {
                last = Some(*code);
                if let Some(first) = first.get_mut(*code as usize) {
                    *first = (*first).min(*time);
                }
            }
        }
    }
    first
}

/// A list of persons, each with the earliest of its times.
fn by_person(mut times: Vec<(Uuid, Micros)>) -> PersonTimes {
    times.sort_unstable();
    times.dedup_by_key(|(person, _)| *person);
    let (persons, times) = times.into_iter().unzip();
    PersonTimes { persons: Arc::new(persons), times: Arc::new(times) }
}
