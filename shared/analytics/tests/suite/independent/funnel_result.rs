//! The expected result of a funnel, computed from the paths of its actors.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::funnel_definition as definition;
use super::funnel_scan::{Rules, scan, scan_unordered};
use super::funnel_spec::{Attribution, Candidate, FunnelSpec, Order, Shape};
use super::history::{History, SECOND, Source};

/// One actor under one value: the events to scan, and the step that must carry the value.
pub struct Share {
    pub values: Vec<String>,
    pub events: Vec<Candidate>,
    pub bound: Option<usize>,
}

/// The actors with the breakdown values under which they are scanned.
pub fn shares(spec: &FunnelSpec, history: &History) -> Vec<Share> {
    let mut shares = Vec::new();
    for events in spec.candidates(history).into_values() {
        match &spec.breakdown {
            None => shares.push(Share { values: Vec::new(), events, bound: None }),
            Some((Source::Cohorts(ids), _)) => {
                for id in ids.iter().filter(|id| **id == 0 || history.is_member(**id, &events[0].id)) {
                    shares.push(Share { values: vec![id.to_string()], events: events.clone(), bound: None });
                }
            }
            Some((source, attribution)) => of_values(spec, source, *attribution, events, &mut shares),
        }
    }
    shares
}

fn of_values(
    spec: &FunnelSpec,
    source: &Source,
    attribution: Attribution,
    events: Vec<Candidate>,
    shares: &mut Vec<Share>,
) {
    let is_group = matches!(source, Source::Group(..));
    let filled = |event: &&Candidate| is_group || !event.empty;
    let distinct = |events: &[Candidate]| -> BTreeSet<Vec<String>> {
        events.iter().map(|event| event.values.clone()).collect()
    };
    match attribution {
        Attribution::FirstTouch | Attribution::LastTouch => {
            let touch = if attribution == Attribution::FirstTouch {
                events.iter().find(filled)
            } else {
                events.iter().rfind(filled)
            };
            let none = vec![String::new(); events[0].values.len()];
            let values = touch.map_or(none, |event| event.values.clone());
            shares.push(Share { values, events, bound: None });
        }
        Attribution::AllEvents => {
            for values in distinct(&events) {
                let events = events.iter().filter(|event| event.values == values).cloned().collect();
                shares.push(Share { values, events, bound: None });
            }
        }
        Attribution::Step(step) => {
            let number = i64::try_from(step).unwrap() + 1;
            let of_step =
                |event: &&Candidate| spec.order == Order::Unordered || event.steps.contains(&number);
            let matching: Vec<Candidate> = events.iter().filter(of_step).cloned().collect();
            for values in distinct(&matching) {
                shares.push(Share { values, events: events.clone(), bound: Some(step) });
            }
        }
    }
}

/// Steps from 1 and their times. If the definition holds, it and the scan must agree.
fn path(spec: &FunnelSpec, share: &Share) -> Option<Vec<(usize, i64)>> {
    let (steps, window) = (spec.steps.len(), spec.window_micros());
    let events: Vec<&Candidate> = share.events.iter().collect();
    let optional = spec.optional();
    let numbered = |times: Vec<i64>| (1..).zip(times).collect::<Vec<_>>();
    let path = match spec.order {
        Order::Unordered => {
            let bound = share.bound.map(|_| &share.values[..]);
            Some(numbered(scan_unordered(&events, steps, window, bound)))
        }
        order => {
            let bound = share.bound.map(|step| (step, &share.values[..]));
            scan(
                &events,
                &Rules { steps, window, strict: order == Order::Strict, bound, optional: &optional },
            )
        }
    };
    if share.bound.is_none() && optional.is_empty() {
        agree(spec, &share.events, path.as_deref());
    }
    path
}

