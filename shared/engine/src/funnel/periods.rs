//! The scans of funnels over time: for each period in which an actor enters, whether it gets through from there.
//!
//! Must stay true: an actor counts once in a period; a period that converted is closed; in a period the latest start
//! replaces the earlier. Here events of one instant are taken in order of arrival. Periods whose window has passed are
//! put aside, so that the work for an event is bounded by the periods that a window covers; these may be thousands, so
//! every event is paid for by the periods that it is held against.

use std::collections::VecDeque;

use super::queues::Queues;
use super::scan::{Bound, Rules, StepEvent};
use crate::dates::buckets::Buckets;
use crate::error::CalcResult;
use crate::scan::Micros;
use crate::work::WorkBudget;

/// One period of one actor: it got to `from_step`, and it got to `to_step` or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Index of the period.
    pub period: usize,
    /// It got to `to_step`.
    pub converted: bool,
}

/// How many steps (counting from 1) make an entry and a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// Depth of an entry.
    pub from: usize,
    /// Depth of a conversion.
    pub to: usize,
}

/// How an exclusion bears on what a period has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exclusion {
    Not,
    /// One was met; without a fresh start the period is left out.
    Partial,
    /// The path went on behind it: no period of the actor counts that did not convert.
    Full,
}

/// What goes on in one period.
#[derive(Debug, Clone)]
struct Open {
    period: usize,
    /// By depth from 1: start of the path in the slot, and whether an exclusion was met on it.
    starts: Vec<Option<(Micros, bool)>>,
    depth: usize,
    /// When the step that made that depth was taken.
    time: Micros,
    exclusion: Exclusion,
    /// The latest start: past its window nothing can go on any more.
    latest: Micros,
}

/// Working memory of the scan of ordered and strict funnels, used for one actor after the other.
#[derive(Debug, Clone)]
pub struct PeriodScanner {
    rules: Rules,
    goal: Goal,
    bound: Option<Bound>,
    /// Ascending by period, and so by latest start.
    open: VecDeque<Open>,
    /// Period, depth and exclusion of those put aside.
    closed: Vec<(usize, usize, Exclusion)>,
    /// Slots to be used again.
    spare: Vec<Vec<Option<(Micros, bool)>>>,
    entries: Vec<Entry>,
    /// The period of the newest event, and whether it converted.
    current: (usize, bool),
}

impl PeriodScanner {
    /// For a funnel with these rules and no optional step.
    pub fn new(rules: Rules, goal: Goal) -> Self {
        let (closed, spare, entries) = (Vec::new(), Vec::new(), Vec::new());
        Self { rules, goal, bound: None, open: VecDeque::new(), closed, spare, entries, current: (0, false) }
    }

    /// The periods of one actor's events, which come in order of time and arrival.
    pub fn run<'e>(
        &mut self,
        bound: Option<Bound>,
        buckets: &Buckets,
        events: impl IntoIterator<Item = &'e StepEvent>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<&[Entry]> {
        self.bound = bound;
        self.spare.extend(self.open.drain(..).map(|open| open.starts));
        self.closed.clear();
        self.entries.clear();
        self.current = (0, false);
        for event in events {
            if let Some(period) = buckets.index(event.time) {
                self.event(event, period, work)?;
            }
        }
        while let Some(open) = self.open.pop_front() {
            self.put_aside(open);
        }
        if !self.closed.iter().any(|(.., exclusion)| *exclusion == Exclusion::Full) {
            for (period, depth, exclusion) in &self.closed {
                if *depth >= self.goal.from && *exclusion != Exclusion::Partial {
                    self.entries.push(Entry { period: *period, converted: false });
                }
            }
        }
        Ok(&self.entries)
    }

    fn event(&mut self, event: &StepEvent, period: usize, work: &WorkBudget<'_>) -> CalcResult<()> {
        if self.current.0 != period {
            self.current = (period, false);
        }
        while let Some(open) = self.open.front()
            && open.period < period
            && event.time - open.latest > self.rules.window
            && let Some(open) = self.open.pop_front()
        {
            self.put_aside(open);
        }
        work.consume(1 + self.open.len() * self.rules.work(event.marks))?;
        let mut gaps = event.marks.exclusions();
        while gaps != 0 {
            let gap = gaps.trailing_zeros() as usize;
            gaps &= gaps - 1;
            for open in &mut self.open {
                open.exclude(event.time, gap, self.rules.window);
            }
        }
        for step in (0..self.rules.steps).rev().filter(|step| event.marks.takes(*step)) {
            if self.bound.is_some_and(|bound| bound.step == step && bound.value != event.value) {
                continue;
            }
            if step == 0 {
                self.enter(event.time, period);
            } else {
                self.extend(event.time, step + 1);
            }
        }
        if self.rules.strict {
            for open in &mut self.open {
                for step in (0..self.rules.steps).filter(|step| !event.marks.takes(*step)) {
                    open.starts[step + 1] = None;
                }
            }
        }
        Ok(())
    }

    fn put_aside(&mut self, open: Open) {
        self.closed.push((open.period, open.depth, open.exclusion));
        self.spare.push(open.starts);
    }

    /// A first step in a period.
    fn enter(&mut self, time: Micros, period: usize) {
        if self.current.1 {
            return;
        }
        if self.goal.to == 1 {
            self.current.1 = true;
            return self.entries.push(Entry { period, converted: true });
        }
        match self.open.back_mut().filter(|open| open.period == period) {
            Some(open) => {
                if open.depth == 1 && open.exclusion != Exclusion::Not {
                    open.starts.fill(None);
                    (open.time, open.exclusion) = (time, Exclusion::Not);
                }
                open.starts[1] = Some((time, false));
                open.latest = time;
            }
            None => {
                let mut starts = self.spare.pop().unwrap_or_default();
                starts.clear();
                starts.resize(self.rules.steps + 1, None);
                starts[1] = Some((time, false));
                let exclusion = Exclusion::Not;
                self.open.push_back(Open { period, starts, depth: 1, time, exclusion, latest: time });
            }
        }
    }

    /// An event that may make paths `depth` steps long, in every period.
    fn extend(&mut self, time: Micros, depth: usize) {
        let mut index = 0;
        while let Some(open) = self.open.get_mut(index) {
            if open.extend(time, depth, self.rules.window, self.goal.to) {
                self.current.1 |= open.period == self.current.0;
                self.entries.push(Entry { period: open.period, converted: true });
                if let Some(open) = self.open.remove(index) {
                    self.spare.push(open.starts);
                }
            } else {
                index += 1;
            }
        }
    }
}

