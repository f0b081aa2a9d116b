//! Keys of all rows of the event store: the only module that knows the key grammar.
//!
//! | what | table | pk | sk |
//! |---|---|---|---|
//! | part of a block | blocks | `PROJECT#{p}#SHARD#{n}` | `{arrival µs}-{tie}-{random}-{layout}-{part}` |
//! | marker: the project has events | records | `EVENTS` | `PROJECT#{p}` |
//! | installation id | records | `EVENTS` | `INSTALLATION` |
//! | version of a project's manifest | records | `PROJECT#{p}#SEGMENT` | `HEAD` |
//! | entry of a segment, an import of persons, an import of groups | records | `PROJECT#{p}#SEGMENT` | `SEGMENT#{id}`, `PERSONS#{id}`, `GROUPS#{id}` |
//! | number of partitions for blocks | records | `PROJECT#{p}#SEGMENT` | `HEAD#PARTITIONS` |
//! | wake of compaction: blocks, merges | records | `COMPACTION#{p}`, `COMPACTION#{p}#MERGES` | `WAKE#{name}` |
//! | lease of compaction: blocks, merges | records | the same | `LEASE` |
//! | attempt at a merge of segments | records | `COMPACTION#{p}#MERGES` | `ATTEMPT#{id}` |
//! | damage marker of one of these | records | `PROJECT#{p}#SEGMENT` | `DAMAGED#{id}` |
//! | entry of an object with folded merges | records | `PROJECT#{p}#SEGMENT` | `MERGES#{id}` |
//! | entry of an object with the merges of imports | records | `PROJECT#{p}#SEGMENT` | `LINKS#{id}` |
//! | row of the merge log | records | `PROJECT#{p}#OVERRIDE` | `MERGE#{number}` |
//! | marker: the merge log has had a row | records | `PROJECT#{p}#OVERRIDE` | `BEGUN` |
//! | marker: a person is identified | records | `PROJECT#{p}#IDENTIFIED#{partition}` | person id |
//! | marker: a merge was forced | records | `PROJECT#{p}#OVERRIDE` | `FORCED#{from}#{to}` |
//! | requested merges that wait for a process to commit them | records | `PROJECT#{p}#MERGEQUEUE` | `{request µs}-{random}` |
//! | part of the partitioned list of a static cohort: first generation, later ones | records | `PROJECT#{p}#COHORT#{cohort}#{part}`, `PROJECT#{p}#COHORT#{cohort}#{generation}#{part}` | `MEMBERS` |
//! | overrides of experience continuity of a distinct id | records | `PROJECT#{p}#CONTINUITY#{shard}` | derived person id of the distinct id |
//!
//! Numbers are zero-padded, so that text order is arrival order. The layout of a block is its number of parts, plus 16 for
//! each doubling of the four partitions ([`BlockPartitions`]).

use std::fmt;
use std::str::FromStr;

use pennon_core::store::Key;
use pennon_core::store::keys::{ProjectId, padded};
use uuid::Uuid;

use crate::block_partitions::BlockPartitions;
use crate::error::EventStoreError;

/// The number of parts in the layout of a block.
const PARTS_MASK: u8 = 15;
/// Position of the partitions in the layout.
const PARTITIONS_SHIFT: u8 = 4;

/// Id of a block: arrival, partition and number of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockId {
    /// Arrival in microseconds since the epoch.
    pub micros: u64,
    /// Orders blocks of one microsecond and one process.
    pub tie: u32,
    /// Distinguishes blocks of different processes.
    pub random: u32,
    /// Number of items; at most 15.
    pub parts: u8,
    /// The number of partitions that its writer knew.
    pub partitions: BlockPartitions,
}

impl BlockId {
    /// Partition of the block.
    fn shard(&self) -> u8 {
        // Any function of the id works; readers query all partitions.
        (self.random % u32::from(self.partitions.count())) as u8
    }

    /// Parts and partitions as one number.
    pub(crate) fn layout(&self) -> u8 {
        self.parts & PARTS_MASK | self.partitions.exponent() << PARTITIONS_SHIFT
    }

    /// The inverse of [`BlockId::layout`].
    pub(crate) fn of_layout(layout: u8) -> Option<(u8, BlockPartitions)> {
        Some((layout & PARTS_MASK, BlockPartitions::of_exponent(layout >> PARTITIONS_SHIFT)?))
    }

    /// Key of part `part`.
    pub(crate) fn part(&self, project: ProjectId, part: u8) -> Key {
        Key::new(shard_pk(project, self.shard()), format!("{self}-{part:02}"))
    }

