//! Errors of the event store, as far as callers treat them differently.
//!
//! Must stay true: unreadable stored data is [`EventStoreError::Damaged`] or [`EventStoreError::DamagedBlock`]
//! when a checksum does not match, otherwise [`EventStoreError::Corrupt`]; never a panic, and never fewer
//! events.

use pennon_core::error::ApiError;
use pennon_core::store::StoreError;
use pennon_core::store::keys::ProjectId;

/// A failed call to the event store.
#[derive(Debug, thiserror::Error)]
pub enum EventStoreError {
    /// DynamoDB.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The object store.
    #[error("the object store: {0}")]
    Objects(#[from] object_store::Error),
    /// Stored data is invalid.
    #[error("stored events cannot be read: {0}")]
    Corrupt(String),
    /// A stored object is damaged: its checksum does not match, or it is truncated, missing or another object.
    #[error("the stored object {object} is damaged: {what}")]
    Damaged {
        /// Its name relative to the address of the events.
        object: String,
        /// What is wrong with it.
        what: String,
    },
    /// A block of captured events is damaged.
    #[error("block {block} of project {project} is damaged: {what}")]
    DamagedBlock {
        /// The project whose events it holds.
        project: ProjectId,
        /// Its id.
        block: String,
        /// What is wrong with it.
        what: String,
    },
    /// Above a limit; the text has the limit and the amount, for the caller to show.
    #[error("{0}")]
    TooLarge(String),
    /// Other queries use the memory for events; alone this one may succeed.
    #[error("other queries use the memory for events")]
    MemoryInUse,
    /// The address of the object store is invalid.
    #[error("{0}")]
    Location(String),
    /// Tables and objects do not belong together; the text has what is missing, what was found and what to do.
    #[error("{0}")]
    WrongInstallation(String),
    /// Gave up after repeated version conflicts; nothing was written.
    #[error(
        "other writers kept changing the project's segments, and nothing of this step was written; what was done before stays, \
         and the same call goes on from there"
    )]
    Contended,
}

/// Retry-After in seconds when the object store failed.
const NO_RESPONSE_SECONDS: u32 = 5;
/// Retry-After in seconds when the memory is in use.
const MEMORY_IN_USE_SECONDS: u32 = 5;

impl From<EventStoreError> for ApiError {
    fn from(error: EventStoreError) -> Self {
        match error {
            EventStoreError::Store(error) => error.into(),
            EventStoreError::TooLarge(detail) => ApiError::over_limit(detail),
            EventStoreError::Contended => ApiError::busy(1),
            EventStoreError::MemoryInUse => memory_in_use(),
            EventStoreError::Objects(_) => {
                tracing::warn!(cause = %error, "the object store does not respond");
                ApiError::busy(NO_RESPONSE_SECONDS)
            }
            EventStoreError::Damaged { object, .. } => ApiError::unavailable(
                "damaged_data",
                format!(
                    "Stored events that this query needs are damaged: {object}. Queries that do not need it still work; \
                     `pennon check` lists the damage and what can be done."
                ),
            ),
            EventStoreError::DamagedBlock { project, block, .. } => ApiError::unavailable(
                "damaged_data",
                format!(
                    "Captured events of project {project} are damaged: block {block}. Every query of the project's events \
                     needs it; other projects are not affected. Put the block's rows back from a backup, or give its events \
                     up with `pennon check --project {project} --drop {block}`."
                ),
            ),
            other => ApiError::internal(&other),
        }
    }
}

/// The API error for [`EventStoreError::MemoryInUse`].
pub fn memory_in_use() -> ApiError {
    let detail = "Other queries use the memory for events at this moment. Try again later, or raise PENNON_EVENTS_MEMORY_MB.";
    ApiError::busy_because(MEMORY_IN_USE_SECONDS, detail)
}

impl EventStoreError {
    pub(crate) fn corrupt(what: impl std::fmt::Display) -> EventStoreError {
        EventStoreError::Corrupt(what.to_string())
    }
}

impl From<parquet::errors::ParquetError> for EventStoreError {
    fn from(error: parquet::errors::ParquetError) -> Self {
        EventStoreError::corrupt(error)
    }
}

impl From<arrow_schema::ArrowError> for EventStoreError {
    fn from(error: arrow_schema::ArrowError) -> Self {
        EventStoreError::corrupt(error)
    }
}

impl From<serde_json::Error> for EventStoreError {
    fn from(error: serde_json::Error) -> Self {
        EventStoreError::corrupt(error)
    }
}

impl From<tokio::task::JoinError> for EventStoreError {
    fn from(error: tokio::task::JoinError) -> Self {
        EventStoreError::Corrupt(format!("a reader stopped: {error}"))
    }
}
