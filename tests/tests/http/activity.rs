//! The activity log of flags over HTTP.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use pennon_core::activity::{Entry, writes};
use pennon_core::ids::new_uuid;
use pennon_core::model::User;
use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const FLAGS: &str = "/api/projects/1/feature_flags/";
const LOG: &str = "/api/projects/1/feature_flags/activity/";

fn one(id: u64) -> String {
    format!("{FLAGS}{id}/")
}

fn log_of(id: u64) -> String {
    format!("{FLAGS}{id}/activity/")
}

/// The changes of the newest entry of a flag.
async fn newest_changes(app: &TestApp, id: u64) -> Value {
    app.get(&log_of(id)).await.expect(200)["results"][0]["detail"]["changes"].clone()
}

fn change(action: &str, field: &str, before: Value, after: Value) -> Value {
    json!({"type": "FeatureFlag", "action": action, "field": field, "before": before, "after": after})
}

#[tokio::test]
async fn an_entry_has_the_fields_of_the_contract() {
    let app = TestApp::new().await;
    let id = app.flag("omega-feature").await;
    let body = json!({"name": "Updated name", "filters": {"groups": [{"properties": [], "rollout_percentage": 74}]}});
    app.at("2026-01-05T10:10:00.000001Z", "PATCH", &one(id), body).await.expect(200);
    let response = app.get(&log_of(id)).await;
    let got = response.expect(200);
    assert_eq!(response.header("content-type"), "application/json");
    let user = json!({"first_name": "Olive", "email": "owner@example.com"});
    let created = json!({
        "id": got["results"][1]["id"], "user": user, "activity": "created", "scope": "FeatureFlag", "item_id": "1",
        "created_at": "2026-01-05T10:00:00Z",
        "detail": {"changes": [], "trigger": null, "type": null, "name": "omega-feature", "short_id": null},
    });
    let updated = json!({
        "id": got["results"][0]["id"], "user": user, "activity": "updated", "scope": "FeatureFlag", "item_id": "1",
        "created_at": "2026-01-05T10:10:00.000001Z",
        "detail": {
            "changes": [
                change("created", "name", Value::Null, json!("Updated name")),
                // Stored values are compared, and there was none: the shown default is not a former value.
                change("created", "filters", Value::Null, json!({"groups": [{"properties": [], "rollout_percentage": 74}]})),
                change("changed", "version", json!(1), json!(2)),
            ],
            "trigger": null, "type": null, "name": "omega-feature", "short_id": null,
        },
    });
    let expected = json!({"results": [updated, created], "next": null, "previous": null, "total_count": 2});
    assert_eq!(response.text, expected.to_string(), "fields and their order");
    assert_eq!(app.get(LOG).await.text, expected.to_string());
    assert_eq!(app.get("/api/environments/1/feature_flags/activity").await.text, expected.to_string());
    let ids: HashSet<&str> =
        got["results"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert!(ids.len() == 2 && ids.iter().all(|id| id.parse::<uuid::Uuid>().is_ok()));
}

#[tokio::test]
async fn each_logged_field_is_created_changed_or_deleted() {
    let app = TestApp::new().await;
    let body = json!({"key": "a", "name": "A", "filters": {"groups": [{"rollout_percentage": 10}]}});
    let id = app.post(FLAGS, body).await.expect(201)["id"].as_u64().unwrap();
    let mut version = 1;
    let mut updated = async |body: Value| -> Vec<Value> {
        app.patch(&one(id), body).await.expect(200);
        let changes = newest_changes(&app, id).await;
        let mut changes = changes.as_array().unwrap().clone();
        let at = changes.iter().position(|it| it["field"] == "version").expect("the version");
        assert_eq!(changes.remove(at), change("changed", "version", json!(version), json!(version + 1)));
        version += 1;
        changes
    };
    assert_eq!(updated(json!({})).await, [] as [Value; 0], "a write that changes nothing else");
    let changes = updated(json!({"name": "", "filters": {"groups": [{"rollout_percentage": 20}]}})).await;
    let filters = |rollout: u64| json!({"groups": [{"rollout_percentage": rollout}]});
    assert_eq!(
        changes,
        [
            change("deleted", "name", json!("A"), Value::Null),
            change("changed", "filters", filters(10), filters(20))
        ]
    );
    let same = json!({"name": "", "filters": {"groups": [{"rollout_percentage": 20.0}]}, "active": true});
    assert_eq!(
        updated(same).await,
        [change("created", "performed_rollback", Value::Null, json!(false))],
        "false is a value, and equal values are no change"
    );
    assert_eq!(
        updated(json!({"active": false})).await,
        [change("changed", "active", json!(true), json!(false))]
    );
    let tags = updated(json!({"tags": ["web", " Beta"]})).await;
    assert_eq!(tags, [change("changed", "tags", json!([]), json!(["beta", "web"]))]);
    let tags = updated(json!({"tags": []})).await;
    assert_eq!(tags, [change("changed", "tags", json!(["beta", "web"]), json!([]))]);
    let several = json!({
        "evaluation_runtime": "server", "is_remote_configuration": true, "ensure_experience_continuity": true,
        "has_enriched_analytics": true, "rollback_conditions": [{"x": 1}], "key": "b", "bucketing_identifier": null,
        "last_called_at": "2026-01-01T00:00:00Z", "created_at": "2025-01-01T00:00:00Z", "_create_in_folder": "x",
    });
    let fields: Vec<Value> = updated(several).await.iter().map(|it| it["field"].clone()).collect();
    let expected = json!([
        "key",
        "rollback_conditions",
        "ensure_experience_continuity",
        "has_enriched_analytics",
        "is_remote_configuration",
        "evaluation_runtime",
        "bucketing_identifier"
    ]);
    assert_eq!(json!(fields), expected, "logged fields in the log's order, and no others");
    let newest = app.get(&log_of(id)).await.expect(200)["results"][0].clone();
    assert_eq!(newest["detail"]["name"], "b", "the key after the write");
    let cleared = updated(json!({"rollback_conditions": []})).await;
    assert_eq!(cleared, [change("deleted", "rollback_conditions", json!([{"x": 1}]), Value::Null)]);
}

#[tokio::test]
async fn deletion_and_restoration_have_their_own_activities() {
    let app = TestApp::new().await;
    let id = app.flag("d").await;
    app.call(Keys::MEMBER, "PATCH", &one(id), json!({"deleted": true})).await.expect(200);
    let gone = app.get(&log_of(id)).await.expect(200);
    assert_eq!((&gone["total_count"], &gone["results"][0]["activity"]), (&json!(2), &json!("deleted")));
    app.patch(&one(id), json!({"deleted": true})).await.expect(200);
    app.patch(&one(id), json!({"deleted": false})).await.expect(200);
    let log = app.get(&log_of(id)).await.expect(200);
    let entries = log["results"].as_array().unwrap();
    let words: Vec<&str> = entries.iter().map(|it| it["activity"].as_str().unwrap()).collect();
    assert_eq!(words, ["restored", "updated", "deleted", "created"]);
    let deleted = |before: bool| change("changed", "deleted", json!(before), json!(!before));
    let version = |before: u64| change("changed", "version", json!(before), json!(before + 1));
    assert_eq!(entries[0]["detail"]["changes"], json!([deleted(true), version(3)]));
    assert_eq!(entries[2]["detail"]["changes"], json!([deleted(false), version(1)]));
    assert_eq!(entries[2]["user"], json!({"first_name": "Mel", "email": "member@example.com"}));
}

#[tokio::test]
async fn the_log_of_a_flag_requires_the_flag_and_stays_when_its_key_is_reused() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    let foreign = app.post("/api/projects/2/feature_flags/", json!({"key": "b"})).await.expect(201)["id"]
        .as_u64()
        .unwrap();
    for path in
        [log_of(99_999_999), log_of(foreign), format!("{FLAGS}abc/activity"), format!("{FLAGS}1.5/activity")]
    {
        let missing = app.get(&format!("{path}?limit=0")).await;
        assert_eq!((missing.status.as_u16(), missing.text.as_str()), (404, ""), "{path}");
    }
    app.patch(&one(id), json!({"deleted": true})).await.expect(200);
    assert_eq!(app.get(&log_of(id)).await.expect(200)["total_count"], 2);
    app.flag("a").await;
    assert_eq!(app.get(&log_of(id)).await.expect(200)["total_count"], 2);
    let all = app.get(LOG).await.expect(200);
    let items: Vec<&str> =
        all["results"].as_array().unwrap().iter().map(|it| it["item_id"].as_str().unwrap()).collect();
    assert_eq!((items, &all["total_count"]), (vec!["3", "1", "1"], &json!(3)));
    let second = app.get("/api/projects/2/feature_flags/activity").await.expect(200);
    assert_eq!(second["total_count"], 1);
    let current =
        app.call(Keys::ONLY_SECOND, "GET", "/api/projects/@current/feature_flags/activity/", Value::Null);
    assert_eq!(current.await.expect(200)["results"], second["results"]);
    let own = format!("/api/projects/@current/feature_flags/{foreign}/activity/");
    let own = app.call(Keys::ONLY_SECOND, "GET", &own, Value::Null).await.expect(200);
    assert_eq!(own["results"], second["results"]);
    for path in [LOG.to_owned(), log_of(id)] {
        let refused = app.call(Keys::READ_FLAGS, "GET", &path, Value::Null).await;
        let detail = "API key missing required scope 'activity_log:read'";
        refused.expect_error(403, "authentication_error", "permission_denied", detail, None);
        assert_eq!(app.call(Keys::OWNER, "POST", &path, json!({})).await.status, 405);
    }
}

