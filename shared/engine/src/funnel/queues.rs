//! The scan of unordered funnels: how many different steps one actor takes within one window, whatever their order.
//!
//! Must stay true: an event serves one step, that whose last event is the oldest; what is too old leaves before an event
//! is looked at, and so does the oldest when every step has an event; an exclusion wipes what waits.

use std::collections::VecDeque;

use super::scan::{Bound, Reached, StepEvent};
use crate::error::CalcResult;
use crate::scan::Micros;
use crate::work::WorkBudget;

/// Events that wait for others, by the step that they serve.
#[derive(Debug, Clone)]
pub struct Queues {
    window: Micros,
    bound: Option<Bound>,
    steps: Vec<VecDeque<Micros>>,
    /// How many steps have an event.
    filled: usize,
}

impl Queues {
    /// For so many steps (at most 32), with a window in microseconds.
    pub fn new(steps: usize, window: Micros) -> Self {
        Self { window, bound: None, steps: vec![VecDeque::new(); steps], filled: 0 }
    }

    /// Forgets the actor before. The first event that is taken may be bound to a value.
    pub fn begin(&mut self, bound: Option<Bound>) {
        self.bound = bound;
        self.wipe();
    }

    /// How many steps have an event.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// The step with the oldest event; of equal ones the first.
    fn oldest(&self) -> Option<(usize, Micros)> {
        let heads = self.steps.iter().enumerate().filter_map(|(step, queue)| Some((step, *queue.front()?)));
        heads.min_by_key(|(_, time)| *time)
    }

    /// The oldest event, if it is too old to stay beside one of now or if every step has an event.
    pub fn leaving(&self, now: Micros) -> Option<Micros> {
        let (_, time) = self.oldest()?;
        (self.filled == self.steps.len() || time.saturating_add(self.window) < now).then_some(time)
    }

    /// Drops the oldest event and says when it was.
    pub fn drop_oldest(&mut self) -> Option<Micros> {
        let (step, time) = self.oldest()?;
        if let Some(queue) = self.steps.get_mut(step) {
            queue.pop_front();
            if queue.is_empty() {
                self.filled -= 1;
            }
        }
        Some(time)
    }

    /// Takes an event in: an exclusion wipes everything.
    pub fn put(&mut self, event: &StepEvent) {
        if event.marks.exclusions() != 0 {
            return self.wipe();
        }
        // Before the first step of an actor nothing is filled; it alone can be bound.
        if self.bound.is_some_and(|bound| self.filled == bound.step && bound.value != event.value) {
            return;
        }
        let matched = (0..self.steps.len()).filter(|step| event.marks.takes(*step));
        let Some(step) = matched.min_by_key(|step| self.steps[*step].back().copied().unwrap_or(Micros::MIN))
        else {
            return;
        };
        if self.steps[step].is_empty() {
            self.filled += 1;
        }
        self.steps[step].push_back(event.time);
    }

    fn wipe(&mut self) {
        self.steps.iter_mut().for_each(VecDeque::clear);
        self.filled = 0;
    }
}

/// Working memory of the scan for how far actors get, used for one after the other.
#[derive(Debug, Clone)]
pub struct UnorderedScanner {
    queues: Queues,
    /// The most steps that were taken within a window, and when each of them was, ascending.
    best: Vec<Micros>,
}

impl UnorderedScanner {
    /// For so many steps (at most 32), with a window in microseconds.
    pub fn new(steps: usize, window: Micros) -> Self {
        Self { queues: Queues::new(steps, window), best: Vec::with_capacity(steps) }
    }

    /// The outcome of one actor's events, in order of time and arrival.
    pub fn run<'e>(
        &mut self,
        bound: Option<Bound>,
        events: impl IntoIterator<Item = &'e StepEvent>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<Reached<'_>>> {
        self.queues.begin(bound);
        self.best.clear();
        for event in events {
            work.consume(1)?;
            while self.queues.leaving(event.time).is_some() {
                self.record();
                self.queues.drop_oldest();
            }
            self.queues.put(event);
            if self.queues.filled == self.queues.steps.len() {
                break;
            }
        }
        self.record();
        let steps = (1_u64 << self.best.len()) - 1;
        Ok((!self.best.is_empty())
            .then(|| Reached { times: &self.best, steps: u32::try_from(steps).unwrap_or(u32::MAX) }))
    }

    /// Keeps what waits now, if it is more than ever before.
    fn record(&mut self) {
        if self.queues.filled > self.best.len() {
            self.best.clear();
            self.best.extend(self.queues.steps.iter().filter_map(VecDeque::front));
            self.best.sort_unstable();
        }
    }
}
