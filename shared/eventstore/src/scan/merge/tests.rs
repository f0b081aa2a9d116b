#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

/// Person, time, source and value of a row.
type Row = (u8, Micros, usize, u8);

fn id(person: u8) -> Uuid {
    // The first byte sorts only the second half, so that the order is not that of the last byte.
    Uuid::from_bytes([person / 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, person])
}

/// The rows of the sources; the order of arrival is the index in `rows`.
fn sources(rows: &[Row], events: usize) -> Vec<ScanSource> {
    let of = |source: usize| {
        let mut own = rows.iter().zip(0_i64..).filter(|(row, _)| row.2 == source).collect::<Vec<_>>();
        own.sort_by_key(|((person, time, ..), seq)| (id(*person), *time, *seq));
        let mut persons = own.iter().map(|((person, ..), _)| id(*person)).collect::<Vec<_>>();
        persons.dedup();
        let run = |event: usize| {
            let own = own.iter().filter(|((.., what), _)| *what as usize % events == event);
            let own = own.collect::<Vec<_>>();
            let code = |person: u8| persons.binary_search(&id(person)).unwrap() as u32;
            let core = RunColumns {
                codes: own.iter().map(|((person, ..), _)| code(*person)).collect(),
                times: own.iter().map(|((_, time, ..), _)| *time).collect(),
                ties: None,
            };
            // Each source has the values in an order of its own.
            let values =
                (0..=u8::MAX).map(|at| Value::from(at.wrapping_add(source as u8))).collect::<Vec<_>>();
            let codes = own.iter().map(|((.., what), _)| u32::from(what.wrapping_sub(source as u8)));
            let column = Column::new(codes.collect(), values);
            let seqs = own.iter().map(|(_, seq)| *seq as Seq).collect::<Vec<_>>();
            SourceRun { event, core, seqs: Some((Arc::new(seqs), 0)), columns: vec![column] }
        };
        let runs = (0..events).map(run).filter(|run| !run.core.codes.is_empty()).collect();
        ScanSource::whole(Arc::new(persons.clone()), runs)
    };
    (0..6).map(of).filter(|source| source.rows() > 0).collect()
}

/// The rows unchanged, or divided among sources by time, so that the times of two sources do not overlap.
fn dealt(rows: Vec<Row>, apart: bool) -> Vec<Row> {
    let longest = rows.iter().map(|row| row.1).max().unwrap_or(0) + 1;
    let source = |row: &Row| if apart { 5 - (row.1 * 6 / longest) as usize } else { row.2 };
    rows.iter().map(|row| (row.0, row.1, source(row), row.3)).collect()
}

proptest! {
    /// For any division among sources, rows are unchanged and in the order of person, time and arrival.
    #[test]
    fn rows_have_one_order(
        rows in prop::collection::vec((0_u8..20, 0_i64..8, 0_usize..6, any::<u8>()), 1..200), apart: bool
    ) {
        let rows = dealt(rows, apart);
        let names = ["a".to_owned(), "b".to_owned()];
        let keys = [ColumnKey::Property("p".to_owned())];
        let partition = partition(&sources(&rows, 2), &names, &keys, true);
        prop_assert!(partition.actors.is_sorted() && partition.actors.windows(2).all(|pair| pair[0] != pair[1]));
        for (event, name) in names.iter().enumerate() {
            let mut expected = rows.iter().zip(0_i64..).filter(|((.., what), _)| *what as usize % 2 == event)
                .map(|((person, time, _, what), seq)| (id(*person), *time, seq as Seq, Value::from(*what)))
                .collect::<Vec<_>>();
            expected.sort_by_key(|row| (row.0, row.1, row.2));
            let Some(run) = partition.runs.iter().find(|run| run.event == *name) else {
                prop_assert!(expected.is_empty());
                continue;
            };
            let ArrivalOrder::Seqs(seqs) = &run.order else { panic!("the order of arrival was given") };
            let column = &run.columns[&keys[0]];
            let found = (0..run.times.len()).map(|row| (
                partition.actors[run.actors[row] as usize], run.times[row], seqs[row],
                column.values[column.codes[row] as usize].clone(),
            ));
            prop_assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }

    /// Without the order of arrival, if no two events of a person have the same time.
    #[test]
    fn times_define_the_order_if_they_are_distinct(
        rows in prop::collection::btree_map((0_u8..20, 0_i64..30), (0_usize..6, any::<u8>()), 1..200), apart: bool
    ) {
        let rows = rows.into_iter().map(|((person, time), (source, what))| (person, time, source, what));
        let rows = dealt(rows.collect(), apart);
        let (names, keys) = (["a".to_owned()], []);
        let partition = partition(&sources(&rows, 1), &names, &keys, false);
        let run = &partition.runs[0];
        let found = run.actors.iter().zip(&run.times).map(|(code, time)| (partition.actors[*code as usize], *time));
        let mut expected = rows.iter().map(|row| (id(row.0), row.1)).collect::<Vec<_>>();
        expected.sort_unstable();
        prop_assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    /// Two sources meet exactly if an event of one has person and time of an event of the other, whatever their sizes.
    #[test]
    fn sources_that_share_person_and_time_are_found(
        rows in prop::collection::vec((0_u8..20, 0_i64..2000, 0_usize..6, any::<u8>()), 1..200),
        small in prop::collection::vec((0_u8..20, 0_i64..2000, any::<u8>()), 0..3),
        apart: bool,
    ) {
        let mut rows = dealt(rows, apart);
        rows.extend(small.iter().map(|(person, time, what)| (*person, *time, 5, *what)));
        let meet = |a: &Row, b: &Row| a.2 != b.2 && (a.0, a.1) == (b.0, b.1);
        let expected = rows.iter().any(|a| rows.iter().any(|b| meet(a, b)));
        let sources = sources(&rows, 2);
        prop_assert_eq!(share_person_and_time(&sources.iter().collect::<Vec<_>>()), expected);
    }
}
