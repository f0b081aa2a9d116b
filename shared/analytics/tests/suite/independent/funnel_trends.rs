//! Funnels over time: which periods an actor entered in, and which of them converted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::calendar::{Calendar, Period};
use super::funnel_definition as definition;
use super::funnel_result::{Share, shares, shown};
use super::funnel_scan::Queues;
use super::funnel_spec::{Candidate, FunnelSpec, Order, Shape};
use super::history::{History, Source};

/// Converted or not, of each period that counts.
type Entries = BTreeMap<Period, bool>;

#[derive(Clone, Copy, PartialEq)]
enum Taint {
    Clean,
    Partial,
    Full,
}

/// One period's slots: start and taint of each step.
struct Table {
    slots: Vec<Option<(i64, bool)>>,
    deepest: usize,
    time: i64,
    taint: Taint,
}

struct Tables<'a> {
    window: i64,
    goal: usize,
    bound: Option<(usize, &'a [String])>,
    open: BTreeMap<Period, Table>,
    converted: BTreeSet<Period>,
}

impl Tables<'_> {
    fn enter(&mut self, event: &Candidate, period: Period) {
        if self.converted.contains(&period) {
            return;
        }
        let restart = |table: &Table| table.deepest == 1 && table.taint != Taint::Clean;
        if self.open.get(&period).is_none_or(restart) {
            let mut slots = vec![None; self.goal + 1];
            slots[1] = Some((event.time, false));
            self.open.insert(period, Table { slots, deepest: 1, time: event.time, taint: Taint::Clean });
        } else {
            self.open.get_mut(&period).unwrap().slots[1] = Some((event.time, false));
        }
    }

    fn number(&mut self, event: &Candidate, number: i64, period: Period) {
        let step = usize::try_from(number.abs()).unwrap();
        let unbound = self.bound.is_some_and(|(bound, values)| bound == step - 1 && event.values != values);
        if number > 0 && unbound || step > self.goal {
            return;
        }
        if number == 1 {
            return self.enter(event, period);
        }
        let mut done = Vec::new();
        for (period, table) in &mut self.open {
            let Some((start, tainted)) = table.slots[step - 1] else { continue };
            let reached = table.slots[step].is_some_and(|(other, _)| other == start);
            if event.time - start > self.window || reached {
                continue;
            }
            if number < 0 {
                if !tainted {
                    table.slots[step - 1] = Some((start, true));
                    if table.deepest == step - 1 && event.time - table.time <= self.window {
                        table.taint = Taint::Partial;
                    }
                }
                continue;
            }
            if !tainted {
                table.slots[step] = Some((start, false));
            }
            if table.slots[self.goal].is_some() {
                done.push(*period);
            } else if step > table.deepest || step == table.deepest && table.taint == Taint::Partial {
                table.deepest = step;
                table.time = event.time;
                table.taint = if tainted { Taint::Full } else { Taint::Clean };
            }
        }
        for period in done {
            self.open.remove(&period);
            self.converted.insert(period);
        }
    }
}

fn in_order(spec: &FunnelSpec, share: &Share, calendar: &Calendar) -> Entries {
    let (from, to) = spec.between();
    let mut tables = Tables {
        window: spec.window_micros(),
        goal: to + 1,
        bound: share.bound.map(|step| (step, &share.values[..])),
        open: BTreeMap::new(),
        converted: BTreeSet::new(),
    };
    for event in &share.events {
        let period = calendar.period(event.time);
        for number in event.steps.iter().rev() {
            tables.number(event, *number, period);
        }
        if spec.order == Order::Strict {
            for table in tables.open.values_mut() {
                for step in 1..=to + 1 {
                    if !event.steps.contains(&i64::try_from(step).unwrap()) {
                        table.slots[step] = None;
                    }
                }
            }
        }
    }
    let mut entries: Entries = tables.converted.iter().map(|period| (*period, true)).collect();
    if tables.open.values().all(|table| table.taint != Taint::Full) {
        for (period, table) in &tables.open {
            if table.deepest > from && table.taint == Taint::Clean {
                entries.entry(*period).or_insert(false);
            }
        }
    }
    let free = spec.exclusions.is_empty() && share.bound.is_none();
    if spec.order == Order::Ordered && free {
        assert_eq!(entries, by_definition(spec, &share.events, calendar), "{:#?}", share.events);
    }
    entries
}

