//! Results of saved insights over HTTP, and their dashboards.

use pennon_core::store::PartitionQuery;
use pennon_eventstore::Event;
use pennon_tests::{Keys, TestApp, now_micros};
use serde_json::{Value, json};
use uuid::Uuid;

const INSIGHTS: &str = "/api/projects/1/insights/";

fn one(id: &Value) -> String {
    format!("{INSIGHTS}{id}/")
}

/// Creates an insight as the owner and returns its full form.
async fn made(app: &TestApp, body: Value) -> Value {
    app.post(INSIGHTS, body).await.expect(201)
}

/// Three page views of two people on the third of January.
async fn with_views() -> TestApp {
    let app = TestApp::new().await;
    let event = |who: &str| Event {
        uuid: Uuid::new_v4(),
        event: "viewed".to_owned(),
        distinct_id: who.to_owned(),
        timestamp: "2026-01-03T03:21:34Z"
            .parse::<chrono::DateTime<chrono::Utc>>()
            .unwrap()
            .timestamp_micros(),
        properties: json!({"page": who}).as_object().unwrap().clone(),
    };
    let now = now_micros();
    app.services.events.append(1, &[event("ann"), event("bob"), event("bob")], now).await.unwrap();
    app
}

fn views() -> Value {
    json!({"kind": "InsightVizNode", "source": {"kind": "TrendsQuery",
           "series": [{"kind": "EventsNode", "event": "viewed", "name": "viewed", "math": "total"}]}})
}

#[tokio::test]
async fn numbers_are_shown_when_they_are_cached_or_requested() {
    let app = with_views().await;
    let insight = made(&app, json!({"query": views()})).await;
    let path = one(&insight["id"]);
    for refresh in ["", "?refresh=false", "?refresh=whatever"] {
        let got = app.get(&format!("{path}{refresh}")).await.expect(200);
        assert_eq!(
            (&got["result"], &got["last_refresh"], &got["timezone"]),
            (&Value::Null, &Value::Null, &Value::Null)
        );
        assert_eq!(
            (&got["is_cached"], &got["query_status"], &got["hogql"]),
            (&json!(false), &Value::Null, &Value::Null)
        );
    }
    assert_eq!(app.get(&format!("{path}?refresh=force_cache")).await.expect(200)["timezone"], "UTC");
    let got = app.get(&format!("{path}?refresh=blocking")).await.expect(200);
    assert_eq!(got["result"][0]["data"], json!([0, 0, 0, 0, 0, 3, 0, 0]));
    assert_eq!(
        (&got["is_cached"], &got["hasMore"], &got["timezone"]),
        (&json!(false), &json!(false), &json!("UTC"))
    );
    assert_eq!(got["last_refresh"], "2026-01-05T10:00:00Z");
    assert_eq!(got["cache_target_age"], "2026-01-05T16:00:00Z");
    assert_eq!(got["next_allowed_client_refresh"], "2026-01-05T10:15:00Z");
    assert_eq!(got["filters_hash"], insight["filters_hash"]);
    assert!(got["hogql"].is_string());
    let stored = app.get(&path).await.expect(200);
    assert_eq!((&stored["result"], &stored["is_cached"]), (&got["result"], &json!(true)));
    // An insight with the same query, without and with explicit defaults, has the result at once.
    let mut bare = views()["source"].clone();
    bare["interval"] = json!("day");
    let same = made(&app, json!({"name": "same", "query": bare})).await;
    assert_eq!((&same["result"], &same["is_cached"]), (&got["result"], &json!(true)));
    // A changed query has none.
    let changed = app
        .patch(
            &path,
            json!({"query": {"kind": "TrendsQuery", "interval": "week",
        "series": [{"kind": "EventsNode", "event": "viewed"}]}}),
        )
        .await
        .expect(200);
    assert_eq!(changed["result"], Value::Null);
    let calculated = app
        .post(
            &format!("{INSIGHTS}?refresh=true"),
            json!({"filters": {"events": [{"id": "viewed", "math": "dau"}]}}),
        )
        .await;
    assert_eq!(calculated.expect(201)["result"][0]["data"], json!([0, 0, 0, 0, 0, 2, 0, 0]));
}

