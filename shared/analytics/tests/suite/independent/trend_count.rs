//! The number of each bucket, from the definition of each kind of count.

use std::collections::{BTreeMap, BTreeSet};

use chrono::Duration;
use serde_json::Value;

use super::history::{Event, History, SECOND, text};
use super::trend_dates::Range;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    Sum,
    Avg,
    Min,
    Max,
    Median,
    Percentile(u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Math {
    Total,
    Dau,
    GroupDau(u8),
    Rolling(i64),
    UniqueGroup(Option<u8>),
    UniqueSession,
    FirstTime,
    PerActor(Statistic),
    Property(Statistic),
    SessionDuration(Statistic),
}

impl Statistic {
    pub const ALL: [Self; 9] = [
        Self::Avg,
        Self::Min,
        Self::Max,
        Self::Median,
        Self::Percentile(75),
        Self::Percentile(90),
        Self::Percentile(95),
        Self::Percentile(99),
        Self::Sum,
    ];

    pub fn name(self) -> String {
        match self {
            Self::Sum => "sum".to_owned(),
            Self::Avg => "avg".to_owned(),
            Self::Min => "min".to_owned(),
            Self::Max => "max".to_owned(),
            Self::Median => "median".to_owned(),
            Self::Percentile(percent) => format!("p{percent}"),
        }
    }

    /// Of nothing it is 0.
    pub fn of(self, values: &[f64]) -> f64 {
        if values.is_empty() {
            return 0.0;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |percent: u32| {
            let position = f64::from(percent) / 100.0 * (sorted.len() - 1) as f64;
            let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
            below + (above - below) * position.fract()
        };
        match self {
            Self::Sum => values.iter().sum(),
            Self::Avg => values.iter().sum::<f64>() / values.len() as f64,
            Self::Min => sorted[0],
            Self::Max => sorted[sorted.len() - 1],
            Self::Median => at(50),
            Self::Percentile(percent) => at(percent),
        }
    }
}

/// What one series counts in one range; the events are those of its name, whatever their time.
pub struct Count<'a> {
    pub history: &'a History,
    pub range: &'a Range,
    pub math: Math,
    /// As requested; the range of a total value has days.
    pub interval: &'static str,
    pub total: bool,
    /// Each actor counts in its first bucket only.
    pub once: bool,
    /// Running sums.
    pub running: bool,
}

fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

impl Count<'_> {
    fn k(&self) -> Option<i64> {
        match self.math {
            Math::Rolling(7) if matches!(self.interval, "week" | "month") => None,
            Math::Rolling(30) if self.interval == "month" => None,
            Math::Rolling(days) => Some(days),
            _ => None,
        }
    }

    /// Each number is of some days and not of one bucket.
    pub fn rolls(&self) -> bool {
        self.k().is_some()
    }

    /// Whether an event may count at all, by its time and by having a group.
    pub fn reads(&self, event: &Event) -> bool {
        let from = match (self.k(), self.math) {
            (Some(days), _) if self.total => self.range.days_before(self.range.to, days),
            (Some(days), _) => self.range.days_before(self.range.from, days),
            (None, Math::PerActor(_)) => self.range.start_instant(),
            _ => self.range.first_instant(),
        };
        let grouped = match self.math {
            Math::UniqueGroup(Some(index)) | Math::GroupDau(index) => self.group(event, index).is_some(),
            _ => true,
        };
        grouped && (from..=self.range.last_instant()).contains(&event.time)
    }

    fn group(&self, event: &Event, index: u8) -> Option<String> {
        text(event.properties.get(&format!("$group_{index}"))).filter(|key| !key.is_empty())
    }

    /// First times count persons in every project, other counts what the project counts.
    fn person(&self, event: &Event) -> String {
        match self.math {
            Math::FirstTime => self.history.person(&event.id),
            _ => self.history.actor(&event.id),
        }
    }

    /// One number a bucket, or one in all. `any` are all events of the series' name, whatever its filters.
    pub fn numbers(&self, events: &[&Event]) -> Vec<f64> {
        if self.total {
            return vec![self.number(events)];
        }
        let periods = self.range.periods();
        if let Some(days) = self.k() {
            return self.rolling(events, days);
        }
        let once = self.once
            && matches!(
                self.math,
                Math::Dau | Math::GroupDau(_) | Math::UniqueGroup(Some(_)) | Math::Rolling(_)
            );
        let events = if once { self.first_of_each(events) } else { events.to_vec() };
        let of = |period| {
            let inside = |event: &&&Event| self.range.calendar.period(event.time) == period;
            self.number(&events.iter().filter(inside).copied().collect::<Vec<_>>())
        };
        let mut numbers: Vec<f64> = periods.into_iter().map(of).collect();
        if self.running {
            accumulate(&mut numbers);
        }
        numbers
    }

    fn first_of_each<'e>(&self, events: &[&'e Event]) -> Vec<&'e Event> {
        let mut sorted = events.to_vec();
        sorted.sort_by_key(|event| event.time);
        let mut seen = BTreeSet::new();
        sorted.retain(|event| seen.insert(self.actor(event)));
        sorted
    }

    fn actor(&self, event: &Event) -> Option<String> {
        match self.math {
            Math::GroupDau(index) | Math::UniqueGroup(Some(index)) => self.group(event, index),
            _ => Some(self.person(event)),
        }
    }

    fn rolling(&self, events: &[&Event], days: i64) -> Vec<f64> {
        let calendar = self.range.calendar;
        let within = |period: &super::calendar::Period, event: &Event| {
            if calendar.is_short() {
                let start = calendar.period(event.time).instant;
                period.instant - days * 24 * 3_600 * SECOND < start && start <= period.instant
            } else {
                let day = super::calendar::local(calendar.zone, event.time).date_naive();
                period.local.date() - Duration::days(days) < day && day <= period.local.date()
            }
        };
        let of = |period: &super::calendar::Period| {
            let inside = events.iter().filter(|event| within(period, event));
            inside.map(|event| self.person(event)).collect::<BTreeSet<_>>().len() as f64
        };
        let mut numbers: Vec<f64> = self.range.periods().iter().map(of).collect();
        if self.running {
            accumulate(&mut numbers);
        }
        numbers
    }

    /// The number of a set of events.
    fn number(&self, events: &[&Event]) -> f64 {
        let distinct = |of: &dyn Fn(&Event) -> Option<String>| {
            events.iter().map(|event| of(event)).collect::<BTreeSet<_>>().len() as f64
        };
        match self.math {
            Math::Total | Math::UniqueGroup(None) => events.len() as f64,
            Math::Dau
            | Math::FirstTime
            | Math::Rolling(_)
            | Math::GroupDau(_)
            | Math::UniqueGroup(Some(_)) => distinct(&|event| self.actor(event)),
            Math::UniqueSession => distinct(&|event| text(event.properties.get("$session_id"))),
            Math::PerActor(statistic) => {
                let mut counts: BTreeMap<String, f64> = BTreeMap::new();
                for event in events {
                    *counts.entry(self.person(event)).or_default() += 1.0;
                }
                statistic.of(&counts.into_values().collect::<Vec<_>>())
            }
            Math::Property(statistic) => {
                let values = events.iter().filter_map(|event| number(event.properties.get("n")));
                statistic.of(&values.collect::<Vec<_>>())
            }
            Math::SessionDuration(statistic) => {
                let sessions = events.iter().filter_map(|event| text(event.properties.get("$session_id")));
                let lengths = sessions.collect::<BTreeSet<_>>().into_iter().map(|id| self.duration(&id));
                statistic.of(&lengths.collect::<Vec<_>>())
            }
        }
    }

    /// Of all events of a session, whatever they are.
    fn duration(&self, id: &str) -> f64 {
        let inside = |event: &&Event| text(event.properties.get("$session_id")).as_deref() == Some(id);
        let times: Vec<i64> = self.history.events.iter().filter(inside).map(|event| event.time).collect();
        let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        ((last - first) / SECOND) as f64
    }

    /// Of the events that pass all filters, those that are their person's first of all that bear the name.
    pub fn firsts<'e>(&self, named: &[&'e Event], passing: &[&'e Event]) -> Vec<&'e Event> {
        let last = self.range.last_instant();
        let counted: Vec<&&Event> = passing
            .iter()
            .filter(|event| (self.range.first_instant()..=last).contains(&event.time))
            .collect();
        let earliest = |events: &mut dyn Iterator<Item = &&Event>, of: &str| {
            events
                .filter(|event| self.person(event) == of && event.time <= last)
                .map(|event| event.time)
                .min()
        };
        let is_first = |event: &&&&'e Event| {
            let person = self.person(event);
            let first = earliest(&mut named.iter(), &person);
            first == Some(event.time) && earliest(&mut counted.iter().copied(), &person) == first
        };
        let firsts: Vec<&&Event> = counted.iter().filter(|event| is_first(event)).copied().collect();
        passing
            .iter()
            .filter(|event| firsts.iter().any(|first| std::ptr::eq(**first, **event)))
            .copied()
            .collect()
    }
}

pub fn accumulate(numbers: &mut [f64]) {
    let mut sum = 0.0;
    for number in numbers {
        sum += *number;
        *number = sum;
    }
}
