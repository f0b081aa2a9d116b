//! `pennon query funnel`, `trend` and the other kinds: the published numbers of the demo, as text, CSV and JSON, over the data
//! directory and over HTTP.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::{BINARY, Server, done, pennon, text};

const QUERIES: &str = include_str!("../../../tests/corpus/ecom/expected.json");
/// The day after the newest event as it was published, on which nothing is moved.
const UNMOVED: &str = "2024-06-30T12:00:00Z";
const DATES: [&str; 4] = ["--from", "2024-01-01", "--to", "2024-06-30"];

/// The expectation of the published query with this name.
fn published(name: &str) -> Value {
    let file: Value = serde_json::from_str(QUERIES).unwrap();
    let queries = file["questions"].as_array().unwrap();
    queries.iter().find(|query| query["name"] == name).unwrap_or_else(|| panic!("{name}"))["expect"].clone()
}

fn demo(directory: &Path) -> (Server, String) {
    let server = Server::start(directory, &["--now", UNMOVED]);
    let key = server
        .output_text
        .split_whitespace()
        .find(|word| word.starts_with("phx_"))
        .expect("a key")
        .to_owned();
    (server, key)
}

fn over_http(arguments: &[&str], server: &Server, key: &str) -> Output {
    let url = format!("http://{}", server.address);
    // Not a data directory: the command must not open one.
    Command::new(BINARY)
        .args(arguments)
        .args(["--url", &url, "--data", "nowhere"])
        .env("PENNON_API_KEY", key)
        .output()
        .unwrap()
}

/// The column `count` of a funnel as CSV.
fn counts(csv: &str) -> Vec<u64> {
    csv.lines().skip(1).map(|line| line.split(',').nth(2).unwrap().parse().unwrap()).collect()
}

const SIX_STEPS: &str = "product_view,add_to_cart,cart,shipping_details,payment_details,purchase";

