//! Parses property filters.
//!
//! Formats: a list (AND), nested groups `{type, values}`, a list of groups, the legacy object `{"key__operator": value}`,
//! and each of these as JSON text. Incomplete filters are dropped.

use std::borrow::Cow;

use pennon_filters::error::{CalcError, CalcResult};
use pennon_filters::operator::{FilterSide, Operator};
use serde_json::{Map, Value};

use super::{Filter, PropertyFilter, Target};
use crate::sql::Expression;
use crate::{element, limits, sessions};

/// Known filter types that do not apply to events.
pub const NON_EVENT_TYPES: [&str; 8] = [
    "behavioral",
    "recording",
    "log_entry",
    "log",
    "data_warehouse",
    "data_warehouse_person_property",
    "error_tracking_issue",
    "revenue_analytics",
];

/// Filter types that apply to events. The default type is `event`.
pub const EVENT_TYPES: [&str; 9] =
    ["event", "person", "cohort", "group", "session", "element", "feature", "event_metadata", "hogql"];

/// Parses property filters and counts them, over all fields of one query.
#[derive(Debug, Default)]
pub struct Parser {
    filters: usize,
}

impl Parser {
    /// Parses the filters of one field; errors name `attr`.
    pub fn parse(&mut self, value: Option<&Value>, attr: &str) -> CalcResult<Filter> {
        match value {
            None | Some(Value::Null) => Ok(Filter::none()),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(Filter::none()),
            Some(Value::String(text)) => {
                let decoded: Value = serde_json::from_str(text).map_err(|_| unparsable(attr))?;
                match decoded {
                    Value::String(_) => Err(unparsable(attr)),
                    other => self.parse(Some(&other), attr),
                }
            }
            Some(Value::Array(list)) => self.members(list, attr, 1).map(all),
            Some(Value::Object(object)) => self.object(object, attr),
            Some(_) => Err(unparsable(attr)),
        }
    }

    fn object(&mut self, object: &Map<String, Value>, attr: &str) -> CalcResult<Filter> {
        if is_group(object) {
            return self.group(object, attr, 1);
        }
        if object.contains_key("key") && (object.contains_key("value") || object.contains_key("operator")) {
            return Ok(Filter::All(self.leaf(object, attr)?.into_iter().collect()));
        }
        let mut members = Vec::new();
        for (key, value) in object {
            members.extend(self.legacy(key, value, attr)?);
        }
        Ok(Filter::All(members))
    }

    fn members(&mut self, list: &[Value], attr: &str, depth: usize) -> CalcResult<Vec<Filter>> {
        if depth > limits::FILTER_DEPTH {
            return Err(limits::too_many(attr, "property groups inside each other", limits::FILTER_DEPTH));
        }
        let mut members = Vec::new();
        for member in list {
            let Value::Object(object) = member else { return Err(unparsable(attr)) };
            if is_group(object) {
                members.push(self.group(object, attr, depth + 1)?);
            } else {
                members.extend(self.leaf(object, attr)?);
            }
        }
        Ok(members)
    }

    /// Parses a group. A group without members, and an OR group with an empty member, is the empty filter, also when it is
    /// written back as JSON.
    fn group(&mut self, object: &Map<String, Value>, attr: &str, depth: usize) -> CalcResult<Filter> {
        let any = match object.get("type") {
            None | Some(Value::Null) => false,
            Some(Value::String(kind)) if kind == "AND" => false,
            Some(Value::String(kind)) if kind == "OR" => true,
            Some(other) => {
                return Err(CalcError::invalid(
                    attr,
                    format!("A property group is of type AND or OR, not {other}."),
                ));
            }
        };
        let members = match object.get("values") {
            None | Some(Value::Null) => return Ok(Filter::none()),
            Some(Value::Array(list)) => self.members(list, attr, depth)?,
            Some(_) => return Err(unparsable(attr)),
        };
        Ok(if !any {
            all(members)
        } else if members.is_empty() || members.iter().any(Filter::is_none) {
            Filter::none()
        } else {
            Filter::Any(members)
        })
    }

