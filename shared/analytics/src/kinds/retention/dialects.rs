//! The forms of a retention query in requests: query node, insight filters, canonical node.
//!
//! Must stay true: parsing what [`to_insight_filters`] writes gives the same query again.

use pennon_filters::CalcResult;
use pennon_filters::dates::Interval;
use serde_json::{Map, Value, json};

use super::options::{AggregationType, RetentionType, TimeWindowMode, name_of};
use super::raw_query::RawRetention;
use super::{INSIGHT_NAME, RetentionQuery, query};
use crate::filter::{filter_json, list_json};
use crate::kinds::ParsedQuery;
use crate::kinds::saved_query::{FieldType, SavedField, SavedNodeRules};
use crate::query::insight_filters::parse::{common_fields as common_filters, group_type_field};
use crate::query::insight_filters::serialize;
use crate::query::node::{fields_without_series, get_object};
use crate::query::{Field, NumberSource, RawCommon, Series, canonical};

type Object = Map<String, Value>;

/// The rules for nodes that insights store. Options of `retentionFilter` are not validated: a node that cannot be calculated
/// can be stored.
pub(super) const SAVED_NODE: SavedNodeRules =
    SavedNodeRules { required: &[], fields: SAVED_FIELDS, shares_fields: false };

const SAVED_FIELDS: &[SavedField] = &[("", "retentionFilter", FieldType::Object)];

/// Number of columns of nodes and of insight filters that set none.
const NODE_INTERVALS: usize = 8;
const FILTERS_INTERVALS: usize = 11;

/// The name of a period in requests and labels.
pub(super) fn period_name(period: Interval) -> &'static str {
    match period {
        Interval::Minute | Interval::Hour => "Hour",
        Interval::Day => "Day",
        Interval::Week => "Week",
        Interval::Month => "Month",
    }
}

