//! The same events give the same scan, for any way of arrival, compaction in between, and cache.

use std::collections::HashMap;

use crate::support::{NOW, PROJECT, Place, PlainRow, event, expected, request, rows, without_arrivals};
use pennon_analytics::scan::{ArrivalOrder, ScanRequest};
use pennon_eventstore::{EventStore, GRACE_MICROS, MergeMode, Settings, derive_person_id};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

/// Uuid, name, person, time, value.
type Raw = (u8, u8, u8, u8, u8);

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<Raw>),
    Import(Vec<Raw>),
    /// The first person becomes the second.
    Merge(u8, u8),
    Compact,
    MergeSegments,
    Sweep,
    Restart,
    /// A scan, which fills the cache.
    Look,
}

const PERSONS: u8 = 8;

fn events() -> impl Strategy<Value = Vec<Raw>> {
    // Few uuids, names, people and times, so that copies and ties are many.
    prop::collection::vec((0..120_u8, 0..4_u8, 0..PERSONS, 0..6_u8, 0..12_u8), 1..25)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => events().prop_map(Step::Append),
        3 => events().prop_map(Step::Import),
        2 => (0..PERSONS, 0..PERSONS).prop_map(|(from, to)| Step::Merge(from, to)),
        2 => Just(Step::Compact),
        1 => Just(Step::MergeSegments),
        1 => Just(Step::Sweep),
        1 => Just(Step::Restart),
        2 => Just(Step::Look),
    ];
    prop::collection::vec(step, 1..24)
}

fn value(kind: u8) -> Value {
    match kind {
        0 => json!(50),
        1 => json!(50.0),
        2 => json!(0.5),
        3 => json!("text"),
        4 => json!(null),
        5 => json!(true),
        6 => json!([1, "a"]),
        7 => json!({"a": {"b": 1.0}}),
        8 => json!("50"),
        9 => json!({"a": {"b": 1.0}, "c": [{"d": 1, "e": 2}]}),
        // The same members in another order: as values they are equal, their texts are not.
        10 => json!({"c": [{"e": 2, "d": 1}], "a": {"b": 1.0}}),
        _ => json!(7),
    }
}

fn made((uuid, name, who, time, kind): Raw) -> pennon_eventstore::Event {
    let name = ["a", "b", "$pageview", "ü"][usize::from(name)];
    let properties = if kind == 11 { json!({}) } else { json!({"k": value(kind), "n": time}) };
    event(u128::from(uuid), name, &format!("p{who}"), i64::from(time), properties)
}

/// The person of each id: forced merges, in the order of arrival.
#[derive(Default)]
struct Persons(HashMap<String, String>);

impl Persons {
    fn last(&self, who: &str) -> String {
        let mut at = who.to_owned();
        while let Some(next) = self.0.get(&at) {
            at.clone_from(next);
        }
        at
    }

    fn groups(&self) -> impl Fn(&str) -> String {
        |who| self.last(who)
    }
}

/// Rows with one canonical id per merged person, because the store may choose any of its ids.
fn by_group(rows: Vec<PlainRow>, persons: &Persons, finals: &HashMap<String, Uuid>) -> Vec<PlainRow> {
    for (who, last) in finals {
        assert_eq!(finals[&persons.last(who)], *last, "{who} and {} are one person", persons.last(who));
    }
    rows
}

fn queries() -> Vec<ScanRequest> {
    let mut query = Vec::new();
    for make in [request, without_arrivals] {
        query.push(make(&[], &["k", "n"]));
        query.push(make(&["a", "ü"], &["k"]));
        query.push(ScanRequest { from: 2, to: 4, ..make(&["a", "b"], &["n"]) });
        query.push(ScanRequest { to: 3, ..make(&["a", "b"], &["n"]) });
        // Without columns, as many queries are.
        query.push(make(&["$pageview"], &[]));
    }
    query
}

async fn look(events: &EventStore, query: &ScanRequest) -> Vec<PlainRow> {
    let scan = events.scan(PROJECT, &[], query).await.unwrap();
    if query.arrivals {
        let mut runs = scan.partitions.iter().flat_map(|partition| &partition.runs);
        assert!(runs.all(|run| matches!(run.order, ArrivalOrder::Seqs(_))));
    }
    rows(&scan)
}

