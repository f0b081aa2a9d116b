//! A table with the limits of DynamoDB's partitions, between the SDK and the embedded database: write and read units a second
//! of each partition key, a latency, and conflicts of transactions.
//!
//! Must stay true: a call that exceeds a limit is refused as DynamoDB refuses it, before anything is written; of a batch, the
//! items that fit are written and the others are returned. A partition saves up the units of one second.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use pennon::embedded::Connector;
use pennon_core::store::Key;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

/// The limits of every partition.
#[derive(Debug, Clone, Copy)]
pub struct PartitionLimits {
    /// Write units a second.
    pub writes: f64,
    /// Read units a second.
    pub reads: f64,
    /// Time that each call takes.
    pub latency: Duration,
}

/// Counts of what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TableCounts {
    /// Calls.
    pub calls: u64,
    /// Refused calls, and items of batches that were not written.
    pub throttled: u64,
    /// Writes that met another transaction.
    pub conflicts: u64,
    /// Write units.
    pub writes: f64,
    /// Read units.
    pub reads: f64,
}

/// A connector with limits. Clones share the table.
#[derive(Debug, Clone)]
pub struct LimitedTable {
    connector: Connector,
    limits: PartitionLimits,
    state: Arc<Mutex<State>>,
    /// Receives the keys of inserted rows that wake compaction, as the table's stream would carry them.
    stream: UnboundedSender<Key>,
}

#[derive(Debug, Default)]
struct State {
    /// Units that are left, by partition key.
    left: HashMap<String, UnitsLeft>,
    /// Items of transactions that are running.
    locked: HashSet<(String, String)>,
    counts: TableCounts,
}

#[derive(Debug, Clone, Copy)]
struct UnitsLeft {
    writes: f64,
    reads: f64,
    at: Instant,
}

/// An item that a call writes.
struct WrittenItem {
    pk: String,
    sk: String,
    units: f64,
}

impl LimitedTable {
    /// The tables behind `connector` with these limits.
    pub fn new(connector: Connector, limits: PartitionLimits, stream: UnboundedSender<Key>) -> LimitedTable {
        LimitedTable { connector, limits, state: Arc::default(), stream }
    }

