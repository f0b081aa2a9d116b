//! A legacy request as a query node, and what the legacy endpoint makes of a funnel's rows.

use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// How many events and actions a request has.
pub(super) fn series(body: &Object) -> usize {
    entities(body).len()
}

/// The node of a request to `endpoint`.
pub fn node(endpoint: &str, body: &Object) -> Value {
    let trend = endpoint == "trend";
    let series: Vec<Value> =
        entities(body).iter().map(|(action, entity)| series_node(*action, entity, trend)).collect();
    let mut node = json!({"kind": if trend { "TrendsQuery" } else { "FunnelsQuery" }, "series": series});
    put(
        &mut node,
        "dateRange",
        renamed(
            body,
            &[("date_from", "date_from"), ("date_to", "date_to"), ("explicit_date", "explicitDate")],
        ),
    );
    for (from, to) in [
        ("interval", "interval"),
        ("filter_test_accounts", "filterTestAccounts"),
        ("properties", "properties"),
    ] {
        put(&mut node, to, decoded(body, from));
    }
    let group = decoded(body, "aggregation_group_type_index");
    if group != json!(0) {
        put(&mut node, "aggregation_group_type_index", group);
    }
    put(&mut node, "breakdownFilter", breakdown(body, trend));
    if trend {
        put(
            &mut node,
            "compareFilter",
            renamed(body, &[("compare", "compare"), ("compare_to", "compare_to")]),
        );
        put(
            &mut node,
            "trendsFilter",
            renamed(
                body,
                &[
                    ("display", "display"),
                    ("formula", "formula"),
                    ("smoothing_intervals", "smoothingIntervals"),
                ],
            ),
        );
    } else {
        put(&mut node, "funnelsFilter", funnels_filter(body));
    }
    node
}

/// Actions, then events, by their `order`: a missing or zero one sorts first.
fn entities(body: &Object) -> Vec<(bool, Object)> {
    let list = |key: &str| decoded(body, key).as_array().cloned().unwrap_or_default();
    let of = |key: &'static str, action: bool| {
        list(key).into_iter().filter_map(move |entity| Some((action, entity.as_object()?.clone())))
    };
    let mut entities: Vec<(bool, Object)> = of("actions", true).chain(of("events", false)).collect();
    entities.retain(|(action, entity)| !action || entity.get("id").is_some_and(|id| !id.is_null()));
    entities.sort_by_key(|(_, entity)| match number(entity.get("order")) {
        None | Some(0) => -1,
        Some(order) => order,
    });
    entities
}

fn number(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::String(text) => text.parse().ok(),
        value => value.as_i64(),
    }
}

fn series_node(action: bool, entity: &Object, trend: bool) -> Value {
    let mut node = json!({"kind": if action { "ActionsNode" } else { "EventsNode" }});
    match action {
        true => node["id"] = json!(number(entity.get("id"))),
        false => node["event"] = entity.get("id").cloned().unwrap_or_default(),
    }
    let first_time =
        entity.get("math").and_then(Value::as_str).is_some_and(|math| math.starts_with("first_time"));
    let math: &[&str] = match trend || first_time {
        true => &["math", "math_property", "math_property_type", "math_hogql", "math_group_type_index"],
        false => &[],
    };
    for key in ["name", "custom_name", "properties", "optionalInFunnel"].iter().chain(math) {
        put(&mut node, key, decoded(entity, key));
    }
    node
}

fn breakdown(body: &Object, trend: bool) -> Value {
    let pairs = [
        "breakdown",
        "breakdown_type",
        "breakdown_limit",
        "breakdown_group_type_index",
        "breakdown_normalize_url",
        "breakdown_histogram_bin_count",
        "breakdown_hide_other_aggregation",
    ];
    let mut filter = renamed(body, &pairs.map(|key| (key, key)));
    if filter["breakdown_type"] == "events" {
        filter["breakdown_type"] = json!("event");
    }
    let several = decoded(body, "breakdowns");
    let Some(list) = several.as_array().filter(|list| !list.is_empty()) else {
        if !trend && filter.get("breakdown").is_some() {
            limit_of_requests(&mut filter);
        }
        return filter;
    };
    if trend {
        put(&mut filter, "breakdowns", several.clone());
        return filter;
    }
    put(&mut filter, "breakdown", list.iter().map(|one| one["property"].clone()).collect());
    put(&mut filter, "breakdown_type", list[0]["type"].clone());
    limit_of_requests(&mut filter);
    filter
}

