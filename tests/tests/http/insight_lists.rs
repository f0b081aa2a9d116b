//! The list of insights over HTTP: parameters, orders, the envelope, tables.

use pennon_core::clock::NOW_HEADER;
use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const INSIGHTS: &str = "/api/projects/1/insights/";

async fn made(app: &TestApp, day: u32, key: &str, body: Value) -> Value {
    let mut request = TestApp::request(key, "POST", INSIGHTS, body);
    let now = format!("2026-01-{day:02}T10:00:00Z");
    request.headers_mut().insert(NOW_HEADER, now.parse().unwrap());
    app.send(request).await.expect(201)
}

/// The listed ids, in order.
async fn listed(app: &TestApp, query: &str) -> Vec<u64> {
    let list = app.get(&format!("{INSIGHTS}?{query}")).await.expect(200);
    let ids: Vec<u64> =
        list["results"].as_array().unwrap().iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(list["count"], ids.len(), "{query}");
    ids
}

fn viz(source: Value) -> Value {
    json!({"kind": "InsightVizNode", "source": source})
}

/// Six insights of project 1, made on the first six days of 2026 by Olive (1, 3, 5) and Mel (2, 4, 6).
async fn app() -> TestApp {
    let dashboard = |id: u64, deleted: bool| json!({"project": "1", "id": id, "name": format!("D{id}"), "deleted": deleted});
    let dashboards = json!([dashboard(7, false), dashboard(8, false), dashboard(9, false)]);
    let app = TestApp::with(json!({"dashboards": dashboards})).await;
    let flag = json!([{"key": "$feature/beta", "value": ["true"], "type": "event"}]);
    let bodies = [
        json!({"name": "Weekly REVENUE", "saved": true, "order": 2, "tags": ["money", "Team"]}),
        json!({"derived_name": "revenue count", "favorited": true, "filters": {"insight": "FUNNELS", "breakdown": "$feature/beta"}}),
        json!({"name": "a", "description": "Über Revenue", "dashboards": [7], "order": 1}),
        json!({"name": "b", "tags": ["revenue-team"], "dashboards": [8, 7], "query": viz(json!({"kind": "FunnelsQuery", "series": []}))}),
        json!({"name": "b", "query": viz(json!({"kind": "TrendsQuery", "series": [], "properties": flag})), "saved": true}),
        json!({"query": {"kind": "DataTableNode", "source": {"kind": "HogQLQuery", "query": "select 'beta'"}}, "order": 2}),
    ];
    for (day, body) in (1..).zip(bodies) {
        let key = if day % 2 == 1 { Keys::OWNER } else { Keys::MEMBER };
        assert_eq!(made(&app, day, key, body).await["id"], day);
    }
    app
}

