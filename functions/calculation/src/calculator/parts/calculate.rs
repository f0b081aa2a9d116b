//! The caller of the parts: splits a query, passes moved rows on, and collects the results.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use pennon_analytics::{JoinData, PersonRange, Plan};
use pennon_core::error::ApiResult;
use pennon_core::request_metrics;
use pennon_eventstore::{MovedRows, PartScan, PinnedScan, QueryMemory};
use tokio::time::Instant;
use uuid::Uuid;

use super::attempts::Attempts;
use super::daily_spending::DailySpending;
use super::division::{PartResult, ResultKind};
use super::lease::Lease;
use super::planned_query::PlannedQuery;
use super::settings::PARTS_MAX;
use super::task::{PartFailure, PartOutcome, PartStats, PartTask, PartWork, QueryText};
use super::{PartInvoker, PartSettings};
use crate::calculator::execution::{self, CancellationGuard, ExecutionError};
use crate::calculator::{CalculationPermit, Calculator};

/// How often a query begins again because an object that it pinned was removed.
const RESTARTS_MAX: u32 = 2;

/// What runs the parts of a calculator's queries. Clones share it.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Runs parts.
    pub invoker: Arc<dyn PartInvoker>,
    /// When to split, and what it may cost.
    pub settings: PartSettings,
}

/// What the tasks of a query share.
#[derive(Debug, Clone)]
struct SharedInputs {
    query_text: QueryText,
    lease: (u64, Uuid),
    deadline: Instant,
}

/// What is split: the events of a moment, and the data that is joined to them.
#[derive(Debug)]
struct PinnedInputs {
    pinned: PinnedScan,
    join_data: JoinData,
}

/// A query in parts that has begun: its parts stop when this is dropped.
pub(super) struct StartedParts {
    shared: SharedInputs,
    spending: DailySpending,
    lease: Lease,
}

/// How the parts of a query are run.
struct PartsRun<'a> {
    parts: &'a Parts,
    shared: &'a SharedInputs,
    result_kind: ResultKind<'a>,
    memory: &'a QueryMemory,
    cancellation: &'a CancellationGuard,
    invoked_micros: &'a AtomicU64,
}

impl Parts {
    /// When the parts of a query have to be done: in time to calculate it undivided if they fail, and before their invocations, with
    /// some second attempts, have used up what a query may cost.
    fn deadline(&self, query: &PlannedQuery<'_>, count: u32) -> Instant {
        let now = Instant::now();
        let invocations = (count as usize).saturating_mul(2);
        let time_max = self.settings.time_max(self.invoker.memory_gb(), invocations);
        now + time_max.min(query.deadline.saturating_duration_since(now) * 3 / 5)
    }

    /// The number of parts of a query that reads so many rows; `None` if it is not split.
    pub(super) fn count(&self, plan: &Plan, rows: u64) -> Option<u32> {
        let parts = self.settings.parts(rows);
        (parts > 1 && plan.is_divisible()).then_some(parts)
    }
}

impl Calculator {
    /// Begins a query in `count` parts. `None` if it has no form that another process understands, or the project's day is used up.
    pub(super) async fn begin_parts(
        &self,
        parts: &Parts,
        query: &PlannedQuery<'_>,
        (rows, count): (u64, u32),
    ) -> ApiResult<Option<StartedParts>> {
        let project = query.project.id;
        let Some(query_text) = QueryText::new(query) else { return Ok(None) };
        let (settings, memory_gb) = (&parts.settings, parts.invoker.memory_gb());
        let cost = (settings.expected_gb_seconds(memory_gb, rows, count), settings.gb_seconds_per_day);
        let spending = DailySpending::begin(&self.records, project, cost, memory_gb);
        let (lease, spending) = futures::join!(Lease::begin(&self.records, project), spending);
        let spending = match spending {
            Ok(Some(spending)) => spending,
            Ok(None) => {
                tracing::warn!(project, "the parts of the project's queries have used up the day");
                return Ok(None);
            }
            Err(error) => {
                tracing::warn!(project, %error, "the cost of a query in parts could not be counted, so it is not split");
                return Ok(None);
            }
        };
        match lease {
            Ok(lease) => {
                let deadline = parts.deadline(query, count);
                let shared = SharedInputs { query_text, lease: lease.id, deadline };
                Ok(Some(StartedParts { shared, spending, lease }))
            }
            Err(error) => {
                spending.settle().await;
                Err(error.into())
            }
        }
    }