    fn legacy(&mut self, key: &str, value: &Value, attr: &str) -> CalcResult<Option<Filter>> {
        let named = key
            .rsplit_once("__")
            .and_then(|(name, suffix)| Some((name, Operator::parse(suffix, FilterSide::Calculations)?)));
        let (name, operator) = named.unwrap_or((key, Operator::Exact));
        self.finish(Target::Event, name, operator, value, attr)
    }

    /// Parses a single filter; none if it is incomplete.
    fn leaf(&mut self, object: &Map<String, Value>, attr: &str) -> CalcResult<Option<Filter>> {
        let target = match object.get("type") {
            None | Some(Value::Null) => Target::Event,
            Some(Value::String(kind)) => match kind.as_str() {
                "event" | "events" => Target::Event,
                "feature" => Target::Feature,
                "event_metadata" => Target::Metadata,
                "person" => Target::Person,
                "session" => Target::Session,
                "element" => Target::Element,
                "group" => match group_index(object, attr)? {
                    Some(index) => Target::Group(index),
                    None => return Ok(None),
                },
                "cohort" | "static-cohort" | "dynamic-cohort" | "precalculated-cohort" => {
                    return self.cohort(object, attr);
                }
                "hogql" => return self.expression(object, attr),
                // Flag dependencies only apply to feature flags; on events they are ignored.
                "flag" => return Ok(Some(Filter::none())),
                other if NON_EVENT_TYPES.contains(&other) || other.starts_with("data_warehouse") => {
                    let detail = format!(
                        "Property filters of type {other} do not apply to events. The type must be one of {}.",
                        EVENT_TYPES.join(", ")
                    );
                    return Err(CalcError::invalid(attr, detail));
                }
                _ => return Ok(None),
            },
            Some(_) => return Err(unparsable(attr)),
        };
        let operator = match object.get("operator") {
            None | Some(Value::Null) => Operator::Exact,
            Some(Value::String(name)) => operator(name, attr)?,
            Some(_) => return Err(unparsable(attr)),
        };
        let key = match object.get("key") {
            Some(Value::String(key)) if !key.is_empty() => key.clone(),
            Some(Value::Number(key)) => key.to_string(),
            _ => return Ok(None),
        };
        let non_null = |name| object.get(name).filter(|value: &&Value| !value.is_null());
        let value = non_null("value").or_else(|| non_null("values")).unwrap_or(&Value::Null);
        self.finish(target, &key, operator, value, attr)
    }

    /// Parses a cohort filter; none without a value.
    fn cohort(&mut self, object: &Map<String, Value>, attr: &str) -> CalcResult<Option<Filter>> {
        let non_null = |name| object.get(name).filter(|value: &&Value| !value.is_null());
        let Some(value) = non_null("value").or_else(|| non_null("values")) else { return Ok(None) };
        let id = match value {
            Value::Array(list) if list.len() == 1 => list.first().and_then(id_of),
            other => id_of(other),
        };
        let id = id.ok_or_else(|| CalcError::invalid(attr, format!("{value} is not the id of a cohort.")))?;
        let not_in = matches!(object.get("operator"), Some(Value::String(name)) if name == "not_in" || name == "is_not");
        let negated = not_in || object.get("negation") == Some(&Value::Bool(true));
        self.count(attr)?;
        Ok(Some(Filter::Cohort { id, negated }))
    }

