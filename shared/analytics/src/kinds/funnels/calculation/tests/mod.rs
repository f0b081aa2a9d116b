//! The scan against an evaluator that tries every assignment of events to steps, and the examples of the contract.
#![allow(clippy::unwrap_used)]

mod breakdown;
mod one_run_per_step;
mod orders;
mod over_time;
mod step_values;
mod strict;

use proptest::prelude::*;

use super::scan::{BestPath, FunnelRules, FunnelScanner, MatchBits, StepEvent};
use crate::scan::Micros;

/// An event given by its time, the steps that it matches and the gaps `(from, to)` that it is an exclusion for.
fn event(time: Micros, steps: &[usize], excludes: &[(usize, usize)]) -> StepEvent {
    let steps = steps.iter().map(|step| MatchBits::step(*step));
    let gaps = excludes.iter().map(|(from, to)| MatchBits::exclusion(*from, *to));
    StepEvent { time, matches: steps.chain(gaps).fold(MatchBits::default(), MatchBits::with), value: 0 }
}

/// The times of the best path, empty when the actor does not count.
fn scan(steps: usize, window: Micros, events: &[StepEvent]) -> Vec<Micros> {
    scan_by(FunnelRules { steps, window, strict: false, optional: 0 }, events).0
}

/// The same by any rules, and the steps that were reached.
fn scan_by(rules: FunnelRules, events: &[StepEvent]) -> (Vec<Micros>, Vec<usize>) {
    let mut scanner = FunnelScanner::new(rules);
    scanner.begin(None);
    for tick in events.chunk_by(|one, next| one.time == next.time) {
        if !scanner.has_converted() {
            scanner.process_instant(tick);
        }
    }
    times_and_steps(scanner.best_path())
}

/// Times and steps of a path.
fn times_and_steps(reached: Option<BestPath<'_>>) -> (Vec<Micros>, Vec<usize>) {
    let Some(reached) = reached else { return (Vec::new(), Vec::new()) };
    (reached.times.to_vec(), (0..32).filter(|step| reached.steps >> step & 1 != 0).collect())
}

/// Letters are steps, `x` is an exclusion of the whole funnel, others match nothing: `"a0 x3 b5"` in the funnel `"ab"`.
fn parse_events(funnel: &str, text: &str) -> Vec<StepEvent> {
    let last = funnel.len() - 1;
    let words = text.split_whitespace().map(|word| {
        let (name, time) = word.split_at(1);
        let matches: Vec<usize> = funnel.match_indices(name).map(|(index, _)| index).collect();
        let excludes: &[(usize, usize)] = if name == "x" { &[(0, last)] } else { &[] };
        event(time.parse().unwrap(), &matches, excludes)
    });
    words.collect()
}

fn best_path_times(funnel: &str, window: Micros, text: &str) -> Vec<Micros> {
    scan(funnel.len(), window, &parse_events(funnel, text))
}

#[test]
fn the_window_runs_from_the_first_step_and_includes_its_end() {
    assert_eq!(best_path_times("ab", 10, "a0 b10"), [0, 10]);
    assert_eq!(best_path_times("ab", 10, "a0 b11"), [0]);
    assert_eq!(best_path_times("abc", 10, "a0 b6 c12"), [0, 6]);
}

#[test]
fn greedy_choices_that_lose_the_conversion_are_not_taken() {
    // The only b belongs to the first a, from which c is too far.
    assert_eq!(best_path_times("abc", 10, "a0 b1 a9 c12"), [0, 1]);
    // A later start saves the conversion.
    assert_eq!(best_path_times("ab", 10, "a0 a8 b12"), [8, 12]);
    // One event serves one of two equal steps.
    assert_eq!(best_path_times("aa", 10, "a0"), [0]);
    assert_eq!(best_path_times("aa", 10, "a0 a1"), [0, 1]);
    // Times come from the best path, not from what later starts left behind.
    assert_eq!(best_path_times("abc", 10, "a0 b1 a5 b6 c9"), [5, 6, 9]);
    assert_eq!(best_path_times("abc", 10, "a0 b1 a20"), [0, 1]);
}

#[test]
fn the_first_completion_ends_the_scan() {
    assert_eq!(best_path_times("ab", 10, "a0 b1 a2 b3"), [0, 1]);
    assert_eq!(best_path_times("a", 10, "a3 a4"), [3]);
}

#[test]
fn events_of_one_instant_are_taken_in_step_order() {
    for text in ["a5 b5 c5", "c5 b5 a5", "b5 c5 a5"] {
        assert_eq!(best_path_times("abc", 10, text), [5, 5, 5], "{text}");
    }
    // Two events of an instant are two events, one is one.
    assert_eq!(best_path_times("aa", 10, "a5 a5"), [5, 5]);
    assert_eq!(best_path_times("aa", 10, "a5 b5"), [5]);
    // A known deviation of the scan from its definition: a fresh start replaces a path that had got further.
    assert_eq!(best_path_times("baba", 5, "b4 a7 b9 a9").len(), 2);
}

