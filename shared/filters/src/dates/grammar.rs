//! Parses date texts: absolute dates, and relative dates such as `-7d`, `-1mStart`, `yStart`.
//!
//! Must stay true: other texts are invalid, and so is a text that starts like an absolute date but is not one. A relative
//! date is always in the past, whatever its sign.

use chrono::{
    DateTime, Datelike, Duration, FixedOffset, Months, NaiveDate, NaiveDateTime, NaiveTime, Timelike, Utc,
};
use chrono_tz::Tz;

use super::zone;
use crate::error::{CalcError, CalcResult};

/// A parsed date text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateText {
    /// A date or a date with a time; without an offset it is wall-clock time of the project.
    Absolute(NaiveDateTime, Option<FixedOffset>),
    /// A relative date.
    Relative(Relative),
}

/// The start or end of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    Start,
    End,
}

/// A relative date: a number of units back, optionally rounded to the start or end of that unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relative {
    unit: u8,
    /// None if the text has no number: no shift.
    number: Option<i64>,
    edge: Option<Edge>,
}

impl DateText {
    /// The two forms, for error texts.
    pub const FORMS: &'static str =
        "a date such as 2024-01-31 or 2024-01-31T12:00:00Z, or a relative date such as -7d, -1mStart or -24h";

    /// Parses a text; none if invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some((local, offset)) = absolute(text) {
            return Some(Self::Absolute(local, offset));
        }
        if starts_like_absolute(text) {
            return None;
        }
        find_relative(text).map(Self::Relative)
    }

    /// Parses the parameter `attr`. The error names both formats.
    pub fn parse_parameter(text: &str, attr: &str) -> CalcResult<Self> {
        Self::parse(text).ok_or_else(|| {
            let start: String = text.chars().take(TEXT_SHOWN_MAX).collect();
            CalcError::invalid(attr, format!("\"{start}\" is not a date: expected {}.", Self::FORMS))
        })
    }

    /// The instant, or none if it is outside the years 1 to 9999.
    pub fn instant(self, now: DateTime<Tz>) -> Option<DateTime<Tz>> {
        let zone = now.timezone();
        match self {
            Self::Absolute(local, None) => Some(zone::at(local, zone)),
            Self::Absolute(local, Some(offset)) => {
                let instant = local.and_local_timezone(offset).single()?.with_timezone(&zone);
                // The offset may lead into another year.
                Some(instant).filter(|instant| (1..=9999).contains(&instant.year()))
            }
            Self::Relative(relative) => {
                relative.before(now.naive_local()).map(|local| zone::end_at(local, zone))
            }
        }
    }

    /// True for a relative date in hours, which is rounded to hours.
    pub fn is_in_hours(self) -> bool {
        matches!(self, Self::Relative(relative) if relative.unit == b'h')
    }

    /// True for an absolute date.
    pub fn is_absolute(self) -> bool {
        matches!(self, Self::Absolute(..))
    }
}

impl Relative {
    /// Parses a text that is a relative date as a whole, with or without spaces around it.
    pub fn parse_whole(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > RELATIVE_BYTES_MAX {
            return None;
        }
        Self::parse_exact(text)
    }

    /// Parses a text that is a relative date as a whole, without spaces around it.
    pub fn parse_exact(text: &str) -> Option<Self> {
        relative_at(text.as_bytes()).filter(|(_, length)| *length == text.len()).map(|(relative, _)| relative)
    }

    /// The number and the unit, if the text has both and no edge: `-7d`, but not `d` or `-1mStart`.
    pub fn number_and_unit(self) -> Option<(i64, char)> {
        self.number.filter(|_| self.edge.is_none()).map(|number| (number, char::from(self.unit)))
    }

    /// The number of days, if the unit is days.
    pub fn whole_days(self) -> Option<i64> {
        self.number.filter(|_| self.unit == b'd')
    }

    /// Subtracts the relative date from a wall-clock time: months and years first, then the edge, then fixed durations, which
    /// are wall-clock time too.
    pub fn before(self, local: NaiveDateTime) -> Option<NaiveDateTime> {
        let moved = local.checked_sub_months(self.months()?)?;
        let result = self.at_edge(moved)?.checked_sub_signed(self.duration()?)?;
        (1..=9999).contains(&result.year()).then_some(result)
    }

    /// Subtracts the relative date, whose edge is ignored, from an instant: months and years in wall-clock time of `zone`, fixed
    /// durations in absolute time. The two differ across a clock change.
    pub fn before_instant(self, instant: DateTime<Utc>, zone: Tz) -> Option<DateTime<Utc>> {
        if matches!(self.unit, b'm' | b'y') {
            let local = instant.with_timezone(&zone).naive_local().checked_sub_months(self.months()?)?;
            return Some(zone::at(local, zone).with_timezone(&Utc));
        }
        instant.checked_sub_signed(self.duration()?)
    }

    fn months(self) -> Option<Months> {
        let number = self.number.unwrap_or(0);
        let months = match self.unit {
            b'm' => number,
            b'y' => number.checked_mul(12)?,
            _ => 0,
        };
        u32::try_from(months).ok().map(Months::new)
    }

    fn duration(self) -> Option<Duration> {
        let number = self.number.unwrap_or(0);
        match self.unit {
            b'h' => Duration::try_hours(number),
            b'd' => Duration::try_days(number),
            b'w' => Duration::try_weeks(number),
            b'q' => Duration::try_weeks(number.checked_mul(13)?),
            b'M' => Duration::try_minutes(number),
            _ => Some(Duration::zero()),
        }
    }

