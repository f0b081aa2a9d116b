//! The scanner for step attribution: evaluates all breakdown values of an actor in one pass over its events.
//!
//! Must stay true: the outcome of each value equals that of [`super::scan::FunnelScanner`] restricted to it. Up to the
//! attributed step all values share their slots. After it, a slot changes only when the slot before it has a new start.
//! So each depth lists the paths that were not extended yet; each start is extended at most once per depth, no matter how
//! many events and values there are. Does not support optional steps, nor exclusions in strict order: there a start can be
//! extended again.

use pennon_filters::error::CalcResult;
use pennon_filters::work_budget::WorkBudget;

use super::breakdown::ValuePass;
use super::scan::{BestPath, FunnelRules, StepEvent};
use crate::scan::Micros;

/// Start of an empty slot.
const NONE: Micros = Micros::MIN;
/// The predecessor of a path's first node.
const ROOT: usize = usize::MAX;

/// An event on a path, linked to its predecessor, so paths share common beginnings.
#[derive(Debug, Clone, Copy)]
struct Node {
    time: Micros,
    event: usize,
    before: usize,
}

/// The path of some depth with the latest start.
#[derive(Debug, Clone, Copy)]
struct Slot {
    start: Micros,
    node: usize,
    /// The path has an excluded event.
    excluded: bool,
    /// The slot counts as empty if its depth was cleared after this epoch.
    epoch: u32,
}

const EMPTY: Slot = Slot { start: NONE, node: ROOT, excluded: false, epoch: 0 };

impl Slot {
    /// Whether the slot has a path that can still be extended.
    fn is_open(&self, time: Micros, window: Micros) -> bool {
        self.start != NONE && time - self.start <= window
    }
}

/// The best path so far.
#[derive(Debug, Clone, Copy)]
struct BestSoFar {
    depth: usize,
    start: Micros,
    node: usize,
    excluded: bool,
}

const NO_PATH: BestSoFar = BestSoFar { depth: 0, start: NONE, node: ROOT, excluded: false };

impl BestSoFar {
    /// Replaces the best path by a better one.
    fn offer(&mut self, other: Self) {
        if other.depth > self.depth || (other.depth == self.depth && self.excluded) {
            *self = other;
        }
    }

    /// Applies an exclusion to the path of `depth` steps.
    fn mark_excluded(&mut self, time: Micros, depth: usize, window: Micros) {
        if self.depth == depth && time - self.start <= window {
            self.excluded = true;
        }
    }
}

/// A path after the attributed step that was not extended to the next depth yet.
#[derive(Debug, Clone, Copy)]
struct OpenPath {
    /// Index of the value.
    value: usize,
    /// The entry is outdated if the slot has another start.
    start: Micros,
}

/// The state of one value after the attributed step.
#[derive(Debug, Clone, Copy)]
struct ValueState {
    best: BestSoFar,
    /// The last step was reached; later events do not change the outcome.
    has_converted: bool,
}

/// The open paths of one depth.
#[derive(Debug, Default)]
struct OpenDepth {
    epoch: u32,
    open: Vec<OpenPath>,
    excluded: Vec<OpenPath>,
    /// In strict order: all paths that reached the depth since it was cleared.
    reached: Vec<OpenPath>,
}

impl OpenDepth {
    fn clear(&mut self) {
        self.epoch += 1;
        self.open.clear();
        self.excluded.clear();
        self.reached.clear();
    }
}

/// The scanner's state, reused for one actor after the other.
#[derive(Debug)]
pub(super) struct StepValueScanner {
    rules: FunnelRules,
    /// The attributed step.
    attributed_step: usize,
    nodes: Vec<Node>,
    /// By depth, up to the attributed step.
    shared: Vec<Slot>,
    shared_best: BestSoFar,
    /// The codes of the values, ascending.
    values: Vec<u32>,
    states: Vec<ValueState>,
    unconverted: usize,
    /// By value and depth after the attributed step.
    slots: Vec<Slot>,
    /// By depth after the attributed step.
    depths: Vec<OpenDepth>,
    /// Buffer to reuse.
    buffer: Vec<OpenPath>,
    times: Vec<Micros>,
}

impl StepValueScanner {
    /// Creates a scanner; `None` if the funnel is not supported. `has_exclusions`: the funnel has exclusions.
    pub(super) fn new(rules: FunnelRules, step: usize, has_exclusions: bool) -> Option<Self> {
        if step >= rules.steps || rules.optional != 0 || (rules.strict && has_exclusions) {
            return None;
        }
        let mut depths = Vec::new();
        depths.resize_with(rules.steps - step, OpenDepth::default);
        Some(Self {
            rules,
            attributed_step: step,
            nodes: Vec::new(),
            shared: vec![EMPTY; step + 1],
            shared_best: NO_PATH,
            values: Vec::new(),
            states: Vec::new(),
            unconverted: 0,
            slots: Vec::new(),
            depths,
            buffer: Vec::new(),
            times: Vec::new(),
        })
    }