fn agree(spec: &FunnelSpec, events: &[Candidate], path: Option<&[(usize, i64)]>) {
    let (steps, window) = (spec.steps.len(), spec.window_micros());
    let depth = path.map_or(0, <[_]>::len);
    let (ties, distinct) = (definition::has_ties(events), definition::is_distinct(events));
    let free = spec.exclusions.is_empty();
    match spec.order {
        Order::Ordered if free && (!ties || distinct) => {
            assert_eq!(depth, definition::ordered_depth(events, steps, window), "depth {events:#?}");
            if !ties {
                let times: Vec<i64> = path.unwrap().iter().map(|(_, time)| *time).collect();
                assert_eq!(times, definition::ordered_path(events, steps, window), "path {events:#?}");
            }
        }
        Order::Ordered if !ties && !free => {
            let complete = definition::completes_unhindered(events, steps, window);
            assert_eq!(depth == steps, complete, "exclusions {events:#?}");
        }
        Order::Strict if free && !ties && distinct => {
            assert_eq!(depth, definition::strict_depth(events, steps, window), "strict {events:#?}");
        }
        Order::Unordered if free && definition::is_plain(events) => {
            assert_eq!(depth, definition::unordered_depth(events, steps, window), "unordered {events:#?}");
        }
        _ => {}
    }
}

/// One row of the steps: how many reached each, and the seconds that each hop took.
#[derive(Clone, Default)]
struct Row {
    counts: Vec<usize>,
    hops: Vec<Vec<f64>>,
}

impl Row {
    fn empty(steps: usize) -> Self {
        Self { counts: vec![0; steps], hops: vec![Vec::new(); steps] }
    }

