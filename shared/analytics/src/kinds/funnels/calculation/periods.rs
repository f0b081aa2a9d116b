//! The scanners of funnels over time: for each period in which an actor enters, whether it converts from there.
//!
//! Must stay true: an actor counts once per period; a converted period is closed; within a period the latest start replaces
//! an earlier one. Unlike in [`super::scan`], events of one instant are processed in order of arrival. Periods whose window
//! has passed are closed, so an event is compared only with the periods that a window covers. These can be thousands,
//! so each event consumes work for every open period.

use std::collections::VecDeque;

use pennon_filters::dates::buckets::Buckets;
use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::scan::{FunnelRules, RequiredValue, StepEvent};
use super::unordered::StepQueues;
use crate::scan::Micros;

/// An actor's entry in a period: it reached `from_step`, and converted if it reached `to_step`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeriodEntry {
    /// Index of the period.
    pub period: usize,
    /// It reached `to_step`.
    pub converted: bool,
}

/// The number of steps that make an entry and a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversionDepths {
    /// Depth of an entry.
    pub from: usize,
    /// Depth of a conversion.
    pub to: usize,
}

/// Whether an exclusion affects the best path of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExclusionState {
    /// No exclusion.
    None,
    /// The path has an excluded event; the period is dropped unless there is a fresh start.
    Partial,
    /// The path continued after the excluded event: all periods of the actor that did not convert are dropped.
    Full,
}

/// A period whose window has not passed yet.
#[derive(Debug, Clone)]
struct OpenPeriod {
    period: usize,
    /// By depth from 1: the start of the path in the slot, and whether it has an excluded event.
    starts: Vec<Option<(Micros, bool)>>,
    depth: usize,
    /// When the path reached `depth`.
    time: Micros,
    exclusion: ExclusionState,
    /// The latest start; no path can be extended after its window.
    latest: Micros,
}

/// The scanner's state for ordered and strict funnels, reused for one actor after the other.
#[derive(Debug, Clone)]
pub struct PeriodScanner {
    rules: FunnelRules,
    depths: ConversionDepths,
    required_value: Option<RequiredValue>,
    /// Sorted by period, and so by latest start.
    open: VecDeque<OpenPeriod>,
    /// Period, depth and exclusion state of closed periods.
    closed: Vec<(usize, usize, ExclusionState)>,
    /// Slot buffers to reuse.
    spare: Vec<Vec<Option<(Micros, bool)>>>,
    entries: Vec<PeriodEntry>,
    /// The period of the latest event, and whether it converted.
    current: (usize, bool),
}

impl PeriodScanner {
    /// Creates a scanner. The funnel must not have optional steps.
    pub fn new(rules: FunnelRules, depths: ConversionDepths) -> Self {
        let (closed, spare, entries) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            rules,
            depths,
            required_value: None,
            open: VecDeque::new(),
            closed,
            spare,
            entries,
            current: (0, false),
        }
    }

    /// Finds the entries of an actor. `events` are sorted by time and arrival.
    pub fn run<'e>(
        &mut self,
        required_value: Option<RequiredValue>,
        buckets: &Buckets,
        events: impl IntoIterator<Item = &'e StepEvent>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<&[PeriodEntry]> {
        self.required_value = required_value;
        self.spare.extend(self.open.drain(..).map(|open| open.starts));
        self.closed.clear();
        self.entries.clear();
        self.current = (0, false);
        for event in events {
            if let Some(period) = buckets.index(event.time) {
                self.process_event(event, period, work)?;
            }
        }
        while let Some(open) = self.open.pop_front() {
            self.close(open);
        }
        if !self.closed.iter().any(|(.., exclusion)| *exclusion == ExclusionState::Full) {
            for (period, depth, exclusion) in &self.closed {
                if *depth >= self.depths.from && *exclusion != ExclusionState::Partial {
                    self.entries.push(PeriodEntry { period: *period, converted: false });
                }
            }
        }
        Ok(&self.entries)
    }

    fn process_event(&mut self, event: &StepEvent, period: usize, work: &WorkBudget<'_>) -> CalcResult<()> {
        if self.current.0 != period {
            self.current = (period, false);
        }
        while let Some(open) = self.open.front()
            && open.period < period
            && event.time - open.latest > self.rules.window
            && let Some(open) = self.open.pop_front()
        {
            self.close(open);
        }
        work.consume(1 + self.open.len() * self.rules.comparisons(event.matches))?;
        let mut gaps = event.matches.exclusions();
        while gaps != 0 {
            let gap = gaps.trailing_zeros() as usize;
            gaps &= gaps - 1;
            for open in &mut self.open {
                open.apply_exclusion(event.time, gap, self.rules.window);
            }
        }
        for step in (0..self.rules.steps).rev().filter(|step| event.matches.has_step(*step)) {
            if self.required_value.is_some_and(|required_value| {
                required_value.step == step && required_value.value != event.value
            }) {
                continue;
            }
            if step == 0 {
                self.process_first_step(event.time, period);
            } else {
                self.extend(event.time, step + 1);
            }
        }
        if self.rules.strict {
            for open in &mut self.open {
                for step in (0..self.rules.steps).filter(|step| !event.matches.has_step(*step)) {
                    open.starts[step + 1] = None;
                }
            }
        }
        Ok(())
    }

    fn close(&mut self, open: OpenPeriod) {
        self.closed.push((open.period, open.depth, open.exclusion));
        self.spare.push(open.starts);
    }

    /// Processes an event of the first step.
    fn process_first_step(&mut self, time: Micros, period: usize) {
        if self.current.1 {
            return;
        }
        if self.depths.to == 1 {
            self.current.1 = true;
            return self.entries.push(PeriodEntry { period, converted: true });
        }
        match self.open.back_mut().filter(|open| open.period == period) {
            Some(open) => {
                if open.depth == 1 && open.exclusion != ExclusionState::None {
                    open.starts.fill(None);
                    (open.time, open.exclusion) = (time, ExclusionState::None);
                }
                open.starts[1] = Some((time, false));
                open.latest = time;
            }
            None => {
                let mut starts = self.spare.pop().unwrap_or_default();
                starts.clear();
                starts.resize(self.rules.steps + 1, None);
                starts[1] = Some((time, false));
                let exclusion = ExclusionState::None;
                self.open.push_back(OpenPeriod { period, starts, depth: 1, time, exclusion, latest: time });
            }
        }
    }

    /// Tries to extend the path of every open period to `depth`.
    fn extend(&mut self, time: Micros, depth: usize) {
        let mut index = 0;
        while let Some(open) = self.open.get_mut(index) {
            if open.extend(time, depth, self.rules.window, self.depths.to) {
                self.current.1 |= open.period == self.current.0;
                self.entries.push(PeriodEntry { period: open.period, converted: true });
                if let Some(open) = self.open.remove(index) {
                    self.spare.push(open.starts);
                }
            } else {
                index += 1;
            }
        }
    }
}

