//! Data of earlier releases is read, and data of a newer release is rejected (tests/formats/README.md).

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::lost::refused_start;
use super::{Server, done, pennon, text};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/formats");
const KEY: &str = "phx_formats_0123456789012345678901234567890123";
const NOW: &str = "2026-01-05T10:00:00Z";
const FLAGS: &str = "/api/projects/1/feature_flags/";

/// The installation of a release.
fn restored(release: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let backup = format!("{FIXTURES}/{release}/backup");
    done(&["restore", &backup], &data);
    as_if_new(&data, taken_at(&backup));
    (directory, data)
}

/// The time in a backup's description.
fn taken_at(backup: &str) -> DateTime<Utc> {
    let output_text = std::fs::read(format!("{backup}/backup.json")).unwrap();
    let output_text: Value = serde_json::from_slice(&output_text).unwrap();
    output_text["taken_at"].as_str().unwrap().parse().unwrap()
}

/// Rows and stream records expire by the machine's clock: cached results after a week, states of calculations after two
/// hours. Rows that had not expired when the backup was taken must not expire now.
fn as_if_new(data: &Path, taken_at: DateTime<Utc>) {
    let connection = Connection::open(data.join("dynamodb.sqlite")).unwrap();
    let passed = (Utc::now() - taken_at).num_seconds();
    let table = pennon_core::config::StoreConfig::local().records_table;
    let number = "CAST(json_extract(item_json, '$.expires_at.N') AS INTEGER)";
    let sql = format!(
        "UPDATE \"{table}\" SET item_json = json_set(item_json, '$.expires_at.N', CAST({number} + ?1 AS TEXT))
         WHERE {number} > ?2"
    );
    let rows = connection.execute(&sql, [passed, taken_at.timestamp()]).unwrap();
    assert!(rows > 0, "a kept result and the state of a calculation");
    connection.execute("UPDATE _stream_records SET created_at = created_at + ?1", [passed]).unwrap();
}

fn started(data: &Path) -> Server {
    Server::start(data, &["--now", NOW])
}

fn send_request(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    let (status, response) = server.request(method, path, KEY, body);
    assert!((200..300).contains(&status), "{method} {path}: {status} {response}");
    response
}

fn get(server: &Server, path: &str) -> Value {
    send_request(server, "GET", path, &Value::Null)
}

fn keys<'a>(page: &'a Value, field: &str) -> Vec<&'a str> {
    let mut keys: Vec<_> =
        page["results"].as_array().unwrap().iter().map(|one| one[field].as_str().unwrap()).collect();
    keys.sort_unstable();
    keys
}

