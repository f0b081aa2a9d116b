//! The event store over a bucket or a directory: the bucket of `PENNON_TEST_EVENTS_URL`, for which `scripts/test_s3.sh` starts
//! a server, else a directory.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::faulty::{Always, Fault, Faults, Faulty};
use crate::support::{NOW, PROJECT, PlainRow, expected, request, rows, simple};
use object_store::ObjectStore;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::memory::InMemory;
use pennon::embedded::Embedded;
use pennon_core::store::Store;
use pennon_eventstore::{Event, EventStore, GRACE_MICROS, ResultObject, Settings, derive_person_id};
use tempfile::TempDir;

/// The address of the bucket, if there is one.
fn bucket() -> Option<String> {
    std::env::var("PENNON_TEST_EVENTS_URL").ok()
}

struct Place {
    events: EventStore,
    store: Store,
    url: String,
    _directory: TempDir,
}

/// A place for this test only.
async fn place(name: &str) -> Place {
    let directory = tempfile::tempdir().unwrap();
    let url = bucket().unwrap_or_else(|| format!("file://{}", directory.path().display()));
    let url = format!("{url}/{name}");
    let store = Embedded::in_memory().await.unwrap().store(None);
    Place { events: EventStore::open(store.clone(), &url).unwrap(), store, url, _directory: directory }
}

async fn all(events: &EventStore) -> Vec<PlainRow> {
    rows(&events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap())
}

