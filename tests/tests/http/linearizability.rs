//! Is every history of concurrent calls one that an order explains? By kind of object; over two processes, with and without a failing
//! store.
//!
//! `PENNON_HISTORY_OPERATIONS` sets how many calls are made in all; `PENNON_HISTORY_SEED` repeats a run's choices.

use std::collections::BTreeSet;

use pennon_tests::history_run::{assert_no_findings, seed};
use pennon_tests::linearizability::{
    AccessOp, AccessRet, AccessState, Call, DashboardTiles, EvaluatedFlag, FlagFields, FlagKey, FlagKeyOp,
    FlagKeyOwner, FlagKeyRet, FlagOp, FlagRecord, FlagRet, FlagState, FlagStateOp, InsightRecord,
    Installation, MergedPersons, ObjectKind, PersonOp, PersonRet, PersonState, PersonalKey, RecordOp,
    RecordState, RoleAccess, Scale, TileOp, TileRet, TileState, is_linearizable, run,
};
use pennon_tests::{Faults, TestApp, history_run};

/// Kinds of objects, each with two runs.
const RUNS: u64 = 8 * 2;
const CLIENTS: u64 = 4;
const CALLS: u64 = 6;

fn scale() -> Scale {
    // `operations` is half of the variable: for one of two tests.
    let operations = 2 * history_run::operations() as u64;
    Scale { objects: (operations / RUNS / CLIENTS / CALLS).max(2), clients: CLIENTS, calls: CALLS }
}

