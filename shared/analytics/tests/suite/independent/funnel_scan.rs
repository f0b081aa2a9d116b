//! The published scan, step by step, for what only the scan defines: repeated events at one instant, strict order with
//! repeats, exclusions, and which path is reported.

use super::funnel_definition::Path;
use super::funnel_spec::Candidate;

/// The step whose event must have the value.
pub type Bound<'a> = Option<(usize, &'a [String])>;

#[derive(Clone)]
struct Slot {
    start: i64,
    tainted: bool,
    depth: usize,
    /// Step, arrival and time of each event taken.
    path: Vec<(usize, usize, i64)>,
}

struct Scan<'a> {
    window: i64,
    bound: Bound<'a>,
    optional: &'a [usize],
    slots: Vec<Option<Slot>>,
    best: Slot,
}

impl Scan<'_> {
    fn number(&mut self, number: i64, event: &Candidate, mixed: bool) {
        let step = usize::try_from(number.abs()).unwrap();
        let inside = |slot: &&Slot| event.time - slot.start <= self.window;
        let mut from = step - 1;
        while self.slots[from].as_ref().filter(inside).is_none() && self.optional.contains(&from) {
            from -= 1;
        }
        let Some(before) = self.slots[from].as_ref().filter(inside).cloned() else { return };
        if self.slots[step].as_ref().is_some_and(|slot| slot.start == before.start) {
            return;
        }
        if number < 0 {
            if !before.tainted {
                self.slots[from].as_mut().unwrap().tainted = true;
                let inside = event.time - self.best.start <= self.window;
                if self.best.depth == from && inside {
                    self.best.tainted = true;
                }
            }
            return;
        }
        if self.bound.is_some_and(|(bound, values)| bound == from && event.values != values) {
            return;
        }
        if mixed && before.path.iter().any(|(_, seq, _)| *seq == event.seq) {
            return;
        }
        let mut new = before.clone();
        new.depth = step;
        new.path.push((step, event.seq, event.time));
        if !before.tainted {
            self.slots[step] = Some(new.clone());
        }
        if step > self.best.depth || step == self.best.depth && self.best.tainted {
            self.best = new;
        }
    }
}

/// The options of a scan.
pub struct Rules<'a> {
    pub steps: usize,
    pub window: i64,
    pub strict: bool,
    pub bound: Bound<'a>,
    /// Numbers of steps that may be skipped.
    pub optional: &'a [usize],
}

/// Steps (from 1) and times of an actor in ordered or strict order; `None` if an exclusion removes the actor.
pub fn scan(events: &[&Candidate], rules: &Rules<'_>) -> Option<Vec<(usize, i64)>> {
    let Rules { steps, window, strict, bound, optional } = *rules;
    let empty = Slot { start: 0, tainted: false, depth: 0, path: Vec::new() };
    let mut scan = Scan { window, bound, optional, slots: vec![None; steps + 1], best: empty.clone() };
    for tick in events.chunk_by(|left, right| left.time == right.time) {
        scan.slots[0] = Some(Slot { start: tick[0].time, ..empty.clone() });
        let mixed = tick.iter().any(|event| event.steps != tick[0].steps);
        if mixed {
            let mut single: Vec<(i64, &Candidate)> = Vec::new();
            for event in tick {
                single
                    .extend(event.steps.iter().filter(|number| **number > 0).map(|number| (*number, *event)));
            }
            single.sort_by_key(|(number, _)| *number);
            for (number, event) in single {
                scan.number(number, event, true);
            }
        } else {
            for event in tick {
                for number in event.steps.iter().rev() {
                    scan.number(*number, event, false);
                }
                for step in (1..=steps).filter(|_| strict) {
                    if !event.steps.contains(&i64::try_from(step).unwrap()) {
                        scan.slots[step] = None;
                    }
                }
            }
        }
        if scan.slots[steps].is_some() {
            break;
        }
    }
    (!scan.best.tainted).then(|| scan.best.path.iter().map(|(step, _, time)| (*step, *time)).collect())
}

/// One queue of times a step, for any order.
pub struct Queues {
    steps: usize,
    window: i64,
    queues: Vec<Vec<i64>>,
}

impl Queues {
    pub fn new(steps: usize, window: i64) -> Self {
        Self { steps, window, queues: vec![Vec::new(); steps] }
    }

    pub fn oldest(&self) -> Option<(usize, i64)> {
        let heads = self.queues.iter().enumerate().filter_map(|(step, queue)| Some((step, *queue.first()?)));
        heads.min_by_key(|(step, time)| (*time, *step))
    }

    pub fn depth(&self) -> usize {
        self.queues.iter().filter(|queue| !queue.is_empty()).count()
    }

    pub fn heads(&self) -> Path {
        let mut heads: Path = self.queues.iter().filter_map(|queue| queue.first().copied()).collect();
        heads.sort_unstable();
        heads
    }

    /// Drops entries that are too old at a time, or were completed; calls `on_drop` before each.
    pub fn advance(&mut self, time: i64, on_drop: &mut dyn FnMut(&Self, i64)) {
        while let Some((step, oldest)) = self.oldest() {
            if self.depth() < self.steps && oldest + self.window >= time {
                return;
            }
            on_drop(self, oldest);
            self.queues[step].remove(0);
        }
    }

    /// An exclusion clears all queues; another event is added to the step whose last event is the oldest.
    pub fn take(&mut self, event: &Candidate, bound: Option<&[String]>) {
        if event.steps.iter().any(|number| *number < 0) {
            self.queues.iter_mut().for_each(Vec::clear);
            return;
        }
        if self.depth() == 0 && bound.is_some_and(|values| event.values != values) {
            return;
        }
        let steps = event.steps.iter().map(|number| usize::try_from(number - 1).unwrap());
        let step = steps.min_by_key(|step| (self.queues[*step].last().copied(), *step));
        if let Some(step) = step {
            self.queues[step].push(event.time);
        }
    }
}

/// The path of an actor in any order; `bound` is the value of the first event taken.
pub fn scan_unordered(events: &[&Candidate], steps: usize, window: i64, bound: Option<&[String]>) -> Path {
    let mut queues = Queues::new(steps, window);
    let mut best = Path::new();
    for event in events {
        queues.advance(event.time, &mut |queues, _| record(queues, &mut best));
        if best.len() == steps {
            break;
        }
        queues.take(event, bound);
    }
    record(&queues, &mut best);
    best
}

fn record(queues: &Queues, best: &mut Path) {
    if queues.depth() > best.len() {
        *best = queues.heads();
    }
}
