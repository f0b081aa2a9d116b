//! The names of events and properties over HTTP, and the values of properties.

use pennon_eventstore::PersonRecord;
use pennon_tests::{Keys, TestApp, now_micros, percent_encoded};
use serde_json::{Value, json};

const EVENTS: &str = "/api/projects/1/event_definitions/";
const PROPERTIES: &str = "/api/projects/1/property_definitions/";
const VALUES: &str = "/api/projects/1/events/values/";
const PERSON_VALUES: &str = "/api/projects/1/persons/values/";

fn names(page: &Value) -> Vec<&str> {
    page["results"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

fn values(response: &Value) -> Vec<Value> {
    response.as_array().unwrap().iter().map(|one| one["name"].clone()).collect()
}

/// Three names of events over some days, of which the first was last seen long ago.
async fn shop() -> TestApp {
    let app = TestApp::new().await;
    let events = json!([
        {"event": "signed up", "distinct_id": "ann", "timestamp": "2025-11-01T01:00:00Z", "properties": {"plan": "pro", "$lib": "web"}},
        {"event": "$pageview", "distinct_id": "ann", "timestamp": "2026-01-02T01:00:00Z",
            "properties": {"$browser": "Firefox", "$feature/new": "on", "tags": ["a", "b"], "$set": {"plan": "pro", "age": 41}}},
        {"event": "$pageview", "distinct_id": "bob", "timestamp": "2026-01-04T02:00:00Z",
            "properties": {"$browser": "Safari", "tags": ["a"], "$set": {"plan": "free"}}},
        {"event": "bought", "distinct_id": "bob", "timestamp": "2026-01-04T01:00:00Z",
            "properties": {"price": 12.5, "gift": true, "plan": "free", "mixed": 1}},
        {"event": "bought", "distinct_id": "bob", "timestamp": "2026-01-03T01:00:00Z",
            "properties": {"price": 7, "gift": false, "note": null, "mixed": "x"}},
    ]);
    app.capture(events).await;
    app
}

#[tokio::test]
async fn names_of_events_are_listed_at_once_with_first_and_last_time() {
    let app = shop().await;
    let page = app.get(EVENTS).await.expect(200);
    assert_eq!((&page["count"], &page["next"], &page["previous"]), (&json!(3), &Value::Null, &Value::Null));
    // Both last seen on one day: by name.
    assert_eq!(names(&page), ["$pageview", "bought", "signed up"]);
    let pageview = &page["results"][0];
    assert_eq!(pageview["created_at"], "2026-01-02T01:00:00Z");
    assert_eq!(pageview["last_seen_at"], "2026-01-04T02:00:00Z");
    assert_eq!(
        (&pageview["tags"], &pageview["verified"], &pageview["volume_30_day"]),
        (&json!([]), &json!(false), &Value::Null)
    );
    let id = pageview["id"].as_str().unwrap();
    assert_eq!(&app.get(&format!("{EVENTS}{id}/")).await.expect(200), pageview);
    assert_eq!(&app.get(&format!("{EVENTS}by_name/?name=%24pageview")).await.expect(200), pageview);
    assert_eq!(app.get("/api/environments/1/event_definitions").await.expect(200), page);
    app.compact().await;
    assert_eq!(app.get(EVENTS).await.expect(200), page, "out of a segment");
    let more = json!([
        {"event": "bought", "distinct_id": "cy", "timestamp": "2026-01-05T01:00:00Z"},
        {"event": "new", "distinct_id": "cy", "timestamp": "2026-01-01T01:00:00Z"},
    ]);
    app.capture(more).await;
    let both = app.get(EVENTS).await.expect(200);
    assert_eq!(names(&both), ["bought", "$pageview", "new", "signed up"]);
    let bought = &both["results"][0];
    assert_eq!(
        (&bought["created_at"], &bought["last_seen_at"]),
        (&json!("2026-01-03T01:00:00Z"), &json!("2026-01-05T01:00:00Z"))
    );
    app.get(&format!("{EVENTS}by_name/?name=unknown")).await.expect(404);
    app.get(&format!("{EVENTS}01900000-0000-7000-8000-000000000001/")).await.expect(404);
    app.get(&format!("{EVENTS}undefined/")).await.expect(404);
    // Another project has none of them, and other ids.
    assert_eq!(app.get("/api/projects/2/event_definitions/").await.expect(200)["count"], 0);
}

#[tokio::test]
async fn names_of_events_are_narrowed_sorted_and_paged() {
    let app = shop().await;
    app.compact().await;
    let found = async |query: &str| {
        let page = app.get(&format!("{EVENTS}?{query}")).await.expect(200);
        names(&page).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(found("event_type=event_custom").await, ["bought", "signed up"]);
    assert_eq!(found("event_type=event_posthog").await, ["$pageview"]);
    assert_eq!(found("event_type=event").await.len(), 3);
    assert_eq!(found("search=UP%20sign").await, ["signed up"]);
    assert_eq!(
        found("search=e").await,
        ["$pageview", "signed up"],
        "of equally long ones the latest, else the shortest"
    );
    assert_eq!(found("ordering=name").await, ["$pageview", "bought", "signed up"]);
    assert_eq!(found("ordering=-name").await, ["signed up", "bought", "$pageview"]);
    assert_eq!(found("ordering=-created_at").await, ["bought", "$pageview", "signed up"]);
    assert_eq!(found("ordering=last_seen_at").await, ["signed up", "bought", "$pageview"]);
    assert_eq!(found("ordering=-last_seen_at::date,-name").await, ["bought", "$pageview", "signed up"]);
    assert_eq!(found("names=bought,unknown&names=%24pageview").await, ["$pageview", "bought"]);
    assert_eq!(found("excluded_properties=%5B%22bought%22%5D").await, ["$pageview", "signed up"]);
    assert_eq!(found("exclude_stale=true").await, ["$pageview", "bought"], "65 days ago");
    assert_eq!(found("exclude_hidden=true&verified=false").await.len(), 3);
    assert_eq!(found("verified=true").await, [""; 0]);
    assert_eq!(found("tags=%5B%22x%22%5D").await, [""; 0]);
    let first = app.get(&format!("{EVENTS}?limit=2")).await.expect(200);
    assert_eq!((names(&first), &first["count"]), (vec!["$pageview", "bought"], &json!(3)));
    let next = first["next"].as_str().unwrap().strip_prefix("http://api.test").unwrap();
    assert_eq!(names(&app.get(next).await.expect(200)), ["signed up"]);
}

#[tokio::test]
async fn properties_are_listed_with_the_type_of_their_values() {
    let app = shop().await;
    for round in ["in blocks", "in a segment"] {
        let page = app.get(PROPERTIES).await.expect(200);
        let of = |page: &Value| {
            let results = page["results"].as_array().unwrap().clone();
            let of = |one: Value| {
                (one["name"].as_str().unwrap().to_owned(), one["property_type"].as_str().map(str::to_owned))
            };
            results.into_iter().map(of).collect::<Vec<_>>()
        };
        let expected = [
            ("$browser", Some("String")),
            ("$feature/new", Some("String")),
            ("$lib", Some("String")),
            ("gift", Some("Boolean")),
            ("mixed", None),
            ("note", None),
            ("plan", Some("String")),
            ("price", Some("Numeric")),
            ("tags", None),
        ];
        let expected = expected.map(|(name, of)| (name.to_owned(), of.map(str::to_owned)));
        assert_eq!(of(&page), expected, "{round}: without $set, whose values libraries define differently");
        let price = &page["results"][7];
        assert_eq!(
            (&price["is_numerical"], &price["is_seen_on_filtered_events"]),
            (&json!(true), &Value::Null)
        );
        let one = app.get(&format!("{PROPERTIES}{}/", price["id"].as_str().unwrap())).await.expect(200);
        assert_eq!(&one, price);
        let persons = app.get(&format!("{PROPERTIES}?type=person")).await.expect(200);
        assert_eq!(
            of(&persons),
            [("age".to_owned(), Some("Numeric".to_owned())), ("plan".to_owned(), Some("String".to_owned()))]
        );
        let plan = &persons["results"][1];
        let plan_of_events = &page["results"][6];
        assert_ne!(plan["id"], plan_of_events["id"], "of a person and of an event are two");
        assert_eq!(
            &app.get(&format!("{PROPERTIES}{}/", plan["id"].as_str().unwrap())).await.expect(200),
            plan
        );
        app.compact().await;
    }
    app.get(&format!("{PROPERTIES}01900000-0000-7000-8000-000000000001/")).await.expect(404);
    let sessions = app.get(&format!("{PROPERTIES}?type=session&search=duration")).await.expect(200);
    assert_eq!(
        (names(&sessions), &sessions["results"][0]["property_type"]),
        (vec!["$session_duration"], &json!("Numeric"))
    );
}

#[tokio::test]
async fn properties_are_narrowed_by_name_type_and_events() {
    let app = shop().await;
    app.compact().await;
    let found = async |query: String| {
        let page = app.get(&format!("{PROPERTIES}?{query}")).await.expect(200);
        names(&page).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(found("is_numerical=true".into()).await, ["price"]);
    assert_eq!(found("is_numerical=false".into()).await.len(), 8);
    assert_eq!(found("is_feature_flag=true".into()).await, ["$feature/new"]);
    assert_eq!(found("is_feature_flag=false".into()).await.len(), 8);
    assert_eq!(found("search=PRI".into()).await, ["price"]);
    assert_eq!(found("properties=price,plan,none".into()).await, ["plan", "price"]);
    assert_eq!(found("excluded_properties=%5B%22plan%22%5D&search=p".into()).await, ["price"]);
    assert_eq!(
        found("exclude_core_properties=true".into()).await,
        ["gift", "mixed", "note", "plan", "price", "tags"]
    );
    let bought = percent_encoded(r#"["bought"]"#);
    let seen = app.get(&format!("{PROPERTIES}?event_names={bought}")).await.expect(200);
    assert_eq!(names(&seen)[..5], ["gift", "mixed", "note", "plan", "price"], "seen ones first");
    let is_seen =
        seen["results"].as_array().unwrap().iter().map(|one| one["is_seen_on_filtered_events"].clone());
    assert_eq!(is_seen.filter(|is| *is == json!(true)).count(), 5);
    assert_eq!(seen["count"], 9);
    let only = found(format!("event_names={bought}&filter_by_event_names=true")).await;
    assert_eq!(only, ["gift", "mixed", "note", "plan", "price"]);
    let both = percent_encoded(r#"["bought", "signed up"]"#);
    let only = found(format!("event_names={both}&filter_by_event_names=true")).await;
    assert_eq!(only, ["$lib", "gift", "mixed", "note", "plan", "price"]);
}

/// The newest thousand events of a name are searched: the oldest of a thousand is one of them, that of 1,001 is not.
#[tokio::test]
async fn a_thousand_events_of_a_name_are_searched_for_properties() {
    for (newer, is_found) in [(999, true), (1_000, false)] {
        let app = TestApp::new().await;
        let event = |number: usize, key: &str| {
            let time = format!("2026-01-02T{:02}:{:02}:00Z", number / 60, number % 60);
            json!({"event": "bought", "distinct_id": "ann", "timestamp": time, "properties": {key: 1}})
        };
        let mut events = vec![event(0, "oldest")];
        events.extend((1..=newer).map(|number| event(number, "newer")));
        app.capture(Value::from(events)).await;
        let names_of = percent_encoded(r#"["bought"]"#);
        let query = format!("{PROPERTIES}?event_names={names_of}&filter_by_event_names=true");
        let found = app.get(&query).await.expect(200);
        assert_eq!(names(&found).contains(&"oldest"), is_found, "{newer} newer ones");
    }
}

#[tokio::test]
async fn properties_of_groups_are_those_of_their_type() {
    let app = shop().await;
    let identify = json!([{"event": "$groupidentify", "distinct_id": "ann", "timestamp": "2026-01-04T01:00:00Z",
        "properties": {"$group_type": "company", "$group_key": "c1", "$group_set": {"seats": 5}}}]);
    app.capture(identify).await;
    let company = app.get(&format!("{PROPERTIES}?type=group&group_type_index=1")).await.expect(200);
    assert_eq!(
        (names(&company), &company["results"][0]["property_type"]),
        (vec!["seats"], &json!("Numeric"))
    );
    for other in [0, 4] {
        let none = app.get(&format!("{PROPERTIES}?type=group&group_type_index={other}")).await.expect(200);
        assert_eq!(none["count"], 0);
    }
}

#[tokio::test]
async fn values_come_by_frequency_of_recent_events_and_of_persons() {
    let app = shop().await;
    for round in ["in blocks", "in a segment"] {
        let of = async |query: &str| values(&app.get(&format!("{VALUES}?{query}")).await.expect(200));
        assert_eq!(of("key=tags").await, [json!("a"), json!("b")], "{round}: lists count by their items");
        assert_eq!(of("key=%24browser&value=FIRE").await, [json!("Firefox")]);
        assert_eq!(of("key=price").await, [json!(12.5), json!(7)]);
        assert_eq!(of("key=gift").await, [json!("false"), json!("true")]);
        assert_eq!(of("key=note").await, [Value::Null; 0], "null is no value");
        // The sign-up was long ago: only the recent value counts, and where there is none, those of all times.
        assert_eq!(of("key=plan").await, [json!("free")]);
        assert_eq!(of("key=plan&event_name=signed%20up").await, [json!("pro")]);
        assert_eq!(of("key=plan&event_name=signed%20up&event_name=bought").await, [json!("free")]);
        assert_eq!(of("key=distinct_id&is_column=true").await, [json!("bob"), json!("ann")]);
        assert_eq!(
            of("key=event&is_column=true").await,
            [json!("$pageview"), json!("bought"), json!("signed up")]
        );
        assert_eq!(of("key=custom_event").await, [json!("bought"), json!("signed up")]);
        assert_eq!(of("key=tags&limit=1").await, [json!("a")]);
        let plans = app.get(&format!("{PERSON_VALUES}?key=plan")).await.expect(200);
        assert_eq!(plans, json!([{"name": "free", "count": 1}, {"name": "pro", "count": 1}]), "{round}");
        let searched = app.get(&format!("{PERSON_VALUES}?key=plan&value=R")).await.expect(200);
        assert_eq!(values(&searched), [json!("free"), json!("pro")]);
        app.compact().await;
    }
    let record = PersonRecord {
        distinct_ids: vec!["dee".to_owned()],
        properties: json!({"plan": "pro"}).as_object().unwrap().clone(),
        created_at: None,
    };
    app.services.events.add_persons(1, vec![record], now_micros()).await.unwrap();
    let plans = app.get(&format!("{PERSON_VALUES}?key=plan")).await.expect(200);
    assert_eq!(plans[0], json!({"name": "pro", "count": 2}));
}

#[tokio::test]
async fn unknown_parameters_are_rejected_by_name() {
    let app = shop().await;
    let refused = async |path: String, code: &str, field: &str| {
        app.get(&path).await.expect_field_error(code, field);
    };
    for (query, field) in [
        ("event_type=other", "event_type"),
        ("ordering=event", "ordering"),
        ("exclude_stale=maybe", "exclude_stale"),
        ("verified=2", "verified"),
        ("excluded_properties=bought", "excluded_properties"),
        ("tags=%7B%7D", "tags"),
    ] {
        refused(format!("{EVENTS}?{query}"), "invalid_input", field).await;
    }
    for (query, field) in [
        ("type=cohort", "type"),
        ("type=group", "group_type_index"),
        ("type=group&group_type_index=5", "group_type_index"),
        ("type=person&group_type_index=0", "group_type_index"),
        ("type=person&event_names=%5B%22a%22%5D", "event_names"),
        ("event_names=a", "event_names"),
        ("is_numerical=yes", "is_numerical"),
        ("is_feature_flag=no", "is_feature_flag"),
        ("filter_by_event_names=x", "filter_by_event_names"),
    ] {
        refused(format!("{PROPERTIES}?{query}"), "invalid_input", field).await;
    }
    let list = |names: usize| {
        percent_encoded(&json!((0..names).map(|n| n.to_string()).collect::<Vec<_>>()).to_string())
    };
    app.get(&format!("{PROPERTIES}?event_names={}", list(20))).await.expect(200);
    refused(format!("{PROPERTIES}?event_names={}", list(21)), "invalid_input", "event_names").await;
    app.get(&format!("{EVENTS}?excluded_properties={}", list(1000))).await.expect(200);
    refused(format!("{EVENTS}?excluded_properties={}", list(1001)), "invalid_input", "excluded_properties")
        .await;
    app.get(&format!("{EVENTS}?search={}", "x".repeat(1000))).await.expect(200);
    refused(format!("{EVENTS}?search={}", "x".repeat(1001)), "max_length", "search").await;
    refused(format!("{EVENTS}by_name/"), "required", "name").await;
    for path in [VALUES, PERSON_VALUES] {
        refused(path.to_owned(), "required", "key").await;
        refused(format!("{path}?key=plan&limit=0"), "invalid_input", "limit").await;
        app.get(&format!("{path}?key=plan&limit=1000")).await.expect(200);
        refused(format!("{path}?key=plan&limit=1001"), "invalid_input", "limit").await;
    }
    for (path, scope) in [
        (EVENTS, "event_definition:read"),
        (PROPERTIES, "property_definition:read"),
        (VALUES, "query:read"),
        (PERSON_VALUES, "person:read"),
    ] {
        let weak = app.call(Keys::READ_FLAGS, "GET", path, Value::Null).await.expect(403);
        assert_eq!(weak["detail"], format!("API key missing required scope '{scope}'"));
    }
}
