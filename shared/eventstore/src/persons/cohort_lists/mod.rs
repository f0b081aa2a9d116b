//! Membership of static cohorts: the only owner of that rule.
//!
//! A list holds distinct ids or person ids; a person is a member by any of its own ids. A short list is stored
//! in the cohort's record (`distinct_ids`, `person_ids`). A long one is partitioned and stored beside it:
//! person ids derived from the distinct ids, 16 bytes each, sorted and split into 2^n parts by their first
//! bits, so that membership is decided by one part. The record (`members`) holds the number of parts and is
//! written after them. Each replacement of a long list is a new generation, so a reader with the old record
//! still finds all of its parts. The public interface is [`CohortList`].

mod erase;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key, Table};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::error::EventStoreError;
use crate::keys;
use crate::memory::{Purpose, QueryMemory};
use crate::person_ids::derive_person_id;
use crate::segments::writer::{range_bits, range_of};

pub(crate) use erase::{erase, naming};

/// Most distinct ids in the record itself.
pub const INLINE_IDS_MAX: usize = 1000;
/// Most members of a list.
pub const MEMBERS_MAX: usize = 500_000;
/// Approximate members of a part: some 40 KB.
const PART_MEMBERS: usize = 2048;
/// Approximate memory of a member in a hash set that has just grown.
const MEMBER_BYTES: u64 = 40;
/// Parts that are read concurrently, some 8 MB.
const READS_AT_ONCE: usize = 100;

/// The list of a static cohort, as its record describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CohortList {
    /// Person ids derived from the listed distinct ids.
    Inline(BTreeSet<Uuid>),
    /// Stored in parts beside the record.
    Partitioned(PartitionedList),
}

/// Describes a partitioned list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionedList {
    /// Number of leading bits that select the part.
    bits: u32,
    /// Number of members when it was stored.
    count: u64,
    /// Distinguishes its parts from those of replaced lists.
    #[serde(default, skip_serializing_if = "is_first")]
    generation: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_first(generation: &u64) -> bool {
    *generation == 0
}

impl PartitionedList {
    /// Which of the cohort's lists it is.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Keys of its parts.
    pub fn keys(&self, project: ProjectId, cohort: u64) -> Vec<Key> {
        (0..1_u64 << self.bits).map(|part| self.key(project, cohort, part)).collect()
    }

    fn key(&self, project: ProjectId, cohort: u64, part: u64) -> Key {
        keys::cohort_members(project, cohort, self.generation, part)
    }

    /// Chooses the parts for a list of so many members.
    pub fn of(members: usize, generation: u64) -> PartitionedList {
        PartitionedList { bits: range_bits(members, PART_MEMBERS), count: members as u64, generation }
    }
}

/// The body of a part.
#[derive(Debug, Serialize, Deserialize)]
struct ListPart {
    /// Its members, 32 hexadecimal digits each.
    members: String,
    /// Number of members that were erased from it.
    #[serde(default)]
    erased: u64,
}

