//! Retention over HTTP: the cases of the corpus in every form of a request, the people behind a row, and all places that show
//! a saved insight.

use pennon::delete::DeleteRequest;
use pennon_eventstore::ErasureTarget;
use pennon_tests::queries::{EndpointCase, World, any_order, differences, query_string};
use pennon_tests::{Keys, TestApp, as_worker};
use serde_json::{Value, json};

const INSIGHTS: &str = "/api/projects/1/insights/";
const QUERY: &str = "/api/projects/1/query/";
const PEOPLE: &str = "/api/projects/1/persons/retention/";
const TOLERANCE: f64 = 1e-9;

/// One part of a case's expectation, as a result has it.
fn part(rows: &[Value], part: &str) -> Option<Value> {
    let first: Vec<&Value> =
        rows.iter().filter(|row| row["breakdown_value"] == rows[0]["breakdown_value"]).collect();
    let field = |key: &str| first.iter().map(|row| row[key].clone()).collect();
    Some(match part {
        "counts" => matrix(rows, "count"),
        "values" => matrix(rows, "aggregation_value"),
        "labels" => field("label"),
        "dates" => field("date"),
        "columns" => {
            let cells = first[0]["values"].as_array().unwrap();
            cells.iter().map(|cell| cell["label"].clone()).collect()
        }
        "result" => Value::Array(rows.to_vec()),
        _ => return None,
    })
}

/// Numbers as rows of columns; with a breakdown by value.
fn matrix(rows: &[Value], key: &str) -> Value {
    let mut values: Vec<(Value, Vec<Value>)> = Vec::new();
    for row in rows {
        let cells = row["values"].as_array().unwrap();
        let numbers = cells.iter().map(|cell| cell[key].clone()).collect();
        match values.last_mut().filter(|(value, _)| *value == row["breakdown_value"]) {
            Some((_, rows)) => rows.push(numbers),
            None => values.push((row["breakdown_value"].clone(), vec![numbers])),
        }
    }
    match values.as_slice() {
        [(Value::Null, rows)] => json!(rows),
        values => json!(values),
    }
}

fn problems(expect: &Value, result: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, want) in expect.as_object().unwrap() {
        if let Some(got) = part(result.as_array().unwrap(), name) {
            differences(want, &got, name, TOLERANCE, &mut problems);
        }
    }
    problems
}

/// Distinct ids in the order of their bytes.
fn sorted(ids: &Value) -> Value {
    let mut ids: Vec<&str> = ids.as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    ids.sort_unstable();
    json!(ids)
}

/// The rows of a page of people: ids and appearances.
fn listed(page: &Value) -> Value {
    let row = |row: &Value| {
        let person = &row["person"];
        let is_group = person["type"] == "group";
        let ids = if is_group { json!([person["group_key"]]) } else { sorted(&person["distinct_ids"]) };
        json!([ids, row["appearances"]])
    };
    page["result"].as_array().unwrap().iter().map(row).collect()
}

