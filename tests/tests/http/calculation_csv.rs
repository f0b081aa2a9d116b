//! Responses of calculations as tables.

use pennon_eventstore::Event;
use pennon_tests::{Keys, TestApp, TestResponse};
use serde_json::{Value, json};
use uuid::Uuid;

const FUNNEL: &str = "/api/projects/1/insights/funnel";
const TREND: &str = "/api/projects/1/insights/trend";

async fn shop() -> TestApp {
    let app = TestApp::new().await;
    let instant = |text: &str| text.parse::<chrono::DateTime<chrono::Utc>>().unwrap().timestamp_micros();
    let event = |what: &str, who: &str, when: &str| Event {
        uuid: Uuid::new_v4(),
        event: what.to_owned(),
        distinct_id: who.to_owned(),
        timestamp: instant(when),
        properties: json!({"site": if who == "ann" { "=HYPERLINK(\"x\")" } else { "a, b" }})
            .as_object()
            .unwrap()
            .clone(),
    };
    let events = [
        event("signed up", "ann", "2026-01-01T10:00:00Z"),
        event("bought", "ann", "2026-01-01T12:00:00Z"),
        event("signed up", "bob", "2026-01-02T10:00:00Z"),
    ];
    app.services.events.append(1, &events, instant(pennon_tests::NOW)).await.unwrap();
    app
}

