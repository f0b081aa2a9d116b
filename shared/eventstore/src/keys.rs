//! The key grammar of the event store's rows: the only place that knows which of them lies where.
//!
//! | what | table | pk | sk |
//! |---|---|---|---|
//! | part of a block | blocks | `PROJECT#{p}#SHARD#{n}` | `{arrival µs}-{tie}-{random}-{parts}-{part}` |
//! | that a project has events | records | `EVENTS` | `PROJECT#{p}` |
//! | which installation this is | records | `EVENTS` | `INSTALLATION` |
//! | version of a project's manifest | records | `PROJECT#{p}#SEGMENT` | `HEAD` |
//! | a segment, a person object, a group object | records | `PROJECT#{p}#SEGMENT` | `SEGMENT#{id}`, `PERSONS#{id}`, `GROUPS#{id}` |
//! | that one of these is damaged | records | `PROJECT#{p}#SEGMENT` | `DAMAGED#{id}` |
//! | an object with folded merges | records | `PROJECT#{p}#SEGMENT` | `MERGES#{id}` |
//! | an object that says who is who by imports | records | `PROJECT#{p}#SEGMENT` | `LINKS#{id}` |
//! | a row of the log of merges | records | `PROJECT#{p}#OVERRIDE` | `MERGE#{number}` |
//! | that the log of merges has had a row | records | `PROJECT#{p}#OVERRIDE` | `BEGUN` |
//! | that a person has been identified | records | `PROJECT#{p}#OVERRIDE` | `IDENTIFIED#{person}` |
//! | that a merge was forced | records | `PROJECT#{p}#OVERRIDE` | `FORCED#{from}#{to}` |
//! | a part of a long list of a static cohort, the first it has, and others | records | `PROJECT#{p}#COHORT#{cohort}#{part}`, `PROJECT#{p}#COHORT#{cohort}#{generation}#{part}` | `MEMBERS` |
//! | the overrides of experience continuity of a distinct id | records | `PROJECT#{p}#CONTINUITY#{shard}` | the person that it is by itself |
//!
//! Numbers are padded so that text order is arrival order.

use std::fmt;
use std::str::FromStr;

use pennon_core::store::Key;
use pennon_core::store::keys::{ProjectId, padded};
use uuid::Uuid;

use crate::error::EventStoreError;

/// How many partitions the blocks of a project are spread over. May only grow: readers ask all of them.
pub(crate) const SHARDS: u8 = 4;

/// Names a block: where it lies, when it arrived, and of how many parts it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockId {
    /// Arrival in microseconds since the epoch.
    pub micros: u64,
    /// Tells blocks of one microsecond apart, in the order of one process.
    pub tie: u32,
    /// Tells blocks of different processes apart.
    pub random: u32,
    /// How many items it takes.
    pub parts: u8,
}

impl BlockId {
    /// The partition number that the block lies in.
    fn shard(&self) -> u8 {
        // Any function of the id will do; readers ask all shards.
        (self.random % u32::from(SHARDS)) as u8
    }

    /// Where part `part` lies.
    pub(crate) fn part(&self, project: ProjectId, part: u8) -> Key {
        Key::new(shard_pk(project, self.shard()), format!("{self}-{part:02}"))
    }

    /// All its parts.
    pub(crate) fn keys(&self, project: ProjectId) -> impl Iterator<Item = Key> {
        let id = *self;
        (0..id.parts).map(move |part| id.part(project, part))
    }

    /// The block and the part that a sort key names.
    pub(crate) fn of_sk(sk: &str) -> Result<(BlockId, u8), EventStoreError> {
        let wrong = || EventStoreError::Corrupt(format!("{sk} names no block"));
        let (id, part) = sk.rsplit_once('-').ok_or_else(wrong)?;
        Ok((id.parse()?, part.parse().map_err(|_| wrong())?))
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:020}-{:08x}-{:08x}-{:02}", self.micros, self.tie, self.random, self.parts)
    }
}

impl serde::Serialize for BlockId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for BlockId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<BlockId, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for BlockId {
    type Err = EventStoreError;

    fn from_str(text: &str) -> Result<BlockId, EventStoreError> {
        let parsed = || {
            let mut fields = text.split('-');
            let id = BlockId {
                micros: fields.next()?.parse().ok()?,
                tie: u32::from_str_radix(fields.next()?, 16).ok()?,
                random: u32::from_str_radix(fields.next()?, 16).ok()?,
                parts: fields.next()?.parse().ok()?,
            };
            fields.next().is_none().then_some(id)
        };
        parsed().ok_or_else(|| EventStoreError::Corrupt(format!("{text} names no block")))
    }
}

/// Partition of one shard's blocks.
pub(crate) fn shard_pk(project: ProjectId, shard: u8) -> String {
    format!("PROJECT#{project}#SHARD#{shard}")
}

