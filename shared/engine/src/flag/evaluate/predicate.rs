//! Operators: a property filter compiled into a test of one value.
//!
//! Must stay true: a filter value that cannot be compared (an invalid pattern, a text as a number) matches nothing,
//! neither the operator nor its negation, present or absent; a property value that cannot be compared is a no.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde_json::Value;

use super::{
    compile::Compiler,
    instant::{Clock, DateBound},
    patterns::Pattern,
    slow_searches::SlowSearches,
};
use crate::semver::{Range, Version};
use crate::text;

/// A property's value.
#[derive(Debug, Clone, Copy)]
pub enum Given<'a> {
    /// A text.
    Text(&'a str),
    /// Anything else.
    Json(&'a Value),
}

impl<'a> From<&'a Value> for Given<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text),
            other => Self::Json(other),
        }
    }
}

impl<'a> Given<'a> {
    /// The text form: texts as they are, anything else as JSON.
    fn text(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Json(Value::Bool(true)) => Cow::Borrowed("true"),
            Self::Json(Value::Bool(false)) => Cow::Borrowed("false"),
            Self::Json(other) => Cow::Owned(other.to_string()),
        }
    }

    fn number(self) -> Option<f64> {
        match self {
            Self::Text(text) => text::numeric(text),
            Self::Json(value) => value.as_f64(),
        }
    }

    /// Whether it is true, or the text `true`.
    fn is_true(self) -> bool {
        match self {
            Self::Text(text) => text.eq_ignore_ascii_case("true"),
            Self::Json(value) => *value == Value::Bool(true),
        }
    }
}

/// How values are compared for equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Equality {
    /// As flags do: without regard to case, and booleans by their truth.
    Loose,
    /// By their text forms.
    Text,
}

/// A compiled property filter.
#[derive(Debug, Clone)]
pub struct Predicate {
    test: Test,
    /// The answer turned round.
    negated: bool,
    /// The answer for a property that is not there.
    absent: bool,
}

#[derive(Debug, Clone)]
enum Test {
    Present,
    Truth(bool),
    /// One of these texts, in lower case where the flag says so.
    Equal {
        texts: HashSet<String>,
        lower: bool,
    },
    /// Contains one of these, which are in lower ASCII case; and so on.
    Contains(Vec<String>),
    Starts(Vec<String>),
    Ends(Vec<String>),
    Matches(Vec<Arc<Pattern>>),
    Number(Order, f64),
    Between(f64, f64),
    Instant(Order, DateBound, Tz),
    Version(Range),
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

impl Order {
    fn holds<T: PartialOrd>(self, left: T, right: T) -> bool {
        match self {
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Equal => left == right,
            Self::GreaterOrEqual => left >= right,
            Self::Greater => left > right,
        }
    }
}

impl Predicate {
    /// Compiles an operator and its value. None: they match nothing.
    pub fn new(operator: &str, value: Option<&Value>, compiler: &Compiler) -> Option<Self> {
        // A negation holds where there is nothing to compare.
        let (operator, negated) = match operator {
            "is_not" => ("exact", true),
            "is_not_set" => ("is_set", true),
            "not_between" => ("between", true),
            "not_icontains_multi" => ("icontains_multi", true),
            other => match other.strip_prefix("not_") {
                Some(rest @ ("icontains" | "regex" | "starts_with" | "ends_with")) => (rest, true),
                _ => (other, false),
            },
        };
        let test = match operator {
            "is_set" => Test::Present,
            other => Test::new(other, value?, compiler)?,
        };
        Some(Self { test, negated, absent: negated })
    }

