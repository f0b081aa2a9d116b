//! Repartitions events from persons to other actors: groups, or distinct ids.
//!
//! Must stay true: this runs after the join, so that person properties are already columns of the rows; an actor's id
//! depends only on its key, so the result does not depend on how persons were partitioned; the output rows have the order
//! of a scan. Events without an actor key are dropped.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pennon_filters::error::CalcResult;
use pennon_filters::text::text_of;
use pennon_filters::work_budget::WorkBudget;
use serde_json::Value;
use uuid::Uuid;

use crate::dictionary_encoder::DictionaryEncoder;
use crate::scan::{ActorKind, Column, ColumnKey, EventRun, JoinedColumnKey, MISSING, Micros, Partition, Seq};

/// UUIDv5 namespace of the ids of groups and distinct ids. An arbitrary constant.
const ACTOR_ID_NAMESPACE: Uuid = Uuid::from_u128(0x6d0c_7a5e_9b1f_4c3a_8e52_d4f0_17a6_93bc);

/// A row of a source run, with its new actor.
#[derive(Debug, Clone, Copy)]
struct RowRef {
    /// Index of the new actor in its partition.
    actor: u32,
    time: Micros,
    seq: Seq,
    /// Index of the source run, and of the row in it.
    source: u32,
    row: u32,
}

/// Repartitions person partitions by each of `kinds`; each kind gives as many partitions as went in. With no kinds, the
/// person partitions are returned.
pub(crate) fn repartition_by_actor_kind(
    partitions: Vec<Partition>,
    kinds: &BTreeSet<ActorKind>,
    work: &WorkBudget<'_>,
) -> CalcResult<Vec<Partition>> {
    let mut repartitioned = Vec::new();
    for kind in kinds {
        if let Some(column) = kind.column() {
            repartitioned.extend(repartition(&partitions, *kind, &column, work)?);
        }
    }
    if kinds.is_empty() || kinds.contains(&ActorKind::Persons) {
        repartitioned.extend(partitions);
    }
    Ok(repartitioned)
}

/// Repartitions by the actor keys in `column`. Returns as many partitions as went in.
fn repartition(
    partitions: &[Partition],
    kind: ActorKind,
    column: &ColumnKey,
    work: &WorkBudget<'_>,
) -> CalcResult<Vec<Partition>> {
    let runs: Vec<&EventRun> = partitions.iter().flat_map(|partition| &partition.runs).collect();
    let named = ActorIndex::new(&runs, column, work)?;
    let (lists, places) = named.split(partitions.len().max(1));
    let mut rows_by_partition: Vec<BTreeMap<&str, Vec<RowRef>>> = vec![BTreeMap::new(); lists.len()];
    for (source, (run, of_rows)) in (0..).zip(runs.iter().zip(&named.actors_by_run)) {
        work.check()?;
        for (row, named) in (0..).zip(of_rows) {
            work.consume(1)?;
            let Some((part, actor)) = code_index(*named).and_then(|named| places.get(named)) else {
                continue;
            };
            let at = row as usize;
            let rows = rows_by_partition[*part].entry(&run.event).or_default();
            rows.push(RowRef { actor: *actor, time: run.times[at], seq: run.order.at(at), source, row });
        }
    }
    let partition = |(list, rows): (Vec<usize>, BTreeMap<&str, Vec<RowRef>>)| {
        Ok(Partition {
            actors: Arc::new(list.iter().map(|actor| named.ids[*actor]).collect()),
            keys: list.iter().map(|actor| named.keys[*actor].clone().into_owned()).collect(),
            runs: rows
                .into_iter()
                .map(|(event, rows)| merge_runs(event, rows, &runs, work))
                .collect::<CalcResult<_>>()?,
            counted: kind,
            created: Vec::new(),
        })
    };
    lists.into_iter().zip(rows_by_partition).map(partition).collect()
}

