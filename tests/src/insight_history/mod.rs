//! Histories of concurrent calls about insights, and their checks.
//!
//! Every change also sends a unique description, and the log has each description
//! with the one before it: so the log is a chain, which is the one order of writes. [`check::check`] follows it, replays
//! each insight's life by rules of its own, and compares every response, every entry and every row with it.

pub mod check;
pub mod clients;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub use check::check;

/// The fields of a body.
pub type Fields = Map<String, Value>;

/// The request of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Other values for these fields; `description` is among them.
    Change(u64, Fields),
    /// One insight.
    Read(u64),
    /// All insights.
    List,
    /// A view of an insight, in microseconds after the start.
    View(u64, i64),
}

/// The response to the client.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// This is the insight, or these are.
    Insights(Vec<Value>),
    /// It was done.
    Done,
    /// There is no such insight.
    Missing,
    /// A 503: the outcome of a write is unknown.
    Busy,
    /// An unexpected response.
    Other(u16, String),
}

/// One call, and the ticks of one clock at which it began and ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The request.
    pub request: Request,
    /// What came back.
    pub outcome: Outcome,
    /// The call began at this tick.
    pub began: u64,
    /// The call ended at this tick.
    pub ended: u64,
}

/// An entry of the activity log.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Whose log.
    pub insight: u64,
    /// `created`, `updated`, `deleted` or `restored`.
    pub kind: String,
    /// Before and after of each field.
    pub changes: BTreeMap<String, (Value, Value)>,
}

/// The final stored state.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    /// The bodies of the records.
    pub records: BTreeMap<u64, Value>,
    /// Insights that have a summary row.
    pub rows: Vec<u64>,
    /// Whether the version row has the checksums of the rows.
    pub is_proven: bool,
    /// Pointers from dashboards: dashboard and insight.
    pub pointers: Vec<(u64, u64)>,
    /// The log.
    pub entries: Vec<Entry>,
    /// The number of entries of the log, and of each insight's own log.
    pub counted: i64,
    /// Entries of each insight's own log.
    pub own: BTreeMap<u64, usize>,
    /// The latest view of each insight by any user, in microseconds after the start.
    pub views: BTreeMap<u64, i64>,
}

/// What was noted.
#[derive(Debug, Clone)]
pub struct History {
    /// The first description of each insight.
    pub started: BTreeMap<u64, String>,
    /// All calls.
    pub calls: Vec<Call>,
    /// What was left.
    pub stored: Stored,
}
