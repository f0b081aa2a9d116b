//! Operators: a property filter compiled into a predicate on one value. Calculations have tests of their own, which differ
//! (the table in the README of `pennon-filters`).
//!
//! Must stay true: a filter value that cannot be compared (an invalid pattern, a string as a number) matches nothing,
//! neither with the operator nor with its negation, whether the property is present or absent; a property value that
//! cannot be compared does not match.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use pennon_filters::operator::{ComparisonOperator, Operator};
use pennon_filters::semver::{RangeKind, Version, VersionRange};
use pennon_filters::text;
use serde_json::Value;

use super::{
    compiler::FlagCompiler,
    date_bound::{DateBound, EvaluationClock},
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
pub struct PropertyPredicate {
    test: CompiledOperator,
    /// Whether the result is inverted, and an absent property matches.
    negated: bool,
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
    Version(VersionRange),
}

impl PropertyPredicate {
    /// Compiles an operator and its value. `None`: nothing matches.
    pub fn new(operator: Operator, value: Option<&Value>, compiler: &FlagCompiler) -> Option<Self> {
        let value = match value {
            None if operator.needs_value() => return None,
            value => value.unwrap_or(&Value::Null),
        };
        let filter = FilterValue { value, compiler };
        let (test, negated) = match operator {
            Operator::Exact => (filter.equal(), false),
            Operator::IsNot => (filter.equal(), true),
            Operator::Icontains | Operator::IcontainsMulti => {
                (CompiledOperator::Contains(filter.parts()), false)
            }
            Operator::NotIcontains | Operator::NotIcontainsMulti => {
                (CompiledOperator::Contains(filter.parts()), true)
            }
            Operator::StartsWith => (CompiledOperator::Starts(filter.parts()), false),
            Operator::NotStartsWith => (CompiledOperator::Starts(filter.parts()), true),
            Operator::EndsWith => (CompiledOperator::Ends(filter.parts()), false),
            Operator::NotEndsWith => (CompiledOperator::Ends(filter.parts()), true),
            Operator::Regex => (filter.patterns(), false),
            Operator::NotRegex => (filter.patterns(), true),
            Operator::Gt => (filter.number(ComparisonOperator::Greater)?, false),
            Operator::Gte => (filter.number(ComparisonOperator::GreaterOrEqual)?, false),
            Operator::Lt => (filter.number(ComparisonOperator::Less)?, false),
            Operator::Lte => (filter.number(ComparisonOperator::LessOrEqual)?, false),
            Operator::Between => (filter.number_range()?, false),
            Operator::NotBetween => (filter.number_range()?, true),
            Operator::IsSet => (CompiledOperator::Present, false),
            Operator::IsNotSet => (CompiledOperator::Present, true),
            Operator::IsDateExact => (filter.instant(ComparisonOperator::Equal)?, false),
            Operator::IsDateBefore => (filter.instant(ComparisonOperator::Less)?, false),
            Operator::IsDateAfter => (filter.instant(ComparisonOperator::Greater)?, false),
            Operator::SemverEq => (filter.versions(RangeKind::Equal)?, false),
            // A range and no negation: a property that is no version does not match.
            Operator::SemverNeq => (filter.versions(RangeKind::NotEqual)?, false),
            Operator::SemverGt => (filter.versions(RangeKind::Greater)?, false),
            Operator::SemverGte => (filter.versions(RangeKind::GreaterOrEqual)?, false),
            Operator::SemverLt => (filter.versions(RangeKind::Less)?, false),
            Operator::SemverLte => (filter.versions(RangeKind::LessOrEqual)?, false),
            Operator::SemverTilde => (filter.versions(RangeKind::Tilde)?, false),
            Operator::SemverCaret => (filter.versions(RangeKind::Caret)?, false),
            Operator::SemverWildcard => (filter.versions(RangeKind::Wildcard)?, false),
            // They compare no property: `Leaf` compiles them.
            Operator::In | Operator::NotIn | Operator::FlagEvaluatesTo => return None,
            // Only calculations have these.
            Operator::Min | Operator::Max | Operator::IsCleanedPathExact => return None,
        };
        Some(Self { test, negated })
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
            None if self.test.is_comparable(now, slow) => Some(self.negated),
            None => None,
            Some(value) => self.test.holds(value, self.negated, now, slow),
        }
    }
}

/// The value of a property filter, with the context for compiling it.
#[derive(Clone, Copy)]
struct FilterValue<'a> {
    value: &'a Value,
    compiler: &'a FlagCompiler,
}

impl<'a> FilterValue<'a> {
    /// The values of a list, or the only one.
    fn values(self) -> &'a [Value] {
        match self.value {
            Value::Array(values) => values,
            other => std::slice::from_ref(other),
        }
    }

    fn texts(self) -> impl Iterator<Item = Cow<'a, str>> {
        self.values().iter().map(|value| ComparableValue::from(value).text())
    }

    fn equal(self) -> CompiledOperator {
        let is_loose = self.compiler.equality == Equality::Loose;
        if is_loose && is_boolean(self.value) {
            let is_true = |value: &Value| ComparableValue::from(value).is_true();
            return CompiledOperator::Boolean(self.values().iter().all(is_true));
        }
        let spelled = |text: Cow<'a, str>| if is_loose { to_lowercase(text) } else { text };
        CompiledOperator::Equal {
            texts: self.texts().map(|text| spelled(text).into_owned()).collect(),
            lower: is_loose,
        }
    }

    /// The texts in lower ASCII case.
    fn parts(self) -> Vec<String> {
        self.texts().map(|text| text.to_ascii_lowercase()).collect()
    }

    fn patterns(self) -> CompiledOperator {
        CompiledOperator::Matches(self.texts().map(|text| self.compiler.patterns.get(&text)).collect())
    }

    fn number(self, comparison: ComparisonOperator) -> Option<CompiledOperator> {
        let bound = ComparableValue::from(self.value).number()?;
        Some(CompiledOperator::Number(comparison, bound))
    }

    fn number_range(self) -> Option<CompiledOperator> {
        let [low, high] = self.value.as_array()?.as_slice() else { return None };
        let (low, high) = (ComparableValue::from(low).number()?, ComparableValue::from(high).number()?);
        if low > high {
            return None;
        }
        Some(CompiledOperator::Between(low, high))
    }

    fn instant(self, comparison: ComparisonOperator) -> Option<CompiledOperator> {
        let zone = self.compiler.zone;
        let bound = DateBound::parse(self.value.as_str()?, zone)?;
        Some(CompiledOperator::Instant(comparison, bound, zone))
    }

    fn versions(self, kind: RangeKind) -> Option<CompiledOperator> {
        VersionRange::parse(kind, &ComparableValue::from(self.value).text()).map(CompiledOperator::Version)
    }
}

impl CompiledOperator {
    fn is_comparable(&self, now: DateTime<Utc>, slow: SlowSearches<'_>) -> bool {
        match self {
            Self::Instant(_, bound, zone) => bound.at(&EvaluationClock { zone: *zone, now }).is_some(),
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
                let clock = EvaluationClock { zone: *zone, now };
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
