//! Background calculations in a server that is stopped and killed.

use serde_json::{Value, json};

use super::{KEY, Server, purchase, served};

/// Starts the calculation of a new insight in the background; returns its id.
fn start_in_background(server: &Server) -> String {
    let query = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "purchase"}],
        "dateRange": {"date_from": "2024-01-01", "date_to": "2024-01-31"}});
    let (status, made) = server.post("/api/projects/1/insights/", &json!({"name": "i", "query": query}));
    assert_eq!(status, 201, "{made}");
    let shown = server.get(&format!("/api/projects/1/insights/{}/?refresh=force_async", made["id"]));
    assert_eq!(shown["query_status"]["complete"], false, "{shown}");
    shown["query_status"]["id"].as_str().unwrap().to_owned()
}

/// The count of the first series that comes of a calculation in the background.
fn awaited(server: &Server, id: &str) -> Value {
    loop {
        let (status, reported) =
            server.request("GET", &format!("/api/projects/1/query/{id}/"), KEY, &Value::Null);
        match status {
            202 => {}
            200 => return reported["query_status"]["results"]["results"][0]["count"].clone(),
            other => panic!("{other}: {reported}"),
        }
    }
}

#[test]
fn a_server_runs_background_calculations() {
    let (_directory, server) = served();
    let query = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "purchase"}]});
    let requested = json!({"query": query, "refresh": "async", "client_query_id": "mine"});
    let (status, requested) = server.post("/api/projects/1/query/", &requested);
    assert_eq!((status, &requested["query_status"]["complete"]), (200, &json!(false)), "{requested}");
    assert_eq!(awaited(&server, "mine"), 0.0);
}

#[test]
fn a_server_runs_new_background_jobs_and_those_of_an_earlier_server() {
    let (directory, mut server) = served();
    let event = purchase("01900000-0000-7000-8000-0000000000e1", 3);
    let (status, _) = server.post("/batch/", &json!({"api_key": "phc_process", "batch": [event]}));
    assert_eq!(status, 200);
    let id = start_in_background(&server);
    assert_eq!(awaited(&server, &id), 1.0);
    // Killed at once: done or not, the job is done when the next one has started.
    let id = start_in_background(&server);
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let server = Server::start(&directory.path().join("data"), &[]);
    assert_eq!(awaited(&server, &id), 1.0);
    assert_eq!(server.stop(), 0);
}
