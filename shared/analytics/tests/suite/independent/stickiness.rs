//! Random stickiness queries over random histories, counted by definition: for each actor the set of its intervals.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{Datelike, Duration};
use pennon_analytics::Query;
use pennon_filters::CalcError;
use serde_json::{Value, json};

use super::Differences;
use super::calendar::local;
use super::dice::Dice;
use super::history::{DAY, Event, Filter, HOUR, History, SECOND, event, people, text};
use super::trend_dates::{DateText, Range, RangeSpec};
use super::trend_spec::{random_range, relative};
use crate::support::{differences, instant};

/// What is counted.
#[derive(Clone, Copy, Debug)]
enum Actor {
    Person,
    Group(u8),
    /// The value of the property `v`.
    Value,
}

#[derive(Clone, Debug)]
struct Series {
    /// None is every event.
    name: Option<&'static str>,
    filter: Option<Filter>,
    actor: Actor,
}

#[derive(Clone, Debug)]
pub struct StickinessSpec {
    series: Vec<Series>,
    filter: Option<Filter>,
    range_spec: RangeSpec,
    count: Option<u32>,
    cumulative: bool,
    criterion: Option<(&'static str, usize)>,
    compare: bool,
    compare_to: Option<DateText>,
}

impl Series {
    fn any(dice: &mut Dice) -> Self {
        let name = if dice.percent(20) { None } else { Some(dice.pick(&["a", "a", "b"])) };
        let actor = match dice.within(0, 9) {
            0..=5 => Actor::Person,
            6..=7 => Actor::Group(dice.pick(&[0, 1])),
            _ => Actor::Value,
        };
        Self { name, filter: dice.percent(25).then(|| Filter::any(dice)), actor }
    }

    fn node(&self) -> Value {
        let filters: Vec<_> = self.filter.iter().map(Filter::body).collect();
        let mut node = json!({"kind": "EventsNode", "event": self.name, "properties": filters});
        match self.actor {
            Actor::Person => {}
            Actor::Group(index) => {
                node["math"] = json!("unique_group");
                node["math_group_type_index"] = json!(index);
            }
            Actor::Value => {
                node["math"] = json!("hogql");
                node["math_hogql"] = json!("properties.v");
            }
        }
        node
    }

    fn actor_of(&self, history: &History, event: &Event) -> Option<String> {
        match self.actor {
            Actor::Person => Some(history.person(&event.id)),
            Actor::Group(index) => {
                text(event.properties.get(&format!("$group_{index}"))).filter(|key| !key.is_empty())
            }
            Actor::Value => text(event.properties.get("v")),
        }
    }
}

impl StickinessSpec {
    pub fn node(&self) -> Value {
        let mut dates = json!({"explicitDate": self.range_spec.explicit});
        for (key, date) in [("date_from", &self.range_spec.from), ("date_to", &self.range_spec.to)] {
            if let Some(date) = date {
                dates[key] = json!(date.text());
            }
        }
        let criterion = self.criterion.map(|(operator, value)| json!({"operator": operator, "value": value}));
        json!({
            "kind": "StickinessQuery",
            "series": self.series.iter().map(Series::node).collect::<Vec<_>>(),
            "properties": self.filter.iter().map(Filter::body).collect::<Vec<_>>(),
            "interval": self.range_spec.interval,
            "intervalCount": self.count,
            "dateRange": dates,
            "stickinessFilter": {
                "computedAs": if self.cumulative { "cumulative" } else { "non_cumulative" },
                "stickinessCriteria": criterion,
            },
            "compareFilter": {"compare": self.compare, "compare_to": self.compare_to.as_ref().map(DateText::text)},
        })
    }

    fn bars(&self, range: &Range) -> usize {
        range.periods().len().div_ceil(self.count.unwrap_or(1) as usize)
    }

