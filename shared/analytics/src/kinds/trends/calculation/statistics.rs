//! Mergeable states of statistics over numbers.
//!
//! Must stay true: the result does not depend on how the numbers were split over partial states or on their order. Sums
//! are exact and rounded once at the end; percentiles use all values.

use serde::{Deserialize, Serialize};

use crate::interpolate::interpolate;
use crate::numbers::ExactSum;
use crate::query::Statistic;

/// The state of one statistic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum StatisticState {
    /// Sum and count.
    Sum(ExactSum, u64),
    /// Minimum and maximum; `None` without numbers.
    Bounds(Option<(f64, f64)>),
    /// All numbers.
    All(Vec<f64>),
}

impl StatisticState {
    /// The empty state.
    pub(super) fn new(statistic: Statistic) -> Self {
        match statistic {
            Statistic::Sum | Statistic::Avg => Self::Sum(ExactSum::default(), 0),
            Statistic::Min | Statistic::Max => Self::Bounds(None),
            Statistic::Percentile(_) => Self::All(Vec::new()),
        }
    }

    /// Adds a finite number.
    pub(super) fn push(&mut self, number: f64) {
        match self {
            Self::Sum(sum, count) => {
                sum.add(number);
                *count += 1;
            }
            Self::Bounds(bounds) => {
                let (min, max) = bounds.unwrap_or((number, number));
                *bounds = Some((min.min(number), max.max(number)));
            }
            Self::All(all) => all.push(number),
        }
    }

    /// Adds all numbers of another state.
    pub(super) fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Sum(sum, count), Self::Sum(more, others)) => {
                sum.merge(more);
                *count += others;
            }
            (Self::Bounds(bounds), Self::Bounds(other)) => {
                *bounds = match (*bounds, other) {
                    (Some(left), Some(right)) => Some((left.0.min(right.0), left.1.max(right.1))),
                    (one, other) => one.or(other),
                };
            }
            (Self::All(all), Self::All(more)) => all.extend(more),
            // Partial results of one plan use the same statistics.
            _ => {}
        }
    }

    /// The value of the statistic; 0 without numbers.
    pub(super) fn finish(self, statistic: Statistic) -> f64 {
        match (statistic, self) {
            (Statistic::Sum, Self::Sum(sum, _)) => sum.value(),
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
            (Statistic::Avg, Self::Sum(sum, count)) if count > 0 => sum.value() / count as f64,
            (Statistic::Min, Self::Bounds(Some((min, _)))) => min,
            (Statistic::Max, Self::Bounds(Some((_, max)))) => max,
            (Statistic::Percentile(percent), Self::All(all)) => percentile(all, percent),
            // Each statistic is listed, so that a new one does not compile without its value.
            (
                Statistic::Sum | Statistic::Avg | Statistic::Min | Statistic::Max | Statistic::Percentile(_),
                _,
            ) => 0.0,
        }
    }

    /// Bytes held.
    pub(super) fn size_bytes(&self) -> usize {
        match self {
            Self::Sum(sum, _) => 32 + sum.size_bytes(),
            Self::Bounds(_) => 48,
            Self::All(all) => 48 + 8 * all.len(),
        }
    }
}

/// The percentile, with linear interpolation between the two nearest ranks.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positions are small and not negative"
)]
fn percentile(mut numbers: Vec<f64>, percent: u8) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let Some(last) = numbers.len().checked_sub(1) else { return 0.0 };
    let position = f64::from(percent) * last as f64 / 100.0;
    let below = (position.floor() as usize).min(last);
    let (low, high) = (numbers[below], numbers[(below + 1).min(last)]);
    interpolate(low, high, position - below as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(statistic: Statistic, numbers: &[f64]) -> f64 {
        let mut gathered = StatisticState::new(statistic);
        numbers.iter().for_each(|number| gathered.push(*number));
        gathered.finish(statistic)
    }

    #[test]
    fn percentiles_interpolate_between_neighbours() {
        let numbers: Vec<f64> = (101..=200).map(f64::from).collect();
        for (percent, want) in [(50, 150.5), (75, 175.25), (90, 190.1), (95, 195.05), (99, 199.01)] {
            let got = of(Statistic::Percentile(percent), &numbers);
            assert!((got - want).abs() < 1e-9, "{percent}: {got}");
        }
        assert_eq!(of(Statistic::Percentile(50), &[3.0]), 3.0);
    }

    #[test]
    fn percentiles_do_not_overflow() {
        let numbers = [f64::MAX, -f64::MAX, f64::MAX];
        let at = |percent, numbers: &[f64]| of(Statistic::Percentile(percent), numbers);
        assert_eq!(at(50, &numbers), f64::MAX);
        // Half of the way, and a quarter, between the two ends.
        assert_eq!(at(50, &[f64::MAX, -f64::MAX]), 0.0);
        let large = 2_f64.powi(1023);
        assert_eq!(at(75, &[large, -large]), large / 2.0);
        assert_eq!(at(50, &[-f64::MAX, f64::MAX, f64::MAX, -f64::MAX, -f64::MAX]), -f64::MAX);
    }

    #[test]
    fn statistics_without_numbers_are_zero() {
        for statistic in
            [Statistic::Sum, Statistic::Avg, Statistic::Min, Statistic::Max, Statistic::Percentile(50)]
        {
            assert_eq!(of(statistic, &[]), 0.0);
        }
        assert_eq!(of(Statistic::Avg, &[1.0, 2.0]), 1.5);
        assert_eq!((of(Statistic::Min, &[4.0, -2.0]), of(Statistic::Max, &[4.0, -2.0])), (-2.0, 4.0));
    }

    #[test]
    fn sums_lose_nothing_to_rounding() {
        assert_eq!(of(Statistic::Sum, &[1e16, 1.0, -1e16]), 1.0);
        assert_eq!(of(Statistic::Sum, &[0.1; 10]), 1.0);
        assert_eq!(of(Statistic::Sum, &[f64::MAX, f64::MAX]), f64::MAX);
    }

    proptest! {
        #[test]
        fn partial_states_merge_in_any_order(numbers in prop::collection::vec(-1e12_f64..1e12, 0..40), at in 0_usize..40) {
            for statistic in [Statistic::Sum, Statistic::Avg, Statistic::Min, Statistic::Max, Statistic::Percentile(90)] {
                let whole = of(statistic, &numbers);
                let (left, right) = numbers.split_at(at.min(numbers.len()));
                let (mut first, mut second) = (StatisticState::new(statistic), StatisticState::new(statistic));
                right.iter().rev().for_each(|number| first.push(*number));
                left.iter().for_each(|number| second.push(*number));
                first.merge(second);
                prop_assert_eq!(first.finish(statistic), whole);
            }
        }
    }
}
