//! Changes that events make to the properties of a person or group, as a mergeable summary (a CRDT).
//!
//! Per key of a distinct id it keeps the last `$set` or `$unset`, the first `$set_once` and the last one. So a
//! thousand events on a key take the space of three, in any grouping: [`ProfileChanges::merge`] is associative,
//! commutative and idempotent.
//!
//! The result follows the rules of the SDKs' own service: in order of (time, arrival), a `$set` always applies,
//! a `$set_once` applies if the key has no value, and an `$unset` removes the value; within one event the order
//! is set-once, set, unset. One difference: if a key was unset between several `$set_once` of different values,
//! the last of them applies and not the next one. When a person is merged into another, the values of both
//! stay; for a common key the value of the remaining person wins; later changes apply to both.

use std::collections::{BTreeMap, HashMap};

use pennon_analytics::scan::{Micros, Seq};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::codec::{BinaryReader, write_signed, write_text, write_unsigned, write_value};
use crate::error::EventStoreError;
use crate::person_ids::wants_no_profile;

/// Order of changes: time first, then arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeOrder {
    pub time: Micros,
    pub seq: Seq,
}

/// Kind of a change. The order is that within one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ChangeKind {
    Once,
    Set,
    Unset,
}

/// Summary of one key.
#[derive(Debug, Clone, Default, PartialEq)]
struct KeyChanges {
    /// The last `$set`, or with no value the last `$unset`.
    last: Option<(ChangeOrder, Option<Value>)>,
    first_once: Option<(ChangeOrder, Value)>,
    last_once: Option<(ChangeOrder, Value)>,
}

/// Summary of all keys of a distinct id or a group.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProfileChanges(BTreeMap<String, KeyChanges>);

impl ProfileChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Approximate bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        // Value plus its order.
        let value = |value: &Value| 32 + value_bytes(value);
        let of = |changes: &KeyChanges| {
            let last = changes.last.iter().filter_map(|(_, set)| set.as_ref());
            let once = changes.first_once.iter().chain(&changes.last_once).map(|(_, once)| once);
            last.chain(once).map(value).sum::<usize>()
        };
        self.0.iter().map(|(key, changes)| 160 + key.len() + of(changes)).sum()
    }

    /// Adds `$set`, `$set_once` and `$unset` of an event.
    pub(crate) fn take_event(&mut self, properties: &Map<String, Value>, at: ChangeOrder) {
        if wants_no_profile(properties) {
            return;
        }
        for (key, value) in object(properties, "$set_once") {
            let own = (at, value.clone());
            let changes = self.0.entry(key.clone()).or_default();
            changes.take_once(Some(own.clone()), Some(own));
        }
        for (key, value) in object(properties, "$set") {
            self.set(key, value, at);
        }
        let unset = properties.get("$unset").and_then(Value::as_array).into_iter().flatten();
        for key in unset.filter_map(Value::as_str) {
            self.0.entry(key.to_owned()).or_default().take_last(Some((at, None)));
        }
    }

    /// Adds a set of `key`.
    pub(crate) fn set(&mut self, key: &str, value: &Value, at: ChangeOrder) {
        self.0.entry(key.to_owned()).or_default().take_last(Some((at, Some(value.clone()))));
    }

    /// Merges `other`.
    pub(crate) fn merge(&mut self, other: ProfileChanges) {
        for (key, changes) in other.0 {
            let own = self.0.entry(key).or_default();
            own.take_last(changes.last);
            own.take_once(changes.first_once, changes.last_once);
        }
    }

    /// Keeps only the selected keys.
    pub(crate) fn keep(&mut self, requested: impl Fn(&str) -> bool) {
        self.0.retain(|key, _| requested(key));
    }

    /// Applies the changes to `properties`, which are older than all of them.
    pub(crate) fn apply(&self, properties: &mut Map<String, Value>) {
        for (key, changes) in &self.0 {
            let mut after = None;
            match &changes.last {
                Some((_, Some(value))) => {
                    properties.insert(key.clone(), value.clone());
                    continue;
                }
                Some((at, None)) => {
                    properties.remove(key);
                    after = Some(*at);
                }
                None if properties.contains_key(key) => continue,
                None => {}
            }
            let mut once = [&changes.first_once, &changes.last_once].into_iter().flatten();
            if let Some((_, value)) = once.find(|(at, _)| after.is_none_or(|after| *at > after)) {
                properties.insert(key.clone(), value.clone());
            }
        }
    }

    /// Encodes the summary.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        write_unsigned(&mut out, self.0.len() as u64);
        for (key, changes) in &self.0 {
            write_text(&mut out, key);
            let last = changes.last.as_ref().map(|(at, set)| (*at, set.as_ref()));
            let once = [&changes.first_once, &changes.last_once];
            let once = once.map(|once| once.as_ref().map(|(at, value)| (*at, Some(value))));
            for entry in [last, once[0], once[1]] {
                match entry {
                    None => out.push(ABSENT),
                    Some((at, value)) => {
                        out.push(if value.is_some() { VALUE } else { NO_VALUE });
                        write_signed(&mut out, at.time);
                        out.extend_from_slice(&at.seq.to_le_bytes());
                        if let Some(value) = value {
                            write_value(&mut out, value);
                        }
                    }
                }
            }
        }
        out
    }

    /// Decodes the summary.
    pub(crate) fn decode(bytes: &[u8]) -> Result<ProfileChanges, EventStoreError> {
        let mut reader = BinaryReader::new(bytes);
        let mut changes = BTreeMap::new();
        for _ in 0..reader.count()? {
            let key = reader.text()?;
            let last = entry(&mut reader)?;
            let mut once = || match entry(&mut reader)? {
                Some((at, Some(value))) => Ok(Some((at, value))),
                None => Ok(None),
                Some((_, None)) => Err(EventStoreError::corrupt("a change without its value")),
            };
            let (first_once, last_once) = (once()?, once()?);
            changes.insert(key, KeyChanges { last, first_once, last_once });
        }
        Ok(ProfileChanges(changes))
    }
}

