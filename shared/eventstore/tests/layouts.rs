//! The same events give the same scan, however they came and whatever was compacted in between.
#![allow(clippy::unwrap_used)]

mod support;

use pennon_eventstore::{GRACE_MICROS, derived};
use proptest::prelude::*;
use serde_json::{Value, json};
use support::{NOW, PROJECT, Place, event, expected, request, rows};

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<(u8, u8, u8, u8, u8)>),
    Import(Vec<(u8, u8, u8, u8, u8)>),
    Compact,
    Sweep,
    Restart,
}

fn events() -> impl Strategy<Value = Vec<(u8, u8, u8, u8, u8)>> {
    // Few uuids, names, people and times, so that copies and ties are many.
    prop::collection::vec((0..120_u8, 0..4_u8, 0..5_u8, 0..6_u8, 0..12_u8), 1..25)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => events().prop_map(Step::Append),
        2 => events().prop_map(Step::Import),
        2 => Just(Step::Compact),
        1 => Just(Step::Sweep),
        1 => Just(Step::Restart),
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
        _ => json!(7),
    }
}

fn made((uuid, name, who, time, kind): (u8, u8, u8, u8, u8)) -> pennon_eventstore::Event {
    let name = ["a", "b", "$pageview", "ü"][usize::from(name)];
    let properties = if kind == 11 { json!({}) } else { json!({"k": value(kind), "n": time}) };
    event(u128::from(uuid), name, &format!("p{who}"), i64::from(time), properties)
}

async fn check(steps: Vec<Step>) {
    let mut place = Place::new().await;
    let mut arrived = Vec::new();
    let mut now = NOW;
    for step in steps {
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
            Step::Compact => {
                place.events.compact(PROJECT, now).await.unwrap();
            }
            Step::Sweep => {
                now += GRACE_MICROS;
                place.events.sweep(PROJECT, now).await.unwrap();
            }
            Step::Restart => place.events = place.again(),
        }
    }
    for asked in [request(&[], &["k", "n"]), request(&["a", "ü"], &["k"])] {
        let want = expected(&arrived, &asked, |who| derived(PROJECT, who));
        let scan = place.events.scan(PROJECT, &[], &asked).await.unwrap();
        assert_eq!(rows(&scan), want);
        place.events.compact(PROJECT, now).await.unwrap();
        let compacted = place.events.scan(PROJECT, &[], &asked).await.unwrap();
        assert_eq!(compacted.partitions, scan.partitions, "columns too are the same after compaction");
    }
}

/// Of an import of two events one is a copy; the other has none of the properties that the columns are made for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_without_any_value_is_read() {
    check(vec![Step::Append(vec![(16, 0, 0, 0, 0)]), Step::Import(vec![(16, 0, 0, 0, 6), (0, 1, 3, 1, 11)])])
        .await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn layouts_do_not_matter(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check(steps));
    }
}
