//! Entries of the activity log about writes of insights.
//!
//! Must stay true: nothing is logged for an insight without a name, or for a write that changes nothing.

use chrono::{DateTime, Utc};
use pennon_core::activity::Entry;
use pennon_core::model::User;
use pennon_filters::body::json;
use serde_json::{Value, json as object};

use crate::dashboards::Dashboards;
use crate::record::Insight;
use crate::tiles;

/// Scope of the log entries of insights.
pub const SCOPE: &str = "Insight";

/// The dashboards before and after a write, for the log.
pub struct DashboardChange {
    before: Vec<Value>,
    after: Vec<Value>,
}

impl DashboardChange {
    /// The change from the dashboards of `before` to `requested`; `None` where they are the same.
    pub fn new(before: &Insight, requested: &[u64], dashboards: &Dashboards) -> Option<DashboardChange> {
        let mut old: Vec<u64> =
            tiles::visible(&before.tiles, dashboards).map(|tile| tile.dashboard_id).collect();
        old.sort_unstable();
        let is_same = old.len() == requested.len() && old.iter().all(|id| requested.contains(id));
        let with_names = |ids: &[u64]| {
            let name = |id: &u64| dashboards.get(*id).and_then(|dashboard| dashboard.name.clone());
            ids.iter().map(|id| object!({"id": id, "name": name(id)})).collect()
        };
        (!is_same).then(|| DashboardChange { before: with_names(&old), after: with_names(requested) })
    }
}

/// The entry of a write that results in `after`; `None` where nothing is logged.
pub fn entry<'a>(
    before: Option<&Insight>,
    after: &Insight,
    dashboards: Option<DashboardChange>,
    user: &'a User,
    now: DateTime<Utc>,
) -> Option<Entry<'a>> {
    let changes = before.map(|before| {
        let mut changes = field_changes(before, after);
        changes.extend(
            dashboards.map(|it| change_json("changed", "dashboards", object!(it.before), object!(it.after))),
        );
        changes
    });
    if changes.as_ref().is_some_and(Vec::is_empty) {
        return None;
    }
    let activity = match before.map(|before| before.deleted) {
        None => "created",
        Some(false) if after.deleted => "deleted",
        Some(true) if !after.deleted => "restored",
        Some(_) => "updated",
    };
    named_entry(after, activity, object!(changes), user, now)
}

/// The entry for enabling or disabling sharing.
pub fn sharing_entry<'a>(
    insight: &Insight,
    enabled: bool,
    user: &'a User,
    now: DateTime<Utc>,
) -> Option<Entry<'a>> {
    let activity = if enabled { "sharing enabled" } else { "sharing disabled" };
    let change = change_json("changed", "sharing", Value::Null, object!(enabled));
    named_entry(insight, activity, object!([change]), user, now)
}

/// The entry for a new sharing token. It does not contain the token.
pub fn token_entry<'a>(insight: &Insight, user: &'a User, now: DateTime<Utc>) -> Option<Entry<'a>> {
    let change = change_json("changed", "sharing_access_token", Value::Null, Value::Null);
    named_entry(insight, "updated", object!([change]), user, now)
}

/// An entry of `insight`, if it has a name.
fn named_entry<'a>(
    insight: &Insight,
    activity: &'a str,
    changes: Value,
    user: &'a User,
    now: DateTime<Utc>,
) -> Option<Entry<'a>> {
    let named = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    let name = named(&insight.name).or_else(|| named(&insight.derived_name))?;
    let detail = object!({
        "id": null, "name": name, "short_id": insight.short_id, "type": null, "trigger": null, "changes": changes,
    });
    Some(Entry { scope: SCOPE, item: insight.id, activity, user, at: now, detail })
}

