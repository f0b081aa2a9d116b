//! The dictionary of a column.
//!
//! Must stay true: values never change.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;

use serde_json::Value;

/// Values in the order of their codes; may have duplicates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dictionary(Vec<Value>);

impl From<Vec<Value>> for Dictionary {
    fn from(values: Vec<Value>) -> Self {
        Self(values)
    }
}

impl Deref for Dictionary {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.0
    }
}

/// A 128-bit hash, not 0, and wide enough that collisions within a project can be ignored.
pub(crate) fn text_hash(text: &str) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    ((half(1) << 64) | half(2)).max(1)
}