#[tokio::test]
async fn every_filter_matches_as_in_the_contract() {
    let app = app().await;
    let short = app.get(&format!("{INSIGHTS}4/")).await.expect(200)["short_id"].as_str().unwrap().to_owned();
    let by_short = format!("short_id={short}");
    let other_case: String = short
        .chars()
        .map(|it| if it.is_ascii_lowercase() { it.to_ascii_uppercase() } else { it.to_ascii_lowercase() })
        .collect();
    let by_other_case = format!("short_id={other_case}");
    // The default order: by `order`, without one last, ties by id.
    let cases: &[(&str, &[u64])] = &[
        ("", &[3, 1, 6, 2, 4, 5]),
        ("created_by=1", &[3, 1, 5]),
        ("created_by=[1,2]", &[3, 1, 6, 2, 4, 5]),
        ("created_by=[]", &[]),
        (&by_short, &[4]),
        (&by_other_case, if other_case == short { &[4] } else { &[] }),
        ("short_id=", &[3, 1, 6, 2, 4, 5]),
        ("user=1", &[3, 1, 5]),
        ("user=false", &[3, 1, 5]),
        ("user", &[3, 1, 5]),
        ("saved=true", &[3, 1, 4, 5]),
        ("saved=ON", &[3, 1, 4, 5]),
        ("saved=0", &[3, 6, 2, 4]),
        ("saved=whatever", &[3, 6, 2, 4]),
        ("favorited=false", &[2]),
        ("favorited", &[2]),
        ("search=revenue", &[3, 1, 2, 4]),
        ("search=%C3%BCBER", &[3]),
        ("search=nothing", &[]),
        ("search=MONEY", &[1]),
        ("insight=FUNNELS", &[2, 4]),
        ("insight=TRENDS", &[5]),
        ("insight=JSON", &[4, 5]),
        ("insight=SQL", &[6]),
        ("insight=PATHS", &[]),
        ("dashboards=[7]", &[3, 4]),
        ("dashboards=[7,8]", &[4]),
        ("dashboards=[9]", &[]),
        ("dashboards=[]", &[3, 1, 6, 2, 4, 5]),
        ("tags=[\"TEAM\"]", &[1]),
        ("tags=[\"revenue-team\",\"money\"]", &[1, 4]),
        ("tags=[]", &[]),
        ("date_from=2026-01-03", &[3, 6, 4, 5]),
        ("date_to=2026-01-03", &[1, 2]),
        ("date_from=2026-01-03T10:00:00Z", &[6, 4, 5]),
        ("date_to=2026-01-03T10:00:00Z", &[1, 2]),
        ("date_from=2026-01-02&date_to=2026-01-05", &[3, 2, 4]),
        ("date_from=-1d", &[6, 5]),
        ("feature_flag=beta", &[2, 5]),
        ("feature_flag=gamma", &[]),
        ("search=revenue&created_by=2&saved=true", &[4]),
        ("deleted=true&unknown=1", &[3, 1, 6, 2, 4, 5]),
        ("basic=true&created_by=1", &[3, 1, 5]),
    ];
    for (query, expected) in cases {
        let query = query.replace('[', "%5B").replace(']', "%5D").replace('"', "%22");
        assert_eq!(listed(&app, &query).await, *expected, "{query}");
    }
    app.patch(&format!("{INSIGHTS}3/"), json!({"deleted": true})).await.expect(200);
    assert_eq!(listed(&app, "").await, [1, 6, 2, 4, 5]);
    app.patch(&format!("{INSIGHTS}4/"), json!({"dashboards": [8]})).await.expect(200);
    assert_eq!(listed(&app, "dashboards=%5B7%5D").await, [] as [u64; 0], "a removed tile is none");
}

#[tokio::test]
async fn every_order_is_total_and_reversible_except_for_ties() {
    let app = app().await;
    for (second, id) in [(1, 4), (2, 2)] {
        let mut view = TestApp::request(Keys::OWNER, "POST", &format!("{INSIGHTS}{id}/viewed/"), json!({}));
        view.headers_mut().insert(NOW_HEADER, format!("2026-01-07T10:00:0{second}Z").parse().unwrap());
        app.send(view).await.expect(200);
    }
    app.patch(&format!("{INSIGHTS}2/"), json!({"derived_name": "still"})).await.expect(200);
    let cases: &[(&str, &[u64], &[u64])] = &[
        ("id", &[1, 2, 3, 4, 5, 6], &[6, 5, 4, 3, 2, 1]),
        ("name", &[1, 3, 4, 5, 2, 6], &[2, 6, 4, 5, 3, 1]),
        ("order", &[3, 1, 6, 2, 4, 5], &[2, 4, 5, 1, 6, 3]),
        ("created_at", &[1, 2, 3, 4, 5, 6], &[6, 5, 4, 3, 2, 1]),
        // The second was written last, by a clock that was set back to the fifth day.
        ("updated_at", &[1, 3, 4, 5, 6, 2], &[2, 6, 5, 4, 3, 1]),
        ("last_modified_at", &[1, 2, 3, 4, 5, 6], &[6, 5, 4, 3, 2, 1]),
        ("favorited", &[1, 3, 4, 5, 6, 2], &[2, 1, 3, 4, 5, 6]),
        ("saved", &[2, 3, 4, 6, 1, 5], &[1, 5, 2, 3, 4, 6]),
        ("last_viewed_at", &[1, 3, 5, 6, 4, 2], &[2, 4, 1, 3, 5, 6]),
        ("created_by", &[1, 3, 5, 2, 4, 6], &[2, 4, 6, 1, 3, 5]),
    ];
    for (field, ascending, descending) in cases {
        assert_eq!(listed(&app, &format!("order={field}")).await, *ascending, "{field}");
        assert_eq!(listed(&app, &format!("order=-{field}")).await, *descending, "-{field}");
    }
    let list = app.get(&format!("{INSIGHTS}?order=short_id")).await.expect(200);
    let shorts: Vec<&str> =
        list["results"].as_array().unwrap().iter().map(|it| it["short_id"].as_str().unwrap()).collect();
    assert!(shorts.is_sorted());
    for bad in ["size", "-size", "--id", "-", "ID"] {
        let refused = app.get(&format!("{INSIGHTS}?order={bad}")).await;
        refused.expect_invalid("invalid_choice", &format!("\"{bad}\" is not a valid choice."), Some("order"));
    }
}

