//! Property tests of writes: any JSON in any field is handled, and an accepted body can be stored, rendered, validated
//! and compared.
//!
//! Must stay true: no body makes validation panic, and an accepted body that is read back and sent again is accepted
//! again.

use std::collections::{BTreeMap, BTreeSet};

use pennon_filters::body::json::Object;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::testing;
use crate::flag::body_references;
use crate::flag::{
    AccessLevel, Flag, FlagInput, FlagRow, ValidationContext, Viewer, WriteKind, changes, conflict,
};
use crate::relations::{FlagReference, References};

/// Words with a meaning in some field, so that random bodies reach deep rules.
const WORDS: [&str; 40] = [
    "groups",
    "properties",
    "rollout_percentage",
    "variant",
    "multivariate",
    "variants",
    "payloads",
    "super_groups",
    "holdout_groups",
    "aggregation_group_type_index",
    "key",
    "value",
    "type",
    "operator",
    "person",
    "cohort",
    "flag",
    "group",
    "exact",
    "regex",
    "is_date_before",
    "in",
    "flag_evaluates_to",
    "7",
    "-1d",
    "(",
    "true",
    "a",
    "",
    "é\u{0}",
    "name",
    "active",
    "filters",
    "tags",
    "version",
    "original_flag",
    "created_at",
    "deleted",
    "group_type_index",
    "2024-01-01T00:00:00Z",
];

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(&WORDS[..]).prop_map(str::to_owned)
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..101_i64).prop_map(Value::from),
        // Floats with few digits: parsing others back may be off by the last bit, which is a matter of the JSON parser.
        any::<i16>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
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

/// Bodies whose filters have nearly the right shape.
fn body() -> impl Strategy<Value = Object> {
    let property = prop::collection::vec((word(), any_json()), 0..4).prop_map(|extra| {
        let mut property = testing::object(json!({"key": "7", "type": "person", "value": "x"}));
        property.extend(extra);
        Value::Object(property)
    });
    let condition =
        (prop::collection::vec(property, 0..3), prop::collection::vec((word(), any_json()), 0..2)).prop_map(
            |(properties, extra)| {
                let mut condition = testing::object(json!({"properties": properties}));
                condition.extend(extra);
                Value::Object(condition)
            },
        );
    let filters = (prop::collection::vec(condition, 1..3), prop::collection::vec((word(), any_json()), 0..2))
        .prop_map(|(groups, extra)| {
            let mut filters = testing::object(json!({"groups": groups}));
            filters.extend(extra);
            Value::Object(filters)
        });
    (filters, prop::collection::vec((word(), any_json()), 0..5)).prop_map(|(filters, extra)| {
        let mut body = testing::object(json!({"key": "k", "filters": filters}));
        body.extend(extra);
        body
    })
}

fn around<'a>(
    references: &'a References,
    dashboards: &'a BTreeSet<i64>,
    stored: Option<&'a Flag>,
) -> ValidationContext<'a> {
    ValidationContext { stored, key_holder: None, references, dashboards, linked_to_early_access: false }
}

proptest! {
    #[test]
    fn every_body_has_an_answer(body in body()) {
        let dependency = FlagReference { key: "other".to_owned(), active: true, depends_on: vec![8] };
        let references = References { flags: [(7, Some(dependency))].into(), ..References::default() };
        let dashboards = BTreeSet::new();
        body_references::collect(&body, None);
        let Ok(input) = FlagInput::parse(&body, WriteKind::Create, &around(&references, &dashboards, None)) else {
            return Ok(());
        };
        let Ok(flag) = Flag::create(1, &input, testing::now(), &testing::user()) else { return Ok(()) };
        let viewer = Viewer { can_edit: true, level: AccessLevel::Manager };
        let shown = flag.response(viewer, &BTreeMap::new(), testing::now());
        prop_assert!(shown.is_object());
        prop_assert!(flag.status_response(testing::now())["status"].is_string());
        let text = serde_json::to_string(&flag).unwrap_or_default();
        prop_assert_eq!(serde_json::from_str::<Flag>(&text).ok(), Some(flag.clone()));
        prop_assert_eq!(FlagRow::from(&flag).id, 1);

        // A rendered flag can be sent back, and changes nothing in the log except the version.
        let sent_back = if flag.filters.is_empty() { json!({"key": shown["key"]}) } else { shown.clone() };
        let sent_back = testing::object(sent_back);
        let again = FlagInput::parse(&sent_back, WriteKind::Update, &around(&references, &dashboards, Some(&flag)));
        let again = again.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let updated = flag.apply(&again, testing::now(), &testing::user());
        let fields: Vec<Value> = changes::between(&flag, &updated).iter().map(|c| c["field"].clone()).collect();
        let quiet = fields.iter().all(|field| field == "version" || field == "performed_rollback");
        prop_assert!(quiet, "{:?}", fields);
        conflict::detect(&body, &again, &updated);
    }

    #[test]
    fn any_filters_can_be_read(filters in any_json()) {
        let filters = filters.as_object().cloned().unwrap_or_default();
        let flag = Flag { filters, ..testing::flag() };
        let viewer = Viewer { can_edit: false, level: AccessLevel::Viewer };
        prop_assert!(flag.response(viewer, &BTreeMap::new(), testing::now()).is_object());
        let row = FlagRow::from(&flag);
        row.is_listed_as_stale(testing::now(), &crate::calls::CallTimes::none());
    }
}
