//! Events as captured and as stored.

use pennon_analytics::scan::{Micros, Seq};
use serde_json::{Map, Value};
use uuid::Uuid;

/// An event as captured, unchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its key inside the project: events with the same uuid count once.
    pub uuid: Uuid,
    /// Its name.
    pub event: String,
    /// The distinct id, as sent.
    pub distinct_id: String,
    /// When it happened.
    pub timestamp: Micros,
    /// Its properties; 50 and 50.0 stay different, null and absent too.
    pub properties: Map<String, Value>,
}

/// A stored event with its arrival order and its person.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PersonEvent {
    pub seq: Seq,
    /// The person as known when the row was created; readers apply later merges.
    pub person: Uuid,
    pub event: Event,
}

/// Arrival order of event `index` of a batch that arrived at `now`. `tie` orders batches of the same
/// microsecond.
pub(crate) fn seq(now: Micros, tie: u32, index: u32) -> Seq {
    (u128::from(micros_u64(now)) << 64) | (u128::from(tie) << 32) | u128::from(index)
}

/// Arrival order of line `line` of an import that began at `now`.
pub(crate) fn seq_of_line(now: Micros, line: u64) -> Seq {
    (u128::from(micros_u64(now)) << 64) | u128::from(line)
}

/// Whether an event with this arrival order was captured: lines of an import are numbered from one, captured batches
/// have a larger number.
pub(crate) fn is_captured(seq: Seq) -> bool {
    (seq as u64) >> 32 != 0
}

/// Arrival time of an event with this arrival order.
pub(crate) fn arrival(seq: Seq) -> Micros {
    i64::try_from(seq >> 64).unwrap_or(Micros::MAX)
}

/// Clamps instants before 1970 to 0.
pub(crate) fn micros_u64(at: Micros) -> u64 {
    u64::try_from(at).unwrap_or(0)
}
