//! The numbers of every kind of insight on its shared page, from published results.

use std::path::Path;

use pennon::import::{ImportOptions, import_file};
use pennon_tests::TestApp;
use pennon_tests::queries::{EndpointCase, World};
use serde_json::{Value, json};

use crate::shared_pages::{made, open, rows, share};

/// The numbers below a heading.
fn column(rows: &[Vec<String>], name: &str) -> Vec<f64> {
    let at = rows[0].iter().position(|heading| heading == name).unwrap_or_else(|| panic!("{name}: {rows:?}"));
    rows[1..].iter().map(|row| row[at].parse().unwrap()).collect()
}

fn numbers(values: &Value) -> Vec<f64> {
    values.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

/// The published queries over the demo's events, saved as insights: the tables have the published numbers.
#[tokio::test]
async fn funnels_and_trends_have_the_published_numbers() {
    const EVENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/demo/ecom_events.jsonl.gz");
    let app = TestApp::new().await;
    let options = ImportOptions { default_project: Some(1), ..ImportOptions::default() };
    import_file(&app.services.events, Path::new(EVENTS), options, 1, &mut |_| {}).await.unwrap();
    let file: Value = serde_json::from_str(include_str!("../../corpus/ecom/expected.json")).unwrap();
    for query in file["questions"].as_array().unwrap() {
        let name = query["name"].as_str().unwrap();
        let is_funnel = query["path"] == "insights/funnel/";
        let mut filters = query["body"].clone();
        filters["insight"] = json!(if is_funnel { "FUNNELS" } else { "TRENDS" });
        let id = made(&app, json!({"name": name, "filters": filters})).await;
        let page = open(&app, &format!("/shared/{}", share(&app, id).await)).await;
        assert_eq!(page.status, 200, "{name}: {}", page.text);
        let rows = rows(&page.text);
        if is_funnel {
            assert_eq!(column(&rows, "count"), numbers(&query["expect"]["counts"]), "{name}");
            continue;
        }
        let days: Vec<&str> = rows[1..].iter().map(|row| row[0].as_str()).collect();
        assert_eq!(json!(days), query["expect"]["days"], "{name}");
        for (at, series) in query["expect"]["series"].as_array().unwrap().iter().enumerate() {
            let values: Vec<f64> = rows[1..].iter().map(|row| row[at + 1].parse().unwrap()).collect();
            assert_eq!(values, numbers(&series["data"]), "{name}, series {at}");
        }
    }
}

/// Compares the table of a page with the expectation of a case of the corpus; whether it has one.
fn check(case: &EndpointCase, rows: &[Vec<String>]) -> bool {
    let (name, expect) = (&case.name, &case.expect);
    if let Some(counts) = expect["counts"].as_array().filter(|_| rows[0][0] == "period" && rows[0].len() > 2)
    {
        let is_count = |heading: &&String| !heading.contains("aggregation_value");
        let width = rows[0].iter().skip(2).filter(is_count).count();
        for (row, expected) in rows[1..].iter().zip(counts) {
            let shown: Vec<f64> = row[2..].iter().filter_map(|cell| cell.parse().ok()).collect();
            let expected = numbers(expected);
            if shown.len() != row.len() - 2 || width != rows[0].len() - 2 {
                return false;
            }
            assert_eq!(
                shown[..expected.len().min(shown.len())],
                expected[..expected.len().min(shown.len())],
                "{name}"
            );
        }
        return rows.len() > counts.len();
    }
    if let Some(statuses) = expect["statuses"].as_object() {
        for (status, data) in statuses {
            assert_eq!(column(rows, status), numbers(data), "{name}, {status}");
        }
        return true;
    }
    let Some(results) = expect["result"].as_array().filter(|results| !results.is_empty()) else {
        return false;
    };
    for (at, expected) in results.iter().enumerate() {
        match &expected["data"] {
            Value::Array(_) => {
                let values: Vec<f64> = rows[1..].iter().map(|row| row[at + 1].parse().unwrap()).collect();
                assert_eq!(values, numbers(&expected["data"]), "{name}, series {at}");
            }
            _ if expected["source"].is_string() => {
                let row = &rows[at + 1];
                assert_eq!(
                    (row[0].as_str(), row[1].as_str()),
                    (expected["source"].as_str().unwrap(), expected["target"].as_str().unwrap()),
                    "{name}"
                );
                assert_eq!(row[2].parse::<f64>().ok(), expected["value"].as_f64(), "{name}");
            }
            _ => return false,
        }
    }
    true
}

/// Published cases of the other kinds, saved as insights.
#[tokio::test]
async fn every_other_kind_has_the_published_numbers() {
    for (file, least) in
        [("retention.json", 5), ("lifecycle.json", 5), ("stickiness.json", 5), ("paths.json", 5)]
    {
        let (world, cases) = World::of_file(file);
        let app = world.install().await;
        let mut checked = 0;
        let cases =
            cases.iter().filter(|case| case.request["endpoint"] == "query" && case.expect["status"] == 200);
        for case in cases.take(12) {
            let body = json!({"name": case.name, "query": case.request["body"]});
            let insight = case.send(&app, "POST", "insights/", body).await.expect(201);
            let path = format!("insights/{}/sharing/", insight["id"]);
            let shared = case.send(&app, "PATCH", &path, json!({"enabled": true})).await.expect(200);
            let path = format!("/shared/{}", shared["access_token"].as_str().unwrap());
            let page = case.send_to(&app, "GET", &path, Value::Null).await;
            assert_eq!(page.status, 200, "{}: {}", case.name, page.text);
            checked += usize::from(check(case, &rows(&page.text)));
        }
        assert!(checked >= least, "{file}: only {checked} cases were compared");
    }
}
