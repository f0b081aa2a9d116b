//! Checks state changes that other records may block: deleting, restoring, disabling and enabling a flag.
//!
//! Must stay true: a check compares the stored flag with the one about to be stored; a write that does not change the
//! state is never refused here.

use std::collections::BTreeSet;

use pennon_filters::body::FieldError;

use super::input::{DELETED, key_held_by};
use super::{Flag, FlagRow};
use crate::relations::References;
use crate::relations::dependencies::{self, FlagIdentity, RelatedFlag, format_flags};

/// Other records of the project that affect the write.
#[derive(Debug, Clone, Copy)]
pub struct LinkedRecords<'a> {
    /// Whether an early access feature uses the flag.
    pub early_access: bool,
    /// The ids of experiments on the flag that are not deleted, ascending.
    pub live_experiments: &'a [i64],
    /// Whether a deleted experiment was on the flag.
    pub deleted_experiments: bool,
    /// The enabled live flags that depend on it: [`dependents_of`].
    pub dependents: &'a [RelatedFlag],
    /// The flags that it depends on.
    pub references: &'a References,
    /// The id of another live flag that has its key.
    pub key_holder: Option<i64>,
}

/// Checks the change from `before` to `after`. Every error is a 400.
pub fn check(before: &Flag, after: &Flag, links: &LinkedRecords<'_>) -> Result<(), FieldError> {
    match (before.deleted, after.deleted) {
        (false, true) => check_delete(links)?,
        (true, false) => {
            if let Some(holder) = links.key_holder {
                return Err(key_held_by(holder));
            }
            let identity = FlagIdentity { id: Some(after.id), key: &after.key };
            dependencies::check_cycle(&after.filters, identity, links.references)?;
        }
        _ => {}
    }
    match (before.active, after.active) {
        (true, false) if !links.dependents.is_empty() => {
            let list = format_flags(links.dependents);
            Err(FieldError::general(format!(
                "Cannot disable this feature flag because other flags depend on it: {list}. \
                 Please update or disable the dependent flags first."
            )))
        }
        (false, true) => check_enable(after, links.references),
        _ => Ok(()),
    }
}

fn check_delete(links: &LinkedRecords<'_>) -> Result<(), FieldError> {
    if links.early_access {
        return Err(FieldError::general(
            "Cannot delete a feature flag that is in use with early access features. \
             Please delete the early access feature before deleting the flag.",
        ));
    }
    if !links.live_experiments.is_empty() {
        let ids: Vec<String> = links.live_experiments.iter().map(i64::to_string).collect();
        return Err(FieldError::general(format!(
            "Cannot delete a feature flag that is linked to active experiment(s) with ID(s): {}. \
             Please delete the experiment(s) before deleting the flag.",
            ids.join(", ")
        )));
    }
    if !links.dependents.is_empty() {
        let list = format_flags(links.dependents);
        return Err(FieldError::general(format!(
            "Cannot delete this feature flag because other flags depend on it: {list}. \
             Please update or delete the dependent flags first."
        )));
    }
    Ok(())
}

fn check_enable(after: &Flag, references: &References) -> Result<(), FieldError> {
    let disabled = dependencies::disabled_dependencies(&after.filters, references);
    if disabled.is_empty() {
        return Ok(());
    }
    let list = format_flags(&disabled);
    Err(FieldError::general(format!(
        "Cannot enable this feature flag because it depends on disabled flags: {list}. \
         Please enable the dependency flags first."
    )))
}

/// The new key of a flag that is deleted while only deleted experiments refer to it: the experiments keep referring to
/// it by this key, and its former key becomes free. `None` when the key stays.
pub fn key_after_delete(before: &Flag, after: &Flag, links: &LinkedRecords<'_>) -> Option<String> {
    let is_delete = !before.deleted && after.deleted;
    let only_deleted = links.deleted_experiments && links.live_experiments.is_empty();
    (is_delete && only_deleted).then(|| format!("{}{DELETED}{}", after.key, after.id))
}

/// The enabled live flags among `rows` that depend on the flag `id`, ordered by key.
pub fn dependents_of<'a>(id: i64, rows: impl IntoIterator<Item = &'a FlagRow>) -> Vec<RelatedFlag> {
    let depends = |row: &&FlagRow| row.active && !row.deleted && row.id != id && row.depends_on.contains(&id);
    let dependents =
        rows.into_iter().filter(depends).map(|row| RelatedFlag { key: row.key.clone(), id: row.id });
    dependents.collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests;
