//! Parses the aggregation of a series: `math` and its parameters.
//!
//! Must stay true: an unknown `math` counts events, as the API contract demands; a known but unsupported one is rejected.

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::text::number_of;
use serde_json::{Map, Value, json};

use super::field::{Field, RawSeries};
use crate::limits;
use crate::sql::Aggregate;

/// How a series aggregates its events.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Math {
    /// Number of events.
    #[default]
    Total,
    /// Number of distinct actors, groups or sessions.
    Unique(UniqueBy),
    /// The same over a rolling window of this many days that ends with each bucket.
    Rolling(u16, UniqueBy),
    /// Number of persons whose first event ever is in the bucket and passes the filters.
    FirstTime,
    /// A statistic over the number of events per person.
    PerActor(Statistic),
    /// A statistic over a numeric property.
    Property(Statistic, NumberSource),
    /// An aggregate expression.
    Expression(Aggregate),
}

/// What a distinct count counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UniqueBy {
    /// Persons, or distinct ids where the project aggregates by these.
    Actor,
    /// Groups of the type with this index.
    Group(u8),
    /// Sessions; all events without a session count as one.
    Session,
}

/// A statistic over many numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// Their sum.
    Sum,
    /// Their mean.
    Avg,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The percentile, 0 to 100.
    Percentile(u8),
}

/// Where a numeric value is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NumberSource {
    /// A property of the event.
    Event(String),
    /// A property of the person.
    Person(String),
    /// The session's duration, once per session and bucket.
    SessionDuration,
}

/// The parameters of `math` as sent, for writing them back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MathArguments {
    /// `math_property`.
    pub property: Option<String>,
    /// `math_property_type`.
    pub property_type: Option<String>,
    /// `math_hogql`.
    pub expression: Option<String>,
    /// `math_group_type_index`.
    pub group_index: Option<u8>,
    /// `math_multiplier`: factor for property values, such as 0.001 for milliseconds.
    pub multiplier: Option<f64>,
}

impl MathArguments {
    /// The parameters under their request names, without absent ones.
    pub fn json(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let texts = [
            ("math_property", &self.property),
            ("math_property_type", &self.property_type),
            ("math_hogql", &self.expression),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                fields.insert(key.to_owned(), json!(text));
            }
        }
        if let Some(index) = self.group_index {
            fields.insert("math_group_type_index".to_owned(), json!(index));
        }
        if let Some(multiplier) = self.multiplier {
            fields.insert(MULTIPLIER.to_owned(), json!(multiplier));
        }
        fields
    }
}

impl Statistic {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "sum" => Self::Sum,
            "avg" => Self::Avg,
            "min" => Self::Min,
            "max" => Self::Max,
            "median" => Self::Percentile(50),
            "p75" => Self::Percentile(75),
            "p90" => Self::Percentile(90),
            "p95" => Self::Percentile(95),
            "p99" => Self::Percentile(99),
            _ => return None,
        })
    }
}

/// Values of `math` that other implementations know but this one does not support.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("first_time_for_user_with_filters", FIRST_OF_ACTION),
    ("first_matching_event_for_user", FIRST_OF_ACTION),
    ("sum_count_per_actor", "Use the math total."),
];

/// What to use instead of the first event that passes filters.
const FIRST_OF_ACTION: &str = "Use the math first_time_for_user on an action whose steps have the filters of the series: the \
    first event of the action is the first one that passes them.";

/// Name of the factor's parameter.
const MULTIPLIER: &str = "math_multiplier";

/// Parses the parameters of `math`.
pub fn parse_arguments(raw: &RawSeries<'_>) -> CalcResult<MathArguments> {
    let field = |key| Field { attr: raw.attr, ..Field::of(&raw.fields, key, raw.attr) };
    let text = |key| field(key).text().map(|text| text.map(str::to_owned));
    let index = field("math_group_type_index");
    let group_index = match index.integer()? {
        None => None,
        Some(given) => match u8::try_from(given) {
            Ok(index) if u64::from(index) < limits::GROUP_TYPES => Some(index),
            _ => return Err(limits::invalid_group_type(raw.attr, &json!(given))),
        },
    };
    Ok(MathArguments {
        property: text("math_property")?,
        property_type: text("math_property_type")?,
        expression: text("math_hogql")?,
        group_index,
        multiplier: parse_multiplier(raw)?,
    })
}

/// Parses the factor, a number above 0, so that multiplying keeps the order of the values.
fn parse_multiplier(raw: &RawSeries<'_>) -> CalcResult<Option<f64>> {
    let value = match raw.fields.get(MULTIPLIER) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let factor = number_of(value).filter(|factor| factor.is_finite() && *factor > 0.0);
    let invalid = || CalcError::invalid(raw.attr, format!("{MULTIPLIER} must be a number above 0."));
    factor.map(Some).ok_or_else(invalid)
}

/// Parses the aggregation from the name and its parameters.
pub fn parse(name: Option<&str>, arguments: &MathArguments, attr: &str) -> CalcResult<Math> {
    let math = parse_name(name, arguments, attr)?;
    if arguments.multiplier.is_some_and(|factor| factor != 1.0) && !matches!(math, Math::Property(..)) {
        let detail = format!("{MULTIPLIER} needs a math over a property, such as sum with math_property.");
        return Err(CalcError::invalid(attr, detail));
    }
    Ok(math)
}

fn parse_name(name: Option<&str>, arguments: &MathArguments, attr: &str) -> CalcResult<Math> {
    let Some(name) = name else { return Ok(Math::Total) };
    let unique_by = arguments.group_index.map_or(UniqueBy::Actor, UniqueBy::Group);
    if let Some((name, instead)) = UNSUPPORTED.iter().find(|(unsupported, _)| *unsupported == name) {
        return Err(CalcError::unsupported(attr, format_args!("math {name}")).instead(instead));
    }
    Ok(match name {
        "dau" => Math::Unique(unique_by),
        "weekly_active" => Math::Rolling(7, unique_by),
        "monthly_active" => Math::Rolling(30, unique_by),
        "unique_group" if arguments.group_index.is_some() => Math::Unique(unique_by),
        "unique_session" => Math::Unique(UniqueBy::Session),
        "first_time_for_user" => Math::FirstTime,
        "hogql" => match &arguments.expression {
            Some(text) => Math::Expression(Aggregate::parse(text, attr)?),
            None => return Err(CalcError::invalid(attr, "The math \"hogql\" needs an expression.")),
        },
        name => {
            let per_actor = name.strip_suffix("_count_per_actor").and_then(Statistic::from_name);
            match (per_actor, Statistic::from_name(name)) {
                (Some(statistic), _) => Math::PerActor(statistic),
                (None, Some(statistic)) => property_math(statistic, arguments, attr)?,
                (None, None) => Math::Total,
            }
        }
    })
}

/// A statistic over a property; without a property the series counts events.
fn property_math(statistic: Statistic, arguments: &MathArguments, attr: &str) -> CalcResult<Math> {
    let Some(key) = arguments.property.clone() else { return Ok(Math::Total) };
    let source = match arguments.property_type.as_deref() {
        _ if key == "$session_duration" => NumberSource::SessionDuration,
        None | Some("event_properties" | "event") => NumberSource::Event(key),
        Some("person_properties" | "person") => NumberSource::Person(key),
        Some(other) => {
            let what = format_args!(
                "math over properties of type {other}; math_property_type must be one of event_properties, \
                 person_properties"
            );
            return Err(CalcError::unsupported(attr, what));
        }
    };
    Ok(Math::Property(statistic, source))
}
