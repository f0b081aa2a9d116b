//! Serializes filters to canonical JSON, for the `filter` of a series, links and cache keys.

use serde_json::{Value, json};

use super::{Filter, PropertyFilter, Target};

/// The canonical form: a flat AND as a list, everything else as a group `{type, values}`.
pub fn filter_json(filter: &Filter) -> Value {
    match as_list(filter) {
        Some(list) => Value::Array(list.into_iter().map(group_json).collect()),
        None => group_json(filter),
    }
}

/// The canonical form for fields that take only lists: a group becomes the only member of a list.
pub fn list_json(filter: &Filter) -> Value {
    match filter_json(filter) {
        list @ Value::Array(_) => list,
        group => Value::Array(vec![group]),
    }
}

/// The members of a flat AND, ignoring groups with a single member around it.
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
