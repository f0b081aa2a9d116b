//! Linear interpolation between two numbers.
//!
//! Must stay true: the result for two finite numbers is finite, even if their difference overflows.

/// The number at `fraction` (0 to 1) of the way from `low` to `high`.
pub(crate) fn interpolate(low: f64, high: f64, fraction: f64) -> f64 {
    let difference = high - low;
    if difference.is_finite() {
        low + difference * fraction
    } else {
        // Their signs differ, so neither this sum nor its terms overflow.
        low * (1.0 - fraction) + high * fraction
    }
}

#[cfg(test)]
mod tests {
    use super::interpolate;

    #[test]
    fn interpolation_does_not_overflow() {
        assert_eq!(interpolate(-f64::MAX, f64::MAX, 0.0), -f64::MAX);
        assert_eq!(interpolate(-f64::MAX, f64::MAX, 0.5), 0.0);
        let large = 2_f64.powi(1023);
        assert_eq!(interpolate(large, -large, 0.25), large / 2.0);
        assert_eq!(interpolate(2.0, 4.0, 0.25), 2.5);
    }
}
