//! The pages of sharing links: `/shared/{token}`, `/embedded/{token}`, and their tables as CSV. Their numbers:
//! `shared_page_numbers.rs`.

use std::sync::LazyLock;

use pennon_core::http::RequestId;
use pennon_tests::log::{KEPT, lines_of};
use pennon_tests::{Keys, TestApp, TestResponse};
use regex::Regex;
use serde_json::{Value, json};

use crate::dashboard_sharing::{DASHBOARDS, share_dashboard};

const INSIGHTS: &str = "/api/projects/1/insights/";
const MISSING: &str = "no longer shared";

static ROW: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?s)<tr>(.*?)</tr>").unwrap());
static CELL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?s)<t[hd][^>]*>(.*?)</t[hd]>").unwrap());
static EXACT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"<data value="([^"]*)">"#).unwrap());
static DATA: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?s)<script type="application/json" id="data-\d+">(.*?)</script>"#).unwrap()
});

pub(crate) async fn open(app: &TestApp, path: &str) -> TestResponse {
    app.call("", "GET", path, Value::Null).await
}

pub(crate) async fn made(app: &TestApp, body: Value) -> u64 {
    app.post(INSIGHTS, body).await.expect(201)["id"].as_u64().unwrap()
}

pub(crate) async fn share(app: &TestApp, id: u64) -> String {
    let path = format!("{INSIGHTS}{id}/sharing/");
    let shown = app.patch(&path, json!({"enabled": true})).await.expect(200);
    shown["access_token"].as_str().unwrap().to_owned()
}

/// The rows of all tables of a page, headings included. Numbers are exact.
pub(crate) fn rows(page: &str) -> Vec<Vec<String>> {
    let cell = |cell: &str| {
        let text = EXACT.captures(cell).map_or(cell, |exact| exact.get(1).unwrap().as_str());
        text.replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&quot;", "\"")
            .replace("&#39;", "'")
            .replace("&amp;", "&")
    };
    ROW.captures_iter(page)
        .map(|row| CELL.captures_iter(&row[1]).map(|found| cell(found.get(1).unwrap().as_str())).collect())
        .collect()
}

