//! Filters of the request laid over an insight's own, for one answer.
//!
//! Must stay true: the stored insight never changes; what is shown as `query` or `filters` is what was calculated.

use pennon_core::error::{ApiError, ApiResult};
use pennon_core::http::Call;
use serde_json::{Map, Value, json};

use crate::record::Insight;

type Object = Map<String, Value>;

/// The filters that the request lays over the insight's own. Variables have no effect on what is calculated here, but
/// have to be JSON.
pub fn of(call: &Call) -> ApiResult<Option<Object>> {
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

/// The filters of a dashboard with those of the request laid over them, key by key; none where that is nothing.
pub fn with_dashboard(dashboard: Object, over: Option<Object>) -> Option<Object> {
    let mut filters = dashboard;
    filters.extend(over.into_iter().flatten());
    (!filters.is_empty()).then_some(filters)
}

/// The insight as if it had these filters on top of its own.
pub fn apply(insight: &Insight, over: &Object) -> Insight {
    let mut merged = insight.clone();
    match &mut merged.query {
        Some(query) => lay_over_query(innermost(query), over),
        None => lay_over_filters(&mut merged.filters, over),
    }
    merged
}

/// The node that no other is wrapped around.
fn innermost(node: &mut Value) -> &mut Value {
    if node.get("source").is_some_and(Value::is_object) { innermost(&mut node["source"]) } else { node }
}

fn lay_over_query(source: &mut Value, over: &Object) {
    if let Some((from, to)) = dates(over) {
        if !source["dateRange"].is_object() {
            source["dateRange"] = json!({});
        }
        source["dateRange"]["date_from"] = from;
        source["dateRange"]["date_to"] = to;
    }
    if let Some(properties) = properties(source.get("properties"), over) {
        source["properties"] = properties;
    }
    if let Some(breakdown) = said(over, "breakdown_filter") {
        source["breakdownFilter"] = breakdown.clone();
    }
}

fn lay_over_filters(filters: &mut Object, over: &Object) {
    if let Some((from, to)) = dates(over) {
        let to = if from == "all" { Value::Null } else { to };
        filters.insert("date_from".to_owned(), from);
        filters.insert("date_to".to_owned(), to);
    }
    if let Some(properties) = properties(filters.get("properties"), over) {
        filters.insert("properties".to_owned(), properties);
    }
    if let Some(Value::Object(breakdown)) = said(over, "breakdown_filter") {
        filters.extend(breakdown.clone());
    }
}

fn said<'a>(over: &'a Object, name: &str) -> Option<&'a Value> {
    over.get(name).filter(|value| !value.is_null())
}

/// Both dates as soon as one is given; the other is then unset.
fn dates(over: &Object) -> Option<(Value, Value)> {
    let (from, to) = (said(over, "date_from"), said(over, "date_to"));
    (from.is_some() || to.is_some()).then(|| (json!(from), json!(to)))
}

/// Both sets of property filters joined by AND; none where nothing is laid over.
fn properties(own: Option<&Value>, over: &Object) -> Option<Value> {
    let over = said(over, "properties").filter(|properties| !is_empty(properties))?;
    let group = |properties: &Value| match properties {
        Value::Array(_) => json!({"type": "AND", "values": properties}),
        other => other.clone(),
    };
    Some(match own.filter(|own| !own.is_null() && !is_empty(own)) {
        None => over.clone(),
        Some(own) => json!({"type": "AND", "values": [group(own), group(over)]}),
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
    use crate::record::tests::insight;

    fn over(own: Value, over: Value) -> Insight {
        apply(&insight(1, own), over.as_object().unwrap())
    }

    fn node(source: Value) -> Value {
        let mut node = json!({"kind": "InsightVizNode", "source": {"kind": "TrendsQuery", "series": []}});
        node["source"].as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        json!({"query": node})
    }

    #[test]
    fn one_date_unsets_the_other() {
        let range = json!({"dateRange": {"date_from": "-7d", "date_to": "-1d", "explicitDate": true}});
        let merged = over(node(range), json!({"date_from": "-3d"}));
        let range = json!({"date_from": "-3d", "date_to": null, "explicitDate": true});
        assert_eq!(merged.query.unwrap()["source"]["dateRange"], range);
        let merged = over(node(json!({})), json!({"properties": []}));
        assert_eq!(merged.query.unwrap()["source"].get("dateRange"), None);
        let filters = json!({"filters": {"date_to": "-1d"}});
        let merged = over(filters, json!({"date_from": "all", "date_to": "-2d"}));
        assert_eq!(Value::Object(merged.filters), json!({"date_from": "all", "date_to": null}));
    }

    #[test]
    fn properties_are_joined() {
        let (a, b) = (json!([{"key": "a"}]), json!([{"key": "b"}]));
        let merged = |own: Value| {
            over(node(own), json!({"properties": b})).query.unwrap()["source"]["properties"].clone()
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
        let merged = over(own, json!({"properties": b})).filters["properties"].clone();
        assert_eq!(merged["values"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_breakdown_replaces_that_of_a_query_and_joins_that_of_filters() {
        let own = node(json!({"breakdownFilter": {"breakdown": "a", "breakdown_limit": 5}}));
        let merged = over(own, json!({"breakdown_filter": {"breakdown": "b"}}));
        assert_eq!(merged.query.unwrap()["source"]["breakdownFilter"], json!({"breakdown": "b"}));
        let own = json!({"filters": {"breakdown": "a", "breakdown_limit": 5}});
        let merged = over(own, json!({"breakdown_filter": {"breakdown": "b"}}));
        assert_eq!(Value::Object(merged.filters), json!({"breakdown": "b", "breakdown_limit": 5}));
    }
}
