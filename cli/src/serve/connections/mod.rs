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
