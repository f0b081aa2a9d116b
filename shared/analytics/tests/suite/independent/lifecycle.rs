//! Random lifecycles over random histories, by definition: the status of each actor in each period.

use std::collections::{BTreeMap, BTreeSet};

use chrono::NaiveDateTime;
use pennon_analytics::Query;
use pennon_filters::CalcError;
use serde_json::{Value, json};

use super::Differences;
use super::calendar::{Period, local};
use super::dice::Dice;
use super::history::{DAY, Event, Filter, HOUR, History, SECOND, event, iso, people, text};
use super::trend_dates::{Range, RangeSpec};
use super::trend_spec::random_range;
use crate::support::{World, differences, instant};

#[derive(Clone, Debug)]
struct Series {
    /// None is every event.
    name: Option<&'static str>,
    filter: Option<Filter>,
}

#[derive(Clone, Debug)]
pub struct LifecycleSpec {
    series: Vec<Series>,
    filter: Option<Filter>,
    range_spec: RangeSpec,
    group: Option<u8>,
    /// Creation time by person, if an import recorded one.
    created: BTreeMap<usize, i64>,
}

impl LifecycleSpec {
    pub fn node(&self) -> Value {
        let mut dates = json!({"explicitDate": self.range_spec.explicit});
        for (key, date) in [("date_from", &self.range_spec.from), ("date_to", &self.range_spec.to)] {
            if let Some(date) = date {
                dates[key] = json!(date.text());
            }
        }
        let series = |series: &Series| {
            let filters: Vec<_> = series.filter.iter().map(Filter::body).collect();
            json!({"kind": "EventsNode", "event": series.name, "properties": filters})
        };
        json!({
            "kind": "LifecycleQuery",
            "series": self.series.iter().map(series).collect::<Vec<_>>(),
            "properties": self.filter.iter().map(Filter::body).collect::<Vec<_>>(),
            "interval": self.range_spec.interval,
            "dateRange": dates,
            "aggregation_group_type_index": self.group,
        })
    }

    pub fn world(&self, history: &History) -> World {
        let mut case = history.case();
        for (person, time) in &self.created {
            case["persons"][*person]["created_at"] = json!(iso(*time));
        }
        World::of_case(&case)
    }

    fn actor(&self, history: &History, event: &Event) -> Option<String> {
        match self.group {
            None => Some(history.person(&event.id)),
            Some(index) => {
                text(event.properties.get(&format!("$group_{index}"))).filter(|key| !key.is_empty())
            }
        }
    }

    fn matches(&self, event: &Event) -> bool {
        let without_profile = event.properties.get("$process_person_profile");
        let has_profile =
            without_profile.is_none_or(|value| *value != json!(false) && *value != json!("false"));
        has_profile
            && self.filter.iter().all(|filter| filter.passes(event))
            && self.series.iter().all(|series| {
                series.name.is_none_or(|name| name == event.name)
                    && series.filter.iter().all(|filter| filter.passes(event))
            })
    }

    fn created(&self, history: &History, actor: &str) -> i64 {
        let person = actor.strip_prefix("person ").and_then(|index| index.parse::<usize>().ok());
        let imported = person.filter(|_| self.group.is_none()).and_then(|person| self.created.get(&person));
        let own = history.events.iter().filter(|event| self.actor(history, event).as_deref() == Some(actor));
        imported.copied().unwrap_or_else(|| own.map(|event| event.time).min().unwrap())
    }
}

/// The period before another.
fn before(range: &Range, period: &Period) -> Period {
    if range.calendar.is_short() {
        return range.calendar.period(period.instant - SECOND);
    }
    let day: NaiveDateTime = range.calendar.first_day(period.local.date().pred_opt().unwrap()).into();
    Period { instant: 0, local: day }
}

