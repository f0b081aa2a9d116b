//! The demo project's flags, dashboards and insights. All dates are relative.

use serde_json::{Value, json};

use super::{ORGANIZATION, PROJECT};
use crate::workspace::Workspace;

pub(super) fn workspace_file(key: &str, token: &str) -> Result<Workspace, serde_json::Error> {
    let organization = ORGANIZATION;
    serde_json::from_value(json!({
        "organizations": [{"id": organization, "name": "Demo"}],
        "users": [{"id": 1, "email": "demo@example.com", "first_name": "Demo",
                   "memberships": [{"organization": organization, "level": "owner"}]}],
        "projects": [{"id": PROJECT.to_string(), "organization": organization, "name": "Web shop", "token": token}],
        "keys": [{"label": "demo", "user": "demo@example.com", "scopes": ["*"], "value": key}],
    }))
}

pub(super) fn flags() -> [Value; 3] {
    [
        json!({"key": "new-checkout", "name": "The shorter checkout, for half of the people",
               "filters": {"groups": [{"properties": [], "rollout_percentage": 50}]}}),
        json!({"key": "free-shipping", "name": "Free shipping for people who come by mail", "tags": ["shipping"],
               "filters": {"groups": [{"properties": [{"key": "acquisition_channel", "value": ["email"],
                   "operator": "exact", "type": "person"}], "rollout_percentage": 100}]}}),
        json!({"key": "banner", "name": "Which banner sells best", "filters": {
            "groups": [{"properties": [], "rollout_percentage": 100}],
            "multivariate": {"variants": [{"key": "control", "rollout_percentage": 34},
                {"key": "wishlist", "rollout_percentage": 33}, {"key": "reviews", "rollout_percentage": 33}]}}}),
    ]
}

/// A dashboard and its insights.
pub(super) struct DemoDashboard {
    /// The request body that creates it.
    pub(super) body: Value,
    /// The request bodies that create the insights, without `dashboards`.
    pub(super) insights: Vec<Value>,
}

pub(super) fn dashboards() -> [DemoDashboard; 2] {
    let all = json!({"date_from": "-180d"});
    let month = json!({"date_from": "-30d"});
    [
        DemoDashboard {
            body: json!({"name": "Web shop", "description": "How many visit, and how many buy", "pinned": true}),
            insights: vec![
                trend("Purchases a day", &month, "day", event("purchase", None), &json!({})),
                trend("Purchases a week", &all, "week", event("purchase", None), &json!({})),
                trend("Visitors a day", &month, "day", event("product_view", Some("dau")), &json!({})),
                trend(
                    "Purchases by channel",
                    &all,
                    "month",
                    event("purchase", None),
                    &json!({"breakdownFilter": {"breakdown": "acquisition_channel", "breakdown_type": "event"},
                            "trendsFilter": {"display": "ActionsBarValue"}}),
                ),
            ],
        },
        DemoDashboard {
            body: json!({"name": "Checkout", "description": "Where the checkout loses people"}),
            insights: vec![
                funnel(
                    "From product to purchase",
                    &all,
                    &["product_view", "add_to_cart", "purchase"],
                    &json!({}),
                ),
                funnel(
                    "Checkout by platform",
                    &all,
                    &["cart", "shipping_details", "payment_details", "purchase"],
                    &json!({"breakdownFilter": {"breakdown": "platform", "breakdown_type": "event"}}),
                ),
                trend("Payment errors a week", &all, "week", event("payment_error", None), &json!({})),
            ],
        },
    ]
}

fn event(name: &str, math: Option<&str>) -> Value {
    let mut node = json!({"kind": "EventsNode", "event": name, "name": name});
    if let Some(math) = math {
        node["math"] = math.into();
    }
    node
}

fn trend(name: &str, dates: &Value, interval: &str, series: Value, more: &Value) -> Value {
    let source = json!({"kind": "TrendsQuery", "dateRange": dates, "interval": interval, "series": [series]});
    insight(name, source, more)
}

fn funnel(name: &str, dates: &Value, steps: &[&str], more: &Value) -> Value {
    let series: Vec<Value> = steps.iter().map(|step| event(step, None)).collect();
    let source = json!({"kind": "FunnelsQuery", "dateRange": dates, "series": series,
        "funnelsFilter": {"funnelWindowInterval": 14, "funnelWindowIntervalUnit": "day"}});
    insight(name, source, more)
}

/// An insight; the fields of `more` are added to its query.
fn insight(name: &str, mut source: Value, more: &Value) -> Value {
    for (field, value) in more.as_object().into_iter().flatten() {
        source[field] = value.clone();
    }
    json!({"name": name, "saved": true, "query": {"kind": "InsightVizNode", "source": source}})
}
