//! Who is on the list of a static cohort: the only owner of that rule.
//!
//! A list names distinct ids, or persons; a person is on it by any of its own. A short list is part of the cohort's record
//! (`distinct_ids`, `person_ids`); a long one lies beside it, packed: the persons that the distinct ids are by themselves, sixteen
//! bytes each, sorted and dealt to 2^n parts by their first bits, so that one part tells whether somebody is on it. The
//! record (`members`) says how many parts there are, and is written after them. A list that takes the place of a long one
//! is of a generation of its own, so whoever still has the record from before finds all of its parts.

mod erase;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use pennon_core::store::keys::ProjectId;
use pennon_core::store::{Item, Key, Table};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::error::EventStoreError;
use crate::keys;
use crate::persons::person_ids::derived;
use crate::segments::writer::{range_bits, range_of};

pub(crate) use erase::{erase, naming};

/// Most distinct ids that a record lists itself.
pub const LISTED_MAX: usize = 1000;
/// Most members of a list.
pub const MEMBERS_MAX: usize = 500_000;
/// Members of a part, about: some 40 KB.
const PART_MEMBERS: usize = 2048;
/// Parts that are read at once, some 8 MB.
const READS_AT_ONCE: usize = 100;

/// What the record of a static cohort says of its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roster {
    /// The persons that the listed distinct ids are by themselves.
    ManifestEntry(BTreeSet<Uuid>),
    /// They lie beside the record.
    Packed(Packed),
}

/// How a list lies beside its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packed {
    /// How many first bits tell the part.
    bits: u32,
    /// How many members there were when it was stored.
    count: u64,
    /// Tells its parts from those of the lists that it took the place of.
    #[serde(default, skip_serializing_if = "is_first")]
    generation: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_first(generation: &u64) -> bool {
    *generation == 0
}

impl Packed {
    /// Which of the cohort's lists it is.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Where its parts lie.
    pub fn keys(&self, project: ProjectId, cohort: u64) -> Vec<Key> {
        (0..1_u64 << self.bits).map(|part| self.key(project, cohort, part)).collect()
    }

    fn key(&self, project: ProjectId, cohort: u64, part: u64) -> Key {
        keys::cohort_members(project, cohort, self.generation, part)
    }

    /// How a list of so many members is dealt to parts.
    pub fn of(members: usize, generation: u64) -> Packed {
        Packed { bits: range_bits(members, PART_MEMBERS), count: members as u64, generation }
    }
}

/// The body of a part.
#[derive(Debug, Serialize, Deserialize)]
struct ListPart {
    /// Its members, 32 hexadecimal digits each.
    members: String,
    /// How many it had besides, who were erased.
    #[serde(default)]
    erased: u64,
}

impl Roster {
    /// The list of the cohort with this record.
    pub fn of_record(project: ProjectId, record: &Value) -> Roster {
        let packed = record.get("members").and_then(|packed| Packed::deserialize(packed).ok());
        if let Some(packed) = packed {
            return Roster::Packed(packed);
        }
        let texts = |field: &str| {
            let list = record.get(field).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        let listed = texts("distinct_ids").into_iter().map(|id| derived(project, &id));
        let persons = texts("person_ids").into_iter().filter_map(|id| id.parse().ok());
        Roster::ManifestEntry(listed.chain(persons).collect())
    }

    /// Stores the parts of a list. Nobody sees them before a record says `packed`.
    pub async fn store_parts(
        records: &Table,
        project: ProjectId,
        cohort: u64,
        packed: Packed,
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

    /// Stores the list of `cohort`, and returns the fields by which its record has it. Nobody sees the list before
    /// the record does.
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
        if distinct_ids.len() <= LISTED_MAX {
            return Ok(serde_json::Map::from_iter([("distinct_ids".to_owned(), json!(distinct_ids))]));
        }
        let members = distinct_ids.iter().map(|id| derived(project, id)).collect::<BTreeSet<_>>();
        let packed = Packed::of(members.len(), 0);
        Roster::store_parts(records, project, cohort, packed, &members).await?;
        Ok(serde_json::Map::from_iter([("members".to_owned(), json!(packed))]))
    }

    /// Everybody on the list of `cohort`.
    pub async fn members(
        &self,
        records: &Table,
        project: ProjectId,
        cohort: u64,
    ) -> Result<HashSet<Uuid>, EventStoreError> {
        let packed = match self {
            Roster::ManifestEntry(ids) => return Ok(ids.iter().copied().collect()),
            Roster::Packed(packed) => packed,
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

/// Those of the cohorts with these lists that somebody is on whose distinct ids are `ids` by themselves. One round trip
/// at most.
pub async fn cohorts_with(
    records: &Table,
    project: ProjectId,
    rosters: &BTreeMap<i64, Roster>,
    ids: &BTreeSet<Uuid>,
) -> Result<BTreeSet<i64>, EventStoreError> {
    let mut found = BTreeSet::new();
    let mut wanted = BTreeMap::new();
    for (cohort, roster) in rosters {
        match roster {
            Roster::ManifestEntry(listed) if !listed.is_disjoint(ids) => drop(found.insert(*cohort)),
            Roster::ManifestEntry(_) => {}
            Roster::Packed(packed) => {
                let parts = ids.iter().map(|id| range_of(*id, packed.bits)).collect::<BTreeSet<_>>();
                let number = cohort.unsigned_abs();
                wanted.extend(parts.into_iter().map(|part| (packed.key(project, number, part), *cohort)));
            }
        }
    }
    let keys = wanted.keys().cloned().collect::<Vec<_>>();
    if keys.is_empty() {
        return Ok(found);
    }
    for item in records.batch_get(&keys).await?.iter().flatten() {
        if members_of(item)?.any(|member| ids.contains(&member)) {
            found.extend(wanted.get(&item.key));
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
