//! The change of an insight's dashboards in the activity log.

use serde_json::{Value, json as object};

use super::record::Insight;
use crate::placement::{Dashboards, tiles};
use crate::resource::Resource;
use crate::resource::activity_entry::change_json;

/// The change of the log entry from the dashboards of `before` to `requested`; `None` where they are the same.
pub fn dashboard_change(before: &Insight, requested: &[u64], dashboards: &Dashboards) -> Option<Value> {
    let mut old: Vec<u64> = tiles::visible(&before.tiles, dashboards).map(|tile| tile.dashboard_id).collect();
    old.sort_unstable();
    let is_same = old.len() == requested.len() && old.iter().all(|id| requested.contains(id));
    let with_names = |ids: &[u64]| {
        let name = |id: &u64| dashboards.get(*id).and_then(|dashboard| dashboard.name.clone());
        ids.iter().map(|id| object!({"id": id, "name": name(id)})).collect::<Value>()
    };
    let (from, to) = (with_names(&old), with_names(requested));
    (!is_same).then(|| change_json(Insight::SCOPE, "changed", Some("dashboards"), &from, &to))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::insight::InsightInput;
    use crate::insight::record::tests::{insight, instant, user};
    use crate::resource::activity_entry::of_write;

    /// Activity and detail of the entry for a write of `body` to `before`.
    fn logged_of(before: &Insight, body: Value) -> Option<(&'static str, Value)> {
        let now = instant("2024-01-02T00:00:00Z");
        let input = InsightInput::parse(body.as_object().unwrap()).unwrap();
        let after = before.apply(&input, &user(2), now);
        let user = user(2);
        let entry = of_write(Some(before), &after, Vec::new(), &user, now)?;
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
        assert!(dashboard_change(&before, &[5, 8], &dashboards).is_none());
        let change = dashboard_change(&before, &[9, 5], &dashboards);
        let (user, now) = (user(2), instant("2024-01-02T00:00:00Z"));
        let entry = of_write(Some(&before), &before, Vec::from_iter(change), &user, now).unwrap();
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
