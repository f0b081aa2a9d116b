//! Formats funnels queries as readable SQL-like text. Nothing parses this text.

use super::{FirstTime, FunnelVizType, FunnelsQuery, StepOptions};
use crate::query::Series;
use crate::query::describe::{breakdown_columns, common_conditions, series_condition};

/// Formats the query.
pub(super) fn describe(query: &FunnelsQuery) -> String {
    let step = |(series, rule): (&Series, &StepOptions)| {
        let first = rule.first.map_or("", |first| match first {
            FirstTime::Ever => "first of ",
            FirstTime::Matching => "first matching ",
        });
        let optional = if rule.optional { " /* optional */" } else { "" };
        format!("{first}{}{optional}", series_condition(series))
    };
    let steps = query.series.iter().zip(&query.steps).map(step).collect::<Vec<_>>().join(",\n  ");
    let exclusions = query
        .exclusions
        .iter()
        .map(|entry| {
            format!(
                ",\n  not({}) between {} and {}",
                series_condition(&entry.series),
                entry.from_step,
                entry.to_step
            )
        })
        .collect::<String>();
    let (from, to) = query.step_range();
    let (select, by) = match query.viz {
        FunnelVizType::Steps => ("SELECT funnel".to_owned(), String::new()),
        FunnelVizType::Trends => {
            let interval = query.common.interval.name();
            (
                format!("SELECT bucket({interval}, entrance), conversion_rate(from = {from}, to = {to})"),
                ", bucket".to_owned(),
            )
        }
        FunnelVizType::TimeToConvert => {
            (format!("SELECT time_to_convert(from = {from}, to = {to})"), String::new())
        }
    };
    let actor = query.group_type_index.map_or("person_id".to_owned(), |index| format!("`$group_{index}`"));
    let split = match &query.common.breakdown {
        Some(breakdown) => format!(", {} /* {} */", breakdown_columns(breakdown), query.attribution.name()),
        None => String::new(),
    };
    let select = if query.viz == FunnelVizType::Steps { select } else { format!("{select} OF funnel") };
    format!(
        "{select}(window = {} {}, order = {},\n  {steps}{exclusions})\nFROM events WHERE {} GROUP BY {actor}{by}{split}",
        query.window.count,
        query.window.unit.name(),
        query.order.name(),
        common_conditions(&query.common).join(" AND "),
    )
}
