//! The texts of flags as answers show them, remembered by version: a warm process neither reads nor renders a flag again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pennon_core::error::ApiResult;
use pennon_core::store::keys::ProjectId;
use pennon_engine::flag::{FlagRow, Prepared};
use pennon_role_access::payloads;

use super::{Stored, flags_of, names};
use crate::Flags;

/// A flag as shown, and which.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Its row.
    pub id: i64,
    /// The key that it is shown with.
    pub key: String,
    /// Who made it.
    pub creator: Option<i64>,
    /// Its text.
    pub prepared: Arc<Prepared>,
}

/// The text of a record, made or remembered.
pub fn prepared(
    state: &Flags,
    project: ProjectId,
    stored: &Stored,
    names: &BTreeMap<i64, String>,
) -> Arc<Prepared> {
    let id = stored.flag.id;
    if let Some(known) = state.memory.prepared(project, id, stored.version).filter(|it| it.has_names(names)) {
        return known;
    }
    let keys = &state.app.payload_keys;
    let prepared = Arc::new(Prepared::new(&payloads::shown(keys, project, &stored.flag), names));
    if stored.flag.is_encrypted() {
        // A text with secrets in clear is not remembered.
        return prepared;
    }
    state.memory.keep_prepared(project, id, stored.version, &prepared);
    prepared
}

/// The flags of `rows` as shown, in their order, without those that were deleted since the rows were read. `number` is
/// that of the version of the rows. One round trip for what is not remembered.
pub async fn shown(
    state: &Flags,
    project: ProjectId,
    number: i64,
    rows: &[&FlagRow],
) -> ApiResult<Vec<Shown>> {
    let known: Vec<Option<Arc<Prepared>>> =
        rows.iter().map(|row| state.memory.prepared(project, row.id, row.item_version)).collect();
    let missing: Vec<(i64, u64)> = rows
        .iter()
        .zip(&known)
        .filter(|(_, known)| known.is_none())
        .map(|(row, _)| (row.id, row.item_version))
        .collect();
    let cohorts: BTreeSet<i64> = rows.iter().flat_map(|row| row.cohort_ids.iter().copied()).collect();
    let (mut read, mut named) = tokio::try_join!(
        async { Ok(flags_of(state, project, &missing).await?) },
        names(state, project, number, &cohorts),
    )?;
    // Texts with other names than the cohorts have by now are made again.
    let known: Vec<_> =
        known.into_iter().map(|known| known.filter(|prepared| prepared.has_names(&named))).collect();
    let outdated: Vec<(i64, u64)> = rows
        .iter()
        .zip(&known)
        .filter(|(row, known)| known.is_none() && !missing.contains(&(row.id, row.item_version)))
        .map(|(row, _)| (row.id, row.item_version))
        .collect();
    read.extend(flags_of(state, project, &outdated).await?);
    // A flag that was changed since its row was read may name other cohorts.
    let late: BTreeSet<i64> = read.iter().flat_map(|stored| stored.flag.cohort_ids()).collect();
    if !late.is_subset(&cohorts) {
        named.extend(names(state, project, number, &late).await?);
    }
    let read: BTreeMap<i64, Arc<Stored>> = read.into_iter().map(|stored| (stored.flag.id, stored)).collect();
    let shown = rows.iter().zip(known).filter_map(|(row, known)| match known {
        Some(prepared) => {
            Some(Shown { id: row.id, key: row.key.clone(), creator: row.created_by_id, prepared })
        }
        None => {
            let stored = read.get(&row.id)?;
            let creator = stored.flag.created_by.as_ref().map(|user| user.id);
            let key = stored.flag.key.clone();
            Some(Shown { id: row.id, key, creator, prepared: prepared(state, project, stored, &named) })
        }
    });
    Ok(shown.collect())
}