    /// Calculates a query in `count` parts, in twice as many if one does not fit into an invocation. `None` if its parts failed: this
    /// process may be able to do it, and refuses what does not fit.
    pub(super) async fn calculate_in_parts<T: PartResult>(
        &self,
        (parts, started): (&Parts, StartedParts),
        query: &PlannedQuery<'_>,
        result_kind: ResultKind<'_>,
        pinned: (PinnedScan, u32),
        cancellation: &CancellationGuard,
        memory: &QueryMemory,
    ) -> ApiResult<Option<Vec<T>>> {
        let StartedParts { shared, spending, lease } = started;
        let run = PartsRun {
            parts,
            shared: &shared,
            result_kind,
            memory,
            cancellation,
            invoked_micros: &spending.invoked_micros.clone(),
        };
        let results = self.run_with_restarts(run, query, pinned).await;
        // Attempts that were not needed may still run.
        futures::join!(lease.end(), spending.settle());
        results
    }

    /// Runs the parts, and begins again where that helps.
    async fn run_with_restarts<T: PartResult>(
        &self,
        run: PartsRun<'_>,
        query: &PlannedQuery<'_>,
        (pinned, mut count): (PinnedScan, u32),
    ) -> ApiResult<Option<Vec<T>>> {
        let project = query.project;
        let (mut restarts, mut is_split) = (0, false);
        let join_data = self.derived_join_data(query, run.cancellation, run.memory).await?;
        let mut inputs = Arc::new(PinnedInputs { pinned, join_data });
        loop {
            match self.results(&run, &inputs, count).await {
                Ok(results) => return Ok(Some(results)),
                Err(PartFailure::TooLarge(cause)) if !is_split && count < PARTS_MAX => {
                    tracing::info!(project = project.id, cause, "a query begins again with smaller parts");
                    is_split = true;
                    count = (count * 2).min(PARTS_MAX);
                }
                Err(PartFailure::Unreadable(cause)) if restarts < RESTARTS_MAX => {
                    tracing::warn!(project = project.id, cause, "a query in parts begins again");
                    restarts += 1;
                    drop(inputs);
                    let pinned = self.pin(project, query.plan.scan(), run.memory).await?;
                    let join_data = self.derived_join_data(query, run.cancellation, run.memory).await?;
                    inputs = Arc::new(PinnedInputs { pinned, join_data });
                }
                Err(failure) => {
                    if let Some(error) = failure.final_error() {
                        return Err(error);
                    }
                    tracing::warn!(project = project.id, ?failure, "the parts of a query failed");
                    return Ok(None);
                }
            }
        }
    }

