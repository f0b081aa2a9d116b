//! An HTTP client for the SDK that calls the embedded database instead of a network.

use aws_sdk_dynamodb::config::{HttpClient, RuntimeComponents};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use dynoxide::{Database, DynoxideError};
use pennon_core::store::local_backend::{DAMAGED_CODE, UNWRITABLE_CODE};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::connection;
use super::write_lock::WriteLock;

/// Serves DynamoDB requests from an embedded database.
#[derive(Clone)]
pub struct Connector {
    database: Database,
    write_lock: WriteLock,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Connector")
    }
}

impl Connector {
    /// A connector to `database`; write operations hold `write_lock`.
    pub fn new(database: Database, write_lock: WriteLock) -> Connector {
        Connector { database, write_lock }
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
        let Connector { database, write_lock } = self.clone();
        HttpConnectorFuture::new(async move {
            let target = request.headers().get("x-amz-target").unwrap_or_default();
            let operation = target.rsplit('.').next().unwrap_or_default();
            let body = request.body().bytes().unwrap_or_default();
            // The database may respond before this task is polled again. Yield, so that calls that a task makes
            // concurrently all begin before the first ends, as they do over a network.
            tokio::task::yield_now().await;
            let (operation, body) = (operation.to_owned(), body.to_vec());
            // SQLite blocks its thread, and other requests must go on meanwhile.
            let result = tokio::task::spawn_blocking(move || {
                dispatch(&database, &write_lock, &operation, &String::from_utf8_lossy(&body))
            })
            .await
            .map_err(|error| ConnectorError::other(error.into(), None))?;
            let (status, body) = match result {
                Ok(body) => (200, body),
                Err(error) => (error.status_code(), error_body(&error)),
            };
            response(status, body)
        })
    }
}

/// What the database says of an item whose text it cannot decode.
const UNDECODABLE: &str = "Bad item JSON";

/// The body of an error response, with a code of its own if the database cannot be written, or a row is damaged.
pub(super) fn error_body(error: &DynoxideError) -> String {
    let (code, message) = match error {
        DynoxideError::SqliteError(cause) => (UNWRITABLE_CODE, connection::unwritable_reason(cause)),
        DynoxideError::InternalServerError(cause) if cause.starts_with(UNDECODABLE) => {
            (DAMAGED_CODE, Some(format!("a row is damaged ({cause})")))
        }
        _ => return error.to_json(),
    };
    message.map_or_else(|| error.to_json(), |message| json!({"__type": code, "message": message}).to_string())
}

fn response(status: u16, body: String) -> Result<HttpResponse, ConnectorError> {
    let status = StatusCode::try_from(status).map_err(|error| ConnectorError::other(error.into(), None))?;
    let mut response = HttpResponse::new(status, body.into());
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    Ok(response)
}

/// Runs one operation. Request and response bodies are DynamoDB's JSON. A write operation holds the write lock, updates the
/// write mark before it returns, and notifies the stream's followers.
pub(super) fn dispatch(
    database: &Database,
    write_lock: &WriteLock,
    operation: &str,
    body: &str,
) -> Result<String, DynoxideError> {
    let reads = ["Get", "BatchGet", "TransactGet", "Query", "Scan", "List", "Describe"];
    let is_read = reads.iter().any(|word| operation.starts_with(word));
    // Without it two writers of one file would poll SQLite's lock.
    let guard = (!is_read).then(|| write_lock.acquire());
    let result = if is_read {
        call_database(database, operation, body)
    } else {
        let written = write_lock.files().run_checked(|| call_database(database, operation, body));
        write_lock.record_commit();
        written.unwrap_or_else(|lost| Err(DynoxideError::InternalServerError(lost)))
    };
    drop(guard);
    if !is_read && result.is_ok() {
        write_lock.notify_followers();
    }
    result
}

fn call_database(database: &Database, operation: &str, body: &str) -> Result<String, DynoxideError> {
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

fn run<Request: DeserializeOwned, Response: Serialize>(
    body: &str,
    operation: impl FnOnce(Request) -> Result<Response, DynoxideError>,
) -> Result<String, DynoxideError> {
    let request = serde_json::from_str(body).map_err(|error| {
        let text = error.to_string();
        DynoxideError::ValidationException(text.trim_start_matches("VALIDATION:").to_owned())
    })?;
    let response = operation(request)?;
    serde_json::to_string(&response).map_err(|error| DynoxideError::InternalServerError(error.to_string()))
}