#[tokio::test]
async fn a_result_ages_by_the_interval_of_its_query() {
    let app = with_views().await;
    let path = one(&made(&app, json!({"query": views()})).await["id"]);
    let got = async |now: &str, refresh: &str| {
        app.at(now, "GET", &format!("{path}?refresh={refresh}"), Value::Null).await.expect(200)
    };
    let shown =
        |got: &Value| (got["is_cached"].as_bool().unwrap(), got["last_refresh"].as_str().unwrap().to_owned());
    let first = "2026-01-05T04:01:34Z";
    assert_eq!(shown(&got(first, "blocking").await), (false, first.to_owned()));
    assert_eq!(shown(&got("2026-01-05T10:01:00Z", "blocking").await), (true, first.to_owned()));
    assert_eq!(shown(&got("2026-01-05T10:02:00Z", "force_cache").await), (true, first.to_owned()));
    assert_eq!(
        shown(&got("2026-01-05T10:02:00Z", "blocking").await),
        (false, "2026-01-05T10:02:00Z".to_owned())
    );
    assert_eq!(shown(&got("2026-01-05T10:02:01Z", "true").await), (false, "2026-01-05T10:02:01Z".to_owned()));
    // A range that ended before its calculation does not age, but is kept for seven days only.
    let mut past = views();
    past["source"]["dateRange"] = json!({"date_from": "2026-01-01", "date_to": "2026-01-03"});
    app.patch(&path, json!({"query": past})).await.expect(200);
    assert_eq!(shown(&got(first, "blocking").await), (false, first.to_owned()));
    assert_eq!(shown(&got("2026-01-08T04:01:34Z", "blocking").await), (true, first.to_owned()));
    assert!(!shown(&got("2026-01-12T04:01:35Z", "blocking").await).0);
}

#[tokio::test]
async fn an_insight_that_cannot_be_calculated_is_stored_and_reports_it() {
    let app = with_views().await;
    let web =
        json!({"kind": "DataTableNode", "source": {"kind": "WebStatsTableQuery", "breakdownBy": "Page"}});
    // The query has no second series.
    let formula = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "viewed"}],
                         "trendsFilter": {"formula": "A + B"}});
    let other = made(&app, json!({"query": web})).await["id"].clone();
    let refused = made(&app, json!({"query": formula})).await["id"].clone();
    let fine = made(&app, json!({"query": views()})).await["id"].clone();
    for id in [&other, &refused] {
        let got = app.get(&one(id)).await.expect(200);
        assert_eq!((&got["result"], &got["query_status"]), (&Value::Null, &Value::Null));
    }
    let got = app.get(&format!("{}?refresh=blocking&client_query_id=mine", one(&other))).await.expect(200);
    let status = &got["query_status"];
    assert_eq!((&got["query"], &got["result"]), (&web, &Value::Null));
    assert_eq!(
        (&status["complete"], &status["error"], &status["id"]),
        (&json!(true), &json!(true), &json!("mine"))
    );
    assert_eq!((&status["team_id"], &status["insight_id"]), (&json!(1), &other));
    assert!(status["error_message"].as_str().unwrap().contains("WebStatsTableQuery"));
    let response = app.get(&format!("{}?refresh=blocking", one(&refused))).await.expect(400);
    assert_eq!(response["attr"], "trendsFilter__formula");
    // In a list the other insights have their results.
    let list = app.get(&format!("{INSIGHTS}?refresh=blocking&order=id")).await.expect(200);
    let rows = list["results"].as_array().unwrap();
    assert_eq!(rows[0]["query_status"]["error"], true);
    assert!(rows[1]["query_status"]["error_message"].as_str().unwrap().contains('B'));
    assert_eq!((&rows[2]["id"], &rows[2]["result"][0]["count"]), (&fine, &json!(3.0)));
    assert_eq!(rows[2]["query_status"], Value::Null);
    // Nothing is written if another part of the request fails.
    let body = json!({"name": "new", "query": formula});
    assert_eq!(app.post(&format!("{INSIGHTS}?refresh=blocking"), body).await.status, 400);
    assert_eq!(app.get(INSIGHTS).await.expect(200)["count"], 3);
    // A query that cannot be calculated is not started in the background either.
    for mode in ["async", "lazy_async", "force_async", "async_except_on_cache_miss"] {
        let got = app.get(&format!("{}?refresh={mode}", one(&other))).await.expect(200);
        assert_eq!(got["query_status"]["error"], true, "{mode}");
        let response = app.get(&format!("{}?refresh={mode}", one(&refused))).await;
        if mode == "async_except_on_cache_miss" {
            assert_eq!(response.expect(400)["attr"], "trendsFilter__formula");
        } else {
            let got = response.expect(200);
            assert_eq!(
                (&got["result"], &got["query_status"]["error"]),
                (&Value::Null, &json!(true)),
                "{mode}"
            );
        }
    }
    assert_eq!(app.jobs().await, []);
}

