//! Chunks of all sources into partitions of persons, in the order that calculations rely on.
//!
//! Must stay true: the outcome depends on the rows alone, not on which source a row came from; rows of sources that
//! are in order already are merged, not sorted anew (the standard sort finds the runs).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pennon_engine::scan::{Column, ColumnKey, MISSING, Micros, Partition, Run, Seq};
use uuid::Uuid;

use super::chunk::Chunk;
use crate::segment::values::Coded;
use crate::segment::write::{range_bits, range_of};

/// Rows of a partition, about: small enough that two cores share the work, large enough that sharing costs nothing.
const PARTITION_ROWS: usize = 65_536;

/// Where a row lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    chunk: u32,
    row: u32,
}

/// The rows of one partition, by event name.
pub(crate) type Bucket = BTreeMap<String, Vec<Place>>;

/// Deals the rows of `chunks` to partitions by person; empty ones are left out.
pub(crate) fn deal(chunks: &[Chunk]) -> Vec<Bucket> {
    let rows = chunks.iter().map(|chunk| chunk.events.len()).sum::<usize>();
    let bits = range_bits(rows, PARTITION_ROWS).min(8);
    let names = chunks.iter().flat_map(|chunk| &chunk.names).map(|name| (name.as_str(), 0));
    let mut numbers = names.collect::<BTreeMap<&str, usize>>();
    numbers.values_mut().enumerate().for_each(|(at, number)| *number = at);
    let mut dealt = vec![vec![Vec::new(); numbers.len()]; 1 << bits];
    for (chunk_at, chunk) in chunks.iter().enumerate() {
        let numbered = chunk.names.iter().map(|name| numbers[name.as_str()]).collect::<Vec<_>>();
        for (row, (event, person)) in chunk.events.iter().zip(&chunk.persons).enumerate() {
            let place = Place { chunk: chunk_at as u32, row: row as u32 };
            dealt[range_of(*person, bits) as usize][numbered[*event as usize]].push(place);
        }
    }
    let named = |lists: Vec<Vec<Place>>| {
        let lists = numbers.keys().zip(lists).filter(|(_, places)| !places.is_empty());
        lists.map(|(name, places)| ((*name).to_owned(), places)).collect::<Bucket>()
    };
    dealt.into_iter().map(named).filter(|bucket| !bucket.is_empty()).collect()
}

/// The partition of a bucket.
pub(crate) fn partition(chunks: &[Chunk], bucket: Bucket, keys: &[ColumnKey]) -> Partition {
    let lists = bucket.into_iter().map(|(name, places)| (name, sorted(chunks, &places))).collect::<Vec<_>>();
    let mut actors = Vec::new();
    for (_, rows) in &lists {
        actors.extend(rows.chunk_by(|a, b| a.person == b.person).map(|rows| rows[0].person));
    }
    actors.sort_unstable();
    actors.dedup();
    let runs = lists.into_iter().map(|(event, rows)| run(chunks, event, &rows, &actors, keys)).collect();
    Partition { actors: Arc::new(actors), runs, ..Partition::default() }
}

struct SortedRow {
    person: Uuid,
    time: Micros,
    seq: Seq,
    place: Place,
}

fn sorted(chunks: &[Chunk], places: &[Place]) -> Vec<SortedRow> {
    let mut rows = places
        .iter()
        .map(|place| {
            let (chunk, row) = (&chunks[place.chunk as usize], place.row as usize);
            SortedRow {
                person: chunk.persons[row],
                time: chunk.times[row],
                seq: chunk.seqs[row],
                place: *place,
            }
        })
        .collect::<Vec<_>>();
    rows.sort_by_key(|row| (row.person, row.time, row.seq));
    rows
}

fn run(chunks: &[Chunk], event: String, rows: &[SortedRow], actors: &[Uuid], keys: &[ColumnKey]) -> Run {
    let mut at = 0;
    let codes = rows.iter().map(|row| {
        // Both lists ascend, so the place of the next actor is never before that of the last.
        at += actors[at..].partition_point(|actor| *actor < row.person);
        at as u32
    });
    let codes = codes.collect();
    let columns = keys.iter().enumerate().map(|(column, key)| (key.clone(), gathered(chunks, rows, column)));
    Run {
        event,
        actors: codes,
        times: rows.iter().map(|row| row.time).collect(),
        order: rows.iter().map(|row| row.seq).collect(),
        columns: columns.collect(),
        facts: BTreeMap::new(),
    }
}

/// Column number `column` of the rows, with a dictionary of its own in order of first appearance.
fn gathered(chunks: &[Chunk], rows: &[SortedRow], column: usize) -> Column {
    let mut gathered = Coded { codes: Vec::with_capacity(rows.len()), values: Vec::new() };
    let mut new_codes = chunks.iter().map(|_| Vec::new()).collect::<Vec<Vec<u32>>>();
    let mut known = HashMap::new();
    for row in rows {
        let source = &chunks[row.place.chunk as usize].columns[column];
        let code = source.codes[row.place.row as usize];
        if code == MISSING {
            gathered.codes.push(MISSING);
            continue;
        }
        let translated = &mut new_codes[row.place.chunk as usize];
        if translated.is_empty() {
            translated.resize(source.values.len(), MISSING);
        }
        let new = &mut translated[code as usize];
        if *new == MISSING {
            let value = &source.values[code as usize];
            *new = *known.entry(value).or_insert_with(|| {
                gathered.values.push(value.clone());
                (gathered.values.len() - 1) as u32
            });
        }
        gathered.codes.push(*new);
    }
    Column::new(gathered.codes, gathered.values)
}
