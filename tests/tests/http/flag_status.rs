//! Whether flags are in use, over HTTP.

use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";
/// More, and less, than thirty days before the tests' clock, which stands at 2026-01-05T10:00:00Z.
const OLD: &str = "2025-12-06T09:59:59Z";
const YOUNG: &str = "2025-12-06T10:00:01Z";

/// A flag made of `body`: the response about its use, the word in its record, and whether the list shows it as stale.
async fn checked(app: &TestApp, body: Value) -> (Value, Value, bool) {
    let id = app.post(FLAGS, body).await.expect(201)["id"].clone();
    check(app, &id).await
}

async fn check(app: &TestApp, id: &Value) -> (Value, Value, bool) {
    let response = app.get(&format!("{FLAGS}{id}/status/")).await.expect(200);
    let record = app.get(&format!("{FLAGS}{id}/")).await.expect(200);
    let stale = app.get(&format!("{FLAGS}?active=STALE&limit=1000")).await.expect(200);
    let listed = stale["results"].as_array().unwrap().iter().any(|flag| flag["id"] == *id);
    (response, record["status"].clone(), listed)
}

fn all_persons() -> Value {
    json!({"groups": [{"properties": [], "rollout_percentage": 100}]})
}

#[tokio::test]
async fn each_row_of_the_table_has_its_status_and_reason() {
    let app = TestApp::new().await;
    let some = json!({"groups": [{"properties": [], "rollout_percentage": 40}]});
    let rows = [
        (json!({"filters": all_persons(), "created_at": OLD}), "stale", "Always \"true\"", true),
        (json!({"filters": all_persons(), "created_at": YOUNG}), "active", "No usage data yet", false),
        (json!({"filters": some, "created_at": OLD}), "active", "No usage data yet", false),
        (
            json!({"filters": all_persons(), "created_at": OLD, "active": false}),
            "active",
            "The flag is switched off, staleness is not judged",
            false,
        ),
        (
            json!({"filters": some, "last_called_at": "2025-12-05T10:00:00Z"}),
            "stale",
            "Not called for 31 days",
            false,
        ),
        (json!({"filters": some, "last_called_at": OLD}), "stale", "Not called for 30 days", false),
        (
            json!({"filters": all_persons(), "created_at": OLD, "last_called_at": YOUNG}),
            "active",
            "Last called 29 days ago",
            false,
        ),
        (json!({"last_called_at": "2026-01-05T09:00:00Z"}), "active", "Last called today", false),
    ];
    for (number, (mut body, status, reason, states_rollout)) in rows.into_iter().enumerate() {
        body["key"] = json!(format!("flag-{number}"));
        let (response, word, listed) = checked(&app, body.clone()).await;
        assert_eq!((&response["status"], &response["reason"]), (&json!(status), &json!(reason)), "{body}");
        assert_eq!(response["reason_states_rollout"], states_rollout, "{body}");
        assert_eq!(word, status.to_uppercase(), "{body}");
        assert_eq!(listed, status == "stale", "{body}");
    }
}

#[tokio::test]
async fn a_deleted_flag_has_a_status_and_an_unknown_one_both_error_formats() {
    let app = TestApp::new().await;
    let id = app
        .post(FLAGS, json!({"key": "a", "filters": all_persons(), "created_at": OLD}))
        .await
        .expect(201)["id"]
        .clone();
    app.patch(&format!("{FLAGS}{id}/"), json!({"deleted": true})).await.expect(200);
    let (response, word, listed) = check(&app, &id).await;
    let rollout = json!({
        "effectively_full_rollout": true, "has_targeting_conditions": false, "max_rollout_percentage": 100,
        "is_multivariate": false,
    });
    let expected = json!({
        "status": "deleted", "reason": "The flag is soft-deleted", "reason_states_rollout": false, "rollout": rollout,
    });
    assert_eq!((response, word, listed), (expected, json!("DELETED"), false));

    let unknown = json!({
        "status": "unknown", "reason": "No such flag", "type": "invalid_request", "code": "not_found",
        "detail": "Not found.", "attr": null,
    });
    let foreign =
        app.post("/api/projects/2/feature_flags/", json!({"key": "b"})).await.expect(201)["id"].clone();
    for id in [json!(99), foreign, json!("x"), json!("1.5")] {
        let path = format!("{FLAGS}{}/status", id.as_str().map_or_else(|| id.to_string(), str::to_owned));
        assert_eq!(app.get(&path).await.expect(404), unknown, "{path}");
    }
    let own = format!("{FLAGS}{id}/status/");
    assert_eq!(app.call(Keys::READ_FLAGS, "GET", &own, Value::Null).await.status, 200);
    assert_eq!(app.call(Keys::OWNER, "POST", &own, json!({})).await.status, 405);
    app.services.app.keys.clear();
    app.round_trips.reset();
    app.get(&own).await.expect(200);
    assert_eq!(app.round_trips.sequential(), 1);
}

