//! An event as it goes in, and as it lies in the store.

use pennon_engine::scan::{Micros, Seq};
use serde_json::{Map, Value};
use uuid::Uuid;

/// An event as it goes in. Nothing is added to it and nothing taken away.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its identity inside the project: copies of one uuid count once.
    pub uuid: Uuid,
    /// Its name.
    pub event: String,
    /// Who did it, as the sender calls them.
    pub distinct_id: String,
    /// When it happened.
    pub timestamp: Micros,
    /// Its properties; 50 and 50.0 stay different, null and absent too.
    pub properties: Map<String, Value>,
}

/// A stored event: its arrival order and its person are known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub seq: Seq,
    /// The person as far as known when the row was made; a reader applies later merges.
    pub person: Uuid,
    pub event: Event,
}

/// Arrival order of event `index` of a batch that arrived at `now`. `tie` tells batches of one microsecond apart.
pub(crate) fn seq(now: Micros, tie: u32, index: u32) -> Seq {
    (u128::from(micros_u64(now)) << 64) | (u128::from(tie) << 32) | u128::from(index)
}

/// Arrival order of line `line` of an import that began at `now`.
pub(crate) fn seq_of_line(now: Micros, line: u64) -> Seq {
    (u128::from(micros_u64(now)) << 64) | u128::from(line)
}

/// When an event with this arrival order arrived.
pub(crate) fn arrival(seq: Seq) -> Micros {
    i64::try_from(seq >> 64).unwrap_or(Micros::MAX)
}

/// Instants before 1970 are no arrival times; they count as its first.
pub(crate) fn micros_u64(at: Micros) -> u64 {
    u64::try_from(at).unwrap_or(0)
}