#[tokio::test]
async fn overrides_change_the_response_and_not_the_insight() {
    let app = with_views().await;
    let insight = made(&app, json!({"query": views()})).await;
    let path = one(&insight["id"]);
    let over = "filters_override=%7B%22date_from%22%3A%22-3d%22%7D";
    let got = app.get(&format!("{path}?{over}&refresh=blocking&from_dashboard=7")).await.expect(200);
    assert_eq!(got["query"]["source"]["dateRange"]["date_from"], "-3d");
    assert_eq!(got["result"][0]["data"], json!([0, 3, 0, 0]));
    assert_ne!(got["filters_hash"], insight["filters_hash"]);
    let list = app.get(&format!("{INSIGHTS}?{over}")).await.expect(200);
    assert_eq!(list["results"][0]["result"][0]["data"], json!([0, 3, 0, 0]));
    let plain = app.get(&path).await.expect(200);
    assert_eq!(
        (&plain["query"], &plain["result"], &plain["filters_hash"]),
        (&views(), &Value::Null, &insight["filters_hash"])
    );
    for name in ["filters_override", "variables_override"] {
        let detail = format!("Invalid JSON passed in {name} parameter");
        app.get(&format!("{path}?{name}=%7Boops")).await.expect_invalid("invalid_input", &detail, Some(name));
    }
}

/// A workspace with dashboards 1 and 2, 3 that only its creator Olive may edit, 4 that was deleted; 5 in project 2.
async fn with_dashboards() -> TestApp {
    let dashboard = |id: u64, more: Value| {
        let mut dashboard = json!({"project": "1", "id": id, "name": format!("D{id}")});
        dashboard.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        dashboard
    };
    let dashboards = json!([
        dashboard(1, json!({"filters": {"date_from": "-14d"}})),
        dashboard(2, json!({})),
        dashboard(3, json!({"restriction_level": 37, "created_by": "owner@example.com"})),
        dashboard(4, json!({"deleted": true})),
        dashboard(5, json!({"project": "2"})),
    ]);
    TestApp::with(json!({"dashboards": dashboards})).await
}

#[tokio::test]
async fn an_insight_is_on_the_dashboards_of_the_last_change() {
    let app = with_dashboards().await;
    let insight = made(&app, json!({"name": "a", "dashboards": [2, 1]})).await;
    let path = one(&insight["id"]);
    let tiles = |removed: Value| json!([{"id": 1, "dashboard_id": 2, "deleted": null}, {"id": 2, "dashboard_id": 1, "deleted": removed}]);
    assert_eq!((&insight["dashboards"], &insight["dashboard_tiles"]), (&json!([2, 1]), &tiles(Value::Null)));
    let same = app.patch(&path, json!({"dashboards": [1, 2]})).await.expect(200);
    assert_eq!((&same["dashboards"], &same["dashboard_tiles"]), (&json!([1, 2]), &tiles(Value::Null)));
    let less = app.patch(&path, json!({"dashboards": [2], "dashboard_tiles": []})).await.expect(200);
    assert_eq!(less["dashboards"], json!([2]));
    assert_eq!(app.get(&format!("{INSIGHTS}?dashboards=%5B1%5D")).await.expect(200)["count"], 0);
    let back = app.patch(&path, json!({"dashboards": [2, 1]})).await.expect(200);
    assert_eq!(back["dashboard_tiles"], tiles(json!(false)));
    assert_eq!(app.get(&path).await.expect(200)["dashboard_tiles"], tiles(json!(false)));
    for found in ["dashboards=%5B1%2C2%5D", "saved=true", "basic=true"] {
        let list = app.get(&format!("{INSIGHTS}?{found}")).await.expect(200);
        assert_eq!(list["results"][0]["dashboards"], json!([2, 1]), "{found}");
    }
    for wrong in [json!([4]), json!([5]), json!([99]), json!([1, 99])] {
        let response = app.patch(&path, json!({"dashboards": wrong, "name": "b"})).await.expect(400);
        assert_eq!((&response["code"], &response["attr"]), (&json!("does_not_exist"), &json!("dashboards")));
        assert_eq!(app.post(INSIGHTS, json!({"dashboards": wrong})).await.status, 400);
    }
    assert_eq!(app.get(INSIGHTS).await.expect(200)["count"], 1);
    // The same set is not a change; every other set is logged with names, in the order sent.
    let log = app.activity("Insight").await;
    let mut changes: Vec<Value> = log.iter().map(|entry| entry["detail"]["changes"].clone()).collect();
    changes.retain(|changes| !changes.is_null());
    let (d1, d2) = (json!({"id": 1, "name": "D1"}), json!({"id": 2, "name": "D2"}));
    let line = |before: Value, after: Value| json!([{"type": "Insight", "action": "changed", "field": "dashboards", "before": before, "after": after}]);
    assert_eq!(changes.len(), 2);
    assert!(changes.contains(&line(json!([d1, d2]), json!([d2]))), "{changes:?}");
    assert!(changes.contains(&line(json!([d2]), json!([d2, d1]))), "{changes:?}");
    // A deletion removes it from dashboards, and a restoration does not add it again.
    app.patch(&path, json!({"deleted": true, "dashboards": [1, 2]})).await.expect(200);
    let restored = app.patch(&path, json!({"deleted": false})).await.expect(200);
    assert_eq!((&restored["dashboards"], &restored["dashboard_tiles"]), (&json!([]), &json!([])));
    let pointers =
        app.services.app.store.records.query(PartitionQuery::partition("PROJECT#1#DASHBOARD#1")).await;
    assert_eq!(pointers.unwrap().len(), 0);
    let placed = app.patch(&path, json!({"dashboards": [1]})).await.expect(200);
    assert_eq!(placed["dashboard_tiles"], json!([{"id": 2, "dashboard_id": 1, "deleted": false}]));
    let pointers =
        app.services.app.store.records.query(PartitionQuery::partition("PROJECT#1#DASHBOARD#1")).await;
    assert_eq!(pointers.unwrap().len(), 1);
}

