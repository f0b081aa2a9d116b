//! Merges of persons that several processes request at once, each with its own store: compared with a union-find over the rows of
//! the log, in the order in which they were committed. The table has the latency and the conflicts of DynamoDB, or fails.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pennon::embedded::Embedded;
use pennon_core::store::{PartitionQuery, Store, StoreError};
use pennon_eventstore::{ErasureTarget, Event, EventStore, EventStoreError, derive_person_id};
use pennon_tests::{Fault, Faults, LimitedTable, PartitionLimits, Random};
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use uuid::Uuid;

const PROJECT: u64 = 1;
const PROCESSES: u64 = 6;
/// How often a refused request is sent again.
const RETRIES_MAX: usize = 12;
/// Few ids, so that requests meet.
const IDS: u64 = 14;

fn id(n: u64) -> String {
    format!("id{n}")
}

fn person(n: u64) -> Uuid {
    derive_person_id(PROJECT, &id(n))
}

fn now() -> i64 {
    pennon_tests::now_micros()
}

/// A requested merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    from: u64,
    to: u64,
    is_forced: bool,
}

impl Request {
    fn random(random: &mut Random) -> Request {
        let from = random.below(IDS);
        let to = (from + 1 + random.below(IDS - 1)) % IDS;
        Request { from, to, is_forced: random.below(6) == 0 }
    }

    fn event(self, random: &mut Random) -> Event {
        let (name, key) = match self.is_forced {
            true => ("$merge_dangerously", "alias"),
            false => ("$identify", "$anon_distinct_id"),
        };
        let properties = json!({ key: id(self.from) });
        let uuid = Uuid::from_u64_pair(random.number(), random.number());
        let properties = properties.as_object().unwrap().clone();
        Event { uuid, event: name.to_owned(), distinct_id: id(self.to), timestamp: now(), properties }
    }
}

/// What a process requested: acknowledged, or without a response, so that it may have been done.
#[derive(Debug, Default)]
struct Sent {
    acknowledged: Vec<Request>,
    unknown: Vec<Request>,
    errors: Vec<EventStoreError>,
}

async fn send(events: &EventStore, seed: u64, batches: u64) -> Sent {
    let (mut random, mut sent) = (Random::new(seed), Sent::default());
    for _ in 0..batches {
        let count = 1 + random.below(3);
        let requests = (0..count).map(|_| Request::random(&mut random)).collect::<Vec<_>>();
        let batch = requests.iter().map(|request| request.event(&mut random)).collect::<Vec<_>>();
        let mut done = events.append(PROJECT, &batch, now()).await;
        // What waited for eight seconds on a busy machine is refused with 503, and SDKs send it again.
        for _ in 0..RETRIES_MAX {
            match &done {
                Err(EventStoreError::Store(StoreError::Busy(_))) => {
                    done = events.append(PROJECT, &batch, now()).await;
                }
                _ => break,
            }
        }
        match done {
            Ok(()) => sent.acknowledged.extend(requests),
            Err(error) => {
                sent.unknown.extend(requests);
                sent.errors.push(error);
            }
        }
    }
    sent
}

/// The merges of the log, in order: from whom and into whom.
async fn log(store: &Store) -> Vec<(Uuid, Uuid)> {
    let rows = PartitionQuery::partition(format!("PROJECT#{PROJECT}#OVERRIDE")).prefix("MERGE#");
    let mut merges = Vec::new();
    for row in store.records.query(rows).await.unwrap() {
        // A mark and a checksum, the number of merges, and for each two ids and a number of variable length.
        let (count, mut rest) = (row.bytes[8], &row.bytes[9..]);
        for _ in 0..count {
            let (ids, time) = rest.split_at(32);
            merges.push((Uuid::from_slice(&ids[..16]).unwrap(), Uuid::from_slice(&ids[16..]).unwrap()));
            let time_bytes = time.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
            rest = &time[time_bytes..];
        }
        assert!(rest.is_empty());
    }
    merges
}

