//! A process beside `pennon serve` that calculates parts of its large queries: it responds to invocations as the Lambda function
//! that runs parts does.
//!
//! Must stay true: it ends with its server, whose end closes its standard input; only its server may invoke it, with an
//! access key id that is the first line of its standard input.

use std::io::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use pennon_calculation::{CalculationLimits, Calculator};
use pennon_core::app::App;
use pennon_core::clock::Clock;
use pennon_core::config::Config;
use pennon_core::invocation::PAYLOAD_BYTES_MAX;
use pennon_core::store::Store;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::data::open_events;
use crate::local_access::{LocalAccess, is_from_web_page};

/// Most time of a part, as of the Lambda function.
const PART_TIME: Duration = Duration::from_secs(5 * 60);

#[derive(Debug, Clone)]
struct PartServer {
    calculator: Calculator,
    access: LocalAccess,
}

/// Serves parts over the tables and events of the environment until standard input is closed. Prints its address first.
pub async fn serve_parts() -> Result<(), String> {
    let config = Config::from_env();
    let url = config.events_url.ok_or("PENNON_EVENTS_URL, the location of the events, is not set")?;
    let mut id = String::new();
    std::io::stdin().read_line(&mut id).map_err(|e| e.to_string())?;
    let app = App::new(Store::from_env(&config.store).await, Clock::Running);
    let events = open_events(&app.store, &url)?;
    // One part uses all the cores that its server gives it.
    let limits = CalculationLimits { at_once: 1, ..CalculationLimits::default() };
    let server = PartServer {
        calculator: Calculator::with_limits(&app, events, limits),
        access: LocalAccess::new(id.trim()),
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|e| e.to_string())?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "http://{address}").and_then(|()| stdout.flush()).map_err(|e| e.to_string())?;
    let router = Router::new()
        .route("/2015-03-31/functions/{name}/invocations", post(invoke))
        .layer(DefaultBodyLimit::max(PAYLOAD_BYTES_MAX))
        .with_state(server);
    let serving = async { axum::serve(listener, router).await.map_err(|e| e.to_string()) };
    tokio::select! {
        served = serving => served,
        () = parent_ended() => Ok(()),
    }
}

/// Resolves when the server has ended.
async fn parent_ended() {
    let (ended, wait) = oneshot::channel();
    // Reading blocks its thread until then.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = wait.await;
}

async fn invoke(State(server): State<PartServer>, headers: HeaderMap, body: Bytes) -> Response {
    if is_from_web_page(&headers) || !server.access.is_authorized(&headers) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let Ok(event) = serde_json::from_slice(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    match server.calculator.respond_to_part(event, PART_TIME).await {
        Ok(response) => Json(response).into_response(),
        Err(error) => {
            let failed = [(header::HeaderName::from_static("x-amz-function-error"), "Unhandled")];
            (failed, Json(serde_json::json!({ "errorMessage": error }))).into_response()
        }
    }
}
