//! Parses breakdowns, which split a series or a funnel into one row per value, from both dialects.
//!
//! Must stay true: all kinds parse the same fields; where their rules differ, the kind passes its own ([`BreakdownRules`]).

use std::borrow::Cow;

use pennon_filters::error::{CalcError, CalcResult};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::field::{Field, RawBreakdown, parse_integer};
use crate::limits;
use crate::sql::Expression;

/// The rules of a kind for its breakdown.
#[derive(Debug, Clone, Copy)]
pub struct BreakdownRules {
    /// Numbers can be put into bins; else the number of bins is ignored.
    pub has_bins: bool,
    /// Whether `breakdown` may be a list of several keys.
    pub key_lists: KeyLists,
    /// The error text for entries of `breakdowns` of different types; `None` accepts them.
    pub mixed_types_error: Option<&'static str>,
    /// Fields that an entry of `breakdowns` lacks default to the request's own fields.
    pub inherits_fields: bool,
}

/// Whether `breakdown` may be a list of several keys.
#[derive(Debug, Clone, Copy)]
pub enum KeyLists {
    /// It may have so many keys.
    AtMost(usize),
    /// A list of more than one key is rejected with this text.
    Rejected(&'static str),
}

/// A breakdown.
#[derive(Debug, Clone, PartialEq)]
pub struct Breakdown {
    /// The property values or cohorts to break down by.
    pub by: BreakdownBy,
    /// Number of values that keep their own row; the others are added up. `None` if the request sets no limit.
    pub limit: Option<usize>,
    /// Whether the row of the other values is left out.
    pub hide_other: bool,
}

/// What a breakdown groups by.
#[derive(Debug, Clone, PartialEq)]
pub enum BreakdownBy {
    /// The values of one dimension, or the combined values of several.
    Dimensions {
        /// At least one.
        dimensions: Vec<BreakdownDimension>,
        /// The request syntax they were sent in.
        form: BreakdownForm,
    },
    /// Cohort membership.
    Cohorts {
        /// At least one, without duplicates.
        choices: Vec<CohortChoice>,
        /// Whether the request sent a list rather than a single id.
        listed: bool,
    },
}

/// The request syntax of a breakdown's dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakdownForm {
    /// `breakdown` is a single key.
    Single,
    /// `breakdown` is a list of keys.
    List,
    /// `breakdowns` is a list of objects, each with its own type.
    Several,
}

/// One dimension of a breakdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakdownDimension {
    /// Where the value is read.
    pub source: DimensionSource,
    /// Whether trailing `/`, `?` and `#` are trimmed.
    pub normalize_url: bool,
    /// Number of equal-width bins for numeric values.
    pub bins: Option<u32>,
}

/// Where the value of a dimension is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DimensionSource {
    /// A property of the event.
    Event(String),
    /// A property of the person.
    Person(String),
    /// A property of the event's group of a type.
    Group(u8, String),
    /// A field of the event's session.
    Session(String),
    /// A column of the event, such as `distinct_id`.
    Metadata(String),
    /// The value of an expression.
    Expression(String),
}

/// A cohort, or all users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CohortChoice {
    /// Every event.
    All,
    /// Events of members of the cohort with this id.
    Cohort(u64),
}

impl DimensionSource {
    /// The `type` that requests use.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Event(_) => "event",
            Self::Person(_) => "person",
            Self::Group(..) => "group",
            Self::Session(_) => "session",
            Self::Metadata(_) => "event_metadata",
            Self::Expression(_) => "hogql",
        }
    }

    /// The property key, or the text of the expression.
    pub fn key(&self) -> &str {
        match self {
            Self::Event(key)
            | Self::Person(key)
            | Self::Group(_, key)
            | Self::Session(key)
            | Self::Metadata(key)
            | Self::Expression(key) => key,
        }
    }
}

impl CohortChoice {
    /// The value that requests use: `"all"` or the cohort's id.
    pub fn json(self) -> Value {
        match self {
            Self::All => json!("all"),
            Self::Cohort(id) => json!(id),
        }
    }
}

impl Breakdown {
    /// The ids of the cohorts whose members must be known.
    pub fn cohorts(&self) -> impl Iterator<Item = u64> {
        let choices = match &self.by {
            BreakdownBy::Dimensions { .. } => &[][..],
            BreakdownBy::Cohorts { choices, .. } => choices,
        };
        choices.iter().filter_map(|choice| match choice {
            CohortChoice::All => None,
            CohortChoice::Cohort(id) => Some(*id),
        })
    }

