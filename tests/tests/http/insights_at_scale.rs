//! A project with twenty thousand insights: every filter, the first page and the last, in as many round trips as a small
//! one.

use pennon_core::store::keys::{self, RecordKind};
use pennon_core::store::{Item, PartitionQuery, RowChecksums, VersionBump, Write};
use pennon_flag_rules::stamp;
use pennon_tests::TestApp;
use serde_json::{Value, json};

const INSIGHTS: &str = "/api/projects/1/insights/";
/// The number of insights; the environment can set another.
fn count() -> u64 {
    std::env::var("PENNON_TEST_INSIGHTS").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000)
}

/// The individual fields of insight number `i`, from 1, of record and summary row.
fn special(i: u64) -> Value {
    let tags: Vec<&str> = [(5, "team-a"), (7, "team-b")]
        .iter()
        .filter(|(n, _)| i.is_multiple_of(*n))
        .map(|(_, tag)| *tag)
        .collect();
    // The instants ascend by a second.
    let at = format!("2025-12-{:02}T{:02}:{:02}:{:02}Z", 1 + i / 86_400, i / 3600 % 24, i / 60 % 60, i % 60);
    json!({
        "id": i, "short_id": format!("s{i:07}"), "name": if i.is_multiple_of(9) { Value::Null } else { json!(format!("Insight {:05}", i * 7 % 20_011)) },
        "description": if i.is_multiple_of(11) { json!("About the checkout") } else { Value::Null },
        "tags": tags, "order": if i.is_multiple_of(4) { json!(i % 100) } else { Value::Null },
        "favorited": i.is_multiple_of(3), "saved": i.is_multiple_of(2), "created_at": at, "updated_at": at, "last_modified_at": at,
    })
}

