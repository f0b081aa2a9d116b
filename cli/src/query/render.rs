//! Results of insights as people read them: funnels with bars, rates and durations, series as sparklines.

use pennon_analytics::Query as Node;
use serde_json::Value;

use crate::args::{FunnelOptions, QueryCommand, TrendOptions};
use crate::show::quantities::{duration, number, rate};
use crate::show::table::{Cell, render, render_plain};
use crate::show::text::{sanitize, truncate};

/// A single series with at most this many buckets also has a row for each.
const BUCKET_ROWS_MAX: usize = 40;

/// The text of `result`, which is that of `query`, in lines of at most `columns` columns.
pub(super) fn to_text(command: &QueryCommand, query: &Node, result: &Value, columns: usize) -> String {
    match command {
        QueryCommand::Funnel(options) => funnel_text(options, result, columns),
        QueryCommand::Trend(options) if options.total => totals_text(result, columns),
        QueryCommand::Trend(options) => {
            let sum = if is_additive(options) { Sum::Total } else { Sum::None };
            series_text(result, (options.series.interval.as_str(), sum), columns)
        }
        QueryCommand::Lifecycle(options) => {
            series_text(result, (options.interval.as_str(), Sum::None), columns)
        }
        QueryCommand::Stickiness(options) => {
            let periods = format!("{}s", options.series.interval.as_str());
            series_text(result, (&periods, Sum::Persons), columns)
        }
        QueryCommand::Retention(_) => {
            let rows =
                query.table(result).into_iter().map(|row| row.iter().map(|cell| day_text(cell)).collect());
            render_plain(&rows.collect::<Vec<_>>(), columns)
        }
    }
}

/// What the sum of the numbers of a series is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sum {
    /// The number of the whole range.
    Total,
    /// The number of persons, each of whom is in one bucket.
    Persons,
    /// Nothing: a person is counted in several buckets.
    None,
}

/// Whether the numbers of a trend add up to that of the whole range.
fn is_additive(options: &TrendOptions) -> bool {
    matches!(options.math.as_deref(), None | Some("total" | "sum" | "first_time_for_user"))
}