#[tokio::test]
async fn pages_have_limits_links_and_an_end() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    for number in 2..=25 {
        app.patch(&one(id), json!({"name": number.to_string()})).await.expect(200);
    }
    let versions = async |path: &str| -> Vec<u64> {
        let page = app.get(path).await.expect(200);
        assert_eq!(page["total_count"], 25, "{path}");
        let version = |entry: &Value| {
            let changes = entry["detail"]["changes"].as_array().unwrap();
            changes.last().map_or(1, |change| change["after"].as_u64().unwrap())
        };
        page["results"].as_array().unwrap().iter().map(version).collect()
    };
    for log in [LOG.to_owned(), log_of(id)] {
        // Entries of one instant are in reverse order of writing.
        assert_eq!(versions(&log).await, (16..=25).rev().collect::<Vec<u64>>());
        assert_eq!(versions(&format!("{log}?page=3")).await, (1..=5).rev().collect::<Vec<u64>>());
        assert_eq!(versions(&format!("{log}?limit=25")).await, (1..=25).rev().collect::<Vec<u64>>());
        assert_eq!(versions(&format!("{log}?limit=7&page=2")).await, (12..=18).rev().collect::<Vec<u64>>());
        assert_eq!(versions(&format!("{log}?limit=3&page=8")).await, [4, 3, 2]);
        for beyond in ["page=4", "page=99999999999999999999999", "limit=25&page=2", "limit=1000&page=1000000"]
        {
            assert_eq!(versions(&format!("{log}?{beyond}")).await, [] as [u64; 0]);
        }
    }
    let links = async |query: &str| {
        let page = app.get(&format!("/api/projects/1/feature_flags/activity{query}")).await.expect(200);
        let link =
            |name: &str| page[name].as_str().map(|url| url.rsplit_once("/activity").unwrap().1.to_owned());
        (link("next"), link("previous"))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(links("").await, (some("?page=2&limit=10"), None));
    assert_eq!(
        links("?limit=10&x=a%20b&page=2").await,
        (some("?limit=10&x=a%20b&page=3"), some("?limit=10&x=a%20b&page=1"),)
    );
    assert_eq!(links("?limit=20").await, (some("?limit=20&page=2"), None));
    assert_eq!(links("?page=3").await, (None, some("?page=2&limit=10")));
    assert_eq!(links("?page=5").await, (None, some("?page=4&limit=10")));
    assert_eq!(links("?limit=1001&page=2").await, (None, some("?limit=1000&page=1")));
    let first = app.get(&format!("{LOG}?page=1")).await.expect(200);
    assert_eq!(first["next"], format!("http://api.test{LOG}?page=2&limit=10"));

    for (query, attr) in
        [("limit=0", "limit"), ("page=0", "page"), ("limit=-1", "limit"), ("limit=5&page=-3", "page")]
    {
        for log in [LOG.to_owned(), log_of(id)] {
            let refused = app.get(&format!("{log}?{query}")).await;
            let detail = "Ensure this value is greater than or equal to 1.";
            refused.expect_invalid("min_value", detail, Some(attr));
        }
    }
    for (query, attr) in
        [("limit=abc", "limit"), ("page=1.5", "page"), ("limit=", "limit"), ("page=x&limit=1", "page")]
    {
        let refused = app.get(&format!("{LOG}?{query}")).await;
        refused.expect_invalid("invalid_input", "A valid integer is required.", Some(attr));
    }
}

