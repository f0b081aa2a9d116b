//! Generated calls over a store that throttles, fails, times out, conflicts, resets connections, and processes parts of batches: every
//! response is documented, acknowledged writes are there, refused ones are not, and afterwards all records agree with each other.
//!
//! `PENNON_FAULT_SEEDS` is the number of seeds; `PENNON_FAULT_SEED` repeats one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use pennon::record_check::check_records;
use pennon_tests::generated_calls::{ROLES, Session, worker_time};
use pennon_tests::{Fault, Faults, TestApp};
use serde_json::{Value, json};

/// Seeds that share one installation, each in its own project.
const SEEDS_OF_INSTALLATION: usize = 100;
/// Installations at the same time. A database runs one call at a time, so one installation keeps one core busy.
const INSTALLATIONS: usize = 2;
/// Clients of an installation that make calls at the same time.
const CLIENTS: usize = 32;
/// The number of the first project.
const FIRST_PROJECT: u64 = 1000;
const ORG: &str = "01900000-0000-7000-8000-000000000001";

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn seeds() -> Vec<u64> {
    match variable("PENNON_FAULT_SEED") {
        Some(seed) => vec![seed],
        None => (0..variable("PENNON_FAULT_SEEDS").unwrap_or(200)).collect(),
    }
}

fn project_of(seed: u64) -> u64 {
    FIRST_PROJECT + seed
}

async fn installation(seeds: &[u64]) -> TestApp {
    let project = |seed: &u64| {
        let id = project_of(*seed);
        json!({"id": id.to_string(), "organization": ORG, "name": format!("P{id}"), "token": format!("phc_{id}")})
    };
    let role = |id: &&str| json!({"id": id, "organization": ORG, "name": format!("Role {id}"), "feature_flags_access_level": 37, "members": []});
    let projects: Vec<Value> = seeds.iter().map(project).collect();
    let roles: Vec<Value> = ROLES.iter().map(role).collect();
    // Clients without faults read the file without the SDK, which takes a tenth of the time.
    TestApp::in_file_with(json!({"projects": projects, "roles": roles})).await
}

/// What the calls of a seed met.
struct Outcome {
    seed: u64,
    session: Session,
    faults: BTreeMap<Fault, usize>,
}

/// Makes the calls of a seed, and checks what the API shows afterwards. A failure names the seed.
async fn run(app: Arc<TestApp>, seed: u64) -> Outcome {
    let calls = tokio::spawn(async move {
        let faults = Faults::of_all_kinds(seed);
        let mut session = Session::new(&app, &faults, project_of(seed), seed);
        session.run().await;
        faults.stop();
        session.check_state(&app).await;
        Outcome { seed, session, faults: faults.counts() }
    });
    calls.await.unwrap_or_else(|error| panic!("PENNON_FAULT_SEED={seed} repeats this failure: {error}"))
}

/// Checks the rows of an installation when no client writes.
async fn check_rows(app: &TestApp, outcomes: &[Outcome]) {
    let records = &app.services.app.store.records;
    let report = check_records(records, None, worker_time()).await.unwrap();
    let Some(first) = report.findings.first() else { return };
    let outcome = outcomes.iter().find(|outcome| first.project == Some(project_of(outcome.seed)));
    let seed = outcome.map(|outcome| outcome.seed);
    let log = outcome.map_or(String::new(), |outcome| outcome.session.log.join("\n"));
    let lines: Vec<String> = report.findings.iter().map(|finding| finding.line()).collect();
    panic!("PENNON_FAULT_SEED={seed:?} repeats this failure: {}\n{log}", lines.join("\n"));
}

/// Makes the calls of all seeds over one installation, and checks its rows afterwards.
async fn run_all(seeds: Vec<u64>) -> Vec<Outcome> {
    let app = Arc::new(installation(&seeds).await);
    let runs = seeds.iter().map(|seed| run(app.clone(), *seed)).collect::<Vec<_>>();
    let outcomes: Vec<Outcome> = futures::stream::iter(runs).buffer_unordered(CLIENTS).collect().await;
    check_rows(&app, &outcomes).await;
    outcomes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_calls_over_a_failing_store() {
    let seeds = seeds();
    let (mut statuses, mut faults) = (BTreeMap::<u16, usize>::new(), BTreeMap::<Fault, usize>::new());
    let runs = seeds.chunks(SEEDS_OF_INSTALLATION).map(|seeds| run_all(seeds.to_vec()));
    let mut runs = futures::stream::iter(runs.collect::<Vec<_>>()).buffer_unordered(INSTALLATIONS);
    while let Some(outcomes) = runs.next().await {
        let mut ids = BTreeSet::new();
        for outcome in outcomes {
            for (kind, id) in outcome.session.ids() {
                assert!(ids.insert((kind, id)), "the id {id} of {kind:?} was assigned twice");
            }
            for (status, count) in &outcome.session.statuses {
                *statuses.entry(*status).or_default() += count;
            }
            for (fault, count) in outcome.faults {
                *faults.entry(fault).or_default() += count;
            }
        }
    }
    eprintln!("{} seeds, responses {statuses:?}, faults {faults:?}", seeds.len());
    if seeds.len() >= SEEDS_OF_INSTALLATION {
        for fault in Faults::all_kinds() {
            assert!(faults.contains_key(&fault), "no {fault:?} among {faults:?}");
        }
        for status in [200, 201, 204, 400, 404, 503] {
            assert!(statuses.contains_key(&status), "no {status} among {statuses:?}");
        }
    }
}
