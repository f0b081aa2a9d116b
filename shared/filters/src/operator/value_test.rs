//! Compiles the operators of calculations to tests of one value. Flags have their own tests, which differ in places (README).
//!
//! Must stay true: filter value and property are compared in their text form; missing equals null; for a list of values,
//! positive operators need any of them to match, negative operators need all of them not to match.

use std::borrow::Cow;
use std::collections::HashSet;

use chrono::DateTime;
use chrono_tz::Tz;
use serde_json::Value;

use super::{ComparisonOperator, Operator};
use crate::compile_budget::CompileBudget;
use crate::dates::Micros;
use crate::dates::instants::{filter_second, property_micros, property_second};
use crate::dates::zone::{from_micros, utc_text};
use crate::error::{CalcError, CalcResult};
use crate::re2;
use crate::regex_bounds::BoundedRegex;
use crate::semver::{RangeKind, Version, VersionRange};
use crate::text::{number_of, text_length, text_of};
use crate::work_budget::WorkBudget;

/// A compiled operator with its values.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each variant is described as a whole")]
pub enum ValueTest {
    /// The same result for every value.
    Always(bool),
    /// The text is one of these. `negated` inverts the result, also for a missing value.
    OneOf { texts: HashSet<String>, negated: bool },
    /// The text contains this text, case-sensitive.
    ContainsCaseSensitive(String),
    /// The text in lower case contains one of these lower-case texts.
    ContainsIgnoreCase { needles: Vec<String>, negated: bool },
    /// One of the regular expressions matches.
    Regex { patterns: Vec<RegexPattern>, negated: bool },
    /// Compares with one of these bounds.
    Compared { order: ComparisonOperator, bounds: Vec<Bound> },
    /// A number inside (`negated`: outside) a closed interval.
    NumberRange { low: f64, high: f64, negated: bool },
    /// Present and not null; `negated`: missing or null.
    Presence { negated: bool },
    /// A version in one of these ranges; an invalid version is in none. `negated` inverts the result.
    Version { ranges: Vec<VersionRange>, negated: bool },
    /// Compares an instant, in microseconds, with one of these. Texts without an offset are in `zone`.
    InstantMicros { order: ComparisonOperator, bounds: Vec<Micros>, zone: Tz, negated: bool },
    /// An instant inside (`negated`: outside) a closed interval.
    InstantRange { low: Micros, high: Micros, zone: Tz, negated: bool },
    /// Compares an instant, in whole seconds, with one of these. Texts without an offset are in `zone`.
    InstantSeconds { order: ComparisonOperator, seconds: Vec<i64>, zone: Tz },
}

/// A regular expression, as text and compiled.
#[derive(Debug, Clone)]
pub struct RegexPattern {
    /// The pattern as sent.
    pub text: String,
    /// None if invalid; then nothing matches.
    pub regex: Option<BoundedRegex>,
}

/// A bound of a comparison: a number if the filter's value is a number or numeric string.
#[derive(Debug, Clone, PartialEq)]
pub enum Bound {
    /// Compared with values that are numbers.
    Number(f64),
    /// Compared with the texts of values.
    Text(String),
}

