//! Many clients at once: every call is recorded, and one order of writes must explain all of them.
//!
//! `PENNON_HISTORY_OPERATIONS` sets how many random calls are made, half of them over a failing store;
//! `PENNON_HISTORY_SEED` repeats a run's choices.

use std::collections::BTreeMap;
use std::sync::Arc;

use pennon_tests::history::clients::{Recorder, run};
use pennon_tests::history::{Fields, History, Outcome, Request, check};
use pennon_tests::history_run::{assert_no_findings, operations, seed};
use pennon_tests::{Faults, TestApp};
use serde_json::{Value, json};

const CLIENTS: usize = 32;

fn fields(value: Value) -> Fields {
    value.as_object().cloned().unwrap()
}

/// The number of responses of each kind.
fn tally(history: &History) -> BTreeMap<&'static str, usize> {
    let mut tally = BTreeMap::new();
    for call in &history.calls {
        let word = match &call.outcome {
            Outcome::Flag(_) => "flag",
            Outcome::Flags(_) => "list",
            Outcome::KeyExists => "taken",
            Outcome::Conflict => "conflict",
            Outcome::Missing => "missing",
            Outcome::Busy => "busy",
            Outcome::Other(..) => "other",
        };
        *tally.entry(word).or_default() += 1;
    }
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_calls_of_many_clients_are_explained_by_one_order() {
    let (seed, operations) = (seed(), operations());
    let recorder = Recorder::new(TestApp::new().await);
    run(&recorder, seed, CLIENTS, operations).await;
    let history = recorder.history().await;
    assert_no_findings(&check(&history), seed);
    let tally = tally(&history);
    eprintln!("seed {seed}: {tally:?}, {} calls of the store", recorder.app().round_trips.calls().len());
    for word in ["flag", "list", "taken"] {
        assert!(tally.contains_key(word), "seed {seed}: no response was {word}: {tally:?}");
    }
    let busy = tally.get("busy").copied().unwrap_or_default();
    assert!(busy * 50 <= operations, "seed {seed}: {busy} of {operations} calls got a 503");
}

/// Like a local server: without the SDK, several transactions per commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_calls_on_a_file_are_explained_by_one_order() {
    let (seed, operations) = (seed(), operations());
    let recorder = Recorder::new(TestApp::in_file().await);
    run(&recorder, seed, CLIENTS, operations).await;
    assert_no_findings(&check(&recorder.history().await), seed);
    assert_eq!(recorder.app().round_trips.calls().len(), 0, "nothing went through the SDK");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_calls_over_a_failing_store_are_explained_by_one_order() {
    let (seed, operations) = (seed(), operations());
    let faults = Faults::of_histories(seed);
    let recorder = Recorder::new(TestApp::failing(&faults).await);
    run(&recorder, seed, CLIENTS, operations).await;
    faults.stop();
    let history = recorder.history().await;
    assert_no_findings(&check(&history), seed);
    let met = faults.assert_all_occurred(seed);
    eprintln!("seed {seed}: {:?}, faults {met:?}", tally(&history));
}

/// Makes the calls side by side; returns the response to each.
async fn together(recorder: &Arc<Recorder>, requests: Vec<Request>) -> Vec<Outcome> {
    let tasks: Vec<_> = requests
        .into_iter()
        .enumerate()
        .map(|(user, request)| {
            let recorder = recorder.clone();
            tokio::spawn(async move { recorder.call(user, request).await })
        })
        .collect();
    let mut outcome = Vec::new();
    for task in tasks {
        outcome.push(task.await.unwrap());
    }
    outcome
}

fn create(key: &str) -> Request {
    Request::Create(fields(json!({"key": key, "filters": {"groups": [{"properties": []}]}})))
}

