//! Serializes queries as insight filters: the `filter` field of a result's series, and the parameters of people links.

use pennon_filters::dates::range::DateRange;
use pennon_filters::dates::zone::utc_text;
use serde_json::{Map, Value, json};

use super::super::{Breakdown, CommonFields, Series};
use super::parse::GROUPS_FROM_ZERO;
use crate::filter::{filter_json, list_json};

/// Adds a field; nulls are left out.
pub fn put(filters: &mut Map<String, Value>, key: &str, value: Value) {
    if !value.is_null() {
        filters.insert(key.to_owned(), value);
    }
}

/// The insight filters of a kind whose filters lack some fields of its node: they hold the node in `query`.
pub fn filters_with_node(insight: &str, node: Map<String, Value>) -> Map<String, Value> {
    let fields = [("insight", json!(insight)), ("query", Value::Object(node))];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Serializes the fields that all kinds share: those that the request set, plus the default of `properties`. `write_options`
/// adds the fields of a series that its kind has.
pub fn common_filters(
    insight: &str,
    common: &CommonFields,
    series: &[Series],
    write_options: impl Fn(usize, &Series, &mut Value),
) -> Map<String, Value> {
    let mut filters = Map::new();
    put(&mut filters, "insight", json!(insight));
    for list in ["events", "actions"] {
        let of_list = series.iter().enumerate().filter(|(_, one)| one.event_or_action.list_name() == list);
        let json = |(order, one): (usize, &Series)| {
            series_json(one, order, |entity| write_options(order, one, entity))
        };
        put(&mut filters, list, of_list.map(json).collect());
    }
    put(&mut filters, "properties", filter_json(&common.properties));
    put(&mut filters, "filter_test_accounts", json!(common.filter_test_accounts));
    put(&mut filters, "date_from", json!(common.dates.from));
    put(&mut filters, "date_to", json!(common.dates.to));
    if common.dates.explicit {
        put(&mut filters, "explicit_date", json!(true));
    }
    put(&mut filters, "interval", json!(common.interval.name()));
    for (key, value) in common.breakdown.iter().flat_map(Breakdown::to_insight_filters) {
        put(&mut filters, &key, value);
    }
    filters
}

/// Adds the group type that is counted; nothing for persons.
pub fn put_group_type(filters: &mut Map<String, Value>, index: Option<u8>) {
    put(filters, "aggregation_group_type_index", json!(index));
    if index == Some(0) {
        put(filters, GROUPS_FROM_ZERO, json!(true));
    }
}

/// Serializes one series.
fn series_json(series: &Series, order: usize, write_options: impl Fn(&mut Value)) -> Value {
    let mut entity = json!({"id": series.event_or_action.id(), "type": series.event_or_action.list_name(), "order": order});
    if let Some(name) = &series.name {
        entity["name"] = json!(name);
    }
    if let Some(name) = &series.custom_name {
        entity["custom_name"] = json!(name);
    }
    write_options(&mut entity);
    entity["properties"] = list_json(&series.properties);
    entity
}

/// Sets both dates: as sent, or else the resolved bound.
pub fn with_dates(filters: Map<String, Value>, range: &DateRange) -> Map<String, Value> {
    let mut dated = Map::new();
    for (key, value) in filters {
        // Keeps both dates before the interval, whether they were sent or resolved.
        if key == "explicit_date" || key == "interval" {
            dated.entry("date_from").or_insert_with(|| json!(utc_text(&range.from)));
            dated.entry("date_to").or_insert_with(|| json!(utc_text(&range.to)));
        }
        dated.insert(key, value);
    }
    dated
}
