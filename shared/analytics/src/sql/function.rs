//! Scalar functions of expressions.

use chrono::Timelike;
use chrono_tz::Tz;
use pennon_filters::dates::zone;

use super::value::Value;

/// A scalar function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Concat,
    ToString,
    ToFloat,
    ToInt,
    ToDate,
    Lower,
    Upper,
    Trim,
    Length,
    If,
    IfNull,
    Coalesce,
    NullIf,
    MultiIf,
    Round,
    Floor,
    Ceil,
    Abs,
    ReplaceAll,
    SplitByChar,
    Extract,
    Match,
    ToStartOfDay,
    ToStartOfHour,
}

/// No maximum number of arguments.
const UNLIMITED: usize = usize::MAX;

/// Name, function, minimum and maximum number of arguments.
const FUNCTIONS: [(&str, Function, usize, usize); 24] = [
    ("concat", Function::Concat, 1, UNLIMITED),
    ("toString", Function::ToString, 1, 1),
    ("toFloat", Function::ToFloat, 1, 1),
    ("toInt", Function::ToInt, 1, 1),
    ("toDate", Function::ToDate, 1, 1),
    ("lower", Function::Lower, 1, 1),
    ("upper", Function::Upper, 1, 1),
    ("trim", Function::Trim, 1, 1),
    ("length", Function::Length, 1, 1),
    ("if", Function::If, 3, 3),
    ("ifNull", Function::IfNull, 2, 2),
    ("coalesce", Function::Coalesce, 1, UNLIMITED),
    ("nullIf", Function::NullIf, 2, 2),
    ("multiIf", Function::MultiIf, 3, UNLIMITED),
    ("round", Function::Round, 1, 2),
    ("floor", Function::Floor, 1, 1),
    ("ceil", Function::Ceil, 1, 1),
    ("abs", Function::Abs, 1, 1),
    ("replaceAll", Function::ReplaceAll, 3, 3),
    ("splitByChar", Function::SplitByChar, 2, 2),
    ("extract", Function::Extract, 2, 2),
    ("match", Function::Match, 2, 2),
    ("toStartOfDay", Function::ToStartOfDay, 1, 1),
    ("toStartOfHour", Function::ToStartOfHour, 1, 1),
];

