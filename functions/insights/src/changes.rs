//! What the activity log says about a write.
//!
//! Must stay true: an insight without any name logs nothing, and neither does a write that changes nothing.

use chrono::{DateTime, Utc};
use pennon_core::activity::Entry;
use pennon_core::model::User;
use pennon_engine::flag::json;
use serde_json::{Value, json as object};

use crate::record::Insight;

/// The log of insights.
pub const SCOPE: &str = "Insight";

/// The entry about a write that left `after`; none where nothing is logged.
pub fn entry<'a>(
    before: Option<&Insight>,
    after: &Insight,
    user: &'a User,
    now: DateTime<Utc>,
) -> Option<Entry<'a>> {
    let named = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    let name = named(&after.name).or_else(|| named(&after.derived_name))?;
    let changes = before.map(|before| between(before, after));
    if changes.as_ref().is_some_and(Vec::is_empty) {
        return None;
    }
    let activity = match before.map(|before| before.deleted) {
        None => "created",
        Some(false) if after.deleted => "deleted",
        Some(true) if !after.deleted => "restored",
        Some(_) => "updated",
    };
    let detail = object!({
        "id": null, "name": name, "short_id": after.short_id, "type": null, "trigger": null, "changes": changes,
    });
    Some(Entry { scope: SCOPE, item: after.id, activity, user, at: now, detail })
}

/// One change for each field whose value differs; `deleted` first.
fn between(before: &Insight, after: &Insight) -> Vec<Value> {
    let fields = logged(before).into_iter().zip(logged(after));
    let mut changes: Vec<Value> =
        fields.filter_map(|((field, before), (_, after))| change(field, before, after)).collect();
    if before.tags != after.tags {
        // Lists of linked records are always "changed", an empty one included.
        changes.push(line("changed", "tags", object!(before.tags), object!(after.tags)));
    }
    changes
}

fn change(field: &str, before: Value, after: Value) -> Option<Value> {
    match (json::is_nothing(&before), json::is_nothing(&after)) {
        (true, true) => None,
        (true, false) => Some(line("created", field, Value::Null, after)),
        (false, true) => Some(line("deleted", field, before, Value::Null)),
        (false, false) if json::same(&before, &after) => None,
        (false, false) => Some(line("changed", field, before, after)),
    }
}

fn line(action: &str, field: &str, before: Value, after: Value) -> Value {
    object!({"type": SCOPE, "action": action, "field": field, "before": before, "after": after})
}

/// The plain fields that the log compares.
fn logged(insight: &Insight) -> [(&'static str, Value); 7] {
    [
        ("deleted", object!(insight.deleted)),
        ("name", object!(insight.name)),
        ("derived_name", object!(insight.derived_name)),
        ("description", object!(insight.description)),
        ("filters", Value::Object(insight.filters.clone())),
        ("query", object!(insight.query)),
        ("favorited", object!(insight.favorited)),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::input::InsightInput;
    use crate::record::tests::{insight, instant, user};

    /// Activity and detail of the entry about a write of `body` to `before`.
    fn logged_as(before: &Insight, body: Value) -> Option<(&'static str, Value)> {
        let now = instant("2024-01-02T00:00:00Z");
        let input = InsightInput::parse(body.as_object().unwrap()).unwrap();
        let after = before.apply(&input, &user(2), now);
        let user = user(2);
        let entry = entry(Some(before), &after, &user, now)?;
        let activity = ["updated", "deleted", "restored"].into_iter().find(|word| *word == entry.activity);
        Some((activity.unwrap(), entry.detail))
    }

    #[test]
    fn an_update_lists_what_differs() {
        let before = insight(1, object!({"name": "a", "tags": ["x"], "filters": {"a": 50}}));
        let body = object!({
            "name": "b", "description": "new", "tags": [], "favorited": true, "saved": true, "order": 5,
            "filters": {"a": 50.0},
        });
        let (activity, detail) = logged_as(&before, body).unwrap();
        assert_eq!(activity, "updated");
        let expected = object!({"id": null, "name": "b", "short_id": "short001", "type": null, "trigger": null, "changes": [
            {"type": "Insight", "action": "changed", "field": "name", "before": "a", "after": "b"},
            {"type": "Insight", "action": "created", "field": "description", "before": null, "after": "new"},
            {"type": "Insight", "action": "changed", "field": "favorited", "before": false, "after": true},
            {"type": "Insight", "action": "changed", "field": "tags", "before": ["x"], "after": []},
        ]});
        assert_eq!(detail, expected);
    }

    #[test]
    fn nothing_is_logged_without_a_difference_or_a_name() {
        let before = insight(1, object!({"name": "a"}));
        for body in [
            object!({}),
            object!({"name": "a"}),
            object!({"saved": true, "order": 1}),
            object!({"query": null}),
        ] {
            assert_eq!(logged_as(&before, body), None);
        }
        assert_eq!(logged_as(&insight(1, object!({})), object!({"description": "x"})), None);
        let derived = insight(1, object!({"derived_name": "d"}));
        assert_eq!(logged_as(&derived, object!({"description": "x"})).unwrap().1["name"], "d");
        // What is cleared is a deletion of the field, and the name of the moment is the one that is left.
        let both = insight(1, object!({"name": "a", "derived_name": "d"}));
        let (_, detail) = logged_as(&both, object!({"name": ""})).unwrap();
        assert_eq!((&detail["name"], &detail["changes"][0]["action"]), (&object!("d"), &object!("deleted")));
    }

    #[test]
    fn deletion_and_restoration_come_first() {
        let before = insight(1, object!({"name": "a"}));
        let (activity, detail) = logged_as(&before, object!({"deleted": true, "description": "x"})).unwrap();
        assert_eq!((activity, &detail["changes"][0]["field"]), ("deleted", &object!("deleted")));
        let gone = Insight { deleted: true, ..before };
        assert_eq!(logged_as(&gone, object!({"deleted": false})).unwrap().0, "restored");
    }
}
