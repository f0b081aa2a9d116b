//! Canonical JSON of queries, for cache keys.

use serde_json::{Map, Value, json};

use super::{Breakdown, CommonFields, Series};
use crate::filter::filter_json;

/// The node of a query with the fields that all kinds share, defaults filled in.
pub fn common_node(kind: &str, common: &CommonFields, series: Vec<Value>) -> Value {
    json!({
        "kind": kind,
        "series": series,
        "properties": filter_json(&common.properties),
        "filterTestAccounts": common.filter_test_accounts,
        "dateRange": {
            "date_from": common.dates.from,
            "date_to": common.dates.to,
            "explicitDate": common.dates.explicit,
        },
        "interval": common.interval.name(),
        "breakdownFilter": common.breakdown.as_ref().map(Breakdown::to_insight_filters),
    })
}

/// The fields of a series that all kinds share.
pub fn series_json(series: &Series) -> Value {
    json!({
        "kind": series.event_or_action.list_name(),
        "id": series.event_or_action.id(),
        "name": series.name,
        "custom_name": series.custom_name,
        "properties": filter_json(&series.properties),
    })
}

/// The same value with the keys of every object sorted in byte order.
pub fn sort_keys(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<(String, Value)> = object.into_iter().collect();
            entries.sort_by(|left, right| left.0.cmp(&right.0));
            entries.into_iter().map(|(key, value)| (key, sort_keys(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(list) => list.into_iter().map(sort_keys).collect(),
        other => other,
    }
}
