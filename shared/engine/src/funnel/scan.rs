//! The ordered scan: how deep one actor gets, in one pass over its events.
//!
//! Must stay true: slot `k` holds the path with the latest start that reached step `k`, and of those the first found;
//! the window runs from the path's first step and includes its end; the first completion ends the scan. Events at the
//! same instant are one tick: when they differ in what they match, they are taken in the order of the steps and no event
//! stands twice on a path.

use crate::scan::Micros;

/// An event of one actor that matters to the funnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepEvent {
    /// When it happened.
    pub time: Micros,
    /// What it matches.
    pub marks: Marks,
}

/// What an event matches. Bit `i` of the low half: step `i`, counting from 0. Bit `i` of the high half: an exclusion
/// that covers the gap before step `i`.
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

    /// Both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Nothing is matched.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The first step is matched.
    pub fn enters(self) -> bool {
        self.0 & 1 != 0
    }

    fn steps(self) -> u32 {
        (self.0 & u64::from(u32::MAX)) as u32
    }

    fn exclusions(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The best path of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached<'a> {
    /// When each step of it was taken; as many as steps were reached, at least one.
    pub times: &'a [Micros],
}

/// Working memory of the scan, used for one actor after the other.
#[derive(Debug, Clone)]
pub struct Scanner {
    steps: usize,
    window: Micros,
    /// By depth: the start of the path in the slot.
    starts: Vec<Option<Micros>>,
    /// By depth: an exclusion was met on the path.
    tainted: Vec<bool>,
    /// By depth and step: when the step was taken, and by which event.
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
    times: Vec<Micros>,
}

impl Scanner {
    /// For a funnel of so many steps (at most 32), with a window in microseconds.
    pub fn new(steps: usize, window: Micros) -> Self {
        let cells = (steps + 1) * steps;
        Self {
            steps,
            window,
            starts: vec![None; steps + 1],
            tainted: vec![false; steps + 1],
            times: vec![0; cells],
            events: vec![0; cells],
            taken: 0,
            best: Best { times: vec![0; steps], ..Best::default() },
        }
    }

    /// Forgets the actor before.
    pub fn begin(&mut self) {
        self.starts.fill(None);
        self.best.depth = 0;
        self.best.tainted = false;
    }

    /// True when the last step was taken: later events change nothing.
    pub fn is_complete(&self) -> bool {
        self.starts[self.steps].is_some()
    }

    /// The best path. None when the first step was never taken, or when an exclusion voids all that was done.
    pub fn reached(&self) -> Option<Reached<'_>> {
        let best = &self.best;
        (best.depth > 0 && !best.tainted).then(|| Reached { times: &best.times[..best.depth] })
    }

    /// The events of one instant, in order of arrival. Instants must ascend.
    pub fn tick(&mut self, tick: &[StepEvent]) {
        let Some(StepEvent { time, marks }) = tick.first().copied() else { return };
        self.starts[0] = Some(time);
        self.tainted[0] = false;
        let first = self.taken;
        self.taken += tick.len();
        if tick.iter().all(|event| event.marks == marks) {
            for index in first..self.taken {
                self.plain(time, index, marks);
            }
        } else {
            for depth in 1..=self.steps {
                for (index, event) in (first..).zip(tick) {
                    if event.marks.steps() & (1 << (depth - 1)) != 0 {
                        self.step(time, index, depth, true);
                    }
                }
            }
        }
    }

    /// One event by itself: exclusions first, then its steps from the last to the first, so that it serves one only.
    fn plain(&mut self, time: Micros, index: usize, marks: Marks) {
        let mut gaps = marks.exclusions();
        while gaps != 0 {
            let gap = gaps.trailing_zeros() as usize;
            gaps &= gaps - 1;
            self.exclude(time, gap);
        }
        let mut steps = marks.steps();
        while steps != 0 {
            let last = 31 - steps.leading_zeros();
            steps ^= 1 << last;
            self.step(time, index, last as usize + 1, false);
        }
    }

    /// The start of the path that may be extended to a depth, unless it is too old or led there already.
    fn open_path(&self, time: Micros, depth: usize) -> Option<Micros> {
        let start = self.starts[depth - 1]?;
        let open = time - start <= self.window && self.starts[depth] != Some(start);
        open.then_some(start)
    }

    /// An exclusion in the gap after `depth` steps.
    fn exclude(&mut self, time: Micros, depth: usize) {
        if depth == 0 || self.open_path(time, depth + 1).is_none() || self.tainted[depth] {
            return;
        }
        self.tainted[depth] = true;
        if self.best.depth == depth && time - self.best.start <= self.window {
            self.best.tainted = true;
        }
    }

    /// An event that may take the step that makes a path `depth` steps long.
    fn step(&mut self, time: Micros, index: usize, depth: usize, once: bool) {
        let Some(start) = self.open_path(time, depth) else { return };
        let before = depth - 1;
        let path = before * self.steps;
        if once && self.events[path..path + before].contains(&index) {
            return;
        }
        let tainted = self.tainted[before];
        if !tainted {
            let slot = depth * self.steps;
            self.times.copy_within(path..path + before, slot);
            // Only an instant of several events looks at these, and only for events of its own.
            if once {
                self.events.copy_within(path..path + before, slot);
                self.events[slot + before] = index;
            }
            self.times[slot + before] = time;
            self.starts[depth] = Some(start);
            self.tainted[depth] = false;
        }
        let best = &mut self.best;
        if depth > best.depth || (depth == best.depth && best.tainted) {
            best.times[..before].copy_from_slice(&self.times[path..path + before]);
            best.times[before] = time;
            best.depth = depth;
            best.start = start;
            best.tainted = tainted;
        }
    }
}
