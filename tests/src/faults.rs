//! Injects faults of a real store, between the SDK and the embedded database.
//!
//! Must stay true: injected faults behave like DynamoDB's. A written transaction is never reported as cancelled
//! afterwards; one whose response is lost is written completely.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use pennon::embedded::Connector;
use serde_json::{Value, json};

use crate::partial_batch::{split, unprocessed_field};
use crate::random::Random;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A transaction is cancelled, or a put refused, because of another transaction; nothing is written.
    Conflict,
    /// The store throttles; nothing is written.
    Throttled,
    /// The request does not arrive.
    RequestLost,
    /// The request is executed, and its response is lost.
    ResponseLost,
    /// The request is executed, and its response is a failure of the store.
    FailedAfterwards,
    /// The response is a failure of the store; nothing is read or written.
    Failed,
    /// The connection is reset before the request arrives.
    Reset,
    /// The request is executed, and the connection is reset before its response arrives.
    ResetAfterwards,
    /// A half of a batch is processed; the response names the rest.
    PartialBatch,
    /// The response arrives late: all other tasks of the test run meanwhile.
    Slow,
}

/// The faults of histories, per thousand requests.
const HISTORY_SHARES: [(Fault, u64); 5] = [
    (Fault::Conflict, 60),
    (Fault::Throttled, 10),
    (Fault::RequestLost, 8),
    (Fault::ResponseLost, 8),
    (Fault::FailedAfterwards, 8),
];

/// All faults, per thousand requests, so that most requests of clients still succeed.
const ALL_SHARES: [(Fault, u64); 10] = [
    (Fault::Conflict, 40),
    (Fault::Throttled, 16),
    (Fault::RequestLost, 12),
    (Fault::ResponseLost, 16),
    (Fault::FailedAfterwards, 16),
    (Fault::Failed, 12),
    (Fault::Reset, 12),
    (Fault::ResetAfterwards, 16),
    (Fault::PartialBatch, 80),
    (Fault::Slow, 40),
];
/// Rare faults, per thousand requests: the SDK and the store's client retry each of them.
const SUITE_SHARES: [(Fault, u64); 9] = [
    (Fault::Conflict, 5),
    (Fault::Throttled, 3),
    (Fault::RequestLost, 3),
    (Fault::ResponseLost, 3),
    (Fault::FailedAfterwards, 3),
    (Fault::Failed, 3),
    (Fault::Reset, 3),
    (Fault::ResetAfterwards, 3),
    (Fault::PartialBatch, 30),
];
/// How often other tasks run before a slow response.
const SLOW_TURNS: usize = 200;

/// The number of each fault per thousand requests.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    are_of_suite: bool,
    random: Random,
    shares: Vec<(Fault, u64)>,
    denied: Option<String>,
    written: HashSet<String>,
    counts: BTreeMap<Fault, usize>,
}

impl Faults {
    /// Faults drawn from `seed`; each of `shares` in a thousand requests.
    pub fn new(seed: u64, shares: &[(Fault, u64)]) -> Faults {
        let state = State { random: Random::new(seed), shares: shares.to_vec(), ..State::default() };
        Faults(Arc::new(Mutex::new(state)))
    }

    /// Faults of every kind, for histories of random calls.
    pub fn of_histories(seed: u64) -> Faults {
        Faults::new(seed, &HISTORY_SHARES)
    }

    /// Faults of every kind, each rarer than those of histories.
    pub fn of_all_kinds(seed: u64) -> Faults {
        Faults::new(seed, &ALL_SHARES)
    }

    /// Rare faults of the seed in `PENNON_SUITE_FAULTS`, for tests that inject none; `None` without it.
    pub fn of_suite() -> Option<Faults> {
        let seed = std::env::var("PENNON_SUITE_FAULTS").ok()?;
        let faults = Faults::new(seed.parse().expect("a number"), &SUITE_SHARES);
        faults.lock().are_of_suite = true;
        Some(faults)
    }

    /// Whether they are those of [`Faults::of_suite`]: a test does not expect any.
    pub fn are_of_suite(&self) -> bool {
        self.lock().are_of_suite
    }

    /// The kinds of [`Faults::of_all_kinds`].
    pub fn all_kinds() -> impl Iterator<Item = Fault> {
        ALL_SHARES.into_iter().map(|(fault, _)| fault)
    }

    /// Checks that every kind of fault has happened; returns how often each did.
    #[track_caller]
    pub fn assert_all_occurred(&self, seed: u64) -> BTreeMap<Fault, usize> {
        let counts = self.counts();
        for (fault, _) in HISTORY_SHARES {
            assert!(counts.contains_key(&fault), "seed {seed}: no {fault:?} among {counts:?}");
        }
        counts
    }

    /// From now on injects these, each so often in a thousand requests.
    pub fn start(&self, shares: &[(Fault, u64)]) {
        self.lock().shares = shares.to_vec();
    }

