//! Batches of which the store processes a part: `BatchGetItem` and `BatchWriteItem` with unprocessed keys or items.
//!
//! Must stay true: like DynamoDB, a response names every key or item of the request that was not processed, with the settings of the
//! request.

use serde_json::{Map, Value};

/// The field of a batch's response with what was not processed; `None` for other operations.
pub(crate) fn unprocessed_field(operation: &str) -> Option<&'static str> {
    match operation {
        "BatchGetItem" => Some("UnprocessedKeys"),
        "BatchWriteItem" => Some("UnprocessedItems"),
        _ => None,
    }
}

/// Takes the second half of a batch off the body of a request. `None` if the batch has only one key or item.
pub(crate) fn split(body: &mut Value) -> Option<Value> {
    let mut unprocessed = Map::new();
    for (table, requests) in body["RequestItems"].as_object_mut()? {
        let is_write = requests.is_array();
        let list = if is_write { requests.as_array_mut()? } else { requests["Keys"].as_array_mut()? };
        let rest = list.split_off(list.len().div_ceil(2));
        if rest.is_empty() {
            continue;
        }
        let mut of_table = if is_write { Value::Null } else { requests.clone() };
        match is_write {
            true => of_table = rest.into(),
            false => of_table["Keys"] = rest.into(),
        }
        unprocessed.insert(table.clone(), of_table);
    }
    (!unprocessed.is_empty()).then_some(Value::Object(unprocessed))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_second_half_of_a_batch_is_not_processed() {
        let mut read = json!({"RequestItems": {"t": {"Keys": [1, 2, 3], "ConsistentRead": true}}});
        let rest = split(&mut read);
        assert_eq!(rest, Some(json!({"t": {"Keys": [3], "ConsistentRead": true}})));
        assert_eq!(read["RequestItems"]["t"]["Keys"], json!([1, 2]));
        let mut written = json!({"RequestItems": {"t": [1, 2]}});
        assert_eq!(split(&mut written), Some(json!({"t": [2]})));
        assert_eq!(written, json!({"RequestItems": {"t": [1]}}));
        assert_eq!(split(&mut json!({"RequestItems": {"t": [1]}})), None);
    }
}
