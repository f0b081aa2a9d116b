//! Formats paths queries as readable SQL-like text. Nothing parses this text.

use super::query::{EventType, PathsQuery};
use crate::kinds::insight::InsightQuery;
use crate::query::describe::{common_conditions, quoted};

/// Formats the query.
pub(super) fn describe(query: &PathsQuery) -> String {
    let list = |texts: &mut dyn Iterator<Item = &str>| texts.map(quoted).collect::<Vec<_>>().join(", ");
    let mut notes = Vec::new();
    let mut note = |name: &str, text: String| {
        if !text.is_empty() {
            notes.push(format!("\n-- {name}: {text}"));
        }
    };
    note("events", list(&mut query.event_types.iter().map(|event_type| EventType::name(*event_type))));
    note("named by", query.expression.as_ref().map(|it| one_line(it.text())).unwrap_or_default());
    if query.uses_project_cleaning {
        note("path cleaning", "filters of the project".to_owned());
    }
    for filter in &query.cleaning_filters {
        note(
            "path cleaning",
            format!("{} to {}", quoted(&one_line(&filter.regex)), quoted(&one_line(&filter.alias))),
        );
    }
    note("groupings", list(&mut query.groupings.iter().map(String::as_str)));
    note("excluded", list(&mut query.excluded_items.iter().map(String::as_str)));
    note("from", query.start_point.as_deref().map(quoted).unwrap_or_default());
    note("to", query.end_point.as_deref().map(quoted).unwrap_or_default());
    if let Some(funnel) = &query.funnel {
        let source = one_line(&funnel.source.describe());
        note("around", format!("{} {} of {source}", funnel.path_type.name(), funnel.step));
    }
    let weight = |sign: &str, weight: Option<u64>| weight.map(|weight| format!("value {sign} {weight}"));
    let having: Vec<String> = [weight(">=", query.min_edge_weight), weight("<=", query.max_edge_weight)]
        .into_iter()
        .flatten()
        .collect();
    let having = if having.is_empty() { String::new() } else { format!(" HAVING {}", having.join(" AND ")) };
    format!(
        "SELECT source, target, count() AS value, avg(time) FROM paths(steps = {})\nFROM events WHERE {} GROUP BY source, \
         target{having} ORDER BY value DESC LIMIT {}{}",
        query.step_limit,
        common_conditions(&query.common).join(" AND "),
        query.edge_limit,
        notes.concat(),
    )
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
