//! Formats the parts that all queries share as readable SQL-like text for people. Nothing parses this text.

use super::{Breakdown, BreakdownBy, CommonFields, EventOrAction, Series};
use crate::filter::{Filter, PropertyFilter};

/// The columns of the breakdown, comma separated.
pub fn breakdown_columns(breakdown: &Breakdown) -> String {
    let keys: Vec<String> = match &breakdown.by {
        BreakdownBy::Dimensions { dimensions, .. } => dimensions
            .iter()
            .map(|part| format!("{}.{}", part.source.kind(), identifier(part.source.key())))
            .collect(),
        BreakdownBy::Cohorts { choices, .. } => {
            choices.iter().map(|choice| format!("COHORT {}", choice.json())).collect()
        }
    };
    keys.join(", ")
}

/// The conditions of one series and of the whole query.
pub fn conditions(series: &Series, common: &CommonFields) -> String {
    let mut parts = vec![series_condition(series)];
    parts.extend(common_conditions(common));
    parts.join(" AND ")
}

/// The condition of one series.
pub fn series_condition(series: &Series) -> String {
    let name = match &series.event_or_action {
        EventOrAction::Event(None) => "true".to_owned(),
        EventOrAction::Event(Some(event)) => format!("event = {}", quoted(event)),
        EventOrAction::Action(id) => format!("matchesAction({id})"),
    };
    if series.properties.is_none() { name } else { format!("{name} AND {}", filter(&series.properties)) }
}

/// The conditions that the whole query sets for every event.
pub fn common_conditions(common: &CommonFields) -> Vec<String> {
    let date = |text: &Option<String>, default: &str| quoted(text.as_deref().unwrap_or(default));
    let mut parts = vec![
        format!("timestamp >= date({})", date(&common.dates.from, "-7d")),
        format!("timestamp <= date({})", date(&common.dates.to, "now")),
    ];
    if common.filter_test_accounts {
        parts.push("test_account_filters".to_owned());
    }
    if !common.properties.is_none() {
        parts.push(filter(&common.properties));
    }
    parts
}

fn filter(tree: &Filter) -> String {
    let joined = |members: &[Filter], word: &str| {
        let members: Vec<String> = members.iter().filter(|member| !member.is_none()).map(filter).collect();
        match members.as_slice() {
            [] => "true".to_owned(),
            [only] => only.clone(),
            _ => format!("({})", members.join(word)),
        }
    };
    match tree {
        Filter::All(members) => joined(members, " AND "),
        Filter::Any(members) => joined(members, " OR "),
        Filter::Property(leaf) => property(leaf),
        Filter::Expression(expression) => format!("({})", expression.text()),
        Filter::Cohort { id, negated } => {
            format!("person_id {} COHORT {id}", if *negated { "NOT IN" } else { "IN" })
        }
    }
}

fn property(leaf: &PropertyFilter) -> String {
    let value = if leaf.value.is_null() { String::new() } else { format!(" {}", leaf.value) };
    format!("{}.{} {}{value}", leaf.target.name(), identifier(&leaf.key), leaf.operator.name())
}

/// A quoted name.
pub fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "\\`"))
}

/// A quoted text.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
