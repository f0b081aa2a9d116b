//! The funnel and trend cases, calculated in process: each result must be right, all other cases must be rejected as not
//! supported yet.

use pennon_analytics::InsightKind;
use pennon_analytics::kinds::funnels::unwrap_single_breakdown_values;
use serde_json::json;

use crate::support::{CaseOutcomes, World, cases};

#[test]
fn funnels_give_the_expected_rows() {
    let mut outcomes = CaseOutcomes::default();
    for case in cases("funnels.json") {
        let world = World::of_case(&case);
        let body = case["request"]["body"].as_object().unwrap();
        let result = if case["request"]["endpoint"] == json!("funnel") {
            world.calculate_parsed(InsightKind::Funnels.parse_request(body)).map(|mut result| {
                unwrap_single_breakdown_values(body, &mut result);
                result
            })
        } else {
            world.calculate_parsed(InsightKind::Correlation.parse_request(body))
        };
        outcomes.record(&case, result, 1e-6);
    }
    outcomes.check(107, 8);
}

#[test]
fn trends_give_the_expected_series() {
    let mut outcomes = CaseOutcomes::default();
    for case in cases("trends.json") {
        let world = World::of_case(&case);
        let body = case["request"]["body"].as_object().unwrap();
        outcomes.record(&case, world.calculate_parsed(InsightKind::Trends.parse_request(body)), 1e-9);
    }
    outcomes.check(129, 3);
}
