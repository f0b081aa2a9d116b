//! The persons of a project over HTTP: records, filters, and rejected parameters.

use std::collections::BTreeSet;

use pennon_eventstore::PersonRecord;
use pennon_tests::{Keys, TestApp, as_worker, percent_encoded};
use serde_json::{Value, json};

const PERSONS: &str = "/api/projects/1/persons/";

fn record(ids: &[&str], created_at: Option<i64>, properties: Value) -> PersonRecord {
    PersonRecord {
        distinct_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        properties: properties.as_object().unwrap().clone(),
        created_at,
    }
}

/// Ann was imported, with two distinct ids; Bob and Cy were captured, Cy after a visit as a device.
async fn world() -> TestApp {
    let app = TestApp::new().await;
    let now = app.services.app.clock.now(None).timestamp_micros();
    let ann =
        record(&["ann", "ann@home"], Some(1_000_000), json!({"email": "Ann@Example.com", "plan": "pro"}));
    app.services.events.add_persons(1, vec![ann], now).await.unwrap();
    for (event, who, properties) in [
        ("seen", "bob", json!({"$set": {"name": "Bob Example"}})),
        ("seen", "device", json!({})),
        ("$identify", "cy", json!({"$anon_distinct_id": "device", "$set": {"email": "cy@else.org"}})),
    ] {
        send(&app, json!({"event": event, "distinct_id": who, "properties": properties})).await;
    }
    app
}

async fn send(app: &TestApp, mut event: Value) {
    event["api_key"] = json!("phc_project_1");
    app.call("", "POST", "/capture/", event).await.expect(200);
}

