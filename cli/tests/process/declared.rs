//! An exported workspace file reproduces an installation: flags, insights, and the dashboards and records that they refer to.

use std::path::Path;

use serde_json::{Value, json};

use super::{KEY, Server, WORKSPACE, done, pennon, text};

const ROLE: &str = "01900000-0000-7000-8000-0000000000aa";
const P: &str = "/api/projects/1";

fn made(server: &Server, what: &str, body: &Value) -> Value {
    let (status, response) = server.post(&format!("{P}/{what}/"), body);
    assert!([200, 201].contains(&status), "{what}: {response}");
    response
}

fn changed(server: &Server, what: &str, body: &Value) -> Value {
    let (status, response) = server.request("PATCH", &format!("{P}/{what}/"), KEY, body);
    assert_eq!(status, 200, "{what}: {response}");
    response
}

fn trend(event: &str) -> Value {
    json!({"kind": "InsightVizNode", "source": {"kind": "TrendsQuery",
        "series": [{"kind": "EventsNode", "event": event, "name": event}]}})
}

/// A workspace with a role and a cohort of a file, and records that were created over HTTP.
fn filled(directory: &Path) -> Server {
    let mut declared: Value = serde_json::from_str(WORKSPACE).unwrap();
    let organization = declared["organizations"][0]["id"].clone();
    declared["roles"] = json!([{"id": ROLE, "organization": organization, "name": "Engineers",
        "members": ["ada@example.com"]}]);
    declared["cohorts"] =
        json!([{"project": "1", "id": 7, "name": "Beta", "is_static": true, "distinct_ids": ["a"]}]);
    declared["actions"] = json!([{"project": "1", "id": 5, "name": "Paid", "steps": [{"event": "paid"}]}]);
    let file = directory.join("declared.json");
    std::fs::write(&file, declared.to_string()).unwrap();
    let server = Server::start(&directory.join("data"), &["--workspace", &file.to_string_lossy()]);
    // Fields of declared records that are set over HTTP.
    changed(&server, "cohorts/7", &json!({"description": "First users", "distinct_ids": ["b"]}));
    changed(&server, "actions/5", &json!({"description": "Money came", "tags": ["money"]}));
    let rules = json!({"properties": {"type": "AND", "values": [{"type": "AND", "values":
        [{"key": "plan", "type": "person", "value": ["large"], "operator": "exact"}]}]}});
    made(&server, "cohorts", &json!({"name": "Large", "filters": rules}));
    let body = json!({"name": "Numbers", "description": "d", "pinned": true, "tags": ["x"], "restriction_level": 37,
        "filters": {"date_from": "-30d"}});
    let dashboard = made(&server, "dashboards", &body)["id"].clone();
    let gone = made(&server, "insights", &json!({"name": "gone", "query": trend("gone")}))["id"].clone();
    let body = json!({"name": "Views", "description": "of all", "query": trend("view"), "saved": true,
        "favorited": true, "tags": ["y"], "dashboards": [dashboard]});
    let insight = made(&server, "insights", &body);
    let tile = insight["dashboard_tiles"][0]["id"].clone();
    let layouts = json!({"sm": {"x": 2, "y": 1, "w": 6, "h": 5}});
    let path = format!("dashboards/{dashboard}");
    changed(&server, &path, &json!({"tiles": [{"id": tile, "layouts": layouts, "color": "blue"}]}));
    changed(&server, &format!("insights/{gone}"), &json!({"deleted": true}));
    flags(&server, &dashboard);
    server
}

fn flags(server: &Server, dashboard: &Value) {
    let groups =
        |properties: Value| json!({"groups": [{"properties": properties, "rollout_percentage": 40}]});
    // The first flag later depends on the one that is created after it.
    let first = made(
        server,
        "feature_flags",
        &json!({"key": "first", "name": "One", "filters": groups(json!([])),
        "tags": ["a", "b"], "ensure_experience_continuity": true, "analytics_dashboards": [dashboard]}),
    );
    let deleted = made(server, "feature_flags", &json!({"key": "deleted"}));
    changed(server, &format!("feature_flags/{}", deleted["id"]), &json!({"deleted": true}));
    let base = made(
        server,
        "feature_flags",
        &json!({"key": "base", "filters": groups(json!([
        {"key": "id", "type": "cohort", "value": 7}]))}),
    );
    let on = json!([{"key": base["id"].to_string(), "type": "flag", "value": true, "operator": "flag_evaluates_to"}]);
    changed(server, &format!("feature_flags/{}", first["id"]), &json!({"filters": groups(on)}));
    made(server, &format!("feature_flags/{}/role_access", first["id"]), &json!({"role_id": ROLE}));
    made(
        server,
        "feature_flags",
        &json!({"key": "settings", "is_remote_configuration": true,
        "has_encrypted_payloads": true, "filters": {"groups": [{"properties": [], "rollout_percentage": 100}],
            "payloads": {"true": "{\"password\": \"hidden\"}"}}}),
    );
    made(server, "feature_flags", &json!({"key": "used", "_should_create_usage_dashboard": true}));
}

