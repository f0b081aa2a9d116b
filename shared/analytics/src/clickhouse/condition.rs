//! Translates filters to conditions on the columns of `events`.
//!
//! Must stay true: a condition is 0 or 1 and never null, so that it can be negated; a filter that needs more than the event
//! (persons, groups, sessions, cohorts, elements) is an error that names it.

use pennon_filters::error::CalcResult;
use pennon_filters::operator::{Bound, ComparisonOperator, ValueTest};

use super::{quote, unsupported};
use crate::filter::Predicate;
use crate::scan::{ColumnKey, ColumnRef, JoinedColumnKey, Micros};

/// The distinct values of events that a statement reads: as texts in columns `k0`, `k1`, ..., as numbers in `n0`, `n1`, ...
#[derive(Debug, Default)]
pub(crate) struct SelectedColumns {
    keys: Vec<ColumnKey>,
    texts: Vec<bool>,
    numbers: Vec<bool>,
}

/// Prefix of the keys of groups.
const GROUP_PREFIX: &str = "$group_";

impl SelectedColumns {
    /// Index, key, whether read as text, whether read as number.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (usize, &ColumnKey, bool, bool)> {
        let forms = self.texts.iter().zip(&self.numbers);
        self.keys.iter().zip(forms).enumerate().map(|(at, (key, (text, number)))| (at, key, *text, *number))
    }

    /// The column with the texts of a key.
    pub(crate) fn text(&mut self, key: &ColumnKey) -> CalcResult<String> {
        let at = self.column_index(key)?;
        self.texts[at] = true;
        Ok(format!("k{at}"))
    }

    /// The column with the numbers of a key.
    pub(crate) fn number(&mut self, key: &ColumnKey) -> CalcResult<String> {
        let at = self.column_index(key)?;
        self.numbers[at] = true;
        Ok(format!("n{at}"))
    }

    fn column_index(&mut self, key: &ColumnKey) -> CalcResult<usize> {
        match key {
            ColumnKey::Property(key) if key.starts_with(GROUP_PREFIX) => {
                return Err(unsupported(&format!("{key}, the group of an event")));
            }
            ColumnKey::AllProperties => return Err(unsupported("all properties of an event at once")),
            _ => {}
        }
        Ok(self.keys.iter().position(|known| known == key).unwrap_or_else(|| {
            self.keys.push(key.clone());
            self.texts.push(false);
            self.numbers.push(false);
            self.keys.len() - 1
        }))
    }

    /// The condition for a predicate.
    pub(crate) fn condition(&mut self, predicate: &Predicate) -> CalcResult<String> {
        match predicate {
            Predicate::All(members) => {
                let members =
                    members.iter().map(|member| self.condition(member)).collect::<CalcResult<Vec<_>>>()?;
                Ok(quote::all(members.into_iter()))
            }
            Predicate::Any(members) => {
                let members =
                    members.iter().map(|member| self.condition(member)).collect::<CalcResult<Vec<_>>>()?;
                Ok(quote::any(members))
            }
            Predicate::Column(ColumnRef::Event(key), test) => {
                self.column_index(key)?;
                test_condition(&mut TestedValue::Field(self, key), test)
            }
            Predicate::Column(ColumnRef::Joined(key), _) => {
                Err(unsupported(&format!("a filter on {}", describe(key))))
            }
            Predicate::EventName(test) => test_condition(&mut TestedValue::Name, test),
            Predicate::Time(test) => time_test(test),
            Predicate::Elements(_) => Err(unsupported("a filter on the elements of autocaptured events")),
            Predicate::Expression(_) => Err(unsupported("an SQL expression of its own")),
        }
    }
}

/// The name of a joined column in error texts.
fn describe(key: &JoinedColumnKey) -> String {
    match key {
        JoinedColumnKey::PersonId | JoinedColumnKey::HasDistinctId(_) => "who the person is".to_owned(),
        JoinedColumnKey::Person(key) => format!("the person's property {key}"),
        JoinedColumnKey::PersonProperties => "the person's properties".to_owned(),
        JoinedColumnKey::GroupProperties(_) => "the group's properties".to_owned(),
        JoinedColumnKey::Group(_, key) => format!("the group's property {key}"),
        JoinedColumnKey::Session(key) => format!("the session's {key}"),
        JoinedColumnKey::InCohort(cohort) => format!("cohort {cohort}"),
        JoinedColumnKey::TimeBounds => "instants of another actor".to_owned(),
    }
}

/// The value that is tested.
enum TestedValue<'a> {
    Field(&'a mut SelectedColumns, &'a ColumnKey),
    Name,
}

impl TestedValue<'_> {
    fn text(&mut self) -> CalcResult<String> {
        match self {
            Self::Field(fields, key) => fields.text(key),
            Self::Name => Ok("name".to_owned()),
        }
    }

    fn number(&mut self) -> CalcResult<String> {
        match self {
            Self::Field(fields, key) => fields.number(key),
            Self::Name => Err(unsupported("the name of an event compared with a number")),
        }
    }
}

