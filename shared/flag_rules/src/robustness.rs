//! Property tests of writes: any JSON in any field is handled, and an accepted body can be stored, rendered, validated
//! and compared.
//!
//! Must stay true: no body makes validation panic, and an accepted body that is read back and sent again is accepted
//! again.

use std::collections::{BTreeMap, BTreeSet};

use pennon_filters::body::json::Object;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::testing;
use super::testing::random_json;
use crate::flag::body_references;
use crate::flag::{
    Flag, FlagInput, FlagRow, FlagViewer, UserAccessLevel, ValidationContext, WriteKind, changes, conflict,
};
use crate::relations::{FlagReference, References};

fn any_json() -> impl Strategy<Value = Value> {
    random_json::any_json(random_json::exact_floats())
}

/// `objects` with up to `most` random fields.
fn extended(objects: impl Strategy<Value = Value>, most: usize) -> impl Strategy<Value = Value> {
    random_json::with_random_fields(objects, any_json(), most)
}

/// Bodies whose filters have nearly the right shape.
fn body() -> impl Strategy<Value = Object> {
    let property = extended(Just(json!({"key": "7", "type": "person", "value": "x"})), 3);
    let properties = prop::collection::vec(property, 0..3);
    let condition = extended(properties.prop_map(|properties| json!({"properties": properties})), 1);
    let groups = prop::collection::vec(condition, 1..3);
    let filters = extended(groups.prop_map(|groups| json!({"groups": groups})), 1);
    extended(filters.prop_map(|filters| json!({"key": "k", "filters": filters})), 4).prop_map(testing::object)
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
    fn every_body_is_rejected_or_stored(body in body()) {
        let dependency = FlagReference { key: "other".to_owned(), active: true, depends_on: vec![8] };
        let references = References { flags: [(7, Some(dependency))].into(), ..References::default() };
        let dashboards = BTreeSet::new();
        body_references::collect(&body, None);
        let Ok(input) = FlagInput::parse(&body, WriteKind::Create, &around(&references, &dashboards, None)) else {
            return Ok(());
        };
        let Ok(flag) = Flag::create(1, &input, testing::now(), &testing::user()) else { return Ok(()) };
        let viewer = FlagViewer { can_edit: true, level: UserAccessLevel::Manager };
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
        let viewer = FlagViewer { can_edit: false, level: UserAccessLevel::Viewer };
        prop_assert!(flag.response(viewer, &BTreeMap::new(), testing::now()).is_object());
        let row = FlagRow::from(&flag);
        row.is_listed_as_stale(testing::now(), &crate::calls::CallTimes::none());
    }
}
