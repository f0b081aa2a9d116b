//! Runs the history of a seed, and compares the store with the model after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::future::{Either, select};
use pennon_analytics::scan::ScanRequest;
use pennon_core::store::StoreError;
use pennon_eventstore::{Event, EventStore, EventStoreError, GRACE_MICROS, MergeMode, derive_person_id};
use uuid::Uuid;

use super::defects::Defect;
use super::installation::{Installation, Process, run};
use super::model::{IDS, Model, id};
use super::plan::Plan;
use super::queries;
use super::steps::{FIRST_DAY, MINUTE, Operation, Step};
use super::switch::{Fate, Trace};
use super::worlds::{PROJECTS, Worlds};
use crate::parts::scan_in_parts;
use crate::support::{request, rows, without_arrivals};

/// Passes between two operations: more than the real time that one takes, which the store adds to the times that it writes. All
/// other advances are multiples of it, so that this changes neither an order nor what is due.
const PAUSE: i64 = 10_000_000;
const DAY: i64 = 24 * 60 * MINUTE;
/// More than the length of a chain of replaced segments.
const LAST_SWEEPS: usize = 12;

/// The steps so far, for the report of a failure.
pub type Log = Arc<Mutex<Vec<String>>>;

/// How often something happened, for a check that histories reach it.
pub type Coverage = BTreeMap<&'static str, u64>;

const DIED: &str = "an operation ended with its process";
const LOST_CONNECTION: &str = "an operation ended with its connection";
const WAITED: &str = "an operation waited for others";
const SEVERAL_STATES: &str = "an operation without a response may have happened";
const FOLDED: &str = "merges were folded";
/// What the histories of a few seeds must reach.
pub const REACHED: [&str; 5] = [DIED, LOST_CONNECTION, WAITED, SEVERAL_STATES, FOLDED];

/// A batch that no client knows to be stored.
struct Unacknowledged {
    project: u64,
    events: Vec<Event>,
}

pub struct History {
    installation: Installation,
    processes: [Process; 2],
    worlds: Worlds,
    plan: Plan,
    unacknowledged: Option<Unacknowledged>,
    coverage: Coverage,
    log: Log,
}

impl History {
    pub fn new(seed: u64, defect: Option<Defect>, trace: Option<Arc<Trace>>, log: Log) -> History {
        let mut installation = Installation::new(seed, defect, trace);
        let processes = [installation.start(), installation.start()];
        let worlds = Worlds::new(defect == Some(Defect::CountedDuplicates));
        let (plan, coverage) = (Plan::new(seed), Coverage::new());
        History { installation, processes, worlds, plan, unacknowledged: None, coverage, log }
    }

    /// Runs the whole history; the difference to the model is an error.
    pub async fn run(mut self) -> Result<Coverage, String> {
        let claimed = self.processes[0].events.claim_installation().await;
        claimed.map_err(|error| format!("a new installation: {error}"))?;
        for number in 1..=self.plan.length() {
            let step = self.plan.next();
            self.log.lock().unwrap().push(format!("{number:3} {step:?}"));
            self.installation.advance(PAUSE);
            self.step(step).await?;
        }
        self.log.lock().unwrap().push("    the end: everything is compacted, merged and swept".to_owned());
        self.end().await?;
        if !self.installation.objects_below("merges/").is_empty() {
            self.reach(FOLDED);
        }
        Ok(self.coverage)
    }

    /// `what` is one of [`REACHED`].
    fn reach(&mut self, what: &'static str) {
        *self.coverage.entry(what).or_default() += 1;
    }

