//! Delta rows: events that are not stored with the other events of their person. Those are the events of
//! blocks, and rows of segments whose persons were merged since the segment was written.
//!
//! Must stay true: every delta row is assigned to its canonical person; a row that became a delta row is
//! removed from its source.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pennon_analytics::DictionaryEncoder;
use pennon_analytics::scan::{Column, MISSING, Micros, Seq};
use serde_json::Value;
use uuid::Uuid;

use super::compiled_request::CompiledRequest;
use super::load::LoadedRun;
use super::merge::{ScanSource, SourceRun};
use super::piece::RunColumns;
use super::row_selection::RowMask;
use crate::event::PersonEvent;
use crate::persons::PersonMerges;
use crate::segments::writer::range_of;

/// Delta rows of one source; all vectors have one entry per row.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeltaRows {
    /// Indices into the names of the scan.
    pub events: Vec<usize>,
    /// Canonical person ids.
    pub persons: Vec<Uuid>,
    pub times: Vec<Micros>,
    pub seqs: Vec<Seq>,
    /// In the order of [`CompiledRequest::columns`].
    pub columns: Vec<Column>,
}

impl DeltaRows {
    /// Builds delta rows from filtered rows of blocks. `names` are sorted and contain the names of all of them.
    pub(crate) fn of_rows(
        rows: &[PersonEvent],
        names: &[String],
        requested: &CompiledRequest,
        person_merges: &PersonMerges,
    ) -> DeltaRows {
        let column = |of: &dyn Fn(&PersonEvent) -> Option<Value>| {
            let (mut codes, mut values) = (Vec::with_capacity(rows.len()), Vec::new());
            let mut known = DictionaryEncoder::<Value>::default();
            for row in rows {
                codes.push(of(row).map_or(MISSING, |value| {
                    known.get(&value).unwrap_or_else(|| {
                        values.push(value.clone());
                        known.code(value).0
                    })
                }));
            }
            Column::new(codes, values)
        };
        DeltaRows {
            events: rows.iter().map(|row| names.partition_point(|name| *name < row.event.event)).collect(),
            persons: rows.iter().map(|row| person_merges.person(row.person)).collect(),
            times: rows.iter().map(|row| row.event.timestamp).collect(),
            seqs: rows.iter().map(|row| row.seq).collect(),
            columns: requested.columns.iter().map(|(_, origin)| column(&|row| origin.value(row))).collect(),
        }
    }

    /// The rows of the persons that `keep` returns true for.
    pub(crate) fn filtered(&self, keep: impl Fn(Uuid) -> bool) -> DeltaRows {
        let mask = RowMask::of(&self.persons, keep);
        DeltaRows {
            events: mask.of_rows(&self.events),
            persons: mask.of_rows(&self.persons),
            times: mask.of_rows(&self.times),
            seqs: mask.of_rows(&self.seqs),
            // With the values of these rows alone: the others belong to other parts.
            columns: self.columns.iter().map(|column| mask.column_values(column)).collect(),
        }
    }

    /// The rows of several sources, one after the other. All of them have the same columns.
    pub(crate) fn concatenated(sources: Vec<DeltaRows>) -> DeltaRows {
        let places = (0_u32..).zip(&sources).flat_map(|(delta, source)| {
            (0..source.events.len() as u32).map(move |row| DeltaRow { delta, row })
        });
        let places = places.collect::<Vec<_>>();
        let columns = sources.first().map_or(0, |source| source.columns.len());
        DeltaRows {
            columns: (0..columns).map(|column| gather_column(&sources, &places, column)).collect(),
            events: sources.iter().flat_map(|source| &source.events).copied().collect(),
            persons: sources.iter().flat_map(|source| &source.persons).copied().collect(),
            times: sources.iter().flat_map(|source| &source.times).copied().collect(),
            seqs: sources.iter().flat_map(|source| &source.seqs).copied().collect(),
        }
    }

    /// Whether the run has a row of one of the persons in `moved` (their codes in the range).
    pub(crate) fn has_any(run: &LoadedRun, moved: &[(u32, Uuid)]) -> bool {
        let codes = &run.core.codes;
        if moved.len() < codes.len() / 64 {
            return moved.iter().any(|(code, _)| codes.binary_search(code).is_ok());
        }
        let mut moved = moved.iter().map(|(code, _)| *code).peekable();
        codes.iter().any(|code| {
            while moved.next_if(|next| next < code).is_some() {}
            moved.peek() == Some(code)
        })
    }

