//! Rendered flags for responses, cached by item version: a warm process neither reads nor renders an unchanged flag
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pennon_core::error::ApiResult;
use pennon_core::store::keys::ProjectId;
use pennon_flag_rules::{FlagRow, FlagTemplate};
use pennon_role_access::payloads;

use super::{StoredFlag, load_cohort_names, load_flags};
use crate::Flags;

/// A flag of a list response.
#[derive(Debug, Clone)]
pub struct ListedFlag {
    /// The flag id.
    pub id: i64,
    /// The key in the response.
    pub key: String,
    /// User id of the creator.
    pub creator_id: Option<i64>,
    /// The rendered flag.
    pub template: Arc<FlagTemplate>,
}

/// The rendered record, from the cache if possible.
pub fn flag_template(
    state: &Flags,
    project: ProjectId,
    stored: &StoredFlag,
    cohort_names: &BTreeMap<i64, String>,
) -> Arc<FlagTemplate> {
    let id = stored.flag.id;
    if let Some(cached) =
        state.memory.get_template(project, id, stored.version).filter(|it| it.has_cohort_names(cohort_names))
    {
        return cached;
    }
    let keys = &state.app.payload_keys;
    let template = Arc::new(FlagTemplate::new(&payloads::masked(keys, project, &stored.flag), cohort_names));
    if stored.flag.is_encrypted() {
        // A text with decrypted secrets is not cached.
        return template;
    }
    state.memory.put_template(project, id, stored.version, &template);
    template
}

/// The rendered flags of `rows`, in their order, without flags that were deleted after the rows were read. `version` is
/// the version number of the rows. One round trip for what is not cached.
pub async fn load_templates(
    state: &Flags,
    project: ProjectId,
    version: i64,
    rows: &[&FlagRow],
) -> ApiResult<Vec<ListedFlag>> {
    let cached: Vec<Option<Arc<FlagTemplate>>> =
        rows.iter().map(|row| state.memory.get_template(project, row.id, row.item_version)).collect();
    let missing: Vec<(i64, u64)> = rows
        .iter()
        .zip(&cached)
        .filter(|(_, cached)| cached.is_none())
        .map(|(row, _)| (row.id, row.item_version))
        .collect();
    let cohorts: BTreeSet<i64> = rows.iter().flat_map(|row| row.cohort_ids.iter().copied()).collect();
    let (mut loaded, mut cohort_names) = tokio::try_join!(
        async { Ok(load_flags(state, project, &missing).await?) },
        load_cohort_names(state, project, version, &cohorts),
    )?;
    // Flags whose cohorts were renamed since are rendered again.
    let cached: Vec<_> = cached
        .into_iter()
        .map(|cached| cached.filter(|template| template.has_cohort_names(&cohort_names)))
        .collect();
    let outdated: Vec<(i64, u64)> = rows
        .iter()
        .zip(&cached)
        .filter(|(row, cached)| cached.is_none() && !missing.contains(&(row.id, row.item_version)))
        .map(|(row, _)| (row.id, row.item_version))
        .collect();
    loaded.extend(load_flags(state, project, &outdated).await?);
    // A flag that changed after its row was read may refer to other cohorts.
    let other_cohorts: BTreeSet<i64> = loaded.iter().flat_map(|stored| stored.flag.cohort_ids()).collect();
    if !other_cohorts.is_subset(&cohorts) {
        cohort_names.extend(load_cohort_names(state, project, version, &other_cohorts).await?);
    }
    let loaded: BTreeMap<i64, Arc<StoredFlag>> =
        loaded.into_iter().map(|stored| (stored.flag.id, stored)).collect();
    let listed = rows.iter().zip(cached).filter_map(|(row, cached)| match cached {
        Some(template) => {
            Some(ListedFlag { id: row.id, key: row.key.clone(), creator_id: row.created_by_id, template })
        }
        None => {
            let stored = loaded.get(&row.id)?;
            let creator_id = stored.flag.created_by.as_ref().map(|user| user.id);
            let key = stored.flag.key.clone();
            Some(ListedFlag {
                id: row.id,
                key,
                creator_id,
                template: flag_template(state, project, stored, &cohort_names),
            })
        }
    });
    Ok(listed.collect())
}
