//! Merges of persons: the vendor's rule, the same in every process, whatever was folded, sent again or sent at once.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{NOW, PROJECT, Place, event};
use pennon_core::store::PartitionQuery;
use pennon_eventstore::{
    Event, EventStore, EventStoreError, GRACE_MICROS, MERGES_MAX, PersonRecord, derive_person_id,
};
use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

/// A requested merge: the target, the merged person, and whether by force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MergeRequest {
    into: u8,
    other: u8,
    forced: bool,
}

fn id(n: u8) -> String {
    format!("id{n}")
}

impl MergeRequest {
    fn event(self, uuid: u128) -> Event {
        let (name, key) = match (self.forced, uuid.is_multiple_of(2)) {
            (true, _) => ("$merge_dangerously", "alias"),
            (false, true) => ("$identify", "$anon_distinct_id"),
            (false, false) => ("$create_alias", "alias"),
        };
        event(uuid, name, &id(self.into), uuid as i64, json!({ key: id(self.other) }))
    }
}

/// The rule of the vendor's service: a person is a set of ids, identified or not. The person that others are merged into
/// becomes identified and stays; an identified person is merged only by force.
#[derive(Debug, Clone)]
struct Model(Vec<Person>);

#[derive(Debug, Clone)]
struct Person {
    stays: u8,
    ids: BTreeSet<u8>,
    is_identified: bool,
}

impl Model {
    fn new(ids: u8) -> Model {
        let person = |n| Person { stays: n, ids: BTreeSet::from([n]), is_identified: false };
        Model((0..ids).map(person).collect())
    }

    fn place(&self, id: u8) -> usize {
        self.0.iter().position(|person| person.ids.contains(&id)).unwrap()
    }

    fn take(&mut self, merge_request: MergeRequest) {
        if merge_request.into == merge_request.other {
            return;
        }
        let (into, other) = (self.place(merge_request.into), self.place(merge_request.other));
        self.0[into].is_identified = true;
        if into != other && (merge_request.forced || !self.0[other].is_identified) {
            let ids = std::mem::take(&mut self.0[other].ids);
            self.0[into].ids.extend(ids);
        }
    }

    /// Who every id is.
    fn persons(&self) -> BTreeMap<u8, u8> {
        self.0.iter().flat_map(|person| person.ids.iter().map(|id| (*id, person.stays))).collect()
    }
}

async fn persons(events: &EventStore, ids: u8) -> BTreeMap<u8, u8> {
    let known = (0..ids).map(|n| (derive_person_id(PROJECT, &id(n)), n)).collect::<BTreeMap<Uuid, u8>>();
    let mut persons = BTreeMap::new();
    for n in 0..ids {
        persons.insert(n, known[&events.person_of(PROJECT, &id(n)).await.unwrap()]);
    }
    persons
}

fn merge_requests(ids: u8, most: usize) -> impl Strategy<Value = Vec<MergeRequest>> {
    let merge_request = (0..ids, 0..ids, prop::bool::weighted(0.2));
    prop::collection::vec(
        merge_request.prop_map(|(into, other, forced)| MergeRequest { into, other, forced }),
        1..most,
    )
}

