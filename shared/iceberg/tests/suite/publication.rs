//! Publication: after compaction, imports and merges, by several publishers, and after a crash.

use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use pennon_eventstore::{Event, GRACE_MICROS, MergeMode, derive_person_id};
use pennon_iceberg::{Publication, PublicationMode, TablePublisher};
use serde_json::json;

use crate::support::{MINUTE, NOW, PROJECT, Place, PublishAt, event, open};

const BOTH: Publication = Publication { events: true, persons: true };
const NONE: Publication = Publication { events: false, persons: false };

#[tokio::test]
async fn a_table_names_the_live_segments() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    assert_eq!(publisher.publish_at(NOW).await.unwrap(), NONE);
    assert!(tables.files().is_empty(), "a project without events has no tables");
    place.segment(1, &["ada", "bob"], json!({"plan": "free", "n": 1})).await;
    assert_eq!(publisher.publish_at(NOW).await.unwrap(), BOTH);
    assert_eq!(tables.segments(), place.live().await);
    let files = tables.files();
    // Metadata, hint, manifest list and manifest of each, and the data file of persons.
    assert_eq!(files.len(), 9, "{files:?}");

    // Nothing changed, for this process and for another one.
    assert_eq!(publisher.publish_at(NOW + MINUTE).await.unwrap(), NONE);
    assert_eq!(place.publisher().publish_at(NOW + MINUTE).await.unwrap(), NONE);
    assert_eq!(tables.files(), files);

    place.segment(3, &["ada"], json!({"plan": 3, "n": 1.5})).await;
    let published = publisher.publish_at(NOW + MINUTE).await.unwrap();
    assert_eq!(published, Publication { events: true, persons: false }, "new persons only after ten minutes");
    assert_eq!((tables.version("events"), tables.version("persons")), (Some(2), Some(1)));
    assert_eq!(tables.segments(), place.live().await);
    let columns = tables.property_columns();
    let columns = columns.iter().map(|(name, of)| (name.as_str(), of.as_str())).collect::<Vec<_>>();
    let expected = [
        ("p_n_double", "double"),
        ("p_n_long", "long"),
        ("p_plan_long", "long"),
        ("p_plan_string", "string"),
    ];
    assert_eq!(columns, expected);
    // The files have field ids, so no names have to be mapped.
    assert_eq!(tables.metadata("events")["properties"].get("schema.name-mapping.default"), None);
    // A process whose clock is behind.
    place.segment(4, &["bob"], json!({})).await;
    assert!(place.publisher().publish_at(NOW - MINUTE).await.unwrap().events);
    let late = publisher.publish_at(NOW + 11 * MINUTE).await.unwrap();
    assert_eq!(late, Publication { events: false, persons: true });
}

#[tokio::test]
async fn merged_segments_replace_their_inputs() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    for round in 0..4 {
        place.segment(round * 10, &["ada", "bob"], json!({"round": 1})).await;
        publisher.publish_at(NOW).await.unwrap();
    }
    assert_eq!(tables.segments().len(), 4);
    let before = tables.metadata("events");
    place.events.merge_segments(PROJECT, NOW, MergeMode::Fewest).await.unwrap();
    assert!(publisher.publish_at(NOW).await.unwrap().events);
    assert_eq!(tables.segments().len(), 1);
    assert_eq!(tables.segments(), place.live().await);
    let after = tables.metadata("events");
    assert_eq!(after["table-uuid"], before["table-uuid"]);
    assert_eq!(after["current-schema-id"], before["current-schema-id"]);
    assert_eq!(after["snapshots"][0]["summary"]["total-records"], "8");
    // When the segments are deleted, nothing names them.
    place.events.sweep(PROJECT, NOW + GRACE_MICROS).await.unwrap();
    assert_eq!(tables.segments().len(), 1);
}

