//! The published bulk checks and vectors, through a whole evaluation.

use super::*;
use crate::hash;

/// The values of a flag for these ids.
fn values(key: &str, filters: Value, ids: impl Iterator<Item = String>) -> Vec<FlagValue> {
    let evaluator = world(vec![flag(1, key, filters)]).evaluator();
    let plan = evaluator.plan(1).unwrap();
    let (properties, static_cohorts) = (Object::new(), BTreeSet::new());
    ids.map(|id| {
        let subject = Subject::person(&id, &properties, &static_cohorts, testing::now());
        plan.evaluate(&subject).unwrap().value
    })
    .collect()
}

fn thousand(prefix: &str) -> impl Iterator<Item = String> {
    (0..1000).map(move |number| format!("{prefix}{number}"))
}

fn rollout(percentage: impl Into<Value>) -> Value {
    json!({"groups": [{"properties": [], "rollout_percentage": percentage.into()}]})
}

#[test]
fn thousand_ids_of_a_rollout() {
    let values = values("simple-flag", rollout(45), thousand("distinct_id_"));
    let bits: String = values.iter().map(|value| if value.is_on() { '1' } else { '0' }).collect();
    assert_eq!(bits.matches('1').count(), 446);
    assert!(bits.starts_with("01101001010110100011"));
    assert_eq!(
        hash::tests::sha256(bits.as_bytes()),
        "e8d170e18078f6c80b2cfb3cdf1bb69b7ec76d68481106c9b5147a6816e17d2e"
    );
}

#[test]
fn thousand_ids_of_a_multivariate_flag() {
    let widths = [("first", 50), ("second", 20), ("third", 20), ("fourth", 5), ("fifth", 5)];
    let variants: Vec<Value> = widths
        .iter()
        .map(|(name, percentage)| json!({"key": format!("{name}-variant"), "rollout_percentage": percentage}))
        .collect();
    let mut filters = rollout(55);
    filters["multivariate"] = json!({"variants": variants});
    let values = values("multivariate-flag", filters, thousand("distinct_id_"));
    let texts: Vec<String> = values
        .iter()
        .map(|value| match value.to_json() {
            Value::String(variant) => variant,
            other => other.to_string(),
        })
        .collect();
    let count = |text: &str| texts.iter().filter(|other| *other == text).count();
    assert_eq!(count("false"), 444);
    let counts = widths.map(|(name, _)| count(&format!("{name}-variant")));
    assert_eq!(counts, [290, 110, 111, 24, 21]);
    assert_eq!(
        hash::tests::sha256(texts.join(",").as_bytes()),
        "d396e8531b0375389fadee36caaaf9376c93151b31d2328c5d01c388bf7bd42a"
    );
}

#[test]
fn counts_at_a_quarter_and_a_half() {
    for (percentage, expected) in [(25, 235), (50, 486)] {
        let values = values("simple-flag", rollout(percentage), thousand("user-"));
        assert_eq!(values.iter().filter(|value| value.is_on()).count(), expected);
    }
}

#[test]
fn vectors() {
    // Flag key, id, rollout hash, variant of 50/50, variant of 33/33/34.
    let vectors = [
        ("simple-flag", "user-1", 73.7132253609, "control", "b"),
        ("simple-flag", "user-2", 19.6278906773, "control", "a"),
        ("simple-flag", "user-3", 91.0624316609, "test", "b"),
        ("simple-flag", "alice@example.com", 54.8282477333, "test", "c"),
        ("simple-flag", "Ünïcode-id", 22.4733808716, "control", "b"),
        ("beta-feature", "user-1", 72.6491254926, "control", "a"),
        ("beta-feature", "user-2", 69.6538491675, "test", "b"),
        ("beta-feature", "user-3", 72.6814867148, "control", "a"),
        ("new-checkout", "user-1", 91.6832439040, "control", "a"),
        ("new-checkout", "user-2", 78.5989807707, "test", "c"),
        ("new-checkout", "user-3", 10.5227326083, "control", "a"),
        ("new-checkout", "alice@example.com", 29.8611067026, "test", "b"),
    ];
    for (key, id, percentage, half, third) in vectors {
        let one = |filters: Value| values(key, filters, std::iter::once(id.to_owned())).remove(0).to_json();
        assert_eq!(one(rollout(percentage + 1e-8)), json!(true), "{key} {id}");
        assert_eq!(one(rollout(percentage - 1e-8)), json!(false), "{key} {id}");
        for (variants, expected) in
            [(&[("control", 50), ("test", 50)][..], half), (&[("a", 33), ("b", 33), ("c", 34)][..], third)]
        {
            let variants: Vec<Value> = variants
                .iter()
                .map(|(key, percentage)| json!({"key": key, "rollout_percentage": percentage}))
                .collect();
            let filters = json!({"groups": [{}], "multivariate": {"variants": variants}});
            assert_eq!(one(filters), json!(expected), "{key} {id}");
        }
    }
}
