//! A database in this process, asked without the SDK between: taking a request apart and putting it together again costs
//! many times what a few reads from a file do.
//!
//! Must stay true: what it answers is what the SDK's call would be answered, strongly consistent reads and transactions
//! that happen as a whole; what it does not answer is asked through the SDK.

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
use super::change::Change;
use super::item::{Attributes, Key};

/// A database in this process.
pub trait LocalBackend: std::fmt::Debug + Send + Sync {
    /// The items at `keys`, which differ, in any order, without those that are not there; all of one state of the table.
    fn items(&self, table: &str, keys: &[&Key]) -> Option<Vec<Attributes>>;

    /// The next page of a partition.
    fn page(&self, table: &str, range: PartitionRange) -> BackendFuture<'_, PartitionPage>;

    /// Makes all of `changes` or none. Says what the counter is that the last of them raised; 0 without one.
    fn transact(&self, table: &str, changes: Arc<Vec<Change>>) -> BackendFuture<'_, Result<i64, StoreError>>;
}

/// An answer to come; none where the SDK has to be asked.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Option<T>> + Send + 'a>>;

/// Which items of a partition are wanted.
#[derive(Debug, Clone)]
pub struct PartitionRange {
    /// The partition.
    pub pk: String,
    /// What their sort keys start with.
    pub prefix: Option<String>,
    /// After which sort key, in the order that is asked for.
    pub after: Option<String>,
    /// Most of them.
    pub limit: Option<usize>,
    /// Largest sort key first.
    pub descending: bool,
}

/// A page of a partition.
#[derive(Debug)]
pub struct PartitionPage {
    /// Its items.
    pub items: Vec<Attributes>,
    /// Whether the page ended before the range did.
    pub more: bool,
}

/// DynamoDB's JSON of a value; of the types that items of ours have.
#[derive(Deserialize)]
enum Stored<'a> {
    S(#[serde(borrow)] Cow<'a, str>),
    N(#[serde(borrow)] Cow<'a, str>),
    B(#[serde(borrow)] Cow<'a, str>),
}

/// The item of DynamoDB's JSON text; none where it has values of other types than ours.
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

/// DynamoDB's JSON text of `item`; none where it has values of other types than ours.
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
                _ => return Err(serde::ser::Error::custom("a type that items of ours do not have")),
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
    fn an_item_comes_back_from_its_json() {
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
    fn other_types_are_left_to_the_sdk() {
        assert_eq!(from_json(r#"{"pk":{"S":"P"},"flag":{"BOOL":true}}"#), None);
        let attributes = Attributes::from([("flag".to_owned(), AttributeValue::Bool(true))]);
        assert_eq!(to_json(&attributes), None);
    }
}
