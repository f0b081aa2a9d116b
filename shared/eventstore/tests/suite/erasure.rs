//! Erasure: erased data is absent from every read at once, all other data is unchanged, and later events count.

use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;

use crate::support::{MINUTE, NOW, PROJECT, Place, PlainRow, event, expected, request, rows, simple};
use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use pennon_core::store::keys::{self, RecordKind};
use pennon_core::store::{Item, PartitionQuery, WriteCondition};
use pennon_eventstore::cohort_lists::{self, CohortList};
use pennon_eventstore::{
    ErasureReport, ErasureTarget, Event, EventStore, EventStoreError, GRACE_MICROS, MergeMode, PersonRecord,
    derive_person_id,
};
use serde_json::{Value, json};

async fn all(events: &EventStore) -> Vec<PlainRow> {
    rows(&events.scan(PROJECT, &[], &request(&[], &["n"])).await.unwrap())
}

fn want(sent: &[Event]) -> Vec<PlainRow> {
    let who = |who: &str| derive_person_id(PROJECT, if who == "phone" { "ada" } else { who });
    expected(sent, &request(&[], &["n"]), who)
}

/// Two segments, an object of imported persons and a block; ada has two ids.
pub(crate) async fn history(place: &Place) -> Vec<Event> {
    let mut sent = Vec::new();
    for round in 0..3_u128 {
        let mut batch = vec![
            event(round * 10, "a", "ada", 10 + round as i64, json!({"$set": {"mail": "ada@x"}, "n": 1})),
            simple(round * 10 + 1, "a", "bob", 20 + round as i64),
            simple(round * 10 + 2, "b", "phone", 30 + round as i64),
            event(round * 10 + 3, "b", "cy", 5, json!({"$set": {"mail": "cy@x"}})),
        ];
        if round == 0 {
            batch.push(event(90, "$identify", "ada", 40, json!({"$anon_distinct_id": "phone"})));
        }
        place.events.append(PROJECT, &batch, NOW + round as i64).await.unwrap();
        sent.extend(batch);
        if round < 2 {
            place.events.compact_blocks(PROJECT, NOW + round as i64).await.unwrap();
        }
    }
    let person = |ids: &[&str]| PersonRecord {
        distinct_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        properties: json!({"from": "import"}).as_object().unwrap().clone(),
        created_at: None,
    };
    place.events.add_persons(PROJECT, vec![person(&["ada"]), person(&["dora"])], NOW).await.unwrap();
    sent
}

#[tokio::test]
async fn a_person_is_erased_with_all_ids_and_no_other_person_changes() {
    for (name, is_uuid) in [("ada", false), ("phone", false), ("ada", true)] {
        let place = Place::new().await;
        let sent = history(&place).await;
        let before = place.events.count_people(PROJECT).await.unwrap();
        let name = if is_uuid { derive_person_id(PROJECT, name).to_string() } else { name.to_owned() };
        let doomed = ErasureTarget::Person(name);
        let would = place.events.preview_erasure(PROJECT, &doomed).await.unwrap();
        assert_eq!((would.events, would.persons), (7, 1));
        assert_eq!(all(&place.events).await, want(&sent), "a preview changes nothing");
        let erased = place.events.erase(PROJECT, &doomed, &|| NOW + 100).await.unwrap();
        assert_eq!((erased.events, erased.persons), (7, 1));
        let mut left = sent.clone();
        left.retain(|event| event.distinct_id != "ada" && event.distinct_id != "phone");
        for events in [place.events.clone(), place.again()] {
            assert_eq!(all(&events).await, want(&left));
            assert_eq!(events.count_people(PROJECT).await.unwrap(), before - 1);
            assert_eq!(events.earliest(PROJECT).await.unwrap(), Some(5));
            for id in ["ada", "phone"] {
                let subject = events.subject(PROJECT, id, &[], None).await.unwrap();
                assert!(subject.person.properties.is_empty(), "{id} {:?}", subject.person.properties);
            }
            let cy = events.subject(PROJECT, "cy", &[], None).await.unwrap();
            assert_eq!(cy.person.properties["mail"], "cy@x");
            let dora = events.subject(PROJECT, "dora", &[], None).await.unwrap();
            assert_eq!(dora.person.properties["from"], "import");
        }
        // Later events count, including a copy of an erased event.
        place.events.append(PROJECT, &sent[..1], NOW + 200).await.unwrap();
        left.push(sent[0].clone());
        assert_eq!(all(&place.events).await, want(&left));
        // The old files are removed after the grace period.
        let files = place.files().len();
        for later in 1..4 {
            place.events.sweep(PROJECT, NOW + later * (GRACE_MICROS + MINUTE)).await.unwrap();
            assert_eq!(all(&place.again()).await, want(&left));
        }
        assert!(place.files().len() < files);
    }
}