fn want(sent: &[Event]) -> Vec<PlainRow> {
    expected(sent, &request(&[], &[]), |who| derive_person_id(PROJECT, who))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_and_a_directory_behave_the_same() {
    let Place { events, store, url, .. } = &place("life").await;
    let sent = (0..600).map(|n| simple(n, ["a", "b"][n as usize % 2], &format!("p{}", n % 40), n as i64));
    let sent = sent.collect::<Vec<_>>();
    for (n, batch) in sent[..300].chunks(25).enumerate() {
        events.append(PROJECT, batch, NOW + n as i64).await.unwrap();
        events.compact(PROJECT, NOW + n as i64).await.unwrap();
    }
    let lines = sent[290..].iter().cloned().enumerate().map(|(line, event)| (line as u64, event));
    let done = events.ingest(PROJECT, lines.collect(), NOW + 100).await.unwrap();
    assert_eq!((done.stored, done.copies), (300, 10));
    assert_eq!(all(events).await, want(&sent));
    let swept = events.sweep(PROJECT, NOW + 100 + 2 * GRACE_MICROS).await.unwrap();
    assert!(swept.segments > 0, "the small segments were merged");
    let again = EventStore::open(store.clone(), url).unwrap();
    assert_eq!(all(&again).await, want(&sent));
    let checked = again.check(PROJECT, false, &mut |_| {}).await.unwrap();
    assert!(checked.damaged.is_empty() && checked.objects >= 8, "{checked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_at_once_count_an_event_once() {
    let Place { events, store, url, .. } = &place("race").await;
    let other = EventStore::open(store.clone(), url).unwrap();
    let sent = (0..200).map(|n| simple(n, "a", "ada", n as i64)).collect::<Vec<_>>();
    let lines = || sent.iter().cloned().enumerate().map(|(line, event)| (line as u64, event)).collect();
    let (one, two) =
        tokio::join!(events.ingest(PROJECT, lines(), NOW), other.ingest(PROJECT, lines(), NOW + 1));
    assert_eq!(one.unwrap().stored + two.unwrap().stored, 200);
    assert_eq!(all(events).await.len(), 200);
}

/// Every third response is lost, from the first.
#[derive(Debug)]
struct EveryThird(u8);

impl Faults for EveryThird {
    fn next(&mut self) -> Fault {
        self.0 = (self.0 + 1) % 3;
        if self.0 == 1 { Fault::After } else { Fault::None }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_whose_response_was_lost_were_created_once() {
    let objects: Arc<dyn ObjectStore> = match bucket() {
        None => Arc::new(InMemory::new()),
        Some(url) => {
            let bucket = url.strip_prefix("s3://").unwrap().split('/').next().unwrap().to_owned();
            let bucket = AmazonS3Builder::from_env().with_bucket_name(bucket).with_allow_http(true);
            Arc::new(bucket.with_conditional_put(S3ConditionalPut::ETagMatch).build().unwrap())
        }
    };
    let faulty = Faulty::new(objects, EveryThird(0));
    let store = Embedded::in_memory().await.unwrap().store(None);
    let events = EventStore::with_object_store(
        store.clone(),
        faulty.clone(),
        Duration::from_millis(1),
        Settings::default(),
    );
    let sent = (0..50).map(|n| simple(n, "a", "ada", n as i64)).collect::<Vec<_>>();
    // A project of its own: the address of a bucket has no other place for it.
    events.append(PROJECT + 1, &sent, NOW).await.unwrap();
    assert_eq!(events.compact(PROJECT + 1, NOW).await.unwrap().events, 50);
    assert!(faulty.there.load(Ordering::Relaxed) > 0, "no object was created a second time");
    faulty.set(Always(Fault::None));
    let scan = events.scan(PROJECT + 1, &[], &request(&[], &[])).await.unwrap();
    assert_eq!(scan.stats.rows, 50);
    assert!(events.check(PROJECT + 1, false, &mut |_| {}).await.unwrap().damaged.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn result_objects_are_beside_the_events_and_removed_separately() {
    let Place { events, .. } = &place("results").await;
    let sent = [simple(1, "a", "ada", 1)];
    events.append(PROJECT, &sent, NOW).await.unwrap();
    events.compact(PROJECT, NOW).await.unwrap();
    let object = |project, id: &str| ResultObject { project, cache_key: "k".to_owned(), id: id.to_owned() };
    let objects = [object(PROJECT, "1"), object(PROJECT, "2"), object(PROJECT + 9, "1")];
    assert_eq!(events.list_results(None).await.unwrap(), []);
    for object in &objects {
        assert_eq!(events.get_result(object).await.unwrap(), None);
        events.put_result(object, object.id.clone().into()).await.unwrap();
        assert_eq!(events.get_result(object).await.unwrap().unwrap(), object.id);
    }
    let names = |listed: Vec<(ResultObject, i64)>| {
        let mut names: Vec<ResultObject> = listed.into_iter().map(|(object, _)| object).collect();
        names.sort();
        names
    };
    assert_eq!(names(events.list_results(None).await.unwrap()), objects);
    assert_eq!(names(events.list_results(Some(PROJECT)).await.unwrap()), objects[..2]);
    // Objects that belong to no segment are not orphans here.
    assert_eq!(events.sweep_orphans(PROJECT, i64::MAX).await.unwrap(), 0);
    for _ in 0..2 {
        events.remove_results(&objects[..2]).await.unwrap();
        assert_eq!(names(events.list_results(None).await.unwrap()), objects[2..]);
    }
    assert_eq!(all(events).await, want(&sent));
}

#[tokio::test]
async fn writing_a_result_has_a_shorter_timeout_than_writing_events() {
    let objects = Faulty::new(Arc::new(InMemory::new()), Always(Fault::Before));
    let store = Embedded::in_memory().await.unwrap().store(None);
    let events = EventStore::with_object_store(
        store,
        objects.clone(),
        Duration::from_micros(100),
        Settings::default(),
    );
    let object = ResultObject { project: PROJECT, cache_key: "k".to_owned(), id: "1".to_owned() };
    assert!(events.put_result(&object, "x".into()).await.is_err());
    assert_eq!(objects.calls.swap(0, Ordering::Relaxed), 3);
    assert!(events.get_result(&object).await.is_err());
    assert_eq!(objects.calls.load(Ordering::Relaxed), 3);
}
