//! A data directory that changes under a running server, a read-only copy, and commands after a server was killed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{BINARY, KEY, Server, pennon, purchase, served, text, watch};

const FLAGS: &str = "/api/projects/1/feature_flags/";

fn health(server: &Server) -> (u16, Value) {
    server.request("GET", "/_health", KEY, &Value::Null)
}

/// The only problem that `/_health` names.
fn problem(server: &Server) -> String {
    let (status, body) = health(server);
    assert_eq!(status, 503, "{body}");
    let problems = body["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{body}");
    problems[0].as_str().unwrap().to_owned()
}

#[test]
fn a_write_into_a_removed_database_is_rejected_and_health_names_the_next_step() {
    for name in ["dynamodb.sqlite", "dynamodb.sqlite-wal"] {
        let (directory, server) = served();
        assert_eq!(server.post(FLAGS, &json!({"key": "before"})).0, 201);
        assert_eq!(health(&server), (200, json!("ok")));
        fs::remove_file(directory.path().join("data").join(name)).unwrap();

        for _ in 0..2 {
            let (status, refused) = server.post(FLAGS, &json!({"key": "after"}));
            assert_eq!(status, 503, "{name}: {refused}");
        }
        let (_, refused) = server.request("PATCH", &format!("{FLAGS}1/"), KEY, &json!({"name": "x"}));
        let detail = refused["detail"].as_str().unwrap().to_owned();
        assert!(
            detail.contains(&format!("{name} was removed")) && detail.contains("pennon restore"),
            "{detail}"
        );
        let event = purchase("01900000-0000-7000-8000-0000000000e1", 3);
        assert_eq!(server.post("/batch/", &json!({"api_key": "phc_process", "batch": [event]})).0, 503);
        assert_eq!(problem(&server), detail);
        // Another file with that name does not repair it.
        fs::write(directory.path().join("data").join(name), "").unwrap();
        assert_eq!(problem(&server), detail);
        assert_eq!(server.post(FLAGS, &json!({"key": "after"})).0, 503);
    }
}

#[test]
fn health_names_a_removed_events_directory_and_recovers() {
    let (directory, server) = served();
    let (events, away) = (directory.path().join("data/events"), directory.path().join("data/away"));
    fs::rename(&events, &away).unwrap();
    assert!(problem(&server).contains("events was removed or replaced"));
    fs::create_dir(&events).unwrap();
    assert!(problem(&server).contains("events was removed or replaced"));
    fs::remove_dir(&events).unwrap();
    fs::rename(&away, &events).unwrap();
    assert_eq!(health(&server), (200, json!("ok")));
}

#[test]
fn health_names_a_read_only_directory_and_recovers() {
    let (directory, server) = served();
    for path in ["data/health.probe", "data/events/health.probe"] {
        // The probe file cannot be created if a directory has its name.
        let obstacle = directory.path().join(path);
        fs::create_dir(&obstacle).unwrap();
        let parent = obstacle.parent().unwrap().display().to_string();
        assert!(problem(&server).contains(&format!("{parent} cannot be written")));
        fs::remove_dir(&obstacle).unwrap();
        assert_eq!(health(&server), (200, json!("ok")));
        assert!(!obstacle.exists(), "nothing is left of looking");
    }
}

/// The probe file is replaced by a device on which every write fails as on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn health_names_a_full_disk_and_recovers() {
    let (directory, server) = served();
    for path in ["data/health.probe", "data/events/health.probe"] {
        let probe = directory.path().join(path);
        std::os::unix::fs::symlink("/dev/full", &probe).unwrap();
        let full = problem(&server);
        let parent = probe.parent().unwrap().display().to_string();
        assert!(full.contains(&format!("{parent} cannot be written")), "{full}");
        assert!(full.contains("Free disk space"), "{full}");
        assert_eq!(health(&server), (200, json!("ok")), "the probe has removed its file");
        assert!(probe.symlink_metadata().is_err());
    }
}

