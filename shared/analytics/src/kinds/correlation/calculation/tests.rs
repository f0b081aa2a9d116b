#![allow(clippy::unwrap_used, clippy::float_cmp)]

use pennon_filters::dates::WeekStart;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::definitions::Definitions;
use crate::kinds::Plan;
use crate::kinds::{InsightKind, ParsedQuery, PartitionResult};
use crate::part_format::decoded;

fn plan(more: &Value) -> Plan {
    let mut request = json!({"events": [{"id": "in", "order": 0}, {"id": "out", "order": 1}]});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let project = ProjectContext {
        project_id: "7".to_owned(),
        timezone: chrono_tz::UTC,
        week_start: WeekStart::from_day(0),
        test_account_filters: Vec::new(),
        path_cleaning_filters: Vec::new(),
        earliest_event: None,
        aggregate_by_distinct_id: false,
        definitions: Definitions::default(),
    };
    match InsightKind::Correlation.parse_request(request.as_object().unwrap()).unwrap() {
        ParsedQuery::Query(query) => query.plan(&project, chrono::DateTime::UNIX_EPOCH).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The result for these numbers of successes and failures, and of those with each candidate.
fn calculate(more: &Value, success: u64, failure: u64, candidates: &[(&str, u64, u64)]) -> Value {
    let candidate = |(event, success, failure): &(&str, u64, u64)| {
        let property = if more.as_object().unwrap().is_empty() { "" } else { "p" };
        let candidate =
            Candidate { event: (*event).to_owned(), property: property.to_owned(), value: "v".to_owned() };
        (candidate, (*success, *failure))
    };
    let candidates = candidates.iter().map(candidate).collect();
    let correlation = CorrelationCounts { success, failure, candidates, ..CorrelationCounts::default() };
    plan(more).finish(PartitionResult::from(correlation), &|| false).unwrap().result
}

fn names(result: &Value) -> Vec<&str> {
    result["events"].as_array().unwrap().iter().map(|row| row["event"]["event"].as_str().unwrap()).collect()
}

/// The numbers of the contract.
#[test]
fn odds_have_one_added_to_every_cell() {
    for (success, failure, of_success, of_failure, expected) in [
        (1, 1, 2, 1, 0.5),
        (10, 0, 10, 10, 121.0),
        (0, 10, 10, 10, 1.0 / 121.0),
        (5, 0, 10, 10, 11.0),
        (3, 0, 3, 1, 8.0),
        (0, 1, 1, 1, 0.25),
    ] {
        assert_eq!(result::odds_ratio(success, failure, of_success, of_failure), expected);
    }
}

#[test]
fn a_ratio_of_one_is_a_failure() {
    let result = calculate(&json!({}), 3, 3, &[("same", 1, 1)]);
    assert_eq!(result["events"][0]["odds_ratio"], 1.0);
    assert_eq!(result["events"][0]["correlation_type"], "failure");
}

#[test]
fn the_ten_highest_ratios_come_before_the_ten_lowest() {
    let names_of = |prefix: char| (0..12_u8).map(move |index| format!("{prefix}{index:02}"));
    let (good, bad): (Vec<_>, Vec<_>) = (names_of('g').collect(), names_of('b').collect());
    let mut rows: Vec<(&str, u64, u64)> = Vec::new();
    rows.extend(good.iter().zip(1..).map(|(name, count)| (name.as_str(), count, 0)));
    rows.extend(bad.iter().zip(1..).map(|(name, count)| (name.as_str(), 0, count)));
    let result = calculate(&json!({}), 20, 20, &rows);
    let best = good.iter().rev().take(10);
    let expected: Vec<_> = best.chain(bad.iter().rev().take(10)).map(String::as_str).collect();
    assert_eq!(names(&result), expected);
}

#[test]
fn rare_candidates_are_left_out() {
    // 2 % of 200 are 4.
    assert_eq!(names(&calculate(&json!({}), 100, 100, &[("three", 3, 0), ("four", 2, 2)])), ["four"]);
    // 25 are always enough.
    assert_eq!(names(&calculate(&json!({}), 9_000, 1_000, &[("24", 24, 0), ("25", 25, 0)])), ["25"]);
    let pairs =
        json!({"funnel_correlation_type": "event_with_properties", "funnel_correlation_event_names": ["e"]});
    assert_eq!(names(&calculate(&pairs, 3, 1, &[("two", 2, 0), ("three", 3, 0)])), ["three::p::v"]);
}

#[test]
fn a_result_is_skewed_if_one_side_is_more_than_ten_times_the_other() {
    for (success, failure, skewed) in
        [(10, 1, false), (11, 1, true), (1, 10, false), (1, 11, true), (2, 20, false)]
    {
        assert_eq!(calculate(&json!({}), success, failure, &[])["skewed"], skewed, "{success} to {failure}");
    }
    for (success, failure) in [(0, 5), (5, 0), (0, 0)] {
        assert_eq!(
            calculate(&json!({}), success, failure, &[("x", success, failure)]),
            json!({"events": [], "skewed": true})
        );
    }
}

fn counts() -> impl Strategy<Value = CorrelationCounts> {
    let candidate = prop::sample::select(vec!["a", "b", "c"]);
    let candidates = prop::collection::vec((candidate, 0_u64..5, 0_u64..5), 0..4);
    (0_u64..9, 0_u64..9, candidates).prop_map(|(success, failure, candidates)| {
        let mut counts = CorrelationCounts { success, failure, ..CorrelationCounts::default() };
        for (event, success, failure) in candidates {
            counts.add(Candidate { event: event.to_owned(), ..Candidate::default() }, (success, failure));
        }
        counts
    })
}

proptest! {
    #[test]
    fn partial_results_merge_in_any_order(one in counts(), two in counts(), three in counts()) {
        let left = one.clone().merge(two.clone()).merge(three.clone());
        let right = three.merge(two.merge(one));
        prop_assert_eq!(left, right);
    }
}

/// For any division of the actors, candidates are accepted up to the limit and rejected beyond it.
#[test]
fn candidates_are_bounded_over_all_partial_results() {
    let part = |names: std::ops::Range<usize>| {
        let candidate = |n: usize| Candidate { event: n.to_string(), ..Candidate::default() };
        let mut counts = CorrelationCounts { success: 1, failure: 1, ..CorrelationCounts::default() };
        names.for_each(|n| counts.add(candidate(n), (1, 1)));
        counts
    };
    let most = crate::kinds::correlation::limits::CORRELATION_CANDIDATES;
    let calculate = |parts: Vec<CorrelationCounts>| {
        let parts = parts.iter().map(decoded);
        let correlation = parts.fold(CorrelationCounts::default(), CorrelationCounts::merge);
        assert_eq!(decoded(&correlation), correlation);
        plan(&json!({})).finish(PartitionResult::from(decoded(&correlation)), &|| false)
    };
    assert!(calculate(vec![part(0..most / 2), part(1..most)]).is_ok());
    for parts in [vec![part(0..most), part(most..most + 1)], vec![part(0..most + 1)]] {
        assert_eq!(calculate(parts).unwrap_err().attr.as_deref(), Some("funnel_correlation_type"));
    }
}