    /// Keys of all its parts.
    pub(crate) fn keys(&self, project: ProjectId) -> impl Iterator<Item = Key> {
        let id = *self;
        (0..id.parts).map(move |part| id.part(project, part))
    }

    /// Parses the block id and the part from a sort key.
    pub(crate) fn of_sk(sk: &str) -> Result<(BlockId, u8), EventStoreError> {
        let wrong = || EventStoreError::Corrupt(format!("{sk} names no block"));
        let (id, part) = sk.rsplit_once('-').ok_or_else(wrong)?;
        Ok((id.parse()?, part.parse().map_err(|_| wrong())?))
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:020}-{:08x}-{:08x}-{:02}", self.micros, self.tie, self.random, self.layout())
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
            let micros = fields.next()?.parse().ok()?;
            let tie = u32::from_str_radix(fields.next()?, 16).ok()?;
            let random = u32::from_str_radix(fields.next()?, 16).ok()?;
            let (parts, partitions) = BlockId::of_layout(fields.next()?.parse().ok()?)?;
            fields.next().is_none().then_some(BlockId { micros, tie, random, parts, partitions })
        };
        parsed().ok_or_else(|| EventStoreError::Corrupt(format!("{text} names no block")))
    }
}

/// Partition `shard` of the blocks of a project.
pub(crate) fn shard_pk(project: ProjectId, shard: u8) -> String {
    format!("PROJECT#{project}#SHARD#{shard}")
}

impl BlockPartitions {
    /// The partition keys of a project's blocks.
    pub(crate) fn keys(self, project: ProjectId) -> impl Iterator<Item = String> {
        (0..self.count()).map(move |partition| shard_pk(project, partition))
    }
}

/// Partition of the list of projects that have events.
pub(crate) const PROJECTS_PK: &str = "EVENTS";
const PROJECT_PREFIX: &str = "PROJECT#";

/// Marker: the project has events.
pub(crate) fn project_with_events(project: ProjectId) -> Key {
    Key::new(PROJECTS_PK, format!("{PROJECT_PREFIX}{}", padded(project)))
}

/// Parses the project from a sort key of [`PROJECTS_PK`].
pub(crate) fn project_of_sk(sk: &str) -> Option<ProjectId> {
    sk.strip_prefix(PROJECT_PREFIX)?.parse().ok()
}

/// Sort key of the installation id.
pub(crate) const INSTALLATION_SK: &str = "INSTALLATION";

/// The installation id.
pub(crate) fn installation() -> Key {
    Key::new(PROJECTS_PK, INSTALLATION_SK)
}

/// Prefix of the folders of projects.
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
/// Sort key of the number of partitions for blocks. Releases without this setting take it for a `HEAD` of a newer format and
/// refuse the manifest, as they would miss blocks.
pub(crate) const PARTITIONS: &str = "HEAD#PARTITIONS";

/// The number of partitions for the blocks of a project.
pub(crate) fn block_partitions(project: ProjectId) -> Key {
    Key::new(manifest_pk(project), PARTITIONS)
}

/// Prefix of segments.
pub(crate) const SEGMENT: &str = "SEGMENT#";
/// Prefix of imports of persons.
pub(crate) const PERSONS: &str = "PERSONS#";
/// Prefix of imports of groups.
pub(crate) const GROUPS: &str = "GROUPS#";
/// Prefix of objects with folded merges.
pub(crate) const MERGES: &str = "MERGES#";

/// Prefix of objects with the merges of imports.
pub(crate) const LINKS: &str = "LINKS#";

/// Prefix of damage markers.
pub(crate) const DAMAGED: &str = "DAMAGED#";

/// Prefix of the partitions of compaction. The stream of the records table is filtered by it and by [`WAKE`].
const COMPACTION_PREFIX: &str = "COMPACTION#";
/// Prefix of rows that wake compaction when they are inserted.
const WAKE: &str = "WAKE#";
/// Prefix of attempts at merges.
pub(crate) const ATTEMPT: &str = "ATTEMPT#";

/// Partition of the compaction of a project's blocks.
pub(crate) fn block_compaction_pk(project: ProjectId) -> String {
    format!("{COMPACTION_PREFIX}{project}")
}

/// Partition of the merges of a project's segments.
pub(crate) fn segment_merges_pk(project: ProjectId) -> String {
    format!("{COMPACTION_PREFIX}{project}#MERGES")
}

/// A row that wakes the compaction of partition `pk`.
pub(crate) fn compaction_wake(pk: String, name: &str) -> Key {
    Key::new(pk, format!("{WAKE}{name}"))
}

/// The lease of the compaction of partition `pk`.
pub(crate) fn compaction_lease(pk: String) -> Key {
    Key::new(pk, "LEASE")
}