fn run<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Batches are sent to two processes alternately, and some are sent again. Both see every merge at once, and so does a
    /// process that has just started.
    #[test]
    fn sequential_merges_follow_the_rule(merge_requests in merge_requests(7, 30), batch in 1..5_usize, again in 0..4_usize) {
        run(async {
            let place = Place::new().await;
            let processes = [place.again(), place.again()];
            let mut model = Model::new(7);
            for (turn, batch) in merge_requests.chunks(batch).enumerate() {
                let events =
                    batch.iter().zip(turn as u128 * 100..).map(|(merge_request, uuid)| merge_request.event(uuid)).collect::<Vec<_>>();
                for send in 0..=usize::from(again == turn % 4) {
                    processes[(turn + send) % 2].append(PROJECT, &events, NOW + turn as i64).await.unwrap();
                }
                batch.iter().for_each(|merge_request| model.take(*merge_request));
                assert_eq!(persons(&processes[turn % 2], 7).await, model.persons(), "{merge_requests:?}");
                assert_eq!(persons(&processes[(turn + 1) % 2], 7).await, model.persons(), "{merge_requests:?}");
                if turn % 3 == 2 {
                    processes[0].compact(PROJECT, NOW + turn as i64).await.unwrap();
                }
            }
            assert_eq!(persons(&place.again(), 7).await, model.persons(), "{merge_requests:?}");
        });
    }

    /// Concurrent merges in two processes give the result of one of their sequential orders.
    #[test]
    fn concurrent_merges_equal_some_sequential_order(merge_requests in merge_requests(4, 6)) {
        run(async {
            let place = Place::new().await;
            let processes = [place.again(), place.again()];
            let sent = merge_requests.iter().zip(0..).map(|(merge_request, n)| {
                let (events, process) = (vec![merge_request.event(n)], processes[n as usize % 2].clone());
                tokio::spawn(async move { process.append(PROJECT, &events, NOW).await })
            });
            for sent in sent.collect::<Vec<_>>() {
                sent.await.unwrap().unwrap();
            }
            let found = persons(&place.again(), 4).await;
            assert!(orders(&merge_requests).into_iter().any(|order| {
                let mut model = Model::new(4);
                order.into_iter().for_each(|merge_request| model.take(merge_request));
                model.persons() == found
            }), "{merge_requests:?} gave {found:?}");
            assert_eq!(persons(&processes[0], 4).await, found);
            assert_eq!(persons(&processes[1], 4).await, found);
        });
    }
}

fn orders(merge_requests: &[MergeRequest]) -> Vec<Vec<MergeRequest>> {
    if merge_requests.is_empty() {
        return vec![Vec::new()];
    }
    let first = (0..merge_requests.len()).flat_map(|n| {
        let rest = [&merge_requests[..n], &merge_requests[n + 1..]].concat();
        orders(&rest).into_iter().map(move |order| [&[merge_requests[n]], order.as_slice()].concat())
    });
    first.collect()
}

fn log() -> PartitionQuery {
    PartitionQuery::partition(format!("PROJECT#{PROJECT}#OVERRIDE")).prefix("MERGE#")
}

pub(crate) async fn rows_of_the_log(place: &Place) -> usize {
    place.store.records.query(log()).await.unwrap().len()
}