fn expect_missing(response: &TestResponse) {
    assert_eq!(response.status, 404, "{}", response.text);
    assert!(
        response.text.starts_with("<!doctype html>") && response.text.contains(MISSING),
        "{}",
        response.text
    );
    assert_eq!(response.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(response.header("cache-control"), "no-store");
    assert_eq!(response.header("x-robots-tag"), "noindex");
}

#[tokio::test]
async fn a_page_has_these_headers_and_loads_only_assets_of_this_host() {
    let app = TestApp::new().await;
    let id = made(
        &app,
        json!({"name": "Views", "description": "a day", "filters": {"events": [{"id": "viewed"}]}}),
    )
    .await;
    let token = share(&app, id).await;
    for (folder, ancestors) in [("shared", "'none'"), ("embedded", "*")] {
        for (slash, root) in [("", "../"), ("/", "../../")] {
            let page = open(&app, &format!("/{folder}/{token}{slash}")).await;
            assert_eq!(page.status, 200, "{}", page.text);
            assert_eq!(
                page.header("content-security-policy"),
                format!(
                    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; base-uri 'none'; \
                     form-action 'none'; frame-ancestors {ancestors}"
                )
            );
            for (name, value) in [
                ("content-type", "text/html; charset=utf-8"),
                ("cache-control", "no-store"),
                ("referrer-policy", "no-referrer"),
                ("x-content-type-options", "nosniff"),
                ("x-robots-tag", "noindex"),
            ] {
                assert_eq!(page.header(name), value, "{name}");
            }
            let text = &page.text;
            assert!(text.contains("<h1 dir=\"auto\">Views</h1>") && text.contains(">a day</p>"), "{text}");
            assert!(text.contains("<meta name=\"robots\" content=\"noindex\">"), "{text}");
            assert!(
                text.contains("<time datetime=\"2026-01-05T10:00:00Z\">2026-01-05 10:00 UTC</time>"),
                "{text}"
            );
            assert!(!text.contains("//") && !text.contains(" style=") && !text.contains("{root}"), "{text}");
            // One script, from the assets, and the data.
            assert_eq!((text.matches("<script").count(), DATA.captures_iter(text).count()), (2, 1), "{text}");
            let urls: Vec<&str> = text.split('"').filter(|it| it.contains("assets/")).collect();
            assert_eq!(urls.len(), 3, "{text}");
            for url in urls {
                let asset =
                    open(&app, url.strip_prefix(root).map(|rest| format!("/{rest}")).unwrap().as_str()).await;
                assert_eq!(asset.status, 200, "{url}");
                assert!(asset.header("cache-control").contains("immutable"), "{url}");
            }
            // The table as a file, relative to the page.
            let csv = text.split('"').find(|it| it.ends_with(".csv")).unwrap();
            let name = csv.trim_start_matches("../");
            assert_eq!((name, csv.len() - name.len()), (format!("{token}.csv").as_str(), 3 * slash.len()));
        }
    }
    for (query, attribute) in
        [("?theme=dark", " data-theme=\"dark\""), ("?theme=light", " data-theme=\"light\""), ("?theme=x", "")]
    {
        let page = open(&app, &format!("/shared/{token}{query}")).await;
        assert!(page.text.contains(&format!("<html lang=\"en\"{attribute}>")), "{query}: {}", page.text);
    }
    assert_eq!(open(&app, &format!("/shared/{token}")).await.text.matches("data-theme").count(), 0);
    let head = app.call("", "HEAD", &format!("/shared/{token}"), Value::Null).await;
    assert_eq!((head.status.as_u16(), head.text.as_str()), (200, ""));
    let posted = app.call("", "POST", &format!("/shared/{token}"), json!({})).await;
    assert_eq!((posted.status.as_u16(), posted.header("allow")), (405, "GET, HEAD, OPTIONS"));
}

#[tokio::test]
async fn a_page_follows_the_settings_of_sharing() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "Views", "filters": {"events": [{"id": "viewed"}]}})).await;
    let token = share(&app, id).await;
    let path = format!("/embedded/{token}");
    let plain = open(&app, &path).await.text;
    assert!(plain.contains("<h1") && plain.contains("<footer>"), "{plain}");
    let settings = json!({"theme": "dark", "noHeader": true, "whitelabel": true});
    app.patch(&format!("{INSIGHTS}{id}/sharing/"), json!({"settings": settings})).await.expect(200);
    let set = open(&app, &path).await.text;
    assert!(
        set.contains("data-theme=\"dark\"") && !set.contains("<h1") && !set.contains("<footer>"),
        "{set}"
    );
    assert!(open(&app, &format!("{path}?theme=light")).await.text.contains("data-theme=\"light\""));
}

#[tokio::test]
async fn a_page_is_open_only_while_its_token_is() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "Views", "filters": {"events": [{"id": "viewed"}]}})).await;
    let sharing = format!("{INSIGHTS}{id}/sharing/");
    let never = app.get(&sharing).await.expect(200)["access_token"].as_str().unwrap().to_owned();
    let long = "x".repeat(5000);
    for wrong in
        [never.as_str(), "x", "-", "phc_project_1", long.as_str(), "a.csv", "%00", "%F0%9F%92%A9", ".csv"]
    {
        expect_missing(&open(&app, &format!("/shared/{wrong}")).await);
        expect_missing(&open(&app, &format!("/embedded/{wrong}/")).await);
    }
    let token = share(&app, id).await;
    assert_eq!(token, never);
    let (page, csv) = (format!("/shared/{token}"), format!("/embedded/{token}.csv"));
    let is_open = async |expected: bool| {
        for path in [&page, &csv] {
            let response = open(&app, path).await;
            if expected {
                assert_eq!(response.status, 200, "{}", response.text)
            } else {
                expect_missing(&response)
            }
        }
    };
    is_open(true).await;
    app.patch(&sharing, json!({"enabled": false})).await.expect(200);
    is_open(false).await;
    share(&app, id).await;
    is_open(true).await;
    let insight = format!("{INSIGHTS}{id}/");
    app.patch(&insight, json!({"deleted": true})).await.expect(200);
    is_open(false).await;
    app.patch(&insight, json!({"deleted": false})).await.expect(200);
    is_open(true).await;
    let rotated = app.post(&format!("{sharing}refresh/"), json!({})).await.expect(200);
    is_open(false).await;
    let second = format!("/shared/{}", rotated["access_token"].as_str().unwrap());
    assert_eq!(open(&app, &second).await.status, 200);
    assert_eq!(open(&app.another_process(), &second).await.status, 200);
}

