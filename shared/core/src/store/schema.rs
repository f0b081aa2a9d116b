//! The schemas of the two tables: keys, stream and time to live. `template.yaml` declares the same; a test compares them.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, StreamSpecification,
    StreamViewType, TimeToLiveSpecification,
};

use super::StoreError;
use super::item::{EXPIRES_AT, PK, SK};

/// The schema of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableSchema {
    /// Name of the partition key, a string.
    pub partition_key: &'static str,
    /// Name of the sort key, a string.
    pub sort_key: &'static str,
    /// The view type of its stream, if it has one.
    pub stream: Option<&'static str>,
    /// The time-to-live attribute.
    pub expires_by: &'static str,
}

/// All records but freshly captured events. The stream starts background jobs, for which keys are enough, so it contains no
/// item data.
pub const RECORDS: TableSchema =
    TableSchema { partition_key: PK, sort_key: SK, stream: Some("KEYS_ONLY"), expires_by: EXPIRES_AT };

/// Freshly captured events. A separate table, because their volume and lifetime differ and they need no stream.
pub const BLOCKS: TableSchema =
    TableSchema { partition_key: PK, sort_key: SK, stream: None, expires_by: EXPIRES_AT };

/// Creates the table `name` if it does not exist.
pub async fn create(client: &Client, name: &str, schema: &TableSchema) -> Result<(), StoreError> {
    let failed = |e: aws_sdk_dynamodb::error::BuildError| StoreError::Failed(e.to_string());
    let attribute = |name: &str| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build()
    };
    let element = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
    let mut call = client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute(schema.partition_key).map_err(failed)?)
        .attribute_definitions(attribute(schema.sort_key).map_err(failed)?)
        .key_schema(element(schema.partition_key, KeyType::Hash).map_err(failed)?)
        .key_schema(element(schema.sort_key, KeyType::Range).map_err(failed)?);
    if let Some(view) = schema.stream {
        let stream = StreamSpecification::builder()
            .stream_enabled(true)
            .stream_view_type(StreamViewType::from(view))
            .build()
            .map_err(failed)?;
        call = call.stream_specification(stream);
    }
    match call.send().await {
        Err(error) if error.as_service_error().is_some_and(|e| e.is_resource_in_use_exception()) => {
            return Ok(());
        }
        other => other?,
    };
    let expiry = TimeToLiveSpecification::builder()
        .enabled(true)
        .attribute_name(schema.expires_by)
        .build()
        .map_err(failed)?;
    client.update_time_to_live().table_name(name).time_to_live_specification(expiry).send().await?;
    Ok(())
}
