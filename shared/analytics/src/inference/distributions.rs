//! The normal, Student's t and the chi-square distribution.

use super::root::find_root;
use super::special::{incomplete_beta, incomplete_gamma};

/// The probability that a standard normal variable is at most `z`.
pub fn normal_cdf(z: f64) -> f64 {
    let (inside, outside) = incomplete_gamma(0.5, 0.5 * z * z);
    if z < 0.0 { 0.5 * outside } else { 0.5 + 0.5 * inside }
}

/// The probability that a standard normal variable is at least |z| from 0.
pub fn normal_two_sided(z: f64) -> f64 {
    incomplete_gamma(0.5, 0.5 * z * z).1
}

/// The z with a probability of `level` between -z and z, for a level in (0, 1).
pub fn normal_critical(level: f64) -> f64 {
    // In the logarithm of the tail, which is nearly quadratic.
    let tail = (1.0 - level).ln();
    find_root(|z| normal_two_sided(z).ln() - tail, 0.0..=38.0, 0.0)
}

/// The probability that a Student t variable is at most `t`.
pub fn student_cdf(t: f64, freedom: f64) -> f64 {
    let tail = 0.5 * student_two_sided(t, freedom);
    if t < 0.0 { tail } else { 1.0 - tail }
}

/// The probability that a Student t variable is at least |t| from 0.
pub fn student_two_sided(t: f64, freedom: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    let square = t * t;
    let (x, y) = (freedom / (freedom + square), square / (freedom + square));
    incomplete_beta(0.5 * freedom, 0.5, x, y)
}

/// The t with a probability of `level` between -t and t, for a level in (0, 1).
pub fn student_critical(level: f64, freedom: f64) -> f64 {
    let tail = 1.0 - level;
    let mut high = 2.0;
    while student_two_sided(high, freedom) > tail && high < 1e300 {
        high *= 2.0;
    }
    find_root(|t| student_two_sided(t, freedom).ln() - tail.ln(), 0.0..=high, 0.0)
}

/// The probability that a chi-square variable is at least `x`.
pub fn chi_square_tail(x: f64, freedom: f64) -> f64 {
    incomplete_gamma(0.5 * freedom, 0.5 * x).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_of_published_tables() {
        // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7: tables of critical values.
        for (got, want) in [
            (normal_critical(0.95), 1.960),
            (normal_critical(0.99), 2.576),
            (student_critical(0.95, 1.0), 12.706),
            (student_critical(0.95, 10.0), 2.228),
            (student_critical(0.99, 30.0), 2.750),
        ] {
            assert!((got - want).abs() < 5e-4, "{got} is not {want}");
        }
        assert!((chi_square_tail(3.841, 1.0) - 0.05).abs() < 5e-5);
        assert!((chi_square_tail(18.307, 10.0) - 0.05).abs() < 5e-5);
    }

    #[test]
    fn tails_are_symmetric() {
        for x in [0.0, 0.3, 1.7, 6.0] {
            assert!((normal_cdf(x) + normal_cdf(-x) - 1.0).abs() < 1e-15);
            assert!((student_cdf(x, 3.5) + student_cdf(-x, 3.5) - 1.0).abs() < 1e-15);
        }
        // Student's t with one degree of freedom is the Cauchy distribution.
        let cauchy = 0.5 + 2_f64.atan() / std::f64::consts::PI;
        assert!((student_cdf(2.0, 1.0) - cauchy).abs() < 1e-15);
    }
}
