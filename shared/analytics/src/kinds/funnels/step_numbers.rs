//! The numbers of a result by steps.

/// The texts of a breakdown value.
pub(super) type ValueTexts = Vec<String>;

/// The numbers of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StepNumbers {
    /// The number of actors that reached it.
    pub(super) count: u64,
    /// The mean of the seconds since the step before, without zeros; none without any.
    pub(super) average: Option<f64>,
    /// The median of the same.
    pub(super) median: Option<f64>,
}
