//! Joins the creation time of actors: of a person, the one that an import recorded, else the time of its earliest event; of a
//! group, the time of the earliest event with its key.
//!
//! Must stay true: the earliest event may have any name and any time up to the end of the query; filters do not apply.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use pennon_filters::error::CalcResult;
use pennon_filters::text::text_of;
use pennon_filters::work_budget::{WORK_PER_CHECK, WorkBudget};
use uuid::Uuid;

use crate::scan::{ActorKind, Column, EventSelection, Micros, Partition, ScanRequest};

/// What is read for the creation times of actors.
#[derive(Debug, Clone, PartialEq)]
pub struct CreationRequest {
    /// The actors: persons, or groups of a type.
    pub actors: ActorKind,
    /// The scan of all their events.
    pub events: ScanRequest,
}

/// The times of the earliest events of actors.
#[derive(Debug, Default)]
pub struct FirstEvents {
    /// Of persons: ids, ascending, and their times, for each partition of the scan.
    persons: Vec<(Arc<Vec<Uuid>>, Vec<Micros>)>,
    /// Of groups, by key.
    groups: HashMap<String, Micros>,
}

/// The creation time of an actor that has none.
const UNKNOWN: Micros = Micros::MAX;

impl CreationRequest {
    /// The creation times of actors with events until `to`.
    pub(crate) fn new(actors: ActorKind, to: Micros) -> Self {
        let columns = actors.column().into_iter().collect();
        let from = Micros::MIN;
        Self {
            actors,
            events: ScanRequest { events: EventSelection::All, from, to, columns, arrivals: false },
        }
    }

    /// Finds the earliest events in the partitions of the scan.
    pub(crate) fn first_events(
        &self,
        partitions: &[Partition],
        work: &WorkBudget<'_>,
    ) -> CalcResult<FirstEvents> {
        let mut first_events = FirstEvents::default();
        for partition in partitions {
            work.check()?;
            match self.actors.column() {
                None => {
                    let times = first_times_of_persons(partition, work)?;
                    first_events.persons.push((partition.actors.clone(), times));
                }
                Some(key) => {
                    for run in &partition.runs {
                        let Some(column) = run.columns.get(&key) else { continue };
                        add_first_times_of_groups(&mut first_events.groups, column, &run.times, work)?;
                    }
                }
            }
        }
        Ok(first_events)
    }

    /// Fills in the creation times of the actors of a partition.
    pub(crate) fn join(
        &self,
        partition: &mut Partition,
        first_events: &FirstEvents,
        imported: &[(Uuid, Micros)],
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        if partition.counted != self.actors {
            return Ok(());
        }
        work.check()?;
        work.consume(partition.actors.len())?;
        if self.actors != ActorKind::Persons {
            let of_key = |key: &String| first_events.groups.get(key).copied().unwrap_or(UNKNOWN);
            partition.created = partition.keys.iter().map(of_key).collect();
            return Ok(());
        }
        let mut created = vec![UNKNOWN; partition.actors.len()];
        for (ids, times) in &first_events.persons {
            work.check()?;
            let overlap = overlap(ids, |id| *id, &partition.actors);
            let known = ids[overlap.clone()].iter().copied().zip(times[overlap].iter().copied());
            fill_in(&partition.actors, &mut created, known, work)?;
        }
        let overlap = overlap(imported, |(id, _)| *id, &partition.actors);
        fill_in(&partition.actors, &mut created, imported[overlap].iter().copied(), work)?;
        partition.created = created;
        Ok(())
    }
}

/// By actor of a partition: the time of its earliest event.
fn first_times_of_persons(partition: &Partition, work: &WorkBudget<'_>) -> CalcResult<Vec<Micros>> {
    let mut first = vec![UNKNOWN; partition.actors.len()];
    for run in &partition.runs {
        // Rows are ordered by actor and time.
        let mut last = u32::MAX;
        for (actors, times) in run.actors.chunks(WORK_PER_CHECK).zip(run.times.chunks(WORK_PER_CHECK)) {
            work.consume(actors.len())?;
            for (actor, time) in actors.iter().zip(times) {
                if *actor != last {
                    last = *actor;
                    if let Some(first) = first.get_mut(*actor as usize) {
                        *first = (*first).min(*time);
                    }
                }
            }
        }
    }
    Ok(first)
}