    /// The interval of an instant, as something that is equal for the instants of one interval.
    fn interval(&self, range: &Range, time: i64) -> (i64, i64) {
        let Some(count) = self.count else {
            let period = range.calendar.period(time);
            return (period.instant, period.local.and_utc().timestamp());
        };
        let end = range.last_instant() + SECOND - 1;
        let units = match range.calendar.interval {
            "minute" => (end - time) / (60 * SECOND),
            "hour" => (end - time) / HOUR,
            "month" => self.whole_months(range, time, end),
            unit => {
                let days = if unit == "week" { 7 } else { 1 };
                let (at, mut back) = (local(range.calendar.zone, time).naive_local(), 0);
                let last = local(range.calendar.zone, end).naive_local();
                while at + Duration::days(days * (back + 1)) <= last {
                    back += 1;
                }
                back
            }
        };
        (units / i64::from(count), 0)
    }

    /// Month by month back from the end.
    fn whole_months(&self, range: &Range, time: i64, end: i64) -> i64 {
        let at = local(range.calendar.zone, time).naive_local();
        let last = local(range.calendar.zone, end).naive_local();
        let (mut year, mut month, mut back) = (last.year(), last.month(), 0);
        loop {
            (year, month) = if month == 1 { (year - 1, 12) } else { (year, month - 1) };
            let is_before = (at.year(), at.month()) < (year, month);
            let is_within = (at.year(), at.month()) == (year, month)
                && (at.day(), at.time()) <= (last.day(), last.time());
            if !is_before && !is_within {
                return back;
            }
            back += 1;
        }
    }

    fn is_enough(&self, events: usize) -> bool {
        match self.criterion {
            None => true,
            Some(("gte", value)) => events >= value,
            Some(("lte", value)) => events <= value,
            Some((_, value)) => events == value,
        }
    }

    /// By actor: its intervals.
    fn intervals(
        &self,
        history: &History,
        range: &Range,
        series: &Series,
    ) -> BTreeMap<String, BTreeSet<(i64, i64)>> {
        let mut events: BTreeMap<(String, (i64, i64)), usize> = BTreeMap::new();
        for event in &history.events {
            let counts = series.name.is_none_or(|name| name == event.name)
                && self.filter.iter().chain(&series.filter).all(|filter| filter.passes(event))
                && (range.first_instant()..=range.last_instant()).contains(&event.time);
            if let (true, Some(actor)) = (counts, series.actor_of(history, event)) {
                *events.entry((actor, self.interval(range, event.time))).or_default() += 1;
            }
        }
        let mut intervals: BTreeMap<String, BTreeSet<(i64, i64)>> = BTreeMap::new();
        for ((actor, interval), count) in events {
            if self.is_enough(count) {
                intervals.entry(actor).or_default().insert(interval);
            }
        }
        intervals
    }

