//! For any damage of a stored object, a reader gets the right numbers or an error that names the object.

use std::path::{Path, PathBuf};

use crate::support::{NOW, PROJECT, Place, PlainRow, event, expected, request, rows};
use pennon_eventstore::{
    ErasureTarget, Event, EventStore, EventStoreError, GRACE_MICROS, PersonRecord, derive_person_id,
};
use serde_json::{Map, json};
use uuid::Uuid;

fn made(n: u128) -> Event {
    let name = ["viewed", "bought", "$groupidentify"][n as usize % 3];
    let who = format!("p{}", n % 97);
    let properties = if n.is_multiple_of(3) {
        json!({"price": n as f64 / 7.0, "page": format!("/{}", n % 50), "$set": {"plan": n % 4}})
    } else {
        json!({"$group_type": "company", "$group_key": format!("c{}", n % 11), "$group_set": {"size": n as u64}})
    };
    event(
        Uuid::new_v5(&Uuid::nil(), &n.to_le_bytes()).as_u128(),
        name,
        &who,
        NOW + n as i64 * 1000,
        properties,
    )
}

/// Events of two segments and some waiting ones, and one imported person.
async fn filled(place: &Place) -> Vec<Event> {
    let sent = (0..4000).map(made).collect::<Vec<_>>();
    place.events.append(PROJECT, &sent[..2000], NOW).await.unwrap();
    place.events.compact(PROJECT, NOW).await.unwrap();
    let imported = sent[2000..3990].iter().cloned().enumerate().map(|(line, event)| (line as u64, event));
    place.events.ingest(PROJECT, imported.collect(), NOW + 1).await.unwrap();
    let person =
        PersonRecord { distinct_ids: vec!["alone".into()], properties: Map::new(), created_at: None };
    place.events.add_persons(PROJECT, vec![person], NOW + 2).await.unwrap();
    place.events.append(PROJECT, &sent[3990..], NOW + 3).await.unwrap();
    sent
}

fn want(sent: &[Event]) -> Vec<PlainRow> {
    expected(sent, &request(&[], &["price"]), |who| derive_person_id(PROJECT, who))
}

/// The object that an error names; `None` if the numbers are right.
async fn requested(events: &EventStore, want: &[PlainRow]) -> Option<String> {
    let named = |error: EventStoreError| match error {
        EventStoreError::Damaged { object, .. } => object,
        other => panic!("{other}"),
    };
    let scanned = events.scan(PROJECT, &[], &request(&[], &["price"])).await;
    let found = match scanned {
        Ok(scan) => {
            assert!(rows(&scan) == want, "other numbers");
            None
        }
        Err(error) => Some(named(error)),
    };
    // Everything that reads the sidecar files of segments.
    let counted = events.count_people(PROJECT).await;
    let counted = counted.map(|count| assert_eq!(count, 98)).map_err(named).err();
    found.or(counted)
}

/// All files below the events, by kind of object.
fn objects(place: &Place) -> Vec<PathBuf> {
    let mut files = place.files().into_iter().map(PathBuf::from).collect::<Vec<_>>();
    files.sort();
    files
}

fn name(path: &Path) -> String {
    let text = path.display().to_string();
    text[text.find("project=").unwrap()..].to_owned()
}