#[test]
fn health_names_a_removed_lock_and_recovers() {
    let (directory, server) = served();
    let (lock, away) = (directory.path().join("data/lock"), directory.path().join("data/away"));
    fs::rename(&lock, &away).unwrap();
    assert!(problem(&server).contains("lock was removed or replaced"));
    fs::write(&lock, "").unwrap();
    let replaced = problem(&server);
    assert!(replaced.contains("lock was removed or replaced") && replaced.contains("start the server again"));
    fs::remove_file(&lock).unwrap();
    fs::rename(&away, &lock).unwrap();
    assert_eq!(health(&server), (200, json!("ok")));
}

#[test]
fn health_names_an_emptied_events_directory_and_recovers() {
    let (directory, server) = served();
    let (events, away) = (directory.path().join("data/events"), directory.path().join("data/away"));
    fs::create_dir(&away).unwrap();
    let move_all = |from: &Path, to: &Path| {
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            fs::rename(entry.path(), to.join(entry.file_name())).unwrap();
        }
    };
    move_all(&events, &away);
    let emptied = problem(&server);
    assert!(emptied.contains("events/installation/") && emptied.contains("pennon restore"), "{emptied}");
    move_all(&away, &events);
    assert_eq!(health(&server), (200, json!("ok")));
}

/// Captures more than the server lets wait, so that it compacts at once: each event is a purchase with 60 KB that hardly
/// shrink.
fn capture_until_compaction_begins(server: &Server, state: &mut u64) -> u32 {
    const BATCHES: u32 = 24;
    const EVENTS: u32 = 10;
    let mut letters = || -> String {
        let letter = |_| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'0' + (*state >> 58) as u8)
        };
        (0..60_000).map(letter).collect()
    };
    for _ in 0..BATCHES {
        let event = |_| {
            json!({"event": "purchase", "distinct_id": "d", "timestamp": "2024-01-03T10:00:00Z",
                "properties": {"letters": letters()}})
        };
        let batch: Vec<Value> = (0..EVENTS).map(event).collect();
        let (status, response) = server.post("/batch/", &json!({"api_key": "phc_process", "batch": batch}));
        assert_eq!(status, 200, "{response}");
    }
    BATCHES * EVENTS
}

#[test]
fn a_server_moves_no_events_into_a_directory_that_is_not_its_own() {
    /// Much more time than compaction takes to begin.
    const CHANCE: Duration = Duration::from_secs(5);
    const PATIENCE: Duration = Duration::from_secs(100);
    let (directory, server) = served();
    let data = directory.path().join("data");
    let (events, away) = (data.join("events"), data.join("away"));
    fs::rename(&events, &away).unwrap();
    let mut state = 1;
    let first = capture_until_compaction_begins(&server, &mut state);
    let begun = Instant::now();
    while begun.elapsed() < CHANCE {
        assert!(problem(&server).contains("events was removed or replaced"));
        assert!(!events.exists(), "events were moved to a directory that was not created");
    }
    fs::rename(&away, &events).unwrap();
    assert_eq!(health(&server), (200, json!("ok")));
    assert_eq!(server.purchases(), f64::from(first));
    // In its own directory, it moves them.
    let second = capture_until_compaction_begins(&server, &mut state);
    let begun = Instant::now();
    while !data.join("events/project=1/events").exists() || super::segments(&data).is_empty() {
        assert!(begun.elapsed() < PATIENCE, "nothing is compacted");
        assert_eq!(health(&server), (200, json!("ok")));
    }
    assert_eq!(server.purchases(), f64::from(first + second));
    assert_eq!(server.stop(), 0);
}

/// Every file and directory below `root`, with its content and when it was changed.
fn listing(root: &Path) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let metadata = fs::metadata(&path).unwrap();
        let content = if metadata.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        found.insert(path.display().to_string(), (content, metadata.modified().unwrap()));
    }
    found
}

fn shell(command: &str, path: &Path) {
    assert!(Command::new("sh").args(["-c", command, "sh"]).arg(path).status().unwrap().success());
}

