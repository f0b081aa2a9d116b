//! The number that lies between two others.
//!
//! Must stay true: of two finite numbers it is finite, however far apart they are.

/// The number a `share` of the way from `low` to `high`.
pub(crate) fn interpolate(low: f64, high: f64, share: f64) -> f64 {
    let apart = high - low;
    if apart.is_finite() {
        low + apart * share
    } else {
        // They are of different signs, so neither this sum nor its parts leave the range of numbers.
        low * (1.0 - share) + high * share
    }
}

#[cfg(test)]
mod tests {
    use super::interpolate;

    #[test]
    fn numbers_further_apart_than_a_number_can_say_have_one_between_them() {
        assert_eq!(interpolate(-f64::MAX, f64::MAX, 0.0), -f64::MAX);
        assert_eq!(interpolate(-f64::MAX, f64::MAX, 0.5), 0.0);
        let large = 2_f64.powi(1023);
        assert_eq!(interpolate(large, -large, 0.25), large / 2.0);
        assert_eq!(interpolate(2.0, 4.0, 0.25), 2.5);
    }
}
