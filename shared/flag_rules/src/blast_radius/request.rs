//! Parses and validates the request for a blast radius.
//!
//! A request has one condition (`condition`), the filters of a flag (`filters`), or neither, which matches everyone.
//! Filters may have the newer forms of early access and holdout; early access needs the `key` of the flag beside them.

use std::collections::BTreeSet;

use pennon_filters::body::json::Object;
use pennon_filters::body::{FieldError, fields, python};
use serde_json::Value;

use super::{Actors, group_key, is_of_group};
use crate::conditions::record_ids::{self, is_cohort};
use crate::conditions::{filter_view as view, properties, shape};
use crate::evaluate::{enrollment_property, holdout_percentage};
use crate::limits;

/// The conditions of a request. An entity matches when all properties of one condition match.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    alternatives: Vec<Vec<Value>>,
    actors: Actors,
    overrides: ConditionOverrides,
}

/// The parts of a flag's filters that decide before its conditions.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ConditionOverrides {
    /// The person property that records enrollment in early access.
    pub(super) enrollment: Option<String>,
    /// The share of ids that is held out, in percent.
    pub(super) holdout: Option<f64>,
}

/// The location of a condition in the body.
struct ConditionLocation {
    /// The field of the body.
    attr: &'static str,
    /// The path of the condition, for error details.
    path: String,
}

impl Conditions {
    /// Validates a body: `{"condition": {"properties": [...]} | null, "group_type_index": integer | null}`, or
    /// `{"key": string, "filters": {"groups": [{"properties": [...]}], "aggregation_group_type_index": integer | null,
    /// "feature_enrollment": boolean, "holdout": {"id", "exclusion_percentage"} | null}}`.
    pub fn parse(body: &Object) -> Result<Self, FieldError> {
        let mut index = group_type_index("group_type_index", body.get("group_type_index"))?;
        let filters = body.get("filters").filter(|filters| !filters.is_null());
        let mut overrides = ConditionOverrides::default();
        let conditions = match (body.get("condition"), filters) {
            (Some(condition), filters) => {
                // They are ignored, but invalid ones are refused all the same.
                let alone = filters.map(|filters| Self::parse(&body_with_filters_only(body, filters)));
                alone.transpose()?;
                vec![parse_condition(condition)?]
            }
            (None, Some(filters)) => {
                shape::check_size(filters)?;
                let filters = fields::object("filters", filters)?;
                let own = filters.get("aggregation_group_type_index");
                index = index.or(group_type_index("filters", own)?);
                overrides = parse_overrides(body, filters)?;
                parse_filters(filters)?
            }
            (None, None) => vec![(ConditionLocation::condition(), Vec::new())],
        };
        for (location, properties) in &conditions {
            for (at, property) in properties.iter().enumerate() {
                check(location, at, property, index)?;
            }
        }
        check_patterns(&conditions)?;
        let all = || conditions.iter().flat_map(|(_, properties)| properties);
        let about_groups = all().filter(|property| is_of_group(property)).count();
        let actors = match index {
            Some(index) if about_groups == all().count() => Actors::Groups(index),
            Some(_) if about_groups > 0 => {
                let detail = "Filters are not valid (can only use group properties)";
                return Err(FieldError::general(detail));
            }
            _ => Actors::Persons,
        };
        let alternatives = conditions.into_iter().map(|(_, properties)| properties).collect();
        Ok(Self { alternatives, actors, overrides })
    }

    /// The entities that they are about.
    pub fn actors(&self) -> Actors {
        self.actors
    }

    /// The properties of each condition.
    pub fn alternatives(&self) -> &[Vec<Value>] {
        &self.alternatives
    }

    /// The parts that decide before the conditions.
    pub(super) fn overrides(&self) -> &ConditionOverrides {
        &self.overrides
    }

    /// The person property that records enrollment in early access, if it affects the result.
    pub fn enrollment_property(&self) -> Option<&str> {
        self.overrides.enrollment.as_deref()
    }

    /// All properties in them.
    pub fn properties(&self) -> impl Iterator<Item = &Value> {
        self.alternatives.iter().flatten()
    }

    /// The cohorts in them; the caller loads these with their transitive references.
    pub fn cohort_ids(&self) -> BTreeSet<i64> {
        let named = self.properties().filter(|property| is_cohort(property));
        named.filter_map(record_ids::cohort_id).collect()
    }
}

/// The equivalent request with only the `filters` of a `body` that also has a condition.
fn body_with_filters_only(body: &Object, filters: &Value) -> Object {
    let others = ["key", "group_type_index"].into_iter().filter_map(|name| Some((name, body.get(name)?)));
    let parts = others.chain([("filters", filters)]);
    parts.map(|(name, part)| (name.to_owned(), part.clone())).collect()
}

impl ConditionLocation {
    fn condition() -> ConditionLocation {
        ConditionLocation { attr: "condition", path: "condition".to_owned() }
    }

    fn group(at: usize) -> ConditionLocation {
        ConditionLocation { attr: "filters", path: format!("groups[{at}]") }
    }

    fn refused(&self, rest: impl AsRef<str>) -> FieldError {
        FieldError::invalid(self.attr, format!("{}{}", self.path, rest.as_ref()))
    }
}

fn group_type_index(attr: &str, sent: Option<&Value>) -> Result<Option<u32>, FieldError> {
    let Some(index) = sent.filter(|index| !index.is_null()) else { return Ok(None) };
    let index = fields::integer(attr, index, Some(0))?;
    Ok(Some(u32::try_from(index).unwrap_or(u32::MAX)))
}