/// Differences of a result; `None` if the contract leaves the result open.
pub fn check(history: &History, spec: &LifecycleSpec) -> Result<Differences, CalcError> {
    let got = spec.world(history).calculate_parsed(Query::from_query_node(&spec.node()))?;
    let Some(earliest) = history.events.iter().map(|event| event.time).min() else { return Ok(None) };
    let range = Range::current(&spec.range_spec, history.zone, history.week_start, history.now, earliest);
    if !range.is_clear() {
        return Ok(None);
    }
    let mut shown = range.periods();
    if spec.range_spec.explicit {
        shown.retain(|period| range.from <= period.local && period.local <= range.to);
    }
    let Some(first) = shown.first() else {
        let is_empty = got.as_array().unwrap().iter().all(|row| row["data"] == json!([]));
        return Ok(Some(if is_empty { Vec::new() } else { vec!["numbers of no periods".to_owned()] }));
    };
    let mut view = vec![before(&range, first)];
    view.extend(shown.iter().copied());
    let mut active: BTreeMap<String, BTreeSet<Period>> = BTreeMap::new();
    for event in history.events.iter().filter(|event| spec.matches(event)) {
        let period = range.calendar.period(event.time);
        if let (true, Some(actor)) = (view.contains(&period), spec.actor(history, event)) {
            active.entry(actor).or_default().insert(period);
        }
    }
    let mut data = [const { Vec::new() }; 4];
    for (index, period) in view.iter().enumerate().skip(1) {
        let mut counts = [0.0; 4];
        for (actor, own) in &active {
            let was_active = own.contains(&view[index - 1]);
            let is_first = own.first() == Some(period);
            let status = match own.contains(period) {
                true if is_first && range.calendar.period(spec.created(history, actor)) == *period => 0,
                true if was_active => 1,
                true => 2,
                false if was_active => 3,
                false => continue,
            };
            counts[status] += if status == 3 { -1.0 } else { 1.0 };
        }
        data.iter_mut().zip(counts).for_each(|(data, count)| data.push(count));
    }
    let label = spec.series[0].name.unwrap_or("All events");
    let row = |(status, data): (&str, Vec<f64>)| {
        json!({
            "status": status,
            "label": format!("{label} - {status}"),
            "count": data.iter().sum::<f64>(),
            "data": data,
            "days": shown.iter().map(|period| range.calendar.day_text(period)).collect::<Vec<_>>(),
            "labels": shown.iter().map(|period| range.label(period)).collect::<Vec<_>>(),
        })
    };
    let expected: Vec<_> =
        ["new", "returning", "resurrecting", "dormant"].into_iter().zip(data).map(row).collect();
    let mut wrong = Vec::new();
    differences(&json!(expected), &got, "result", 1e-9, &mut wrong);
    Ok(Some(wrong))
}

/// A random history and a random lifecycle query over it.
pub fn generate(dice: &mut Dice) -> (History, LifecycleSpec) {
    let zones =
        ["UTC", "America/New_York", "Asia/Kolkata", "Australia/Sydney", "Europe/Berlin", "America/Santiago"];
    let zone = dice.pick(&zones).parse().unwrap();
    let days =
        ["2024-03-12", "2024-04-08", "2024-10-29", "2024-11-05", "2024-03-31", "2024-02-29", "2024-01-03"];
    let day = instant(&format!("{}T00:00:00Z", dice.pick(&days))).timestamp_micros();
    let now = day + dice.within(0, 24 * 60 - 1) * 60 * SECOND + dice.pick(&[0, 17]) * SECOND;
    let mut history = people(dice, zone, now);
    let interval = dice.pick(&["minute", "hour", "hour", "day", "day", "day", "week", "week", "month"]);
    let range_spec = random_range(dice, interval, "ActionsLineGraph", local(zone, now).date_naive());
    let series = |dice: &mut Dice| Series {
        name: if dice.percent(25) { None } else { Some(dice.pick(&["a", "a", "b"])) },
        filter: dice.percent(25).then(|| Filter::any(dice)),
    };
    let count = if dice.percent(15) { 2 } else { 1 };
    let mut spec = LifecycleSpec {
        series: (0..count).map(|_| series(dice)).collect(),
        filter: dice.percent(15).then(|| Filter::any(dice)),
        range_spec,
        group: dice.percent(25).then(|| dice.pick(&[0, 1])),
        created: BTreeMap::new(),
    };
    events(dice, &mut history, &mut spec);
    (history, spec)
}

fn events(dice: &mut Dice, history: &mut History, spec: &mut LifecycleSpec) {
    let now = history.now;
    let range = Range::current(&spec.range_spec, history.zone, history.week_start, now, now - 9 * DAY);
    if !range.is_clear() || range.from > range.to {
        return;
    }
    let (first, last) = (range.first_instant(), range.last_instant());
    let around = (last - first) / 3 + 2 * HOUR;
    let some_time = |dice: &mut Dice| match dice.within(0, 9) {
        0 => first + dice.within(-1, 1) * SECOND,
        1 => last + dice.within(-1, 1) * SECOND,
        2..=3 => dice.within((first - around) / SECOND, first / SECOND) * SECOND,
        4 => dice.within(last / SECOND, (last + around) / SECOND) * SECOND,
        _ => dice.within(first / SECOND, last / SECOND) * SECOND,
    };
    for person in 0..history.persons.len() {
        if dice.percent(40) {
            spec.created.insert(person, some_time(dice));
        }
    }
    for _ in 0..dice.count(0, 24) {
        let fraction = if dice.percent(10) { SECOND / 2 } else { 0 };
        let time = some_time(dice) + fraction;
        let mut one = event(dice, history, &["a", "a", "b", "z"], time);
        if dice.percent(10) {
            let values = [json!(false), json!("false"), json!(true), Value::Null];
            one.properties.insert("$process_person_profile".to_owned(), dice.pick(&values));
        }
        history.events.push(one);
    }
}