/// Round trips with a cold key, one after the other.
#[tokio::test]
async fn a_page_of_the_log_takes_one_round_trip_and_that_of_a_flag_two() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    for (month, name) in [(1, "one"), (2, "two"), (3, "three")] {
        for day in [3, 4] {
            let now = format!("2026-{month:02}-{day:02}T10:00:00Z");
            app.at(&now, "PATCH", &one(id), json!({"name": name, "active": day == 3})).await.expect(200);
        }
    }
    let waits = async |path: &str, now: &str| {
        app.services.app.keys.clear();
        app.round_trips.reset();
        let response = app.at(now, "GET", path, Value::Null).await.expect(200);
        assert_eq!(response["total_count"], 7);
        app.round_trips.sequential()
    };
    let march = "2026-03-05T00:00:00Z";
    assert_eq!(waits(&format!("{LOG}?limit=2"), march).await, 1, "the newest month has the page");
    assert_eq!(waits(LOG, march).await, 2, "older months have the rest");
    assert_eq!(waits(LOG, "2026-07-05T00:00:00Z").await, 2, "nothing this month");
    assert_eq!(waits(&format!("{LOG}?limit=1&page=4"), march).await, 3, "a page further inside");
    assert_eq!(waits(&format!("{LOG}?page=9"), march).await, 1, "a page beyond the end");
    assert_eq!(waits(&log_of(id), march).await, 2, "a flag's own");
    assert_eq!(
        waits(&format!("{}?limit=2&page=2", log_of(id)), march).await,
        2,
        "a flag's own, further inside"
    );
}

