//! What a series counts: `math` and its arguments.
//!
//! Must stay true: a name that nobody knows counts events, as the contract has it; a known one that is not calculated is
//! refused.

use serde_json::{Map, Value, json};

use super::field::{Field, RawSeries};
use crate::error::{CalcError, CalcResult};
use crate::limits;
use crate::sql::Aggregate;
use crate::text::number_of;

/// What a series counts.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Math {
    /// Events.
    #[default]
    Total,
    /// How many distinct ones there are of whom.
    Unique(Who),
    /// The same over so many days that end with each bucket.
    Rolling(u16, Who),
    /// Persons by their first event of all, where it passes the filters.
    FirstTime,
    /// A statistic over how many events each person has.
    PerActor(Statistic),
    /// A statistic over a number that events have.
    Property(Statistic, NumberSource),
    /// An aggregate expression.
    Expression(Aggregate),
}

/// Whom a series counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Persons, or what the project counts as such.
    Actor,
    /// Groups of the type with this index.
    Group(u8),
    /// Sessions; events without one are together in one.
    Session,
}

/// One number of many.
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
    /// The number below which so many percent lie.
    Percentile(u8),
}

/// Where a number is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NumberSource {
    /// A property of the event.
    Event(String),
    /// A property of the person.
    Person(String),
    /// The length of the session, once a session and bucket.
    SessionDuration,
}

/// The arguments of `math` as they were sent, to be echoed.
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
    /// `math_multiplier`: by what numbers of properties are multiplied, such as milliseconds by 0.001.
    pub multiplier: Option<f64>,
}

impl MathArguments {
    /// Under the names that requests use; what was not sent is not there.
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

/// Real names that the contract does not describe.
const UNKNOWN_HERE: [&str; 3] =
    ["first_time_for_user_with_filters", "first_matching_event_for_user", "sum_count_per_actor"];

/// The field of the factor.
const MULTIPLIER: &str = "math_multiplier";

/// The arguments of an entry.
pub fn arguments(raw: &RawSeries<'_>) -> CalcResult<MathArguments> {
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
        multiplier: multiplier(raw)?,
    })
}

/// The factor of an entry: a number above 0, so that the least number stays the least.
fn multiplier(raw: &RawSeries<'_>) -> CalcResult<Option<f64>> {
    let value = match raw.fields.get(MULTIPLIER) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let factor = number_of(value).filter(|factor| factor.is_finite() && *factor > 0.0);
    let wrong = || CalcError::invalid(raw.attr, format!("{MULTIPLIER} must be a number above 0."));
    factor.map(Some).ok_or_else(wrong)
}

/// What a name with its arguments counts.
pub fn math(name: Option<&str>, arguments: &MathArguments, attr: &str) -> CalcResult<Math> {
    let math = named_math(name, arguments, attr)?;
    if arguments.multiplier.is_some_and(|factor| factor != 1.0) && !matches!(math, Math::Property(..)) {
        let detail = format!("{MULTIPLIER} needs a math over a property, such as sum with math_property.");
        return Err(CalcError::invalid(attr, detail));
    }
    Ok(math)
}

fn named_math(name: Option<&str>, arguments: &MathArguments, attr: &str) -> CalcResult<Math> {
    let Some(name) = name else { return Ok(Math::Total) };
    let who = arguments.group_index.map_or(Who::Actor, Who::Group);
    if UNKNOWN_HERE.contains(&name) {
        return Err(CalcError::unsupported(attr, format_args!("math {name}")));
    }
    Ok(match name {
        "dau" => Math::Unique(who),
        "weekly_active" => Math::Rolling(7, who),
        "monthly_active" => Math::Rolling(30, who),
        "unique_group" if arguments.group_index.is_some() => Math::Unique(who),
        "unique_session" => Math::Unique(Who::Session),
        "first_time_for_user" => Math::FirstTime,
        "hogql" => match &arguments.expression {
            Some(text) => Math::Expression(Aggregate::parse(text, attr)?),
            None => return Err(CalcError::invalid(attr, "The math \"hogql\" needs an expression.")),
        },
        name => {
            let per_actor = name.strip_suffix("_count_per_actor").and_then(Statistic::from_name);
            match (per_actor, Statistic::from_name(name)) {
                (Some(statistic), _) => Math::PerActor(statistic),
                (None, Some(statistic)) => of_property(statistic, arguments, attr)?,
                (None, None) => Math::Total,
            }
        }
    })
}

/// Without a property events are counted.
fn of_property(statistic: Statistic, arguments: &MathArguments, attr: &str) -> CalcResult<Math> {
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
