//! Public links to insights.

use pennon_core::payload_keys::PayloadKeys;
use pennon_core::store::{Item, Key, PartitionQuery, keys};
use pennon_tests::{Fault, Faults, Keys, TestApp, TestResponse};
use serde_json::{Value, json};

const INSIGHTS: &str = "/api/projects/1/insights/";

fn sharing(id: u64) -> String {
    format!("{INSIGHTS}{id}/sharing/")
}

async fn made(app: &TestApp, body: Value) -> u64 {
    app.post(INSIGHTS, body).await.expect(201)["id"].as_u64().unwrap()
}

/// Switches sharing on and returns the token.
async fn shared(app: &TestApp, id: u64) -> String {
    let shown = app.patch(&sharing(id), json!({"enabled": true})).await.expect(200);
    shown["access_token"].as_str().unwrap().to_owned()
}

async fn by_link(app: &TestApp, path: &str, token: &str) -> TestResponse {
    let join = if path.contains('?') { '&' } else { '?' };
    app.call("", "GET", &format!("{path}{join}sharing_access_token={token}"), Value::Null).await
}

fn refused(response: &TestResponse) {
    let detail = "Sharing access token is invalid.";
    response.expect_error(401, "authentication_error", "authentication_failed", detail, None);
}

/// The activities of the insight's log, newest first.
async fn log(app: &TestApp, id: u64) -> Vec<String> {
    let log = app.get(&format!("{INSIGHTS}{id}/activity/")).await.expect(200);
    log["results"].as_array().unwrap().iter().map(|it| it["activity"].as_str().unwrap().to_owned()).collect()
}

/// Every row of sharing, of any insight of project 1.
async fn stored(app: &TestApp) -> Vec<Item> {
    app.services.app.store.records.query(PartitionQuery::partition("PROJECT#1#SHARING")).await.unwrap()
}

#[tokio::test]
async fn an_insight_is_unshared_until_a_change_and_reading_writes_nothing() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "x"})).await;
    let first = app.get(&sharing(id)).await.expect(200);
    let token = first["access_token"].as_str().unwrap().to_owned();
    assert!(token.len() == 30 && token.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it)));
    let expected = json!({"created_at": null, "enabled": false, "access_token": token, "settings": null,
                          "password_required": false, "share_passwords": []});
    assert_eq!(first, expected);
    assert_eq!(app.get(&format!("{INSIGHTS}{id}/sharing")).await.expect(200), expected);
    assert_eq!(app.another_process().get(&sharing(id)).await.expect(200), expected);
    assert!(stored(&app).await.is_empty());
    refused(&by_link(&app, &format!("{INSIGHTS}{id}/"), &token).await);
    let other = made(&app, json!({"name": "y"})).await;
    assert_ne!(app.get(&sharing(other)).await.expect(200)["access_token"], token);

    let on = app.patch(&sharing(id), json!({"enabled": true})).await.expect(200);
    assert_eq!((&on["enabled"], &on["access_token"]), (&json!(true), &json!(token)), "the same token");
    assert_eq!(on["created_at"], "2026-01-05T10:00:00Z");
    assert_eq!(app.get(&sharing(id)).await.expect(200), on);
    let rows = stored(&app).await;
    assert!(rows.len() == 1 && !rows[0].text.contains(&token), "only the hash of a token is stored");
    assert_eq!(log(&app, id).await, ["sharing enabled", "created"]);
    let entry = app.get(&format!("{INSIGHTS}{id}/activity/?limit=1")).await.expect(200)["results"][0].clone();
    let change =
        json!([{"type": "Insight", "action": "changed", "field": "sharing", "before": null, "after": true}]);
    assert_eq!((&entry["detail"]["changes"], &entry["detail"]["name"]), (&change, &json!("x")));
}

