//! Counts the calls that reach DynamoDB, through the SDK's interceptor.
//!
//! Calls that run side by side cost the caller one wait, so what is counted for a budget is the longest chain of calls
//! of which each began after the one before had ended. Calls that no answer waits for ([`aside`]) are counted apart.

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
    static ASIDE: ();
}

/// Runs `work`, whose calls no answer waits for.
pub async fn aside<F: Future>(work: F) -> F::Output {
    ASIDE.scope((), work).await
}

/// A log of the calls made through one client.
#[derive(Debug, Clone, Default)]
pub struct RoundTrips {
    calls: Arc<Mutex<Vec<Call>>>,
}

/// One call: its operation and when it began and ended.
#[derive(Debug, Clone)]
pub struct Call {
    /// Name of the DynamoDB operation, such as `BatchGetItem`.
    pub operation: String,
    /// How often it was sent; more than once after a failure.
    pub attempts: u32,
    /// When it began.
    began: Instant,
    ended: Option<Instant>,
    aside: bool,
}

/// Which entry of the log the running call has.
#[derive(Debug)]
struct Position(usize);

impl Storable for Position {
    type Storer = StoreReplace<Position>;
}

impl RoundTrips {
    /// An empty log.
    pub fn new() -> RoundTrips {
        RoundTrips::default()
    }

    /// Forgets what was counted.
    pub fn reset(&self) {
        self.lock().clear();
    }

    /// The calls so far that answers waited for, in the order in which they began.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().iter().filter(|call| !call.aside).cloned().collect()
    }

    /// The calls so far that no answer waited for.
    pub fn calls_aside(&self) -> Vec<Call> {
        self.lock().iter().filter(|call| call.aside).cloned().collect()
    }

    /// How many calls one after the other were waited for.
    pub fn sequential(&self) -> usize {
        let mut calls = self.calls();
        calls.sort_by_key(|call| call.ended);
        let mut waits = 0;
        let mut last_end = None;
        for call in &calls {
            if call.ended.is_some() && last_end.is_none_or(|end| call.began >= end) {
                waits += 1;
                last_end = call.ended;
            }
        }
        waits
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Call>> {
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
        bag.interceptor_state().store_put(Position(calls.len()));
        let aside = ASIDE.try_with(|()| ()).is_ok();
        calls.push(Call { operation: String::new(), attempts: 0, began: Instant::now(), ended: None, aside });
        Ok(())
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let target = context.request().headers().get("x-amz-target").unwrap_or_default();
        if let Some(Position(at)) = bag.load::<Position>()
            && let Some(call) = self.lock().get_mut(*at)
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
        if let Some(Position(at)) = bag.load::<Position>()
            && let Some(call) = self.lock().get_mut(*at)
        {
            call.ended = Some(Instant::now());
        }
        Ok(())
    }
}
