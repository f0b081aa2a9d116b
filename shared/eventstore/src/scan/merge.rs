//! Merges the sources of one share of the persons into a partition, in the engine's order.
//!
//! Must stay true: the result depends on the rows alone, not on their source. Sources are sorted, so they are
//! merged and never sorted again; a single source is passed on without a copy.

mod order;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use pennon_analytics::DictionaryEncoder;
use pennon_analytics::scan::{ArrivalOrder, Column, ColumnKey, EventRun, MISSING, Micros, Partition, Seq};
use serde_json::Value;
use uuid::Uuid;

use order::{MergeInput, TieOrder, places};

use super::load::LoadedRange;
use super::piece::RunColumns;
use crate::segments::writer::range_of;

/// Rows of one source in one share of the persons.
#[derive(Debug)]
pub(crate) struct ScanSource {
    /// Ascending.
    persons: Arc<Vec<Uuid>>,
    /// The persons that are in the share.
    from: usize,
    to: usize,
    /// Ascending by event.
    runs: Vec<SourceRun>,
    /// Bounds of the times of its rows.
    times: (Micros, Micros),
}

/// The rows of one event of a source.
#[derive(Debug)]
pub(crate) struct SourceRun {
    /// Index into the names of the scan.
    pub event: usize,
    pub core: RunColumns,
    /// If known, with the index of the first row.
    pub seqs: Option<(Arc<Vec<Seq>>, usize)>,
    pub columns: Vec<Column>,
}

impl SourceRun {
    fn seqs(&self) -> &[Seq] {
        self.seqs.as_ref().map(|(seqs, from)| &seqs[*from..from + self.core.codes.len()]).unwrap_or_default()
    }

    fn rows(&self, from: usize, to: usize) -> SourceRun {
        let core = self.core.slice(from, to - from);
        let column = |column: &Column| Column {
            codes: column.codes.slice(from, to - from),
            values: column.values.clone(),
        };
        SourceRun {
            event: self.event,
            core,
            seqs: self.seqs.as_ref().map(|(seqs, first)| (seqs.clone(), first + from)),
            columns: self.columns.iter().map(column).collect(),
        }
    }
}

impl ScanSource {
    /// A source with all rows of these persons.
    pub(crate) fn whole(persons: Arc<Vec<Uuid>>, runs: Vec<SourceRun>) -> ScanSource {
        let times = || runs.iter().flat_map(|run| run.core.times.iter().copied());
        let times = (times().min().unwrap_or(Micros::MAX), times().max().unwrap_or(Micros::MIN));
        ScanSource { from: 0, to: persons.len(), persons, runs, times }
    }

    /// Splits the loaded range with this number among `2^of_bits` into shares by `bits`, with their numbers.
    /// `times` bound all its times.
    pub(crate) fn cut(
        loaded: LoadedRange,
        (number, of_bits): (u64, u32),
        bits: u32,
        times: (Micros, Micros),
    ) -> Vec<(u64, ScanSource)> {
        let runs = loaded.runs.into_iter().map(|run| SourceRun {
            event: run.event,
            core: run.core,
            seqs: run.seqs.map(|seqs| (seqs, 0)),
            columns: run.columns.into_iter().map(|column| column.column).collect(),
        });
        let runs = runs.collect::<Vec<_>>();
        let (persons, places) = (loaded.persons, loaded.places);
        if runs.is_empty() {
            return Vec::new();
        }
        if bits <= of_bits {
            let (from, to) = (places.start, places.end);
            return vec![(number, ScanSource { from, to, persons, runs, times })];
        }
        let shares = 1_u64 << (bits - of_bits);
        let mut cut = Vec::new();
        let mut from = 0;
        let mut rows_from = vec![0; runs.len()];
        for number in number * shares..(number + 1) * shares {
            let to = from + persons[from..].partition_point(|person| range_of(*person, bits) <= number);
            let mut of_share = Vec::new();
            for (run, start) in runs.iter().zip(&mut rows_from) {
                let end = *start + run.core.codes[*start..].partition_point(|code| (*code as usize) < to);
                if end > *start {
                    of_share.push(run.rows(*start, end));
                }
                *start = end;
            }
            if !of_share.is_empty() {
                let (persons, from, to) = (persons.clone(), from.max(places.start), to.min(places.end));
                cut.push((number, ScanSource { persons, from, to, runs: of_share, times }));
            }
            from = to;
        }
        cut
    }

    fn rows(&self) -> usize {
        self.runs.iter().map(|run| run.core.codes.len()).sum()
    }

    /// Whether the arrival order of all its rows is known.
    pub(crate) fn has_seqs(&self) -> bool {
        self.runs.iter().all(|run| run.seqs.is_some())
    }

    /// Whether all its persons are in the share.
    pub(crate) fn is_whole(&self) -> bool {
        (self.from, self.to) == (0, self.persons.len())
    }

