//! Unit tests of the object store client.
#![allow(clippy::unwrap_used)]
use pennon_core::store::TlsRoots;

use super::*;

fn open(url: &str) -> Result<Objects, EventStoreError> {
    Objects::open(url, TlsRoots::Machine, None)
}

#[tokio::test]
async fn an_object_is_created_once_and_never_changed() {
    let directory = tempfile::tempdir().unwrap();
    let objects = open(&format!("file://{}/new", directory.path().display())).unwrap();
    objects.create("a/b", Bytes::from_static(b"one")).await.unwrap();
    // Sent again because the response was lost.
    objects.create("a/b", Bytes::from_static(b"one")).await.unwrap();
    assert!(objects.create("a/b", Bytes::from_static(b"two")).await.is_err());
    assert!(objects.create("a/b", Bytes::from_static(b"ones")).await.is_err());
    assert_eq!(objects.get("a/b").await.unwrap(), "one");
    assert_eq!(objects.ranges("a/b", &[0..1, 1..3, 1..1, 0..2]).await.unwrap(), ["o", "ne", "", "on"]);
    let listed = objects.list("a").await.unwrap();
    let mut names = listed.iter().map(|found| (found.name.as_str(), found.bytes > 0)).collect::<Vec<_>>();
    names.sort_unstable();
    assert_eq!(names, [("a/b", true), ("a/b.sums", true)]);
    for _ in 0..2 {
        objects.delete_all(vec!["a/b".to_owned()]).await.unwrap();
    }
    assert_eq!(objects.list("a").await.unwrap(), []);
}

#[test]
fn a_bucket_is_opened_whatever_its_connections_trust() {
    for roots in [TlsRoots::Machine, TlsRoots::Amazon] {
        assert!(Objects::open("s3://bucket/prefix", roots, None).is_ok(), "{roots:?}");
    }
}

#[test]
fn other_addresses_are_refused() {
    for url in ["", "/tmp", "file://here", "gs://bucket"] {
        assert!(matches!(open(url), Err(EventStoreError::Location(_))), "{url}");
    }
}

#[test]
fn ranges_with_a_gap_of_at_most_a_mebibyte_are_one_request() {
    const MIB: u64 = 1 << 20;
    assert_eq!(gets_of(&[]), 0);
    assert_eq!(gets_of(std::slice::from_ref(&(5..9))), 1);
    assert_eq!(gets_of(&[0..10, 10..20, 20 + MIB..30 + MIB]), 1);
    assert_eq!(gets_of(&[0..10, 11 + MIB..20 + MIB, 3 * MIB..4 * MIB]), 3);
}
