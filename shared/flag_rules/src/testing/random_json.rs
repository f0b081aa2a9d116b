//! Random JSON for property tests of writes and of evaluation.

use proptest::prelude::*;
use serde_json::{Map, Value};

/// Words with a meaning in some field or filter, so that random JSON reaches deep rules.
pub const WORDS: [&str; 64] = [
    "groups",
    "properties",
    "rollout_percentage",
    "variant",
    "multivariate",
    "variants",
    "payloads",
    "super_groups",
    "holdout_groups",
    "holdout",
    "id",
    "exclusion_percentage",
    "feature_enrollment",
    "aggregation_group_type_index",
    "early_exit",
    "key",
    "value",
    "values",
    "type",
    "operator",
    "negation",
    "group_type_index",
    "person",
    "cohort",
    "flag",
    "group",
    "behavioral",
    "AND",
    "OR",
    "in",
    "not_in",
    "exact",
    "is_not",
    "regex",
    "not_regex",
    "gt",
    "is_date_before",
    "between",
    "semver_caret",
    "semver_wildcard",
    "flag_evaluates_to",
    "$group_key",
    "name",
    "active",
    "filters",
    "tags",
    "version",
    "original_flag",
    "created_at",
    "deleted",
    "1",
    "2",
    "7",
    "-1d",
    "-1m",
    "(",
    "(a+)+",
    "true",
    "a",
    "",
    "2024-01-01",
    "2024-01-01T00:00:00Z",
    "v1.2.*",
    "é\u{0}",
];

/// One of [`WORDS`].
pub fn word() -> impl Strategy<Value = String> {
    prop::sample::select(&WORDS[..]).prop_map(str::to_owned)
}

/// JSON of any shape, in which object keys and most strings are of [`WORDS`].
pub fn any_json(floats: impl Strategy<Value = f64> + 'static) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..101_i64).prop_map(Value::from),
        floats.prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word(), inner), 0..6)
                .prop_map(|entries| Value::Object(Map::from_iter(entries))),
        ]
    })
}

/// Floats with few digits. Parsing others back may be off by the last bit, which is a matter of the JSON parser.
pub fn exact_floats() -> impl Strategy<Value = f64> {
    any::<i16>().prop_map(|eighths| f64::from(eighths) / 8.0)
}

/// Objects with up to `most` fields named by [`word`] that are added or replaced.
pub fn with_random_fields(
    objects: impl Strategy<Value = Value>,
    values: impl Strategy<Value = Value>,
    most: usize,
) -> impl Strategy<Value = Value> {
    (objects, prop::collection::vec((word(), values), 0..=most)).prop_map(|(mut object, fields)| {
        if let Some(object) = object.as_object_mut() {
            object.extend(fields);
        }
        object
    })
}