/// Who every id is after `merges` in this order.
fn union_find(merges: &[(Uuid, Uuid)]) -> BTreeMap<Uuid, Uuid> {
    let mut persons = (0..IDS).map(|n| (person(n), person(n))).collect::<BTreeMap<_, _>>();
    for (from, to) in merges {
        let (from, to) = (persons[from], persons[to]);
        persons.values_mut().filter(|own| **own == from).for_each(|own| *own = to);
    }
    persons
}

/// Checks the log against the requests: each merge was requested and allowed at its place, and each acknowledged request was
/// applied, or its person was identified.
fn check_log(seed: u64, merges: &[(Uuid, Uuid)], sent: &[Sent]) {
    let all = sent.iter().flat_map(|it| it.acknowledged.iter().chain(&it.unknown));
    let all = all.copied().collect::<BTreeSet<_>>();
    let requested = |(from, to): &(Uuid, Uuid), is_forced| {
        all.iter().any(|it| (person(it.from), person(it.to), it.is_forced) == (*from, *to, is_forced))
    };
    let (mut named, mut forced) = (BTreeSet::new(), BTreeSet::new());
    for merge in merges {
        let is_identified = named.contains(&merge.0);
        let is_allowed =
            !is_identified && requested(merge, false) || requested(merge, true) && forced.insert(*merge);
        assert!(is_allowed, "seed {seed}: {merge:?} of {merges:?}");
        named.extend([merge.0, merge.1]);
    }
    let merges = merges.iter().copied().collect::<BTreeSet<_>>();
    let identified = named.into_iter().chain(all.iter().map(|it| person(it.to))).collect::<BTreeSet<_>>();
    for request in sent.iter().flat_map(|it| &it.acknowledged) {
        let is_applied = merges.contains(&(person(request.from), person(request.to)));
        let is_refused = !request.is_forced && identified.contains(&person(request.from));
        assert!(is_applied || is_refused, "seed {seed}: {request:?} is lost");
    }
}

async fn check_persons(seed: u64, processes: &[EventStore], merges: &[(Uuid, Uuid)]) {
    let expected = union_find(merges);
    for events in processes {
        for n in 0..IDS {
            let found = events.person_of(PROJECT, &id(n)).await.unwrap();
            assert_eq!(found, expected[&person(n)], "seed {seed}: {n}");
        }
    }
}

/// The tables behind `PROCESSES` stores, and one without latency and faults.
struct Place {
    processes: Vec<EventStore>,
    store: Store,
    directory: tempfile::TempDir,
}

impl Place {
    async fn new(wrapped: impl Fn(&Embedded) -> Store) -> Place {
        let embedded = Embedded::in_memory().await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file://{}", directory.path().display());
        let processes = (0..PROCESSES).map(|_| EventStore::open(wrapped(&embedded), &url).unwrap());
        Place { processes: processes.collect(), store: embedded.store(None), directory }
    }

    /// A new process.
    fn fresh(&self) -> EventStore {
        EventStore::open(self.store.clone(), &format!("file://{}", self.directory.path().display())).unwrap()
    }

    /// Checks what the log has come to. Everything that was acknowledged is requested again, and changes nothing.
    async fn check(&self, seed: u64, sent: &[Sent]) {
        let merges = log(&self.store).await;
        check_log(seed, &merges, sent);
        check_persons(seed, &self.processes, &merges).await;
        check_persons(seed, &[self.fresh()], &merges).await;
        let mut random = Random::new(seed);
        for request in sent.iter().flat_map(|it| &it.acknowledged) {
            self.fresh().append(PROJECT, &[request.event(&mut random)], now()).await.unwrap();
        }
        assert_eq!(log(&self.store).await, merges, "seed {seed}: a request was left open");
    }

    async fn queued(&self) -> usize {
        let queue = PartitionQuery::partition(format!("PROJECT#{PROJECT}#MERGEQUEUE"));
        self.store.records.query(queue).await.unwrap().len()
    }
}

async fn send_from_all(place: &Place, seed: u64, batches: u64) -> Vec<Sent> {
    let mut tasks = JoinSet::new();
    for (process, events) in (0_u64..).zip(place.processes.clone()) {
        tasks.spawn(async move { send(&events, seed * 100 + process, batches).await });
    }
    tasks.join_all().await
}

