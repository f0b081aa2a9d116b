//! Approximate memory of property values.
//!
//! Must stay true: all modules that reserve memory for values use the same sizes.

use pennon_analytics::scan::Column;
use serde_json::{Map, Value};

/// Approximate bytes of the values of a column.
pub(crate) fn values_bytes(column: &Column) -> u64 {
    column.values.iter().map(value_bytes).sum()
}

/// Approximate bytes of a value.
pub(crate) fn value_bytes(value: &Value) -> u64 {
    let own = size_of::<Value>() as u64;
    // Allocator overhead per allocation.
    let held = |bytes: usize| 16 + bytes as u64;
    own + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => held(text.capacity()),
        Value::Array(items) => held(0) + items.iter().map(value_bytes).sum::<u64>(),
        Value::Object(fields) => held(0) + properties_bytes(fields),
    }
}

/// Approximate bytes of properties.
pub(crate) fn properties_bytes(properties: &Map<String, Value>) -> u64 {
    let field = |(key, value): (&String, &Value)| field_bytes(key.capacity()) + value_bytes(value);
    properties.iter().map(field).sum()
}

/// Approximate bytes of a property in an object beside its value, with a name of this length.
pub(crate) fn field_bytes(name: usize) -> u64 {
    16 + 48 + name as u64
}
