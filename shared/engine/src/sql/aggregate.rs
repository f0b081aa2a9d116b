//! Aggregates: the number that an expression makes of many events.
//!
//! Must stay true: what several shares of the events have added up can be merged in any order; a tally of no event is
//! zero, whatever the expression says.

use std::collections::HashSet;

use super::evaluate::Rows;
use super::tree::Node;
use super::value::Value;
use crate::between::between;
use crate::error::CalcResult;
use crate::scan::{Micros, Run, Seq};
use crate::work::WorkBudget;

/// An aggregate function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
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

const KINDS: [(&str, Kind); 12] = [
    ("count", Kind::Count),
    ("uniq", Kind::Uniq),
    ("sum", Kind::Sum),
    ("avg", Kind::Avg),
    ("min", Kind::Min),
    ("max", Kind::Max),
    ("median", Kind::Median),
    ("quantile", Kind::Quantile),
    ("any", Kind::Any),
    ("sumIf", Kind::SumIf),
    ("countIf", Kind::CountIf),
    ("avgIf", Kind::AvgIf),
];

impl Kind {
    /// The aggregate of a name, in any case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        KINDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, kind)| *kind)
    }

    /// The name as it is documented.
    pub(crate) fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| *name)
    }

    /// True for aggregates of numbers.
    pub(crate) fn is_numeric(self) -> bool {
        !matches!(self, Self::Count | Self::Uniq | Self::CountIf)
    }
}

/// A call of an aggregate function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Aggregated {
    what: What,
    /// What is aggregated; none for all events.
    of: Option<Node>,
    /// Events that do not pass are left out.
    when: Option<Node>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    Count,
    Distinct,
    Sum,
    Average,
    Least,
    Most,
    Quantile(f64),
    First,
}

impl Aggregated {
    /// Judges the arguments of a call.
    pub(super) fn new(
        kind: Kind,
        level: Option<f64>,
        distinct: bool,
        arguments: Vec<Node>,
    ) -> Result<Self, String> {
        let name = kind.name();
        if distinct && kind != Kind::Count {
            return Err(format!("SQL expressions do not support distinct in {name}()."));
        }
        if level.is_some() && kind != Kind::Quantile {
            return Err(format!("SQL expressions do not support parameters of {name}()."));
        }
        let count = arguments.len();
        let mut arguments = arguments.into_iter();
        let (of, when) = match (kind, count) {
            (Kind::Count, 0) if !distinct => (None, None),
            (Kind::CountIf, 1) => (None, arguments.next()),
            (Kind::SumIf | Kind::AvgIf, 2) => (arguments.next(), arguments.next()),
            (Kind::SumIf | Kind::AvgIf | Kind::CountIf, _) => {
                return Err(format!("{name}() does not take {count} arguments."));
            }
            (_, 1) => (arguments.next(), None),
            _ => return Err(format!("{name}() does not take {count} arguments.")),
        };
        let what = match kind {
            Kind::Count if distinct => What::Distinct,
            Kind::Count | Kind::CountIf => What::Count,
            Kind::Uniq => What::Distinct,
            Kind::Sum | Kind::SumIf => What::Sum,
            Kind::Avg | Kind::AvgIf => What::Average,
            Kind::Min => What::Least,
            Kind::Max => What::Most,
            Kind::Median => What::Quantile(0.5),
            Kind::Quantile => What::Quantile(level.unwrap_or(0.5)),
            Kind::Any => What::First,
        };
        match what {
            What::Quantile(level) if !(0.0..=1.0).contains(&level) => {
                Err(format!("The level of {name}() must be a number from 0 to 1."))
            }
            what => Ok(Self { what, of, when }),
        }
    }

    /// The trees whose values it takes in.
    pub(super) fn nodes(&self) -> (Option<&Node>, Option<&Node>) {
        (self.of.as_ref(), self.when.as_ref())
    }

    /// What no event has added to.
    pub(super) fn slot(&self) -> Slot {
        match self.what {
            What::Count => Slot::Count(0),
            What::Distinct => Slot::Distinct(HashSet::new()),
            What::Sum | What::Average => Slot::Sum { sum: 0.0, rest: 0.0, count: 0 },
            What::Least => Slot::Least(None),
            What::Most => Slot::Most(None),
            What::Quantile(_) => Slot::Numbers(Vec::new()),
            What::First => Slot::First(None),
        }
    }

