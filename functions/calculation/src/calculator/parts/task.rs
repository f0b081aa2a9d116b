//! What a part is given and what it returns, as compressed bytes.
//!
//! Must stay true: a task and its outcome are understood only by processes that were built from the same sources ([`SOURCES`]):
//! equal types do not mean that a number in them means the same.

use std::io::Read;

use chrono::{DateTime, Utc};
use pennon_analytics::kinds::DataPoint;
use pennon_analytics::part_format;
use pennon_analytics::{Action, Cohort, Definitions, ParsedQuery, PartitionResult, Query, StoredJoinData};
use pennon_core::error::ApiError;
use pennon_core::model::Project;
use pennon_eventstore::{EventStoreError, MovedRows, PartScan};
use pennon_filters::{CalcError, ErrorKind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::planned_query::PlannedQuery;
use crate::calculator::first_actors::FirstActors;
use crate::source::QuerySource;

/// A number that differs for other sources of this crate and of those that it uses.
const SOURCES: u64 = match u64::from_str_radix(env!("PENNON_SOURCES"), 16) {
    Ok(number) => number,
    Err(_) => panic!("build.rs sets PENNON_SOURCES to a hexadecimal number"),
};
/// Compression of tasks and outcomes: columns of numbers get about a third of their bytes, at some 300 MB/s.
const LEVEL: i32 = 1;
/// Most bytes that a task or an outcome may decompress to.
const DECOMPRESSED_BYTES_MAX: u64 = 256 << 20;

/// A part of a query.
#[derive(Debug, Serialize, Deserialize)]
pub struct PartTask {
    /// The query and everything else that all of its parts share.
    pub query_text: QueryText,
    /// What it reads.
    pub scan: PartScan,
    /// What it returns.
    pub work: PartWork,
    /// The project and the lease of the query; the part stops when the lease has ended or is no longer renewed.
    pub lease: (u64, Uuid),
    /// Milliseconds until the query's deadline.
    pub millis: u64,
}

/// What a part does. The joined data is that of its persons.
#[derive(Debug, Serialize, Deserialize)]
pub enum PartWork {
    /// Returns the rows that are stored under its persons, but belong to persons of other parts.
    FindMovedRows,
    /// Calculates the result of its persons.
    Calculate(StoredJoinData),
    /// Lists the first actors behind a number.
    ListActors {
        /// The joined data.
        joined: StoredJoinData,
        /// The number.
        point: DataPoint,
        /// How many are returned; `None` for all.
        kept: Option<u64>,
    },
}

/// A query with its project, definitions and instant, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryText(String);

/// The outcome of a part.
#[derive(Debug, Serialize, Deserialize)]
pub enum PartOutcome {
    /// The rows of persons of other parts.
    Moved(MovedRows, PartStats),
    /// The result of its persons.
    Partial(Box<PartitionResult>, PartStats),
    /// The actors of a number.
    Actors(FirstActors, PartStats),
    /// There is none.
    Failed(PartFailure),
}

/// Why bytes are no task or outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They are of a process that was built from other sources.
    #[error("the process at the other end was built from other sources")]
    OtherSources,
    /// They are incomplete or were changed.
    #[error("the bytes are damaged: {0}")]
    Damaged(String),
}

/// What a part has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartStats {
    /// Events in its partitions.
    pub rows: u64,
    /// Bytes of column data read from the object store.
    pub bytes_read: u64,
    /// Requests to the object store.
    pub gets: u64,
    /// Time that its threads calculated, in microseconds; without the scan.
    pub busy_micros: u64,
}

/// Why a part has no result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartFailure {
    /// Its events do not fit into the memory of an invocation, or its task or result not into a message: smaller parts may fit.
    /// The text is for the log.
    TooLarge(String),
    /// The query is invalid: code, text and field of the response.
    Invalid(String, String, Option<String>),
    /// An object is missing or damaged: the query can begin again with the segments of now.
    Unreadable(String),
    /// Another attempt may succeed; the text is for the log.
    Transient(String),
    /// The task cannot be understood: its sender was built from other sources.
    OtherRelease,
}

