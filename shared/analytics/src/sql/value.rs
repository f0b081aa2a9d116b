//! Values of expressions.
//!
//! Must stay true: property values convert by content, so `5` and `"5"` are the same number and the same text; arithmetic
//! with a missing value is missing; no text is longer than [`limits::EXPRESSION_TEXT`].

use std::borrow::Cow;
use std::cmp::Ordering;

use chrono::{NaiveDate, NaiveTime};
use chrono_tz::Tz;
use pennon_filters::dates::{instants, zone};
use pennon_filters::text;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::limits;
use crate::scan::Micros;

/// From here on (2^53), floats do not represent all whole numbers.
const EXACT_FLOAT_LIMIT: f64 = 9_007_199_254_740_992.0;

/// A value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Value {
    /// Absent or null.
    Missing,
    /// Result of a comparison.
    Bool(bool),
    /// Always finite.
    Number(f64),
    /// Text.
    Text(String),
    /// An instant; `fine`: its text has fractional seconds.
    Time { at: Micros, fine: bool },
    /// A date.
    Date(NaiveDate),
    /// Parts of a split text.
    List(Vec<String>),
}

impl Value {
    /// Converts a property value. Booleans become texts, as do whole numbers that a float cannot represent.
    pub(crate) fn of_property(value: Option<&Json>) -> Self {
        match value {
            None | Some(Json::Null) => Self::Missing,
            Some(Json::Number(number)) => match number.as_f64() {
                Some(float) if number.is_f64() || float.abs() < EXACT_FLOAT_LIMIT => Self::number_of(float),
                _ => Self::Text(number.to_string()),
            },
            Some(other) => {
                text::text_of(other).map_or(Self::Missing, |text| Self::text_of(text.into_owned()))
            }
        }
    }

    /// A number; missing if it is not finite.
    pub(crate) fn number_of(number: f64) -> Self {
        if number.is_finite() { Self::Number(number) } else { Self::Missing }
    }

    /// A text; missing if it is too long.
    pub(crate) fn text_of(text: String) -> Self {
        if text.len() <= limits::EXPRESSION_TEXT { Self::Text(text) } else { Self::Missing }
    }

    /// Concatenates texts; missing if the result is too long.
    pub(crate) fn text_of_parts<T: AsRef<str>>(parts: impl Iterator<Item = T>) -> Self {
        let mut text = String::new();
        for part in parts {
            if text.len() + part.as_ref().len() > limits::EXPRESSION_TEXT {
                return Self::Missing;
            }
            text.push_str(part.as_ref());
        }
        Self::Text(text)
    }

