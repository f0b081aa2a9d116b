//! Calculations that nobody waits for, in a server that is stopped and killed.

use serde_json::{Value, json};

use super::{KEY, Server, purchase, served};

/// Asks for the calculation of a new insight in the background; returns what it is called.
fn asked_in_background(server: &Server) -> String {
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
        let (status, told) =
            server.request("GET", &format!("/api/projects/1/query/{id}/"), KEY, &Value::Null);
        match status {
            202 => {}
            200 => return told["query_status"]["results"]["results"][0]["count"].clone(),
            other => panic!("{other}: {told}"),
        }
    }
}

#[test]
fn a_server_works_on_calculations_that_nobody_waits_for() {
    let (_directory, server) = served();
    let query = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "purchase"}]});
    let asked = json!({"query": query, "refresh": "async", "client_query_id": "mine"});
    let (status, asked) = server.post("/api/projects/1/query/", &asked);
    assert_eq!((status, &asked["query_status"]["complete"]), (200, &json!(false)), "{asked}");
    assert_eq!(awaited(&server, "mine"), 0.0);
}

#[test]
fn a_server_calculates_in_the_background_what_it_is_asked_and_what_one_before_it_was() {
    let (directory, mut server) = served();
    let event = purchase("01900000-0000-7000-8000-0000000000e1", 3);
    let (status, _) = server.post("/batch/", &json!({"api_key": "phc_process", "batch": [event]}));
    assert_eq!(status, 200);
    let id = asked_in_background(&server);
    assert_eq!(awaited(&server, &id), 1.0);
    // Killed at once: done or not, the job is done when the next one has started.
    let id = asked_in_background(&server);
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let server = Server::start(&directory.path().join("data"), &[]);
    assert_eq!(awaited(&server, &id), 1.0);
    assert_eq!(server.stop(), 0);
}
