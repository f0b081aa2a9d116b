//! The connections of both ports of `pennon serve`, with limits on their number, on the time of each step, and on the bytes
//! of unfinished requests.
//!
//! Must stay true: idle or slow connections cannot keep a new one from being served. At the limit it replaces the
//! connection that has waited longest for its client; it is rejected, with a 503, only while every connection has a running
//! request. An error of `accept` does not end the server. A response reaches a client that is still sending its request: the
//! connection lingers.
//!
//! `http1` is hyper's. The limits are here because hyper's header timeout includes idle time, and hyper has no timeout for
//! bodies and writes.

mod body;
mod connection;
mod limits;
mod registry;
mod stream;

use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::signal;

pub use limits::max_connections;
pub use registry::ConnectionRegistry;

/// The pause after an error of `accept`, for lack of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const SERVER_FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
                         content-type: text/plain\r\ncontent-length: 57\r\n\r\n\
                         Every connection is in use. Retry in one second.\n";

/// Serves `router` on `listener` until `stopped`, and then until the running requests are done.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    registry: Arc<ConnectionRegistry>,
    stopped: watch::Receiver<bool>,
) {
    let mut stop = pin!(signal(stopped.clone()));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, _)) => match registry.admit().await {
                Some(open) => {
                    connections.spawn(connection::serve(socket, router.clone(), open, stopped.clone()));
                }
                None => reject(&socket),
            },
            Err(error) if is_client_error(error.kind()) => {}
            Err(error) => {
                tracing::error!(%error, "no connection can be accepted; the one that was idle longest is closed");
                registry.evict_one();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Whether the client closed the connection before it was accepted.
fn is_client_error(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}

/// Sends a 503 as far as it fits into the socket's buffer.
fn reject(socket: &TcpStream) {
    let _ = socket.try_write(SERVER_FULL);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;

    use axum::http::Uri;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::args::ConnectionLimits;

    const SENT_AHEAD: usize = 64;

    async fn connect(listener: &TcpListener, requests: &str) -> TcpStream {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(requests.as_bytes()).await.unwrap();
        client
    }

    #[tokio::test]
    async fn requests_that_are_sent_ahead_do_not_delay_other_connections() {
        let order: Arc<Mutex<Vec<String>>> = Arc::default();
        let handled = order.clone();
        let handler = async move |uri: Uri| handled.lock().unwrap().push(uri.path().to_owned());
        let router = Router::new().fallback(get(handler));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let last = "GET /last HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        let ahead = "GET /ahead HTTP/1.1\r\nhost: a\r\n\r\n".repeat(SENT_AHEAD) + last;
        let mut many = connect(&listener, &ahead).await;
        let mut one = connect(&listener, &last.replace("/last", "/one")).await;
        let (stop, stopped) = watch::channel(false);
        let registry = ConnectionRegistry::new(ConnectionLimits::default(), 8);
        let serving = tokio::spawn(serve(listener, router, registry, stopped));
        let mut responses = String::new();
        one.read_to_string(&mut responses).await.unwrap();
        many.read_to_string(&mut responses).await.unwrap();
        assert_eq!(responses.matches("HTTP/1.1 200 OK").count(), SENT_AHEAD + 2);
        let order = order.lock().unwrap().clone();
        let place = order.iter().position(|path| path == "/one").unwrap();
        assert!(place < SENT_AHEAD / 8, "{place} requests were handled before the one of another connection");
        stop.send_replace(true);
        serving.await.unwrap();
    }
}
