//! One example for the JSON body of each operation that has one. They use the events of the demo project, so that they return
//! numbers on a fresh installation.
//!
//! Must stay true: no operation with a JSON body is without an example, and the server accepts each as it is
//! (`tests/tests/http/body_examples.rs`).

use serde_json::{Value, json};

/// A role of the organization; the server has no endpoint that creates roles.
const ROLE: &str = "01900000-0000-7000-8000-0000000000aa";

/// A person id.
const PERSON: &str = "01900000-0000-7000-8000-0000000000bb";

/// The example of the JSON body of the operation `id`.
pub(crate) fn example_body(id: &str) -> Option<Value> {
    record(id).or_else(|| flag(id)).or_else(|| insight(id)).or_else(|| people(id)).or_else(|| client(id))
}

/// Dashboards, cohorts, actions and API keys.
fn record(id: &str) -> Option<Value> {
    Some(match id {
        "createDashboard" => {
            json!({"name": "Checkout", "description": "Where the checkout loses people", "tags": ["shop"]})
        }
        "updateDashboard" => json!({"pinned": true}),
        "replaceDashboard" => json!({"name": "Checkout", "description": "", "tags": []}),
        "updateDashboardSharing" | "updateInsightSharing" => json!({"enabled": true}),
        "createCohort" => {
            json!({"name": "People who came by mail", "filters": {"properties": {"type": "AND", "values": [
                {"key": "acquisition_channel", "type": "person", "operator": "exact", "value": ["email"]},
            ]}}})
        }
        "updateCohort" => json!({"description": "By the channel of their first visit"}),
        "replaceCohort" => {
            json!({"name": "Buyers of this month", "filters": {"properties": {"type": "AND", "values": [
                {"type": "behavioral", "value": "performed_event", "key": "purchase", "event_type": "events",
                 "time_value": 30, "time_interval": "day"},
            ]}}})
        }
        "addPersonsToStaticCohort" => json!({"person_ids": [PERSON]}),
        "removePersonFromStaticCohort" => json!({"person_id": PERSON}),
        "createAction" => {
            json!({"name": "Bought or tried to", "steps": [{"event": "purchase"}, {"event": "payment_error"}]})
        }
        "updateAction" => json!({"tags": ["checkout"]}),
        "createKey" => {
            json!({"label": "deploy", "scopes": ["feature_flag:write", "project:read"], "expires_at": "2099-01-01T00:00:00Z"})
        }
        "updateKey" => json!({"scopes": ["feature_flag:read"]}),
        "replaceAction" => json!({"name": "Bought", "steps": [{"event": "purchase"}]}),
        _ => return None,
    })
}

/// Flags and their roles.
fn flag(id: &str) -> Option<Value> {
    let by_channel = json!({"properties": [
        {"key": "acquisition_channel", "type": "person", "operator": "exact", "value": ["email"]},
    ], "rollout_percentage": 50});
    Some(match id {
        "createFeatureFlag" => json!({"key": "shorter-checkout", "name": "The checkout on one page",
        "filters": {"groups": [by_channel], "multivariate": {"variants": [
            {"key": "control", "rollout_percentage": 50}, {"key": "one-page", "rollout_percentage": 50},
        ]}}}),
        "updateFeatureFlag" => json!({"filters": {"groups": [{"properties": [], "rollout_percentage": 20}]}}),
        "replaceFeatureFlag" => json!({"key": "banner", "name": "Which banner sells best", "active": true,
            "filters": {"groups": [{"properties": [], "rollout_percentage": 100}]}}),
        "getUserBlastRadius" => json!({"condition": by_channel}),
        "createRoleAccess" => json!({"role_id": ROLE}),
        "getFeatureFlagImpact" => json!({"query": funnel_node(), "dateRange": half_a_year()}),
        _ => return None,
    })
}

/// Insights and calculations.
fn insight(id: &str) -> Option<Value> {
    let purchases = json!([{"id": "purchase", "type": "events"}]);
    Some(match id {
        "createInsight" => json!({"name": "From product to purchase", "saved": true,
            "query": {"kind": "InsightVizNode", "source": funnel_node()}}),
        "updateInsight" => json!({"favorited": true}),
        "noteInsightsViewed" => json!({"insight_ids": [1]}),
        "noteInsightTiming" => json!({"insight": "FUNNELS", "time_to_first_byte": 12}),
        "cancelInsightCalculation" => json!({"client_query_id": "checkout-funnel"}),
        "query" => json!({"query": trend_node()}),
        "calculateTrend" => json!({"events": purchases, "date_from": "-180d", "interval": "week"}),
        "calculateFunnel" => json!({"events": funnel_steps(), "date_from": "-180d"}),
        "calculateCorrelation" => {
            json!({"events": funnel_steps(), "date_from": "-180d", "funnel_correlation_type": "events"})
        }
        "calculateRetention" => json!({"target_entity": purchases[0], "returning_entity": purchases[0],
            "period": "Week", "total_intervals": 8}),
        "calculateLifecycle" => json!({"events": purchases, "date_from": "-180d", "interval": "month"}),
        "calculateStickiness" => json!({"events": purchases, "date_from": "-180d", "interval": "week"}),
        "calculatePaths" => {
            json!({"include_event_types": ["custom_event"], "start_point": "cart", "date_from": "-180d"})
        }
        _ => return None,
    })
}

