//! Flattens a condition on a single cohort into property conditions, for clients without support for cohorts.
//!
//! Must stay true: the resulting conditions match exactly the persons of the cohort condition, each with its rollout
//! percentage. Where that is impossible, the flag is unchanged.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use pennon_filters::body::json::Object;
use pennon_filters::operator::Operator;
use serde_json::{Value, json};

use super::cohorts;
use crate::conditions::filter_view as view;
use crate::conditions::record_ids::{self, is_cohort};
use crate::limits;
use crate::relations::cohort::FlagCohort;

/// Replaces the cohort conditions of a flag that refers to exactly one cohort, with person properties only.
pub fn flatten(filters: &mut Cow<'_, Object>, all_cohorts: &BTreeMap<i64, FlagCohort>) {
    let Some(flattened) = flattened(filters, all_cohorts) else { return };
    let Some(Value::Array(conditions)) = filters.to_mut().get_mut("groups") else { return };
    let (mut kept, mut expanded) = (Vec::new(), Vec::new());
    for condition in conditions.drain(..) {
        if !view::properties(&condition).iter().any(is_cohort) {
            kept.push(condition);
            continue;
        }
        let rollout = condition.get("rollout_percentage").unwrap_or(&Value::Null);
        expanded.extend(
            flattened
                .iter()
                .map(|properties| json!({"properties": properties, "rollout_percentage": rollout})),
        );
    }
    kept.append(&mut expanded);
    *conditions = kept;
}

/// Alternative lists of properties, one of which has to match. `None`: the flag is unchanged.
fn flattened(filters: &Object, all_cohorts: &BTreeMap<i64, FlagCohort>) -> Option<Vec<Vec<Value>>> {
    let conditions = view::groups(filters);
    let (mut ids, mut uses) = (BTreeSet::new(), 0);
    for property in view::all_conditions(filters).flat_map(view::properties).filter(|p| is_cohort(p)) {
        ids.insert(record_ids::cohort_id(property)?);
    }
    for condition in conditions {
        if view::condition_variant(condition).is_some() {
            return None;
        }
        match view::properties(condition) {
            [only] if is_cohort(only) => {
                uses += 1;
                let is_in = matches!(view::operator(only), Some(Operator::In | Operator::Exact));
                if !is_in || is_negated(only) {
                    return None;
                }
            }
            properties if properties.iter().any(is_cohort) => return None,
            _ => {}
        }
    }
    let elsewhere = ["super_groups", "holdout_groups"].into_iter().any(|list| {
        let conditions = filters.get(list).and_then(Value::as_array);
        conditions.into_iter().flatten().flat_map(view::properties).any(is_cohort)
    });
    let (Some(id), 1, false) = (ids.first(), ids.len(), elsewhere) else { return None };
    let cohort = all_cohorts.get(id).filter(|cohort| !cohort.deleted)?;
    let alternatives = alternatives(&unwrap_single_groups(Value::Object(cohorts::normalized_criteria(
        cohort.criteria()?,
    )?)))?;
    let total = conditions.len().checked_add(alternatives.len().checked_mul(uses)?)?;
    (total <= limits::CONDITIONS).then_some(alternatives)
}

/// Replaces groups of a single member with the member.
fn unwrap_single_groups(criterion: Value) -> Value {
    let Value::Object(mut group) = criterion else { return criterion };
    let Some(Value::Array(values)) = group.get_mut("values") else { return Value::Object(group) };
    let mut members: Vec<Value> = values.drain(..).map(unwrap_single_groups).collect();
    if members.len() == 1 {
        return members.remove(0);
    }
    *values = members;
    Value::Object(group)
}

fn alternatives(criteria: &Value) -> Option<Vec<Vec<Value>>> {
    match members(criteria) {
        None => Some(vec![vec![person_property(criteria)?]]),
        Some((Kind::All, values)) => Some(vec![all_person_properties(values)?]),
        Some((Kind::Any, values)) => values
            .iter()
            .map(|value| match members(value) {
                None => Some(vec![person_property(value)?]),
                Some((Kind::All, values)) => all_person_properties(values),
                Some((Kind::Any, _)) => None,
            })
            .collect(),
    }
}

#[derive(Clone, Copy)]
enum Kind {
    All,
    Any,
}

/// The members of a group; `None` for a property.
fn members(criterion: &Value) -> Option<(Kind, &[Value])> {
    let values = criterion.get("values")?.as_array()?;
    let kind = if view::text(criterion, "type") == Some("OR") { Kind::Any } else { Kind::All };
    Some((kind, values))
}

fn all_person_properties(values: &[Value]) -> Option<Vec<Value>> {
    values.iter().map(|value| if members(value).is_some() { None } else { person_property(value) }).collect()
}

/// A person property, reduced to the fields that a condition needs. `None` for anything else, and for a negated one.
fn person_property(property: &Value) -> Option<Value> {
    if view::text(property, "type") != Some("person") || is_negated(property) {
        return None;
    }
    let mut person_property = Object::new();
    for field in ["key", "type", "value", "operator"] {
        if let Some(value) = property.get(field) {
            person_property.insert(field.to_owned(), value.clone());
        }
    }
    Some(Value::Object(person_property))
}

fn is_negated(property: &Value) -> bool {
    property.get("negation") == Some(&Value::Bool(true))
}
