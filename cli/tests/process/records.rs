//! `pennon check --records` beside a running server and on its files.

use pennon_core::store::keys;
use serde_json::{Value, json};

use super::{Server, pennon, text};

#[test]
fn the_records_of_a_first_start_agree_and_a_removed_row_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let beside = pennon(&["check", "--records"], directory.path());
    assert!(beside.status.success(), "{}{}", text(&beside.stdout), text(&beside.stderr));
    assert_eq!(server.stop(), 0);
    let alone = pennon(&["check", "--records", "--json"], directory.path());
    assert!(alone.status.success(), "{}", text(&alone.stderr));
    let report: Value = serde_json::from_slice(&alone.stdout).unwrap();
    assert_eq!(report["findings"], json!([]));
    let project = &report["projects"][0];
    assert_eq!((&project["project"], &project["checksums_compared"]), (&json!(1), &json!(true)));
    // At least record, summary row, activity entry and its pointer of 3 flags and 7 insights.
    assert!(project["rows"].as_u64() >= Some(40), "{report}");

    let claim = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = pennon::embedded::Embedded::open(directory.path()).await.unwrap().store(None);
        let query = pennon_core::store::PartitionQuery::partition(keys::flag_keys_pk(1)).limit(1);
        let claim = store.records.query(query).await.unwrap().remove(0).key;
        store.records.sweep(vec![claim.clone()]).await.unwrap();
        claim
    });
    let damaged = pennon(&["check", "--records", "--project", "1"], directory.path());
    assert_eq!(damaged.status.code(), Some(1));
    let line =
        format!("project 1: {}/{}: is missing: the row of the key of PROJECT#1#FLAG/", claim.pk, claim.sk);
    assert!(text(&damaged.stdout).starts_with(&line), "{}", text(&damaged.stdout));
    assert_eq!(text(&damaged.stderr), "pennon: one row violates an invariant\n");
    let report = pennon(&["check", "--records", "--json"], directory.path()).stdout;
    let report: Value = serde_json::from_slice(&report).unwrap();
    let finding = &report["findings"][0];
    assert_eq!((&finding["project"], &finding["rule"]), (&json!(1), &json!("unique_row")));
    assert_eq!(finding["row"], json!({"pk": claim.pk, "sk": claim.sk}));

    let unknown = pennon(&["check", "--records", "--project", "77"], directory.path());
    assert!(text(&unknown.stderr).contains("there is no project 77"), "{}", text(&unknown.stderr));
    let both = pennon(&["check", "--records", "--lift"], directory.path());
    assert_eq!(both.status.code(), Some(2));
}
