//! A client that evaluates the definitions gets the values of the service: it follows the published rules, is slow and
//! independent of the engine, and evaluates documents of random projects.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use pennon_flag_rules::Flag;
use pennon_flag_rules::definitions::{CohortForm, FlagDefinitions};
use pennon_flag_rules::evaluate::{EvaluationReason, Evaluator, FlagCohort, Subject};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};

/// A client with a document and a person. It returns `None` where it would have to send a request to the service.
struct Client<'a> {
    document: &'a Value,
    person: &'a Map<String, Value>,
    distinct_id: &'a str,
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn lower(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned).to_lowercase()
}

impl Client<'_> {
    fn flag(&self, key: &str) -> Option<&Value> {
        list(&self.document["flags"]).iter().find(|flag| flag["key"] == json!(key))
    }

    fn hash(&self, key: &str, salt: &str) -> f64 {
        let digest = Sha1::digest(format!("{key}.{}{salt}", self.distinct_id));
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        u64::from_str_radix(&hex[..15], 16).unwrap() as f64 / 0xFFF_FFFF_FFFF_FFFF_u64 as f64
    }

    fn value(&self, key: &str) -> Option<Value> {
        let flag = self.flag(key)?;
        if flag["active"] != json!(true) {
            return Some(json!(false));
        }
        for condition in list(&flag["filters"]["groups"]) {
            let mut matches = true;
            for property in list(&condition["properties"]) {
                matches &= self.property(property)?;
            }
            let rollout = condition["rollout_percentage"].as_f64().unwrap_or(100.0);
            if matches && self.hash(key, "") <= rollout / 100.0 {
                return Some(self.variant(key, flag, condition));
            }
        }
        Some(json!(false))
    }

    fn variant(&self, key: &str, flag: &Value, condition: &Value) -> Value {
        let variants = list(&flag["filters"]["multivariate"]["variants"]);
        if variants.iter().any(|variant| variant["key"] == condition["variant"]) {
            return condition["variant"].clone();
        }
        let (hash, mut low) = (self.hash(key, "variant"), 0.0);
        for variant in variants {
            let high = low + variant["rollout_percentage"].as_f64().unwrap() / 100.0;
            if low <= hash && hash < high {
                return variant["key"].clone();
            }
            low = high;
        }
        json!(true)
    }

    fn property(&self, property: &Value) -> Option<bool> {
        match property["type"].as_str()? {
            "flag" => {
                let chain = list(&property["dependency_chain"]);
                // The chain is complete and ends with the requested flag.
                assert!(chain.is_empty() || chain.last() == Some(&property["key"]));
                for key in chain {
                    self.flag(key.as_str().unwrap())?;
                }
                let value = self.value(chain.last()?.as_str().unwrap())?;
                Some(match &property["value"] {
                    Value::Bool(on) => (value != json!(false)) == *on,
                    variant => value == *variant,
                })
            }
            "cohort" => {
                let cohort = &self.document["cohorts"][property["value"].to_string()];
                let member = self.group(cohort.as_object()?)?;
                Some(member != (property["operator"] == json!("not_in")))
            }
            _ => Some(self.own_property(property)),
        }
    }

    fn group(&self, group: &Map<String, Value>) -> Option<bool> {
        let mut results = Vec::new();
        for value in list(&group["values"]) {
            let negated = value["negation"] == json!(true);
            let result = match value.as_object().filter(|value| value.contains_key("values")) {
                Some(group) => self.group(group)?,
                None => self.property(value)?,
            };
            results.push(result != negated);
        }
        let all = group["type"] == json!("AND");
        Some(if all { results.iter().all(|result| *result) } else { results.iter().any(|result| *result) })
    }

    fn own_property(&self, property: &Value) -> bool {
        let given = self.person.get(property["key"].as_str().unwrap());
        let expected = &property["value"];
        let equal = |given: &Value| match expected {
            Value::Array(values) => values.iter().any(|value| lower(value) == lower(given)),
            value => lower(value) == lower(given),
        };
        match property["operator"].as_str().unwrap_or("exact") {
            "exact" => given.is_some_and(equal),
            "is_not" => !given.is_some_and(equal),
            "is_set" => given.is_some(),
            "icontains" => given.is_some_and(|given| lower(given).contains(&lower(expected))),
            "gt" => {
                let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.parse().ok());
                given.and_then(number).zip(number(expected)).is_some_and(|(given, expected)| given > expected)
            }
            other => panic!("not generated: {other}"),
        }
    }
}

const KEYS: [&str; 3] = ["plan", "age", "email"];

fn given() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!("pro"),
        json!("Free"),
        json!(30),
        json!("31"),
        json!("a@x.io"),
        json!(null),
    ])
}

fn own_property() -> impl Strategy<Value = Value> {
    let filters = prop::sample::select(vec![
        ("exact", json!("pro")),
        ("exact", json!(["PRO", 30, "a@x.io"])),
        ("is_not", json!("free")),
        ("is_set", json!("is_set")),
        ("icontains", json!("@X.")),
        ("gt", json!("30")),
    ]);
    (prop::sample::select(&KEYS[..]), filters).prop_map(
        |(key, (operator, value))| json!({"key": key, "type": "person", "operator": operator, "value": value}),
    )
}

fn in_cohort() -> impl Strategy<Value = Value> {
    (1..5_i64, any::<bool>()).prop_map(|(id, inside)| {
        json!({"key": "id", "type": "cohort", "value": id, "operator": if inside { "in" } else { "not_in" }})
    })
}

