//! An exported installation gives the same responses after its import.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::{KEY, Server, WORKSPACE, done, pennon, text};

/// The workspace of these tests, in a file.
fn workspace(directory: &Path) -> PathBuf {
    let mut declared: Value = serde_json::from_str(WORKSPACE).unwrap();
    declared["projects"][0]["group_types"] = json!(["company"]);
    declared["projects"][0]["timezone"] = json!("Europe/Berlin");
    let file = directory.join("declared.json");
    std::fs::write(&file, declared.to_string()).unwrap();
    file
}

/// Imported lines: three events of each of 300 visits of 40 people, many of them at the same instant; persons, some of
/// several distinct ids; groups.
fn history() -> String {
    let mut lines = Vec::new();
    for visit in 0..300_u64 {
        let at = format!("2024-01-{:02}T{:02}:00:00Z", 1 + visit % 28, visit % 5);
        let browser = ["Chrome", "Firefox", "Safari"][(visit % 3) as usize];
        for (step, name) in ["view", "cart", "buy"].into_iter().enumerate().take(1 + (visit % 4) as usize) {
            lines.push(json!({"event": name, "distinct_id": format!("p{}", visit % 40), "timestamp": at,
                "properties": {"browser": browser, "price": if visit % 2 == 0 { json!(50) } else { json!(50.5) },
                    "step": step, "$groups": {"company": format!("c{}", visit % 6)}}}));
        }
    }
    // Person changes of imported events have no effect.
    lines.push(json!({"event": "view", "distinct_id": "p1", "timestamp": "2024-01-05T00:00:00Z",
        "properties": {"$set": {"ghost": true, "plan": "none"}}}));
    for n in 0..40_u64 {
        let ids =
            if n % 5 == 0 { json!([format!("p{n}"), format!("mail{n}")]) } else { json!([format!("p{n}")]) };
        let plan = ["free", "team", "large"][(n % 3) as usize];
        lines.push(
            json!({"person": {"distinct_ids": ids, "created_at": format!("2023-12-01T00:00:{:02}Z", n),
            "properties": {"plan": plan, "n": n, "deep": {"a": [1, null]}}}}),
        );
    }
    for n in 0..6 {
        let properties = json!({"size": n, "name": format!("Company {n}")});
        lines.push(json!({"group": {"type": "company", "index": 0, "key": format!("c{n}"), "properties": properties}}));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn captured(event: &str, distinct_id: &str, day: u32, properties: Value) -> Value {
    json!({"event": event, "distinct_id": distinct_id, "timestamp": format!("2024-01-{day:02}T12:00:00Z"),
        "properties": properties})
}

/// Sends each event in a request of its own, so that they arrive in this order.
fn send(server: &Server, events: &[Value]) {
    for event in events {
        let (status, response) = server.post("/batch/", &json!({"api_key": "phc_process", "batch": [event]}));
        assert_eq!(status, 200, "{response}");
    }
}

/// An installation with imported, compacted and waiting events.
fn filled(directory: &Path) -> Server {
    let data = directory.join("data");
    let server = Server::start(&data, &["--workspace", &workspace(directory).to_string_lossy()]);
    let file = directory.join("history.jsonl");
    std::fs::write(&file, history()).unwrap();
    done(&["import", &file.to_string_lossy(), "--project", "1"], &data);
    send(
        &server,
        &[
            captured("view", "device", 3, json!({"browser": "Opera", "$set": {"plan": "early", "gone": 1}})),
            captured("$identify", "p3", 4, json!({"$anon_distinct_id": "device", "$set": {"plan": "new"}})),
            // Rejected: the device belongs to an identified person.
            captured("$identify", "p4", 5, json!({"$anon_distinct_id": "device"})),
            captured(
                "$groupidentify",
                "p3",
                5,
                json!({"$group_type": "company", "$group_key": "c1",
                "$group_set": {"size": 99}}),
            ),
        ],
    );
    done(&["compact"], &data);
    send(
        &server,
        &[
            captured("buy", "device", 6, json!({"browser": "Opera", "price": 7.25, "$unset": ["gone"]})),
            captured("$create_alias", "p6", 7, json!({"alias": "p6-at-work"})),
            captured("view", "p6-at-work", 8, json!({"browser": "Opera", "$set_once": {"first": "work"}})),
            captured("view", "alone", 9, json!({"browser": "Opera"})),
            // Rejected, because the device belongs to a person; the named person is identified from then on, and is not merged by
            // earlier events that arrive later.
            captured("$identify", "p11", 12, json!({"$anon_distinct_id": "device"})),
            captured("$create_alias", "p12", 11, json!({"alias": "p11"})),
            // Persons whose first distinct id is not the one that their id is derived from.
            captured("view", "early", 13, json!({"browser": "Opera"})),
            captured("$identify", "late", 14, json!({"$anon_distinct_id": "early"})),
        ],
    );
    server
}

/// The same queries to each installation, and their responses.
fn responses(server: &Server) -> Vec<(&'static str, Value)> {
    let steps = ["view", "cart", "buy"].map(|id| json!({"id": id, "order": 0}));
    let dates = |mut body: Value| {
        body["date_from"] = json!("2024-01-01");
        body["date_to"] = json!("2024-01-31");
        body
    };
    let series = |math: &str| json!([{"id": "view", "math": math}, {"id": "buy", "math": math}]);
    let requested = [
        ("a funnel by browser", "funnel", json!({"events": steps, "breakdown": "browser"})),
        (
            "a trend by plan",
            "trend",
            json!({"events": series("dau"), "breakdown": "plan", "breakdown_type": "person"}),
        ),
        ("uniques", "trend", json!({"events": series("dau"), "interval": "week"})),
        ("counts", "trend", json!({"events": series("total")})),
        ("sums", "trend", json!({"events": [{"id": "buy", "math": "sum", "math_property": "price"}]})),
        (
            "companies",
            "trend",
            json!({"events": [{"id": "view", "math": "unique_group", "math_group_type_index": 0}],
            "breakdown": "size", "breakdown_type": "group", "breakdown_group_type_index": 0}),
        ),
        ("steps of companies", "funnel", json!({"events": steps, "aggregation_group_type_index": 0})),
    ];
    let send_request = |(name, kind, body): (&'static str, &str, Value)| {
        let path = format!("/api/projects/1/insights/{kind}/?refresh=true");
        let (status, response) = server.post(&path, &dates(body));
        assert_eq!(status, 200, "{name}: {response}");
        (name, response["result"].clone())
    };
    requested.into_iter().map(send_request).collect()
}

/// All persons by id: distinct ids, properties, and the time when they were first seen.
fn persons(server: &Server) -> (Vec<Value>, Vec<Value>) {
    let page = server.get("/api/projects/1/persons/?limit=100");
    assert_eq!(page["next"], Value::Null);
    let mut found = page["results"].as_array().unwrap().clone();
    found.sort_by_key(|person| person["id"].to_string());
    let seen = found.iter().map(|person| person["created_at"].clone()).collect();
    let reported = found.iter().map(|person| {
        let mut ids: Vec<Value> = person["distinct_ids"].as_array().unwrap().clone();
        ids.sort_by_key(Value::to_string);
        json!([person["uuid"], ids, person["properties"]])
    });
    (reported.collect(), seen)
}

/// The exported files of a name, by number.
fn exported(directory: &Path, name: &str) -> Vec<PathBuf> {
    let path = |n: u32| directory.join(format!("project-1/{name}-{n}.jsonl.gz"));
    (1..).map(path).take_while(|path| path.exists()).collect()
}

fn lines(path: &Path) -> Vec<Value> {
    let read = BufReader::new(GzDecoder::new(std::fs::File::open(path).unwrap())).lines();
    read.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

#[test]
fn an_export_gives_the_same_responses_where_it_is_imported() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(directory.path());
    let (before, all_persons) = (responses(&server), persons(&server));
    // Counted from the sent events, independent of the export.
    assert_eq!(all_persons.0.len(), 40 + 2, "two devices and an address were merged into other persons");
    let events = history().lines().filter(|line| line.contains("\"event\"")).count() + 12;

    let out = directory.path().join("out");
    let output_text = done(&["export", "--out", &out.to_string_lossy()], &directory.path().join("data"));
    assert!(
        output_text.contains(&format!("project 1: {events} events, 42 persons, 6 groups")),
        "{output_text}"
    );
    let again = pennon(&["export", "--out", &out.to_string_lossy()], &directory.path().join("data"));
    assert!(!again.status.success() && text(&again.stderr).contains("is there already"));
    assert!(!std::fs::read_to_string(out.join("workspace.json")).unwrap().contains(KEY));
    assert_eq!(server.stop(), 0);
    let in_order = exported(&out, "events").iter().flat_map(|path| lines(path)).collect::<Vec<_>>();
    assert_eq!(in_order.len(), events);
    assert!(in_order.is_sorted_by_key(|line| line["timestamp"].as_str().unwrap().to_owned()));

    let data = directory.path().join("elsewhere");
    done(&["apply", &out.join("workspace.json").to_string_lossy()], &data);
    for (turn, is_again) in [false, true].into_iter().enumerate() {
        for file in ["groups", "persons", "events"].iter().flat_map(|name| exported(&out, name)) {
            let output_text = done(&["import", &file.to_string_lossy()], &data);
            assert!(
                !is_again || output_text.contains(" 0 events") || !output_text.contains(" 0 of them"),
                "{output_text}"
            );
        }
        let server = Server::start(&data, &[]);
        for ((name, was), (_, is)) in before.iter().zip(responses(&server)) {
            assert_eq!(*was, is, "{name}, import {turn}");
        }
        assert_eq!(all_persons, persons(&server), "import {turn}");
        assert_eq!(server.stop(), 0);
    }
}

#[test]
fn a_failed_export_leaves_nothing_and_prints_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let export = |data: &Path, name: &str, more: &[&str]| {
        let out = directory.path().join(name);
        let output_text = pennon(&[&["export", "--out", &out.to_string_lossy()], more].concat(), data);
        (out, output_text)
    };
    // The export of an empty installation is a file without records.
    let empty = directory.path().join("empty");
    let (out, output_text) = export(&empty, "nothing", &[]);
    assert!(
        !output_text.status.success() && text(&output_text.stderr).contains("holds no Pennon installation")
    );
    assert!(!out.exists() && !empty.exists());
    assert_eq!(Server::start(&empty, &["--no-demo"]).stop(), 0);
    let (out, output_text) = export(&empty, "nothing", &[]);
    assert!(output_text.status.success(), "{}", text(&output_text.stderr));
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);

    assert_eq!(filled(directory.path()).stop(), 0);
    let (out, output_text) = export(&data, "other", &["--project", "2"]);
    assert!(!output_text.status.success() && text(&output_text.stderr).contains("there is no project 2"));
    assert!(!out.exists());
    let (out, output_text) = export(&data, "only", &["--project", "1"]);
    assert!(output_text.status.success() && out.join("project-1").exists(), "{}", text(&output_text.stderr));

    // The newest one, into which the earlier ones were merged.
    let lost = super::segments(&data).pop().unwrap();
    let mut damaged = std::fs::read(&lost).unwrap();
    damaged.iter_mut().step_by(100).for_each(|byte| *byte ^= 0x10);
    std::fs::write(&lost, &damaged).unwrap();
    let before = std::fs::read_dir(directory.path()).unwrap().count();
    let (out, output_text) = export(&data, "damaged", &[]);
    let why = text(&output_text.stderr);
    assert!(
        !output_text.status.success() && why.contains("is damaged") && why.contains("nothing was exported"),
        "{why}"
    );
    assert!(!out.exists());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), before, "something is left behind");
}

