//! A cancelled question stops: it checks at least every few thousand values, and does nothing after the check.

use std::cell::Cell;

use pennon_filters::ErrorKind;

use crate::questions::{Question, Spread, all, world};
use crate::support::World;
use crate::{persons, thread_time};

const VALUES: usize = 2_000;
/// Processor time between two checks, in nanoseconds, in a build that is not optimized: all cores are free within a second
/// of a cancellation, with room for machines that are slower.
const MOST_BETWEEN_CHECKS: i64 = 250_000_000;

/// Cancels at the check of this number. The number of checks made, and whether the question ended as cancelled.
fn checks(question: &Question, world: &World, cancel_at: usize) -> (usize, bool) {
    let checks = Cell::new(0);
    let is_cancelled = || {
        checks.set(checks.get() + 1);
        checks.get() >= cancel_at
    };
    let ended = match question.calculate(question.prepare(world), &is_cancelled) {
        Ok(()) => false,
        Err(error) if error.kind == ErrorKind::Timeout => true,
        Err(error) => panic!("{}: {error}", question.name),
    };
    (checks.get(), ended)
}

#[test]
fn whatever_check_finds_a_question_cancelled_is_the_last() {
    let world = world(VALUES, Spread::Persons);
    for question in all() {
        let (most, ended) = checks(&question, &world, usize::MAX);
        assert!(!ended && most > 2, "{}: {most} checks", question.name);
        for cancel_at in [1, 2, most / 2, most] {
            let cancel_at = cancel_at.max(1);
            assert_eq!(checks(&question, &world, cancel_at), (cancel_at, true), "{}", question.name);
        }
    }
}

/// Work that is done once a distinct value is checked again and again while it goes on.
#[test]
fn more_values_are_checked_more_often() {
    let (few, many) = (world(VALUES / 4, Spread::Persons), world(4 * VALUES, Spread::Persons));
    let by_value = |question: &&Question| {
        [
            "by event property",
            "by url",
            "by expression",
            "by several",
            "texts inside",
            "an expression",
            "a pattern",
        ]
        .iter()
        .any(|kind| question.name.contains(kind))
    };
    for question in all().iter().filter(by_value) {
        let (few, many) = (checks(question, &few, usize::MAX).0, checks(question, &many, usize::MAX).0);
        assert!(many > few, "{}: {few} checks, {many} of sixteen times as many values", question.name);
    }
}

/// The most processor time between two checks for cancellation, from the beginning to the end of some work.
fn longest_without_check(work: impl FnOnce(&dyn Fn() -> bool)) -> i64 {
    let (last, longest) = (Cell::new(thread_time()), Cell::new(0));
    let check = || {
        let now = thread_time();
        longest.set(longest.get().max(now - last.replace(now)));
        false
    };
    work(&check);
    check();
    longest.get()
}

#[test]
fn little_is_done_between_two_checks() {
    let mut too_long = Vec::new();
    for (spread, values) in [(Spread::Persons, 8_000), (Spread::One, 2_000), (Spread::Names, 2_000)] {
        let world = world(values, spread);
        for question in all() {
            // The least of a few: what else happens on the machine makes it longer.
            let measure = || {
                let prepared = question.prepare(&world);
                longest_without_check(|check| question.calculate(prepared, check).unwrap())
            };
            if (0..3).all(|_| measure() > MOST_BETWEEN_CHECKS) {
                too_long.push(question.name.clone());
            }
        }
    }
    for work in persons::cohorts(8_000, Spread::Persons) {
        let measure = || {
            let prepared = (work.prepare)();
            longest_without_check(|check| prepared(check).unwrap())
        };
        if (0..3).all(|_| measure() > MOST_BETWEEN_CHECKS) {
            too_long.push(work.name.clone());
        }
    }
    assert!(too_long.is_empty(), "more than {MOST_BETWEEN_CHECKS} ns without a check: {too_long:#?}");
}