/// A midnight as its day.
fn day_text(instant: &str) -> String {
    instant.strip_suffix("T00:00:00Z").unwrap_or(instant).to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A value of a breakdown: several properties are joined.
fn breakdown_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(breakdown_text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The name of a step or of a series.
fn name_text(row: &Value) -> String {
    let own = row["custom_name"].as_str().filter(|name| !name.is_empty());
    own.or(row["label"].as_str()).or(row["name"].as_str()).unwrap_or_default().to_owned()
}

/// The steps of a funnel, or of one funnel for each value of the breakdown.
fn funnel_text(options: &FunnelOptions, result: &Value, columns: usize) -> String {
    let is_split = list(result).first().is_some_and(Value::is_array);
    let funnels: Vec<&[Value]> =
        if is_split { list(result).iter().map(list).collect() } else { vec![list(result)] };
    let mut rows = Vec::new();
    for steps in &funnels {
        for (index, step) in steps.iter().enumerate() {
            let count = |at: usize| steps[at]["count"].as_f64().unwrap_or(0.0);
            let (here, first) = (count(index), count(0));
            let mut row = Vec::new();
            if is_split {
                row.push(Cell::text(if index == 0 {
                    breakdown_text(&step["breakdown"])
                } else {
                    String::new()
                }));
            }
            row.push(Cell::number((index + 1).to_string()));
            row.push(Cell::text(name_text(step)));
            row.push(Cell::number(number(here)));
            row.push(Cell::Bar(if first > 0.0 { here / first } else { 0.0 }));
            row.push(Cell::number(rate(here, first)));
            let of_previous = if index == 0 { String::new() } else { rate(here, count(index - 1)) };
            row.push(Cell::number(of_previous));
            let time = step["median_conversion_time"].as_f64().map(duration);
            row.push(Cell::number(time.unwrap_or_default()));
            rows.push(row);
        }
    }
    let mut headings = vec!["step", "event", "persons", "", "of first", "of prev.", "median time"];
    let property = options.breakdown.as_ref().map(|property| sanitize(&property.name)).unwrap_or_default();
    if is_split {
        headings.insert(0, &property);
    }
    let mut text = render(&headings, &rows, columns);
    let total = |at: fn(&[Value]) -> Option<&Value>| -> f64 {
        funnels.iter().filter_map(|steps| at(steps)?["count"].as_f64()).sum()
    };
    let (entered, completed) = (total(<[Value]>::first), total(<[Value]>::last));
    let persons = if entered == 1.0 { "person" } else { "persons" };
    text.push_str(&format!(
        "\n{} {persons} began, {} completed: {}\n",
        number(entered),
        number(completed),
        rate(completed, entered)
    ));
    text
}

/// One number for each series.
fn totals_text(result: &Value, columns: usize) -> String {
    let value = |row: &Value| row["aggregated_value"].as_f64().unwrap_or(0.0);
    let largest = list(result).iter().map(value).fold(0.0, f64::max);
    let rows: Vec<Vec<Cell>> = list(result)
        .iter()
        .map(|row| {
            let fraction = if largest > 0.0 { value(row) / largest } else { 0.0 };
            vec![Cell::text(name_text(row)), Cell::number(number(value(row))), Cell::Bar(fraction)]
        })
        .collect();
    render(&["series", "value", ""], &rows, columns)
}

/// The label of a bucket: the instant of an hour without its seconds.
fn bucket_label(day: &Value) -> String {
    let text = breakdown_text(day);
    text.strip_suffix(":00").map(str::to_owned).unwrap_or(text)
}

/// A row with a sparkline for each series; for a single series also a row for each bucket.
fn series_text(result: &Value, (period, sum): (&str, Sum), columns: usize) -> String {
    let series = list(result);
    let data =
        |row: &Value| list(&row["data"]).iter().map(|it| it.as_f64().unwrap_or(0.0)).collect::<Vec<f64>>();
    if let [only] = series
        && (1..=BUCKET_ROWS_MAX).contains(&list(&only["data"]).len())
    {
        return bucket_rows(only, &data(only), (period, sum), columns);
    }
    let rows: Vec<Vec<Cell>> = series
        .iter()
        .map(|row| {
            let data = data(row);
            let last = data.last().copied().map(number).unwrap_or_default();
            let largest = data.iter().copied().reduce(|a, b| if b.abs() > a.abs() { b } else { a });
            vec![
                Cell::text(name_text(row)),
                Cell::Sparkline(data.clone()),
                Cell::number(number(summary(&data, sum).1)),
                Cell::number(largest.map(number).unwrap_or_default()),
                Cell::number(last),
            ]
        })
        .collect();
    let heading = summary(&[], sum).0;
    let mut text = render(&["series", "", heading, "largest", "last"], &rows, columns);
    let days = series.first().map(|row| list(&row["days"])).unwrap_or_default();
    if let (Some(first), Some(last)) = (days.first(), days.last()) {
        let range = format!("{} to {}", bucket_label(first), bucket_label(last));
        text.push_str(&format!("\n{}\n", truncate(&sanitize(&range), columns)));
    }
    text
}

/// The name and the number that stand for a whole series.
fn summary(data: &[f64], sum: Sum) -> (&'static str, f64) {
    let total: f64 = data.iter().sum();
    match sum {
        Sum::Total => ("total", total),
        Sum::Persons => ("persons", total),
        Sum::None => ("average", total / data.len().max(1) as f64),
    }
}

fn bucket_rows(series: &Value, data: &[f64], (period, sum): (&str, Sum), columns: usize) -> String {
    let days = list(&series["days"]);
    let largest = data.iter().copied().map(f64::abs).fold(0.0, f64::max);
    let rows: Vec<Vec<Cell>> = data
        .iter()
        .enumerate()
        .map(|(index, value)| {
            let fraction = if largest > 0.0 { value.abs() / largest } else { 0.0 };
            let label = days.get(index).map(bucket_label).unwrap_or_default();
            vec![Cell::text(label), Cell::number(number(*value)), Cell::Bar(fraction)]
        })
        .collect();
    let name = name_text(series);
    let heading = truncate(&sanitize(&name), columns / 3);
    let mut text = render(&[period, &heading, ""], &rows, columns);
    let (name, value) = summary(data, sum);
    text.push_str(&format!("\n{name} {}", number(value)));
    if sum == Sum::Total {
        text.push_str(&format!(", average {}", number(summary(data, Sum::None).1)));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::{Command, command_of};
    use crate::query::node;
    use pennon_analytics::ParsedQuery;
    use serde_json::json;

    fn shown(words: &str, result: &Value, columns: usize) -> String {
        let Command::Query(options) = command_of(&format!("pennon query {words}")) else { panic!("{words}") };
        let command = options.command.unwrap();
        let parsed = Node::from_query_node(&node::build(&command).unwrap()).unwrap();
        let ParsedQuery::Query(query) = parsed else { panic!("{words}") };
        to_text(&command, &query, result, columns)
    }

    fn step(name: &str, count: u64, median: Value) -> Value {
        json!({"name": name, "custom_name": null, "count": count, "median_conversion_time": median, "breakdown": ["mobile"]})
    }

    #[test]
    fn a_funnel_has_bars_rates_and_readable_durations() {
        // Counts of the published result for a window of 14 days; 57 / 126 is 45.24 %.
        let result = json!([
            step("product_view", 598, Value::Null),
            step("payment_details", 126, json!(7500.0)),
            step("purchase", 57, json!(125.0)),
        ]);
        let text = shown("funnel --steps product_view,payment_details,purchase", &result, 80);
        let expected = "\
step  event            persons          of first  of prev.  median time
";
        let lines: Vec<&str> = text.lines().collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(lines[0]), words(expected), "{text}");
        assert_eq!(words(lines[2])[..3], ["1", "product_view", "598"], "{text}");
        assert!(lines[2].contains("█") && lines[2].trim_end().ends_with("100 %"), "{text}");
        assert!(lines[3].contains("21.1 %") && lines[3].trim_end().ends_with("2 h 5 min"), "{text}");
        assert!(
            lines[4].contains("9.5 %")
                && lines[4].contains("45.2 %")
                && lines[4].trim_end().ends_with("2 min 5 s"),
            "{text}"
        );
        assert_eq!(lines[6], "598 persons began, 57 completed: 9.5 %");
        assert!(lines.iter().all(|line| crate::show::text::width(line) <= 80), "{text}");
    }

    #[test]
    fn a_funnel_without_persons_divides_by_nothing() {
        let empty = json!([step("a", 0, Value::Null), step("b", 0, Value::Null)]);
        let text = shown("funnel --steps a,b", &empty, 80);
        assert!(text.ends_with("0 persons began, 0 completed: -\n") && !text.contains("NaN"), "{text}");
        let text = shown("funnel --steps a,b", &json!([]), 80);
        assert!(text.ends_with("0 persons began, 0 completed: -\n"), "{text}");
    }

    #[test]
    fn each_value_of_a_breakdown_is_named_once() {
        let one = json!([step("a", 4, Value::Null), step("b", 1, json!(0.5))]);
        let text = shown("funnel --steps a,b --breakdown platform", &json!([one, one]), 80);
        assert!(text.starts_with("platform"), "{text}");
        assert_eq!(text.matches("mobile").count(), 2, "{text}");
        assert!(text.contains("500 ms") && text.ends_with("8 persons began, 2 completed: 25 %\n"), "{text}");
    }

    #[test]
    fn one_series_has_a_row_for_each_day_and_several_have_sparklines() {
        let series = |label: &str, data: Value| json!({"label": label, "days": ["2024-03-01", "2024-03-02"], "data": data});
        let text = shown("trend --event a", &json!([series("a\u{1b}[2J", json!([1, 1500]))]), 60);
        assert!(
            text.contains("2024-03-02  1,500  ███") && text.ends_with("total 1,501, average 750.5\n"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'));
        let text = shown(
            "trend --event a --event b",
            &json!([series("a", json!([0, 7])), series("東京", json!([2, 2]))]),
            60,
        );
        assert!(
            text.contains("▁█") && text.contains("██") && text.contains("2024-03-01 to 2024-03-02"),
            "{text}"
        );
        assert_eq!(shown("trend --event a", &json!([]), 60).lines().count(), 2, "headings only");
    }

    #[test]
    fn numbers_that_count_a_person_twice_are_not_added() {
        let series = json!([{"label": "a", "days": ["2024-03-01", "2024-03-02"], "data": [4, 2]}]);
        let last = |words: &str| shown(words, &series, 60).lines().last().map(str::to_owned);
        assert_eq!(last("trend --event a").as_deref(), Some("total 6, average 3"));
        assert_eq!(last("trend --event a --math dau").as_deref(), Some("average 3"));
        assert_eq!(last("stickiness --event a").as_deref(), Some("persons 6"));
        assert!(shown("stickiness --event a --interval week", &series, 60).starts_with("weeks"));
        let several = json!([series[0], series[0]]);
        assert!(shown("trend --event a --event b --math dau", &several, 60).contains("average"));
    }

    #[test]
    fn a_retention_has_a_row_for_each_period() {
        let row = |day: &str, counts: Value| {
            let values =
                counts.as_array().unwrap().iter().map(|count| json!({"count": count})).collect::<Vec<_>>();
            json!({"label": "Day 0", "date": day, "values": values})
        };
        let result =
            json!([row("2024-03-01T00:00:00Z", json!([10, 4])), row("2024-03-02T00:00:00Z", json!([7]))]);
        let text = shown("retention --event a --periods 2", &result, 80);
        assert!(text.contains("2024-03-01 ") && !text.contains("T00"), "{text}");
    }

    #[test]
    fn totals_are_bars() {
        let row = |label: &str, value: Value| json!({"label": label, "aggregated_value": value, "data": []});
        let text = shown(
            "trend --event a --total",
            &json!([row("desktop", json!(189)), row("mobile", json!(0))]),
            60,
        );
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].starts_with("desktop    189  █") && lines[3] == "mobile       0", "{text}");
    }
}