impl OpenPeriod {
    /// The path that can be extended to `depth`: its start, and whether it has an excluded event.
    fn path(&self, time: Micros, depth: usize, window: Micros) -> Option<(Micros, bool)> {
        let (start, excluded) = self.starts[depth - 1]?;
        let reached = self.starts[depth].is_some_and(|(other, _)| other == start);
        (time - start <= window && !reached).then_some((start, excluded))
    }

    /// Applies an exclusion to the path of `depth` steps.
    fn apply_exclusion(&mut self, time: Micros, depth: usize, window: Micros) {
        if let Some((start, false)) = self.path(time, depth + 1, window) {
            self.starts[depth] = Some((start, true));
            if self.depth == depth && time - self.time <= window {
                self.exclusion = ExclusionState::Partial;
            }
        }
    }

    /// Tries to extend the path to `depth`. Returns whether the period converted.
    fn extend(&mut self, time: Micros, depth: usize, window: Micros, depths: usize) -> bool {
        let Some((start, excluded)) = self.path(time, depth, window) else { return false };
        if !excluded {
            self.starts[depth] = Some((start, false));
        }
        if self.starts[depths].is_some() {
            return true;
        }
        if depth > self.depth || (depth == self.depth && self.exclusion == ExclusionState::Partial) {
            (self.depth, self.time) = (depth, time);
            self.exclusion = if excluded { ExclusionState::Full } else { ExclusionState::None };
        }
        false
    }
}

/// The scanner's state for unordered funnels, reused for one actor after the other.
#[derive(Debug, Clone)]
pub struct UnorderedPeriodScanner {
    queues: StepQueues,
    depths: ConversionDepths,
    /// Period and the most steps within a window that starts in it, sorted by period.
    period_depths: Vec<(usize, usize)>,
    entries: Vec<PeriodEntry>,
}

impl UnorderedPeriodScanner {
    /// Creates a scanner.
    pub fn new(rules: FunnelRules, depths: ConversionDepths) -> Self {
        let queues = StepQueues::new(rules.steps, rules.window);
        Self { queues, depths, period_depths: Vec::new(), entries: Vec::new() }
    }

    /// Finds the entries of an actor. `events` are sorted by time and arrival.
    pub fn run<'e>(
        &mut self,
        required_value: Option<RequiredValue>,
        buckets: &Buckets,
        events: impl IntoIterator<Item = &'e StepEvent>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<&[PeriodEntry]> {
        self.queues.begin(required_value);
        self.period_depths.clear();
        self.entries.clear();
        for event in events {
            work.consume(1)?;
            while self.queues.oldest_to_remove(event.time).is_some() {
                self.remove_oldest(buckets);
            }
            self.queues.push(event);
        }
        while self.queues.filled_steps() > 0 {
            self.remove_oldest(buckets);
        }
        for (period, depth) in &self.period_depths {
            if *depth >= self.depths.from {
                self.entries.push(PeriodEntry { period: *period, converted: *depth >= self.depths.to });
            }
        }
        Ok(&self.entries)
    }

    /// Records the current depth for the period of the oldest event, and removes that event.
    fn remove_oldest(&mut self, buckets: &Buckets) {
        let depth = self.queues.filled_steps();
        let Some(period) = self.queues.remove_oldest().and_then(|time| buckets.index(time)) else { return };
        // Events are removed in order of time, so equal periods are adjacent.
        match self.period_depths.last_mut() {
            Some((last, most)) if *last == period => *most = depth.max(*most),
            _ => self.period_depths.push((period, depth)),
        }
    }
}
