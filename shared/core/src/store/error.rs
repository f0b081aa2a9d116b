//! Errors of the store, one variant for each kind that callers handle differently.

use std::error::Error;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

use super::local_backend::{DAMAGED_CODE, UNWRITABLE_CODE};

/// A failed call to the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The condition of the write at `index` of a transaction did not hold; nothing was written.
    #[error("the condition of write {index} does not hold")]
    Condition {
        /// Position of the write in the transaction.
        index: usize,
    },
    /// A conflict with concurrent transactions on the same items, after 10 attempts; nothing was written.
    #[error("the items are being written by others")]
    Conflict,
    /// DynamoDB throttles or times out.
    #[error("the store is busy: {0}")]
    Busy(String),
    /// The store cannot be written and a retry will not help; the text is the cause and what to do.
    #[error("{0}")]
    Unavailable(String),
    /// The item or the transaction exceeds a size limit.
    #[error("the record is larger than an item of the store can be")]
    TooLarge,
    /// A stored item cannot be decoded.
    #[error("stored data cannot be read: {0}; restore it from a backup")]
    Corrupt(String),
    /// Any other error; the text is for the log only.
    #[error("{0}")]
    Failed(String),
}

impl StoreError {
    /// Whether this is the failed condition of write `index`.
    pub fn is_condition(&self, index: usize) -> bool {
        matches!(self, StoreError::Condition { index: at } if *at == index)
    }
}

/// Error codes of temporary failures; the SDK has retried a few times by then.
const BUSY: [&str; 5] = [
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "TransactionInProgressException",
    "InternalServerError",
];

impl<E, R> From<SdkError<E, R>> for StoreError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    fn from(error: SdkError<E, R>) -> Self {
        let meta = error.as_service_error().map(ProvideErrorMetadata::meta);
        let message = || meta.and_then(|meta| meta.message()).unwrap_or_default().to_owned();
        match meta.and_then(|meta| meta.code()) {
            Some(UNWRITABLE_CODE) => return StoreError::Unavailable(message()),
            Some(DAMAGED_CODE) => return StoreError::Corrupt(message()),
            _ => {}
        }
        let code = meta.and_then(|meta| meta.code()).map(str::to_owned);
        // An error response of DynamoDB is fully described by its code and message.
        let text = match (meta.and_then(|meta| meta.message()), &code) {
            (Some(message), Some(code)) => format!("{code}: {message}"),
            _ => causes(&error),
        };
        match (&error, code) {
            (SdkError::TimeoutError(_) | SdkError::DispatchFailure(_), _) => StoreError::Busy(text),
            (_, Some(code)) if BUSY.contains(&code.as_str()) => StoreError::Busy(text),
            (_, Some(code)) if code == "TransactionConflictException" => StoreError::Conflict,
            (_, Some(code)) if code == "ResourceNotFoundException" => StoreError::Failed(format!(
                "there is no such table: PENNON_RECORDS_TABLE and PENNON_BLOCKS_TABLE name the tables, the region and the \
                 credentials select the account ({text})"
            )),
            _ => StoreError::Failed(text),
        }
    }
}

/// The messages of an error and its causes, outermost first. The SDK's `Display` has only the outermost, and its `Debug` adds the
/// whole request.
pub(crate) fn causes(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        // Some errors repeat their cause.
        if !texts.last().is_some_and(|last| last.contains(&text)) {
            texts.push(text);
        }
        next = error.source();
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    #[test]
    fn causes_are_listed_from_the_outside_in_without_repetitions() {
        let inner = Layer { text: "connection refused", source: None };
        let middle = Layer { text: "io error: connection refused", source: Some(Box::new(inner)) };
        let outer = Layer { text: "dispatch failure", source: Some(Box::new(middle)) };
        assert_eq!(causes(&outer), "dispatch failure: io error: connection refused");
    }
}
