//! What a part is given and what it returns, as bytes.

use chrono::{DateTime, Utc};
use pennon_analytics::part_format::{self, PartFormatError};
use pennon_analytics::{Action, Cohort, Definitions, ParsedQuery, PartitionResult, Query, StoredJoinData};
use pennon_core::error::ApiError;
use pennon_core::model::Project;
use pennon_eventstore::{EventStoreError, MovedRows, PartScan};
use pennon_filters::{CalcError, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::planned_query::PlannedQuery;
use crate::source::QuerySource;

/// A part of a query.
#[derive(Debug, Serialize, Deserialize)]
pub struct PartTask {
    /// The query and everything else that all of its parts share.
    pub query_text: QueryText,
    /// What it reads.
    pub scan: PartScan,
    /// The joined data of its persons. `None`: the part only returns the rows of persons of other parts.
    pub joined: Option<StoredJoinData>,
    /// The project and the lease of the query; the part stops when the lease is no longer renewed.
    pub lease: (u64, Uuid),
    /// Milliseconds until the query's deadline.
    pub millis: u64,
}

/// A query with its project, definitions and instant, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryText(String);

/// The outcome of a part.
#[derive(Debug, Serialize, Deserialize)]
pub enum PartOutcome {
    /// The rows of persons of other parts.
    Moved(MovedRows),
    /// The result of its persons.
    Partial(Box<PartitionResult>, PartStats),
    /// There is none.
    Failed(PartFailure),
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
    /// The task cannot be understood: its sender is of another release.
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
    pub fn encode(&self) -> Result<Vec<u8>, PartFormatError> {
        part_format::encode(self)
    }

    /// Decodes a task.
    pub fn decode(bytes: &[u8]) -> Result<PartTask, PartFormatError> {
        part_format::decode(bytes)
    }
}

impl PartOutcome {
    /// The bytes of the outcome.
    pub fn encode(&self) -> Result<Vec<u8>, PartFormatError> {
        part_format::encode(self)
    }

    /// Decodes an outcome.
    pub fn decode(bytes: &[u8]) -> Result<PartOutcome, PartFormatError> {
        part_format::decode(bytes)
    }
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
