//! Strict and any order, and steps that may be left out, by the contract's words and examples.

use pennon_filters::work_budget::WorkBudget;

use super::super::scan::FunnelRules;
use super::super::unordered::UnorderedScanner;
use super::{event, parse_events, scan_by, times_and_steps};
use crate::scan::Micros;

fn strict(funnel: &str, window: Micros, text: &str) -> Vec<Micros> {
    let rules = FunnelRules { steps: funnel.len(), window, strict: true, optional: 0 };
    scan_by(rules, &parse_events(funnel, text)).0
}

fn unordered(funnel: &str, window: Micros, text: &str) -> Vec<Micros> {
    let mut scanner = UnorderedScanner::new(funnel.len(), window);
    times_and_steps(scanner.run(None, &parse_events(funnel, text), &WorkBudget::new(&|| false)).unwrap()).0
}

#[test]
fn in_strict_order_any_other_event_breaks_the_run() {
    assert_eq!(strict("abc", 100, "a0 b1 c2"), [0, 1, 2]);
    assert_eq!(strict("abc", 100, "a0 y1 b2 c3"), [0]);
    assert_eq!(strict("abc", 100, "a0 b1 y2 c3"), [0, 1]);
    assert_eq!(strict("abc", 100, "a0 b1 a2 c3"), [0, 1], "an event of another step breaks it too");
    assert_eq!(strict("ab", 100, "a0 y1 a2 b3"), [2, 3], "a new first step starts again");
    assert_eq!(strict("ab", 10, "a0 b11"), [0]);
}

#[test]
fn in_strict_order_a_repeat_breaks_nothing() {
    assert_eq!(strict("abc", 100, "a0 b1 b2 c3"), [0, 1, 3]);
    assert_eq!(strict("abc", 100, "a0 a1 b2 c3"), [1, 2, 3], "of a first step the latest counts");
}

#[test]
fn in_strict_order_an_instant_of_different_events_breaks_nothing() {
    assert_eq!(strict("abc", 100, "a0 b1 y1 c2"), [0, 1, 2]);
    assert_eq!(strict("abc", 100, "c0 b0 a0"), [0, 0, 0]);
    assert_eq!(strict("ab", 100, "a0 y1 y1 b2"), [0], "equal events are no different ones");
}

#[test]
fn unordered_the_most_steps_within_a_window_count() {
    assert_eq!(unordered("abc", 100, "c0 a1 b2"), [0, 1, 2]);
    assert_eq!(unordered("abc", 100, "b5"), [5]);
    assert_eq!(unordered("abc", 10, "a0 b5 c11"), [0, 5], "two at a time; a leaves before c comes");
    assert_eq!(unordered("ab", 10, "a0 b10"), [0, 10], "the window includes its end");
    assert_eq!(unordered("ab", 10, "a0 b11"), [0]);
    assert_eq!(unordered("ab", 10, "a0 a5 b14"), [5, 14]);
    assert_eq!(unordered("abc", 10, "y0"), Vec::<Micros>::new());
}

#[test]
fn unordered_an_event_is_used_for_the_step_with_the_oldest_last_event() {
    assert_eq!(unordered("aa", 10, "a0"), [0]);
    assert_eq!(unordered("aa", 10, "a0 a1"), [0, 1]);
    assert_eq!(unordered("aaa", 10, "a0 a1 a2 a3"), [0, 1, 2]);
    // The second event serves the first step as well: the other one waits for what it alone takes.
    let events = [event(0, &[0], &[]), event(1, &[0, 1], &[])];
    assert_eq!(
        times_and_steps(
            UnorderedScanner::new(2, 10).run(None, &events, &WorkBudget::new(&|| false)).unwrap()
        )
        .0,
        [0, 1]
    );
}

#[test]
fn unordered_the_path_has_the_oldest_event_of_each_step_and_ends_at_the_first_conversion() {
    assert_eq!(unordered("ab", 10, "a0 a1 b2"), [0, 2]);
    assert_eq!(unordered("ab", 10, "a0 b3 a4 b5"), [0, 3]);
}

#[test]
fn unordered_an_exclusion_removes_all_events() {
    assert_eq!(unordered("ab", 10, "a0 x1 b2"), [2]);
    assert_eq!(unordered("ab", 10, "a0 x1 b2 a3"), [2, 3]);
    assert_eq!(unordered("ab", 10, "a0 x1"), Vec::<Micros>::new());
    assert_eq!(unordered("ab", 10, "a0 b1 x2"), [0, 1]);
    assert_eq!(unordered("abc", 10, "a0 b1 c20 x21"), [0, 1], "what was counted before stays counted");
}

/// Funnel `a b c d e` whose second and fourth step are optional.
fn with_optional(window: Micros, text: &str) -> (Vec<Micros>, Vec<usize>) {
    let rules = FunnelRules { steps: 5, window, strict: false, optional: 0b01010 };
    scan_by(rules, &parse_events("abcde", text))
}

#[test]
fn optional_steps_are_reached_without_a_time_and_may_be_skipped() {
    assert_eq!(with_optional(10, "a0"), (vec![0], vec![0]));
    assert_eq!(with_optional(10, "a0 b1"), (vec![0], vec![0, 1]));
    assert_eq!(with_optional(10, "a0 c2"), (vec![0, 2], vec![0, 2]));
    assert_eq!(with_optional(10, "a0 b1 c2 d3 e4"), (vec![0, 2, 4], vec![0, 1, 2, 3, 4]));
    assert_eq!(with_optional(10, "a0 b1 c2 e4"), (vec![0, 2, 4], vec![0, 1, 2, 4]));
    assert_eq!(with_optional(10, "a0 c2 d3 e4"), (vec![0, 2, 4], vec![0, 2, 3, 4]));
    assert_eq!(with_optional(10, "a0 b1 d3 e4"), (vec![0], vec![0, 1]), "the third is required");
}

#[test]
fn an_optional_step_outside_the_window_is_skipped() {
    // The path over b began at 0; that of the newer a goes on without b.
    assert_eq!(with_optional(10, "a0 b1 a5 c12"), (vec![5, 12], vec![0, 2]));
}

#[test]
fn equal_steps_of_which_one_is_optional_need_as_many_events() {
    let rules = FunnelRules { steps: 3, window: 10, strict: false, optional: 0b010 };
    assert_eq!(scan_by(rules, &parse_events("aab", "a0 b1")).1, [0, 2]);
    assert_eq!(scan_by(rules, &parse_events("aab", "a0 a1 b2")).1, [0, 1, 2]);
}
