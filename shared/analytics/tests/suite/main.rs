//! Tests of the crate from the outside, in one program.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up should stop at once")]

mod actions;
mod allowed_values;
mod any_input;
mod cohorts;
mod corpus_calculations;
mod corpus_operators;
mod correlation;
mod filters;
mod flag_impact;
mod funnel_people;
mod funnel_requests;
mod funnel_results;
mod impact_arithmetic;
mod independent;
mod lifecycle;
mod limits;
mod part_bytes;
mod paths;
mod query_parsing;
mod query_results;
mod retention_cases;
mod retention_rules;
mod sessions;
mod stickiness;
mod support;
mod trend_ranges;
mod trend_rules;
mod trend_texts;
mod trends;
