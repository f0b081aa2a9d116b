//! Overrides of experience continuity: the id that is hashed for a person, for flags that keep their value
//! through a login.
//!
//! A row belongs to one distinct id, by its derived person id ([`derive_person_id`]); a person has the overrides of all
//! its ids. If several exist for a flag, the oldest counts. Must stay true: the first override of a row
//! survives concurrent writes, because a row is written with the version that was read as precondition; rows
//! are erased with their person.

use std::collections::{BTreeMap, BTreeSet};

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, PartitionQuery, StoreError, Table, WriteCondition, back_off_after_conflict};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::EventStoreError;
use crate::keys;
use crate::persons::ErasureFilter;

/// Lifetime of a row after it was last written or extended, in seconds: 425 days.
const LIFE_SECONDS: i64 = 425 * 86_400;
/// Age after which a read extends a row, in seconds: 30 days. So most reads write nothing.
const EXTENDED_AFTER_SECONDS: i64 = 30 * 86_400;
/// Write attempts on version conflicts.
const TRIES: u32 = 12;

/// The body of a row.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct OverridesRow {
    overrides: Vec<FlagOverride>,
}

/// What one request stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct FlagOverride {
    /// The id that is hashed.
    id: String,
    /// When it was stored, in microseconds since the epoch.
    at: i64,
    /// The flags that it applies to.
    flags: Vec<i64>,
}

/// The overrides of a person.
#[derive(Debug, Default)]
pub struct Overrides {
    rows: BTreeMap<Uuid, Item>,
}

impl Overrides {
    /// Reads the overrides of the person with these ids. One round trip.
    pub async fn read(
        records: &Table,
        project: ProjectId,
        ids: &BTreeSet<Uuid>,
    ) -> Result<Overrides, StoreError> {
        let keys: Vec<_> = ids.iter().map(|id| keys::continuity(project, *id)).collect();
        let items = records.batch_get(&keys).await?;
        let rows = ids.iter().zip(items).filter_map(|(id, item)| Some((*id, item?)));
        Ok(Overrides { rows: rows.collect() })
    }

    /// Adds the overrides of more ids.
    #[must_use]
    pub fn and(mut self, more: Overrides) -> Overrides {
        self.rows.extend(more.rows);
        self
    }

    /// The hashed id by flag.
    pub fn by_flag(&self) -> Result<BTreeMap<i64, String>, StoreError> {
        let mut oldest: BTreeMap<i64, (i64, String)> = BTreeMap::new();
        for item in self.rows.values() {
            for FlagOverride { id, at, flags } in item.body::<OverridesRow>()?.overrides {
                for flag in flags {
                    let found = (at, id.clone());
                    let known = oldest.entry(flag).or_insert_with(|| found.clone());
                    *known = found.min(known.clone());
                }
            }
        }
        Ok(oldest.into_iter().map(|(flag, (_, id))| (flag, id)).collect())
    }

    /// Stores `id` as the override of those of `flags` for which the person has none, in the row of `own`, one of its ids.
    /// Returns the overrides that the person has then. One round trip, none when there is nothing to store.
    pub async fn store(
        mut self,
        records: &Table,
        project: ProjectId,
        own: Uuid,
        (flags, id): (&BTreeSet<i64>, &str),
        now_micros: i64,
    ) -> Result<BTreeMap<i64, String>, StoreError> {
        for tried in 0..TRIES {
            let mut known = self.by_flag()?;
            let missing: Vec<i64> = flags.iter().copied().filter(|flag| !known.contains_key(flag)).collect();
            if missing.is_empty() {
                return Ok(known);
            }
            let before = self.rows.get(&own);
            let mut row: OverridesRow = before.map(Item::body).transpose()?.unwrap_or_default();
            row.overrides.push(FlagOverride { id: id.to_owned(), at: now_micros, flags: missing.clone() });
            let item = Item::new(keys::continuity(project, own), &row)?;
            match put(records, item, before.map(|before| before.version), now_micros).await {
                Ok(()) => {
                    known.extend(missing.into_iter().map(|flag| (flag, id.to_owned())));
                    return Ok(known);
                }
                Err(StoreError::Condition { .. }) => {}
                Err(error) => return Err(error),
            }
            back_off_after_conflict(tried).await;
            let ids = self.rows.keys().copied().chain([own]).collect();
            self = Overrides::read(records, project, &ids).await?;
        }
        Err(StoreError::Conflict)
    }