    /// Stops injecting faults.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.shares.clear();
        state.denied = None;
    }

    /// Denies all further reads of this partition.
    pub fn deny_reads_of(&self, partition: &str) {
        self.lock().denied = Some(partition.to_owned());
    }

    fn denies(&self, request: &HttpRequest) -> bool {
        let denied = self.lock().denied.as_ref().map(|partition| format!("{partition:?}"));
        let text = request.body().bytes().map(String::from_utf8_lossy);
        denied.zip(text).is_some_and(|(denied, text)| text.contains(&denied))
    }

    /// The number of injected faults of each kind.
    pub fn counts(&self) -> BTreeMap<Fault, usize> {
        self.lock().counts.clone()
    }

    /// `connector`, with these faults.
    pub fn wrap_connector(&self, connector: Connector) -> FaultyConnector {
        FaultyConnector { connector, faults: self.clone() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of a request; `transaction` is the token of a transaction.
    fn draw(&self, transaction: Option<&str>, operation: &str) -> Option<Fault> {
        let mut state = self.lock();
        let mut drawn = state.random.below(1000);
        let mut met = None;
        for (fault, share) in &state.shares {
            if drawn < *share {
                met = Some(*fault);
                break;
            }
            drawn -= share;
        }
        let possible = match (met?, transaction) {
            (Fault::Conflict, None) => operation == "PutItem",
            (Fault::PartialBatch, _) => unprocessed_field(operation).is_some(),
            (Fault::Conflict, Some(token)) => !state.written.contains(token),
            _ => true,
        };
        let fault = met.filter(|_| possible)?;
        *state.counts.entry(fault).or_default() += 1;
        Some(fault)
    }

    fn note_written(&self, token: String) {
        self.lock().written.insert(token);
    }
}

/// A connector with injected faults.
#[derive(Debug, Clone)]
pub struct FaultyConnector {
    connector: Connector,
    faults: Faults,
}

impl HttpClient for FaultyConnector {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for FaultyConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let this = self.clone();
        HttpConnectorFuture::new(async move { this.call_with_faults(request).await })
    }
}

impl FaultyConnector {
    async fn call_with_faults(&self, mut request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let transaction = transaction(&request);
        let writes = transaction.as_ref().map_or(0, |(_, writes)| *writes);
        let token = transaction.map(|(token, _)| token);
        if token.is_none() && self.faults.denies(&request) {
            return respond(400, &failure("AccessDeniedException", "No."));
        }
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let fault = self.faults.draw(token.as_deref(), &operation);
        match fault {
            Some(Fault::Conflict) if token.is_none() => {
                return respond(400, &failure("TransactionConflictException", "Transaction is ongoing"));
            }
            Some(Fault::Conflict) => return respond(400, &conflict(writes)),
            Some(Fault::Throttled) => return respond(400, &failure("ThrottlingException", "Slow down.")),
            Some(Fault::Failed) => return respond(500, &failure("InternalServerError", "Oops.")),
            Some(Fault::RequestLost) => return Err(lost()),
            Some(Fault::Reset) => return Err(reset()),
            _ => {}
        }
        let rest = fault.filter(|fault| *fault == Fault::PartialBatch).and_then(|_| take_half(&mut request));
        let response = self.connector.call(request).await?;
        if let Some(token) = token.filter(|_| response.status().is_success()) {
            self.faults.note_written(token);
        }
        match fault {
            Some(Fault::ResponseLost) => Err(lost()),
            Some(Fault::ResetAfterwards) => Err(reset()),
            Some(Fault::FailedAfterwards) => respond(500, &failure("InternalServerError", "Oops.")),
            Some(Fault::Slow) => {
                for _ in 0..SLOW_TURNS {
                    tokio::task::yield_now().await;
                }
                Ok(response)
            }
            _ => match (rest, unprocessed_field(&operation)) {
                (Some(rest), Some(field)) => with_unprocessed(response, field, rest),
                _ => Ok(response),
            },
        }
    }
}

/// Takes a half of a batch off a request.
fn take_half(request: &mut HttpRequest) -> Option<Value> {
    let mut body: Value = serde_json::from_slice(request.body().bytes()?).ok()?;
    let rest = split(&mut body)?;
    *request.body_mut() = body.to_string().into();
    Some(rest)
}

/// The response with what was not processed.
fn with_unprocessed(
    response: HttpResponse,
    field: &str,
    rest: Value,
) -> Result<HttpResponse, ConnectorError> {
    let body = response.body().bytes().and_then(|body| serde_json::from_slice::<Value>(body).ok());
    let Some(mut body) = body.filter(|_| response.status().is_success()) else { return Ok(response) };
    body[field] = rest;
    respond(200, &body)
}

/// Token and number of writes of a transaction.
fn transaction(request: &HttpRequest) -> Option<(String, usize)> {
    let target = request.headers().get("x-amz-target")?;
    if !target.ends_with(".TransactWriteItems") {
        return None;
    }
    let body: Value = serde_json::from_slice(request.body().bytes()?).ok()?;
    let token = body["ClientRequestToken"].as_str().unwrap_or_default().to_owned();
    Some((token, body["TransactItems"].as_array().map_or(0, Vec::len)))
}

fn conflict(writes: usize) -> Value {
    let reasons: Vec<Value> = (0..writes)
        .map(|index| match index {
            0 => json!({"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}),
            _ => json!({"Code": "None"}),
        })
        .collect();
    let mut body = failure("TransactionCanceledException", "Transaction cancelled [TransactionConflict]");
    body["CancellationReasons"] = reasons.into();
    body
}

fn failure(code: &str, message: &str) -> Value {
    json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": message})
}

fn lost() -> ConnectorError {
    ConnectorError::timeout("the response did not arrive".into())
}

fn reset() -> ConnectorError {
    ConnectorError::io("the connection was reset".into())
}

fn respond(status: u16, body: &Value) -> Result<HttpResponse, ConnectorError> {
    let status = StatusCode::try_from(status).map_err(|error| ConnectorError::other(error.into(), None))?;
    let mut response = HttpResponse::new(status, body.to_string().into());
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    Ok(response)
}
