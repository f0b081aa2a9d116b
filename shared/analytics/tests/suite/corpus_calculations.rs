//! The funnel and trend cases, asked in process: what is answered must be right, the rest must say that it is not
//! supported yet.

use pennon_analytics::InsightKind;
use pennon_analytics::kinds::funnels::unwrap_single_breakdown_values;
use serde_json::json;

use crate::support::{Tally, World, cases};

#[test]
fn funnels_give_the_expected_rows() {
    let mut tally = Tally::default();
    for case in cases("funnels.json") {
        let world = World::of_case(&case);
        let body = case["request"]["body"].as_object().unwrap();
        let answer = if case["request"]["endpoint"] == json!("funnel") {
            world.ask(InsightKind::Funnels.parse_request(body)).map(|mut result| {
                unwrap_single_breakdown_values(body, &mut result);
                result
            })
        } else {
            world.ask(InsightKind::Correlation.parse_request(body))
        };
        tally.judge(&case, answer, 1e-6);
    }
    tally.check(107, 8);
}

#[test]
fn trends_give_the_expected_series() {
    let mut tally = Tally::default();
    for case in cases("trends.json") {
        let world = World::of_case(&case);
        let body = case["request"]["body"].as_object().unwrap();
        tally.judge(&case, world.ask(InsightKind::Trends.parse_request(body)), 1e-9);
    }
    tally.check(129, 3);
}
