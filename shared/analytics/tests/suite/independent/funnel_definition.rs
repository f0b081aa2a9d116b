//! Funnels by definition: every assignment of distinct events to steps is tried.
//!
//! No slots and queues are used here. The definition holds for the cases in which `agree` (`funnel_result.rs`) compares it
//! with the published scan.

use super::funnel_spec::Candidate;

/// Times of the steps that were reached.
pub type Path = Vec<i64>;

/// Every pair of steps is either for the same events or for none in common.
pub fn is_plain(events: &[Candidate]) -> bool {
    let lists: Vec<&Vec<i64>> = events.iter().map(|event| &event.steps).collect();
    lists.iter().all(|left| {
        lists.iter().all(|right| left == right || !left.iter().any(|number| right.contains(number)))
    })
}

pub fn has_ties(events: &[Candidate]) -> bool {
    events.windows(2).any(|pair| pair[0].time == pair[1].time)
}

/// No event is for two steps.
pub fn is_distinct(events: &[Candidate]) -> bool {
    events.iter().all(|event| event.steps.len() < 2)
}

struct Search<'a> {
    events: &'a [Candidate],
    steps: i64,
    window: i64,
    /// Step, index of the event.
    taken: Vec<usize>,
    depth: usize,
    /// Of the assignments of the greatest depth: earliest end, then latest start.
    end: i64,
    start: i64,
}

impl Search<'_> {
    fn run(&mut self) {
        let times: Vec<i64> = self.taken.iter().map(|index| self.events[*index].time).collect();
        if let (Some(start), Some(end)) = (times.first(), times.last()) {
            let deeper = times.len() > self.depth;
            let same = times.len() == self.depth;
            if deeper || same && (*end < self.end || *end == self.end && *start > self.start) {
                (self.depth, self.end, self.start) = (times.len(), *end, *start);
            }
        }
        let step = i64::try_from(self.taken.len()).unwrap() + 1;
        if step > self.steps {
            return;
        }
        for (index, event) in self.events.iter().enumerate() {
            let follows = times.last().is_none_or(|last| event.time >= *last);
            let inside = times.first().is_none_or(|start| event.time - start <= self.window);
            if event.steps.contains(&step) && follows && inside && !self.taken.contains(&index) {
                self.taken.push(index);
                self.run();
                self.taken.pop();
            }
        }
    }
}

fn search(events: &[Candidate], steps: usize, window: i64) -> Search<'_> {
    let steps = i64::try_from(steps).unwrap();
    let mut search = Search { events, steps, window, taken: Vec::new(), depth: 0, end: 0, start: 0 };
    search.run();
    search
}

/// How many steps in their order, each at the time of the one before or later, from the first inside the window.
pub fn ordered_depth(events: &[Candidate], steps: usize, window: i64) -> usize {
    search(events, steps, window).depth
}

/// The reported path, if no two events have the same time: it reaches the depth as early as possible, from the latest
/// start, and each step is the earliest that follows.
pub fn ordered_path(events: &[Candidate], steps: usize, window: i64) -> Path {
    let found = search(events, steps, window);
    let mut path: Path = Vec::new();
    for step in 1..=i64::try_from(found.depth).unwrap() {
        let after = path.last().copied();
        let fits = |event: &&Candidate| {
            event.steps.contains(&step) && after.map_or(event.time == found.start, |last| event.time > last)
        };
        path.push(events.iter().find(fits).unwrap().time);
    }
    path
}

/// An actor completes without an exclusion: from some start, the earliest following events reach the last step inside the
/// window, and no excluded event lies in a gap. No ties.
pub fn completes_unhindered(events: &[Candidate], steps: usize, window: i64) -> bool {
    let steps = i64::try_from(steps).unwrap();
    let from = |start: usize| {
        let mut reached = 1;
        for event in &events[start + 1..] {
            if reached == steps || event.time - events[start].time > window {
                break;
            }
            let next = reached + 1;
            if event.steps.contains(&-next) {
                return false;
            }
            if event.steps.contains(&next) {
                reached = next;
            }
        }
        reached == steps
    };
    (0..events.len()).any(|start| events[start].steps.contains(&1) && from(start))
}

/// Steps without any other event between; the event that matched last may be repeated. No ties, no event of two steps.
pub fn strict_depth(events: &[Candidate], steps: usize, window: i64) -> usize {
    let steps = i64::try_from(steps).unwrap();
    let from = |start: usize| {
        let mut reached = 1;
        for event in &events[start + 1..] {
            let inside = event.time - events[start].time <= window;
            if event.steps == [reached + 1] && inside && reached < steps {
                reached += 1;
            } else if reached == 1 || event.steps != [reached] {
                break;
            }
        }
        usize::try_from(reached).unwrap()
    };
    let starts = (0..events.len()).filter(|start| events[*start].steps == [1]);
    starts.map(from).max().unwrap_or(0)
}

/// The largest number of steps that distinct events inside one window match, in any order.
pub fn unordered_depth(events: &[Candidate], steps: usize, window: i64) -> usize {
    fn most(events: &[&Candidate], step: i64, steps: i64, used: &mut Vec<usize>) -> usize {
        if step > steps {
            return used.len();
        }
        let mut best = most(events, step + 1, steps, used);
        for (index, event) in events.iter().enumerate() {
            if event.steps.contains(&step) && !used.contains(&index) {
                used.push(index);
                best = best.max(most(events, step + 1, steps, used));
                used.pop();
            }
        }
        best
    }
    let steps = i64::try_from(steps).unwrap();
    let windows = events.iter().map(|first| {
        let inside: Vec<_> =
            events.iter().filter(|event| (0..=window).contains(&(event.time - first.time))).collect();
        most(&inside, 1, steps, &mut Vec::new())
    });
    windows.max().unwrap_or(0)
}

/// Whether from a start of a set of events some step is reached, in arrival order.
pub fn reaches(events: &[Candidate], starts: &dyn Fn(&Candidate) -> bool, steps: usize, window: i64) -> bool {
    fn on(events: &[Candidate], from: usize, start: i64, step: i64, steps: i64, window: i64) -> bool {
        if step > steps {
            return true;
        }
        (from..events.len()).any(|index| {
            let event = &events[index];
            event.time - start <= window
                && event.steps.contains(&step)
                && on(events, index + 1, start, step + 1, steps, window)
        })
    }
    let steps = i64::try_from(steps).unwrap();
    (0..events.len()).any(|index| {
        let event = &events[index];
        event.steps.contains(&1) && starts(event) && on(events, index + 1, event.time, 2, steps, window)
    })
}
