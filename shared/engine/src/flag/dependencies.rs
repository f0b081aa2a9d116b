//! Flags that depend on flags: which dependencies a flag may have, and who keeps a flag from being switched off.
//!
//! Must stay true: live flags never form a circle, and a flag is not switched on while one that it depends on is disabled,
//! as long as each write passes these checks. A dependency that was deleted while its dependent was off stands against
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{FieldError, FlagRow, References, json::Object, python, references};

/// How many dependents a refusal names before it counts the rest.
const NAMED: usize = 5;

/// The flag that is being written.
#[derive(Debug, Clone, Copy)]
pub struct Own<'a> {
    /// Its id; none while it is being created.
    pub id: Option<i64>,
    /// The key that it has after the write.
    pub key: &'a str,
}

/// Checks each property of type `flag`, and that none of them leads back to the flag itself.
pub fn check(filters: &Object, own: Own<'_>, found: &References) -> Result<(), FieldError> {
    for property in references::flag_properties(filters) {
        check_one(property, own, found)?;
    }
    check_circle(filters, own, found)
}

/// Checks that no dependency leads back to the flag itself. A flag that is deleted counts for nothing while it is, so
/// this is checked again when it is restored.
pub fn check_circle(filters: &Object, own: Own<'_>, found: &References) -> Result<(), FieldError> {
    match own.id.and_then(|id| circle(id, own.key, filters, found)) {
        Some(keys) => Err(refused(format!("Circular dependency detected: {}", keys.join(" → ")))),
        None => Ok(()),
    }
}

fn check_one(property: &Value, own: Own<'_>, found: &References) -> Result<(), FieldError> {
    let Some(id) = references::flag_id(property) else {
        let key = python::text(property.get("key").unwrap_or(&Value::Null));
        return Err(refused(format!(
            "Flag dependencies must reference flag IDs (integers), not flag keys. Invalid reference: '{key}'"
        )));
    };
    let Some(flag) = found.flag(id) else {
        return Err(refused(format!("Flag dependency references non-existent flag with ID {id}")));
    };
    if !flag.active {
        let key = &flag.key;
        return Err(refused(format!(
            "Cannot create dependency on disabled flag '{key}' (ID: {id}). \
             Flag dependencies must reference active flags only."
        )));
    }
    if own.id == Some(id) {
        return Err(refused(format!("Feature flag '{}' cannot depend on itself", own.key)));
    }
    Ok(())
}

/// The keys of a way from the flag back to itself, the flag at both ends.
fn circle(own: i64, own_key: &str, filters: &Object, found: &References) -> Option<Vec<String>> {
    let mut reached_from = BTreeMap::new();
    let mut pending: Vec<(i64, i64)> =
        references::flag_ids(filters).into_iter().rev().map(|id| (id, own)).collect();
    while let Some((id, from)) = pending.pop() {
        if id == own {
            return Some(way_back(own, own_key, from, &reached_from, found));
        }
        if reached_from.contains_key(&id) {
            continue;
        }
        reached_from.insert(id, from);
        let next = found.flag(id).map_or(&[][..], |flag| &flag.depends_on);
        pending.extend(next.iter().rev().map(|next| (*next, id)));
    }
    None
}

fn way_back(
    own: i64,
    own_key: &str,
    last: i64,
    reached_from: &BTreeMap<i64, i64>,
    found: &References,
) -> Vec<String> {
    let mut keys = vec![own_key.to_owned()];
    let mut id = last;
    while id != own {
        keys.push(found.flag(id).map_or_else(|| id.to_string(), |flag| flag.key.clone()));
        id = reached_from.get(&id).copied().unwrap_or(own);
    }
    keys.push(own_key.to_owned());
    keys.reverse();
    keys
}

fn refused(detail: String) -> FieldError {
    FieldError::invalid("filters", detail)
}

/// A flag that stands in the way of a write of another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Related {
    /// Its key.
    pub key: String,
    /// Its id.
    pub id: i64,
}

/// The active, live flags among `rows` that depend on the flag `id`, ordered by key.
pub fn dependents_of<'a>(id: i64, rows: impl IntoIterator<Item = &'a FlagRow>) -> Vec<Related> {
    let depends = |row: &&FlagRow| row.active && !row.deleted && row.id != id && row.depends_on.contains(&id);
    let dependents = rows.into_iter().filter(depends).map(|row| Related { key: row.key.clone(), id: row.id });
    dependents.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The disabled flags that filters depend on, ordered by key.
pub fn disabled_dependencies(filters: &Object, found: &References) -> Vec<Related> {
    let flags = references::flag_ids(filters).into_iter().filter_map(|id| Some((id, found.flag(id)?)));
    let disabled =
        flags.filter(|(_, flag)| !flag.active).map(|(id, flag)| Related { key: flag.key.clone(), id });
    disabled.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Flags as a refusal names them: `a (ID: 1), b (ID: 2)`, at most five, then `and 3 more`.
pub fn named(flags: &[Related]) -> String {
    let mut names: Vec<String> =
        flags.iter().take(NAMED).map(|flag| format!("{} (ID: {})", flag.key, flag.id)).collect();
    if flags.len() > NAMED {
        names.push(format!("and {} more", flags.len() - NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests;