#[test]
fn a_long_member_list_is_exported_as_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, &["--workspace", &workspace(directory.path()).to_string_lossy()]);
    let ids: Vec<String> = (0..10_001).map(|n| format!("m{n}")).collect();
    let body = json!({"name": "Many", "is_static": true, "distinct_ids": ids});
    let (status, cohort) = server.post("/api/projects/1/cohorts/", &body);
    assert_eq!(status, 201, "{cohort}");
    let few = json!({"name": "Few", "is_static": true, "distinct_ids": ids[..2000]});
    assert_eq!(server.post("/api/projects/1/cohorts/", &few).0, 201);
    let file = directory.path().join("history.jsonl");
    let line = |id: &String| {
        format!("{}\n", json!({"event": "seen", "distinct_id": id, "timestamp": "2024-01-01T00:00:00Z"}))
    };
    std::fs::write(&file, ids.iter().map(line).collect::<String>()).unwrap();
    done(&["import", &file.to_string_lossy(), "--project", "1"], &data);
    let out = directory.path().join("out");
    let output_text = done(&["export", "--out", &out.to_string_lossy()], &data);
    assert!(output_text.contains("10001 members are in project-1/cohort-1.csv"), "{output_text}");
    let table = std::fs::read_to_string(out.join("project-1/cohort-1.csv")).unwrap();
    let mut rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.remove(0), "distinct_id");
    rows.sort_unstable();
    let mut expected = ids.clone();
    expected.sort_unstable();
    assert_eq!(rows, expected);
    let declared: Value =
        serde_json::from_slice(&std::fs::read(out.join("workspace.json")).unwrap()).unwrap();
    assert_eq!(declared["cohorts"][1]["person_ids"].as_array().unwrap().len(), 2000);
    assert_eq!(server.stop(), 0);

    // After the file was applied, the members are on the list.
    let elsewhere = directory.path().join("elsewhere");
    done(&["apply", &out.join("workspace.json").to_string_lossy()], &elsewhere);
    for file in ["persons", "events"].iter().flat_map(|name| exported(&out, name)) {
        done(&["import", &file.to_string_lossy()], &elsewhere);
    }
    let server = Server::start(&elsewhere, &[]);
    let in_cohort = json!({"events": [{"id": "seen", "properties": [{"key": "id", "type": "cohort", "value": 2}]}],
        "date_from": "2024-01-01", "date_to": "2024-01-02"});
    let (status, response) = server.post("/api/projects/1/insights/trend/?refresh=true", &in_cohort);
    assert_eq!((status, &response["result"][0]["count"]), (200, &json!(2000.0)), "{response}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn an_export_in_the_vendors_form_gives_the_same_responses_where_it_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    let server = filled(directory.path());
    let (before, all_persons) = (responses(&server), persons(&server));
    assert_eq!(server.stop(), 0);
    let out = directory.path().join("out");
    let how = ["export", "--form", "posthog", "--out", &out.to_string_lossy()];
    done(&how, &directory.path().join("data"));

    let data = directory.path().join("elsewhere");
    let server = Server::start(&data, &["--workspace", &workspace(directory.path()).to_string_lossy()]);
    for turn in 0..2 {
        for file in exported(&out, "batch") {
            for batch in lines(&file).chunks(200) {
                let body = json!({"api_key": "phc_process", "historical_migration": true, "batch": batch});
                let (status, response) = server.post("/batch/", &body);
                assert_eq!(status, 200, "{response}");
            }
        }
        for ((name, was), (_, is)) in before.iter().zip(responses(&server)) {
            assert_eq!(*was, is, "{name}, sent {turn}");
        }
        assert_eq!(all_persons.0, persons(&server).0, "sent {turn}");
    }
    assert_eq!(server.stop(), 0);
}
