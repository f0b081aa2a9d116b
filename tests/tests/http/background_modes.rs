//! Every refresh mode in every state, and the responses.

use chrono::{DateTime, Duration, Utc};
use pennon_calculation::jobs::JobOutcome;
use pennon_tests::{NOW, TestApp};
use serde_json::{Value, json};

use crate::background::{INSIGHTS, saved, view, viewed, views};

/// The stored state before a request: nothing, or a result of so many hours before. The first limit of queries by
/// days is 6 hours, the second 12.
const AGES: [Option<i64>; 4] = [None, Some(6), Some(7), Some(13)];

/// Modes down, ages across: `R` the stored result, `-` none, `calc` a new one; the reported calculation: `run?` of one
/// that is under way, `new` of one that is started.
const TABLE: [(&str, [&str; 4]); 7] = [
    ("force_cache", ["-,run?", "R,run?", "R,run?", "R,run?"]),
    ("blocking", ["calc", "R,run?", "calc", "calc"]),
    ("async", ["-,new", "R,run?", "R,new", "R,new"]),
    ("lazy_async", ["-,new", "R,run?", "R,run?", "R,new"]),
    ("force_blocking", ["calc", "calc", "calc", "calc"]),
    ("force_async", ["-,new", "-,new", "-,new", "-,new"]),
    ("async_except_on_cache_miss", ["calc", "R,run?", "R,new", "R,new"]),
];

fn instant(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn text(at: DateTime<Utc>) -> String {
    pennon_core::clock::timestamp(at)
}

/// An insight with a result of `age` hours before `now`, and perhaps a calculation that waits.
async fn prepared(app: &TestApp, number: usize, age: Option<i64>, runs: bool, now: DateTime<Utc>) -> String {
    let path = saved(app, views(&format!("-{}d", number + 8))).await;
    if let Some(hours) = age {
        let then = text(now - Duration::hours(hours));
        app.at(&then, "GET", &format!("{path}?refresh=blocking"), Value::Null).await.expect(200);
    }
    if runs {
        app.at(&text(now), "GET", &format!("{path}?refresh=force_async"), Value::Null).await.expect(200);
    }
    path
}

#[tokio::test]
async fn each_mode_returns_and_starts_as_in_the_table() {
    let app = viewed().await;
    let now = instant(NOW) + Duration::days(1);
    let mut number = 0;
    for (mode, cells) in TABLE {
        for (age, cell) in AGES.into_iter().zip(cells) {
            for runs in [false, true] {
                let what = format!("{mode}, stored {age:?} hours before, under way: {runs}");
                number += 1;
                let path = prepared(&app, number, age, runs, now).await;
                let before = app.jobs().await.len();
                let got = app
                    .at(&text(now), "GET", &format!("{path}?refresh={mode}"), Value::Null)
                    .await
                    .expect(200);
                let stored = age.map(|hours| json!(text(now - Duration::hours(hours))));
                let (shown, reported) = cell.split_once(',').unwrap_or((cell, "null"));
                let expected = match shown {
                    "R" => (stored.unwrap(), true),
                    "-" => (Value::Null, false),
                    _ => (json!(text(now)), false),
                };
                assert_eq!(
                    (&got["last_refresh"], &got["is_cached"]),
                    (&expected.0, &json!(expected.1)),
                    "{what}"
                );
                let is_reported = match reported {
                    "new" => true,
                    "run?" => runs,
                    _ => false,
                };
                assert_eq!(got["query_status"].is_object(), is_reported, "{what}: {}", got["query_status"]);
                let started = app.jobs().await.len() - before;
                // The queued calculation reads the same events as a new one would.
                assert_eq!(started, usize::from(reported == "new" && !runs), "{what}");
                consistent(&got, &what);
            }
        }
    }
}

/// The invariants of every response.
fn consistent(insight: &Value, what: &str) {
    let time = |key: &str| insight[key].as_str().map(instant);
    let last = time("last_refresh");
    assert_eq!(insight["result"].is_null(), last.is_none(), "{what}");
    assert_eq!(time("cache_target_age"), last.map(|last| last + Duration::hours(6)), "{what}");
    assert_eq!(time("next_allowed_client_refresh"), last.map(|last| last + Duration::minutes(15)), "{what}");
    assert_eq!(insight["hogql"].is_null(), last.is_none(), "{what}");
    assert!(last.is_some() || insight["is_cached"] == false, "{what}");
    let status = &insight["query_status"];
    if !status.is_null() {
        let is = |key: &str| status[key].as_bool().unwrap();
        assert_eq!(is("complete"), !status["end_time"].is_null(), "{what}");
        assert_eq!(status["expiration_time"].is_null(), !is("complete"), "{what}");
        assert!(is("complete") || !is("error"), "{what}");
        assert!(is("error") || status["error_message"].is_null(), "{what}");
        assert!(
            is("error") || !is("complete"),
            "beside an insight, what has ended well is its result: {what}"
        );
        assert!(status["results"].is_null() && is("query_async"), "{what}");
        assert_eq!(status["insight_id"], insight["id"], "{what}");
    }
}

#[tokio::test]
async fn random_requests_in_random_order_have_consistent_responses() {
    let mut random = pennon_tests::Random::new(20_260_105);
    let app = viewed().await;
    let mut now = instant(NOW);
    let mut paths = Vec::new();
    for number in 0..3 {
        paths.push(saved(&app, views(&format!("-{}d", number + 20))).await);
    }
    let mut seen: Vec<Option<DateTime<Utc>>> = vec![None; paths.len()];
    for step in 0..300 {
        now += Duration::minutes(i64::try_from(random.below(200)).unwrap());
        let which = usize::try_from(random.below(3)).unwrap();
        match random.below(10) {
            0 => view(&app, "more").await,
            1 | 2 => assert!(!app.work().await.contains(&JobOutcome::Retry)),
            3 => {
                let cancel = json!({"client_query_id": format!("mine{which}")});
                assert_eq!(app.post(&format!("{INSIGHTS}cancel/"), cancel).await.status, 200);
            }
            _ => {
                let (mode, _) = TABLE[usize::try_from(random.below(7)).unwrap()];
                let name = if random.below(2) == 0 {
                    format!("&client_query_id=mine{which}")
                } else {
                    String::new()
                };
                let path = format!("{}?refresh={mode}{name}", paths[which]);
                let got = app.at(&text(now), "GET", &path, Value::Null).await.expect(200);
                consistent(&got, &format!("step {step}, {path}"));
                // Results only ever become newer.
                if let Some(last) = got["last_refresh"].as_str().map(instant) {
                    assert!(Some(last) >= seen[which], "step {step}: {last} after {:?}", seen[which]);
                    seen[which] = Some(last);
                }
            }
        }
    }
    assert!(seen.iter().all(Option::is_some));
}