    /// The breakdown as fields of insight filters, in a fixed order.
    pub fn to_insight_filters(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut put = |key: &str, value: Value| fields.insert(key.to_owned(), value);
        match &self.by {
            BreakdownBy::Cohorts { choices, listed } => {
                let list: Vec<Value> = choices.iter().map(|choice| choice.json()).collect();
                let single = list.first().filter(|_| !listed).cloned();
                put("breakdown", single.unwrap_or(Value::Array(list)));
                put("breakdown_type", json!("cohort"));
            }
            BreakdownBy::Dimensions { dimensions, form: BreakdownForm::Several } => {
                put("breakdowns", dimensions.iter().map(BreakdownDimension::json).collect());
            }
            BreakdownBy::Dimensions { dimensions, form } => {
                let keys: Vec<Value> =
                    dimensions.iter().map(|dimension| json!(dimension.source.key())).collect();
                let single = keys.first().filter(|_| *form == BreakdownForm::Single).cloned();
                put("breakdown", single.unwrap_or(Value::Array(keys)));
                if let Some(dimension) = dimensions.first() {
                    put("breakdown_type", json!(dimension.source.kind()));
                    if let DimensionSource::Group(index, _) = dimension.source {
                        put("breakdown_group_type_index", json!(index));
                    }
                    if dimension.normalize_url {
                        put("breakdown_normalize_url", json!(true));
                    }
                    if let Some(bins) = dimension.bins {
                        put("breakdown_histogram_bin_count", json!(bins));
                    }
                }
            }
        }
        if let Some(limit) = self.limit {
            put("breakdown_limit", json!(limit));
        }
        if self.hide_other {
            put("breakdown_hide_other_aggregation", json!(true));
        }
        fields
    }
}

impl BreakdownDimension {
    fn json(&self) -> Value {
        let mut object = json!({"property": self.source.key(), "type": self.source.kind()});
        if let DimensionSource::Group(index, _) = self.source {
            object["group_type_index"] = json!(index);
        }
        if self.normalize_url {
            object["normalize_url"] = json!(true);
        }
        if let Some(bins) = self.bins {
            object["histogram_bin_count"] = json!(bins);
        }
        object
    }
}

/// Parses the breakdown; `None` if the request has none.
pub fn parse(raw: &RawBreakdown<'_>, rules: BreakdownRules) -> CalcResult<Option<Breakdown>> {
    let by = match get_entries(&raw.breakdowns)? {
        Some(entries) => parse_entries(&entries, raw, rules)?,
        None if raw.breakdown.has_content() => parse_single(raw, rules)?,
        None => return Ok(None),
    };
    let limit = match raw.limit.integer()? {
        None | Some(0) => None,
        Some(limit) => match usize::try_from(limit) {
            Ok(limit) if limit <= limits::BREAKDOWN_LIMIT => Some(limit),
            _ => {
                let max = limits::BREAKDOWN_LIMIT;
                return Err(CalcError::invalid(raw.limit.attr, format!("Must be a number from 1 to {max}.")));
            }
        },
    };
    Ok(Some(Breakdown { by, limit, hide_other: raw.hide_other.boolean()? }))
}

/// Gets the entries of `breakdowns`; `None` if it is absent or empty.
fn get_entries(field: &Field<'_>) -> CalcResult<Option<Vec<Value>>> {
    if !field.has_content() {
        return Ok(None);
    }
    let list = match decode_json_string(field).as_deref() {
        Some(Value::Array(list)) => list.clone(),
        _ => return Err(CalcError::invalid(field.attr, "Expected a list of items.")),
    };
    if list.len() > limits::BREAKDOWNS {
        return Err(CalcError::invalid(
            field.attr,
            format!("There can be at most {} breakdowns.", limits::BREAKDOWNS),
        ));
    }
    Ok((!list.is_empty()).then_some(list))
}

/// Decodes a value that may be a JSON string. A string that is not JSON stays as it is.
fn decode_json_string<'a>(field: &'a Field<'_>) -> Option<Cow<'a, Value>> {
    match field.value.as_deref() {
        Some(Value::String(text)) => match serde_json::from_str::<Value>(text) {
            Ok(value @ (Value::Array(_) | Value::String(_) | Value::Number(_) | Value::Object(_))) => {
                Some(Cow::Owned(value))
            }
            _ => field.value.as_deref().map(Cow::Borrowed),
        },
        other => other.map(Cow::Borrowed),
    }
}