    /// The values of the rows of a run, as the slot takes them in.
    pub(super) fn input(
        &self,
        of: Option<Rows>,
        when: Option<Rows>,
        zone: chrono_tz::Tz,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Input> {
        for value in of.iter().flat_map(|rows| &rows.values) {
            work.consume(value.bytes())?;
        }
        let of = of.map(|rows| {
            let numbers = rows.values.iter().map(Value::number).collect();
            let texts = match self.what {
                What::Distinct => rows.values.iter().map(|value| value.text(zone).map(Into::into)).collect(),
                _ => Vec::new(),
            };
            Argument { numbers, texts, rows }
        });
        let when = when.map(|rows| {
            let holds: Vec<bool> = rows.values.iter().map(|value| value.truth() == Some(true)).collect();
            rows.codes.iter().map(|code| holds.get(*code as usize).copied().unwrap_or(false)).collect()
        });
        Ok(Input { of, when })
    }

    /// The result of a slot; missing where nothing was there to aggregate.
    pub(super) fn result(&self, slot: &Slot) -> Value {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let whole = |count: u64| Value::Number(count as f64);
        match slot {
            Slot::Count(count) => whole(*count),
            Slot::Distinct(seen) => whole(u64::try_from(seen.len()).unwrap_or(u64::MAX)),
            Slot::Sum { count: 0, .. } => Value::Missing,
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
            Slot::Sum { sum, rest, count } => Value::number_of(match self.what {
                What::Average => (sum + rest) / *count as f64,
                _ => sum + rest,
            }),
            Slot::Least(number) | Slot::Most(number) => number.map_or(Value::Missing, Value::Number),
            Slot::Numbers(numbers) => match self.what {
                What::Quantile(level) => quantile(numbers, level).map_or(Value::Missing, Value::Number),
                _ => Value::Missing,
            },
            Slot::First(first) => first.as_ref().map_or(Value::Missing, |(_, _, value)| value.clone()),
        }
    }
}

/// What rows give to one aggregate.
#[derive(Debug)]
pub(super) struct Input {
    of: Option<Argument>,
    when: Option<Vec<bool>>,
}

#[derive(Debug)]
struct Argument {
    rows: Rows,
    numbers: Vec<Option<f64>>,
    /// Only for aggregates that look at texts.
    texts: Vec<Option<Box<str>>>,
}

/// What an aggregate has taken in.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Slot {
    Count(u64),
    Distinct(HashSet<Box<str>>),
    /// `rest` is what rounding took from the sum.
    Sum {
        sum: f64,
        rest: f64,
        count: u64,
    },
    Least(Option<f64>),
    Most(Option<f64>),
    Numbers(Vec<f64>),
    /// The value of the earliest event that has one.
    First(Option<(Micros, Seq, Value)>),
}

impl Slot {
    /// Bytes held, about: of texts their places only, which are as large as most of them.
    pub(super) fn weight(&self) -> usize {
        64 + match self {
            Self::Distinct(seen) => 48 * seen.len(),
            Self::Numbers(numbers) => 8 * numbers.len(),
            Self::Count(_) | Self::Sum { .. } | Self::Least(_) | Self::Most(_) | Self::First(_) => 0,
        }
    }

    /// Takes in a row.
    pub(super) fn add(&mut self, input: &Input, run: &Run, row: usize) {
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
                add_exactly(sum, rest, number);
                *count += 1;
            }
            Self::Least(least) => *least = Some(least.map_or(number, |least| least.min(number))),
            Self::Most(most) => *most = Some(most.map_or(number, |most| most.max(number))),
            Self::Numbers(numbers) => numbers.push(number),
            Self::Count(_) | Self::Distinct(_) | Self::First(_) => {}
        }
    }

    /// Takes in what another share has added up.
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
                add_exactly(sum, rest, more);
                *rest += little;
                *count += others;
            }
            (
                slot @ (Self::Least(_) | Self::Most(_)),
                Self::Least(Some(number)) | Self::Most(Some(number)),
            ) => {
                slot.number(number);
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

/// Adds to a sum and keeps what rounding takes from it, so that the order of the numbers makes next to no difference.
fn add_exactly(sum: &mut f64, rest: &mut f64, number: f64) {
    let total = *sum + number;
    *rest += if sum.abs() >= number.abs() { (*sum - total) + number } else { (number - total) + *sum };
    *sum = total;
}

/// The number at a level of the sorted numbers, between two of them in proportion.
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
    Some(between(*low, *high, position.fract()))
}
