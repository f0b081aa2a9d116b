//! What a body mentions and a caller has to look up before the body can be judged.
//!
//! Must stay true: finding mentions never fails and never refuses; a body of the wrong shape mentions less. The number of
//! ids is bounded by [`limits::REFERENCES`] and [`limits::DASHBOARDS`] plus one, a body with more being refused later.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Flag, References, fields, json::Object, limits, python, references};

/// Records that a write mentions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mentions {
    /// The key that the flag has after the write; none when a create names no usable one.
    pub key: Option<String>,
    /// Flags that it depends on, of the body and of the stored flag.
    pub flag_ids: BTreeSet<i64>,
    /// Cohorts that it names, of the body and of the stored flag.
    pub cohort_ids: BTreeSet<i64>,
    /// Dashboards that the body links.
    pub dashboard_ids: BTreeSet<i64>,
}

/// What a create (no stored flag) or an update mentions.
pub fn of_body(body: &Object, stored: Option<&Flag>) -> Mentions {
    let mut mentions = Mentions {
        key: sent_key(body).or_else(|| stored.map(|flag| flag.key.clone())),
        ..Mentions::default()
    };
    let sent = body.get("filters").and_then(Value::as_object);
    for filters in sent.into_iter().chain(stored.map(|flag| &flag.filters)) {
        let most = limits::REFERENCES + 1;
        mentions.flag_ids.extend(references::flag_ids(filters).into_iter().take(most));
        mentions.cohort_ids.extend(references::cohort_ids(filters).into_iter().take(most));
    }
    let dashboards = body.get("analytics_dashboards").and_then(Value::as_array);
    let dashboards = dashboards.into_iter().flatten().filter_map(fields::as_integer);
    mentions.dashboard_ids.extend(dashboards.take(limits::DASHBOARDS + 1));
    mentions
}

/// The key as a judged body would have it.
fn sent_key(body: &Object) -> Option<String> {
    let key = match body.get("key")? {
        Value::String(key) => key.trim().to_owned(),
        number @ Value::Number(_) => python::text(number),
        _ => return None,
    };
    (!key.is_empty()).then_some(key)
}

impl Mentions {
    /// The ids that still have to be looked up: those mentioned, and those that the records found so far name. A caller
    /// looks these up, adds the answers (nothing for an id of no record), and asks again until both sets are empty.
    pub fn unresolved(&self, found: &References) -> (BTreeSet<i64>, BTreeSet<i64>) {
        let named = found.flags.values().flatten().flat_map(|flag| &flag.depends_on);
        let flags = self.flag_ids.iter().chain(named).filter(|id| !found.flags.contains_key(id)).copied();
        let named = found.cohorts.values().flatten().flat_map(|cohort| &cohort.cohorts);
        let cohorts =
            self.cohort_ids.iter().chain(named).filter(|id| !found.cohorts.contains_key(id)).copied();
        (flags.collect(), cohorts.collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{CohortReference, FlagReference, testing};
    use super::*;

    #[test]
    fn mentions_of_body_and_stored_flag() {
        let mut stored = testing::flag();
        stored.filters = testing::object(json!({"groups": [{"properties": [{"key": "3", "type": "flag"}]}]}));
        let body = testing::object(json!({
            "key": " new ",
            "filters": {"groups": [{"properties": [{"key": "4", "type": "flag"}, {"type": "cohort", "value": 9}]}]},
            "analytics_dashboards": [1, "2", "x"],
        }));
        let mentions = of_body(&body, Some(&stored));
        assert_eq!(mentions.key.as_deref(), Some("new"));
        assert_eq!(mentions.flag_ids, BTreeSet::from([3, 4]));
        assert_eq!(mentions.cohort_ids, BTreeSet::from([9]));
        assert_eq!(mentions.dashboard_ids, BTreeSet::from([1, 2]));
        assert_eq!(of_body(&Object::new(), Some(&stored)).key, Some(stored.key));
        let numeric = testing::object(json!({"key": 12}));
        assert_eq!(of_body(&numeric, None).key.as_deref(), Some("12"));
        let broken = testing::object(json!({"key": true, "filters": [], "analytics_dashboards": {}}));
        assert_eq!(of_body(&broken, None), Mentions::default());
    }

    #[test]
    fn looking_up_goes_on_until_nothing_is_unknown() {
        let mentions = Mentions { flag_ids: [1].into(), cohort_ids: [5].into(), ..Mentions::default() };
        let mut found = References::default();
        assert_eq!(mentions.unresolved(&found), ([1].into(), [5].into()));
        let flag = FlagReference { key: "a".to_owned(), active: true, depends_on: vec![1, 2] };
        found.flags.insert(1, Some(flag));
        let cohort = CohortReference { name: "c".to_owned(), has_event_criterion: false, cohorts: vec![6] };
        found.cohorts.insert(5, Some(cohort));
        assert_eq!(mentions.unresolved(&found), ([2].into(), [6].into()));
        found.flags.insert(2, None);
        found.cohorts.insert(6, None);
        assert_eq!(mentions.unresolved(&found), (BTreeSet::new(), BTreeSet::new()));
    }
}
