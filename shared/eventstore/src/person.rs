//! Distinct id → person, and what merges do to it: the only owner of that rule.
//!
//! A distinct id that nothing ever merged is a person by a pure function of project and id, without a row. A *link*
//! says that one person is another; links come from imported person lines and from merges that were captured. All
//! persons linked together, however far, are one. Must stay true: links may form cycles and chains in any order
//! without harm; the same links in the same order give the same final persons.

use std::collections::{BTreeSet, HashMap};

use pennon_core::store::keys::ProjectId;
use serde_json::Value;
use uuid::Uuid;

use crate::event::Event;

/// Namespace of the derived person ids.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f1d_3c52_9b7e_4f0a_8d2b_51c7_e094_a63f);

/// The person that `distinct_id` is as long as nothing merged it.
pub fn derived(project: ProjectId, distinct_id: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{project}:{distinct_id}").as_bytes())
}

/// That person `from` is person `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub from: Uuid,
    pub to: Uuid,
}

/// Which person each linked person is in the end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resolution {
    finals: HashMap<Uuid, Uuid>,
}

impl Resolution {
    /// What `links` come to. Where two groups of persons meet, those of `from` become the one of `to`.
    pub(crate) fn of(links: impl IntoIterator<Item = Link>) -> Resolution {
        let mut parents: HashMap<Uuid, Uuid> = HashMap::new();
        for link in links {
            let from = root(&mut parents, link.from);
            let to = root(&mut parents, link.to);
            if from != to {
                parents.insert(from, to);
            }
        }
        let linked = parents.keys().copied().collect::<Vec<_>>();
        let finals = linked.into_iter().map(|person| (person, root(&mut parents, person))).collect();
        Resolution { finals }
    }

    /// The final person of `person`.
    pub(crate) fn person(&self, person: Uuid) -> Uuid {
        self.finals.get(&person).copied().unwrap_or(person)
    }

    /// Everybody who is `person` in the end, `person` itself among them.
    pub(crate) fn members(&self, person: Uuid) -> BTreeSet<Uuid> {
        let linked = self.finals.iter().filter(|(_, last)| **last == person).map(|(linked, _)| *linked);
        linked.chain([person]).collect()
    }

    /// Everybody who was linked to somebody, with who it is in the end.
    pub(crate) fn linked(&self) -> impl Iterator<Item = (Uuid, Uuid)> {
        self.finals.iter().map(|(linked, last)| (*linked, *last))
    }

    /// Whether nothing was ever merged.
    pub(crate) fn is_empty(&self) -> bool {
        self.finals.is_empty()
    }
}

/// The end of the chain from `person`; the chain is made short on the way.
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

/// A merge that an event asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Merge {
    pub link: Link,
    /// Whether it happens even to a person that has been identified as somebody else.
    pub forced: bool,
}

/// Ids that programs send by mistake for "nobody": merging on one of them would make everybody one person.
const NOBODY: [&str; 15] = [
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

/// The merge that `event` asks for, if it is one of the three events that do and names two usable ids.
pub(crate) fn merge_of(project: ProjectId, event: &Event) -> Option<Merge> {
    let (key, forced) = match event.event.as_str() {
        "$identify" => ("$anon_distinct_id", false),
        "$create_alias" => ("alias", false),
        "$merge_dangerously" => ("alias", true),
        _ => return None,
    };
    let other = match event.properties.get(key)? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let usable = |id: &str| {
        let id = id.trim().trim_matches(['"', '\'']).to_lowercase();
        !id.is_empty() && !NOBODY.contains(&id.as_str())
    };
    if !usable(&other) || !usable(&event.distinct_id) || other == event.distinct_id {
        return None;
    }
    let link = Link { from: derived(project, &other), to: derived(project, &event.distinct_id) };
    Some(Merge { link, forced })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn person(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    fn resolve(links: &[(u128, u128)]) -> Resolution {
        Resolution::of(links.iter().map(|(from, to)| Link { from: person(*from), to: person(*to) }))
    }

    #[test]
    fn links_are_followed_to_the_end_in_any_order() {
        for links in [[(1, 2), (2, 3), (4, 1)], [(4, 1), (2, 3), (1, 2)], [(2, 3), (4, 1), (1, 2)]] {
            let resolved = resolve(&links);
            for n in 1..=4 {
                assert_eq!(resolved.person(person(n)), person(3), "{n} of {links:?}");
            }
            assert_eq!(resolved.person(person(9)), person(9));
        }
    }

    #[test]
    fn a_cycle_is_one_person() {
        let resolved = resolve(&[(1, 2), (2, 3), (3, 1), (1, 1)]);
        let one = resolved.person(person(1));
        assert!((1..=3).all(|n| resolved.person(person(n)) == one));
    }

    #[test]
    fn a_long_chain_takes_no_stack() {
        let links = (0..200_000).map(|n| (n, n + 1)).collect::<Vec<_>>();
        assert_eq!(resolve(&links).person(person(0)), person(200_000));
    }

    #[test]
    fn ids_of_two_projects_are_different_persons() {
        assert_ne!(derived(1, "1:a"), derived(11, ":a"));
        assert_ne!(derived(1, "a"), derived(2, "a"));
        assert_eq!(derived(1, "a"), derived(1, "a"));
    }

    fn asked(event: &str, distinct_id: &str, properties: Value) -> Option<Merge> {
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
        let link = Link { from: derived(1, "anon"), to: derived(1, "ada") };
        let merge = |forced| Some(Merge { link, forced });
        assert_eq!(asked("$identify", "ada", json!({"$anon_distinct_id": "anon"})), merge(false));
        assert_eq!(asked("$create_alias", "ada", json!({"alias": "anon"})), merge(false));
        assert_eq!(asked("$merge_dangerously", "ada", json!({"alias": "anon"})), merge(true));
        assert_eq!(asked("$identify", "ada", json!({"alias": "anon"})), None);
        assert_eq!(asked("identify", "ada", json!({"$anon_distinct_id": "anon"})), None);
        for nobody in ["", " ", "undefined", "NULL", "[object Object]", "ada"] {
            assert_eq!(asked("$identify", "ada", json!({"$anon_distinct_id": nobody})), None, "{nobody}");
            assert_eq!(asked("$identify", nobody, json!({"$anon_distinct_id": "ada"})), None, "{nobody}");
        }
    }
}
