//! The order of decisions, on flags made for it.
#![allow(clippy::unwrap_used)]

use chrono_tz::Tz;
use serde_json::{Value, json};

use super::*;
use crate::flag::{json::Object, testing};

/// A flag as stored, whatever its filters.
fn flag(id: i64, key: &str, filters: Value) -> Flag {
    Flag { id, key: key.to_owned(), filters: testing::object(filters), ..testing::flag() }
}

/// What flags are evaluated with; a test changes what it is about.
struct World {
    flags: Vec<Flag>,
    cohorts: Vec<Cohort>,
    properties: Value,
    groups: Vec<(u32, &'static str, Value)>,
    members_of: BTreeSet<i64>,
}

fn world(flags: Vec<Flag>) -> World {
    World {
        flags,
        cohorts: Vec::new(),
        properties: json!({}),
        groups: Vec::new(),
        members_of: BTreeSet::new(),
    }
}

impl World {
    fn evaluator(&self) -> Evaluator {
        Evaluator::new(&self.flags, self.cohorts.clone(), Tz::UTC, testing::now())
    }

    /// The answers for a person, which must be the same one by one and all at once.
    fn ask(&self, distinct_id: &str) -> BTreeMap<i64, Evaluation> {
        let properties = testing::object(self.properties.clone());
        let of_groups: Vec<Object> =
            self.groups.iter().map(|(_, _, properties)| testing::object(properties.clone())).collect();
        let groups = self
            .groups
            .iter()
            .zip(&of_groups)
            .map(|((index, key, _), properties)| (*index, GroupSubject { key, properties }));
        let subject = Subject {
            distinct_id,
            properties: &properties,
            groups: groups.collect(),
            static_cohorts: &self.members_of,
        };
        let evaluator = self.evaluator();
        let all = evaluator.evaluate_all(&subject);
        for (id, evaluation) in &all {
            assert_eq!(evaluator.evaluate(*id, &subject).as_ref(), Some(evaluation), "flag {id} alone");
        }
        all
    }

    #[track_caller]
    fn says(&self, distinct_id: &str, id: i64, value: Value, reason: &str, index: Option<usize>) {
        let all = self.ask(distinct_id);
        let evaluation = &all[&id];
        let got = (evaluation.value.to_json(), evaluation.reason.as_str(), evaluation.condition_index);
        assert_eq!(got, (value, reason, index), "flag {id} for {distinct_id}");
    }
}

#[test]
fn one_condition() {
    let half = json!({"groups": [{"properties": [], "rollout_percentage": 50}]});
    let world = world(vec![flag(1, "simple-flag", half)]);
    // The hashes of these are 0.737 and 0.196.
    world.says("user-1", 1, json!(false), "out_of_rollout_bound", Some(0));
    world.says("user-2", 1, json!(true), "condition_match", Some(0));
}
