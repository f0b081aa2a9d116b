//! Parts as invocations of a Lambda function, or of processes that respond as one: the JSON around tasks and outcomes.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pennon_core::config::{function_memory, part_gb_seconds_per_day, rows_per_part};
use pennon_core::invocation::{InvocationError, LambdaFunction, PAYLOAD_BYTES_MAX};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::invoker::{InvocationFuture, PartError, PartInvoker};
use super::runner::PartLimits;
use super::{PartSettings, Parts};
use crate::calculator::Calculator;

/// Most bytes of a task or outcome: with base64 it fits into a payload.
pub const TASK_BYTES_MAX: usize = PAYLOAD_BYTES_MAX / 4 * 3 - 1024;

/// Memory of a function that does not say how much it has.
const MEMORY_GB: f64 = 1769.0 / 1024.0;

/// An event of the function that runs parts, and its response.
#[derive(Debug, Serialize, Deserialize)]
struct PartEvent {
    /// The bytes in base64.
    part: String,
}

/// Functions that run parts.
#[derive(Debug)]
pub struct PartFunctions {
    /// At least one; a part of a later query goes to the same one, which may have its columns in memory.
    pub functions: Vec<LambdaFunction>,
    /// Memory of an invocation.
    pub memory_gb: f64,
}

impl PartInvoker for PartFunctions {
    fn invoke<'a>(&'a self, number: usize, task: &'a [u8], time: Duration) -> InvocationFuture<'a> {
        Box::pin(async move {
            let function = self.functions.get(number % self.functions.len().max(1));
            let function = function.ok_or_else(|| PartError::Failed("no function runs parts".to_owned()))?;
            let response =
                function.invoke(encode_payload(task), time).await.map_err(|error| match error {
                    InvocationError::Throttled => PartError::Throttled,
                    InvocationError::Failed(cause) => PartError::Failed(cause),
                })?;
            let response: PartEvent =
                serde_json::from_slice(&response).map_err(|error| PartError::Failed(error.to_string()))?;
            response.decode().map_err(PartError::Failed)
        })
    }

    fn task_bytes_max(&self) -> usize {
        TASK_BYTES_MAX
    }

    fn memory_gb(&self) -> f64 {
        self.memory_gb
    }
}

impl Calculator {
    /// The same calculator, which calculates large queries in parts if there is a function for them, with this name or ARN. The
    /// function has as much memory as this one.
    pub async fn in_parts_of(self, function: Option<&str>) -> Result<Calculator, String> {
        let Some(name) = function else { return Ok(self) };
        let functions = vec![LambdaFunction::connect(name).await.map_err(|error| error.to_string())?];
        let memory_gb = function_memory().map_or(MEMORY_GB, |bytes| bytes as f64 / (1_u64 << 30) as f64);
        let invoker = Arc::new(PartFunctions { functions, memory_gb });
        let default = PartSettings::default();
        let settings = PartSettings {
            rows_per_part: rows_per_part().unwrap_or(default.rows_per_part),
            gb_seconds_per_day: part_gb_seconds_per_day()?.unwrap_or(default.gb_seconds_per_day),
            ..default
        };
        Ok(self.in_parts(Parts { invoker, settings }))
    }

    /// Responds to an event of the function that runs parts.
    pub async fn respond_to_part(&self, event: Value, time: Duration) -> Result<Value, String> {
        let event: PartEvent = serde_json::from_value(event)
            .map_err(|error| format!("the event is not that of a part: {error}"))?;
        let task = event.decode()?;
        let outcome = self.run_part(&task, PartLimits { time, outcome_bytes_max: TASK_BYTES_MAX }).await;
        serde_json::to_value(PartEvent::of(&outcome)).map_err(|error| error.to_string())
    }
}

impl PartEvent {
    fn of(bytes: &[u8]) -> PartEvent {
        PartEvent { part: STANDARD.encode(bytes) }
    }

    fn decode(self) -> Result<Vec<u8>, String> {
        STANDARD.decode(self.part).map_err(|error| error.to_string())
    }
}

/// The event with these bytes, as JSON. Base64 has no character that JSON escapes, so many megabytes are not searched for them.
fn encode_payload(bytes: &[u8]) -> Vec<u8> {
    let PartEvent { part } = PartEvent::of(bytes);
    ["{\"part\":\"", &part, "\"}"].concat().into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_survive_an_event_and_others_are_refused() {
        for bytes in [Vec::new(), vec![7; 100_000], (0..=255).collect::<Vec<u8>>()] {
            let event: PartEvent = serde_json::from_slice(&encode_payload(&bytes)).unwrap();
            assert_eq!(encode_payload(&bytes), serde_json::to_vec(&event).unwrap());
            assert_eq!(event.decode(), Ok(bytes));
        }
        for other in [json!({}), json!({"part": "?"}), json!(["?"])] {
            let event = serde_json::from_value::<PartEvent>(other);
            assert!(event.map_or(true, |event| event.decode().is_err()));
        }
    }

    #[test]
    fn a_task_of_the_largest_size_fits_into_a_payload() {
        assert!(encode_payload(&vec![7; TASK_BYTES_MAX]).len() <= PAYLOAD_BYTES_MAX);
    }
}