    fn row(&self, history: &History, range: &Range, series: &Series) -> Value {
        let bars = self.bars(range);
        let intervals = self.intervals(history, range, series);
        let in_bar = |bar: usize| {
            let is_in = |own: &&BTreeSet<(i64, i64)>| {
                if self.cumulative { own.len() >= bar } else { own.len() == bar }
            };
            intervals.values().filter(is_in).count()
        };
        let label = |bar: usize| {
            let unit = self.range_spec.interval;
            let unit = if bar == 1 { unit.to_owned() } else { format!("{unit}s") };
            format!("{bar} {unit}{}", if self.cumulative { " or more" } else { "" })
        };
        json!({
            "label": series.name.unwrap_or("All events"),
            "count": intervals.len(),
            "data": (1..=bars).map(in_bar).collect::<Vec<_>>(),
            "days": (1..=bars).collect::<Vec<_>>(),
            "labels": (1..=bars).map(label).collect::<Vec<_>>(),
        })
    }
}

/// Differences of a result; `None` if the contract leaves the result open.
pub fn check(history: &History, spec: &StickinessSpec) -> Result<Differences, CalcError> {
    let got = history.world().calculate_parsed(Query::from_query_node(&spec.node()))?;
    let Some(earliest) = history.events.iter().map(|event| event.time).min() else { return Ok(None) };
    let current = Range::current(&spec.range_spec, history.zone, history.week_start, history.now, earliest);
    let mut ranges = vec![current];
    if spec.compare {
        ranges.push(current.previous(&spec.range_spec, spec.compare_to.as_ref()));
    }
    if ranges.iter().any(|range| !range.is_clear()) {
        return Ok(None);
    }
    let mut expected = Vec::new();
    for series in &spec.series {
        for (range, label) in ranges.iter().zip(["current", "previous"]) {
            let mut row = spec.row(history, range, series);
            if spec.compare {
                row["compare_label"] = json!(label);
            }
            expected.push(row);
        }
    }
    let mut wrong = Vec::new();
    differences(&json!(expected), &got, "result", 0.0, &mut wrong);
    Ok(Some(wrong))
}

/// A history and a query over it.
pub fn generate(dice: &mut Dice) -> (History, StickinessSpec) {
    let zones =
        ["UTC", "America/New_York", "Asia/Kolkata", "Australia/Sydney", "Europe/Berlin", "America/Santiago"];
    let zone = dice.pick(&zones).parse().unwrap();
    // Around changes of clocks, ends of months and of years.
    let days =
        ["2024-03-12", "2024-04-08", "2024-10-29", "2024-11-05", "2024-03-31", "2024-02-29", "2024-01-03"];
    let day = instant(&format!("{}T00:00:00Z", dice.pick(&days))).timestamp_micros();
    let now = day + dice.within(0, 24 * 60 - 1) * 60 * SECOND + dice.pick(&[0, 17]) * SECOND;
    let mut history = people(dice, zone, now);
    let interval =
        dice.pick(&["minute", "hour", "hour", "day", "day", "day", "week", "week", "month", "month"]);
    let range_spec = random_range(dice, interval, "ActionsLineGraph", local(zone, now).date_naive());
    let compare = dice.percent(20);
    let back = [relative(1, 'w'), relative(1, 'm'), relative(3, 'd')];
    let spec = StickinessSpec {
        series: (0..dice.count(1, 2)).map(|_| Series::any(dice)).collect(),
        filter: dice.percent(15).then(|| Filter::any(dice)),
        range_spec,
        count: dice.percent(60).then(|| dice.pick(&[1, 1, 2, 3, 7])),
        cumulative: dice.percent(30),
        criterion: dice.percent(30).then(|| (dice.pick(&["gte", "lte", "exact"]), dice.count(1, 3))),
        compare,
        compare_to: (compare && dice.percent(30)).then(|| dice.pick(&back)),
    };
    events(dice, &mut history, &spec);
    (history, spec)
}

fn events(dice: &mut Dice, history: &mut History, spec: &StickinessSpec) {
    let now = history.now;
    let range = Range::current(&spec.range_spec, history.zone, history.week_start, now, now - 9 * DAY);
    if !range.is_clear() || range.from > range.to {
        return;
    }
    let (first, last) = (range.first_instant(), range.last_instant());
    for _ in 0..dice.count(0, 30) {
        let time = match dice.within(0, 9) {
            0 => first + dice.within(-1, 1) * SECOND,
            1 => last + dice.within(-1, 1) * SECOND,
            // At the edges of intervals that are cut back from the end.
            2..=3 => {
                last + dice.within(-1, 1) * SECOND
                    - dice.within(0, 6) * dice.pick(&[HOUR, DAY, 7 * DAY, 30 * DAY, 31 * DAY])
            }
            4 if spec.compare => dice.within((2 * first - last) / SECOND, first / SECOND) * SECOND,
            _ => dice.within(first / SECOND, last / SECOND) * SECOND,
        };
        let fraction = if dice.percent(10) { SECOND / 2 } else { 0 };
        let one = event(dice, history, &["a", "b", "z"], time + fraction);
        history.events.push(one);
    }
}
