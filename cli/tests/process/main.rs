//! The binary as a user runs it: start, stop, kill, start again, and commands beside a running server.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod background;
mod backup;
mod cloud;
#[cfg(unix)]
mod connections;
mod damaged_rows;
mod data_directory;
mod declared;
mod demo;
mod doctor;
mod empty;
mod export;
mod flags;
mod formats;
mod impact;
mod imports;
mod lost;
mod memory;
mod options;
mod output;
mod parts;
#[cfg(unix)]
mod private;
#[cfg(unix)]
mod profiles;
mod records;
mod refused;
mod shown;
#[cfg(unix)]
mod tail;
mod traces;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

const BINARY: &str = env!("CARGO_BIN_EXE_pennon");
const KEY: &str = "phx_process_test_0123456789012345678901234567890";
const WORKSPACE: &str = r#"{
  "organizations": [{"id": "01900000-0000-7000-8000-000000000001", "name": "Acme"}],
  "users": [{"id": 1, "email": "ada@example.com",
             "memberships": [{"organization": "01900000-0000-7000-8000-000000000001", "level": "owner"}]}],
  "projects": [{"id": "1", "organization": "01900000-0000-7000-8000-000000000001", "token": "phc_process"}],
  "keys": [{"label": "test", "user": "ada@example.com", "scopes": ["*"],
            "value": "phx_process_test_0123456789012345678901234567890"}]
}"#;

struct Server {
    process: Child,
    address: String,
    output_text: String,
}

impl Server {
    /// Starts on a free port and waits until it has printed its address and the next steps.
    fn start(data: &Path, more: &[&str]) -> Server {
        Server::start_in(&[], data, more)
    }

    /// The same, with additional environment variables.
    fn start_in(environment: &[(&str, &str)], data: &Path, more: &[&str]) -> Server {
        Server::start_by(Command::new(BINARY).envs(environment.iter().copied()), data, more)
    }

    /// The same, by a command that runs the binary with the arguments that it gets.
    fn start_by(command: &mut Command, data: &Path, more: &[&str]) -> Server {
        let mut process = command
            .args(["serve", "--port", "0", "--data"])
            .arg(data)
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let watched = watch(process.id());
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut output_text = String::new();
        let address = loop {
            let line = lines.next().expect("the server ended while starting").unwrap();
            output_text.push_str(&line);
            output_text.push('\n');
            if let Some(url) = line.strip_prefix("Pennon serves on http://") {
                break url.to_owned();
            }
        };
        for line in lines {
            let line = line.unwrap();
            output_text.push_str(&line);
            output_text.push('\n');
            if line.starts_with("Ctrl-C") {
                break;
            }
        }
        watched.send(()).unwrap();
        Server { process, address, output_text }
    }

    fn request(&self, method: &str, path: &str, key: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let status = response.split(' ').nth(1).unwrap().parse().unwrap();
        let body = response.split_once("\r\n\r\n").unwrap().1;
        (status, serde_json::from_str(body).unwrap_or(Value::String(body.to_owned())))
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.request("GET", path, KEY, &Value::Null);
        assert_eq!(status, 200, "{body}");
        body
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.request("POST", path, KEY, body)
    }

    fn purchases(&self) -> Value {
        let body =
            json!({"events": [{"id": "purchase"}], "date_from": "2024-01-01", "date_to": "2024-01-31"});
        let (status, response) = self.post("/api/projects/1/insights/trend/?refresh=true", &body);
        assert_eq!(status, 200, "{response}");
        response["result"][0]["count"].clone()
    }

