//! A write that would make the definitions feed larger than a response is rejected, and no other write is.

use pennon::workspace::{ApplyOptions, Workspace, apply};
use pennon_core::store::keys;
use pennon_tests::{Keys, TestApp, TestResponse, noise};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";
const COHORTS: &str = "/api/projects/1/cohorts/";
const FEED: &str = "/api/projects/1/feature_flags/local_evaluation/";
/// Three quarters of the 6,000,000 bytes that a response may have behind a gateway: it travels as base64.
const MOST: usize = 4_500_000;
const DETAIL: &str = "With this change the definitions of this project's flags would be larger than a response can be: at \
                      most 4500000 bytes compressed and 64000000 as text, from records of 49152 KiB. Long lists of values \
                      and payloads take most of it.";

fn flag(key: &str, seed: u64, bytes: usize) -> Value {
    json!({"key": key, "filters": {"groups": [{"properties": []}], "payloads": {"true": [noise(seed, bytes)]}}})
}

/// The size of a response to a poll.
async fn feed(app: &TestApp) -> usize {
    let mut request = TestApp::request(Keys::OWNER, "GET", FEED, Value::Null);
    request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
    let response = app.send(request).await;
    assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.bytes));
    response.bytes.len()
}

/// The number of flags, and of entries of their log.
async fn counts(app: &TestApp) -> (Value, Value) {
    let flags = app.get(FLAGS).await.expect(200)["count"].clone();
    let entries = app.get("/api/projects/1/feature_flags/activity/").await.expect(200)["count"].clone();
    (flags, entries)
}

/// Creates flags of 240,000 bytes until one is rejected. Returns their number.
async fn fill(app: &TestApp) -> u64 {
    for number in 0_u64.. {
        let response = app.post(FLAGS, flag(&format!("large-{number}"), number, 240_000)).await;
        if response.status == 400 {
            response.expect_invalid("invalid_input", DETAIL, Some("filters"));
            return number;
        }
        response.expect(201);
    }
    unreachable!("a feed has an end")
}

/// Rules of so many bytes, about.
fn rules(seed: u64, bytes: usize) -> Value {
    let values: Vec<String> = (0..bytes / 1_000).map(|at| noise(seed + at as u64, 1_000)).collect();
    let leaf = json!({"key": "email", "type": "person", "operator": "exact", "value": values});
    json!({"properties": {"type": "OR", "values": [{"type": "OR", "values": [leaf]}]}})
}

fn refused(response: &TestResponse) {
    response.expect_invalid("invalid_input", DETAIL, Some("filters"));
}

