//! `pennon tail`: every event once, until Ctrl-C.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{BINARY, KEY, done, pennon, purchase, served, text, watch};

fn id(n: u32) -> String {
    format!("01900000-0000-7000-8000-0000000000e{n}")
}

#[test]
fn events_are_printed_once_as_they_arrive_until_the_signal() {
    let (directory, server) = served();
    let data = directory.path().join("data");
    let send = |events: &[Value]| {
        assert_eq!(server.post("/batch/", &json!({"api_key": "phc_process", "batch": events})).0, 200);
    };
    send(&[purchase(&id(1), 3), purchase(&id(2), 4)]);
    let url = format!("http://{}", server.address);
    let mut process = Command::new(BINARY)
        .args(["tail", "--json", "--interval", "1", "--lines", "1", "--event", "purchase", "--url", &url])
        .env("PENNON_API_KEY", KEY)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let watched = watch(process.id());
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut next_id = || {
        let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        event["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(next_id(), id(2), "the newest of those that are there");
    let mut other = purchase(&id(3), 5);
    other["event"] = json!("view");
    send(&[other, purchase(&id(4), 6)]);
    assert_eq!(next_id(), id(4));
    send(&[purchase(&id(5), 7), purchase(&id(4), 6)]);
    assert_eq!(next_id(), id(5), "an event that is sent again is printed once");
    watched.send(()).unwrap();
    assert!(Command::new("kill").arg("-INT").arg(process.id().to_string()).status().unwrap().success());
    assert_eq!(process.wait().unwrap().code(), Some(0));
    assert!(lines.next().is_none());

    let latest = done(&["tail", "--once", "--lines", "2"], &data);
    let rows: Vec<&str> = latest.lines().collect();
    assert_eq!(rows.len(), 2, "{latest}");
    assert!(
        rows[0].starts_with("2024-01-06 10:00:00  purchase ") && rows[1].starts_with("2024-01-07 10:00:00"),
        "{latest}"
    );
    assert_eq!(server.stop(), 0);
    let alone = pennon(&["tail"], &data);
    assert!(
        alone.status.code() == Some(1) && text(&alone.stderr).contains("--once"),
        "{}",
        text(&alone.stderr)
    );
    assert_eq!(done(&["tail", "--once", "--lines", "2"], &data), latest);
}
