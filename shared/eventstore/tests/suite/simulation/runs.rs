//! Runs the histories of many seeds, on as many threads as there are cores.

use std::any::Any;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pennon_core::ids::seeded;
use tokio::runtime::{Builder, Runtime};

use super::defects::Defect;
use super::history::{Coverage, History, Log};
use super::switch::Trace;

/// The second thread begins once: it would begin with the same random numbers again.
const LONGER_THAN_A_HISTORY: Duration = Duration::from_secs(3600);

/// A history that differs from the model.
#[derive(Debug, Clone)]
pub struct Failure {
    pub seed: u64,
    pub steps: Vec<String>,
    pub difference: String,
}

impl Failure {
    /// The seed, the steps and the difference.
    pub fn report(&self) -> String {
        let steps = self.steps.join("\n");
        format!("PENNON_SIMULATION_SEED={}\n{steps}\n    this step: {}", self.seed, self.difference)
    }
}

/// A runtime with one more thread, for all that runs in the background, so that it ends in the order in which it was begun. Both have
/// random numbers of the seed.
fn runtime(seed: u64) -> Runtime {
    seeded::set(Some(seed));
    Builder::new_current_thread()
        .max_blocking_threads(1)
        .thread_keep_alive(LONGER_THAN_A_HISTORY)
        .on_thread_start(move || seeded::set(Some(!seed)))
        .enable_time()
        .build()
        .unwrap()
}

/// Runs one history.
pub fn run_seed(seed: u64, defect: Option<Defect>, trace: Option<Arc<Trace>>) -> Result<Coverage, Failure> {
    let (runtime, log) = (runtime(seed), Log::default());
    let history = || runtime.block_on(History::new(seed, defect, trace, log.clone()).run());
    let done = catch_unwind(AssertUnwindSafe(history)).unwrap_or_else(|panic| Err(text_of(&*panic)));
    done.map_err(|difference| {
        let steps = log.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Failure { seed, steps, difference }
    })
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// What the histories of these seeds reached, or the failure of the lowest seed among those that were run until one failed.
pub fn run_seeds(seeds: RangeInclusive<u64>, defect: Option<Defect>) -> Result<Coverage, Failure> {
    let (next, last) = (AtomicU64::new(*seeds.start()), *seeds.end());
    let results: Mutex<Result<Coverage, Failure>> = Mutex::new(Ok(Coverage::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > last || results.lock().unwrap().is_err() {
                return;
            }
            let done = run_seed(seed, defect, None);
            let mut results = results.lock().unwrap();
            match (done, &mut *results) {
                (Ok(reached), Ok(coverage)) => add(coverage, reached),
                (Err(failure), Err(known)) if known.seed < failure.seed => {}
                (Err(failure), _) => *results = Err(failure),
                (Ok(_), Err(_)) => {}
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    results.into_inner().unwrap()
}

fn add(coverage: &mut Coverage, reached: Coverage) {
    for (what, count) in reached {
        *coverage.entry(what).or_default() += count;
    }
}
