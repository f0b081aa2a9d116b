//! Root finding in a bracket.

use std::ops::RangeInclusive;

/// Steps at most; each at least halves the bracket every few steps.
const STEPS: u32 = 200;

/// The root of a continuous function with different signs at the ends of `bracket`, by the method of T. R. Chandrupatla, "A new
/// hybrid quadratic/bisection algorithm for finding the zero of a nonlinear function" (1997). It is found to the last digit, or
/// to `precision`.
pub(super) fn find_root(function: impl Fn(f64) -> f64, bracket: RangeInclusive<f64>, precision: f64) -> f64 {
    let (mut b, mut a) = bracket.into_inner();
    let (mut at_a, mut at_b) = (function(a), function(b));
    let mut fraction = 0.5;
    for _ in 0..STEPS {
        let x = a + fraction * (b - a);
        let at_x = function(x);
        // The end of the bracket that is given up.
        let (c, at_c) = if (at_x > 0.0) == (at_a > 0.0) {
            (a, at_a)
        } else {
            let given_up = (b, at_b);
            (b, at_b) = (a, at_a);
            given_up
        };
        (a, at_a) = (x, at_x);
        let (best, at_best) = if at_a.abs() < at_b.abs() { (a, at_a) } else { (b, at_b) };
        let tolerance = 2.0 * f64::EPSILON * best.abs() + precision.max(f64::MIN_POSITIVE);
        let limit = tolerance / (b - c).abs();
        if limit > 0.5 || at_best == 0.0 {
            return best;
        }
        let (xi, phi) = ((a - b) / (c - b), (at_a - at_b) / (at_c - at_b));
        let is_smooth = phi * phi < xi && (1.0 - phi) * (1.0 - phi) < 1.0 - xi;
        fraction = if is_smooth {
            at_a / (at_b - at_a) * at_c / (at_b - at_c)
                + (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
        } else {
            0.5
        };
        fraction = fraction.clamp(limit, 1.0 - limit);
    }
    if at_a.abs() < at_b.abs() { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_found_in_either_direction() {
        for (low, high) in [(0.0, 2.0), (2.0, 0.0)] {
            assert!((find_root(|x| x * x - 2.0, low..=high, 0.0) - 2_f64.sqrt()).abs() < 1e-15);
            assert!((find_root(|x| 1.0 - x.powi(9), low..=high, 0.0) - 1.0).abs() < 1e-15);
        }
        assert_eq!(find_root(|x| x, -1.0..=1.0, 0.0), 0.0);
        // A step: the root is where the sign changes.
        assert!((find_root(|x| if x < 0.3 { -1.0 } else { 1.0 }, 0.0..=1.0, 0.0) - 0.3).abs() < 1e-12);
    }
}
