//! What the events of a segment say of persons and groups: two small files beside it.
//!
//! *Ids*: a row for each distinct id of the segment's events, by the person that it is by itself: columns `id`
//! (16 bytes), `distinct_id`, `seq_high` and `seq_low` (its first event), `changes` ([`changes::Changes`], or null).
//! An id that captured events ask to be merged is one of them, whether it has events of its own or not.
//! *Groups*: a row for each group that `$groupidentify` names: `type`, `key`, `changes`. Only captured events change
//! persons and groups; imported ones tell nothing but that their distinct ids are there.
//!
//! Must stay true: rows are ordered by `id` (`type`, `key`), so that a reader finds one by the page index; what two
//! files say may be taken together in any order ([`Profile::merge`]).

pub(crate) mod changes;
pub(crate) mod file;
pub(crate) mod merge;

use std::collections::BTreeMap;

use pennon_core::store::keys::ProjectId;
use pennon_engine::scan::Seq;
use serde_json::Value;
use uuid::Uuid;

use crate::event::{Event, Row};
use crate::persons::person_ids::{derived, names_a_merge, other_id, wants_no_profile};
use changes::{At, Changes};

/// What events say of one distinct id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IdProfile {
    pub distinct_id: String,
    /// Arrival of its first event.
    pub first: Seq,
    pub changes: Changes,
}

/// What some events say of persons and groups.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Profile {
    pub ids: BTreeMap<Uuid, IdProfile>,
    /// By name of the type, and key.
    pub groups: BTreeMap<(String, String), Changes>,
}

/// An id that an event names comes after those whose events came with the same batch: a bit of the order of arrival
/// above the index of every event.
const NAMED: Seq = 1 << 31;

/// Where events came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// By capture: they change persons and groups.
    Captured,
    /// By either, which only the arrival order tells: lines of an import are numbered from one, and batches that were
    /// captured carry a number above.
    Either,
}

impl Origin {
    /// Whether an event that arrived so changes persons and groups.
    pub(crate) fn changes(self, seq: Seq) -> bool {
        match self {
            Origin::Captured => true,
            Origin::Either => (seq as u64) >> 32 != 0,
        }
    }
}

impl Profile {
    /// What `rows` say. They hold no copies.
    pub(crate) fn of_rows<'a>(
        project: ProjectId,
        rows: impl IntoIterator<Item = &'a Row>,
        origin: Origin,
    ) -> Profile {
        let mut by_text: BTreeMap<&str, IdProfile> = BTreeMap::new();
        let (mut groups, mut named) = (BTreeMap::new(), Vec::new());
        for row in rows {
            let event = &row.event;
            let id = by_text.entry(&event.distinct_id).or_insert_with(|| IdProfile {
                distinct_id: event.distinct_id.clone(),
                first: row.seq,
                changes: Changes::default(),
            });
            id.first = id.first.min(row.seq);
            if origin.changes(row.seq) {
                let at = At { time: event.timestamp, seq: row.seq };
                id.changes.take_event(&event.properties, at);
                take_group(&mut groups, event, at);
                named.extend(named_by(event, row.seq));
            }
        }
        let ids = by_text.into_iter().map(|(text, id)| (derived(project, text), id)).collect();
        let mut profile = Profile { ids, groups };
        profile.name(project, named);
        profile
    }

    /// Takes in distinct ids that events name beside their own.
    pub(crate) fn name(&mut self, project: ProjectId, named: Vec<(String, Seq)>) {
        for (distinct_id, first) in named {
            let id = derived(project, &distinct_id);
            let own = IdProfile { distinct_id, first, changes: Changes::default() };
            self.merge(Profile { ids: [(id, own)].into(), ..Profile::default() });
        }
    }

    /// Takes in what `other` says.
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

/// The distinct id that an event names beside its own, and its arrival as one that was named.
pub(crate) fn named_by(event: &Event, seq: Seq) -> Option<(String, Seq)> {
    other_id(event).map(|(other, _)| (other, seq | NAMED))
}

/// Properties of an event that tell of persons and groups.
pub(crate) fn is_profile_property(key: &str) -> bool {
    const TELLING: [&str; 6] = ["$set", "$set_once", "$unset", "$group_type", "$group_key", "$group_set"];
    TELLING.contains(&key) || names_a_merge(key)
}

/// Takes in a `$groupidentify`.
pub(crate) fn take_group(groups: &mut BTreeMap<(String, String), Changes>, event: &Event, at: At) {
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