/// The rows are these, and properties are written as they came.
fn assert_same(got: &[PlainRow], want: &[PlainRow], note: &str) {
    assert_eq!(got, want, "{note}");
    let texts = |rows: &[PlainRow]| {
        // The last column is all properties, whose order is not promised.
        let of = |row: &PlainRow| {
            let (_, query) = row.4.split_last().unwrap();
            query.iter().map(|value| value.as_ref().map(Value::to_string)).collect::<Vec<_>>()
        };
        rows.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(texts(got), texts(want), "{note}");
}

async fn check(steps: Vec<Step>, settings: Settings) {
    let mut place = Place::with(settings).await;
    let mut arrived = Vec::new();
    let mut persons = Persons::default();
    let mut now = NOW;
    for (at, step) in (0..).zip(steps) {
        now += 1000;
        match step {
            Step::Append(raw) => {
                let batch = raw.into_iter().map(made).collect::<Vec<_>>();
                place.events.append(PROJECT, &batch, now).await.unwrap();
                arrived.extend(batch);
            }
            Step::Import(raw) => {
                let lines = (0..).zip(raw.into_iter().map(made)).collect::<Vec<_>>();
                arrived.extend(lines.iter().map(|(_, event)| event.clone()));
                place.events.ingest(PROJECT, lines, now).await.unwrap();
            }
            Step::Merge(from, to) => {
                let (from, to) = (format!("p{from}"), format!("p{to}"));
                let merge = event(1000 + at, "$merge_dangerously", &to, 3, json!({"alias": from}));
                place.events.append(PROJECT, std::slice::from_ref(&merge), now).await.unwrap();
                arrived.push(merge);
                let (from, to) = (persons.last(&from), persons.last(&to));
                if from != to {
                    persons.0.insert(from, to);
                }
            }
            Step::Compact => {
                place.events.compact(PROJECT, now).await.unwrap();
            }
            Step::MergeSegments => {
                place.events.merge_segments(PROJECT, now, MergeMode::Fewest).await.unwrap();
            }
            Step::Sweep => {
                now += GRACE_MICROS;
                place.events.sweep(PROJECT, now).await.unwrap();
            }
            Step::Restart => place.events = place.again(),
            Step::Look => {
                for query in queries().iter().skip(1).step_by(2) {
                    look(&place.events, query).await;
                }
            }
        }
    }
    let mut finals = HashMap::new();
    for who in (0..PERSONS).map(|who| format!("p{who}")) {
        finals.insert(who.clone(), place.events.person_of(PROJECT, &who).await.unwrap());
    }
    let of = persons.groups();
    for query in queries() {
        let want = expected(&arrived, &query, |who| {
            finals.get(&of(who)).copied().unwrap_or(derive_person_id(PROJECT, who))
        });
        let want = by_group(want, &persons, &finals);
        assert_same(&look(&place.events, &query).await, &want, &format!("{query:?}"));
        assert_same(&look(&place.events, &query).await, &want, "again, from the cache");
    }
    // The time of a copy does not count.
    let everything = expected(&arrived, &request(&[], &[]), |who| derive_person_id(PROJECT, who));
    let first = everything.iter().map(|row| row.2).min();
    assert_eq!(place.events.earliest(PROJECT).await.unwrap(), first);
    // A second process, whose cache is too small for anything.
    place.events = place.again_with(Settings { cache_bytes: 0, ..settings });
    for query in queries() {
        let want = expected(&arrived, &query, |who| {
            finals.get(&of(who)).copied().unwrap_or(derive_person_id(PROJECT, who))
        });
        assert_same(&look(&place.events, &query).await, &want, &format!("without a cache: {query:?}"));
    }
    place.events.compact(PROJECT, now).await.unwrap();
    assert_eq!(place.events.earliest(PROJECT).await.unwrap(), first, "after compaction");
    for query in queries() {
        let want = expected(&arrived, &query, |who| {
            finals.get(&of(who)).copied().unwrap_or(derive_person_id(PROJECT, who))
        });
        assert_same(&look(&place.events, &query).await, &want, &format!("after compaction: {query:?}"));
    }
}

fn run(steps: Vec<Step>, range_rows: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(check(steps, Settings { range_rows, ..Settings::default() }));
}

/// A waiting copy has an earlier time than the stored event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_a_copy_is_not_the_earliest() {
    let held = vec![(1, 0, 0, 4, 0), (2, 0, 0, 5, 0)];
    let steps = [Step::Append(held), Step::Compact, Step::Append(vec![(1, 0, 0, 0, 0), (3, 0, 0, 5, 0)])];
    check(steps.to_vec(), Settings::default()).await;
}

/// Objects with the same members in two orders, in blocks, in one segment, and in two that are merged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_keeps_the_order_of_object_members() {
    let both = |uuid: u8| vec![(uuid, 0, 0, 0, 9), (uuid + 1, 0, 0, 1, 10), (uuid + 2, 0, 1, 0, 10)];
    let settings = Settings { range_rows: 4, ..Settings::default() };
    let steps = [Step::Append(both(0)), Step::Compact, Step::Import(both(10)), Step::Append(both(20))];
    check(steps.to_vec(), settings).await;
    let merged = [&steps[..], &[Step::Compact, Step::MergeSegments]].concat();
    check(merged, settings).await;
}

/// One of two imported events is a copy; the other has none of the properties with columns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_without_any_value_is_read() {
    check(
        vec![Step::Append(vec![(16, 0, 0, 0, 0)]), Step::Import(vec![(16, 0, 0, 0, 6), (0, 1, 3, 1, 11)])],
        Settings::default(),
    )
    .await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn layouts_do_not_matter(steps in steps(), range_rows in prop_oneof![Just(1_usize), Just(4), Just(20), Just(1000)]) {
        run(steps, range_rows);
    }
}