#[tokio::test]
async fn a_token_opens_its_own_record_only() {
    let app = TestApp::new().await;
    let insight = made(&app, json!({"name": "Views"})).await;
    let dashboard = app.post(DASHBOARDS, json!({"name": "Board"})).await.expect(201)["id"].as_u64().unwrap();
    let (of_insight, of_dashboard) = (share(&app, insight).await, share_dashboard(&app, dashboard).await);
    assert_ne!(of_insight, of_dashboard);
    let with = |path: &str, token: &str| format!("{path}?sharing_access_token={token}");
    for (path, token) in [
        (format!("{INSIGHTS}{insight}/"), &of_dashboard),
        (INSIGHTS.to_owned(), &of_dashboard),
        (format!("{DASHBOARDS}{dashboard}/"), &of_insight),
        (format!("{DASHBOARDS}{dashboard}/"), &of_dashboard),
        (DASHBOARDS.to_owned(), &of_dashboard),
    ] {
        assert_eq!(open(&app, &with(&path, token)).await.status, 401, "{path}");
    }
    assert_eq!(open(&app, &with(&format!("{INSIGHTS}{insight}/"), &of_insight)).await.status, 200);
    assert!(
        open(&app, &format!("/shared/{of_dashboard}")).await.text.contains("<h1 dir=\"auto\">Board</h1>")
    );
    assert!(open(&app, &format!("/shared/{of_insight}")).await.text.contains("<h1 dir=\"auto\">Views</h1>"));
}

/// Three tiles in another order than their ids.
#[tokio::test]
async fn a_dashboard_shows_its_visible_tiles_in_the_order_of_the_layout() {
    let restricted = json!([{"project": "1", "id": 70, "name": "Restricted", "restriction_level": 37,
                             "created_by": "owner@example.com"}]);
    let app = TestApp::with(json!({"dashboards": restricted})).await;
    let event = json!({"event": "viewed", "distinct_id": "visitor", "timestamp": "2026-01-04T10:00:00Z"});
    app.capture(json!([event])).await;
    let body = json!({"name": "Board", "description": "of views", "filters": {"date_from": "-2d"}});
    let board = app.post(DASHBOARDS, body).await.expect(201)["id"].as_u64().unwrap();
    let views = json!({"events": [{"id": "viewed", "name": "viewed"}]});
    let place = async |name: &str, on: Value| {
        made(
            &app,
            json!({"name": name, "description": format!("about {name}"), "filters": views, "dashboards": on}),
        )
        .await
    };
    let first = place("first", json!([board])).await;
    place("second", json!([board])).await;
    place("third", json!([board])).await;
    let gone = place("gone", json!([board])).await;
    let removed = place("removed", json!([board])).await;
    place("concealed", json!([board, 70])).await;
    app.patch(&format!("{INSIGHTS}{gone}/"), json!({"deleted": true})).await.expect(200);
    app.patch(&format!("{INSIGHTS}{removed}/"), json!({"dashboards": []})).await.expect(200);
    let shown = app.get(&format!("{DASHBOARDS}{board}/")).await.expect(200);
    let tile = |name: &str| {
        let tiles = shown["tiles"].as_array().unwrap();
        tiles.iter().find(|tile| tile["insight"]["name"] == name).unwrap()["id"].clone()
    };
    let at = |name: &str, x: u8, y: u8| json!({"id": tile(name), "layouts": {"sm": {"x": x, "y": y}}});
    let tiles = json!([at("first", 0, 5), at("second", 6, 0), at("third", 0, 0)]);
    app.patch(&format!("{DASHBOARDS}{board}/"), json!({"tiles": tiles})).await.expect(200);
    let token = share_dashboard(&app, board).await;
    let page = open(&app, &format!("/shared/{token}")).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let titles: Vec<&str> =
        page.text.split("<h2 dir=\"auto\">").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
    assert_eq!(titles, ["third", "second", "first"]);
    for left_out in ["gone", "removed", "concealed", "Restricted"] {
        assert!(!page.text.contains(left_out), "{left_out}: {}", page.text);
    }
    assert!(page.text.contains(">of views</p>") && page.text.contains(">about third</p>"));
    // The filter of the dashboard: three days, with one event on the second.
    let table = rows(&page.text);
    assert_eq!(
        table[..4],
        [["day", "viewed"], ["2026-01-03", "0"], ["2026-01-04", "1"], ["2026-01-05", "0"]]
    );
    // A link to the restricted dashboard itself shows the insight.
    let restricted = open(&app, &format!("/shared/{}", share_dashboard(&app, 70).await)).await;
    assert!(restricted.text.contains("<h2 dir=\"auto\">concealed</h2>"), "{}", restricted.text);
    // Each table as a file, by the id of its tile; others do not exist.
    let csv = open(&app, &format!("/shared/{token}.csv?tile={}", tile("first"))).await;
    assert_eq!(csv.text, "day,viewed\r\n2026-01-03,0\r\n2026-01-04,1\r\n2026-01-05,0\r\n");
    assert_eq!(csv.header("content-disposition"), "attachment; filename=\"first.csv\"");
    for other in [tile("concealed"), json!(999), json!("x")] {
        let other = other.as_str().map_or_else(|| other.to_string(), str::to_owned);
        expect_missing(&open(&app, &format!("/shared/{token}.csv?tile={other}")).await);
    }
    assert_eq!(open(&app, &format!("/shared/{token}.csv")).await.status, 400);
    // Deleted and restored.
    app.patch(&format!("{DASHBOARDS}{board}/"), json!({"deleted": true})).await.expect(200);
    expect_missing(&open(&app, &format!("/shared/{token}")).await);
    app.patch(&format!("{DASHBOARDS}{board}/"), json!({"deleted": false})).await.expect(200);
    assert_eq!(open(&app, &format!("/shared/{token}")).await.status, 200);
    assert_eq!(app.get(&format!("{INSIGHTS}{first}/")).await.expect(200)["name"], "first");
    let empty = app.post(DASHBOARDS, json!({})).await.expect(201)["id"].as_u64().unwrap();
    let empty = open(&app, &format!("/shared/{}", share_dashboard(&app, empty).await)).await;
    assert!(empty.status == 200 && empty.text.contains("This dashboard has no insights."), "{}", empty.text);
}

