//! Aggregate functions over events.
//!
//! Must stay true: the states of several partitions can be merged in any order; the result for no events is 0, whatever
//! the expression.

use std::collections::HashSet;

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};

use super::evaluate::RowValues;
use super::node::Node;
use super::value::Value;
use crate::interpolate::interpolate;
use crate::scan::{EventRun, Micros, Seq};

/// An aggregate function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AggregateFunction {
    Count,
    Uniq,
    Sum,
    Avg,
    Min,
    Max,
    Median,
    Quantile,
    Any,
    SumIf,
    CountIf,
    AvgIf,
}

const AGGREGATE_FUNCTIONS: [(&str, AggregateFunction); 12] = [
    ("count", AggregateFunction::Count),
    ("uniq", AggregateFunction::Uniq),
    ("sum", AggregateFunction::Sum),
    ("avg", AggregateFunction::Avg),
    ("min", AggregateFunction::Min),
    ("max", AggregateFunction::Max),
    ("median", AggregateFunction::Median),
    ("quantile", AggregateFunction::Quantile),
    ("any", AggregateFunction::Any),
    ("sumIf", AggregateFunction::SumIf),
    ("countIf", AggregateFunction::CountIf),
    ("avgIf", AggregateFunction::AvgIf),
];

impl AggregateFunction {
    /// The aggregate of a name, in any case.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        AGGREGATE_FUNCTIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, kind)| *kind)
    }

    /// The name as it is documented.
    pub(crate) fn name(self) -> &'static str {
        AGGREGATE_FUNCTIONS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| *name)
    }

    /// True for aggregates over numbers.
    pub(crate) fn is_numeric(self) -> bool {
        !matches!(self, Self::Count | Self::Uniq | Self::CountIf)
    }
}

/// A call of an aggregate function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AggregateCall {
    operation: Operation,
    /// The argument; none to count events.
    of: Option<Node>,
    /// The condition of `sumIf`, `countIf` and `avgIf`.
    when: Option<Node>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operation {
    Count,
    Distinct,
    Sum,
    Average,
    Min,
    Max,
    Quantile(f64),
    First,
}

impl AggregateCall {
    /// Validates the arguments of a call.
    pub(super) fn new(
        kind: AggregateFunction,
        level: Option<f64>,
        distinct: bool,
        arguments: Vec<Node>,
    ) -> Result<Self, String> {
        let name = kind.name();
        if distinct && kind != AggregateFunction::Count {
            return Err(format!("SQL expressions do not support distinct in {name}()."));
        }
        if level.is_some() && kind != AggregateFunction::Quantile {
            return Err(format!("SQL expressions do not support parameters of {name}()."));
        }
        let count = arguments.len();
        let mut arguments = arguments.into_iter();
        let (of, when) = match (kind, count) {
            (AggregateFunction::Count, 0) if !distinct => (None, None),
            (AggregateFunction::CountIf, 1) => (None, arguments.next()),
            (AggregateFunction::SumIf | AggregateFunction::AvgIf, 2) => (arguments.next(), arguments.next()),
            (AggregateFunction::SumIf | AggregateFunction::AvgIf | AggregateFunction::CountIf, _) => {
                return Err(format!("{name}() does not take {count} arguments."));
            }
            (_, 1) => (arguments.next(), None),
            _ => return Err(format!("{name}() does not take {count} arguments.")),
        };
        let operation = match kind {
            AggregateFunction::Count if distinct => Operation::Distinct,
            AggregateFunction::Count | AggregateFunction::CountIf => Operation::Count,
            AggregateFunction::Uniq => Operation::Distinct,
            AggregateFunction::Sum | AggregateFunction::SumIf => Operation::Sum,
            AggregateFunction::Avg | AggregateFunction::AvgIf => Operation::Average,
            AggregateFunction::Min => Operation::Min,
            AggregateFunction::Max => Operation::Max,
            AggregateFunction::Median => Operation::Quantile(0.5),
            AggregateFunction::Quantile => Operation::Quantile(level.unwrap_or(0.5)),
            AggregateFunction::Any => Operation::First,
        };
        match operation {
            Operation::Quantile(level) if !(0.0..=1.0).contains(&level) => {
                Err(format!("The level of {name}() must be a number from 0 to 1."))
            }
            operation => Ok(Self { operation, of, when }),
        }
    }

    /// The argument and the condition.
    pub(super) fn nodes(&self) -> (Option<&Node>, Option<&Node>) {
        (self.of.as_ref(), self.when.as_ref())
    }

