//! From the items of one session to its steps: runs of equal items, start and end point, step limit.
//!
//! Must stay true: the same items at the same times give the same steps; nothing is allocated per event.

use crate::scan::Micros;

/// A step: its item, and the time of the last event of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) item: u32,
    pub(super) time: Micros,
}

/// How the steps of a session are cut, with items as codes of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepRules {
    /// The item where paths begin.
    pub(super) start: Option<u32>,
    /// The item where paths end.
    pub(super) end: Option<u32>,
    /// Steps that are kept.
    pub(super) limit: usize,
    /// The item with an empty name.
    pub(super) empty: u32,
    /// The item that stands for the steps that are skipped between start and end.
    pub(super) skipped: u32,
}

/// Builds the steps of one session after the other.
#[derive(Debug)]
pub(super) struct SessionSteps {
    rules: StepRules,
    /// Steps that matter: without points one more than the limit, to know whether the last kept one ends the session.
    most: usize,
    steps: Vec<Step>,
    /// The steps of a session of which the middle is skipped.
    shortened: Vec<Step>,
}

impl SessionSteps {
    pub(super) fn new(rules: StepRules) -> Self {
        let has_points = rules.start.is_some() || rules.end.is_some();
        let most = if has_points { usize::MAX } else { rules.limit.saturating_add(1) };
        Self { rules, most, steps: Vec::new(), shortened: Vec::new() }
    }

    /// Starts the next session.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.steps.clear();
    }

    /// Adds the next event of the session.
    #[inline]
    pub(super) fn add(&mut self, item: u32, time: Micros) {
        let count = self.steps.len();
        match self.steps.last_mut() {
            Some(last) if last.item == item => last.time = time,
            _ if count >= self.most => {}
            _ => self.steps.push(Step { item, time }),
        }
    }

    /// The steps of the session, numbered from 1 by their position.
    pub(super) fn finish(&mut self) -> &[Step] {
        let StepRules { start, end, limit, empty, skipped } = self.rules;
        if self.steps.last().is_some_and(|last| last.item == empty) {
            self.steps.pop();
        }
        let position = |steps: &[Step], item: u32| steps.iter().position(|step| step.item == item);
        let mut kept = self.steps.as_slice();
        if let Some(start) = start {
            kept = position(kept, start).map_or(&[], |at| &kept[at..]);
        }
        if let Some(end) = end {
            kept = position(kept, end).map_or(&[], |at| &kept[..=at]);
        }
        if kept.len() <= limit {
            return kept;
        }
        match (start, end) {
            (_, None) => &kept[..limit],
            (None, Some(_)) => &kept[kept.len() - limit..],
            (Some(_), Some(_)) => {
                let half = limit / 2;
                self.shortened.clear();
                self.shortened.extend_from_slice(&kept[..half]);
                self.shortened.push(Step { item: skipped, time: kept[half].time });
                self.shortened.extend_from_slice(&kept[kept.len() - half..]);
                &self.shortened
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: u32 = 0;
    const SKIPPED: u32 = 99;

    /// The items and times of the steps of items that are one second apart.
    fn steps(items: &[u32], start: Option<u32>, end: Option<u32>, limit: usize) -> Vec<(u32, Micros)> {
        let rules = StepRules { start, end, limit, empty: EMPTY, skipped: SKIPPED };
        let mut steps = SessionSteps::new(rules);
        for session in [&[7, 7, 8][..], items] {
            steps.begin();
            for (time, item) in (0..).zip(session) {
                steps.add(*item, time);
            }
            steps.finish();
        }
        steps.finish().iter().map(|step| (step.item, step.time)).collect()
    }

    #[test]
    fn runs_are_one_step_at_the_time_of_their_last_event() {
        assert_eq!(steps(&[1, 1, 2, 1, 1, 1], None, None, 5), [(1, 1), (2, 2), (1, 5)]);
        assert_eq!(steps(&[1, 2, 2, 2, 3, 4], None, None, 2), [(1, 0), (2, 3)]);
    }

    #[test]
    fn an_empty_item_is_dropped_at_the_end_of_the_session_only() {
        assert_eq!(steps(&[EMPTY, 1, EMPTY], None, None, 5), [(EMPTY, 0), (1, 1)]);
        assert_eq!(steps(&[1, EMPTY, 2], None, None, 2), [(1, 0), (EMPTY, 1)]);
        assert_eq!(steps(&[1, EMPTY, EMPTY], None, None, 2), [(1, 0)]);
        assert_eq!(steps(&[EMPTY], None, None, 2), []);
        assert_eq!(steps(&[], None, None, 2), []);
    }

    #[test]
    fn points_select_the_first_place_and_limits_the_side_of_the_point() {
        let items = [1, 2, 3, 2, 4, 5];
        assert_eq!(steps(&items, Some(2), None, 3), [(2, 1), (3, 2), (2, 3)]);
        assert_eq!(steps(&items, None, Some(2), 5), [(1, 0), (2, 1)]);
        assert_eq!(steps(&items, None, Some(4), 3), [(3, 2), (2, 3), (4, 4)]);
        assert_eq!(steps(&items, Some(3), Some(2), 5), [(3, 2), (2, 3)]);
        assert_eq!(steps(&items, Some(9), None, 5), []);
        assert_eq!(steps(&items, Some(4), Some(2), 5), [], "the end is before the start");
        assert_eq!(steps(&items, Some(2), Some(2), 5), [(2, 1)]);
    }

    #[test]
    fn between_two_points_the_middle_is_skipped() {
        let items = [2, 3, 4, 5, 6];
        let both = |limit| steps(&items, Some(2), Some(6), limit);
        assert_eq!(both(4), [(2, 0), (3, 1), (SKIPPED, 2), (5, 3), (6, 4)]);
        assert_eq!(both(3), [(2, 0), (SKIPPED, 1), (6, 4)]);
        assert_eq!(both(1), [(SKIPPED, 0)]);
        assert_eq!(both(5).len(), 5);
    }
}
