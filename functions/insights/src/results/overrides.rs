//! Filter overrides of a request, for one response.
//!
//! Must stay true: the stored insight never changes; `query` or `filters` of the response is what was calculated.

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use serde_json::{Map, Value, json};

use crate::insight::Insight;

type Object = Map<String, Value>;

/// The filter overrides of a request. Variables have no effect, but have to be valid JSON.
pub fn parse(call: &Call) -> ApiResult<Option<Object>> {
    parameter(call, "variables_override")?;
    Ok(parameter(call, "filters_override")?.filter(|filters| !filters.is_empty()))
}

fn parameter(call: &Call, name: &str) -> ApiResult<Option<Object>> {
    let Some(text) = call.query_value(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(Some(object)),
        _ => {
            let detail = format!("Invalid JSON passed in {name} parameter");
            Err(ApiError::invalid("invalid_input", detail, Some(name)))
        }
    }
}

/// The filters of a dashboard, overridden key by key by those of the request; `None` where there are none.
pub fn with_dashboard(dashboard: Object, request: Option<Object>) -> Option<Object> {
    let mut filters = dashboard;
    filters.extend(request.into_iter().flatten());
    (!filters.is_empty()).then_some(filters)
}

/// The insight with its filters overridden.
pub fn apply(insight: &Insight, overrides: &Object) -> Insight {
    let mut merged = insight.clone();
    match &mut merged.query {
        Some(query) => override_query(innermost(query), overrides),
        None => override_filters(&mut merged.filters, overrides),
    }
    merged
}

/// The innermost node of a query.
fn innermost(node: &mut Value) -> &mut Value {
    if node.get("source").is_some_and(Value::is_object) { innermost(&mut node["source"]) } else { node }
}

fn override_query(source: &mut Value, overrides: &Object) {
    if let Some((from, to)) = dates(overrides) {
        if !source["dateRange"].is_object() {
            source["dateRange"] = json!({});
        }
        source["dateRange"]["date_from"] = from;
        source["dateRange"]["date_to"] = to;
    }
    if let Some(properties) = properties(source.get("properties"), overrides) {
        source["properties"] = properties;
    }
    if let Some(breakdown) = get_non_null(overrides, "breakdown_filter") {
        source["breakdownFilter"] = breakdown.clone();
    }
}

fn override_filters(filters: &mut Object, overrides: &Object) {
    if let Some((from, to)) = dates(overrides) {
        let to = if from == "all" { Value::Null } else { to };
        filters.insert("date_from".to_owned(), from);
        filters.insert("date_to".to_owned(), to);
    }
    if let Some(properties) = properties(filters.get("properties"), overrides) {
        filters.insert("properties".to_owned(), properties);
    }
    if let Some(Value::Object(breakdown)) = get_non_null(overrides, "breakdown_filter") {
        filters.extend(breakdown.clone());
    }
}

fn get_non_null<'a>(overrides: &'a Object, name: &str) -> Option<&'a Value> {
    overrides.get(name).filter(|value| !value.is_null())
}

/// Both dates if one is given; the other is unset then.
fn dates(overrides: &Object) -> Option<(Value, Value)> {
    let (from, to) = (get_non_null(overrides, "date_from"), get_non_null(overrides, "date_to"));
    (from.is_some() || to.is_some()).then(|| (json!(from), json!(to)))
}

/// Both sets of property filters joined by AND; `None` where the override has none.
fn properties(own: Option<&Value>, overrides: &Object) -> Option<Value> {
    let overrides = get_non_null(overrides, "properties").filter(|properties| !is_empty(properties))?;
    let group = |properties: &Value| match properties {
        Value::Array(_) => json!({"type": "AND", "values": properties}),
        other => other.clone(),
    };
    Some(match own.filter(|own| !own.is_null() && !is_empty(own)) {
        None => overrides.clone(),
        Some(own) => json!({"type": "AND", "values": [group(own), group(overrides)]}),
    })
}

fn is_empty(properties: &Value) -> bool {
    match properties {
        Value::Array(list) => list.is_empty(),
        Value::Object(group) => group.is_empty() || group.get("values") == Some(&json!([])),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::insight::record::tests::insight;

    fn merge(own: Value, overrides: Value) -> Insight {
        apply(&insight(1, own), overrides.as_object().unwrap())
    }

    fn node(source: Value) -> Value {
        let mut node = json!({"kind": "InsightVizNode", "source": {"kind": "TrendsQuery", "series": []}});
        node["source"].as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        json!({"query": node})
    }

    #[test]
    fn one_date_unsets_the_other() {
        let range = json!({"dateRange": {"date_from": "-7d", "date_to": "-1d", "explicitDate": true}});
        let merged = merge(node(range), json!({"date_from": "-3d"}));
        let range = json!({"date_from": "-3d", "date_to": null, "explicitDate": true});
        assert_eq!(merged.query.unwrap()["source"]["dateRange"], range);
        let merged = merge(node(json!({})), json!({"properties": []}));
        assert_eq!(merged.query.unwrap()["source"].get("dateRange"), None);
        let filters = json!({"filters": {"date_to": "-1d"}});
        let merged = merge(filters, json!({"date_from": "all", "date_to": "-2d"}));
        assert_eq!(Value::Object(merged.filters), json!({"date_from": "all", "date_to": null}));
    }

    #[test]
    fn properties_are_joined() {
        let (a, b) = (json!([{"key": "a"}]), json!([{"key": "b"}]));
        let merged = |own: Value| {
            merge(node(own), json!({"properties": b})).query.unwrap()["source"]["properties"].clone()
        };
        assert_eq!(merged(json!({})), b);
        assert_eq!(merged(json!({"properties": []})), b);
        let both =
            json!({"type": "AND", "values": [{"type": "AND", "values": a}, {"type": "AND", "values": b}]});
        assert_eq!(merged(json!({"properties": a})), both);
        let group = json!({"type": "OR", "values": a});
        let both = json!({"type": "AND", "values": [group, {"type": "AND", "values": b}]});
        assert_eq!(merged(json!({"properties": group})), both);
        let own = json!({"filters": {"properties": a}});
        let merged = merge(own, json!({"properties": b})).filters["properties"].clone();
        assert_eq!(merged["values"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_breakdown_replaces_that_of_a_query_and_joins_that_of_filters() {
        let own = node(json!({"breakdownFilter": {"breakdown": "a", "breakdown_limit": 5}}));
        let merged = merge(own, json!({"breakdown_filter": {"breakdown": "b"}}));
        assert_eq!(merged.query.unwrap()["source"]["breakdownFilter"], json!({"breakdown": "b"}));
        let own = json!({"filters": {"breakdown": "a", "breakdown_limit": 5}});
        let merged = merge(own, json!({"breakdown_filter": {"breakdown": "b"}}));
        assert_eq!(Value::Object(merged.filters), json!({"breakdown": "b", "breakdown_limit": 5}));
    }
}