/// Writing 10,000 entries takes a while in a debug build; `PENNON_TEST_LOG_ENTRIES` is their number.
fn many() -> usize {
    std::env::var("PENNON_TEST_LOG_ENTRIES").map_or(1_300, |text| text.parse().unwrap())
}

/// Entries of flags with long filters: a page above the gateway's limit is compressed, or rejected with the largest possible limit.
#[tokio::test]
async fn a_page_that_is_too_large_is_compressed_or_rejected_with_the_largest_limit() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    for number in 0..16 {
        let long = format!("{number}").repeat(220_000 / number.to_string().len());
        let property = json!({"key": "k", "type": "person", "value": long, "operator": "exact"});
        app.patch(&one(id), json!({"filters": {"groups": [{"properties": [property]}]}})).await.expect(200);
    }
    let requesting = async |log: &str, limit: usize, encoding: &str| {
        let mut request = TestApp::request(Keys::OWNER, "GET", &format!("{log}?limit={limit}"), Value::Null);
        request.headers_mut().insert("accept-encoding", encoding.parse().unwrap());
        app.send(request).await
    };
    for log in [LOG.to_owned(), log_of(id)] {
        let refused = requesting(&log, 100, "identity").await.expect(400);
        assert_eq!((&refused["code"], &refused["attr"]), (&json!("invalid_input"), &json!("limit")));
        let detail = refused["detail"].as_str().unwrap();
        let words =
            detail.strip_prefix("The response is too large. The largest limit that fits here is ").unwrap();
        let most: usize = words.strip_suffix('.').unwrap().parse().unwrap();
        assert!((10..16).contains(&most), "{detail}");
        let fits = requesting(&log, most, "identity").await;
        assert_eq!(fits.expect(200)["results"].as_array().unwrap().len(), most);
        assert_eq!(requesting(&log, most + 1, "identity").await.status, 400);
        let packed = requesting(&log, 100, "gzip").await;
        assert_eq!((packed.status.as_u16(), packed.header("content-encoding")), (200, "gzip"));
    }
}