/// A project that was filled with `count` insights, copies of the created one, with the individual fields of each.
async fn filled(count: u64) -> TestApp {
    let app = TestApp::new().await;
    let query = json!({"kind": "InsightVizNode", "source": {"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "viewed"}]}});
    app.post("/api/projects/2/insights/", json!({"name": "template", "query": query})).await.expect(201);
    let records = &app.services.app.store.records;
    let record: Value =
        records.get(&keys::record(2, RecordKind::Insight, 1)).await.unwrap().unwrap().body().unwrap();
    let row: Value = records.get(&keys::insight_row(2, 1)).await.unwrap().unwrap().body().unwrap();
    let ids: Vec<u64> = (1..=count).collect();
    for some in ids.chunks(500) {
        let items = some.iter().flat_map(|id| {
            let with = |template: &Value, key| {
                let mut body = template.clone();
                body.as_object_mut().unwrap().extend(special(*id).as_object().unwrap().clone());
                if key == keys::insight_row(1, *id) {
                    body["created_by"] = json!(1);
                }
                Item::new(key, &body).unwrap().with_version(1)
            };
            [with(&record, keys::record(1, RecordKind::Insight, *id)), with(&row, keys::insight_row(1, *id))]
        });
        records.replace(items.collect(), Vec::new()).await.unwrap();
    }
    let rows = ids.iter().fold(0_i64, |sum, id| sum.wrapping_add(stamp(i64::try_from(*id).unwrap(), 1)));
    let raise =
        VersionBump { by: RowChecksums { rows, ..RowChecksums::default() }, ..VersionBump::default() };
    records.transact(vec![Write::BumpVersion(keys::insights_version(1), raise)]).await.unwrap();
    app
}

/// A page, and its sequential round trips.
async fn page(app: &TestApp, query: &str) -> (Value, usize) {
    app.round_trips.reset();
    let response = app.get(&format!("{INSIGHTS}?{query}")).await.expect(200);
    (response, app.round_trips.sequential())
}

fn ids(page: &Value) -> Vec<u64> {
    page["results"].as_array().unwrap().iter().map(|insight| insight["id"].as_u64().unwrap()).collect()
}

type Filter = (&'static str, fn(u64) -> bool);

const FILTERS: [Filter; 9] = [
    ("", |_| true),
    ("saved=true", |i| i.is_multiple_of(2)),
    ("favorited=1", |i| i.is_multiple_of(3)),
    ("tags=%5B%22team-a%22%5D", |i| i.is_multiple_of(5)),
    ("tags=%5B%22team-a%22%2C%22team-b%22%5D", |i| i.is_multiple_of(5) || i.is_multiple_of(7)),
    ("search=CHECKOUT", |i| i.is_multiple_of(11)),
    ("search=team-b&saved=0", |i| i.is_multiple_of(7) && !i.is_multiple_of(2)),
    ("short_id=s0000777", |i| i == 777),
    ("insight=FUNNELS", |_| false),
];

#[tokio::test]
async fn lists_of_many_insights_take_no_more_round_trips_than_short_ones() {
    let count = count();
    let app = filled(count).await;
    for (filter, lets_through) in FILTERS {
        let expected: Vec<u64> = (1..=count).filter(|i| lets_through(*i)).collect();
        for (offset, limit) in
            [(0, 7), (expected.len().saturating_sub(3), 5), (expected.len() / 2, 10), (expected.len() + 9, 5)]
        {
            let (found, _) =
                page(&app, &format!("{filter}&order=id&basic=true&offset={offset}&limit={limit}")).await;
            let shown: Vec<u64> = expected.iter().copied().skip(offset).take(limit).collect();
            assert_eq!(
                (ids(&found), &found["count"]),
                (shown, &json!(expected.len())),
                "{filter} from {offset}"
            );
            assert_eq!(found["next"].is_null(), offset + limit >= expected.len());
        }
    }
    // Orders, with missing values and ties, against a sort of their own.
    let all = || (1..=count).map(|i| (i, special(i)));
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut by_name: Vec<_> = all().map(|(i, it)| (it["name"].is_null(), text(&it["name"]), i)).collect();
    by_name.sort();
    let mut by_order: Vec<_> =
        all().map(|(i, it)| (it["order"].is_null(), it["order"].as_u64(), i)).collect();
    by_order.sort();
    let offset = usize::try_from(count).unwrap() / 5;
    let expected = |sorted: Vec<u64>| -> Vec<u64> { sorted.into_iter().skip(offset).take(50).collect() };
    for (order, sorted) in [
        ("name", by_name.iter().map(|it| it.2).collect()),
        ("order", by_order.iter().map(|it| it.2).collect()),
        ("-created_at", (1..=count).rev().collect()),
        ("-short_id", (1..=count).rev().collect()),
    ] {
        let (found, _) = page(&app, &format!("order={order}&basic=1&offset={offset}&limit=50")).await;
        assert_eq!(ids(&found), expected(sorted), "{order}");
    }
    let by_order: Vec<u64> = by_order.iter().map(|it| it.2).collect();
    another_process_reads_little(&app, count, &by_order).await;
}

/// Reads of a process with cold caches, and of one with cached rows, during writes of another one. `by_order` is
/// the default order.
async fn another_process_reads_little(app: &TestApp, count: u64, by_order: &[u64]) {
    // A new process reads the rows beside the key, and what each partition has beyond a page after it; then the records.
    let rows = app
        .services
        .app
        .store
        .records
        .query(PartitionQuery::partition(keys::insight_rows_pk(1, 0)))
        .await
        .unwrap();
    let bytes: usize = rows.iter().map(|row| row.text.len() + 100).sum();
    let pages = bytes.div_ceil(1 << 20);
    let another = app.another_process();
    // The order of concurrent calls is random, so calls are counted instead of sequential round trips.
    let queries = || another.round_trips.calls().iter().filter(|call| call.operation == "Query").count();
    let (first, _) = page(&another, "basic=true").await;
    assert!(queries() <= 8 * pages, "{} queries for {pages} pages of each partition", queries());
    assert_eq!(first["count"], count);
    assert_eq!(
        page(&another, "basic=true&search=checkout&order=-name").await.1,
        2,
        "key and version; then records"
    );
    assert_eq!(page(&another, "basic=true&order=-last_viewed_at").await.1, 3, "and the views before them");
    // One insight is written: one row is read.
    another.patch(&format!("{INSIGHTS}777/"), json!({"name": "changed"})).await.expect(200);
    let (changed, waited) = page(&another, "basic=true&search=changed").await;
    assert_eq!((ids(&changed), waited), (vec![777], 3));
    app.patch(&format!("{INSIGHTS}778/"), json!({"deleted": true})).await.expect(200);
    let (rest, waited) = page(&another, "basic=true&limit=1").await;
    assert_eq!((&rest["count"], waited), (&json!(count - 1), 3));
    for id in [779, 780] {
        app.patch(&format!("{INSIGHTS}{id}/"), json!({"deleted": true})).await.expect(200);
    }
    let (rest, _) = page(&another, "basic=true&limit=1").await;
    assert_eq!(rest["count"], count - 3);
    assert!(
        (8..=8 * pages).contains(&queries()),
        "{}: after several writes the rows are read anew",
        queries()
    );
    // The default order, in full: first those that have an `order`.
    let (full, waited) = page(&another, "limit=100").await;
    assert_eq!(
        ids(&full),
        by_order.iter().copied().filter(|id| ![778, 779, 780].contains(id)).take(100).collect::<Vec<_>>()
    );
    assert_eq!(waited, 3, "key and version; records; results");
}

#[tokio::test]
async fn a_list_takes_three_round_trips_and_two_in_the_short_form() {
    let app = TestApp::with(json!({"dashboards": [{"project": "1", "id": 5, "name": "Five"}]})).await;
    for number in 0..12 {
        let dashboards = if number % 2 == 0 { json!([5]) } else { json!([]) };
        app.post(INSIGHTS, json!({"name": format!("n{number}"), "dashboards": dashboards})).await.expect(201);
    }
    for (query, waits, what) in [
        ("basic=true", 2, "key, version and rows; records, dashboards and views"),
        ("", 2, "insights without a query have no results to read"),
        ("saved=true&basic=true", 3, "which dashboards are live decides"),
        ("order=-last_viewed_at&basic=true", 3, "when they were viewed decides"),
    ] {
        let (found, waited) = page(&app.another_process(), query).await;
        assert!(found["count"].as_u64().unwrap() >= 6);
        assert_eq!(waited, waits, "{what}");
    }
    let one = app.another_process();
    for (method, path, body, waits, what) in [
        ("GET", "1/?basic=true", Value::Null, 2, "key and insight; dashboards"),
        ("GET", "2/", Value::Null, 1, "key and insight"),
        ("PATCH", "2/", json!({"name": "x"}), 2, "key and insight; the transaction"),
        ("PATCH", "1/", json!({"name": "x"}), 3, "dashboards between them"),
        ("POST", "", json!({"name": "new"}), 3, "key; the counter; the transaction"),
        ("GET", "2/sharing/", Value::Null, 1, "key, insight and sharing"),
        ("PATCH", "2/sharing/", json!({"enabled": true}), 2, "the transaction"),
        ("GET", "2/activity/", Value::Null, 2, "key, insight and pointers; entries"),
        ("GET", "my_last_viewed/", Value::Null, 2, "key; what the caller has viewed"),
    ] {
        one.services.app.keys.clear();
        one.round_trips.reset();
        let response = one.call(pennon_tests::Keys::OWNER, method, &format!("{INSIGHTS}{path}"), body).await;
        assert!(response.status.is_success(), "{}", response.text);
        assert_eq!(one.round_trips.sequential(), waits, "{method} {path}: {what}");
    }
}
