//! The object with the merges of all imports, written by compaction: a process with cold caches has the same results with
//! it and without it, in any order of imports, captured merges, erasure and damage.

use std::collections::BTreeMap;

use crate::support::{NOW, PROJECT, Place, PlainRow, event, expected, request, rows, simple};
use pennon_core::store::{PartitionQuery, WriteCondition};
use pennon_eventstore::{ErasureTarget, Event, EventStore, GRACE_MICROS, PersonRecord, derive_person_id};
use serde_json::{Map, json};
use uuid::Uuid;

const LATER: i64 = GRACE_MICROS + 60_000_000;

fn person(ids: &[&str]) -> PersonRecord {
    let distinct_ids = ids.iter().map(|id| (*id).to_owned()).collect();
    PersonRecord { distinct_ids, properties: Map::new(), created_at: None }
}

/// Events of six ids, imported.
async fn history(place: &Place, first: u128) -> Vec<Event> {
    let who = ["a", "b", "c", "d", "e", "f"];
    let sent = (first..first + 60)
        .map(|n| simple(n, ["seen", "bought"][n as usize % 2], who[n as usize % 6], n as i64 / 3));
    let sent = sent.collect::<Vec<_>>();
    let lines = sent.iter().cloned().enumerate().map(|(line, event)| (line as u64, event));
    place.events.ingest(PROJECT, lines.collect(), NOW + first as i64).await.unwrap();
    sent
}

async fn scanned(events: &EventStore) -> Vec<PlainRow> {
    rows(&events.scan(PROJECT, &[], &request(&[], &["k"])).await.unwrap())
}

/// The rows of `sent` if these ids belong to the persons beside them, and all others to themselves.
fn want(sent: &[Event], of: &[(&str, &str)]) -> Vec<PlainRow> {
    let of: BTreeMap<&str, &str> = of.iter().copied().collect();
    let who = |id: &str| derive_person_id(PROJECT, of.get(id).copied().unwrap_or(id));
    expected(sent, &request(&[], &["k"]), who)
}

fn files(place: &Place, part: &str) -> Vec<String> {
    place.files().into_iter().filter(|file| file.contains(part) && !file.ends_with(".sums")).collect()
}

/// Moves the records away, which no reader may need.
fn hide(place: &Place, part: &str) {
    for file in files(place, part) {
        std::fs::rename(&file, format!("{file}.hidden")).unwrap();
    }
}

fn show(place: &Place, part: &str) {
    for file in files(place, part) {
        if let Some(name) = file.strip_suffix(".hidden") {
            std::fs::rename(&file, name).unwrap();
        }
    }
}

#[tokio::test]
async fn a_process_with_cold_caches_reads_the_object_and_no_record() {
    let place = Place::new().await;
    let mut sent = history(&place, 0).await;
    place.events.add_persons(PROJECT, vec![person(&["a", "b"]), person(&["c"])], NOW).await.unwrap();
    let want_now = want(&sent, &[("b", "a")]);
    assert_eq!(scanned(&place.again()).await, want_now, "out of the records");
    assert_eq!(files(&place, "/links/").len(), 0);
    place.events.compact(PROJECT, NOW).await.unwrap();
    assert_eq!(files(&place, "/links/").len(), 1);

    hide(&place, "/persons/");
    assert_eq!(scanned(&place.again()).await, want_now);
    // Waiting blocks have events of imported persons too.
    sent.extend([simple(1000, "seen", "b", 5), simple(1001, "seen", "z", 5)]);
    place.again().append(PROJECT, &sent[60..], NOW + 100).await.unwrap();
    assert_eq!(scanned(&place.again()).await, want(&sent, &[("b", "a")]));
    // Merges that come later: of an imported person into another, and of a new one into an imported one.
    let merges = [
        event(1002, "$merge_dangerously", "e", 6, json!({"alias": "b"})),
        event(1003, "$identify", "a", 6, json!({"$anon_distinct_id": "z"})),
    ];
    place.again().append(PROJECT, &merges, NOW + 101).await.unwrap();
    sent.extend(merges);
    let now = [("a", "e"), ("b", "e"), ("z", "e")];
    assert_eq!(scanned(&place.again()).await, want(&sent, &now));
    assert_eq!(scanned(&place.events).await, want(&sent, &now), "a process that has requested before");

    show(&place, "/persons/");
    place.events.compact(PROJECT, NOW + 102).await.unwrap();
    assert_eq!(files(&place, "/links/").len(), 1, "nothing new was imported");
    assert_eq!(scanned(&place.again()).await, want(&sent, &now));
}