    /// The counts so far.
    pub fn counts(&self) -> TableCounts {
        self.lock().counts
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The units of a partition now.
    fn left<'a>(&self, state: &'a mut State, pk: &str) -> &'a mut UnitsLeft {
        let PartitionLimits { writes, reads, .. } = self.limits;
        let now = Instant::now();
        let left = state.left.entry(pk.to_owned()).or_insert(UnitsLeft { writes, reads, at: now });
        let seconds = (now - left.at).as_secs_f64();
        left.writes = (left.writes + seconds * writes).min(writes);
        left.reads = (left.reads + seconds * reads).min(reads);
        left.at = now;
        left
    }

    /// Takes the units of `items`, or none of them.
    fn take_writes(&self, items: &[&WrittenItem]) -> bool {
        let mut state = self.lock();
        let is_left = items.iter().all(|item| {
            // An item larger than a second's units passes a full partition.
            let enough = item.units.min(self.limits.writes);
            self.left(&mut state, &item.pk).writes >= enough
        });
        if is_left {
            for item in items {
                self.left(&mut state, &item.pk).writes -= item.units;
                state.counts.writes += item.units;
            }
        }
        is_left
    }

    fn take_reads(&self, pk: &str, units: f64) {
        let mut state = self.lock();
        self.left(&mut state, pk).reads -= units;
        state.counts.reads += units;
    }

    fn throttled(&self, items: u64) {
        self.lock().counts.throttled += items;
    }

    async fn respond_within_limits(self, mut request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let target = request.headers().get("x-amz-target").unwrap_or_default();
        let operation = target.rsplit('.').next().unwrap_or_default().to_owned();
        let body: Value =
            request.body().bytes().and_then(|it| serde_json::from_slice(it).ok()).unwrap_or_default();
        self.lock().counts.calls += 1;
        let end = Instant::now() + self.limits.latency;
        let response = match operation.as_str() {
            "GetItem" | "Query" | "BatchGetItem" => self.read(&operation, &body, request).await,
            "BatchWriteItem" => self.write_batch(body, &mut request).await,
            _ => self.write(&operation, &body, request).await,
        };
        tokio::time::sleep_until(end).await;
        response
    }

    async fn read(
        &self,
        operation: &str,
        body: &Value,
        request: HttpRequest,
    ) -> Result<HttpResponse, ConnectorError> {
        let pks = match operation {
            "GetItem" => vec![text(&body["Key"]["pk"])],
            "Query" => vec![text(&body["ExpressionAttributeValues"][":p"])],
            _ => tables(&body["RequestItems"])
                .flat_map(|it| list(&it["Keys"]))
                .map(|it| text(&it["pk"]))
                .collect(),
        };
        let is_left = pks.iter().all(|pk| self.left(&mut self.lock(), pk).reads > 0.0);
        if !is_left {
            self.throttled(1);
            return respond(400, &failure("ProvisionedThroughputExceededException"));
        }
        let response = self.connector.call(request).await?;
        // Binary values are base64 in the response.
        let bytes = response.body().bytes().map_or(0, <[u8]>::len) * 3 / 4;
        let each = (bytes as f64 / pks.len() as f64 / 4096.0).ceil().max(1.0);
        pks.iter().for_each(|pk| self.take_reads(pk, each));
        Ok(response)
    }

    async fn write(
        &self,
        operation: &str,
        body: &Value,
        request: HttpRequest,
    ) -> Result<HttpResponse, ConnectorError> {
        let is_transaction = operation == "TransactWriteItems";
        let items = match is_transaction {
            true => list(&body["TransactItems"])
                .flat_map(|it| tables(it).map(|it| written(it, 2.0)).collect::<Vec<_>>())
                .collect(),
            false => vec![written(body, 1.0)],
        };
        if !self.take_writes(&items.iter().collect::<Vec<_>>()) {
            self.throttled(1);
            return respond(400, &failure("ProvisionedThroughputExceededException"));
        }
        let keys = items.iter().map(|item| (item.pk.clone(), item.sk.clone())).collect::<Vec<_>>();
        {
            let mut state = self.lock();
            if let Some(index) = keys.iter().position(|key| state.locked.contains(key)) {
                state.counts.conflicts += 1;
                return respond(
                    400,
                    &if is_transaction {
                        conflict(keys.len(), index)
                    } else {
                        failure("TransactionConflictException")
                    },
                );
            }
            if is_transaction {
                state.locked.extend(keys.iter().cloned());
            }
        }
        // A transaction holds its items for its latency.
        let half = Instant::now() + self.limits.latency / 2;
        tokio::time::sleep_until(half).await;
        let response = self.connector.call(request).await;
        if is_transaction {
            let mut state = self.lock();
            state.locked.retain(|key| !keys.contains(key));
        }
        let response = response?;
        if response.status().is_success() && operation == "PutItem" {
            for (pk, sk) in
                keys.into_iter().filter(|(pk, sk)| pk.starts_with("COMPACTION#") && sk.starts_with("WAKE#"))
            {
                // Nothing listens in a test without a worker.
                let _ = self.stream.send(Key::new(pk, sk));
            }
        }
        Ok(response)
    }

    /// Writes the items of a batch that fit, and returns the others.
    async fn write_batch(
        &self,
        mut body: Value,
        request: &mut HttpRequest,
    ) -> Result<HttpResponse, ConnectorError> {
        let mut rejected = serde_json::Map::new();
        for (table, writes) in body["RequestItems"].as_object_mut().into_iter().flatten() {
            let all = writes.as_array_mut().map(std::mem::take).unwrap_or_default();
            let fits = |write: &Value| tables(write).all(|it| self.take_writes(&[&written(it, 1.0)]));
            let (fitting, others): (Vec<Value>, Vec<Value>) = all.into_iter().partition(fits);
            *writes = fitting.into();
            if !others.is_empty() {
                self.throttled(others.len() as u64);
                rejected.insert(table.clone(), others.into());
            }
        }
        let is_empty = tables(&body["RequestItems"]).all(|it| it.as_array().is_none_or(Vec::is_empty));
        if is_empty {
            return respond(400, &failure("ProvisionedThroughputExceededException"));
        }
        *request.body_mut() = body.to_string().into();
        let request = std::mem::replace(request, HttpRequest::new("".into()));
        let response = self.connector.call(request).await?;
        if rejected.is_empty() || !response.status().is_success() {
            return Ok(response);
        }
        let mut response: Value =
            response.body().bytes().and_then(|it| serde_json::from_slice(it).ok()).unwrap_or_default();
        response["UnprocessedItems"] = rejected.into();
        respond(200, &response)
    }
}

impl HttpClient for LimitedTable {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for LimitedTable {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.clone().respond_within_limits(request))
    }
}

fn text(value: &Value) -> String {
    value["S"].as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn tables(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_object().into_iter().flat_map(|map| map.values())
}

/// The item that a put, an update, a deletion or a check names, and its units.
fn written(write: &Value, times: f64) -> WrittenItem {
    let item = &write["Item"];
    let key = if item.is_null() { &write["Key"] } else { item };
    let bytes = if item.is_null() { 0 } else { item.to_string().len() * 3 / 4 };
    WrittenItem {
        pk: text(&key["pk"]),
        sk: text(&key["sk"]),
        units: (bytes as f64 / 1024.0).ceil().max(1.0) * times,
    }
}

fn failure(code: &str) -> Value {
    json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": "A limit of this test."})
}

fn conflict(writes: usize, index: usize) -> Value {
    let code = |at| if at == index { "TransactionConflict" } else { "None" };
    let reasons = (0..writes).map(|at| json!({"Code": code(at)})).collect::<Vec<_>>();
    let mut body = failure("TransactionCanceledException");
    body["CancellationReasons"] = reasons.into();
    body
}

fn respond(status: u16, body: &Value) -> Result<HttpResponse, ConnectorError> {
    let status = StatusCode::try_from(status).map_err(|error| ConnectorError::other(error.into(), None))?;
    let mut response = HttpResponse::new(status, body.to_string().into());
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    Ok(response)
}