#[tokio::test]
async fn an_unknown_person_is_not_erased() {
    let place = Place::new().await;
    let sent = history(&place).await;
    for name in ["unknown", "00000000-0000-4000-8000-000000000000", ""] {
        let doomed = ErasureTarget::Person(name.to_owned());
        assert_eq!(place.events.preview_erasure(PROJECT, &doomed).await.unwrap(), ErasureReport::default());
        assert_eq!(place.events.erase(PROJECT, &doomed, &|| NOW).await.unwrap(), ErasureReport::default());
    }
    assert_eq!(all(&place.events).await, want(&sent));
}

#[tokio::test]
async fn old_events_are_erased_and_their_person_properties_stay() {
    let place = Place::new().await;
    let sent = history(&place).await;
    let people = place.events.count_people(PROJECT).await.unwrap();
    for before in [i64::MIN, 5, 6, 11, 33, i64::MAX] {
        let count = sent.iter().filter(|event| event.timestamp < before).count();
        let gone = sent.len() - all(&place.events).await.len();
        let would = place.events.preview_erasure(PROJECT, &ErasureTarget::Before(before)).await.unwrap();
        let erased = place.events.erase(PROJECT, &ErasureTarget::Before(before), &|| NOW).await.unwrap();
        assert_eq!((would.events, erased.events), ((count - gone) as u64, (count - gone) as u64), "{before}");
        let left = sent.iter().filter(|event| event.timestamp >= before).cloned().collect::<Vec<_>>();
        assert_eq!(all(&place.again()).await, want(&left));
        let earliest = left.iter().map(|event| event.timestamp).min();
        assert_eq!(place.again().earliest(PROJECT).await.unwrap(), earliest);
        assert_eq!(place.again().count_people(PROJECT).await.unwrap(), people);
        let ada = place.again().subject(PROJECT, "phone", &[], None).await.unwrap();
        assert_eq!(ada.person.properties["mail"], "ada@x");
        while place.events.merge_segments(PROJECT, NOW, MergeMode::Fewest).await.unwrap().has_more_work() {}
        assert_eq!(place.again().count_people(PROJECT).await.unwrap(), people);
    }
}

#[tokio::test]
async fn a_project_is_emptied_and_another_one_is_not() {
    let place = Place::new().await;
    let sent = history(&place).await;
    place.events.append(PROJECT + 1, &sent, NOW).await.unwrap();
    let would = place.events.preview_erasure(PROJECT, &ErasureTarget::Project).await.unwrap();
    assert_eq!((would.events, would.persons), (sent.len() as u64, 4));
    place.events.erase(PROJECT, &ErasureTarget::Project, &|| NOW).await.unwrap();
    assert!(all(&place.again()).await.is_empty());
    assert_eq!(place.again().count_people(PROJECT).await.unwrap(), 0);
    assert_eq!(place.again().earliest(PROJECT).await.unwrap(), None);
    assert_eq!(place.again().scan(PROJECT + 1, &[], &request(&[], &[])).await.unwrap().stats.rows, 13);
    place.events.append(PROJECT, &sent[..2], NOW).await.unwrap();
    assert_eq!(all(&place.events).await, want(&sent[..2]));
    for later in 1..4 {
        place.events.sweep(PROJECT, NOW + later * (GRACE_MICROS + MINUTE)).await.unwrap();
    }
    assert_eq!(all(&place.again()).await, want(&sent[..2]));
    let of_project = |file: &String| file.contains(&format!("/project={PROJECT}/"));
    // The times of arrival name the removed blocks, in a list with its checksums.
    let is_kept = |file: &String| [".blocks", ".sums"].iter().any(|ending| file.ends_with(ending));
    let left = place.files().into_iter().filter(|file| of_project(file) && !is_kept(file));
    let left = left.filter(|file| !file.contains("/merges/"));
    assert_eq!(left.count(), 0, "the two events wait in a block, and no person is left in the log of merges");
}

