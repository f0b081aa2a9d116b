//! The scan of one actor for all values of the step that a breakdown is attributed to, in one pass over its events.
//!
//! Must stay true: the outcome of each value is that of [`super::scan::Scanner`] bound to it. Up to the bound step all
//! values share their slots. Behind it a slot changes only when the slot before it has a new start, so each depth lists
//! the paths whose start has not gone on yet: a start goes on once a depth, however many events and values there are.
//! Not for optional steps, nor for exclusions in strict order: there a start may go on again.

use super::scan::{Reached, Rules, StepEvent};
use super::values::Pass;
use crate::error::CalcResult;
use crate::scan::Micros;
use crate::work::WorkBudget;

/// No path is in the slot.
const NONE: Micros = Micros::MIN;
/// The node before the first one of a path.
const ROOT: usize = usize::MAX;

/// An event on a path, linked to the one before it: paths share their beginnings.
#[derive(Debug, Clone, Copy)]
struct Node {
    time: Micros,
    event: usize,
    before: usize,
}

/// The path with the latest start that reached a depth.
#[derive(Debug, Clone, Copy)]
struct Slot {
    start: Micros,
    node: usize,
    /// An exclusion was met on the path.
    tainted: bool,
    /// The slot is empty when its depth was cleared since.
    epoch: u32,
}

const EMPTY: Slot = Slot { start: NONE, node: ROOT, tainted: false, epoch: 0 };

impl Slot {
    /// A path is in the slot and may still go on.
    fn is_open(&self, time: Micros, window: Micros) -> bool {
        self.start != NONE && time - self.start <= window
    }
}

/// The best path so far.
#[derive(Debug, Clone, Copy)]
struct Best {
    depth: usize,
    start: Micros,
    node: usize,
    tainted: bool,
}

const NO_PATH: Best = Best { depth: 0, start: NONE, node: ROOT, tainted: false };

impl Best {
    /// Takes a path that is better.
    fn offer(&mut self, other: Self) {
        if other.depth > self.depth || (other.depth == self.depth && self.tainted) {
            *self = other;
        }
    }

    /// An exclusion was met after `depth` steps.
    fn taint(&mut self, time: Micros, depth: usize, window: Micros) {
        if self.depth == depth && time - self.start <= window {
            self.tainted = true;
        }
    }
}

/// A path behind the bound step whose start has not yet gone on to the next depth.
#[derive(Debug, Clone, Copy)]
struct OpenPath {
    /// Index of the value.
    value: usize,
    /// It is outdated when the slot has another start.
    start: Micros,
}

/// What one value has reached behind the bound step.
#[derive(Debug, Clone, Copy)]
struct State {
    best: Best,
    /// The last step was taken: later events change nothing.
    is_complete: bool,
}

/// The open paths of one depth.
#[derive(Debug, Default)]
struct Depth {
    epoch: u32,
    clean: Vec<OpenPath>,
    tainted: Vec<OpenPath>,
    /// In strict order, all paths that reached the depth since it was cleared.
    reached: Vec<OpenPath>,
}

impl Depth {
    fn clear(&mut self) {
        self.epoch += 1;
        self.clean.clear();
        self.tainted.clear();
        self.reached.clear();
    }
}

/// Working memory of the scan, used for one actor after the other.
#[derive(Debug)]
pub(super) struct StepValueScanner {
    rules: Rules,
    /// The bound step.
    step: usize,
    nodes: Vec<Node>,
    /// By depth, up to the bound step.
    shared: Vec<Slot>,
    shared_best: Best,
    /// By value, ascending.
    values: Vec<u32>,
    states: Vec<State>,
    incomplete: usize,
    /// By value and depth behind the bound step.
    slots: Vec<Slot>,
    /// By depth behind the bound step.
    depths: Vec<Depth>,
    /// Kept for its memory.
    taken: Vec<OpenPath>,
    times: Vec<Micros>,
}

impl StepValueScanner {
    /// None when the funnel is not of the kind. `has_exclusions`: some event may be one.
    pub(super) fn new(rules: Rules, step: usize, has_exclusions: bool) -> Option<Self> {
        if step >= rules.steps || rules.optional != 0 || (rules.strict && has_exclusions) {
            return None;
        }
        let mut depths = Vec::new();
        depths.resize_with(rules.steps - step, Depth::default);
        Some(Self {
            rules,
            step,
            nodes: Vec::new(),
            shared: vec![EMPTY; step + 1],
            shared_best: NO_PATH,
            values: Vec::new(),
            states: Vec::new(),
            incomplete: 0,
            slots: Vec::new(),
            depths,
            taken: Vec::new(),
            times: Vec::new(),
        })
    }

