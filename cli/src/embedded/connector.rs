//! The SDK's HTTP client, with the database behind it in place of a network.

use aws_sdk_dynamodb::config::{HttpClient, RuntimeComponents};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use dynoxide::{Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::writes::Turn;

/// Answers DynamoDB requests from an embedded database.
#[derive(Clone)]
pub struct Connector {
    database: Database,
    turn: Turn,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Connector")
    }
}

impl Connector {
    /// A connector to `database`, which writes when it is its `turn`.
    pub fn new(database: Database, turn: Turn) -> Connector {
        Connector { database, turn }
    }
}

impl HttpClient for Connector {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Connector { database, turn } = self.clone();
        HttpConnectorFuture::new(async move {
            let target = request.headers().get("x-amz-target").unwrap_or_default();
            let operation = target.rsplit('.').next().unwrap_or_default();
            let body = request.body().bytes().unwrap_or_default();
            // The database may answer before this task is polled again. Calls that a task makes side by side should
            // all begin before the first ends, as they do over a network.
            tokio::task::yield_now().await;
            let (operation, body) = (operation.to_owned(), body.to_vec());
            // SQLite blocks its thread, and other requests must go on meanwhile.
            let answer = tokio::task::spawn_blocking(move || {
                dispatch(&database, &turn, &operation, &String::from_utf8_lossy(&body))
            })
            .await
            .map_err(|error| ConnectorError::other(error.into(), None))?;
            let (status, body) = match answer {
                Ok(body) => (200, body),
                Err(error) => (error.status_code(), error.to_json()),
            };
            response(status, body)
        })
    }
}

fn response(status: u16, body: String) -> Result<HttpResponse, ConnectorError> {
    let status = StatusCode::try_from(status).map_err(|error| ConnectorError::other(error.into(), None))?;
    let mut response = HttpResponse::new(status, body.into());
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    Ok(response)
}

/// Runs one operation; body and answer are DynamoDB's JSON.
pub(super) fn dispatch(
    database: &Database,
    turn: &Turn,
    operation: &str,
    body: &str,
) -> Result<String, DynoxideError> {
    let reads = ["Get", "BatchGet", "TransactGet", "Query", "Scan", "List", "Describe"];
    let is_read = reads.iter().any(|word| operation.starts_with(word));
    // Two writers of one file would wait for each other by looking again and again.
    let turn_taken = (!is_read).then(|| turn.take());
    let answer = if is_read {
        answer(database, operation, body)
    } else {
        let written = turn.files().guarding(|| answer(database, operation, body));
        turn.committed();
        written.unwrap_or_else(|lost| Err(DynoxideError::InternalServerError(lost)))
    };
    drop(turn_taken);
    if !is_read && answer.is_ok() {
        turn.wrote();
    }
    answer
}

fn answer(database: &Database, operation: &str, body: &str) -> Result<String, DynoxideError> {
    match operation {
        "GetItem" => run(body, |request| database.get_item(request)),
        "BatchGetItem" => run(body, |request| database.batch_get_item(request)),
        "Query" => run(body, |request| database.query(request)),
        "PutItem" => run(body, |request| database.put_item(request)),
        "UpdateItem" => run(body, |request| database.update_item(request)),
        "DeleteItem" => run(body, |request| database.delete_item(request)),
        "BatchWriteItem" => run(body, |request| database.batch_write_item(request)),
        "TransactWriteItems" => run(body, |request| database.transact_write_items(request)),
        "TransactGetItems" => run(body, |request| database.transact_get_items(request)),
        "Scan" => run(body, |request| database.scan(request)),
        "ListTables" => run(body, |request| database.list_tables(request)),
        "UpdateTable" => run(body, |request| database.update_table(request)),
        "DeleteTable" => run(body, |request| database.delete_table(request)),
        "ListStreams" => run(body, |request| database.list_streams(request)),
        "DescribeStream" => run(body, |request| database.describe_stream(request)),
        "GetShardIterator" => run(body, |request| database.get_shard_iterator(request)),
        "GetRecords" => run(body, |request| database.get_records(request)),
        "CreateTable" => run(body, |request| database.create_table(request)),
        "DescribeTable" => run(body, |request| database.describe_table(request)),
        "UpdateTimeToLive" => run(body, |request| database.update_time_to_live(request)),
        "DescribeTimeToLive" => run(body, |request| database.describe_time_to_live(request)),
        other => Err(DynoxideError::ValidationException(format!(
            "{other} is not an operation of the embedded store"
        ))),
    }
}

fn run<Request: DeserializeOwned, Answer: Serialize>(
    body: &str,
    operation: impl FnOnce(Request) -> Result<Answer, DynoxideError>,
) -> Result<String, DynoxideError> {
    let request = serde_json::from_str(body).map_err(|error| {
        let text = error.to_string();
        DynoxideError::ValidationException(text.trim_start_matches("VALIDATION:").to_owned())
    })?;
    let answer = operation(request)?;
    serde_json::to_string(&answer).map_err(|error| DynoxideError::InternalServerError(error.to_string()))
}