    async fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::AdvanceClock(by) => {
                self.installation.advance(by);
                self.check_all().await
            }
            Step::Restart(process) => {
                self.processes[process] = self.installation.start();
                self.check_all().await
            }
            Step::SendAgain { process } => {
                let Some(Unacknowledged { project, events }) = self.unacknowledged.take() else {
                    return Ok(());
                };
                self.run_alone(process, project, Operation::Capture(events), Fate::Unharmed).await?;
                self.check(project).await
            }
            Step::Run { process, project, operation, fate } => {
                self.run_alone(process, project, operation, fate).await?;
                self.check(project).await
            }
            Step::RunBeside { process, project, operation, at, others } => {
                self.run_beside(process, project, operation, at, others).await?;
                self.check_all().await
            }
        }
    }

    fn acknowledge(&mut self, project: u64, operation: &Operation) {
        let events = operation.events().iter().map(|event| (project, event.clone()));
        self.plan.acknowledged.extend(events);
    }

    /// The state after an operation that had no response.
    fn leave_open(&mut self, project: u64, operation: &Operation, now: i64) {
        self.worlds.apply_some(project, &operation.effects(now));
        self.worlds.settle();
        if self.worlds.count() > 1 {
            self.reach(SEVERAL_STATES);
        }
        if let Operation::Capture(events) = operation {
            self.unacknowledged = Some(Unacknowledged { project, events: events.clone() });
        }
    }

    /// Runs an operation while no other one is open.
    async fn run_alone(
        &mut self,
        process: usize,
        project: u64,
        operation: Operation,
        fate: Fate,
    ) -> Result<(), String> {
        let now = self.installation.now();
        let Process { events, switch } = self.processes[process].clone();
        switch.set(fate);
        let running = Box::pin(run(events, project, operation.clone(), now));
        let done = match select(Box::pin(switch.halted()), running).await {
            Either::Left(((), _)) => None,
            Either::Right((done, _)) => Some(done),
        };
        let is_dead = switch.is_dead();
        switch.set(Fate::Unharmed);
        if is_dead {
            self.reach(if done.is_none() { DIED } else { LOST_CONNECTION });
            self.processes[process] = self.installation.start();
        }
        match done {
            Some(Ok(())) => {
                self.worlds.apply(project, &operation.effects(now));
                self.acknowledge(project, &operation);
            }
            Some(Err(error)) if !is_dead || is_damage(&error) => {
                return Err(format!("{operation:?}: {error}"));
            }
            Some(Err(_)) | None => self.leave_open(project, &operation, now),
        }
        Ok(())
    }

    /// Runs an operation, and `others` in the other process while it waits.
    async fn run_beside(
        &mut self,
        process: usize,
        project: u64,
        operation: Operation,
        at: u64,
        others: Vec<(u64, Operation)>,
    ) -> Result<(), String> {
        let now = self.installation.now();
        let effects = operation.effects(now);
        let mut spared = BTreeSet::new();
        let Process { events, switch } = self.processes[process].clone();
        switch.set(Fate::Waits { at });
        let running = Box::pin(run(events, project, operation.clone(), now));
        let done = match select(Box::pin(switch.halted()), running).await {
            Either::Right((done, _)) => done,
            Either::Left(((), running)) => {
                self.reach(WAITED);
                self.worlds.apply_some(project, &effects);
                for (of, other) in others {
                    if matches!(operation, Operation::Erase(_)) {
                        // Not acknowledged when the erasure began.
                        spared.extend(other.events().iter().map(|event| event.uuid));
                    }
                    self.installation.advance(PAUSE);
                    self.run_alone(1 - process, of, other, Fate::Unharmed).await?;
                    self.look(1 - process, of).await?;
                }
                switch.resume();
                running.await
            }
        };
        switch.set(Fate::Unharmed);
        match done {
            Ok(()) => {
                self.worlds.apply_rest(project, &effects, &spared);
                self.acknowledge(project, &operation);
            }
            Err(error) if is_conflict(&error) => self.leave_open(project, &operation, now),
            Err(error) => return Err(format!("{operation:?}: {error}")),
        }
        self.worlds.settle();
        Ok(())
    }

    async fn check_all(&mut self) -> Result<(), String> {
        for project in PROJECTS {
            self.check(project).await?;
        }
        Ok(())
    }

    /// Compares what both processes give with the model.
    async fn check(&mut self, project: u64) -> Result<(), String> {
        for process in 0..2 {
            self.look(process, project).await?;
        }
        if self.plan.one_in(6) {
            let processes = self.processes.clone().map(|process| process.events);
            let requested = without_arrivals(&["seen", "bought", "left"], &["k"]);
            let memory = processes[0].query_memory();
            let pinned = processes[0].pin_scan(project, &[], &requested, &memory).await;
            let pinned = pinned.map_err(|error| format!("a pinned scan: {error}"))?;
            let scan = scan_in_parts(&processes, &pinned, 3).await;
            let found = rows(&scan.map_err(|error| format!("a scan in parts: {error}"))?);
            self.keep("a scan in parts", project, &found, |model| model.rows(&requested))?;
        }
        if self.plan.one_in(8) {
            let found = queries::calculated(&self.processes[1].events, project).await;
            self.keep("queries", project, &found, queries::expected)?;
        }
        Ok(())
    }

    fn request(&mut self) -> ScanRequest {
        match self.plan.below(4) {
            0 => without_arrivals(&["seen", "bought"], &["k"]),
            1 => ScanRequest {
                from: FIRST_DAY + DAY,
                to: FIRST_DAY + 2 * DAY,
                ..without_arrivals(&["seen", "left"], &["k", "none"])
            },
            _ => request(&[], &["list"]),
        }
    }

    /// Compares what one process gives with the model: rows, and either persons or the properties of one person.
    async fn look(&mut self, process: usize, project: u64) -> Result<(), String> {
        let events = self.processes[process].events.clone();
        let requested = self.request();
        let scan = events.scan(project, &[], &requested).await;
        let found = rows(&scan.map_err(|error| format!("a scan: {error}"))?);
        self.keep("a scan", project, &found, |model| model.rows(&requested))?;
        let number = self.plan.below(IDS as u64) as usize;
        if self.plan.one_in(2) {
            let found =
                persons(&events, project, number).await.map_err(|error| format!("persons: {error}"))?;
            return self.keep("persons", project, &found, |model| {
                let persons = model.persons();
                let person = persons[number];
                (persons, person)
            });
        }
        let subject = events.subject(project, &id(number), &[], None).await;
        let found = subject.map_err(|error| format!("properties: {error}"))?.person.properties;
        self.keep("properties of a person", project, &found, |model| {
            model.properties(number).unwrap_or_else(|| found.clone())
        })
    }

    fn keep<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &str,
        project: u64,
        found: &T,
        expected: impl Fn(&Model) -> T,
    ) -> Result<(), String> {
        let kept = self.worlds.keep(project, found, expected);
        kept.map_err(|difference| format!("{what} of project {project}: {difference}"))
    }

    /// A new process compacts, merges and sweeps everything: nothing changes, nothing is damaged, and no object is left over.
    async fn end(&mut self) -> Result<(), String> {
        self.processes = [self.installation.start(), self.installation.start()];
        for project in PROJECTS {
            for operation in [Operation::CompactBlocks, Operation::MergeSegments(MergeMode::Fewest)] {
                self.run_alone(0, project, operation, Fate::Unharmed).await?;
            }
        }
        // A sweep removes what the one before left without successors.
        for _ in 0..LAST_SWEEPS {
            self.installation.advance(GRACE_MICROS + 2 * MINUTE);
            for project in PROJECTS {
                self.run_alone(0, project, Operation::Sweep, Fate::Unharmed).await?;
            }
        }
        self.check_all().await?;
        for project in PROJECTS {
            self.installation.advance(40 * DAY);
            for operation in [Operation::SweepOrphans, Operation::Check] {
                self.run_alone(0, project, operation, Fate::Unharmed).await?;
            }
        }
        self.check_all().await?;
        for project in PROJECTS {
            let events = &self.processes[1].events;
            let damage = events.damage(project).await.map_err(|error| error.to_string())?;
            let live = events.list_live_objects(project).await.map_err(|error| error.to_string())?;
            let stored = self.installation.objects_below(&format!("project={project}/"));
            let left = stored.iter().filter(|object| !live.contains(object)).collect::<Vec<_>>();
            if !damage.is_empty() || !left.is_empty() {
                return Err(format!(
                    "project {project} ends with damage {damage:?} and unlisted objects {left:?}"
                ));
            }
        }
        Ok(())
    }
}

/// The person of each distinct id, and that of one of them as a lookup gives it.
async fn persons(
    events: &EventStore,
    project: u64,
    number: usize,
) -> Result<(Vec<Uuid>, Uuid), EventStoreError> {
    let canonical = events.canonical_persons(project).await?;
    let persons = (0..IDS).map(|number| canonical.of(derive_person_id(project, &id(number)))).collect();
    Ok((persons, events.person_of(project, &id(number)).await?))
}

/// An error that no lost connection explains.
fn is_damage(error: &EventStoreError) -> bool {
    use EventStoreError::{Corrupt, Damaged, DamagedBlock, WrongInstallation};
    matches!(error, Corrupt(_) | Damaged { .. } | DamagedBlock { .. } | WrongInstallation(_))
}

/// The error of a writer that gave up because of others; the caller tries again.
fn is_conflict(error: &EventStoreError) -> bool {
    matches!(error, EventStoreError::Contended | EventStoreError::Store(StoreError::Busy(_)))
}
