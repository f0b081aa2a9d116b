//! The scanner of unordered funnels: finds how many different steps an actor reaches within one conversion window.
//!
//! Must stay true: an event is used for one step, the one whose last event is the oldest. Before an event is added, events
//! outside the window are removed, and also the oldest one if every step has an event. An exclusion removes all events.

use std::collections::VecDeque;

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::scan::{BestPath, RequiredValue, StepEvent};
use crate::scan::Micros;

/// A sliding window of events, with a queue per step.
#[derive(Debug, Clone)]
pub struct StepQueues {
    window: Micros,
    required_value: Option<RequiredValue>,
    steps: Vec<VecDeque<Micros>>,
    /// Number of steps with an event.
    filled_steps: usize,
}

impl StepQueues {
    /// Creates a scanner for at most 32 steps, with a window in microseconds.
    pub fn new(steps: usize, window: Micros) -> Self {
        Self { window, required_value: None, steps: vec![VecDeque::new(); steps], filled_steps: 0 }
    }

    /// Starts the next actor, optionally restricting the first event to a breakdown value.
    pub fn begin(&mut self, required_value: Option<RequiredValue>) {
        self.required_value = required_value;
        self.clear();
    }

    /// Number of steps with an event.
    pub fn filled_steps(&self) -> usize {
        self.filled_steps
    }

    /// The step with the oldest event; on a tie the first step.
    fn oldest(&self) -> Option<(usize, Micros)> {
        let heads = self.steps.iter().enumerate().filter_map(|(step, queue)| Some((step, *queue.front()?)));
        heads.min_by_key(|(_, time)| *time)
    }

    /// The time of the oldest event, if it must be removed before an event at `now` is added: it is outside the window, or
    /// every step has an event.
    pub fn oldest_to_remove(&self, now: Micros) -> Option<Micros> {
        let (_, time) = self.oldest()?;
        (self.filled_steps == self.steps.len() || time.saturating_add(self.window) < now).then_some(time)
    }

    /// Removes the oldest event and returns its time.
    pub fn remove_oldest(&mut self) -> Option<Micros> {
        let (step, time) = self.oldest()?;
        if let Some(queue) = self.steps.get_mut(step) {
            queue.pop_front();
            if queue.is_empty() {
                self.filled_steps -= 1;
            }
        }
        Some(time)
    }

    /// Adds an event. An exclusion removes all events.
    pub fn push(&mut self, event: &StepEvent) {
        if event.matches.exclusions() != 0 {
            return self.clear();
        }
        // Only the first event can be restricted to a value: it is added while no step has an event.
        if self.required_value.is_some_and(|required_value| {
            self.filled_steps == required_value.step && required_value.value != event.value
        }) {
            return;
        }
        let matched_steps = (0..self.steps.len()).filter(|step| event.matches.has_step(*step));
        let Some(step) =
            matched_steps.min_by_key(|step| self.steps[*step].back().copied().unwrap_or(Micros::MIN))
        else {
            return;
        };
        if self.steps[step].is_empty() {
            self.filled_steps += 1;
        }
        self.steps[step].push_back(event.time);
    }

    fn clear(&mut self) {
        self.steps.iter_mut().for_each(VecDeque::clear);
        self.filled_steps = 0;
    }
}

/// The scanner's state, reused for one actor after the other.
#[derive(Debug, Clone)]
pub struct UnorderedScanner {
    queues: StepQueues,
    /// The times of the most steps reached within a window, ascending.
    best: Vec<Micros>,
}

impl UnorderedScanner {
    /// Creates a scanner for at most 32 steps, with a window in microseconds.
    pub fn new(steps: usize, window: Micros) -> Self {
        Self { queues: StepQueues::new(steps, window), best: Vec::with_capacity(steps) }
    }

    /// Finds the best path of an actor. `events` are sorted by time and arrival.
    pub fn run<'e>(
        &mut self,
        required_value: Option<RequiredValue>,
        events: impl IntoIterator<Item = &'e StepEvent>,
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<BestPath<'_>>> {
        self.queues.begin(required_value);
        self.best.clear();
        for event in events {
            work.consume(1)?;
            while self.queues.oldest_to_remove(event.time).is_some() {
                self.record_best();
                self.queues.remove_oldest();
            }
            self.queues.push(event);
            if self.queues.filled_steps == self.queues.steps.len() {
                break;
            }
        }
        self.record_best();
        let steps = (1_u64 << self.best.len()) - 1;
        Ok((!self.best.is_empty())
            .then(|| BestPath { times: &self.best, steps: u32::try_from(steps).unwrap_or(u32::MAX) }))
    }

    /// Stores the current steps as the best path if there are more of them.
    fn record_best(&mut self) {
        if self.queues.filled_steps > self.best.len() {
            self.best.clear();
            self.best.extend(self.queues.steps.iter().filter_map(VecDeque::front));
            self.best.sort_unstable();
        }
    }
}