#[tokio::test]
async fn a_link_opens_one_insight_for_reading_while_sharing_is_on() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "shown", "filters": {"events": [{"id": "viewed"}]}})).await;
    let other = made(&app, json!({"name": "hidden"})).await;
    let token = shared(&app, id).await;
    let path = format!("{INSIGHTS}{id}/");
    let one = by_link(&app, &path, &token).await.expect(200);
    assert_eq!((&one["name"], &one["user_access_level"]), (&json!("shown"), &json!("viewer")));
    assert_eq!(one["effective_privilege_level"], 21);
    let environment = format!("/api/environments/1/insights/{id}?basic=true");
    assert_eq!(by_link(&app, &environment, &token).await.expect(200)["id"], id);
    let list = by_link(&app, INSIGHTS, &token).await.expect(200);
    assert_eq!((&list["count"], &list["results"][0]["id"]), (&json!(1), &json!(id)));
    assert_eq!(by_link(&app, &format!("{INSIGHTS}?search=hidden"), &token).await.expect(200)["count"], 0);
    assert_eq!(by_link(&app, &format!("{INSIGHTS}?created_by=77"), &token).await.expect(200)["count"], 0);
    let table = by_link(&app, &format!("{path}?format=csv"), &token).await;
    assert_eq!((table.status.as_u16(), table.header("content-type")), (200, "text/csv; charset=utf-8"));

    // Nothing else.
    by_link(&app, &format!("{INSIGHTS}{other}/"), &token).await.expect_error(
        404,
        "invalid_request",
        "not_found",
        "Not found.",
        None,
    );
    for path in [
        format!("/api/projects/2/insights/{id}/"),
        "/api/projects/2/insights/".to_owned(),
        "/api/projects/@current/insights/".to_owned(),
        "/api/projects/77/insights/".to_owned(),
    ] {
        refused(&by_link(&app, &path, &token).await);
    }
    for wrong in ["x", &"x".repeat(5000), &token[1..], &format!("{token}A")] {
        refused(&by_link(&app, &path, wrong).await);
        refused(&by_link(&app, INSIGHTS, wrong).await);
    }
    for path in [
        sharing(id),
        format!("{path}activity/"),
        format!("{INSIGHTS}my_last_viewed/"),
        "/api/projects/1/feature_flags/".to_owned(),
        format!("{INSIGHTS}trend/"),
    ] {
        assert_eq!(by_link(&app, &path, &token).await.status, 401, "{path}");
    }
    let detail = "Sharing access token can only be used for GET requests.";
    for (method, path) in [("POST", INSIGHTS.to_owned()), ("PATCH", path.clone()), ("DELETE", path.clone())] {
        let path = format!("{path}?sharing_access_token={token}");
        for key in ["", Keys::OWNER] {
            let response = app.call(key, method, &path, json!({"name": "taken"})).await;
            response.expect_error(401, "authentication_error", "authentication_failed", detail, None);
        }
    }
    assert_eq!(app.get(&path).await.expect(200)["name"], "shown");

    // Off, and on again with the same token; deleted, and back.
    app.patch(&sharing(id), json!({"enabled": false})).await.expect(200);
    refused(&by_link(&app, &path, &token).await);
    assert_eq!(shared(&app, id).await, token);
    by_link(&app, &path, &token).await.expect(200);
    app.patch(&path, json!({"deleted": true})).await.expect(200);
    assert_eq!(by_link(&app, &path, &token).await.status, 404);
    assert_eq!(by_link(&app, INSIGHTS, &token).await.expect(200)["count"], 0);
    let gone = app.get(&sharing(id)).await;
    gone.expect_error(404, "invalid_request", "not_found", "Insight not found.", None);
    app.patch(&path, json!({"deleted": false})).await.expect(200);
    by_link(&app, &path, &token).await.expect(200);
}