#[tokio::test]
async fn persons_have_their_current_ids() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    place.segment(1, &["ada", "ada@home", "bob"], json!({})).await;
    publisher.publish_at(NOW).await.unwrap();
    let id = |who: &str| derive_person_id(PROJECT, who);
    for (who, (person, current, properties)) in tables.persons() {
        assert_eq!((person, current, properties), (id(&who), id(&who), json!({})));
    }
    assert_eq!(tables.persons().len(), 3);
    place.person(&["ada", "ada@home", "ada@work"], json!({"vip": true})).await;
    assert_eq!(publisher.publish_at(NOW + MINUTE).await.unwrap(), NONE, "they wait for the ten minutes");
    let published =
        publisher.publish(PROJECT, PublicationMode::AtOnce, &|| NOW + MINUTE, Duration::MAX).await;
    assert_eq!(published.unwrap(), Publication { events: false, persons: true });
    let persons = tables.persons();
    for who in ["ada", "ada@home", "ada@work"] {
        assert_eq!(persons[who], (id(who), id("ada"), json!({"vip": true})));
    }
    assert_eq!(persons["bob"], (id("bob"), id("bob"), json!({})));
}

#[tokio::test]
async fn captured_merges_are_published_after_ten_minutes() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    place.segment(1, &["device-1", "ada"], json!({})).await;
    publisher.publish_at(NOW).await.unwrap();
    let identify = Event {
        event: "$identify".to_owned(),
        ..event(3, "ada", json!({"$anon_distinct_id": "device-1", "$set": {"name": "Ada"}}))
    };
    // Merges count before the event that requests them is compacted.
    place.events.append(PROJECT, &[identify], NOW).await.unwrap();
    assert_eq!(publisher.publish_at(NOW + MINUTE).await.unwrap(), NONE);
    let published = publisher.publish_at(NOW + 10 * MINUTE).await.unwrap();
    assert_eq!(published, Publication { events: false, persons: true });
    let current = place.events.canonical_persons(PROJECT).await.unwrap();
    let persons = tables.persons();
    for (person, now, properties) in persons.values() {
        assert_eq!((*now, &properties["name"]), (current.of(*person), &json!("Ada")));
    }
    assert_eq!(persons["ada"].1, persons["device-1"].1);
    // Segments that were written under the earlier ids are in the table as they are.
    assert_eq!(tables.segments(), place.live().await);
}

#[tokio::test]
async fn a_moved_directory_is_published_with_its_new_locations() {
    let place = Place::new().await;
    place.segment(1, &["ada"], json!({})).await;
    place.publisher().publish_at(NOW).await.unwrap();
    let moved = place.directory.path().join("moved");
    std::fs::rename(place.root(), &moved).unwrap();
    let publisher = TablePublisher::new(open(&place.store, &moved));
    assert_eq!(publisher.publish_at(NOW).await.unwrap(), BOTH);
    let stored = std::fs::read_to_string(
        moved.join(format!("iceberg/project={PROJECT}/events/metadata/v2.metadata.json")),
    );
    let stored: serde_json::Value = serde_json::from_str(&stored.unwrap()).unwrap();
    let location = format!("file://{}/iceberg/project={PROJECT}/events", moved.display());
    assert_eq!(stored["location"], location);
}

#[tokio::test]
async fn publishers_at_once_end_with_the_newest_version() {
    let place = Place::new().await;
    let tables = place.tables();
    let publishers = [place.publisher(), place.publisher(), place.publisher()];
    for round in 0..6_u128 {
        place.segment(round * 10, &["ada", "bob"], json!({})).await;
        let runs = publishers.iter().map(|publisher| publisher.publish_at(NOW));
        let runs = futures::future::join_all(runs).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
        assert!(runs.iter().filter(|run| run.events).count() == 1, "{runs:?}");
        assert_eq!(tables.segments(), place.live().await);
        assert_eq!(tables.version("events"), Some(round as u64 + 1));
    }
    // What those that were slower wrote is deleted again.
    let versions = tables.files().iter().filter(|file| file.ends_with("list.avro")).count();
    assert!(versions <= 12, "{versions}");
}

#[tokio::test]
async fn a_publisher_that_slept_continues_after_the_newest_version() {
    let place = Place::new().await;
    let (idle, awake, tables) = (place.publisher(), place.publisher(), place.tables());
    place.segment(1, &["ada"], json!({})).await;
    assert_eq!(idle.publish_at(NOW).await.unwrap(), BOTH);
    let mut at = NOW;
    for round in 2..=4 {
        at += 11 * MINUTE;
        place.segment(round, &["ada"], json!({})).await;
        assert!(awake.publish_at(at).await.unwrap().events);
    }
    at += 11 * MINUTE;
    awake.publish_at(at).await.unwrap();
    let second = tables.folder("events").join("metadata/v2.metadata.json");
    assert!(!second.exists(), "the number is free again");
    place.segment(5, &["bob"], json!({})).await;
    assert_eq!(idle.publish_at(at).await.unwrap(), BOTH);
    assert_eq!((tables.version("events"), tables.version("persons")), (Some(5), Some(5)));
    assert!(!second.exists());
    assert_eq!(tables.segments(), place.live().await);
    assert_eq!(tables.persons().len(), 2);
}

