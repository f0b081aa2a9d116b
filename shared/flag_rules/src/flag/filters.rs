//! Validates `filters` of a body: all rules in the order of the contract, and the conversion to the stored form.
//!
//! Must stay true: filters are stored as sent, except for payload objects (stored as text) and `cohort_name` (added by
//! reads, dropped). Numbers keep their form.

use pennon_filters::body::json::Object;
use pennon_filters::body::{FieldError, fields};
use serde_json::Value;

use super::WriteKind;
use crate::conditions::{filter_view as view, filters as stored_filters, payloads, properties, shape};
use crate::relations::References;
use crate::relations::{
    cohort_rules,
    dependencies::{self, FlagIdentity},
};

/// The data about the flag being written that the rules need.
#[derive(Debug, Clone, Copy)]
pub struct FilterContext<'a> {
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
pub fn parse(value: Option<&Value>, context: &FilterContext<'_>) -> Result<Option<Object>, FieldError> {
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
    stored_filters::drop_cohort_names(&mut filters);
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

fn check_rules(filters: &Object, context: &FilterContext<'_>) -> Result<(), FieldError> {
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
    properties::check_values(filters, |property| cohort_rules::check(property, context.references))?;
    payloads::check(filters)
}

#[cfg(test)]
mod tests;