    fn rows_between(&self, from: Micros, to: Micros) -> usize {
        let times = self.runs.iter().flat_map(|run| run.core.times.iter());
        times.filter(|time| (from..=to).contains(*time)).count()
    }

    /// Person and time of its rows between two instants, run by run.
    fn places_between(&self, from: Micros, to: Micros) -> impl Iterator<Item = (&Uuid, Micros)> {
        let rows = self.runs.iter().flat_map(|run| run.core.codes.iter().zip(&run.core.times));
        let rows = rows.filter(move |(_, time)| (from..=to).contains(*time));
        rows.map(|(code, time)| (&self.persons[*code as usize], *time))
    }

    /// Whether any row has this person and time.
    fn has(&self, person: &Uuid, time: Micros) -> bool {
        let Ok(at) = self.persons[self.from..self.to].binary_search(person) else { return false };
        let code = (self.from + at) as u32;
        self.runs.iter().any(|run| {
            let first = run.core.codes.partition_point(|other| *other < code);
            let rows = run.core.codes[first..].partition_point(|other| *other == code);
            run.core.times[first..first + rows].binary_search(&time).is_ok()
        })
    }
}

/// Whether an event of one source has person and time of an event of another.
pub(crate) fn share_person_and_time(sources: &[&ScanSource]) -> bool {
    (1..sources.len()).any(|at| sources[..at].iter().any(|other| pair_shares(other, sources[at])))
}

/// How many rows of a source are read in the time that one row is looked up.
const LOOKUP_ROWS: usize = 16;

fn pair_shares(a: &ScanSource, b: &ScanSource) -> bool {
    // Only rows in the time that both cover can meet.
    let (from, to) = (a.times.0.max(b.times.0), a.times.1.min(b.times.1));
    if from > to {
        return false;
    }
    let (a_rows, b_rows) = (a.rows_between(from, to), b.rows_between(from, to));
    let (small, rows, large) = if a_rows <= b_rows { (a, a_rows, b) } else { (b, b_rows, a) };
    if rows * LOOKUP_ROWS < large.rows() {
        return small.places_between(from, to).any(|(person, time)| large.has(person, time));
    }
    let sorted = |source: &ScanSource| {
        let places = source.places_between(from, to).map(|(person, time)| (person.as_u128(), time));
        let mut places = places.collect::<Vec<_>>();
        // Stable, because the rows of each run are sorted already.
        places.sort();
        places
    };
    let (small, large) = (sorted(small), sorted(large));
    let mut large = large.iter().peekable();
    small.iter().any(|place| {
        while large.next_if(|other| *other < place).is_some() {}
        large.peek() == Some(&place)
    })
}

/// Merges `sources`, which have their arrival order if `by_seq`; without it, no two of them may overlap.
pub(crate) fn partition(
    sources: &[ScanSource],
    names: &[String],
    keys: &[ColumnKey],
    by_seq: bool,
) -> Partition {
    let runs = sources.iter().flat_map(|source| &source.runs);
    let order = match by_seq {
        true => TieOrder::Seqs,
        false if runs.clone().any(|run| run.core.ties.is_some()) => TieOrder::Ties,
        false => TieOrder::Untied,
    };
    let events = {
        let mut events = runs.map(|run| run.event).collect::<Vec<_>>();
        events.sort_unstable();
        events.dedup();
        events
    };
    let (persons, maps) = match sources {
        [only] if only.is_whole() => (only.persons.clone(), vec![None]),
        several => {
            let (persons, maps) = together(several);
            (Arc::new(persons), maps.into_iter().map(Some).collect())
        }
    };
    let run = |event: usize| {
        let heads = sources.iter().zip(&maps).filter_map(|(source, map)| {
            let run = source.runs.iter().find(|run| run.event == event)?;
            Some(MergeInput { run, map: map.as_deref(), from: source.from as u32 })
        });
        let heads = heads.collect::<Vec<_>>();
        merged(&heads, persons.len(), names[event].clone(), keys, order)
    };
    let runs = events.into_iter().map(run).collect();
    Partition { actors: persons, runs, ..Partition::default() }
}

/// All persons of the sources, ascending, and for each source the indices of its persons among them.
fn together(sources: &[ScanSource]) -> (Vec<Uuid>, Vec<Vec<u32>>) {
    let lists = sources.iter().map(|source| &source.persons[source.from..source.to]).collect::<Vec<_>>();
    // Pairwise, so that a person is compared log(n) times.
    let mut level = lists.iter().map(|list| Cow::Borrowed(*list)).collect::<Vec<_>>();
    while level.len() > 1 {
        let pairs = level.chunks(2);
        level = pairs
            .map(|pair| match pair {
                [left, right] => Cow::Owned(either(left, right)),
                _ => pair[0].clone(),
            })
            .collect();
    }
    let persons = level.pop().unwrap_or_default().into_owned();
    let places = |list: &&[Uuid]| {
        let mut at = 0;
        let place = |person: &Uuid| {
            while persons[at] != *person {
                at += 1;
            }
            at as u32
        };
        list.iter().map(place).collect()
    };
    let places = lists.iter().map(places).collect();
    (persons, places)
}

