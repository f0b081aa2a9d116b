//! A function that serves one route with one item of a table, and does nothing else.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;

const TABLE: &str = "pennon-records";

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    lambda_http::tracing::init_default_subscriber();
    let client = Client::new(&aws_config::load_from_env().await);
    lambda_http::run(Router::new().route("/items/{pk}/{sk}", get(item)).with_state(client)).await
}

/// The item's text.
async fn item(
    State(client): State<Client>,
    Path((pk, sk)): Path<(String, String)>,
) -> Result<String, StatusCode> {
    let call = client.get_item().table_name(TABLE).consistent_read(true);
    let call = call.key("pk", AttributeValue::S(pk)).key("sk", AttributeValue::S(sk));
    let response = call.send().await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let item = response.item.ok_or(StatusCode::NOT_FOUND)?;
    item.get("d").and_then(|text| text.as_s().ok()).cloned().ok_or(StatusCode::NOT_FOUND)
}