/// All records of an installation, without the metadata of the writes.
fn shown(server: &Server) -> Vec<(String, Value)> {
    let mut shown = Vec::new();
    for list in ["feature_flags", "insights", "dashboards", "cohorts", "actions"] {
        let page = server.get(&format!("{P}/{list}/?limit=100"));
        for record in page["results"].as_array().unwrap() {
            let id = &record["id"];
            let mut whole = server.get(&format!("{P}/{list}/{id}/"));
            without_writes(&mut whole);
            shown.push((format!("{list} {id}"), whole));
        }
    }
    let flags = server.get(&format!("{P}/feature_flags/?limit=100"));
    for flag in flags["results"].as_array().unwrap() {
        let roles = server.get(&format!("{P}/feature_flags/{}/role_access/", flag["id"]));
        let roles = roles["results"].as_array().unwrap().iter().map(|it| it["role"]["id"].clone()).collect();
        shown.push((format!("roles of {}", flag["key"]), roles));
    }
    shown.sort_by(|a, b| a.0.cmp(&b.0));
    shown
}

/// Removes times and users of the last write, and ids that are not part of an export.
fn without_writes(record: &mut Value) {
    const OF_WRITES: [&str; 13] = [
        "updated_at",
        "last_modified_at",
        "last_modified_by",
        "last_refresh",
        "last_calculation",
        "last_calculated_at",
        "cache_target_age",
        "next_allowed_client_refresh",
        "version",
        "effective_privilege_level",
        "count",
        "dashboard_tiles",
        "last_viewed_at",
    ];
    match record {
        Value::Object(fields) => {
            // Ids of tiles differ between installations.
            if fields.contains_key("layouts") {
                fields.remove("id");
            }
            fields.retain(|name, _| !OF_WRITES.contains(&name.as_str()));
            fields.values_mut().for_each(without_writes);
        }
        Value::Array(items) => items.iter_mut().for_each(without_writes),
        _ => {}
    }
}

