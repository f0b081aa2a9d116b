//! Formats stickiness queries as readable SQL-like text. Nothing parses this text.

use pennon_filters::dates::compare::Comparison;

use super::StickinessQuery;
use super::query::SeriesActor;
use crate::query::describe::conditions;

/// Formats the query.
pub(super) fn describe(query: &StickinessQuery) -> String {
    let interval = query.common.interval.name();
    let bucket = match query.interval_count {
        None => format!("bucket({interval}, timestamp)"),
        Some(count) => format!("bucket({count} {interval} back from the end, timestamp)"),
    };
    let having = query
        .criterion
        .map(|criterion| format!(" HAVING count() {} {}", criterion.comparison.sign(), criterion.value));
    let having = having.unwrap_or_default();
    let series = query.series.iter().zip(&query.actors).map(|(series, actor)| {
        let actor = match actor {
            SeriesActor::Person => "person_id".to_owned(),
            SeriesActor::Group(index) => format!("$group_{index}"),
            SeriesActor::Value(expression) => expression.text().to_owned(),
        };
        let conditions = conditions(series, &query.common);
        format!(
            "SELECT intervals, count() FROM (SELECT actor, count() AS intervals FROM (SELECT {actor} AS actor, {bucket} AS \
             bucket FROM events WHERE {conditions} GROUP BY actor, bucket{having}) GROUP BY actor) GROUP BY intervals \
             ORDER BY intervals"
        )
    });
    let mut text = series.collect::<Vec<_>>().join("\nUNION ALL\n");
    if query.is_cumulative {
        text.push_str("\n-- each number also counts those of more intervals");
    }
    match &query.comparison {
        None => {}
        Some(Comparison::Previous) => text.push_str("\n-- compared with: the period before"),
        Some(Comparison::Back(back)) => text.push_str(&format!("\n-- compared with: {back}")),
    }
    text
}
