//! Filters written back as JSON: in the `filter` of a series, in links and in cache keys.

use serde_json::{Value, json};

use super::{Filter, PropertyFilter, Target};

/// The canonical form: filters of one AND as a list, everything else as a group `{type, values}`.
pub fn filter_json(filter: &Filter) -> Value {
    match as_list(filter) {
        Some(list) => Value::Array(list.into_iter().map(group_json).collect()),
        None => group_json(filter),
    }
}

/// The canonical form for a place that takes lists only: a group becomes the list's only member.
pub fn list_json(filter: &Filter) -> Value {
    match filter_json(filter) {
        list @ Value::Array(_) => list,
        group => Value::Array(vec![group]),
    }
}

/// The filters of a tree that is one AND, perhaps inside groups that have no other member.
fn as_list(filter: &Filter) -> Option<Vec<&Filter>> {
    let Filter::All(members) = filter else { return None };
    if let [only @ Filter::All(_)] = members.as_slice() {
        return as_list(only);
    }
    members
        .iter()
        .map(|member| match member {
            leaf @ (Filter::Property(_) | Filter::Cohort { .. } | Filter::Expression(_)) => Some(leaf),
            _ => None,
        })
        .collect()
}

fn group_json(filter: &Filter) -> Value {
    match filter {
        Filter::Property(leaf) => property_json(leaf),
        Filter::Cohort { id, negated } => {
            let operator = if *negated { "not_in" } else { "in" };
            json!({"key": "id", "operator": operator, "type": "cohort", "value": id})
        }
        Filter::Expression(expression) => json!({"key": expression.text(), "type": "hogql"}),
        Filter::All(members) => {
            json!({"type": "AND", "values": members.iter().map(group_json).collect::<Vec<_>>()})
        }
        Filter::Any(members) => {
            json!({"type": "OR", "values": members.iter().map(group_json).collect::<Vec<_>>()})
        }
    }
}

fn property_json(leaf: &PropertyFilter) -> Value {
    let mut object = json!({"key": leaf.key, "operator": leaf.operator.name(), "type": leaf.target.name()});
    if let Target::Group(index) = leaf.target {
        object["group_type_index"] = json!(index);
    }
    if !leaf.value.is_null() {
        object["value"] = leaf.value.clone();
    }
    object
}
