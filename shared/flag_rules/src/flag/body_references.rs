//! Collects the records that a request body refers to, which the caller loads before the body is validated.
//!
//! Must stay true: collecting never fails; a body of the wrong shape yields fewer references. The number of ids is
//! bounded by [`limits::REFERENCES`] and [`limits::DASHBOARDS`] plus one; a body with more is refused by validation.

use std::collections::BTreeSet;

use pennon_filters::body::json::Object;
use pennon_filters::body::{fields, python};
use serde_json::Value;

use super::Flag;
use crate::conditions::record_ids;
use crate::limits;
use crate::relations::References;

/// The records that a write refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BodyReferences {
    /// The key of the flag after the write; `None` when a create has no usable key.
    pub key: Option<String>,
    /// Flags that it depends on, in the body and in the stored flag.
    pub flag_ids: BTreeSet<i64>,
    /// Cohorts in the body and in the stored flag.
    pub cohort_ids: BTreeSet<i64>,
    /// Dashboards that the body links.
    pub dashboard_ids: BTreeSet<i64>,
}

/// Collects the references of a create (no stored flag) or an update.
pub fn collect(body: &Object, stored: Option<&Flag>) -> BodyReferences {
    let mut found = BodyReferences {
        key: parse_key(body).or_else(|| stored.map(|flag| flag.key.clone())),
        ..BodyReferences::default()
    };
    let sent = body.get("filters").and_then(Value::as_object);
    for filters in sent.into_iter().chain(stored.map(|flag| &flag.filters)) {
        let most = limits::REFERENCES + 1;
        found.flag_ids.extend(record_ids::flag_ids(filters).into_iter().take(most));
        found.cohort_ids.extend(record_ids::cohort_ids(filters).into_iter().take(most));
    }
    let dashboards = body.get("analytics_dashboards").and_then(Value::as_array);
    let dashboards = dashboards.into_iter().flatten().filter_map(fields::as_integer);
    found.dashboard_ids.extend(dashboards.take(limits::DASHBOARDS + 1));
    found
}

/// The key as validation would read it.
fn parse_key(body: &Object) -> Option<String> {
    let key = match body.get("key")? {
        Value::String(key) => key.trim().to_owned(),
        number @ Value::Number(_) => python::text(number),
        _ => return None,
    };
    (!key.is_empty()).then_some(key)
}

impl BodyReferences {
    /// The ids that still have to be loaded: those of the body, and those that the loaded records refer to. The caller
    /// loads them, adds the results (`None` for an id without a record), and repeats until both sets are empty.
    pub fn unresolved(&self, resolved: &References) -> (BTreeSet<i64>, BTreeSet<i64>) {
        let named = resolved.flags.values().flatten().flat_map(|flag| &flag.depends_on);
        let flags = self.flag_ids.iter().chain(named).filter(|id| !resolved.flags.contains_key(id)).copied();
        let named = resolved.cohorts.values().flatten().flat_map(|cohort| &cohort.cohorts);
        let cohorts =
            self.cohort_ids.iter().chain(named).filter(|id| !resolved.cohorts.contains_key(id)).copied();
        (flags.collect(), cohorts.collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::relations::{CohortReference, FlagReference};
    use crate::testing;

    #[test]
    fn references_of_body_and_stored_flag() {
        let mut stored = testing::flag();
        stored.filters = testing::object(json!({"groups": [{"properties": [{"key": "3", "type": "flag"}]}]}));
        let body = testing::object(json!({
            "key": " new ",
            "filters": {"groups": [{"properties": [{"key": "4", "type": "flag"}, {"type": "cohort", "value": 9}]}]},
            "analytics_dashboards": [1, "2", "x"],
        }));
        let found = collect(&body, Some(&stored));
        assert_eq!(found.key.as_deref(), Some("new"));
        assert_eq!(found.flag_ids, BTreeSet::from([3, 4]));
        assert_eq!(found.cohort_ids, BTreeSet::from([9]));
        assert_eq!(found.dashboard_ids, BTreeSet::from([1, 2]));
        assert_eq!(collect(&Object::new(), Some(&stored)).key, Some(stored.key));
        let numeric = testing::object(json!({"key": 12}));
        assert_eq!(collect(&numeric, None).key.as_deref(), Some("12"));
        let broken = testing::object(json!({"key": true, "filters": [], "analytics_dashboards": {}}));
        assert_eq!(collect(&broken, None), BodyReferences::default());
    }

    #[test]
    fn loading_repeats_until_nothing_is_unresolved() {
        let found =
            BodyReferences { flag_ids: [1].into(), cohort_ids: [5].into(), ..BodyReferences::default() };
        let mut resolved = References::default();
        assert_eq!(found.unresolved(&resolved), ([1].into(), [5].into()));
        let flag = FlagReference { key: "a".to_owned(), active: true, depends_on: vec![1, 2] };
        resolved.flags.insert(1, Some(flag));
        let cohort = CohortReference { name: "c".to_owned(), has_event_criterion: false, cohorts: vec![6] };
        resolved.cohorts.insert(5, Some(cohort));
        assert_eq!(found.unresolved(&resolved), ([2].into(), [6].into()));
        resolved.flags.insert(2, None);
        resolved.cohorts.insert(6, None);
        assert_eq!(found.unresolved(&resolved), (BTreeSet::new(), BTreeSet::new()));
    }
}
