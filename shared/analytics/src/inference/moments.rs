//! The mean and the variance of numbers.
//!
//! Must stay true: neither depends on the order of the numbers, nor on how they were split over partial states; the variance
//! does not lose digits where the mean is large.

use serde::{Deserialize, Serialize};

use super::float;
use crate::numbers::ExactSum;

/// Numbers beyond this count as this, so that squares are finite.
const LARGEST: f64 = 1e150;

/// The sums of numbers and of their squares, without rounding errors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    count: u64,
    sum: ExactSum,
    squares: ExactSum,
}

impl Moments {
    /// Adds a finite number.
    pub fn add(&mut self, number: f64) {
        let number = number.clamp(-LARGEST, LARGEST);
        let square = number * number;
        self.count += 1;
        self.sum.add(number);
        self.squares.add(square);
        self.squares.add(number.mul_add(number, -square));
    }

    /// Adds all numbers of another state.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.sum.merge(other.sum);
        self.squares.merge(other.squares);
    }

    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum.value()
    }

    /// Their mean; 0 without numbers.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum() / float(self.count) }
    }

    /// The variance with the divisor n - 1; 0 for fewer than two numbers.
    pub fn variance(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        // n * squares - sum^2, both as unevaluated sums of two floats.
        let n = float(self.count);
        let ((sum, sum_rest), (squares, squares_rest)) = (split(&self.sum), split(&self.squares));
        let product = n * squares;
        let product_rest = n.mul_add(squares, -product) + n * squares_rest;
        let square = sum * sum;
        let square_rest = sum.mul_add(sum, -square) + 2.0 * sum * sum_rest;
        let numerator = (product - square) + (product_rest - square_rest);
        (numerator / (n * (n - 1.0))).max(0.0)
    }
}

/// A sum as the nearest float and the rest.
fn split(sum: &ExactSum) -> (f64, f64) {
    let nearest = sum.value();
    let mut rest = sum.clone();
    rest.add(-nearest);
    (nearest, rest.value())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(numbers: &[f64]) -> Moments {
        let mut moments = Moments::default();
        numbers.iter().for_each(|number| moments.add(*number));
        moments
    }

    #[test]
    fn a_large_mean_costs_no_digits() {
        // The variance of 1, 2, 3, 4 is 5/3, wherever they begin.
        for offset in [0.0, 1e6, -1e9, 1e12] {
            let moments = of(&[offset + 1.0, offset + 2.0, offset + 3.0, offset + 4.0]);
            assert!((moments.variance() - 5.0 / 3.0).abs() < 1e-15, "{offset}: {}", moments.variance());
            assert_eq!(moments.mean(), offset + 2.5);
        }
        assert_eq!((of(&[]).mean(), of(&[7.0]).variance(), of(&[7.1, 7.1]).variance()), (0.0, 0.0, 0.0));
        assert!(of(&[f64::MAX, -f64::MAX]).variance().is_finite());
    }

    proptest! {
        #[test]
        fn partial_states_merge_in_any_order(numbers in prop::collection::vec(-1e9_f64..1e9, 0..40), at in 0_usize..40) {
            let whole = of(&numbers);
            let (left, right) = numbers.split_at(at.min(numbers.len()));
            let mut merged = of(&right.iter().rev().copied().collect::<Vec<_>>());
            merged.merge(of(left));
            prop_assert_eq!(merged.mean(), whole.mean());
            prop_assert_eq!(merged.variance(), whole.variance());
        }
    }
}