fn id_of(outcome: &Outcome) -> u64 {
    let Outcome::Flag(fields) = outcome else { panic!("no flag: {outcome:?}") };
    fields["id"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_concurrent_creates_of_a_key_succeeds() {
    let recorder = Recorder::new(TestApp::new().await);
    for round in 0..4 {
        let outcome =
            together(&recorder, (0..CLIENTS).map(|_| create(&format!("key-{round}"))).collect()).await;
        let won = outcome.iter().filter(|outcome| matches!(outcome, Outcome::Flag(_))).count();
        let taken = outcome.iter().filter(|outcome| matches!(outcome, Outcome::KeyExists)).count();
        assert_eq!((won, taken), (1, CLIENTS - 1), "{outcome:?}");
    }
    assert_no_findings(&check(&recorder.history().await), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_of_different_fields_are_all_kept() {
    let recorder = Recorder::new(TestApp::new().await);
    for round in 0..4 {
        let flag = id_of(&recorder.call(0, create(&format!("key-{round}"))).await);
        let sent = [
            json!({"name": "n"}),
            json!({"tags": ["t"]}),
            json!({"active": false}),
            json!({"rollback_conditions": [1]}),
            json!({"filters": {"groups": [{"properties": [], "rollout_percentage": 7}]}}),
            json!({"key": format!("renamed-{round}")}),
            json!({"ensure_experience_continuity": true}),
            json!({"has_enriched_analytics": true}),
        ];
        let changes = sent.iter().cloned();
        let changes = changes.map(|sent| Request::Change { flag, fields: fields(sent), edited: None });
        let outcome = together(&recorder, changes.collect()).await;
        assert!(outcome.iter().all(|outcome| matches!(outcome, Outcome::Flag(_))), "{outcome:?}");
        let path = format!("/api/projects/1/feature_flags/{flag}/");
        let kept = recorder.app().get(&path).await.expect(200);
        assert_eq!(kept["version"], 1 + sent.len());
        for (name, value) in sent.iter().flat_map(|sent| sent.as_object().unwrap()) {
            assert_eq!(&kept[name], value, "{name}");
        }
    }
}

/// Every client sends the version of the same record: one of those that change the same field succeeds, and changes of
/// other fields do not conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_concurrent_edits_of_a_field_succeeds() {
    let recorder = Recorder::new(TestApp::new().await);
    let flag = id_of(&recorder.call(0, create("edited")).await);
    for round in 0..4 {
        let Outcome::Flag(original) = recorder.call(0, Request::Read(flag)).await else { panic!("no flag") };
        let edits = (0..CLIENTS).map(|client| {
            let sent = match client {
                0 => json!({"tags": [format!("tag-{round}")]}),
                _ => json!({"name": format!("{round}-{client}")}),
            };
            Request::Change { flag, fields: fields(sent), edited: Some(original.clone()) }
        });
        let outcome = together(&recorder, edits.collect()).await;
        assert!(matches!(outcome[0], Outcome::Flag(_)), "{:?}", outcome[0]);
        let won = outcome[1..].iter().filter(|outcome| matches!(outcome, Outcome::Flag(_))).count();
        let refused = outcome[1..].iter().filter(|outcome| matches!(outcome, Outcome::Conflict)).count();
        assert_eq!((won, refused), (1, CLIENTS - 2), "{outcome:?}");
    }
    assert_no_findings(&check(&recorder.history().await), 0);
}

/// A deleted flag is restored while others create flags with its key: never two live flags, and the loser gets an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deleting_creating_and_restoring_race_for_a_key() {
    let recorder = Recorder::new(TestApp::new().await);
    for round in 0..12 {
        let key = format!("key-{}", round % 3);
        let made = recorder.call(0, create(&key)).await;
        let Outcome::Flag(made) = made else { continue };
        let flag = made["id"].as_u64().unwrap();
        let change = |sent: Value| Request::Change { flag, fields: fields(sent), edited: None };
        let outcome = together(
            &recorder,
            (0..12)
                .map(|client| match client % 4 {
                    0 => change(json!({"deleted": true})),
                    1 => create(&key),
                    2 => change(json!({"deleted": false})),
                    _ => Request::List,
                })
                .collect(),
        )
        .await;
        assert!(!outcome.iter().any(|outcome| matches!(outcome, Outcome::Other(..))), "{outcome:?}");
    }
    assert_no_findings(&check(&recorder.history().await), 0);
}

/// A flag is switched off or deleted while others add a dependency on it: finally no active flag depends on one that is
/// not active, whichever write was first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn flags_with_new_dependents_are_not_switched_off_or_deleted() {
    let recorder = Recorder::new(TestApp::new().await);
    let flags = "/api/projects/1/feature_flags/";
    for round in 0..12 {
        let base = id_of(&recorder.call(0, create(&format!("base-{round}"))).await);
        let other = id_of(&recorder.call(0, create(&format!("other-{round}"))).await);
        let change = |flag, sent: Value| Request::Change { flag, fields: fields(sent), edited: None };
        let on_base =
            json!({"type": "flag", "key": base.to_string(), "operator": "flag_evaluates_to", "value": true});
        let filters = json!({"groups": [{"properties": [on_base]}]});
        let stop = if round % 2 == 0 { json!({"deleted": true}) } else { json!({"active": false}) };
        let dependent = Request::Create(fields(json!({"key": format!("new-{round}"), "filters": filters})));
        // Clients 0 and 2 are served by different processes.
        let mut requests = vec![
            change(base, stop.clone()),
            dependent,
            change(other, json!({"filters": filters})),
            change(base, stop),
        ];
        if round % 3 == 0 {
            requests.reverse();
        }
        together(&recorder, requests).await;
        let base = recorder.app().get(&format!("{flags}{base}/")).await.expect(200);
        let all = recorder.app().get(&format!("{flags}?limit=1000")).await.expect(200);
        let stands = base["active"] == true && base["deleted"] == false;
        let depend =
            all["results"].as_array().unwrap().iter().filter(|flag| flag["filters"] == filters).count();
        assert!(stands || depend == 0, "round {round}: {depend} flags depend on {base}");
        assert!(!stands || depend > 0, "round {round}: all dependents were rejected without a reason");
    }
}
