//! Random retention queries, and histories for them.

use chrono::{Duration, NaiveDate};
use serde_json::{Value, json};

use super::calendar::local;
use super::dice::Dice;
use super::history::{DAY, Filter, HOUR, History, SECOND, Source, event, people};
use super::trend_dates::DateText;
use crate::support::instant;

/// Half of the events have the name that most queries select.
const NAMES: [&str; 4] = ["a", "a", "b", "c"];

/// A target or returning entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Entity {
    /// None for every event.
    pub name: Option<&'static str>,
    pub filter: Option<Filter>,
}

impl Entity {
    fn any(dice: &mut Dice) -> Self {
        let name = dice.pick(&[Some("a"), Some("a"), Some("b"), None, None]);
        Self { name, filter: dice.percent(15).then(|| Filter::any(dice)) }
    }

    fn body(&self) -> Value {
        let filters: Vec<Value> = self.filter.iter().map(Filter::body).collect();
        json!({"id": self.name, "type": "events", "properties": filters})
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Recurring,
    FirstTime,
    FirstEver,
}

/// What is added up: the average, or the sum; of a property of the person, or of the event.
#[derive(Clone, Copy, Debug)]
pub struct Aggregation {
    pub average: bool,
    pub of_person: bool,
}

#[derive(Clone, Debug)]
pub struct RetentionSpec {
    pub period: &'static str,
    pub from: Option<DateText>,
    pub to: Option<DateText>,
    pub intervals: usize,
    pub brackets: Vec<usize>,
    pub target: Entity,
    pub returning: Entity,
    pub kind: Kind,
    pub minimum: usize,
    pub cumulative: bool,
    pub windows: bool,
    pub aggregation: Option<Aggregation>,
    pub filter: Option<Filter>,
    pub source: Option<Source>,
    pub limit: Option<usize>,
    pub group: Option<u8>,
}

impl RetentionSpec {
    /// As a query node.
    pub fn body(&self) -> Value {
        let kind = match self.kind {
            Kind::Recurring => "retention_recurring",
            Kind::FirstTime => "retention_first_time",
            Kind::FirstEver => "retention_first_ever_occurrence",
        };
        let mut filter = json!({
            "period": self.period, "totalIntervals": self.intervals, "retentionType": kind,
            "targetEntity": self.target.body(), "returningEntity": self.returning.body(),
            "minimumOccurrences": self.minimum, "cumulative": self.cumulative,
        });
        if !self.brackets.is_empty() {
            filter["retentionCustomBrackets"] = json!(self.brackets);
        }
        if self.windows {
            filter["timeWindowMode"] = json!("24_hour_windows");
        }
        if let Some(aggregation) = &self.aggregation {
            filter["aggregationType"] = json!(if aggregation.average { "avg" } else { "sum" });
            filter["aggregationProperty"] = json!(if aggregation.of_person { "w" } else { "n" });
            filter["aggregationPropertyType"] = json!(if aggregation.of_person { "person" } else { "event" });
        }
        let mut breakdown = match &self.source {
            None => Value::Null,
            Some(Source::Event(keys)) => json!({"breakdown": keys[0], "breakdown_type": "event"}),
            Some(Source::Person(key)) => json!({"breakdowns": [{"property": key, "type": "person"}]}),
            Some(Source::Group(index, key)) => {
                json!({"breakdowns": [{"property": key, "type": "group", "group_type_index": index}]})
            }
            Some(Source::Cohorts(ids)) => {
                let ids: Vec<Value> =
                    ids.iter().map(|id| if *id == 0 { json!("all") } else { json!(id) }).collect();
                json!({"breakdown": ids, "breakdown_type": "cohort"})
            }
        };
        if let Some(limit) = self.limit {
            breakdown["breakdown_limit"] = json!(limit);
        }
        json!({
            "kind": "RetentionQuery", "retentionFilter": filter, "breakdownFilter": breakdown,
            "dateRange": {"date_from": self.from.as_ref().map(DateText::text),
                "date_to": self.to.as_ref().map(DateText::text)},
            "properties": self.filter.iter().map(Filter::body).collect::<Vec<_>>(),
            "aggregation_group_type_index": self.group,
        })
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        if self.brackets.is_empty() { self.intervals } else { self.brackets.len() + 1 }
    }
}

/// The length of a period, about.
fn length(period: &str) -> i64 {
    match period.to_lowercase().as_str() {
        "hour" => HOUR,
        "day" => DAY,
        "week" => 7 * DAY,
        _ => 30 * DAY,
    }
}

fn range(dice: &mut Dice, period: &str, today: NaiveDate) -> (Option<DateText>, Option<DateText>) {
    let unit = period.to_lowercase().chars().next().unwrap();
    let ago = |days: i64| today - Duration::days(days);
    let days = length(period) / DAY;
    let relative = |count: i64, unit| {
        Some(DateText::Relative { count: Some(u32::try_from(count).unwrap()), unit, edge: "" })
    };
    let day = |days| Some(DateText::Day(ago(days)));
    let clock = |dice: &mut Dice, days| {
        let (hour, minute) = (dice.within(4, 22), dice.pick(&[0, 30, 59]));
        let hour = u32::try_from(hour).unwrap();
        Some(DateText::Clock(ago(days).and_hms_opt(hour, minute, 0).unwrap()))
    };
    match dice.within(0, 7) {
        0..=2 => (None, None),
        3 => (None, day(dice.within(0, 2))),
        4 => (relative(dice.within(1, 6), unit), None),
        5 => (day(dice.within(1, 3) * days.max(1)), day(dice.within(0, 1))),
        6 => (clock(dice, 1 + 2 * days), clock(dice, 0)),
        _ => (Some(DateText::All), None),
    }
}

fn source(dice: &mut Dice) -> Option<Source> {
    match dice.within(0, 9) {
        0..=4 => None,
        5..=6 => Some(Source::Event(vec!["v"])),
        7 => Some(Source::Person("v")),
        8 => Some(Source::Group(dice.pick(&[0, 1]), "v")),
        _ => Some(Source::Cohorts(dice.pick(&[vec![1, 2], vec![0, 1], vec![2]]))),
    }
}

/// A random history and a random retention query over it.
pub fn generate(dice: &mut Dice) -> (History, RetentionSpec) {
    let zones = ["UTC", "America/New_York", "Asia/Kolkata", "Australia/Sydney", "Europe/Berlin"];
    let zone = dice.pick(&zones).parse().unwrap();
    // Around changes of clocks, ends of months and of years.
    let days = ["2024-03-12", "2024-04-08", "2024-10-29", "2024-11-05", "2024-03-01", "2024-01-03"];
    let day = instant(&format!("{}T00:00:00Z", dice.pick(&days))).timestamp_micros();
    let now = day + dice.within(0, 24 * 60 - 1) * 60 * SECOND;
    let mut history = people(dice, zone, now);
    let period = dice.pick(&["Hour", "Day", "Day", "Day", "week", "Week", "Month"]);
    let (from, to) = range(dice, period, local(zone, now).date_naive());
    let windows = dice.percent(25);
    let cumulative = !windows && dice.percent(20);
    let adds_up = !windows && !cumulative && dice.percent(30);
    let target = Entity::any(dice);
    let returning = if dice.percent(50) { target.clone() } else { Entity::any(dice) };
    let source = source(dice);
    let spec = RetentionSpec {
        period,
        from,
        to,
        intervals: if dice.percent(15) { dice.count(1, 7) } else { dice.count(4, 7) },
        brackets: match dice.percent(20) {
            true => (0..dice.count(1, 3)).map(|_| dice.count(1, 3)).collect(),
            false => Vec::new(),
        },
        target,
        returning,
        kind: dice.pick(&[Kind::Recurring, Kind::Recurring, Kind::FirstTime, Kind::FirstEver]),
        minimum: dice.pick(&[1, 1, 1, 1, 2, 3]),
        cumulative,
        windows,
        aggregation: adds_up.then(|| Aggregation { average: dice.percent(50), of_person: dice.percent(30) }),
        filter: dice.percent(8).then(|| Filter::any(dice)),
        limit: (source.is_some() && dice.percent(40)).then(|| dice.count(1, 3)),
        source,
        group: dice.percent(20).then(|| dice.pick(&[0, 1])),
    };
    events(dice, &mut history, &spec);
    (history, spec)
}

fn events(dice: &mut Dice, history: &mut History, spec: &RetentionSpec) {
    let span = length(spec.period) * 7;
    let now = history.now;
    for _ in 0..dice.count(0, 45) {
        let time = match dice.within(0, 9) {
            // Long before, and after.
            0 => now - span - dice.within(0, span / SECOND) * SECOND,
            1 => now + dice.within(0, 2 * HOUR / SECOND) * SECOND,
            // On the edges of hours, which are those of most periods.
            2 => (now - dice.within(0, span / HOUR) * HOUR) / HOUR * HOUR - dice.within(0, 1),
            _ => now - dice.within(0, span / SECOND) * SECOND,
        };
        let mut event = event(dice, history, &NAMES, time);
        // Several things at one instant, now and then.
        if let Some(other) = history.events.last().filter(|_| dice.percent(15)) {
            event.time = other.time;
        }
        history.events.push(event);
    }
}