/// All content of the records table and the object store of a place that can identify a person: texts, and person ids as
/// bytes and as digits.
pub(crate) async fn traces(place: &Place, who: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let partitions = ["OVERRIDE", "SEGMENT", "COHORT"].map(|what| format!("PROJECT#{PROJECT}#{what}"));
    let kinds = ["COHORT#1", "COHORT#2", "IDENTIFIED"];
    let parts = (0..64).flat_map(|part| kinds.map(|kind| format!("PROJECT#{PROJECT}#{kind}#{part}")));
    for partition in partitions.into_iter().chain(parts).chain(["INSTALLATION".to_owned()]) {
        for item in place.store.records.query(PartitionQuery::partition(partition)).await.unwrap() {
            for id in who {
                let person = derive_person_id(PROJECT, id);
                let text = format!("{} {} {}", item.key.pk, item.key.sk, item.text);
                // Numbers of entries are hexadecimal, and some names could be.
                let is_named = [format!("{id:?}"), person.to_string(), person.simple().to_string()]
                    .iter()
                    .any(|name| text.contains(name.as_str()));
                if is_named || item.bytes.windows(16).any(|bytes| bytes == person.as_bytes()) {
                    found.push(format!("{id} in {} {}", item.key.pk, item.key.sk));
                }
            }
        }
    }
    for file in place.files() {
        let bytes = std::fs::read(&file).unwrap();
        let texts = if file.ends_with(".parquet") { cells(bytes.clone()) } else { Vec::new() };
        for id in who {
            let person = derive_person_id(PROJECT, id);
            let is_inside = |text: &Vec<u8>, part: &[u8]| text.windows(part.len()).any(|some| some == part);
            if is_inside(&bytes, person.as_bytes())
                || texts
                    .iter()
                    .any(|text| is_inside(text, id.as_bytes()) || is_inside(text, person.as_bytes()))
            {
                found.push(format!("{id} in {file}"));
            }
        }
    }
    found
}

/// All texts and bytes of a Parquet file, decoded.
fn cells(bytes: Vec<u8>) -> Vec<Vec<u8>> {
    let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
    let mut cells = Vec::new();
    for row in reader.get_row_iter(None).unwrap() {
        for (name, field) in row.unwrap().get_column_iter() {
            cells.push(match field {
                Field::Bytes(bytes) => bytes.data().to_vec(),
                Field::Str(text) => text.clone().into_bytes(),
                other => format!("{name} {other}").into_bytes(),
            });
        }
    }
    cells
}

/// A static cohort with a short list and one with a long list.
async fn cohorts(place: &Place) {
    let many = (0..3000).map(|n| format!("u{n}")).chain(["phone".to_owned(), "bob".to_owned()]);
    for (id, list) in [(1, vec!["ada".to_owned(), "bob".to_owned()]), (2, many.collect())] {
        let packed = CohortList::store(&place.store.records, PROJECT, id, &list).await.unwrap();
        let mut record = json!({"id": id, "name": "c", "is_static": true, "count": list.len()});
        record.as_object_mut().unwrap().extend(packed);
        let item = Item::new(keys::record(PROJECT, RecordKind::Cohort, id), &record).unwrap();
        place.store.records.put(item, WriteCondition::None).await.unwrap();
        // As a workspace file declares it.
        let declared = json!({"spec": {"id": id, "project": PROJECT, "distinct_ids": if id == 1 { list } else { Vec::new() }}});
        let key = keys::declared("COHORT", &format!("{PROJECT}/{id}"));
        place.store.records.put(Item::new(key, &declared).unwrap(), WriteCondition::None).await.unwrap();
    }
}

async fn on_lists(place: &Place, who: &[&str]) -> Vec<(usize, bool)> {
    let mut found = Vec::new();
    for id in [1, 2] {
        let item =
            place.store.records.get(&keys::record(PROJECT, RecordKind::Cohort, id)).await.unwrap().unwrap();
        let record: Value = item.body().unwrap();
        let cohort_list = CohortList::of_record(PROJECT, &record);
        let members = cohort_list.members(&place.store.records, PROJECT, id).await.unwrap();
        assert_eq!(record["count"], members.len(), "{id}");
        let ids = who.iter().map(|who| derive_person_id(PROJECT, who)).collect();
        let cohort_lists = [(id as i64, cohort_list)].into();
        let with =
            cohort_lists::cohorts_with(&place.store.records, PROJECT, &cohort_lists, &ids).await.unwrap();
        assert_eq!(with.is_empty(), members.is_disjoint(&ids.into_iter().collect()));
        found.push((members.len(), !with.is_empty()));
    }
    found
}