#[tokio::test]
async fn events_are_published_and_files_removed_when_persons_cannot_be() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    let mut at = NOW;
    for uuid in 1..=2 {
        place.segment(uuid, &["ada"], json!({})).await;
        publisher.publish_at(at).await.unwrap();
        at += 11 * MINUTE;
    }
    place.segment(3, &["bob"], json!({})).await;
    for file in place.object_files("project=7/events") {
        if file.to_str().unwrap().ends_with(".ids.parquet") {
            std::fs::write(&file, "damaged").unwrap();
        }
    }
    let other = place.publisher();
    assert!(other.publish_at(at).await.is_err());
    assert_eq!((tables.version("events"), tables.version("persons")), (Some(3), Some(2)));
    assert_eq!(tables.segments(), place.live().await);
    assert!(
        !tables.folder("persons").join("metadata/v1.metadata.json").exists(),
        "replaced eleven minutes ago"
    );
    assert_eq!(tables.persons().len(), 1, "the last version stays");
}

#[tokio::test]
async fn persons_are_left_alone_without_time_and_after_tasks() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    place.segment(1, &["ada"], json!({})).await;
    let events_only = publisher.publish(PROJECT, PublicationMode::EventsOnly, &|| NOW, Duration::MAX).await;
    assert_eq!(events_only.unwrap(), Publication { events: true, persons: false });
    assert_eq!(tables.version("persons"), None);
    let files = tables.files();
    assert!(publisher.publish(PROJECT, PublicationMode::Regular, &|| NOW, Duration::ZERO).await.is_err());
    assert_eq!(tables.files(), files);
    assert!(publisher.publish_at(NOW).await.unwrap().persons);
}

#[tokio::test]
async fn a_version_is_replaced_when_the_next_one_is_published() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    place.segment(1, &["ada"], json!({})).await;
    publisher.publish_at(NOW).await.unwrap();
    place.segment(2, &["bob"], json!({})).await;
    // Collecting the content takes time.
    let clock = AtomicI64::new(NOW);
    let now = || clock.fetch_add(MINUTE, Ordering::Relaxed);
    publisher.publish(PROJECT, PublicationMode::EventsOnly, &now, Duration::MAX).await.unwrap();
    let metadata = tables.metadata("events");
    let files = metadata["properties"]["pennon.files"].as_str().unwrap();
    let files: serde_json::Value = serde_json::from_str(files).unwrap();
    let replaced = files["replaced"].as_array().unwrap();
    assert_eq!(replaced.len(), 3);
    assert!(replaced.iter().all(|file| file["at"].as_i64().unwrap() >= NOW + 2 * MINUTE), "{replaced:?}");
}

/// Work that is aborted after `left` waits, like a process that is killed between two steps.
struct CutOff<F> {
    work: Pin<Box<F>>,
    left: usize,
}

impl<F: Future> Future for CutOff<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.work.as_mut().poll(context).map(Some)
    }
}

#[tokio::test]
async fn a_publisher_that_stops_anywhere_leaves_a_version() {
    for waits in 1.. {
        let place = Place::new().await;
        let tables = place.tables();
        place.segment(1, &["ada"], json!({})).await;
        place.publisher().publish_at(NOW).await.unwrap();
        let before = place.live().await;
        place.segment(2, &["bob"], json!({})).await;
        let later = NOW + 11 * MINUTE;
        let publisher = place.publisher();
        let done = CutOff { work: Box::pin(publisher.publish_at(later)), left: waits }.await;
        let segments = tables.segments();
        assert!(segments == before || segments == place.live().await, "{segments:?}");
        assert!([1, 2].contains(&tables.persons().len()));

        place.publisher().publish_at(later).await.unwrap();
        assert_eq!(tables.segments(), place.live().await);
        assert_eq!(tables.persons().len(), 2);
        if done.is_some() {
            assert!(waits > 20, "{waits}");
            return;
        }
    }
}