    /// The data that is joined to the events of all parts.
    async fn derived_join_data(
        &self,
        query: &PlannedQuery<'_>,
        cancellation: &CancellationGuard,
        memory: &QueryMemory,
    ) -> ApiResult<JoinData> {
        let lists = &query.used.cohort_lists;
        let join_data = self.load_join_data(query.project, query.plan.needs(), lists, memory).await?;
        let permit = self.acquire_shared_permit().await?;
        let (plan, memory, is_cancelled) =
            (query.plan.clone(), memory.clone(), cancellation.cancellation_check());
        let derived = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            execution::metered(&memory, &is_cancelled, |is_cancelled| plan.derive(join_data, is_cancelled))
        });
        Ok(derived.await.map_err(ExecutionError::from)??)
    }

    /// The results of all parts.
    async fn results<T: PartResult>(
        &self,
        run: &PartsRun<'_>,
        inputs: &Arc<PinnedInputs>,
        count: u32,
    ) -> Result<Vec<T>, PartFailure> {
        let time_left = run.shared.deadline.saturating_duration_since(Instant::now());
        let attempts = Attempts {
            invoker: run.parts.invoker.as_ref(),
            at_once: run.parts.settings.at_once,
            deadline: run.shared.deadline,
            time: time_left / 2,
            invoked_micros: run.invoked_micros,
        };
        let mut stats = PartStats::default();
        let ranges = PersonRange::ALL.split(count);
        let mut moved = Vec::new();
        if inputs.pinned.has_merges() {
            let permit = self.acquire_shared_permit().await?;
            let tasks = run.tasks(inputs, (ranges.clone(), None), permit).await?;
            for outcome in attempts.run(&tasks, |outcome| self.record_part(outcome, &mut stats)).await? {
                match outcome? {
                    PartOutcome::Moved(rows, _) => moved.push(rows),
                    _ => return Err(PartFailure::OtherRelease),
                }
            }
        }
        let permit = self.acquire_shared_permit().await?;
        let tasks = run.tasks(inputs, (ranges, Some(moved)), permit).await?;
        let outcomes = attempts.run(&tasks, |outcome| self.record_part(outcome, &mut stats)).await?;
        let results = outcomes.into_iter().map(|outcome| T::of(outcome?).ok_or(PartFailure::OtherRelease));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        tracing::info!(
            parts = count,
            rows = stats.rows,
            bytes_read = stats.bytes_read,
            gets = stats.gets,
            busy_micros = stats.busy_micros,
            "a query was calculated in parts"
        );
        Ok(results)
    }

    /// Adds what a part has read to the log line and the progress of its query.
    fn record_part(&self, outcome: &PartOutcome, sum: &mut PartStats) {
        let Some(stats) = outcome.stats() else { return };
        sum.rows += stats.rows;
        sum.bytes_read += stats.bytes_read;
        sum.gets += stats.gets;
        sum.busy_micros += stats.busy_micros;
        request_metrics::record(|metrics| {
            metrics.add_bytes_read(stats.bytes_read);
            metrics.add_gets(stats.gets);
        });
        if let Some(metrics) = &self.metrics {
            metrics.add_part(stats.rows, stats.bytes_read, Duration::from_micros(stats.busy_micros));
        }
    }
}

impl PartsRun<'_> {
    /// The encoded tasks of the parts of `ranges`: with `moved`, those that return results; without, those that return moved rows.
    /// Off the runtime's threads, because joined data and rows may be many megabytes; their memory is the query's.
    async fn tasks(
        &self,
        inputs: &Arc<PinnedInputs>,
        (ranges, moved): (Vec<PersonRange>, Option<Vec<MovedRows>>),
        permit: CalculationPermit,
    ) -> Result<Vec<Vec<u8>>, PartFailure> {
        let (shared, inputs, memory) = (self.shared.clone(), inputs.clone(), self.memory.clone());
        let is_cancelled = self.cancellation.cancellation_check();
        let listed = match self.result_kind {
            ResultKind::Partials => None,
            ResultKind::Actors { point, kept } => Some((point.clone(), kept.map(|kept| kept as u64))),
        };
        let encoded = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            execution::metered(&memory, &is_cancelled, |is_cancelled| {
                let PinnedInputs { pinned, join_data } = inputs.as_ref();
                Ok(match moved {
                    None => {
                        let scans = pinned.parts_for_moved_rows(&ranges);
                        shared.encode(scans.map(|scan| (scan, PartWork::FindMovedRows)), is_cancelled)
                    }
                    Some(moved) => {
                        let parts = pinned.parts(&ranges, &moved).map(|scan| {
                            let joined = join_data.stored(scan.range());
                            let work = match listed.clone() {
                                None => PartWork::Calculate(joined),
                                Some((point, kept)) => PartWork::ListActors { joined, point, kept },
                            };
                            (scan, work)
                        });
                        shared.encode(parts, is_cancelled)
                    }
                })
            })
        });
        match encoded.await.map_err(ExecutionError::from)? {
            Ok(tasks) => tasks.map_err(PartFailure::Transient),
            // The memory of this process; smaller parts need as much of it.
            Err(ExecutionError::Memory(error)) => Err(PartFailure::Transient(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }
}

impl SharedInputs {
    fn encode(
        &self,
        parts: impl Iterator<Item = (PartScan, PartWork)>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<Vec<u8>>, String> {
        let millis = self.deadline.saturating_duration_since(Instant::now()).as_millis();
        let tasks = parts.map(|(scan, work)| {
            if is_cancelled() {
                return Err("the query was cancelled, or its memory is used up".to_owned());
            }
            let task = PartTask {
                query_text: self.query_text.clone(),
                scan,
                work,
                lease: self.lease,
                millis: u64::try_from(millis).unwrap_or(u64::MAX),
            };
            task.encode()
        });
        tasks.collect()
    }
}