#[tokio::test]
async fn errors_name_the_invalid_parameter() {
    let app = app().await;
    let choice = "Select a valid choice. That choice is not one of the available choices.";
    for bad in ["99", "3", "x", "%5B1%2C99%5D", "%7B%7D", "-1"] {
        let refused = app.get(&format!("{INSIGHTS}?created_by={bad}")).await;
        refused.expect_invalid("invalid_choice", choice, Some("created_by"));
    }
    assert_eq!(
        listed(&app, "created_by=2&user=1").await,
        [] as [u64; 0],
        "a member is a user, whatever was made"
    );
    for (query, attr) in [
        ("dashboards=%5B", "dashboards"),
        ("dashboards=7", "dashboards"),
        ("dashboards=%5B%22x%22%5D", "dashboards"),
        ("tags=a", "tags"),
        ("tags=%5B1%5D", "tags"),
        ("filters_override=%7B", "filters_override"),
        ("variables_override=x&basic=true", "variables_override"),
    ] {
        let refused = app.get(&format!("{INSIGHTS}?{query}")).await.expect(400);
        assert_eq!(
            (&refused["type"], &refused["attr"]),
            (&json!("validation_error"), &json!(attr)),
            "{query}"
        );
    }
    let search = |length: usize| format!("{INSIGHTS}?search={}", "x".repeat(length));
    app.get(&search(400)).await.expect(200);
    assert_eq!(app.get(&search(401)).await.expect(400)["attr"], "search");
    let ids = |count: usize| format!("{INSIGHTS}?dashboards=%5B{}%5D", vec!["7"; count].join(","));
    app.get(&ids(500)).await.expect(200);
    assert_eq!(app.get(&ids(501)).await.expect(400)["attr"], "dashboards");
}

