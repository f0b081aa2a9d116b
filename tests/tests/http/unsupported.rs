//! Queries that are not supported: each error names what to use instead, and docs/unsupported.md lists all.

use pennon_tests::TestApp;
use serde_json::{Value, json};

const QUERY: &str = "/api/projects/1/query/";
const TREND: &str = "/api/projects/1/insights/trend/";
const FUNNEL: &str = "/api/projects/1/insights/funnel/";

/// The documented page.
const PAGE: &str = include_str!("../../../docs/unsupported.md");

/// Sends a request that is rejected; the error.
async fn error(app: &TestApp, path: &str, body: Value) -> Value {
    let error = app.post(path, body).await.expect(400);
    assert_eq!((&error["type"], &error["code"]), (&json!("validation_error"), &json!("invalid_input")));
    let detail = error["detail"].as_str().unwrap();
    assert!(detail.starts_with("Not supported yet: "), "{detail}");
    error
}

#[tokio::test]
async fn nodes_of_other_kinds_name_what_to_use_instead() {
    let app = TestApp::new().await;
    for (node, instead) in [
        (json!({"kind": "HogQLQuery", "query": "select 1"}), "docs/files.md"),
        (
            json!({"kind": "DataVisualizationNode", "source": {"kind": "HogQLQuery", "query": "select 1"}}),
            "read_parquet(",
        ),
        (json!({"kind": "EventsQuery", "select": ["*"]}), "GET /api/projects/1/events/"),
        (
            json!({"kind": "ActorsQuery", "source": {"kind": "InsightActorsQuery"}}),
            "/api/projects/1/persons/trends/",
        ),
        (json!({"kind": "InsightActorsQuery", "source": {}}), "persons/path/"),
        (json!({"kind": "FunnelsActorsQuery", "source": {}}), "/api/projects/1/persons/funnel/"),
        (json!({"kind": "PersonsNode"}), "GET /api/projects/1/persons/"),
        (json!({"kind": "FunnelCorrelationQuery"}), "/api/projects/1/insights/funnel/correlation/"),
        (json!({"kind": "PathsV2Query"}), "PathsQuery"),
        (json!({"kind": "WebOverviewQuery"}), "TrendsQuery"),
        (json!({"kind": "WebStatsTableQuery"}), "TrendsQuery"),
        (json!({"kind": "NewerQuery"}), "PathsQuery"),
    ] {
        let error = error(&app, QUERY, json!({"query": node})).await;
        assert_eq!(error["attr"], "query");
        assert!(error["detail"].as_str().unwrap().contains(instead), "{error}");
        let kind = node["source"]["kind"].as_str().filter(|kind| *kind == "HogQLQuery");
        let kind = kind.unwrap_or(node["kind"].as_str().unwrap());
        assert!(
            kind == "NewerQuery" || PAGE.contains(&format!("`{kind}`")),
            "docs/unsupported.md lacks {kind}"
        );
    }
}

#[tokio::test]
async fn a_saved_query_of_another_kind_has_the_reason_in_its_status() {
    let app = TestApp::new().await;
    let body = json!({"query": {"kind": "HogQLQuery", "query": "select 1"}});
    let made = app.post("/api/projects/1/insights/?refresh=blocking", body).await.expect(201);
    let message = made["query_status"]["error_message"].as_str().unwrap();
    assert!(message.contains("project=1/events/*.parquet") && message.contains("docs/files.md"), "{message}");
}

/// A request that is rejected: path, body, field, what the error names instead, what the page lists.
type OptionCase = (&'static str, Value, &'static str, &'static str, &'static str);

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn node(kind: &str, more: Value) -> Value {
    let series = json!([{"kind": "EventsNode", "event": "a"}, {"kind": "EventsNode", "event": "b"}]);
    json!({"query": with(json!({"kind": kind, "series": series}), more)})
}