fn names(page: &Value) -> Vec<&str> {
    page["results"].as_array().unwrap().iter().map(|person| person["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_newest_come_first_with_all_fields() {
    let app = world().await;
    let page = app.get(PERSONS).await.expect(200);
    assert_eq!((&page["count"], &page["next"], &page["previous"]), (&json!(3), &Value::Null, &Value::Null));
    assert_eq!(names(&page)[2], "Ann@Example.com", "{page}");
    assert_eq!(
        names(&page).into_iter().collect::<BTreeSet<_>>(),
        ["Ann@Example.com", "Bob Example", "cy@else.org"].into()
    );
    let ann = &page["results"][2];
    assert_eq!(ann["distinct_ids"], json!(["ann", "ann@home"]));
    assert_eq!(ann["properties"], json!({"email": "Ann@Example.com", "plan": "pro"}));
    assert_eq!((&ann["created_at"], &ann["is_identified"]), (&json!("1970-01-01T00:00:01Z"), &json!(true)));
    assert_eq!((&ann["type"], &ann["id"]), (&json!("person"), &ann["uuid"]));
    let of = |name: &str| {
        page["results"].as_array().unwrap().iter().find(|person| person["name"] == name).unwrap().clone()
    };
    assert_eq!(of("cy@else.org")["distinct_ids"], json!(["device", "cy"]));
    assert_eq!(
        (&of("cy@else.org")["is_identified"], &of("Bob Example")["is_identified"]),
        (&json!(true), &json!(false))
    );
    assert!(of("Bob Example")["created_at"].as_str().unwrap().starts_with("20"));
    // The same list, whatever the path is called and once the events are compacted.
    assert_eq!(app.get("/api/environments/1/persons").await.expect(200), page);
    let now = app.services.app.clock.now(None).timestamp_micros();
    as_worker(app.services.events.compact(1, now)).await.unwrap();
    assert_eq!(app.get(PERSONS).await.expect(200), page);
}

#[tokio::test]
async fn a_person_is_found_by_ids_and_properties() {
    let app = world().await;
    let found = async |query: &str| {
        let page = app.get(&format!("{PERSONS}?{query}")).await.expect(200);
        assert_eq!(page["count"], page["results"].as_array().unwrap().len());
        names(&page).into_iter().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let only = |name: &str| BTreeSet::from([name.to_owned()]);
    let (ann, bob, cy) = ("Ann@Example.com", "Bob Example", "cy@else.org");
    assert_eq!(found("distinct_id=ann%40home").await, only(ann));
    assert_eq!(found("distinct_id=device").await, only(cy), "merged by the identification");
    assert_eq!(found("distinct_id=unknown").await, BTreeSet::new());
    assert_eq!(found("distinct_id=ann&email=cy%40else.org").await, BTreeSet::new());
    assert_eq!(found("email=Ann%40Example.com").await, only(ann));
    assert_eq!(found("email=ann%40example.com").await, BTreeSet::new());
    assert_eq!(found("search=EXAMPLE").await, BTreeSet::from([ann.to_owned(), bob.to_owned()]));
    assert_eq!(found("search=device").await, only(cy), "a distinct id as a whole");
    assert_eq!(found("search=devic").await, BTreeSet::new());
    assert_eq!(found("search=&distinct_id=&email=&properties=[]").await.len(), 3);
    let with = |properties: Value| format!("properties={}", percent_encoded(&properties.to_string()));
    let pro = json!({"key": "plan", "value": "pro", "operator": "exact", "type": "person"});
    let named = json!({"key": "name", "operator": "is_set", "value": "is_set"});
    assert_eq!(found(&with(json!([pro]))).await, only(ann));
    assert_eq!(found(&with(json!([{"key": "plan", "operator": "is_not", "value": "pro"}]))).await.len(), 2);
    assert_eq!(found(&with(json!([pro, named]))).await, BTreeSet::new());
    let either = with(json!({"type": "OR", "values": [pro, named]}));
    assert_eq!(found(&either).await, BTreeSet::from([ann.to_owned(), bob.to_owned()]));
    assert_eq!(found(&format!("{either}&search=bob")).await, only(bob));
    assert_eq!(found(&format!("{either}&distinct_id=device")).await, BTreeSet::new());
    let bob_id = app.get(&format!("{PERSONS}?distinct_id=bob")).await.expect(200)["results"][0]["id"].clone();
    let bob_id = bob_id.as_str().unwrap();
    assert_eq!(found(&format!("search={bob_id}")).await, only(bob));
    let one = app.get(&format!("{PERSONS}{bob_id}/")).await.expect(200);
    assert_eq!((&one["name"], &one["distinct_ids"]), (&json!(bob), &json!(["bob"])));
    // Bob is merged into Ann: his id finds her.
    let merge = json!({"event": "$merge_dangerously", "distinct_id": "ann", "properties": {"alias": "bob"}});
    send(&app, merge).await;
    let one = app.get(&format!("{PERSONS}{bob_id}/")).await.expect(200);
    assert_eq!(one["distinct_ids"], json!(["ann", "ann@home", "bob"]));
    assert_eq!(one["properties"]["name"], bob, "the properties of both stay");
    assert_eq!(app.get(PERSONS).await.expect(200)["count"], 2);
}

#[tokio::test]
async fn pages_contain_each_person_once() {
    let app = TestApp::new().await;
    let created = |n: i64| Some(1_000_000 * (n % 3));
    let persons = (0..7).map(|n| record(&[&format!("p{n}")], created(n), json!({"name": format!("P{n}")})));
    app.services.events.add_persons(1, persons.collect(), 1).await.unwrap();
    let (mut seen, mut path, mut previous) = (Vec::new(), format!("{PERSONS}?limit=2&search=p"), None);
    loop {
        let page = app.get(&path).await.expect(200);
        assert_eq!((&page["count"], page["previous"].as_str()), (&json!(7), previous.as_deref()));
        let of = page["results"].as_array().unwrap().iter();
        seen.extend(of.map(|person| (person["created_at"].clone().to_string(), person["name"].to_string())));
        let Some(next) = page["next"].as_str() else { break };
        previous = Some(if seen.len() == 2 {
            format!("http://api.test{PERSONS}?limit=2&search=p")
        } else {
            format!("http://api.test{PERSONS}?limit=2&offset={}&search=p", seen.len() - 2)
        });
        path = next.strip_prefix("http://api.test").unwrap().to_owned();
    }
    assert!(seen.is_sorted_by(|a, b| a.0 >= b.0), "{seen:?}");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 7);
}

#[tokio::test]
async fn unsupported_parameters_are_rejected_by_name() {
    let app = world().await;
    let refused = async |path: String, code: &str, field: &str| {
        app.get(&path).await.expect_field_error(code, field);
    };
    for wrong in [
        "{",
        "7",
        r#"{"email":"x"}"#,
        r#"[{"key":"plan","value":"pro","type":"event"}]"#,
        r#"[{"key":"id","value":3,"type":"cohort"}]"#,
        r#"[{"key":"plan","operator":"near","value":"pro"}]"#,
    ] {
        refused(format!("{PERSONS}?properties={}", percent_encoded(wrong)), "invalid_input", "properties")
            .await;
    }
    refused(format!("{PERSONS}?cohort=3"), "invalid_input", "cohort").await;
    refused(format!("{PERSONS}ann/"), "invalid_input", "id").await;
    app.get(&format!("{PERSONS}?search={}", "x".repeat(1000))).await.expect(200);
    for field in ["search", "email", "distinct_id"] {
        refused(format!("{PERSONS}?{field}={}", "x".repeat(1001)), "max_length", field).await;
    }
    let no_person = format!("{PERSONS}00000000-0000-7000-8000-000000000001/");
    app.get(&no_person).await.expect_error(404, "invalid_request", "not_found", "Not found.", None);
    let weak = app.call(Keys::NO_SCOPES, "GET", PERSONS, Value::Null).await.expect(403);
    assert_eq!(weak["detail"], "API key missing required scope 'person:read'");
    app.call(Keys::OWNER, "POST", PERSONS, json!({})).await.expect(405);
}
