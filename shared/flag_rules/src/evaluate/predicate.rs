//! Operators: a property filter compiled into a predicate on one value.
//!
//! Must stay true: a filter value that cannot be compared (an invalid pattern, a string as a number) matches nothing,
//! neither with the operator nor with its negation, whether the property is present or absent; a property value that
//! cannot be compared does not match.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use pennon_filters::operator::ComparisonOperator;
use pennon_filters::semver::{Range, Version};
use pennon_filters::text;
use serde_json::Value;

use super::{
    compiler::Compiler,
    date_bound::{Clock, DateBound},
    patterns::Pattern,
    slow_searches::SlowSearches,
};

/// A property value.
#[derive(Debug, Clone, Copy)]
pub enum ComparableValue<'a> {
    /// A text.
    Text(&'a str),
    /// Anything else.
    Json(&'a Value),
}

impl<'a> From<&'a Value> for ComparableValue<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text),
            other => Self::Json(other),
        }
    }
}

impl<'a> ComparableValue<'a> {
    /// The string form: strings as they are, anything else as JSON.
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

/// The equality rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Equality {
    /// The rule of flags: case-insensitive, and booleans by their truth.
    Loose,
    /// By string form.
    Text,
}

/// A compiled property filter.
#[derive(Debug, Clone)]
pub struct Predicate {
    test: CompiledOperator,
    /// Whether the result is inverted.
    negated: bool,
    /// The result for an absent property.
    matches_absent: bool,
}

#[derive(Debug, Clone)]
enum CompiledOperator {
    Present,
    Boolean(bool),
    /// Equals one of these strings, in lower case if `lower`.
    Equal {
        texts: HashSet<String>,
        lower: bool,
    },
    /// Contains one of these, which are in lower ASCII case; likewise below.
    Contains(Vec<String>),
    Starts(Vec<String>),
    Ends(Vec<String>),
    Matches(Vec<Arc<Pattern>>),
    Number(ComparisonOperator, f64),
    Between(f64, f64),
    Instant(ComparisonOperator, DateBound, Tz),
    Version(Range),
}

impl Predicate {
    /// Compiles an operator and its value. `None`: nothing matches.
    pub fn new(operator: &str, value: Option<&Value>, compiler: &Compiler) -> Option<Self> {
        // A negation matches an absent property.
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
            "is_set" => CompiledOperator::Present,
            other => CompiledOperator::new(other, value?, compiler)?,
        };
        Some(Self { test, negated, matches_absent: negated })
    }

    /// Whether a property matches at the instant `now`. `value` is `None` for an absent property; the result is `None`
    /// when the filter value cannot be compared.
    pub fn holds(
        &self,
        value: Option<ComparableValue<'_>>,
        now: DateTime<Utc>,
        slow: SlowSearches<'_>,
    ) -> Option<bool> {
        match value {
            None if self.test.is_comparable(now, slow) => Some(self.matches_absent),
            None => None,
            Some(value) => self.test.holds(value, self.negated, now, slow),
        }
    }
}

