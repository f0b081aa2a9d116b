//! The connections of both ports of `pennon serve`, with limits on how many there are, how long each step may take, and how
//! many bytes of unfinished requests they hold.
//!
//! Must stay true: whatever other connections do, a new one is accepted and served. It takes the place of the one that has
//! waited longest for its client; only where every one is being answered is it refused, with a 503. An error of `accept`
//! ends nothing. A response arrives although its request is still being sent: the connection lingers.
//!
//! `http1` is hyper's; the limits are here because hyper's own timeout counts idle time as time for headers, and has none for
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

pub use limits::ConnectionLimits;
pub use registry::ConnectionRegistry;

/// How long no connection is accepted after the system refused one, for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const REFUSED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
                         content-type: text/plain\r\ncontent-length: 57\r\n\r\n\
                         Every connection is being answered. Retry in one second.\n";

/// Serves `router` on `listener` until `stopped`, and then until what is being answered is.
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
                None => refuse(&socket),
            },
            Err(error) if is_of_the_client(error.kind()) => {}
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

/// Whether a connection ended before it was accepted.
fn is_of_the_client(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset)
}

/// Says why, as far as that fits into the socket's buffer at once.
fn refuse(socket: &TcpStream) {
    let _ = socket.try_write(REFUSED);
}
