//! A socket that tracks the start of requests, and fails when its client does not read a response.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::registry::{ConnectionPhase, ConnectionState, OpenConnection, Reservation};

/// A socket with its limits.
pub struct LimitedStream {
    socket: TcpStream,
    state: Arc<ConnectionState>,
    /// The bytes of incomplete headers.
    head: Reservation,
    write_time: Duration,
    /// The write timeout; set while the client reads nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl LimitedStream {
    /// A stream over the `socket` of `connection`.
    pub fn new(socket: TcpStream, connection: &OpenConnection) -> LimitedStream {
        let registry = &connection.registry;
        LimitedStream {
            socket,
            state: connection.state.clone(),
            head: registry.unfinished.reservation(),
            write_time: registry.limits.write_time(),
            stalled: None,
        }
    }

    /// Updates the phase and the reservation after `bytes` were received.
    fn on_received(&mut self, bytes: usize) -> Result<()> {
        self.state.enter(ConnectionPhase::Head, &[ConnectionPhase::Idle]);
        if self.state.phase().0 != ConnectionPhase::Head {
            self.head.release();
        } else if !self.head.grow(bytes) {
            return Err(Error::new(ErrorKind::OutOfMemory, "too many bytes of unfinished requests"));
        }
        Ok(())
    }

    /// Passes on the outcome of a write, or a timeout error if nothing could be written for too long.
    fn check_write_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        outcome: Poll<Result<T>>,
    ) -> Poll<Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let write_time = self.write_time;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(write_time)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.socket).poll_read(context, buffer);
        let arrived = buffer.filled().len() - before;
        if arrived > 0 {
            self.on_received(arrived)?;
        }
        outcome
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let outcome = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.check_write_timeout(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let outcome = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.check_write_timeout(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let outcome = Pin::new(&mut self.socket).poll_flush(context);
        if matches!(outcome, Poll::Ready(Ok(()))) {
            self.state.enter(ConnectionPhase::Idle, &[ConnectionPhase::Sent]);
        }
        outcome
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
