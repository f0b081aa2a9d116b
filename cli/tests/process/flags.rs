//! `pennon flags`: lists, shows, changes and evaluates flags over the data directory and over HTTP.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{BINARY, KEY, Server, done, pennon, served, text};

fn over_http(arguments: &[&str], server: &Server) -> Output {
    let url = format!("http://{}", server.address);
    Command::new(BINARY).args(arguments).args(["--url", &url]).env("PENNON_API_KEY", KEY).output().unwrap()
}

/// The standard output over the data directory, which is that over HTTP.
fn both(arguments: &[&str], data: &Path, server: &Server) -> String {
    let sent = over_http(arguments, server);
    assert!(sent.status.success(), "{arguments:?}: {}", text(&sent.stderr));
    let local = done(arguments, data);
    assert_eq!(text(&sent.stdout), local, "{arguments:?}");
    local
}

/// A flag for persons of the plan `pro` alone.
fn create_flag(server: &Server) -> Value {
    let property = json!({"key": "plan", "type": "person", "operator": "exact", "value": "pro"});
    let filters = json!({"groups": [{"properties": [property], "rollout_percentage": 100}, {"properties": [], "rollout_percentage": 0}]});
    let (status, flag) = server.post(
        "/api/projects/1/feature_flags/",
        &json!({"key": "checkout", "name": "Shorter", "filters": filters}),
    );
    assert_eq!(status, 201, "{flag}");
    flag
}

#[test]
fn flags_are_listed_and_shown() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    assert_eq!(both(&["flags", "list"], &data, &server), "no flags\n");
    let flag = create_flag(&server);
    let (status, _) =
        server.post("/api/projects/1/feature_flags/", &json!({"key": "other", "active": false}));
    assert_eq!(status, 201);
    let listed = both(&["flags", "list"], &data, &server);
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[2], ["other", "off", "100", "%", "never"], "{listed}");
    assert_eq!(rows[3], ["checkout", "on", "2", "conditions", "never"], "{listed}");
    assert!(!both(&["flags", "list", "--search", "short"], &data, &server).contains("other"));
    assert_eq!(both(&["flags", "list", "--stale"], &data, &server), "no flags\n");
    let page: Value = serde_json::from_str(&both(&["flags", "list", "--json"], &data, &server)).unwrap();
    assert_eq!(page, server.get("/api/projects/1/feature_flags/"));
    let shown = both(&["flags", "get", "checkout"], &data, &server);
    for part in
        ["checkout (flag ", "state        on", "condition 1  plan exact pro: 100 %", "condition 2  all: 0 %"]
    {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
    let document: Value =
        serde_json::from_str(&both(&["flags", "get", "checkout", "--json"], &data, &server)).unwrap();
    assert_eq!(document, server.get(&format!("/api/projects/1/feature_flags/{}/", flag["id"])));
    assert_eq!(server.stop(), 0);
    assert!(done(&["flags", "list"], &data).contains("checkout"), "without a server");
}