    /// Calls back with each value of the passes, ascending, and the actor's best path for it. Events must be sorted by time
    /// and arrival.
    pub(super) fn run(
        &mut self,
        passes: &[ValuePass],
        events: &[StepEvent],
        work: &WorkBudget<'_>,
        mut callback: impl FnMut(u32, Option<BestPath<'_>>),
    ) -> CalcResult<()> {
        self.begin(passes, work)?;
        let mut first = 0;
        for instant in events.chunk_by(|one, next| one.time == next.time) {
            if self.unconverted == 0 {
                break;
            }
            self.process_instant(first, instant, work)?;
            first += instant.len();
        }
        for (value, state) in self.values.iter().zip(&self.states) {
            let best = if state.best.depth > 0 { state.best } else { self.shared_best };
            work.consume(1 + best.depth)?;
            if best.depth == 0 || best.excluded {
                callback(*value, None);
                continue;
            }
            self.times.clear();
            let mut next = best.node;
            while let Some(node) = self.nodes.get(next) {
                self.times.push(node.time);
                next = node.before;
            }
            self.times.reverse();
            let steps = u32::try_from((1_u64 << best.depth) - 1).unwrap_or(u32::MAX);
            callback(*value, Some(BestPath { times: &self.times, steps }));
        }
        Ok(())
    }

    /// Starts the next actor.
    fn begin(&mut self, passes: &[ValuePass], work: &WorkBudget<'_>) -> CalcResult<()> {
        work.consume(passes.len().saturating_mul(self.depths.len()))?;
        self.nodes.clear();
        self.shared.fill(EMPTY);
        self.shared_best = NO_PATH;
        self.values.clear();
        self.values.extend(passes.iter().map(|pass| pass.value));
        self.states.clear();
        self.states.resize(self.values.len(), ValueState { best: NO_PATH, has_converted: false });
        self.unconverted = self.values.len();
        self.slots.clear();
        self.slots.resize(self.values.len() * self.depths.len(), EMPTY);
        self.depths.iter_mut().for_each(|depth| {
            depth.clear();
            depth.epoch = 0;
        });
        Ok(())
    }

    /// Processes the events of one instant; `first` is the number of the first one.
    fn process_instant(
        &mut self,
        first: usize,
        instant: &[StepEvent],
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        let Some(StepEvent { time, matches, .. }) = instant.first().copied() else { return Ok(()) };
        self.shared[0] = Slot { start: time, ..EMPTY };
        if instant.iter().all(|event| event.matches == matches) {
            for (index, event) in (first..).zip(instant) {
                self.process_event(index, event, work)?;
            }
            return Ok(());
        }
        for depth in 1..=self.rules.steps {
            work.consume(instant.len())?;
            for (index, event) in (first..).zip(instant) {
                if event.matches.has_step(depth - 1) {
                    self.try_step(index, event, depth, true, work)?;
                }
            }
        }
        Ok(())
    }

    /// Processes a single event: exclusions first, then its steps from last to first, so it is used for one step only.
    fn process_event(&mut self, index: usize, event: &StepEvent, work: &WorkBudget<'_>) -> CalcResult<()> {
        work.consume(1 + self.rules.comparisons(event.matches))?;
        let mut gaps = event.matches.exclusions();
        while gaps != 0 {
            let gap = gaps.trailing_zeros() as usize;
            gaps &= gaps - 1;
            self.apply_exclusion(event.time, gap, work)?;
        }
        let mut steps = event.matches.steps();
        while steps != 0 {
            let last = 31 - steps.leading_zeros();
            steps ^= 1 << last;
            self.try_step(index, event, last as usize + 1, false, work)?;
        }
        if self.rules.strict { self.end_other_paths(event, work) } else { Ok(()) }
    }

    /// In strict order, ends all paths except those that the event extends or repeats.
    fn end_other_paths(&mut self, event: &StepEvent, work: &WorkBudget<'_>) -> CalcResult<()> {
        let (steps, bound) = (self.rules.steps, self.attributed_step);
        for depth in (1..=bound).filter(|depth| !event.matches.has_step(depth - 1)) {
            self.shared[depth] = EMPTY;
        }
        // In ascending order, so the next depth still has the paths that were extended to it.
        for depth in bound + 1..=steps {
            let depth_index = depth - bound - 1;
            if !event.matches.has_step(depth - 1) {
                self.depths[depth_index].clear();
                continue;
            }
            // A path can be extended once more after the next depth was cleared, unless it converted.
            let next_is_cleared = depth + 1 < steps
                && !event.matches.has_step(depth)
                && self.depths.get(depth_index + 1).is_some_and(|next| !next.reached.is_empty());
            if next_is_cleared {
                let OpenDepth { open, reached, .. } = &mut self.depths[depth_index];
                work.consume(reached.len())?;
                open.clone_from(reached);
            }
        }
        Ok(())
    }

    /// Applies an exclusion to the paths of `depth` steps.
    fn apply_exclusion(&mut self, time: Micros, depth: usize, work: &WorkBudget<'_>) -> CalcResult<()> {
        let window = self.rules.window;
        if depth <= self.attributed_step {
            let slot = self.shared[depth];
            // After the attributed step, paths extended from this start are not affected any more.
            let was_extended = self.shared.get(depth + 1).is_some_and(|next| next.start == slot.start);
            if slot.is_open(time, window) && !slot.excluded && !was_extended {
                self.shared[depth].excluded = true;
                self.shared_best.mark_excluded(time, depth, window);
            }
            return Ok(());
        }
        let depth_index = depth - self.attributed_step - 1;
        let mut buffer = std::mem::take(&mut self.buffer);
        std::mem::swap(&mut buffer, &mut self.depths[depth_index].open);
        work.consume(buffer.len())?;
        for path in buffer.drain(..) {
            let slot = self.slot(path.value, depth);
            if slot.start != path.start
                || !slot.is_open(time, window)
                || self.states[path.value].has_converted
            {
                continue;
            }
            let index = self.slot_index(path.value, depth);
            self.slots[index].excluded = true;
            self.states[path.value].best.mark_excluded(time, depth, window);
            self.depths[depth_index].excluded.push(path);
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Tries to extend paths to `depth` with an event. `mixed`: other events of the instant match other steps, so an event on
    /// the path already must not be used again.
    fn try_step(
        &mut self,
        index: usize,
        event: &StepEvent,
        depth: usize,
        mixed: bool,
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        let time = event.time;
        if depth > self.attributed_step + 1 {
            return self.try_step_of_all_values(index, time, depth, mixed, work);
        }
        let before = self.shared[depth - 1];
        if !before.is_open(time, self.rules.window) || (mixed && self.is_on_path(before.node, time, index)) {
            return Ok(());
        }
        if depth <= self.attributed_step {
            if self.shared[depth].start != before.start {
                let node = if before.excluded { ROOT } else { self.add_node(before.node, time, index) };
                let excluded = before.excluded;
                if !excluded {
                    self.shared[depth] = Slot { start: before.start, node, ..EMPTY };
                }
                self.shared_best.offer(BestSoFar { depth, start: before.start, node, excluded });
            }
        } else if let Ok(value) = self.values.binary_search(&event.value)
            && self.slot(value, depth).start != before.start
            && !self.states[value].has_converted
        {
            self.extend(value, depth, before, time, index);
        }
        Ok(())
    }

    /// Tries to extend the paths of all values, for steps after the attributed one.
    fn try_step_of_all_values(
        &mut self,
        index: usize,
        time: Micros,
        depth: usize,
        mixed: bool,
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        let depth_index = depth - self.attributed_step - 2;
        let mut buffer = std::mem::take(&mut self.buffer);
        for excluded in [false, true] {
            let OpenDepth { open, excluded: others, .. } = &mut self.depths[depth_index];
            std::mem::swap(&mut buffer, if excluded { others } else { open });
            work.consume(buffer.len())?;
            for path in buffer.drain(..) {
                let OpenPath { value, start } = path;
                let before = self.slot(value, depth - 1);
                if before.start != start
                    || !before.is_open(time, self.rules.window)
                    || self.states[value].has_converted
                    || self.slot(value, depth).start == start
                {
                    continue;
                }
                if mixed && self.is_on_path(before.node, time, index) {
                    let OpenDepth { open, excluded: others, .. } = &mut self.depths[depth_index];
                    if excluded { others.push(path) } else { open.push(path) }
                } else {
                    self.extend(value, depth, before, time, index);
                }
            }
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Extends the path of one value. An excluded path is not extended, but can be the best one; the value then has no outcome.
    fn extend(&mut self, value: usize, depth: usize, before: Slot, time: Micros, index: usize) {
        let Slot { start, excluded, .. } = before;
        let mut node = ROOT;
        if !excluded {
            node = self.add_node(before.node, time, index);
            let (slot_index, depth_index) = (self.slot_index(value, depth), depth - self.attributed_step - 1);
            let epoch = self.depths[depth_index].epoch;
            self.slots[slot_index] = Slot { start, node, excluded: false, epoch };
            if depth == self.rules.steps {
                self.states[value].has_converted = true;
                self.unconverted -= 1;
            } else {
                let path = OpenPath { value, start };
                self.depths[depth_index].open.push(path);
                if self.rules.strict {
                    self.depths[depth_index].reached.push(path);
                }
            }
        }
        self.states[value].best.offer(BestSoFar { depth, start, node, excluded });
    }

    fn slot_index(&self, value: usize, depth: usize) -> usize {
        value * self.depths.len() + depth - self.attributed_step - 1
    }

    /// The slot of a value at a depth after the attributed step.
    fn slot(&self, value: usize, depth: usize) -> Slot {
        let slot = self.slots[self.slot_index(value, depth)];
        if slot.epoch == self.depths[depth - self.attributed_step - 1].epoch { slot } else { EMPTY }
    }

    fn add_node(&mut self, before: usize, time: Micros, event: usize) -> usize {
        self.nodes.push(Node { time, event, before });
        self.nodes.len() - 1
    }

    /// Whether an event of this instant is on a path.
    fn is_on_path(&self, node: usize, time: Micros, event: usize) -> bool {
        let mut next = node;
        while let Some(node) = self.nodes.get(next).filter(|node| node.time == time) {
            if node.event == event {
                return true;
            }
            next = node.before;
        }
        false
    }
}
