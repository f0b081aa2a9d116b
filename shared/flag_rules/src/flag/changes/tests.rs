//! Activity entries of the contract's examples and cases.

use super::*;
use crate::testing::{created, flag, updated};

#[test]
fn the_example_of_the_contract() {
    let before = created(json!({"key": "omega-feature", "name": "original name"}));
    let filters = json!({"groups": [{"properties": [], "rollout_percentage": 74}]});
    let after = updated(&before, json!({"name": "Updated name", "filters": filters}));
    let expected = json!([
        {"type": "FeatureFlag", "action": "changed", "field": "name", "before": "original name", "after": "Updated name"},
        {"type": "FeatureFlag", "action": "created", "field": "filters", "before": null, "after": filters},
        {"type": "FeatureFlag", "action": "changed", "field": "version", "before": 1, "after": 2},
    ]);
    assert_eq!(Value::Array(between(&before, &after)).to_string(), expected.to_string());
    assert_eq!(kind(Some(&before), &after), FlagActivity::Updated);
    assert_eq!(kind(None, &before), FlagActivity::Created);
}

#[test]
fn filters_changed_and_name_cleared() {
    let filters = |rollout: u8| json!({"groups": [{"properties": [], "rollout_percentage": rollout}]});
    let before = created(json!({"key": "c", "name": "c", "filters": filters(10)}));
    let after = updated(&before, json!({"filters": filters(20), "name": ""}));
    let changes = between(&before, &after);
    let name =
        json!({"type": "FeatureFlag", "action": "deleted", "field": "name", "before": "c", "after": null});
    assert_eq!(changes[0], name);
    assert_eq!((&changes[1]["action"], &changes[1]["before"]), (&json!("changed"), &filters(10)));
    assert_eq!(changes[2]["field"], "version");
    assert_eq!(changes.len(), 3);
}

#[test]
fn tags_are_always_changed() {
    let before = flag();
    let tagged = updated(&before, json!({"tags": ["web", " Beta"]}));
    let cleared = updated(&tagged, json!({"tags": []}));
    let tags = |before: Value, after: Value| json!({"type": "FeatureFlag", "action": "changed", "field": "tags", "before": before, "after": after});
    assert_eq!(between(&before, &tagged).last(), Some(&tags(json!([]), json!(["beta", "web"]))));
    assert_eq!(between(&tagged, &cleared).last(), Some(&tags(json!(["beta", "web"]), json!([]))));
}

#[test]
fn deleted_and_restored() {
    let before = flag();
    let deleted = updated(&before, json!({"deleted": true}));
    let restored = updated(&deleted, json!({"deleted": false}));
    assert_eq!(kind(Some(&before), &deleted).as_str(), "deleted");
    assert_eq!(kind(Some(&deleted), &restored).as_str(), "restored");
    assert_eq!(kind(Some(&deleted), &deleted).as_str(), "updated");
    let change = json!({"type": "FeatureFlag", "action": "changed", "field": "deleted", "before": false, "after": true});
    assert_eq!(between(&before, &deleted)[0], change);
}

#[test]
fn unlogged_fields_leave_only_the_version() {
    let before = flag();
    let body = json!({
        "created_at": "2020-01-01T00:00:00Z", "last_called_at": "2020-01-01T00:00:00Z", "analytics_dashboards": [1],
        "creation_context": "surveys", "rollback_conditions": [], "version": 77,
    });
    let changes = between(&before, &updated(&before, body));
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0]["field"], "version");
}