/// Override filters are a query of the events, which a sharing link does not allow.
#[tokio::test]
async fn a_link_shows_the_insight_as_it_is_stored() {
    let dashboards = json!([{"project": "1", "id": 5, "name": "Five", "filters": {"date_from": "-1d"}}]);
    let app = TestApp::with(json!({"dashboards": dashboards})).await;
    let filters = json!({"events": [{"id": "viewed"}], "date_from": "-30d", "insight": "TRENDS"});
    let id = made(&app, json!({"name": "x", "filters": filters, "dashboards": [5]})).await;
    let token = shared(&app, id).await;
    let over = "filters_override=%7B%22date_from%22%3A%22-2d%22%7D&from_dashboard=5";
    let path = format!("{INSIGHTS}{id}/?{over}");
    assert_eq!(app.get(&path).await.expect(200)["filters"]["date_from"], "-2d");
    let linked = by_link(&app, &path, &token).await.expect(200);
    assert_eq!((&linked["filters"], linked.get("layouts")), (&filters, None));
    let listed = by_link(&app, &format!("{INSIGHTS}?{over}"), &token).await.expect(200);
    assert_eq!(listed["results"][0]["filters"], filters);
    // A calculation cannot be forced: a fresh result is kept.
    let calculated = by_link(&app, &format!("{INSIGHTS}{id}/?refresh=blocking"), &token).await.expect(200);
    assert_eq!(calculated["is_cached"], false);
    let again = by_link(&app, &format!("{INSIGHTS}{id}/?refresh=force_blocking"), &token).await.expect(200);
    assert_eq!(again["is_cached"], true);
}

#[tokio::test]
async fn a_new_token_replaces_the_previous_one() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "x"})).await;
    let path = format!("{INSIGHTS}{id}/");
    let first = shared(&app, id).await;
    let refreshed = app.post(&format!("{}refresh/", sharing(id)), json!({})).await.expect(200);
    let second = refreshed["access_token"].as_str().unwrap();
    assert_ne!(first, second);
    assert_eq!(refreshed["enabled"], true);
    assert_eq!(app.get(&sharing(id)).await.expect(200), refreshed);
    refused(&by_link(&app, &path, &first).await);
    by_link(&app, &path, second).await.expect(200);
    let words = log(&app, id).await;
    assert_eq!(words, ["updated", "sharing enabled", "created"]);
    let entry = app.get(&format!("{path}activity/")).await.text;
    assert!(!entry.contains(&first) && !entry.contains(second), "no log has a token");

    // While sharing is off the new token opens nothing either, and is the one that is switched on.
    app.patch(&sharing(id), json!({"enabled": false})).await.expect(200);
    let third = app.post(&format!("{}refresh/", sharing(id)), Value::Null).await.expect(200);
    let third = third["access_token"].as_str().unwrap();
    refused(&by_link(&app, &path, third).await);
    assert_eq!(shared(&app, id).await, third);
    by_link(&app, &path, third).await.expect(200);
    for old in [&first, second] {
        refused(&by_link(&app, &path, old).await);
    }
}

#[tokio::test]
async fn known_settings_are_stored() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "x"})).await;
    let sent = json!({"theme": "dark", "whitelabel": true, "noHeader": "yes", "legend": null, "unknown": 1});
    let shown = app.patch(&sharing(id), json!({"settings": sent, "other": 2})).await.expect(200);
    let kept = json!({"theme": "dark", "whitelabel": true, "noHeader": true, "legend": null});
    assert_eq!((&shown["settings"], &shown["enabled"]), (&kept, &json!(false)));
    assert_eq!(app.patch(&sharing(id), json!({"enabled": true})).await.expect(200)["settings"], kept);
    assert_eq!(app.patch(&sharing(id), json!({"settings": null})).await.expect(200)["settings"], Value::Null);
    assert_eq!(log(&app, id).await, ["sharing enabled", "created"], "settings alone are not logged");
    let boolean = "Must be a valid boolean.";
    for (body, code, detail, attr) in [
        (json!({"enabled": "maybe"}), "invalid_input", boolean, "enabled"),
        (json!({"enabled": null}), "null", "This field may not be null.", "enabled"),
        (
            json!({"settings": [1]}),
            "not_a_dict",
            "Expected a dictionary of items but got type \"list\".",
            "settings",
        ),
        (json!({"settings": {"detailed": 7}}), "invalid_input", boolean, "settings__detailed"),
        (json!({"settings": {"theme": []}}), "invalid_input", "Not a valid string.", "settings__theme"),
    ] {
        app.patch(&sharing(id), body).await.expect_invalid(code, detail, Some(attr));
    }
    assert_eq!(
        app.get(&sharing(id)).await.expect(200)["settings"],
        Value::Null,
        "a refused body changes nothing"
    );
    // Each switch is logged, and a repetition never.
    for enabled in [true, false, false, true] {
        app.patch(&sharing(id), json!({"enabled": enabled})).await.expect(200);
    }
    let words = ["sharing enabled", "sharing disabled", "sharing enabled", "created"];
    assert_eq!(log(&app, id).await, words);
    let nameless = made(&app, json!({})).await;
    shared(&app, nameless).await;
    assert!(log(&app, nameless).await.is_empty());
}

