//! The criteria of the cohorts that flags refer to, for clients.
//!
//! Must stay true: a cohort that clients could not evaluate as the server does is left out, and they request the flags
//! from the server instead: static ones, deleted ones, ones without criteria, and ones on a cycle.

use std::collections::BTreeMap;

use pennon_filters::body::json::Object;
use serde_json::Value;

use super::filters::clean_property;
use crate::conditions::record_ids;
use crate::evaluate::topological_order;
use crate::flag::Flag;
use crate::relations::cohort::{FlagCohort, named_cohorts};

/// The criteria of every referenced cohort, by id as text, ascending.
pub fn referenced(flags: &[&Flag], all_cohorts: &BTreeMap<i64, FlagCohort>) -> Object {
    let dynamic: BTreeMap<i64, Object> = all_cohorts
        .values()
        .filter(|cohort| !cohort.deleted)
        .filter_map(|cohort| Some((cohort.id, normalized_criteria(cohort.criteria()?)?)))
        .collect();
    let numbers: BTreeMap<i64, usize> =
        dynamic.keys().enumerate().map(|(number, id)| (*id, number)).collect();
    let edges: Vec<Vec<usize>> = dynamic
        .values()
        .map(|criteria| {
            let named = named_cohorts(criteria);
            named.iter().filter_map(|id| numbers.get(id).copied()).collect()
        })
        .collect();
    let is_cyclic = topological_order::topological_order(&edges).is_cyclic;
    let named = flags.iter().flat_map(|flag| record_ids::cohort_ids(&flag.filters));
    let named = named.filter_map(|id| numbers.get(&id).copied());
    let reachable = topological_order::reachable(named, |number| edges[number].as_slice());
    let mut criteria_by_id = Object::new();
    for (number, (id, criteria)) in dynamic.into_iter().enumerate() {
        if reachable.binary_search(&number).is_ok() && !is_cyclic[number] {
            criteria_by_id.insert(id.to_string(), Value::Object(criteria));
        }
    }
    criteria_by_id
}

/// A group of criteria without null members and without groups that restrict nothing. `None`: it restricts nothing.
pub fn normalized_criteria(group: &Object) -> Option<Object> {
    let mut values = Vec::new();
    for value in group.get("values").and_then(Value::as_array).into_iter().flatten() {
        let Value::Object(member) = value else { continue };
        if member.contains_key("values") {
            values.extend(normalized_criteria(member).map(Value::Object));
        } else {
            let mut leaf = member.clone();
            clean_property(&mut leaf);
            values.push(Value::Object(leaf));
        }
    }
    if values.is_empty() {
        return None;
    }
    let any = group.get("type").and_then(Value::as_str).is_some_and(|kind| kind.eq_ignore_ascii_case("or"));
    let kind = if any { "OR" } else { "AND" };
    Some(Object::from_iter([("type".to_owned(), kind.into()), ("values".to_owned(), values.into())]))
}