    /// Whether a property passes at the instant `now`; None is one that is not there.
    pub fn holds(
        &self,
        given: Option<Given<'_>>,
        now: DateTime<Utc>,
        slow: SlowSearches<'_>,
    ) -> Option<bool> {
        match given {
            None if self.test.is_comparable(now, slow) => Some(self.absent),
            None => None,
            Some(given) => self.test.holds(given, self.negated, now, slow),
        }
    }
}

impl Test {
    fn new(operator: &str, value: &Value, compiler: &Compiler) -> Option<Self> {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            other => std::slice::from_ref(other),
        };
        let texts = || values.iter().map(|value| Given::from(value).text());
        let lower = || texts().map(|text| text.to_ascii_lowercase()).collect();
        let number = |order| Given::from(value).number().map(|bound| Self::Number(order, bound));
        let instant = |order| {
            let bound = DateBound::parse(value.as_str()?, compiler.zone)?;
            Some(Self::Instant(order, bound, compiler.zone))
        };
        Some(match operator {
            "exact" => equal(value, values, compiler.equality),
            "icontains" | "icontains_multi" => Self::Contains(lower()),
            "starts_with" => Self::Starts(lower()),
            "ends_with" => Self::Ends(lower()),
            "regex" => Self::Matches(texts().map(|text| compiler.patterns.get(&text)).collect()),
            "gt" => number(Order::Greater)?,
            "gte" => number(Order::GreaterOrEqual)?,
            "lt" => number(Order::Less)?,
            "lte" => number(Order::LessOrEqual)?,
            "between" => {
                let [low, high] = value.as_array()?.as_slice() else { return None };
                let (low, high) = (Given::from(low).number()?, Given::from(high).number()?);
                if low > high {
                    return None;
                }
                Self::Between(low, high)
            }
            "is_date_before" => instant(Order::Less)?,
            "is_date_after" => instant(Order::Greater)?,
            "is_date_exact" => instant(Order::Equal)?,
            other => Self::Version(Range::parse(other.strip_prefix("semver_")?, &Given::from(value).text())?),
        })
    }

    fn is_comparable(&self, now: DateTime<Utc>, slow: SlowSearches<'_>) -> bool {
        match self {
            Self::Instant(_, bound, zone) => bound.at(&Clock { zone: *zone, now }).is_some(),
            Self::Matches(patterns) => patterns.iter().all(|pattern| pattern.compiles(slow)),
            _ => true,
        }
    }

    /// None when the filter's value turns out to be nothing to compare with.
    fn holds(
        &self,
        given: Given<'_>,
        negated: bool,
        now: DateTime<Utc>,
        slow: SlowSearches<'_>,
    ) -> Option<bool> {
        let found = match self {
            Self::Present => true,
            Self::Truth(truth) => given.is_true() == *truth,
            Self::Equal { texts, lower: true } => texts.contains(in_lower_case(given.text()).as_ref()),
            Self::Equal { texts, lower: false } => texts.contains(given.text().as_ref()),
            Self::Contains(parts) => any_part(given, parts, |text, part| text.contains(part)),
            Self::Starts(parts) => any_part(given, parts, |text, part| text.starts_with(part)),
            Self::Ends(parts) => any_part(given, parts, |text, part| text.ends_with(part)),
            Self::Matches(patterns) => {
                let text = given.text();
                let mut found = false;
                for pattern in patterns {
                    found |= pattern.is_found_in(&text, slow)?;
                }
                found
            }
            // A property that is no number, date or version is a no, also to the negation.
            Self::Number(order, bound) => {
                return Some(given.number().is_some_and(|number| order.holds(number, *bound)));
            }
            Self::Between(low, high) => {
                let inside = |number| (*low..=*high).contains(&number) != negated;
                return Some(given.number().is_some_and(inside));
            }
            Self::Instant(order, bound, zone) => {
                let clock = Clock { zone: *zone, now };
                let bound = bound.at(&clock)?;
                return Some(clock.read_given(given).is_some_and(|instant| order.holds(instant, bound)));
            }
            Self::Version(range) => {
                let text = given.text();
                return Some(Version::parse(&text).is_some_and(|version| range.contains(&version)));
            }
        };
        Some(found != negated)
    }
}

fn any_part(given: Given<'_>, parts: &[String], found: fn(&str, &str) -> bool) -> bool {
    let text = given.text();
    let text = if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        text
    };
    parts.iter().any(|part| found(&text, part))
}

fn in_lower_case(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return text;
    }
    Cow::Owned(text.to_lowercase())
}

fn equal(value: &Value, values: &[Value], equality: Equality) -> Test {
    if equality == Equality::Loose && is_boolean(value) {
        return Test::Truth(values.iter().all(|value| Given::from(value).is_true()));
    }
    let lower = equality == Equality::Loose;
    let text = |value| match Given::from(value).text() {
        text if lower => in_lower_case(text).into_owned(),
        text => text.into_owned(),
    };
    Test::Equal { texts: values.iter().map(text).collect(), lower }
}

/// A boolean, the text of one, or a list of only such.
fn is_boolean(value: &Value) -> bool {
    match value {
        Value::Bool(_) => true,
        Value::String(text) => ["true", "false"].iter().any(|word| text.eq_ignore_ascii_case(word)),
        Value::Array(values) => {
            !values.is_empty() && values.iter().all(|value| !value.is_array() && is_boolean(value))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