/// Follows the link of each row with people: as many as the row counts in each column.
async fn follow(app: &TestApp, case: &EndpointCase, result: &Value) -> usize {
    let mut followed = 0;
    for row in result.as_array().unwrap() {
        let counts: Vec<u64> =
            row["values"].as_array().unwrap().iter().map(|cell| cell["count"].as_u64().unwrap()).collect();
        let Some(url) = row["people_url"].as_str().filter(|_| counts[0] > 0) else { continue };
        let page = case.send_to(app, "GET", url, Value::Null).await.expect(200);
        assert_eq!(page["total_count"], counts[0], "{url}");
        let people = page["result"].as_array().unwrap();
        let appear =
            |column: usize| people.iter().filter(|one| one["appearances"][column] == 1).count() as u64;
        assert_eq!((0..counts.len()).map(appear).collect::<Vec<u64>>(), counts, "{url}");
        followed += 1;
    }
    followed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_has_the_expected_rows_and_people_in_every_form() {
    let (world, cases) = World::of_file("retention.json");
    let app = &world.install().await;
    let (mut failed, mut calculated, mut links) = (Vec::new(), 0, 0);
    for case in &cases {
        let EndpointCase { name, request, expect, .. } = case;
        let body = &request["body"];
        let send = async |method: &str, path: &str, body: Value| case.send(app, method, path, body).await;
        let mut results = Vec::new();
        match request["endpoint"].as_str().unwrap() {
            "query" => {
                let wrapped = json!({"kind": "InsightVizNode", "source": body});
                let direct = send("POST", "query/", json!({"query": body})).await;
                if expect["status"] == 400 {
                    let error = direct.expect(400);
                    assert_eq!(
                        (&error["type"], &error["code"]),
                        (&json!("validation_error"), &json!("invalid_input"))
                    );
                    continue;
                }
                results.push(direct.expect(200)["results"].clone());
                let saved = send("POST", "insights/", json!({"query": wrapped})).await.expect(201);
                let path = format!("insights/{}/?refresh=force_blocking", saved["id"]);
                results.push(send("GET", &path, Value::Null).await.expect(200)["result"].clone());
            }
            "insight" => {
                let saved = send("POST", "insights/", body.clone()).await.expect(201);
                let path = format!("insights/{}/?refresh=force_blocking", saved["id"]);
                results.push(send("GET", &path, Value::Null).await.expect(200)["result"].clone());
            }
            "retention" => {
                let posted = send("POST", "insights/retention/", body.clone()).await.expect(200);
                results.push(posted["result"].clone());
                let path = format!("insights/retention/?{}", query_string(body.as_object().unwrap()));
                results.push(send("GET", &path, Value::Null).await.expect(200)["result"].clone());
            }
            _ => {
                let get = format!("persons/retention/?{}", query_string(body.as_object().unwrap()));
                for (method, path, body) in
                    [("POST", "persons/retention/", body.clone()), ("GET", get.as_str(), Value::Null)]
                {
                    let people = listed(&send(method, path, body).await.expect(200));
                    let expected = expect["people"].as_array().unwrap().iter();
                    let expected: Value = expected.map(|row| json!([sorted(&row[0]), row[1]])).collect();
                    let mut problems = Vec::new();
                    any_order(&expected, &people, "people", 0.0, &mut problems);
                    failed.extend(problems.into_iter().map(|problem| format!("{name}: {problem}")));
                }
                continue;
            }
        }
        for result in results {
            calculated += 1;
            let problems = problems(expect, &result);
            failed.extend(problems.into_iter().map(|problem| format!("{name}: {problem}")));
            links += follow(app, case, &result).await;
        }
    }
    assert!(failed.is_empty(), "{} wrong:\n{}", failed.len(), failed.join("\n"));
    assert!(calculated >= 94 && links >= 150, "{calculated} results, {links} links");
}

async fn capture(app: &TestApp, events: Value) {
    let sent = app.call("", "POST", "/batch/", json!({"api_key": "phc_project_1", "batch": events})).await;
    sent.expect(200);
}

/// Ann has views on three days, first as a device; Bob on two; Cy on one.
async fn shop() -> TestApp {
    let app = TestApp::new().await;
    let event = |id: &str, day: u8| {
        json!({"event": "seen", "distinct_id": id, "timestamp": format!("2026-01-{day:02}T01:00:00Z"),
            "properties": {"price": day}})
    };
    let merged = json!({"event": "$identify", "distinct_id": "ann", "timestamp": "2026-01-03T02:00:00Z",
        "properties": {"$anon_distinct_id": "device"}});
    let events = [
        event("device", 1),
        event("ann", 2),
        event("ann", 3),
        event("bob", 1),
        event("bob", 3),
        event("cy", 1),
    ];
    capture(&app, events.into_iter().chain([merged]).collect()).await;
    app
}

fn node(more: Value) -> Value {
    let mut filter =
        json!({"totalIntervals": 3, "targetEntity": {"id": "seen"}, "returningEntity": {"id": "seen"}});
    filter.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let dates = json!({"date_from": "2026-01-01", "date_to": "2026-01-03"});
    json!({"kind": "RetentionQuery", "dateRange": dates, "retentionFilter": filter})
}

fn counts(result: &Value) -> Value {
    matrix(result.as_array().unwrap(), "count")
}

#[tokio::test]
async fn one_result_is_used_by_all_endpoints() {
    let app = shop().await;
    let expected = json!([[3, 1, 2], [1, 1, 0], [2, 0, 0]]);
    let first = app.post(QUERY, json!({"query": node(json!({}))})).await.expect(200);
    assert_eq!((counts(&first["results"]), &first["is_cached"]), (expected.clone(), &json!(false)));
    assert_eq!((&first["hasMore"], &first["timezone"]), (&Value::Null, &json!("UTC")));
    assert!(first["hogql"].as_str().unwrap().contains("RETURN WHERE"));
    // The wrapped node and display options are the same query.
    let shown = node(json!({"retentionReference": "previous", "meanRetentionCalculation": "weighted"}));
    let wrapped = json!({"kind": "InsightVizNode", "source": shown});
    let same = app.post(QUERY, json!({"query": wrapped})).await.expect(200);
    assert_eq!((&same["results"], &same["is_cached"]), (&first["results"], &json!(true)));

    let dashboard =
        app.post("/api/projects/1/dashboards/", json!({"name": "D"})).await.expect(201)["id"].clone();
    let body = json!({"name": "R", "query": wrapped, "dashboards": [dashboard]});
    let insight = app.post(INSIGHTS, body).await.expect(201)["id"].clone();
    let got = app.get(&format!("{INSIGHTS}{insight}/")).await.expect(200);
    assert_eq!((&got["result"], &got["query"]), (&first["results"], &wrapped));
    let list = app.get(&format!("{INSIGHTS}?insight=RETENTION&refresh=blocking")).await.expect(200);
    assert_eq!((&list["count"], counts(&list["results"][0]["result"])), (&json!(1), expected.clone()));
    let tiles =
        app.get(&format!("/api/projects/1/dashboards/{dashboard}/?refresh=blocking")).await.expect(200);
    assert_eq!(counts(&tiles["tiles"][0]["insight"]["result"]), expected);
    // A dashboard overrides dates and breakdown.
    let over = json!({"date_from": "2026-01-03", "breakdown_filter": {"breakdown": "price"}}).to_string();
    let over = query_string(json!({"filters_override": over, "refresh": "blocking"}).as_object().unwrap());
    let got = app.get(&format!("{INSIGHTS}{insight}/?{over}")).await.expect(200);
    assert_eq!(counts(&got["result"])[0], json!(["3", [[2, 0, 0], [0, 0, 0], [0, 0, 0]]]));

    let sharing = format!("{INSIGHTS}{insight}/sharing/");
    let token = app.patch(&sharing, json!({"enabled": true})).await.expect(200)["access_token"].clone();
    let path = format!("{INSIGHTS}{insight}/?sharing_access_token={}", token.as_str().unwrap());
    let public = app.call("", "GET", &path, Value::Null).await.expect(200);
    assert_eq!((counts(&public["result"]), &public["result"][0]["people_url"]), (expected, &Value::Null));
}

#[tokio::test]
async fn every_refresh_mode_calculates_or_waits_for_a_worker() {
    let app = shop().await;
    let insight = app.post(INSIGHTS, json!({"query": node(json!({}))})).await.expect(201)["id"].clone();
    let got = async |mode: &str| app.get(&format!("{INSIGHTS}{insight}/?refresh={mode}")).await.expect(200);
    assert_eq!(got("force_cache").await["result"], Value::Null);
    let started = got("async").await;
    assert_eq!((&started["result"], &started["query_status"]["complete"]), (&Value::Null, &json!(false)));
    app.work().await;
    let done = got("force_cache").await;
    assert_eq!((counts(&done["result"])[0][0].clone(), &done["is_cached"]), (json!(3), &json!(true)));
    for (mode, cached) in [
        ("blocking", true),
        ("lazy_async", true),
        ("async_except_on_cache_miss", true),
        ("force_blocking", false),
    ] {
        assert_eq!(got(mode).await["is_cached"], cached, "{mode}");
    }
    assert_eq!(got("force_async").await["result"], Value::Null);
    app.work().await;
    // An insight with filters of this kind, by its own defaults.
    let filters = json!({"insight": "RETENTION", "target_entity": {"id": "seen"}, "returning_entity": {"id": "seen"}, "date_to": "2026-01-03"});
    let old = app.post(INSIGHTS, json!({"filters": filters})).await.expect(201)["id"].clone();
    let old = app.get(&format!("{INSIGHTS}{old}/?refresh=blocking")).await.expect(200);
    let rows = old["result"].as_array().unwrap();
    assert_eq!((rows.len(), rows[0]["values"].as_array().unwrap().len()), (11, 11));
    // A node that cannot be calculated is stored.
    let wrong = node(json!({"cumulative": true, "timeWindowMode": "24_hour_windows"}));
    let wrong = app.post(INSIGHTS, json!({"query": wrong})).await.expect(201)["id"].clone();
    let error = app.get(&format!("{INSIGHTS}{wrong}/?refresh=blocking")).await.expect(400);
    assert_eq!(error["detail"], "Cumulative retention is not supported for 24 hour windows.");
}

#[tokio::test]
async fn the_older_endpoint_accepts_filter_fields_and_returns_tables() {
    let app = shop().await;
    let path = format!("{INSIGHTS}retention/");
    let body = json!({"target_entity": {"id": "seen", "type": "events"}, "returning_entity": "{\"id\": \"seen\"}",
        "total_intervals": 2, "date_from": "2026-01-01", "date_to": "2026-01-02"});
    let first = app.post(&path, body.clone()).await.expect(200);
    assert_eq!((counts(&first["result"]), &first["is_cached"]), (json!([[3, 1], [1, 0]]), &json!(false)));
    let keys: Vec<&String> = first.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["result", "timezone", "last_refresh", "is_cached"]);
    let get = format!("{path}?{}", query_string(body.as_object().unwrap()));
    assert_eq!(app.get(&get).await.expect(200)["result"], first["result"]);
    assert_eq!(app.post(&path, body.clone()).await.expect(200)["is_cached"], true);
    let table = app.post(&format!("{INSIGHTS}retention.csv"), body).await;
    assert_eq!(table.header("content-type"), "text/csv; charset=utf-8");
    let (head, row) = table.text.split_once("\r\n").unwrap();
    let cell = |name: &str| {
        let place = head.split(',').position(|column| column == name).unwrap();
        row.trim_end().split(',').nth(place).unwrap().to_owned()
    };
    assert_eq!([cell("result.0.values.0.count"), cell("result.0.values.1.count")], ["3", "1"]);
    // Without any field: the last eleven days of page views.
    assert_eq!(app.get(&path).await.expect(200)["result"].as_array().unwrap().len(), 11);
    let error = app.post(&path, json!({"period": "Quarter"})).await.expect(400);
    assert_eq!((&error["attr"], &error["code"]), (&json!("period"), &json!("invalid_input")));
    let forbidden = app.call(Keys::READ_FLAGS, "POST", &path, json!({})).await;
    assert_eq!(forbidden.status, 403);
}

