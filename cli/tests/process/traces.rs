//! Traces, as an OpenTelemetry collector receives them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::{KEY, Server, WORKSPACE};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A collector that sends each received request, head and body, to a channel.
fn collector() -> (String, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, got) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, sender) = (stream.unwrap(), sender.clone());
            std::thread::spawn(move || {
                while let Some(request) = read_request(&stream) {
                    if sender.send(request).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, got)
}

fn read_request(mut stream: &TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.to_lowercase().split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        .ok()?;
    Some((head, serde_json::from_slice(&body).ok()?))
}

/// Sends a request with an additional header.
fn request(server: &Server, method: &str, path: &str, header: &str, body: &str) {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n{header}\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 201"), "{response}");
}

#[test]
fn a_request_is_a_span_of_the_callers_trace() {
    let (collector, got) = collector();
    let data = tempfile::tempdir().unwrap();
    let workspace = data.path().join("workspace.json");
    std::fs::write(&workspace, WORKSPACE).unwrap();
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b"),
        ("OTEL_SERVICE_NAME", "flags-here"),
    ];
    let store = data.path().join("data");
    let server = Server::start_in(&environment, &store, &["--workspace", workspace.to_str().unwrap()]);
    let parent = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n");
    let (path, body) = ("/api/projects/1/feature_flags/", "{\"key\": \"only-in-the-body\"}");
    // A request that its caller does not trace is not exported.
    let silent = parent.replace("-01\r", "-00\r").replace(TRACE, "00000000000000000000000000000001");
    request(&server, "POST", "/api/projects/1/dashboards/", &silent, "{}");
    request(&server, "POST", path, &parent, body);
    let (head, sent) = got.recv().unwrap();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(
        head.to_lowercase().contains("content-type: application/json\r\n") && head.contains("a b"),
        "{head}"
    );
    let text = sent.to_string();
    assert!(!text.contains(KEY) && !text.contains("only-in-the-body"), "{text}");
    let of = &sent["resourceSpans"][0];
    let service = json!({"key": "service.name", "value": {"stringValue": "flags-here"}});
    assert!(of["resource"]["attributes"].as_array().unwrap().contains(&service), "{of}");
    let spans = of["scopeSpans"][0]["spans"].as_array().unwrap();
    let own = &spans[0];
    assert_eq!(own["name"], "POST /api/projects/{project_id}/feature_flags");
    assert_eq!(
        (&own["traceId"], &own["parentSpanId"], &own["kind"]),
        (&json!(TRACE), &json!("00f067aa0ba902b7"), &json!(2))
    );
    let has = |name: &str, value: Value| {
        assert!(
            own["attributes"].as_array().unwrap().contains(&json!({"key": name, "value": value})),
            "{name}: {own}"
        );
    };
    has("http.request.method", json!({"stringValue": "POST"}));
    has("http.response.status_code", json!({"intValue": "201"}));
    has("pennon.project", json!({"intValue": "1"}));
    let time = |name: &str| own[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(time("startTimeUnixNano") < time("endTimeUnixNano"));
    assert_eq!(server.stop(), 0);
}
