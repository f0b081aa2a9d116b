//! Which distinct ids the rows of a file name for each person.

use std::collections::{BTreeMap, HashMap, HashSet};

use pennon_eventstore::PersonRecord;
use serde_json::Map;

/// The persons of all projects.
#[derive(Default)]
pub(super) struct Persons {
    projects: BTreeMap<u64, Named>,
}

#[derive(Default)]
struct Named {
    persons: HashMap<String, u32>,
    distinct_ids: HashMap<String, u32>,
    known: HashSet<(u32, u32)>,
    /// Person and distinct id, in order of appearance.
    pairs: Vec<(u32, u32)>,
}

impl Persons {
    /// Notes that a person has a distinct id.
    pub(super) fn name(&mut self, project: u64, person: &str, distinct_id: &str) {
        let named = self.projects.entry(project).or_default();
        let pair = (number(&mut named.persons, person), number(&mut named.distinct_ids, distinct_id));
        if named.known.insert(pair) {
            named.pairs.push(pair);
        }
    }

    /// The persons of several distinct ids: the others are persons without being told. They say nothing of properties, so
    /// that those of earlier imports stay. In order of appearance, so that an import is reproducible.
    pub(super) fn several(self) -> Vec<(u64, PersonRecord)> {
        let mut several = Vec::new();
        for (project, mut named) in self.projects {
            let mut texts = vec![""; named.distinct_ids.len()];
            named.distinct_ids.iter().for_each(|(text, number)| texts[*number as usize] = text);
            named.pairs.sort_by_key(|(person, _)| *person);
            for pairs in named.pairs.chunk_by(|a, b| a.0 == b.0).filter(|pairs| pairs.len() > 1) {
                let distinct_ids = pairs.iter().map(|(_, id)| texts[*id as usize].to_owned()).collect();
                several
                    .push((project, PersonRecord { distinct_ids, properties: Map::new(), created_at: None }));
            }
        }
        several
    }
}

fn number(numbers: &mut HashMap<String, u32>, text: &str) -> u32 {
    if let Some(number) = numbers.get(text) {
        return *number;
    }
    let next = numbers.len() as u32;
    numbers.insert(text.to_owned(), next);
    next
}