    /// Approximate bytes of its text.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::List(list) => list.iter().map(|text| text.len() + 3).sum(),
            _ => 16,
        }
    }

    /// Converts to JSON; none if missing.
    pub(crate) fn json(&self, zone: Tz) -> Option<Json> {
        match self {
            Self::Missing => None,
            Self::Bool(value) => Some(Json::from(*value)),
            #[expect(clippy::cast_possible_truncation, reason = "a whole number that is exact as a float")]
            Self::Number(number) if number.fract() == 0.0 && number.abs() < EXACT_FLOAT_LIMIT => {
                Some(Json::from(*number as i64))
            }
            Self::Number(number) => Some(Json::from(*number)),
            other => other.text(zone).map(|text| Json::from(text.into_owned())),
        }
    }

    /// The text form, with instants in local time of `zone`. None if missing.
    pub(crate) fn text(&self, zone: Tz) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Missing => return None,
            Self::Bool(true) => Cow::Borrowed("true"),
            Self::Bool(false) => Cow::Borrowed("false"),
            Self::Number(_) => Cow::Owned(text::text_of(&self.json(zone)?)?.into_owned()),
            Self::Text(text) => Cow::Borrowed(text),
            Self::Time { at, fine } => {
                let format = if *fine { "%Y-%m-%d %H:%M:%S%.6f" } else { "%Y-%m-%d %H:%M:%S" };
                Cow::Owned(zone::from_micros(*at, zone).format(format).to_string())
            }
            Self::Date(day) => Cow::Owned(day.format("%Y-%m-%d").to_string()),
            Self::List(list) => Cow::Owned(Json::from(list.clone()).to_string()),
        })
    }

    /// Its number, parsed from texts; booleans are 0 and 1.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Bool(value) => Some(f64::from(u8::from(*value))),
            Self::Text(text) => text::numeric(text),
            _ => None,
        }
    }

    /// As [`Value::number`]; instants and dates are seconds since the Unix epoch.
    pub(crate) fn number_or_seconds(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "a microsecond of our days is below 2^52")]
            Self::Time { at, .. } => Some(*at as f64 / 1_000_000.0),
            Self::Date(day) => {
                let seconds = day.and_time(NaiveTime::MIN).and_utc().timestamp();
                #[expect(clippy::cast_precision_loss, reason = "seconds of our days are far below 2^52")]
                Some(seconds as f64)
            }
            other => other.number(),
        }
    }

    /// Its truth value as a condition; none if missing.
    pub(crate) fn truth(&self) -> Option<bool> {
        match self {
            Self::Missing => None,
            Self::Bool(value) => Some(*value),
            Self::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
            other => Some(other.number().is_some_and(|number| number != 0.0)),
        }
    }

    /// Its instant, parsed from texts and numbers; a date is its midnight.
    pub(crate) fn instant(&self, zone: Tz) -> Option<Micros> {
        match self {
            Self::Time { at, .. } => Some(*at),
            Self::Date(day) => Some(zone::day_start(*day, zone).timestamp_micros()),
            Self::Text(text) => instants::property_micros(&Json::from(text.as_str()), zone),
            Self::Number(number) => instants::property_micros(&Json::from(*number), zone),
            _ => None,
        }
    }

    /// The date of its instant.
    pub(crate) fn date(&self, zone: Tz) -> Option<NaiveDate> {
        match self {
            Self::Date(day) => Some(*day),
            other => other.instant(zone).map(|at| zone::from_micros(at, zone).date_naive()),
        }
    }

    fn is_time(&self) -> bool {
        matches!(self, Self::Time { .. } | Self::Date(_))
    }

    /// Compares with another value; none if they are not comparable or one is missing.
    pub(crate) fn order(&self, other: &Self, zone: Tz) -> Option<Ordering> {
        match (self, other) {
            (Self::Missing, _) | (_, Self::Missing) => None,
            (Self::Text(left), Self::Text(right)) => match (text::numeric(left), text::numeric(right)) {
                (Some(left), Some(right)) => left.partial_cmp(&right),
                _ => Some(left.cmp(right)),
            },
            (left, right) => left.order_mixed_types(right, zone),
        }
    }

    /// Whether it equals another value; none if one is missing.
    pub(crate) fn equals(&self, other: &Self, zone: Tz) -> Option<bool> {
        match (self, other) {
            (Self::Missing, _) | (_, Self::Missing) => None,
            (Self::Text(left), Self::Text(right)) => Some(left == right),
            (left, right) => Some(left.order_mixed_types(right, zone) == Some(Ordering::Equal)),
        }
    }

    /// Compares values that are not both texts: as instants, as numbers, or for lists as texts.
    fn order_mixed_types(&self, other: &Self, zone: Tz) -> Option<Ordering> {
        if self.is_time() || other.is_time() {
            return Some(self.instant(zone)?.cmp(&other.instant(zone)?));
        }
        match (self, other) {
            (Self::List(_), _) | (_, Self::List(_)) => Some(self.text(zone)?.cmp(&other.text(zone)?)),
            (Self::Bool(left), Self::Text(right)) => Some(left.cmp(&parse_bool(right)?)),
            (Self::Text(left), Self::Bool(right)) => Some(parse_bool(left)?.cmp(right)),
            (left, right) => left.number()?.partial_cmp(&right.number()?),
        }
    }
}

/// Parses a boolean.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" => Some(true),
        "0" => Some(false),
        text if text.eq_ignore_ascii_case("true") => Some(true),
        text if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}
