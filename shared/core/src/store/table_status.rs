//! The state and the stream of a table, for `pennon doctor`.

use aws_sdk_dynamodb::types::TableDescription;

use super::{StoreError, Table};

/// The stream view with which the template creates the records table.
const STREAM_VIEW: &str = "KEYS_ONLY";

/// What DynamoDB reports about a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableStatus {
    /// Its name.
    pub name: String,
    /// Its state; `ACTIVE` if it can be used.
    pub state: String,
    /// The view of its stream, if it has one that is enabled.
    pub stream_view: Option<String>,
}

impl TableStatus {
    fn of(name: &str, table: Option<&TableDescription>) -> TableStatus {
        let state = table.and_then(|table| table.table_status()).map(|state| state.as_str().to_owned());
        let stream = table.and_then(|table| table.stream_specification()).filter(|it| it.stream_enabled());
        let view = stream.and_then(|stream| stream.stream_view_type()).map(|view| view.as_str().to_owned());
        TableStatus { name: name.to_owned(), state: state.unwrap_or_default(), stream_view: view }
    }

    /// Whether the table can be used.
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// Whether the worker can follow the table.
    pub fn has_stream(&self) -> bool {
        self.stream_view.as_deref() == Some(STREAM_VIEW)
    }
}

impl Table {
    /// Describes the table. Needs the permission `dynamodb:DescribeTable`, which no function has.
    pub async fn describe(&self) -> Result<TableStatus, StoreError> {
        let described = Box::pin(self.client.describe_table().table_name(&*self.name).send()).await?;
        Ok(TableStatus::of(&self.name, described.table()))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use aws_sdk_dynamodb::types::{StreamSpecification, StreamViewType};

    use super::*;

    #[test]
    fn the_worker_needs_a_stream_of_keys_that_is_enabled() {
        let table = |enabled: bool, view: StreamViewType| {
            let stream = StreamSpecification::builder()
                .stream_enabled(enabled)
                .stream_view_type(view)
                .build()
                .unwrap();
            let table = TableDescription::builder()
                .table_status("ACTIVE".into())
                .stream_specification(stream)
                .build();
            TableStatus::of("records", Some(&table))
        };
        assert!(
            table(true, StreamViewType::KeysOnly).is_active()
                && table(true, StreamViewType::KeysOnly).has_stream()
        );
        assert!(!table(true, StreamViewType::NewImage).has_stream());
        assert!(!table(false, StreamViewType::KeysOnly).has_stream());
        assert!(!TableStatus::of("records", None).is_active());
    }
}
