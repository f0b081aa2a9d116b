//! A discrete-event simulation of the attempts at all parts of a query, by the rules of the product: at most so many at one time,
//! and a second attempt at parts that are late.
//!
//! Must stay true: the same parts and seed give the same result; each part is done once.

use super::random::SeededRandom;
use crate::cost::large_query_units::LargeQueryUnits;

/// The times of a part without spread, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PartTimes {
    /// In a function that has opened the segments.
    pub opened_ms: f64,
    /// In one that has not.
    pub first_ms: f64,
}

/// The functions and the rules of a simulation.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartRules<'a> {
    pub units: &'a LargeQueryUnits,
    /// Most attempts at one time.
    pub at_once: usize,
    /// Whether no function runs at the beginning.
    pub is_cold: bool,
    /// Whether functions have the footers of the segments after their first part.
    pub caches_segments: bool,
}

/// What a simulation gives.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SimulatedParts {
    /// From the first invocation to the last result.
    pub ms: f64,
    /// The billed time of all attempts.
    pub billed_ms: f64,
    /// All attempts.
    pub attempts: u32,
    /// Attempts that opened the segments.
    pub openings: u32,
    /// The person ranges of each attempt are those of its part: the number of attempts at each part.
    pub attempts_of: Vec<u32>,
}

/// An attempt that runs.
#[derive(Debug, Clone, Copy)]
struct RunningAttempt {
    part: usize,
    started: f64,
    ends: f64,
    /// What is billed if it runs to its end.
    billed: f64,
}

/// The state of a part.
#[derive(Debug, Clone, Copy, Default)]
struct PartState {
    /// When its first attempt began.
    started: Option<f64>,
    is_late: bool,
    is_done: bool,
}

struct Simulation<'a> {
    rules: PartRules<'a>,
    times: &'a [PartTimes],
    random: SeededRandom,
    now: f64,
    parts: Vec<PartState>,
    waiting: std::ops::Range<usize>,
    /// Parts that may still be late.
    late_parts_left: usize,
    running: Vec<RunningAttempt>,
    /// How long the parts that are done took, ascending.
    took: Vec<f64>,
    /// Functions that run and have no part.
    idle: usize,
    result: SimulatedParts,
}

/// Simulates the attempts at parts with these times.
pub(super) fn simulate(times: &[PartTimes], rules: PartRules<'_>, seed: u64) -> SimulatedParts {
    let mut simulation = Simulation {
        rules,
        times,
        random: SeededRandom::new(seed),
        now: 0.0,
        parts: vec![PartState::default(); times.len()],
        waiting: 0..times.len(),
        late_parts_left: times.len() / rules.units.product.late_share.max(1) + 1,
        running: Vec::new(),
        took: Vec::new(),
        idle: if rules.is_cold { 0 } else { rules.at_once },
        result: SimulatedParts { attempts_of: vec![0; times.len()], ..SimulatedParts::default() },
    };
    while simulation.took.len() < times.len() {
        simulation.start_attempts();
        simulation.wait_for_event();
    }
    simulation.finish()
}

impl Simulation<'_> {
    fn start_attempts(&mut self) {
        while self.running.len() < self.rules.at_once {
            let Some(part) = self.waiting.next() else { break };
            self.start(part);
        }
        let Some(late) = self.late_after() else { return };
        let running = self.running.iter().map(|attempt| attempt.part);
        let mut is_late = running.filter(|part| self.late_at(*part, late) <= self.now).collect::<Vec<_>>();
        is_late.sort_unstable();
        for part in is_late {
            if self.late_parts_left == 0 || self.running.len() >= self.rules.at_once {
                return;
            }
            self.parts[part].is_late = true;
            self.late_parts_left -= 1;
            self.start(part);
        }
    }

    /// When a part is late, if it is after so long.
    fn late_at(&self, part: usize, late: f64) -> f64 {
        let state = self.parts[part];
        state
            .started
            .filter(|_| !state.is_done && !state.is_late)
            .map_or(f64::INFINITY, |started| started + late)
    }

    fn start(&mut self, part: usize) {
        let units = self.rules.units;
        let times = self.times[part];
        let is_new = self.idle == 0;
        self.idle = self.idle.saturating_sub(1);
        let opens = is_new || !self.rules.caches_segments;
        let work =
            if opens { times.first_ms } else { times.opened_ms } * self.random.factor(units.assumed.spread);
        let (init, environment) =
            if is_new { (units.published.init_ms, units.assumed.environment_ms) } else { (0.0, 0.0) };
        let ends = self.now + units.assumed.invoke_ms + environment + init + work;
        self.running.push(RunningAttempt { part, started: self.now, ends, billed: init + work });
        self.parts[part].started.get_or_insert(self.now);
        self.result.attempts += 1;
        self.result.attempts_of[part] += 1;
        self.result.openings += u32::from(opens);
    }

    /// Twice the median of the parts that are done, once these are half of them.
    fn late_after(&self) -> Option<f64> {
        let is_known = self.parts.len() >= 2 && self.took.len() * 2 >= self.parts.len();
        let median = is_known.then(|| self.took.get(self.took.len() / 2)).flatten();
        median.map(|median| (median * 2.0).max(self.rules.units.product.late_ms))
    }

    /// Moves on to the end of an attempt, or to the time at which a part is late.
    fn wait_for_event(&mut self) {
        let ended = (0..self.running.len())
            .min_by(|one, other| self.running[*one].ends.total_cmp(&self.running[*other].ends));
        let Some(ended) = ended else { return };
        let can_start = self.running.len() < self.rules.at_once && self.late_parts_left > 0;
        let late = self.late_after().filter(|_| can_start).and_then(|late| {
            let running = self.running.iter().map(|attempt| attempt.part);
            running.map(|part| self.late_at(part, late)).min_by(f64::total_cmp)
        });
        if let Some(late) = late.filter(|late| *late < self.running[ended].ends) {
            self.now = late;
            return;
        }
        let attempt = self.running.swap_remove(ended);
        self.now = attempt.ends;
        self.idle += 1;
        self.result.billed_ms += attempt.billed;
        if !std::mem::replace(&mut self.parts[attempt.part].is_done, true) {
            let took = attempt.ends - attempt.started;
            self.took.insert(self.took.partition_point(|other| *other < took), took);
        }
    }

    /// Attempts that still run end soon after the query.
    fn finish(mut self) -> SimulatedParts {
        let lease = self.rules.units.product.lease_ms;
        for attempt in &self.running {
            let beyond = (attempt.ends - self.now - lease).max(0.0);
            self.result.billed_ms += (attempt.billed - beyond).max(0.0);
        }
        self.result.ms = self.now;
        self.result
    }
}
