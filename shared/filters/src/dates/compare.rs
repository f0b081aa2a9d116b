//! The comparison period of a query.
//!
//! Must stay true: it has the same length as the current period in wall-clock time, regardless of clock changes.

use chrono::{Days, NaiveDateTime, Timelike};

use super::grammar::DateText;
use super::range::{DateRange, DateSpec, Rounding, first_instant, out_of_range};
use super::{Interval, zone};
use crate::error::{CalcError, CalcResult};

/// The earlier period to compare with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// The period directly before.
    Previous,
    /// The period that starts this much earlier; a relative date such as `-1m`.
    Back(String),
}

impl Comparison {
    /// Parses a comparison with a period that starts `text` earlier.
    pub fn back(text: &str, attr: &str) -> CalcResult<Self> {
        match DateText::parse(text) {
            Some(DateText::Relative(_)) => Ok(Self::Back(text.to_owned())),
            _ => Err(CalcError::invalid(
                attr,
                format!("\"{text}\" is not a relative date such as -1w or -1m."),
            )),
        }
    }

    /// The range of the earlier period. `current` and `rounding` use the requested interval, also for a total.
    pub fn of(&self, current: &DateRange, spec: &DateSpec, rounding: Rounding) -> CalcResult<DateRange> {
        let interval = rounding.interval;
        let zone = current.from.timezone();
        let (start, end) = (current.from.naive_local(), current.to.naive_local());
        let length = end - start;
        let out = || out_of_range("compare");
        let (from, to) = match self {
            Self::Back(text) => {
                let Some(DateText::Relative(back)) = DateText::parse(text) else { return Err(out()) };
                let from = back.before(start).ok_or_else(out)?;
                (from, from.checked_add_signed(length).ok_or_else(out)?)
            }
            Self::Previous => {
                let before = start.checked_sub_signed(length).ok_or_else(out)?;
                let from = match interval {
                    Interval::Minute => before,
                    _ => before.date().and_time(start.time()),
                };
                let from = if interval == Interval::Day && aligns_weekdays(spec) {
                    from.checked_add_days(Days::new(1)).ok_or_else(out)?
                } else {
                    from
                };
                let to = from.checked_add_signed(length).ok_or_else(out)?;
                (
                    from,
                    match interval {
                        Interval::Minute => start,
                        Interval::Hour => in_hour(to, end),
                        _ => to.date().and_time(end.time()),
                    },
                )
            }
        };
        let from = zone::at(from, zone);
        let first = first_instant(from, spec, rounding);
        Ok(DateRange { from, first, to: zone::end_at(to, zone) })
    }
}

/// The date and hour of one time, the minutes and seconds of another.
fn in_hour(hour: NaiveDateTime, rest: NaiveDateTime) -> NaiveDateTime {
    let time = hour.time();
    let time = rest.time().with_hour(time.hour()).unwrap_or(time);
    hour.date().and_time(time)
}

/// Whether the range starts whole weeks ago, given in days, and ends now or at an absolute date. Such a range is a day longer
/// because of the current day, so it is shifted by a day to compare equal weekdays.
fn aligns_weekdays(spec: &DateSpec) -> bool {
    let weeks = match spec.from.as_deref().map(DateText::parse) {
        Some(Some(DateText::Relative(relative))) => {
            relative.whole_days().is_some_and(|days| days > 0 && days % 7 == 0)
        }
        // The default start is seven days ago.
        None => true,
        Some(_) => false,
    };
    weeks && !matches!(spec.to.as_deref().and_then(DateText::parse), Some(DateText::Relative(_)))
}