impl ValueTest {
    /// Compiles an operator and its value. Relative dates are relative to `now`, in its time zone.
    pub fn new(
        operator: Operator,
        value: &Value,
        now: DateTime<Tz>,
        budget: &mut CompileBudget,
        attr: &str,
    ) -> CalcResult<Self> {
        let values: &[Value] = match value {
            Value::Array(list) => list,
            other => std::slice::from_ref(other),
        };
        if operator.needs_value() && values.is_empty() {
            return Ok(Self::Always(true));
        }
        let instants = |order| Self::InstantSeconds {
            order,
            seconds: values.iter().filter_map(|value| filter_second(value, now)).collect(),
            zone: now.timezone(),
        };
        let ordered = |order| Self::Compared { order, bounds: values.iter().filter_map(bound).collect() };
        let texts = || values.iter().filter_map(text_of).map(Into::into);
        let lower = || values.iter().filter_map(text_of).map(|text| text.to_lowercase());
        let versions =
            |kind, negated| ranges(kind, values, attr).map(|ranges| Self::Version { ranges, negated });
        Ok(match operator {
            // Projects cannot define path cleaning rules, so the cleaned path is the path.
            Operator::Exact | Operator::In | Operator::IsCleanedPathExact => {
                Self::OneOf { texts: texts().collect(), negated: false }
            }
            Operator::IsNot | Operator::NotIn => Self::OneOf { texts: texts().collect(), negated: true },
            Operator::Icontains | Operator::IcontainsMulti => {
                Self::ContainsIgnoreCase { needles: lower().collect(), negated: false }
            }
            Operator::NotIcontains | Operator::NotIcontainsMulti => {
                Self::ContainsIgnoreCase { needles: lower().collect(), negated: true }
            }
            Operator::Regex => Self::Regex { patterns: patterns(values, budget, attr)?, negated: false },
            Operator::NotRegex => Self::Regex { patterns: patterns(values, budget, attr)?, negated: true },
            Operator::Gt => ordered(ComparisonOperator::Greater),
            Operator::Gte | Operator::Min => ordered(ComparisonOperator::GreaterOrEqual),
            Operator::Lt => ordered(ComparisonOperator::Less),
            Operator::Lte | Operator::Max => ordered(ComparisonOperator::LessOrEqual),
            Operator::Between | Operator::NotBetween => {
                let (low, high) = number_range(values, attr)?;
                Self::NumberRange { low, high, negated: operator == Operator::NotBetween }
            }
            Operator::IsSet => Self::Presence { negated: false },
            Operator::IsNotSet => Self::Presence { negated: true },
            Operator::IsDateExact => instants(ComparisonOperator::Equal),
            Operator::IsDateBefore => instants(ComparisonOperator::Less),
            Operator::IsDateAfter => instants(ComparisonOperator::Greater),
            Operator::SemverEq => versions(RangeKind::Equal, false)?,
            Operator::SemverNeq => versions(RangeKind::Equal, true)?,
            Operator::SemverGt => versions(RangeKind::Greater, false)?,
            Operator::SemverGte => versions(RangeKind::GreaterOrEqual, false)?,
            Operator::SemverLt => versions(RangeKind::Less, false)?,
            Operator::SemverLte => versions(RangeKind::LessOrEqual, false)?,
            Operator::SemverTilde => versions(RangeKind::Tilde, false)?,
            Operator::SemverCaret => versions(RangeKind::Caret, false)?,
            Operator::SemverWildcard => versions(RangeKind::Wildcard, false)?,
            Operator::StartsWith
            | Operator::NotStartsWith
            | Operator::EndsWith
            | Operator::NotEndsWith
            | Operator::FlagEvaluatesTo => {
                return Err(CalcError::unsupported(attr, format!("the operator {}", operator.name())));
            }
        })
    }

    /// Compiles an operator on a value that is always an instant: instants are compared, not texts. Text operators such as
    /// `icontains` test the text of the instant.
    pub fn of_instants(
        operator: Operator,
        value: &Value,
        now: DateTime<Tz>,
        budget: &mut CompileBudget,
        attr: &str,
    ) -> CalcResult<Self> {
        let zone = now.timezone();
        let values = match value {
            Value::Array(list) => list.as_slice(),
            other => std::slice::from_ref(other),
        };
        let (order, negated) = match operator {
            Operator::Exact | Operator::In => (ComparisonOperator::Equal, false),
            Operator::IsNot | Operator::NotIn => (ComparisonOperator::Equal, true),
            Operator::Gt => (ComparisonOperator::Greater, false),
            Operator::Gte | Operator::Min => (ComparisonOperator::GreaterOrEqual, false),
            Operator::Lt => (ComparisonOperator::Less, false),
            Operator::Lte | Operator::Max => (ComparisonOperator::LessOrEqual, false),
            Operator::Between | Operator::NotBetween => {
                (ComparisonOperator::Equal, operator == Operator::NotBetween)
            }
            _ => return Self::new(operator, value, now, budget, attr),
        };
        let bound = |value: &Value| {
            let micros = property_micros(value, zone);
            micros.ok_or_else(|| CalcError::invalid(attr, format!("{value} is not a date with a time.")))
        };
        let bounds = values.iter().map(bound).collect::<CalcResult<Vec<_>>>()?;
        match (operator, bounds.as_slice()) {
            (_, []) => Ok(Self::Always(true)),
            (Operator::Between | Operator::NotBetween, [low, high]) if low <= high => {
                Ok(Self::InstantRange { low: *low, high: *high, zone, negated })
            }
            (Operator::Between | Operator::NotBetween, _) => {
                Err(CalcError::invalid(attr, "between needs two dates, the earlier one first."))
            }
            _ => Ok(Self::InstantMicros { order, bounds, zone, negated }),
        }
    }