/// Approximate bytes of a value, including nested ones.
pub(crate) fn value_bytes(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len() + 16,
        Value::Array(items) => items.iter().map(value_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + 64 + value_bytes(value)).sum(),
        _ => 0,
    };
    size_of::<(u16, Value)>() + inner
}

const ABSENT: u8 = 0;
const VALUE: u8 = 1;
const NO_VALUE: u8 = 2;

fn entry(reader: &mut BinaryReader<'_>) -> Result<Option<(ChangeOrder, Option<Value>)>, EventStoreError> {
    let [kind] = reader.array()?;
    if kind == ABSENT {
        return Ok(None);
    }
    let at = ChangeOrder { time: reader.signed()?, seq: u128::from_le_bytes(reader.array()?) };
    match kind {
        VALUE => Ok(Some((at, Some(reader.whole_value()?)))),
        NO_VALUE => Ok(Some((at, None))),
        other => Err(EventStoreError::Corrupt(format!("a change of unknown kind {other}"))),
    }
}

fn object<'a>(
    properties: &'a Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    properties.get(name).and_then(Value::as_object).into_iter().flatten()
}

impl KeyChanges {
    fn take_last(&mut self, other: Option<(ChangeOrder, Option<Value>)>) {
        let rank =
            |last: &Option<(ChangeOrder, Option<Value>)>| last.as_ref().map(|(at, set)| (*at, set.is_none()));
        if rank(&other) > rank(&self.last) {
            self.last = other;
        }
    }

    fn take_once(&mut self, first: Option<(ChangeOrder, Value)>, last: Option<(ChangeOrder, Value)>) {
        if let Some(first) = first
            && self.first_once.as_ref().is_none_or(|(at, _)| first.0 < *at)
        {
            self.first_once = Some(first);
        }
        if let Some(last) = last
            && self.last_once.as_ref().is_none_or(|(at, _)| last.0 > *at)
        {
            self.last_once = Some(last);
        }
    }

