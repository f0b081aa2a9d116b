//! Joins the creation time of actors: of a person, the one that an import recorded, else the time of its earliest event; of a
//! group, the time of the earliest event with its key.
//!
//! Must stay true: the earliest event may have any name; filters do not apply. Events after the end of the query do not matter: an
//! actor whose earliest event is later has no event in the query. So the event store keeps the times of the earliest events of
//! persons between queries, and no query reads all events of all persons for them.

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
    /// The scan of all their events, for groups. The earliest events of persons are known to the event store.
    pub events: Option<ScanRequest>,
}

/// Persons with a time each.
#[derive(Debug, Clone, Default)]
pub struct PersonTimes {
    /// Their ids, ascending.
    pub persons: Arc<Vec<Uuid>>,
    /// As many as `persons`.
    pub times: Arc<Vec<Micros>>,
}

/// The data from which creation times are joined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CreationData<'a> {
    /// The earliest events of persons; one that is in several lists has the earliest of its times.
    pub(crate) of_persons: &'a [PersonTimes],
    /// The creation times of persons that imports recorded, ascending by id.
    pub(crate) imported: &'a [(Uuid, Micros)],
    /// The earliest events of groups, by key.
    pub(crate) of_groups: &'a HashMap<String, Micros>,
}

/// The creation time of an actor that has none.
const UNKNOWN: Micros = Micros::MAX;

impl CreationRequest {
    /// The creation times of actors with events until `to`.
    pub(crate) fn new(actors: ActorKind, to: Micros) -> Self {
        let (events, from) = (EventSelection::All, Micros::MIN);
        let scan = |key| ScanRequest { events, from, to, columns: [key].into(), arrivals: false };
        Self { actors, events: actors.column().map(scan) }
    }

    /// Finds the earliest events of groups, by key, in the partitions of the scan.
    pub(crate) fn first_events_of_groups(
        &self,
        partitions: &[Partition],
        work: &WorkBudget<'_>,
    ) -> CalcResult<HashMap<String, Micros>> {
        let mut groups = HashMap::new();
        let Some(key) = self.actors.column() else { return Ok(groups) };
        for run in partitions.iter().flat_map(|partition| &partition.runs) {
            work.check()?;
            let Some(column) = run.columns.get(&key) else { continue };
            add_first_times_of_groups(&mut groups, column, &run.times, work)?;
        }
        Ok(groups)
    }

    /// Fills in the creation times of the actors of a partition.
    pub(crate) fn join(
        &self,
        partition: &mut Partition,
        known: CreationData<'_>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        if partition.counted != self.actors {
            return Ok(());
        }
        work.check()?;
        work.consume(partition.actors.len())?;
        if self.actors != ActorKind::Persons {
            let of_key = |key: &String| known.of_groups.get(key).copied().unwrap_or(UNKNOWN);
            partition.created = partition.keys.iter().map(of_key).collect();
            return Ok(());
        }
        let mut created = vec![UNKNOWN; partition.actors.len()];
        for PersonTimes { persons, times } in known.of_persons {
            work.check()?;
            let overlap = overlap(persons, |id| *id, &partition.actors);
            let first = persons[overlap.clone()].iter().copied().zip(times[overlap].iter().copied());
            fill_in(&partition.actors, first, |actor, time| created[actor] = created[actor].min(time), work)?;
        }
        let imported = &known.imported[overlap(known.imported, |(id, _)| *id, &partition.actors)];
        fill_in(&partition.actors, imported.iter().copied(), |actor, time| created[actor] = time, work)?;
        partition.created = created;
        Ok(())
    }
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

/// Calls back with the index and the time of those actors that are in `known`; both ascend by id.
fn fill_in(
    actors: &[Uuid],
    known: impl Iterator<Item = (Uuid, Micros)>,
    mut set: impl FnMut(usize, Micros),
    work: &WorkBudget<'_>,
) -> CalcResult<()> {
    let mut at = 0;
    for (id, time) in known {
        work.consume(1)?;
        while actors.get(at).is_some_and(|actor| *actor < id) {
            at += 1;
        }
        if actors.get(at) == Some(&id) {
            set(at, time);
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
        assert_eq!(request.events, None);
        let times = |list: &[u128], times: &[Micros]| PersonTimes {
            persons: ids(list),
            times: Arc::new(times.to_vec()),
        };
        let of_persons = [times(&[1, 4, 6], &[7, 8, 5]), times(&[2, 3], &[2, 4]), times(&[1, 2], &[3, 9])];
        let imported = [(Uuid::from_u128(0), 1), (Uuid::from_u128(3), 60), (Uuid::from_u128(4), 1)];
        let created = |list: &[u128]| {
            let mut partition = Partition { actors: ids(list), ..Partition::default() };
            let known =
                CreationData { of_persons: &of_persons, imported: &imported, of_groups: &HashMap::new() };
            request.join(&mut partition, known, work).unwrap();
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
        assert_eq!(request.events.as_ref().unwrap().columns, [group_column(1)].into());
        let mut events = run(&[(0, 7), (0, 9), (1, 5), (1, 6)]);
        let column =
            Column::new(vec![0, 1, 2, u32::MAX], vec![json!("g"), json!(5), json!("5"), json!("unused")]);
        events.columns.insert(group_column(1), column);
        let scanned = [Partition { actors: ids(&[1, 2]), runs: vec![events], ..Partition::default() }];
        let of_groups = request.first_events_of_groups(&scanned, work).unwrap();
        let keys = ["5", "g", "unused"].map(str::to_owned).to_vec();
        let mut partition = Partition {
            actors: ids(&[1, 2, 3]),
            keys,
            counted: ActorKind::Groups(1),
            ..Partition::default()
        };
        let known = CreationData { of_persons: &[], imported: &[], of_groups: &of_groups };
        request.join(&mut partition, known, work).unwrap();
        assert_eq!(partition.created, [5, 7, UNKNOWN]);
    }
}
