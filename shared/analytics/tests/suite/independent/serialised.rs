//! Bytes of the partial results of all kinds: damaged ones, and others that were never written.

use std::collections::BTreeSet;

use pennon_analytics::part_format::{PartFormatError, VERSION};
use pennon_analytics::{InsightKind, ParsedQuery, PartitionResult, Query};
use pennon_filters::CalcError;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::dice::Dice;
use super::{
    flag_impact, funnel_exclusions, funnel_spec, lifecycle, number, path_spec, retention_spec, some_seeds,
    stickiness, trend_spec,
};
use crate::support::World;
use crate::support::merged_partials::{MergedPartials, decoded};

/// Aggregates whose states differ.
const AGGREGATES: &[&str] = &[
    "count()",
    "count(distinct properties.v)",
    "sum(properties.n)",
    "min(properties.n) - max(properties.n)",
    "median(properties.n)",
    "any(properties.v)",
    "any(properties.n = 1)",
    "any(splitByChar('a', properties.v))",
    "any(properties.n + 0.5)",
];

/// A random query of each kind, over a history of its own.
fn generate(seed: u64) -> Vec<(World, Result<ParsedQuery, CalcError>)> {
    let dice = &mut Dice::new(seed);
    let request = |kind: InsightKind, body: &Value| kind.parse_request(body.as_object().unwrap());
    let mut queries = Vec::new();
    let (history, spec) = funnel_spec::generate(dice);
    queries.push((history.world(), request(InsightKind::Funnels, &spec.body())));
    queries.push((history.world(), request(InsightKind::Correlation, &correlation(dice, spec.body()))));
    let (history, spec) = funnel_exclusions::generate(dice);
    queries.push((history.world(), request(InsightKind::Funnels, &spec.body())));
    let (history, spec) = trend_spec::generate(dice);
    queries.push((history.world(), request(InsightKind::Trends, &spec.body())));
    let mut aggregate = spec.body();
    aggregate["events"][0]["math"] = json!("hogql");
    aggregate["events"][0]["math_hogql"] = json!(dice.pick(AGGREGATES));
    if dice.percent(20) {
        let fields = aggregate.as_object_mut().unwrap();
        fields.retain(|key, _| !key.starts_with("breakdown"));
        fields.insert("breakdown".to_owned(), json!(["all", 1]));
        fields.insert("breakdown_type".to_owned(), json!("cohort"));
    }
    queries.push((history.world(), request(InsightKind::Trends, &aggregate)));
    let (history, spec) = retention_spec::generate(dice);
    queries.push((history.world(), Query::from_query_node(&spec.body())));
    let (history, spec) = path_spec::generate(dice);
    if !spec.as_node {
        queries.push((history.world(), request(InsightKind::Paths, &spec.body())));
    }
    let (history, spec) = stickiness::generate(dice);
    queries.push((history.world(), Query::from_query_node(&spec.node())));
    let (history, spec) = lifecycle::generate(dice);
    queries.push((spec.world(&history), Query::from_query_node(&spec.node())));
    let (history, spec) = flag_impact::generate(dice);
    queries.push((history.world(), request(InsightKind::FlagImpact, &spec.body())));
    queries
}

fn correlation(dice: &mut Dice, mut funnel: Value) -> Value {
    let fields = funnel.as_object_mut().unwrap();
    fields.retain(|key, _| !key.starts_with("breakdown") && key != "funnel_viz_type");
    let more = dice.pick(&[
        json!({"funnel_correlation_type": "events"}),
        json!({"funnel_correlation_type": "properties", "funnel_correlation_names": ["$all"]}),
        json!({"funnel_correlation_type": "event_with_properties", "funnel_correlation_event_names": ["a", "b", "z"]}),
    ]);
    fields.extend(more.as_object().unwrap().clone());
    funnel
}

/// The partial results of a query in this many parts; none if it is refused.
fn partials(world: &World, parsed: Result<ParsedQuery, CalcError>, parts: usize) -> Vec<PartitionResult> {
    let Ok(ParsedQuery::Query(query)) = parsed else { return Vec::new() };
    let Ok(plan) = query.plan(&world.project, world.now) else { return Vec::new() };
    let partitions = plan.join(world.partitions(plan.scan(), parts), world.facts(&plan), &|| false).unwrap();
    let partials: Result<Vec<_>, _> =
        partitions.iter().map(|partition| plan.partial(partition, &|| false)).collect();
    let partials = partials.unwrap_or_default();
    let mut sum = MergedPartials::default();
    partials.iter().for_each(|partial| sum.add(partial.clone()));
    let _ = sum.finish(&plan);
    partials
}

fn random_partials(seed: u64) -> impl Iterator<Item = PartitionResult> {
    let parts = 1 + usize::try_from(seed % 3).unwrap();
    generate(seed).into_iter().flat_map(move |(world, parsed)| partials(&world, parsed, parts))
}

/// The bytes with the checksum that belongs to them.
fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&bytes[5..]);
    bytes[1..5].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The words of the partial results of all forms: kinds, accumulators, states, keys and values.
