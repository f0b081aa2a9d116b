//! Removal: files of replaced versions, of publishers that stopped, of erased data, and of tables that nothing publishes.

use std::path::PathBuf;

use pennon_eventstore::{ErasureTarget, GRACE_MICROS, ORPHANED_MICROS};
use pennon_iceberg::PublicationMode;
use serde_json::json;

use crate::support::{MINUTE, NOW, PROJECT, Place, PublishAt, Tables, persons_of};

/// The persons data files below the folder, those of no version included.
fn persons_files(tables: &Tables) -> Vec<PathBuf> {
    tables.files().into_iter().filter(|file| file.extension().is_some_and(|end| end == "parquet")).collect()
}

#[tokio::test]
async fn files_of_replaced_versions_are_deleted_after_ten_minutes() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    place.segment(1, &["ada"], json!({})).await;
    publisher.publish_at(NOW).await.unwrap();
    place.segment(2, &["bob"], json!({})).await;
    let second = NOW + 11 * MINUTE;
    publisher.publish_at(second).await.unwrap();
    assert_eq!(tables.files().len(), 16, "both versions, and the hints");
    publisher.publish_at(second + GRACE_MICROS - 1).await.unwrap();
    assert_eq!(tables.files().len(), 16);
    // Another process knows from the metadata what is left to delete.
    place.publisher().publish_at(second + GRACE_MICROS).await.unwrap();
    assert_eq!(tables.files().len(), 9);
    assert_eq!(tables.segments().len(), 2);
    assert_eq!(tables.persons().len(), 2);

    // The same without publication.
    place.segment(3, &["eve"], json!({})).await;
    let third = second + 22 * MINUTE;
    publisher.publish_at(third).await.unwrap();
    place.segment(4, &["eve"], json!({})).await;
    place.publisher().remove_replaced(PROJECT, third + GRACE_MICROS).await.unwrap();
    assert_eq!(tables.files().len(), 9);
    assert_eq!(tables.segments().len(), 3);
}

#[tokio::test]
async fn erased_persons_are_in_no_file_after_ten_minutes() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    place.segment(1, &["ada", "bob"], json!({"$set": {"name": "x"}})).await;
    publisher.publish_at(NOW).await.unwrap();
    let erased_at = NOW + MINUTE;
    let target = ErasureTarget::Person("ada".to_owned());
    place.events.erase(PROJECT, &target, &|| erased_at).await.unwrap();
    let published = place.publisher().republish_at(erased_at).await.unwrap().unwrap();
    assert!(published.events && published.persons);
    assert_eq!(tables.segments(), place.live().await);
    assert_eq!(tables.persons().into_keys().collect::<Vec<_>>(), ["bob"]);
    assert_eq!(persons_files(&tables).len(), 2, "readers may still use the old one");
    place.publisher().publish_at(erased_at + GRACE_MICROS).await.unwrap();
    for file in persons_files(&tables) {
        assert!(persons_of(&file).iter().all(|(who, _)| who != "ada"));
    }
    assert_eq!(persons_files(&tables).len(), 1);
}

#[tokio::test]
async fn an_erasure_leaves_no_column_and_no_file_of_a_publisher_that_stopped() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    place.segment(1, &["ada"], json!({"illness": "x"})).await;
    place.segment(2, &["bob"], json!({"plan": "free"})).await;
    publisher.publish_at(NOW).await.unwrap();
    assert_eq!(tables.property_columns().len(), 2);
    let left = tables.folder("persons").join("data/left-by-a-crash.parquet");
    std::fs::write(&left, "ada").unwrap();
    let at_once = PublicationMode::AtOnce;
    place.person(&["eve", "eve@home"], json!({})).await;
    assert!(publisher.republish(PROJECT, at_once, &|| NOW).await.unwrap().unwrap().persons);
    assert!(left.exists());
    let target = ErasureTarget::Person("ada".to_owned());
    place.events.erase(PROJECT, &target, &|| NOW).await.unwrap();
    publisher.republish_at(NOW).await.unwrap().unwrap();
    assert_eq!(tables.property_columns(), [("p_plan_string".to_owned(), "string".to_owned())]);
    assert!(!left.exists());
    assert_eq!(persons_files(&tables).len(), 3, "those of replaced versions stay for readers");
    assert_eq!(tables.persons().into_keys().collect::<Vec<_>>(), ["bob", "eve", "eve@home"]);
}