    /// Calls back with each value of the passes, ascending, and the best path of an actor bound to it. Events come in
    /// order of time and arrival.
    pub(super) fn run(
        &mut self,
        passes: &[Pass],
        events: &[StepEvent],
        work: &WorkBudget<'_>,
        mut back: impl FnMut(u32, Option<Reached<'_>>),
    ) -> CalcResult<()> {
        self.begin(passes, work)?;
        let mut first = 0;
        for tick in events.chunk_by(|one, next| one.time == next.time) {
            if self.incomplete == 0 {
                break;
            }
            self.tick(first, tick, work)?;
            first += tick.len();
        }
        for (value, state) in self.values.iter().zip(&self.states) {
            let best = if state.best.depth > 0 { state.best } else { self.shared_best };
            work.consume(1 + best.depth)?;
            if best.depth == 0 || best.tainted {
                back(*value, None);
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
            back(*value, Some(Reached { times: &self.times, steps }));
        }
        Ok(())
    }

    /// Forgets the actor before.
    fn begin(&mut self, passes: &[Pass], work: &WorkBudget<'_>) -> CalcResult<()> {
        work.consume(passes.len().saturating_mul(self.depths.len()))?;
        self.nodes.clear();
        self.shared.fill(EMPTY);
        self.shared_best = NO_PATH;
        self.values.clear();
        self.values.extend(passes.iter().map(|pass| pass.value));
        self.states.clear();
        self.states.resize(self.values.len(), State { best: NO_PATH, is_complete: false });
        self.incomplete = self.values.len();
        self.slots.clear();
        self.slots.resize(self.values.len() * self.depths.len(), EMPTY);
        self.depths.iter_mut().for_each(|depth| {
            depth.clear();
            depth.epoch = 0;
        });
        Ok(())
    }

    /// The events of one instant, the first of which has this number.
    fn tick(&mut self, first: usize, tick: &[StepEvent], work: &WorkBudget<'_>) -> CalcResult<()> {
        let Some(StepEvent { time, marks, .. }) = tick.first().copied() else { return Ok(()) };
        self.shared[0] = Slot { start: time, ..EMPTY };
        if tick.iter().all(|event| event.marks == marks) {
            for (index, event) in (first..).zip(tick) {
                self.plain(index, event, work)?;
            }
            return Ok(());
        }
        for depth in 1..=self.rules.steps {
            work.consume(tick.len())?;
            for (index, event) in (first..).zip(tick) {
                if event.marks.takes(depth - 1) {
                    self.step(index, event, depth, true, work)?;
                }
            }
        }
        Ok(())
    }

    /// One event by itself: exclusions first, then its steps from the last to the first, so that it serves one only.
    fn plain(&mut self, index: usize, event: &StepEvent, work: &WorkBudget<'_>) -> CalcResult<()> {
        work.consume(1 + self.rules.work(event.marks))?;
        let mut gaps = event.marks.exclusions();
        while gaps != 0 {
            let gap = gaps.trailing_zeros() as usize;
            gaps &= gaps - 1;
            self.exclude(event.time, gap, work)?;
        }
        let mut steps = event.marks.steps();
        while steps != 0 {
            let last = 31 - steps.leading_zeros();
            steps ^= 1 << last;
            self.step(index, event, last as usize + 1, false, work)?;
        }
        if self.rules.strict { self.clear(event, work) } else { Ok(()) }
    }

    /// In strict order an event ends all paths but those that it goes on or repeats.
    fn clear(&mut self, event: &StepEvent, work: &WorkBudget<'_>) -> CalcResult<()> {
        let (steps, bound) = (self.rules.steps, self.step);
        for depth in (1..=bound).filter(|depth| !event.marks.takes(depth - 1)) {
            self.shared[depth] = EMPTY;
        }
        // From the first depth on, so that the next one still holds what went on to it.
        for depth in bound + 1..=steps {
            let place = depth - bound - 1;
            if !event.marks.takes(depth - 1) {
                self.depths[place].clear();
                continue;
            }
            // A path goes on once more when the depth behind it is cleared. Complete ones never do.
            let is_emptied = depth + 1 < steps
                && !event.marks.takes(depth)
                && self.depths.get(place + 1).is_some_and(|next| !next.reached.is_empty());
            if is_emptied {
                let Depth { clean, reached, .. } = &mut self.depths[place];
                work.consume(reached.len())?;
                clean.clone_from(reached);
            }
        }
        Ok(())
    }

    /// An exclusion in the gap after `depth` steps.
    fn exclude(&mut self, time: Micros, depth: usize, work: &WorkBudget<'_>) -> CalcResult<()> {
        let window = self.rules.window;
        if depth <= self.step {
            let slot = self.shared[depth];
            // Behind the bound step, whatever went on from this start already does not look at it again.
            let went_on = self.shared.get(depth + 1).is_some_and(|next| next.start == slot.start);
            if slot.is_open(time, window) && !slot.tainted && !went_on {
                self.shared[depth].tainted = true;
                self.shared_best.taint(time, depth, window);
            }
            return Ok(());
        }
        let place = depth - self.step - 1;
        let mut taken = std::mem::take(&mut self.taken);
        std::mem::swap(&mut taken, &mut self.depths[place].clean);
        work.consume(taken.len())?;
        for path in taken.drain(..) {
            let slot = self.slot(path.value, depth);
            if slot.start != path.start || !slot.is_open(time, window) || self.states[path.value].is_complete
            {
                continue;
            }
            let index = self.place(path.value, depth);
            self.slots[index].tainted = true;
            self.states[path.value].best.taint(time, depth, window);
            self.depths[place].tainted.push(path);
        }
        self.taken = taken;
        Ok(())
    }

    /// An event that may take the step that makes paths `depth` steps long. `mixed`: others of its instant match other
    /// steps, and no event stands twice on a path.
    fn step(
        &mut self,
        index: usize,
        event: &StepEvent,
        depth: usize,
        mixed: bool,
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        let time = event.time;
        if depth > self.step + 1 {
            return self.step_open(index, time, depth, mixed, work);
        }
        let before = self.shared[depth - 1];
        if !before.is_open(time, self.rules.window) || (mixed && self.is_on_path(before.node, time, index)) {
            return Ok(());
        }
        if depth <= self.step {
            if self.shared[depth].start != before.start {
                let node = if before.tainted { ROOT } else { self.add_node(before.node, time, index) };
                let tainted = before.tainted;
                if !tainted {
                    self.shared[depth] = Slot { start: before.start, node, ..EMPTY };
                }
                self.shared_best.offer(Best { depth, start: before.start, node, tainted });
            }
        } else if let Ok(value) = self.values.binary_search(&event.value)
            && self.slot(value, depth).start != before.start
            && !self.states[value].is_complete
        {
            self.extend(value, depth, before, time, index);
        }
        Ok(())
    }

    /// A step behind the bound one, of all values at once.
    fn step_open(
        &mut self,
        index: usize,
        time: Micros,
        depth: usize,
        mixed: bool,
        work: &WorkBudget<'_>,
    ) -> CalcResult<()> {
        let place = depth - self.step - 2;
        let mut taken = std::mem::take(&mut self.taken);
        for tainted in [false, true] {
            let Depth { clean, tainted: others, .. } = &mut self.depths[place];
            std::mem::swap(&mut taken, if tainted { others } else { clean });
            work.consume(taken.len())?;
            for path in taken.drain(..) {
                let OpenPath { value, start } = path;
                let before = self.slot(value, depth - 1);
                if before.start != start
                    || !before.is_open(time, self.rules.window)
                    || self.states[value].is_complete
                    || self.slot(value, depth).start == start
                {
                    continue;
                }
                if mixed && self.is_on_path(before.node, time, index) {
                    let Depth { clean, tainted: others, .. } = &mut self.depths[place];
                    if tainted { others.push(path) } else { clean.push(path) }
                } else {
                    self.extend(value, depth, before, time, index);
                }
            }
        }
        self.taken = taken;
        Ok(())
    }

    /// Takes a step of one value. A tainted path does not go on, but may be the best, which is void then.
    fn extend(&mut self, value: usize, depth: usize, before: Slot, time: Micros, index: usize) {
        let Slot { start, tainted, .. } = before;
        let mut node = ROOT;
        if !tainted {
            node = self.add_node(before.node, time, index);
            let (own, place) = (self.place(value, depth), depth - self.step - 1);
            let epoch = self.depths[place].epoch;
            self.slots[own] = Slot { start, node, tainted: false, epoch };
            if depth == self.rules.steps {
                self.states[value].is_complete = true;
                self.incomplete -= 1;
            } else {
                let path = OpenPath { value, start };
                self.depths[place].clean.push(path);
                if self.rules.strict {
                    self.depths[place].reached.push(path);
                }
            }
        }
        self.states[value].best.offer(Best { depth, start, node, tainted });
    }

    fn place(&self, value: usize, depth: usize) -> usize {
        value * self.depths.len() + depth - self.step - 1
    }

    /// The slot of a value at a depth behind the bound step.
    fn slot(&self, value: usize, depth: usize) -> Slot {
        let slot = self.slots[self.place(value, depth)];
        if slot.epoch == self.depths[depth - self.step - 1].epoch { slot } else { EMPTY }
    }

    fn add_node(&mut self, before: usize, time: Micros, event: usize) -> usize {
        self.nodes.push(Node { time, event, before });
        self.nodes.len() - 1
    }

    /// Whether an event of this instant stands on a path.
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