/// An attempt at a merge.
pub(crate) fn merge_attempt(project: ProjectId, id: &str) -> Key {
    Key::new(segment_merges_pk(project), format!("{ATTEMPT}{id}"))
}

/// The project of an inserted row that wakes compaction, and whether it is for merges.
pub(crate) fn compaction_of_wake(key: &Key) -> Option<(ProjectId, bool)> {
    key.sk.strip_prefix(WAKE)?;
    let rest = key.pk.strip_prefix(COMPACTION_PREFIX)?;
    match rest.strip_suffix("#MERGES") {
        Some(project) => Some((project.parse().ok()?, true)),
        None => Some((rest.parse().ok()?, false)),
    }
}

/// An entry of a project's manifest.
pub(crate) fn entry(project: ProjectId, prefix: &str, id: &str) -> Key {
    Key::new(manifest_pk(project), format!("{prefix}{id}"))
}

/// Partition of a project's merges.
pub(crate) fn override_pk(project: ProjectId) -> String {
    format!("PROJECT#{project}#OVERRIDE")
}

/// Prefix of rows of the merge log.
pub(crate) const MERGE: &str = "MERGE#";

/// Row `number` of the merge log.
pub(crate) fn merge(project: ProjectId, number: u64) -> Key {
    Key::new(override_pk(project), format!("{MERGE}{number:020}"))
}

/// Marker: the merge log has had a row.
pub(crate) fn merges_begun(project: ProjectId) -> Key {
    Key::new(override_pk(project), "BEGUN")
}

/// Parses the row number from a sort key of the merge log.
pub(crate) fn merge_number(sk: &str) -> Result<u64, EventStoreError> {
    let number = sk.strip_prefix(MERGE).and_then(|number| number.parse().ok());
    number.ok_or_else(|| EventStoreError::Corrupt(format!("{sk} names no row of merges")))
}

/// Prefix of markers of forced merges.
pub(crate) const FORCED: &str = "FORCED#";
/// Number of partitions for the markers of identified persons of a project. DynamoDB writes 1,000 units a second to a partition
/// key, and the two markers of a merge take four, so beside the log they would limit it to 250 merges a second.
pub(crate) const IDENTIFIED_PARTITIONS: u128 = 16;

/// Marker: a merge was forced; a person may have any number.
pub(crate) fn forced_merge(project: ProjectId, from: Uuid, to: Uuid) -> Key {
    Key::new(override_pk(project), format!("{FORCED}{from}#{to}"))
}

/// A partition of the markers of identified persons.
pub(crate) fn identified_pk(project: ProjectId, partition: u128) -> String {
    format!("PROJECT#{project}#IDENTIFIED#{partition}")
}

/// Marker: a person is identified.
pub(crate) fn identified(project: ProjectId, person: Uuid) -> Key {
    let pk = identified_pk(project, person.as_u128() % IDENTIFIED_PARTITIONS);
    Key::new(pk, person.to_string())
}

/// Partition of the merges that wait for a process to commit them.
pub(crate) fn merge_queue_pk(project: ProjectId) -> String {
    format!("PROJECT#{project}#MERGEQUEUE")
}

/// A row of the queue of merges; `random` distinguishes requests of one instant.
pub(crate) fn queued_merges(project: ProjectId, requested_at: u64, random: u64) -> Key {
    Key::new(merge_queue_pk(project), format!("{requested_at:020}-{random:016x}"))
}

/// When the merges of a row of the queue were requested.
pub(crate) fn queued_at(sk: &str) -> Option<u64> {
    sk.split('-').next()?.parse().ok()
}

/// Number of partitions for the overrides of a project.
pub(crate) const CONTINUITY_SHARDS: u128 = 32;

/// Partition of a shard of overrides.
pub(crate) fn continuity_pk(project: ProjectId, shard: u128) -> String {
    format!("PROJECT#{project}#CONTINUITY#{shard}")
}

/// The overrides of a distinct id, by its derived person id.
pub(crate) fn continuity(project: ProjectId, person: Uuid) -> Key {
    Key::new(continuity_pk(project, person.as_u128() % CONTINUITY_SHARDS), person.to_string())
}

/// A part of the list of a static cohort. Each part has its own partition, because they are written at once. A
/// list that replaces another one has a new generation, so that both exist for a while.
pub(crate) fn cohort_members(project: ProjectId, cohort: u64, generation: u64, part: u64) -> Key {
    let pk = match generation {
        0 => format!("PROJECT#{project}#COHORT#{cohort}#{part}"),
        _ => format!("PROJECT#{project}#COHORT#{cohort}#{generation}#{part}"),
    };
    Key::new(pk, "MEMBERS")
}
