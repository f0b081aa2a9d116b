//! Behavioural cohort criteria: conditions on the events of a person.
//!
//! Must stay true: a criterion reads events up to the end of today only; its dates are relative to the current instant, in
//! the project's time zone; equal criteria of a query are evaluated once.

use std::collections::BTreeSet;

use chrono::{DateTime, Duration};
use chrono_tz::Tz;
use pennon_filters::dates::grammar::DateText;
use pennon_filters::dates::range::floor;
use pennon_filters::dates::{Interval, zone};
use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::work_budget::WorkBudget;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::behaviour_pattern::{BehaviourPattern, CalendarDuration, CountCondition, MatchedEvent};
use crate::compiler::Compiler;
use crate::compiler::matcher::Matcher;
use crate::filter::Filter;
use crate::limits;
use crate::mask::Mask;
use crate::query::{EventOrAction, parse_integer};
use crate::scan::{JoinedColumnKey, Micros, Partition};

/// Criteria on events, as cohorts name them in `value`.
pub const BEHAVIOURS: [&str; 7] = [
    "performed_event",
    "performed_event_multiple",
    "performed_event_first_time",
    "performed_event_sequence",
    "performed_event_regularly",
    "stopped_performing_event",
    "restarted_performing_event",
];
/// Units of the times of a criterion on events.
pub const BEHAVIOUR_UNITS: [&str; 4] = ["day", "week", "month", "year"];

/// A compiled criterion.
#[derive(Debug, Clone)]
pub(super) struct Behaviour {
    /// The columns joined to the rows of its scan.
    pub(super) joined_columns: BTreeSet<JoinedColumnKey>,
    first: Matcher,
    /// The event that has to follow, in a sequence.
    second: Option<Matcher>,
    pattern: BehaviourPattern,
}

/// Compiles a criterion. Returns its index among the behaviours.
pub(super) fn compile(
    fields: &Map<String, Value>,
    compiler: &mut Compiler<'_>,
    attr: &str,
) -> CalcResult<usize> {
    let mut key = fields.clone();
    key.remove("negation");
    let key = Value::Object(key);
    if let Some(known) = compiler.cohorts.criteria.iter().position(|known| *known == key) {
        return Ok(known);
    }
    if compiler.cohorts.behaviours.len() >= limits::BEHAVIOURS {
        return Err(limits::too_many(attr, "criteria on events in cohorts", limits::BEHAVIOURS));
    }
    let criterion = Criterion { fields, now: compiler.now, attr };
    let (pattern, from, to) = criterion.pattern()?;
    let (scan, joined_columns, (first, second)) = compiler.in_separate_scan(|compiler| {
        compiler.extend_time_range(from, to);
        let filters = compiler.parse_filter(fields.get("event_filters"), attr)?;
        let first = matcher(&criterion.source("key", "event_type")?, &filters, compiler, attr)?;
        let second = match pattern {
            BehaviourPattern::Sequence { .. } => {
                let source = criterion.source("seq_event", "seq_event_type")?;
                Some(matcher(&source, &Filter::none(), compiler, attr)?)
            }
            _ => None,
        };
        Ok((first, second))
    })?;
    // Behaviours that its event filters depend on have been pushed before.
    compiler.needs.behaviours.push(scan);
    compiler.cohorts.behaviours.push(Behaviour { joined_columns, first, second, pattern });
    compiler.cohorts.criteria.push(key);
    Ok(compiler.cohorts.behaviours.len() - 1)
}

fn matcher(
    source: &EventOrAction,
    filters: &Filter,
    compiler: &mut Compiler<'_>,
    attr: &str,
) -> CalcResult<Matcher> {
    let missing = || CalcError::invalid(attr, format!("Action ID {} does not exist!", source.id()));
    Matcher::new(source, filters, compiler, attr)?.ok_or_else(missing)
}

impl Behaviour {
    /// The persons of a joined partition of its scan that match.
    pub(super) fn matching_persons(
        &self,
        partition: &Partition,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Vec<Uuid>> {
        let mut rows = Vec::new();
        for run in &partition.runs {
            work.check()?;
            let first = self.first.mask(run, work)?;
            let second = match &self.second {
                Some(second) => second.mask(run, work)?,
                None => Mask::Nothing,
            };
            work.consume(run.times.len())?;
            for (row, (actor, time)) in run.actors.iter().zip(&run.times).enumerate() {
                let (first, second) = (first.has(row), second.has(row));
                if first || second {
                    rows.push(MatchedEvent { actor: *actor, time: *time, first, second });
                }
            }
        }
        rows.sort_unstable_by_key(|event| (event.actor, event.time));
        let of_actors = rows.chunk_by(|left, right| left.actor == right.actor);
        let mut persons = Vec::new();
        for rows in of_actors {
            work.consume(rows.len())?;
            if self.pattern.matches(rows) {
                persons.extend(partition.actors.get(rows[0].actor as usize));
            }
        }
        Ok(persons)
    }
}

/// A criterion as stored.
struct Criterion<'a> {
    fields: &'a Map<String, Value>,
    now: DateTime<Tz>,
    attr: &'a str,
}