    /// Splits off the rows of the persons in `moved` (their codes in the range); the others stay in `run`.
    pub(crate) fn split(run: &mut LoadedRun, moved: &[(u32, Uuid)]) -> Option<DeltaRows> {
        let last = moved.last().map_or(0, |(code, _)| *code as usize);
        let mut finals = vec![None; last + 1];
        for (code, person) in moved {
            finals[*code as usize] = Some(*person);
        }
        let is_moved = |code: u32| finals.get(code as usize).is_some_and(Option::is_some);
        if !run.core.codes.iter().any(|code| is_moved(*code)) {
            return None;
        }
        let (away, stay) =
            (RowMask::of(&run.core.codes, is_moved), RowMask::of(&run.core.codes, |code| !is_moved(code)));
        let core = away.core(&run.core);
        let persons = core.codes.iter().filter_map(|code| finals[*code as usize]).collect::<Vec<_>>();
        let seqs = run.seqs.as_deref().map(|seqs| away.seqs(seqs)).unwrap_or_default();
        let delta = DeltaRows {
            events: vec![run.event; persons.len()],
            persons,
            times: core.times.to_vec(),
            seqs: seqs.to_vec(),
            columns: run.columns.iter().map(|column| away.column(column).column).collect(),
        };
        run.core = stay.core(&run.core);
        run.seqs = run.seqs.as_deref().map(|seqs| stay.seqs(seqs));
        run.columns = run.columns.iter().map(|column| stay.column(column)).collect();
        Some(delta)
    }
}

/// The position of a row.
#[derive(Debug, Clone, Copy)]
struct DeltaRow {
    delta: u32,
    row: u32,
}

/// The rows of `deltas` by the number of their person's range, and in order.
pub(crate) fn sources(deltas: &[DeltaRows], bits: u32) -> BTreeMap<u64, ScanSource> {
    let mut dealt: BTreeMap<u64, BTreeMap<usize, Vec<DeltaRow>>> = BTreeMap::new();
    for (at, delta) in deltas.iter().enumerate() {
        for (row, (event, person)) in delta.events.iter().zip(&delta.persons).enumerate() {
            let events = dealt.entry(range_of(*person, bits)).or_default();
            events.entry(*event).or_default().push(DeltaRow { delta: at as u32, row: row as u32 });
        }
    }
    dealt.into_iter().map(|(number, events)| (number, source(deltas, events))).collect()
}

fn source(deltas: &[DeltaRows], events: BTreeMap<usize, Vec<DeltaRow>>) -> ScanSource {
    let person = |place: &DeltaRow| deltas[place.delta as usize].persons[place.row as usize];
    let mut persons = events.values().flatten().map(person).collect::<Vec<_>>();
    persons.sort_unstable();
    persons.dedup();
    let mut runs =
        events.into_iter().map(|(event, places)| run(deltas, event, &places, &persons)).collect::<Vec<_>>();
    add_ties(&mut runs);
    ScanSource::whole(Arc::new(persons), runs)
}

fn run(deltas: &[DeltaRows], event: usize, places: &[DeltaRow], persons: &[Uuid]) -> SourceRun {
    let of = |place: &DeltaRow| (&deltas[place.delta as usize], place.row as usize);
    let mut rows = places
        .iter()
        .map(|place| {
            let (delta, row) = of(place);
            let code = persons.partition_point(|person| *person < delta.persons[row]) as u32;
            (code, delta.times[row], delta.seqs[row], *place)
        })
        .collect::<Vec<_>>();
    rows.sort_unstable_by_key(|(code, time, seq, _)| (*code, *time, *seq));
    let columns = deltas.first().map_or(0, |delta| delta.columns.len());
    let ordered = rows.iter().map(|(.., place)| *place).collect::<Vec<_>>();
    SourceRun {
        event,
        core: RunColumns {
            codes: rows.iter().map(|(code, ..)| *code).collect(),
            times: rows.iter().map(|(_, time, ..)| *time).collect(),
            ties: None,
        },
        seqs: Some((Arc::new(rows.iter().map(|(_, _, seq, _)| *seq).collect()), 0)),
        columns: (0..columns).map(|column| gather_column(deltas, &ordered, column)).collect(),
    }
}

/// Builds column number `column` of the rows, with its own dictionary in order of first appearance.
fn gather_column(deltas: &[DeltaRows], places: &[DeltaRow], column: usize) -> Column {
    let (mut codes, mut values) = (Vec::with_capacity(places.len()), Vec::new());
    let mut known: HashMap<(u32, u32), u32> = HashMap::new();
    for place in places {
        let source = &deltas[place.delta as usize].columns[column];
        let code = source.codes[place.row as usize];
        codes.push(match source.values.get(code as usize) {
            None => MISSING,
            Some(value) => *known.entry((place.delta, code)).or_insert_with(|| {
                values.push(value.clone());
                (values.len() - 1) as u32
            }),
        });
    }
    Column::new(codes, values)
}

/// Sets the tie number of rows that share person and time, if there are any.
fn add_ties(runs: &mut [SourceRun]) {
    let mut rows = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let seqs = run.seqs.as_ref().map(|(seqs, _)| seqs.as_slice()).unwrap_or_default();
        for (row, (code, time)) in run.core.codes.iter().zip(&run.core.times).enumerate() {
            rows.push((*code, *time, seqs[row], at, row));
        }
    }
    rows.sort_unstable();
    if rows.windows(2).all(|pair| (pair[0].0, pair[0].1) != (pair[1].0, pair[1].1)) {
        return;
    }
    let mut ties = runs.iter().map(|run| vec![0; run.core.codes.len()]).collect::<Vec<_>>();
    for tied in rows.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        for (tie, (.., run, row)) in (0..).zip(tied) {
            ties[*run][*row] = tie;
        }
    }
    for (run, ties) in runs.iter_mut().zip(ties) {
        run.core.ties = Some(ties.into());
    }
}
