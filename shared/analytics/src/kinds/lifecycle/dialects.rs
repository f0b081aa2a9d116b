//! The forms of a lifecycle query in requests: query node, insight filters, canonical node.
//!
//! Must stay true: parsing what [`to_node`] writes gives the same query again.

use pennon_filters::{CalcError, CalcResult};
use serde_json::{Map, Value, json};

use super::raw_query::RawLifecycle;
use super::{LifecycleQuery, NODE_KIND, query};
use crate::kinds::parse::parse_query_field;
use crate::kinds::saved_query::{FieldType, REQUIRED_SERIES, SavedField, SavedNodeRules};
use crate::kinds::{DEFAULT_INSIGHT_NAME, ParsedQuery};
use crate::query::insight_filters::parse::common_fields as common_filters;
use crate::query::node::{self, common_fields as common_node_fields};
use crate::query::{Field, canonical};

type Object = Map<String, Value>;

const GROUP_TYPE: &str = "aggregation_group_type_index";

/// The rules for nodes that insights store.
pub(super) const SAVED_NODE: SavedNodeRules =
    SavedNodeRules { required: REQUIRED_SERIES, fields: SAVED_FIELDS, shares_fields: false };

const SAVED_FIELDS: &[SavedField] = &[
    ("", "lifecycleFilter", FieldType::Object),
    ("lifecycleFilter", "toggledLifecycles", FieldType::List),
    ("lifecycleFilter", "showLegend", FieldType::Boolean),
    ("lifecycleFilter", "showValuesOnSeries", FieldType::Boolean),
    ("lifecycleFilter", "stacked", FieldType::Boolean),
];

/// Parses a query node.
pub(super) fn parse_node(node: &Object) -> CalcResult<ParsedQuery> {
    let raw = RawLifecycle {
        common: common_node_fields(node)?,
        group_type: Field::of(node, GROUP_TYPE, GROUP_TYPE),
    };
    match query::parse(&raw)? {
        Some(query) => Ok(ParsedQuery::Query(query.into())),
        None => Err(CalcError::invalid("series", "Lifecycle insights require at least one series.")),
    }
}

/// Parses insight filters, or the fields of a request. Filters that this kind writes hold the node, because they lack some
/// of its fields. Filters cannot count groups.
pub(super) fn parse_filters(request: &Object) -> CalcResult<ParsedQuery> {
    if let Some(parsed) = parse_query_field(request, NODE_KIND)? {
        return Ok(parsed);
    }
    let group_type = Field { attr: GROUP_TYPE, value: None };
    let raw = RawLifecycle { common: common_filters(request)?, group_type };
    Ok(query::parse(&raw)?.map_or(ParsedQuery::Empty, |query| ParsedQuery::Query(query.into())))
}

/// Whether insight filters of the default kind are of this kind: older clients mark them so.
pub(super) fn are_marked(filters: &Object) -> bool {
    let text = |key: &str| filters.get(key).and_then(Value::as_str);
    text("shown_as") == Some("Lifecycle") && text("insight").is_none_or(|name| name == DEFAULT_INSIGHT_NAME)
}

/// The query node, dates as they were sent.
pub(super) fn to_node(query: &LifecycleQuery) -> Object {
    let mut node = node::to_node(NODE_KIND, &query.common, &query.series);
    if let Some(index) = query.group_type_index {
        node.insert(GROUP_TYPE.to_owned(), json!(index));
    }
    node
}

/// The query node with defaults filled in.
pub(super) fn canonical_node(query: &LifecycleQuery) -> Value {
    let series = query.series.iter().map(canonical::series_json).collect();
    let mut node = canonical::common_node(NODE_KIND, &query.common, series);
    node[GROUP_TYPE] = json!(query.group_type_index);
    node
}