#[tokio::test]
async fn shapes_of_a_full_rollout() {
    let app = TestApp::new().await;
    let variants = |first: u64| json!({"variants": [{"key": "test", "rollout_percentage": first}, {"key": "control", "rollout_percentage": 100 - first}]});
    let group = |rollout: Value, variant: Value| json!({"properties": [], "rollout_percentage": rollout, "variant": variant});
    let named = json!({"properties": [{"key": "name", "type": "person", "value": ["Smith"], "operator": "exact"}], "rollout_percentage": 100, "variant": "test"});
    // Filters; the value if all persons get the same; targeting; the largest percentage; variants.
    let rows = [
        (
            json!({"groups": [group(json!(100), json!("test"))], "multivariate": variants(60)}),
            Some("Always variant \"test\""),
            false,
            json!(100),
            true,
        ),
        (
            json!({"groups": [group(json!(100), Value::Null)], "multivariate": variants(100)}),
            Some("Always variant \"test\""),
            false,
            json!(100),
            true,
        ),
        (
            json!({"groups": [group(json!(100), json!("control"))], "multivariate": variants(100)}),
            Some("Always variant \"control\""),
            false,
            json!(100),
            true,
        ),
        (
            json!({"groups": [group(json!(20), Value::Null), group(json!(30), Value::Null)], "multivariate": variants(100)}),
            None,
            false,
            json!(30),
            true,
        ),
        (
            json!({"groups": [group(json!(100), Value::Null)], "multivariate": variants(50)}),
            None,
            false,
            json!(100),
            true,
        ),
        (json!({"groups": [named], "multivariate": variants(60)}), None, true, json!(100), true),
        (json!({"groups": [group(Value::Null, Value::Null)]}), None, false, json!(100), false),
        (json!({"groups": [group(json!(12.5), Value::Null)]}), None, false, json!(12.5), false),
    ];
    for (number, (filters, always, targets, most, multivariate)) in rows.into_iter().enumerate() {
        let body = json!({"key": format!("flag-{number}"), "filters": filters, "created_at": OLD});
        let (response, word, listed) = checked(&app, body).await;
        let expected = json!({
            "status": if always.is_some() { "stale" } else { "active" },
            "reason": always.unwrap_or("No usage data yet"),
            "reason_states_rollout": always.is_some(),
            "rollout": {
                "effectively_full_rollout": always.is_some(), "has_targeting_conditions": targets,
                "max_rollout_percentage": most, "is_multivariate": multivariate,
            },
        });
        assert_eq!(response, expected, "{filters}");
        assert_eq!((word == "STALE", listed), (always.is_some(), always.is_some()), "{filters}");
    }
    // Without conditions all persons get true; such a flag is stale, but not listed as such.
    let id = app.post(FLAGS, json!({"key": "empty", "created_at": OLD})).await.expect(201)["id"].clone();
    app.patch(&format!("{FLAGS}{id}/"), json!({"filters": {"groups": []}})).await.expect(200);
    let (response, word, listed) = check(&app, &id).await;
    assert_eq!(
        (&response["status"], &response["rollout"]["max_rollout_percentage"]),
        (&json!("stale"), &Value::Null)
    );
    assert_eq!((word, listed), (json!("STALE"), false));
}
