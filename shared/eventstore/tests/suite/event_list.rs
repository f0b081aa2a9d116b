//! The list of events has each event once, the newest first, also when segments are compacted, imported and merged between
//! its pages, and reads little of large segments; the lists of names match the events.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use crate::support::{NOW, PROJECT, Place, event, simple};
use pennon_eventstore::{
    Event, EventKey, EventListBudget, EventListFilter, EventListResult, EventListSink, EventStore,
    ListedEvent, MergeMode, Settings,
};
use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

const UNBOUNDED: EventListBudget = EventListBudget { events: usize::MAX, bytes: u64::MAX };

/// Uuid, name, person, time.
type Raw = (u8, u8, u8, u8);

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<Raw>),
    Import(Vec<Raw>),
    Merge(u8, u8),
    Compact,
    MergeSegments,
    Restart,
    /// Reads so many events of the list.
    Page(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let events = || prop::collection::vec((0..200_u8, 0..3_u8, 0..8_u8, 0..6_u8), 1..25);
    let step = prop_oneof![
        4 => events().prop_map(Step::Append),
        2 => events().prop_map(Step::Import),
        1 => (0..8_u8, 0..8_u8).prop_map(|(from, to)| Step::Merge(from, to)),
        2 => Just(Step::Compact),
        1 => Just(Step::MergeSegments),
        1 => Just(Step::Restart),
        4 => (1..20_u8).prop_map(Step::Page),
    ];
    prop::collection::vec(step, 1..24)
}

fn made((uuid, name, who, time): Raw) -> Event {
    let name = ["a", "b", "$pageview"][usize::from(name)];
    event(u128::from(uuid), name, &format!("p{who}"), i64::from(time), json!({"n": uuid}))
}

/// Accepts so many events.
struct Page {
    found: Vec<ListedEvent>,
    most: usize,
}

