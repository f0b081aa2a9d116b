//! The actors behind a data point of a result.
//!
//! Must stay true: a data point lists exactly the actors that its number counts.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::actor_blocks::{ActorBlocks, MatchingRows};
use crate::scan::{Micros, Partition};

/// An actor that counts towards a data point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchedActor {
    /// Its id, as in [`crate::scan::Partition::actors`]; for a group or distinct id, derived from its key.
    pub actor: Uuid,
    /// The group key or distinct id; none for persons.
    pub key: Option<String>,
    /// Times of the events that count, ascending.
    pub times: Vec<Micros>,
    /// For kinds with pages of appearances: by column of the result, whether the actor counts in it.
    pub appearances: Vec<bool>,
}

impl MatchedActor {
    /// Number of columns in which the actor counts.
    pub fn appearance_count(&self) -> usize {
        self.appearances.iter().filter(|appears| **appears).count()
    }

    /// Sort key of pages: most appearances first, then by id.
    pub fn page_order(&self) -> (Reverse<usize>, Uuid) {
        (Reverse(self.appearance_count()), self.actor)
    }
}

/// Merges the actors of several partitions. An actor of several partitions is listed once, with all its times. Ordered by
/// id.
pub fn union(parts: impl IntoIterator<Item = MatchedActor>) -> Vec<MatchedActor> {
    let mut people: BTreeMap<Uuid, MatchedActor> = BTreeMap::new();
    for matched in parts {
        match people.entry(matched.actor) {
            Entry::Vacant(entry) => {
                entry.insert(matched);
            }
            Entry::Occupied(mut entry) => {
                let times = &mut entry.get_mut().times;
                times.extend(matched.times);
                times.sort_unstable();
            }
        }
    }
    people.into_values().collect()
}

/// The selected actors of a partition, ordered by id, each with the times of those of its matching rows that count.
pub(crate) fn list_selected(
    partition: &Partition,
    matching: &[MatchingRows<'_>],
    is_selected: &[bool],
    counts: impl Fn(Micros) -> bool,
    work: &WorkBudget<'_>,
) -> CalcResult<Vec<MatchedActor>> {
    let mut times = vec![Vec::new(); is_selected.len()];
    let mut blocks = ActorBlocks::new(matching.iter().map(|rows| rows.run), is_selected.len());
    while let Some(block) = blocks.next_block(work)? {
        block.for_each_row(matching, work, |actor, time| {
            let index = block.first_actor + actor;
            if is_selected.get(index) == Some(&true) && counts(time) {
                times[index].push(time);
            }
        })?;
    }
    work.check()?;
    let selected = partition.actors.iter().zip(is_selected).zip(times).enumerate();
    let selected = selected.filter(|(_, ((_, is_selected), _))| **is_selected);
    let matched = selected.map(|(index, ((actor, _), mut times))| {
        times.sort_unstable();
        let key = partition.keys.get(index).cloned();
        MatchedActor { actor: *actor, key, times, appearances: Vec::new() }
    });
    Ok(matched.collect())
}

/// Decodes a list in the parameters of a link, which may be a JSON string.
pub(crate) fn decode_list(value: &Value) -> Value {
    match value {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    }
}
