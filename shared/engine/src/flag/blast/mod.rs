//! How many persons or groups a condition reaches: the condition of a request as a test of one of them.
//!
//! The way of a request: [`Condition::parse`] → look up [`Condition::cohort_ids`] and those that they name →
//! [`Condition::compile`] → [`Blast::actors`] says whom to go through, [`Blast::matches_person`] or
//! [`Blast::matches_group`] whom to count.
//!
//! Must stay true: values are equal when their text forms are, so `25` and `"25"` are; rollout and variant of the
//! condition mean nothing here; what a flag could not have as a condition is refused.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde_json::Value;

use super::{
    FieldError,
    cohort::Cohort,
    evaluate::{Cohorts, Compiler, GroupSubject, Known, Leaf, Subject},
    fields, filter_view as view,
    json::Object,
    limits, properties, python,
    references::{self, is_cohort},
    shape,
};

mod group_key;

/// Whom a condition is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actors {
    /// The persons of the project.
    Persons,
    /// The groups of the type with this index.
    Groups(u32),
}

/// The condition of a request, judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    properties: Vec<Value>,
    actors: Actors,
}

impl Condition {
    /// Judges a body: `{"condition": {"properties": [...]} | null, "group_type_index": integer | null}`.
    pub fn parse(body: &Object) -> Result<Self, FieldError> {
        let Some(condition) = body.get("condition") else {
            return Err(FieldError::general("Missing condition for which to get blast radius"));
        };
        let index = match body.get("group_type_index") {
            None | Some(Value::Null) => None,
            Some(index) => {
                let index = fields::integer("group_type_index", index, Some(0))?;
                Some(u32::try_from(index).unwrap_or(u32::MAX))
            }
        };
        shape::check_size(condition).map_err(|error| blame("condition", error))?;
        let properties = match condition {
            Value::Null => Vec::new(),
            other => properties_of(fields::object("condition", other)?)?,
        };
        for (place, property) in properties.iter().enumerate() {
            check(place, property, index)?;
        }
        check_patterns(&properties)?;
        let about_groups = properties.iter().filter(|property| is_of_group(property)).count();
        let actors = match index {
            Some(index) if about_groups == properties.len() => Actors::Groups(index),
            Some(_) if about_groups > 0 => {
                let detail = "Filters are not valid (can only use group properties)";
                return Err(FieldError::general(detail));
            }
            _ => Actors::Persons,
        };
        Ok(Self { properties, actors })
    }

    /// The cohorts that it names; to be looked up with those that they name in turn.
    pub fn cohort_ids(&self) -> BTreeSet<i64> {
        let named = self.properties.iter().filter(|property| is_cohort(property));
        named.filter_map(references::cohort_id).collect()
    }

    /// Makes it ready. Naive dates are in `zone`, relative ones count from `now`.
    pub fn compile(&self, cohorts: impl IntoIterator<Item = Cohort>, zone: Tz, now: DateTime<Utc>) -> Blast {
        let compiler = Compiler::by_text(zone, now);
        let cohorts = Cohorts::new(cohorts, &compiler);
        let leaf = |property: &Value| {
            let property = &with_plain_operator(property);
            if is_of_group(property) {
                return Leaf::group(property, None, &compiler).unwrap_or(Leaf::Never);
            }
            Leaf::criterion(property, &cohorts, &compiler)
        };
        let leaves: Vec<Leaf> = self.properties.iter().map(leaf).collect();
        let (mut used, mut static_cohorts) = (BTreeSet::new(), BTreeSet::new());
        leaves.iter().for_each(|leaf| leaf.cohorts(&mut used, &mut static_cohorts));
        let used = cohorts.closure(used.into_iter());
        for cohort in &used {
            static_cohorts.extend(cohorts.static_cohorts_of(*cohort));
        }
        Blast { leaves, cohorts, used, static_cohorts, actors: self.actors }
    }
}

/// A condition, ready to test persons or groups.
#[derive(Debug)]
pub struct Blast {
    leaves: Vec<Leaf>,
    cohorts: Cohorts,
    used: Vec<usize>,
    static_cohorts: BTreeSet<i64>,
    actors: Actors,
}

impl Blast {
    /// Whom to go through.
    pub fn actors(&self) -> Actors {
        self.actors
    }

    /// Whether it reaches all of them, so that counting them is enough.
    pub fn reaches_all(&self) -> bool {
        self.leaves.is_empty()
    }