#[test]
fn funnels_have_the_published_counts_in_every_form_and_over_http() {
    let directory = tempfile::tempdir().unwrap();
    let (server, key) = demo(directory.path());
    let funnels: [(&str, &[&str]); 5] = [
        ("six-step checkout, 1 day window", &["--steps", SIX_STEPS, "--window", "1d"]),
        ("six-step checkout, 14 day window", &["--steps", SIX_STEPS]),
        (
            "three steps, mobile events only, 30 minutes",
            &[
                "--steps",
                "product_view,add_to_cart,purchase",
                "--window",
                "30min",
                "--where",
                "platform=mobile",
            ],
        ),
        (
            "strict order home then search, 7 days",
            &["--steps", "home,search", "--window", "7d", "--order", "strict"],
        ),
        (
            "unordered wishlist and review and purchase, 30 days",
            &["--steps", "wishlist_add, review_page, purchase", "--window", "30d", "--order", "unordered"],
        ),
    ];
    for (name, options) in funnels {
        let arguments = [&["query", "funnel"][..], options, &DATES].concat();
        let expected: Vec<u64> = published(name)["counts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|count| count.as_u64().unwrap())
            .collect();
        let with = |form: &[&'static str]| [&arguments[..], form].concat();
        let csv = done(&with(&["--csv"]), directory.path());
        assert_eq!(counts(&csv), expected, "{name}");
        let sent = over_http(&with(&["--csv"]), &server, &key);
        assert_eq!((text(&sent.stdout), text(&sent.stderr)), (csv, String::new()), "{name}");
        let body: Value = serde_json::from_str(&done(&with(&["--json"]), directory.path())).unwrap();
        let by_http: Value =
            serde_json::from_slice(&over_http(&with(&["--json"]), &server, &key).stdout).unwrap();
        assert_eq!(body["result"], by_http["result"], "{name}");
        let shown = done(&arguments, directory.path());
        let last = shown.lines().last().unwrap();
        let (first, completed) = (expected[0], expected[expected.len() - 1]);
        assert!(last.starts_with(&format!("{first} persons began, {completed} completed: ")), "{shown}");
        assert!(shown.contains('█') && shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert!(!shown.contains(|letter: char| letter.is_control() && letter != '\n'), "{shown}");
        assert_eq!(text(&over_http(&arguments, &server, &key).stdout), shown, "{name}");
    }
    // 57 of 598 are 9.53 %, 493 of 598 are 82.44 %.
    let shown = done(&[&["query", "funnel", "--steps", SIX_STEPS][..], &DATES].concat(), directory.path());
    assert!(
        shown.contains("82.4 %") && shown.ends_with("598 persons began, 57 completed: 9.5 %\n"),
        "{shown}"
    );
    assert_eq!(server.stop(), 0);
    let alone = done(&[&["query", "funnel", "--steps", SIX_STEPS][..], &DATES].concat(), directory.path());
    assert_eq!(alone, shown, "without a server");
}

#[test]
fn trends_have_the_published_numbers_and_other_kinds_are_calculated() {
    let directory = tempfile::tempdir().unwrap();
    let (server, key) = demo(directory.path());
    let expected = published("purchases a day in March");
    let march = ["query", "trend", "--event", "purchase", "--from", "2024-03-01", "--to", "2024-03-31"];
    let shown = done(&march, directory.path());
    let rows: Vec<Vec<&str>> = shown.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
    let days = expected["days"].as_array().unwrap();
    let numbers = expected["series"][0]["data"].as_array().unwrap();
    for (row, (day, number)) in rows.iter().zip(days.iter().zip(numbers)) {
        assert_eq!((row[0], row[1].parse::<u64>().ok()), (day.as_str().unwrap(), number.as_u64()), "{shown}");
    }
    let sum: u64 = numbers.iter().map(|number| number.as_u64().unwrap()).sum();
    assert!(shown.contains(&format!("total {sum}, average ")), "{shown}");

    let expected = published("purchases a month by platform");
    let months = ["query", "trend", "--event", "purchase", "--interval", "month", "--breakdown", "platform"];
    let months = [&months[..], &DATES].concat();
    let body: Value =
        serde_json::from_slice(&over_http(&[&months[..], &["--json"]].concat(), &server, &key).stdout)
            .unwrap();
    let series = expected["series"].as_array().unwrap();
    for (row, required) in body["result"].as_array().unwrap().iter().zip(series) {
        let data: Vec<u64> =
            row["data"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap() as u64).collect();
        let required: Vec<u64> =
            required["data"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect();
        assert_eq!(data, required);
    }
    let shown = done(&months, directory.path());
    // Desktop: 6, 19, 30, 71, 65 of at most 86 are 0.5, 1.5, 2.4, 5.8, 5.3 of seven steps; what is not nothing shows at least one.
    assert!(shown.contains("desktop") && shown.contains("▂▃▃▇▆█") && shown.contains("277"), "{shown}");
    let total =
        done(&[&["query", "trend", "--event", "purchase", "--total"][..], &DATES].concat(), directory.path());
    assert!(total.contains("470"), "the purchases of the published file: {total}");

    for kind in [
        &["lifecycle", "--event", "purchase", "--interval", "month"][..],
        &["stickiness", "--event", "purchase", "--interval", "week"],
        &["retention", "--event", "purchase", "--interval", "month", "--periods", "6", "--to", "2024-06-30"],
    ] {
        let dates = if kind[0] == "retention" { &[][..] } else { &DATES[..] };
        let arguments = [&["query"][..], kind, dates].concat();
        let shown = done(&arguments, directory.path());
        assert!(
            shown.lines().count() >= 3 && shown.lines().all(|line| line.chars().count() <= 80),
            "{kind:?}: {shown}"
        );
        assert_eq!(text(&over_http(&arguments, &server, &key).stdout), shown, "{kind:?}");
    }
    // A key that may calculate but not list the names of events.
    let made = done(&["keys", "create", "--label", "analyst", "--scope", "query:read"], directory.path());
    let calculated = over_http(&[&months[..], &["--project", "1"]].concat(), &server, made.trim());
    assert!(text(&calculated.stdout).contains("277"), "{}", text(&calculated.stderr));
    assert_eq!(server.stop(), 0);
}

#[test]
fn wrong_names_options_and_keys_are_errors_that_name_the_next_step() {
    let directory = tempfile::tempdir().unwrap();
    let (server, key) = demo(directory.path());
    let refused = |arguments: &[&str], part: &str| {
        let errors = [pennon(arguments, directory.path()), over_http(arguments, &server, &key)];
        for failed in errors {
            let error = text(&failed.stderr);
            assert_eq!(
                (failed.status.code(), error.lines().count(), text(&failed.stdout).as_str()),
                (Some(1), 1, ""),
                "{error}"
            );
            assert!(error.contains(part), "{part:?} in {error}");
        }
    };
    refused(
        &["query", "funnel", "--steps", "cart,purchse"],
        "no event `purchse` in this project; did you mean `purchase`?",
    );
    refused(&["query", "trend", "--event", "\u{1b}[2J"], "no event ` [2J` in this project; it has `");
    refused(&["query", "trend", "--event", "purchase", "--math", "guess"], "--math guess is unknown");
    refused(&["query", "trend", "--event", "purchase", "--math", "sum"], "needs --math-property");
    refused(&["query", "trend", "--event", "purchase", "--from", "soon"], "date_from");
    refused(&["query", "funnel", "--steps", "cart,"], "separated by commas");
    refused(
        &["flags", "get", "new-chekout"],
        "no flag `new-chekout` in this project; did you mean `new-checkout`?",
    );
    let wrong = over_http(&["query", "trend", "--event", "purchase"], &server, "phx_wrong");
    assert!(text(&wrong.stderr).contains("rejected the key of PENNON_API_KEY"), "{}", text(&wrong.stderr));
    let none = Command::new(BINARY)
        .args(["flags", "list", "--url", "http://127.0.0.1:1"])
        .env_remove("PENNON_API_KEY")
        .output()
        .unwrap();
    assert!(text(&none.stderr).contains("`pennon keys create`"), "{}", text(&none.stderr));
    let unreachable = Command::new(BINARY)
        .args(["flags", "list", "--url", "http://127.0.0.1:1"])
        .env("PENNON_API_KEY", "phx_x")
        .output()
        .unwrap();
    let error = text(&unreachable.stderr);
    assert!(
        error.contains("http://127.0.0.1:1 did not respond") && error.contains("check the address"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
    for (arguments, part) in [
        (&["query", "funnel"][..], "--steps"),
        (&["query", "funnel", "--steps", "a,b", "--window", "30m"], "30min or 1mo"),
        (&["query", "trend", "--event", "a", "--where", "platform"], "platform=mobile"),
        (&["query", "trend", "--event", "a", "--url", "localhost"], "http://127.0.0.1:8080"),
        (&["query"], "QUERY"),
    ] {
        let wrong = pennon(arguments, directory.path());
        assert!(
            wrong.status.code() == Some(2) && text(&wrong.stderr).contains(part),
            "{arguments:?}: {}",
            text(&wrong.stderr)
        );
    }
    assert_eq!(server.stop(), 0);
}
