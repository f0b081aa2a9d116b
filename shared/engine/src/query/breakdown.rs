//! Breakdowns: what splits a series or a funnel into rows, from both dialects.
//!
//! Must stay true: trends and funnels read the same fields by the same rules; a list of several keys is a funnel's, several
//! types at once and numeric bins are a trend's.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::field::{Field, whole};
use crate::error::{CalcError, CalcResult};
use crate::limits;
use crate::sql::Expression;

/// The fields of a request that tell the breakdown.
#[derive(Debug, Clone)]
pub struct RawBreakdown<'a> {
    pub breakdown: Field<'a>,
    pub kind: Field<'a>,
    pub breakdowns: Field<'a>,
    pub limit: Field<'a>,
    pub group_index: Field<'a>,
    pub normalize_url: Field<'a>,
    pub bins: Field<'a>,
    pub hide_other: Field<'a>,
}

/// Whose breakdown it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// One key, or up to three parts.
    Trend,
    /// Keys of one type.
    Funnel,
}

/// What splits the numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Breakdown {
    /// By what.
    pub by: BreakdownBy,
    /// How many values stay, the rest becoming one; none where the request named no number.
    pub limit: Option<usize>,
    /// The rest is not shown.
    pub hide_other: bool,
}

/// By what numbers are split.
#[derive(Debug, Clone, PartialEq)]
pub enum BreakdownBy {
    /// By values: of one part or of the combinations of several.
    Parts {
        /// At least one.
        parts: Vec<Part>,
        /// How the request wrote them.
        form: Form,
    },
    /// By membership of cohorts.
    Cohorts {
        /// At least one, none twice.
        choices: Vec<CohortChoice>,
        /// They came as a list.
        listed: bool,
    },
}

/// How a request wrote the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `breakdown` is one key.
    Single,
    /// `breakdown` is a list of keys.
    List,
    /// The list `breakdowns`, whose entries have types of their own.
    Several,
}

/// One value of a combination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Where it is read.
    pub source: PartSource,
    /// Characters `/`, `?` and `#` at the end do not count.
    pub normalize_url: bool,
    /// Numbers are put into so many bins of equal width.
    pub bins: Option<u32>,
}

/// Where a value is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartSource {
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

/// A cohort, or everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CohortChoice {
    /// Every event.
    All,
    /// Events of the members of the cohort with this id.
    Cohort(u64),
}

impl PartSource {
    /// The name of its type in requests.
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

    /// Its key, or the text of the expression.
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
    /// As requests have it.
    pub fn json(self) -> Value {
        match self {
            Self::All => json!("all"),
            Self::Cohort(id) => json!(id),
        }
    }
}

impl Breakdown {
    /// The cohorts that have to be known.
    pub fn cohorts(&self) -> impl Iterator<Item = u64> {
        let choices = match &self.by {
            BreakdownBy::Parts { .. } => &[][..],
            BreakdownBy::Cohorts { choices, .. } => choices,
        };
        choices.iter().filter_map(|choice| match choice {
            CohortChoice::All => None,
            CohortChoice::Cohort(id) => Some(*id),
        })
    }

