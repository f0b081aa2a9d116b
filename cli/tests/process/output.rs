//! `--json`: every command that prints something prints one JSON document, and nothing else, on standard output.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{BINARY, WORKSPACE, pennon, purchase, served, text};

/// The document that a command prints with `--json`.
fn document(arguments: &[&str], data: &Path) -> Value {
    let done = pennon(&[arguments, &["--json"]].concat(), data);
    assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
    assert!(!text(&done.stdout).contains('\u{1b}') && !text(&done.stderr).contains('\u{1b}'));
    serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|e| panic!("{arguments:?}: {e}: {}", text(&done.stdout)))
}

#[test]
fn commands_on_an_installation_print_one_document() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let sent: Vec<Value> =
        (1..=3).map(|n| purchase(&format!("01900000-0000-7000-8000-0000000000e{n}"), n)).collect();
    assert_eq!(server.post("/batch/", &json!({"api_key": "phc_process", "batch": sent})).0, 200);

    std::fs::write(path("more.yaml"), "keys: [{label: more, user: ada@example.com, scopes: ['*']}]").unwrap();
    let planned = document(&["apply", &path("more.yaml"), "--dry-run"], &data);
    assert_eq!(
        planned["changes"],
        json!([{"action": "create", "record": "key \"more\" of ada@example.com"}])
    );
    assert_eq!((&planned["dry_run"], &planned["new_keys"]), (&json!(true), &json!([])));
    let applied = document(&["apply", &path("more.yaml")], &data);
    assert!(applied["new_keys"][0]["key"].as_str().unwrap().starts_with("phx_"), "{applied}");
    let created = document(&["keys", "create", "--label", "ci", "--project", "1"], &data);
    assert!(created["key"].as_str().unwrap().starts_with("phx_"), "{created}");
    let listed = document(&["keys", "list"], &data);
    let ci = listed.as_array().unwrap().iter().find(|key| key["label"] == "ci").unwrap();
    assert_eq!(
        (&ci["projects"], &ci["expires_at"], &ci["user"]),
        (&json!([1]), &Value::Null, &json!("ada@example.com"))
    );
    assert!(!listed.to_string().contains(created["key"].as_str().unwrap()), "no secrets are listed");
    assert_eq!(document(&["keys", "revoke", "ci"], &data), json!({"revoked": "ci"}));

    let variables = document(&["env"], &data);
    assert!(variables["AWS_ENDPOINT_URL_DYNAMODB"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    let payload_key = std::fs::read_to_string(data.join("payload.key")).unwrap();
    assert_eq!(variables["PENNON_PAYLOAD_KEY"], payload_key.trim());
    let compacted = document(&["compact"], &data);
    assert_eq!(
        (&compacted["projects"][0]["project"], &compacted["projects"][0]["events"]),
        (&json!(1), &json!(3))
    );
    let checked = document(&["check"], &data);
    assert_eq!((&checked["damaged"], &checked["projects"][0]["damaged"]), (&json!(0), &json!([])));
    assert!(checked["projects"][0]["objects"].as_u64().unwrap() > 0, "{checked}");
    let exported = document(&["export", "--out", &path("leaving")], &data);
    assert_eq!(exported["projects"]["1"]["events"], 3);
    assert_eq!(exported["directory"], path("leaving"));
    let copied = document(&["backup", "--out", &path("copy.tar")], &data);
    assert_eq!((&copied["path"], &copied["has_payload_key"]), (&json!(path("copy.tar")), &json!(false)));
    let restored = document(&["restore", &path("copy.tar")], &directory.path().join("restored"));
    assert_eq!(restored["event_files"], copied["event_files"]);
    let adopted = document(&["adopt"], &directory.path().join("restored"));
    assert_eq!((&adopted["kept_files"], &adopted["missing_files"]), (&json!(0), &json!(0)));

    let found = document(&["delete", "--person", "d", "--dry-run"], &data);
    assert_eq!(
        (&found["dry_run"], &found["found"]["events"], &found["found"]["person"]),
        (&json!(true), &json!(3), &json!("d"))
    );
    assert_eq!(server.purchases(), 3.0);
    let erased = document(&["delete", "--person", "d", "--yes"], &data);
    assert_eq!((&erased["erased"]["events"], &erased["erased"]["project"]), (&json!(3), &json!(1)));
    assert_eq!(server.purchases(), 0.0);
    assert_eq!(server.stop(), 0);
}

#[test]
fn commands_that_need_no_installation_print_one_document() {
    for arguments in
        [&["routes", "--json"][..], &["openapi", "--json"], &["cost", "--events", "1M", "--json"]]
    {
        let done = Command::new(BINARY).args(arguments).output().unwrap();
        assert!(
            serde_json::from_slice::<Value>(&done.stdout).is_ok(),
            "{arguments:?}: {}",
            text(&done.stderr)
        );
    }
    let of = |arguments: &[&str]| Command::new(BINARY).args(arguments).output().unwrap().stdout;
    let estimate: Value = serde_json::from_slice(&of(&["cost", "--events", "1M", "--json"])).unwrap();
    let bill: f64 =
        estimate["bill"].as_array().unwrap().iter().map(|line| line["cost"].as_f64().unwrap()).sum();
    assert!((bill - estimate["total"].as_f64().unwrap()).abs() < 1e-9 && bill > 0.0, "{estimate}");
    assert!(text(&of(&["openapi", "--yaml"])).starts_with("openapi:"));
}

#[test]
fn a_server_prints_a_line_for_each_new_key_and_one_when_it_is_ready() {
    let directory = tempfile::tempdir().unwrap();
    let (file, data) = (directory.path().join("workspace.json"), directory.path().join("data"));
    let mut workspace: Value = serde_json::from_str(WORKSPACE).unwrap();
    workspace["keys"][0].as_object_mut().unwrap().remove("value");
    std::fs::write(&file, workspace.to_string()).unwrap();
    let mut process = Command::new(BINARY)
        .args(["serve", "--port", "0", "--json", "--data"])
        .arg(&data)
        .arg("--workspace")
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let watched = super::watch(process.id());
    let lines = std::io::BufRead::lines(std::io::BufReader::new(process.stdout.take().unwrap()));
    let lines: Vec<Value> = lines.take(2).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    watched.send(()).unwrap();
    assert_eq!((&lines[0]["type"], &lines[0]["label"]), (&json!("new_key"), &json!("test")));
    assert!(lines[0]["key"].as_str().unwrap().starts_with("phx_"));
    assert_eq!((&lines[1]["type"], &lines[1]["demo"]), (&json!("ready"), &Value::Null));
    let address = lines[1]["http"].as_str().unwrap().strip_prefix("http://").unwrap();
    assert!(std::net::TcpStream::connect(address).is_ok());
    process.kill().unwrap();
    process.wait().unwrap();
}
