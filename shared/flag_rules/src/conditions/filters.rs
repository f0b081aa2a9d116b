//! Validates `filters` of a body: all rules in the order of the contract, and the conversion to the stored form.
//!
//! Must stay true: filters are stored as sent, except for payload objects (stored as text) and `cohort_name` (added by
//! reads, dropped). Numbers keep their form.

use pennon_filters::body::json::Object;
use pennon_filters::body::{FieldError, fields};
use serde_json::{Value, json};

use super::{filter_view as view, payloads, properties, shape};
use crate::flag::WriteKind;
use crate::relations::References;
use crate::relations::dependencies::{self, FlagIdentity};

/// The field that reads add to properties of type `cohort`.
pub const COHORT_NAME: &str = "cohort_name";

/// The data about the flag being written that the rules need.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Create or update.
    pub write: WriteKind,
    /// The flag being written, for rules about dependencies.
    pub own: FlagIdentity<'a>,
    /// The records that the filters refer to.
    pub references: &'a References,
    /// Whether an early access feature uses the flag.
    pub linked_to_early_access: bool,
    /// The stored filters whose payloads may be sent masked: those of a flag with encrypted payloads.
    pub masked: Option<&'a Object>,
}

/// Validates the `filters` of a body. `None` when the stored ones stay, because an update sent no `groups`.
pub fn parse(value: Option<&Value>, context: &Context<'_>) -> Result<Option<Object>, FieldError> {
    let Some(value) = value else { return Ok(None) };
    if value.is_null() {
        return Err(FieldError::null("filters"));
    }
    let sent = fields::object("filters", value)?;
    if context.write == WriteKind::Create {
        require_condition(sent)?;
    } else if !sent.contains_key("groups") {
        return Ok(None);
    }
    shape::check_size(value)?;
    let mut filters = sent.clone();
    if let Some(stored) = context.masked {
        payloads::keep_masked(&mut filters, stored);
    }
    check_rules(&filters, context)?;
    payloads::store_objects_as_text(&mut filters);
    drop_cohort_names(&mut filters);
    Ok(Some(filters))
}

/// A create requires a condition.
fn require_condition(filters: &Object) -> Result<(), FieldError> {
    match filters.get("groups") {
        None | Some(Value::Null) => {}
        Some(Value::Array(groups)) if groups.is_empty() => {}
        Some(_) => return Ok(()),
    }
    let detail = "Feature flags must have at least one condition set (group).";
    Err(FieldError::invalid("filters", detail))
}

fn check_rules(filters: &Object, context: &Context<'_>) -> Result<(), FieldError> {
    shape::check(filters)?;
    properties::check_form(filters)?;
    properties::check_person_types(filters)?;
    properties::check_flag_operators(filters)?;
    properties::check_reference_caps(filters)?;
    dependencies::check(filters, context.own, context.references)?;
    if context.linked_to_early_access && view::aggregation_index(filters).is_some() {
        let detail = "Cannot change this flag to a group-based when linked to an Early Access Feature.";
        return Err(FieldError::invalid("filters", detail));
    }
    properties::check_group_types(filters)?;
    shape::check_variant_sum(filters)?;
    properties::check_values(filters, context.references)?;
    payloads::check(filters)
}

/// The filters of a flag without stored filters: one condition that matches everyone.
pub fn default_filters() -> Object {
    let mut shown = Object::new();
    shown.insert("groups".to_owned(), json!([{"properties": [], "rollout_percentage": null}]));
    shown
}

/// Calls `change` for each property of any condition.
pub fn for_each_property_mut(filters: &mut Object, mut change: impl FnMut(&mut Object)) {
    for list in view::CONDITION_LISTS {
        for_each_property_of(filters, list, &mut change);
    }
}

/// Calls `change` for each property of the conditions under one key of the filters.
pub fn for_each_property_of(filters: &mut Object, list: &str, change: &mut impl FnMut(&mut Object)) {
    let conditions = filters.get_mut(list).and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let properties = condition.get_mut("properties").and_then(Value::as_array_mut);
        properties.into_iter().flatten().filter_map(Value::as_object_mut).for_each(&mut *change);
    }
}

/// Removes the names that reads add to properties of type `cohort`.
pub fn drop_cohort_names(filters: &mut Object) {
    for_each_property_mut(filters, |property| {
        if property.get("type").is_some_and(|kind| kind == "cohort") {
            property.shift_remove(COHORT_NAME);
        }
    });
}

#[cfg(test)]
mod tests;
