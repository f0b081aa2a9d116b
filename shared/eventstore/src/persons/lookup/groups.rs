//! The groups of a project.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use pennon_core::store::keys::ProjectId;
use serde_json::{Map, Value};

use super::{FILES_AT_ONCE, PersonLookup, PersonsSnapshot};
use crate::error::EventStoreError;
use crate::memory::properties_bytes;
use crate::memory::{MemoryLease, Purpose, QueryMemory};
use crate::persons::imports::records::each_group_record;
use crate::persons::profiles::Profile;
use crate::persons::profiles::changes::ProfileChanges;
/// Most rows of group data, of all types, that one query reads.
pub const GROUPS_MAX: u64 = 200_000;

/// Approximate overhead of a group: its entry in the map.
const GROUP_BYTES: u64 = 2 * size_of::<((String, String), GroupData)>() as u64 + 48;
/// Step of memory reservations in bytes.
const RESERVED_STEP: u64 = 256 << 10;

/// The same for a command, which has a process of its own.
const GROUPS_OF_A_COMMAND_MAX: u64 = 5_000_000;

/// A type of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupType {
    /// Its index in the project, by which imported groups refer to it.
    pub index: u32,
    /// Its name, by which events refer to it.
    pub name: String,
}

/// A group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// Its key among groups of its type.
    pub key: String,
    /// Its properties.
    pub properties: Map<String, Value>,
}

/// Imported properties and captured changes of a group.
type GroupData = (Map<String, Value>, ProfileChanges);

/// Data of the selected groups, by type and key.
#[derive(Debug, Default)]
struct KnownGroups {
    groups: BTreeMap<(String, String), GroupData>,
    /// Approximate bytes of all that was added.
    bytes: u64,
    /// The memory reservation; none for single groups and for commands.
    lease: Option<MemoryLease>,
}

impl KnownGroups {
    /// The data of a group, to which so many bytes are added.
    fn add(&mut self, name: &str, key: &str, bytes: u64) -> Result<&mut GroupData, EventStoreError> {
        self.bytes += bytes + GROUP_BYTES + (name.len() + key.len()) as u64;
        if let Some(lease) = &mut self.lease
            && self.bytes > lease.bytes()
        {
            lease.set(self.bytes + RESERVED_STEP)?;
        }
        Ok(self.groups.entry((name.to_owned(), key.to_owned())).or_default())
    }
}

/// Which groups to read, and which of their properties.
#[derive(Debug, Clone)]
struct GroupSelection {
    /// Types, each with one selected key, or all.
    groups: Arc<[(GroupType, Option<String>)]>,
    /// Selected properties; none means all.
    keys: Option<Arc<BTreeSet<String>>>,
    /// Most rows to read.
    rows_max: u64,
}

impl GroupSelection {
    fn name(&self, key: &str, of: impl Fn(&GroupType) -> bool) -> Option<&str> {
        let mut groups = self.groups.iter();
        let found = groups.find(|(group, only)| of(group) && only.as_ref().is_none_or(|only| only == key));
        found.map(|(group, _)| group.name.as_str())
    }

    /// Adds an object with imported groups.
    fn take_records(&self, known: &mut KnownGroups, bytes: Bytes) -> Result<(), EventStoreError> {
        each_group_record(bytes, |index, key, properties| {
            let Some(name) = self.name(key, |of| of.index == index) else { return Ok(()) };
            let mut properties: Map<String, Value> = serde_json::from_str(properties)?;
            if let Some(keys) = &self.keys {
                properties.retain(|key, _| keys.contains(key));
            }
            let bytes = properties_bytes(&properties);
            known.add(name, key, bytes)?.0 = properties;
            Ok(())
        })
    }

    fn take_changes(
        &self,
        known: &mut KnownGroups,
        found: BTreeMap<(String, String), ProfileChanges>,
    ) -> Result<(), EventStoreError> {
        for ((name, key), mut changes) in found {
            if self.name(&key, |of| of.name == name).is_some() {
                if let Some(keys) = &self.keys {
                    changes.keep(|key| keys.contains(key));
                }
                known.add(&name, &key, changes.bytes() as u64)?.1.merge(changes);
            }
        }
        Ok(())
    }
}

impl PersonLookup {
    /// The groups of a type by key, with the properties in `keys`, or all. Their memory stays reserved from `memory` until
    /// the query ends.
    ///
    /// [`EventStoreError::TooLarge`] when there are more than [`GROUPS_MAX`] rows of group data.
    pub(crate) async fn load_groups(
        &self,
        project: ProjectId,
        group_type: &GroupType,
        keys: Option<&BTreeSet<String>>,
        memory: &QueryMemory,
    ) -> Result<Vec<Group>, EventStoreError> {
        let keys = keys.map(|keys| Arc::new(keys.clone()));
        let lease = memory.lease(Purpose::Known);
        self.groups_by_type(project, group_type, keys, GROUPS_MAX, Some(lease)).await
    }