#[tokio::test]
async fn no_stored_data_names_an_erased_person_and_its_id_is_a_new_person() {
    let who = ["ada", "phone", "tablet"];
    for is_folded in [false, true] {
        let place = Place::new().await;
        history(&place).await;
        cohorts(&place).await;
        let alias = event(91, "$create_alias", "phone", 45, json!({"alias": "tablet"}));
        let shared = event(92, "$identify", "bob", 46, json!({"$anon_distinct_id": "laptop"}));
        place.events.append(PROJECT, &[alias, shared], NOW + 5).await.unwrap();
        if is_folded {
            for n in 0..300_u128 {
                let other =
                    event(1000 + n, "$identify", "eve", 9, json!({"$anon_distinct_id": format!("e{n}")}));
                place.events.append(PROJECT, &[other], NOW + 6).await.unwrap();
            }
            place.events.compact(PROJECT, NOW + 7).await.unwrap();
            assert!(place.files().iter().any(|file| file.ends_with(".bin")));
        }
        // Two processes with cached merges, one of them without the last merge.
        let (knows, idle) = (place.again(), place.again());
        assert_eq!(knows.person_of(PROJECT, "tablet").await.unwrap(), derive_person_id(PROJECT, "ada"));
        assert_eq!(idle.person_of(PROJECT, "phone").await.unwrap(), derive_person_id(PROJECT, "ada"));
        let before = place.events.count_people(PROJECT).await.unwrap();
        assert_eq!(on_lists(&place, &who).await, [(2, true), (3002, true)]);
        assert!(!traces(&place, &who).await.is_empty());
        let doomed = ErasureTarget::Person("tablet".to_owned());
        let would = place.events.preview_erasure(PROJECT, &doomed).await.unwrap();
        assert_eq!((would.events, would.persons, would.cohorts), (8, 1, 2));
        let erased = place.events.erase(PROJECT, &doomed, &|| NOW + 100).await.unwrap();
        assert_eq!((erased.events, erased.persons, erased.cohorts), (8, 1, 2));
        assert_eq!(on_lists(&place, &who).await, [(1, false), (3001, false)]);
        for later in 1..4 {
            place.events.sweep(PROJECT, NOW + later * (GRACE_MICROS + MINUTE)).await.unwrap();
        }
        assert_eq!(traces(&place, &who).await, Vec::<String>::new());
        let declared =
            place.store.records.get(&keys::declared("COHORT", &format!("{PROJECT}/1"))).await.unwrap();
        assert_eq!(declared.unwrap().body::<Value>().unwrap()["spec"]["distinct_ids"], json!(["bob"]));
        assert_eq!(place.events.preview_erasure(PROJECT, &doomed).await.unwrap(), ErasureReport::default());
        for events in [&place.events, &knows, &idle, &place.again()] {
            for id in who {
                assert_eq!(events.person_of(PROJECT, id).await.unwrap(), derive_person_id(PROJECT, id));
            }
            assert_eq!(events.person_of(PROJECT, "laptop").await.unwrap(), derive_person_id(PROJECT, "bob"));
            if is_folded {
                assert_eq!(
                    events.person_of(PROJECT, "e299").await.unwrap(),
                    derive_person_id(PROJECT, "eve")
                );
            }
            assert_eq!(events.count_people(PROJECT).await.unwrap(), before - 1);
        }
        // The device now belongs to a different person, who may be identified by it, because no person has been.
        let anew = event(93, "$identify", "cy", 50, json!({"$anon_distinct_id": "phone"}));
        idle.append(PROJECT, &[anew], NOW + 200).await.unwrap();
        let again = event(94, "$merge_dangerously", "ada", 51, json!({"alias": "cy"}));
        knows.append(PROJECT, &[again], NOW + 201).await.unwrap();
        for events in [&place.events, &knows, &idle, &place.again()] {
            for id in ["phone", "cy", "ada"] {
                assert_eq!(
                    events.person_of(PROJECT, id).await.unwrap(),
                    derive_person_id(PROJECT, "ada"),
                    "{id}"
                );
            }
            assert_eq!(
                events.person_of(PROJECT, "tablet").await.unwrap(),
                derive_person_id(PROJECT, "tablet")
            );
        }
    }
}

