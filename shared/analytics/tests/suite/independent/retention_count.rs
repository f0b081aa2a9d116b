//! Retention by the definition of the contract: every actor, value, row and column is counted separately.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{NaiveDate, NaiveDateTime, NaiveTime, TimeZone};

use super::calendar::{Calendar, Period, local};
use super::history::{Event, HOUR, History, Source, text};
use super::retention_spec::{Entity, Kind, RetentionSpec};
use super::trend_dates::DateText;

/// One start of an actor: its row, the columns in which it counts, and what is added up in each column.
pub struct CountedRow {
    pub row: usize,
    pub columns: BTreeSet<usize>,
    pub sums: Vec<f64>,
}

/// The instant of a local time; `None` if it occurs twice or never.
fn instant_of(calendar: &Calendar, time: NaiveDateTime) -> Option<i64> {
    calendar.zone.from_local_datetime(&time).single().map(|instant| instant.timestamp_micros())
}

fn noon(calendar: &Calendar, day: NaiveDate) -> i64 {
    instant_of(calendar, day.and_hms_opt(12, 0, 0).unwrap()).unwrap()
}

impl RetentionSpec {
    pub fn calendar(&self, history: &History) -> Calendar {
        let interval = match self.period.to_lowercase().as_str() {
            "hour" => "hour",
            "day" => "day",
            "week" => "week",
            _ => "month",
        };
        Calendar { zone: history.zone, week_start: history.week_start, interval }
    }

    /// The rows; `None` if the contract leaves the range open.
    pub fn rows(&self, history: &History) -> Option<Vec<Period>> {
        let calendar = self.calendar(history);
        let now = local(history.zone, history.now).naive_local();
        let earliest = history.events.iter().map(|event| event.time).min().unwrap_or(history.now);
        let earliest = local(history.zone, earliest).naive_local();
        let to = self.to.as_ref().map_or(now, |date| date.at(now, earliest));
        let to = if calendar.is_short() { instant_of(&calendar, to)? } else { noon(&calendar, to.date()) };
        let from = match &self.from {
            Some(date) => {
                let from = date.at(now, earliest);
                // Relative texts are cut to the day, those in hours to the hour.
                let is_cut = matches!(date, DateText::Relative { unit, .. } if *unit != 'h');
                let from = if is_cut { from.date().and_time(NaiveTime::MIN) } else { from };
                if calendar.is_short() { instant_of(&calendar, from)? } else { noon(&calendar, from.date()) }
            }
            None if calendar.is_short() => to - (self.intervals as i64 - 1) * HOUR,
            None => {
                let mut first = calendar.first_day(local(history.zone, to).date_naive());
                for _ in 1..self.intervals {
                    first = calendar.first_day(first.pred_opt().unwrap());
                }
                noon(&calendar, first)
            }
        };
        if from > to { Some(Vec::new()) } else { Some(calendar.periods(from, to)) }
    }

    /// The column that is so many periods away.
    fn column(&self, distance: usize) -> Option<usize> {
        if self.brackets.is_empty() {
            return (distance < self.intervals).then_some(distance);
        }
        let mut last = 0;
        for (index, length) in self.brackets.iter().enumerate() {
            last += length;
            if distance <= last {
                return Some(index + 1);
            }
        }
        None
    }
}

/// A query with the rows of its range.
pub struct Count<'a> {
    pub spec: &'a RetentionSpec,
    pub history: &'a History,
    pub rows: Vec<Period>,
}

