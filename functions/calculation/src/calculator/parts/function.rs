//! Parts as invocations of a Lambda function, or of processes that respond as one: the JSON around tasks and outcomes.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pennon_core::config::{function_memory, rows_per_part};
use pennon_core::invocation::{InvocationError, LambdaFunction, PAYLOAD_BYTES_MAX};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::invoker::{InvocationFuture, PartError, PartInvoker};
use super::runner::PartLimits;
use super::{PartSettings, Parts};
use crate::calculator::Calculator;

/// Compression of tasks and outcomes: columns of numbers get about a third of their bytes, at some 300 MB/s.
const LEVEL: i32 = 1;
/// Most bytes that a payload may decompress to.
const DECOMPRESSED_BYTES_MAX: u64 = 256 << 20;
/// Most bytes of a task or outcome before compression: with base64 it fits into a payload if nothing can be compressed.
pub const TASK_BYTES_MAX: usize = PAYLOAD_BYTES_MAX / 4 * 3 - 1024;

/// Memory of a function that does not say how much it has.
const MEMORY_GB: f64 = 1769.0 / 1024.0;

/// An event of the function that runs parts, and its response.
#[derive(Debug, Serialize, Deserialize)]
struct PartEvent {
    /// The compressed bytes in base64.
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
            let payload = pack(task).map_err(PartError::Failed)?;
            let response = function.invoke(payload, time).await.map_err(|error| match error {
                InvocationError::Throttled => PartError::Throttled,
                InvocationError::Failed(cause) => PartError::Failed(cause),
            })?;
            let response =
                serde_json::from_slice(&response).map_err(|error| PartError::Failed(error.to_string()))?;
            unpack(response).map_err(PartError::Failed)
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
        let rows_per_part = rows_per_part().unwrap_or(default.rows_per_part);
        Ok(self.in_parts(Parts { invoker, settings: PartSettings { rows_per_part, ..default } }))
    }

    /// Responds to an event of the function that runs parts.
    pub async fn respond_to_part(&self, event: Value, time: Duration) -> Result<Value, String> {
        let task = unpack(event)?;
        let outcome = self.run_part(&task, PartLimits { time, outcome_bytes_max: TASK_BYTES_MAX }).await;
        serde_json::from_slice(&pack(&outcome)?).map_err(|error| error.to_string())
    }
}

/// The event with these bytes, as JSON.
fn pack(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let compressed = zstd::bulk::compress(bytes, LEVEL).map_err(|error| error.to_string())?;
    let event = PartEvent { part: STANDARD.encode(compressed) };
    serde_json::to_vec(&event).map_err(|error| error.to_string())
}

/// The bytes of an event.
fn unpack(event: Value) -> Result<Vec<u8>, String> {
    let event: PartEvent =
        serde_json::from_value(event).map_err(|error| format!("the event is not that of a part: {error}"))?;
    let compressed = STANDARD.decode(event.part).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let decoder = zstd::Decoder::new(compressed.as_slice()).map_err(|error| error.to_string())?;
    decoder.take(DECOMPRESSED_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    match bytes.len() as u64 {
        ..=DECOMPRESSED_BYTES_MAX => Ok(bytes),
        _ => Err(format!("a part has more than {DECOMPRESSED_BYTES_MAX} bytes")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_survive_an_event_and_others_are_refused() {
        for bytes in [Vec::new(), vec![7; 100_000], (0..=255).collect::<Vec<u8>>()] {
            let event = serde_json::from_slice(&pack(&bytes).unwrap()).unwrap();
            assert_eq!(unpack(event), Ok(bytes));
        }
        for other in [json!({}), json!({"part": "?"}), json!({"part": "AAAA"}), json!([1])] {
            assert!(unpack(other).is_err());
        }
    }

    #[test]
    fn a_task_of_random_bytes_of_the_largest_size_fits_into_a_payload() {
        let mut state = 1_u64;
        let bytes = (0..TASK_BYTES_MAX).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        });
        assert!(pack(&bytes.collect::<Vec<u8>>()).unwrap().len() <= PAYLOAD_BYTES_MAX);
    }
}