/// Puts `bytes` in place of the object, runs every query, and puts the object back. The error names the object, or the
/// sums beside it.
async fn is_noticed(place: &Place, path: &Path, bytes: Option<&[u8]>, want: &[PlainRow]) {
    let whole = std::fs::read(path).unwrap();
    match bytes {
        Some(bytes) => std::fs::write(path, bytes).unwrap(),
        None => std::fs::remove_file(path).unwrap(),
    }
    let name = name(path);
    // A new process has no caches.
    if let Some(named) = requested(&place.again(), want).await {
        assert_eq!(named, name);
    }
    let checked = place.again().check(PROJECT, false, &mut |_| {}).await.unwrap();
    let found = checked.damaged.iter().flat_map(|found| &found.findings).collect::<Vec<_>>();
    assert!(found.iter().any(|damage| damage.object == name), "{name}: {found:?}");
    std::fs::write(path, whole).unwrap();
    let checked = place.again().check(PROJECT, true, &mut |_| {}).await.unwrap();
    assert!(checked.damaged.is_empty() && checked.lifted.len() == 1, "{checked:?}");
    assert_eq!(requested(&place.again(), want).await, None);
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_detected() {
    let place = Place::new().await;
    let want = want(&filled(&place).await);
    assert_eq!(requested(&place.again(), &want).await, None);
    let objects = objects(&place);
    for ending in [".parquet", ".ids.parquet", ".groups.parquet", ".uuids", ".persons", ".sums"] {
        assert!(objects.iter().any(|path| path.to_str().unwrap().ends_with(ending)), "no {ending}");
    }
    for path in &objects {
        let whole = std::fs::read(path).unwrap();
        let last = whole.len() - 1;
        for at in [0, last / 3, last.saturating_sub(6), last] {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            is_noticed(&place, path, Some(&flipped), &want).await;
        }
    }
}

#[tokio::test]
async fn objects_that_are_cut_empty_missing_or_of_another_segment_are_detected() {
    let place = Place::new().await;
    let want = want(&filled(&place).await);
    let objects = objects(&place);
    for path in &objects {
        let whole = std::fs::read(path).unwrap();
        is_noticed(&place, path, None, &want).await;
        is_noticed(&place, path, Some(&[]), &want).await;
        is_noticed(&place, path, Some(&whole[..whole.len() / 2]), &want).await;
        is_noticed(&place, path, Some(&whole[..whole.len() - 1]), &want).await;
        is_noticed(&place, path, Some(&[&whole[..], b"x"].concat()), &want).await;
        let ending = path.file_name().unwrap().to_str().unwrap().split_once('.').unwrap().1;
        let alike =
            |other: &&PathBuf| *other != path && other.to_str().unwrap().ends_with(&format!(".{ending}"));
        let others = objects.iter().filter(alike).map(|other| std::fs::read(other).unwrap());
        // Two segments of the same persons have the same file of persons.
        if let Some(other) = others.into_iter().find(|other| *other != whole) {
            is_noticed(&place, path, Some(&other), &want).await;
        }
    }
}

#[tokio::test]
async fn a_damaged_segment_is_not_merged_and_everything_else_works() {
    let place = Place::new().await;
    let mut sent = filled(&place).await;
    let files = objects(&place);
    let segment = files.iter().find(|path| path.to_str().unwrap().ends_with(".uuids")).unwrap();
    let segment = segment.with_extension("parquet");
    let whole = std::fs::read(&segment).unwrap();
    std::fs::remove_file(&segment).unwrap();
    let events = place.again();
    let error = events.scan(PROJECT, &[], &request(&[], &[])).await.unwrap_err();
    assert!(
        matches!(&error, EventStoreError::Damaged { object, .. } if *object == name(&segment)),
        "{error}"
    );
    // Before the damaged segment, which begins at NOW, nothing happened; a query of that time does not need it.
    let before = pennon_analytics::scan::ScanRequest { to: NOW - 1, ..request(&[], &[]) };
    assert!(events.scan(PROJECT, &[], &before).await.unwrap().partitions.is_empty());
    // Events are captured, compacted, and the segments merged several times.
    for n in 0..24_u128 {
        let more = made(10_000 + n);
        events.append(PROJECT, std::slice::from_ref(&more), NOW + 10 + n as i64).await.unwrap();
        sent.push(more);
        events.compact(PROJECT, NOW + 10 + n as i64).await.unwrap();
    }
    let checked = events.check(PROJECT, true, &mut |_| {}).await.unwrap();
    let [found] = &checked.damaged[..] else { panic!("{checked:?}") };
    assert_eq!((found.events, found.from, found.findings.len()), (2000, NOW, 1));
    assert!(checked.lifted.is_empty());
    // After the object was restored, each event counts once.
    std::fs::write(&segment, whole).unwrap();
    assert_eq!(place.again().check(PROJECT, true, &mut |_| {}).await.unwrap().lifted.len(), 1);
    assert_eq!(requested_rows(&place.again()).await, want(&sent));
}

#[tokio::test]
async fn the_segment_detects_copies_where_its_file_of_uuids_is_damaged() {
    let place = Place::new().await;
    let sent = filled(&place).await;
    for path in objects(&place).iter().filter(|path| path.to_str().unwrap().ends_with(".uuids")) {
        std::fs::remove_file(path).unwrap();
    }
    let events = place.again();
    let again = vec![(0, sent[5].clone()), (1, sent[2500].clone()), (2, made(99_999))];
    let done = events.ingest(PROJECT, again, NOW + 9).await.unwrap();
    assert_eq!((done.stored, done.copies), (1, 2));
}

#[tokio::test]
async fn a_damaged_segment_is_dropped_on_request() {
    let place = Place::new().await;
    let sent = filled(&place).await;
    let lost = objects(&place).into_iter().find(|path| path.to_str().unwrap().ends_with(".uuids")).unwrap();
    for ending in ["parquet", "uuids", "persons", "ids.parquet", "groups.parquet", "sums"] {
        let path = lost.with_extension(ending);
        if path.exists() {
            std::fs::remove_file(path).unwrap();
        }
    }
    let events = place.again();
    assert!(events.scan(PROJECT, &[], &request(&[], &[])).await.is_err());
    let id = lost.file_stem().unwrap().to_str().unwrap();
    assert!(!events.drop_segment(PROJECT, "unknown", NOW + 5).await.unwrap());
    assert!(events.drop_segment(PROJECT, id, NOW + 5).await.unwrap());
    assert!(!events.drop_segment(PROJECT, id, NOW + 6).await.unwrap());
    // All other events remain, also after the remaining objects are removed.
    assert_eq!(requested_rows(&events).await, want(&sent[2000..]));
    events.compact(PROJECT, NOW + 7).await.unwrap();
    events.sweep(PROJECT, NOW + 7 + 2 * GRACE_MICROS).await.unwrap();
    assert_eq!(requested_rows(&place.again()).await, want(&sent[2000..]));
    assert!(place.again().check(PROJECT, false, &mut |_| {}).await.unwrap().damaged.is_empty());
}

#[tokio::test]
async fn objects_that_no_manifest_lists_are_removed_when_no_writer_can_list_them() {
    let place = Place::new().await;
    let sent = filled(&place).await;
    let known = objects(&place);
    let folder = known[0].parent().unwrap();
    for name in ["00-lost.parquet", "00-lost.sums", "01-lost.uuids"] {
        std::fs::write(folder.join(name), b"x").unwrap();
    }
    // Folded merges whose object was not listed before the process ended.
    let merges =
        folder.parent().and_then(|of| of.parent()).unwrap().join(format!("merges/project={PROJECT}"));
    std::fs::create_dir_all(&merges).unwrap();
    std::fs::write(merges.join("00-lost.bin"), b"x").unwrap();
    let today = chrono::Utc::now().timestamp_micros();
    assert_eq!(place.events.sweep_orphans(PROJECT, today).await.unwrap(), 0);
    let later = today + 2 * pennon_eventstore::ORPHANED_MICROS;
    assert_eq!(place.events.sweep_orphans(PROJECT, later).await.unwrap(), 4);
    let (orphans, left): (Vec<PathBuf>, Vec<PathBuf>) =
        objects(&place).into_iter().partition(|path| path.to_str().unwrap().contains("/orphans/"));
    assert_eq!(left, known);
    assert_eq!(orphans.len(), 4, "{orphans:?}");
    assert_eq!(requested_rows(&place.again()).await, want(&sent));
}

async fn requested_rows(events: &EventStore) -> Vec<PlainRow> {
    rows(&events.scan(PROJECT, &[], &request(&[], &["price"])).await.unwrap())
}

#[tokio::test]
async fn lost_imported_persons_and_groups_are_dropped_on_request() {
    let place = Place::new().await;
    let sent = filled(&place).await;
    let group = pennon_eventstore::GroupRecord {
        type_name: "company".into(),
        index: 0,
        key: "lost".into(),
        properties: Map::new(),
    };
    place.events.add_groups(PROJECT, vec![group], NOW + 4).await.unwrap();
    let kinds = pennon_eventstore::GroupType { index: 0, name: "company".into() };
    for folder in ["/persons/", "/groups/"] {
        let lost = objects(&place).into_iter().filter(|path| path.to_str().unwrap().contains(folder));
        let lost = lost.collect::<Vec<_>>();
        lost.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        let events = place.again();
        assert!(
            events.persons(PROJECT, &[derive_person_id(PROJECT, "p1")]).await.is_err()
                || folder == "/groups/"
        );
        let found = events.check(PROJECT, false, &mut |_| {}).await.unwrap().damaged;
        assert_eq!(found.len(), 1, "{folder}");
        assert!(events.drop_segment(PROJECT, &found[0].id, NOW + 5).await.unwrap());
        assert!(!events.drop_segment(PROJECT, &found[0].id, NOW + 5).await.unwrap());
        assert!(events.check(PROJECT, false, &mut |_| {}).await.unwrap().damaged.is_empty());
    }
    for events in [place.events.clone(), place.again()] {
        assert_eq!(requested_rows(&events).await, want(&sent));
        assert_eq!(events.count_people(PROJECT).await.unwrap(), 97, "but for the one who was imported alone");
        let groups = events.groups_of(PROJECT, &kinds, &Default::default()).await.unwrap();
        assert_eq!(groups.len(), 11);
    }
}

/// A few events in segments, two of which were merged, imported persons of whom one has two ids, and two waiting events,
/// one of them a copy.
async fn little(place: &Place) -> Vec<Event> {
    let sent = (0..60).map(made).collect::<Vec<_>>();
    for (n, part) in (0..).zip(sent[..40].chunks(10)) {
        place.events.append(PROJECT, part, NOW + n).await.unwrap();
        place.events.compact(PROJECT, NOW + n).await.unwrap();
    }
    let lines = sent[40..59].iter().cloned().enumerate().map(|(line, event)| (line as u64, event));
    place.events.ingest(PROJECT, lines.collect(), NOW + 10).await.unwrap();
    for ids in [vec!["alone"], vec!["p1", "p1 at home"]] {
        let distinct_ids = ids.into_iter().map(str::to_owned).collect();
        let person = PersonRecord { distinct_ids, properties: Map::new(), created_at: None };
        place.events.add_persons(PROJECT, vec![person], NOW + 11).await.unwrap();
    }
    place.events.compact(PROJECT, NOW + 12).await.unwrap();
    place.events.append(PROJECT, &[sent[59].clone(), sent[5].clone()], NOW + 13).await.unwrap();
    sent
}

#[tokio::test]
async fn a_project_is_erased_if_any_of_its_objects_is_damaged_or_missing() {
    let endings = ["uuids", "persons", "pairs", "blocks", "ids.parquet", "groups.parquet", "sums"];
    let mut lost_any = [false; 7];
    for at in 0.. {
        let place = Place::new().await;
        let sent = little(&place).await;
        let Some(lost) = objects(&place).into_iter().nth(at) else { break };
        let name = name(&lost);
        endings.iter().zip(&mut lost_any).for_each(|(ending, any)| *any |= name.ends_with(ending));
        match at % 2 {
            0 => std::fs::remove_file(&lost).unwrap(),
            _ => std::fs::write(&lost, b"PAR1 of something else").unwrap(),
        }
        let events = place.again();
        let would = events.preview_erasure(PROJECT, &ErasureTarget::Project).await.unwrap();
        let erased = events.erase(PROJECT, &ErasureTarget::Project, &|| NOW + 100).await.unwrap();
        assert_eq!(erased, would, "{name}");
        match erased.uncounted {
            false => assert_eq!((erased.events, erased.persons), (60, 61), "{name}"),
            true => assert!((59..=60).contains(&erased.events) && erased.persons <= 61, "{name}: {erased:?}"),
        }
        // Later events count, including a copy of an erased event.
        let later = [sent[1].clone(), made(5000)];
        events.append(PROJECT, &later, NOW + 200).await.unwrap();
        for round in 0..4 {
            // A reader of the time before, the one that erased, a new process; after the last round all of them.
            let again = place.again();
            let readers = [&place.events, &events, &again];
            let readers = if round < 3 { &readers[round as usize..=round as usize] } else { &readers[..] };
            for events in readers {
                assert_eq!(requested_rows(events).await, want(&later), "round {round}, {name}");
                assert_eq!(events.count_people(PROJECT).await.unwrap(), 2, "{name}");
                let apart = events.person_of(PROJECT, "p1 at home").await.unwrap();
                assert_eq!(apart, derive_person_id(PROJECT, "p1 at home"));
            }
            let now = NOW + 300 + round * 2 * GRACE_MICROS;
            events.compact(PROJECT, now).await.unwrap();
            events.sweep(PROJECT, now).await.unwrap();
        }
        let checked = place.again().check(PROJECT, false, &mut |_| {}).await.unwrap();
        assert!(checked.damaged.is_empty(), "{name}: {checked:?}");
    }
    assert_eq!(lost_any, [true; 7], "something of every kind was lost");
}

#[tokio::test]
async fn a_project_of_more_imports_than_a_transaction_takes_is_erased() {
    let place = Place::new().await;
    filled(&place).await;
    for n in 0..165 {
        let person = PersonRecord {
            distinct_ids: vec![format!("imported {n}")],
            properties: Map::new(),
            created_at: None,
        };
        place.events.add_persons(PROJECT, vec![person], NOW + 10 + n).await.unwrap();
    }
    let erased = place.again().erase(PROJECT, &ErasureTarget::Project, &|| NOW + 1000).await.unwrap();
    assert_eq!((erased.events, erased.persons, erased.uncounted), (4000, 98 + 165, false));
    for events in [place.events.clone(), place.again()] {
        assert_eq!(events.count_people(PROJECT).await.unwrap(), 0);
        assert!(requested_rows(&events).await.is_empty());
    }
}