#[test]
fn partial_results_of_all_forms_are_decoded() {
    let mut missing: BTreeSet<&str> = BTreeSet::from([
        "Trends(",
        "Funnels(",
        "Correlation(",
        "Retention(",
        "Paths(",
        "Stickiness(",
        "Lifecycle(",
        "FlagImpact(",
        // Trends.
        "NoBreakdown",
        "Texts([Some(",
        "Texts([None",
        "Cohort(All)",
        "Cohort(Cohort(",
        "Counts([",
        "Statistics({",
        "Aggregates({",
        "Distinct(DistinctSet",
        "number: Some(",
        "Sum(ExactSum",
        "Bounds(Some(",
        "All([",
        // Aggregates.
        "Count(",
        "Distinct({",
        "Sum {",
        "Min(Some(",
        "Max(Some(",
        "Numbers([",
        "First(Some(",
        ", Text(\"",
        ", Number(",
        ", Bool(",
        ", List([",
        // Other kinds.
        "durations: [[",
        "event: \"",
        "property: \"",
        "adds_up: true",
        "adds_up: false",
        "sums: [ExactSum",
        "micros: ",
        "values: {0: {\"",
        "actors: {0: [",
        "LifecycleCounts([[",
        "squares: ExactSum",
    ]);
    for seed in some_seeds() {
        for partial in random_partials(seed) {
            let text = format!("{:?}", decoded(&partial));
            missing.retain(|word| !text.contains(word));
        }
    }
    // A few histories do not have all forms.
    let has_few = number("PENNON_CHECK_HISTORIES", 500) < 500;
    assert!(has_few || missing.is_empty(), "no partial result has {missing:?}");
}

#[test]
fn damaged_bytes_are_errors() {
    for seed in some_seeds().take(40) {
        let dice = &mut Dice::new(seed);
        for partial in random_partials(seed) {
            let bytes = partial.to_bytes().unwrap();
            for length in 0..bytes.len() {
                assert_eq!(PartitionResult::from_bytes(&bytes[..length]), Err(PartFormatError::Damaged));
            }
            let longer = [bytes.as_slice(), &[0]].concat();
            assert_eq!(PartitionResult::from_bytes(&longer), Err(PartFormatError::Damaged));
            let longer = with_checksum(longer);
            assert_eq!(PartitionResult::from_bytes(&longer), Err(PartFormatError::NotOfType));
            for _ in 0..20 {
                let mut damaged = bytes.clone();
                damaged[dice.count(1, bytes.len() - 1)] ^= 1 << dice.within(0, 7);
                assert_eq!(PartitionResult::from_bytes(&damaged), Err(PartFormatError::Damaged));
            }
            let mut other = bytes.clone();
            other[0] = VERSION + 1;
            assert_eq!(PartitionResult::from_bytes(&other), Err(PartFormatError::OtherVersion(VERSION + 1)));
        }
    }
}

/// Damage with the right checksum, as only a faulty writer makes it, is an error or another partial result.
#[test]
fn bytes_that_were_never_written_do_not_panic() {
    let mut decoded_ones = 0;
    for seed in some_seeds() {
        let dice = &mut Dice::new(seed);
        for partial in random_partials(seed) {
            let bytes = partial.to_bytes().unwrap();
            for _ in 0..20 {
                let mut changed = bytes.clone();
                for _ in 0..dice.count(1, 3) {
                    let at = dice.count(5, bytes.len() - 1);
                    changed[at] = dice.pick(&[0, 1, changed[at] ^ 1, changed[at] ^ 128, 254, 255]);
                }
                if dice.percent(50) {
                    changed.truncate(dice.count(5, bytes.len()));
                }
                let changed = PartitionResult::from_bytes(&with_checksum(changed));
                decoded_ones += usize::from(changed.is_ok());
            }
        }
    }
    assert!(decoded_ones > 0);
}

/// Bytes of a kind that end in a length that nothing follows.
#[test]
fn hostile_lengths_are_errors() {
    let forms: Vec<&str> = InsightKind::ALL.iter().map(|kind| kind.description().endpoint.job_form).collect();
    for form in forms {
        for zeros in 0..6 {
            for length in [&[0xff; 9][..], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0x80, 0x80, 0x40]] {
                let mut bytes = vec![VERSION, 0, 0, 0, 0, u8::try_from(form.len()).unwrap()];
                bytes.extend(form.bytes());
                bytes.extend(std::iter::repeat_n(1, zeros));
                bytes.extend(length);
                bytes.push(1);
                let _ = PartitionResult::from_bytes(&with_checksum(bytes));
            }
        }
    }
}

#[test]
fn an_unknown_kind_is_an_error() {
    let bytes = [&[VERSION, 0, 0, 0, 0, 5][..], b"other", &[0]].concat();
    assert_eq!(PartitionResult::from_bytes(&with_checksum(bytes)), Err(PartFormatError::NotOfType));
}

proptest! {
    #[test]
    fn any_bytes_are_handled(
        kind in prop::sample::select(InsightKind::ALL.to_vec()),
        body in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..200),
    ) {
        let form = kind.description().endpoint.job_form;
        let mut bytes = vec![VERSION, 0, 0, 0, 0, u8::try_from(form.len()).unwrap()];
        bytes.extend(form.bytes());
        bytes.extend(&body);
        if let Ok(partial) = PartitionResult::from_bytes(&with_checksum(bytes)) {
            partial.to_bytes().unwrap();
        }
        prop_assert!(PartitionResult::from_bytes(&body).is_err());
    }
}