    /// Consumes the work and tests a value. `None` is a missing value.
    pub fn matches_within_budget(&self, value: Option<&Value>, work: &WorkBudget<'_>) -> CalcResult<bool> {
        self.consume_budget(value.map_or(0, text_length), work)?;
        match self {
            Self::Regex { patterns, negated } if patterns.len() > 1 => {
                is_any_found(patterns, *negated, value, work)
            }
            _ => Ok(self.holds(value)),
        }
    }

    /// Consumes the work of testing a value of `bytes` bytes.
    pub fn consume_budget(&self, bytes: usize, work: &WorkBudget<'_>) -> CalcResult<()> {
        work.consume_comparisons(self.comparisons(), bytes)?;
        if let Self::Regex { patterns, .. } = self {
            for regex in patterns.iter().filter_map(|pattern| pattern.regex.as_ref()) {
                regex.consume_budget(bytes, work)?;
            }
        }
        Ok(())
    }

    /// Number of comparisons per value.
    pub fn comparisons(&self) -> usize {
        match self {
            Self::Always(_) | Self::Presence { .. } | Self::OneOf { .. } | Self::ContainsCaseSensitive(_) => {
                1
            }
            Self::NumberRange { .. } | Self::InstantRange { .. } => 1,
            Self::ContainsIgnoreCase { needles, .. } => needles.len(),
            Self::Regex { patterns, .. } => patterns.len(),
            Self::Compared { bounds, .. } => bounds.len(),
            Self::Version { ranges, .. } => ranges.len(),
            Self::InstantMicros { bounds, .. } => bounds.len(),
            Self::InstantSeconds { seconds, .. } => seconds.len(),
        }
    }

    /// Whether a value passes. `None` is a missing value.
    pub fn holds(&self, value: Option<&Value>) -> bool {
        let value = value.filter(|value| !value.is_null());
        match self {
            Self::Always(passes) => *passes,
            Self::Presence { negated } => value.is_some() != *negated,
            Self::OneOf { texts, negated } => {
                value.and_then(text_of).is_some_and(|text| texts.contains(text.as_ref())) != *negated
            }
            Self::ContainsCaseSensitive(part) => {
                value.and_then(text_of).is_some_and(|text| text.contains(part))
            }
            Self::ContainsIgnoreCase { needles, negated } => {
                let found = value.and_then(text_of).is_some_and(|text| {
                    let text = text.to_lowercase();
                    needles.iter().any(|needle| text.contains(needle))
                });
                found != *negated
            }
            Self::Regex { patterns, negated } => {
                // An invalid pattern passes nothing, negated or not.
                if *negated && patterns.iter().any(|pattern| pattern.regex.is_none()) {
                    return false;
                }
                let found = value.and_then(text_of).is_some_and(|text| {
                    patterns.iter().filter_map(|it| it.regex.as_ref()).any(|regex| regex.is_match(&text))
                });
                found != *negated
            }
            Self::Compared { order, bounds } => value.is_some_and(|value| {
                bounds.iter().any(|bound| match bound {
                    Bound::Number(number) => {
                        number_of(value).is_some_and(|value| order.holds(&value, number))
                    }
                    Bound::Text(text) => {
                        text_of(value).is_some_and(|value| order.holds(value.as_ref(), text.as_str()))
                    }
                })
            }),
            Self::NumberRange { low, high, negated } => {
                value.and_then(number_of).is_some_and(|number| (*low..=*high).contains(&number) != *negated)
            }
            Self::Version { ranges, negated } => {
                let text = value.and_then(text_of);
                let version = text.as_deref().and_then(Version::parse);
                let within = |version| ranges.iter().any(|range| range.contains(&version));
                version.is_some_and(within) != *negated
            }
            Self::InstantMicros { order, bounds, zone, negated } => {
                let at = value.and_then(|value| property_micros(value, *zone));
                at.is_some_and(|at| bounds.iter().any(|bound| order.holds(&at, bound))) != *negated
            }
            Self::InstantRange { low, high, zone, negated } => value
                .and_then(|value| property_micros(value, *zone))
                .is_some_and(|at| (*low..=*high).contains(&at) != *negated),
            Self::InstantSeconds { order, seconds, zone } => value
                .and_then(|value| property_second(value, *zone))
                .is_some_and(|second| seconds.iter().any(|bound| order.holds(&second, bound))),
        }
    }
}