#[tokio::test]
async fn a_feed_is_filled_up_to_its_maximum_size() {
    let app = TestApp::new().await;
    let large = fill(&app).await;
    // Some 196,000 bytes of each remain when it is packed.
    assert!((20..26).contains(&large), "{large}");
    let mut step = 120_000;
    let mut seed = 1_000;
    while step > 100 {
        let before = counts(&app).await;
        let response = app.post(FLAGS, flag(&format!("small-{seed}"), seed, step)).await;
        if response.status == 400 {
            refused(&response);
            assert_eq!(counts(&app).await, before, "nothing changed");
            step /= 2;
        } else {
            response.expect(201);
            assert!(feed(&app).await <= MOST);
        }
        seed += 1;
    }
    // The smallest flag that was refused has some 500 bytes of its own beside its payload.
    let bytes = feed(&app).await;
    assert!((MOST - 1_000..=MOST).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn in_a_full_project_changes_that_do_not_enlarge_flags_succeed() {
    let app = TestApp::new().await;
    let large = fill(&app).await;
    let id = app.post(FLAGS, flag("one", 500, 10)).await.expect(201)["id"].clone();
    let one = format!("{FLAGS}{id}/");
    refused(&app.patch(&one, json!({"filters": flag("one", 501, 240_000)["filters"]})).await);
    app.patch(&one, json!({"name": "other", "active": false})).await.expect(200);
    let list = app.get(&format!("{FLAGS}?search=large-&limit=1")).await.expect(200);
    let first = format!("{FLAGS}{}/", list["results"][0]["id"]);
    // A different text of the same length, then a shorter one, which frees space.
    app.patch(&first, json!({"filters": flag("x", 502, 240_000)["filters"]})).await.expect(200);
    app.patch(&first, json!({"filters": flag("x", 503, 10)["filters"]})).await.expect(200);
    app.patch(&one, json!({"filters": flag("one", 501, 240_000)["filters"]})).await.expect(200);
    refused(&app.post(FLAGS, flag("next", 504, 240_000)).await);
    // A deletion frees space; a deleted flag is restored only if there is space.
    app.patch(&one, json!({"deleted": true})).await.expect(200);
    app.post(FLAGS, flag("next", 504, 240_000)).await.expect(201);
    refused(&app.patch(&one, json!({"deleted": false})).await);
    assert!(feed(&app).await <= MOST);
    assert!(large > 0);
}

#[tokio::test]
async fn the_counted_size_is_corrected_when_the_feed_is_built() {
    let app = TestApp::new().await;
    let id = app.post(FLAGS, flag("one", 1, 10)).await.expect(201)["id"].clone();
    let one = format!("{FLAGS}{id}/");
    let used = async || {
        let row = app.services.app.store.records.get(&keys::project_version(1)).await.unwrap().unwrap();
        usize::try_from(row.sums.used).unwrap()
    };
    for seed in 0..12 {
        let filters = flag("one", seed, 200_000 - usize::try_from(seed).unwrap())["filters"].clone();
        app.patch(&one, json!({"filters": filters})).await.expect(200);
    }
    assert!(used().await > 2_400_000, "each change is counted");
    let bytes = feed(&app).await;
    assert_eq!(used().await, bytes, "and then what is there");
    assert!(bytes < 200_000);
}

#[tokio::test]
async fn a_cohort_that_exceeds_the_feed_is_rejected() {
    let app = TestApp::new().await;
    let made = app.post(COHORTS, json!({"name": "many", "filters": rules(0, 10_000)})).await.expect(201);
    let id = made["id"].clone();
    let filters = json!({"groups": [
        {"properties": [{"key": "id", "type": "cohort", "value": id}], "rollout_percentage": 100}]});
    for number in 0..30 {
        app.post(FLAGS, json!({"key": format!("on-{number}"), "filters": filters})).await.expect(201);
    }
    let before = feed(&app).await;
    // Thirty times 160,000 bytes of noise are above the limit where old clients have them spelled out in each flag.
    let cohort = format!("{COHORTS}{id}/");
    let response = app.patch(&cohort, json!({"filters": rules(9_000, 200_000)})).await;
    let detail = "With these rules the definitions of this project's flags would be larger than a response can be: at \
                  most 4500000 bytes compressed. 30 flags name this cohort.";
    response.expect_invalid("invalid_input", detail, Some("filters"));
    assert_eq!(feed(&app).await, before);
    app.patch(&cohort, json!({"filters": rules(9_000, 60_000)})).await.expect(200);
    let after = feed(&app).await;
    assert!(after > before && (30 * 45_000..MOST).contains(&after), "spelled out in each flag: {after}");
}

#[tokio::test]
async fn a_workspace_file_that_exceeds_the_feed_is_rejected() {
    let declared = |rules: Value| json!([{"project": "1", "id": 7, "name": "many", "filters": rules}]);
    let app = TestApp::with(json!({"cohorts": declared(rules(0, 10_000))})).await;
    let filters = json!({"groups": [
        {"properties": [{"key": "id", "type": "cohort", "value": 7}], "rollout_percentage": 100}]});
    for number in 0..30 {
        app.post(FLAGS, json!({"key": format!("on-{number}"), "filters": filters})).await.expect(201);
    }
    let before = feed(&app).await;
    let applied = async |rules: Value| {
        let records = &app.services.app.store.records;
        let state = pennon::workspace::Declarations::load(records).await.unwrap().workspace();
        let file = Workspace::parse(&json!({"cohorts": declared(rules)}).to_string()).unwrap();
        let whole = Workspace { cohorts: file.cohorts, ..state };
        apply(records, &whole, ApplyOptions::default(), pennon_tests::NOW.parse().unwrap()).await
    };
    let refused = applied(rules(9_000, 200_000)).await.err().unwrap().to_string();
    let detail = "cohort 7 of project 1: With these rules the definitions of this project's flags would be larger than a \
                  response can be: at most 4500000 bytes compressed. 30 flags name this cohort.";
    assert_eq!(refused, detail);
    assert_eq!(feed(&app).await, before, "nothing changed");
    applied(rules(9_000, 60_000)).await.unwrap();
    assert!(feed(&app).await > before);
}