#[tokio::test]
async fn pages_link_to_each_other() {
    let app = app().await;
    let page = async |query: &str| app.get(&format!("{INSIGHTS}?{query}")).await.expect(200);
    let url = |query: &str| json!(format!("http://api.test{INSIGHTS}?{query}"));
    let ids = |page: &Value| -> Vec<u64> {
        page["results"].as_array().unwrap().iter().map(|it| it["id"].as_u64().unwrap()).collect()
    };
    let first = page("order=id&limit=2&basic=1").await;
    assert_eq!((ids(&first), &first["count"], &first["previous"]), (vec![1, 2], &json!(6), &Value::Null));
    assert_eq!(first["next"], url("basic=1&limit=2&offset=2&order=id"));
    let second = page("order=id&limit=2&offset=3&basic=1").await;
    assert_eq!((ids(&second), &second["next"]), (vec![4, 5], &url("basic=1&limit=2&offset=5&order=id")));
    assert_eq!(second["previous"], url("basic=1&limit=2&offset=1&order=id"));
    let last = page("limit=2&offset=1&order=-id").await;
    assert_eq!(last["previous"], url("limit=2&order=-id"));
    let beyond = page("limit=2&offset=60").await;
    assert_eq!((ids(&beyond), &beyond["count"], &beyond["next"]), (vec![], &json!(6), &Value::Null));
    for query in ["limit=0", "limit=-1", "limit=x", "offset=x", "offset=-1"] {
        assert_eq!((ids(&page(query).await).len(), &page(query).await["next"]), (6, &Value::Null), "{query}");
    }
    let empty = app.get("/api/projects/2/insights/").await;
    assert_eq!(empty.text, r#"{"count":0,"next":null,"previous":null,"results":[]}"#);
}

/// A table of a list is one row: the envelope, flattened.
#[tokio::test]
async fn responses_and_errors_are_available_as_tables() {
    let app = app().await;
    let read = |text: &str| -> Vec<std::collections::BTreeMap<String, String>> {
        let mut rows = text.split("\r\n").map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        let head = rows.next().unwrap();
        assert!(head.is_sorted(), "{head:?}");
        rows.filter(|row| row.len() == head.len())
            .map(|row| head.iter().cloned().zip(row).collect())
            .collect()
    };
    let table = async |path: &str| {
        let response = app.get(path).await;
        assert_eq!(
            (response.status.as_u16(), response.header("content-type")),
            (200, "text/csv; charset=utf-8"),
            "{path}"
        );
        assert_eq!(response.header("content-disposition"), "");
        response.text
    };
    let list = table(&format!("{INSIGHTS}?format=csv&limit=2&order=id&basic=true")).await;
    let rows = read(&list);
    assert_eq!(rows.len(), 1);
    for (column, value) in [
        ("count", "6"),
        ("previous", ""),
        ("results.0.name", "Weekly REVENUE"),
        ("results.0.saved", "True"),
        ("results.1.created_by.email", "member@example.com"),
        ("results.0.tags.0", "money"),
        ("results.0.last_viewed_at", ""),
        ("results.0.id", "1"),
        ("results.0.refreshing", "False"),
    ] {
        assert_eq!(rows[0].get(column).map(String::as_str), Some(value), "{column}");
    }
    assert!(!list.contains("results.0.dashboards"), "an empty list has no column");
    let whole = INSIGHTS.trim_end_matches('/');
    for path in [format!("{whole}.csv"), format!("{whole}.csv/")] {
        let rows = read(&table(&format!("{path}?limit=2&order=id&basic=true")).await);
        assert_eq!((rows[0]["count"].as_str(), rows[0]["results.0.id"].as_str()), ("6", "1"), "{path}");
    }
    assert_eq!(app.get(&format!("{whole}.json")).await.expect(200)["count"], 6);
    for path in [format!("{INSIGHTS}4.csv"), format!("{INSIGHTS}4.csv/"), format!("{INSIGHTS}4/?format=csv")]
    {
        let row = read(&table(&path).await).remove(0);
        assert_eq!((row["id"].as_str(), row["name"].as_str(), row["dashboards.1"].as_str()), ("4", "b", "7"));
    }
    assert_eq!(app.get(&format!("{INSIGHTS}4.json")).await.expect(200)["id"], 4);
    let patched = app.patch(&format!("{INSIGHTS}4.csv"), json!({"name": "=1+1"})).await;
    assert_eq!(patched.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(read(&patched.text)[0]["name"], "'=1+1", "no cell is a formula");
    let created = app.post(&format!("{INSIGHTS}?format=csv"), json!({"name": "new"})).await;
    assert_eq!((created.status.as_u16(), read(&created.text)[0]["id"].as_str()), (201, "7"));
    app.post(&format!("{INSIGHTS}1/viewed/"), json!({})).await.expect(200);
    let views = read(&table(&format!("{INSIGHTS}my_last_viewed.csv")).await);
    assert_eq!((views.len(), views[0]["id"].as_str()), (1, "1"));
    let nothing = app.get("/api/projects/2/insights/my_last_viewed/?format=csv").await;
    assert_eq!((nothing.status.as_u16(), nothing.text.as_str()), (200, ""), "nothing has no columns");
    assert_eq!(nothing.header("content-type"), "text/csv; charset=utf-8");
    // An error is a row too, with its status.
    let refused = app.get(&format!("{INSIGHTS}?format=csv&order=x")).await;
    assert_eq!((refused.status.as_u16(), refused.header("content-type")), (400, "text/csv; charset=utf-8"));
    assert!(refused.text.starts_with("attr,code,detail,type\r\norder,invalid_choice,"), "{}", refused.text);
    let missing = app.get(&format!("{INSIGHTS}99.csv")).await;
    assert_eq!(
        (missing.status.as_u16(), missing.text.as_str()),
        (404, "attr,code,detail,type\r\n,not_found,Not found.,invalid_request\r\n")
    );
    for path in [INSIGHTS.to_owned(), format!("{INSIGHTS}4/"), format!("{INSIGHTS}my_last_viewed/")] {
        let unknown = app.get(&format!("{path}?format=xml")).await;
        unknown.expect_error(404, "invalid_request", "not_found", "Not found.", None);
    }
    let cancelled = app.call(Keys::OWNER, "DELETE", &format!("{INSIGHTS}4/?format=csv"), Value::Null).await;
    assert_eq!((cancelled.status.as_u16(), cancelled.text.as_str()), (405, ""), "empty bodies stay empty");
}