    /// The fields of a legacy request that say the same, in a fixed order.
    pub fn to_legacy(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut put = |key: &str, value: Value| fields.insert(key.to_owned(), value);
        match &self.by {
            BreakdownBy::Cohorts { choices, listed } => {
                let list: Vec<Value> = choices.iter().map(|choice| choice.json()).collect();
                let single = list.first().filter(|_| !listed).cloned();
                put("breakdown", single.unwrap_or(Value::Array(list)));
                put("breakdown_type", json!("cohort"));
            }
            BreakdownBy::Parts { parts, form: Form::Several } => {
                put("breakdowns", parts.iter().map(Part::json).collect());
            }
            BreakdownBy::Parts { parts, form } => {
                let keys: Vec<Value> = parts.iter().map(|part| json!(part.source.key())).collect();
                let single = keys.first().filter(|_| *form == Form::Single).cloned();
                put("breakdown", single.unwrap_or(Value::Array(keys)));
                if let Some(part) = parts.first() {
                    put("breakdown_type", json!(part.source.kind()));
                    if let PartSource::Group(index, _) = part.source {
                        put("breakdown_group_type_index", json!(index));
                    }
                    if part.normalize_url {
                        put("breakdown_normalize_url", json!(true));
                    }
                    if let Some(bins) = part.bins {
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

impl Part {
    fn json(&self) -> Value {
        let mut object = json!({"property": self.source.key(), "type": self.source.kind()});
        if let PartSource::Group(index, _) = self.source {
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

/// The breakdown that the fields ask for.
pub fn build(raw: &RawBreakdown<'_>, asker: Asker) -> CalcResult<Option<Breakdown>> {
    let by = match several(&raw.breakdowns)? {
        Some(entries) => from_entries(&entries, raw, asker)?,
        None if raw.breakdown.says_something() => from_single(raw, asker)?,
        None => return Ok(None),
    };
    let limit = match raw.limit.integer()? {
        None | Some(0) => None,
        Some(limit) => match usize::try_from(limit) {
            Ok(limit) if limit <= limits::BREAKDOWN_LIMIT => Some(limit),
            _ => {
                let most = limits::BREAKDOWN_LIMIT;
                return Err(CalcError::invalid(
                    raw.limit.attr,
                    format!("Must be a number from 1 to {most}."),
                ));
            }
        },
    };
    Ok(Some(Breakdown { by, limit, hide_other: raw.hide_other.switch()? }))
}

/// The entries of `breakdowns`; none when it says nothing.
fn several(field: &Field<'_>) -> CalcResult<Option<Vec<Value>>> {
    if !field.says_something() {
        return Ok(None);
    }
    let list = match decoded(field).as_deref() {
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

/// A value that may have come as JSON text; a text that is no JSON is itself.
fn decoded<'a>(field: &'a Field<'_>) -> Option<Cow<'a, Value>> {
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

fn from_single(raw: &RawBreakdown<'_>, asker: Asker) -> CalcResult<BreakdownBy> {
    let attr = raw.breakdown.attr;
    let kind = kind(raw.kind.text()?, raw.kind.attr)?;
    let decoded = decoded(&raw.breakdown);
    let value = decoded.as_deref().unwrap_or(&Value::Null);
    if kind == "cohort" {
        return cohorts(value, attr);
    }
    let (keys, form) = match value {
        Value::Array(list) => {
            let keys: Vec<&Value> = list.iter().filter(|key| !key.is_null()).collect();
            if asker == Asker::Trend && keys.len() > 1 {
                return Err(CalcError::invalid(
                    attr,
                    "A trend takes several keys in \"breakdowns\", not as a list in \"breakdown\".",
                ));
            }
            if keys.len() > limits::BREAKDOWN_KEYS {
                return Err(limits::too_many(attr, "keys", limits::BREAKDOWN_KEYS));
            }
            (keys, if asker == Asker::Trend { Form::Single } else { Form::List })
        }
        one => (vec![one], Form::Single),
    };
    let bins = bins(&raw.bins)?;
    let normalize_url = raw.normalize_url.switch()?;
    let parts = keys
        .into_iter()
        .map(|key| {
            // A number was a text such as "5" that the request's own reading turned into one: it is the key all the same.
            let key = match (key, raw.breakdown.value.as_deref()) {
                (Value::Number(_), Some(Value::String(text))) => text.trim().to_owned(),
                _ => key_of(key, attr)?,
            };
            let source = source(kind, key, &raw.group_index, attr)?;
            Ok(Part { source, normalize_url, bins: bins.filter(|_| asker == Asker::Trend) })
        })
        .collect::<CalcResult<Vec<_>>>()?;
    if parts.is_empty() {
        return Err(CalcError::invalid(attr, "A breakdown needs a key."));
    }
    Ok(BreakdownBy::Parts { parts, form })
}

/// Of a funnel an entry stands for the request's key and type; what it does not say otherwise the request's own fields say.
fn from_entries(list: &[Value], raw: &RawBreakdown<'_>, asker: Asker) -> CalcResult<BreakdownBy> {
    let attr = raw.breakdowns.attr;
    let entries = list
        .iter()
        .map(|entry| {
            entry.as_object().ok_or_else(|| CalcError::invalid(attr, "Each breakdown must be an object."))
        })
        .collect::<CalcResult<Vec<_>>>()?;
    let kinds = entries
        .iter()
        .map(|entry| kind(Field::of(entry, "type", attr).text()?, attr))
        .collect::<CalcResult<Vec<_>>>()?;
    if kinds.contains(&"cohort") {
        return match entries.as_slice() {
            [only] => cohorts(only.get("property").unwrap_or(&Value::Null), attr),
            _ => Err(CalcError::invalid(attr, "A breakdown by cohorts cannot be combined with others.")),
        };
    }
    if asker == Asker::Funnel && kinds.windows(2).any(|pair| pair.first() != pair.last()) {
        return Err(CalcError::invalid(attr, "The breakdowns of a funnel must all be of one type."));
    }
    let parts = entries
        .iter()
        .zip(kinds)
        .map(|(entry, kind)| {
            let of = |key: &str| Field::of(entry, key, attr);
            let key = key_of(entry.get("property").unwrap_or(&Value::Null), attr)?;
            let group = own_or(of("group_type_index"), &raw.group_index, asker);
            let source = source(kind, key, &group, attr)?;
            let bins = bins(&of("histogram_bin_count"))?.filter(|_| asker == Asker::Trend);
            let normalize_url = own_or(of("normalize_url"), &raw.normalize_url, asker).switch()?;
            Ok(Part { source, normalize_url, bins })
        })
        .collect::<CalcResult<Vec<_>>>()?;
    Ok(BreakdownBy::Parts { parts, form: Form::Several })
}

/// A field of an entry; of a funnel the request's where it is absent.
fn own_or<'a>(own: Field<'a>, asked: &Field<'a>, asker: Asker) -> Field<'a> {
    match asker {
        Asker::Funnel => own.or(asked.clone()),
        Asker::Trend => own,
    }
}

/// Types of breakdowns.
const KINDS: [&str; 7] = ["event", "person", "cohort", "group", "session", "hogql", "event_metadata"];

/// The type, `event` when none is named.
fn kind(name: Option<&str>, attr: &str) -> CalcResult<&'static str> {
    let name = match name.map(str::trim) {
        None | Some("events") => "event",
        Some(name) => name,
    };
    KINDS.into_iter().find(|kind| *kind == name).ok_or_else(|| {
        let kinds = KINDS.join(", ");
        let detail = format!("There is no breakdown of type \"{name}\". The type must be one of {kinds}.");
        CalcError::invalid(attr, detail)
    })
}

fn key_of(value: &Value, attr: &str) -> CalcResult<String> {
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

fn source(kind: &str, key: String, group: &Field<'_>, attr: &str) -> CalcResult<PartSource> {
    Ok(match kind {
        "person" => PartSource::Person(key),
        "session" => PartSource::Session(key),
        "hogql" => {
            Expression::parse(&key, attr)?;
            PartSource::Expression(key)
        }
        "event_metadata" => PartSource::Metadata(key),
        "group" => {
            let Some(index) = group.integer()? else {
                return Err(CalcError::invalid(
                    if group.value.is_some() { group.attr } else { attr },
                    "A breakdown by groups needs the index of their type.",
                ));
            };
            let wrong = || limits::invalid_group_type(group.attr, &json!(index));
            let index = u8::try_from(index).map_err(|_| wrong())?;
            if u64::from(index) >= limits::GROUP_TYPES {
                return Err(wrong());
            }
            PartSource::Group(index, key)
        }
        _ => PartSource::Event(key),
    })
}

fn bins(field: &Field<'_>) -> CalcResult<Option<u32>> {
    match field.integer()? {
        None | Some(0) => Ok(None),
        Some(bins) => match u32::try_from(bins) {
            Ok(bins) if bins <= limits::BREAKDOWN_BINS => Ok(Some(bins)),
            _ => {
                let most = limits::BREAKDOWN_BINS;
                Err(CalcError::invalid(field.attr, format!("Must be a number from 1 to {most}.")))
            }
        },
    }
}

fn cohorts(value: &Value, attr: &str) -> CalcResult<BreakdownBy> {
    let wrong = || CalcError::invalid(attr, "A breakdown by cohorts takes their ids, or \"all\".");
    let choice = |value: &Value| match value {
        Value::String(text) if text == "all" => Ok(CohortChoice::All),
        other => {
            let id = whole(other).and_then(|id| u64::try_from(id).ok()).ok_or_else(wrong)?;
            // Funnels write everybody as cohort 0.
            Ok(if id == 0 { CohortChoice::All } else { CohortChoice::Cohort(id) })
        }
    };
    let (given, listed) = match value {
        Value::Array(list) => (list.iter().filter(|id| !id.is_null()).collect(), true),
        one => (vec![one], false),
    };
    let mut choices: Vec<CohortChoice> = Vec::new();
    for value in given {
        let choice = choice(value)?;
        if !choices.contains(&choice) {
            choices.push(choice);
        }
        if choices.len() > limits::BREAKDOWN_COHORTS {
            return Err(limits::too_many(attr, "cohorts", limits::BREAKDOWN_COHORTS));
        }
    }
    if choices.is_empty() {
        return Err(wrong());
    }
    Ok(BreakdownBy::Cohorts { choices, listed })
}
