//! Builds the result of a correlation: the candidates with the highest and lowest odds ratios.

use pennon_filters::dates::zone::utc_text;
use serde_json::{Value, json};

use super::candidates::{AUTOCAPTURE, CHAIN, CHAIN_SEPARATOR};
use super::people::link_parameters;
use super::{Candidate, CompiledCorrelation, CorrelationCounts};
use crate::element;
use crate::kinds::correlation::Factor;
use crate::kinds::correlation::limits;
use crate::kinds::insight::InsightQuery;
use crate::url::{push_pair, push_value};

/// Maximum number of rows with positive and with negative correlation each.
const MAX_ROWS: usize = 10;

/// A candidate is significant if it has at least this many actors, or this share of the population.
const SIGNIFICANT_ACTORS: f64 = 25.0;
const SIGNIFICANT_SHARE: f64 = 0.02;

/// Values of event properties with at most this many actors are ignored.
const RARE_ACTORS: u64 = 2;

/// The result is skewed if one outcome is more than this many times as frequent as the other.
const SKEWED_RATIO: u64 = 10;

struct Row {
    candidate: Candidate,
    success: u64,
    failure: u64,
    odds: f64,
}

/// Builds `{events, skewed}`.
pub(super) fn build_result(correlation: &CompiledCorrelation, counts: CorrelationCounts) -> Value {
    let (successes, failures) = (counts.success, counts.failure);
    if successes == 0 || failures == 0 {
        return json!({"events": [], "skewed": true});
    }
    let ignored_actors =
        if matches!(correlation.query.factor, Factor::EventProperties { .. }) { RARE_ACTORS } else { 0 };
    let significant = SIGNIFICANT_ACTORS.min(SIGNIFICANT_SHARE * to_float(successes + failures));
    let rows = counts.candidates.into_iter().filter(|(_, (success, failure))| {
        success + failure > ignored_actors && to_float(success + failure) >= significant
    });
    let rows = rows.map(|(candidate, (success, failure))| {
        let odds = odds_ratio(success, failure, successes, failures);
        Row { candidate, success, failure, odds }
    });
    // The map is sorted by name. Ties in the ratio are ordered by the number of actors, then by name.
    let (mut positive, mut negative): (Vec<Row>, Vec<Row>) = rows.partition(|row| row.odds > 1.0);
    let people = |row: &Row| std::cmp::Reverse(row.success + row.failure);
    positive.sort_by(|left, right| right.odds.total_cmp(&left.odds).then(people(left).cmp(&people(right))));
    negative.sort_by(|left, right| left.odds.total_cmp(&right.odds).then(people(left).cmp(&people(right))));
    positive.truncate(MAX_ROWS);
    negative.truncate(MAX_ROWS);
    let link = people_link(correlation);
    let events: Vec<Value> = positive.iter().chain(&negative).map(|row| row_json(row, &link)).collect();
    let skewed = successes > SKEWED_RATIO * failures || failures > SKEWED_RATIO * successes;
    json!({"events": events, "skewed": skewed})
}

/// The odds ratio, with one added to every cell to avoid division by zero.
pub(super) fn odds_ratio(success: u64, failure: u64, successes: u64, failures: u64) -> f64 {
    let with = to_float(success + 1) * to_float(failures - failure + 1);
    let without = to_float(successes - success + 1) * to_float(failure + 1);
    with / without
}

#[expect(clippy::cast_precision_loss, reason = "people are far fewer than 2^52")]
fn to_float(count: u64) -> f64 {
    count as f64
}

fn row_json(row: &Row, link: &str) -> Value {
    let people = |converted: bool| {
        let mut url = link.to_owned();
        for (key, value) in link_parameters(&row.candidate, converted) {
            push_value(&mut url, key, &value);
        }
        limits::links_fit(url.len(), 4 * MAX_ROWS).then_some(url)
    };
    json!({
        "event": event_json(&row.candidate),
        "success_count": row.success,
        "failure_count": row.failure,
        "odds_ratio": row.odds,
        "correlation_type": if row.odds > 1.0 { "success" } else { "failure" },
        "success_people_url": people(true),
        "failure_people_url": people(false),
    })
}

fn event_json(candidate: &Candidate) -> Value {
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
        let elements = element::elements_json(chain);
        return json!({"event": name, "properties": {"$event_type": kind}, "elements": elements});
    }
    json!({"event": name, "properties": {}, "elements": []})
}

/// A people link without the candidate: the query's parameters with absolute dates.
fn people_link(correlation: &CompiledCorrelation) -> String {
    let mut url = format!("/api/projects/{}/persons/funnel/correlation/?", correlation.project_id);
    for (key, value) in correlation.query.to_insight_filters() {
        if !matches!(key.as_str(), "date_from" | "date_to" | "explicit_date") {
            push_value(&mut url, &key, &value);
        }
    }
    push_pair(&mut url, "date_from", &utc_text(&correlation.range.from));
    push_pair(&mut url, "date_to", &utc_text(&correlation.range.to));
    push_pair(&mut url, "explicit_date", "true");
    url
}