/// Writes `total` entries of two items, `id` and 5000, as a change would; items and ids of the entries, oldest first.
async fn write_log(app: &TestApp, id: u64, total: usize) -> Vec<(u64, String)> {
    let user = User {
        id: 1,
        uuid: uuid::Uuid::nil(),
        distinct_id: "user-1".to_owned(),
        first_name: "Olive".to_owned(),
        last_name: String::new(),
        email: "owner@example.com".to_owned(),
        is_email_verified: None,
        hedgehog_config: None,
        role_at_organization: None,
    };
    let detail = json!({"changes": [], "trigger": null, "type": null, "name": "a", "short_id": null});
    // A few in each of two months, then most of them on one day, many at one instant.
    let instant = |number: usize| -> DateTime<Utc> {
        let text = match number {
            0..10 => format!("2025-11-{:02}T00:00:00Z", number + 1),
            10..40 => format!("2025-12-{:02}T08:00:00.{number:06}Z", number - 9),
            number => format!("2026-01-04T00:00:00.{:06}Z", number / 1000),
        };
        text.parse().unwrap()
    };
    let mut written = Vec::new();
    let numbers: Vec<usize> = (0..total).collect();
    for numbers in numbers.chunks(33) {
        let entries: Vec<_> = numbers
            .iter()
            .map(|number| {
                let (at, detail) = (instant(*number), detail.clone());
                let item = if number % 8 == 0 { 5000 } else { id };
                (
                    Entry { scope: "FeatureFlag", item, activity: "updated", user: &user, at, detail },
                    new_uuid(),
                )
            })
            .collect();
        let borrowed: Vec<_> = entries.iter().map(|(entry, id)| (entry, *id)).collect();
        app.services.app.store.records.transact(writes(1, &borrowed).unwrap()).await.unwrap();
        written.extend(entries.iter().map(|(entry, id)| (entry.item, id.to_string())));
    }
    written
}

/// The ids of a page's entries, which are `total` in all, after checking everything else of the response.
async fn ids_of_page(app: &TestApp, log: &str, limit: usize, page: usize, total: usize) -> Vec<String> {
    app.services.app.keys.clear();
    app.round_trips.reset();
    let response = app.get(&format!("{log}?limit={limit}&page={page}")).await.expect(200);
    // One round trip for key and days, two for the page; one more to count a flag's log of more than a thousand entries, two
    // for a large page, and one for each megabyte of entries that are passed over.
    let large = if limit > 100 { 2 } else { 0 };
    let passed_over = total / 2 * 700 / 1_000_000;
    let waits = app.round_trips.sequential();
    assert!(waits <= 4 + large + passed_over, "{waits} waits for page {page} of {limit}");
    assert_eq!(response["total_count"], total);
    assert_eq!(response["next"].is_null(), page * limit >= total);
    response["results"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_long_log_has_the_right_entries_on_every_page() {
    let app = TestApp::new().await;
    let id = app.flag("a").await;
    let mut expected = write_log(&app, id, many() - 1).await;
    // The flag's creation is the newest: later than all of them.
    let created = app.get(&format!("{LOG}?limit=1")).await.expect(200);
    let newest = &created["results"][0];
    assert_eq!((&newest["activity"], &created["total_count"]), (&json!("created"), &json!(many())));
    expected.push((id, newest["id"].as_str().unwrap().to_owned()));
    expected.reverse();
    let all: Vec<String> = expected.iter().map(|(_, id)| id.clone()).collect();
    let own: Vec<String> =
        expected.iter().filter(|(item, _)| *item == id).map(|(_, id)| id.clone()).collect();
    for (log, entries) in [(LOG.to_owned(), all), (log_of(id), own)] {
        let last = entries.len().div_ceil(100);
        let by_hundreds = [1, 2, last / 2, last - 1, last, 100].map(|page| (100, page));
        let others = [(10, 1), (10, 100), (37, 30), (1000, 1), (1000, 2)];
        for (limit, page) in by_hundreds.into_iter().chain(others) {
            let expected: Vec<String> =
                entries.iter().skip((page - 1) * limit).take(limit).cloned().collect();
            let found = ids_of_page(&app, &log, limit, page, entries.len()).await;
            assert_eq!(found, expected, "page {page} of {limit} of {log}");
        }
    }
}