    /// As above with all properties, for a command: refused above five million rows.
    pub(crate) async fn load_groups_for_export(
        &self,
        project: ProjectId,
        group_type: &GroupType,
    ) -> Result<Vec<Group>, EventStoreError> {
        self.groups_by_type(project, group_type, None, GROUPS_OF_A_COMMAND_MAX, None).await
    }

    async fn groups_by_type(
        &self,
        project: ProjectId,
        group_type: &GroupType,
        keys: Option<Arc<BTreeSet<String>>>,
        rows_max: u64,
        lease: Option<MemoryLease>,
    ) -> Result<Vec<Group>, EventStoreError> {
        let now = self.now(project, None).await?;
        let requested = GroupSelection { groups: Arc::new([(group_type.clone(), None)]), keys, rows_max };
        let known = self.known_groups(project, &now, requested, lease).await?;
        let made = tokio::task::spawn_blocking(move || {
            let group = |((_, key), (mut properties, changes)): ((String, String), GroupData)| {
                changes.apply(&mut properties);
                Group { key, properties }
            };
            let groups = known.groups.into_iter().map(group).collect();
            if let Some(lease) = known.lease {
                lease.keep();
            }
            groups
        });
        Ok(made.await?)
    }

    /// The properties of the groups with these keys, in order; an unknown group has none.
    pub(crate) async fn load_group_properties(
        &self,
        project: ProjectId,
        groups: &[(GroupType, String)],
    ) -> Result<Vec<Map<String, Value>>, EventStoreError> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.now(project, None).await?;
        self.groups_with_keys(project, &now, groups).await
    }

    /// Reads single groups.
    pub(super) async fn groups_with_keys(
        &self,
        project: ProjectId,
        now: &PersonsSnapshot,
        groups: &[(GroupType, String)],
    ) -> Result<Vec<Map<String, Value>>, EventStoreError> {
        if groups.is_empty() {
            return Ok(Vec::new());
        }
        let single = groups.iter().map(|(of, key)| (of.clone(), Some(key.clone())));
        let requested = GroupSelection { groups: single.collect(), keys: None, rows_max: GROUPS_MAX };
        let mut known = self.known_groups(project, now, requested, None).await?;
        let of = |(of, key): &(GroupType, String)| {
            let (mut properties, changes) =
                known.groups.remove(&(of.name.clone(), key.clone())).unwrap_or_default();
            changes.apply(&mut properties);
            properties
        };
        Ok(groups.iter().map(of).collect())
    }

    async fn known_groups(
        &self,
        project: ProjectId,
        now: &PersonsSnapshot,
        requested: GroupSelection,
        lease: Option<MemoryLease>,
    ) -> Result<KnownGroups, EventStoreError> {
        let segments = now.manifest.segments.iter();
        let in_segments = segments.clone().filter_map(|entry| entry.groups.as_ref()).map(|file| file.rows);
        let rows = now.manifest.groups.iter().map(|entry| entry.rows).chain(in_segments).sum::<u64>();
        if rows > requested.rows_max {
            return Err(EventStoreError::TooLarge(format!(
                "The project's groups are spread over {rows} rows; at most {} are read.",
                requested.rows_max
            )));
        }
        let mut known = KnownGroups { lease, ..KnownGroups::default() };
        for entry in &now.manifest.groups {
            let bytes = self.imports.group_records(entry).await?;
            let requested = requested.clone();
            let taken = tokio::task::spawn_blocking(move || {
                requested.take_records(&mut known, bytes).map(|()| known)
            });
            known = taken.await??;
        }
        let found = segments.map(|entry| self.profiles.groups_in_segment(entry)).collect::<Vec<_>>();
        let mut found = futures::stream::iter(found).buffer_unordered(FILES_AT_ONCE);
        while let Some(part) = found.try_next().await? {
            let requested = requested.clone();
            let taken =
                tokio::task::spawn_blocking(move || requested.take_changes(&mut known, part).map(|()| known));
            known = taken.await??;
        }
        let waiting_events =
            now.waiting_events.iter().filter(|row| row.event.event == "$groupidentify").cloned().collect();
        let waiting_events = self.duplicates.not_in_segments(&now.manifest, waiting_events).await?;
        let taken = tokio::task::spawn_blocking(move || {
            let waiting_events = Profile::of_rows(project, &waiting_events).groups;
            requested.take_changes(&mut known, waiting_events).map(|()| known)
        });
        taken.await?
    }
}