/// One change for each field with different values; `deleted` first.
fn field_changes(before: &Insight, after: &Insight) -> Vec<Value> {
    let fields = logged_fields(before).into_iter().zip(logged_fields(after));
    let mut changes: Vec<Value> =
        fields.filter_map(|((field, before), (_, after))| change(field, before, after)).collect();
    if before.tags != after.tags {
        // Lists of linked records are always "changed", even from or to empty.
        changes.push(change_json("changed", "tags", object!(before.tags), object!(after.tags)));
    }
    changes
}

fn change(field: &str, before: Value, after: Value) -> Option<Value> {
    match (json::is_nothing(&before), json::is_nothing(&after)) {
        (true, true) => None,
        (true, false) => Some(change_json("created", field, Value::Null, after)),
        (false, true) => Some(change_json("deleted", field, before, Value::Null)),
        (false, false) if json::same(&before, &after) => None,
        (false, false) => Some(change_json("changed", field, before, after)),
    }
}

fn change_json(action: &str, field: &str, before: Value, after: Value) -> Value {
    object!({"type": SCOPE, "action": action, "field": field, "before": before, "after": after})
}

/// The scalar fields that the log compares.
fn logged_fields(insight: &Insight) -> [(&'static str, Value); 7] {
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

    /// Activity and detail of the entry for a write of `body` to `before`.
    fn logged_of(before: &Insight, body: Value) -> Option<(&'static str, Value)> {
        let now = instant("2024-01-02T00:00:00Z");
        let input = InsightInput::parse(body.as_object().unwrap()).unwrap();
        let after = before.apply(&input, &user(2), now);
        let user = user(2);
        let entry = entry(Some(before), &after, None, &user, now)?;
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
        let (activity, detail) = logged_of(&before, body).unwrap();
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
            assert_eq!(logged_of(&before, body), None);
        }
        assert_eq!(logged_of(&insight(1, object!({})), object!({"description": "x"})), None);
        let derived = insight(1, object!({"derived_name": "d"}));
        assert_eq!(logged_of(&derived, object!({"description": "x"})).unwrap().1["name"], "d");
        // A cleared field is logged as deleted; the entry has the name that is left.
        let both = insight(1, object!({"name": "a", "derived_name": "d"}));
        let (_, detail) = logged_of(&both, object!({"name": ""})).unwrap();
        assert_eq!((&detail["name"], &detail["changes"][0]["action"]), (&object!("d"), &object!("deleted")));
    }

    #[test]
    fn dashboards_are_logged_with_their_names() {
        let read = |id| {
            (
                id,
                serde_json::from_value(object!({"name": format!("D{id}"), "restriction_level": 21})).unwrap(),
            )
        };
        let dashboards: Dashboards = [read(5), read(8), read(9)].into_iter().collect();
        let mut before = insight(1, object!({"name": "a"}));
        before.tiles = tiles::with_dashboards(&[], &[8, 5], 1..3);
        assert!(DashboardChange::new(&before, &[5, 8], &dashboards).is_none());
        let change = DashboardChange::new(&before, &[9, 5], &dashboards);
        let (user, now) = (user(2), instant("2024-01-02T00:00:00Z"));
        let entry = entry(Some(&before), &before, change, &user, now).unwrap();
        let expected = object!([{"type": "Insight", "action": "changed", "field": "dashboards",
            "before": [{"id": 5, "name": "D5"}, {"id": 8, "name": "D8"}],
            "after": [{"id": 9, "name": "D9"}, {"id": 5, "name": "D5"}]}]);
        assert_eq!((entry.activity, &entry.detail["changes"]), ("updated", &expected));
    }

    #[test]
    fn deletion_and_restoration_come_first() {
        let before = insight(1, object!({"name": "a"}));
        let (activity, detail) = logged_of(&before, object!({"deleted": true, "description": "x"})).unwrap();
        assert_eq!((activity, &detail["changes"][0]["field"]), ("deleted", &object!("deleted")));
        let gone = Insight { deleted: true, ..before };
        assert_eq!(logged_of(&gone, object!({"deleted": false})).unwrap().0, "restored");
    }
}