fn by_definition(spec: &FunnelSpec, events: &[Candidate], calendar: &Calendar) -> Entries {
    let (from, to) = spec.between();
    let periods: BTreeSet<Period> = events.iter().map(|event| calendar.period(event.time)).collect();
    let mut entries = Entries::new();
    for period in periods {
        let starts = |event: &Candidate| calendar.period(event.time) == period;
        let reaches = |steps| definition::reaches(events, &starts, steps, spec.window_micros());
        if reaches(to + 1) {
            entries.insert(period, true);
        } else if reaches(from + 1) {
            entries.insert(period, false);
        }
    }
    entries
}

fn in_any_order(spec: &FunnelSpec, share: &Share, calendar: &Calendar) -> Entries {
    let (from, to) = spec.between();
    let mut queues = Queues::new(spec.steps.len(), spec.window_micros());
    let mut depths: BTreeMap<Period, usize> = BTreeMap::new();
    let mut record_depth = |queues: &Queues, oldest: i64| {
        let depth = depths.entry(calendar.period(oldest)).or_default();
        *depth = (*depth).max(queues.depth());
    };
    let bound = share.bound.map(|_| &share.values[..]);
    for event in &share.events {
        queues.advance(event.time, &mut record_depth);
        queues.take(event, bound);
    }
    queues.advance(i64::MAX, &mut record_depth);
    let reached = depths.into_iter().filter(|(_, depth)| *depth > from);
    reached.map(|(period, depth)| (period, depth > to)).collect()
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Differences of a result over time; `None` if the contract leaves the series open.
pub fn check_trends(spec: &FunnelSpec, history: &History, got: &Value) -> Option<Vec<String>> {
    let Shape::Trends(interval) = spec.shape else { return None };
    let calendar = Calendar { zone: history.zone, week_start: history.week_start, interval };
    let mut rows: BTreeMap<Vec<String>, BTreeMap<Period, (usize, usize)>> = BTreeMap::new();
    for share in shares(spec, history) {
        let entries = match spec.order {
            Order::Unordered => in_any_order(spec, &share, &calendar),
            _ => in_order(spec, &share, &calendar),
        };
        for (period, converted) in entries {
            let counts = rows.entry(share.values.clone()).or_default().entry(period).or_default();
            counts.0 += 1;
            counts.1 += usize::from(converted);
        }
    }
    if spec.breakdown.is_none() && rows.is_empty() {
        rows.insert(Vec::new(), BTreeMap::new());
    }
    let periods = calendar.periods(spec.from, spec.to);
    let days: Vec<String> = periods.iter().map(|period| calendar.day_text(period)).collect();
    let rate = |counts: Option<&(usize, usize)>| match counts {
        Some((entered, converted)) => round(*converted as f64 / *entered as f64 * 100.0),
        None => 0.0,
    };
    let mut wrong = Vec::new();
    let got = got.as_array().cloned().unwrap_or_default();
    // Cohorts are not limited.
    let limited = spec.breakdown.as_ref().is_some_and(|(source, _)| !matches!(source, Source::Cohorts(_)));
    if rows.len() > spec.limit && limited {
        let entries = |counts: &BTreeMap<Period, (usize, usize)>| {
            counts.values().map(|(entered, _)| *entered).sum::<usize>()
        };
        let mut most: Vec<usize> = rows.values().map(entries).collect();
        most.sort_by(|left, right| right.cmp(left));
        if most[spec.limit - 1] == most[spec.limit] {
            // The contract leaves open which of several rows with equal entries are kept.
            return None;
        }
        rows.retain(|_, counts| entries(counts) >= most[spec.limit - 1]);
    }
    let mut compare = |want: &Value, got: &Value, path: &str| {
        crate::support::differences(want, got, path, 1e-6, &mut wrong);
    };
    compare(&json!(rows.len()), &json!(got.len()), "series");
    for (values, counts) in &rows {
        let data: Vec<f64> = periods.iter().map(|period| rate(counts.get(period))).collect();
        let want = json!({"count": periods.len(), "data": data, "days": days});
        let value = spec.breakdown.is_some().then(|| match shown(spec, values) {
            Value::Number(id) => match id.as_u64().unwrap() {
                0 => json!("all users"),
                id => json!(format!("cohort {id}")),
            },
            Value::String(text) => json!([text]),
            value => value,
        });
        let found = got.iter().find(|row| {
            value.as_ref().is_none_or(|value| {
                &row["breakdown_value"] == value || json!([row["breakdown_value"]]) == *value
            })
        });
        compare(&want, found.unwrap_or(&Value::Null), &format!("series {value:?}"));
    }
    Some(wrong)
}