/// Stores behind one table with the latency and the conflicts of DynamoDB, and limits that they do not reach.
async fn slow_place() -> Place {
    let table = std::sync::OnceLock::new();
    Place::new(|embedded| {
        let limits = PartitionLimits { writes: 1e6, reads: 1e6, latency: Duration::from_millis(4) };
        let new = || LimitedTable::new(embedded.connector(), limits, unbounded_channel().0);
        Embedded::store_through(table.get_or_init(new).clone(), None)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merges_of_many_processes_are_a_union_find_in_commit_order() {
    for seed in 0..4 {
        let place = slow_place().await;
        let sent = send_from_all(&place, seed, 10).await;
        let errors = sent.iter().flat_map(|it| &it.errors).collect::<Vec<_>>();
        assert!(errors.is_empty(), "seed {seed}: {errors:?}");
        place.check(seed, &sent).await;
        assert_eq!(place.queued().await, 0, "seed {seed}: every row of the queue was removed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_merge_is_lost_when_the_table_fails() {
    let shares = [
        (Fault::Conflict, 250),
        (Fault::Throttled, 20),
        (Fault::RequestLost, 15),
        (Fault::ResponseLost, 30),
        (Fault::FailedAfterwards, 30),
    ];
    let mut counts = BTreeMap::new();
    for seed in 0..4 {
        let faults = Faults::new(seed, &shares);
        let place =
            Place::new(|embedded| Embedded::store_through(faults.wrap_connector(embedded.connector()), None))
                .await;
        let sent = send_from_all(&place, seed, 8).await;
        assert!(sent.iter().any(|it| !it.acknowledged.is_empty()));
        faults.counts().into_iter().for_each(|(fault, count)| *counts.entry(fault).or_insert(0) += count);
        faults.stop();
        place.check(seed, &sent).await;
    }
    assert_eq!(counts.len(), shares.len(), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_stop_delay_the_others_and_no_more() {
    let place = slow_place().await;
    let mut tasks = JoinSet::new();
    let mut stopped = Vec::new();
    for (process, events) in (0_u64..).zip(place.processes.clone()) {
        // Half of them request until they are stopped, in whatever they do then.
        let batches = if process.is_multiple_of(2) { 20 } else { 10_000 };
        let task = tasks.spawn(async move { send(&events, 700 + process, batches).await });
        if !process.is_multiple_of(2) {
            stopped.push(task);
        }
    }
    let mut sent = Vec::new();
    while let Some(done) = tasks.join_next().await {
        match done {
            Ok(of_process) => sent.push(of_process),
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
        // The first one that is done stops those that would go on.
        stopped.drain(..).for_each(|task| task.abort());
    }
    assert_eq!(sent.len(), 3);
    let errors = sent.iter().flat_map(|it| &it.errors).collect::<Vec<_>>();
    assert!(errors.is_empty(), "{errors:?}");
    assert!(sent.iter().all(|it| !it.acknowledged.is_empty()));
    // The requests of those that were stopped are not known; a log without them would be the same.
    let merges = log(&place.store).await;
    check_persons(700, &[place.fresh(), place.processes[0].clone()], &merges).await;
    let mut random = Random::new(1);
    for request in sent.iter().flat_map(|it| &it.acknowledged) {
        place.fresh().append(PROJECT, &[request.event(&mut random)], now()).await.unwrap();
    }
    assert_eq!(log(&place.store).await, merges, "an acknowledged request was left open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erased_project_has_no_person_in_markers_or_in_the_queue() {
    let place = slow_place().await;
    send_from_all(&place, 9, 3).await;
    let events = place.fresh();
    events.erase(PROJECT, &ErasureTarget::Project, &now).await.unwrap();
    let partitions = (0..16).map(|n| format!("PROJECT#{PROJECT}#IDENTIFIED#{n}"));
    for partition in partitions.chain([format!("PROJECT#{PROJECT}#MERGEQUEUE")]) {
        let rows = place.store.records.query(PartitionQuery::partition(&*partition)).await.unwrap();
        assert!(rows.is_empty(), "{partition}: {rows:?}");
    }
    check_persons(9, &[events], &[]).await;
}
