//! Queries in parts, in processes beside a server.

use serde_json::{Value, json};

use crate::{Server, WORKSPACE};

fn query(server: &Server) -> Value {
    let query = json!({"query": {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "purchase", "math": "dau"}],
        "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-31"}}, "refresh": "force_blocking"});
    let (status, response) = server.post("/api/projects/1/query/", &query);
    assert_eq!(status, 200, "{response}");
    response["results"].clone()
}

/// The processes with this word in their command line and this directory in their environment.
#[cfg(target_os = "linux")]
fn part_processes(data: &std::path::Path) -> Vec<u32> {
    let place = data.canonicalize().unwrap().display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: u32 = entry.unwrap().file_name().to_string_lossy().parse().ok()?;
        let read = |what: &str| {
            std::fs::read(format!("/proc/{id}/{what}"))
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let is_one = read("cmdline").ok()?.contains("run-parts") && read("environ").ok()?.contains(&place);
        is_one.then_some(id)
    });
    processes.collect()
}

#[cfg(target_os = "linux")]
#[test]
fn processes_calculate_parts_are_started_again_and_end_with_their_server() {
    let directory = tempfile::tempdir().unwrap();
    let (file, data) = (directory.path().join("workspace.json"), directory.path().join("data"));
    std::fs::write(&file, WORKSPACE).unwrap();
    let server = Server::start(&data, &["--workspace", &file.to_string_lossy()]);
    let event = |n: u32| {
        json!({"event": "purchase", "distinct_id": format!("p{}", n % 40), "timestamp": format!("2024-01-{:02}T10:00:00Z", 1 + n % 28),
               "uuid": format!("01900000-0000-7000-8000-{n:012}")})
    };
    let batch: Vec<Value> = (0..200).map(event).collect();
    assert_eq!(server.post("/batch/", &json!({"api_key": "phc_process", "batch": batch})).0, 200);
    let expected = query(&server);
    assert_eq!(server.stop(), 0);

    let server = Server::start(&data, &["--parts", "2", "--rows-per-part", "50"]);
    assert!(part_processes(&data).is_empty(), "started by the first query that is split");
    assert_eq!(query(&server), expected);
    let first = part_processes(&data);
    assert_eq!(first.len(), 2);
    for process in &first {
        let killed = std::process::Command::new("kill").args(["-KILL", &process.to_string()]).status();
        assert!(killed.unwrap().success());
    }
    assert_eq!(query(&server), expected, "processes that have ended are started again");
    assert!(part_processes(&data).iter().all(|process| !first.contains(process)));
    let mut server = server;
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    // Closing their standard input ends them.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !part_processes(&data).is_empty() {
        assert!(std::time::Instant::now() < end, "{:?}", part_processes(&data));
        std::thread::yield_now();
    }
}