#[test]
fn an_excluded_path_counts_only_after_a_fresh_start_gets_as_deep() {
    assert_eq!(best_path_times("ab", 10, "a0 x3 b5"), Vec::<Micros>::new());
    assert_eq!(best_path_times("ab", 10, "a0 x3"), Vec::<Micros>::new());
    assert_eq!(best_path_times("ab", 10, "x0 a1 b5 x6"), [1, 5]);
    assert_eq!(best_path_times("ab", 10, "a0 x11 b20"), [0], "after the window nothing is excluded");
    assert_eq!(best_path_times("ab", 10, "a0 x1 a2 b3"), [2, 3]);
    assert_eq!(best_path_times("ab", 10, "a0 x1 a20"), [20]);
    assert_eq!(
        best_path_times("abc", 10, "a0 b1 x2 a20"),
        Vec::<Micros>::new(),
        "the fresh start is not as deep"
    );
    assert_eq!(best_path_times("ab", 10, "a0 x3 b3"), [0, 3], "a mixed instant ignores exclusions");
}

#[test]
fn exclusions_act_only_in_their_gaps() {
    let path_length = |gaps: &[(usize, usize)], at: Micros| {
        let mut events =
            vec![event(0, &[0], &[]), event(10, &[1], &[]), event(20, &[2], &[]), event(at, &[], gaps)];
        events.sort_by_key(|event| event.time);
        scan(3, 100, &events).len()
    };
    assert_eq!(path_length(&[(0, 1)], 5), 0);
    assert_eq!(path_length(&[(0, 1)], 15), 3);
    assert_eq!(path_length(&[(1, 2)], 5), 3);
    assert_eq!(path_length(&[(1, 2)], 15), 0);
    assert_eq!(path_length(&[(0, 2)], 5), 0);
    assert_eq!(path_length(&[(0, 2)], 15), 0);
}

/// The most steps that any choice of distinct events takes in order of time, in the window of the first.
fn most_steps(steps: usize, window: Micros, events: &[StepEvent], matches: &[Vec<usize>]) -> usize {
    fn extend(
        next: usize,
        steps: usize,
        window: Micros,
        path: &mut Vec<usize>,
        events: &[StepEvent],
        matches: &[Vec<usize>],
    ) -> usize {
        let mut best = next;
        if next == steps {
            return best;
        }
        for index in 0..events.len() {
            let late = path.last().is_none_or(|last| events[*last].time <= events[index].time);
            let open = path.first().is_none_or(|first| events[index].time - events[*first].time <= window);
            if late && open && matches[index].contains(&next) && !path.contains(&index) {
                path.push(index);
                best = best.max(extend(next + 1, steps, window, path, events, matches));
                path.pop();
            }
        }
        best
    }
    extend(0, steps, window, &mut Vec::new(), events, matches)
}

/// Random events, each of a name; `names[i]` are the steps that the name matches.
fn random_events(distinct_times: bool) -> impl Strategy<Value = Vec<(Micros, usize)>> {
    prop::collection::vec((0_i64..if distinct_times { 60 } else { 12 }, 0..4_usize), 0..9).prop_map(
        move |mut events_by_name| {
            events_by_name.sort_by_key(|(time, _)| *time);
            if distinct_times {
                events_by_name.dedup_by_key(|(time, _)| *time);
            }
            events_by_name
        },
    )
}

fn build(events_by_name: &[(Micros, usize)], names: &[Vec<usize>]) -> (Vec<StepEvent>, Vec<Vec<usize>>) {
    let matches: Vec<Vec<usize>> = events_by_name.iter().map(|(_, name)| names[*name].clone()).collect();
    let events =
        events_by_name.iter().zip(&matches).map(|((time, _), steps)| event(*time, steps, &[])).collect();
    (events, matches)
}

/// A path is one: its times rise, stay in the window, and each belongs to an event that matches the step.
fn assert_is_path(times: &[Micros], window: Micros, events: &[StepEvent], matches: &[Vec<usize>]) {
    for (step, time) in times.iter().enumerate() {
        assert!(times[0] <= *time && time - times[0] <= window);
        assert!(step == 0 || times[step - 1] <= *time);
        let taken =
            events.iter().zip(matches).any(|(event, steps)| event.time == *time && steps.contains(&step));
        assert!(taken, "no event for step {step} at {time}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn distinct_steps_reach_as_far_as_any_choice_of_events(
        events_by_name in random_events(false), steps in 2..=4_usize, window in 0..12_i64,
    ) {
        let names: Vec<Vec<usize>> = (0..4).map(|name| if name < steps { vec![name] } else { vec![] }).collect();
        let (events, matches) = build(&events_by_name, &names);
        let times = scan(steps, window, &events);
        prop_assert_eq!(times.len(), most_steps(steps, window, &events, &matches));
        assert_is_path(&times, window, &events, &matches);
    }

    #[test]
    fn repeated_steps_reach_as_far_where_no_times_are_equal(
        events_by_name in random_events(true),
        names in prop::collection::vec(prop::collection::btree_set(0..4_usize, 0..4), 4),
        steps in 1..=4_usize,
        window in 0..60_i64,
    ) {
        let names: Vec<Vec<usize>> =
            names.into_iter().map(|name| name.into_iter().filter(|step| *step < steps).collect()).collect();
        let (events, matches) = build(&events_by_name, &names);
        let times = scan(steps, window, &events);
        prop_assert_eq!(times.len(), most_steps(steps, window, &events, &matches));
        assert_is_path(&times, window, &events, &matches);
    }
}