fn trend(more: &Value) -> Value {
    let mut body = json!({"events": [{"id": "visit"}], "date_from": "2024-01-01", "date_to": "2024-01-31",
        "refresh": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn counted(server: &Server, more: &Value) -> Value {
    send_request(server, "POST", "/api/projects/1/insights/trend/", &trend(more))["result"][0]["count"]
        .clone()
}

fn funnel() -> Value {
    let steps = ["visit", "sign up", "pay"].iter().enumerate();
    let steps: Vec<_> = steps.map(|(order, id)| json!({"id": id, "order": order})).collect();
    json!({"events": steps, "date_from": "2024-01-01", "date_to": "2024-01-31", "refresh": true})
}

fn steps(result: &Value) -> Vec<u64> {
    result.as_array().unwrap().iter().map(|step| step["count"].as_u64().unwrap()).collect()
}

/// All persons visit once: u1 to u6, ann, cy (as device-1), dee (as device-2). gone-1 was erased, bob did nothing.
const VISITS: u64 = 9;
/// All but u6.
const SIGN_UPS: u64 = 8;
/// u1 for 10, u2 for 12.5, cy for 20.
const PAYERS: u64 = 3;

fn events_are_counted(server: &Server) {
    let counts = send_request(server, "POST", "/api/projects/1/insights/funnel/", &funnel());
    assert_eq!(steps(&counts["result"]), [VISITS, SIGN_UPS, PAYERS]);
    assert_eq!(counted(server, &json!({})), json!(9.0));
    let sum = json!({"events": [{"id": "pay", "math": "sum", "math_property": "price"}]});
    assert_eq!(counted(server, &sum), json!(42.5));
    let days = send_request(server, "POST", "/api/projects/1/insights/trend/", &trend(&json!({})));
    let mut expected = vec![json!(1); 10];
    expected[8] = json!(0);
    assert_eq!(
        days["result"][0]["data"].as_array().unwrap()[..10]
            .iter()
            .map(|day| json!(day.as_f64().unwrap() as u64))
            .collect::<Vec<_>>(),
        expected
    );
    for (filter, count) in [
        (json!({"key": "plan", "type": "person", "value": ["pro"], "operator": "exact"}), 1.0),
        (json!({"key": "email", "type": "person", "value": ["cy@example.com"], "operator": "exact"}), 1.0),
        (
            json!({"key": "name", "type": "group", "group_type_index": 0, "value": ["Acme Inc"], "operator": "exact"}),
            1.0,
        ),
        // u1 and u2 are on the long list; by the rules of the other one, ann is in it.
        (json!({"key": "id", "type": "cohort", "value": 1}), 2.0),
        (json!({"key": "id", "type": "cohort", "value": 2}), 1.0),
    ] {
        assert_eq!(counted(server, &json!({"properties": [filter]})), json!(count), "{filter}");
    }
}

fn persons_are_known(server: &Server) {
    let all = get(server, "/api/projects/1/persons/");
    assert_eq!(all["count"], 10, "u1 to u6, ann, bob, cy, dee: {all}");
    for (id, ids) in [("ann", ["ann", "ann@home"]), ("cy", ["device-1", "cy"]), ("dee", ["device-2", "dee"])]
    {
        let found = get(server, &format!("/api/projects/1/persons/?distinct_id={id}"));
        let mut known: Vec<_> = found["results"][0]["distinct_ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_str().unwrap())
            .collect();
        known.sort_unstable();
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        assert_eq!(known, ids);
    }
    assert_eq!(get(server, "/api/projects/1/persons/?distinct_id=gone-1")["count"], 0);
}

fn flags_are_there(server: &Server) {
    let page = get(server, FLAGS);
    assert_eq!(keys(&page, "key"), ["follower", "long", "members", "plain", "secret"]);
    let plain = page["results"].as_array().unwrap().iter().find(|flag| flag["key"] == "plain").unwrap();
    assert_eq!((&plain["name"], &plain["version"]), (&json!("renamed"), &json!(2)));
    let one = format!("{FLAGS}{}/", plain["id"]);
    let log = get(server, &format!("{one}activity/"));
    assert_eq!(keys(&log, "activity"), ["created", "updated"]);
    assert_eq!(log["results"][0]["detail"]["changes"][0]["after"], "renamed");
    let roles = get(server, &format!("{one}role_access/"));
    assert_eq!(roles["results"][0]["role"]["name"], "Engineers");
    assert_eq!(get(server, &format!("{FLAGS}secret/remote_config")), "\"hidden\"");
    let long = get(server, &format!("{FLAGS}long/remote_config"));
    assert!(long.as_str().unwrap().contains(&"long ".repeat(1500)));
    let polled = get(server, "/flags/definitions?token=phc_formats&send_cohorts");
    let mut polled: Vec<_> =
        polled["flags"].as_array().unwrap().iter().map(|flag| flag["key"].as_str().unwrap()).collect();
    polled.sort_unstable();
    assert_eq!(polled, ["follower", "long", "members", "plain"], "all but the encrypted one");
    // A flag is still a dependency of another one.
    let (status, refused) = server.request("PATCH", &one, KEY, &json!({"deleted": true}));
    assert_eq!(status, 400, "{refused}");
}

fn insights_are_there(server: &Server) {
    let page = get(server, "/api/projects/1/insights/");
    let insight = &page["results"][0];
    assert_eq!((&page["count"], &insight["name"]), (&json!(1), &json!("funnel")));
    assert_eq!(insight["dashboards"].as_array().unwrap().len(), 1);
    let shown = get(server, &format!("/api/projects/1/insights/{}/", insight["id"]));
    assert_eq!(
        (steps(&shown["result"]), &shown["is_cached"]),
        (vec![VISITS, SIGN_UPS, PAYERS], &json!(true)),
        "kept"
    );
    let sharing = get(server, &format!("/api/projects/1/insights/{}/sharing/", insight["id"]));
    let token = sharing["access_token"].as_str().unwrap();
    let short = insight["short_id"].as_str().unwrap();
    let open = format!("/api/projects/1/insights/?short_id={short}&sharing_access_token={token}");
    let (status, opened) = server.request("GET", &open, "", &Value::Null);
    assert_eq!((status, &opened["results"][0]["name"]), (200, &json!("funnel")), "{opened}");
    assert_eq!(get(server, "/api/projects/1/cohorts/")["count"], 2);
    assert_eq!(get(server, "/api/projects/1/actions/")["results"][0]["name"], "Paid");
    // The job of an earlier server that was killed right after the request.
    let count = loop {
        let (status, reported) = server.request("GET", "/api/projects/1/query/left/", KEY, &Value::Null);
        match status {
            202 => {}
            200 => break reported["query_status"]["results"]["results"][0]["count"].clone(),
            other => panic!("{other}: {reported}"),
        }
    };
    assert_eq!(count, json!(9.0));
}

#[test]
fn data_of_every_release_is_read_written_and_backed_up() {
    for release in ["1", "2"] {
        let (directory, data) = restored(release);
        for is_again in [false, true] {
            let server = started(&data);
            flags_are_there(&server);
            events_are_counted(&server);
            persons_are_known(&server);
            if !is_again {
                insights_are_there(&server);
                // The waiting events are compacted to a segment, which is merged with the others.
                done(&["compact"], &data);
            }
            assert_eq!(server.stop(), 0);
            let checked = done(&["check"], &data);
            assert!(!checked.contains("damaged"), "{checked}");
        }
        let server = started(&data);
        let flag = get(&server, FLAGS)["results"]
            .as_array()
            .unwrap()
            .iter()
            .find(|flag| flag["key"] == "plain")
            .unwrap()
            .clone();
        let changed =
            send_request(&server, "PATCH", &format!("{FLAGS}{}/", flag["id"]), &json!({"name": "again"}));
        assert_eq!(changed["version"], 3);
        let event = json!({"event": "visit", "distinct_id": "new", "timestamp": "2024-01-11T10:00:00Z"});
        send_request(&server, "POST", "/batch/", &json!({"api_key": "phc_formats", "batch": [event]}));
        assert_eq!(counted(&server, &json!({})), json!(10.0));
        let again = directory.path().join("again.tar");
        done(&["backup", "--out", &again.to_string_lossy()], &data);
        assert_eq!(server.stop(), 0);
    }
}

/// Rewrites rows of the tables in `data` whose partition is like `pk` and whose sort key is like `sk`.
fn rewrite(data: &Path, table: &str, (pk, sk): (&str, &str), change: (&str, &str)) {
    let connection = Connection::open(data.join("dynamodb.sqlite")).unwrap();
    let sql = format!(
        "UPDATE \"{table}\" SET item_json = replace(item_json, ?1, ?2)
         WHERE pk LIKE ?3 AND sk LIKE ?4 AND instr(item_json, ?1) > 0"
    );
    let rows =
        connection.execute(&sql, [change.0, change.1, &format!("S:{pk}"), &format!("S:{sk}")]).unwrap();
    assert!(rows > 0, "nothing to change at {pk} {sk}");
}

#[test]
fn data_of_a_newer_release_is_rejected_and_not_partly_read() {
    let names = pennon_core::config::StoreConfig::local();
    let (records, blocks) = (names.records_table.as_str(), names.blocks_table.as_str());
    // For items the format number of the row, for manifest entries the one in their body.
    let item = (r#""f":{"N":"1"}"#, r#""f":{"N":"2"}"#);
    let entry = (r#"\"format\":1"#, r#"\"format\":2"#);
    let segment = (r#"\"format\":4"#, r#"\"format\":5"#);
    let persons = (r#"\"format\":1"#, r#"\"format\":3"#);
    let trend = ("POST", "/api/projects/1/insights/trend/", trend(&json!({})));
    let flags = ("GET", FLAGS, Value::Null);
    for (table, at, change, (method, path, body)) in [
        (records, ("PROJECT#1#FLAG", "%"), item, &flags),
        (records, ("PROJECT#1#FLAGROW%", "%"), item, &flags),
        (records, ("PROJECT#1#SEGMENT", "HEAD"), item, &trend),
        (records, ("PROJECT#1#SEGMENT", "HEAD"), entry, &trend),
        (records, ("PROJECT#1#SEGMENT", "SEGMENT#%"), segment, &trend),
        (records, ("PROJECT#1#SEGMENT", "PERSONS#%"), persons, &trend),
        (records, ("PROJECT#1#SEGMENT", "GROUPS#%"), entry, &trend),
        (records, ("PROJECT#1#SEGMENT", "LINKS#%"), entry, &trend),
        (records, ("PROJECT#1#SEGMENT", "MERGES#%"), entry, &trend),
        (records, ("PROJECT#1#OVERRIDE", "MERGE#%"), item, &trend),
        (blocks, ("PROJECT#1#SHARD%", "%"), item, &trend),
    ] {
        let (directory, data) = restored("1");
        rewrite(&data, table, at, change);
        if (at.1, change) == ("HEAD", item) {
            // How far the tables have come is not known, so they cannot be compared with the events.
            let refused = refused_start(&data);
            assert!(refused.contains("newer release"), "{refused}");
            continue;
        }
        let server = started(&data);
        let (status, response) = server.request(method, path, KEY, body);
        assert_eq!(status, 500, "{at:?}: {response}");
        assert_eq!(server.stop(), 0);
        if path.ends_with("trend/") {
            let file = directory.path().join("query.json");
            let node = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "visit"}],
                "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-31"}});
            std::fs::write(&file, node.to_string()).unwrap();
            let refused = pennon(&["query", &file.to_string_lossy(), "--project", "1"], &data);
            let output_text = text(&refused.stderr);
            assert!(
                !refused.status.success() && output_text.contains("newer release"),
                "{at:?}: {output_text}"
            );
        }
    }
}
