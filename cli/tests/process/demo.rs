//! The demo project of a first start: its events end yesterday, and its numbers are the published ones.

use chrono::{Days, NaiveDate, Utc};
use serde_json::{Value, json};

use super::{Server, text};

const QUERIES: &str = include_str!("../../../tests/corpus/ecom/expected.json");
/// The day after the newest event as it was published, on which nothing is moved.
const UNMOVED: &str = "2024-06-30T12:00:00Z";

/// The key that a first start printed.
fn key(server: &Server) -> String {
    server.output_text.split_whitespace().find(|word| word.starts_with("phx_")).expect("a key").to_owned()
}

fn send(server: &Server, key: &str, method: &str, path: &str, body: &Value) -> Value {
    let (status, response) = server.request(method, &format!("/api/projects/1/{path}"), key, body);
    assert_eq!(status, 200, "{path}: {response}");
    response
}

fn trend(server: &Server, key: &str, body: &Value) -> Value {
    send(server, key, "POST", "insights/trend/", body)["result"][0].clone()
}

#[test]
fn the_first_start_creates_a_demo_and_the_second_keeps_it() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let key = key(&server);
    let flags = send(&server, &key, "GET", "feature_flags/", &Value::Null);
    assert_eq!(flags["count"], 3);
    let commands: Vec<&str> =
        server.output_text.lines().map(str::trim_start).filter(|line| line.starts_with("curl ")).collect();
    assert_eq!(commands.len(), 3, "{}", server.output_text);
    for command in &commands {
        let done = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
        let response: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert!(response["results"].is_array() || response["result"].is_array(), "{command}: {response}");
    }
    let funnel = json!({"events": [{"id": "product_view", "order": 0}, {"id": "add_to_cart", "order": 1},
        {"id": "purchase", "order": 2}], "date_from": "-180d"});
    let first = send(&server, &key, "POST", "insights/funnel/", &funnel);
    assert_eq!(first["result"][0]["count"], 598, "all persons who viewed a product");
    assert_eq!(server.stop(), 0);
    let again = Server::start(directory.path(), &[]);
    assert!(!again.output_text.contains("phx_"));
    assert_eq!(first["result"], send(&again, &key, "POST", "insights/funnel/", &funnel)["result"]);
    assert_eq!(again.stop(), 0);
}