/// Adds the earliest times of the values of a column, by their text.
fn add_first_times_of_groups(
    groups: &mut HashMap<String, Micros>,
    column: &Column,
    times: &[Micros],
    work: &WorkBudget<'_>,
) -> CalcResult<()> {
    let mut first = vec![UNKNOWN; column.values.len()];
    for (codes, times) in column.codes.chunks(WORK_PER_CHECK).zip(times.chunks(WORK_PER_CHECK)) {
        work.consume(codes.len())?;
        for (code, time) in codes.iter().zip(times) {
            if let Some(first) = usize::try_from(*code).ok().and_then(|code| first.get_mut(code)) {
                *first = (*first).min(*time);
            }
        }
    }
    for (value, time) in column.values.iter().zip(first).filter(|(_, time)| *time != UNKNOWN) {
        let Some(key) = text_of(value) else { continue };
        work.consume(1 + key.len())?;
        match groups.get_mut(&*key) {
            Some(known) => *known = time.min(*known),
            None => _ = groups.insert(key.into_owned(), time),
        }
    }
    Ok(())
}

/// The part of `known`, which ascends by id, between the first and the last of `actors`.
fn overlap<T>(known: &[T], id: impl Fn(&T) -> Uuid, actors: &[Uuid]) -> Range<usize> {
    let (Some(first), Some(last)) = (actors.first(), actors.last()) else { return 0..0 };
    let start = known.partition_point(|one| id(one) < *first);
    start..known.partition_point(|one| id(one) <= *last).max(start)
}

/// Sets the times of those actors that are in `known`; both ascend by id.
fn fill_in(
    actors: &[Uuid],
    created: &mut [Micros],
    known: impl Iterator<Item = (Uuid, Micros)>,
    work: &WorkBudget<'_>,
) -> CalcResult<()> {
    let mut at = 0;
    for (id, time) in known {
        work.consume(1)?;
        while actors.get(at).is_some_and(|actor| *actor < id) {
            at += 1;
        }
        if actors.get(at) == Some(&id)
            && let Some(created) = created.get_mut(at)
        {
            *created = time;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::scan::{EventRun, group_column};

    fn ids(list: &[u128]) -> Arc<Vec<Uuid>> {
        Arc::new(list.iter().map(|id| Uuid::from_u128(*id)).collect())
    }

    fn run(rows: &[(u32, Micros)]) -> EventRun {
        EventRun {
            actors: rows.iter().map(|row| row.0).collect(),
            times: rows.iter().map(|row| row.1).collect(),
            ..EventRun::default()
        }
    }

    #[test]
    fn an_imported_time_takes_precedence_over_the_earliest_event() {
        let work = &WorkBudget::new(&|| false);
        let request = CreationRequest::new(ActorKind::Persons, 100);
        let scanned = [
            Partition {
                actors: ids(&[1, 4, 6]),
                runs: vec![run(&[(0, 7), (0, 9), (2, 5)]), run(&[(0, 3), (1, 8)])],
                ..Partition::default()
            },
            Partition { actors: ids(&[2, 3]), runs: vec![run(&[(0, 2), (1, 4)])], ..Partition::default() },
        ];
        let first_events = request.first_events(&scanned, work).unwrap();
        let imported = [(Uuid::from_u128(0), 1), (Uuid::from_u128(3), 60), (Uuid::from_u128(4), 1)];
        let created = |list: &[u128]| {
            let mut partition = Partition { actors: ids(list), ..Partition::default() };
            request.join(&mut partition, &first_events, &imported, work).unwrap();
            partition.created
        };
        assert_eq!(created(&[1, 2, 3]), [3, 2, 60]);
        assert_eq!(created(&[4, 5, 6]), [1, UNKNOWN, 5]);
        assert_eq!(created(&[]), Vec::<Micros>::new());
    }

    #[test]
    fn a_group_is_created_by_the_earliest_event_with_its_key() {
        let work = &WorkBudget::new(&|| false);
        let request = CreationRequest::new(ActorKind::Groups(1), 100);
        assert_eq!(request.events.columns, [group_column(1)].into());
        let mut events = run(&[(0, 7), (0, 9), (1, 5), (1, 6)]);
        let column =
            Column::new(vec![0, 1, 2, u32::MAX], vec![json!("g"), json!(5), json!("5"), json!("unused")]);
        events.columns.insert(group_column(1), column);
        let scanned = [Partition { actors: ids(&[1, 2]), runs: vec![events], ..Partition::default() }];
        let first_events = request.first_events(&scanned, work).unwrap();
        let keys = ["5", "g", "unused"].map(str::to_owned).to_vec();
        let mut partition = Partition {
            actors: ids(&[1, 2, 3]),
            keys,
            counted: ActorKind::Groups(1),
            ..Partition::default()
        };
        request.join(&mut partition, &first_events, &[], work).unwrap();
        assert_eq!(partition.created, [5, 7, UNKNOWN]);
    }
}