/// The distinct actor keys of all rows.
struct ActorIndex<'a> {
    keys: Vec<Cow<'a, str>>,
    ids: Vec<Uuid>,
    /// Row count of each actor.
    rows: Vec<usize>,
    /// For each run and row the index of its actor, or [`MISSING`].
    actors_by_run: Vec<Vec<u32>>,
}

impl<'a> ActorIndex<'a> {
    fn new(runs: &[&'a EventRun], column: &ColumnKey, work: &WorkBudget<'_>) -> CalcResult<Self> {
        let (mut keys, mut rows) = (Vec::<Cow<'a, str>>::new(), Vec::new());
        let mut known: HashMap<Cow<'a, str>, u32> = HashMap::new();
        let mut of_run = |run: &'a EventRun| {
            work.check()?;
            let Some(names) = run.columns.get(column) else { return Ok(Vec::new()) };
            // The dictionary may have values that no row has: these must not become actors. So go by the codes of rows.
            let mut of_codes: HashMap<u32, u32> = HashMap::new();
            let mut actor = |code: u32| {
                let value = code_index(code).and_then(|code| names.values.get(code));
                let Some(key) = value.and_then(text_of).filter(|key| !key.is_empty()) else { return MISSING };
                *known.entry(key).or_insert_with_key(|key| {
                    keys.push(key.clone());
                    rows.push(0);
                    u32::try_from(keys.len() - 1).unwrap_or(MISSING)
                })
            };
            let mut of_rows = Vec::with_capacity(names.codes.len());
            for code in &names.codes {
                work.consume(1)?;
                of_rows.push(*of_codes.entry(*code).or_insert_with(|| actor(*code)));
            }
            of_rows.iter().filter_map(|actor| code_index(*actor)).for_each(|actor| rows[actor] += 1);
            Ok(of_rows)
        };
        let actors_by_run = runs.iter().map(|run| of_run(run)).collect::<CalcResult<_>>()?;
        let ids = keys.iter().map(|key| Uuid::new_v5(&ACTOR_ID_NAMESPACE, key.as_bytes())).collect();
        Ok(Self { keys, ids, rows, actors_by_run })
    }

    /// Splits the actors, ordered by id, into parts of about equal row count. Returns the actors of each part, and the
    /// part and index of each actor.
    fn split(&self, parts: usize) -> (Vec<Vec<usize>>, Vec<(usize, u32)>) {
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        order.sort_unstable_by_key(|actor| (self.ids[*actor], self.keys[*actor].as_ref()));
        let total = self.rows.iter().sum::<usize>().max(1);
        let (mut lists, mut places) = (vec![Vec::new(); parts], vec![(0, MISSING); order.len()]);
        let mut before = 0;
        for actor in order {
            let part = (before * parts / total).min(parts - 1);
            before += self.rows[actor];
            places[actor] = (part, u32::try_from(lists[part].len()).unwrap_or(MISSING));
            lists[part].push(actor);
        }
        (lists, places)
    }
}

/// Builds one sorted run of the rows of one event name, taken from several source runs.
fn merge_runs(
    event: &str,
    mut rows: Vec<RowRef>,
    sources: &[&EventRun],
    work: &WorkBudget<'_>,
) -> CalcResult<EventRun> {
    work.check()?;
    rows.sort_unstable_by_key(|row| (row.actor, row.time, row.seq));
    let used: BTreeSet<u32> = rows.iter().map(|row| row.source).collect();
    let sources: BTreeMap<u32, &EventRun> =
        used.into_iter().filter_map(|source| Some((source, *sources.get(source as usize)?))).collect();
    let columns: BTreeSet<&ColumnKey> = sources.values().flat_map(|run| run.columns.keys()).collect();
    let joined_columns: BTreeSet<&JoinedColumnKey> =
        sources.values().flat_map(|run| run.joined_columns.keys()).collect();
    Ok(EventRun {
        event: event.to_owned(),
        columns: columns
            .into_iter()
            .map(|key| Ok((key.clone(), merge_column(&rows, &sources, |run| run.columns.get(key), work)?)))
            .collect::<CalcResult<_>>()?,
        joined_columns: joined_columns
            .into_iter()
            .map(|key| {
                Ok((key.clone(), merge_column(&rows, &sources, |run| run.joined_columns.get(key), work)?))
            })
            .collect::<CalcResult<_>>()?,
        actors: rows.iter().map(|row| row.actor).collect(),
        times: rows.iter().map(|row| row.time).collect(),
        order: rows.iter().map(|row| row.seq).collect(),
    })
}

/// Builds one column of rows of several source runs; equal values share a code.
fn merge_column<'a>(
    rows: &[RowRef],
    sources: &BTreeMap<u32, &'a EventRun>,
    of: impl Fn(&'a EventRun) -> Option<&'a Column>,
    work: &WorkBudget<'_>,
) -> CalcResult<Column> {
    work.check()?;
    let mut codes_of = DictionaryEncoder::<&Value>::default();
    let mut values = Vec::new();
    let mut known: BTreeMap<u32, (&Column, Vec<Option<u32>>)> = sources
        .iter()
        .filter_map(|(source, run)| {
            of(run).map(|column| (*source, (column, vec![None; column.values.len()])))
        })
        .collect();
    let mut code = |row: &RowRef| {
        let (column, codes) = known.get_mut(&row.source)?;
        let old = code_index(*column.codes.get(row.row as usize)?)?;
        let value = column.values.get(old)?;
        let code = codes[old].unwrap_or_else(|| {
            let (code, is_new) = codes_of.code(value);
            if is_new {
                values.push(value.clone());
            }
            code
        });
        codes[old] = Some(code);
        Some(code)
    };
    let mut of_rows = Vec::with_capacity(rows.len());
    for row in rows {
        work.consume(4)?;
        of_rows.push(code(row).unwrap_or(MISSING));
    }
    Ok(Column::new(of_rows, values))
}

/// A code as an index; none for [`MISSING`].
fn code_index(code: u32) -> Option<usize> {
    usize::try_from(code).ok().filter(|_| code != MISSING)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::scan::group_column;

    /// Person, time, event, group key, colour.
    type Event = (u8, i64, bool, Option<u8>, u8);

    /// The events in so many partitions of persons, arrival as listed.
    fn partitions(events: &[Event], parts: u8) -> Vec<Partition> {
        let part = |part: u8| {
            let mine = |event: &&(u32, Event)| event.1.0 % parts == part;
            let numbered: Vec<(u32, Event)> = (0..).zip(events.iter().copied()).collect();
            let persons: BTreeSet<u8> = numbered.iter().filter(mine).map(|(_, event)| event.0).collect();
            let actors: Vec<Uuid> = persons.iter().map(|person| Uuid::from_u128((*person).into())).collect();
            let run = |first: bool| {
                let mut rows: Vec<&(u32, Event)> =
                    numbered.iter().filter(mine).filter(|row| row.1.2 == first).collect();
                rows.sort_by_key(|(seq, event)| (event.0, event.1, *seq));
                let column = |value: &dyn Fn(&Event) -> Value| {
                    let values = rows.iter().map(|(_, event)| value(event)).collect();
                    Column::new((0..).take(rows.len()).collect(), values)
                };
                let person = |row: &&(u32, Event)| persons.iter().position(|other| *other == row.1.0);
                EventRun {
                    event: if first { "a" } else { "b" }.to_owned(),
                    actors: rows.iter().map(|row| u32::try_from(person(row).unwrap()).unwrap()).collect(),
                    times: rows.iter().map(|row| row.1.1).collect(),
                    order: rows.iter().map(|row| row.0.into()).collect(),
                    columns: [
                        (group_column(0), column(&|event| event.3.map_or(Value::Null, |key| json!(key)))),
                        (ColumnKey::DistinctId, column(&|event| json!(format!("id {}", event.0)))),
                    ]
                    .into(),
                    joined_columns: [(JoinedColumnKey::PersonId, column(&|event| json!(event.4)))].into(),
                }
            };
            let runs = [true, false].map(run).into_iter().filter(|run| !run.actors.is_empty()).collect();
            Partition { actors: Arc::new(actors), runs, ..Partition::default() }
        };
        (0..parts).map(part).collect()
    }

    /// The content of partitions, row by row.
    fn rows(partitions: &[Partition]) -> BTreeSet<(String, String, i64, Seq, String)> {
        let mut rows = BTreeSet::new();
        for partition in partitions {
            for run in &partition.runs {
                for (row, actor) in run.actors.iter().enumerate() {
                    let key = partition.keys[*actor as usize].clone();
                    let value =
                        run.joined_columns[&JoinedColumnKey::PersonId].value(row).unwrap().to_string();
                    assert!(rows.insert((key, run.event.clone(), run.times[row], run.order.at(row), value)));
                }
            }
        }
        rows
    }

    fn assert_is_a_scan(partitions: &[Partition]) {
        let mut seen = BTreeSet::new();
        for partition in partitions {
            assert_eq!(partition.keys.len(), partition.actors.len());
            assert!(partition.actors.is_sorted());
            partition.actors.iter().for_each(|actor| assert!(seen.insert(*actor), "an actor in two parts"));
            assert!(partition.runs.is_sorted_by(|left, right| left.event < right.event));
            for run in &partition.runs {
                let at = |row: usize| (run.actors[row], run.times[row], run.order.at(row));
                let order: Vec<_> = (0..run.times.len()).map(at).collect();
                assert!(order.is_sorted());
                for column in run.columns.values().chain(run.joined_columns.values()) {
                    assert_eq!(column.codes.len(), run.actors.len());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_row_goes_to_its_actor_however_persons_were_divided(
            events in prop::collection::vec((0..5_u8, 0..4_i64, any::<bool>(), prop::option::of(0..4_u8), 0..3_u8), 0..30),
            parts in 1..5_u8,
        ) {
            let groups = repartition_by_actor_kind(partitions(&events, parts), &[ActorKind::Groups(0)].into(), &WorkBudget::new(&|| false)).unwrap();
            assert_is_a_scan(&groups);
            prop_assert_eq!(groups.len(), usize::from(parts));
            let mut want = BTreeSet::new();
            for (seq, (_, time, first, key, colour)) in events.iter().enumerate() {
                if let Some(key) = key {
                    let event = if *first { "a" } else { "b" };
                    want.insert((key.to_string(), event.to_owned(), *time, seq as Seq, colour.to_string()));
                }
            }
            prop_assert_eq!(rows(&groups), want);
            let ids = repartition_by_actor_kind(partitions(&events, parts), &[ActorKind::DistinctIds].into(), &WorkBudget::new(&|| false)).unwrap();
            assert_is_a_scan(&ids);
            prop_assert_eq!(rows(&ids).len(), events.len());
        }
    }

    #[test]
    fn parts_have_about_as_many_rows_each() {
        let events: Vec<Event> = (0..200).map(|index| (index, 0, true, Some(index), 0)).collect();
        let parts = repartition_by_actor_kind(
            partitions(&events, 4),
            &[ActorKind::Groups(0)].into(),
            &WorkBudget::new(&|| false),
        )
        .unwrap();
        for part in &parts {
            assert_eq!(part.actors.len(), 50);
        }
    }

    #[test]
    fn events_without_a_key_are_left_out() {
        let mut parts = partitions(&[(0, 0, true, None, 0), (1, 0, true, Some(1), 0)], 1);
        let groups = parts[0].runs[0].columns.get_mut(&group_column(0)).unwrap();
        let mut values = groups.values.to_vec();
        values[1] = json!("");
        groups.values = Arc::new(values.into());
        let parts =
            repartition_by_actor_kind(parts, &[ActorKind::Groups(0)].into(), &WorkBudget::new(&|| false))
                .unwrap();
        assert!(parts[0].actors.is_empty() && parts[0].runs.is_empty());
    }
}