    fn at_edge(self, local: NaiveDateTime) -> Option<NaiveDateTime> {
        let Some(edge) = self.edge else { return Some(local) };
        match (self.unit, edge) {
            (b'h', Edge::Start) => local.date().and_hms_opt(local.hour(), 0, 0),
            (b'h', Edge::End) => local.date().and_hms_micro_opt(local.hour(), 59, 59, 999_999),
            (b'd', Edge::Start) => Some(local.date().and_time(NaiveTime::MIN)),
            (b'd', Edge::End) => local.date().and_hms_micro_opt(23, 59, 59, 999_999),
            (b'm', Edge::Start) => local.with_day(1),
            (b'y', Edge::Start) => local.with_day(1)?.with_month(1),
            // Per the contract, `yEnd` is the last day of the month reached by the shift, not of the year.
            (b'm' | b'y', Edge::End) => last_of_month(local),
            _ => Some(local),
        }
    }
}

fn last_of_month(local: NaiveDateTime) -> Option<NaiveDateTime> {
    (28..=31).rev().find_map(|day| local.with_day(day))
}

/// Whether the text starts with four digits and a dash, as no relative date does.
fn starts_like_absolute(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() > 4 && bytes[..4].iter().all(u8::is_ascii_digit) && bytes[4] == b'-'
}

/// The first relative date in a text.
fn find_relative(text: &str) -> Option<Relative> {
    // The search is quadratic in runs of digits, so the length is limited; a date has a few characters.
    if text.len() > RELATIVE_BYTES_MAX {
        return None;
    }
    (0..text.len()).find_map(|start| relative_at(&text.as_bytes()[start..]).map(|(relative, _)| relative))
}

/// Maximum length of a text that is searched for a relative date.
const RELATIVE_BYTES_MAX: usize = 256;
/// Maximum characters of an invalid text in its error.
const TEXT_SHOWN_MAX: usize = 64;

/// The relative date at the start of a text, and its length.
fn relative_at(text: &[u8]) -> Option<(Relative, usize)> {
    let sign = usize::from(text.first() == Some(&b'-'));
    let digits = text[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let unit = *text.get(sign + digits)?;
    if !b"hdwmqyMHDWQY".contains(&unit) {
        return None;
    }
    let number = (digits > 0).then(|| {
        // A number that overflows is out of range anyway.
        text[sign..sign + digits]
            .iter()
            .fold(0_i64, |sum, byte| sum.saturating_mul(10).saturating_add(i64::from(byte - b'0')))
    });
    let rest = &text[sign + digits + 1..];
    let (edge, edge_length) = if rest.starts_with(b"Start") {
        (Some(Edge::Start), 5)
    } else if rest.starts_with(b"End") {
        (Some(Edge::End), 3)
    } else {
        (None, 0)
    };
    Some((Relative { unit, number, edge }, sign + digits + 1 + edge_length))
}

/// Parses `YYYY-M-D[(T| )hh:mm[:ss[.fraction]][Z|offset]]`.
pub fn absolute(text: &str) -> Option<(NaiveDateTime, Option<FixedOffset>)> {
    let mut cursor = Cursor(text.as_bytes());
    let year = i32::try_from(cursor.digits(4, 4)?).ok()?;
    cursor.expect(b"-")?;
    let month = cursor.digits(1, 2)?;
    cursor.expect(b"-")?;
    let date = NaiveDate::from_ymd_opt(year, month, cursor.digits(1, 2)?)?;
    if year == 0 {
        return None;
    }
    if cursor.0.is_empty() {
        return Some((date.and_time(NaiveTime::MIN), None));
    }
    cursor.expect(b"Tt ")?;
    let time = cursor.time()?;
    let offset = cursor.offset()?;
    Some((date.and_time(time), offset))
}

/// A parser position in a text.
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl Cursor<'_> {
    /// Parses a number of `least` to `most` digits.
    pub(super) fn digits(&mut self, least: usize, most: usize) -> Option<u32> {
        let count = self.0.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
        if count < least {
            return None;
        }
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(digits.iter().fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0')))
    }

    /// Parses one of these bytes.
    pub(super) fn expect(&mut self, any_of: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        any_of.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }

    /// Parses `hh:mm[:ss[.fraction]]`; the fraction is truncated to microseconds.
    pub(super) fn time(&mut self) -> Option<NaiveTime> {
        let hour = self.digits(1, 2)?;
        self.expect(b":")?;
        let minute = self.digits(2, 2)?;
        let second = if self.expect(b":").is_some() { self.digits(2, 2)? } else { 0 };
        let mut micros = 0;
        if self.expect(b".,").is_some() {
            let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if count == 0 {
                return None;
            }
            let (digits, rest) = self.0.split_at(count);
            self.0 = rest;
            for place in 0..6 {
                micros = micros * 10 + digits.get(place).map_or(0, |byte| u32::from(byte - b'0'));
            }
        }
        NaiveTime::from_hms_micro_opt(hour, minute, second, micros)
    }

    /// Parses the rest: nothing, `Z`, or `+hh[[:]mm]`. The outer `None` is a syntax error.
    #[expect(clippy::option_option, reason = "no offset and no match are different results")]
    pub(super) fn offset(&mut self) -> Option<Option<FixedOffset>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let sign = match self.expect(b"Zz+-")? {
            b'+' => 1,
            b'-' => -1,
            _ => return self.0.is_empty().then(|| FixedOffset::east_opt(0)),
        };
        let hours = self.digits(2, 2)?;
        let _ = self.expect(b":");
        let minutes = if self.0.is_empty() { 0 } else { self.digits(2, 2)? };
        if !self.0.is_empty() || minutes > 59 {
            return None;
        }
        let seconds = i32::try_from(hours * 3600 + minutes * 60).ok()?;
        FixedOffset::east_opt(sign * seconds).map(Some)
    }
}
