//! The scanner of ordered and strict funnels: finds the deepest path of one actor in one pass over its events.
//!
//! A *path* is a sequence of events that match the first steps; its *depth* is the number of these steps. Must stay true:
//! slot `k` holds the path of depth `k` with the latest start, and of those the first found. The conversion window runs
//! from the path's first event and includes its end. The first conversion ends the scan. Events at the same instant are
//! processed together: if they match different steps, steps are tried in order and no event is used twice on a path. In
//! strict order an event ends all paths except those that it extends or repeats.

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use crate::scan::Micros;

/// An event of one actor that matches something in the funnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepEvent {
    /// When it happened.
    pub time: Micros,
    /// The steps and exclusions that it matches.
    pub matches: MatchBits,
    /// Code of its breakdown value; 0 without a breakdown.
    pub value: u32,
}

/// The steps and exclusions that an event matches, as a bit set. Bit `i` of the low half: step `i`, counted from 0. Bit `i`
/// of the high half: an exclusion for the gap before step `i`. There is no gap before the first step; its bit marks an event
/// that matters even if it matches nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MatchBits(u64);

impl MatchBits {
    /// The event matches a step.
    pub fn step(index: usize) -> Self {
        Self(1 << index)
    }

    /// The event is excluded after `from_step` and up to `to_step`.
    pub fn exclusion(from_step: usize, to_step: usize) -> Self {
        Self((from_step + 1..=to_step).fold(0, |bits, gap| bits | 1 << (32 + gap)))
    }

    /// The event matters by occurring, as all events do in strict order.
    pub fn any_event() -> Self {
        Self(1 << 32)
    }

    /// The union of both sets.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the event matches nothing.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the event matches the step.
    pub fn has_step(self, step: usize) -> bool {
        self.steps() >> step & 1 != 0
    }

    /// One bit per matched step.
    pub fn steps(self) -> u32 {
        (self.0 & u64::from(u32::MAX)) as u32
    }

    /// One bit per gap that the event is excluded from, by the index of the step after the gap.
    pub fn exclusions(self) -> u32 {
        (self.0 >> 32) as u32 & !1
    }
}

/// The conditions for paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunnelRules {
    /// Number of steps, at most 32.
    pub steps: usize,
    /// Conversion window in microseconds, from the first step to the last.
    pub window: Micros,
    /// No other event may occur between steps.
    pub strict: bool,
    /// One bit per optional step; never the first.
    pub optional: u32,
}

impl FunnelRules {
    /// Whether the step is optional.
    pub fn is_optional(self, step: usize) -> bool {
        self.optional >> step & 1 != 0
    }

    /// Number of slots that an event is compared with.
    pub fn comparisons(self, matches: MatchBits) -> usize {
        let matched = matches.steps().count_ones() + matches.exclusions().count_ones();
        matched as usize + if self.strict { self.steps } else { 0 }
    }
}

/// Restricts a step to events with a breakdown value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequiredValue {
    /// The step.
    pub step: usize,
    /// Code of the value.
    pub value: u32,
}

/// The best path of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BestPath<'a> {
    /// The times of its required steps, at least one.
    pub times: &'a [Micros],
    /// One bit per reached step.
    pub steps: u32,
}

/// The scanner's state, reused for one actor after the other.
#[derive(Debug, Clone)]
pub struct FunnelScanner {
    rules: FunnelRules,
    required_value: Option<RequiredValue>,
    /// By depth: the number of required steps up to it.
    ranks: Vec<usize>,
    /// By depth: the start of the path in the slot.
    starts: Vec<Option<Micros>>,
    /// By depth: whether the path has an excluded event.
    excluded: Vec<bool>,
    /// By depth: one bit per reached step.
    reached_steps: Vec<u32>,
    /// By depth and required step: the time and the number of the event.
    times: Vec<Micros>,
    events: Vec<usize>,
    /// Number of events processed so far, of all actors. Events are identified by their number.
    event_count: usize,
    best: BestSoFar,
}

#[derive(Debug, Clone, Default)]
struct BestSoFar {
    depth: usize,
    start: Micros,
    excluded: bool,
    steps: u32,
    times: Vec<Micros>,
}

impl FunnelScanner {
    /// Creates a scanner.
    pub fn new(rules: FunnelRules) -> Self {
        let steps = rules.steps;
        let cells = (steps + 1) * steps;
        let required = |depth| (0..depth).filter(|step| !rules.is_optional(*step)).count();
        Self {
            rules,
            required_value: None,
            ranks: (0..=steps).map(required).collect(),
            starts: vec![None; steps + 1],
            excluded: vec![false; steps + 1],
            reached_steps: vec![0; steps + 1],
            times: vec![0; cells],
            events: vec![0; cells],
            event_count: 0,
            best: BestSoFar { times: vec![0; steps], ..BestSoFar::default() },
        }
    }

    /// Starts the next actor, optionally restricting a step to a breakdown value.
    pub fn begin(&mut self, required_value: Option<RequiredValue>) {
        self.starts.fill(None);
        self.best.depth = 0;
        self.best.excluded = false;
        self.required_value = required_value;
    }

