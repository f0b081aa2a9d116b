//! Request and response bodies that enforce the limits of their connection.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::limits::BODY_BYTES_MIN;
use super::registry::{ConnectionPhase, ConnectionState, OpenConnection, Reservation};

/// Why reading a body was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It arrived too slowly.
    #[error("the body arrives too slowly")]
    TooSlow,
    /// The unfinished bodies of all connections exceed the limit.
    #[error("too many bytes of unfinished requests")]
    OverBudget,
}

/// Passes the error of a body to the response: handlers cannot distinguish it from a truncated body.
#[derive(Debug, Clone, Default)]
pub struct BodyOutcome(Arc<AtomicU8>);

impl BodyOutcome {
    /// The error, if any.
    pub fn error(&self) -> Option<BodyError> {
        match self.0.load(Ordering::Relaxed) {
            1 => Some(BodyError::TooSlow),
            2 => Some(BodyError::OverBudget),
            _ => None,
        }
    }

    fn set(&self, error: BodyError) -> BodyError {
        let code = if error == BodyError::TooSlow { 1 } else { 2 };
        self.0.store(code, Ordering::Relaxed);
        error
    }
}

/// A request's body. Its bytes count as unfinished until it is dropped.
pub struct RequestBody {
    body: Incoming,
    state: Arc<ConnectionState>,
    outcome: BodyOutcome,
    held: Reservation,
    window: Duration,
    window_end: Pin<Box<Sleep>>,
    window_bytes: usize,
}

impl RequestBody {
    /// `body`, as it arrives over this connection.
    pub fn new(body: Incoming, connection: &OpenConnection, outcome: BodyOutcome) -> RequestBody {
        let window = connection.registry.limits.body_time();
        RequestBody {
            body,
            state: connection.state.clone(),
            outcome,
            held: connection.registry.unfinished.reservation(),
            window,
            window_end: Box::pin(tokio::time::sleep(window)),
            window_bytes: 0,
        }
    }

    /// Resolves when fewer than [`BODY_BYTES_MIN`] bytes arrived in one time window.
    fn poll_window(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.window_end.as_mut().poll(context).is_ready() {
            if self.window_bytes < BODY_BYTES_MIN {
                return Poll::Ready(());
            }
            self.window_bytes = 0;
            self.window_end.as_mut().reset(Instant::now() + self.window);
        }
        Poll::Pending
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Pending if self.poll_window(context).is_ready() => {
                Poll::Ready(Some(Err(self.outcome.set(BodyError::TooSlow).into())))
            }
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                self.window_bytes += bytes;
                if !self.held.grow(bytes) {
                    return Poll::Ready(Some(Err(self.outcome.set(BodyError::OverBudget).into())));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.state.enter(ConnectionPhase::Responding, &[ConnectionPhase::Body]);
    }
}

/// A response's body. When it is dropped, the connection's response is complete.
pub struct ResponseBody {
    body: Body,
    state: Arc<ConnectionState>,
}

impl ResponseBody {
    /// `body`, sent over the connection of `state`.
    pub fn new(body: Body, state: Arc<ConnectionState>) -> ResponseBody {
        ResponseBody { body, state }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.state.enter(ConnectionPhase::Sent, &[ConnectionPhase::Responding, ConnectionPhase::Body]);
    }
}