/// The common fields without those that retention does not have.
fn without_interval(common: RawCommon<'_>) -> RawCommon<'_> {
    let interval = Field { value: None, ..common.interval };
    RawCommon { series: Vec::new(), interval, ..common }
}

/// Parses a query node.
pub(super) fn parse_node(node: &Object) -> CalcResult<ParsedQuery> {
    let filter = get_object(node, "retentionFilter")?;
    let field = |key: &str, attr: &'static str| Field::inside(filter, key, attr);
    query::parse(&RawRetention {
        common: without_interval(fields_without_series(node)?),
        target: field("targetEntity", "retentionFilter__targetEntity"),
        returning: field("returningEntity", "retentionFilter__returningEntity"),
        period: field("period", "retentionFilter__period"),
        total_intervals: field("totalIntervals", "retentionFilter__totalIntervals"),
        default_intervals: NODE_INTERVALS,
        retention_type: field("retentionType", "retentionFilter__retentionType"),
        minimum_occurrences: field("minimumOccurrences", "retentionFilter__minimumOccurrences"),
        cumulative: field("cumulative", "retentionFilter__cumulative"),
        brackets: field("retentionCustomBrackets", "retentionFilter__retentionCustomBrackets"),
        time_window_mode: field("timeWindowMode", "retentionFilter__timeWindowMode"),
        aggregation_type: field("aggregationType", "retentionFilter__aggregationType"),
        aggregation_property: field("aggregationProperty", "retentionFilter__aggregationProperty"),
        aggregation_property_type: field(
            "aggregationPropertyType",
            "retentionFilter__aggregationPropertyType",
        ),
        group_type: Field::of(node, "aggregation_group_type_index", "aggregation_group_type_index"),
    })
}

/// Parses insight filters.
pub(super) fn parse_filters(request: &Object) -> CalcResult<ParsedQuery> {
    let field = |key: &'static str| Field::of(request, key, key);
    query::parse(&RawRetention {
        common: without_interval(common_filters(request)?),
        target: field("target_entity"),
        returning: field("returning_entity"),
        period: field("period"),
        total_intervals: field("total_intervals"),
        default_intervals: FILTERS_INTERVALS,
        retention_type: field("retention_type"),
        minimum_occurrences: field("minimum_occurrences"),
        cumulative: field("cumulative"),
        brackets: field("retention_custom_brackets"),
        time_window_mode: field("time_window_mode"),
        aggregation_type: field("aggregation_type"),
        aggregation_property: field("aggregation_property"),
        aggregation_property_type: field("aggregation_property_type"),
        group_type: group_type_field(request)?,
    })
}

/// The options by name, for both dialects.
struct Options {
    retention_type: &'static str,
    time_window_mode: &'static str,
    aggregation_type: &'static str,
    aggregation_property: Option<String>,
    aggregation_property_type: Option<&'static str>,
}

impl Options {
    fn of(query: &RetentionQuery) -> Self {
        let aggregation = query.aggregation.as_ref();
        let (property, property_type) = match aggregation.map(|aggregation| &aggregation.number) {
            Some(NumberSource::Event(key)) => (Some(key.clone()), Some("event")),
            Some(NumberSource::Person(key)) => (Some(key.clone()), Some("person")),
            Some(NumberSource::SessionDuration) | None => (None, None),
        };
        let statistic = aggregation.map(|aggregation| aggregation.statistic);
        Self {
            retention_type: name_of(&RetentionType::NAMES, &query.retention_type),
            time_window_mode: name_of(&TimeWindowMode::NAMES, &query.time_window_mode),
            aggregation_type: name_of(&AggregationType::NAMES, &statistic),
            aggregation_property: property,
            aggregation_property_type: property_type,
        }
    }
}

/// The query node with defaults filled in.
pub(super) fn canonical_node(query: &RetentionQuery) -> Value {
    let mut node = canonical::common_node("RetentionQuery", &query.common, Vec::new());
    let options = Options::of(query);
    let entity = |series: &Series| {
        json!({
            "type": series.event_or_action.list_name(),
            "id": series.event_or_action.id(),
            "properties": filter_json(&series.properties),
        })
    };
    node["retentionFilter"] = json!({
        "targetEntity": entity(query.target()),
        "returningEntity": entity(query.returning()),
        "totalIntervals": query.total_intervals,
        "retentionType": options.retention_type,
        "minimumOccurrences": query.minimum_occurrences,
        "cumulative": query.cumulative,
        "retentionCustomBrackets": query.brackets,
        "timeWindowMode": options.time_window_mode,
        "aggregationType": options.aggregation_type,
        "aggregationProperty": options.aggregation_property,
        "aggregationPropertyType": options.aggregation_property_type,
    });
    node["aggregation_group_type_index"] = json!(query.group_type_index);
    node
}

/// The query as insight filters: the fields that the request set, plus defaults.
pub(super) fn to_insight_filters(query: &RetentionQuery) -> Object {
    let mut filters = serialize::common_filters(INSIGHT_NAME, &query.common, &[], |_, _, _| {});
    for key in ["events", "actions", "interval"] {
        filters.shift_remove(key);
    }
    let options = Options::of(query);
    let entity = |series: &Series| {
        let mut entity =
            json!({"id": series.event_or_action.id(), "type": series.event_or_action.list_name()});
        for (key, name) in [("name", &series.name), ("custom_name", &series.custom_name)] {
            if let Some(name) = name {
                entity[key] = json!(name);
            }
        }
        if !series.properties.is_none() {
            entity["properties"] = list_json(&series.properties);
        }
        entity
    };
    let mut put = |key: &str, value: Value| serialize::put(&mut filters, key, value);
    put("target_entity", entity(query.target()));
    put("returning_entity", entity(query.returning()));
    put("period", json!(period_name(query.common.interval)));
    put("total_intervals", json!(query.total_intervals));
    put("retention_type", json!(options.retention_type));
    if query.minimum_occurrences > 1 {
        put("minimum_occurrences", json!(query.minimum_occurrences));
    }
    if query.cumulative {
        put("cumulative", json!(true));
    }
    if !query.brackets.is_empty() {
        put("retention_custom_brackets", json!(query.brackets));
    }
    if query.time_window_mode != TimeWindowMode::default() {
        put("time_window_mode", json!(options.time_window_mode));
    }
    if query.aggregation.is_some() {
        put("aggregation_type", json!(options.aggregation_type));
        put("aggregation_property", json!(options.aggregation_property));
        put("aggregation_property_type", json!(options.aggregation_property_type));
    }
    serialize::put_group_type(&mut filters, query.group_type_index);
    filters
}
