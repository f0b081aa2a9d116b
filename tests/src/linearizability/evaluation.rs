//! What clients of SDKs see of a flag: its evaluation, and the definitions that they evaluate themselves.

use std::time::Duration;

use serde_json::{Value, json};
use stateright::semantics::SequentialSpec;

use super::{Client, ObjectKind, documented};
use crate::Random;

/// A change of a flag is visible to evaluations within this time (docs/evaluation.md).
const VISIBLE_AFTER: Duration = Duration::from_secs(5);

/// A flag that is switched on and off while it is evaluated.
#[derive(Debug)]
pub struct EvaluatedFlag {
    id: u64,
    key: String,
}

/// A call about the flag.
#[derive(Debug, Clone, PartialEq)]
pub enum FlagStateOp {
    /// Switch it.
    SetActive(bool),
    /// Evaluate it.
    Evaluate,
    /// Read its definition.
    Define,
}

/// Whether a flag is on.
#[derive(Debug, Clone)]
pub struct FlagState(pub bool);

impl SequentialSpec for FlagState {
    type Op = FlagStateOp;
    type Ret = bool;

    fn invoke(&mut self, op: &FlagStateOp) -> bool {
        if let FlagStateOp::SetActive(active) = op {
            self.0 = *active;
        }
        self.0
    }
}

impl ObjectKind for EvaluatedFlag {
    const NAME: &'static str = "evaluated flag";
    type Op = FlagStateOp;
    type Ret = bool;
    type Spec = FlagState;

    async fn create(client: &Client, number: u64) -> EvaluatedFlag {
        let id = client.make_flag(&format!("evaluated-{number}"), "").await;
        let path = format!("feature_flags/{id}/");
        let on = json!({"filters": {"groups": [{"rollout_percentage": 100}]}});
        loop {
            let changed = documented(client.owner("PATCH", &path, on.clone()).await, &[200]);
            if let Some(changed) = changed {
                let key = changed.json()["key"].as_str().expect("a key").to_owned();
                return EvaluatedFlag { id, key };
            }
        }
    }

    fn spec(&self) -> FlagState {
        FlagState(false)
    }

    fn creation() -> Option<(FlagStateOp, bool)> {
        Some((FlagStateOp::SetActive(true), true))
    }

    fn next(&self, _: &[bool], _: u64, random: &mut Random) -> FlagStateOp {
        match random.below(10) {
            0..3 => FlagStateOp::SetActive(random.below(2) == 0),
            3..7 => FlagStateOp::Evaluate,
            _ => FlagStateOp::Define,
        }
    }

    async fn call(&self, client: &Client, op: &FlagStateOp) -> Option<bool> {
        let response = match op {
            FlagStateOp::SetActive(active) => {
                client.owner("PATCH", &format!("feature_flags/{}/", self.id), json!({"active": active})).await
            }
            FlagStateOp::Evaluate => {
                let body = json!({"token": "phc_project_1", "distinct_id": "ann", "flag_keys_to_evaluate": [self.key]});
                client.send("", "POST", "/flags/?v=2", body).await
            }
            FlagStateOp::Define => client.owner("GET", "feature_flags/local_evaluation/", Value::Null).await,
        };
        let body = documented(response, &[200])?.json();
        Some(match op {
            FlagStateOp::SetActive(active) => *active,
            // A flag that is off is not in the response.
            FlagStateOp::Evaluate => body["flags"][&self.key]["enabled"] == true,
            FlagStateOp::Define => {
                let mut flags = body["flags"].as_array().into_iter().flatten();
                flags.any(|flag| flag["key"] == self.key.as_str() && flag["active"] == true)
            }
        })
    }

    fn is_read(op: &FlagStateOp) -> bool {
        !matches!(op, FlagStateOp::SetActive(_))
    }

    fn staleness(op: &FlagStateOp) -> Duration {
        if *op == FlagStateOp::Evaluate { VISIBLE_AFTER } else { Duration::ZERO }
    }
}