    /// Parses the SQL expression in the filter's key; none without one.
    fn expression(&mut self, object: &Map<String, Value>, attr: &str) -> CalcResult<Option<Filter>> {
        let text = match object.get("key") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
            Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
            Some(constant @ (Value::Number(_) | Value::Bool(_))) => Cow::Owned(constant.to_string()),
            Some(_) => return Err(unparsable(attr)),
        };
        self.count(attr)?;
        Ok(Some(Filter::Expression(Box::new(Expression::parse(&text, attr)?))))
    }

    fn count(&mut self, attr: &str) -> CalcResult<()> {
        self.filters += 1;
        if self.filters > limits::FILTERS {
            return Err(limits::too_many(attr, "property filters", limits::FILTERS));
        }
        Ok(())
    }

    fn finish(
        &mut self,
        target: Target,
        key: &str,
        operator: Operator,
        value: &Value,
        attr: &str,
    ) -> CalcResult<Option<Filter>> {
        let value = match value {
            _ if !operator.needs_value() => Value::Null,
            Value::Null => return Ok(None),
            Value::Array(list) if list.len() > limits::FILTER_VALUES => {
                return Err(limits::too_many(attr, "values in one property filter", limits::FILTER_VALUES));
            }
            Value::Array(list) => list.iter().filter(|value| !value.is_null()).cloned().collect(),
            other => other.clone(),
        };
        if key.len() > limits::NAME_BYTES {
            return Err(limits::too_long(attr, "property key", limits::NAME_BYTES));
        }
        validate_column(target, key, attr)?;
        if target == Target::Session {
            sessions::validate_filter(key, operator, &value, attr)?;
        }
        if target == Target::Element {
            validate_element(key, operator, attr)?;
        }
        self.count(attr)?;
        Ok(Some(Filter::Property(PropertyFilter { target, key: key.to_owned(), operator, value })))
    }
}

/// Whether an object is a group. Groups have members, filters have a key.
fn is_group(object: &Map<String, Value>) -> bool {
    !object.contains_key("key")
        && (object.contains_key("values")
            || matches!(object.get("type"), Some(Value::String(kind)) if kind == "AND" || kind == "OR"))
}

fn operator(name: &str, attr: &str) -> CalcResult<Operator> {
    let unknown = || {
        let allowed = Operator::names(FilterSide::Calculations).join(", ");
        CalcError::invalid(attr, format!("There is no operator \"{name}\": it must be one of {allowed}."))
    };
    Operator::parse(name, FilterSide::Calculations).ok_or_else(unknown)
}

/// An id as a number or numeric string.
fn id_of(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The group type index of a filter; none if it has none.
fn group_index(object: &Map<String, Value>, attr: &str) -> CalcResult<Option<u8>> {
    let Some(value) = object.get("group_type_index").filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let index = id_of(value).filter(|index| *index < limits::GROUP_TYPES);
    let index = index.and_then(|index| u8::try_from(index).ok());
    index.map(Some).ok_or_else(|| limits::invalid_group_type(attr, value))
}

/// Validates the key of a filter on event columns.
fn validate_column(target: Target, key: &str, attr: &str) -> CalcResult<()> {
    let known = matches!(key, "event" | "distinct_id" | "person_id" | "timestamp")
        || group_column_index(key).is_some();
    if target == Target::Metadata && !known {
        let detail = format!("Events have event, distinct_id, person_id, timestamp and $group_0, not {key}.");
        return Err(CalcError::invalid(attr, detail));
    }
    Ok(())
}

/// The group type index of an event column `$group_N`.
pub(super) fn group_column_index(key: &str) -> Option<u8> {
    let index: u8 = key.strip_prefix("$group_")?.parse().ok()?;
    (u64::from(index) < limits::GROUP_TYPES && key.len() == "$group_0".len()).then_some(index)
}

/// Validates an element filter: elements have four keys, and two of them only support equality.
fn validate_element(key: &str, operator: Operator, attr: &str) -> CalcResult<()> {
    if !element::KEYS.contains(&key) {
        return Err(CalcError::invalid(
            attr,
            format!("Elements have {}, not {key}.", element::KEYS.join(", ")),
        ));
    }
    if element::EXACT_KEYS.contains(&key) && !matches!(operator, Operator::Exact | Operator::IsNot) {
        return Err(CalcError::invalid(
            attr,
            format!("A filter on the {key} of elements is exact or is_not, not {}.", operator.name()),
        ));
    }
    Ok(())
}

/// The AND of these filters, without empty ones.
fn all(mut members: Vec<Filter>) -> Filter {
    members.retain(|member| !member.is_none());
    Filter::All(members)
}

fn unparsable(attr: &str) -> CalcError {
    CalcError::invalid(attr, "Properties are unparsable!")
}
