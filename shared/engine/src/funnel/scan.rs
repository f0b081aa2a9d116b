//! The scan of ordered and strict funnels: how deep one actor gets, in one pass over its events.
//!
//! Must stay true: slot `k` holds the path with the latest start that reached step `k`, and of those the first found;
//! the window runs from the path's first step and includes its end; the first completion ends the scan. Events at the
//! same instant are one tick: when they differ in what they match, they are taken in the order of the steps and no event
//! stands twice on a path. In strict order an event ends all paths but those that it goes on or repeats.

use crate::error::CalcResult;
use crate::scan::Micros;
use crate::work::WorkBudget;

/// An event of one actor that matters to the funnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepEvent {
    /// When it happened.
    pub time: Micros,
    /// What it matches.
    pub marks: Marks,
    /// Code of its value of the breakdown; 0 without one.
    pub value: u32,
}

/// What an event matches. Bit `i` of the low half: step `i`, counting from 0. Bit `i` of the high half: an exclusion
/// that covers the gap before step `i`; there is no gap before the first step, so its bit says that the event is seen
/// whatever it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks(u64);

impl Marks {
    /// An event that takes a step.
    pub fn step(index: usize) -> Self {
        Self(1 << index)
    }

    /// An event that must not happen after the one step and up to the other.
    pub fn exclusion(from_step: usize, to_step: usize) -> Self {
        Self((from_step + 1..=to_step).fold(0, |bits, gap| bits | 1 << (32 + gap)))
    }

    /// An event that matters by being there, as all do in strict order.
    pub fn seen() -> Self {
        Self(1 << 32)
    }

    /// Both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Nothing is matched.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The step is matched.
    pub fn takes(self, step: usize) -> bool {
        self.steps() >> step & 1 != 0
    }

    /// One bit a step that is matched.
    pub fn steps(self) -> u32 {
        (self.0 & u64::from(u32::MAX)) as u32
    }

    /// One bit a gap that the event must not happen in, by the step behind it.
    pub fn exclusions(self) -> u32 {
        (self.0 >> 32) as u32 & !1
    }
}

/// What is asked of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// How many steps there are, at most 32.
    pub steps: usize,
    /// Microseconds from the first step to the last.
    pub window: Micros,
    /// Nothing else may happen between steps.
    pub strict: bool,
    /// One bit a step that may be left out; never the first.
    pub optional: u32,
}

impl Rules {
    /// The step may be left out.
    pub fn is_optional(self, step: usize) -> bool {
        self.optional >> step & 1 != 0
    }

    /// How many slots of one table an event is held against.
    pub fn work(self, marks: Marks) -> usize {
        let own = marks.steps().count_ones() + marks.exclusions().count_ones();
        own as usize + if self.strict { self.steps } else { 0 }
    }
}

/// A value that the event of a step must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The step.
    pub step: usize,
    /// Code of the value.
    pub value: u32,
}

/// The best path of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached<'a> {
    /// When each step of it was taken, optional ones left out; at least one.
    pub times: &'a [Micros],
    /// One bit a step that was taken.
    pub steps: u32,
}

/// Working memory of the scan, used for one actor after the other.
#[derive(Debug, Clone)]
pub struct Scanner {
    rules: Rules,
    bound: Option<Bound>,
    /// By depth: how many steps before it must be taken.
    ranks: Vec<usize>,
    /// By depth: the start of the path in the slot.
    starts: Vec<Option<Micros>>,
    /// By depth: an exclusion was met on the path.
    tainted: Vec<bool>,
    /// By depth: one bit a step that was taken.
    taken_steps: Vec<u32>,
    /// By depth and rank: when the step was taken, and by which event.
    times: Vec<Micros>,
    events: Vec<usize>,
    /// How many events were taken in so far, of all actors; each is known by its number.
    taken: usize,
    best: Best,
}

#[derive(Debug, Clone, Default)]
struct Best {
    depth: usize,
    start: Micros,
    tainted: bool,
    steps: u32,
    times: Vec<Micros>,
}

impl Scanner {
    /// For a funnel with these rules.
    pub fn new(rules: Rules) -> Self {
        let steps = rules.steps;
        let cells = (steps + 1) * steps;
        let required = |depth| (0..depth).filter(|step| !rules.is_optional(*step)).count();
        Self {
            rules,
            bound: None,
            ranks: (0..=steps).map(required).collect(),
            starts: vec![None; steps + 1],
            tainted: vec![false; steps + 1],
            taken_steps: vec![0; steps + 1],
            times: vec![0; cells],
            events: vec![0; cells],
            taken: 0,
            best: Best { times: vec![0; steps], ..Best::default() },
        }
    }