#[tokio::test]
async fn pages_of_persons_start_with_the_most_appearances() {
    let app = shop().await;
    let body = json!({"query": node(json!({})), "selected_interval": 0});
    let all = app.post(PEOPLE, body.clone()).await.expect(200);
    let keys: Vec<&String> = all.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["result", "next", "previous", "total_count", "missing_persons"]);
    let shown = |page: &Value| {
        let rows = page["result"].as_array().unwrap();
        rows.iter()
            .map(|row| (row["appearance_count"].clone(), row["appearances"].clone()))
            .collect::<Vec<_>>()
    };
    let expected =
        [(3, [1, 1, 1]), (2, [1, 0, 1]), (1, [1, 0, 0])].map(|(count, row)| (json!(count), json!(row)));
    assert_eq!((shown(&all), &all["total_count"]), (expected.to_vec(), &json!(3)));
    let ann = &all["result"][0]["person"];
    assert_eq!((&ann["type"], ann["distinct_ids"].as_array().unwrap().len()), (&json!("person"), 2));
    assert_eq!(ann["matched_times"], json!(["2026-01-01T01:00:00Z"]));
    // Page by page.
    let (mut path, mut pages) = (format!("{PEOPLE}?limit=1"), Vec::new());
    loop {
        let page = app.post(&path, body.clone()).await.expect(200);
        pages.extend(shown(&page));
        match page["next"].as_str() {
            Some(next) => path = next.strip_prefix("http://api.test").unwrap().to_owned(),
            None => break,
        }
    }
    assert_eq!(pages, expected);
    // The second column, a row that does not exist, a query of another kind.
    let mut second = body.clone();
    second["return_interval"] = json!(1);
    assert_eq!(app.post(PEOPLE, second).await.expect(200)["total_count"], 1);
    let empty_row =
        app.post(PEOPLE, json!({"query": node(json!({})), "selected_interval": 3})).await.expect(200);
    assert_eq!((&empty_row["result"], &empty_row["total_count"]), (&json!([]), &json!(0)));
    let trend = json!({"query": {"kind": "TrendsQuery", "series": []}});
    let error = app.post(PEOPLE, trend).await.expect(400);
    assert_eq!(
        (&error["attr"], &error["detail"]),
        (&json!("query"), &json!("The query must be a RetentionQuery."))
    );
    let mut split = node(json!({}));
    split["breakdownFilter"] = json!({"breakdown": "price"});
    let error = app.post(PEOPLE, json!({"query": split})).await.expect(400);
    assert_eq!((&error["attr"], &error["code"]), (&json!("breakdown_value"), &json!("required")));
    let other = json!({"query": split, "breakdown_value": "$$_posthog_breakdown_other_$$"});
    assert_eq!(app.post(PEOPLE, other).await.expect(400)["attr"], "breakdown_value");
    let priced = json!({"query": split, "breakdown_value": 3, "selected_interval": "2"});
    assert_eq!(app.post(PEOPLE, priced).await.expect(200)["total_count"], 2);
    // The other lists take a node too.
    let trend = json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "seen"}],
        "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-01"}});
    let people = app.post("/api/projects/1/persons/trends/", json!({"query": trend})).await.expect(200);
    assert_eq!(people["total_count"], 3);
}

#[tokio::test]
async fn an_erased_person_is_in_no_row() {
    let app = shop().await;
    let before = app.post(QUERY, json!({"query": node(json!({}))})).await.expect(200);
    assert_eq!(counts(&before["results"])[0], json!([3, 1, 2]));
    let (store, events) = (&app.services.app.store, &app.services.events);
    let now = app.services.app.clock.now(None).timestamp_micros();
    as_worker(events.compact(1, now)).await.unwrap();
    let request = DeleteRequest { project: 1, target: ErasureTarget::Person("ann".to_owned()) };
    request.erase(store, events, &|| now + 1).await.unwrap();
    let after = app.post(QUERY, json!({"query": node(json!({}))})).await.expect(200);
    assert_eq!(counts(&after["results"]), json!([[2, 0, 1], [0, 0, 0], [1, 0, 0]]));
    let people = app.post(PEOPLE, json!({"query": node(json!({}))})).await.expect(200);
    assert_eq!(people["total_count"], 2);
}