async fn check<K: ObjectKind>() {
    let seed = seed();
    let installation = Installation::new(TestApp::with(Installation::workspace()).await);
    assert_no_findings(&run::<K>(&installation, seed, scale()).await, seed);
    let faults = Faults::of_histories(seed);
    let app = TestApp::failing_with(&faults, Installation::workspace()).await;
    let findings = run::<K>(&Installation::new(app), seed, scale()).await;
    faults.stop();
    assert_no_findings(&findings, seed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn flags_are_linearizable() {
    check::<FlagRecord>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_of_flags_have_one_owner() {
    check::<FlagKey>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn accesses_of_roles_are_linearizable() {
    check::<RoleAccess>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn insights_are_linearizable() {
    check::<InsightRecord>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tiles_are_linearizable() {
    check::<DashboardTiles>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn merges_of_persons_are_linearizable() {
    check::<MergedPersons>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn evaluations_are_late_by_no_more_than_promised() {
    check::<EvaluatedFlag>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn api_keys_are_linearizable() {
    check::<PersonalKey>().await;
}

/// A call of a client with its beginning, its end and its response.
fn call<Op, Ret>(client: u64, began: u64, ended: u64, op: Op, ret: impl Into<Option<Ret>>) -> Call<Op, Ret> {
    Call { client, op, ret: ret.into(), began, ended }
}

fn flag(version: u64, name: &str) -> FlagRet {
    FlagRet::Flag(flag_fields(version, name))
}

fn flag_fields(version: u64, name: &str) -> FlagFields {
    FlagFields { version, name: name.to_owned(), active: true }
}

#[track_caller]
fn assert_explained<K: ObjectKind>(state: K::Spec, is_explained: bool, calls: &[Call<K::Op, K::Ret>]) {
    assert_eq!(is_linearizable::<K>(state, calls), is_explained, "{calls:?}");
}

#[test]
fn lost_updates_and_versions_that_go_back_are_found() {
    let check = |is_explained, calls: &[_]| {
        assert_explained::<FlagRecord>(flag_fields(1, "0"), is_explained, calls);
    };
    let first = call(0, 1, 4, FlagOp::Rename(1), flag(2, "1"));
    check(true, &[first.clone(), call(1, 2, 3, FlagOp::Rename(2), flag(3, "2"))]);
    // Both changes have the same version.
    check(false, &[first.clone(), call(1, 2, 3, FlagOp::Rename(2), flag(2, "2"))]);
    // A read that began after the change does not see it.
    check(false, &[first.clone(), call(1, 5, 6, FlagOp::Read, flag(1, "0"))]);
    check(true, &[first.clone(), call(1, 3, 6, FlagOp::Read, flag(1, "0"))]);
    let later = call(1, 5, 6, FlagOp::Read, flag(2, "1"));
    check(false, &[first.clone(), later, call(2, 7, 8, FlagOp::Read, flag(1, "0"))]);
    // An edit of what was overwritten is a conflict, and one without a response may have happened or not.
    let edit = FlagOp::Edit(3, flag_fields(1, "0"));
    check(true, &[first.clone(), call(1, 5, 6, edit.clone(), FlagRet::Conflict)]);
    check(false, &[first.clone(), call(1, 5, 6, edit, flag(3, "3"))]);
    let unknown = call(1, 5, 6, FlagOp::Rename(4), None);
    check(true, &[first.clone(), unknown.clone(), call(2, 7, 8, FlagOp::Read, flag(2, "1"))]);
    check(true, &[first.clone(), unknown.clone(), call(2, 7, 8, FlagOp::Read, flag(3, "4"))]);
    check(false, &[first, unknown, call(2, 7, 8, FlagOp::Read, flag(4, "4"))]);
}

#[test]
fn double_ownership_is_found() {
    let check = |is_explained, calls: &[_]| {
        assert_explained::<FlagKey>(FlagKeyOwner::Free, is_explained, calls);
    };
    let created = call(0, 1, 4, FlagKeyOp::Create, FlagKeyRet::Created(7));
    check(true, &[created.clone(), call(1, 2, 3, FlagKeyOp::Create, FlagKeyRet::Exists)]);
    check(false, &[created.clone(), call(1, 2, 3, FlagKeyOp::Create, FlagKeyRet::Created(8))]);
    check(false, &[created.clone(), call(1, 2, 3, FlagKeyOp::Take(8), FlagKeyRet::Changed)]);
    check(false, &[created.clone(), call(1, 5, 6, FlagKeyOp::Read, FlagKeyRet::Flags(vec![7, 8]))]);
    let deleted = call(1, 5, 6, FlagKeyOp::Delete(7), FlagKeyRet::Changed);
    check(true, &[created.clone(), deleted.clone(), call(2, 7, 8, FlagKeyOp::Take(8), FlagKeyRet::Changed)]);
    // The key is free, but it is refused.
    check(false, &[created, deleted, call(2, 7, 8, FlagKeyOp::Take(8), FlagKeyRet::Exists)]);

    let check = |is_explained, calls: &[_]| {
        assert_explained::<RoleAccess>(AccessState::Absent, is_explained, calls);
    };
    let granted = call(0, 1, 4, AccessOp::Grant, AccessRet::Granted(7));
    check(true, &[granted.clone(), call(1, 2, 3, AccessOp::Grant, AccessRet::Exists)]);
    check(false, &[granted.clone(), call(1, 2, 3, AccessOp::Grant, AccessRet::Granted(8))]);
    let listed = |ids: &[u64]| AccessRet::Listed(ids.to_vec());
    check(false, &[granted.clone(), call(1, 5, 6, AccessOp::List, listed(&[]))]);
    let revoked = call(1, 5, 6, AccessOp::Revoke(7), AccessRet::Revoked);
    check(true, &[granted.clone(), revoked.clone(), call(2, 7, 8, AccessOp::List, listed(&[]))]);
    check(false, &[granted, revoked, call(2, 7, 8, AccessOp::List, listed(&[7]))]);
}

#[test]
fn records_that_come_back_and_tiles_of_one_side_are_found() {
    let name = |text: &str| Some(text.to_owned());
    let deleted = call(0, 1, 2, RecordOp::Delete, Some(None));
    let renamed = call(1, 3, 4, RecordOp::Rename(5), Some(name("5")));
    let calls = [deleted.clone(), renamed];
    assert_explained::<InsightRecord>(RecordState::new("0", true), true, &calls);
    assert_explained::<PersonalKey>(RecordState::new("0", false), false, &calls);
    let calls = [deleted, call(1, 3, 4, RecordOp::Read, Some(name("0")))];
    assert_explained::<InsightRecord>(RecordState::new("0", true), false, &calls);

    let put = call(0, 1, 2, TileOp::Put([true, false]), TileRet::Insight([true, false]));
    let seen = |at, on| [put.clone(), call(1, 3, 4, TileOp::OfDashboard(at), TileRet::Dashboard(on))];
    assert_explained::<DashboardTiles>(TileState::default(), true, &seen(0, true));
    assert_explained::<DashboardTiles>(TileState::default(), false, &seen(0, false));
    assert_explained::<DashboardTiles>(TileState::default(), false, &seen(1, true));
}

#[test]
fn merges_that_disappear_and_reads_later_than_promised_are_found() {
    let ids = |ids: &[usize]| PersonRet::Ids(ids.iter().copied().collect::<BTreeSet<_>>());
    let merged = call(0, 1, 2, PersonOp::Merge(0, 1), PersonRet::Merged);
    let read = |at, seen: &[usize]| call(1, at, at + 1, PersonOp::Read(1), ids(seen));
    let check = |is_explained, calls: &[_]| {
        assert_explained::<MergedPersons>(PersonState::default(), is_explained, calls);
    };
    check(true, &[merged.clone(), read(3, &[0, 1])]);
    check(false, &[merged.clone(), read(3, &[1])]);
    check(false, &[call(0, 1, 6, PersonOp::Merge(0, 1), PersonRet::Merged), read(2, &[0, 1]), read(4, &[1])]);

    let check =
        |is_explained, calls: &[_]| assert_explained::<EvaluatedFlag>(FlagState(true), is_explained, calls);
    let off = call(0, 1, 2, FlagStateOp::SetActive(false), false);
    // Five seconds are five million ticks.
    check(true, &[off.clone(), call(1, 5_000_001, 5_000_005, FlagStateOp::Evaluate, true)]);
    check(false, &[off.clone(), call(1, 5_000_003, 5_000_005, FlagStateOp::Evaluate, true)]);
    check(false, &[off, call(1, 3, 5, FlagStateOp::Define, true)]);
}