    /// Forgets the actor before. The event of a step may be bound to a value.
    pub fn begin(&mut self, bound: Option<Bound>) {
        self.starts.fill(None);
        self.best.depth = 0;
        self.best.tainted = false;
        self.bound = bound;
    }

    /// The best path of an actor by all of its events, which come in order of time and arrival.
    pub fn run(
        &mut self,
        bound: Option<Bound>,
        events: &[StepEvent],
        work: &WorkBudget<'_>,
    ) -> CalcResult<Option<Reached<'_>>> {
        self.begin(bound);
        let mut ticks = events.chunk_by(|one, next| one.time == next.time);
        while !self.is_complete()
            && let Some(tick) = ticks.next()
        {
            work.consume(tick.len())?;
            self.tick(tick);
        }
        Ok(self.reached())
    }

    /// True when the last step was taken: later events change nothing.
    pub fn is_complete(&self) -> bool {
        self.starts[self.rules.steps].is_some()
    }

    /// The best path. None when the first step was never taken, or when an exclusion voids all that was done.
    pub fn reached(&self) -> Option<Reached<'_>> {
        let best = &self.best;
        let times = &best.times[..self.ranks[best.depth]];
        (best.depth > 0 && !best.tainted).then_some(Reached { times, steps: best.steps })
    }

    /// The events of one instant, in order of arrival. Instants must ascend.
    pub fn tick(&mut self, tick: &[StepEvent]) {
        let Some(StepEvent { time, marks, .. }) = tick.first().copied() else { return };
        self.starts[0] = Some(time);
        self.tainted[0] = false;
        let first = self.taken;
        self.taken += tick.len();
        if tick.iter().all(|event| event.marks == marks) {
            for (index, event) in (first..).zip(tick) {
                self.plain(index, event);
            }
        } else {
            for depth in 1..=self.rules.steps {
                for (index, event) in (first..).zip(tick) {
                    if event.marks.takes(depth - 1) {
                        self.step(index, event, depth, true);
                    }
                }
            }
        }
    }

    /// One event by itself: exclusions first, then its steps from the last to the first, so that it serves one only.
    fn plain(&mut self, index: usize, event: &StepEvent) {
        let mut gaps = event.marks.exclusions();
        while gaps != 0 {
            let gap = gaps.trailing_zeros() as usize;
            gaps &= gaps - 1;
            self.exclude(event.time, gap);
        }
        let mut steps = event.marks.steps();
        while steps != 0 {
            let last = 31 - steps.leading_zeros();
            steps ^= 1 << last;
            self.step(index, event, last as usize + 1, false);
        }
        if self.rules.strict {
            for step in 0..self.rules.steps {
                if !event.marks.takes(step) {
                    self.starts[step + 1] = None;
                }
            }
        }
    }

    /// The depth and the start of the path that may be extended to a depth: the one before, or behind optional steps
    /// without a path that is still open. None when it is too old or led there already.
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

    /// An exclusion in the gap after `depth` steps.
    fn exclude(&mut self, time: Micros, depth: usize) {
        let Some((depth, _)) = self.open_path(time, depth + 1) else { return };
        if depth == 0 || self.tainted[depth] {
            return;
        }
        self.tainted[depth] = true;
        if self.best.depth == depth && time - self.best.start <= self.rules.window {
            self.best.tainted = true;
        }
    }

    /// An event that may take the step that makes a path `depth` steps long.
    fn step(&mut self, index: usize, event: &StepEvent, depth: usize, once: bool) {
        let time = event.time;
        let Some((before, start)) = self.open_path(time, depth) else { return };
        if self.bound.is_some_and(|bound| bound.step == before && bound.value != event.value) {
            return;
        }
        let (path, length) = (before * self.rules.steps, self.ranks[before]);
        if once && self.events[path..path + length].contains(&index) {
            return;
        }
        let timed = !self.rules.is_optional(depth - 1);
        let steps = if before == 0 { 0 } else { self.taken_steps[before] } | 1 << (depth - 1);
        let tainted = self.tainted[before];
        if !tainted {
            let slot = depth * self.rules.steps;
            self.times.copy_within(path..path + length, slot);
            // Only an instant of several events looks at these, and only for events of its own.
            if once {
                self.events.copy_within(path..path + length, slot);
            }
            if timed {
                self.times[slot + length] = time;
                self.events[slot + length] = index;
            }
            self.starts[depth] = Some(start);
            self.taken_steps[depth] = steps;
            self.tainted[depth] = false;
        }
        let best = &mut self.best;
        if depth > best.depth || (depth == best.depth && best.tainted) {
            best.times[..length].copy_from_slice(&self.times[path..path + length]);
            if timed {
                best.times[length] = time;
            }
            best.depth = depth;
            best.start = start;
            best.steps = steps;
            best.tainted = tainted;
        }
    }
}