impl QueryText {
    /// The text of a query. `None` if it is not known how it was sent, or parsing that does not give the same query.
    pub(super) fn new(query: &PlannedQuery<'_>) -> Option<QueryText> {
        let PlannedQuery { project, source, now, earliest, .. } = *query;
        let source = source?;
        if parse(source)? != *query.query {
            tracing::warn!(project = project.id, "a query is not what was sent, so it is not split");
            return None;
        }
        let definitions = &query.used.definitions;
        let actions = definitions.actions.iter().map(|(id, action)| json!([id, action.name, action.steps]));
        let cohorts = definitions
            .cohorts
            .iter()
            .map(|(id, cohort)| json!([id, cohort.name, cohort.is_static, cohort.filters, cohort.groups]));
        let text = json!({
            "project": project,
            "query": source,
            "actions": actions.collect::<Vec<_>>(),
            "cohorts": cohorts.collect::<Vec<_>>(),
            "now": now,
            "earliest": earliest,
        });
        Some(QueryText(text.to_string()))
    }

    /// The query.
    pub fn parse(&self) -> Option<QueryInputs> {
        let stored: StoredQuery = serde_json::from_str(&self.0).ok()?;
        let query = parse(&stored.query)?;
        let actions = stored.actions.into_iter().map(|(id, name, steps)| (id, Action { name, steps }));
        let cohorts = stored
            .cohorts
            .into_iter()
            .map(|(id, name, is_static, filters, groups)| (id, Cohort { name, is_static, filters, groups }));
        let definitions = Definitions { actions: actions.collect(), cohorts: cohorts.collect() };
        Some(QueryInputs {
            project: stored.project,
            query,
            definitions,
            now: stored.now,
            earliest: stored.earliest,
        })
    }
}

fn parse(source: &QuerySource) -> Option<Query> {
    match source.parse() {
        Ok(ParsedQuery::Query(query)) => Some(query),
        _ => None,
    }
}

/// The form of [`QueryText`].
#[derive(Deserialize)]
struct StoredQuery {
    project: Project,
    query: QuerySource,
    actions: Vec<(u64, String, Vec<Value>)>,
    cohorts: Vec<(u64, String, bool, Value, Value)>,
    now: DateTime<Utc>,
    earliest: Option<i64>,
}

/// A query with everything that its plan depends on.
#[derive(Debug)]
pub struct QueryInputs {
    /// The project.
    pub project: Project,
    /// The query.
    pub query: Query,
    /// What it references.
    pub definitions: Definitions,
    /// Its instant.
    pub now: DateTime<Utc>,
    /// The time of the earliest event, if the query needs it.
    pub earliest: Option<i64>,
}

impl PartTask {
    /// The bytes of the task.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        encode(self)
    }

    /// Decodes a task.
    pub fn decode(bytes: &[u8]) -> Result<PartTask, DecodeError> {
        decode(bytes)
    }
}

impl PartOutcome {
    /// The bytes of the outcome.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        encode(self)
    }

    /// Decodes an outcome.
    pub fn decode(bytes: &[u8]) -> Result<PartOutcome, DecodeError> {
        decode(bytes)
    }

    /// What the part has read.
    pub(super) fn stats(&self) -> Option<PartStats> {
        match self {
            PartOutcome::Moved(_, stats) | PartOutcome::Partial(_, stats) | PartOutcome::Actors(_, stats) => {
                Some(*stats)
            }
            PartOutcome::Failed(_) => None,
        }
    }

    /// The same outcome with the number of requests to the object store.
    pub(super) fn with_gets(mut self, gets: u64) -> PartOutcome {
        match &mut self {
            PartOutcome::Moved(_, stats) | PartOutcome::Partial(_, stats) | PartOutcome::Actors(_, stats) => {
                stats.gets = gets;
            }
            PartOutcome::Failed(_) => {}
        }
        self
    }
}

