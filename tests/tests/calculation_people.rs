//! The people behind numbers: links lead to as many as the number says, and show who they are.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::Write as _;

use futures::StreamExt;
use pennon::import::{ImportOptions, import_file};
use pennon_tests::questions::{Form, NOT_SUPPORTED, Question, World, at};
use pennon_tests::{Keys, TestApp};
use serde_json::{Value, json};

const FUNNEL: &str = "/api/projects/1/insights/funnel/";
const PEOPLE: &str = "/api/projects/1/persons/funnel/";

/// Two persons of two organizations sign up, one of them buys.
async fn shop() -> TestApp {
    let app = TestApp::new().await;
    let event = |what: &str, who: &str, when: &str, organization: &str| {
        json!({"project": "1", "event": what, "distinct_id": who, "timestamp": when,
               "properties": {"$groups": {"organization": organization}}})
    };
    let lines = [
        json!({"project": "1", "group": {"type": "organization", "index": 0, "key": "a", "properties": {"x": 1}}}),
        json!({"project": "1", "group": {"type": "company", "index": 1, "key": "b", "properties": {"plan": "pro"}}}),
        json!({"project": "1", "person": {"distinct_ids": ["ann", "ann@home"], "properties": {"email": "ann@example.com"}}}),
        event("signed up", "ann@home", "2026-01-01T10:00:00Z", "a"),
        event("bought", "ann", "2026-01-01T12:00:00Z", "a"),
        event("signed up", "bob", "2026-01-02T10:00:00Z", "b"),
    ];
    let mut file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap();
    lines.iter().for_each(|line| writeln!(file, "{line}").unwrap());
    let types = vec!["organization".to_owned(), "company".to_owned()];
    let options = ImportOptions { default_project: None, group_types: [(1, types)].into() };
    let now = app.services.app.clock.now(None).timestamp_micros();
    import_file(&app.services.events, file.path(), options, now, &mut |_| {}).await.unwrap();
    app
}

fn steps() -> Value {
    json!({"events": [{"id": "signed up", "order": 0}, {"id": "bought", "order": 1}]})
}