#[tokio::test]
async fn folded_merges_are_the_same_for_processes_with_warm_and_cold_caches() {
    let place = Place::new().await;
    let device = |n: u32| format!("device{n}");
    let identify = async |events: &EventStore, n: u32| {
        let who = format!("user{}", n / 2);
        let requested = event(u128::from(n), "$identify", &who, 1, json!({"$anon_distinct_id": device(n)}));
        events.append(PROJECT, &[requested], NOW).await.unwrap();
    };
    let (knows_some, reads_beside_a_sweep) = (place.again(), place.again());
    for n in 0..300 {
        identify(&place.events, n).await;
        if n == 100 {
            for events in [&knows_some, &reads_beside_a_sweep] {
                let person = events.person_of(PROJECT, "device100").await.unwrap();
                assert_eq!(person, derive_person_id(PROJECT, "user50"));
            }
        }
    }
    let knows_all = place.again();
    let check = async |events: &EventStore, all: u32| {
        for n in [0, 1, 57, 100, 255, 256, 257, 299, all - 1] {
            let person = events.person_of(PROJECT, &device(n)).await.unwrap();
            assert_eq!(person, derive_person_id(PROJECT, &format!("user{}", n / 2)), "device {n} of {all}");
        }
    };
    check(&knows_all, 300).await;
    assert_eq!(rows_of_the_log(&place).await, 300);
    place.events.compact(PROJECT, NOW).await.unwrap();
    check(&place.again(), 300).await;
    // A sweep was interrupted, or a reader read its first page before it and the second one after it.
    let rows = place.store.records.query(log()).await.unwrap();
    place.store.records.sweep(rows[110..290].iter().map(|row| row.key.clone()).collect()).await.unwrap();
    for events in [&reads_beside_a_sweep, &place.again()] {
        check(events, 300).await;
    }
    place.events.sweep(PROJECT, NOW).await.unwrap();
    assert_eq!(
        rows_of_the_log(&place).await,
        120,
        "rows that one object holds stay as long as it is the only one"
    );
    for events in [&place.again(), &knows_some, &knows_all] {
        check(events, 300).await;
    }
    // A new process continues at the end of the log, and a second fold (with the later name) includes the first one.
    let next = place.again();
    for n in 300..620 {
        identify(&next, n).await;
    }
    check(&knows_all, 620).await;
    next.compact(PROJECT, NOW + 60_000_000).await.unwrap();
    next.sweep(PROJECT, NOW + GRACE_MICROS + 1).await.unwrap();
    assert_eq!(
        (rows_of_the_log(&place).await, folded(&place).len()),
        (321, 2),
        "rows since the one before, its last too"
    );
    for events in [&place.again(), &knows_some, &knows_all] {
        check(events, 620).await;
    }
    // The newest object is damaged: no person is lost, the damage is found, and the next folding makes another one of the rows.
    let newest = folded(&place).pop().unwrap();
    let whole = std::fs::read(&newest).unwrap();
    let mut bytes = whole.clone();
    bytes[whole.len() / 2] ^= 1;
    std::fs::write(&newest, &bytes).unwrap();
    let events = place.again();
    check(&events, 620).await;
    let found = events.check(PROJECT, false, &mut |_| {}).await.unwrap().damaged;
    assert_eq!(found.iter().map(|one| (one.kind, one.events)).collect::<Vec<_>>(), [("merges", 620)]);
    events.sweep(PROJECT, NOW + 2 * GRACE_MICROS).await.unwrap();
    assert_eq!(rows_of_the_log(&place).await, 321, "nothing goes that the damaged one alone holds");
    events.compact(PROJECT, NOW + 2 * GRACE_MICROS).await.unwrap();
    // Grace counts from the listing, which is a moment after the compaction began.
    events.sweep(PROJECT, NOW + 4 * GRACE_MICROS).await.unwrap();
    assert!(!std::path::Path::new(&newest).exists(), "the damaged one is gone");
    assert_eq!(events.check(PROJECT, false, &mut |_| {}).await.unwrap().damaged, []);
    assert!(events.damage(PROJECT).await.unwrap().is_empty());
    check(&place.again(), 620).await;
}

/// The files of folded merges, oldest first.
pub(crate) fn folded(place: &Place) -> Vec<String> {
    let of = |file: &String| file.contains("/merges/") && file.ends_with(".bin");
    let mut files = place.files().into_iter().filter(of).collect::<Vec<_>>();
    files.sort();
    files
}

#[tokio::test]
async fn a_process_that_paused_during_a_fold_appends_after_it() {
    let place = Place::new().await;
    let requested = |n: u32| {
        event(n.into(), "$identify", &format!("u{n}"), 1, json!({"$anon_distinct_id": format!("d{n}")}))
    };
    let person = async |events: EventStore, n: u32| {
        assert_eq!(
            events.person_of(PROJECT, &format!("d{n}")).await.unwrap(),
            derive_person_id(PROJECT, &format!("u{n}")),
            "{n}"
        );
    };
    let (waits, works) = (place.again(), place.again());
    for n in 0..5 {
        waits.append(PROJECT, &[requested(n)], NOW).await.unwrap();
    }
    // Two foldings: rows that one object holds stay as long as it is the only one.
    for (rows, at) in [(5..300, NOW), (300..600, NOW + 1)] {
        for n in rows {
            works.append(PROJECT, &[requested(n)], at).await.unwrap();
        }
        works.compact(PROJECT, at).await.unwrap();
    }
    works.sweep(PROJECT, NOW + 1).await.unwrap();
    assert_eq!(rows_of_the_log(&place).await, 301, "row 300 and those after it");
    // Its latest known row is row 5.
    for n in [600, 601] {
        waits.append(PROJECT, &[requested(n)], NOW).await.unwrap();
        for events in [&waits, &works, &place.again()] {
            person(events.clone(), n).await;
        }
    }
    assert_eq!(rows_of_the_log(&place).await, 303);
    for n in [0, 4, 5, 299, 300, 599] {
        person(place.again(), n).await;
    }
}

