//! Defects that are put into the simulation itself: a table, objects or a model that are wrong. The simulation must find each.

use super::runs::run_seeds;

/// Something that is wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Defect {
    /// Every sixteenth put of an object is acknowledged, and nothing is stored.
    LostObject,
    /// Every sixteenth transaction is acknowledged, and nothing is written.
    LostRow,
    /// The last write of every transaction is missing.
    HalfTransaction,
    /// The table writes whatever the condition of the write is.
    ForgottenCondition,
    /// The model counts an event that is sent again.
    CountedDuplicates,
}

#[track_caller]
fn assert_found(defect: Defect, seeds: u64) {
    assert!(run_seeds(1..=seeds, Some(defect)).is_err(), "no history of {seeds} shows {defect:?}");
}

#[test]
fn a_lost_object_is_found() {
    assert_found(Defect::LostObject, 5);
}

#[test]
fn a_lost_row_is_found() {
    assert_found(Defect::LostRow, 5);
}

#[test]
fn half_of_a_transaction_is_found() {
    assert_found(Defect::HalfTransaction, 5);
}

/// Only writes of two processes at the same time differ.
#[test]
fn a_forgotten_condition_is_found() {
    assert_found(Defect::ForgottenCondition, 40);
}

#[test]
fn duplicates_that_count_are_found() {
    assert_found(Defect::CountedDuplicates, 5);
}