/// The people behind a number.
fn people(id: &str) -> Option<Value> {
    let purchases = json!([{"id": "purchase", "type": "events"}]);
    Some(match id {
        "listTrendPeople" => json!({"events": purchases, "date_from": "-180d", "entity_order": 0}),
        "listFunnelPeople" => json!({"events": funnel_steps(), "date_from": "-180d", "funnel_step": 2}),
        "listCorrelationPeople" => json!({"events": funnel_steps(), "date_from": "-180d",
            "funnel_correlation_person_converted": true, "funnel_correlation_person_entity": {"id": "wishlist_add"}}),
        "listRetentionPeople" => json!({"target_entity": purchases[0], "returning_entity": purchases[0],
            "period": "Week", "total_intervals": 8, "selected_interval": 0}),
        "listLifecyclePeople" => {
            json!({"events": purchases, "date_from": "2026-01-01", "date_to": "2026-01-31",
            "target_date": "2026-01-15", "lifecycle_type": "new"})
        }
        "listStickinessPeople" => {
            json!({"events": purchases, "date_from": "-180d", "interval": "week", "stickiness_days": 2})
        }
        "listPathPeople" => {
            json!({"include_event_types": ["custom_event"], "start_point": "cart", "date_from": "-180d",
            "path_start_key": "1_cart", "path_end_key": "2_shipping_details"})
        }
        "listFlagImpactPeople" => {
            json!({"impact": {"flag": {"key": "banner", "variants": [
            {"key": "control", "share": 50}, {"key": "wishlist", "share": 50},
        ]}, "query": funnel_node(), "dateRange": half_a_year()}, "variant": "control", "outcome": "converted"})
        }
        _ => return None,
    })
}

/// Requests of applications, with the token of the project.
fn client(id: &str) -> Option<Value> {
    let event =
        json!({"event": "purchase", "distinct_id": "ann", "properties": {"price": 25, "currency": "EUR"}});
    Some(match id {
        "capture" | "captureE" | "captureV0" => {
            let mut body = event;
            body["api_key"] = TOKEN.into();
            body
        }
        "captureBatch" => json!({"api_key": TOKEN, "batch": [event]}),
        "captureAnalyticsEvents" => {
            json!({"api_key": TOKEN, "created_at": "2026-01-01T00:00:00Z", "batch": [{
                "uuid": "01900000-0000-7000-8000-0000000000cc", "event": "purchase", "distinct_id": "ann",
                "timestamp": "2026-01-01T00:00:00Z", "properties": {"price": 25},
            }]})
        }
        "evaluateFlags" | "decide" => {
            json!({"token": TOKEN, "distinct_id": "ann", "person_properties": {"acquisition_channel": "email"}})
        }
        "evaluateOpenFeatureFlags" | "evaluateOpenFeatureFlag" => {
            json!({"context": {"targetingKey": "ann", "acquisition_channel": "email"}})
        }
        _ => return None,
    })
}

/// Where the token of a project belongs.
const TOKEN: &str = "phc_token";

fn half_a_year() -> Value {
    json!({"date_from": "-180d"})
}

fn funnel_steps() -> Value {
    json!([{"id": "cart", "type": "events", "order": 0}, {"id": "purchase", "type": "events", "order": 1}])
}

fn funnel_node() -> Value {
    json!({"kind": "FunnelsQuery", "dateRange": half_a_year(), "series": [
        {"kind": "EventsNode", "event": "cart"}, {"kind": "EventsNode", "event": "purchase"},
    ]})
}

fn trend_node() -> Value {
    json!({"kind": "TrendsQuery", "dateRange": half_a_year(), "interval": "week", "series": [
        {"kind": "EventsNode", "event": "purchase", "math": "dau"},
    ], "breakdownFilter": {"breakdown": "platform", "breakdown_type": "event"}})
}