#[tokio::test]
async fn an_insight_without_a_result_shows_the_reason() {
    let app = TestApp::new().await;
    let board = app.post(DASHBOARDS, json!({"name": "Board"})).await.expect(201)["id"].as_u64().unwrap();
    let unsupported =
        json!({"kind": "DataVisualizationNode", "source": {"kind": "HogQLQuery", "query": "select 1"}});
    for body in [
        json!({"name": "sql", "query": unsupported, "dashboards": [board]}),
        json!({"name": "empty", "dashboards": [board]}),
        json!({"name": "fine", "filters": {"events": [{"id": "viewed", "name": "viewed"}]}, "dashboards": [board]}),
    ] {
        made(&app, body).await;
    }
    let page = open(&app, &format!("/shared/{}", share_dashboard(&app, board).await)).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.matches("<p class=\"reason\">").count() >= 1, "{}", page.text);
    assert_eq!(page.text.matches("<h2").count(), 3, "{}", page.text);
    assert!(page.text.contains("<th scope=\"col\" class=\"number\">viewed</th>"), "{}", page.text);
}

/// Markup in every name and value that a page shows.
#[tokio::test]
async fn nothing_of_a_name_or_an_event_becomes_markup() {
    let app = TestApp::new().await;
    let evil = "</script><script>alert(1)</script><!--\"'&\u{2028}";
    let event = json!({"event": evil, "distinct_id": "visitor", "timestamp": "2026-01-04T10:00:00Z", "properties": {"plan": evil}});
    app.capture(json!([event])).await;
    let board = app.post(DASHBOARDS, json!({"name": evil, "description": evil})).await.expect(201)["id"]
        .as_u64()
        .unwrap();
    let step = json!({"kind": "EventsNode", "event": evil, "name": evil, "custom_name": evil});
    let breakdown = json!({"breakdown": "plan", "breakdown_type": "event"});
    for source in [
        json!({"kind": "TrendsQuery", "series": [step], "breakdownFilter": breakdown}),
        json!({"kind": "FunnelsQuery", "series": [step, step], "breakdownFilter": breakdown}),
        json!({"kind": "StickinessQuery", "series": [step]}),
        json!({"kind": "PathsQuery", "pathsFilter": {"includeEventTypes": ["custom_event"]}}),
    ] {
        let body = json!({"name": evil, "description": evil, "query": {"kind": "InsightVizNode", "source": source}, "dashboards": [board]});
        made(&app, body).await;
    }
    let token = share_dashboard(&app, board).await;
    let page = open(&app, &format!("/shared/{token}")).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.matches("&lt;/script&gt;&lt;script&gt;").count() > 8, "{}", page.text);
    assert!(!page.text.contains("<script>") && !page.text.contains("<!--"), "{}", page.text);
    let found: Vec<Value> =
        DATA.captures_iter(&page.text).map(|data| serde_json::from_str(&data[1]).unwrap()).collect();
    assert_eq!(found.len(), 4);
    assert!(
        DATA.captures_iter(&page.text).all(|data| !data[1].contains(['<', '>', '&', '\u{2028}', '\u{2029}']))
    );
    assert_eq!(found[0]["result"][0]["breakdown_value"], evil);
    // One script, and the data of four insights.
    assert_eq!(page.text.matches("<script").count(), 5, "{}", page.text);
}