/// A funnel request shows ten values, a node without a limit more.
fn limit_of_requests(filter: &mut Value) {
    if filter.get("breakdown_limit").is_none() {
        if filter.is_null() {
            *filter = json!({});
        }
        filter["breakdown_limit"] = json!(10);
    }
}

fn funnels_filter(body: &Object) -> Value {
    let mut filter = renamed(
        body,
        &[
            ("funnel_viz_type", "funnelVizType"),
            ("funnel_order_type", "funnelOrderType"),
            ("funnel_window_days", "funnelWindowInterval"),
            ("funnel_window_interval", "funnelWindowInterval"),
            ("funnel_window_interval_type", "funnelWindowIntervalUnit"),
            ("funnel_window_interval_unit", "funnelWindowIntervalUnit"),
            ("funnel_from_step", "funnelFromStep"),
            ("funnel_to_step", "funnelToStep"),
            ("funnel_step_reference", "funnelStepReference"),
            ("breakdown_attribution_type", "breakdownAttributionType"),
            ("breakdown_attribution_value", "breakdownAttributionValue"),
            ("bin_count", "binCount"),
            ("funnel_aggregate_by_hogql", "funnelAggregateByHogQL"),
            ("layout", "layout"),
        ],
    );
    let in_days = body.contains_key("funnel_window_days") && !body.contains_key("funnel_window_interval");
    if in_days {
        filter["funnelWindowIntervalUnit"] = json!("day");
    }
    if let Some(unit) = filter.get("funnelWindowIntervalUnit").and_then(Value::as_str) {
        let unit = unit.to_lowercase();
        filter["funnelWindowIntervalUnit"] = json!(unit.strip_suffix('s').unwrap_or(&unit));
    }
    let is_line = body.get("display") == Some(&json!("ActionsLineGraph"));
    if is_line && filter.get("funnelVizType").is_none() {
        put(&mut filter, "funnelVizType", json!("trends"));
    }
    let exclusions = decoded(body, "exclusions");
    if let Some(list) = exclusions.as_array() {
        put(&mut filter, "exclusions", list.iter().map(exclusion).collect());
    }
    filter
}

fn exclusion(entity: &Value) -> Value {
    let action = entity["type"] == "actions";
    let fields = entity.as_object().cloned().unwrap_or_default();
    let mut node = series_node(action, &fields, false);
    node["kind"] = json!(if action { "FunnelExclusionActionsNode" } else { "FunnelExclusionEventsNode" });
    put(&mut node, "funnelFromStep", decoded(&fields, "funnel_from_step"));
    put(&mut node, "funnelToStep", decoded(&fields, "funnel_to_step"));
    node
}

/// A field of a request; JSON text is decoded where it holds a list or an object.
fn decoded(body: &Object, key: &str) -> Value {
    match body.get(key) {
        Some(Value::String(text)) if text.starts_with(['[', '{']) => {
            serde_json::from_str(text).unwrap_or_else(|_| json!(text))
        }
        other => other.cloned().unwrap_or_default(),
    }
}

fn renamed(body: &Object, names: &[(&str, &str)]) -> Value {
    let mut object = Value::Null;
    for (from, to) in names {
        put(&mut object, to, decoded(body, from));
    }
    object
}

fn put(object: &mut Value, key: &str, value: Value) {
    if !value.is_null() {
        object[key] = value;
    }
}

/// What the legacy endpoint shows of a funnel's rows: values of a lone breakdown without their list.
pub fn unboxed(body: &Object, mut result: Value) -> Value {
    let kind = body.get("breakdown_type").and_then(Value::as_str);
    if body.get("insight") != Some(&json!("FUNNELS")) || !matches!(kind, Some("person" | "event")) {
        return result;
    }
    let several = body.contains_key("breakdowns");
    if !several && !body.get("breakdown").is_some_and(Value::is_string) {
        return result;
    }
    for row in result.as_array_mut().into_iter().flatten().filter_map(Value::as_array_mut).flatten() {
        for key in ["breakdown", "breakdown_value"] {
            let Some(boxed) = row.get(key).and_then(Value::as_array) else { continue };
            if let [single] = &boxed[..] {
                row[key] = single.clone();
            }
        }
        if several && let Some(value) = row.as_object_mut().and_then(|row| row.remove("breakdown")) {
            row["breakdowns"] = value;
        }
    }
    result
}