fn days(more: Value) -> Value {
    let mut body = json!({"date_from": "2026-01-01", "date_to": "2026-01-02"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn is_table(response: &TestResponse) -> &str {
    assert_eq!(response.header("content-type"), "text/csv; charset=utf-8");
    &response.text
}

#[tokio::test]
async fn a_trend_has_a_row_per_series_and_a_column_per_day() {
    let app = shop().await;
    let body = days(
        json!({"events": [{"id": "signed up", "order": 0, "custom_name": "joined"}, {"id": "bought", "order": 1}]}),
    );
    let response = app.post(&format!("{TREND}/?format=csv&export_name=My%20Numbers"), body.clone()).await;
    assert_eq!(is_table(&response), "series,1-Jan-2026,2-Jan-2026\r\njoined,1,1\r\nbought,1,0\r\n");
    let name = "attachment; filename=\"my-numbers (2026-01-01 - 2026-01-02).csv\"";
    assert_eq!((response.status.as_u16(), response.header("content-disposition")), (200, name));
    for path in [format!("{TREND}.csv"), format!("{TREND}.csv/")] {
        let same = app.post(&path, body.clone()).await;
        assert_eq!(same.text, response.text);
        assert!(same.header("content-disposition").contains("export ("));
    }
    let named = app.post(&format!("{TREND}.csv?export_insight_id=ab12"), body.clone()).await;
    assert!(named.text.starts_with("http://api.test/insights/ab12/\nseries,"));
    let all =
        app.post(&format!("{TREND}.csv"), json!({"events": [{"id": "bought"}], "date_from": "all"})).await;
    assert!(all.header("content-disposition").contains("(up until 2026-01-05)"), "{:?}", all.headers);
    assert_eq!(is_table(&app.get(&format!("{TREND}.csv")).await), "series\r\n");
    assert_eq!(app.post(&format!("{TREND}.json"), body).await.expect(200)["result"][0]["label"], "signed up");
}

#[tokio::test]
async fn a_funnel_is_one_row_and_no_cell_is_a_formula() {
    let app = shop().await;
    let events = json!([{"id": "signed up", "order": 0}, {"id": "bought", "order": 1}]);
    let body =
        days(json!({"events": events, "insight": "FUNNELS", "breakdown": "site", "breakdown_type": "event"}));
    let response = app.post(&format!("{FUNNEL}.csv"), body).await;
    let text = is_table(&response);
    assert_eq!((response.status.as_u16(), response.header("content-disposition")), (200, ""));
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert!(
        lines[0]
            .starts_with("is_cached,last_refresh,result.0.0.action_id,result.0.0.average_conversion_time,")
    );
    assert!(lines[0].contains(",result.1.1.count,") && lines[0].ends_with(",timezone"), "{}", lines[0]);
    assert_eq!((lines.len(), lines[2]), (3, ""));
    assert!(lines[1].starts_with("False,2026-01-05T10:00:00Z,signed up,,"), "{}", lines[1]);
    assert!(
        text.contains("\"'=HYPERLINK(\"\"x\"\")\"") && !text.contains(",\"=") && text.contains("\"a, b\"")
    );
}

#[tokio::test]
async fn errors_have_the_same_format_and_their_status() {
    let app = shop().await;
    let response = app.post(&format!("{FUNNEL}/?format=csv"), json!({})).await;
    assert_eq!(response.status.as_u16(), 400);
    assert_eq!(
        is_table(&response),
        "attr,code,detail,type\r\nevents,required,This field is required.,validation_error\r\n"
    );
    let response = app.call(Keys::READ_FLAGS, "GET", &format!("{TREND}.csv"), Value::Null).await;
    assert_eq!(response.status.as_u16(), 403);
    assert!(is_table(&response).ends_with("authentication_error\r\n"));
}

/// The cells of a CSV text.
fn cells(text: &str) -> Vec<String> {
    let (mut cells, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => cell.extend(letters.next()),
            '"' => is_quoted = !is_quoted,
            ',' | '\r' | '\n' if !is_quoted => cells.push(std::mem::take(&mut cell)),
            other => cell.push(other),
        }
    }
    cells.push(cell);
    cells
}

/// Names and texts that begin like formulas, as OWASP lists them, in every route that returns CSV. Numbers stay numbers.
#[tokio::test]
async fn no_route_returns_a_cell_that_is_a_formula() {
    let app = shop().await;
    const INSIGHTS: &str = "/api/projects/1/insights";
    let formulas = ["=1+1", "+1", "-1", "@a", "\tx", "\rx", "=HYPERLINK(\"x\")"];
    let mut ids = Vec::new();
    for formula in formulas {
        let filters = days(json!({"events": [{"id": "signed up", "custom_name": formula}]}));
        let body = json!({"name": format!("a{formula}"), "description": formula, "tags": [formula], "filters": filters});
        ids.push(app.post(&format!("{INSIGHTS}/"), body).await.expect(201)["id"].clone());
        let body = days(json!({"events": [{"id": "signed up", "custom_name": formula}]}));
        let trend = app.post(&format!("{TREND}.csv"), body).await;
        let shown = cells(is_table(&trend));
        // Names are trimmed, so that a letter behind a tab is a letter.
        let harmless = if formula.trim() == "x" { "x".to_owned() } else { format!("'{formula}") };
        assert!(shown.contains(&harmless), "{formula:?}: {shown:?}");
    }
    let node = json!({"kind": "LifecycleQuery", "series": [{"kind": "EventsNode", "event": "signed up"}],
        "dateRange": {"date_from": "2026-01-01", "date_to": "2026-01-03"}});
    let lifecycle = json!({"name": "L", "query": node});
    let lifecycle =
        app.post(&format!("{INSIGHTS}/?refresh=blocking"), lifecycle).await.expect(201)["id"].clone();
    app.post(&format!("{INSIGHTS}/{}/viewed/", ids[0]), Value::Null).await.expect(200);
    let mut seen = 0;
    for path in [
        format!("{INSIGHTS}.csv"),
        format!("{INSIGHTS}/{}.csv", ids[0]),
        format!("{INSIGHTS}/activity.csv"),
        format!("{INSIGHTS}/{}/activity.csv", ids[1]),
        format!("{INSIGHTS}/{}/sharing.csv", ids[2]),
        format!("{INSIGHTS}/my_last_viewed.csv"),
        format!("{INSIGHTS}/{lifecycle}.csv?refresh=blocking"),
    ] {
        let response = app.get(&path).await;
        assert_eq!(response.status.as_u16(), 200, "{path}: {}", response.text);
        for cell in cells(is_table(&response)) {
            let is_number = serde_json::from_str::<serde_json::Number>(&cell).is_ok();
            assert!(is_number || !cell.starts_with(['=', '+', '-', '@', '\t', '\r']), "{path}: {cell:?}");
            seen += usize::from(formulas.iter().any(|formula| cell == format!("'{formula}")));
        }
        if path.contains(&format!("/{lifecycle}.csv")) {
            assert!(
                cells(&response.text).contains(&"-1".to_owned()),
                "a dormant person is a number: {}",
                response.text
            );
        }
    }
    assert!(seen >= 2 * formulas.len(), "{seen}");
}