/// Partition of the list of projects that have events.
pub(crate) const PROJECTS_PK: &str = "EVENTS";
const PROJECT_PREFIX: &str = "PROJECT#";

/// That a project has events.
pub(crate) fn project_with_events(project: ProjectId) -> Key {
    Key::new(PROJECTS_PK, format!("{PROJECT_PREFIX}{}", padded(project)))
}

/// The project that a sort key of [`PROJECTS_PK`] names.
pub(crate) fn project_of_sk(sk: &str) -> Option<ProjectId> {
    sk.strip_prefix(PROJECT_PREFIX)?.parse().ok()
}

/// Sort key of the row that says which installation this is.
pub(crate) const INSTALLATION_SK: &str = "INSTALLATION";

/// Which installation this is.
pub(crate) fn installation() -> Key {
    Key::new(PROJECTS_PK, INSTALLATION_SK)
}

/// What the folder of a project's objects begins with.
pub(crate) const PROJECT_FOLDER: &str = "project=";

/// Partition of a project's manifest.
pub(crate) fn manifest_pk(project: ProjectId) -> String {
    format!("PROJECT#{project}#SEGMENT")
}

/// Version of a project's manifest.
pub(crate) fn head(project: ProjectId) -> Key {
    Key::new(manifest_pk(project), HEAD)
}

/// Sort key of the manifest's version.
pub(crate) const HEAD: &str = "HEAD";
/// Prefix of segments.
pub(crate) const SEGMENT: &str = "SEGMENT#";
/// Prefix of person objects.
pub(crate) const PERSONS: &str = "PERSONS#";
/// Prefix of group objects.
pub(crate) const GROUPS: &str = "GROUPS#";
/// Prefix of objects with folded merges.
pub(crate) const MERGES: &str = "MERGES#";

/// Prefix of objects that say who is who by imports.
pub(crate) const LINKS: &str = "LINKS#";

/// Prefix of what is known of damage.
pub(crate) const DAMAGED: &str = "DAMAGED#";

/// An entry of a project's manifest.
pub(crate) fn entry(project: ProjectId, prefix: &str, id: &str) -> Key {
    Key::new(manifest_pk(project), format!("{prefix}{id}"))
}

/// Partition of a project's merges.
pub(crate) fn override_pk(project: ProjectId) -> String {
    format!("PROJECT#{project}#OVERRIDE")
}

/// Prefix of the log of merges.
pub(crate) const MERGE: &str = "MERGE#";

/// Row `number` of the log of merges.
pub(crate) fn merge(project: ProjectId, number: u64) -> Key {
    Key::new(override_pk(project), format!("{MERGE}{number:020}"))
}

/// That the log of merges has had a row.
pub(crate) fn merges_begun(project: ProjectId) -> Key {
    Key::new(override_pk(project), "BEGUN")
}

/// The number of the row of merges that a sort key names.
pub(crate) fn merge_number(sk: &str) -> Result<u64, EventStoreError> {
    let number = sk.strip_prefix(MERGE).and_then(|number| number.parse().ok());
    number.ok_or_else(|| EventStoreError::Corrupt(format!("{sk} names no row of merges")))
}

/// Prefix of what was forced.
pub(crate) const FORCED: &str = "FORCED#";
/// Prefix of who has been identified.
pub(crate) const IDENTIFIED: &str = "IDENTIFIED#";

/// That a merge was forced; a person may have any number.
pub(crate) fn forced_merge(project: ProjectId, from: Uuid, to: Uuid) -> Key {
    Key::new(override_pk(project), format!("{FORCED}{from}#{to}"))
}

/// That a person has been identified.
pub(crate) fn identified(project: ProjectId, person: Uuid) -> Key {
    Key::new(override_pk(project), format!("{IDENTIFIED}{person}"))
}

/// Over how many partitions the overrides of a project's persons are spread.
pub(crate) const CONTINUITY_SHARDS: u128 = 32;

/// Partition of a share of the overrides of a project's persons.
pub(crate) fn continuity_pk(project: ProjectId, shard: u128) -> String {
    format!("PROJECT#{project}#CONTINUITY#{shard}")
}

/// The overrides that were stored for a distinct id, by the person that it is by itself.
pub(crate) fn continuity(project: ProjectId, person: Uuid) -> Key {
    Key::new(continuity_pk(project, person.as_u128() % CONTINUITY_SHARDS), person.to_string())
}

/// A part of the list of a static cohort. Each is a partition of its own: they are written at once. A list that takes
/// another one's place is of another generation, so that the parts of both are there for a while.
pub(crate) fn cohort_members(project: ProjectId, cohort: u64, generation: u64, part: u64) -> Key {
    let pk = match generation {
        0 => format!("PROJECT#{project}#COHORT#{cohort}#{part}"),
        _ => format!("PROJECT#{project}#COHORT#{cohort}#{generation}#{part}"),
    };
    Key::new(pk, "MEMBERS")
}