    fn steps(&self) -> impl Iterator<Item = (ChangeOrder, ChangeKind, Option<&Value>)> {
        let once = [&self.first_once, &self.last_once].into_iter().flatten();
        let once = once.map(|(at, value)| (*at, ChangeKind::Once, Some(value)));
        let last = self.last.iter().map(|(at, set)| {
            (*at, if set.is_some() { ChangeKind::Set } else { ChangeKind::Unset }, set.as_ref())
        });
        once.chain(last)
    }
}

/// One of several persons that were merged.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProfilePart {
    /// Imported properties.
    pub base: Map<String, Value>,
    /// Changes of events of all its distinct ids.
    pub changes: ProfileChanges,
}

/// A merge of one part into another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OrderedMerge {
    /// Position in the merge log.
    pub place: usize,
    /// When it happened.
    pub time: Micros,
    pub from: Uuid,
    pub to: Uuid,
}

/// Computes the properties of the person that `parts` are after all merges `joined`, given in any order. A
/// merge counts as after all merges before it in the log, whatever its time.
pub(crate) fn merged_properties(
    parts: &BTreeMap<Uuid, ProfilePart>,
    joined: &[OrderedMerge],
) -> Map<String, Value> {
    let mut joined = joined.to_vec();
    joined.sort_by_key(|joined| joined.place);
    let mut steps = Vec::new();
    for (id, part) in parts {
        for (key, changes) in &part.changes.0 {
            steps.extend(changes.steps().map(|(at, kind, value)| (at, kind, *id, key, value)));
        }
    }
    steps.sort_by_key(|(at, kind, id, key, _)| (*at, *kind, *id, *key));
    let mut now = MergeReplay::new(parts);
    let mut joined = joined.into_iter().peekable();
    for (at, kind, id, key, value) in steps {
        while let Some(join) = joined.next_if(|join| join.time <= at.time) {
            now.join(join);
        }
        let properties = now.of(id);
        match (kind, value) {
            (ChangeKind::Once, Some(_)) if properties.contains_key(key) => {}
            (ChangeKind::Once | ChangeKind::Set, Some(value)) => {
                properties.insert(key.clone(), value.clone());
            }
            _ => {
                properties.remove(key);
            }
        }
    }
    for join in joined {
        now.join(join);
    }
    now.all()
}

/// State of the parts during the replay.
struct MergeReplay {
    parents: HashMap<Uuid, Uuid>,
    properties: BTreeMap<Uuid, Map<String, Value>>,
}

impl MergeReplay {
    fn new(parts: &BTreeMap<Uuid, ProfilePart>) -> MergeReplay {
        let properties = parts.iter().map(|(id, part)| (*id, part.base.clone())).collect();
        MergeReplay { parents: HashMap::new(), properties }
    }

    fn root(&mut self, id: Uuid) -> Uuid {
        crate::person_ids::root(&mut self.parents, id)
    }

    fn of(&mut self, id: Uuid) -> &mut Map<String, Value> {
        let root = self.root(id);
        self.properties.entry(root).or_default()
    }

    /// Merges the properties; for a common key the value of the remaining person wins.
    fn join(&mut self, join: OrderedMerge) {
        let (from, to) = (self.root(join.from), self.root(join.to));
        if from == to {
            return;
        }
        self.parents.insert(from, to);
        let other = self.properties.remove(&from).unwrap_or_default();
        let stays = self.properties.entry(to).or_default();
        for (key, value) in other {
            if !stays.contains_key(&key) {
                stays.insert(key, value);
            }
        }
    }

    /// The remaining properties: one person if all parts were merged.
    fn all(self) -> Map<String, Value> {
        self.properties.into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests;
