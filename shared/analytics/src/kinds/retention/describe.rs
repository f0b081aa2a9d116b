//! Formats retention queries as readable SQL-like text. Nothing parses this text.

use super::RetentionQuery;
use super::dialects::period_name;
use super::options::{AggregationType, RetentionType, TimeWindowMode};
use crate::query::NumberSource;
use crate::query::describe::{breakdown_columns, common_conditions, identifier, series_condition};

/// Formats the query.
pub(super) fn describe(query: &RetentionQuery) -> String {
    let actor = match query.group_type_index {
        None => "person_id".to_owned(),
        Some(index) => format!("$group_{index}"),
    };
    let period = period_name(query.common.interval).to_lowercase();
    let by = query.common.breakdown.as_ref().map(|breakdown| format!(", {}", breakdown_columns(breakdown)));
    let by = by.unwrap_or_default();
    let mut numbers = format!("count(DISTINCT {actor})");
    if let Some(aggregation) = &query.aggregation {
        let number = match &aggregation.number {
            NumberSource::Event(key) => format!("properties.{}", identifier(key)),
            NumberSource::Person(key) => format!("person.properties.{}", identifier(key)),
            NumberSource::SessionDuration => "session.$session_duration".to_owned(),
        };
        let function = match aggregation.statistic {
            AggregationType::Sum => "sum",
            AggregationType::Average => "avg",
        };
        numbers.push_str(&format!(", {function}({number})"));
    }
    let start = match query.retention_type {
        RetentionType::Recurring => "in each period",
        RetentionType::FirstTime => "for the first time",
        RetentionType::FirstEver => "for the first time ever",
    };
    let unit = match query.time_window_mode {
        TimeWindowMode::CalendarDates => format!("{period}s of the calendar"),
        TimeWindowMode::TwentyFourHourWindows => format!("windows of a {period} from the start"),
    };
    let columns = match query.brackets.as_slice() {
        [] => format!("{} columns", query.total_intervals),
        brackets => {
            format!("brackets of {}", brackets.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
        }
    };
    let mut options = vec![unit, columns];
    if query.minimum_occurrences > 1 {
        options.push(format!("at least {} returns", query.minimum_occurrences));
    }
    if query.cumulative {
        options.push("cumulative".to_owned());
    }
    format!(
        "SELECT bucket({period}, start) AS start{by}, return - start, {numbers} FROM events\n\
         WHERE {}\nSTART {start} WHERE {}\nRETURN WHERE {}\nGROUP BY start{by}, return - start /* {} */",
        common_conditions(&query.common).join(" AND "),
        series_condition(query.target()),
        series_condition(query.returning()),
        options.join(", ")
    )
}