#[tokio::test]
async fn a_merge_during_an_erasure_is_not_lost() {
    let place = Place::new().await;
    history(&place).await;
    let merges = async {
        let events = place.again();
        for n in 0..40_u128 {
            let requested =
                event(2000 + n, "$identify", "eve", 60, json!({"$anon_distinct_id": format!("e{n}")}));
            events.append(PROJECT, &[requested], NOW + 1000 + n as i64).await.unwrap();
        }
    };
    let doomed = ErasureTarget::Person("phone".to_owned());
    let ((), erased) = tokio::join!(merges, place.events.erase(PROJECT, &doomed, &|| NOW + 100));
    assert_eq!(erased.unwrap().events, 7);
    let events = place.again();
    for n in 0..40 {
        assert_eq!(
            events.person_of(PROJECT, &format!("e{n}")).await.unwrap(),
            derive_person_id(PROJECT, "eve")
        );
    }
    assert_eq!(events.person_of(PROJECT, "phone").await.unwrap(), derive_person_id(PROJECT, "phone"));
    assert_eq!(place.events.preview_erasure(PROJECT, &doomed).await.unwrap(), ErasureReport::default());
}

#[tokio::test]
async fn an_emptied_project_has_no_persons() {
    let place = Place::new().await;
    history(&place).await;
    cohorts(&place).await;
    assert_eq!(place.events.erase(PROJECT, &ErasureTarget::Project, &|| NOW + 9).await.unwrap().cohorts, 2);
    assert_eq!(on_lists(&place, &["ada", "bob", "u7"]).await, [(0, false), (0, false)]);
    for later in 1..4 {
        place.events.sweep(PROJECT, NOW + later * (GRACE_MICROS + MINUTE)).await.unwrap();
    }
    assert_eq!(traces(&place, &["ada", "phone", "bob", "cy", "dora", "u7"]).await, Vec::<String>::new());
    assert_eq!(place.again().person_of(PROJECT, "phone").await.unwrap(), derive_person_id(PROJECT, "phone"));
}

/// The imported persons of a place: each of a few has a record of its own.
async fn imported(place: &Place, who: &[&str]) {
    let person = |id: &&str| PersonRecord {
        distinct_ids: vec![(*id).to_owned()],
        properties: json!({"from": format!("import of {id}")}).as_object().unwrap().clone(),
        created_at: None,
    };
    place.events.add_persons(PROJECT, who.iter().map(person).collect(), NOW).await.unwrap();
}

/// The files of imported persons.
fn of_persons(place: &Place) -> Vec<String> {
    let mut files = place.files();
    files.retain(|file| file.contains("/persons/") && file.ends_with(".parquet"));
    files.sort();
    files
}

fn doomed(who: &str) -> ErasureTarget {
    ErasureTarget::Person(who.to_owned())
}

#[tokio::test]
async fn imported_persons_are_erased_however_soon_one_erasure_follows_another() {
    let place = Place::new().await;
    imported(&place, &["ada", "bob", "cy"]).await;
    let original = of_persons(&place).remove(0);
    let (first, second) = (NOW + MINUTE, NOW + 5 * MINUTE);
    place.events.erase(PROJECT, &doomed("ada"), &|| first).await.unwrap();
    place.events.erase(PROJECT, &doomed("bob"), &|| second).await.unwrap();
    for (at, left) in [(second, 3), (first + GRACE_MICROS, 2), (second + GRACE_MICROS, 1)] {
        place.events.sweep(PROJECT, at).await.unwrap();
        assert_eq!(of_persons(&place).len(), left, "{:?}", of_persons(&place));
    }
    assert_eq!(traces(&place, &["ada", "bob"]).await, Vec::<String>::new());
    let cy = place.again().subject(PROJECT, "cy", &[], None).await.unwrap();
    assert_eq!(cy.person.properties["from"], "import of cy");
    // Objects that a sweep could not remove, or whose entry was lost, are removed as unlisted objects, and no others are.
    let later = chrono::Utc::now().timestamp_micros() + 2 * pennon_eventstore::ORPHANED_MICROS;
    assert_eq!(place.events.sweep_orphans(PROJECT, later).await.unwrap(), 0);
    std::fs::write(&original, b"ada").unwrap();
    assert_eq!(place.events.sweep_orphans(PROJECT, later).await.unwrap(), 1);
    let kept =
        i64::try_from(pennon_eventstore::ORPHANS_KEPT_DAYS + 2).unwrap() * pennon_eventstore::ORPHANED_MICROS;
    place.events.sweep_orphans(PROJECT, later + kept).await.unwrap();
    assert_eq!(of_persons(&place).len(), 1);
    assert!(place.again().subject(PROJECT, "cy", &[], None).await.is_ok());
}

