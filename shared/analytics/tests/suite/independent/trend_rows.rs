//! The rows of a series: values of its breakdown, which of them stay, in which order.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::history::{Event, History, Source};
use super::trend_count::{Count, Math};
use super::trend_dates::Range;
use super::trend_spec::{Series, TrendSpec};

pub const NULL: &str = "$$_posthog_breakdown_null_$$";
pub const OTHER: &str = "$$_posthog_breakdown_other_$$";

/// One row of a result, or its total.
#[derive(Clone, Debug)]
pub struct Row {
    /// Index of the series.
    pub series: usize,
    /// None without a breakdown.
    pub values: Option<Vec<String>>,
    pub numbers: Vec<f64>,
}

impl Row {
    pub fn sum(&self) -> f64 {
        self.numbers.iter().sum()
    }

    /// Real values, then none, then the rest.
    pub fn class(&self) -> u8 {
        let values = self.values.iter().flatten();
        values.map(|value| if value == OTHER { 2 } else { u8::from(value == NULL) }).max().unwrap_or(0)
    }
}

/// The rows of one series in one range; `None` if the contract leaves open which values are kept.
pub fn rows(spec: &TrendSpec, history: &History, range: &Range, index: usize) -> Option<Vec<Row>> {
    let series = &spec.series[index];
    let count = Count {
        history,
        range,
        math: series.math,
        interval: spec.range_spec.interval,
        total: spec.range_spec.total,
        once: spec.is_cumulative(),
        running: spec.is_cumulative(),
    };
    let events = matching(spec, history, series, &count);
    let Some(source) = &spec.source else {
        let mut numbers = count.numbers(&events);
        if spec.smoothing > 1 {
            numbers = smooth(&numbers, spec.smoothing);
        }
        return Some(vec![Row { series: index, values: None, numbers }]);
    };
    if let Source::Cohorts(ids) = source {
        let rows = ids.iter().filter_map(|id| {
            let inside = |event: &&&Event| *id == 0 || history.is_member(*id, &event.id);
            let events: Vec<&Event> = events.iter().filter(inside).copied().collect();
            let values = Some(vec![if *id == 0 { "all".to_owned() } else { id.to_string() }]);
            (!events.is_empty()).then(|| Row { series: index, values, numbers: count.numbers(&events) })
        });
        let mut rows: Vec<Row> = rows.filter(|row| !count.rolls() || row.sum() > 0.0).collect();
        if ids.len() > 1 && !ids.contains(&0) {
            sort(&mut rows);
        }
        return Some(rows);
    }
    let mut by_value: BTreeMap<Vec<String>, Vec<&Event>> = BTreeMap::new();
    for event in &events {
        let values = source.values(history, event).into_iter();
        let values =
            values.map(|value| value.filter(|text| !text.is_empty()).unwrap_or_else(|| NULL.to_owned()));
        by_value.entry(values.collect()).or_default().push(event);
    }
    let tied = |event: &&Event| {
        let mut others = events.iter().filter(|other| {
            other.time == event.time && history.person(&other.id) == history.person(&event.id)
        });
        others.any(|other| source.values(history, other) != source.values(history, event))
    };
    if series.math == Math::FirstTime && events.iter().any(tied) {
        // Which of two first events gives the value is open.
        return None;
    }
    // A row per raw value, and the plain numbers that decide which of them stay.
    let plain = Count { running: false, ..count };
    let mut raw: Vec<(Row, Row)> = Vec::new();
    for (values, events) in by_value {
        let row = |count: &Count<'_>| Row {
            series: index,
            values: Some(values.clone()),
            numbers: count.numbers(&events),
        };
        raw.push((row(&count), row(&plain)));
    }
    // Values of before the range that no window shows.
    raw.retain(|(row, _)| !count.rolls() || row.sum() > 0.0);
    if let Some(bins) = spec.bins {
        raw = binned(raw, bins);
    }
    limited(spec, index, raw)
}

/// The events that count, regardless of rolling windows.
fn matching<'a>(
    spec: &TrendSpec,
    history: &'a History,
    series: &Series,
    count: &Count<'_>,
) -> Vec<&'a Event> {
    let passes = |event: &&Event| {
        let filters = spec.filter.iter().chain(&series.filter);
        series.is_named(event) && filters.clone().all(|filter| filter.passes(event))
    };
    let passing: Vec<&Event> = history.events.iter().filter(passes).collect();
    if series.math == Math::FirstTime {
        let named: Vec<&Event> = history.events.iter().filter(|event| series.is_named(event)).collect();
        return count.firsts(&named, &passing);
    }
    passing.into_iter().filter(|event| count.reads(event)).collect()
}

fn smooth(numbers: &[f64], width: usize) -> Vec<f64> {
    let at = |index: usize| {
        let window = &numbers[(index + 1).saturating_sub(width)..=index];
        (window.iter().sum::<f64>() / window.len() as f64).floor()
    };
    (0..numbers.len()).map(at).collect()
}