fn of_flag() -> impl Strategy<Value = Value> {
    let value = prop::sample::select(vec![json!(true), json!(false), json!("a")]);
    (1..6_i64, value).prop_map(|(id, value)| {
        json!({"key": id.to_string(), "type": "flag", "operator": "flag_evaluates_to", "value": value})
    })
}

fn flag() -> impl Strategy<Value = Value> {
    let lone_cohort = in_cohort().prop_map(|property| vec![property]);
    let properties = prop_oneof![
        2 => prop::collection::vec(own_property(), 0..3),
        1 => prop::collection::vec(prop_oneof![own_property(), in_cohort(), of_flag()], 0..3),
        2 => lone_cohort,
    ];
    let rollout = prop::sample::select(vec![json!(null), json!(100), json!(60), json!(33.3)]);
    let condition =
        (properties, rollout, prop::option::weighted(0.1, Just("b"))).prop_map(|(properties, rollout, variant)| {
            json!({"properties": properties, "rollout_percentage": rollout, "variant": variant})
        });
    let variants = json!({"variants": [
        {"key": "a", "rollout_percentage": 70}, {"key": "b", "rollout_percentage": 20.5},
    ]});
    (prop::collection::vec(condition, 0..3), any::<bool>(), 0..9_u8).prop_map(
        move |(groups, variant, off)| {
            let multivariate = if variant { variants.clone() } else { Value::Null };
            json!({"active": off > 0, "filters": {"groups": groups, "multivariate": multivariate}})
        },
    )
}

fn criteria() -> impl Strategy<Value = Value> {
    let leaf =
        (prop_oneof![4 => own_property(), 1 => in_cohort()], 0..5_u8).prop_map(|(mut leaf, negated)| {
            if negated == 0 && leaf["type"] == json!("person") {
                leaf["negation"] = json!(true);
            }
            leaf
        });
    leaf.prop_recursive(3, 8, 3, |inner| {
        (prop::collection::vec(inner, 1..3), any::<bool>())
            .prop_map(|(values, any)| json!({"type": if any { "OR" } else { "AND" }, "values": values}))
    })
    .prop_map(|criteria| match criteria.get("values") {
        Some(_) => criteria,
        None => json!({"type": "OR", "values": [criteria]}),
    })
}

/// Flags with the ids 1 to 4 (5 does not exist), cohorts 1 to 3 (4 is a list), a person.
fn project() -> impl Strategy<Value = (Vec<Value>, Vec<Value>, Map<String, Value>)> {
    let person = prop::collection::vec((prop::sample::select(&KEYS[..]), given()), 0..4)
        .prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
    (prop::collection::vec(flag(), 4), prop::collection::vec(criteria(), 3), person)
}

#[test]
fn a_client_evaluates_the_document_as_the_service_does() {
    let now: DateTime<Utc> = "2026-01-05T10:00:00Z".parse().unwrap();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut decided, mut undecided, mut expanded) = (0, 0, 0);
    for round in 0..800 {
        let (flags, criteria, person) = project().new_tree(&mut runner).unwrap().current();
        let flags: Vec<Flag> = (1..)
            .zip(flags)
            .map(|(id, mut flag)| {
                for (key, value) in
                    [("id", json!(id)), ("key", json!(format!("flag-{id}"))), ("version", json!(1))]
                {
                    flag[key] = value;
                }
                flag["created_at"] = json!("2025-01-01T00:00:00Z");
                flag["updated_at"] = json!("2025-01-01T00:00:00Z");
                serde_json::from_value(flag).unwrap()
            })
            .collect();
        let listed = FlagCohort::read(&json!({"id": 4, "is_static": true})).unwrap();
        let cohorts: BTreeMap<i64, FlagCohort> = (1..)
            .zip(criteria)
            .map(|(id, criteria)| {
                FlagCohort::read(&json!({"id": id, "filters": {"properties": criteria}})).unwrap()
            })
            .chain([listed])
            .map(|cohort| (cohort.id, cohort))
            .collect();
        let distinct_id = format!("person-{round}");
        let nowhere = BTreeSet::new();
        let subject = Subject::person(&distinct_id, &person, &nowhere, now);
        let evaluator = Evaluator::new(&flags, cohorts.values().cloned(), chrono_tz::Tz::UTC);
        let evaluations = evaluator.evaluate_all(&subject);
        for form in [CohortForm::Sent, CohortForm::Flattened] {
            let text = FlagDefinitions::new(1, &flags).document(&cohorts, &[], form, 1 << 20).unwrap();
            let document: Value = serde_json::from_str(&text).unwrap();
            let client = Client { document: &document, person: &person, distinct_id: &distinct_id };
            for flag in &flags {
                let evaluation = &evaluations[&flag.id];
                let Some(value) = client.value(&flag.key) else {
                    undecided += 1;
                    continue;
                };
                // A client may find a match before it comes to a dependency that cannot be resolved.
                if evaluation.reason == EvaluationReason::MissingDependency {
                    continue;
                }
                assert_eq!(value, evaluation.value.to_json(), "{} of {text} for {person:?}", flag.key);
                decided += 1;
                let was = flag.filters["groups"].to_string().contains("\"cohort\"");
                let is = client.flag(&flag.key).unwrap()["filters"].to_string().contains("\"cohort\"");
                expanded += usize::from(form == CohortForm::Flattened && was && !is);
            }
        }
    }
    // All are frequent, so that the comparison is meaningful.
    assert!(
        decided > 3_000 && undecided > 400 && expanded > 80,
        "{decided} decided, {undecided} undecided, {expanded} expanded"
    );
}
