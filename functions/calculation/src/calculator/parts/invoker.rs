//! The interface to what runs the parts: a Lambda function, or processes of this machine.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Why an invocation has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// There is no concurrency left for it: it was not begun.
    #[error("throttled")]
    Throttled,
    /// Something else; the text is for the log.
    #[error("{0}")]
    Failed(String),
}

/// The encoded outcome of an invocation.
pub type InvocationFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, PartError>> + Send + 'a>>;

/// Invokes parts.
pub trait PartInvoker: Debug + Send + Sync {
    /// Runs a part with this encoded task; parts of the same `number` are best run by the same process. Runs it within `time`, and returns its encoded outcome. Every error may be retried:
    /// a part has no effect. Dropping the future cancels the part, or leaves it to notice that its query has ended.
    fn invoke<'a>(&'a self, number: usize, task: &'a [u8], time: Duration) -> InvocationFuture<'a>;

    /// Most bytes of a task.
    fn task_bytes_max(&self) -> usize;

    /// Memory of an invocation, in GB, for the cost of its time.
    fn memory_gb(&self) -> f64;
}