fn sort(rows: &mut [Row]) {
    rows.sort_by(|left, right| {
        let by_size = right.sum().total_cmp(&left.sum());
        left.class().cmp(&right.class()).then(by_size).then(left.values.cmp(&right.values))
    });
}

fn add(sum: &mut [f64], more: &[f64]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}

fn limited(spec: &TrendSpec, index: usize, mut raw: Vec<(Row, Row)>) -> Option<Vec<Row>> {
    let limit = spec.limit.unwrap_or(25);
    raw.sort_by(|(_, left), (_, right)| {
        let by_size = right.sum().total_cmp(&left.sum());
        let class =
            if spec.range_spec.total { std::cmp::Ordering::Equal } else { left.class().cmp(&right.class()) };
        class.then(by_size).then(left.values.cmp(&right.values))
    });
    let mut rows: Vec<Row> = Vec::new();
    if raw.len() > limit {
        let (last, next) = (&raw[limit - 1].1, &raw[limit].1);
        if spec.range_spec.total && last.sum() == next.sum() {
            return None;
        }
        let rest = raw.split_off(limit);
        let mut numbers = vec![0.0; rest[0].1.numbers.len()];
        rest.iter().for_each(|(row, _)| add(&mut numbers, &row.numbers));
        let width = rest[0].0.values.as_ref().unwrap().len();
        if !spec.hide_other {
            rows.push(Row { series: index, values: Some(vec![OTHER.to_owned(); width]), numbers });
        }
    }
    rows.extend(raw.into_iter().map(|(row, _)| row));
    sort(&mut rows);
    Some(rows)
}

/// Values of one bin added up; what is no number has no bin.
fn binned(raw: Vec<(Row, Row)>, bins: u32) -> Vec<(Row, Row)> {
    let number = |row: &Row| row.values.as_ref().unwrap()[0].parse::<f64>().ok();
    let numbers: Vec<f64> = raw.iter().filter_map(|(row, _)| number(row)).collect();
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let width = (high - low) / f64::from(bins);
    let name = |value: f64| {
        let of = |bin: u32| {
            let start = low + f64::from(bin) * width;
            let end = low + f64::from(bin + 1) * width + if bin + 1 == bins { 0.01 } else { 0.0 };
            (start, end)
        };
        let bin = (0..bins).map(of).find(|(start, end)| *start <= value && value < *end).unwrap();
        format!("[{},{}]", bin.0, bin.1)
    };
    let mut sums: BTreeMap<String, (Row, Row)> = BTreeMap::new();
    for (mut row, mut plain) in raw {
        let value = number(&row).map_or_else(|| NULL.to_owned(), name);
        row.values = Some(vec![value.clone()]);
        plain.values = row.values.clone();
        match sums.get_mut(&value) {
            Some((sum, plain_sum)) => {
                add(&mut sum.numbers, &row.numbers);
                add(&mut plain_sum.numbers, &plain.numbers);
            }
            None => {
                sums.insert(value, (row, plain));
            }
        }
    }
    sums.into_values().collect()
}

/// The formula over the rows of all series, each value for itself.
pub fn formula(spec: &TrendSpec, rows: Vec<Vec<Row>>, width: usize) -> Vec<Row> {
    let of = spec.formula.unwrap().of;
    let mut by_value: BTreeMap<Option<Vec<String>>, Vec<Vec<f64>>> = BTreeMap::new();
    let count = rows.len();
    for row in rows.into_iter().flatten() {
        let zeros = || vec![vec![0.0; width]; count];
        by_value.entry(row.values).or_insert_with(zeros)[row.series] = row.numbers;
    }
    let mut rows: Vec<Row> = Vec::new();
    for (values, series) in by_value {
        let at = |bucket: usize| of(&series.iter().map(|numbers| numbers[bucket]).collect::<Vec<_>>());
        rows.push(Row { series: 0, values, numbers: (0..width).map(at).collect() });
    }
    rows
}

/// Formula rows of one range, the largest first; equal ones in the reverse order of their values.
pub fn sort_formula(rows: &mut [Row], count: &dyn Fn(&Row) -> f64) {
    rows.sort_by(|left, right| {
        let numbers = right.numbers.iter().zip(&left.numbers).map(|(right, left)| right.total_cmp(left));
        let numbers = numbers.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then);
        let size = count(right).total_cmp(&count(left));
        left.class().cmp(&right.class()).then(size).then(numbers).then(right.values.cmp(&left.values))
    });
}

pub fn breakdown_value(spec: &TrendSpec, values: &[String]) -> Value {
    match (&spec.source, spec.several) {
        (Some(Source::Cohorts(_)), _) => {
            values[0].parse::<u64>().map_or_else(|_| json!(values[0]), |id| json!(id))
        }
        (_, true) => json!(values),
        _ => json!(values[0]),
    }
}

/// As labels name it.
pub fn value_text(spec: &TrendSpec, values: &[String]) -> String {
    match &spec.source {
        Some(Source::Cohorts(_)) if values[0] == "all" => "all users".to_owned(),
        Some(Source::Cohorts(_)) => format!("cohort {}", values[0]),
        _ => values.join("::"),
    }
}
