//! The forms of a paths query in requests: query node, insight filters, canonical node.
//!
//! Must stay true: parsing what [`to_insight_filters`] writes gives the same query again.

use std::borrow::Cow;

use pennon_filters::error::{CalcError, CalcResult};
use serde_json::{Map, Value, json};

use super::funnel_paths::FunnelPaths;
use super::query::{CleaningFilter, EventType, PathsQuery};
use super::raw_query::{RawFunnelPaths, RawPaths};
use super::{INSIGHT_NAME, NODE_KIND, query};
use crate::kinds::ParsedQuery;
use crate::kinds::funnels::FunnelsQuery;
use crate::kinds::insight::InsightQuery;
use crate::kinds::saved_query::{FieldType, SavedField, SavedNodeRules};
use crate::query::insight_filters::parse::fields_without_series as filters_without_series;
use crate::query::insight_filters::serialize;
use crate::query::node::{fields_without_series, get_kind, get_object};
use crate::query::{Field, RawCommon, canonical};

type Object = Map<String, Value>;

/// The rules for nodes that insights store.
pub(super) const SAVED_NODE: SavedNodeRules =
    SavedNodeRules { required: &[], fields: SAVED_FIELDS, shares_fields: false };

const SAVED_FIELDS: &[SavedField] = &[
    ("", "pathsFilter", FieldType::Object),
    ("", "funnelPathsFilter", FieldType::Object),
    ("pathsFilter", "includeEventTypes", FieldType::List),
    ("pathsFilter", "pathsHogQLExpression", FieldType::String),
    ("pathsFilter", "excludeEvents", FieldType::List),
    ("pathsFilter", "pathReplacements", FieldType::Boolean),
    ("pathsFilter", "localPathCleaningFilters", FieldType::List),
    ("pathsFilter", "pathGroupings", FieldType::List),
    ("pathsFilter", "startPoint", FieldType::String),
    ("pathsFilter", "endPoint", FieldType::String),
    ("pathsFilter", "stepLimit", FieldType::Integer),
    ("pathsFilter", "edgeLimit", FieldType::Integer),
    ("pathsFilter", "minEdgeWeight", FieldType::Integer),
    ("pathsFilter", "maxEdgeWeight", FieldType::Integer),
    ("pathsFilter", "pathStartKey", FieldType::String),
    ("pathsFilter", "pathEndKey", FieldType::String),
    ("pathsFilter", "pathDropoffKey", FieldType::String),
    ("funnelPathsFilter", "funnelPathType", FieldType::String),
    ("funnelPathsFilter", "funnelSource", FieldType::Object),
    ("funnelPathsFilter", "funnelStep", FieldType::Integer),
];

/// Reads the fields of either dialect. `field` gets a field by its name in insight filters, by its name in a node, and by the
/// name that errors of a node report.
fn raw_paths<'a>(
    common: RawCommon<'a>,
    funnel: Option<RawFunnelPaths<'a>>,
    field: impl Fn(&'static str, &'static str, &'static str) -> Field<'a>,
) -> RawPaths<'a> {
    RawPaths {
        common,
        event_types: field("include_event_types", "includeEventTypes", "pathsFilter__includeEventTypes"),
        expression: field(
            "paths_hogql_expression",
            "pathsHogQLExpression",
            "pathsFilter__pathsHogQLExpression",
        ),
        exclude_events: field("exclude_events", "excludeEvents", "pathsFilter__excludeEvents"),
        path_replacements: field("path_replacements", "pathReplacements", "pathsFilter__pathReplacements"),
        cleaning_filters: field(
            "local_path_cleaning_filters",
            "localPathCleaningFilters",
            "pathsFilter__localPathCleaningFilters",
        ),
        groupings: field("path_groupings", "pathGroupings", "pathsFilter__pathGroupings"),
        start_point: field("start_point", "startPoint", "pathsFilter__startPoint"),
        end_point: field("end_point", "endPoint", "pathsFilter__endPoint"),
        step_limit: field("step_limit", "stepLimit", "pathsFilter__stepLimit"),
        edge_limit: field("edge_limit", "edgeLimit", "pathsFilter__edgeLimit"),
        min_edge_weight: field("min_edge_weight", "minEdgeWeight", "pathsFilter__minEdgeWeight"),
        max_edge_weight: field("max_edge_weight", "maxEdgeWeight", "pathsFilter__maxEdgeWeight"),
        start_key: field("path_start_key", "pathStartKey", "pathsFilter__pathStartKey"),
        end_key: field("path_end_key", "pathEndKey", "pathsFilter__pathEndKey"),
        dropoff_key: field("path_dropoff_key", "pathDropoffKey", "pathsFilter__pathDropoffKey"),
        funnel,
    }
}

/// Parses a query node.
pub(super) fn parse_node(node: &Object) -> CalcResult<ParsedQuery> {
    let filter = get_object(node, "pathsFilter")?;
    let common = fields_without_series(node)?;
    query::parse(raw_paths(common, node_funnel(node)?, |_, key, attr| Field::inside(filter, key, attr)))
}

fn node_funnel(node: &Object) -> CalcResult<Option<RawFunnelPaths<'_>>> {
    let Some(filter) = get_object(node, "funnelPathsFilter")? else { return Ok(None) };
    let attr = "funnelPathsFilter__funnelSource";
    let invalid = || CalcError::invalid(attr, "Expected a FunnelsQuery node with at least one series.");
    let source = filter.get("funnelSource").and_then(Value::as_object).ok_or_else(invalid)?;
    if get_kind(source).map_err(in_source)? != "FunnelsQuery" {
        return Err(invalid());
    }
    Ok(Some(RawFunnelPaths {
        path_type: Field::of(filter, "funnelPathType", "funnelPathsFilter__funnelPathType"),
        step: Field::of(filter, "funnelStep", "funnelPathsFilter__funnelStep"),
        source: FunnelsQuery::from_query_node(source).map_err(in_source)?.ok_or_else(invalid)?,
    }))
}