#[test]
fn the_newest_events_are_of_the_day_before_the_first_start() {
    // Midnight may come between the start and the response.
    let before = Utc::now().date_naive();
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let key = key(&server);
    let week = trend(&server, &key, &json!({"events": [{"id": "purchase"}]}));
    let counts: Vec<f64> = week["data"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect();
    // Counted from the published file: the purchases of the seven days from 2024-06-23 to 2024-06-29, and none today.
    let published = [5.0, 4.0, 6.0, 7.0, 7.0, 9.0, 5.0, 0.0];
    let is_same_day = Utc::now().date_naive() == before;
    assert!(!is_same_day || counts == published, "{week}");
    let views = trend(&server, &key, &json!({"events": [{"id": "product_view"}], "date_from": "-180d"}));
    let days = views["days"].as_array().unwrap().iter().zip(views["data"].as_array().unwrap());
    let newest = days
        .filter(|(_, count)| count.as_f64() > Some(0.0))
        .map(|(day, _)| day.as_str().unwrap())
        .next_back();
    let newest: NaiveDate = newest.unwrap()[..10].parse().unwrap();
    let days_ago = (before - newest).num_days();
    assert!(days_ago == 1 || (!is_same_day && days_ago == 0), "{newest}");
    assert_eq!(server.stop(), 0);
}

/// A response's numbers, in the form of the expectations.
fn compare(name: &str, expected: &Value, result: &Value) {
    let rows = result.as_array().unwrap();
    if let Some(steps) = expected["counts"].as_array() {
        let counts: Vec<&Value> = rows.iter().map(|step| &step["count"]).collect();
        assert_eq!(counts, steps.iter().collect::<Vec<_>>(), "{name}");
        return;
    }
    let series = expected["series"].as_array().unwrap();
    assert_eq!(rows.len(), series.len(), "{name}");
    for (row, required) in rows.iter().zip(series) {
        assert_eq!((&row["days"], &row["data"]), (&expected["days"], &required["data"]), "{name}");
    }
}

#[test]
fn a_first_start_on_the_day_after_the_last_event_gives_the_published_responses() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--now", UNMOVED]);
    let key = key(&server);
    let file: Value = serde_json::from_str(QUERIES).unwrap();
    let queries = file["questions"].as_array().unwrap();
    assert_eq!(queries.len(), 9);
    for query in queries {
        let response = send(&server, &key, "POST", query["path"].as_str().unwrap(), &query["body"]);
        compare(query["name"].as_str().unwrap(), &query["expect"], &response["result"]);
    }
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_later_first_start_gives_the_same_numbers_on_later_days() {
    let directory = tempfile::tempdir().unwrap();
    let days = 400;
    let server = Server::start(directory.path(), &["--now", "2025-08-04T12:00:00Z"]);
    let key = key(&server);
    let file: Value = serde_json::from_str(QUERIES).unwrap();
    let queries = file["questions"].as_array().unwrap();
    let march = queries.iter().find(|it| it["name"] == "purchases a day in March").unwrap();
    let moved = |day: &str| {
        let day: NaiveDate = day.parse().unwrap();
        (day + Days::new(days)).to_string()
    };
    let body = json!({"events": [{"id": "purchase"}], "date_from": moved("2024-03-01"), "date_to": moved("2024-03-31")});
    let response = trend(&server, &key, &body);
    assert_eq!(response["data"], march["expect"]["series"][0]["data"]);
    assert_eq!(response["days"][0], moved("2024-03-01").as_str());
    assert_eq!(server.stop(), 0);
}

#[test]
fn an_interrupted_demo_is_completed_by_the_next_start_without_copies() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(Server::start(directory.path(), &["--now", UNMOVED]).stop(), 0);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = pennon::embedded::Embedded::open(directory.path()).await.unwrap().store(None);
        store.records.sweep(vec![pennon_core::store::keys::declared("DEMO", "complete")]).await.unwrap();
    });
    // Two days later: existing events are unchanged and are not imported again.
    let again = Server::start(directory.path(), &["--now", "2024-07-02T12:00:00Z"]);
    let key = key(&again);
    for (what, count) in [("feature_flags", 3), ("insights", 7), ("dashboards", 2)] {
        let page = send(&again, &key, "GET", &format!("{what}/"), &Value::Null);
        assert_eq!(page["count"], count, "{what}");
    }
    let body = json!({"events": [{"id": "purchase"}], "date_from": "2024-01-01", "date_to": "2024-07-02"});
    assert_eq!(trend(&again, &key, &body)["count"], 470.0);
    assert_eq!(again.stop(), 0);
}

#[test]
fn every_insight_of_both_dashboards_shows_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let key = key(&server);
    let dashboards = send(&server, &key, "GET", "dashboards/", &Value::Null);
    let mut insights = 0;
    for dashboard in dashboards["results"].as_array().unwrap() {
        let path = format!("dashboards/{}/?refresh=blocking", dashboard["id"]);
        let shown = send(&server, &key, "GET", &path, &Value::Null);
        for tile in shown["tiles"].as_array().unwrap() {
            let result = &tile["insight"]["result"];
            let has_numbers = result.to_string().contains("\"count\":") && {
                let rows = result.as_array().unwrap().iter().flat_map(|row| match row.as_array() {
                    Some(steps) => steps.iter().collect::<Vec<_>>(),
                    None => vec![row],
                });
                rows.into_iter().any(|row| {
                    row["count"].as_f64() > Some(0.0) || row["aggregated_value"].as_f64() > Some(0.0)
                })
            };
            assert!(has_numbers, "{}: {result}", tile["insight"]["name"]);
            insights += 1;
        }
    }
    assert_eq!(insights, 7);
    assert_eq!(server.stop(), 0);
}

#[test]
fn without_a_demo_an_installation_stays_empty() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--no-demo"]);
    assert!(
        !server.output_text.contains("phx_") && server.output_text.contains("pennon init"),
        "{}",
        server.output_text
    );
    assert_eq!(server.stop(), 0);
    let refused = super::pennon(&["keys", "create", "--label", "x"], directory.path());
    assert!(text(&refused.stderr).contains("declare one with `pennon apply`"), "{}", text(&refused.stderr));
    // The next start may still load it.
    let server = Server::start(directory.path(), &[]);
    assert!(server.output_text.contains("phx_"), "{}", server.output_text);
    assert_eq!(server.stop(), 0);
}