/// Union of two sorted lists.
fn either(left: &[Uuid], right: &[Uuid]) -> Vec<Uuid> {
    let mut both = Vec::with_capacity(left.len() + right.len());
    let (mut l, mut r) = (0, 0);
    while let (Some(a), Some(b)) = (left.get(l), right.get(r)) {
        // Integers compare faster than bytes.
        let (a_number, b_number) = (a.as_u128(), b.as_u128());
        both.push(if a_number <= b_number { *a } else { *b });
        l += usize::from(a_number <= b_number);
        r += usize::from(b_number <= a_number);
    }
    both.extend_from_slice(&left[l..]);
    both.extend_from_slice(&right[r..]);
    both
}

fn merged(
    heads: &[MergeInput<'_>],
    persons: usize,
    event: String,
    keys: &[ColumnKey],
    form: TieOrder,
) -> EventRun {
    let joined_columns = BTreeMap::new();
    if let [only] = heads {
        let run = only.run;
        let rows = run.core.codes.len();
        let order = match form {
            TieOrder::Untied => ArrivalOrder::Untied,
            TieOrder::Ties => {
                ArrivalOrder::Ties(run.core.ties.clone().unwrap_or_else(|| vec![0; rows].into()))
            }
            TieOrder::Seqs => match &run.seqs {
                Some((seqs, 0)) if seqs.len() == rows => ArrivalOrder::Seqs(seqs.clone()),
                _ => ArrivalOrder::Seqs(Arc::new(run.seqs().to_vec())),
            },
        };
        let columns = keys.iter().cloned().zip(run.columns.iter().cloned()).collect();
        return EventRun {
            event,
            actors: only.codes(),
            times: run.core.times.clone(),
            order,
            columns,
            joined_columns,
        };
    }
    let codes = heads.iter().map(MergeInput::codes).collect::<Vec<_>>();
    let places = places(heads, &codes, persons, form);
    let actors = arranged(&places, |head| codes[head].iter().copied());
    let times = arranged(&places, |head| heads[head].run.core.times.iter().copied());
    let order = match form {
        TieOrder::Untied => ArrivalOrder::Untied,
        TieOrder::Ties => {
            let ties = |head: usize| {
                let known = heads[head].run.core.ties.as_ref();
                (0..codes[head].len()).map(move |row| known.map_or(0, |ties| ties[row]))
            };
            ArrivalOrder::Ties(arranged(&places, ties).into())
        }
        TieOrder::Seqs => {
            ArrivalOrder::Seqs(Arc::new(arranged(&places, |head| heads[head].run.seqs().iter().copied())))
        }
    };
    let columns =
        keys.iter().enumerate().map(|(at, key)| (key.clone(), column(heads, &places, at))).collect();
    EventRun { event, actors: actors.into(), times: times.into(), order, columns, joined_columns }
}

/// Scatters the values of all heads to the positions of their rows.
fn arranged<T: Copy + Default, I: Iterator<Item = T>>(
    places: &[Vec<u32>],
    of: impl Fn(usize) -> I,
) -> Vec<T> {
    let mut all = vec![T::default(); places.iter().map(Vec::len).sum()];
    for (head, places) in places.iter().enumerate() {
        for (place, value) in places.iter().zip(of(head)) {
            all[*place as usize] = value;
        }
    }
    all
}

/// Column number `at` of the merged run. Equal values of different heads are unified, in order of first
/// appearance.
fn column(heads: &[MergeInput<'_>], places: &[Vec<u32>], at: usize) -> Column {
    let of = |head: usize| &heads[head].run.columns[at];
    // The values of all heads in sequence, and the start of each head.
    let (mut all, mut starts) = (Vec::new(), Vec::new());
    for head in 0..heads.len() {
        starts.push(all.len() as u32);
        all.extend(of(head).values.iter());
    }
    let mut codes = arranged(places, |head| {
        let (own, start) = (of(head).values.len() as u32, starts[head]);
        of(head).codes.iter().map(move |code| if *code < own { start + code } else { MISSING })
    });
    let (mut new, mut values) = (vec![MISSING; all.len()], Vec::new());
    let mut known = DictionaryEncoder::<&Value>::default();
    for code in codes.iter_mut().filter(|code| **code != MISSING) {
        let new = &mut new[*code as usize];
        if *new == MISSING {
            let value = all[*code as usize];
            let (number, is_new) = known.code(value);
            if is_new {
                values.push(value.clone());
            }
            *new = number;
        }
        *code = *new;
    }
    Column::new(codes, values)
}

#[cfg(test)]
mod tests;
