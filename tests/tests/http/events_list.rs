//! The list of events over HTTP: fields, filters, pages, and rejected parameters.

use std::io::Write as _;

use pennon::delete::DeleteRequest;
use pennon::import::{ImportOptions, import_file};
use pennon_eventstore::{ErasureTarget, Event};
use pennon_tests::{Keys, Random, TestApp, noise, now_micros, percent_encoded};
use serde_json::{Value, json};
use uuid::Uuid;

const EVENTS: &str = "/api/projects/1/events/";

fn at(minute: u32) -> String {
    format!("2026-01-04T01:{minute:02}:00Z")
}

/// The whole list, page after page.
async fn follow(app: &TestApp, query: &str) -> Vec<Value> {
    let (mut path, mut all) = (format!("{EVENTS}?{query}"), Vec::new());
    for _ in 0..100 {
        let page = app.get(&path).await.expect(200);
        all.extend(page["results"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_str() else { return all };
        path = next.strip_prefix("http://api.test").unwrap().to_owned();
    }
    panic!("the pages do not end: {path}");
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

/// A device has a view and is identified as Ann, who buys; Bob has a view.
async fn shop() -> TestApp {
    let app = TestApp::new().await;
    let events = json!([
        {"event": "looked", "distinct_id": "device", "timestamp": at(1),
            "uuid": "00000000-0000-4000-8000-000000000001", "properties": {"page": "/a", "price": 5}},
        {"event": "looked", "distinct_id": "bob", "timestamp": at(2), "properties": {"page": "/b", "$groups": {"company": "c1"}}},
        {"event": "$identify", "distinct_id": "ann", "timestamp": at(3),
            "properties": {"$anon_distinct_id": "device", "$set": {"email": "ann@example.com", "plan": "pro"}}},
        {"event": "bought", "distinct_id": "ann", "timestamp": at(4), "properties": {"price": 50.0, "gone": null}},
    ]);
    app.capture(events).await;
    app
}

#[tokio::test]
async fn an_event_is_listed_at_once_and_alike_after_its_compaction() {
    let app = shop().await;
    let page = app.get(EVENTS).await.expect(200);
    assert_eq!(page["next"], Value::Null);
    let events = page["results"].as_array().unwrap();
    assert_eq!(names(events), ["bought", "$identify", "looked", "looked"], "the newest first");
    let first = &events[3];
    assert_eq!(first["id"], "00000000-0000-4000-8000-000000000001");
    assert_eq!(
        (&first["distinct_id"], &first["timestamp"]),
        (&json!("device"), &json!("2026-01-04T01:01:00Z"))
    );
    assert_eq!((&first["properties"]["page"], &first["properties"]["price"]), (&json!("/a"), &json!(5)));
    assert_eq!((&first["elements"], &first["elements_chain"]), (&json!([]), &json!("")));
    let person = &first["person"];
    assert_eq!(person["properties"], json!({"email": "ann@example.com"}), "what names a person, and no more");
    assert_eq!((&person["is_identified"], &person["distinct_ids"]), (&json!(true), &json!(["device"])));
    assert_eq!(events[0]["person"]["id"], person["id"], "the device is Ann");
    assert_ne!(events[2]["person"]["id"], person["id"]);
    assert_eq!(events[0]["properties"]["price"].to_string(), "50.0");
    assert_eq!(events[0]["properties"].get("gone"), Some(&Value::Null));
    let listed = app.get("/api/projects/1/persons/?distinct_id=ann").await.expect(200);
    assert_eq!(listed["results"][0]["id"], person["id"]);
    assert_eq!(app.get("/api/environments/1/events").await.expect(200), page);
    app.compact().await;
    assert_eq!(app.get(EVENTS).await.expect(200), page, "out of a segment");
    app.capture(json!([{"event": "later", "distinct_id": "bob", "timestamp": at(9)}])).await;
    let both = app.get(EVENTS).await.expect(200);
    assert_eq!(both["results"][0]["event"], "later");
    assert_eq!(both["results"].as_array().unwrap()[1..], events[..]);
}

#[tokio::test]
async fn events_are_found_by_name_person_time_and_properties() {
    let app = shop().await;
    for round in ["in blocks", "in a segment"] {
        let found = async |query: String| {
            let page = app.get(&format!("{EVENTS}?{query}")).await.expect(200);
            let events = page["results"].as_array().unwrap().clone();
            events
                .iter()
                .map(|event| event["timestamp"].as_str().unwrap()[14..16].to_owned())
                .collect::<Vec<_>>()
        };
        let with = |properties: Value| format!("properties={}", percent_encoded(&properties.to_string()));
        let of = async |distinct_id: &str| {
            let page =
                app.get(&format!("/api/projects/1/persons/?distinct_id={distinct_id}")).await.expect(200);
            page["results"][0]["id"].as_str().unwrap().to_owned()
        };
        assert_eq!(found("event=looked".into()).await, ["02", "01"], "{round}");
        assert_eq!(found("event=unknown".into()).await, [""; 0]);
        assert_eq!(found("distinct_id=device".into()).await, ["01"], "{round}");
        assert_eq!(found("distinct_id=unknown".into()).await, [""; 0]);
        let ann = of("ann").await;
        assert_eq!(found(format!("person_id={ann}")).await, ["04", "03", "01"], "{round}");
        assert_eq!(found(format!("person_id={ann}&event=looked")).await, ["01"]);
        assert_eq!(found(format!("person_id={}", of("bob").await)).await, ["02"]);
        assert_eq!(found(format!("person_id={}", Uuid::from_u128(5))).await, [""; 0]);
        assert_eq!(
            found(format!("after={}&before={}", at(1), at(4))).await,
            ["03", "02"],
            "bounds are left out"
        );
        assert_eq!(found("after=2026-01-05".into()).await, [""; 0]);
        assert_eq!(found(with(json!([{"key": "price", "operator": "gt", "value": 5}]))).await, ["04"]);
        let either = json!({"type": "OR", "values": [
            {"key": "page", "value": "/b"}, {"key": "event", "value": "bought", "type": "event_metadata"}]});
        assert_eq!(found(with(either)).await, ["04", "02"], "{round}");
        let of_company = json!([{"key": "$group_1", "value": "c1", "type": "event"}]);
        assert_eq!(found(with(of_company)).await, ["02"], "{round}");
        assert_eq!(found("properties=[]&event=&distinct_id=&cursor=".into()).await.len(), 4);
        app.compact().await;
    }
}

#[tokio::test]
async fn imported_events_and_erased_persons() {
    let app = shop().await;
    let lines = (0..3).map(|n| {
        json!({"project": "1", "event": "imported", "distinct_id": if n == 1 { "bob" } else { "cy" }, "timestamp": at(30 + n)})
    });
    let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    lines.for_each(|line| writeln!(file, "{line}").unwrap());
    let options = ImportOptions::default();
    import_file(&app.services.events, file.path(), options, now_micros(), &mut |_| {}).await.unwrap();
    let all = follow(&app, "limit=2").await;
    assert_eq!(names(&all)[..4], ["imported", "imported", "imported", "bought"]);
    assert_eq!(follow(&app, "limit=3&distinct_id=bob").await.len(), 2);
    let (store, events) = (&app.services.app.store, &app.services.events);
    let request = DeleteRequest { project: 1, target: ErasureTarget::Person("bob".to_owned()) };
    request.erase(store, events, &|| now_micros() + 1).await.unwrap();
    let left = follow(&app, "limit=2").await;
    assert_eq!(names(&left), ["imported", "imported", "bought", "$identify", "looked"]);
    assert!(left.iter().all(|event| event["distinct_id"] != "bob"), "{left:?}");
}

/// What the list must be: times in descending order, and of equal ones the last to arrive first.
#[derive(Default)]
struct Model(Vec<(i64, usize, Uuid)>);

impl Model {
    fn add(&mut self, time: i64, uuid: Uuid) {
        self.0.push((time, self.0.len(), uuid));
    }

    /// The first `limit` events behind `below`.
    fn page(&self, below: Option<(i64, usize)>, limit: usize) -> Vec<(i64, usize, Uuid)> {
        let behind = self.0.iter().filter(|(time, at, _)| below.is_none_or(|below| (*time, *at) < below));
        let mut behind = behind.copied().collect::<Vec<_>>();
        behind.sort_unstable_by(|a, b| b.cmp(a));
        behind.truncate(limit);
        behind
    }
}

#[tokio::test]
async fn pages_give_every_event_once_while_captures_and_compactions_go_on() {
    for seed in [3, 17, 29] {
        let app = TestApp::new().await;
        let (mut random, mut model) = (Random::new(seed), Model::default());
        let capture = async |random: &mut Random, model: &mut Model| {
            let mut events = Vec::new();
            for _ in 0..=random.below(40) {
                // Few different times, so that many events share one.
                let second = random.below(20) as i64;
                let uuid = Uuid::from_u128(u128::from(random.number()) << 64 | u128::from(random.number()));
                events.push(json!({"event": format!("e{}", random.below(4)), "uuid": uuid,
                    "distinct_id": format!("p{}", random.below(30)), "timestamp": format!("2026-01-04T01:00:{second:02}Z")}));
                model.add(second, uuid);
            }
            app.capture(json!(events)).await;
        };
        for _ in 0..6 {
            capture(&mut random, &mut model).await;
            if random.below(2) == 0 {
                app.compact().await;
            }
        }
        let (mut path, mut below, mut seen) = (format!("{EVENTS}?limit=7"), None, 0);
        loop {
            let page = app.get(&path).await.expect(200);
            let expected = model.page(below, 7);
            let listed = page["results"].as_array().unwrap();
            let listed = listed.iter().map(|event| event["id"].as_str().unwrap().parse().unwrap());
            assert_eq!(
                listed.collect::<Vec<Uuid>>(),
                expected.iter().map(|(.., uuid)| *uuid).collect::<Vec<_>>(),
                "seed {seed}, after {seen}"
            );
            seen += expected.len();
            below = expected.last().map(|(time, at, _)| (*time, *at));
            let Some(next) = page["next"].as_str() else {
                assert!(model.page(below, 1).is_empty(), "seed {seed}: a page without next is the last");
                break;
            };
            path = next.strip_prefix("http://api.test").unwrap().to_owned();
            match random.below(3) {
                0 => capture(&mut random, &mut model).await,
                1 => app.compact().await,
                _ => {}
            }
        }
        assert!(seen >= 7, "seed {seed}: {seen} events");
    }
}

#[tokio::test]
async fn a_rare_event_is_found_over_several_pages_each_of_bounded_work() {
    let app = TestApp::new().await;
    let event = |n: i64| Event {
        uuid: Uuid::from_u128(n as u128 + 1),
        event: "seen".to_owned(),
        distinct_id: format!("p{}", n % 50),
        timestamp: now_micros() - n * 1_000_000,
        properties: json!({"rare": n == 10 || n == 24_990}).as_object().unwrap().clone(),
    };
    for part in 0..25 {
        let events = (part * 1000..(part + 1) * 1000).map(event).collect::<Vec<_>>();
        app.services.events.append(1, &events, now_micros()).await.unwrap();
    }
    app.compact().await;
    let rare = percent_encoded(&json!([{"key": "rare", "value": ["true"]}]).to_string());
    let first = app.get(&format!("{EVENTS}?properties={rare}")).await.expect(200);
    assert_eq!(first["results"].as_array().unwrap().len(), 1, "{first}");
    assert!(first["next"].is_string(), "20,000 events were examined and 5,000 were not");
    let all = follow(&app, &format!("properties={rare}")).await;
    let ids = all.iter().map(|event| event["id"].as_str().unwrap().parse::<Uuid>().unwrap().as_u128());
    assert_eq!(ids.collect::<Vec<_>>(), [11, 24_991]);
    // A full page, and one past it.
    let full = app.get(&format!("{EVENTS}?limit=1000")).await.expect(200);
    assert_eq!(full["results"].as_array().unwrap().len(), 1000);
    assert_eq!(full["results"][999]["id"], json!(Uuid::from_u128(1000)));
}

#[tokio::test]
async fn invalid_parameters_are_rejected_by_name() {
    let app = shop().await;
    let refused = async |query: String, code: &str, field: &str| {
        app.get(&format!("{EVENTS}?{query}")).await.expect_field_error(code, field);
    };
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=ten", "limit"),
        ("limit=-1", "limit"),
        ("after=yesterday", "after"),
        ("before=2026-13-01", "before"),
        ("before=1704368738", "before"),
        ("person_id=ann", "person_id"),
        ("cursor=1", "cursor"),
        ("cursor=1_2_3", "cursor"),
        ("orderBy=%5B%22timestamp%22%5D", "orderBy"),
        ("action_id=3", "action_id"),
        ("where=%5B%5D", "where"),
        ("select=%5B%5D", "select"),
        ("offset=10", "offset"),
        ("format=csv", "format"),
        ("properties=%7B", "properties"),
        ("properties=7", "properties"),
    ] {
        refused(query.to_owned(), "invalid_input", field).await;
    }
    for kind in ["person", "cohort", "session", "element"] {
        let filter = json!([{"key": if kind == "cohort" { "id" } else { "text" }, "value": 1, "type": kind}]);
        refused(
            format!("properties={}", percent_encoded(&filter.to_string())),
            "invalid_input",
            "properties",
        )
        .await;
    }
    for field in ["event", "distinct_id"] {
        app.get(&format!("{EVENTS}?{field}={}", "x".repeat(1000))).await.expect(200);
        refused(format!("{field}={}", "x".repeat(1001)), "max_length", field).await;
    }
    app.get(&format!("{EVENTS}?limit=1000&orderBy=%5B%22-timestamp%22%5D")).await.expect(200);
    let weak = app.call(Keys::READ_FLAGS, "GET", EVENTS, Value::Null).await.expect(403);
    assert_eq!(weak["detail"], "API key missing required scope 'query:read'");
    app.call(Keys::OWNER, "POST", EVENTS, json!({})).await.expect(405);
}

#[tokio::test]
async fn lists_wait_for_few_round_trips_and_read_few_objects() {
    let app = shop().await;
    app.compact().await;
    app.capture(json!([{"event": "later", "distinct_id": "bob", "timestamp": at(9)}])).await;
    let mut taken = Vec::new();
    for (what, path, trips, gets) in [
        ("events", EVENTS, 6, 12),
        ("values of events", "/api/projects/1/events/values/?key=price", 3, 8),
        ("values of persons", "/api/projects/1/persons/values/?key=plan", 3, 6),
        ("names of events", "/api/projects/1/event_definitions/", 3, 4),
        ("names of properties", "/api/projects/1/property_definitions/", 3, 4),
    ] {
        // A process with cold caches.
        let app = app.metered();
        app.services.app.keys.wait_for_background_writes().await;
        app.services.app.keys.clear();
        app.round_trips.reset();
        app.meter.take();
        app.get(path).await.expect(200);
        let (waited, read) = (app.round_trips.sequential(), app.meter.take().gets);
        if waited > trips || read > gets {
            taken.push(format!("{what}: {waited} trips and {read} objects: {:?}", app.round_trips.calls()));
        }
    }
    assert!(taken.is_empty(), "{}", taken.join("\n"));
}

/// Bytes of an object that are read together, because they share a checksum.
const CHECKSUM_UNIT: u64 = 4096;
/// What opening an event file reads: its footer and its checksums.
const OPENED: u64 = 128 * 1024 + 2 * CHECKSUM_UNIT + 8 * 1024;

/// Bytes of event files that a request reads in a process with cold caches, and of a second one in the same process.
async fn bytes_read(app: &TestApp, path: &str) -> (u64, u64) {
    let app = app.metered();
    app.meter.take();
    app.get(path).await.expect(200);
    let first = app.meter.take().bytes;
    app.get(path).await.expect(200);
    (first, app.meter.take().bytes)
}

#[tokio::test]
async fn lists_read_no_more_of_event_files_than_documented() {
    let app = TestApp::new().await;
    let event = |n: usize| Event {
        uuid: Uuid::from_u128(n as u128 + 1),
        event: "seen".to_owned(),
        distinct_id: format!("p{}", n % 50),
        timestamp: now_micros() - n as i64 * 1_000_000,
        properties: json!({"price": n, "text": noise(n as u64, 500)}).as_object().unwrap().clone(),
    };
    for part in 0..2 {
        let events = (part * 4000..(part + 1) * 4000).map(event).collect::<Vec<_>>();
        app.services.events.append(1, &events, now_micros()).await.unwrap();
        app.compact().await;
    }
    let (texts, _) = bytes_read(&app, "/api/projects/1/events/values/?key=text").await;
    assert!(texts > 3_000_000, "{texts}: the column with the texts is most of both files");
    for path in ["/api/projects/1/event_definitions/", "/api/projects/1/property_definitions/"] {
        let (first, second) = bytes_read(&app, path).await;
        assert!(first > 0 && first <= 2 * OPENED, "{path}: {first} bytes");
        assert_eq!(second, 0, "{path}: footers are cached by the process");
    }
    // One column of the events, besides the footers: 8,000 numbers, and where the events are.
    let (numbers, _) = bytes_read(&app, "/api/projects/1/events/values/?key=price").await;
    assert!(numbers <= 2 * OPENED + 500_000, "{numbers}");
    // A page that finds nothing ends at 20,000 events or 64 MiB; these are fewer.
    let none = percent_encoded(&json!([{"key": "price", "value": ["none"]}]).to_string());
    let (page, _) = bytes_read(&app, &format!("{EVENTS}?properties={none}")).await;
    assert!(page <= 64 << 20, "{page}");
}

#[tokio::test]
async fn a_page_of_large_events_ends_at_three_million_bytes() {
    let app = TestApp::new().await;
    let event = |n: usize| Event {
        uuid: Uuid::from_u128(n as u128 + 1),
        event: "seen".to_owned(),
        distinct_id: "p".to_owned(),
        timestamp: now_micros() - n as i64 * 1_000_000,
        properties: json!({"text": noise(n as u64, 199_989)}).as_object().unwrap().clone(),
    };
    assert_eq!(json!(event(0).properties).to_string().len(), 200_000);
    let events = (0..31).map(event).collect::<Vec<_>>();
    for part in events.chunks(8) {
        app.services.events.append(1, part, now_micros()).await.unwrap();
    }
    for round in ["in blocks", "in a segment"] {
        let first = app.get(&format!("{EVENTS}?limit=1000")).await.expect(200);
        let listed = first["results"].as_array().unwrap();
        assert_eq!(listed.len(), 15, "{round}: the page ends with the event that reaches 3,000,000 bytes");
        let ids = follow(&app, "limit=1000").await;
        let ids = ids.iter().map(|event| event["id"].as_str().unwrap().parse::<Uuid>().unwrap().as_u128());
        assert_eq!(ids.collect::<Vec<_>>(), (1..=31).collect::<Vec<_>>(), "{round}");
        app.compact().await;
    }
}