fn test_condition(subject: &mut TestedValue<'_>, test: &ValueTest) -> CalcResult<String> {
    Ok(match test {
        ValueTest::Always(passes) => constant(*passes),
        ValueTest::Presence { negated } => {
            let text = subject.text()?;
            if *negated { format!("{text} IS NULL") } else { format!("{text} IS NOT NULL") }
        }
        ValueTest::OneOf { texts, negated } => {
            let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            texts.sort_unstable();
            let found = match texts.is_empty() {
                true => constant(false),
                false => false_if_null(&format!("{} IN ({})", subject.text()?, quote::texts(texts))),
            };
            negate_if(*negated, found)
        }
        ValueTest::ContainsCaseSensitive(part) => {
            false_if_null(&format!("position({}, {}) > 0", subject.text()?, quote::text(part)))
        }
        ValueTest::ContainsIgnoreCase { needles, negated } => {
            let text = subject.text()?;
            let found = needles.iter().map(|needle| {
                false_if_null(&format!("position(lowerUTF8({text}), {}) > 0", quote::text(needle)))
            });
            negate_if(*negated, quote::any(found.collect()))
        }
        ValueTest::Regex { patterns, negated } => {
            // An invalid pattern passes nothing, negated or not.
            if *negated && patterns.iter().any(|pattern| pattern.regex.is_none()) {
                return Ok(constant(false));
            }
            let text = subject.text()?;
            let valid = patterns.iter().filter(|pattern| pattern.regex.is_some());
            // In ClickHouse a dot matches line ends too, unless `(?-s)` is set.
            let found = valid.map(|pattern| {
                false_if_null(&format!("match({text}, {})", quote::text(&format!("(?-s){}", pattern.text))))
            });
            negate_if(*negated, quote::any(found.collect()))
        }
        ValueTest::Compared { order, bounds } => {
            let sign = sign(*order);
            let each = bounds.iter().map(|bound| {
                Ok(false_if_null(&match bound {
                    Bound::Number(number) => {
                        format!("{} {sign} {}", subject.number()?, quote::float(*number))
                    }
                    Bound::Text(text) => format!("{} {sign} {}", subject.text()?, quote::text(text)),
                }))
            });
            quote::any(each.collect::<CalcResult<Vec<_>>>()?)
        }
        ValueTest::NumberRange { low, high, negated } => {
            let (number, low, high) = (subject.number()?, quote::float(*low), quote::float(*high));
            let not = if *negated { "NOT " } else { "" };
            false_if_null(&format!("{number} {not}BETWEEN {low} AND {high}"))
        }
        ValueTest::Version { .. } => return Err(unsupported("a comparison of versions")),
        ValueTest::InstantMicros { .. }
        | ValueTest::InstantRange { .. }
        | ValueTest::InstantSeconds { .. } => {
            return Err(unsupported("a property compared as a date"));
        }
    })
}

/// A test of the event's time.
fn time_test(test: &ValueTest) -> CalcResult<String> {
    Ok(match test {
        ValueTest::Always(passes) => constant(*passes),
        ValueTest::Presence { negated } => constant(!negated),
        ValueTest::InstantMicros { order, bounds, negated, .. } => {
            let sign = sign(*order);
            let each = bounds.iter().map(|bound: &Micros| format!("t {sign} {bound}"));
            negate_if(*negated, quote::any(each.collect()))
        }
        ValueTest::InstantRange { low, high, negated, .. } => {
            negate_if(*negated, format!("t BETWEEN {low} AND {high}"))
        }
        ValueTest::InstantSeconds { order, seconds, .. } => {
            let sign = sign(*order);
            let each = seconds
                .iter()
                .map(|second| format!("intDiv(t - positiveModulo(t, 1000000), 1000000) {sign} {second}"));
            quote::any(each.collect())
        }
        _ => return Err(unsupported("a part of the text of an event's time")),
    })
}

fn sign(order: ComparisonOperator) -> &'static str {
    match order {
        ComparisonOperator::Less => "<",
        ComparisonOperator::LessOrEqual => "<=",
        ComparisonOperator::Greater => ">",
        ComparisonOperator::GreaterOrEqual => ">=",
        ComparisonOperator::Equal => "=",
    }
}

fn constant(value: bool) -> String {
    if value { quote::TRUE } else { quote::FALSE }.to_owned()
}

/// Replaces null by false.
fn false_if_null(condition: &str) -> String {
    format!("ifNull({condition}, 0)")
}

fn negate_if(negated: bool, condition: String) -> String {
    match (negated, condition.as_str()) {
        (false, _) => condition,
        (true, quote::TRUE) => constant(false),
        (true, quote::FALSE) => constant(true),
        (true, _) => format!("NOT ({condition})"),
    }
}