    fn add(&mut self, path: &[(usize, i64)]) {
        for (step, _) in path {
            self.counts[step - 1] += 1;
        }
        for pair in path.windows(2) {
            if pair[1].1 > pair[0].1 {
                self.hops[pair[1].0 - 1].push(seconds(pair[1].1 - pair[0].1));
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        for (sum, more) in self.counts.iter_mut().zip(&other.counts) {
            *sum += more;
        }
        for (sum, more) in self.hops.iter_mut().zip(&other.hops) {
            sum.extend(more);
        }
    }

    /// By the last step, then the one before it.
    fn rank(&self) -> Vec<usize> {
        self.counts.iter().rev().copied().collect()
    }
}

fn seconds(micros: i64) -> f64 {
    micros as f64 / SECOND as f64
}

fn mean(values: &[f64]) -> Value {
    if values.is_empty() { Value::Null } else { json!(values.iter().sum::<f64>() / values.len() as f64) }
}

fn median(values: &[f64]) -> Value {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => Value::Null,
        odd if odd % 2 == 1 => json!(sorted[odd / 2]),
        even => json!((sorted[even / 2 - 1] + sorted[even / 2]) / 2.0),
    }
}

/// The value as in `breakdown_value`.
pub fn shown(spec: &FunnelSpec, values: &[String]) -> Value {
    let (source, _) = spec.breakdown.as_ref().unwrap();
    let other = values == ["Other"];
    match source {
        Source::Cohorts(_) => json!(values[0].parse::<u64>().unwrap()),
        Source::Group(..) => json!(values[0]),
        Source::Event(keys) if keys.len() > 1 => json!(values),
        // A request with `insight: FUNNELS` gets single texts in rows of steps.
        _ if spec.named && matches!(spec.shape, Shape::Steps) => json!(values[0]),
        _ if other => json!(["Other"]),
        _ => json!(values),
    }
}

fn rows(spec: &FunnelSpec, history: &History) -> BTreeMap<Vec<String>, Row> {
    let steps = spec.steps.len();
    let mut rows: BTreeMap<Vec<String>, Row> = BTreeMap::new();
    for share in shares(spec, history) {
        let Some(path) = path(spec, &share).filter(|path| !path.is_empty()) else { continue };
        rows.entry(share.values).or_insert_with(|| Row::empty(steps)).add(&path);
    }
    rows
}

fn row_value(spec: &FunnelSpec, row: &Row) -> Value {
    let steps = spec.steps.iter().enumerate().map(|(index, step)| {
        let mut entry = json!({"order": index, "count": row.counts[index], "people": [], "type": "events",
            "custom_name": null});
        let fields = entry.as_object_mut().unwrap();
        if spec.order == Order::Unordered {
            let plural = if index == 0 { "" } else { "s" };
            fields.insert("name".to_owned(), json!(format!("Completed {} step{plural}", index + 1)));
            fields.insert("action_id".to_owned(), Value::Null);
        } else {
            fields.insert("action_id".to_owned(), json!(step.name));
        }
        // If steps were skipped, the contract does not define which times are reported.
        if spec.optional().is_empty() {
            fields.insert("average_conversion_time".to_owned(), mean(&row.hops[index]));
            fields.insert("median_conversion_time".to_owned(), median(&row.hops[index]));
        }
        entry
    });
    steps.collect()
}

/// Differences of a result of steps; `None` if the contract leaves the rows open.
pub fn check_steps(spec: &FunnelSpec, history: &History, got: &Value) -> Option<Vec<String>> {
    let mut wrong = Vec::new();
    let mut compare = |want: &Value, got: &Value, path: String| {
        crate::support::differences(want, got, &path, 1e-6, &mut wrong);
    };
    let rows = rows(spec, history);
    if spec.breakdown.is_none() {
        let none = Row::empty(spec.steps.len());
        compare(&row_value(spec, rows.values().next().unwrap_or(&none)), got, "result".to_owned());
        return Some(wrong);
    }
    let limited = !matches!(spec.breakdown, Some((Source::Cohorts(_), _)));
    let mut ranked: Vec<(Vec<String>, Row)> = rows.into_iter().collect();
    ranked.sort_by_key(|(_, row)| std::cmp::Reverse(row.rank()));
    if limited && ranked.len() > spec.limit {
        if ranked[spec.limit - 1].1.rank() == ranked[spec.limit].1.rank() {
            // The contract leaves open which of two equal rows is kept.
            return None;
        }
        let mut other = Row::empty(spec.steps.len());
        ranked.split_off(spec.limit).iter().for_each(|(_, row)| other.merge(row));
        ranked.push((vec!["Other".to_owned()], other));
    }
    let got = got.as_array().cloned().unwrap_or_default();
    let shown_of = |row: &Value| row[0]["breakdown_value"].clone();
    compare(&json!(ranked.len()), &json!(got.len()), "rows".to_owned());
    for (values, row) in &ranked {
        let value = shown(spec, values);
        match got.iter().find(|row| shown_of(row) == value) {
            Some(got) => compare(&row_value(spec, row), got, format!("row {value}")),
            None => compare(&value, &Value::Null, "row".to_owned()),
        }
    }
    let rank = |row: &Value| -> Vec<u64> {
        row.as_array().into_iter().flatten().rev().map(|step| step["count"].as_u64().unwrap()).collect()
    };
    let ranks: Vec<_> = got.iter().map(rank).collect();
    compare(&json!(true), &json!(ranks.is_sorted_by(|left, right| left >= right)), "ranked".to_owned());
    Some(wrong)
}

/// Differences of a result of times to convert.
pub fn check_times_to_convert(spec: &FunnelSpec, history: &History, got: &Value) -> Vec<String> {
    let Shape::TimeToConvert(bins) = spec.shape else { return Vec::new() };
    let (from, to) = spec.between();
    // A breakdown is ignored here.
    let whole = FunnelSpec { breakdown: None, ..spec.clone() };
    let mut samples: Vec<f64> = Vec::new();
    for share in shares(&whole, history) {
        let Some(path) = path(&whole, &share).filter(|path| path.len() > to) else { continue };
        samples.push(seconds(path[to].1 - path[from].1));
    }
    let want = if samples.is_empty() {
        json!({"bins": [], "average_conversion_time": null})
    } else {
        let count = samples.len() as f64;
        let bins = match bins {
            Some(bins) => bins.clamp(1, 90) as usize,
            // A cube root: the smallest number whose third power is not less.
            None => (1..=60).find(|bins| bins * bins * bins >= samples.len()).unwrap_or(60),
        };
        let low = samples.iter().copied().fold(f64::INFINITY, f64::min).floor();
        let high = samples.iter().copied().fold(f64::NEG_INFINITY, f64::max).ceil();
        let mut width = ((high - low) / bins as f64).ceil();
        if width == 0.0 {
            width = 60.0;
        }
        let bars = (0..=bins).map(|bin| {
            let start = low + bin as f64 * width;
            let inside = samples.iter().filter(|sample| ((**sample - low) / width).floor() == bin as f64);
            json!([start, inside.count()])
        });
        json!({"bins": bars.collect::<Vec<_>>(), "average_conversion_time": samples.iter().sum::<f64>() / count})
    };
    let mut wrong = Vec::new();
    crate::support::differences(&want, got, "result", 1e-6, &mut wrong);
    wrong
}