fn legacy(more: Value) -> Value {
    with(json!({"events": [{"id": "a", "order": 0}, {"id": "b", "order": 1}]}), more)
}

fn trend_options() -> Vec<OptionCase> {
    let heatmap = json!({"trendsFilter": {"display": "CalendarHeatmap"}});
    let goal = json!({"conversionGoal": {"actionId": 1}});
    let math = |name: &str| json!({"events": [{"id": "a", "math": name}]});
    let first = "first_time_for_user on an action";
    let (matching, filtered) = ("first_matching_event_for_user", "first_time_for_user_with_filters");
    vec![
        (
            TREND,
            legacy(json!({"display": "CalendarHeatmap"})),
            "display",
            "ActionsLineGraph",
            "CalendarHeatmap",
        ),
        (
            QUERY,
            node("TrendsQuery", heatmap),
            "trendsFilter__display",
            "the interval hour",
            "CalendarHeatmap",
        ),
        (QUERY, node("TrendsQuery", goal), "conversionGoal", "FunnelsQuery", "conversionGoal"),
        (TREND, math(matching), "events", first, matching),
        (TREND, math(filtered), "events", first, filtered),
        (TREND, math("sum_count_per_actor"), "events", "math total", "sum_count_per_actor"),
    ]
}

fn funnel_options() -> Vec<OptionCase> {
    let by = "properties.$session_id";
    let of_session = json!({"funnelsFilter": {"funnelAggregateByHogQL": by}});
    let flow = json!({"funnelsFilter": {"funnelVizType": "flow"}});
    let (legacy_by, node_by) = ("funnel_aggregate_by_hogql", "funnelsFilter__funnelAggregateByHogQL");
    let paths = "PathsQuery with funnelPathsFilter";
    vec![
        (FUNNEL, legacy(json!({legacy_by: by})), legacy_by, "aggregation_group_type_index", legacy_by),
        (QUERY, node("FunnelsQuery", of_session), node_by, "30 minutes", "funnelAggregateByHogQL"),
        (FUNNEL, legacy(json!({"funnel_viz_type": "flow"})), "funnel_viz_type", paths, "flow"),
        (QUERY, node("FunnelsQuery", flow), "funnelsFilter__funnelVizType", paths, "flow"),
    ]
}

#[tokio::test]
async fn options_that_are_not_supported_name_what_to_use_instead() {
    let app = TestApp::new().await;
    for (path, body, attr, instead, listed) in trend_options().into_iter().chain(funnel_options()) {
        let error = error(&app, path, body).await;
        assert_eq!(error["attr"], attr);
        assert!(error["detail"].as_str().unwrap().contains(instead), "{error}");
        assert!(PAGE.contains(&format!("`{listed}`")), "docs/unsupported.md lacks {listed}");
    }
}

/// The page recommends this: the math counts the first event of an action, and the steps of an action have filters.
#[tokio::test]
async fn the_first_event_of_an_action_is_the_first_that_passes_its_filters() {
    let step = json!({"event": "bought", "properties": [{"key": "plan", "value": "pro", "type": "event"}]});
    let app =
        TestApp::with(json!({"actions": [{"project": "1", "id": 4, "name": "first pro", "steps": [step]}]}))
            .await;
    let event = |day: u32, plan: &str| json!({"event": "bought", "distinct_id": "ann", "timestamp": format!("2026-01-0{day}T10:00:00Z"), "properties": {"plan": plan}});
    let batch =
        json!({"api_key": "phc_project_1", "batch": [event(2, "free"), event(3, "pro"), event(4, "pro")]});
    app.call("", "POST", "/batch/", batch).await.expect(200);
    let body = json!({"actions": [{"id": 4, "math": "first_time_for_user"}], "date_from": "2026-01-02", "date_to": "2026-01-04"});
    let trend = app.post(TREND, body).await.expect(200);
    assert_eq!(trend["result"][0]["data"], json!([0, 1, 0]));
}