#[tokio::test]
async fn insights_of_a_restricted_dashboard_are_not_editable_by_others() {
    let app = with_dashboards().await;
    let insight = made(&app, json!({"name": "a", "dashboards": [3]})).await;
    let levels = |insight: &Value| {
        (insight["effective_restriction_level"].clone(), insight["effective_privilege_level"].clone())
    };
    assert_eq!(levels(&insight), (json!(37), json!(37)));
    let path = one(&insight["id"]);
    let seen = app.call(Keys::MEMBER, "GET", &path, Value::Null).await.expect(200);
    assert_eq!(levels(&seen), (json!(37), json!(21)));
    let refused = app.call(Keys::MEMBER, "PATCH", &path, json!({"name": [1]})).await;
    let detail = "This insight is on a dashboard that can only be edited by its owner, team members invited to editing the dashboard, and project admins.";
    refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    let detail = "You don't have permission to add insights to dashboard: 3";
    let refused = app.call(Keys::MEMBER, "POST", INSIGHTS, json!({"dashboards": [1, 3]})).await;
    refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    // On a dashboard that all members can edit it is editable too, and stays there.
    let open = app.patch(&path, json!({"dashboards": [3, 1]})).await.expect(200);
    assert_eq!(levels(&open), (json!(37), json!(37)));
    let changed =
        app.call(Keys::MEMBER, "PATCH", &path, json!({"name": "b", "dashboards": [3, 1]})).await.expect(200);
    assert_eq!((&changed["name"], levels(&changed)), (&json!("b"), (json!(37), json!(37))));
}

#[tokio::test]
async fn the_filters_of_a_dashboard_apply_to_its_insights() {
    let app = with_dashboards().await;
    let insight = made(&app, json!({"query": views(), "dashboards": [1]})).await;
    let path = one(&insight["id"]);
    let got = app.get(&format!("{path}?from_dashboard=1&refresh=true")).await.expect(200);
    assert_eq!(got["query"]["source"]["dateRange"]["date_from"], "-14d");
    assert_eq!(got["result"][0]["data"].as_array().unwrap().len(), 15);
    assert_eq!((&got["layouts"], &got["color"]), (&json!({}), &Value::Null));
    assert_ne!(got["filters_hash"], insight["filters_hash"]);
    let over = "filters_override=%7B%22date_from%22%3A%22-2d%22%7D";
    let got = app.get(&format!("{path}?from_dashboard=1&{over}")).await.expect(200);
    assert_eq!(got["query"]["source"]["dateRange"]["date_from"], "-2d");
    for ignored in ["from_dashboard=2", "from_dashboard=4", "from_dashboard=x", ""] {
        let got = app.get(&format!("{path}?{ignored}")).await.expect(200);
        assert_eq!((&got["query"], &got["result"]), (&views(), &Value::Null), "{ignored}");
        assert!(got.get("layouts").is_none() && got.get("color").is_none());
    }
    app.services.app.keys.clear();
    app.round_trips.reset();
    app.get(&format!("{path}?from_dashboard=1")).await.expect(200);
    assert_eq!(app.round_trips.sequential(), 2, "{:?}", app.round_trips.calls());
}

#[tokio::test]
async fn reading_one_takes_two_round_trips_and_a_list_three() {
    let app = with_views().await;
    let path = one(&made(&app, json!({"query": views()})).await["id"]);
    app.get(&format!("{path}?refresh=blocking")).await.expect(200);
    for (path, most) in [(path.clone(), 2), (format!("{path}?basic=true"), 1), (INSIGHTS.to_owned(), 3)] {
        app.services.app.keys.clear();
        app.round_trips.reset();
        app.get(&path).await.expect(200);
        assert!(app.round_trips.sequential() <= most, "{path}: {:?}", app.round_trips.calls());
    }
}
