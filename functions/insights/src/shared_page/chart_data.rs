//! What the chart script needs of a query and its result.
//!
//! Must stay true: only the fields in [`FIELDS`] of a result are in a page, at any depth: no filters, no links, no users.

use pennon_analytics::Query;
use serde_json::{Map, Value, json};

/// The fields that the charts in `web/src/charts/kinds` read.
const FIELDS: [&str; 23] = [
    "action",
    "aggregated_value",
    "average_conversion_time",
    "bins",
    "breakdown_value",
    "compare_label",
    "count",
    "custom_name",
    "data",
    "date",
    "date_to",
    "days",
    "filter",
    "label",
    "labels",
    "median_conversion_time",
    "name",
    "order",
    "source",
    "status",
    "target",
    "value",
    "values",
];

/// The query as far as charts depend on it, and the result.
pub fn chart_data(query: &Query, result: &Value) -> Value {
    let filters = query.to_insight_filters();
    let node = query.kind().description().node.as_ref().map(|node| node.kind);
    json!({
        "query": {
            "kind": node,
            "trendsFilter": {"display": filters.get("display")},
            "funnelsFilter": {"funnelVizType": filters.get("funnel_viz_type")},
        },
        "result": keep_fields(result),
    })
}

fn keep_fields(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(keep_fields).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| FIELDS.contains(&name.as_str()));
            Value::Object(kept.map(|(name, value)| (name.clone(), keep_fields(value))).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use pennon_analytics::ParsedQuery;

    fn query(node: Value) -> Query {
        match Query::from_query_node(&node).unwrap() {
            ParsedQuery::Query(query) => query,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_charts_draw_is_kept() {
        let series = json!([{"kind": "EventsNode", "event": "a", "properties": [
            {"key": "email", "type": "person", "value": "@acme.example", "operator": "not_icontains"}]}]);
        let node =
            json!({"kind": "TrendsQuery", "series": series, "trendsFilter": {"display": "ActionsPie"}});
        let result = json!([{
            "label": "a", "aggregated_value": 3, "persons_urls": [{"url": "/api/x"}],
            "action": {"custom_name": "A", "properties": [{"value": "@acme.example"}]},
            "filter": {"date_to": "2026-01-05", "properties": [{"value": "@acme.example"}]},
        }]);
        let expected = json!({
            "query": {"kind": "TrendsQuery", "trendsFilter": {"display": "ActionsPie"},
                      "funnelsFilter": {"funnelVizType": null}},
            "result": [{"label": "a", "aggregated_value": 3, "action": {"custom_name": "A"},
                        "filter": {"date_to": "2026-01-05"}}],
        });
        assert_eq!(chart_data(&query(node), &result), expected);
        let steps = json!({"kind": "FunnelsQuery", "series": [{"kind": "EventsNode", "event": "a"},
            {"kind": "EventsNode", "event": "b"}], "funnelsFilter": {"funnelVizType": "time_to_convert"}});
        let data = chart_data(&query(steps), &json!({"bins": [[0, 1]], "average_conversion_time": 2.5}));
        assert_eq!(data["query"]["funnelsFilter"]["funnelVizType"], "time_to_convert");
        assert_eq!(data["result"], json!({"bins": [[0, 1]], "average_conversion_time": 2.5}));
    }
}