impl Function {
    /// Parses a name, case-insensitive.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let known = FUNCTIONS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(name));
        known.map(|(_, function, ..)| *function)
    }

    /// The name as it is documented.
    pub(crate) fn name(self) -> &'static str {
        FUNCTIONS.iter().find(|(_, function, ..)| *function == self).map_or("", |(name, ..)| *name)
    }

    /// Whether it accepts this number of arguments.
    pub(crate) fn takes(self, arguments: usize) -> bool {
        let fits = |least: usize, most: usize| (least..=most).contains(&arguments);
        let known = FUNCTIONS.iter().find(|(_, function, ..)| *function == self);
        // Pairs of condition and value, then the default value.
        let paired = self != Self::MultiIf || arguments % 2 == 1;
        known.is_some_and(|(_, _, least, most)| fits(*least, *most)) && paired
    }

    /// True for functions that only take numbers.
    pub(crate) fn is_numeric(self) -> bool {
        matches!(self, Self::Round | Self::Floor | Self::Ceil | Self::Abs)
    }

    /// True for conditional functions, which return one of their arguments.
    pub(crate) fn chooses(self) -> bool {
        matches!(self, Self::If | Self::IfNull | Self::Coalesce | Self::NullIf | Self::MultiIf)
    }

    /// True for functions that return an instant or a date.
    pub(crate) fn gives_time(self) -> bool {
        matches!(self, Self::ToDate | Self::ToStartOfDay | Self::ToStartOfHour)
    }

    /// Applies the function; the number of arguments is valid. Conditional and pattern functions are evaluated elsewhere.
    pub(crate) fn apply(self, arguments: &[Value], zone: Tz) -> Value {
        if self == Self::Concat {
            return Value::text_of_parts(arguments.iter().filter_map(|argument| argument.text(zone)));
        }
        if arguments.contains(&Value::Missing) {
            return Value::Missing;
        }
        let Some(first) = arguments.first() else { return Value::Missing };
        let number =
            |of: fn(f64) -> f64| first.number().map_or(Value::Missing, |number| Value::number_of(of(number)));
        let text = |of: fn(&str) -> String| {
            first.text(zone).map_or(Value::Missing, |text| Value::text_of(of(&text)))
        };
        match self {
            Self::ToString => text(str::to_owned),
            Self::Lower => text(str::to_lowercase),
            Self::Upper => text(str::to_uppercase),
            Self::Trim => text(|text| text.trim_matches(' ').to_owned()),
            Self::ToFloat => first.number_or_seconds().map_or(Value::Missing, Value::number_of),
            Self::ToInt => {
                first.number_or_seconds().map_or(Value::Missing, |number| Value::number_of(number.trunc()))
            }
            Self::Floor => number(f64::floor),
            Self::Ceil => number(f64::ceil),
            Self::Abs => number(f64::abs),
            Self::Round => round(first, arguments.get(1)),
            Self::Length => length(first, zone),
            Self::ReplaceAll => replace_all(arguments, zone),
            Self::SplitByChar => split_by_char(arguments, zone),
            Self::ToDate => first.date(zone).map_or(Value::Missing, Value::Date),
            Self::ToStartOfDay => first.date(zone).map_or(Value::Missing, |day| Value::Time {
                at: zone::day_start(day, zone).timestamp_micros(),
                fine: false,
            }),
            Self::ToStartOfHour => first.instant(zone).map_or(Value::Missing, |at| {
                let local = zone::from_micros(at, zone);
                let into = i64::from(local.minute() * 60 + local.second()) * 1_000_000
                    + i64::from(local.timestamp_subsec_micros());
                Value::Time { at: at - into, fine: false }
            }),
            Self::Concat
            | Self::If
            | Self::IfNull
            | Self::Coalesce
            | Self::NullIf
            | Self::MultiIf
            | Self::Extract
            | Self::Match => Value::Missing,
        }
    }
}

/// Rounds to a number of decimal digits, half to even.
fn round(value: &Value, digits: Option<&Value>) -> Value {
    let digits = digits.map_or(Some(0.0), Value::number).filter(|digits| digits.abs() <= 15.0);
    match (value.number(), digits) {
        (Some(number), Some(digits)) => {
            let factor = 10_f64.powf(digits.trunc());
            Value::number_of((number * factor).round_ties_even() / factor)
        }
        _ => Value::Missing,
    }
}

/// The bytes of a text, or the entries of a list.
fn length(value: &Value, zone: Tz) -> Value {
    let length = match value {
        Value::List(list) => Some(list.len()),
        other => other.text(zone).map(|text| text.len()),
    };
    #[expect(clippy::cast_precision_loss, reason = "texts and lists are far below 2^52 long")]
    length.map_or(Value::Missing, |length| Value::Number(length as f64))
}

fn replace_all(arguments: &[Value], zone: Tz) -> Value {
    let [text, from, to] = arguments else { return Value::Missing };
    match (text.text(zone), from.text(zone), to.text(zone)) {
        (Some(text), Some(from), _) if from.is_empty() => Value::text_of(text.into_owned()),
        (Some(text), Some(from), Some(to)) => {
            let pieces = text.split(from.as_ref()).collect::<Vec<_>>();
            let between = std::iter::repeat_n(to.as_ref(), pieces.len().saturating_sub(1));
            let mut parts = Vec::with_capacity(2 * pieces.len());
            for (piece, between) in pieces.iter().copied().zip(between.chain(std::iter::once(""))) {
                parts.push(piece);
                parts.push(between);
            }
            Value::text_of_parts(parts.into_iter())
        }
        _ => Value::Missing,
    }
}

fn split_by_char(arguments: &[Value], zone: Tz) -> Value {
    let [separator, text] = arguments else { return Value::Missing };
    match (separator.text(zone), text.text(zone)) {
        (Some(separator), Some(text)) if separator.chars().count() == 1 => {
            Value::List(text.split(separator.as_ref()).map(str::to_owned).collect())
        }
        _ => Value::Missing,
    }
}