    /// An empty accumulator.
    pub(super) fn accumulator(&self) -> FunctionState {
        match self.operation {
            Operation::Count => FunctionState::Count(0),
            Operation::Distinct => FunctionState::Distinct(HashSet::new()),
            Operation::Sum | Operation::Average => FunctionState::Sum { sum: 0.0, rest: 0.0, count: 0 },
            Operation::Min => FunctionState::Min(None),
            Operation::Max => FunctionState::Max(None),
            Operation::Quantile(_) => FunctionState::Numbers(Vec::new()),
            Operation::First => FunctionState::First(None),
        }
    }

    /// Prepares the evaluated rows of a run as input for accumulators.
    pub(super) fn input(
        &self,
        of: Option<RowValues>,
        when: Option<RowValues>,
        zone: chrono_tz::Tz,
        work: &WorkBudget<'_>,
    ) -> CalcResult<AggregateInput> {
        for value in of.iter().flat_map(|rows| &rows.values) {
            work.consume(value.bytes())?;
        }
        let of = of.map(|rows| {
            let numbers = rows.values.iter().map(Value::number).collect();
            let texts = match self.operation {
                Operation::Distinct => {
                    rows.values.iter().map(|value| value.text(zone).map(Into::into)).collect()
                }
                _ => Vec::new(),
            };
            Argument { numbers, texts, rows }
        });
        let when = when.map(|rows| {
            let holds: Vec<bool> = rows.values.iter().map(|value| value.truth() == Some(true)).collect();
            rows.codes.iter().map(|code| holds.get(*code as usize).copied().unwrap_or(false)).collect()
        });
        Ok(AggregateInput { of, when })
    }

    /// The result of an accumulator; missing if nothing was aggregated.
    pub(super) fn result(&self, accumulator: &FunctionState) -> Value {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let whole = |count: u64| Value::Number(count as f64);
        match accumulator {
            FunctionState::Count(count) => whole(*count),
            FunctionState::Distinct(seen) => whole(u64::try_from(seen.len()).unwrap_or(u64::MAX)),
            FunctionState::Sum { count: 0, .. } => Value::Missing,
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
            FunctionState::Sum { sum, rest, count } => Value::number_of(match self.operation {
                Operation::Average => (sum + rest) / *count as f64,
                _ => sum + rest,
            }),
            FunctionState::Min(number) | FunctionState::Max(number) => {
                number.map_or(Value::Missing, Value::Number)
            }
            FunctionState::Numbers(numbers) => match self.operation {
                Operation::Quantile(level) => quantile(numbers, level).map_or(Value::Missing, Value::Number),
                _ => Value::Missing,
            },
            FunctionState::First(first) => {
                first.as_ref().map_or(Value::Missing, |(_, _, value)| value.clone())
            }
        }
    }
}

/// The evaluated input of one aggregate.
#[derive(Debug)]
pub(super) struct AggregateInput {
    of: Option<Argument>,
    when: Option<Vec<bool>>,
}

#[derive(Debug)]
struct Argument {
    rows: RowValues,
    numbers: Vec<Option<f64>>,
    /// Only filled for distinct counts.
    texts: Vec<Option<Box<str>>>,
}

/// The mergeable state of one aggregate function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum FunctionState {
    Count(u64),
    Distinct(HashSet<Box<str>>),
    /// A compensated sum: `rest` is the accumulated rounding error.
    Sum {
        sum: f64,
        rest: f64,
        count: u64,
    },
    Min(Option<f64>),
    Max(Option<f64>),
    Numbers(Vec<f64>),
    /// The value of the earliest event that has one.
    First(Option<(Micros, Seq, Value)>),
}

impl FunctionState {
    /// Approximate memory in bytes. Texts count with their table entry only, which is as large as most texts.
    pub(super) fn weight(&self) -> usize {
        64 + match self {
            Self::Distinct(seen) => 48 * seen.len(),
            Self::Numbers(numbers) => 8 * numbers.len(),
            Self::Count(_) | Self::Sum { .. } | Self::Min(_) | Self::Max(_) | Self::First(_) => 0,
        }
    }