    /// The static cohorts whose membership decides anything.
    pub fn static_cohorts(&self) -> &BTreeSet<i64> {
        &self.static_cohorts
    }

    /// Whether it reaches a person, who is a member of these static cohorts.
    pub fn matches_person(&self, properties: &Object, static_cohorts: &BTreeSet<i64>) -> bool {
        self.matches(&Subject { distinct_id: "", properties, groups: BTreeMap::new(), static_cohorts })
    }

    /// Whether it reaches a group.
    pub fn matches_group(&self, key: &str, properties: &Object) -> bool {
        let Actors::Groups(index) = self.actors else { return false };
        let groups = BTreeMap::from([(index, GroupSubject { key, properties })]);
        let (nothing, nowhere) = (Object::new(), BTreeSet::new());
        self.matches(&Subject { distinct_id: "", properties: &nothing, groups, static_cohorts: &nowhere })
    }

    fn matches(&self, subject: &Subject<'_>) -> bool {
        let members = self.cohorts.evaluate(&self.used, subject);
        let known = Known { subject, members, flags: &[], values: Vec::new() };
        self.leaves.iter().all(|leaf| leaf.holds(&known) == Some(true))
    }
}

fn properties_of(condition: &Object) -> Result<Vec<Value>, FieldError> {
    let properties = match condition.get("properties") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(properties)) => properties,
        Some(other) => {
            let got = python::type_name(other);
            return Err(refused(format!("condition.properties must be a list, got {got}")));
        }
    };
    let most = limits::PROPERTIES;
    if properties.len() > most {
        return Err(refused(format!("condition.properties must not have more than {most} entries")));
    }
    Ok(properties.clone())
}

fn check(place: usize, property: &Value, index: Option<u32>) -> Result<(), FieldError> {
    let path = format!("condition.properties[{place}]");
    if !property.is_object() {
        let got = python::type_name(property);
        return Err(refused(format!("{path} must be a dictionary, got {got}")));
    }
    if view::text(property, "key").is_none_or(str::is_empty) && !is_cohort(property) {
        return Err(refused(format!("{path}.key: a property key is required")));
    }
    let known = match property.get("operator") {
        None | Some(Value::Null) => true,
        Some(operator) => operator.as_str().is_some_and(properties::is_operator),
    };
    if !known {
        return Err(refused(format!("{path}.operator: unsupported operator for feature flags")));
    }
    properties::check_list_length(property).map_err(|error| blame("condition", error))?;
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

/// The caps on regular expressions, which are the same as for a flag.
fn check_patterns(all: &[Value]) -> Result<(), FieldError> {
    let is_pattern = |property: &&Value| matches!(view::operator(property), "regex" | "not_regex");
    let values = all.iter().filter(is_pattern).filter_map(|property| property.get("value"));
    let patterns = values.flat_map(|value| match value {
        Value::Array(values) => values.as_slice(),
        other => std::slice::from_ref(other),
    });
    let mut count = 0;
    for pattern in patterns {
        count += 1;
        let most = limits::PATTERN_BYTES;
        if pattern.as_str().is_some_and(|text| text.len() > most) {
            return Err(refused(format!("a pattern must not be longer than {most} bytes")));
        }
    }
    let most = limits::PATTERNS;
    if count > most {
        return Err(refused(format!("condition must not have more than {most} regular expressions")));
    }
    Ok(())
}

fn is_of_group(property: &Value) -> bool {
    view::text(property, "type") == Some("group")
}

/// Of properties other than cohorts, `in` and `not_in` ask what `exact` and `is_not` ask of a list.
fn with_plain_operator(property: &Value) -> Value {
    let mut property = property.clone();
    let plain = match view::operator(&property) {
        "in" => "exact",
        "not_in" => "is_not",
        _ => return property,
    };
    if !is_cohort(&property)
        && let Some(property) = property.as_object_mut()
    {
        property.insert("operator".to_owned(), plain.into());
    }
    property
}

/// The same refusal, of the field of this request.
fn blame(attr: &str, error: FieldError) -> FieldError {
    let detail = match error.detail.strip_prefix("filters ") {
        Some(rest) => format!("{attr} {rest}"),
        None => error.detail,
    };
    FieldError::new(attr, error.code, detail)
}

fn refused(detail: String) -> FieldError {
    FieldError::invalid("condition", detail)
}

#[cfg(test)]
mod tests;
