//! Requests to a server that returns given bytes.
#![allow(clippy::unwrap_used)]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

/// The text of a request for which the server returns `response`, and the outcome.
async fn request(response: String, bytes_max: usize) -> (String, Result<Vec<u8>, RequestError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/?database=events", listener.local_addr().unwrap());
    let served: JoinHandle<String> = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 1 << 16];
        let mut length = 0;
        while !request[..length].ends_with(b"SELECT 1") {
            length += connection.read(&mut request[length..]).await.unwrap();
        }
        connection.write_all(response.as_bytes()).await.unwrap();
        String::from_utf8(request[..length].to_vec()).unwrap()
    });
    let server = server(&url, Some("secret")).unwrap().with_response_limit(bytes_max);
    let deadline = Instant::now() + Duration::from_secs(10);
    let outcome = server.run("SELECT 1".to_owned(), deadline).await;
    (served.await.unwrap(), outcome)
}

fn server(url: &str, password: Option<&str>) -> Result<ClickhouseServer, String> {
    let settings = ClickhouseSettings {
        url: url.to_owned(),
        cluster: None,
        files: None,
        user: Some("reader".to_owned()),
        password: password.map(str::to_owned),
    };
    ClickhouseServer::new(&settings, "file:///data")
}

fn respond(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn user_and_password_are_headers_and_the_address_has_the_parameters() {
    let (sent, outcome) = request(respond("200 OK", "rows"), 100).await;
    assert_eq!(outcome.unwrap(), b"rows");
    let head = sent.to_lowercase();
    assert!(head.contains("x-clickhouse-user: reader\r\n") && head.contains("x-clickhouse-key: secret\r\n"));
    let line = sent.lines().next().unwrap();
    assert!(
        line.starts_with("POST /?database=events&default_format=JSONCompact&wait_end_of_query=1&"),
        "{line}"
    );
    assert!(
        line.contains("&max_execution_time=10&max_query_size=262144&") && !line.contains("secret"),
        "{line}"
    );
}

#[tokio::test]
async fn a_response_may_be_as_long_as_the_limit() {
    for (bytes, fits) in [(1000, true), (1001, false)] {
        let (_, outcome) = request(respond("200 OK", &"x".repeat(bytes)), 1000).await;
        assert_eq!(outcome.is_ok(), fits, "{bytes}");
        if let Err(error) = outcome {
            assert_eq!(error.to_string(), "the response is larger than 1000 bytes");
        }
    }
}

#[tokio::test]
async fn errors_have_a_short_reason() {
    let (_, outcome) = request(respond("403 Forbidden", "Code: 516.\nDB::Exception: wrong"), 100).await;
    assert_eq!(outcome.unwrap_err().to_string(), "HTTP 403: Code: 516. DB::Exception: wrong");
    let (_, outcome) = request(respond("500 Internal Server Error", &"x".repeat(90_000)), 100).await;
    assert_eq!(outcome.unwrap_err().to_string().len(), REASON_CHARACTERS_MAX);
    let elsewhere = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    let (_, outcome) = request(elsewhere.to_owned(), 100).await;
    assert_eq!(outcome.unwrap_err().to_string(), "HTTP 302:");
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nrows";
    let (_, outcome) = request(cut.to_owned(), 100).await;
    assert!(outcome.is_err());
}

#[tokio::test]
async fn a_server_that_is_down_or_silent_is_an_error_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let run = |url: &str, millis: u64| {
        let server = server(url, None).unwrap();
        let deadline = Instant::now() + Duration::from_millis(millis);
        async move { server.run("SELECT 1".to_owned(), deadline).await.unwrap_err().to_string() }
    };
    assert_eq!(run(&url, 100).await, "no response in time");
    drop(listener);
    let down = run(&url, 10_000).await;
    assert!(down.contains("refused") && !down.contains("http://"), "{down}");
}

#[test]
fn a_long_statement_is_allowed() {
    let server = server("http://host:8123", None).unwrap();
    let address = server.address(Duration::from_secs(20), STATEMENT_BYTES_DEFAULT + 1);
    assert!(address.as_str().contains("max_query_size=262145&"), "{address}");
}

#[test]
fn an_address_has_no_credentials() {
    for (url, part) in [
        ("http://reader:secret@host:8123", "user or a password"),
        ("http://host:8123/?user=reader", "user or a password"),
        ("http://host:8123/?password=secret", "user or a password"),
        ("host:8123", "no URL"),
        ("ftp://host", "no URL"),
    ] {
        let error = server(url, None).unwrap_err();
        assert!(error.contains(part) && !error.contains("secret"), "{url}: {error}");
    }
    assert!(server("http://host:8123", Some("a\nb")).unwrap_err().contains("PENNON_CLICKHOUSE_PASSWORD"));
    assert!(!format!("{:?}", server("https://host", Some("secret")).unwrap()).contains("secret"));
}