    /// Finds the best path of an actor. `events` are all its events, sorted by time and arrival.
    pub fn run(
        &mut self,
        required_value: Option<RequiredValue>,
        events: &[StepEvent],
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<BestPath<'_>>> {
        self.begin(required_value);
        let mut instants = events.chunk_by(|one, next| one.time == next.time);
        while !self.has_converted()
            && let Some(instant) = instants.next()
        {
            work.consume(instant.len())?;
            self.process_instant(instant);
        }
        Ok(self.best_path())
    }

    /// Whether a path converted. Later events do not change the outcome.
    pub fn has_converted(&self) -> bool {
        self.starts[self.rules.steps].is_some()
    }

    /// The best path. `None` if the first step was never reached, or if the best path is excluded.
    pub fn best_path(&self) -> Option<BestPath<'_>> {
        let best = &self.best;
        let times = &best.times[..self.ranks[best.depth]];
        (best.depth > 0 && !best.excluded).then_some(BestPath { times, steps: best.steps })
    }

    /// Processes the events of one instant, in order of arrival. Instants must ascend.
    pub fn process_instant(&mut self, instant: &[StepEvent]) {
        let Some(StepEvent { time, matches, .. }) = instant.first().copied() else { return };
        self.starts[0] = Some(time);
        self.excluded[0] = false;
        let first = self.event_count;
        self.event_count += instant.len();
        if instant.iter().all(|event| event.matches == matches) {
            for (index, event) in (first..).zip(instant) {
                self.process_event(index, event);
            }
        } else {
            for depth in 1..=self.rules.steps {
                for (index, event) in (first..).zip(instant) {
                    if event.matches.has_step(depth - 1) {
                        self.try_step(index, event, depth, true);
                    }
                }
            }
        }
    }

    /// Processes a single event: exclusions first, then its steps from last to first, so it is used for one step only.
    fn process_event(&mut self, index: usize, event: &StepEvent) {
        let mut gaps = event.matches.exclusions();
        while gaps != 0 {
            let gap = gaps.trailing_zeros() as usize;
            gaps &= gaps - 1;
            self.apply_exclusion(event.time, gap);
        }
        let mut steps = event.matches.steps();
        while steps != 0 {
            let last = 31 - steps.leading_zeros();
            steps ^= 1 << last;
            self.try_step(index, event, last as usize + 1, false);
        }
        if self.rules.strict {
            for step in 0..self.rules.steps {
                if !event.matches.has_step(step) {
                    self.starts[step + 1] = None;
                }
            }
        }
    }

    /// The depth and start of the path that can be extended to `depth`. Optional steps without an open path are skipped. `None`
    /// if the path is outside the window or was extended to `depth` before.
    fn open_path(&self, time: Micros, depth: usize) -> Option<(usize, Micros)> {
        let mut before = depth - 1;
        let start = loop {
            match self.starts[before] {
                Some(start) if time - start <= self.rules.window => break start,
                _ if before > 0 && self.rules.is_optional(before - 1) => before -= 1,
                _ => return None,
            }
        };
        (self.starts[depth] != Some(start)).then_some((before, start))
    }

    /// Applies an exclusion to the path of `depth` steps.
    fn apply_exclusion(&mut self, time: Micros, depth: usize) {
        let Some((depth, _)) = self.open_path(time, depth + 1) else { return };
        if depth == 0 || self.excluded[depth] {
            return;
        }
        self.excluded[depth] = true;
        if self.best.depth == depth && time - self.best.start <= self.rules.window {
            self.best.excluded = true;
        }
    }

    /// Tries to extend a path to `depth` with an event. With `once`, an event that is on the path already is not used again.
    fn try_step(&mut self, index: usize, event: &StepEvent, depth: usize, once: bool) {
        let time = event.time;
        let Some((before, start)) = self.open_path(time, depth) else { return };
        if self.required_value.is_some_and(|required_value| {
            required_value.step == before && required_value.value != event.value
        }) {
            return;
        }
        let (path, length) = (before * self.rules.steps, self.ranks[before]);
        if once && self.events[path..path + length].contains(&index) {
            return;
        }
        let timed = !self.rules.is_optional(depth - 1);
        let steps = if before == 0 { 0 } else { self.reached_steps[before] } | 1 << (depth - 1);
        let excluded = self.excluded[before];
        if !excluded {
            let slot = depth * self.rules.steps;
            self.times.copy_within(path..path + length, slot);
            // Only needed within an instant with several different events.
            if once {
                self.events.copy_within(path..path + length, slot);
            }
            if timed {
                self.times[slot + length] = time;
                self.events[slot + length] = index;
            }
            self.starts[depth] = Some(start);
            self.reached_steps[depth] = steps;
            self.excluded[depth] = false;
        }
        let best = &mut self.best;
        if depth > best.depth || (depth == best.depth && best.excluded) {
            best.times[..length].copy_from_slice(&self.times[path..path + length]);
            if timed {
                best.times[length] = time;
            }
            best.depth = depth;
            best.start = start;
            best.steps = steps;
            best.excluded = excluded;
        }
    }
}
