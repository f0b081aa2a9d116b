//! A pinned scan in parts gives the rows of the moment when it was pinned, each in one part, whatever is written meanwhile.

use pennon_analytics::scan::ScanRequest;
use pennon_analytics::{PersonRange, part_format};
use pennon_eventstore::{
    ErasureTarget, Event, EventStore, EventStoreError, MergeMode, MovedRows, PartScan, PinnedScan, Scan,
    ScanStats, Settings, derive_person_id,
};
use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

use crate::support::{
    NOW, PROJECT, Place, PlainRow, event, expected, request, rows, simple, without_arrivals,
};

const COUNTS: [u32; 4] = [1, 2, 7, 64];

/// The part as another process gets it.
fn sent_part(part: &PartScan) -> PartScan {
    part_format::decode(&part_format::encode(part).unwrap()).unwrap()
}

/// Scans the parts of `pinned` in turn, each in the process of its number.
pub(crate) async fn scan_in_parts(
    processes: &[EventStore],
    pinned: &PinnedScan,
    count: u32,
) -> Result<Scan, EventStoreError> {
    let ranges = PersonRange::ALL.split(count);
    let process = |part: usize| &processes[part % processes.len()];
    let mut moved: Vec<MovedRows> = Vec::new();
    if pinned.has_merges() {
        for (number, part) in pinned.parts_for_moved_rows(&ranges).enumerate() {
            let memory = process(number).query_memory();
            let (rows, _) = process(number).moved_rows(sent_part(&part), &memory).await?;
            moved.push(part_format::decode(&part_format::encode(&rows).unwrap()).unwrap());
        }
    }
    let mut whole = Scan::default();
    // The last one first: the order of parts does not matter.
    for (number, part) in pinned.parts(&ranges, &moved).collect::<Vec<_>>().iter().enumerate().rev() {
        let scan = process(number).scan_part(sent_part(part), &process(number).query_memory()).await?;
        let range = part.range();
        assert!(
            scan.partitions
                .iter()
                .flat_map(|one| one.actors.iter())
                .all(|actor| { range.contains(*actor) || !has_rows(&scan, *actor) })
        );
        whole.partitions.splice(0..0, scan.partitions);
        whole.stats.rows += scan.stats.rows;
    }
    Ok(whole)
}

fn has_rows(scan: &Scan, person: Uuid) -> bool {
    scan.partitions.iter().any(|partition| {
        let code = partition.actors.binary_search(&person).map(|code| code as u32);
        code.is_ok_and(|code| partition.runs.iter().any(|run| run.actors.contains(&code)))
    })
}

/// The number of the person that each one is, after merges into others.
fn canonical(merges: &[(usize, usize)]) -> [usize; PERSONS] {
    let mut canonical = std::array::from_fn(|own| own);
    for (from, to) in merges {
        let (from, to) = (canonical[*from], canonical[*to]);
        canonical.iter_mut().filter(|one| **one == from).for_each(|one| *one = to);
    }
    canonical
}

fn number_of(who: &str) -> usize {
    who.trim_start_matches('p').parse().unwrap()
}

const PERSONS: usize = 24;

fn captured(number: u128, person: usize, minute: i64) -> Event {
    let name = ["seen", "bought", "left"][number as usize % 3];
    event(number, name, &format!("p{person}"), minute, json!({"k": number % 5, "list": [number % 2]}))
}

fn merge(number: u128, from: usize, to: usize) -> Event {
    event(number, "$merge_dangerously", &format!("p{to}"), 5, json!({"alias": format!("p{from}")}))
}

#[derive(Debug, Clone)]
enum Step {
    Capture(Vec<(usize, i64)>),
    Import(Vec<(usize, i64)>),
    Merge(usize, usize),
    Erase(usize),
    Compact,
    MergeSegments,
}

fn steps(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let events = || prop::collection::vec((0..PERSONS, 0..6_i64), 1..40);
    let step = prop_oneof![
        3 => events().prop_map(Step::Capture),
        2 => events().prop_map(Step::Import),
        3 => (0..PERSONS, 0..PERSONS).prop_map(|(from, to)| Step::Merge(from, to)),
        1 => (0..PERSONS).prop_map(Step::Erase),
        2 => Just(Step::Compact),
        1 => Just(Step::MergeSegments),
    ];
    prop::collection::vec(step, length)
}

#[derive(Default)]
struct History {
    /// In order of arrival, each with its uuid.
    sent: Vec<Event>,
    merges: Vec<(usize, usize)>,
    /// Events that were sent, erased ones included.
    count: u128,
    at: i64,
}

