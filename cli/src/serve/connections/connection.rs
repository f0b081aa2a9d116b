//! Serves the requests of one connection, until the client or a limit ends it.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, header};
use axum::response::IntoResponse;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use pennon_core::error::ApiError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::ServiceExt;

use super::body::{BodyError, BodyOutcome, RequestBody, ResponseBody};
use super::registry::{ConnectionPhase, ConnectionState, OpenConnection};
use super::stream::LimitedStream;
use crate::args::ConnectionLimits;
use crate::serve::signal;

/// How long, and how many bytes, a client's unread request is read and discarded after an early response. Closing a socket
/// with unread bytes resets the connection, and the client might never see the response.
const LINGER_TIME: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 64 << 20;
const HEADERS_TOO_SLOW: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// How a connection ends.
enum ConnectionEnd {
    /// All responses were sent; the client may still be sending.
    Responded,
    /// The headers of a request did not arrive in time.
    HeadersTooSlow,
    /// It is closed without a response.
    Closed,
}

/// Serves `socket` until it ends, or until it is idle after `stopped`.
pub async fn serve(
    socket: TcpStream,
    router: Router,
    connection: OpenConnection,
    stopped: watch::Receiver<bool>,
) {
    let connection = Arc::new(connection);
    let stream = TokioIo::new(LimitedStream::new(socket, &connection));
    let service_connection = connection.clone();
    let service = service_fn(move |request| {
        let response = handle(request, router.clone(), service_connection.clone());
        Box::pin(response) as Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>> + Send>>
    });
    let mut http = http1::Builder::new().serve_connection(stream, service);
    let end = drive(&mut http, &connection.state, &connection.registry.limits, stopped.clone()).await;
    let mut stream = http.into_parts().io.into_inner();
    match end {
        ConnectionEnd::Closed => return,
        ConnectionEnd::HeadersTooSlow => {
            // The connection is closed whether or not the client reads this.
            let _ = stream.write_all(HEADERS_TOO_SLOW).await;
        }
        ConnectionEnd::Responded => {}
    }
    tokio::select! {
        () = linger(stream, &connection.state) => {}
        () = signal(stopped) => {}
    }
}

type Connection<S> = http1::Connection<TokioIo<LimitedStream>, S>;

async fn drive<S>(
    http: &mut Connection<S>,
    state: &ConnectionState,
    limits: &ConnectionLimits,
    stopped: watch::Receiver<bool>,
) -> ConnectionEnd
where
    S: HttpService<Incoming, ResBody = ResponseBody> + Unpin,
    S::Error: Into<axum::BoxError>,
    S::Future: Unpin,
{
    let mut evicted = pin!(state.evicted());
    let mut stop = pin!(signal(stopped));
    let mut is_stopping = false;
    let mut timer = pin!(tokio::time::sleep(limits.idle_time()));
    poll_fn(|context| {
        if evicted.as_mut().poll(context).is_ready() {
            return Poll::Ready(ConnectionEnd::Closed);
        }
        if !is_stopping && stop.as_mut().poll(context).is_ready() {
            is_stopping = true;
            if state.phase().0 == ConnectionPhase::Idle {
                return Poll::Ready(ConnectionEnd::Closed);
            }
            Pin::new(&mut *http).graceful_shutdown();
        }
        match http.poll_without_shutdown(context) {
            Poll::Ready(Ok(())) => return Poll::Ready(ConnectionEnd::Responded),
            // hyper has responded to an invalid request with a 400.
            Poll::Ready(Err(error)) if error.is_parse() => return Poll::Ready(ConnectionEnd::Responded),
            Poll::Ready(Err(_)) => return Poll::Ready(ConnectionEnd::Closed),
            Poll::Pending => {}
        }
        let Some((deadline, end)) = deadline(state, limits) else { return Poll::Pending };
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(context).map(|()| end)
    })
    .await
}

/// When and how a connection that waits for its client is closed. Bodies and writes have their own timers.
fn deadline(state: &ConnectionState, limits: &ConnectionLimits) -> Option<(Instant, ConnectionEnd)> {
    let (phase, since) = state.phase();
    match phase {
        ConnectionPhase::Idle => Some((since + limits.idle_time(), ConnectionEnd::Closed)),
        ConnectionPhase::Head => Some((since + limits.header_time(), ConnectionEnd::HeadersTooSlow)),
        ConnectionPhase::Body
        | ConnectionPhase::Responding
        | ConnectionPhase::Sent
        | ConnectionPhase::Lingering
        | ConnectionPhase::Evicted => None,
    }
}

async fn handle(
    request: Request<Incoming>,
    router: Router,
    connection: Arc<OpenConnection>,
) -> Result<Response<ResponseBody>, Infallible> {
    if connection.state.phase().0 != ConnectionPhase::Head {
        // It arrived together with the request before it. A client that sends many at once would otherwise keep its thread
        // for all of them, and other connections would wait.
        tokio::task::yield_now().await;
    }
    let phase =
        if request.body().is_end_stream() { ConnectionPhase::Responding } else { ConnectionPhase::Body };
    connection.state.enter(phase, &[ConnectionPhase::Idle, ConnectionPhase::Head, ConnectionPhase::Sent]);
    let outcome = BodyOutcome::default();
    let request = request.map(|body| Body::new(RequestBody::new(body, &connection, outcome.clone())));
    let Ok(mut response) = router.oneshot(request).await;
    if let Some(error) = outcome.error() {
        response = error_response(error, &response);
    }
    Ok(response.map(|body| ResponseBody::new(body, connection.state.clone())))
}

/// The response for `error`, in place of the handler's `response`, which only knows that the body could not be read.
fn error_response(error: BodyError, response: &Response<Body>) -> Response<Body> {
    let api_error = match error {
        BodyError::TooSlow => ApiError::request_timeout(),
        BodyError::OverBudget => ApiError::busy(1),
    };
    let mut replacement = api_error.into_response();
    replacement.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    // Same CORS access as to other responses.
    if let Some(origin) = response.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
        replacement.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
    replacement
}

/// Reads and discards what the client still sends, so that the response is not lost.
async fn linger(mut stream: LimitedStream, state: &ConnectionState) {
    state.enter(
        ConnectionPhase::Lingering,
        &[
            ConnectionPhase::Idle,
            ConnectionPhase::Head,
            ConnectionPhase::Body,
            ConnectionPhase::Responding,
            ConnectionPhase::Sent,
        ],
    );
    let discard = async {
        let mut discarded = 0;
        let mut buffer = vec![0; 16 << 10];
        if stream.shutdown().await.is_err() {
            return;
        }
        while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
            discarded += bytes;
            if discarded > LINGER_BYTES {
                return;
            }
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(LINGER_TIME, discard) => {}
        () = state.evicted() => {}
    }
}
