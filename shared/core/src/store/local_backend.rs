//! A database in this process that is called without the SDK: serializing a request and parsing it again takes many times as
//! long as a few reads from a file.
//!
//! Must stay true: results are the same as through the SDK, with strongly consistent reads and atomic transactions; calls
//! that the backend does not support go through the SDK.

use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use super::StoreError;
use super::change::ItemChange;
use super::item::{Attributes, Key};

/// Error code of a database in this process that cannot be written until the user changes something; the message says what.
pub const UNWRITABLE_CODE: &str = "StorageUnwritable";

/// Error code of a database in this process for a row that is not what was written.
pub const DAMAGED_CODE: &str = "StorageDamaged";

/// A database in this process. Methods return `None` for calls that must go through the SDK.
pub trait LocalBackend: std::fmt::Debug + Send + Sync {
    /// Reads the items at `keys`, which are distinct, in any order and without missing ones, from one snapshot of the table. An
    /// item that is damaged is an error.
    fn items(&self, table: &str, keys: &[&Key]) -> Option<Result<Vec<Attributes>, StoreError>>;

    /// Reads a page of a partition. An item that is damaged is an error.
    fn page(
        &self,
        table: &str,
        range: PartitionRange,
    ) -> BackendFuture<'_, Result<PartitionPage, StoreError>>;

    /// Applies all of `changes` or none. Returns the new value of the counter that the last change increments; 0 without one.
    fn transact(
        &self,
        table: &str,
        changes: Arc<Vec<ItemChange>>,
    ) -> BackendFuture<'_, Result<i64, StoreError>>;
}

/// A pending result; `None` if the call must go through the SDK.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Option<T>> + Send + 'a>>;

/// A query of one partition.
#[derive(Debug, Clone)]
pub struct PartitionRange {
    /// The partition.
    pub pk: String,
    /// Prefix of the sort keys.
    pub prefix: Option<String>,
    /// Only items after this sort key, in the order of the query.
    pub after: Option<String>,
    /// Maximum number of items.
    pub limit: Option<usize>,
    /// Largest sort key first.
    pub descending: bool,
}

/// A page of a partition.
#[derive(Debug)]
pub struct PartitionPage {
    /// Its items.
    pub items: Vec<Attributes>,
    /// Whether there are more items in the range.
    pub more: bool,
}

/// DynamoDB's JSON of a value, for the types that Pennon's items use.
#[derive(Deserialize)]
enum Stored<'a> {
    S(#[serde(borrow)] Cow<'a, str>),
    N(#[serde(borrow)] Cow<'a, str>),
    B(#[serde(borrow)] Cow<'a, str>),
}

/// Parses an item in DynamoDB's JSON; `None` if it has values of other types than Pennon's.
pub fn from_json(text: &str) -> Option<Attributes> {
    let stored: HashMap<Cow<'_, str>, Stored<'_>> = serde_json::from_str(text).ok()?;
    let read = |(name, value): (Cow<'_, str>, Stored<'_>)| {
        let value = match value {
            Stored::S(text) => AttributeValue::S(text.into_owned()),
            Stored::N(number) => AttributeValue::N(number.into_owned()),
            Stored::B(bytes) => AttributeValue::B(Blob::new(STANDARD.decode(&*bytes).ok()?)),
        };
        Some((name.into_owned(), value))
    };
    stored.into_iter().map(read).collect()
}

/// Serializes an item to DynamoDB's JSON; `None` if it has values of other types than Pennon's.
pub fn to_json(item: &Attributes) -> Option<String> {
    serde_json::to_string(&Json(item)).ok()
}

struct Json<'a>(&'a Attributes);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        enum Value<'a> {
            S(&'a str),
            N(&'a str),
            B(String),
        }
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            let value = match value {
                AttributeValue::S(text) => Value::S(text),
                AttributeValue::N(number) => Value::N(number),
                AttributeValue::B(blob) => Value::B(STANDARD.encode(blob.as_ref())),
                _ => return Err(serde::ser::Error::custom("unsupported attribute type")),
            };
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::item::Item;
    use super::*;

    #[test]
    fn items_round_trip_through_json() {
        let item = Item {
            text: "\"quoted\\ ü\u{0}\u{1F600}".to_owned(),
            bytes: vec![0, 1, 255],
            count: -7,
            expires_at: Some(99),
            ..Item::empty(Key::new("P#ü", "S\"")).with_version(3)
        };
        let attributes = item.attributes().unwrap();
        assert_eq!(from_json(&to_json(&attributes).unwrap()), Some(attributes));
    }

    #[test]
    fn unsupported_types_give_none() {
        assert_eq!(from_json(r#"{"pk":{"S":"P"},"flag":{"BOOL":true}}"#), None);
        let attributes = Attributes::from([("flag".to_owned(), AttributeValue::Bool(true))]);
        assert_eq!(to_json(&attributes), None);
    }
}
