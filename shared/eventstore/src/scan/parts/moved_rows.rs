//! Rows that are not read with the other rows of their person, with the names of their events, to be passed on to the part of
//! their person.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pennon_analytics::PersonRange;
use pennon_analytics::scan::{Column, Micros, Seq};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::event::PersonEvent;
use crate::persons::PersonMerges;
use crate::scan::compiled_request::CompiledRequest;
use crate::scan::delta::DeltaRows;

/// Events of persons with the columns of a scan; all lists have an entry a row.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(into = "StoredRows", try_from = "StoredRows")]
pub struct MovedRows {
    /// Ascending; the events of the rows are indices into it.
    pub(in crate::scan) names: Vec<String>,
    pub(in crate::scan) rows: DeltaRows,
}

impl MovedRows {
    /// The rows of events of blocks.
    pub(in crate::scan) fn of_events(
        events: &[PersonEvent],
        requested: &CompiledRequest,
        person_merges: &PersonMerges,
    ) -> MovedRows {
        let names: BTreeSet<&str> = events.iter().map(|row| row.event.event.as_str()).collect();
        let names = names.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let rows = DeltaRows::of_rows(events, &names, requested, person_merges);
        MovedRows { names, rows }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.events.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.events.is_empty()
    }

    /// The rows of the persons of a range.
    pub(in crate::scan) fn of_range(&self, range: PersonRange) -> MovedRows {
        MovedRows { names: self.names.clone(), rows: self.rows.filtered(|person| range.contains(person)) }
    }

    /// The rows with their events as indices into `names`, which are sorted and contain all of theirs.
    pub(in crate::scan) fn named(mut self, names: &[String]) -> DeltaRows {
        let places = self.names.iter().map(|own| names.partition_point(|name| name < own));
        let places = places.collect::<Vec<_>>();
        for event in &mut self.rows.events {
            *event = places.get(*event).copied().unwrap_or_default();
        }
        self.rows
    }
}

/// The form in which rows are passed between processes.
#[derive(Serialize, Deserialize)]
struct StoredRows {
    names: Vec<String>,
    events: Vec<u32>,
    /// Persons, each once.
    persons: Vec<Uuid>,
    /// Indices into `persons`.
    codes: Vec<u32>,
    times: Vec<Micros>,
    seqs: Vec<Seq>,
    /// The codes of each column, and its values as a JSON list.
    columns: Vec<(Vec<u32>, String)>,
}

impl From<MovedRows> for StoredRows {
    fn from(MovedRows { names, rows }: MovedRows) -> StoredRows {
        let mut persons = Vec::new();
        let mut known = HashMap::new();
        let codes = rows.persons.iter().map(|person| {
            *known.entry(*person).or_insert_with(|| {
                persons.push(*person);
                persons.len() as u32 - 1
            })
        });
        let codes = codes.collect();
        let column = |column: &Column| {
            let values = Value::Array(column.values.to_vec());
            (column.codes.to_vec(), values.to_string())
        };
        StoredRows {
            names,
            events: rows.events.iter().map(|event| *event as u32).collect(),
            persons,
            codes,
            columns: rows.columns.iter().map(column).collect(),
            times: rows.times,
            seqs: rows.seqs,
        }
    }
}

impl TryFrom<StoredRows> for MovedRows {
    type Error = String;

    fn try_from(stored: StoredRows) -> Result<MovedRows, String> {
        let rows = stored.events.len();
        let has_all = stored.codes.len() == rows
            && stored.times.len() == rows
            && stored.seqs.len() == rows
            && stored.columns.iter().all(|(codes, _)| codes.len() == rows);
        let are_known = stored.codes.iter().all(|code| (*code as usize) < stored.persons.len())
            && stored.events.iter().all(|event| (*event as usize) < stored.names.len());
        if !has_all || !are_known || !stored.names.is_sorted() {
            return Err("lists of rows do not fit together".to_owned());
        }
        let column = |(codes, values): (Vec<u32>, String)| {
            let values: Vec<Value> = serde_json::from_str(&values).map_err(|error| error.to_string())?;
            Ok::<_, String>(Column { codes: codes.into(), values: Arc::new(values.into()) })
        };
        let columns = stored.columns.into_iter().map(column).collect::<Result<_, _>>()?;
        let rows = DeltaRows {
            events: stored.events.iter().map(|event| *event as usize).collect(),
            persons: stored.codes.iter().map(|code| stored.persons[*code as usize]).collect(),
            times: stored.times,
            seqs: stored.seqs,
            columns,
        };
        Ok(MovedRows { names: stored.names, rows })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn rows() -> MovedRows {
        let column = Column::new(vec![0, 1, u32::MAX], vec![json!(1), json!({"b": 1.0, "a": "x"})]);
        MovedRows {
            names: vec!["a".to_owned(), "c".to_owned()],
            rows: DeltaRows {
                events: vec![1, 0, 1],
                persons: [1_u128 << 127, 7, 1 << 127].map(Uuid::from_u128).to_vec(),
                times: vec![5, -3, 9],
                seqs: vec![u128::MAX, 0, 2],
                columns: vec![column],
            },
        }
    }

    #[test]
    fn rows_survive_the_form_between_processes() {
        let text = serde_json::to_string(&rows()).unwrap();
        let read: MovedRows = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", rows()));
        for wrong in [
            text.replace("[0,1,0]", "[0,2,0]"),
            text.replace("[1,0,1]", "[1,0]"),
            text.replace("\"a\",", "\"d\","),
        ] {
            assert_ne!(wrong, text);
            assert!(serde_json::from_str::<MovedRows>(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rows_of_a_range_keep_their_events_under_other_names() {
        let [first, second] = PersonRange::ALL.split(2)[..] else { unreachable!("two halves") };
        assert_eq!((rows().of_range(first).len(), rows().of_range(second).len()), (1, 2));
        let names = ["a", "b", "c"].map(str::to_owned);
        let named = rows().of_range(second).named(&names);
        assert_eq!((named.events, named.times), (vec![2, 2], vec![5, 9]));
        assert_eq!(named.columns[0].codes.to_vec(), [0, u32::MAX]);
    }
}