#[tokio::test]
async fn a_process_without_cached_rows_does_not_start_a_second_log() {
    let place = Place::new().await;
    let requested = |n| MergeRequest { into: n, other: n + 1, forced: false }.event(n.into());
    place.events.append(PROJECT, &[requested(0)], NOW).await.unwrap();
    // A process that read before the first row was written, and writes after the row was folded.
    let log = format!("PROJECT#{PROJECT}#OVERRIDE");
    let row =
        place.store.records.query(PartitionQuery::partition(log).prefix("MERGE#")).await.unwrap().remove(0);
    place.store.records.sweep(vec![row.key]).await.unwrap();
    assert!(place.again().append(PROJECT, &[requested(2)], NOW).await.is_err());
    assert_eq!(rows_of_the_log(&place).await, 0);
}

#[tokio::test]
async fn merges_sent_again_write_nothing() {
    let place = Place::new().await;
    let merge_requests = [(0, 1, false), (0, 2, true), (3, 1, false), (3, 0, true)];
    let merge_requests = merge_requests.map(|(into, other, forced)| MergeRequest { into, other, forced });
    for round in 0..3 {
        let sent = merge_requests
            .iter()
            .zip(0..)
            .map(|(merge_request, n)| merge_request.event(n))
            .collect::<Vec<_>>();
        place.again().append(PROJECT, &sent, NOW + round).await.unwrap();
        assert_eq!(rows_of_the_log(&place).await, 1);
    }
}

#[tokio::test]
async fn more_merges_of_one_batch_than_fit_into_a_transaction() {
    let place = Place::new().await;
    let requested = |n: u128| {
        event(n, "$merge_dangerously", &format!("u{}", n % 7), 1, json!({"alias": format!("d{n}")}))
    };
    let most = MERGES_MAX as u128;
    let mut sent = (0..=most).map(requested).collect::<Vec<_>>();
    let refused = place.events.append(PROJECT, &sent, NOW).await;
    assert!(matches!(&refused, Err(EventStoreError::TooLarge(why)) if why.contains("1000")), "{refused:?}");
    assert_eq!((rows_of_the_log(&place).await, place.events.count_people(PROJECT).await.unwrap()), (0, 0));
    // A merge that is requested twice counts once.
    sent[most as usize] = event(most, "$merge_dangerously", "u0", 1, json!({"alias": "d0"}));
    place.events.append(PROJECT, &sent, NOW).await.unwrap();
    let events = place.again();
    for n in [0, 29, 30, 31, 999] {
        let person = events.person_of(PROJECT, &format!("d{n}")).await.unwrap();
        assert_eq!(person, derive_person_id(PROJECT, &format!("u{}", n % 7)));
    }
    assert_eq!(events.count_people(PROJECT).await.unwrap(), 7);
}

#[tokio::test]
async fn a_person_imported_with_several_ids_is_merged_only_by_force() {
    let place = Place::new().await;
    let record = |ids: &[&str]| PersonRecord {
        distinct_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        properties: serde_json::Map::new(),
        created_at: None,
    };
    place.events.add_persons(PROJECT, vec![record(&["ann", "ann2"]), record(&["solo"])], NOW).await.unwrap();
    let sent = [
        event(1, "$identify", "bob", 1, json!({"$anon_distinct_id": "ann2"})),
        event(2, "$create_alias", "bob", 2, json!({"alias": "ann"})),
        event(3, "$identify", "bob", 3, json!({"$anon_distinct_id": "solo"})),
        event(4, "$identify", "ann2", 4, json!({"$anon_distinct_id": "phone"})),
    ];
    place.events.append(PROJECT, &sent, NOW).await.unwrap();
    let who = async |id: &str| place.again().person_of(PROJECT, id).await.unwrap();
    let (ann, bob) = (derive_person_id(PROJECT, "ann"), derive_person_id(PROJECT, "bob"));
    for (id, person) in [("ann", ann), ("ann2", ann), ("phone", ann), ("bob", bob), ("solo", bob)] {
        assert_eq!(who(id).await, person, "{id}");
    }
    let forced = event(5, "$merge_dangerously", "bob", 5, json!({"alias": "ann2"}));
    place.events.append(PROJECT, &[forced], NOW).await.unwrap();
    for id in ["ann", "ann2", "phone", "bob", "solo"] {
        assert_eq!(who(id).await, bob, "{id}");
    }
}