impl Criterion<'_> {
    /// Parses the pattern, and the time range of its scan.
    fn pattern(&self) -> CalcResult<(BehaviourPattern, Micros, Micros)> {
        let today = (end_of_day(self.now)).timestamp_micros();
        let kind = self.fields.get("value").and_then(Value::as_str).unwrap_or_default();
        let since = |start: DateTime<Tz>, pattern| (pattern, start.timestamp_micros(), today);
        Ok(match kind {
            "performed_event" => since(self.start()?, BehaviourPattern::Times(CountCondition::AtLeast(1))),
            "performed_event_multiple" => since(self.start()?, BehaviourPattern::Times(self.count()?)),
            "performed_event_first_time" => (
                BehaviourPattern::First { since: self.start()?.timestamp_micros() },
                limits::MIN_EVENT_TIME,
                today,
            ),
            "performed_event_sequence" => {
                since(self.start()?, BehaviourPattern::Sequence { within: self.within()? })
            }
            "stopped_performing_event" => {
                let (start, later) = self.start_and_later()?;
                since(start, BehaviourPattern::Stopped { since: later.timestamp_micros() })
            }
            "restarted_performing_event" => {
                let (start, later) = self.start_and_later()?;
                let (from, again) = (start.timestamp_micros(), later.timestamp_micros());
                (BehaviourPattern::Restarted { from, again }, limits::MIN_EVENT_TIME, today)
            }
            "performed_event_regularly" => {
                let edges = self.edges()?;
                let (from, to) = (edges[0] + 1, edges[edges.len() - 1]);
                (
                    BehaviourPattern::Regularly { edges, count: self.count()?, periods: self.periods()?.0 },
                    from,
                    to,
                )
            }
            other => {
                let behaviours = BEHAVIOURS.join(", ");
                let detail = format!(
                    "There is no criterion \"{other}\" on events. The value must be one of {behaviours}."
                );
                return Err(self.invalid(detail));
            }
        })
    }

    /// Parses the event or action in field `key`.
    fn source(&self, key: &str, kind: &str) -> CalcResult<EventOrAction> {
        let value = self.fields.get(key).unwrap_or(&Value::Null);
        let id = || parse_integer(value).and_then(|id| u64::try_from(id).ok());
        match (self.fields.get(kind).and_then(Value::as_str), value) {
            (Some("actions"), _) => id()
                .map(EventOrAction::Action)
                .ok_or_else(|| self.invalid(format!("{value} is not the id of an action."))),
            (None | Some("events"), Value::String(event)) if !event.is_empty() => {
                Ok(EventOrAction::Event(Some(event.clone())))
            }
            (None | Some("events"), _) => Err(self.invalid(format!("{key} does not name an event."))),
            (Some(other), _) => Err(self.invalid(format!("{kind} is events or actions, not {other}."))),
        }
    }

    /// Start of the time range: `explicit_datetime`, or `time_value` days, weeks, months or years ago.
    fn start(&self) -> CalcResult<DateTime<Tz>> {
        match self.fields.get("explicit_datetime") {
            None | Some(Value::Null) => self.ago("time_value", "time_interval"),
            Some(Value::String(text)) if text.trim().is_empty() => self.ago("time_value", "time_interval"),
            Some(Value::String(text)) => {
                let text = DateText::parse(text).ok_or_else(|| {
                    self.invalid(format!("explicit_datetime \"{text}\" is not {}.", DateText::FORMS))
                })?;
                let at = text.instant(self.now).ok_or_else(|| self.date_out_of_range("explicit_datetime"))?;
                Ok(match text {
                    DateText::Absolute(..) => at,
                    text if text.is_in_hours() => floor(at, Interval::Hour),
                    _ => floor(at, Interval::Day),
                })
            }
            Some(_) => Err(self.invalid("explicit_datetime is not a text.")),
        }
    }

    /// The start, and the later start of the second interval.
    fn start_and_later(&self) -> CalcResult<(DateTime<Tz>, DateTime<Tz>)> {
        let (start, later) = (self.start()?, self.ago("seq_time_value", "seq_time_interval")?);
        if later < start {
            return Err(self.invalid("The second interval is longer than the first."));
        }
        Ok((start, later))
    }

    /// The start of the day `value` units ago.
    fn ago(&self, value: &str, unit: &str) -> CalcResult<DateTime<Tz>> {
        let letter = &self.unit(unit)?[..1];
        let text = DateText::parse(&format!("-{}{letter}", self.positive(value)?));
        let at = text.and_then(|text| text.instant(self.now)).ok_or_else(|| self.date_out_of_range(value))?;
        Ok(floor(at, Interval::Day))
    }

    fn unit(&self, key: &str) -> CalcResult<&str> {
        match self.fields.get(key).and_then(Value::as_str) {
            Some(unit) if BEHAVIOUR_UNITS.contains(&unit) => Ok(unit),
            _ => Err(self.invalid(format!("{key} is day, week, month or year."))),
        }
    }

    fn positive(&self, key: &str) -> CalcResult<i64> {
        let number = self.fields.get(key).and_then(parse_integer).filter(|number| *number > 0);
        number.ok_or_else(|| self.invalid(format!("{key} is not a number above zero.")))
    }

    fn count(&self) -> CalcResult<CountCondition> {
        let number = u64::try_from(self.positive("operator_value")?).unwrap_or(1);
        match self.fields.get("operator").filter(|operator| !operator.is_null()) {
            None => Ok(CountCondition::Exactly(number)),
            Some(Value::String(operator)) => match operator.as_str() {
                "eq" | "exact" => Ok(CountCondition::Exactly(number)),
                "gte" => Ok(CountCondition::AtLeast(number)),
                "gt" => Ok(CountCondition::AtLeast(number.saturating_add(1))),
                "lte" => Ok(CountCondition::AtMost(number)),
                "lt" => Ok(CountCondition::AtMost(number - 1)),
                other => Err(self.invalid(format!(
                    "A number of events cannot be compared by {other}. The operator must be one of eq, gt, gte, lt, lte."
                ))),
            },
            Some(_) => Err(self.invalid("operator is not a text.")),
        }
    }

    /// The maximum duration from the first event to the second.
    fn within(&self) -> CalcResult<CalendarDuration> {
        let (unit, number) = (self.unit("seq_time_interval")?, self.positive("seq_time_value")?);
        // Anything longer than all years has the same effect.
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let (months, days) = match unit {
            "day" => (0, number),
            "week" => (0, number.saturating_mul(7)),
            "month" => (number, 0),
            _ => (number.saturating_mul(12), 0),
        };
        Ok(CalendarDuration { months, days, zone: self.now.timezone() })
    }

    /// `min_periods` and `total_periods`.
    fn periods(&self) -> CalcResult<(usize, i64)> {
        let (least, total) = (self.positive("min_periods")?, self.positive("total_periods")?);
        if total > limits::PERIODS {
            let most = limits::PERIODS;
            return Err(self.invalid(format!("total_periods is too large: at most {most} are allowed.")));
        }
        if least > total {
            return Err(self.invalid("min_periods is more than total_periods."));
        }
        Ok((usize::try_from(least).unwrap_or(usize::MAX), total))
    }

    /// The edges of the periods, the last one now. A period excludes its start and includes its end.
    fn edges(&self) -> CalcResult<Vec<Micros>> {
        let (value, unit) = (self.positive("time_value")?, &self.unit("time_interval")?[..1]);
        let edge = |back: i64| {
            if back == 0 {
                return Ok(self.now.timestamp_micros());
            }
            let text = DateText::parse(&format!("-{}{unit}", value.saturating_mul(back)));
            text.and_then(|text| text.instant(self.now))
                .map(|at| at.timestamp_micros())
                .ok_or_else(|| self.date_out_of_range("total_periods"))
        };
        (0..=self.periods()?.1).rev().map(edge).collect()
    }

    fn invalid(&self, detail: impl Into<String>) -> CalcError {
        CalcError::invalid(self.attr, detail)
    }

    fn date_out_of_range(&self, key: &str) -> CalcError {
        self.invalid(format!("{key} leads before the year 1."))
    }
}

fn end_of_day(now: DateTime<Tz>) -> DateTime<Tz> {
    let next = now.date_naive().succ_opt().unwrap_or(now.date_naive());
    zone::shift(zone::day_start(next, now.timezone()), -Duration::microseconds(1))
}
