#![allow(clippy::unwrap_used)]

use super::*;
use pennon::embedded::Embedded;

const START: Micros = 1_700_000_000_000_000;

fn request(mode: PublicationMode, clock: Clock<'_>) -> PublicationRequest<'_> {
    PublicationRequest { project: 1, mode, clock, start: Instant::now(), time: Duration::MAX }
}

#[tokio::test]
async fn a_persons_table_ends_ten_minutes_after_there_are_too_many() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::in_memory().await.unwrap().store(None);
    let url = format!("file://{}", folder.path().display());
    let publisher = TablePublisher::new(EventStore::open(store, &url).unwrap());
    let files = async || publisher.files.list("project=1/persons").await.unwrap().len();
    let (now, later) = (|| START, || START + PERSONS_INTERVAL);
    let (request_now, request_later) =
        (request(PublicationMode::Regular, &now), request(PublicationMode::Regular, &later));
    let state = TableState::default;

    let refused = publisher.withdraw_persons(&request_now, None, state()).await.unwrap();
    assert!(refused.is_none());
    // All persons are read again after the interval, or for a command.
    assert!(publisher.is_refused(&request_now));
    assert!(!publisher.is_refused(&request_later));
    assert!(!publisher.is_refused(&request(PublicationMode::AfterErasure, &now)));

    let log = VersionLog::new(publisher.files.clone(), Table::Persons.folder(1));
    let data = format!("{}/data/a.parquet", Table::Persons.folder(1));
    publisher.create(&data, Bytes::from_static(b"a")).await.unwrap();
    let content = TableContent { schema: persons_schema(), files: Vec::new(), written: vec![data.clone()] };
    let former = publisher.commit(&log, None, state(), content, &request_now).await.unwrap().unwrap();
    let withdrawn = publisher.withdraw_persons(&request_now, Some(&former), state()).await.unwrap();
    let (content, empty) = withdrawn.unwrap();
    let last = publisher.commit(&log, Some(former), empty, content, &request_now).await.unwrap().unwrap();
    assert!(publisher.withdraw_persons(&request_now, Some(&last), state()).await.unwrap().is_none());
    assert!(publisher.files.get(&data).await.unwrap().is_some(), "readers may still use it");
    assert!(publisher.withdraw_persons(&request_later, Some(&last), state()).await.unwrap().is_none());
    assert_eq!(files().await, 0);
}

#[tokio::test]
async fn what_a_failed_publication_has_written_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let store = Embedded::in_memory().await.unwrap().store(None);
    let url = format!("file://{}", folder.path().display());
    let publisher = TablePublisher::new(EventStore::open(store, &url).unwrap());
    let now = || START;
    let data = format!("{}/data/a.parquet", Table::Persons.folder(1));
    publisher.create(&data, Bytes::from_static(b"a")).await.unwrap();
    // Its lists cannot be stored.
    let table = folder.path().join("iceberg").join(Table::Persons.folder(1));
    std::fs::write(table.join("metadata"), "no folder").unwrap();
    let log = VersionLog::new(publisher.files.clone(), Table::Persons.folder(1));
    let content = TableContent { schema: persons_schema(), files: Vec::new(), written: vec![data.clone()] };
    let request = request(PublicationMode::Regular, &now);
    assert!(publisher.commit(&log, None, TableState::default(), content, &request).await.is_err());
    assert!(publisher.files.get(&data).await.unwrap().is_none());
}
