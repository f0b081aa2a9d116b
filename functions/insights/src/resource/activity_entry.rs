//! Entries of the activity log about writes of records.
//!
//! Must stay true: nothing is logged for a write that changes nothing, or for an insight without a name.

use chrono::{DateTime, Utc};
use pennon_core::activity::Entry;
use pennon_core::model::User;
use pennon_filters::body::json;
use serde_json::{Value, json as object};

use super::Resource;

/// The entry of a write that results in `after`; `None` where nothing changed. `linked_changes` come after those of the fields.
pub fn of_write<'a, R: Resource>(
    before: Option<&R>,
    after: &R,
    linked_changes: Vec<Value>,
    user: &'a User,
    now: DateTime<Utc>,
) -> Option<Entry<'a>> {
    let Some(before) = before else { return with_changes(after, "created", Value::Null, user, now) };
    let mut changes = field_changes(R::SCOPE, &before.logged_fields(), &after.logged_fields());
    changes.extend(linked_changes);
    if changes.is_empty() {
        return None;
    }
    with_changes(after, R::activity(before, after), changes.into(), user, now)
}

/// The entry of an activity on `record`; `None` where writes of a record without a name are not logged.
pub fn with_changes<'a, R: Resource>(
    record: &R,
    activity: &'a str,
    changes: Value,
    user: &'a User,
    now: DateTime<Utc>,
) -> Option<Entry<'a>> {
    if record.name().is_none() && !R::LOGS_UNNAMED {
        return None;
    }
    let detail = object!({
        "id": null, "name": record.name(), "short_id": record.short_id(), "type": R::LOGGED_TYPE, "trigger": null,
        "changes": changes,
    });
    Some(Entry { scope: R::SCOPE, item: record.id(), activity, user, at: now, detail })
}

/// One change of an entry; `field` is null where no single field changed.
pub fn change_json(scope: &str, action: &str, field: Option<&str>, before: &Value, after: &Value) -> Value {
    object!({"type": scope, "action": action, "field": field, "before": before, "after": after})
}

/// A change for each field with different values.
fn field_changes(
    scope: &str,
    before: &[(&'static str, Value)],
    after: &[(&'static str, Value)],
) -> Vec<Value> {
    let fields = before.iter().zip(after);
    fields.filter_map(|((field, before), (_, after))| change(scope, field, before, after)).collect()
}

fn change(scope: &str, field: &str, before: &Value, after: &Value) -> Option<Value> {
    if json::same(before, after) {
        return None;
    }
    let (had, has) = (!json::is_nothing(before), !json::is_nothing(after));
    // Lists of linked records are always "changed", even from or to empty.
    let (action, before, after) = match (field, had, has) {
        ("tags", ..) | (_, true, true) => ("changed", before, after),
        (_, false, true) => ("created", &Value::Null, after),
        (_, true, false) => ("deleted", before, &Value::Null),
        (_, false, false) => return None,
    };
    Some(change_json(scope, action, Some(field), before, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_that_differs_has_a_change() {
        let before = [
            ("deleted", object!(false)),
            ("name", object!("a")),
            ("description", object!("")),
            ("steps", object!([1])),
            ("tags", object!(["x"])),
        ];
        let after = [
            ("deleted", object!(true)),
            ("name", object!("a")),
            ("description", object!("d")),
            ("steps", object!([])),
            ("tags", object!([])),
        ];
        let line = |action: &str, field: &str, before: Value, after: Value| object!({"type": "Action", "action": action, "field": field, "before": before, "after": after});
        let expected = [
            line("changed", "deleted", object!(false), object!(true)),
            line("created", "description", Value::Null, object!("d")),
            line("deleted", "steps", object!([1]), Value::Null),
            line("changed", "tags", object!(["x"]), object!([])),
        ];
        assert_eq!(field_changes("Action", &before, &after), expected);
        assert!(field_changes("Action", &before, &before).is_empty());
    }
}
