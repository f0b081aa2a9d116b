//! The two tables: names of their keys, stream and expiry. `template.yaml` declares the same, and a test compares them.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, StreamSpecification,
    StreamViewType, TimeToLiveSpecification,
};

use super::StoreError;
use super::item::{EXPIRES_AT, PK, SK};

/// What a table is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableSchema {
    /// Name of the partition key, a text.
    pub partition_key: &'static str,
    /// Name of the sort key, a text.
    pub sort_key: &'static str,
    /// What its stream carries, if it has one.
    pub stream: Option<&'static str>,
    /// The attribute after which items expire.
    pub expires_by: &'static str,
}

/// Everything but freshly captured events. The stream starts background work, for which the key of a job is enough: nothing
/// of the items themselves leaves the table.
pub const RECORDS: TableSchema =
    TableSchema { partition_key: PK, sort_key: SK, stream: Some("KEYS_ONLY"), expires_by: EXPIRES_AT };

/// Freshly captured events. Their volume and life differ from the records', and nothing follows their stream.
pub const BLOCKS: TableSchema =
    TableSchema { partition_key: PK, sort_key: SK, stream: None, expires_by: EXPIRES_AT };

/// Creates the table `name`, unless it is there already.
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