    /// Extends the lifetime of old rows. Most calls write nothing.
    pub async fn extend_life(&self, records: &Table, now_micros: i64) -> Result<(), StoreError> {
        let fresh = now_micros / 1_000_000 + LIFE_SECONDS - EXTENDED_AFTER_SECONDS;
        for item in self.rows.values().filter(|item| item.expires_at.is_some_and(|at| at < fresh)) {
            match put(records, item.clone(), Some(item.version), now_micros).await {
                // Another request has just extended it.
                Ok(()) | Err(StoreError::Condition { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Writes a row with the version that was read as precondition; none means the row must not exist.
async fn put(records: &Table, item: Item, read: Option<u64>, now_micros: i64) -> Result<(), StoreError> {
    let guard = read.map_or(WriteCondition::Absent, WriteCondition::Version);
    let item = item.with_version(read.unwrap_or(0) + 1).expiring(now_micros / 1_000_000 + LIFE_SECONDS);
    records.put(item, guard).await
}

/// Whether an erased person has overrides.
pub(crate) async fn has_some(
    records: &Table,
    project: ProjectId,
    erase: &ErasureFilter,
) -> Result<bool, EventStoreError> {
    Ok(!Overrides::read(records, project, &erase.persons).await?.rows.is_empty())
}

/// Removes the overrides of all erased persons. Returns whether there were any.
pub(crate) async fn erase(
    records: &Table,
    project: ProjectId,
    erase: &ErasureFilter,
) -> Result<bool, EventStoreError> {
    let mut gone = Vec::new();
    if erase.everything {
        for shard in 0..keys::CONTINUITY_SHARDS {
            let query = PartitionQuery::partition(keys::continuity_pk(project, shard));
            gone.extend(records.query(query).await?.into_iter().map(|item| item.key));
        }
    } else {
        let found = Overrides::read(records, project, &erase.persons).await?;
        gone.extend(found.rows.into_values().map(|item| item.key));
    }
    let had_some = !gone.is_empty();
    records.sweep(gone).await?;
    Ok(had_some)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn row(id: u128, overrides: &[(&str, i64, &[i64])]) -> (Uuid, Item) {
        let overrides = overrides
            .iter()
            .map(|(id, at, flags)| FlagOverride { id: (*id).to_owned(), at: *at, flags: flags.to_vec() })
            .collect();
        let id = Uuid::from_u128(id);
        (id, Item::new(keys::continuity(1, id), &OverridesRow { overrides }).unwrap())
    }

    #[test]
    fn of_several_overrides_the_oldest_counts() {
        let rows = BTreeMap::from([
            row(1, &[("late", 9, &[1, 2]), ("later", 12, &[3])]),
            row(2, &[("early", 5, &[2, 3]), ("b", 7, &[4]), ("a", 7, &[4])]),
        ]);
        let known = Overrides { rows }.by_flag().unwrap();
        let known: Vec<_> = known.iter().map(|(flag, id)| (*flag, id.as_str())).collect();
        assert_eq!(known, [(1, "late"), (2, "early"), (3, "early"), (4, "a")]);
    }

    #[test]
    fn rows_of_a_project_are_found_by_their_shards() {
        let shards: BTreeSet<String> =
            (0..keys::CONTINUITY_SHARDS).map(|shard| keys::continuity_pk(7, shard)).collect();
        for n in 0..1000 {
            assert!(
                shards.contains(
                    &keys::continuity(7, crate::person_ids::derive_person_id(7, &n.to_string())).pk
                )
            );
        }
    }
}
