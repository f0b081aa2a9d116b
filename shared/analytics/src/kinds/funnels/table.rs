//! Results of funnels as tables.

use serde_json::Value;

use super::{FunnelVizType, FunnelsQuery};
use crate::kinds::table::{TableRows, cell, heading, list, time_series_rows};

/// The table of a result.
pub(super) fn rows(query: &FunnelsQuery, result: &Value) -> TableRows {
    match query.viz {
        FunnelVizType::Steps => step_rows(result),
        FunnelVizType::Trends => time_series_rows(result, |series| match &series["breakdown_value"] {
            Value::Null => "conversion rate".to_owned(),
            value => cell(value),
        }),
        FunnelVizType::TimeToConvert => histogram_rows(result),
    }
}

fn step_rows(result: &Value) -> TableRows {
    const COLUMNS: [&str; 4] = ["name", "count", "average_conversion_time", "median_conversion_time"];
    let split = list(result).first().is_some_and(Value::is_array);
    let mut head = if split { vec!["breakdown".to_owned()] } else { Vec::new() };
    head.push("step".to_owned());
    head.extend(heading(&COLUMNS));
    let row = |(at, step): (usize, &Value)| {
        let mut cells = if split { vec![cell(&step["breakdown"])] } else { Vec::new() };
        cells.push((at + 1).to_string());
        cells.extend(COLUMNS.iter().map(|column| cell(&step[*column])));
        cells
    };
    let funnels: Vec<&[Value]> =
        if split { list(result).iter().map(list).collect() } else { vec![list(result)] };
    std::iter::once(head)
        .chain(funnels.into_iter().flat_map(|steps| steps.iter().enumerate().map(row)))
        .collect()
}

fn histogram_rows(result: &Value) -> TableRows {
    let bins = list(&result["bins"]).iter().map(|bin| vec![cell(&bin[0]), cell(&bin[1])]);
    let mean = vec!["average".to_owned(), cell(&result["average_conversion_time"])];
    std::iter::once(heading(&["from second", "count"])).chain(bins).chain([mean]).collect()
}