#[test]
fn an_exported_workspace_makes_the_same_installation_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(directory.path());
    let before = shown(&server);
    assert!(before.len() > 12, "{before:?}");
    let data = directory.path().join("data");
    let out = directory.path().join("out");
    let output_text = done(&["export", "--with-secrets", "--out", &out.to_string_lossy()], &data);
    assert!(output_text.contains("4 flags, 3 insights, 2 dashboards, 2 cohorts, 1 actions"), "{output_text}");
    assert_eq!(server.stop(), 0);
    let file = out.join("workspace.json").to_string_lossy().into_owned();
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.contains("hidden") && !written.contains(KEY));

    let elsewhere = directory.path().join("elsewhere");
    let dry = done(&["apply", &file, "--dry-run"], &elsewhere);
    assert!(dry.contains("+ flag 1/1 \"first\"") && dry.contains("to change; run again"), "{dry}");
    let output_text = done(&["apply", &file], &elsewhere);
    assert!(!output_text.contains("new key"), "the key is the one it was: {output_text}");
    assert_eq!(done(&["apply", &file], &elsewhere).trim(), "nothing to change");
    let server = Server::start(&elsewhere, &[]);
    let after = shown(&server);
    for (was, is) in before.iter().zip(&after) {
        assert_eq!(was, is);
    }
    assert_eq!(before.len(), after.len());
    // New ids follow the imported ones.
    let (_, flag) = server.post(&format!("{P}/feature_flags/"), &json!({"key": "next"}));
    assert!(before.iter().all(|(name, _)| *name != format!("feature_flags {}", flag["id"])), "{flag}");
    let log = server.get(&format!("{P}/feature_flags/1/activity/"));
    assert_eq!(log["results"].as_array().unwrap().last().unwrap()["activity"], "created");
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_file_changes_and_removes_flags_and_insights_like_other_records() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let path = directory.path().join("file.json");
    let file = path.to_string_lossy().into_owned();
    let mut declared: Value = serde_json::from_str(WORKSPACE).unwrap();
    declared["flags"] = json!([{"project": "1", "id": 30, "key": "a", "name": "A"},
        {"project": "1", "id": 31, "key": "b", "name": "B"}]);
    declared["insights"] =
        json!([{"project": "1", "id": 40, "short_id": "abcd1234", "name": "I", "query": trend("x")}]);
    let write = |declared: &Value| std::fs::write(&path, declared.to_string()).unwrap();
    write(&declared);
    done(&["apply", &file], &data);
    let server = Server::start(&data, &[]);
    let flag = |id: u64| server.get(&format!("{P}/feature_flags/{id}/"));
    assert_eq!(
        (flag(30)["key"].clone(), flag(30)["created_by"]["email"].clone()),
        (json!("a"), json!("ada@example.com"))
    );
    assert_eq!(server.get(&format!("{P}/insights/?short_id=abcd1234"))["results"][0]["id"], 40);

    // An edit over HTTP stays while the declaration is unchanged.
    changed(&server, "feature_flags/30", &json!({"name": "edited", "tags": ["kept"]}));
    assert_eq!(done(&["apply", &file], &data).trim(), "nothing to change");
    assert_eq!(flag(30)["name"], "edited");
    declared["flags"][0]["name"] = json!("A again");
    write(&declared);
    let output_text = done(&["apply", &file], &data);
    assert_eq!(output_text.trim(), "~ flag 1/30 \"a\"\n1 changed");
    assert_eq!((flag(30)["name"].clone(), flag(30)["tags"].clone()), (json!("A again"), json!(["kept"])));

    // Nothing is removed without --prune.
    declared["flags"].as_array_mut().unwrap().pop();
    declared.as_object_mut().unwrap().remove("insights");
    write(&declared);
    assert_eq!(done(&["apply", &file], &data).trim(), "nothing to change");
    let dry = done(&["apply", &file, "--prune", "--dry-run"], &data);
    assert!(dry.contains("- flag 1/31 \"b\"") && dry.contains("- insight 1/40 \"I\""), "{dry}");
    assert_eq!(flag(31)["deleted"], false);
    done(&["apply", &file, "--prune"], &data);
    assert_eq!(server.get(&format!("{P}/feature_flags/"))["count"], 1);
    assert_eq!(server.get(&format!("{P}/insights/"))["count"], 0);

    // A record that the API would reject is rejected, with its name.
    for (field, value, why) in [
        ("key", json!("not a key!"), "flag 1/30"),
        ("nmae", json!("x"), "flags[0]: unknown field \"nmae\""),
        ("evaluation_runtime", json!("moon"), "evaluation_runtime"),
    ] {
        let mut wrong = declared.clone();
        wrong["flags"][0][field] = value;
        write(&wrong);
        let refused = pennon(&["apply", &file], &data);
        assert!(
            !refused.status.success() && text(&refused.stderr).contains(why),
            "{}",
            text(&refused.stderr)
        );
    }
    assert_eq!(flag(30)["name"], "A again");
    assert_eq!(
        done(&["keys", "list"], &data).lines().count(),
        1,
        "keys that were there for a moment are gone"
    );
    assert_eq!(server.stop(), 0);
}

#[test]
fn secret_payloads_are_exported_only_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(directory.path());
    let (data, out) = (directory.path().join("data"), directory.path().join("out"));
    let output_text = done(&["export", "--out", &out.to_string_lossy()], &data);
    assert!(output_text.contains("\"settings\": its secret payloads are left out"), "{output_text}");
    let file = out.join("workspace.json").to_string_lossy().into_owned();
    assert!(!std::fs::read_to_string(&file).unwrap().contains("hidden"));
    // Existing ones are kept.
    done(&["apply", &file], &data);
    let flags = server.get(&format!("{P}/feature_flags/?limit=100"));
    let settings = |flags: &Value| {
        let all = flags["results"].as_array().unwrap();
        all.iter().find(|flag| flag["key"] == "settings").unwrap()["filters"]["payloads"].clone()
    };
    assert_eq!(settings(&flags), json!({"true": "{\"password\": \"hidden\"}"}));
    assert_eq!(server.stop(), 0);

    let elsewhere = directory.path().join("elsewhere");
    let output_text = done(&["apply", &file], &elsewhere);
    assert!(output_text.contains("its secret payloads are not in the file"), "{output_text}");
    let server = Server::start(&elsewhere, &[]);
    assert_eq!(settings(&server.get(&format!("{P}/feature_flags/?limit=100"))), json!({}));
    assert_eq!(server.stop(), 0);
}
