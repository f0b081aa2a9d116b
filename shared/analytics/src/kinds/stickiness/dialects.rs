//! The forms of a stickiness query in requests: query node, insight filters, canonical node.
//!
//! Must stay true: parsing what [`to_node`] writes gives the same query again.

use pennon_filters::dates::compare::Comparison;
use pennon_filters::{CalcError, CalcResult};
use serde_json::{Map, Value, json};

use super::query::{self, COMPUTED_AS, CountComparison, SeriesActor};
use super::raw_query::RawStickiness;
use super::{NODE_KIND, StickinessQuery};
use crate::kinds::ParsedQuery;
use crate::kinds::parse::parse_query_field;
use crate::kinds::saved_query::{FieldType, REQUIRED_SERIES, SavedField, SavedNodeRules};
use crate::query::insight_filters::parse::common_fields as common_filters;
use crate::query::node::{self, common_fields as common_node_fields, get_object};
use crate::query::{Field, canonical};

type Object = Map<String, Value>;

/// The rules for nodes that insights store.
pub(super) const SAVED_NODE: SavedNodeRules =
    SavedNodeRules { required: REQUIRED_SERIES, fields: SAVED_FIELDS, shares_fields: false };

const SAVED_FIELDS: &[SavedField] = &[
    ("", "intervalCount", FieldType::Integer),
    ("", "stickinessFilter", FieldType::Object),
    ("stickinessFilter", "computedAs", FieldType::OneOf(COMPUTED_AS)),
    ("stickinessFilter", "stickinessCriteria", FieldType::Object),
    ("stickinessFilter.stickinessCriteria", "operator", FieldType::OneOf(CountComparison::NAMES)),
    ("stickinessFilter.stickinessCriteria", "value", FieldType::Integer),
    ("stickinessFilter", "display", FieldType::String),
    ("stickinessFilter", "showLegend", FieldType::Boolean),
    ("stickinessFilter", "showValuesOnSeries", FieldType::Boolean),
    ("stickinessFilter", "showMultipleYAxes", FieldType::Boolean),
    ("stickinessFilter", "hiddenLegendIndexes", FieldType::List),
    ("stickinessFilter", "resultCustomizations", FieldType::Object),
    ("stickinessFilter", "resultCustomizationBy", FieldType::String),
];

/// Parses a query node.
pub(super) fn parse_node(node: &Object) -> CalcResult<ParsedQuery> {
    let filter = get_object(node, "stickinessFilter")?;
    let compare = get_object(node, "compareFilter")?;
    let criterion = filter.map(|filter| get_object(filter, "stickinessCriteria")).transpose()?.flatten();
    let raw = RawStickiness {
        common: common_node_fields(node)?,
        interval_count: Field::of(node, "intervalCount", "intervalCount"),
        computed_as: Field::inside(filter, "computedAs", "stickinessFilter__computedAs"),
        criterion,
        compare: Field::inside(compare, "compare", "compareFilter__compare"),
        compare_to: Field::inside(compare, "compare_to", "compareFilter__compare_to"),
    };
    match query::parse(&raw)? {
        Some(query) => Ok(ParsedQuery::Query(query.into())),
        None => Err(CalcError::coded(
            "insight_requires_at_least_one_series",
            Some("series"),
            "Stickiness insights require at least one series.",
        )),
    }
}

/// Parses insight filters, or the fields of a request. Filters that this kind writes hold the node, because they lack some
/// of its fields.
pub(super) fn parse_filters(request: &Object) -> CalcResult<ParsedQuery> {
    if let Some(parsed) = parse_query_field(request, NODE_KIND)? {
        return Ok(parsed);
    }
    let absent = |attr| Field { attr, value: None };
    let raw = RawStickiness {
        common: common_filters(request)?,
        interval_count: absent("intervalCount"),
        computed_as: absent("computedAs"),
        criterion: None,
        compare: Field::of(request, "compare", "compare"),
        compare_to: Field::of(request, "compare_to", "compare_to"),
    };
    Ok(query::parse(&raw)?.map_or(ParsedQuery::Empty, |query| ParsedQuery::Query(query.into())))
}

/// Whether insight filters are of this kind whatever `insight` they have: older clients mark them otherwise.
pub(super) fn are_marked(filters: &Object) -> bool {
    filters.get("shown_as").and_then(Value::as_str) == Some("Stickiness")
}

/// The query node, dates as they were sent.
pub(super) fn to_node(query: &StickinessQuery) -> Object {
    let mut node = node::to_node(NODE_KIND, &query.common, &query.series);
    if let Some(count) = query.interval_count {
        node.insert("intervalCount".to_owned(), json!(count));
    }
    let mut filter = Object::new();
    if query.is_cumulative {
        filter.insert("computedAs".to_owned(), json!("cumulative"));
    }
    if let Some(criterion) = query.criterion {
        let criterion = json!({"operator": criterion.comparison.name(), "value": criterion.value});
        filter.insert("stickinessCriteria".to_owned(), criterion);
    }
    if !filter.is_empty() {
        node.insert("stickinessFilter".to_owned(), Value::Object(filter));
    }
    if let Some(comparison) = &query.comparison {
        node.insert("compareFilter".to_owned(), comparison_json(comparison));
    }
    node
}

fn comparison_json(comparison: &Comparison) -> Value {
    match comparison {
        Comparison::Previous => json!({"compare": true}),
        Comparison::Back(text) => json!({"compare": true, "compare_to": text}),
    }
}

/// The query node with defaults filled in.
pub(super) fn canonical_node(query: &StickinessQuery) -> Value {
    let series = query.series.iter().zip(&query.actors).map(|(series, actor)| {
        let mut json = canonical::series_json(series);
        json["actor"] = match actor {
            SeriesActor::Person => json!("person"),
            SeriesActor::Group(index) => json!({"group": index}),
            SeriesActor::Value(expression) => json!({"hogql": expression.text()}),
        };
        json
    });
    let mut node = canonical::common_node(NODE_KIND, &query.common, series.collect());
    node["intervalCount"] = json!(query.interval_count);
    node["cumulative"] = json!(query.is_cumulative);
    // At least 0 events are no condition.
    let criterion = query.criterion.filter(|criterion| criterion.value > 0);
    node["criterion"] = json!(criterion.map(|criterion| (criterion.comparison.name(), criterion.value)));
    node["compareFilter"] = json!(query.comparison.as_ref().map(comparison_json));
    node
}
