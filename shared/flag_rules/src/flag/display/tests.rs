//! The rendered record compared with the contract's example, and the computed fields.

use serde_json::json;

use super::*;
use crate::relations::{CohortReference, References};
use crate::testing::{created, flag, now, object, parse_input_with, user};

const EDITOR: FlagViewer = FlagViewer { can_edit: true, level: UserAccessLevel::Manager };

fn shown(flag: &Flag) -> Value {
    flag.response(EDITOR, &BTreeMap::new(), now())
}

#[test]
fn a_create_with_only_a_key() {
    let user = json!({
        "id": 1, "uuid": "0190", "distinct_id": "u1", "first_name": "Olive", "last_name": "",
        "email": "owner@example.com", "is_email_verified": null, "hedgehog_config": null,
        "role_at_organization": null,
    });
    let expected = json!({
        "id": 12, "name": "", "key": "omega-feature",
        "filters": {"groups": [{"properties": [], "rollout_percentage": null}]},
        "deleted": false, "active": true, "created_by": user,
        "created_at": "2026-01-05T10:00:00.123456Z", "updated_at": "2026-01-05T10:00:00.123456Z", "version": 1,
        "last_modified_by": user, "is_simple_flag": true, "rollout_percentage": null,
        "ensure_experience_continuity": false, "experiment_set": [], "surveys": [], "features": [],
        "rollback_conditions": null, "performed_rollback": null, "can_edit": true, "tags": [],
        "evaluation_tags": [], "evaluation_contexts": [], "usage_dashboard": null, "analytics_dashboards": [],
        "has_enriched_analytics": false, "user_access_level": "manager", "creation_context": "feature_flags",
        "is_remote_configuration": false, "has_encrypted_payloads": false, "status": "ACTIVE",
        "evaluation_runtime": "all", "bucketing_identifier": "distinct_id", "last_called_at": null,
    });
    // As text, so that the order of the fields is compared too.
    assert_eq!(shown(&flag()).to_string(), expected.to_string());
}

#[test]
fn the_single_percentage() {
    let with = |groups: Value| {
        let flag = created(json!({"key": "k", "filters": {"groups": groups}}));
        (flag.is_simple(), flag.rollout_percentage().to_string())
    };
    assert_eq!(with(json!([{"properties": [], "rollout_percentage": 50}])), (true, "50".to_owned()));
    assert_eq!(with(json!([{"rollout_percentage": 50.0}])), (true, "50".to_owned()));
    assert_eq!(with(json!([{"rollout_percentage": 12.5}])), (true, "12.5".to_owned()));
    assert_eq!(with(json!([{}])), (true, "null".to_owned()));
    assert_eq!(with(json!([{"rollout_percentage": 1}, {}])), (false, "null".to_owned()));
    let property = json!({"key": "a", "type": "person", "value": "x"});
    let with_property = json!([{"properties": [property], "rollout_percentage": 5}]);
    assert_eq!(with(with_property), (false, "null".to_owned()));
    let mut flag = flag();
    flag.filters = object(json!({"groups": [{"rollout_percentage": 5}], "aggregation_group_type_index": 0}));
    assert!(!flag.is_simple());
    flag.filters = object(json!({"groups": []}));
    assert_eq!((flag.is_simple(), flag.rollout_percentage()), (false, Value::Null));
}

#[test]
fn names_of_cohorts_are_added() {
    let cohort =
        CohortReference { name: "test_cohort".to_owned(), has_event_criterion: false, cohorts: vec![] };
    let references = References { cohorts: [(3, Some(cohort))].into(), ..References::default() };
    let property = |value: Value| json!({"key": "id", "type": "cohort", "value": value});
    let filters = json!({"groups": [{"properties": [property(json!("3"))]}]});
    let Ok(input) = parse_input_with(json!({"key": "alpha", "filters": filters}), None, &references) else {
        unreachable!()
    };
    let Ok(flag) = Flag::create(1, &input, now(), &user()) else { unreachable!() };
    assert_eq!(flag.cohort_ids(), [3]);
    let named = Value::Object(flag.filters_with_cohort_names(&references.cohort_names()).into_owned());
    assert_eq!(named["groups"][0]["properties"][0]["cohort_name"], "test_cohort");
    let gone = Value::Object(flag.filters_with_cohort_names(&BTreeMap::new()).into_owned());
    assert_eq!(gone["groups"][0]["properties"][0].get("cohort_name"), Some(&Value::Null));
    assert_eq!(Value::Object(flag.filters), filters);
}

#[test]
fn a_viewer_cannot_edit() {
    let viewer = FlagViewer { can_edit: false, level: UserAccessLevel::Viewer };
    let shown = flag().response(viewer, &BTreeMap::new(), now());
    assert_eq!((&shown["can_edit"], &shown["user_access_level"]), (&json!(false), &json!("viewer")));
}

#[test]
fn status_of_the_record() {
    let filters = json!({"groups": [{"rollout_percentage": 100}]});
    let old = created(json!({"key": "k", "created_at": "2025-12-01T00:00:00Z", "filters": filters}));
    assert_eq!(shown(&old)["status"], "STALE");
    assert_eq!(shown(&Flag { deleted: true, ..old })["status"], "DELETED");
}

#[test]
fn a_prepared_text_is_reused_only_for_the_same_names() {
    let mut flag = flag();
    flag.filters = object(json!({"groups": [{"properties": [{"type": "cohort", "key": "id", "value": 4}]}]}));
    let (named, unnamed) = (BTreeMap::from([(4, "four".to_owned())]), BTreeMap::new());
    let template = FlagTemplate::new(&flag, &named);
    assert!(template.render(EDITOR, now(), &CallTimes::none()).contains(r#""cohort_name":"four""#));
    assert!(template.has_cohort_names(&named) && !template.has_cohort_names(&unnamed));
    assert!(
        FlagTemplate::new(&flag, &unnamed)
            .render(EDITOR, now(), &CallTimes::none())
            .contains(r#""cohort_name":null"#)
    );
    assert!(template.bytes() >= template.render(EDITOR, now(), &CallTimes::none()).len());
}
