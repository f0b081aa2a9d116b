//! Maps distinct ids to person ids and defines which events merge persons: the only owner of that rule.
//!
//! A distinct id that was never merged is a person by a pure function of project and id, without a row. A
//! *link* merges one person into another; links come from imported persons and from captured merges. All
//! persons that are connected by links are one. Must stay true: links may form cycles and chains in any order;
//! the same links in the same order give the same canonical persons.

use std::collections::HashMap;

use pennon_core::store::keys::ProjectId;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::event::Event;

/// Namespace of the derived person ids.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f1d_3c52_9b7e_4f0a_8d2b_51c7_e094_a63f);

/// The person id of a distinct id that was not merged.
pub fn derive_person_id(project: ProjectId, distinct_id: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{project}:{distinct_id}").as_bytes())
}

/// Person `from` is merged into person `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PersonLink {
    pub from: Uuid,
    pub to: Uuid,
}

/// Find with path compression: the root of `person`.
pub(crate) fn root(parents: &mut HashMap<Uuid, Uuid>, person: Uuid) -> Uuid {
    let mut at = person;
    while let Some(next) = parents.get(&at).copied() {
        if let Some(after) = parents.get(&next).copied() {
            parents.insert(at, after);
        }
        at = next;
    }
    at
}

/// A merge that an event requests: of `link.from` into `link.to`. `link.to` is identified from then on, whether
/// the merge is applied or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct MergeRequest {
    pub link: PersonLink,
    /// Whether it applies even to an identified person.
    pub forced: bool,
}

/// Ids that clients send by mistake for "no user": merging on one of them would merge all users.
const PLACEHOLDER_IDS: [&str; 15] = [
    "anonymous",
    "guest",
    "distinctid",
    "distinct_id",
    "id",
    "not_authenticated",
    "email",
    "undefined",
    "true",
    "false",
    "null",
    "none",
    "nan",
    "0",
    "[object object]",
];

/// Whether events of this name may request a merge.
pub(crate) fn may_merge(event: &str) -> bool {
    ["$identify", "$create_alias", "$merge_dangerously"].contains(&event)
}

/// Whether [`other_id`] reads the property of this name.
pub(crate) fn names_a_merge(property: &str) -> bool {
    ["$anon_distinct_id", "alias", "$process_person_profile"].contains(&property)
}

/// Whether the event opts out of person and group processing.
pub(crate) fn wants_no_profile(properties: &Map<String, Value>) -> bool {
    properties.get("$process_person_profile") == Some(&Value::Bool(false))
}

/// The merge that `event` requests: one of three event names with two usable ids.
pub(crate) fn merge_of(project: ProjectId, event: &Event) -> Option<MergeRequest> {
    let (other, forced) = other_id(event)?;
    let link = PersonLink {
        from: derive_person_id(project, &other),
        to: derive_person_id(project, &event.distinct_id),
    };
    Some(MergeRequest { link, forced })
}

/// The person ids of the two distinct ids that `event` requests to merge.
pub fn requested_merge(project: ProjectId, event: &Event) -> Option<(Uuid, Uuid)> {
    merge_of(project, event).map(|merge| (merge.link.from, merge.link.to))
}

/// The distinct id that `event` requests to merge into its own, and whether the merge is forced.
pub(crate) fn other_id(event: &Event) -> Option<(String, bool)> {
    let (key, forced) = match event.event.as_str() {
        "$identify" => ("$anon_distinct_id", false),
        "$create_alias" => ("alias", false),
        "$merge_dangerously" => ("alias", true),
        _ => return None,
    };
    if wants_no_profile(&event.properties) {
        return None;
    }
    let other = match event.properties.get(key)? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    if !is_usable_id(&other) || !is_usable_id(&event.distinct_id) || other == event.distinct_id {
        return None;
    }
    Some((other, forced))
}

/// Whether a distinct id may take part in a merge: it is none of the placeholders for "no user".
pub fn is_usable_id(id: &str) -> bool {
    let id = id.trim().trim_matches(['"', '\'']).to_lowercase();
    !id.is_empty() && !PLACEHOLDER_IDS.contains(&id.as_str())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn ids_of_two_projects_are_different_persons() {
        assert_ne!(derive_person_id(1, "1:a"), derive_person_id(11, ":a"));
        assert_ne!(derive_person_id(1, "a"), derive_person_id(2, "a"));
        assert_eq!(derive_person_id(1, "a"), derive_person_id(1, "a"));
    }

    fn merge_request_of(event: &str, distinct_id: &str, properties: Value) -> Option<MergeRequest> {
        let event = Event {
            uuid: Uuid::nil(),
            event: event.into(),
            distinct_id: distinct_id.into(),
            timestamp: 0,
            properties: properties.as_object().unwrap().clone(),
        };
        merge_of(1, &event)
    }

    #[test]
    fn three_events_merge_and_only_with_two_usable_ids() {
        let link = PersonLink { from: derive_person_id(1, "anon"), to: derive_person_id(1, "ada") };
        let merge = |forced| Some(MergeRequest { link, forced });
        assert_eq!(merge_request_of("$identify", "ada", json!({"$anon_distinct_id": "anon"})), merge(false));
        assert_eq!(merge_request_of("$create_alias", "ada", json!({"alias": "anon"})), merge(false));
        assert_eq!(merge_request_of("$merge_dangerously", "ada", json!({"alias": "anon"})), merge(true));
        assert_eq!(merge_request_of("$identify", "ada", json!({"alias": "anon"})), None);
        assert_eq!(merge_request_of("identify", "ada", json!({"$anon_distinct_id": "anon"})), None);
        let unkept = json!({"$anon_distinct_id": "anon", "$process_person_profile": false});
        assert_eq!(merge_request_of("$identify", "ada", unkept), None);
        for invalid in ["", " ", "undefined", "NULL", "[object Object]", "ada"] {
            assert_eq!(
                merge_request_of("$identify", "ada", json!({"$anon_distinct_id": invalid})),
                None,
                "{invalid}"
            );
            assert_eq!(
                merge_request_of("$identify", invalid, json!({"$anon_distinct_id": "ada"})),
                None,
                "{invalid}"
            );
        }
    }
}