fn parse_single(raw: &RawBreakdown<'_>, rules: BreakdownRules) -> CalcResult<BreakdownBy> {
    let attr = raw.breakdown.attr;
    let kind = parse_kind(raw.kind.text()?, raw.kind.attr)?;
    let decoded = decode_json_string(&raw.breakdown);
    let value = decoded.as_deref().unwrap_or(&Value::Null);
    if kind == "cohort" {
        return parse_cohorts(value, attr);
    }
    let (keys, form) = match value {
        Value::Array(list) => {
            let keys: Vec<&Value> = list.iter().filter(|key| !key.is_null()).collect();
            let form = match rules.key_lists {
                KeyLists::AtMost(most) if keys.len() > most => {
                    return Err(limits::too_many(attr, "keys", most));
                }
                KeyLists::AtMost(_) => BreakdownForm::List,
                KeyLists::Rejected(detail) if keys.len() > 1 => {
                    return Err(CalcError::invalid(attr, detail));
                }
                KeyLists::Rejected(_) => BreakdownForm::Single,
            };
            (keys, form)
        }
        one => (vec![one], BreakdownForm::Single),
    };
    let bins = parse_bins(&raw.bins)?;
    let normalize_url = raw.normalize_url.boolean()?;
    let dimensions = keys
        .into_iter()
        .map(|key| {
            // A key such as "5" was decoded to a number above; the original string is the key.
            let key = match (key, raw.breakdown.value.as_deref()) {
                (Value::Number(_), Some(Value::String(text))) => text.trim().to_owned(),
                _ => parse_key(key, attr)?,
            };
            let source = parse_source(kind, key, &raw.group_index, attr)?;
            Ok(BreakdownDimension { source, normalize_url, bins: bins.filter(|_| rules.has_bins) })
        })
        .collect::<CalcResult<Vec<_>>>()?;
    if dimensions.is_empty() {
        return Err(CalcError::invalid(attr, "A breakdown needs a key."));
    }
    Ok(BreakdownBy::Dimensions { dimensions, form })
}

/// Parses the entries of `breakdowns`.
fn parse_entries(list: &[Value], raw: &RawBreakdown<'_>, rules: BreakdownRules) -> CalcResult<BreakdownBy> {
    let attr = raw.breakdowns.attr;
    let entries = list
        .iter()
        .map(|entry| {
            entry.as_object().ok_or_else(|| CalcError::invalid(attr, "Each breakdown must be an object."))
        })
        .collect::<CalcResult<Vec<_>>>()?;
    let kinds = entries
        .iter()
        .map(|entry| parse_kind(Field::of(entry, "type", attr).text()?, attr))
        .collect::<CalcResult<Vec<_>>>()?;
    if kinds.contains(&"cohort") {
        return match entries.as_slice() {
            [only] => parse_cohorts(only.get("property").unwrap_or(&Value::Null), attr),
            _ => Err(CalcError::invalid(attr, "A breakdown by cohorts cannot be combined with others.")),
        };
    }
    if let Some(detail) = rules.mixed_types_error
        && kinds.windows(2).any(|pair| pair.first() != pair.last())
    {
        return Err(CalcError::invalid(attr, detail));
    }
    let dimensions = entries
        .iter()
        .zip(kinds)
        .map(|(entry, kind)| {
            let field = |key: &str| Field::of(entry, key, attr);
            let key = parse_key(entry.get("property").unwrap_or(&Value::Null), attr)?;
            let group = field_or_default(field("group_type_index"), &raw.group_index, rules);
            let source = parse_source(kind, key, &group, attr)?;
            let bins = parse_bins(&field("histogram_bin_count"))?.filter(|_| rules.has_bins);
            let normalize_url =
                field_or_default(field("normalize_url"), &raw.normalize_url, rules).boolean()?;
            Ok(BreakdownDimension { source, normalize_url, bins })
        })
        .collect::<CalcResult<Vec<_>>>()?;
    Ok(BreakdownBy::Dimensions { dimensions, form: BreakdownForm::Several })
}