impl Count<'_> {
    fn row(&self, time: i64) -> Option<usize> {
        let period = self.spec.calendar(self.history).period(time);
        self.rows.iter().position(|row| *row == period)
    }

    fn passes(&self, entity: &Entity, filtered: bool, event: &Event) -> bool {
        let named = entity.name.is_none_or(|name| name == event.name);
        let own = !filtered || entity.filter.as_ref().is_none_or(|filter| filter.passes(event));
        named && own && self.spec.filter.as_ref().is_none_or(|filter| filter.passes(event))
    }

    fn starts(&self, event: &Event) -> bool {
        self.passes(&self.spec.target, true, event)
    }

    fn returns(&self, event: &Event) -> bool {
        self.passes(&self.spec.returning, true, event)
    }

    /// The event that puts an actor into its only row: the first of all time.
    fn first<'e>(&self, events: &[&'e Event]) -> Option<&'e Event> {
        let ever = self.spec.kind == Kind::FirstEver;
        let anchor = events.iter().filter(|event| self.passes(&self.spec.target, !ever, event));
        // Of several at one instant the one that arrived first.
        let first = anchor.min_by_key(|event| event.time)?;
        let starts = events.iter().any(|event| event.time == first.time && self.starts(event));
        (starts && self.row(first.time).is_some()).then_some(first)
    }

    /// The rows of an actor that has these events and no others.
    fn counted(&self, events: &[&Event]) -> Vec<CountedRow> {
        let rows: BTreeSet<usize> = match self.spec.kind {
            Kind::Recurring => events
                .iter()
                .filter(|event| self.starts(event))
                .filter_map(|event| self.row(event.time))
                .collect(),
            _ => self.first(events).and_then(|first| self.row(first.time)).into_iter().collect(),
        };
        rows.into_iter().map(|row| self.counted_row(row, events)).collect()
    }

    fn counted_row(&self, row: usize, events: &[&Event]) -> CountedRow {
        let minimum = if self.spec.aggregation.is_some() { 1 } else { self.spec.minimum };
        let of_row = |row: usize| events.iter().filter(move |event| self.row(event.time) == Some(row));
        let mut columns = BTreeSet::from([0]);
        let mut sums = vec![0.0; self.spec.columns()];
        let start = of_row(row).filter(|event| self.starts(event)).map(|event| event.time).min();
        sums[0] = if self.spec.target == self.spec.returning {
            of_row(row).filter(|event| self.starts(event)).map(|event| self.number(event)).sum()
        } else {
            let later = of_row(row).filter(|event| self.returns(event) && Some(event.time) > start);
            later.map(|event| self.number(event)).sum()
        };
        for distance in 1..self.rows.len().saturating_sub(row) {
            let Some(column) = self.spec.column(distance) else { break };
            let returns: Vec<&&Event> = of_row(row + distance).filter(|event| self.returns(event)).collect();
            if returns.len() >= minimum {
                columns.insert(column);
            }
            sums[column] += returns.iter().map(|event| self.number(event)).sum::<f64>();
        }
        CountedRow { row, columns: self.completed(columns), sums }
    }

    fn completed(&self, columns: BTreeSet<usize>) -> BTreeSet<usize> {
        if self.spec.cumulative { (0..=*columns.last().unwrap()).collect() } else { columns }
    }

    fn number(&self, event: &Event) -> f64 {
        let value = match self.spec.aggregation {
            None => None,
            Some(aggregation) if aggregation.of_person => self.history.person_property(&event.id, "w"),
            Some(_) => event.properties.get("n"),
        };
        match value {
            Some(serde_json::Value::Number(number)) => number.as_f64().unwrap(),
            Some(serde_json::Value::String(text)) => text.parse().unwrap_or(0.0),
            _ => 0.0,
        }
    }

    /// The windows between two instants.
    fn windows(&self, start: i64, time: i64) -> usize {
        let hours = Calendar { interval: "hour", ..self.spec.calendar(self.history) };
        let hours = (hours.period(time).instant - hours.period(start).instant) / HOUR;
        let day = |time| local(self.history.zone, time).date_naive();
        let days = (day(time) - day(start)).num_days();
        usize::try_from(match self.spec.calendar(self.history).interval {
            "hour" => hours,
            "day" => hours / 24,
            "week" => days / 7,
            _ => days / 30,
        })
        .unwrap()
    }

    /// The start of an actor's windows.
    fn window_start<'e>(&self, events: &[&'e Event]) -> Option<&'e Event> {
        if self.spec.kind != Kind::Recurring {
            return self.first(events);
        }
        let within = events.iter().filter(|event| self.starts(event) && self.row(event.time).is_some());
        within.min_by_key(|event| event.time).copied()
    }

    /// The row of an actor whose windows begin at `start`, from those of its events that count.
    fn counted_windows(&self, start: i64, events: &[&Event]) -> CountedRow {
        let mut returns: BTreeMap<usize, usize> = BTreeMap::new();
        for event in events.iter().filter(|event| self.returns(event)) {
            if event.time >= start && self.row(event.time).is_some() {
                *returns.entry(self.windows(start, event.time)).or_default() += 1;
            }
        }
        let mut columns = BTreeSet::from([0]);
        for (window, _) in
            returns.iter().filter(|(window, count)| **window > 0 && **count >= self.spec.minimum)
        {
            columns.extend(self.spec.column(*window));
        }
        CountedRow { row: self.row(start).unwrap(), columns, sums: Vec::new() }
    }

    /// The rows of an actor that has these events and no others, whatever their values.
    fn without_values(&self, events: &[&Event]) -> Vec<CountedRow> {
        if !self.spec.windows {
            return self.counted(events);
        }
        let start = self.window_start(events);
        start.map(|start| self.counted_windows(start.time, events)).into_iter().collect()
    }

    fn values(&self, event: &Event) -> String {
        let source = self.spec.source.as_ref().unwrap();
        source.values(self.history, event).swap_remove(0).unwrap_or_default()
    }

    /// The rows of an actor, each with its breakdown value.
    fn by_value(&self, events: &[&Event]) -> Vec<(String, CountedRow)> {
        let distinct: BTreeSet<String> = events.iter().map(|event| self.values(event)).collect();
        if self.spec.kind == Kind::FirstEver {
            let value = self.first(events).map(|first| self.values(first)).unwrap_or_default();
            return self.without_values(events).into_iter().map(|row| (value.clone(), row)).collect();
        }
        let mut rows = Vec::new();
        let start = self.window_start(events).map(|start| start.time);
        for value in distinct {
            let own: Vec<&Event> =
                events.iter().filter(|event| self.values(event) == value).copied().collect();
            if !self.spec.windows {
                rows.extend(self.counted(&own).into_iter().map(|row| (value.clone(), row)));
            } else if let Some(start) = start
                && own.iter().any(|event| {
                    event.time >= start
                        && self.row(event.time).is_some()
                        && (self.starts(event) || self.returns(event))
                })
            {
                rows.push((value, self.counted_windows(start, &own)));
            }
        }
        rows
    }

    /// The rows of all actors, by breakdown value.
    pub fn all(&self) -> Vec<(String, CountedRow)> {
        let mut actors: BTreeMap<String, Vec<&Event>> = BTreeMap::new();
        for event in &self.history.events {
            let actor = match self.spec.group {
                None => Some(self.history.person(&event.id)),
                Some(index) => {
                    text(event.properties.get(&format!("$group_{index}"))).filter(|key| !key.is_empty())
                }
            };
            if let Some(actor) = actor {
                actors.entry(actor).or_default().push(event);
            }
        }
        let mut rows = Vec::new();
        for events in actors.values() {
            match &self.spec.source {
                None => rows.extend(self.without_values(events).into_iter().map(|row| (String::new(), row))),
                Some(Source::Cohorts(ids)) => {
                    for id in ids {
                        let is_member = |event: &&&Event| *id == 0 || self.history.is_member(*id, &event.id);
                        let own: Vec<&Event> = events.iter().filter(is_member).copied().collect();
                        rows.extend(self.without_values(&own).into_iter().map(|row| (id.to_string(), row)));
                    }
                }
                Some(_) => rows.extend(self.by_value(events)),
            }
        }
        rows
    }
}