    /// Requests that the process ends, and returns its exit status.
    fn stop(mut self) -> i32 {
        let requested =
            Command::new("kill").arg("-TERM").arg(self.process.id().to_string()).status().unwrap();
        assert!(requested.success());
        self.process.wait().unwrap().code().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Kills a process that does not start in time, so that its test fails and does not wait forever.
fn watch(process: u32) -> mpsc::Sender<()> {
    let (ready, waiting) = mpsc::channel();
    std::thread::spawn(move || {
        if waiting.recv_timeout(Duration::from_secs(120)).is_err() {
            let _ = Command::new("kill").arg("-KILL").arg(process.to_string()).status();
        }
    });
    ready
}

fn pennon(arguments: &[&str], data: &Path) -> Output {
    Command::new(BINARY).args(arguments).arg("--data").arg(data).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A data directory with the workspace applied and the server on it.
fn served() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("workspace.json");
    std::fs::write(&file, WORKSPACE).unwrap();
    let server = Server::start(&directory.path().join("data"), &["--workspace", &file.to_string_lossy()]);
    (directory, server)
}

fn purchase(uuid: &str, day: u32) -> Value {
    json!({"event": "purchase", "distinct_id": "d", "timestamp": format!("2024-01-{day:02}T10:00:00Z"), "uuid": uuid})
}

#[test]
fn acknowledged_writes_survive_a_kill_and_a_clean_stop() {
    let (directory, mut server) = served();
    let data = directory.path().join("data");
    let (status, flag) = server.post("/api/projects/1/feature_flags/", &json!({"key": "kept"}));
    assert_eq!(status, 201, "{flag}");
    let event = purchase("01900000-0000-7000-8000-0000000000e1", 3);
    let (status, _) = server.post("/batch/", &json!({"api_key": "phc_process", "batch": [event]}));
    assert_eq!(status, 200);
    server.process.kill().unwrap();
    server.process.wait().unwrap();

    let server = Server::start(&data, &[]);
    assert_eq!(server.get("/api/projects/1/feature_flags/")["results"][0]["key"], "kept");
    assert_eq!(server.purchases(), 1.0);
    let (status, _) = server.post("/batch/", &json!({"api_key": "phc_process", "batch": [event]}));
    assert_eq!((status, server.purchases()), (200, json!(1.0)), "a resent event counts once");
    assert!(!server.output_text.contains("phx_"), "no key is shown again");
    assert_eq!(server.stop(), 0);
    let server = Server::start(&data, &[]);
    assert_eq!(server.purchases(), 1.0);
}

#[test]
fn commands_work_beside_a_running_server_and_a_second_server_is_rejected() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    let second = pennon(&["serve", "--port", "0"], &data);
    assert!(!second.status.success());
    assert!(text(&second.stderr).contains("served by another process"), "{}", text(&second.stderr));

    let made = pennon(
        &["keys", "create", "--label", "ci", "--scope", "feature_flag:read", "--expires", "30d"],
        &data,
    );
    let key = text(&made.stdout).trim().to_owned();
    assert!(key.starts_with("phx_"), "{}", text(&made.stderr));
    let list = |key: &str| server.request("GET", "/api/projects/1/feature_flags/", key, &Value::Null).0;
    assert_eq!(list(&key), 200);
    let shown = text(&pennon(&["keys", "list"], &data).stdout);
    assert!(shown.contains("ci  ada@example.com  [feature_flag:read]"), "{shown}");
    assert!(!shown.contains(&key) && !shown.contains(KEY), "a list shows no secrets");
    assert!(pennon(&["keys", "revoke", &key], &data).status.success());
    assert!(!text(&pennon(&["keys", "list"], &data).stdout).contains("  ci  "));

    let history = directory.path().join("history.jsonl");
    std::fs::write(
        &history,
        "{\"event\": \"purchase\", \"distinct_id\": \"d\", \"timestamp\": \"2024-01-09T10:00:00Z\"}\n",
    )
    .unwrap();
    let history = history.to_string_lossy().into_owned();
    for _ in 0..2 {
        let done = pennon(&["import", &history, "--project", "1"], &data);
        assert!(done.status.success(), "{}", text(&done.stderr));
        assert_eq!(server.purchases(), 1.0, "a repeated import counts once");
    }
    let changed = directory.path().join("more.yaml");
    std::fs::write(&changed, "keys: [{label: more, user: ada@example.com, scopes: ['*']}]").unwrap();
    let changed = changed.to_string_lossy().into_owned();
    let dry = text(&pennon(&["apply", &changed, "--dry-run"], &data).stdout);
    assert!(dry.starts_with("+ key \"more\" of ada@example.com\n1 to change"), "{dry}");
    assert!(text(&pennon(&["apply", &changed], &data).stdout).contains("phx_"));
    assert!(text(&pennon(&["apply", &changed], &data).stdout).contains("nothing to change"));
    assert_eq!(server.stop(), 0);
}

/// Lines of events for two projects, in the order in which an import stores them: each project's are a segment.
fn history(path: &Path, events: u64) {
    let line = |n: u64| {
        let fields = json!({"project": 1 + n % 2, "event": "seen", "distinct_id": format!("p{}", n % 100),
            "timestamp": format!("2024-01-{:02}T10:00:00Z", 1 + n % 28), "properties": {"n": n}});
        format!("{fields}\n")
    };
    std::fs::write(path, (0..events).map(line).collect::<String>()).unwrap();
}

/// The number of events of the history in a project.
fn seen(data: &Path, project: u64) -> u64 {
    let query = data.with_extension("query.json");
    let node = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "seen"}],
        "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-31"}});
    std::fs::write(&query, node.to_string()).unwrap();
    let of = project.to_string();
    let done = pennon(&["query", &query.to_string_lossy(), "--project", &of, "--json"], data);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let response: Value = serde_json::from_slice(&done.stdout).unwrap();
    let days = response["result"][0]["data"].as_array().into_iter().flatten();
    days.map(|day| day.as_f64().unwrap() as u64).sum()
}

