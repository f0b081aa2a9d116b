#![allow(clippy::unwrap_used)]
use std::collections::BTreeSet;

use chrono::DateTime;
use chrono_tz::Tz;
use pennon_flag_rules::Flag;
use pennon_flag_rules::evaluate::{Evaluator, FlagValue, Subject};
use serde_json::{Map, json};

use super::*;

/// Keys and payloads that have to be escaped, or are longer than the rest.
const TEXTS: [&str; 7] =
    ["plain", "with \"quotes\" and \\", "line\nfeed\u{1}", "ä€😀", "", "{\"a\": [1]}", "</script>\u{2028}"];

fn evaluator() -> Evaluator {
    let flags: Vec<Flag> = (0..60)
        .map(|number| {
            let text = TEXTS[number % TEXTS.len()];
            let mut filters = json!({
                "groups": [{"rollout_percentage": 50}],
                "payloads": {"true": text, "b": {"of": text}},
            });
            if number % 3 == 0 {
                filters["multivariate"] = json!({"variants": [{"key": "b", "rollout_percentage": 50},
                    {"key": text, "rollout_percentage": 50}]});
            }
            flag(number + 1, &format!("{number}-{text}"), &filters)
        })
        .collect();
    Evaluator::new(&flags, [], Tz::UTC)
}

fn flag(id: usize, key: &str, filters: &Value) -> Flag {
    serde_json::from_value(json!({
        "id": id, "key": key, "filters": filters, "active": true, "version": 7,
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "last_called_at": null,
    }))
    .unwrap()
}

/// The record of the contract, built without templates.
fn expected(flag: &CompiledFlag, evaluation: &Evaluation) -> Value {
    let mut record = json!({"key": &*flag.key, "enabled": evaluation.value.is_on()});
    record["variant"] = match &evaluation.value {
        FlagValue::Variant(key) => key.to_string().into(),
        FlagValue::Off | FlagValue::On => Value::Null,
    };
    if evaluation.is_failure() {
        record["failed"] = true.into();
    }
    record["reason"] = json!({
        "code": evaluation.reason.as_str(),
        "condition_index": evaluation.condition_index,
        "description": evaluation.description(),
    });
    record["metadata"] = json!({
        "id": flag.id,
        "version": flag.version,
        "description": null,
        "payload": flag.payload(&evaluation.value),
        "has_experiment": false,
    });
    record
}

fn written(evaluator: &Evaluator, evaluations: &[(&CompiledFlag, Evaluation)]) -> String {
    let mut text = b"{".to_vec();
    RecordTemplates::new(evaluator.flags()).write(evaluations, &mut text).unwrap();
    text.push(b'}');
    String::from_utf8(text).unwrap()
}

fn object_of(evaluations: &[(&CompiledFlag, Evaluation)]) -> String {
    let record =
        |(flag, evaluation): &(&CompiledFlag, Evaluation)| (flag.key.to_string(), expected(flag, evaluation));
    Value::Object(evaluations.iter().map(record).collect::<Map<_, _>>()).to_string()
}

#[test]
fn records_of_evaluations_are_those_of_the_contract() {
    let evaluator = evaluator();
    let (properties, cohorts) = (Map::new(), BTreeSet::new());
    for user in 0..20 {
        let id = format!("user-{user}");
        let subject = Subject::person(&id, &properties, &cohorts, DateTime::UNIX_EPOCH);
        let evaluations = evaluator.all().evaluate_all(&subject);
        assert!(evaluations.is_sorted_by_key(|(flag, _)| flag.key.to_string()));
        assert_eq!(written(&evaluator, &evaluations), object_of(&evaluations));
    }
}

#[test]
fn every_reason_value_and_condition_is_written() {
    let evaluator = evaluator();
    let reasons = [
        EvaluationReason::ConditionMatch,
        EvaluationReason::NoConditionMatch,
        EvaluationReason::OutOfRolloutBound,
        EvaluationReason::NoGroupType,
        EvaluationReason::SuperConditionValue,
        EvaluationReason::HoldoutConditionValue,
        EvaluationReason::Disabled,
        EvaluationReason::MissingDependency,
        EvaluationReason::StoreUnavailable,
        EvaluationReason::OverrideUnavailable,
    ];
    let values =
        [FlagValue::Off, FlagValue::On, FlagValue::Variant("b".into()), FlagValue::Variant("\"".into())];
    // More conditions than reasons are kept, and each twice: written, and copied.
    let conditions = [None, Some(0), Some(9), Some(10), Some(usize::MAX)];
    let mut outcomes = Vec::new();
    for reason in reasons {
        for value in &values {
            for condition_index in conditions {
                // Only the text of a match has the number of the condition, counted from 1.
                let last = condition_index == Some(usize::MAX) && reason == EvaluationReason::ConditionMatch;
                let condition_index = if last { Some(usize::MAX - 1) } else { condition_index };
                outcomes.push(Evaluation { value: value.clone(), reason, condition_index });
            }
        }
    }
    for chunk in outcomes.chunks(evaluator.flags().len()) {
        let evaluations: Vec<_> = evaluator.flags().iter().zip(chunk.iter().cloned()).collect();
        assert_eq!(written(&evaluator, &evaluations), object_of(&evaluations));
    }
}

#[test]
fn a_response_fits_into_the_estimated_bytes() {
    let flags: Vec<Flag> = (0..300)
        .map(|id| flag(id, &format!("flag-{id}"), &json!({"groups": [{"rollout_percentage": 50}]})))
        .collect();
    let evaluator = Evaluator::new(&flags, [], Tz::UTC);
    let (properties, cohorts) = (Map::new(), BTreeSet::new());
    let subject = Subject::person("u", &properties, &cohorts, DateTime::UNIX_EPOCH);
    let evaluations = evaluator.all().evaluate_all(&subject);
    let templates = RecordTemplates::new(evaluator.flags());
    let length = written(&evaluator, &evaluations).len();
    let estimate = templates.estimate_bytes(evaluations.len());
    assert!(length <= estimate && estimate < length * 3 / 2, "{length} {estimate}");
}