/// A formula in a name is text in the file.
#[tokio::test]
async fn the_csv_file_has_the_table_and_no_formula() {
    let app = TestApp::new().await;
    let event = json!({"event": "=1+1", "distinct_id": "visitor", "timestamp": "2026-01-04T10:00:00Z"});
    app.capture(json!([event])).await;
    let filters = json!({"events": [{"id": "=1+1", "name": "=1+1"}], "date_from": "-2d"});
    let id = made(&app, json!({"name": "A \"trend\"\r\n: 2026", "filters": filters})).await;
    let token = share(&app, id).await;
    let csv = open(&app, &format!("/shared/{token}.csv")).await;
    assert_eq!(csv.text, "day,'=1+1\r\n2026-01-03,0\r\n2026-01-04,1\r\n2026-01-05,0\r\n");
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(csv.header("content-disposition"), "attachment; filename=\"a-trend-2026.csv\"");
    assert_eq!((csv.header("cache-control"), csv.header("x-robots-tag")), ("no-store", "noindex"));
}

#[tokio::test]
async fn pages_have_the_rate_limits_of_links() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "x"})).await;
    let token = share(&app, id).await;
    let app = app.limited("burst=2,sustained=100".parse().unwrap());
    let path = format!("/shared/{token}");
    for status in [200, 200, 429] {
        assert_eq!(open(&app, &path).await.status, status);
    }
    let limited = open(&app, &path).await;
    assert!(limited.text.starts_with("<!doctype html>") && !limited.header("retry-after").is_empty());
    assert_eq!(limited.header("x-robots-tag"), "noindex");
}

/// Every line of a test program is searched for tokens (`tests/src/log.rs`); here also the line of the request itself.
#[tokio::test]
async fn no_log_has_the_token() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "x"})).await;
    let token = share(&app, id).await;
    for (path, status) in [
        (format!("/shared/{token}"), 200),
        (format!("/embedded/{token}.csv"), 404),
        (format!("/shared/{token}x"), 404),
    ] {
        let request_id = format!("{KEPT}{}", pennon_core::ids::new_uuid());
        let mut request = TestApp::request("", "GET", &path, Value::Null);
        request.extensions_mut().insert(RequestId(request_id.clone()));
        assert_eq!(app.send(request).await.status, status, "{path}");
        let lines = lines_of(&request_id);
        let route = if path.starts_with("/shared") { "/shared/{token}" } else { "/embedded/{token}" };
        let line = lines.iter().find(|line| line["message"] == "request").unwrap();
        assert_eq!((&line["route"], &line["status"]), (&json!(route), &json!(status)), "{line}");
        assert!(lines.iter().all(|line| !line.to_string().contains(&token)), "{lines:?}");
    }
    let keyed = app.call(Keys::OWNER, "GET", &format!("/shared/{token}"), Value::Null).await;
    assert_eq!(keyed.status, 200, "a key changes nothing");
}

#[tokio::test]
async fn a_page_with_a_cached_result_takes_three_round_trips() {
    let app = TestApp::new().await;
    let id = made(&app, json!({"name": "x", "filters": {"events": [{"id": "viewed"}]}})).await;
    let path = format!("/shared/{}", share(&app, id).await);
    let first = open(&app, &path).await;
    app.round_trips.reset();
    let second = open(&app, &path).await;
    assert_eq!((second.status.as_u16(), &second.text), (200, &first.text));
    assert_eq!(app.round_trips.calls().len(), 3, "{:?}", app.round_trips.calls());
}
