//! Limits of connections, tested with sockets that behave as no HTTP client does.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::{BINARY, KEY, Server, WORKSPACE};

/// A server with the workspace and these options.
fn served(options: &[&str]) -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("workspace.json");
    std::fs::write(&file, WORKSPACE).unwrap();
    let file = file.to_string_lossy().into_owned();
    let options = [&["--workspace", &file], options].concat();
    let server = Server::start(&directory.path().join("data"), &options);
    (directory, server)
}

/// A connection that times out instead of hanging.
fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Everything received until the connection ends, also by a reset.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(e) if e.kind() != ErrorKind::ConnectionReset => panic!("the connection stays open: {e}"),
        _ => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// Sends a request on a connection that stays open, and reads its response.
fn health(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /_health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 1024]);
    while !text.ends_with("ok") {
        let bytes = stream.read(&mut buffer).unwrap();
        assert!(bytes > 0, "the connection ended: {text}");
        text.push_str(std::str::from_utf8(&buffer[..bytes]).unwrap());
    }
    text
}

/// Whether the server has sent a response on this connection, or closed it.
fn has_response(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    !matches!(peeked, Err(e) if e.kind() == ErrorKind::WouldBlock)
}

fn head(body_headers: &str) -> String {
    format!(
        "POST /api/projects/1/feature_flags/ HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\n{body_headers}\r\n\r\n"
    )
}

fn is_served(server: &Server) {
    assert_eq!(server.get("/api/projects/1/feature_flags/")["count"], json!(0));
}

#[test]
fn a_declared_length_above_the_limit_is_refused_before_the_body_is_sent() {
    let (_directory, server) = served(&[]);
    for length in ["6000001", "5000000000"] {
        let mut stream = connect(&server.address);
        stream.write_all(head(&format!("Content-Length: {length}")).as_bytes()).unwrap();
        let response = rest(&mut stream);
        assert!(
            response.starts_with("HTTP/1.1 413 ") && response.contains("payload_too_large"),
            "{response}"
        );
    }
    // At the limit the body is read, and is not JSON.
    let mut stream = connect(&server.address);
    stream.write_all(head("Content-Length: 6000000\r\nConnection: close").as_bytes()).unwrap();
    stream.write_all(&vec![b' '; 6_000_000]).unwrap();
    assert!(rest(&mut stream).starts_with("HTTP/1.1 400 "));
    is_served(&server);
}

#[test]
fn an_address_has_at_most_65534_bytes() {
    let (_directory, server) = served(&[]);
    for (bytes, status) in [(65_534, "200"), (65_535, "414")] {
        let mut path = "/api/projects/1/feature_flags/?unknown=".to_owned();
        path.push_str(&"a".repeat(bytes - path.len()));
        let mut stream = connect(&server.address);
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let response = rest(&mut stream);
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes}: {response}");
    }
}

