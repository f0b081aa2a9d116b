//! A cancelled query stops: it checks at least every few thousand values, and does nothing after the check.

use std::cell::Cell;

use pennon_filters::ErrorKind;

use crate::support::World;
use crate::workloads::{Spread, Workload, all, world};
use crate::{persons, thread_time};

const VALUES: usize = 1_000;
/// Processor time between two checks, in nanoseconds, in a build that is not optimized: all cores are free within a second
/// of a cancellation, with room for machines that are slower.
const MOST_BETWEEN_CHECKS: i64 = 125_000_000;

/// Cancels at the check of this number. Returns the number of checks and whether the query was cancelled.
fn checks(workload: &Workload, world: &World, cancel_at: usize) -> (usize, bool) {
    let checks = Cell::new(0);
    let is_cancelled = || {
        checks.set(checks.get() + 1);
        checks.get() >= cancel_at
    };
    let ended = match workload.calculate(workload.prepare(world), &is_cancelled) {
        Ok(()) => false,
        Err(error) if error.kind == ErrorKind::Timeout => true,
        Err(error) => panic!("{}: {error}", workload.name),
    };
    (checks.get(), ended)
}

#[test]
fn no_check_follows_the_one_that_is_cancelled() {
    let world = world(VALUES, Spread::Persons);
    for workload in all() {
        let (most, ended) = checks(&workload, &world, usize::MAX);
        assert!(!ended && most > 2, "{}: {most} checks", workload.name);
        for cancel_at in [1, 2, most / 2, most] {
            let cancel_at = cancel_at.max(1);
            assert_eq!(checks(&workload, &world, cancel_at), (cancel_at, true), "{}", workload.name);
        }
    }
}

/// Work per distinct value checks for cancellation repeatedly.
#[test]
fn more_values_are_checked_more_often() {
    let (few, many) = (world(VALUES / 4, Spread::Persons), world(4 * VALUES, Spread::Persons));
    let by_value = |workload: &&Workload| {
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
        .any(|kind| workload.name.contains(kind))
    };
    for workload in all().iter().filter(by_value) {
        let (few, many) = (checks(workload, &few, usize::MAX).0, checks(workload, &many, usize::MAX).0);
        assert!(many > few, "{}: {few} checks, {many} of sixteen times as many values", workload.name);
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
fn the_time_between_two_checks_is_short() {
    let mut too_long = Vec::new();
    for (spread, values) in [(Spread::Persons, 4_000), (Spread::One, 1_000), (Spread::Names, 1_000)] {
        let world = world(values, spread);
        for workload in all() {
            // The minimum of three: other processes make a measurement longer.
            let measure = || {
                let prepared = workload.prepare(&world);
                longest_without_check(|check| workload.calculate(prepared, check).unwrap())
            };
            if (0..3).all(|_| measure() > MOST_BETWEEN_CHECKS) {
                too_long.push(workload.name.clone());
            }
        }
    }
    for work in persons::cohorts(4_000, Spread::Persons) {
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
