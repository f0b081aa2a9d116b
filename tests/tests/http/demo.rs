//! The published queries over the demo's events: each has exactly the published result.

use std::path::Path;

use pennon::import::{ImportOptions, import_file};
use pennon_tests::TestApp;
use serde_json::{Value, json};

const EVENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/demo/ecom_events.jsonl.gz");
const QUERIES: &str = include_str!("../../corpus/ecom/expected.json");

async fn with_events() -> TestApp {
    let app = TestApp::new().await;
    let options = ImportOptions { default_project: Some(1), ..ImportOptions::default() };
    let done = import_file(&app.services.events, Path::new(EVENTS), options, 1, &mut |_| {}).await.unwrap();
    assert_eq!(done.events, 31_106);
    app
}

fn counts(result: &Value) -> Vec<&Value> {
    result.as_array().unwrap().iter().map(|step| &step["count"]).collect()
}

/// Compares a response with the expectation of a query.
fn check(name: &str, expect: &Value, result: &Value) {
    if let Some(steps) = expect["counts"].as_array() {
        assert_eq!(counts(result), steps.iter().collect::<Vec<_>>(), "{name}");
        return;
    }
    let series = expect["series"].as_array().unwrap();
    assert_eq!(result.as_array().unwrap().len(), series.len(), "{name}");
    for (row, expected) in result.as_array().unwrap().iter().zip(series) {
        assert_eq!(row["days"], expect["days"], "{name}");
        assert_eq!(row["data"], expected["data"], "{name}");
        assert_eq!(row["count"].as_f64(), expected["count"].as_f64(), "{name}");
    }
}

#[tokio::test]
async fn the_nine_published_queries_have_the_published_results() {
    let app = with_events().await;
    let file: Value = serde_json::from_str(QUERIES).unwrap();
    let queries = file["questions"].as_array().unwrap();
    assert_eq!(queries.len(), 9);
    for query in queries {
        let path = format!("/api/projects/1/{}", query["path"].as_str().unwrap());
        let response = app.post(&path, query["body"].clone()).await.expect(200);
        check(query["name"].as_str().unwrap(), &query["expect"], &response["result"]);
    }
}

#[tokio::test]
async fn the_responses_are_the_same_after_a_second_import() {
    let app = with_events().await;
    let options = ImportOptions { default_project: Some(1), ..ImportOptions::default() };
    let again = import_file(&app.services.events, Path::new(EVENTS), options, 2, &mut |_| {}).await.unwrap();
    assert_eq!((again.events, again.copies), (0, 31_106));
    let body = json!({"events": [{"id": "purchase"}], "date_from": "2024-01-01", "date_to": "2024-06-30"});
    let response = app.post("/api/projects/1/insights/trend/", body).await.expect(200);
    assert_eq!(response["result"][0]["count"], 470.0);
}

#[tokio::test]
async fn events_with_a_uuid_of_zeros_have_none() {
    let app = TestApp::new().await;
    let file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    let line = |id: &str| {
        json!({"event": "e", "distinct_id": id, "timestamp": "2024-01-01T00:00:00Z",
               "uuid": "00000000-0000-0000-0000-000000000000"})
    };
    std::fs::write(file.path(), format!("{}\n{}\n", line("a"), line("b"))).unwrap();
    let options = ImportOptions { default_project: Some(1), ..ImportOptions::default() };
    let done = import_file(&app.services.events, file.path(), options, 1, &mut |_| {}).await.unwrap();
    assert_eq!((done.events, done.copies), (2, 0));
}