impl CohortList {
    /// The list of the cohort with this record.
    pub fn of_record(project: ProjectId, record: &Value) -> CohortList {
        let packed = record.get("members").and_then(|packed| PartitionedList::deserialize(packed).ok());
        if let Some(packed) = packed {
            return CohortList::Partitioned(packed);
        }
        let texts = |field: &str| {
            let list = record.get(field).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        let listed = texts("distinct_ids").into_iter().map(|id| derive_person_id(project, &id));
        let persons = texts("person_ids").into_iter().filter_map(|id| id.parse().ok());
        CohortList::Inline(listed.chain(persons).collect())
    }

    /// Stores the parts of a list. They become visible when a record has `packed`.
    pub async fn store_parts(
        records: &Table,
        project: ProjectId,
        cohort: u64,
        packed: PartitionedList,
        members: &BTreeSet<Uuid>,
    ) -> Result<(), EventStoreError> {
        if members.len() > MEMBERS_MAX {
            return Err(too_many(members.len()));
        }
        let mut parts: BTreeMap<u64, String> = BTreeMap::new();
        for member in members {
            let part = parts.entry(range_of(*member, packed.bits)).or_default();
            part.push_str(&member.simple().to_string());
        }
        let item = |(part, members): (u64, String)| {
            Item::new(packed.key(project, cohort, part), &ListPart { members, erased: 0 })
        };
        let items = parts.into_iter().map(item).collect::<Result<Vec<_>, _>>()?;
        Ok(records.replace(items, Vec::new()).await?)
    }

    /// Stores the list of `cohort` and returns the fields for its record. The list becomes visible with the
    /// record.
    ///
    /// [`EventStoreError::TooLarge`] above [`MEMBERS_MAX`].
    pub async fn store(
        records: &Table,
        project: ProjectId,
        cohort: u64,
        distinct_ids: &[String],
    ) -> Result<serde_json::Map<String, Value>, EventStoreError> {
        if distinct_ids.len() > MEMBERS_MAX {
            return Err(too_many(distinct_ids.len()));
        }
        if distinct_ids.len() <= INLINE_IDS_MAX {
            return Ok(serde_json::Map::from_iter([("distinct_ids".to_owned(), json!(distinct_ids))]));
        }
        let members = distinct_ids.iter().map(|id| derive_person_id(project, id)).collect::<BTreeSet<_>>();
        let packed = PartitionedList::of(members.len(), 0);
        CohortList::store_parts(records, project, cohort, packed, &members).await?;
        Ok(serde_json::Map::from_iter([("members".to_owned(), json!(packed))]))
    }

    /// As [`CohortList::members`]; their memory stays reserved from `memory` until the query ends.
    pub async fn members_within(
        &self,
        records: &Table,
        project: ProjectId,
        cohort: u64,
        memory: &QueryMemory,
    ) -> Result<HashSet<Uuid>, EventStoreError> {
        let count = match self {
            CohortList::Inline(ids) => ids.len() as u64,
            CohortList::Partitioned(list) => list.count,
        };
        let mut lease = memory.lease(Purpose::Known);
        lease.add(count.saturating_mul(MEMBER_BYTES))?;
        let members = self.members(records, project, cohort).await?;
        lease.keep();
        Ok(members)
    }

    /// All members of the list of `cohort`.
    pub async fn members(
        &self,
        records: &Table,
        project: ProjectId,
        cohort: u64,
    ) -> Result<HashSet<Uuid>, EventStoreError> {
        let packed = match self {
            CohortList::Inline(ids) => return Ok(ids.iter().copied().collect()),
            CohortList::Partitioned(packed) => packed,
        };
        let keys = packed.keys(project, cohort);
        let (mut members, mut erased) = (HashSet::new(), 0);
        for some in keys.chunks(READS_AT_ONCE) {
            for item in records.batch_get(some).await?.iter().flatten() {
                members.extend(members_of(item)?);
                erased += item.body::<ListPart>()?.erased;
            }
        }
        let found = members.len() as u64 + erased;
        if found == packed.count {
            return Ok(members);
        }
        Err(EventStoreError::Corrupt(format!("cohort {cohort} has {found} of {} members", packed.count)))
    }
}

fn too_many(members: usize) -> EventStoreError {
    EventStoreError::TooLarge(format!(
        "The cohort would have {members} members; at most {MEMBERS_MAX} are kept."
    ))
}

/// Returns those of the cohorts with these lists that have a person with the ids `ids` as a member. At most one
/// round trip.
pub async fn cohorts_with(
    records: &Table,
    project: ProjectId,
    cohort_lists: &BTreeMap<i64, CohortList>,
    ids: &BTreeSet<Uuid>,
) -> Result<BTreeSet<i64>, EventStoreError> {
    let mut found = BTreeSet::new();
    let mut requested = BTreeMap::new();
    for (cohort, cohort_list) in cohort_lists {
        match cohort_list {
            CohortList::Inline(listed) if !listed.is_disjoint(ids) => drop(found.insert(*cohort)),
            CohortList::Inline(_) => {}
            CohortList::Partitioned(packed) => {
                let parts = ids.iter().map(|id| range_of(*id, packed.bits)).collect::<BTreeSet<_>>();
                let number = cohort.unsigned_abs();
                requested.extend(parts.into_iter().map(|part| (packed.key(project, number, part), *cohort)));
            }
        }
    }
    let keys = requested.keys().cloned().collect::<Vec<_>>();
    if keys.is_empty() {
        return Ok(found);
    }
    for item in records.batch_get(&keys).await?.iter().flatten() {
        if members_of(item)?.any(|member| ids.contains(&member)) {
            found.extend(requested.get(&item.key));
        }
    }
    Ok(found)
}

fn members_of(item: &Item) -> Result<impl Iterator<Item = Uuid>, EventStoreError> {
    let ListPart { members, .. } = item.body()?;
    let bytes = members.as_bytes().chunks(32);
    let ids = bytes.map(Uuid::try_parse_ascii).collect::<Result<Vec<_>, _>>();
    Ok(ids.map_err(EventStoreError::corrupt)?.into_iter())
}
