//! `pennon impact`: the numbers of the API as a table, as CSV and as JSON, and errors that name what is missing.

use std::fs;

use serde_json::{Value, json};

use super::{pennon, served, text};

#[test]
fn the_impact_of_a_flag_is_printed_beside_a_running_server() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    let (status, flag) = server.post("/api/projects/1/feature_flags/", &json!({"key": "checkout"}));
    assert_eq!(status, 201, "{flag}");
    let event = |id: &str, name: &str, minute: u32, properties: Value| json!({"event": name, "distinct_id": id, "timestamp": format!("2024-01-03T10:{minute:02}:00Z"), "properties": properties});
    let call = |id: &str, on: bool| {
        event(
            id,
            "$feature_flag_called",
            0,
            json!({"$feature_flag": "checkout", "$feature_flag_response": on}),
        )
    };
    let batch =
        json!([call("ann", false), call("bob", true), call("cat", true), event("cat", "buy", 5, json!({}))]);
    assert_eq!(server.post("/batch/", &json!({"api_key": "phc_process", "batch": batch})).0, 200);

    let file = directory.path().join("metric.json");
    let metric = json!({"kind": "FunnelsQuery", "series": [{"kind": "EventsNode", "event": "buy"}]});
    fs::write(&file, metric.to_string()).unwrap();
    let file = file.to_string_lossy();
    let run = |flag: &str, more: &[&str]| {
        let dates = ["--date-from", "2024-01-01", "--date-to", "2024-01-31"];
        pennon(&[&["impact", flag, file.as_ref()][..], &dates[..], more].concat(), &data)
    };
    let succeed = |flag: &str, more: &[&str]| {
        let output = run(flag, more);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let table = succeed("checkout", &["--csv", "--method", "frequentist"]);
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("variant,exposed,converted,rate,"), "{table}");
    assert!(rows[1].starts_with("false,1,0,0,") && rows[2].starts_with("true,2,1,0.5,"), "{table}");
    let body = json!({"query": metric, "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-31"}});
    let path = format!("/api/projects/1/feature_flags/{}/impact/", flag["id"]);
    let (status, response) = server.post(&path, &body);
    assert_eq!(status, 200, "{response}");
    let by_id: Value = serde_json::from_str(&succeed(&flag["id"].to_string(), &["--json"])).unwrap();
    assert_eq!(by_id["result"], response["results"]);
    assert!(succeed("checkout", &[]).lines().count() == 4);

    for (flag, more, part) in [
        ("other", &[""; 0][..], "has no flag \"other\""),
        ("checkout", &["--method", "guess"][..], "method"),
        ("checkout", &["--exposure-event", "x"][..], "exposure_event"),
    ] {
        let refused = run(flag, more);
        let error = text(&refused.stderr);
        assert_eq!((refused.status.code(), error.lines().count()), (Some(1), 1), "{error}");
        assert!(error.contains(part), "{error}");
    }
}