#[test]
fn check_query_and_export_read_a_copy_that_cannot_be_written() {
    let (directory, mut server) = served();
    let data = directory.path().join("data");
    assert_eq!(server.post(FLAGS, &json!({"key": "kept"})).0, 201);
    let events: Vec<Value> =
        (0..3).map(|n| purchase(&format!("01900000-0000-7000-8000-0000000000e{n}"), 3 + n)).collect();
    assert_eq!(server.post("/batch/", &json!({"api_key": "phc_process", "batch": events[..2]})).0, 200);
    // Some events are in files, and one in the database, whose last writes are in the WAL that the kill leaves.
    assert!(pennon(&["compact"], &data).status.success());
    assert_eq!(server.post("/batch/", &json!({"api_key": "phc_process", "batch": events[2..]})).0, 200);
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    assert!(fs::metadata(data.join("dynamodb.sqlite-wal")).unwrap().len() > 0);
    assert!(data.join("server.json").exists(), "what the killed server announced is still there");
    shell("chmod -R a-w \"$1\"", &data);
    let before = listing(&data);

    let query = directory.path().join("query.json");
    let filters = json!({"insight": "TRENDS", "events": [{"id": "purchase"}], "date_from": "2024-01-01", "date_to": "2024-01-31",
        "display": "BoldNumber"});
    fs::write(&query, filters.to_string()).unwrap();
    let succeed = |arguments: &[&str]| {
        let output = pennon(arguments, &data);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        assert!(before == listing(&data), "{arguments:?} changed something in the directory");
        text(&output.stdout)
    };
    let checked = succeed(&["check"]);
    assert!(checked.contains("project 1"), "{checked}");
    let response = succeed(&["query", &query.to_string_lossy(), "--json"]);
    assert!(response.contains("\"aggregated_value\": 3"), "{response}");
    let out = directory.path().join("out");
    succeed(&["export", "--out", &out.to_string_lossy()]);
    let exported: Vec<u8> = listing(&out).into_values().flat_map(|(content, _)| content).collect();
    assert!(String::from_utf8_lossy(&exported).contains("kept"), "the flag is exported");

    // Makes it removable.
    shell("chmod -R u+w \"$1\"", &data);
}

/// Runs a command. If it does not end, it is killed and its test fails.
fn bounded(arguments: &[&str], data: &Path) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments).arg("--data").arg(data).stdout(Stdio::piped()).stderr(Stdio::piped());
    let process = command.spawn().unwrap();
    let watched = watch(process.id());
    let output = process.wait_with_output().unwrap();
    let _ = watched.send(());
    output
}

#[test]
fn a_command_works_after_a_server_was_killed() {
    let (directory, mut server) = served();
    let data = directory.path().join("data");
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    assert!(data.join("server.json").exists());
    let listed = bounded(&["keys", "list"], &data);
    assert!(listed.status.success() && text(&listed.stdout).contains("test"), "{}", text(&listed.stderr));
}

#[test]
fn a_command_beside_a_process_that_does_not_respond_ends_with_an_error() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    assert_eq!(server.stop(), 0);
    let lock = File::options().write(true).open(data.join("lock")).unwrap();
    lock.lock().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    // Nothing listens on the first port; a free one could be another test's by then.
    let closed = "127.0.0.1:1".to_owned();
    for (address, why) in
        [(silent.local_addr().unwrap().to_string(), "no response"), (closed, "no connection")]
    {
        let info = json!({"http": format!("http://{address}"), "dynamodb": format!("http://{address}"),
            "access_key_id": "none", "pid": 4_000_000});
        fs::write(data.join("server.json"), info.to_string()).unwrap();
        let begun = Instant::now();
        let refused = bounded(&["keys", "list"], &data);
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        let output_text = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{output_text}");
        assert!(
            output_text.contains("does not respond at")
                && output_text.contains(why)
                && output_text.contains("4000000"),
            "{output_text}"
        );
    }
}
