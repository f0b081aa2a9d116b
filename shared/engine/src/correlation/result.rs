//! The rows of a correlation's answer.

use serde_json::{Value, json};

use super::candidates::{AUTOCAPTURE, CHAIN, CHAIN_SEPARATOR};
use super::people::link_parameters;
use super::{Candidate, Correlation, Counts};
use crate::dates::zone::utc_text;
use crate::element;
use crate::limits;
use crate::query::{Factor, Query};
use crate::url::{push_pair, push_value};

/// Rows of each kind at most.
const ROWS: usize = 10;

/// Fewer actors than this, or than a share of all, mean nothing.
const SIGNIFICANT: f64 = 25.0;
const SIGNIFICANT_SHARE: f64 = 0.02;

/// Values of events' properties that no more actors have than this mean nothing.
const RARE: u64 = 2;

/// More than so many times as many of one kind as of the other is lopsided.
const SKEWED: u64 = 10;

struct Row {
    candidate: Candidate,
    success: u64,
    failure: u64,
    odds: f64,
}

/// `{events, skewed}`.
pub(super) fn result(correlation: &Correlation, sum: Counts) -> Value {
    let (successes, failures) = (sum.success, sum.failure);
    if successes == 0 || failures == 0 {
        return json!({"events": [], "skewed": true});
    }
    let rare = if matches!(correlation.query.factor, Factor::EventProperties { .. }) { RARE } else { 0 };
    let least = SIGNIFICANT.min(SIGNIFICANT_SHARE * float(successes + failures));
    let rows = sum
        .candidates
        .into_iter()
        .filter(|(_, (success, failure))| success + failure > rare && float(success + failure) >= least);
    let rows = rows.map(|(candidate, (success, failure))| {
        let odds = odds_ratio(success, failure, successes, failures);
        Row { candidate, success, failure, odds }
    });
    // The map gave them by name; equal ratios are told by how many there are, then by name.
    let (mut more, mut less): (Vec<Row>, Vec<Row>) = rows.partition(|row| row.odds > 1.0);
    let people = |row: &Row| std::cmp::Reverse(row.success + row.failure);
    more.sort_by(|left, right| right.odds.total_cmp(&left.odds).then(people(left).cmp(&people(right))));
    less.sort_by(|left, right| left.odds.total_cmp(&right.odds).then(people(left).cmp(&people(right))));
    more.truncate(ROWS);
    less.truncate(ROWS);
    let link = people_link(correlation);
    let events: Vec<Value> = more.iter().chain(&less).map(|row| row_json(row, &link)).collect();
    let skewed = successes > SKEWED * failures || failures > SKEWED * successes;
    json!({"events": events, "skewed": skewed})
}

/// With one added to every cell, so that nothing is divided by zero.
pub(super) fn odds_ratio(success: u64, failure: u64, successes: u64, failures: u64) -> f64 {
    let with = float(success + 1) * float(failures - failure + 1);
    let without = float(successes - success + 1) * float(failure + 1);
    with / without
}

#[expect(clippy::cast_precision_loss, reason = "people are far fewer than 2^52")]
fn float(count: u64) -> f64 {
    count as f64
}

fn row_json(row: &Row, link: &str) -> Value {
    let people = |converted: bool| {
        let mut url = link.to_owned();
        for (key, value) in link_parameters(&row.candidate, converted) {
            push_value(&mut url, key, &value);
        }
        limits::links_fit(url.len(), 4 * ROWS).then_some(url)
    };
    json!({
        "event": described(&row.candidate),
        "success_count": row.success,
        "failure_count": row.failure,
        "odds_ratio": row.odds,
        "correlation_type": if row.odds > 1.0 { "success" } else { "failure" },
        "success_people_url": people(true),
        "failure_people_url": people(false),
    })
}

fn described(candidate: &Candidate) -> Value {
    let Candidate { event, property, value } = candidate;
    let name = match (event.as_str(), property.as_str()) {
        (event, "") => event.to_owned(),
        ("", property) => format!("{property}::{value}"),
        (event, property) => format!("{event}::{property}::{value}"),
    };
    if event == AUTOCAPTURE
        && property == CHAIN
        && let Some((kind, chain)) = value.split_once(CHAIN_SEPARATOR)
    {
        let elements = element::described(chain);
        return json!({"event": name, "properties": {"$event_type": kind}, "elements": elements});
    }
    json!({"event": name, "properties": {}, "elements": []})
}

/// Everything of a link but the candidate: the question's own parameters, dates made absolute.
fn people_link(correlation: &Correlation) -> String {
    let mut url = format!("/api/projects/{}/persons/funnel/correlation/?", correlation.project_id);
    for (key, value) in Query::Correlation(correlation.query.clone()).to_insight_filters() {
        if !matches!(key.as_str(), "date_from" | "date_to" | "explicit_date") {
            push_value(&mut url, &key, &value);
        }
    }
    push_pair(&mut url, "date_from", &utc_text(&correlation.range.from));
    push_pair(&mut url, "date_to", &utc_text(&correlation.range.to));
    push_pair(&mut url, "explicit_date", "true");
    url
}