#[tokio::test]
async fn an_erased_project_has_empty_tables() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    assert_eq!(publisher.republish_at(NOW).await.unwrap(), None);
    place.segment(1, &["ada"], json!({"plan": "free"})).await;
    publisher.publish_at(NOW).await.unwrap();
    place.events.erase(PROJECT, &ErasureTarget::Project, &|| NOW).await.unwrap();
    publisher.republish_at(NOW).await.unwrap().unwrap();
    assert!(tables.segments().is_empty() && tables.persons().is_empty());
    assert!(tables.property_columns().is_empty());
}

#[tokio::test]
async fn a_sweep_deletes_old_files_that_no_version_names() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    place.segment(1, &["ada"], json!({})).await;
    publisher.publish_at(NOW).await.unwrap();
    let needed = tables.files();
    let left = tables.folder("persons").join("data/left-by-a-crash.parquet");
    std::fs::write(&left, "x").unwrap();
    let written = std::fs::metadata(&left).unwrap().modified().unwrap();
    let written = written.duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64;
    assert_eq!(publisher.sweep(PROJECT, written + ORPHANED_MICROS - MINUTE).await.unwrap(), 0);
    assert!(left.exists(), "a publisher may be about to name it");
    assert_eq!(publisher.sweep(PROJECT, written + ORPHANED_MICROS + MINUTE).await.unwrap(), 1);
    assert_eq!(tables.files(), needed);
    // The sweep of objects that no manifest names leaves tables alone.
    place.events.claim_installation().await.unwrap();
    place.events.sweep_orphans(PROJECT, written + ORPHANED_MICROS + MINUTE).await.unwrap();
    assert_eq!(tables.files(), needed);
}

#[tokio::test]
async fn a_sweep_deletes_files_where_no_version_was_published() {
    let place = Place::new().await;
    let left = place.tables().folder("persons").join("data/left-by-a-crash.parquet");
    std::fs::create_dir_all(left.parent().unwrap()).unwrap();
    std::fs::write(&left, "x").unwrap();
    let tomorrow = std::time::SystemTime::now() + std::time::Duration::from_secs(86_400 + 60);
    let tomorrow = tomorrow.duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64;
    assert_eq!(place.publisher().sweep(PROJECT, tomorrow).await.unwrap(), 1);
    assert!(!left.exists());
}

#[tokio::test]
async fn unreadable_metadata_is_followed_by_a_table_of_its_own() {
    let place = Place::new().await;
    let tables = place.tables();
    place.segment(1, &["ada"], json!({})).await;
    place.publisher().publish_at(NOW).await.unwrap();
    let uuid = tables.metadata("events")["table-uuid"].clone();
    std::fs::write(tables.folder("events").join("metadata/v1.metadata.json"), "{").unwrap();
    place.publisher().publish_at(NOW).await.unwrap();
    assert_eq!(tables.version("events"), Some(2));
    assert_ne!(tables.metadata("events")["table-uuid"], uuid);
    assert_eq!(tables.segments(), place.live().await);
}

#[tokio::test]
async fn tables_are_removed_as_a_whole() {
    let place = Place::new().await;
    let (publisher, tables) = (place.publisher(), place.tables());
    place.segment(1, &["ada"], json!({})).await;
    publisher.publish_at(NOW).await.unwrap();
    assert_eq!(publisher.remove_tables(PROJECT).await.unwrap(), 9);
    assert!(tables.files().is_empty());
    publisher.publish_at(NOW).await.unwrap();
    assert_eq!(tables.segments(), place.live().await);
}