#[tokio::test]
async fn concurrent_erasures_do_not_restore_data_of_each_other() {
    for waits in (1..30).step_by(3).chain((30..).step_by(37)) {
        let place = Place::new().await;
        let sent = history(&place).await;
        imported(&place, &["bob", "ada", "cy"]).await;
        let (one, ada) = (place.again(), doomed("ada"));
        let mut erasure = std::pin::pin!(one.erase(PROJECT, &ada, &|| NOW + 100));
        // The second erasure runs completely in the middle of the first one.
        let mut left = waits;
        let early = std::future::poll_fn(|context| {
            left -= 1;
            match erasure.as_mut().poll(context) {
                Poll::Pending if left > 0 => Poll::Pending,
                Poll::Pending => Poll::Ready(None),
                Poll::Ready(done) => Poll::Ready(Some(done)),
            }
        });
        let early = early.await;
        let is_over = early.is_some();
        place.events.erase(PROJECT, &doomed("bob"), &|| NOW + 200).await.unwrap();
        match early {
            Some(done) => done.unwrap(),
            None => erasure.await.unwrap(),
        };
        let mut rest = sent.clone();
        rest.retain(|event| !["ada", "phone", "bob"].contains(&event.distinct_id.as_str()));
        assert_eq!(all(&place.again()).await, want(&rest), "after {waits} waits");
        for later in 1..5 {
            place.events.sweep(PROJECT, NOW + later * (GRACE_MICROS + MINUTE)).await.unwrap();
        }
        assert_eq!(
            traces(&place, &["ada", "phone", "bob"]).await,
            Vec::<String>::new(),
            "after {waits} waits"
        );
        let cy = place.again().subject(PROJECT, "cy", &[], None).await.unwrap();
        assert_eq!(cy.person.properties["from"], "import of cy");
        if is_over {
            return;
        }
        assert!(waits < 3000, "it never ends");
    }
}

#[tokio::test]
async fn the_grace_period_of_an_erasure_begins_when_it_is_done() {
    let place = Place::new().await;
    history(&place).await;
    // Each read of this clock is later than the last one by more than the grace period.
    let clock = AtomicI64::new(NOW);
    let now = || clock.fetch_add(2 * GRACE_MICROS, Ordering::Relaxed) + 2 * GRACE_MICROS;
    place.events.compact_blocks(PROJECT, NOW).await.unwrap();
    let before = place.files();
    place.events.erase(PROJECT, &doomed("ada"), &now).await.unwrap();
    // The clock is read once more, for the merge log.
    let done = clock.load(Ordering::Relaxed) - 2 * GRACE_MICROS;
    for at in [done, done + GRACE_MICROS - 1] {
        assert_eq!(place.events.sweep(PROJECT, at).await.unwrap().segments, 0);
    }
    let files = place.files();
    let gone = before.iter().filter(|file| !files.contains(file)).collect::<Vec<_>>();
    assert!(gone.iter().all(|file| file.ends_with(".blocks") || file.contains("/merges/")), "{gone:?}");
    place.events.sweep(PROJECT, done + GRACE_MICROS).await.unwrap();
    assert_eq!(of_persons(&place).len(), 1);
}

#[tokio::test]
async fn damage_of_an_object_rewritten_by_erasure_is_reported_for_the_import() {
    let place = Place::new().await;
    imported(&place, &["ada", "cy"]).await;
    place.events.erase(PROJECT, &doomed("ada"), &|| NOW + MINUTE).await.unwrap();
    let left = of_persons(&place).pop().unwrap();
    let mut bytes = std::fs::read(&left).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&left, bytes).unwrap();
    for _ in 0..2 {
        let requested = place.again().subject(PROJECT, "cy", &[], None).await;
        assert!(matches!(requested, Err(EventStoreError::Damaged { .. })), "{requested:?}");
    }
    let damage = place.events.damage(PROJECT).await.unwrap();
    let (id, damage) = damage.first_key_value().unwrap();
    assert!(left.contains(damage.object.as_str()), "{damage:?}");
    // This is the id of the import.
    assert!(place.events.drop_segment(PROJECT, id, NOW + 2 * MINUTE).await.unwrap());
    assert_eq!(place.again().count_people(PROJECT).await.unwrap(), 0);
}
