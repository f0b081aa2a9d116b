//! Each refusal of a delete, restore, disable and enable with its text.

use serde_json::json;

use super::*;
use crate::relations::FlagReference;
use crate::testing;
use crate::testing::flag;

fn related() -> [RelatedFlag; 1] {
    [RelatedFlag { key: "child".to_owned(), id: 3 }]
}

#[track_caller]
fn refused(before: &Flag, after: &Flag, links: &LinkedRecords<'_>, detail: &str) {
    assert_eq!(check(before, after, links), Err(FieldError::general(detail)));
}

#[test]
fn deleting() {
    let (dependents, references) = (related(), References::default());
    let live = flag();
    let deleted = Flag { deleted: true, ..flag() };
    let free = LinkedRecords {
        early_access: false,
        live_experiments: &[],
        deleted_experiments: false,
        dependents: &[],
        references: &references,
        key_holder: None,
    };
    let depended = LinkedRecords { dependents: &dependents, ..free };
    let detail = "Cannot delete this feature flag because other flags depend on it: child (ID: 3). \
                  Please update or delete the dependent flags first.";
    refused(&live, &deleted, &depended, detail);
    let tested = LinkedRecords { live_experiments: &[4, 9], ..depended };
    let detail = "Cannot delete a feature flag that is linked to active experiment(s) with ID(s): 4, 9. \
                  Please delete the experiment(s) before deleting the flag.";
    refused(&live, &deleted, &tested, detail);
    let early = LinkedRecords { early_access: true, ..tested };
    let detail = "Cannot delete a feature flag that is in use with early access features. \
                  Please delete the early access feature before deleting the flag.";
    refused(&live, &deleted, &early, detail);
    assert_eq!(check(&live, &deleted, &free), Ok(()));
    assert_eq!(check(&deleted, &deleted, &early), Ok(()));

    assert_eq!(key_after_delete(&live, &deleted, &free), None);
    let experiment_gone = LinkedRecords { deleted_experiments: true, ..free };
    let key = key_after_delete(&live, &deleted, &experiment_gone);
    assert_eq!(key.as_deref(), Some("omega-feature:deleted:12"));
    assert_eq!(key_after_delete(&deleted, &deleted, &experiment_gone), None);

    let taken = LinkedRecords { key_holder: Some(7), ..free };
    let detail = "There is already a feature flag with this key (ID: 7). To restore this flag, send another `key` in the \
                  same request.";
    let error = FieldError::new("key", "unique", detail);
    assert_eq!(check(&deleted, &live, &taken), Err(error));
    assert_eq!(check(&deleted, &live, &free), Ok(()));
}

#[test]
fn disabling_and_enabling() {
    let dependents = related();
    let property = json!({"key": "5", "type": "flag", "operator": "flag_evaluates_to", "value": true});
    let mut on = flag();
    on.filters = testing::object(json!({"groups": [{"properties": [property]}]}));
    let off = Flag { active: false, ..on.clone() };
    let base = |active| FlagReference { key: "base".to_owned(), active, depends_on: vec![] };
    let references = References { flags: [(5, Some(base(false)))].into(), ..References::default() };
    let links = LinkedRecords {
        early_access: true,
        live_experiments: &[1],
        deleted_experiments: false,
        dependents: &dependents,
        references: &references,
        key_holder: Some(7),
    };
    let detail = "Cannot disable this feature flag because other flags depend on it: child (ID: 3). \
                  Please update or disable the dependent flags first.";
    refused(&on, &off, &links, detail);
    assert_eq!(check(&on, &off, &LinkedRecords { dependents: &[], ..links }), Ok(()));
    let detail = "Cannot enable this feature flag because it depends on disabled flags: base (ID: 5). \
                  Please enable the dependency flags first.";
    refused(&off, &on, &links, detail);
    let enabled = References { flags: [(5, Some(base(true)))].into(), ..References::default() };
    assert_eq!(check(&off, &on, &LinkedRecords { references: &enabled, ..links }), Ok(()));
    assert_eq!(check(&on, &on, &links), Ok(()));
    assert_eq!(check(&off, &off, &links), Ok(()));
}

#[test]
fn restoring_does_not_close_a_cycle() {
    let property = json!({"key": "5", "type": "flag", "operator": "flag_evaluates_to", "value": true});
    let mut live = flag();
    live.filters = testing::object(json!({"groups": [{"properties": [property]}]}));
    let deleted = Flag { deleted: true, ..live.clone() };
    let found = |depends_on: Vec<i64>, active| {
        let base = FlagReference { key: "base".to_owned(), active, depends_on };
        References { flags: [(5, Some(base))].into(), ..References::default() }
    };
    let back = found(vec![live.id], true);
    let links = LinkedRecords {
        early_access: false,
        live_experiments: &[],
        deleted_experiments: false,
        dependents: &[],
        references: &back,
        key_holder: None,
    };
    let detail = "Circular dependency detected: omega-feature → base → omega-feature";
    assert_eq!(check(&deleted, &live, &links), Err(FieldError::invalid("filters", detail)));
    assert_eq!(check(&deleted, &deleted, &links), Ok(()));
    // A deleted or disabled dependency blocks enabling, but not restoring.
    for references in [found(vec![], true), found(vec![], false), References::default()] {
        assert_eq!(check(&deleted, &live, &LinkedRecords { references: &references, ..links }), Ok(()));
    }
}

#[test]
fn dependents_are_live_active_and_ordered_by_key() {
    let row = |id, key: &str, active, deleted, depends_on: &[i64]| {
        let mut flag = flag();
        (flag.id, flag.key, flag.active, flag.deleted) = (id, key.to_owned(), active, deleted);
        let mut row = FlagRow::from(&flag);
        row.depends_on = depends_on.to_vec();
        row
    };
    let rows = [
        row(2, "z", true, false, &[1]),
        row(3, "b", true, false, &[7, 1]),
        row(4, "off", false, false, &[1]),
        row(5, "gone", true, true, &[1]),
        row(6, "other", true, false, &[2]),
    ];
    let dependents = dependents_of(1, &rows);
    assert_eq!(format_flags(&dependents), "b (ID: 3), z (ID: 2)");
}