#[tokio::test]
async fn a_link_of_a_funnel_shows_who_got_through_and_who_did_not() {
    let app = shop().await;
    let answer = app.post(FUNNEL, steps()).await.expect(200);
    let follow = async |link: &Value| app.get(link.as_str().unwrap()).await.expect(200);
    let converted = follow(&answer["result"][1]["converted_people_url"]).await;
    assert_eq!((&converted["results"][0]["count"], &converted["total_count"]), (&json!(1), &json!(1)));
    let ann = &converted["results"][0]["people"][0];
    assert_eq!(ann["distinct_ids"], json!(["ann", "ann@home"]));
    assert_eq!(
        (&ann["properties"], &ann["name"]),
        (&json!({"email": "ann@example.com"}), &json!("ann@example.com"))
    );
    assert_eq!(ann["matched_times"], json!(["2026-01-01T10:00:00Z", "2026-01-01T12:00:00Z"]));
    assert_eq!((&ann["type"], &ann["id"]), (&json!("person"), &ann["uuid"]));
    let dropped = follow(&answer["result"][1]["dropped_people_url"]).await;
    assert_eq!(dropped["results"][0]["people"][0]["distinct_ids"], json!(["bob"]));
    assert_eq!((&dropped["next"], &dropped["previous"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn pages_together_show_everybody_once() {
    let app = shop().await;
    let mut ids = Vec::new();
    let mut path = format!("{PEOPLE}?limit=1");
    let mut body = steps();
    body["funnel_step"] = json!(1);
    loop {
        let page = app.post(&path, body.clone()).await.expect(200);
        assert_eq!((&page["results"][0]["count"], &page["total_count"]), (&json!(1), &json!(2)));
        ids.push(page["results"][0]["people"][0]["id"].clone());
        match page["next"].as_str() {
            Some(next) => path = next.strip_prefix("http://api.test").unwrap().to_owned(),
            None => {
                assert_eq!(page["previous"], json!(format!("http://api.test{PEOPLE}?limit=1")));
                break;
            }
        }
    }
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
    let past = app.post(&format!("{PEOPLE}?offset=5"), body).await.expect(200);
    assert_eq!(past["results"], json!([{"people": [], "count": 0}]));
}

#[tokio::test]
async fn groups_are_shown_where_groups_are_counted() {
    let app = shop().await;
    let series =
        json!([{"kind": "EventsNode", "event": "signed up"}, {"kind": "EventsNode", "event": "bought"}]);
    let node = json!({"kind": "FunnelsQuery", "series": series, "aggregation_group_type_index": 0});
    let answer = app.post("/api/projects/1/query/", json!({"query": node})).await.expect(200);
    assert_eq!(answer["results"][0]["count"], 2);
    let link = answer["results"][1]["converted_people_url"].as_str();
    if let Some(link) = link {
        let page = app.get(link).await.expect(200);
        let group = &page["results"][0]["people"][0];
        assert_eq!(
            (&group["type"], &group["id"], &group["group_type_index"]),
            (&json!("group"), &json!("a"), &json!(0))
        );
        assert_eq!(group["properties"], json!({"x": 1}));
    }
}

#[tokio::test]
async fn keys_are_judged_and_numbers_that_are_not_there_are_refused() {
    let app = shop().await;
    assert_eq!(app.call("", "GET", PEOPLE, Value::Null).await.status, 401);
    let refused = app.call(Keys::READ_FLAGS, "GET", PEOPLE, Value::Null).await.expect(403);
    assert_eq!(refused["detail"], "API key missing required scope 'insight:read'");
    assert_eq!(app.call(Keys::STRANGER, "GET", PEOPLE, Value::Null).await.status, 403);
    app.get(PEOPLE).await.expect_invalid("required", "This field is required.", Some("events"));
    app.post(PEOPLE, steps()).await.expect_invalid(
        "required",
        "This field is required.",
        Some("funnel_step"),
    );
    let mut body = steps();
    body["funnel_step"] = json!(7);
    assert_eq!(app.post(PEOPLE, body).await.expect(400)["attr"], "funnel_step");
    assert_eq!(app.call(Keys::OWNER, "PUT", PEOPLE, json!({})).await.status, 405);
    let environment = app.get("/api/environments/1/persons/funnel").await;
    assert_eq!(environment.status, 400);
}

/// A link and how many people it has to lead to; none where the number is not one of people.
type Link = (String, Option<u64>);

/// The links of an answer.
fn links(question: &Question, result: &Value) -> Vec<Link> {
    match question.endpoint {
        "funnel" => of_steps(result),
        _ => of_series(result),
    }
}

fn of_steps(result: &Value) -> Vec<Link> {
    let rows = result.as_array().map_or(&[][..], Vec::as_slice);
    let mut found = Vec::new();
    for row in rows {
        if row.is_array() {
            found.extend(of_steps(row));
        }
    }
    for (index, step) in rows.iter().enumerate() {
        if let Some(link) = step["converted_people_url"].as_str() {
            found.push((link.to_owned(), step["count"].as_u64()));
        }
        if let Some(link) = step["dropped_people_url"].as_str() {
            let before = rows[index - 1]["count"].as_u64().unwrap();
            found.push((link.to_owned(), before.checked_sub(step["count"].as_u64().unwrap())));
        }
    }
    found
}

/// Of each series the links with the largest and with the last number.
fn of_series(result: &Value) -> Vec<Link> {
    let mut found = Vec::new();
    for series in result.as_array().into_iter().flatten().take(6) {
        let (data, urls) = (&series["data"], &series["persons_urls"]);
        let Some(data) = data.as_array().filter(|data| !data.is_empty()) else { continue };
        let number = |index: &usize| data[*index].as_f64().unwrap_or_default();
        let most = (0..data.len()).max_by(|one, other| number(one).total_cmp(&number(other))).unwrap();
        let people = matches!(
            series["action"]["math"].as_str(),
            Some("dau" | "unique_group" | "weekly_active" | "monthly_active")
        );
        for index in [most, data.len() - 1] {
            if let Some(url) = urls[index]["url"].as_str() {
                found.push((url.to_owned(), people.then(|| data[index].as_f64().unwrap() as u64)));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_of_every_case_lead_to_as_many_people_as_their_numbers_say() {
    let world = World::of_corpus();
    let app = &world.install().await;
    let followed = world
        .questions
        .iter()
        .filter(|question| matches!(question.endpoint, "funnel" | "trend") && question.expect.status == 200)
        .map(|question| async move {
            let answer = question.ask(app, Form::Post).await;
            let Some(result) = answer.json().get("result").cloned() else { return Vec::new() };
            let optional =
                question.body.get("events").is_some_and(|list| list.to_string().contains("optionalInFunnel"));
            let cumulative = question.body.get("display") == Some(&json!("ActionsLineGraphCumulative"));
            let mut problems = Vec::new();
            for (link, count) in links(question, &result) {
                let page = at(app, &question.now, "GET", &link, Value::Null).await;
                if page.text.contains(NOT_SUPPORTED) {
                    problems.push(Err(format!("{}: {}", question.name, page.text)));
                    continue;
                }
                let total = page.json()["total_count"].as_u64();
                let right =
                    page.status == 200 && (optional || cumulative || count.is_none() || total == count);
                problems.push(match right {
                    true => Ok(()),
                    false => Ok::<(), String>(())
                        .and(Err(format!("WRONG {}: want {count:?}: {link}\n {}", question.name, page.text))),
                });
            }
            problems
        });
    let followed: Vec<Vec<Result<(), String>>> = futures::stream::iter(followed).buffered(4).collect().await;
    let (right, other): (Vec<_>, Vec<_>) = followed.into_iter().flatten().partition(Result::is_ok);
    let other: Vec<String> = other.into_iter().filter_map(Result::err).collect();
    let wrong: Vec<&String> = other.iter().filter(|text| text.starts_with("WRONG")).collect();
    println!("{} links followed, {} not covered", right.len(), other.len() - wrong.len());
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        right.len(),
        wrong
            .iter()
            .take(20)
            .map(|text| text.chars().take(1200).collect::<String>())
            .collect::<Vec<_>>()
            .join("\n")
    );
}