/// Files below a directory.
fn files(directory: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries.flatten().map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}

/// Objects of events.
fn objects(data: &Path) -> usize {
    // Marks are replaced while they are counted.
    files(&data.join("events")).saturating_sub(files(&data.join("events/installation")))
}

#[test]
fn a_killed_or_stopped_import_stores_complete_parts_and_the_next_one_adds_the_rest() {
    const EVENTS: u64 = 6000;
    let directory = tempfile::tempdir().unwrap();
    let (file, data) = (directory.path().join("history.jsonl"), directory.path().join("data"));
    history(&file, EVENTS);
    let workspace = directory.path().join("workspace.json");
    let mut declared: Value = serde_json::from_str(WORKSPACE).unwrap();
    let mut second = declared["projects"][0].clone();
    (second["id"], second["token"]) = (json!("2"), json!("phc_second"));
    declared["projects"].as_array_mut().unwrap().push(second);
    std::fs::write(&workspace, declared.to_string()).unwrap();
    assert!(pennon(&["apply", &workspace.to_string_lossy()], &data).status.success());
    // Killed when so many objects exist: before the first segment is listed, and between the two.
    for (more, signal) in [(1, "-KILL"), (3, "-KILL"), (6, "-INT"), (8, "-KILL"), (9, "-TERM")] {
        let mut import = Command::new(BINARY)
            .args(["import", &file.to_string_lossy(), "--data", &data.to_string_lossy()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = objects(&data);
        while objects(&data) < begun + more && import.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let _ = Command::new("kill").arg(signal).arg(import.id().to_string()).stderr(Stdio::null()).status();
        let done = import.wait_with_output().unwrap();
        let output_text = text(&done.stderr);
        assert!(!output_text.contains("checking"), "no progress without a terminal: {output_text}");
        if signal != "-KILL" && !done.status.success() {
            assert!(
                output_text.contains("import") && output_text.contains("again to add the rest"),
                "{output_text}"
            );
        }
        for project in [1, 2] {
            let counted = seen(&data, project);
            assert!([0, EVENTS / 2].contains(&counted), "{counted} of project {project}, half imported");
        }
    }
    for is_again in [false, true] {
        let done = pennon(&["import", &file.to_string_lossy()], &data);
        let output_text = text(&done.stdout);
        assert!(done.status.success() && output_text.contains(&format!("{EVENTS} events")), "{output_text}");
        assert!(
            !is_again || output_text.contains(&format!("{EVENTS} of them were there already")),
            "{output_text}"
        );
        assert_eq!((seen(&data, 1), seen(&data, 2)), (EVENTS / 2, EVENTS / 2));
    }
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = Command::new(BINARY).args(["routes", "--json"]).stdout(writer).output().unwrap();
    assert_eq!((ended.status.code(), text(&ended.stderr)), (Some(0), String::new()));
}

/// The Parquet object of each segment, oldest first.
fn segments(data: &Path) -> Vec<std::path::PathBuf> {
    let folder = data.join("events/project=1/events");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_beside = |path: &Path| {
        [".ids.parquet", ".groups.parquet"].iter().any(|end| path.to_string_lossy().ends_with(end))
    };
    let mut found = files
        .filter(|path| path.extension().is_some_and(|end| end == "parquet") && !is_beside(path))
        .collect::<Vec<_>>();
    found.sort();
    found
}

fn done(arguments: &[&str], data: &Path) -> String {
    let output = pennon(arguments, data);
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn damage_is_reported_by_responses_and_by_a_check_and_is_repaired_or_dropped() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    let sent = [
        purchase("01900000-0000-7000-8000-0000000000e1", 3),
        purchase("01900000-0000-7000-8000-0000000000e2", 4),
    ];
    let (status, _) = server.post("/batch/", &json!({"api_key": "phc_process", "batch": sent}));
    assert_eq!(status, 200);
    assert!(done(&["compact"], &data).contains("1 blocks with 2 events"));
    let history = directory.path().join("history.jsonl");
    std::fs::write(
        &history,
        "{\"event\": \"view\", \"distinct_id\": \"v\", \"timestamp\": \"2024-01-09T10:00:00Z\"}\n",
    )
    .unwrap();
    done(&["import", &history.to_string_lossy(), "--project", "1"], &data);
    assert_eq!(server.purchases(), 2.0);
    let checked = done(&["check"], &data);
    assert!(checked.contains("objects") && !checked.contains("damaged"), "{checked}");
    assert_eq!(server.stop(), 0);

    let lost = segments(&data).remove(0);
    let whole = std::fs::read(&lost).unwrap();
    let mut damaged = whole.clone();
    damaged.iter_mut().step_by(100).for_each(|byte| *byte ^= 0x10);
    std::fs::write(&lost, &damaged).unwrap();
    let server = Server::start(&data, &[]);
    let send_request = |name: &str| {
        let body = json!({"events": [{"id": name}], "date_from": "2024-01-01", "date_to": "2024-01-31"});
        server.post("/api/projects/1/insights/trend/?refresh=true", &body)
    };
    let (status, refused) = send_request("purchase");
    assert_eq!(
        (status, &refused["type"], &refused["code"]),
        (503, &json!("server_error"), &json!("damaged_data")),
        "{refused}"
    );
    let detail = refused["detail"].as_str().unwrap();
    assert!(
        detail.contains("`pennon check`") && detail.contains(lost.file_stem().unwrap().to_str().unwrap()),
        "{detail}"
    );
    let (status, views) = send_request("view");
    assert_eq!(
        (status, &views["result"][0]["count"]),
        (200, &json!(1.0)),
        "a query that does not need it has a result: {views}"
    );

    let reported = pennon(&["check"], &data);
    assert!(!reported.status.success());
    let id = lost.file_stem().unwrap().to_str().unwrap();
    let output_text = text(&reported.stdout);
    for part in [
        "2 events from 2024-01-03T10:00:00+00:00 to 2024-01-04T10:00:00+00:00",
        &format!("--project 1 --drop {id}"),
        "--lift",
    ] {
        assert!(output_text.contains(part), "{part} in {output_text}");
    }
    std::fs::write(&lost, &whole).unwrap();
    assert!(done(&["check", "--lift"], &data).contains("is intact again"));
    assert_eq!(server.purchases(), 2.0);

    assert_eq!(server.stop(), 0);
    std::fs::write(&lost, &damaged).unwrap();
    assert!(done(&["check", "--project", "1", "--drop", id], &data).contains("was dropped"));
    let server = Server::start(&data, &[]);
    assert_eq!(server.purchases(), 0.0);
    assert!(!done(&["check"], &data).contains("damaged"));
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_person_is_erased_beside_a_running_server() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    let mut other = purchase("01900000-0000-7000-8000-0000000000e2", 4);
    other["distinct_id"] = "other".into();
    let sent = json!({"api_key": "phc_process", "batch": [purchase("01900000-0000-7000-8000-0000000000e1", 3), other]});
    assert_eq!(server.post("/batch/", &sent).0, 200);
    assert_eq!(server.purchases(), 2.0);
    let dry = done(&["delete", "--person", "d", "--dry-run"], &data);
    assert_eq!(dry.trim(), "project 1, person \"d\": 1 events, in 0 segments");
    let unasked = pennon(&["delete", "--person", "d"], &data);
    assert!(
        !unasked.status.success() && text(&unasked.stderr).contains("--yes"),
        "{}",
        text(&unasked.stderr)
    );
    assert_eq!(server.purchases(), 2.0);
    let output_text = done(&["delete", "--person", "d", "--yes"], &data);
    assert!(output_text.contains("erased 1 events; 1 segments were written anew"), "{output_text}");
    assert_eq!(server.purchases(), 1.0);
    assert!(done(&["delete", "--person", "d", "--yes"], &data).starts_with("project 1 has no person \"d\""));
    assert_eq!(server.get("/api/projects/1/persons/?distinct_id=d")["count"], 0);
    assert_eq!(server.stop(), 0);
}