#[tokio::test]
async fn only_those_who_may_edit_an_insight_share_it() {
    let key = |scopes: &[&str], value: &str| json!({"label": value, "user": "member@example.com", "scopes": scopes, "projects": [], "value": value});
    let keys = json!([
        key(&["insight:write", "sharing_configuration:read"], "phx_reads_sharing"),
        key(&["sharing_configuration:write"], "phx_writes_sharing")
    ]);
    let dashboards = json!([{"project": "1", "id": 5, "name": "Five", "restriction_level": 37, "created_by": "owner@example.com"}]);
    let app = TestApp::with(json!({"keys": keys, "dashboards": dashboards})).await;
    let open = made(&app, json!({"name": "open"})).await;
    let closed = made(&app, json!({"name": "closed", "dashboards": [5]})).await;
    let on = json!({"enabled": true});
    let refused = app.call("phx_reads_sharing", "PATCH", &sharing(open), on.clone()).await;
    let detail = "API key missing required scope 'sharing_configuration:write'";
    refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
    app.call("phx_reads_sharing", "GET", &sharing(open), Value::Null).await.expect(200);
    app.call("phx_writes_sharing", "PATCH", &sharing(open), on.clone()).await.expect(200);
    app.call("phx_writes_sharing", "GET", &sharing(closed), Value::Null).await.expect(200);
    for (method, path) in [("PATCH", sharing(closed)), ("POST", format!("{}refresh/", sharing(closed)))] {
        assert_eq!(app.call("phx_writes_sharing", method, &path, on.clone()).await.status, 403);
        assert_eq!(app.call(Keys::OWNER, method, &path, on.clone()).await.status, 200);
    }
    for unknown in ["99", "x"] {
        let path = format!("{INSIGHTS}{unknown}/sharing/");
        for response in [app.get(&path).await, app.patch(&path, on.clone()).await] {
            response.expect_error(404, "invalid_request", "not_found", "Insight not found.", None);
        }
    }
    let foreign = format!("/api/projects/2/insights/{open}/sharing/");
    assert_eq!(app.patch(&foreign, on.clone()).await.status, 404);
    assert_eq!(
        app.call(Keys::OWNER, "PUT", &sharing(open), on.clone()).await.header("allow"),
        "GET, HEAD, OPTIONS, PATCH"
    );
    let mut text = TestApp::request(Keys::OWNER, "PATCH", &sharing(open), on);
    text.headers_mut().insert("content-type", "text/plain".parse().unwrap());
    assert_eq!(app.send(text).await.status, 415);
}

