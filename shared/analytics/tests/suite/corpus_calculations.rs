//! The funnel and trend cases, asked in process: what is answered must be right, the rest must say that it is not
//! supported yet.

use pennon_analytics::{Query, unwrap_single_breakdown_values};
use serde_json::json;

use crate::support::{Tally, World, cases};

#[test]
fn funnels_give_the_expected_rows() {
    let mut tally = Tally::default();
    for case in cases("funnels.json") {
        let world = World::of_case(&case);
        let body = case["request"]["body"].as_object().unwrap();
        let answer = if case["request"]["endpoint"] == json!("funnel") {
            world.ask(Query::from_funnel_filters(body)).map(|mut result| {
                unwrap_single_breakdown_values(body, &mut result);
                result
            })
        } else {
            world.ask(Query::from_correlation_filters(body))
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
        tally.judge(&case, world.ask(Query::from_trends_filters(body)), 1e-9);
    }
    tally.check(129, 3);
}
