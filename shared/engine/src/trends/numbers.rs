//! Statistics over numbers, gathered in parts.
//!
//! Must stay true: the result is that of all numbers together, whatever parts they came in and in whatever order: sums are
//! exact until they are rounded once, percentiles come from all values.

use crate::query::Statistic;

/// Numbers gathered for one statistic.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Numbers {
    /// Their sum and how many there are.
    Sum(ExactSum, u64),
    /// The least and the greatest.
    Bounds(Option<(f64, f64)>),
    /// All of them.
    All(Vec<f64>),
}

impl Numbers {
    /// No number yet.
    pub(super) fn new(statistic: Statistic) -> Self {
        match statistic {
            Statistic::Sum | Statistic::Avg => Self::Sum(ExactSum::default(), 0),
            Statistic::Min | Statistic::Max => Self::Bounds(None),
            Statistic::Percentile(_) => Self::All(Vec::new()),
        }
    }

    /// One number more, a finite one.
    pub(super) fn push(&mut self, number: f64) {
        match self {
            Self::Sum(sum, count) => {
                sum.add(number);
                *count += 1;
            }
            Self::Bounds(bounds) => {
                let (least, greatest) = bounds.unwrap_or((number, number));
                *bounds = Some((least.min(number), greatest.max(number)));
            }
            Self::All(all) => all.push(number),
        }
    }

    /// All the numbers of another part.
    pub(super) fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Sum(sum, count), Self::Sum(more, others)) => {
                more.parts.into_iter().for_each(|part| sum.add(part));
                *count += others;
            }
            (Self::Bounds(bounds), Self::Bounds(other)) => {
                *bounds = match (*bounds, other) {
                    (Some(left), Some(right)) => Some((left.0.min(right.0), left.1.max(right.1))),
                    (one, other) => one.or(other),
                };
            }
            (Self::All(all), Self::All(more)) => all.extend(more),
            // Parts of one plan have the same statistics.
            _ => {}
        }
    }

    /// The statistic; 0 of no number.
    pub(super) fn finish(self, statistic: Statistic) -> f64 {
        match (self, statistic) {
            (Self::Sum(sum, _), Statistic::Sum) => sum.value(),
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
            (Self::Sum(sum, count), _) if count > 0 => sum.value() / count as f64,
            (Self::Bounds(Some((least, _))), Statistic::Min) => least,
            (Self::Bounds(Some((_, greatest))), _) => greatest,
            (Self::All(all), Statistic::Percentile(percent)) => percentile(all, percent),
            _ => 0.0,
        }
    }

    /// Bytes held.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Sum(sum, _) => 48 + 8 * sum.parts.len(),
            Self::Bounds(_) => 48,
            Self::All(all) => 48 + 8 * all.len(),
        }
    }
}

/// The value at `percent` of the way from the least to the greatest number, linear between neighbours.
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
    low + (high - low) * (position - below as f64)
}

/// A sum without rounding: parts that do not overlap, whose sum is the sum of all that was added (Shewchuk, 1997).
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ExactSum {
    parts: Vec<f64>,
}

impl ExactSum {
    /// Adds a finite number.
    pub(super) fn add(&mut self, number: f64) {
        let mut carried = number;
        let mut kept = 0;
        for index in 0..self.parts.len() {
            let part = self.parts[index];
            let (large, small) = if carried.abs() >= part.abs() { (carried, part) } else { (part, carried) };
            let sum = large + small;
            if sum.is_infinite() {
                // No number holds it: the largest one stands for it.
                self.parts = vec![f64::MAX.copysign(sum)];
                return;
            }
            let lost = small - (sum - large);
            if lost != 0.0 {
                self.parts[kept] = lost;
                kept += 1;
            }
            carried = sum;
        }
        self.parts.truncate(kept);
        if carried != 0.0 {
            self.parts.push(carried);
        }
    }

    /// The sum as one number. Beyond what a number can hold it is the largest one.
    pub(super) fn value(&self) -> f64 {
        // From the largest down; the first part that is lost in rounding decides ties, as Python's fsum does.
        let mut parts = self.parts.iter().rev();
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
        if sum.is_finite() { sum } else { f64::MAX.copysign(sum) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(statistic: Statistic, numbers: &[f64]) -> f64 {
        let mut gathered = Numbers::new(statistic);
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
    fn of_no_number_everything_is_zero() {
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
        fn parts_and_their_order_do_not_matter(numbers in prop::collection::vec(-1e12_f64..1e12, 0..40), at in 0_usize..40) {
            for statistic in [Statistic::Sum, Statistic::Avg, Statistic::Min, Statistic::Max, Statistic::Percentile(90)] {
                let whole = of(statistic, &numbers);
                let (left, right) = numbers.split_at(at.min(numbers.len()));
                let (mut first, mut second) = (Numbers::new(statistic), Numbers::new(statistic));
                right.iter().rev().for_each(|number| first.push(*number));
                left.iter().for_each(|number| second.push(*number));
                first.merge(second);
                prop_assert_eq!(first.finish(statistic), whole);
            }
        }
    }
}