impl History {
    async fn apply(&mut self, events: &EventStore, step: &Step) {
        self.at += 1;
        let first = self.count + 1;
        let made = |of: &[(usize, i64)]| {
            let all = (first..).zip(of);
            all.map(|(number, (person, minute))| captured(number, *person, *minute)).collect::<Vec<_>>()
        };
        match step {
            Step::Capture(of) => {
                let new = made(of);
                events.append(PROJECT, &new, NOW + self.at).await.unwrap();
                self.sent.extend(new);
            }
            Step::Import(of) => {
                let new = made(of);
                let lines = (0..).zip(new.iter().cloned()).collect();
                events.ingest(PROJECT, lines, NOW + self.at).await.unwrap();
                self.sent.extend(new);
            }
            Step::Merge(from, to) => {
                let new = merge(first, *from, *to);
                events.append(PROJECT, std::slice::from_ref(&new), NOW + self.at).await.unwrap();
                self.sent.push(new);
                self.merges.push((*from, *to));
            }
            Step::Erase(person) => {
                let target = ErasureTarget::Person(format!("p{person}"));
                // An unknown person cannot be erased.
                if events.erase(PROJECT, &target, &|| NOW + self.at).await.is_ok() {
                    let canonical = canonical(&self.merges);
                    let is_other = |one: usize| canonical[one] != canonical[*person];
                    self.sent.retain(|event| is_other(number_of(&event.distinct_id)));
                    self.merges.retain(|(_, to)| is_other(*to));
                }
            }
            Step::Compact => _ = events.compact_blocks(PROJECT, NOW + self.at).await.unwrap(),
            Step::MergeSegments => {
                let mode = MergeMode::Fewest;
                while events.merge_segments(PROJECT, NOW + self.at, mode).await.unwrap().has_more_work() {}
            }
        }
        self.count += match step {
            Step::Capture(of) | Step::Import(of) => of.len() as u128,
            Step::Merge(..) => 1,
            Step::Erase(_) | Step::Compact | Step::MergeSegments => 0,
        };
    }

    fn expected(&self, request: &ScanRequest) -> Vec<PlainRow> {
        let canonical = canonical(&self.merges);
        expected(&self.sent, request, |who| {
            derive_person_id(PROJECT, &format!("p{}", canonical[number_of(who)]))
        })
    }
}

fn requests() -> [ScanRequest; 3] {
    [
        without_arrivals(&["seen", "bought"], &["k"]),
        request(&[], &["list"]),
        ScanRequest { from: 2, to: 4, ..without_arrivals(&["seen", "left"], &["k", "none"]) },
    ]
}

/// How many random histories are checked; `.ci/full` sets a larger number.
fn histories() -> u32 {
    std::env::var("PENNON_PART_HISTORIES").ok().and_then(|number| number.parse().ok()).unwrap_or(24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: histories(), ..ProptestConfig::default() })]

    #[test]
    fn parts_give_the_rows_of_the_moment_of_the_pin(before in steps(1..8), after in steps(0..4)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let place = Place::with(Settings { range_rows: 16, ..Settings::default() }).await;
            let mut history = History::default();
            for step in &before {
                history.apply(&place.events, step).await;
            }
            let memory = place.events.query_memory();
            let mut pins = Vec::new();
            for request in requests() {
                let pinned = place.events.pin_scan(PROJECT, &[], &request, &memory).await.unwrap();
                pins.push((history.expected(&request), pinned));
            }
            for step in &after {
                history.apply(&place.events, step).await;
            }
            let processes = [place.events.clone(), place.again(), place.again()];
            for (expected, pinned) in pins {
                for count in COUNTS {
                    let scan = scan_in_parts(&processes, &pinned, count).await.unwrap();
                    assert_eq!(rows(&scan), expected, "{count} parts");
                    assert_eq!(scan.stats.rows as usize, expected.len());
                }
                let whole = place.events.scan_pinned(pinned, &place.events.query_memory()).await.unwrap();
                assert_eq!(rows(&whole), expected);
            }
        });
    }
}

#[tokio::test]
async fn a_part_reads_only_the_segments_ranges_of_its_persons() {
    let place = Place::with(Settings { range_rows: 100, ..Settings::default() }).await;
    let made = |n: u64| (n, simple(u128::from(n), "seen", &format!("p{}", n % 800), n as i64));
    place.events.ingest(PROJECT, (0..1600).map(made).collect(), NOW).await.unwrap();
    let memory = place.events.query_memory();
    let requested = without_arrivals(&["seen"], &[]);
    let pinned = place.events.pin_scan(PROJECT, &[], &requested, &memory).await.unwrap();
    assert!(!pinned.has_merges() && pinned.rows() == 1600);
    let bytes = async |count: u32| {
        let mut sum = ScanStats::default();
        for part in pinned.parts(&PersonRange::ALL.split(count), &[]) {
            let process = place.again();
            let stats = process.scan_part(part, &process.query_memory()).await.unwrap().stats;
            sum.rows += stats.rows;
            sum.rows_decoded += stats.rows_decoded;
            sum.bytes_read += stats.bytes_read;
        }
        (sum.rows, sum.rows_decoded, sum.bytes_read)
    };
    assert_eq!(bytes(1).await, bytes(4).await);
    let (rows, decoded, _) = bytes(64).await;
    assert!(
        rows == 1600 && decoded > 1600,
        "ranges of a segment that several parts share are decoded by each"
    );
}

#[tokio::test]
async fn a_part_whose_objects_were_swept_fails() {
    let place = Place::new().await;
    place
        .events
        .ingest(PROJECT, (0..20).map(|n| (n, simple(u128::from(n), "seen", "ada", 1))).collect(), NOW)
        .await
        .unwrap();
    let memory = place.events.query_memory();
    let pinned =
        place.events.pin_scan(PROJECT, &[], &without_arrivals(&["seen"], &[]), &memory).await.unwrap();
    for file in place.files() {
        std::fs::remove_file(file).unwrap();
    }
    let failed = scan_in_parts(&[place.again()], &pinned, 2).await;
    assert!(matches!(failed, Err(EventStoreError::Damaged { .. })), "{failed:?}");
}