#[test]
fn the_413_arrives_at_a_client_that_sends_all_of_its_body_first() {
    let (_directory, server) = served(&[]);
    for _ in 0..5 {
        let mut stream = connect(&server.address);
        stream.write_all(head("Content-Length: 30000000").as_bytes()).unwrap();
        stream.write_all(&vec![b' '; 30_000_000]).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    }
    // Without a declared length, it is rejected once too much was received.
    let mut stream = connect(&server.address);
    stream.write_all(head("Transfer-Encoding: chunked").as_bytes()).unwrap();
    for _ in 0..7 {
        stream.write_all(b"f4240\r\n").unwrap();
        stream.write_all(&vec![b' '; 1_000_000]).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    assert!(rest(&mut stream).starts_with("HTTP/1.1 413 "));
    is_served(&server);
}

#[test]
fn unfinished_requests_time_out_and_idle_connections_are_closed() {
    let (_directory, server) = served(&[
        "--header-timeout",
        "1",
        "--body-timeout",
        "1",
        "--idle-timeout",
        "1",
        "--write-timeout",
        "1",
    ]);
    // A request that stops within its headers.
    let mut stream = connect(&server.address);
    stream.write_all(b"GET /_health HTTP/1.1\r\nHost: a").unwrap();
    assert!(rest(&mut stream).starts_with("HTTP/1.1 408 "));
    // A request that stops within its body, for any declared length.
    for form in ["Content-Length: 1000", "Transfer-Encoding: chunked"] {
        let mut stream = connect(&server.address);
        stream.write_all(head(form).as_bytes()).unwrap();
        let response = rest(&mut stream);
        assert!(response.starts_with("HTTP/1.1 408 ") && response.contains("request_timeout"), "{response}");
    }
    // A connection without a request, and one that is idle after a response.
    assert_eq!(rest(&mut connect(&server.address)), "");
    let mut stream = connect(&server.address);
    health(&mut stream);
    assert_eq!(rest(&mut stream), "");
    is_served(&server);
}

#[test]
fn a_slow_body_is_ended_although_bytes_arrive() {
    let (_directory, server) = served(&["--body-timeout", "1"]);
    let mut stream = connect(&server.address);
    stream.write_all(head("Content-Length: 1000000").as_bytes()).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let response = std::thread::spawn(move || rest(&mut reader));
    // A byte every few milliseconds until the server closes the connection.
    let (_sender, pause) = std::sync::mpsc::channel::<()>();
    while stream.write_all(b" ").is_ok() && !response.is_finished() {
        let _ = pause.recv_timeout(Duration::from_millis(20));
    }
    let response = response.join().unwrap();
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
}

#[test]
fn a_client_that_reads_nothing_is_closed() {
    let (_directory, server) = served(&["--write-timeout", "1"]);
    let mut stream = connect(&server.address);
    // Pipelined requests for a document until the server reads no more, because responses fill both buffers.
    let request = b"GET /api/schema/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".repeat(200);
    let mut sent = Ok(());
    while sent.is_ok() {
        sent = stream.write_all(&request);
    }
    let kind = sent.unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{kind}");
    is_served(&server);
}

#[test]
fn unfinished_bodies_hold_a_limited_number_of_bytes_in_total() {
    let (_directory, server) = served(&["--unfinished-mb", "8", "--body-timeout", "600"]);
    let body = vec![b' '; 4_000_000];
    let begin = |more: usize| {
        let mut stream = connect(&server.address);
        stream
            .write_all(head(&format!("Content-Length: {}\r\nConnection: close", 4_000_000 + more)).as_bytes())
            .unwrap();
        stream.write_all(&body).unwrap();
        stream
    };
    // Two bodies of which a byte is missing hold 8 MB, and a third one does not fit. Until the server has read the two, the
    // third one may take their room: then what was refused is sent again.
    let mut held: Vec<TcpStream> = (0..2).map(|_| begin(1)).collect();
    let mut refused_in_a_row = 0;
    for attempt in 0.. {
        assert!(attempt < 100, "a third body is read beside two that fill the limit");
        let response = rest(&mut begin(0));
        for stream in held.iter_mut().filter(|stream| has_response(stream)) {
            let response = rest(stream);
            assert!(response.starts_with("HTTP/1.1 503 "), "{response:?}");
            *stream = begin(1);
            refused_in_a_row = 0;
        }
        if response.starts_with("HTTP/1.1 503 ") {
            assert!(response.contains("retry-after: 1"), "{response}");
            refused_in_a_row += 1;
        } else {
            assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
            refused_in_a_row = 0;
        }
        if refused_in_a_row == 3 {
            break;
        }
    }
    is_served(&server);
    // Accepted requests get a response when their last byte arrives.
    for stream in &mut held {
        stream.write_all(b" ").unwrap();
        assert!(rest(stream).starts_with("HTTP/1.1 400 "));
    }
    assert!(rest(&mut begin(0)).starts_with("HTTP/1.1 400 "));
}

#[test]
fn at_the_limit_one_idle_connection_makes_room() {
    let (_directory, server) = served(&["--max-connections", "3"]);
    let mut open: Vec<TcpStream> = (0..3).map(|_| connect(&server.address)).collect();
    for stream in &mut open {
        health(stream);
    }
    let mut fourth = connect(&server.address);
    health(&mut fourth);
    // One was closed when the fourth got its slot; the others are unchanged.
    open.retain(|stream| {
        stream.set_nonblocking(true).unwrap();
        let is_open = stream.peek(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock);
        stream.set_nonblocking(false).unwrap();
        is_open
    });
    assert_eq!(open.len(), 2);
    for stream in open.iter_mut().chain([&mut fourth]) {
        health(stream);
    }
}

#[test]
fn a_thousand_idle_connections_with_few_descriptors_leave_others_served() {
    const IDLE: usize = 1100;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let expected = 4096.min(maximum.unwrap_or(4096));
    if current.is_some_and(|current| current < expected) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(expected), maximum }).unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("workspace.json");
    std::fs::write(&file, WORKSPACE).unwrap();
    // Both limits, so that the server cannot raise its own.
    let server = Server::start_by(
        Command::new("sh").args(["-c", "ulimit -n 1024 && exec \"$0\" \"$@\"", BINARY]),
        &directory.path().join("data"),
        &["--workspace", &file.to_string_lossy()],
    );
    let open: Vec<TcpStream> = (0..IDLE).map(|_| connect(&server.address)).collect();
    is_served(&server);
    assert_eq!(server.post("/api/projects/1/feature_flags/", &json!({"key": "made"})).0, 201);
    // Connections with unfinished headers do not block others either.
    let mut half = Vec::new();
    for _ in 0..IDLE {
        let mut stream = connect(&server.address);
        // A connection that was closed already does not matter.
        let _ = stream.write_all(b"GET /_health HTTP/1.1\r\nHost: ");
        half.push(stream);
    }
    assert_eq!(server.get("/api/projects/1/feature_flags/")["count"], json!(1));
    drop((open, half));
    assert_eq!(server.request("GET", "/_health", KEY, &Value::Null).0, 200);
}

#[test]
fn wrong_limits_are_refused() {
    for wrong in [
        ["--max-connections", "0"],
        ["--idle-timeout", "0"],
        ["--unfinished-mb", "0"],
        ["--body-timeout", "x"],
    ] {
        let refused = Command::new(BINARY)
            .arg("serve")
            .args(wrong)
            .args(["--data", "nowhere"])
            .stderr(Stdio::piped())
            .output();
        let refused = refused.unwrap();
        assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains(wrong[0]));
        assert!(!Path::new("nowhere").exists());
    }
}
