//! The texts that say when: absolute dates, and relative ones such as `-7d`, `-1mStart`, `yStart`.
//!
//! Must stay true: a text that is neither form has no meaning, and neither has one that begins like a date of the
//! calendar and is none. A number always goes into the past, whatever its sign.

use chrono::{
    DateTime, Datelike, Duration, FixedOffset, Months, NaiveDate, NaiveDateTime, NaiveTime, Timelike,
};
use chrono_tz::Tz;

use super::zone;
use crate::error::{CalcError, CalcResult};

/// A text, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateText {
    /// A date or a date with a time; without an offset it is wall-clock time of the project.
    Absolute(NaiveDateTime, Option<FixedOffset>),
    /// A distance into the past.
    Relative(Relative),
}

/// Which end of the unit is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    Start,
    End,
}

/// A relative date: a number of units back, then perhaps the start or the end of that unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relative {
    unit: u8,
    /// None when the text has no number: no shift.
    number: Option<i64>,
    edge: Option<Edge>,
}

impl DateText {
    /// The two forms, for error texts.
    pub const FORMS: &'static str =
        "a date such as 2024-01-31 or 2024-01-31T12:00:00Z, or a relative date such as -7d, -1mStart or -24h";

    /// Parses a text; none where it is neither form.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some((local, offset)) = absolute(text) {
            return Some(Self::Absolute(local, offset));
        }
        if begins_like_absolute(text) {
            return None;
        }
        find_relative(text).map(|(relative, _)| Self::Relative(relative))
    }

    /// Parses a text that the parameter `attr` sent: 400 naming both forms where it is neither.
    pub fn parse_parameter(text: &str, attr: &str) -> CalcResult<Self> {
        Self::parse(text).ok_or_else(|| {
            let start: String = text.chars().take(TEXT_SHOWN_MAX).collect();
            CalcError::invalid(attr, format!("\"{start}\" is not a date: expected {}.", Self::FORMS))
        })
    }

    /// The instant meant, or none when it lies outside the years 1 to 9999.
    pub fn instant(self, now: DateTime<Tz>) -> Option<DateTime<Tz>> {
        let zone = now.timezone();
        match self {
            Self::Absolute(local, None) => Some(zone::at(local, zone)),
            Self::Absolute(local, Some(offset)) => {
                Some(local.and_local_timezone(offset).single()?.with_timezone(&zone))
            }
            Self::Relative(relative) => {
                relative.before(now.naive_local()).map(|local| zone::end_at(local, zone))
            }
        }
    }

    /// A relative text counted in hours: its truncation is to the hour.
    pub fn is_in_hours(self) -> bool {
        matches!(self, Self::Relative(relative) if relative.unit == b'h')
    }

    /// A date on the calendar.
    pub fn is_absolute(self) -> bool {
        matches!(self, Self::Absolute(..))
    }
}

impl Relative {
    /// A text that is a relative date from its first to its last character.
    pub fn read_whole(text: &str) -> Option<Self> {
        let text = text.trim();
        find_relative(text).filter(|(_, length)| *length == text.len()).map(|(relative, _)| relative)
    }

    /// The number of days, where it is counted in days.
    pub fn whole_days(self) -> Option<i64> {
        self.number.filter(|_| self.unit == b'd')
    }

    /// The wall-clock time so far before another: months and years first, then the edge, then the fixed lengths.
    pub fn before(self, local: NaiveDateTime) -> Option<NaiveDateTime> {
        let number = self.number.unwrap_or(0);
        let months = match self.unit {
            b'm' => number,
            b'y' => number.checked_mul(12)?,
            _ => 0,
        };
        let moved = local.checked_sub_months(Months::new(u32::try_from(months).ok()?))?;
        let fixed = match self.unit {
            b'h' => Duration::try_hours(number),
            b'd' => Duration::try_days(number),
            b'w' => Duration::try_weeks(number),
            b'q' => Duration::try_weeks(number.checked_mul(13)?),
            b'M' => Duration::try_minutes(number),
            _ => Some(Duration::zero()),
        }?;
        let result = self.at_edge(moved)?.checked_sub_signed(fixed)?;
        (1..=9999).contains(&result.year()).then_some(result)
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
            // The end of a year is day 31 of the month that the shift led to, as the contract has it.
            (b'm' | b'y', Edge::End) => last_of_month(local),
            _ => Some(local),
        }
    }
}

fn last_of_month(local: NaiveDateTime) -> Option<NaiveDateTime> {
    (28..=31).rev().find_map(|day| local.with_day(day))
}

/// Four digits and a dash, as no relative date begins.
fn begins_like_absolute(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() > 4 && bytes[..4].iter().all(u8::is_ascii_digit) && bytes[4] == b'-'
}

/// The first relative date in a text, and how many bytes from the start of the text it ends at when it stands there.
fn find_relative(text: &str) -> Option<(Relative, usize)> {
    // Every start looks at all digits that follow, so the text is bounded; a date is a few characters.
    if text.len() > RELATIVE_BYTES_MAX {
        return None;
    }
    (0..text.len()).find_map(|start| {
        let (relative, length) = relative_at(&text.as_bytes()[start..])?;
        Some((relative, if start == 0 { length } else { usize::MAX }))
    })
}

/// Longest text in which a relative date is looked for.
const RELATIVE_BYTES_MAX: usize = 256;
/// Characters of an unreadable text that its error shows.
const TEXT_SHOWN_MAX: usize = 64;

fn relative_at(text: &[u8]) -> Option<(Relative, usize)> {
    let sign = usize::from(text.first() == Some(&b'-'));
    let digits = text[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let unit = *text.get(sign + digits)?;
    if !b"hdwmqyMHDWQY".contains(&unit) {
        return None;
    }
    let number = (digits > 0).then(|| {
        // A number too large for an i64 is too far back anyway.
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

/// `YYYY-M-D`, then perhaps `T` or a space and `hh:mm[:ss[.fraction]]`, then perhaps `Z` or an offset.
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

/// Reads a text from left to right.
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl Cursor<'_> {
    /// The number that `least` to `most` digits spell.
    pub(super) fn digits(&mut self, least: usize, most: usize) -> Option<u32> {
        let count = self.0.iter().take(most).take_while(|byte| byte.is_ascii_digit()).count();
        if count < least {
            return None;
        }
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        Some(digits.iter().fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0')))
    }

    /// One of these bytes.
    pub(super) fn expect(&mut self, any_of: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        any_of.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }

    /// `hh:mm[:ss[.fraction]]`; digits of the fraction beyond microseconds are cut.
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

    /// What is left: nothing, `Z`, or `+hh[[:]mm]`. The outer None is anything else.
    #[expect(clippy::option_option, reason = "no offset and no match are different answers")]
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
