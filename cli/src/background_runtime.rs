//! A second runtime, for all work but the evaluation of flags: its threads have a low priority in the operating system, so that
//! an evaluation that arrives gets the processor at once, however many other requests are running.
//!
//! Under a mix of all requests at 150 % of the capacity of two cores (`tests/durability/overload.py`), the median evaluation took 3.3 s
//! and the slowest hundredth 7.7 s with one runtime for everything; with this one 1.9 ms and 17 ms. At 70 % the slowest hundredth
//! took 47 ms, and takes 9 ms.
//!
//! Must stay true: work that is started here is cancelled when its caller is; threads that wait for the disk have the low
//! priority too.

use std::future::Future;

use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinSet;

/// Threads that poll requests, for each core. Parsing a large body occupies its thread for as long as it takes; with more threads than
/// cores the operating system shares the cores, and small requests are not behind large ones. Beside four clients that send
/// queries of 3.5 MB to two cores the median evaluation of flags took 177 ms with one thread for each core, and 4 ms with four.
const THREADS_OF_CORE: usize = 4;

/// A runtime on so many cores whose threads call `on_start` first.
pub fn build_runtime(cores: usize, on_start: impl Fn() + Send + Sync + 'static) -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS_OF_CORE * cores)
        .on_thread_start(on_start)
        .enable_all()
        .build()
}

/// The runtime. Dropping it does not wait for its work.
#[derive(Debug)]
pub struct BackgroundRuntime {
    handle: Handle,
    /// `None` while it is dropped.
    runtime: Option<Runtime>,
}

impl BackgroundRuntime {
    /// Starts the threads for so many cores.
    pub fn start(cores: usize) -> std::io::Result<BackgroundRuntime> {
        let runtime = build_runtime(cores, lower_priority())?;
        Ok(BackgroundRuntime { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Spawns work on the runtime.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for BackgroundRuntime {
    fn drop(&mut self) {
        // A runtime may not be dropped, and so waited for, within another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs `work` on `runtime`, until it ends or the returned future is dropped. A panic of the work is one of the caller; once the runtime
/// has ended, which it does after all connections, there is no result.
pub async fn run_on<T: Send + 'static>(
    runtime: &Handle,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let mut tasks = JoinSet::new();
    tasks.spawn_on(work, runtime);
    match tasks.join_next().await {
        Some(Ok(result)) => result,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        _ => std::future::pending().await,
    }
}

/// What lowers the priority of the thread that calls it. Other systems than Linux have one for the whole process.
fn lower_priority() -> impl Fn() + Send + Sync + 'static {
    #[cfg(target_os = "linux")]
    return linux::lower_priority();
    #[cfg(not(target_os = "linux"))]
    || {}
}

#[cfg(target_os = "linux")]
mod linux {
    // Of the calling thread, which is what Linux means by the process here.
    use rustix::process::{getpriority_process, setpriority_process};

    /// What is added to the nice value of the process. A thread gets about ten times the time of one whose value is higher by 10. With
    /// 19 it would be seventy times, and requests would stand still beside other processes of the machine.
    const NICE_ADDED: i32 = 10;
    const NICE_MAX: i32 = 19;

    /// Threads inherit the value of the thread that starts them, so it is added to that of the caller here.
    pub fn lower_priority() -> impl Fn() + Send + Sync + 'static {
        let nice = getpriority_process(None).map(|nice| (nice + NICE_ADDED).min(NICE_MAX));
        move || {
            if let Err(error) = nice.and_then(|nice| setpriority_process(None, nice)) {
                tracing::warn!(%error, "the threads of other requests keep the priority of evaluations");
            }
        }
    }

    #[cfg(test)]
    mod tests {
        #![allow(clippy::unwrap_used)]
        use super::super::{BackgroundRuntime, run_on};
        use super::*;

        fn nice() -> i32 {
            getpriority_process(None).unwrap()
        }

        #[tokio::test]
        async fn all_threads_have_a_low_priority_and_the_process_keeps_its_own() {
            let before = nice();
            let runtime = BackgroundRuntime::start(1).unwrap();
            let work = async { (nice(), tokio::task::spawn_blocking(nice).await.unwrap()) };
            let expected = (before + 10).min(19);
            assert_eq!(run_on(runtime.handle(), work).await, (expected, expected));
            assert_eq!(nice(), before);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::FutureExt;
    use std::panic::AssertUnwindSafe;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn work_ends_with_the_future_that_waits_for_it() {
        let runtime = BackgroundRuntime::start(1).unwrap();
        let (started, has_started) = oneshot::channel();
        let (held, dropped) = oneshot::channel::<()>();
        let work = run_on(runtime.handle(), async move {
            let _held = held;
            started.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        tokio::select! {
            _ = work => unreachable!("the work is endless"),
            started = has_started => started.unwrap(),
        }
        assert!(dropped.await.is_err());
    }

    #[tokio::test]
    async fn a_panic_of_the_work_is_one_of_the_caller() {
        let runtime = BackgroundRuntime::start(1).unwrap();
        let work = run_on(runtime.handle(), async { panic!("as expected") });
        let panic = AssertUnwindSafe(work).catch_unwind().await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"as expected"));
    }
}
