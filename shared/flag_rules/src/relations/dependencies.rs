//! Dependencies between flags: which ones are valid, and which flags prevent another one from being disabled.
//!
//! Must stay true: as long as each write passes these checks, live flags never form a cycle, and no flag is enabled
//! while a dependency is disabled. A dependency that was deleted while its dependent was disabled blocks nothing.

use std::collections::{BTreeMap, BTreeSet};

use pennon_filters::body::json::Object;
use pennon_filters::body::{FieldError, python};
use serde_json::Value;

use super::References;
use crate::conditions::record_ids;

/// Most dependents that an error lists before it counts the rest.
const MAX_NAMED: usize = 5;

/// The flag that is being written.
#[derive(Debug, Clone, Copy)]
pub struct FlagIdentity<'a> {
    /// Its id; `None` during a create.
    pub id: Option<i64>,
    /// Its key after the write.
    pub key: &'a str,
}

/// Checks each property of type `flag`, and that the dependencies contain no cycle through the flag.
pub fn check(filters: &Object, own: FlagIdentity<'_>, resolved: &References) -> Result<(), FieldError> {
    for property in record_ids::flag_properties(filters) {
        check_dependency(property, own, resolved)?;
    }
    check_cycle(filters, own, resolved)
}

/// Checks that no dependency leads back to the flag. Deleted flags are not part of the graph, so a restore checks this
/// again.
pub fn check_cycle(filters: &Object, own: FlagIdentity<'_>, resolved: &References) -> Result<(), FieldError> {
    match own.id.and_then(|id| find_cycle(id, own.key, filters, resolved)) {
        Some(keys) => Err(invalid_filters(format!("Circular dependency detected: {}", keys.join(" → ")))),
        None => Ok(()),
    }
}

fn check_dependency(
    property: &Value,
    own: FlagIdentity<'_>,
    resolved: &References,
) -> Result<(), FieldError> {
    let Some(id) = record_ids::flag_id(property) else {
        let key = python::text(property.get("key").unwrap_or(&Value::Null));
        return Err(invalid_filters(format!(
            "Flag dependencies must reference flag IDs (integers), not flag keys. Invalid reference: '{key}'"
        )));
    };
    let Some(flag) = resolved.flag(id) else {
        return Err(invalid_filters(format!("Flag dependency references non-existent flag with ID {id}")));
    };
    if !flag.active {
        let key = &flag.key;
        return Err(invalid_filters(format!(
            "Cannot create dependency on disabled flag '{key}' (ID: {id}). \
             Flag dependencies must reference active flags only."
        )));
    }
    if own.id == Some(id) {
        return Err(invalid_filters(format!("Feature flag '{}' cannot depend on itself", own.key)));
    }
    Ok(())
}

/// The keys along a cycle through the flag, with the flag at both ends.
fn find_cycle(own: i64, own_key: &str, filters: &Object, resolved: &References) -> Option<Vec<String>> {
    let mut predecessors = BTreeMap::new();
    let mut pending: Vec<(i64, i64)> =
        record_ids::flag_ids(filters).into_iter().rev().map(|id| (id, own)).collect();
    while let Some((id, from)) = pending.pop() {
        if id == own {
            return Some(cycle_path(own, own_key, from, &predecessors, resolved));
        }
        if predecessors.contains_key(&id) {
            continue;
        }
        predecessors.insert(id, from);
        let next = resolved.flag(id).map_or(&[][..], |flag| &flag.depends_on);
        pending.extend(next.iter().rev().map(|next| (*next, id)));
    }
    None
}

fn cycle_path(
    own: i64,
    own_key: &str,
    last: i64,
    predecessors: &BTreeMap<i64, i64>,
    resolved: &References,
) -> Vec<String> {
    let mut keys = vec![own_key.to_owned()];
    let mut id = last;
    while id != own {
        keys.push(resolved.flag(id).map_or_else(|| id.to_string(), |flag| flag.key.clone()));
        id = predecessors.get(&id).copied().unwrap_or(own);
    }
    keys.push(own_key.to_owned());
    keys.reverse();
    keys
}

fn invalid_filters(detail: String) -> FieldError {
    FieldError::invalid("filters", detail)
}

/// A flag that blocks the write of another flag.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RelatedFlag {
    /// Its key.
    pub key: String,
    /// Its id.
    pub id: i64,
}

/// The disabled flags that filters depend on, ordered by key.
pub fn disabled_dependencies(filters: &Object, resolved: &References) -> Vec<RelatedFlag> {
    let flags = record_ids::flag_ids(filters).into_iter().filter_map(|id| Some((id, resolved.flag(id)?)));
    let disabled =
        flags.filter(|(_, flag)| !flag.active).map(|(id, flag)| RelatedFlag { key: flag.key.clone(), id });
    disabled.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Formats flags for an error: `a (ID: 1), b (ID: 2)`, at most five, then `and 3 more`.
pub fn format_flags(flags: &[RelatedFlag]) -> String {
    let mut names: Vec<String> =
        flags.iter().take(MAX_NAMED).map(|flag| format!("{} (ID: {})", flag.key, flag.id)).collect();
    if flags.len() > MAX_NAMED {
        names.push(format!("and {} more", flags.len() - MAX_NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests;
