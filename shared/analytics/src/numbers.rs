//! Sums of floats without rounding errors, and numbers in results.
//!
//! Must stay true: a sum does not depend on the order of the numbers, nor on how they were split over partial sums; it is
//! rounded once at the end. No result has an infinite number.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A sum without rounding errors. Numbers of usual size are added as fixed-point integers in units of 2^-64; the others
/// as a list of non-overlapping floats whose sum is exact (Shewchuk, 1997).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExactSum {
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
    pub(crate) fn add(&mut self, number: f64) {
        match units_of(number).and_then(|units| self.units.checked_add(units)) {
            Some(units) => self.units = units,
            None => self.add_part(number),
        }
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: Self) {
        match self.units.checked_add(other.units) {
            Some(units) => self.units = units,
            None => other.unit_parts().into_iter().for_each(|part| self.add_part(part)),
        }
        other.parts.into_iter().for_each(|part| self.add_part(part));
    }

    /// Bytes held.
    pub(crate) fn size_bytes(&self) -> usize {
        32 + 8 * self.parts.len()
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
    pub(crate) fn value(&self) -> f64 {
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

/// Serializes a number; one without a fraction as an integer.
#[expect(clippy::cast_possible_truncation, reason = "the bounds are checked")]
pub(crate) fn number_json(number: f64) -> Value {
    let number = finite(number);
    if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 {
        json!(number as i64)
    } else {
        json!(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_float_parts_give_one_sum() {
        // Numbers on both sides of what is added as integers: tiny, usual, large.
        let numbers = [1e-9, 0.1, -0.1, 3.5, 1e15, -1e15, 549_755_813_887.75, -549_755_813_887.75, 2.5e-300];
        for turn in 0..numbers.len() {
            let (left, right) = numbers.split_at(turn);
            let mut sum = ExactSum::default();
            right.iter().chain(left).for_each(|number| sum.add(*number));
            assert_eq!(sum.value(), 3.500_000_001);
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
    fn sums_are_decoded_to_the_bit() {
        let parts = vec![5e-324, -0.0, f64::MAX, f64::NEG_INFINITY, f64::from_bits(0x7ff8_0000_dead_beef)];
        for units in [0, 1, -1, i128::MAX, i128::MIN] {
            let sum = ExactSum { units, parts: parts.clone() };
            let decoded = crate::part_format::decoded(&sum);
            let bits = |sum: &ExactSum| sum.parts.iter().map(|part| part.to_bits()).collect::<Vec<_>>();
            assert_eq!((decoded.units, bits(&decoded)), (units, bits(&sum)));
        }
    }
}
