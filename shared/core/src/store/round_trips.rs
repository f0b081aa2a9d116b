//! Records the calls to DynamoDB by an SDK interceptor, for tests and benchmarks.
//!
//! Concurrent calls cost the caller one round trip, so the number of sequential round trips is the longest chain of calls in
//! which each started after the previous one had ended. Background calls ([`in_background`]) are recorded separately.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use aws_sdk_dynamodb::config::interceptors::{
    BeforeSerializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
    FinalizerInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_types::config_bag::{Storable, StoreReplace};

tokio::task_local! {
    static BACKGROUND: ();
}

/// Marks the calls of `work` as background calls, which no response waits for.
pub async fn in_background<F: Future>(work: F) -> F::Output {
    BACKGROUND.scope((), work).await
}

/// A log of the calls made through one client.
#[derive(Debug, Clone, Default)]
pub struct RoundTrips {
    calls: Arc<Mutex<Vec<StoreCall>>>,
}

/// One call: its operation, attempts, start and end.
#[derive(Debug, Clone)]
pub struct StoreCall {
    /// Name of the DynamoDB operation, such as `BatchGetItem`.
    pub operation: String,
    /// Number of attempts; more than one after a retry.
    pub attempts: u32,
    start: Instant,
    end: Option<Instant>,
    is_background: bool,
}

/// The index of the running call in the log.
#[derive(Debug)]
struct CallIndex(usize);

impl Storable for CallIndex {
    type Storer = StoreReplace<CallIndex>;
}

impl RoundTrips {
    /// An empty log.
    pub fn new() -> RoundTrips {
        RoundTrips::default()
    }

    /// Clears the log.
    pub fn reset(&self) {
        self.lock().clear();
    }

    /// The recorded calls in order of their start, without background calls.
    pub fn calls(&self) -> Vec<StoreCall> {
        self.lock().iter().filter(|call| !call.is_background).cloned().collect()
    }

    /// The recorded background calls.
    pub fn background_calls(&self) -> Vec<StoreCall> {
        self.lock().iter().filter(|call| call.is_background).cloned().collect()
    }

    /// The number of sequential round trips.
    pub fn sequential(&self) -> usize {
        let mut calls = self.calls();
        calls.sort_by_key(|call| call.end);
        let mut waits = 0;
        let mut last_end = None;
        for call in &calls {
            if call.end.is_some() && last_end.is_none_or(|end| call.start >= end) {
                waits += 1;
                last_end = call.end;
            }
        }
        waits
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<StoreCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Intercept for RoundTrips {
    fn name(&self) -> &'static str {
        "RoundTrips"
    }

    fn read_before_execution(
        &self,
        _context: &BeforeSerializationInterceptorContextRef<'_>,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let mut calls = self.lock();
        bag.interceptor_state().store_put(CallIndex(calls.len()));
        let is_background = BACKGROUND.try_with(|()| ()).is_ok();
        calls.push(StoreCall {
            operation: String::new(),
            attempts: 0,
            start: Instant::now(),
            end: None,
            is_background,
        });
        Ok(())
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let target = context.request().headers().get("x-amz-target").unwrap_or_default();
        if let Some(CallIndex(index)) = bag.load::<CallIndex>()
            && let Some(call) = self.lock().get_mut(*index)
        {
            target.rsplit('.').next().unwrap_or_default().clone_into(&mut call.operation);
            call.attempts += 1;
        }
        Ok(())
    }

    fn read_after_execution(
        &self,
        _context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(CallIndex(index)) = bag.load::<CallIndex>()
            && let Some(call) = self.lock().get_mut(*index)
        {
            call.end = Some(Instant::now());
        }
        Ok(())
    }
}