#[test]
fn a_change_is_made_once_logged_with_its_user_and_used_by_the_server() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    let flag = create_flag(&server);
    let path = format!("/api/projects/1/feature_flags/{}/", flag["id"]);
    let changed = done(&["flags", "set", "checkout", "--active", "false"], &data);
    assert_eq!(changed, "checkout: state: on -> off\nversion 2\n");
    assert_eq!(server.get(&path)["active"], false);
    let again = done(&["flags", "set", "checkout", "--active", "false"], &data);
    assert!(again.starts_with("nothing to change"), "{again}");
    assert_eq!(server.get(&path)["version"], 2, "nothing was written");
    let sent = over_http(
        &["flags", "set", "checkout", "--active", "true", "--rollout", "20", "--condition", "2", "--json"],
        &server,
    );
    let after: Value =
        serde_json::from_slice(&sent.stdout).unwrap_or_else(|_| panic!("{}", text(&sent.stderr)));
    assert_eq!((&after["active"], &after["version"]), (&json!(true), &json!(3)));
    assert_eq!(after["filters"]["groups"][1]["rollout_percentage"], 20);
    assert_eq!(
        after["filters"]["groups"][0], flag["filters"]["groups"][0],
        "the other condition is unchanged"
    );
    assert_eq!(server.get(&path), after);
    let log = server.get(&format!("{path}activity/"));
    let entries = log["results"].as_array().unwrap();
    let activities: Vec<&str> = entries.iter().map(|entry| entry["activity"].as_str().unwrap()).collect();
    assert_eq!(activities, ["updated", "updated", "created"], "{log}");
    assert!(entries.iter().all(|entry| entry["user"]["email"] == "ada@example.com"), "{log}");

    for (arguments, part) in [
        (&["flags", "set", "checkout", "--rollout", "5"][..], "name one with --condition"),
        (&["flags", "set", "checkout", "--rollout", "5", "--condition", "3"], "no condition 3; it has 2"),
        (&["flags", "set", "chekout", "--active", "true"], "did you mean `checkout`?"),
        (
            &["flags", "set", "checkout", "--active", "true", "--user", "bob@example.com"],
            "no user bob@example.com",
        ),
        (&["flags", "list", "--project", "7"], "there is no project 7"),
    ] {
        let refused = pennon(arguments, &data);
        let error = text(&refused.stderr);
        assert_eq!((refused.status.code(), error.lines().count()), (Some(1), 1), "{error}");
        assert!(error.contains(part), "{part:?} in {error}");
    }
    let usage = pennon(&["flags", "set", "checkout"], &data);
    assert!(
        usage.status.code() == Some(2) && text(&usage.stderr).contains("--rollout"),
        "{}",
        text(&usage.stderr)
    );
    // A key that may only read.
    let made = done(&["keys", "create", "--label", "reader", "--scope", "feature_flag:read"], &data);
    let url = format!("http://{}", server.address);
    let refused = Command::new(BINARY)
        .args(["flags", "set", "checkout", "--active", "false", "--project", "1", "--url", &url])
        .env("PENNON_API_KEY", made.trim())
        .output()
        .unwrap();
    assert!(text(&refused.stderr).contains("feature_flag:write"), "{}", text(&refused.stderr));
    assert_eq!(server.get(&path)["active"], true);
    let listed = text(&pennon(&["keys", "list"], &data).stdout);
    assert_eq!(listed.lines().count(), 2, "no key was stored for a command: {listed}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_flag_is_evaluated_with_its_reason_and_condition() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    create_flag(&server);
    let test = |more: &[&str]| {
        both(&[&["flags", "test", "checkout", "--distinct-id", "eva"][..], more].concat(), &data, &server)
    };
    let off = test(&[]);
    assert_eq!(
        off,
        "checkout for eva: off\n  reason     out_of_rollout_bound (Out of rollout bound)\n  condition  2: all: 0 %\n"
    );
    let on = test(&["--person", "plan=pro"]);
    assert_eq!(
        on,
        "checkout for eva: on\n  reason     condition_match (Matched condition set 1)\n  condition  1: plan exact pro: 100 %\n"
    );
    // Stored properties count, and those of the options override them.
    let set = json!({"api_key": "phc_process", "batch": [{"event": "$set", "distinct_id": "eva", "properties": {"$set": {"plan": "pro"}}}]});
    assert_eq!(server.post("/batch/", &set).0, 200);
    assert!(test(&[]).starts_with("checkout for eva: on\n"));
    let document: Value = serde_json::from_str(&test(&["--json"])).unwrap();
    let expected = json!({"key": "checkout", "distinct_id": "eva", "value": true, "reason": "condition_match",
        "condition_index": 0, "description": "Matched condition set 1"});
    assert_eq!(document, expected);
    assert!(test(&["--person", "plan=free"]).starts_with("checkout for eva: off\n"));
    done(&["flags", "set", "checkout", "--active", "false"], &data);
    let disabled = test(&["--person", "plan=pro"]);
    assert!(disabled.starts_with("checkout for eva: off\n  reason     disabled"), "{disabled}");
    assert_eq!(server.stop(), 0);
}