impl EventListSink for Page {
    fn take(&mut self, listed: ListedEvent) -> ControlFlow<()> {
        self.found.push(listed);
        if self.found.len() < self.most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

async fn page(
    events: &EventStore,
    filter: EventListFilter,
    most: usize,
    budget: EventListBudget,
) -> (Vec<ListedEvent>, EventListResult) {
    let page = Page { found: Vec::new(), most };
    let (page, walked) = events.list_newest_events(PROJECT, filter, budget, page).await.unwrap();
    (page.found, walked)
}

/// The events as they arrived, the first of each uuid.
#[derive(Default)]
struct Arrived {
    seen: BTreeSet<Uuid>,
    events: Vec<Event>,
}

impl Arrived {
    fn add(&mut self, events: impl IntoIterator<Item = Event>) {
        self.events.extend(events.into_iter().filter(|event| self.seen.insert(event.uuid)));
    }

    /// The list after the event with the key `below`: newest first, events of equal times by latest arrival.
    fn list(&self, below: Option<(i64, usize)>) -> Vec<(i64, usize)> {
        let all = self.events.iter().enumerate().map(|(arrival, event)| (event.timestamp, arrival));
        let mut list = all.filter(|place| below.is_none_or(|below| *place < below)).collect::<Vec<_>>();
        list.sort_unstable_by(|a, b| b.cmp(a));
        list
    }
}

async fn check(steps: Vec<Step>, settings: Settings) {
    let mut place = Place::with(settings).await;
    let (mut arrived, mut now) = (Arrived::default(), NOW);
    let (mut key, mut below): (Option<EventKey>, Option<(i64, usize)>) = (None, None);
    for (at, step) in (0..).zip(steps) {
        now += 1000;
        match step {
            Step::Append(raw) => {
                let batch = raw.into_iter().map(made).collect::<Vec<_>>();
                place.events.append(PROJECT, &batch, now).await.unwrap();
                arrived.add(batch);
            }
            Step::Import(raw) => {
                let lines = (0..).zip(raw.into_iter().map(made)).collect::<Vec<_>>();
                arrived.add(lines.iter().map(|(_, event)| event.clone()));
                place.events.ingest(PROJECT, lines, now).await.unwrap();
            }
            Step::Merge(from, to) => {
                let alias = json!({"alias": format!("p{from}")});
                let merge = event(1000 + at, "$merge_dangerously", &format!("p{to}"), 3, alias);
                place.events.append(PROJECT, std::slice::from_ref(&merge), now).await.unwrap();
                arrived.add([merge]);
            }
            Step::Compact => drop(place.events.compact(PROJECT, now).await.unwrap()),
            Step::MergeSegments => {
                place.events.merge_segments(PROJECT, now, MergeMode::Fewest).await.unwrap();
            }
            Step::Restart => place.events = place.again(),
            Step::Page(most) => {
                let most = usize::from(most);
                let filter = EventListFilter { below: key, ..EventListFilter::default() };
                let (found, walked) = page(&place.events, filter, most, UNBOUNDED).await;
                let list = arrived.list(below);
                let expected = &list[..most.min(list.len())];
                let expected_events = expected.iter().map(|(_, arrival)| &arrived.events[*arrival]);
                assert_eq!(
                    found.iter().map(|listed| &listed.event).collect::<Vec<_>>(),
                    expected_events.collect::<Vec<_>>()
                );
                for listed in &found {
                    let person = place.events.person_of(PROJECT, &listed.event.distinct_id).await.unwrap();
                    assert_eq!(listed.person, person);
                }
                assert_eq!(walked.next.is_some(), list.len() > most, "next is set if there is more");
                // At the end the list is read again.
                (key, below) = match walked.next {
                    Some(next) => (Some(next), expected.last().copied()),
                    None => (None, None),
                };
            }
        }
    }
    let (all, walked) = page(&place.events, EventListFilter::default(), usize::MAX, UNBOUNDED).await;
    assert_eq!((all.len(), walked.next), (arrived.events.len(), None));
    let mut names: BTreeMap<String, (i64, i64, u64)> = BTreeMap::new();
    for event in &arrived.events {
        let at = event.timestamp;
        let known = names.entry(event.event.clone()).or_insert((at, at, 0));
        *known = (known.0.min(at), known.1.max(at), known.2 + 1);
    }
    let listed = place.events.event_names(PROJECT).await.unwrap();
    let listed = listed.into_iter().map(|name| (name.name, (name.first, name.last, name.events)));
    assert_eq!(listed.collect::<BTreeMap<_, _>>(), names);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_event_is_listed_once_in_order(steps in steps(), narrow in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let settings = match narrow {
            true => Settings { range_rows: 16, ..Settings::default() },
            false => Settings::default(),
        };
        runtime.block_on(check(steps, settings));
    }
}

/// A day of visits of two thousand persons, mixed, in one segment.
async fn day() -> (Place, Vec<Event>) {
    let place = Place::new().await;
    let visit = |n: u64| {
        // The order of persons differs from that of times.
        let (who, second) = (n * 7919 % 2000, n * 104_729 % 86_400);
        let properties = json!({"page": format!("/{}", n % 300), "n": n, "text": format!("text {n}")});
        event(
            u128::from(n) + 1,
            "visited",
            &format!("p{who}"),
            NOW + (second * 1_000_000 + n) as i64,
            properties,
        )
    };
    let visits = (0..60_000).map(visit).collect::<Vec<_>>();
    let lines = (0..).zip(visits.iter().cloned()).collect::<Vec<_>>();
    place.events.ingest(PROJECT, lines, NOW).await.unwrap();
    (place, visits)
}

#[tokio::test]
async fn the_newest_events_of_a_segment_read_its_times_and_their_pages_once() {
    let (place, mut visits) = day().await;
    visits.sort_unstable_by_key(|event| std::cmp::Reverse((event.timestamp, event.uuid)));
    let (found, walked) = page(&place.events, EventListFilter::default(), 100, UNBOUNDED).await;
    let uuids = |events: &[Event]| events.iter().map(|event| event.uuid).collect::<Vec<_>>();
    let found = found.into_iter().map(|listed| listed.event).collect::<Vec<_>>();
    assert_eq!(uuids(&found), uuids(&visits[..100]));
    assert_eq!(walked.examined, 100);
    let is_segment = |name: &&String| {
        name.contains("/events/project=") && name.ends_with(".parquet") && !name.contains(".ids")
    };
    let files = place.files();
    let segment =
        files.iter().filter(is_segment).map(|name| std::fs::metadata(name).unwrap().len()).sum::<u64>();
    // They are on all of its few pages: the times are read to find them, and the pages to return them.
    assert!(walked.bytes_read <= segment * 3 / 2, "{} of {segment}", walked.bytes_read);
    // The events of one person are found by their persons, and not by their times.
    let one = EventListFilter { distinct_id: Some("p7".to_owned()), ..EventListFilter::default() };
    let (found, of_person) = page(&place.events, one, 100, UNBOUNDED).await;
    assert_eq!(found.len(), 30);
    assert!(of_person.bytes_read <= segment / 2, "{} of {segment}", of_person.bytes_read);
}

#[tokio::test]
async fn a_list_ends_at_its_budget_and_continues_after_it() {
    let (place, visits) = day().await;
    let budget = EventListBudget { events: 250, bytes: u64::MAX };
    let (first, walked) = page(&place.events, EventListFilter::default(), usize::MAX, budget).await;
    assert_eq!((first.len(), walked.examined), (300, 300), "a batch of 100 and one of 200");
    let filter = EventListFilter { below: walked.next, ..EventListFilter::default() };
    let (second, _) = page(&place.events, filter, 1, UNBOUNDED).await;
    let mut times = visits.iter().map(|event| event.timestamp).collect::<Vec<_>>();
    times.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!((first[299].key.time, second[0].key.time), (times[299], times[300]));
    let one_byte = EventListBudget { events: usize::MAX, bytes: 1 };
    let (batch, walked) = page(&place.events, EventListFilter::default(), usize::MAX, one_byte).await;
    assert_eq!((batch.len(), walked.next.is_some()), (100, true), "at least one batch");
}

#[tokio::test]
async fn a_list_ends_soon_after_its_byte_budget() {
    let place = Place::new().await;
    for day in 0..12 {
        let base = NOW + day * 86_400_000_000;
        let events =
            (0..200).map(|n| simple((day * 1000 + n) as u128, "seen", "p", base + n)).collect::<Vec<_>>();
        place.events.append(PROJECT, &events, base).await.unwrap();
        place.events.compact_blocks(PROJECT, base).await.unwrap();
    }
    let (_, whole) = page(&place.again(), EventListFilter::default(), usize::MAX, UNBOUNDED).await;
    let bytes = whole.bytes_read / 4;
    let budget = EventListBudget { events: usize::MAX, bytes };
    let (first, walked) = page(&place.again(), EventListFilter::default(), usize::MAX, budget).await;
    // Batches of 100, 200 and 400 events; the last one may read as much as all before it.
    assert!((bytes..bytes * 3).contains(&walked.bytes_read), "{} of {bytes}", walked.bytes_read);
    assert!(walked.next.is_some() && first.len() < 2400, "{}", first.len());
    let filter = EventListFilter { below: walked.next, ..EventListFilter::default() };
    let (rest, _) = page(&place.events, filter, usize::MAX, UNBOUNDED).await;
    assert_eq!(first.len() + rest.len(), 2400);
}

#[tokio::test]
async fn segments_after_the_page_are_not_opened() {
    let place = Place::new().await;
    for day in 0..4 {
        let base = NOW + day * 86_400_000_000;
        let events =
            (0..200).map(|n| simple((day * 1000 + n) as u128, "seen", "p", base + n)).collect::<Vec<_>>();
        place.events.append(PROJECT, &events, base).await.unwrap();
        place.events.compact_blocks(PROJECT, base).await.unwrap();
    }
    let (_, near) = page(&place.again(), EventListFilter::default(), 100, UNBOUNDED).await;
    let (all, far) = page(&place.again(), EventListFilter::default(), usize::MAX, UNBOUNDED).await;
    assert_eq!(all.len(), 800);
    assert!(near.bytes_read * 3 < far.bytes_read, "{} and {}", near.bytes_read, far.bytes_read);
}
