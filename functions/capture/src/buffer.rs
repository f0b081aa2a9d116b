//! The capture buffer of a deployment: a batch is acknowledged when it is a message of a queue, and stored from there.
//!
//! Must stay true: a batch is acknowledged only if the queue or the event store has it; a queue that refuses or does not respond loses
//! no batch, which is then stored directly. If it was sent nevertheless, its events are stored twice and count once, by their uuid.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pennon_core::clock::CacheInstant;
use pennon_core::lambda::QueueMessage;
use pennon_core::queue::MessageSender;
use pennon_core::store::keys::ProjectId;
use pennon_eventstore::{BufferedMessage, EncodedBatch, EventStore, EventStoreError};
use tokio::time::Instant;

/// Time after a failed call in which a process does not try the queue again, so that requests do not wait for it one after the other.
const PAUSE: Duration = Duration::from_secs(10);

/// Time at the end of an invocation for reporting the messages that were not stored.
const REPORT_TIME: Duration = Duration::from_secs(1);

/// A queue for captured batches. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CaptureBuffer {
    queue: Arc<dyn MessageSender>,
    failed_at: Arc<Mutex<Option<CacheInstant>>>,
}

impl CaptureBuffer {
    /// A buffer in `queue`.
    pub fn new(queue: Arc<dyn MessageSender>) -> CaptureBuffer {
        CaptureBuffer { queue, failed_at: Arc::default() }
    }

    /// Sends a batch that arrived at `now`. False if it has to be stored directly.
    pub(crate) async fn send(
        &self,
        events: &EventStore,
        project: ProjectId,
        batch: &EncodedBatch,
        now: i64,
    ) -> Result<bool, EventStoreError> {
        let failed_at = *self.failed_at.lock().unwrap_or_else(PoisonError::into_inner);
        if failed_at.is_some_and(|at| at.is_younger_than(PAUSE)) {
            return Ok(false);
        }
        let Some(message) = events.buffered_message(project, batch, now).await? else { return Ok(false) };
        match self.queue.send(message).await {
            Ok(()) => Ok(true),
            Err(error) => {
                tracing::warn!(project, %error, "the capture queue did not take a batch, which is stored directly");
                *self.failed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(CacheInstant::now());
                Ok(false)
            }
        }
    }
}

/// Stores a batch of messages within an invocation that ends at `end`. Returns the ids of those that have to be delivered again.
pub async fn store_messages(
    events: &EventStore,
    messages: Vec<QueueMessage>,
    now: i64,
    end: Instant,
) -> Vec<String> {
    let received = messages.len();
    let messages =
        messages.into_iter().map(|message| BufferedMessage { id: message.id, body: message.body }).collect();
    let end = end.checked_sub(REPORT_TIME).unwrap_or(end);
    let report = events.append_messages(messages, now, end).await;
    tracing::info!(
        received,
        stored = report.messages,
        events = report.events,
        blocks = report.blocks,
        failed = report.failed.len(),
        "stored buffered events"
    );
    report.failed
}
