//! Resolves `date_from`, `date_to`, `interval` and `explicit_date` to instants.
//!
//! Must stay true: trends and funnels resolve dates by the same rules. They differ only in the first counted instant
//! (`first` is for trends) and in the end (trends truncate it to whole seconds).

use chrono::{DateTime, Datelike, Duration, NaiveTime, Timelike};
use chrono_tz::Tz;

use super::grammar::DateText;
use super::{Interval, zone};
use crate::dates::Micros;
use crate::error::{CalcError, CalcResult};

/// The date range of a request, unparsed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DateSpec {
    /// Start; the default is seven days before today. `all` is the project's earliest event. Anything else must be
    /// a valid [`DateText`], or resolving is an error.
    pub from: Option<String>,
    /// End; the default is now.
    pub to: Option<String>,
    /// `explicit_date`: use both ends without rounding.
    pub explicit: bool,
}

/// How a range is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rounding {
    /// Width of the buckets; `Day` for a total over the whole range.
    pub interval: Interval,
    /// For a single number: do not round a relative start, and default the end to exactly now.
    pub exact: bool,
    /// Round a relative start down also for minutes, as funnels do; trends do not.
    pub cut_minutes: bool,
}

/// A resolved range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DateRange {
    /// Start as requested; the first bucket contains it.
    pub from: DateTime<Tz>,
    /// First instant that a trend counts; may be before or after `from`.
    pub first: DateTime<Tz>,
    /// End, inclusive.
    pub to: DateTime<Tz>,
}

impl DateSpec {
    /// An error naming the field that is not a valid date.
    pub fn validate(&self) -> CalcResult<()> {
        for (text, attr) in [(&self.from, "date_from"), (&self.to, "date_to")] {
            if let Some(text) = text
                && !(attr == "date_from" && text == "all")
            {
                DateText::parse_parameter(text, attr)?;
            }
        }
        Ok(())
    }

    /// True if the start is the project's earliest event.
    pub fn needs_earliest(&self) -> bool {
        self.from.as_deref() == Some("all")
    }

    /// Resolves the range against `now`. `earliest` is the time of the project's first event; without it, `all` is now.
    pub fn resolve(
        &self,
        rounding: Rounding,
        now: DateTime<Tz>,
        earliest: Option<Micros>,
    ) -> CalcResult<DateRange> {
        let (from, first) = self.start(rounding, now, earliest)?;
        Ok(DateRange { from, first, to: self.end(rounding, now)? })
    }

    fn start(
        &self,
        rounding: Rounding,
        now: DateTime<Tz>,
        earliest: Option<Micros>,
    ) -> CalcResult<(DateTime<Tz>, DateTime<Tz>)> {
        let interval = rounding.interval;
        let untouched = self.explicit || rounding.exact;
        let from = match self.from.as_deref() {
            None => {
                let today = floor(now, Interval::Day);
                let from = today.date_naive() - chrono::Days::new(7);
                zone::day_start(from, now.timezone())
            }
            Some("all") => earliest.map_or(now, |first| zone::from_micros(first, now.timezone())),
            Some(text) => {
                let text = DateText::parse_parameter(text, "date_from")?;
                let at = text.instant(now).ok_or_else(|| out_of_range("date_from"))?;
                let is_rounded = matches!(text, DateText::Relative(_))
                    && !untouched
                    && (interval != Interval::Minute || rounding.cut_minutes);
                let unit = if text.is_in_hours() { Interval::Hour } else { Interval::Day };
                if is_rounded { floor(at, unit) } else { at }
            }
        };
        Ok((from, first_instant(from, self, rounding)))
    }

    fn end(&self, rounding: Rounding, now: DateTime<Tz>) -> CalcResult<DateTime<Tz>> {
        let text = self.to.as_deref().map(|text| DateText::parse_parameter(text, "date_to")).transpose()?;
        let at = text.map_or(Some(now), |text| text.instant(now)).ok_or_else(|| out_of_range("date_to"))?;
        let absolute = text.is_some_and(DateText::is_absolute);
        if self.explicit || (rounding.exact && text.is_none()) || (rounding.interval.is_clock() && absolute) {
            return Ok(at);
        }
        let last = Duration::microseconds(999_999);
        Ok(match rounding.interval {
            Interval::Minute => zone::shift(floor(at, Interval::Minute), Duration::seconds(59) + last),
            Interval::Hour => zone::shift(floor(at, Interval::Hour), Duration::seconds(3599) + last),
            _ => {
                let end = NaiveTime::from_hms_micro_opt(23, 59, 59, 999_999).unwrap_or(NaiveTime::MIN);
                zone::end_at(at.date_naive().and_time(end), at.timezone())
            }
        })
    }
}

/// The first instant that a trend counts in a range that starts at `from`, the resolved start of `spec`.
pub(super) fn first_instant(from: DateTime<Tz>, spec: &DateSpec, rounding: Rounding) -> DateTime<Tz> {
    let text = spec.from.as_deref().filter(|text| *text != "all").and_then(DateText::parse);
    let relative = text.is_some_and(|text| !text.is_absolute());
    match rounding.interval {
        _ if spec.explicit || rounding.exact => from,
        Interval::Minute | Interval::Hour if relative => from,
        Interval::Day if text.is_some_and(DateText::is_in_hours) => from,
        Interval::Week => floor(from, Interval::Day),
        other => floor(from, other),
    }
}

/// The start of the minute, hour, day or month that contains an instant. A week is rounded to its day here;
/// [`super::buckets`] knows the first day of the week.
pub fn floor(at: DateTime<Tz>, interval: Interval) -> DateTime<Tz> {
    let beyond_second = Duration::nanoseconds(i64::from(at.nanosecond()));
    let seconds = i64::from(at.second());
    match interval {
        Interval::Minute => zone::shift(at, -(Duration::seconds(seconds) + beyond_second)),
        Interval::Hour => {
            zone::shift(at, -(Duration::seconds(i64::from(at.minute()) * 60 + seconds) + beyond_second))
        }
        Interval::Day | Interval::Week => zone::day_start(at.date_naive(), at.timezone()),
        Interval::Month => {
            let day = at.date_naive();
            zone::day_start(day.with_day(1).unwrap_or(day), at.timezone())
        }
    }
}

pub(super) fn out_of_range(attr: &str) -> CalcError {
    CalcError::invalid(attr, "The date lies outside the years 1 to 9999.")
}
