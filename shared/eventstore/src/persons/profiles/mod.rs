//! What the events of a segment change of persons and groups: two small files beside it.
//!
//! *Ids*: a row for each distinct id of the segment's events, by its derived person id: columns `id` (16
//! bytes), `distinct_id`, `seq_high` and `seq_low` (its first event), `changes` ([`changes::ProfileChanges`], or
//! null). It includes ids that captured events request to merge, with or without events of their own.
//! *Groups*: a row for each group of `$groupidentify`: `type`, `key`, `changes`. Only captured events change
//! persons and groups; imported ones only record their distinct ids.
//!
//! Must stay true: rows are sorted by `id` (`type`, `key`), so that a reader finds one by the page index; files
//! can be merged in any order ([`Profile::merge`]).

pub(crate) mod changes;
pub(crate) mod file;
pub(crate) mod merge;
mod reader;

pub(crate) use reader::ProfileReader;

use std::collections::BTreeMap;

use pennon_analytics::scan::Seq;
use pennon_core::store::keys::ProjectId;
use serde_json::Value;
use uuid::Uuid;

use crate::event::{Event, PersonEvent};
use crate::person_ids::{derive_person_id, names_a_merge, other_id, wants_no_profile};
use changes::{ChangeOrder, ProfileChanges};

/// Data of one distinct id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IdProfile {
    pub distinct_id: String,
    /// Arrival of its first event.
    pub first: Seq,
    pub changes: ProfileChanges,
}

/// Changes that events make to persons and groups.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Profile {
    pub ids: BTreeMap<Uuid, IdProfile>,
    /// By type name and key.
    pub groups: BTreeMap<(String, String), ProfileChanges>,
}

/// Orders an id that an event names after the ids of all events of its batch: a bit of the arrival order above
/// the index of every event.
const NAMED: Seq = 1 << 31;

impl Profile {
    /// Collects the changes of captured `rows`, which have no duplicates.
    pub(crate) fn of_rows<'a>(
        project: ProjectId,
        rows: impl IntoIterator<Item = &'a PersonEvent>,
    ) -> Profile {
        let mut by_text: BTreeMap<&str, IdProfile> = BTreeMap::new();
        let (mut groups, mut named) = (BTreeMap::new(), Vec::new());
        for row in rows {
            let event = &row.event;
            let id = by_text.entry(&event.distinct_id).or_insert_with(|| IdProfile {
                distinct_id: event.distinct_id.clone(),
                first: row.seq,
                changes: ProfileChanges::default(),
            });
            id.first = id.first.min(row.seq);
            let at = ChangeOrder { time: event.timestamp, seq: row.seq };
            id.changes.take_event(&event.properties, at);
            take_group(&mut groups, event, at);
            named.extend(named_by(event, row.seq));
        }
        let ids = by_text.into_iter().map(|(text, id)| (derive_person_id(project, text), id)).collect();
        let mut profile = Profile { ids, groups };
        profile.name(project, named);
        profile
    }

    /// Adds distinct ids that events name besides their own.
    pub(crate) fn name(&mut self, project: ProjectId, named: Vec<(String, Seq)>) {
        for (distinct_id, first) in named {
            let id = derive_person_id(project, &distinct_id);
            let own = IdProfile { distinct_id, first, changes: ProfileChanges::default() };
            self.merge(Profile { ids: [(id, own)].into(), ..Profile::default() });
        }
    }

    /// Merges `other`.
    pub(crate) fn merge(&mut self, other: Profile) {
        for (id, profile) in other.ids {
            match self.ids.get_mut(&id) {
                None => drop(self.ids.insert(id, profile)),
                Some(own) => {
                    own.first = own.first.min(profile.first);
                    own.changes.merge(profile.changes);
                }
            }
        }
        for (group, changes) in other.groups {
            self.groups.entry(group).or_default().merge(changes);
        }
    }
}

/// The distinct id that an event names besides its own, with its arrival order.
pub(crate) fn named_by(event: &Event, seq: Seq) -> Option<(String, Seq)> {
    other_id(event).map(|(other, _)| (other, seq | NAMED))
}

/// Whether the property changes persons or groups.
pub(crate) fn is_profile_property(key: &str) -> bool {
    const PROFILE_PROPERTIES: [&str; 6] =
        ["$set", "$set_once", "$unset", "$group_type", "$group_key", "$group_set"];
    PROFILE_PROPERTIES.contains(&key) || names_a_merge(key)
}

/// Adds a `$groupidentify` event.
pub(crate) fn take_group(
    groups: &mut BTreeMap<(String, String), ProfileChanges>,
    event: &Event,
    at: ChangeOrder,
) {
    if event.event != "$groupidentify" || wants_no_profile(&event.properties) {
        return;
    }
    let text = |name: &str| match event.properties.get(name)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let (Some(type_name), Some(key)) = (text("$group_type"), text("$group_key")) else { return };
    let changes = groups.entry((type_name, key)).or_default();
    for (name, value) in event.properties.get("$group_set").and_then(Value::as_object).into_iter().flatten() {
        changes.set(name, value, at);
    }
}