/// The compressed bytes of a value, after the number of the sources.
fn encode(value: &impl Serialize) -> Result<Vec<u8>, String> {
    let bytes = part_format::encode(value).map_err(|error| error.to_string())?;
    let compressed = zstd::bulk::compress(&bytes, LEVEL).map_err(|error| error.to_string())?;
    Ok([&SOURCES.to_le_bytes(), compressed.as_slice()].concat())
}

/// The message of this process with any content, so that a fuzzer gets past the number of the sources and the checksum.
#[cfg(feature = "fuzzing")]
pub(crate) fn part_message(content: &[u8]) -> Vec<u8> {
    let compressed = zstd::bulk::compress(&part_format::with_header(content), LEVEL).unwrap_or_default();
    [&SOURCES.to_le_bytes(), compressed.as_slice()].concat()
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let (sources, compressed) =
        bytes.split_first_chunk().ok_or_else(|| DecodeError::Damaged("no bytes".to_owned()))?;
    if u64::from_le_bytes(*sources) != SOURCES {
        return Err(DecodeError::OtherSources);
    }
    let bytes = decompress(compressed).map_err(|error| DecodeError::Damaged(error.to_string()))?;
    if bytes.len() as u64 > DECOMPRESSED_BYTES_MAX {
        return Err(DecodeError::Damaged(format!("it has more than {DECOMPRESSED_BYTES_MAX} bytes")));
    }
    part_format::decode(&bytes).map_err(|error| DecodeError::Damaged(error.to_string()))
}

/// The decompressed bytes, or the first of them if there are more than [`DECOMPRESSED_BYTES_MAX`].
fn decompress(compressed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    zstd::Decoder::new(compressed)?.take(DECOMPRESSED_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl From<EventStoreError> for PartFailure {
    fn from(error: EventStoreError) -> PartFailure {
        match error {
            EventStoreError::TooLarge(text) => PartFailure::TooLarge(text),
            EventStoreError::Damaged { .. } | EventStoreError::Corrupt(_) => {
                PartFailure::Unreadable(error.to_string())
            }
            other => PartFailure::Transient(other.to_string()),
        }
    }
}

impl From<CalcError> for PartFailure {
    fn from(error: CalcError) -> PartFailure {
        match error.kind {
            ErrorKind::Validation | ErrorKind::Parse => {
                PartFailure::Invalid(error.code.to_owned(), error.detail, error.attr)
            }
            ErrorKind::Timeout => PartFailure::Transient("the part was cancelled or timed out".to_owned()),
        }
    }
}

impl PartFailure {
    /// The failure as an error response, if another attempt cannot help.
    pub fn final_error(&self) -> Option<ApiError> {
        match self {
            PartFailure::Invalid(code, text, attr) => {
                Some(ApiError::invalid(code, text.clone(), attr.as_deref()))
            }
            PartFailure::TooLarge(_)
            | PartFailure::Unreadable(_)
            | PartFailure::Transient(_)
            | PartFailure::OtherRelease => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_bytes_of_the_same_sources_are_decoded() {
        let failure = PartOutcome::Failed(PartFailure::Transient("busy".repeat(1_000)));
        let bytes = failure.encode().unwrap();
        assert!(bytes.len() < 200, "compressed: {}", bytes.len());
        let PartOutcome::Failed(decoded) = PartOutcome::decode(&bytes).unwrap() else {
            unreachable!("a failure")
        };
        assert_eq!(decoded, PartFailure::Transient("busy".repeat(1_000)));
        for changed in 0..bytes.len() {
            let mut other = bytes.clone();
            other[changed] ^= 1;
            // A few bytes of a compressed frame say nothing about the content, which the checksum of the format covers.
            if let Ok(PartOutcome::Failed(read)) = PartOutcome::decode(&other) {
                assert!(changed >= 8 && read == decoded, "byte {changed}");
            }
        }
        assert!(PartOutcome::decode(&[]).is_err());
        let mut other = bytes;
        other[7] ^= 1;
        assert_eq!(PartOutcome::decode(&other).err(), Some(DecodeError::OtherSources));
    }
}