impl Open {
    /// The path that may be extended to a depth: its start and whether it met an exclusion.
    fn path(&self, time: Micros, depth: usize, window: Micros) -> Option<(Micros, bool)> {
        let (start, tainted) = self.starts[depth - 1]?;
        let reached = self.starts[depth].is_some_and(|(other, _)| other == start);
        (time - start <= window && !reached).then_some((start, tainted))
    }

    /// An exclusion in the gap after `depth` steps.
    fn exclude(&mut self, time: Micros, depth: usize, window: Micros) {
        if let Some((start, false)) = self.path(time, depth + 1, window) {
            self.starts[depth] = Some((start, true));
            if self.depth == depth && time - self.time <= window {
                self.exclusion = Exclusion::Partial;
            }
        }
    }

    /// True when the period converted.
    fn extend(&mut self, time: Micros, depth: usize, window: Micros, goal: usize) -> bool {
        let Some((start, tainted)) = self.path(time, depth, window) else { return false };
        if !tainted {
            self.starts[depth] = Some((start, false));
        }
        if self.starts[goal].is_some() {
            return true;
        }
        if depth > self.depth || (depth == self.depth && self.exclusion == Exclusion::Partial) {
            (self.depth, self.time) = (depth, time);
            self.exclusion = if tainted { Exclusion::Full } else { Exclusion::Not };
        }
        false
    }
}

/// Working memory of the scan of unordered funnels, used for one actor after the other.
#[derive(Debug, Clone)]
pub struct UnorderedPeriodScanner {
    queues: Queues,
    goal: Goal,
    /// Period and the most steps within a window from one of its events, ascending.
    depths: Vec<(usize, usize)>,
    entries: Vec<Entry>,
}

impl UnorderedPeriodScanner {
    /// For a funnel with these rules.
    pub fn new(rules: Rules, goal: Goal) -> Self {
        let queues = Queues::new(rules.steps, rules.window);
        Self { queues, goal, depths: Vec::new(), entries: Vec::new() }
    }

    /// The periods of one actor's events, which come in order of time and arrival.
    pub fn run<'e>(
        &mut self,
        bound: Option<Bound>,
        buckets: &Buckets,
        events: impl IntoIterator<Item = &'e StepEvent>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<&[Entry]> {
        self.queues.begin(bound);
        self.depths.clear();
        self.entries.clear();
        for event in events {
            work.consume(1)?;
            while self.queues.leaving(event.time).is_some() {
                self.drop_oldest(buckets);
            }
            self.queues.put(event);
        }
        while self.queues.filled() > 0 {
            self.drop_oldest(buckets);
        }
        for (period, depth) in &self.depths {
            if *depth >= self.goal.from {
                self.entries.push(Entry { period: *period, converted: *depth >= self.goal.to });
            }
        }
        Ok(&self.entries)
    }

    /// What waits counts for the period of the oldest of it, which leaves.
    fn drop_oldest(&mut self, buckets: &Buckets) {
        let depth = self.queues.filled();
        let Some(period) = self.queues.drop_oldest().and_then(|time| buckets.index(time)) else { return };
        // The oldest leave in order of time, so that equal periods are neighbours.
        match self.depths.last_mut() {
            Some((last, most)) if *last == period => *most = depth.max(*most),
            _ => self.depths.push((period, depth)),
        }
    }
}