#[tokio::test]
async fn imports_that_came_since_count_before_and_after_the_next_compaction() {
    let place = Place::new().await;
    let sent = history(&place, 0).await;
    place.events.add_persons(PROJECT, vec![person(&["a", "b"]), person(&["c"])], NOW).await.unwrap();
    place.events.compact(PROJECT, NOW).await.unwrap();
    // The known person c stays, although it is named second, and so does the new person for c.
    place.events.add_persons(PROJECT, vec![person(&["d", "c"]), person(&["e", "b"])], NOW + 1).await.unwrap();
    let now = want(&sent, &[("b", "a"), ("d", "c"), ("e", "a")]);
    assert_eq!(scanned(&place.again()).await, now);
    place.events.compact(PROJECT, NOW + 2).await.unwrap();
    assert_eq!(files(&place, "/links/").len(), 2);
    hide(&place, "/persons/");
    assert_eq!(scanned(&place.again()).await, now);
    show(&place, "/persons/");
    // The older object stays for readers that have started with it.
    place.events.sweep(PROJECT, NOW + 3).await.unwrap();
    assert_eq!(files(&place, "/links/").len(), 2);
    place.events.sweep(PROJECT, NOW + 2 + LATER).await.unwrap();
    assert_eq!(files(&place, "/links/").len(), 1);
    place.events.sweep_orphans(PROJECT, i64::MAX).await.unwrap();
    assert_eq!(scanned(&place.again()).await, now);
    assert_eq!(files(&place, "/links/").len(), 1);
}

#[tokio::test]
async fn a_damaged_object_changes_no_result_and_is_rebuilt() {
    let place = Place::new().await;
    let sent = history(&place, 0).await;
    place.events.add_persons(PROJECT, vec![person(&["a", "b", "c"])], NOW).await.unwrap();
    place.events.compact(PROJECT, NOW).await.unwrap();
    let [file] = files(&place, "/links/").try_into().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[17] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    let want_now = want(&sent, &[("b", "a"), ("c", "a")]);
    assert_eq!(scanned(&place.again()).await, want_now);
    place.events.compact(PROJECT, NOW + 1).await.unwrap();
    assert_eq!(files(&place, "/links/").len(), 2);
    hide(&place, "/persons/");
    assert_eq!(scanned(&place.again()).await, want_now);
    show(&place, "/persons/");
    place.events.sweep(PROJECT, NOW + 1 + LATER).await.unwrap();
    assert_eq!(files(&place, "/links/").len(), 1);
    let rows = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SEGMENT"));
    let rows = place.store.records.query(rows).await.unwrap();
    let named = |start: &str| rows.iter().filter(|row| row.key.sk.starts_with(start)).count();
    assert_eq!((named("LINKS#"), named("DAMAGED#")), (1, 0));
    // Gone altogether.
    hide(&place, "/links/");
    assert_eq!(scanned(&place.again()).await, want_now);
}

/// A person imported with several ids is identified: `$identify` of a different person does not merge it.
#[tokio::test]
async fn a_process_that_only_appends_resolves_imported_persons_without_their_records() {
    let place = Place::new().await;
    let mut sent = history(&place, 0).await;
    place.events.add_persons(PROJECT, vec![person(&["a", "b"]), person(&["c"])], NOW).await.unwrap();
    place.events.add_persons(PROJECT, vec![person(&["d", "c"])], NOW + 1).await.unwrap();
    hide(&place, ".parquet");
    let identified =
        |n, anonymous: &str| event(n, "$identify", "f", 6, json!({"$anon_distinct_id": anonymous}));
    let taken = [identified(1002, "a"), identified(1003, "d"), identified(1004, "e")];
    place.appending().append(PROJECT, &taken, NOW + 100).await.unwrap();
    show(&place, ".parquet");
    sent.extend(taken);
    let now = [("b", "a"), ("d", "c"), ("e", "f")];
    assert_eq!(scanned(&place.again()).await, want(&sent, &now));
}

#[tokio::test]
async fn damaged_ids_beside_records_give_errors_and_lose_nothing() {
    let place = Place::new().await;
    let sent = history(&place, 0).await;
    place.events.add_persons(PROJECT, vec![person(&["a", "b"])], NOW).await.unwrap();
    let [file] = files(&place, ".ids")
        .into_iter()
        .filter(|file| file.ends_with(".ids"))
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    let whole = std::fs::read(&file).unwrap();
    let mut bytes = whole.clone();
    bytes[20] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    assert!(place.again().scan(PROJECT, &[], &request(&[], &["k"])).await.is_err());
    let merge = event(1002, "$identify", "f", 6, json!({"$anon_distinct_id": "a"}));
    assert!(place.appending().append(PROJECT, &[merge], NOW + 1).await.is_err());
    std::fs::write(&file, whole).unwrap();
    place.again().check(PROJECT, true, &mut |_| {}).await.unwrap();
    assert_eq!(scanned(&place.again()).await, want(&sent, &[("b", "a")]));
}