/// A field of an entry, or the request's field, by the rules.
fn field_or_default<'a>(own: Field<'a>, request_field: &Field<'a>, rules: BreakdownRules) -> Field<'a> {
    if rules.inherits_fields { own.or(request_field.clone()) } else { own }
}

/// Supported breakdown types.
pub const BREAKDOWN_KINDS: [&str; 7] =
    ["event", "person", "cohort", "group", "session", "hogql", "event_metadata"];

/// Another name of the breakdown type `event`.
pub const EVENTS: &str = "events";

/// Parses the type; `event` by default.
fn parse_kind(name: Option<&str>, attr: &str) -> CalcResult<&'static str> {
    let name = match name.map(str::trim) {
        None | Some(EVENTS) => "event",
        Some(name) => name,
    };
    BREAKDOWN_KINDS.into_iter().find(|kind| *kind == name).ok_or_else(|| {
        let kinds = BREAKDOWN_KINDS.join(", ");
        let detail = format!("There is no breakdown of type \"{name}\". The type must be one of {kinds}.");
        CalcError::invalid(attr, detail)
    })
}

fn parse_key(value: &Value, attr: &str) -> CalcResult<String> {
    let key = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(on) => on.to_string(),
        _ => return Err(CalcError::invalid(attr, "The key of a breakdown is a string.")),
    };
    match key.len() {
        0 => Err(CalcError::invalid(attr, "A breakdown needs a key.")),
        length if length > limits::NAME_BYTES => {
            Err(limits::too_long(attr, "key of a breakdown", limits::NAME_BYTES))
        }
        _ => Ok(key),
    }
}

fn parse_source(kind: &str, key: String, group: &Field<'_>, attr: &str) -> CalcResult<DimensionSource> {
    Ok(match kind {
        "person" => DimensionSource::Person(key),
        "session" => DimensionSource::Session(key),
        "hogql" => {
            Expression::parse(&key, attr)?;
            DimensionSource::Expression(key)
        }
        "event_metadata" => DimensionSource::Metadata(key),
        "group" => {
            let Some(index) = group.integer()? else {
                return Err(CalcError::invalid(
                    if group.value.is_some() { group.attr } else { attr },
                    "A breakdown by groups needs the index of their type.",
                ));
            };
            let invalid = || limits::invalid_group_type(group.attr, &json!(index));
            let index = u8::try_from(index).map_err(|_| invalid())?;
            if u64::from(index) >= limits::GROUP_TYPES {
                return Err(invalid());
            }
            DimensionSource::Group(index, key)
        }
        _ => DimensionSource::Event(key),
    })
}

fn parse_bins(field: &Field<'_>) -> CalcResult<Option<u32>> {
    match field.integer()? {
        None | Some(0) => Ok(None),
        Some(bins) => match u32::try_from(bins) {
            Ok(bins) if bins <= limits::BREAKDOWN_BINS => Ok(Some(bins)),
            _ => {
                let max = limits::BREAKDOWN_BINS;
                Err(CalcError::invalid(field.attr, format!("Must be a number from 1 to {max}.")))
            }
        },
    }
}

fn parse_cohorts(value: &Value, attr: &str) -> CalcResult<BreakdownBy> {
    let invalid = || CalcError::invalid(attr, "A breakdown by cohorts takes their ids, or \"all\".");
    let parse_choice = |value: &Value| match value {
        Value::String(text) if text == "all" => Ok(CohortChoice::All),
        other => {
            let id = parse_integer(other).and_then(|id| u64::try_from(id).ok()).ok_or_else(invalid)?;
            // Funnels use cohort 0 for all users.
            Ok(if id == 0 { CohortChoice::All } else { CohortChoice::Cohort(id) })
        }
    };
    let (given, listed) = match value {
        Value::Array(list) => (list.iter().filter(|id| !id.is_null()).collect(), true),
        one => (vec![one], false),
    };
    let mut choices: Vec<CohortChoice> = Vec::new();
    for value in given {
        let choice = parse_choice(value)?;
        if !choices.contains(&choice) {
            choices.push(choice);
        }
        if choices.len() > limits::BREAKDOWN_COHORTS {
            return Err(limits::too_many(attr, "cohorts", limits::BREAKDOWN_COHORTS));
        }
    }
    if choices.is_empty() {
        return Err(invalid());
    }
    Ok(BreakdownBy::Cohorts { choices, listed })
}
