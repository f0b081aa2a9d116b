//! When two edits overlap and when not.

use serde_json::json;

use super::*;
use crate::testing::{created, object, parse_input, updated};

/// A flag named `a` at version 1, since renamed to `b` at version 2.
fn stored() -> Flag {
    updated(&created(json!({"key": "k", "name": "a"})), json!({"name": "b"}))
}

fn overlaps(body: Value, stored: &Flag) -> Option<String> {
    let Ok(input) = parse_input(body.clone(), Some(stored)) else { unreachable!() };
    detect(&object(body), &input, stored)
}

#[test]
fn overlapping_changes_conflict() {
    let body = json!({"name": "c", "version": 1, "original_flag": {"name": "a", "version": 1}});
    let detail = "The feature flag was updated by owner@example.com since you started editing it. \
                  Please refresh and try again.";
    assert_eq!(overlaps(body.clone(), &stored()).as_deref(), Some(detail));
    let mut anonymous = stored();
    anonymous.last_modified_by = None;
    let detail = "The feature flag was updated by another user since you started editing it. \
                  Please refresh and try again.";
    assert_eq!(overlaps(body, &anonymous).as_deref(), Some(detail));
}

#[test]
fn updates_without_a_conflict() {
    let stored = stored();
    let original = json!({"name": "a", "active": true, "version": 1});
    for body in [
        json!({"name": "c"}),
        json!({"name": "c", "original_flag": original}),
        json!({"name": "c", "version": 1}),
        json!({"name": "c", "version": 1, "original_flag": {}}),
        json!({"name": "c", "version": 1, "original_flag": null}),
        json!({"name": "c", "version": 2, "original_flag": original}),
        // Unchanged by the client, changed to the same, a field that no other user changed, a field unknown before.
        json!({"name": "a", "version": 1, "original_flag": original}),
        json!({"name": "b", "version": 1, "original_flag": original}),
        json!({"active": false, "version": 1, "original_flag": original}),
        json!({"tags": ["x"], "version": 1, "original_flag": original}),
    ] {
        assert_eq!(overlaps(body.clone(), &stored), None, "{body}");
    }
}

#[test]
fn filters_are_compared_as_rendered() {
    let filters = |rollout: Value| json!({"groups": [{"properties": [], "rollout_percentage": rollout}]});
    let first = created(json!({"key": "k"}));
    let body = |sent: Value, original: Value| json!({"filters": sent, "version": 1, "original_flag": {"filters": original}});
    // Only the version has moved on, so the shown default is still what the client started from.
    let touched = updated(&first, json!({}));
    assert_eq!(overlaps(body(filters(json!(5)), filters(json!(null))), &touched), None);
    let changed = updated(&first, json!({"filters": filters(json!(50))}));
    assert!(overlaps(body(filters(json!(5)), filters(json!(null))), &changed).is_some());
    assert_eq!(overlaps(body(filters(json!(50.0)), filters(json!(null))), &changed), None);
}