/// Rows without a format number have the first format, without the `.ids` sidecar.
#[tokio::test]
async fn imports_of_the_first_form_are_read_and_refuse_merges_until_compaction_where_only_appending_goes_on()
{
    let place = Place::new().await;
    let mut sent = history(&place, 0).await;
    place.events.add_persons(PROJECT, vec![person(&["a", "b"])], NOW).await.unwrap();
    let rows = PartitionQuery::partition(format!("PROJECT#{PROJECT}#SEGMENT")).prefix("PERSONS#");
    let mut row = place.store.records.query(rows).await.unwrap().remove(0);
    row.text = row.text.replace("\"format\":2", "\"format\":1");
    let version = row.version;
    place.store.records.put(row.with_version(version + 1), WriteCondition::Version(version)).await.unwrap();
    for file in place.files().iter().filter(|file| file.ends_with(".ids")) {
        std::fs::remove_file(file).unwrap();
    }
    assert_eq!(scanned(&place.again()).await, want(&sent, &[("b", "a")]));
    let merge = [event(1002, "$identify", "f", 6, json!({"$anon_distinct_id": "e"}))];
    let refused = place.appending().append(PROJECT, &merge, NOW + 1).await.unwrap_err();
    assert!(refused.to_string().contains("compaction"), "{refused}");
    place.appending().append(PROJECT, &[simple(1003, "seen", "b", 5)], NOW + 2).await.unwrap();
    place.events.compact(PROJECT, NOW + 3).await.unwrap();
    place.appending().append(PROJECT, &merge, NOW + 4).await.unwrap();
    sent.push(simple(1003, "seen", "b", 5));
    sent.extend(merge);
    assert_eq!(scanned(&place.again()).await, want(&sent, &[("b", "a"), ("e", "f")]));
}

#[tokio::test]
async fn after_an_erasure_no_person_is_linked_to_the_erased_one() {
    let place = Place::new().await;
    history(&place, 0).await;
    place.events.add_persons(PROJECT, vec![person(&["a", "b"])], NOW).await.unwrap();
    place.events.compact(PROJECT, NOW).await.unwrap();
    place.events.erase(PROJECT, &ErasureTarget::Project, &|| NOW + 1).await.unwrap();
    let sent = [simple(2000, "seen", "b", 1)];
    place.events.append(PROJECT, &sent, NOW + 2).await.unwrap();
    assert_eq!(scanned(&place.again()).await, want(&sent, &[]));
    place.events.compact(PROJECT, NOW + 3).await.unwrap();
    assert_eq!(scanned(&place.again()).await, want(&sent, &[]));
    place.events.sweep(PROJECT, NOW + 3 + LATER).await.unwrap();
    assert_eq!(files(&place, "/links/"), Vec::<String>::new());
    assert_eq!(place.again().person_of(PROJECT, "b").await.unwrap(), derive_person_id(PROJECT, "b"));
}

#[tokio::test]
async fn thousands_of_imported_persons_in_ranges_of_segments() {
    let place = Place::new().await;
    let ids = (0..9000).map(|n| format!("id{n}")).collect::<Vec<_>>();
    let sent = ids.iter().zip(0..).map(|(id, n)| simple(n, "seen", id, n as i64 % 7)).collect::<Vec<_>>();
    let lines = sent.iter().cloned().enumerate().map(|(line, event)| (line as u64, event));
    place.events.ingest(PROJECT, lines.collect(), NOW).await.unwrap();
    // Every third id belongs to the person of the id before it.
    let records = ids.chunks(3).map(|ids| person(&[&ids[0], &ids[1]])).collect();
    place.events.add_persons(PROJECT, records, NOW).await.unwrap();
    let who: BTreeMap<&str, Uuid> = (0..ids.len())
        .map(|n| (ids[n].as_str(), derive_person_id(PROJECT, &ids[if n % 3 == 1 { n - 1 } else { n }])))
        .collect();
    let want = expected(&sent, &request(&[], &["k"]), |id| who[id]);
    assert!(scanned(&place.again()).await == want);
    place.events.compact(PROJECT, NOW).await.unwrap();
    hide(&place, "/persons/");
    assert!(scanned(&place.again()).await == want);
}
