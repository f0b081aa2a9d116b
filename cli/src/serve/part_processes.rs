//! The processes that calculate parts of large queries (`--parts`).
//!
//! Must stay true: a process that has ended is started again by the next part that needs it; all of them end with the server.

use std::process::Stdio;
use std::time::Duration;

use pennon_calculation::parts::{InvocationFuture, PartError, PartInvoker, PartSettings, Parts};
use pennon_calculation::parts::{PartFunctions, TASK_BYTES_MAX};
use pennon_core::config::events_memory;
use pennon_core::ids;
use pennon_core::invocation::LambdaFunction;
use pennon_eventstore::Settings;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

/// Length of the access key id of a process, in letters and digits: 238 random bits.
const ACCESS_KEY_LENGTH: usize = 40;
/// How long a process may take to start.
const START_TIME: Duration = Duration::from_secs(10);
/// Memory for events of a process at least, in MB: less gives no room for one range of a segment.
const MEMORY_MIN_MB: u64 = 256;

/// Processes of this machine that run parts.
#[derive(Debug)]
pub(super) struct PartProcesses {
    /// The environment of the processes, which names the tables and events of the server.
    environment: Vec<(&'static str, String)>,
    /// None: not started, or ended.
    processes: Vec<Mutex<Option<PartProcess>>>,
    memory_mb: u64,
}

#[derive(Debug)]
struct PartProcess {
    /// Killed when this is dropped; its standard input stays open until then.
    child: Child,
    function: LambdaFunction,
}

impl PartProcesses {
    /// `count` processes, each with its share of the memory for events; they are started by the first query in parts.
    pub(super) fn new(count: u32, environment: Vec<(&'static str, String)>) -> PartProcesses {
        let memory = events_memory().unwrap_or_else(|| Settings::default().memory_bytes);
        let memory_mb = ((memory / u64::from(count.max(1))) >> 20).max(MEMORY_MIN_MB);
        let processes = (0..count.max(1)).map(|_| Mutex::new(None)).collect();
        PartProcesses { environment, processes, memory_mb }
    }

    /// These processes as what runs the parts of queries that read more than `rows_per_part` rows.
    pub(super) fn into_parts(self, rows_per_part: u64) -> Parts {
        let at_once = self.processes.len();
        // Processes of this machine cost nothing.
        let gb_seconds_per_day = f64::INFINITY;
        let settings = PartSettings { rows_per_part, at_once, gb_seconds_per_day, ..PartSettings::default() };
        Parts { invoker: std::sync::Arc::new(self), settings }
    }

    /// The function of a process, which is started if it does not run.
    async fn function(&self, number: usize) -> Result<LambdaFunction, PartError> {
        let process =
            self.processes.get(number).ok_or_else(|| PartError::Failed("no such process".to_owned()))?;
        let mut process = process.lock().await;
        if let Some(running) = process.as_mut()
            && matches!(running.child.try_wait(), Ok(None))
        {
            return Ok(running.function.clone());
        }
        let started = tokio::time::timeout(START_TIME, self.start()).await;
        let started = started
            .map_err(|_| PartError::Failed("a process for parts did not start in time".to_owned()))??;
        Ok(process.insert(started).function.clone())
    }

    async fn start(&self) -> Result<PartProcess, PartError> {
        let failed =
            |error: std::io::Error| PartError::Failed(format!("a process for parts did not start: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .arg("run-parts")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("PENNON_EVENTS_MEMORY_MB", self.memory_mb.to_string())
            .env_remove("AWS_SESSION_TOKEN")
            .env_remove("AWS_PROFILE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let stdout =
            child.stdout.take().ok_or_else(|| PartError::Failed("a process without output".to_owned()))?;
        // Known to this process and the new one alone.
        let access_key_id = ids::random_text(ACCESS_KEY_LENGTH);
        let stdin =
            child.stdin.as_mut().ok_or_else(|| PartError::Failed("a process without input".to_owned()))?;
        stdin.write_all(format!("{access_key_id}\n").as_bytes()).await.map_err(failed)?;
        let line = BufReader::new(stdout).lines().next_line().await.map_err(failed)?;
        let endpoint =
            line.ok_or_else(|| PartError::Failed("a process for parts ended at once".to_owned()))?;
        let function = LambdaFunction::local(&endpoint, &access_key_id)
            .map_err(|error| PartError::Failed(error.to_string()))?;
        Ok(PartProcess { child, function })
    }
}

impl PartInvoker for PartProcesses {
    fn invoke<'a>(&'a self, number: usize, task: &'a [u8], time: Duration) -> InvocationFuture<'a> {
        Box::pin(async move {
            let function = self.function(number % self.processes.len().max(1)).await?;
            let memory_gb = self.memory_gb();
            PartFunctions { functions: vec![function], memory_gb }.invoke(number, task, time).await
        })
    }

    fn task_bytes_max(&self) -> usize {
        TASK_BYTES_MAX
    }

    fn memory_gb(&self) -> f64 {
        self.memory_mb as f64 / 1024.0
    }
}