/// As [`ValueTest::holds`] of several patterns, with a check for cancellation after each slow search.
fn is_any_found(
    patterns: &[RegexPattern],
    negated: bool,
    value: Option<&Value>,
    work: &WorkBudget<'_>,
) -> CalcResult<bool> {
    // An invalid pattern passes nothing, negated or not.
    if negated && patterns.iter().any(|pattern| pattern.regex.is_none()) {
        return Ok(false);
    }
    let Some(text) = value.filter(|value| !value.is_null()).and_then(text_of) else { return Ok(negated) };
    for regex in patterns.iter().filter_map(|pattern| pattern.regex.as_ref()) {
        if regex.is_match(&text) {
            return Ok(!negated);
        }
        if regex.is_slow(text.len()) {
            work.check()?;
        }
    }
    Ok(negated)
}

impl ValueTest {
    /// Whether an event time passes: date tests compare instants, all others the text of the instant.
    pub fn matches_time(&self, time: Micros) -> bool {
        match self {
            Self::InstantMicros { order, bounds, negated, .. } => {
                bounds.iter().any(|bound| order.holds(&time, bound)) != *negated
            }
            Self::InstantRange { low, high, negated, .. } => (*low..=*high).contains(&time) != *negated,
            Self::InstantSeconds { order, seconds, .. } => {
                let second = time.div_euclid(1_000_000);
                seconds.iter().any(|bound| order.holds(&second, bound))
            }
            test => test.holds(Some(&Value::String(utc_text(&from_micros(time, chrono_tz::UTC))))),
        }
    }
}

fn bound(value: &Value) -> Option<Bound> {
    match number_of(value) {
        Some(number) => Some(Bound::Number(number)),
        None => text_of(value).map(|text| Bound::Text(text.into())),
    }
}

fn number_range(values: &[Value], attr: &str) -> CalcResult<(f64, f64)> {
    let numbers: Option<Vec<f64>> = values.iter().map(number_of).collect();
    match numbers.as_deref() {
        Some([low, high]) if low <= high => Ok((*low, *high)),
        _ => Err(CalcError::invalid(attr, "between needs two numbers, the smaller one first.")),
    }
}

fn ranges(kind: RangeKind, values: &[Value], attr: &str) -> CalcResult<Vec<VersionRange>> {
    let range = |value: &Value| {
        let range = text_of(value).and_then(|text| VersionRange::parse(kind, &text));
        range.ok_or_else(|| CalcError::invalid(attr, format!("{value} is not a version.")))
    };
    values.iter().map(range).collect()
}

fn patterns(values: &[Value], budget: &mut CompileBudget, attr: &str) -> CalcResult<Vec<RegexPattern>> {
    let pattern = |text: Cow<'_, str>| {
        Ok(RegexPattern { regex: re2::compile(&text, budget, attr)?, text: text.into_owned() })
    };
    values.iter().filter_map(text_of).map(pattern).collect()
}
