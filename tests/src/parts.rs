//! Queries in parts: each part is encoded, decoded and calculated by another process on the same data.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pennon_calculation::Calculator;
use pennon_calculation::parts::{
    InvocationFuture, PartFailure, PartInvoker, PartLimits, PartOutcome, PartSettings, Parts,
};
use pennon_core::function_name::with_function_name;

use crate::TestApp;

/// Runs parts in other processes on the same data, and counts them.
#[derive(Debug, Clone)]
pub struct PartProcesses {
    calculators: Vec<Calculator>,
    invocations: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<PartFailure>>>,
    /// The next partial result is too large for a message.
    refuses_next: Arc<AtomicBool>,
}

impl PartProcesses {
    /// Processes on the data of `app`.
    pub fn of(app: &TestApp, count: usize) -> PartProcesses {
        let process = |_| app.another_process().services.calculator.clone();
        PartProcesses {
            calculators: (0..count).map(process).collect(),
            invocations: Arc::default(),
            failures: Arc::default(),
            refuses_next: Arc::default(),
        }
    }

    /// How often a part was invoked.
    pub fn invocations(&self) -> usize {
        self.invocations.load(Ordering::SeqCst)
    }

    /// Has the next partial result fail because it is too large.
    pub fn refuse_next(&self) {
        self.refuses_next.store(true, Ordering::SeqCst);
    }

    /// The failures of all parts. A query whose parts fail is calculated undivided.
    pub fn failures(&self) -> Vec<PartFailure> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another process on the data of `app`, which has these processes calculate every query that can be divided, in `count` parts.
    pub fn app(&self, app: &TestApp, count: u32) -> TestApp {
        self.app_with(app, |settings| PartSettings { parts_max: count, ..settings })
    }

    /// The same with other settings than those of two parts.
    pub fn app_with(&self, app: &TestApp, change: impl FnOnce(PartSettings) -> PartSettings) -> TestApp {
        let no_bounds = f64::from(u32::MAX);
        let settings = PartSettings {
            rows_per_part: 0,
            parts_max: 2,
            at_once: 4,
            gb_seconds_max: no_bounds,
            gb_seconds_per_day: no_bounds,
        };
        let parts = Parts { invoker: Arc::new(self.clone()), settings: change(settings) };
        app.with_calculator(|calculator| calculator.in_parts(parts))
    }
}

impl PartInvoker for PartProcesses {
    fn invoke<'a>(&'a self, number: usize, task: &'a [u8], time: Duration) -> InvocationFuture<'a> {
        self.invocations.fetch_add(1, Ordering::SeqCst);
        let calculator = &self.calculators[number % self.calculators.len()];
        let limits = PartLimits { time, outcome_bytes_max: usize::MAX };
        Box::pin(with_function_name("parts", async move {
            let outcome = calculator.run_part(task, limits).await;
            match PartOutcome::decode(&outcome) {
                Ok(PartOutcome::Failed(failure)) => {
                    self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
                }
                Ok(PartOutcome::Partial(..)) if self.refuses_next.swap(false, Ordering::SeqCst) => {
                    let failure = PartOutcome::Failed(PartFailure::TooLarge("5 MB".to_owned()));
                    return Ok(failure.encode().expect("an encoded failure"));
                }
                _ => {}
            }
            Ok(outcome)
        }))
    }

    fn task_bytes_max(&self) -> usize {
        usize::MAX
    }

    fn memory_gb(&self) -> f64 {
        1.0
    }
}