    /// Adds a row.
    pub(super) fn add(&mut self, input: &AggregateInput, run: &EventRun, row: usize) {
        if input.when.as_ref().is_some_and(|when| !when.get(row).copied().unwrap_or(false)) {
            return;
        }
        let Some(argument) = &input.of else {
            if let Self::Count(count) = self {
                *count += 1;
            }
            return;
        };
        let Some(code) = argument.rows.codes.get(row).and_then(|code| usize::try_from(*code).ok()) else {
            return;
        };
        match self {
            Self::Count(count) => {
                let missing = argument.rows.values.get(code).is_none_or(|value| *value == Value::Missing);
                *count += u64::from(!missing);
            }
            Self::Distinct(seen) => {
                if let Some(Some(text)) = argument.texts.get(code)
                    && !seen.contains(text)
                {
                    seen.insert(text.clone());
                }
            }
            Self::First(first) => {
                let Some(value) = argument.rows.values.get(code).filter(|value| **value != Value::Missing)
                else {
                    return;
                };
                let at = (run.times.get(row).copied().unwrap_or(0), run.order.at(row));
                if first.as_ref().is_none_or(|(time, seq, _)| at < (*time, *seq)) {
                    *first = Some((at.0, at.1, value.clone()));
                }
            }
            numeric => {
                if let Some(number) = argument.numbers.get(code).copied().flatten() {
                    numeric.number(number);
                }
            }
        }
    }

    fn number(&mut self, number: f64) {
        match self {
            Self::Sum { sum, rest, count } => {
                add_compensated(sum, rest, number);
                *count += 1;
            }
            Self::Min(least) => *least = Some(least.map_or(number, |least| least.min(number))),
            Self::Max(most) => *most = Some(most.map_or(number, |most| most.max(number))),
            Self::Numbers(numbers) => numbers.push(number),
            Self::Count(_) | Self::Distinct(_) | Self::First(_) => {}
        }
    }

    /// Merges the accumulator of another partition.
    pub(super) fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Count(count), Self::Count(more)) => *count += more,
            (Self::Distinct(seen), Self::Distinct(more)) => {
                if seen.is_empty() {
                    *seen = more;
                } else {
                    seen.extend(more);
                }
            }
            (Self::Sum { sum, rest, count }, Self::Sum { sum: more, rest: little, count: others }) => {
                add_compensated(sum, rest, more);
                *rest += little;
                *count += others;
            }
            (extremum @ (Self::Min(_) | Self::Max(_)), Self::Min(Some(number)) | Self::Max(Some(number))) => {
                extremum.number(number);
            }
            (Self::Numbers(numbers), Self::Numbers(more)) => numbers.extend(more),
            (Self::First(first), Self::First(Some(other)))
                if first.as_ref().is_none_or(|(time, seq, _)| (other.0, other.1) < (*time, *seq)) =>
            {
                *first = Some(other);
            }
            _ => {}
        }
    }
}

/// Neumaier summation: keeps the rounding error, so that the order of the numbers makes almost no difference.
fn add_compensated(sum: &mut f64, rest: &mut f64, number: f64) {
    let total = *sum + number;
    *rest += if sum.abs() >= number.abs() { (*sum - total) + number } else { (number - total) + *sum };
    *sum = total;
}

/// The quantile at `level` (0 to 1), with linear interpolation.
fn quantile(numbers: &[f64], level: f64) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let position = level * last as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the last index"
    )]
    let below = position.floor() as usize;
    let (low, high) = (sorted.get(below)?, sorted.get((below + 1).min(last))?);
    Some(interpolate(*low, *high, position.fract()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part_format::decoded;

    #[test]
    fn states_with_any_value_are_decoded() {
        let values = [
            Value::Missing,
            Value::Bool(true),
            Value::Number(1.5),
            Value::Text("1".to_owned()),
            Value::Time { at: Micros::MIN, fine: true },
            Value::Date(chrono::NaiveDate::MIN),
            Value::Date(chrono::NaiveDate::MAX),
            Value::List(vec![String::new(), "é".to_owned()]),
        ];
        for value in values {
            let state = FunctionState::First(Some((Micros::MAX, Seq::MAX, value)));
            assert_eq!(decoded(&state), state);
        }
        let texts = ["", "1", "1.0"].map(Box::from).into();
        let states = [FunctionState::First(None), FunctionState::Distinct(texts), FunctionState::Min(None)];
        for state in states {
            assert_eq!(decoded(&state), state);
        }
    }

    #[test]
    fn floats_are_decoded_to_the_bit() {
        let numbers = vec![-0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, 5e-324, 0.1];
        let bits = |state: FunctionState| match state {
            FunctionState::Numbers(numbers) => numbers.into_iter().map(f64::to_bits).collect(),
            _ => Vec::new(),
        };
        let state = FunctionState::Numbers(numbers.clone());
        assert_eq!(bits(decoded(&state)), numbers.into_iter().map(f64::to_bits).collect::<Vec<_>>());
    }
}