/// Parses the field `condition`.
fn parse_condition(condition: &Value) -> Result<(ConditionLocation, Vec<Value>), FieldError> {
    let location = ConditionLocation::condition();
    shape::check_size(condition).map_err(|error| with_attr(location.attr, error))?;
    let properties = match condition {
        Value::Null => Vec::new(),
        other => parse_properties(&location, fields::object(location.attr, other)?)?,
    };
    Ok((location, properties))
}

/// Parses the newer forms of early access and holdout.
fn parse_overrides(body: &Object, filters: &Object) -> Result<ConditionOverrides, FieldError> {
    shape::check_holdout(filters)?;
    let key = body.get("key").and_then(Value::as_str).filter(|key| !key.is_empty());
    let enrollment = enrollment_property(key.unwrap_or_default(), filters);
    if enrollment.is_some() && key.is_none() {
        let detail = "feature_enrollment depends on the key of the flag. Send `key` beside `filters`.";
        return Err(FieldError::new("key", "required", detail));
    }
    Ok(ConditionOverrides { enrollment, holdout: holdout_percentage(filters) })
}

/// Parses the properties of each condition of a flag; filters without `groups` match everyone.
fn parse_filters(filters: &Object) -> Result<Vec<(ConditionLocation, Vec<Value>)>, FieldError> {
    let groups = match filters.get("groups") {
        None => return Ok(vec![(ConditionLocation::group(0), Vec::new())]),
        Some(Value::Array(groups)) => groups,
        Some(other) => {
            let detail = format!("groups must be a list, got {}", python::type_name(other));
            return Err(FieldError::invalid("filters", detail));
        }
    };
    let most = limits::CONDITIONS;
    if groups.len() > most {
        let detail = format!("groups must not have more than {most} entries");
        return Err(FieldError::invalid("filters", detail));
    }
    let group = |(at, group): (usize, &Value)| {
        let location = ConditionLocation::group(at);
        let Value::Object(group) = group else {
            return Err(location.refused(format!(" must be a dictionary, got {}", python::type_name(group))));
        };
        let properties = parse_properties(&location, group)?;
        Ok((location, properties))
    };
    groups.iter().enumerate().map(group).collect()
}

fn parse_properties(location: &ConditionLocation, condition: &Object) -> Result<Vec<Value>, FieldError> {
    let properties = match condition.get("properties") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(properties)) => properties,
        Some(other) => {
            return Err(
                location.refused(format!(".properties must be a list, got {}", python::type_name(other)))
            );
        }
    };
    let most = limits::PROPERTIES;
    if properties.len() > most {
        return Err(location.refused(format!(".properties must not have more than {most} entries")));
    }
    Ok(properties.clone())
}

fn check(
    location: &ConditionLocation,
    at: usize,
    property: &Value,
    index: Option<u32>,
) -> Result<(), FieldError> {
    let refused = |rest: &str| Err(location.refused(format!(".properties[{at}]{rest}")));
    if !property.is_object() {
        return refused(&format!(" must be a dictionary, got {}", python::type_name(property)));
    }
    if view::text(property, "key").is_none_or(str::is_empty) && !is_cohort(property) {
        return refused(".key: a property key is required");
    }
    let known = match property.get("operator") {
        None | Some(Value::Null) => true,
        Some(operator) => operator.as_str().is_some_and(properties::is_operator),
    };
    if !known {
        return refused(&format!(".{}", properties::unsupported_operator()));
    }
    properties::check_list_length(property).map_err(|error| with_attr(location.attr, error))?;
    match view::text(property, "type") {
        Some("flag") => Err(FieldError::general("Flag properties are not supported in a blast radius.")),
        Some("group") => {
            let own = property.get("group_type_index").and_then(fields::as_integer);
            if own.is_none() || own != index.map(i64::from) {
                let detail = "Invalid group type index for feature flag condition.";
                return Err(FieldError::general(detail));
            }
            group_key::check(property)
        }
        Some("person" | "cohort") | None => Ok(()),
        Some(_) => {
            let detail = "Filters are not valid (can only use person, cohort, and flag properties)";
            Err(FieldError::general(detail))
        }
    }
}

/// The limits on regular expressions, the same as for a flag.
fn check_patterns(conditions: &[(ConditionLocation, Vec<Value>)]) -> Result<(), FieldError> {
    let mut count = 0;
    for (location, properties) in conditions {
        let values = properties
            .iter()
            .filter(|property| properties::is_pattern(property))
            .filter_map(|property| property.get("value"));
        let patterns = values.flat_map(|value| match value {
            Value::Array(values) => values.as_slice(),
            other => std::slice::from_ref(other),
        });
        for pattern in patterns {
            count += 1;
            let most = limits::PATTERN_BYTES;
            if pattern.as_str().is_some_and(|text| text.len() > most) {
                let detail = format!("a pattern must not be longer than {most} bytes");
                return Err(FieldError::invalid(location.attr, detail));
            }
        }
        let most = limits::PATTERNS;
        if count > most {
            let detail = format!("{} must not have more than {most} regular expressions", location.attr);
            return Err(FieldError::invalid(location.attr, detail));
        }
    }
    Ok(())
}

/// Converts an error about `filters` to the field of this request.
fn with_attr(attr: &str, error: FieldError) -> FieldError {
    let detail = match error.detail.strip_prefix("filters ") {
        Some(rest) => format!("{attr} {rest}"),
        None => error.detail,
    };
    FieldError::new(attr, error.code, detail)
}