#[tokio::test]
async fn an_installation_without_a_key_generates_a_secret_once() {
    let app = TestApp::new().await.with_payload_keys(PayloadKeys::default());
    let id = made(&app, json!({"name": "x"})).await;
    let paths = [sharing(id), sharing(id)];
    let shown = futures::future::join_all(paths.iter().map(|path| app.get(path))).await;
    let token = shown[0].expect(200)["access_token"].as_str().unwrap().to_owned();
    assert_eq!(shown[1].expect(200)["access_token"], token, "also of two who come first");
    assert_eq!(shared(&app, id).await, token);
    by_link(&app, &format!("{INSIGHTS}{id}/"), &token).await.expect(200);
    let secret = app.services.app.store.records.get(&keys::sharing_secret()).await.unwrap().unwrap();
    assert!(secret.text.len() > 40);
    // An installation that gets a key later returns existing tokens, and makes new ones with the key.
    let keyed = app.with_payload_keys(PayloadKeys::parse(&"A".repeat(43)).unwrap());
    assert_eq!(keyed.get(&sharing(id)).await.expect(200)["access_token"], token);
    let second = keyed.post(&format!("{}refresh/", sharing(id)), json!({})).await.expect(200);
    by_link(&keyed, &format!("{INSIGHTS}{id}/"), second["access_token"].as_str().unwrap()).await.expect(200);
    refused(&by_link(&keyed, &format!("{INSIGHTS}{id}/"), &token).await);
    // If that key is lost, links still work and cannot be returned until there is a new token.
    let lost = keyed.with_payload_keys(PayloadKeys::parse(&format!("B{}", "A".repeat(42))).unwrap());
    let response = lost.get(&sharing(id)).await;
    assert_eq!((response.status.as_u16(), &response.json()["code"]), (503, &json!("missing_key")));
    by_link(&lost, &format!("{INSIGHTS}{id}/"), second["access_token"].as_str().unwrap()).await.expect(200);
    let third = lost.post(&format!("{}refresh/", sharing(id)), json!({})).await.expect(200);
    assert_eq!(lost.get(&sharing(id)).await.expect(200)["access_token"], third["access_token"]);
    refused(&by_link(&lost, &format!("{INSIGHTS}{id}/"), second["access_token"].as_str().unwrap()).await);
}

#[tokio::test]
async fn links_have_rate_limits_of_their_own() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "x"})).await;
    let token = shared(&app, id).await;
    let app = app.limited("burst=2,sustained=100".parse().unwrap());
    let path = format!("{INSIGHTS}{id}/");
    for status in [200, 200, 429] {
        assert_eq!(by_link(&app, &path, &token).await.status, status);
    }
    app.get(&path).await.expect(200);
}

/// After any interruption, the row of a token exists exactly while sharing is on.
#[tokio::test]
async fn a_failing_store_never_leaves_half_a_change() {
    let faults =
        Faults::new(11, &[(Fault::Conflict, 150), (Fault::ResponseLost, 100), (Fault::RequestLost, 100)]);
    let app = TestApp::failing(&faults).await;
    let id = loop {
        let response = app.post(INSIGHTS, json!({"name": "x"})).await;
        if response.status == 201 {
            break response.json()["id"].as_u64().unwrap();
        }
    };
    let refresh = format!("{}refresh/", sharing(id));
    let calls = (0..60).map(|number| {
        let (app, refresh) = (&app, &refresh);
        async move {
            match number % 3 {
                0 => app.patch(&sharing(id), json!({"enabled": true})).await,
                1 => app.patch(&sharing(id), json!({"enabled": false})).await,
                _ => app.post(refresh, json!({})).await,
            }
        }
    });
    for response in futures::future::join_all(calls).await {
        assert!(matches!(response.status.as_u16(), 200 | 503), "{}", response.text);
    }
    faults.stop();
    for enabled in [false, true] {
        let shown = app.get(&sharing(id)).await.expect(200);
        let hash = pennon_core::auth::sharing_token_hash(shown["access_token"].as_str().unwrap());
        let row = app.services.app.store.records.get(&keys::share(&hash)).await.unwrap();
        assert_eq!(row.is_some(), shown["enabled"] == true);
        app.patch(&sharing(id), json!({"enabled": enabled})).await.expect(200);
    }
    let record: Value = stored(&app).await[0].body().unwrap();
    let row = Key::new(format!("SHARE#{}", record["hash"].as_str().unwrap()), "SHARE");
    assert!(app.services.app.store.records.get(&row).await.unwrap().is_some());
    // Every switch is logged and nothing else: on and off alternate.
    let words = app.get(&format!("{INSIGHTS}{id}/activity/?limit=1000")).await.expect(200);
    let flips =
        words["results"].as_array().unwrap().iter().filter_map(|entry| match entry["activity"].as_str() {
            Some("sharing enabled") => Some(true),
            Some("sharing disabled") => Some(false),
            _ => None,
        });
    let flips: Vec<bool> = flips.collect();
    let (on, off) = (flips.iter().filter(|on| **on).count(), flips.iter().filter(|on| !**on).count());
    assert_eq!(on, off + 1, "it is on now, and was off at first");
}