fn in_source(error: CalcError) -> CalcError {
    error.inside("funnelSource")
}

/// Parses insight filters, or the fields of a request.
pub(super) fn parse_filters(request: &Object) -> CalcResult<ParsedQuery> {
    let common = filters_without_series(request);
    query::parse(raw_paths(common, filters_funnel(request)?, |key, _, _| Field::of(request, key, key)))
}

/// The funnel of insight filters. `funnel_paths` and `funnel_filter` are ignored without each other.
fn filters_funnel(request: &Object) -> CalcResult<Option<RawFunnelPaths<'_>>> {
    let path_type = Field::of(request, "funnel_paths", "funnel_paths");
    let filter = Field::of(request, "funnel_filter", "funnel_filter");
    if !path_type.has_content() || !filter.has_content() {
        return Ok(None);
    }
    let invalid =
        || CalcError::invalid("funnel_filter", "Expected the object of a funnel with at least one step.");
    let decoded = match filter.value.as_deref() {
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| invalid())?,
        Some(other) => other.clone(),
        None => return Ok(None),
    };
    let source = decoded.as_object().ok_or_else(invalid)?;
    let step = source.get("funnel_step").filter(|step| !step.is_null()).cloned();
    Ok(Some(RawFunnelPaths {
        path_type,
        step: Field { attr: "funnel_step", value: step.map(Cow::Owned) },
        source: FunnelsQuery::from_insight_filters(source)
            .map_err(|error| error.inside("funnel_filter"))?
            .ok_or_else(invalid)?,
    }))
}

/// The query node with defaults filled in.
pub(super) fn canonical_node(paths: &PathsQuery) -> Value {
    let mut node = canonical::common_node(NODE_KIND, &paths.common, Vec::new());
    node["pathsFilter"] = json!({
        "includeEventTypes": event_type_names(paths),
        "pathsHogQLExpression": paths.expression.as_ref().map(|expression| expression.text()),
        "excludeEvents": paths.excluded_items,
        "pathReplacements": paths.uses_project_cleaning,
        "localPathCleaningFilters": cleaning_json(paths),
        "pathGroupings": paths.groupings,
        "startPoint": paths.start_point,
        "endPoint": paths.end_point,
        "stepLimit": paths.step_limit,
        "edgeLimit": paths.edge_limit,
        "minEdgeWeight": paths.min_edge_weight,
        "maxEdgeWeight": paths.max_edge_weight,
    });
    node["funnelPathsFilter"] = json!(paths.funnel.as_ref().map(|funnel| json!({
        "funnelPathType": funnel.path_type.name(),
        "funnelSource": funnel.source.canonical_node(),
        "funnelStep": funnel.step,
    })));
    node
}

fn event_type_names(paths: &PathsQuery) -> Vec<&'static str> {
    paths.event_types.iter().map(|event_type: &EventType| event_type.name()).collect()
}

fn cleaning_json(paths: &PathsQuery) -> Vec<Value> {
    paths.cleaning_filters.iter().map(CleaningFilter::json).collect()
}

/// The query as insight filters: the fields that differ from their defaults, plus the default of `properties`.
pub(super) fn to_insight_filters(paths: &PathsQuery) -> Object {
    let mut filters = serialize::common_filters(INSIGHT_NAME, &paths.common, &[], |_, _, _| {});
    for unused in ["events", "actions", "interval"] {
        filters.shift_remove(unused);
    }
    let list = |list: Vec<Value>| if list.is_empty() { Value::Null } else { Value::Array(list) };
    let texts = |texts: &mut dyn Iterator<Item = &str>| list(texts.map(Value::from).collect());
    let key = |key: &Option<super::path_key::PathKey>| json!(key.as_ref().map(ToString::to_string));
    for (name, value) in [
        ("include_event_types", texts(&mut event_type_names(paths).into_iter())),
        ("paths_hogql_expression", json!(paths.expression.as_ref().map(|expression| expression.text()))),
        ("exclude_events", texts(&mut paths.excluded_items.iter().map(String::as_str))),
        ("path_replacements", if paths.uses_project_cleaning { json!(true) } else { Value::Null }),
        ("local_path_cleaning_filters", list(cleaning_json(paths))),
        ("path_groupings", texts(&mut paths.groupings.iter().map(String::as_str))),
        ("start_point", json!(paths.start_point)),
        ("end_point", json!(paths.end_point)),
        ("step_limit", json!(paths.step_limit)),
        ("edge_limit", json!(paths.edge_limit)),
        ("min_edge_weight", json!(paths.min_edge_weight)),
        ("max_edge_weight", json!(paths.max_edge_weight)),
        ("path_start_key", key(&paths.people_keys.start)),
        ("path_end_key", key(&paths.people_keys.end)),
        ("path_dropoff_key", key(&paths.people_keys.dropoff)),
    ] {
        serialize::put(&mut filters, name, value);
    }
    if let Some(funnel) = &paths.funnel {
        put_funnel(&mut filters, funnel);
    }
    filters
}

fn put_funnel(filters: &mut Object, funnel: &FunnelPaths) {
    let mut source = funnel.source.to_insight_filters();
    source.insert("funnel_step".to_owned(), json!(funnel.step));
    filters.insert("funnel_paths".to_owned(), json!(funnel.path_type.name()));
    filters.insert("funnel_filter".to_owned(), Value::Object(source));
}
