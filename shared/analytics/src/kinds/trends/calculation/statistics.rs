//! Mergeable states of statistics over numbers.
//!
//! Must stay true: the result does not depend on how the numbers were split over partial states or on their order. Sums
//! are exact and rounded once at the end; percentiles use all values.

use crate::interpolate::interpolate;
use crate::query::Statistic;

/// The state of one statistic.
#[derive(Debug, Clone, PartialEq)]
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
            Self::Sum(sum, _) => 64 + 8 * sum.parts.len(),
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

/// A sum without rounding errors. Numbers of usual size are added as fixed-point integers in units of 2^-64; the others
/// as a list of non-overlapping floats whose sum is exact (Shewchuk, 1997).
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ExactSum {
    units: i128,
    parts: Vec<f64>,
}

/// Fraction bits of the fixed-point integers.
const FRACTION: u32 = 64;
/// 2^-64.
const UNIT: f64 = 1.0 / 18_446_744_073_709_551_616.0;

/// Converts a number to units of 2^-64. `None` if it is not a multiple of the unit, or too large to add millions of.
#[inline]
fn units_of(number: f64) -> Option<i128> {
    let bits = number.to_bits();
    let exponent = u32::try_from(bits >> 52 & 0x7ff).unwrap_or(0);
    // The number is its digits times two to the power of (exponent - 1075).
    let shift = exponent.wrapping_sub(1075 - FRACTION);
    if shift > 50 {
        return (number == 0.0).then_some(0);
    }
    let digits = i128::from(bits & ((1 << 52) - 1) | 1 << 52) << shift;
    Some(if number < 0.0 { -digits } else { digits })
}

impl ExactSum {
    /// Adds a finite number.
    #[inline]
    pub(super) fn add(&mut self, number: f64) {
        match units_of(number).and_then(|units| self.units.checked_add(units)) {
            Some(units) => self.units = units,
            None => self.add_part(number),
        }
    }

    /// Adds another sum.
    pub(super) fn merge(&mut self, other: Self) {
        match self.units.checked_add(other.units) {
            Some(units) => self.units = units,
            None => other.unit_parts().into_iter().for_each(|part| self.add_part(part)),
        }
        other.parts.into_iter().for_each(|part| self.add_part(part));
    }

    /// Splits the integer sum into floats with the same sum.
    #[expect(clippy::cast_precision_loss, reason = "each has as few digits as a float can hold")]
    fn unit_parts(&self) -> [f64; 3] {
        const DIGITS: i128 = (1 << 48) - 1;
        const STEP: f64 = 281_474_976_710_656.0;
        let (low, middle, high) = (self.units & DIGITS, self.units >> 48 & DIGITS, self.units >> 96);
        [low as f64 * UNIT, middle as f64 * (UNIT * STEP), high as f64 * (UNIT * STEP * STEP)]
    }

    /// Adds a finite number to the parts.
    fn add_part(&mut self, number: f64) {
        let mut carry = number;
        let mut part_count = 0;
        for index in 0..self.parts.len() {
            let part = self.parts[index];
            let (large, small) = if carry.abs() >= part.abs() { (carry, part) } else { (part, carry) };
            let sum = large + small;
            if sum.is_infinite() {
                // The sum overflows: saturate at the largest float.
                self.parts = vec![f64::MAX.copysign(sum)];
                return;
            }
            let lost = small - (sum - large);
            if lost != 0.0 {
                self.parts[part_count] = lost;
                part_count += 1;
            }
            carry = sum;
        }
        self.parts.truncate(part_count);
        if carry != 0.0 {
            self.parts.push(carry);
        }
    }

    /// The sum, rounded once; saturates at the largest float.
    pub(super) fn value(&self) -> f64 {
        let mut all = Self { units: 0, parts: self.parts.clone() };
        self.unit_parts().into_iter().for_each(|part| all.add_part(part));
        // From the largest part down; the first part lost to rounding decides ties, as in Python's fsum.
        let mut parts = all.parts.iter().rev();
        let Some(mut sum) = parts.next().copied() else { return 0.0 };
        while let Some(part) = parts.next() {
            let before = sum;
            sum += part;
            let lost = part - (sum - before);
            if lost != 0.0 {
                if let Some(next) = parts.next()
                    && (lost < 0.0) == (*next < 0.0)
                {
                    let doubled = lost * 2.0;
                    let rounded = sum + doubled;
                    if doubled == rounded - sum {
                        sum = rounded;
                    }
                }
                break;
            }
        }
        finite(sum)
    }
}

/// Replaces infinity, which JSON cannot represent, by the largest float.
pub(crate) fn finite(sum: f64) -> f64 {
    if sum.is_finite() { sum } else { f64::MAX.copysign(sum) }
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
    fn integers_and_float_parts_give_one_sum() {
        // Numbers on both sides of what is added as integers: tiny, usual, large.
        let numbers = [1e-9, 0.1, -0.1, 3.5, 1e15, -1e15, 549_755_813_887.75, -549_755_813_887.75, 2.5e-300];
        for turn in 0..numbers.len() {
            let (left, right) = numbers.split_at(turn);
            let mut sum = StatisticState::new(Statistic::Sum);
            right.iter().chain(left).for_each(|number| sum.push(*number));
            assert_eq!(sum.finish(Statistic::Sum), 3.500_000_001);
        }
        // More than the integers hold.
        let mut sum = ExactSum { units: i128::MAX - 5, parts: Vec::new() };
        sum.add(1.5);
        let mut other = ExactSum { units: i128::MIN + 6, parts: Vec::new() };
        other.add(-2.5);
        sum.merge(other);
        assert_eq!(sum.value(), -1.0);
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