impl CompiledOperator {
    fn new(operator: &str, value: &Value, compiler: &Compiler) -> Option<Self> {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            other => std::slice::from_ref(other),
        };
        let texts = || values.iter().map(|value| ComparableValue::from(value).text());
        let lower = || texts().map(|text| text.to_ascii_lowercase()).collect();
        let number =
            |comparison| ComparableValue::from(value).number().map(|bound| Self::Number(comparison, bound));
        let instant = |comparison| {
            let bound = DateBound::parse(value.as_str()?, compiler.zone)?;
            Some(Self::Instant(comparison, bound, compiler.zone))
        };
        Some(match operator {
            "exact" => equal(value, values, compiler.equality),
            "icontains" | "icontains_multi" => Self::Contains(lower()),
            "starts_with" => Self::Starts(lower()),
            "ends_with" => Self::Ends(lower()),
            "regex" => Self::Matches(texts().map(|text| compiler.patterns.get(&text)).collect()),
            "gt" => number(ComparisonOperator::Greater)?,
            "gte" => number(ComparisonOperator::GreaterOrEqual)?,
            "lt" => number(ComparisonOperator::Less)?,
            "lte" => number(ComparisonOperator::LessOrEqual)?,
            "between" => {
                let [low, high] = value.as_array()?.as_slice() else { return None };
                let (low, high) =
                    (ComparableValue::from(low).number()?, ComparableValue::from(high).number()?);
                if low > high {
                    return None;
                }
                Self::Between(low, high)
            }
            "is_date_before" => instant(ComparisonOperator::Less)?,
            "is_date_after" => instant(ComparisonOperator::Greater)?,
            "is_date_exact" => instant(ComparisonOperator::Equal)?,
            other => Self::Version(Range::parse(
                other.strip_prefix("semver_")?,
                &ComparableValue::from(value).text(),
            )?),
        })
    }

    fn is_comparable(&self, now: DateTime<Utc>, slow: SlowSearches<'_>) -> bool {
        match self {
            Self::Instant(_, bound, zone) => bound.at(&Clock { zone: *zone, now }).is_some(),
            Self::Matches(patterns) => patterns.iter().all(|pattern| pattern.compiles(slow)),
            _ => true,
        }
    }

    /// `None` when the filter value cannot be compared.
    fn holds(
        &self,
        value: ComparableValue<'_>,
        negated: bool,
        now: DateTime<Utc>,
        slow: SlowSearches<'_>,
    ) -> Option<bool> {
        let found = match self {
            Self::Present => true,
            Self::Boolean(truth) => value.is_true() == *truth,
            Self::Equal { texts, lower: true } => texts.contains(to_lowercase(value.text()).as_ref()),
            Self::Equal { texts, lower: false } => texts.contains(value.text().as_ref()),
            Self::Contains(parts) => any_part(value, parts, |text, part| text.contains(part)),
            Self::Starts(parts) => any_part(value, parts, |text, part| text.starts_with(part)),
            Self::Ends(parts) => any_part(value, parts, |text, part| text.ends_with(part)),
            Self::Matches(patterns) => {
                let text = value.text();
                let mut found = false;
                for pattern in patterns {
                    found |= pattern.is_found_in(&text, slow)?;
                }
                found
            }
            // A property that is no number, date or version matches neither the operator nor its negation.
            Self::Number(comparison, bound) => {
                return Some(value.number().is_some_and(|number| comparison.holds(&number, bound)));
            }
            Self::Between(low, high) => {
                let inside = |number| (*low..=*high).contains(&number) != negated;
                return Some(value.number().is_some_and(inside));
            }
            Self::Instant(comparison, bound, zone) => {
                let clock = Clock { zone: *zone, now };
                let bound = bound.at(&clock)?;
                return Some(
                    clock.parse_property(value).is_some_and(|instant| comparison.holds(&instant, &bound)),
                );
            }
            Self::Version(range) => {
                let text = value.text();
                return Some(Version::parse(&text).is_some_and(|version| range.contains(&version)));
            }
        };
        Some(found != negated)
    }
}

fn any_part(value: ComparableValue<'_>, parts: &[String], found: fn(&str, &str) -> bool) -> bool {
    let text = value.text();
    let text = if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        text
    };
    parts.iter().any(|part| found(&text, part))
}

fn to_lowercase(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return text;
    }
    Cow::Owned(text.to_lowercase())
}

fn equal(value: &Value, values: &[Value], equality: Equality) -> CompiledOperator {
    if equality == Equality::Loose && is_boolean(value) {
        return CompiledOperator::Boolean(values.iter().all(|value| ComparableValue::from(value).is_true()));
    }
    let lower = equality == Equality::Loose;
    let text = |value| match ComparableValue::from(value).text() {
        text if lower => to_lowercase(text).into_owned(),
        text => text.into_owned(),
    };
    CompiledOperator::Equal { texts: values.iter().map(text).collect(), lower }
}

/// A boolean, its string form, or a list of only such.
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
