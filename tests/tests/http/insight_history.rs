//! Many clients at once, about a few insights: every call is recorded, and one order of writes must explain all of them.
//!
//! `PENNON_HISTORY_OPERATIONS` sets how many random calls are made, half of them over a failing store;
//! `PENNON_HISTORY_SEED` repeats a run's choices.

use pennon_tests::history_run::{assert_no_findings, operations, seed};
use pennon_tests::insight_history::clients::{Recorder, run, workspace};
use pennon_tests::insight_history::{History, Outcome, Request, check};
use pennon_tests::{Faults, TestApp};

const CLIENTS: usize = 32;

/// Responses of a kind.
fn count(history: &History, is: fn(&Outcome) -> bool) -> usize {
    history.calls.iter().filter(|call| is(&call.outcome)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_calls_of_many_clients_are_explained_by_one_order() {
    let (seed, operations) = (seed(), operations());
    let recorder = Recorder::new(TestApp::with(workspace()).await).await;
    run(&recorder, seed, CLIENTS, operations).await;
    let history = recorder.history().await;
    assert_no_findings(&check(&history), seed);
    let busy = count(&history, |outcome| *outcome == Outcome::Busy);
    let missing = count(&history, |outcome| *outcome == Outcome::Missing);
    eprintln!(
        "seed {seed}: {operations} calls, {missing} missing, {busy} busy, {} entries",
        history.stored.entries.len()
    );
    assert!(missing > 0, "seed {seed}: no insight was ever met deleted");
    assert!(busy * 50 <= operations, "seed {seed}: {busy} of {operations} calls got a 503");
}

/// As a local server reads and writes: without the SDK, several transactions to a commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_calls_on_a_file_are_explained_by_one_order() {
    let (seed, operations) = (seed(), operations());
    let app = TestApp::in_file_with(workspace()).await;
    let recorder = Recorder::new(app).await;
    run(&recorder, seed, CLIENTS, operations).await;
    assert_no_findings(&check(&recorder.history().await), seed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_calls_over_a_failing_store_are_explained_by_one_order() {
    let (seed, operations) = (seed(), operations());
    let faults = Faults::of_histories(seed);
    let recorder = Recorder::new(TestApp::failing_with(&faults, workspace()).await).await;
    run(&recorder, seed, CLIENTS, operations).await;
    faults.stop();
    let history = recorder.history().await;
    assert_no_findings(&check(&history), seed);
    let met = faults.assert_all_occurred(seed);
    eprintln!("seed {seed}: {} busy, faults {met:?}", count(&history, |outcome| *outcome == Outcome::Busy));
}

/// The checker finds the problem of an altered history.
#[tokio::test]
async fn altered_histories_are_rejected() {
    let recorder = Recorder::new(TestApp::with(workspace()).await).await;
    run(&recorder, 7, 4, 200).await;
    let sound = recorder.history().await;
    assert_no_findings(&check(&sound), 7);
    type Spoil = fn(&mut History);
    let spoilt: [(&str, Spoil); 8] = [
        ("a lost entry", |it| drop(it.stored.entries.remove(20))),
        ("a doubled entry", |it| it.stored.entries.push(it.stored.entries[20].clone())),
        ("a lost row", |it| it.stored.rows.truncate(1)),
        ("a wrong sum", |it| it.stored.is_proven = false),
        ("a pointer too many", |it| it.stored.pointers.push((99, 1))),
        ("a lost field", |it| {
            it.stored.records.values_mut().for_each(|record| record["tags"] = "lost".into())
        }),
        ("a view that went back", |it| it.stored.views.values_mut().for_each(|at| *at -= 1)),
        ("an acknowledged change that was lost", |it| {
            let outcome = it
                .calls
                .iter_mut()
                .find(|call| call.outcome == Outcome::Missing && matches!(call.request, Request::Change(..)));
            outcome.unwrap().outcome = Outcome::Insights(Vec::new());
        }),
    ];
    for (what, spoil) in spoilt {
        let mut history = sound.clone();
        spoil(&mut history);
        assert!(!check(&history).is_empty(), "{what} was not found");
    }
}
