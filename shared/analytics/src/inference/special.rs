//! Special functions: the incomplete gamma and beta functions.
//!
//! The front factors use the saddle-point form of C. Loader, "Fast and accurate computation of binomial probabilities"
//! (2000), which does not lose digits for large parameters, where differences of log-gammas do.
//!
//! Must stay true: relative errors stay below 1e-11 for parameters up to 1e8.

use std::f64::consts::PI;

/// Relative size of the last term of a series or continued fraction.
const PRECISION: f64 = 1e-16;
/// Replaces zero in continued fractions.
const TINY: f64 = 1e-300;
/// Terms of a continued fraction or series, at most. The number of terms grows with the square root of the parameters.
const TERMS: u32 = 1_000_000;

/// The error of Stirling's formula: ln(n!) - ln(sqrt(2 pi n) (n/e)^n), for n > 0.
pub fn stirling_error(n: f64) -> f64 {
    // Below the series' range, by the recurrence between n and n + 1.
    let (mut argument, mut error) = (n, 0.0);
    while argument < 16.0 {
        error += (argument + 0.5) * (1.0 / argument).ln_1p() - 1.0;
        argument += 1.0;
    }
    let square = argument * argument;
    let series = 1.0 / 1188.0 / square;
    let series = (series - 1.0 / 1680.0) / square;
    let series = (series + 1.0 / 1260.0) / square;
    let series = (series - 1.0 / 360.0) / square;
    error + (series + 1.0 / 12.0) / argument
}

/// The logarithm of the gamma function, for x > 0.
pub fn ln_gamma(x: f64) -> f64 {
    stirling_error(x) + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * PI).ln()
}

/// x ln(x / mean) + mean - x, without cancellation where both are near to each other.
fn deviance(x: f64, mean: f64) -> f64 {
    if (x - mean).abs() >= 0.1 * (x + mean) {
        return x * (x / mean).ln() + mean - x;
    }
    let ratio = (x - mean) / (x + mean);
    let mut sum = (x - mean) * ratio;
    let mut term = 2.0 * x * ratio;
    for index in 1..1_000 {
        term *= ratio * ratio;
        let next = sum + term / f64::from(2 * index + 1);
        if next == sum {
            break;
        }
        sum = next;
    }
    sum
}

/// x^a y^b / B(a, b), for x + y = 1 and a, b > 0.
pub fn beta_term(a: f64, b: f64, x: f64, y: f64) -> f64 {
    if x <= 0.0 || y <= 0.0 {
        return 0.0;
    }
    let n = a + b;
    let errors = stirling_error(n) - stirling_error(a) - stirling_error(b);
    let exponent = errors - deviance(a, n * x) - deviance(b, n * y);
    (a * b / n) * exponent.exp() * (n / (2.0 * PI * a * b)).sqrt()
}

/// The regularized incomplete beta function I_x(a, b), where `y` is 1 - x.
pub fn incomplete_beta(a: f64, b: f64, x: f64, y: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if y <= 0.0 {
        return 1.0;
    }
    let term = beta_term(a, b, x, y);
    let value = if x * (a + b + 2.0) <= a + 1.0 {
        term * beta_fraction(a, b, x) / a
    } else {
        1.0 - term * beta_fraction(b, a, y) / b
    };
    value.clamp(0.0, 1.0)
}

/// The continued fraction of the incomplete beta function, by the modified method of Lentz.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    let avoid_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / avoid_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for index in 1..TERMS {
        let m = f64::from(index);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / avoid_zero(1.0 + even * d);
        c = avoid_zero(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / avoid_zero(1.0 + odd * d);
        c = avoid_zero(1.0 + odd / c);
        let factor = d * c;
        fraction *= factor;
        if (factor - 1.0).abs() <= 4.0 * PRECISION {
            break;
        }
    }
    fraction
}

/// The regularized incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x), for a > 0. Both keep their relative precision.
pub fn incomplete_gamma(a: f64, x: f64) -> (f64, f64) {
    if x <= 0.0 {
        return (0.0, 1.0);
    }
    if x.is_infinite() {
        return (1.0, 0.0);
    }
    // x^a e^-x / Gamma(a)
    let term = a * (-stirling_error(a) - deviance(a, x)).exp() / (2.0 * PI * a).sqrt();
    if x < a + 1.0 {
        let lower = term * gamma_series(a, x) / a;
        (lower, 1.0 - lower)
    } else {
        let upper = term * gamma_fraction(a, x);
        (1.0 - upper, upper)
    }
}

fn gamma_series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for index in 1..TERMS {
        term *= x / (a + f64::from(index));
        sum += term;
        if term <= sum * PRECISION {
            break;
        }
    }
    sum
}

fn gamma_fraction(a: f64, x: f64) -> f64 {
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / b;
    let mut fraction = d;
    for index in 1..TERMS {
        let n = f64::from(index);
        let coefficient = -n * (n - a);
        b += 2.0;
        d = coefficient * d + b;
        d = 1.0 / if d.abs() < TINY { TINY } else { d };
        c = b + coefficient / c;
        c = if c.abs() < TINY { TINY } else { c };
        let factor = d * c;
        fraction *= factor;
        if (factor - 1.0).abs() <= 4.0 * PRECISION {
            break;
        }
    }
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-13 * want.abs(), "{got} is not {want}");
    }

    #[test]
    fn log_gamma_of_factorials_and_halves() {
        // Gamma(1/2) = sqrt(pi), Gamma(n) = (n - 1)!
        assert_near(ln_gamma(0.5), 0.5 * PI.ln());
        assert!(ln_gamma(1.0).abs() < 1e-15 && ln_gamma(2.0).abs() < 1e-15);
        assert_near(ln_gamma(11.0), 3_628_800_f64.ln());
        assert_near(ln_gamma(21.0), 2_432_902_008_176_640_000_f64.ln());
    }

    #[test]
    fn incomplete_beta_has_closed_forms() {
        // I_x(1, b) = 1 - (1 - x)^b, I_x(a, 1) = x^a, I_x(2, 2) = x^2 (3 - 2 x).
        for x in [1e-9_f64, 0.01, 0.3, 0.5, 0.77, 0.999] {
            assert_near(incomplete_beta(3.5, 1.0, x, 1.0 - x), x.powf(3.5));
            assert_near(incomplete_beta(2.0, 2.0, x, 1.0 - x), x * x * (3.0 - 2.0 * x));
            let tail = incomplete_beta(1.0, 5.0, x, 1.0 - x);
            assert_near(tail, -(5.0 * (-x).ln_1p()).exp_m1());
        }
        // The arcsine distribution.
        assert_near(incomplete_beta(0.5, 0.5, 0.25, 0.75), 1.0 / 3.0);
        // Symmetric parameters have their median at one half.
        assert!((incomplete_beta(1e7, 1e7, 0.5, 0.5) - 0.5).abs() < 1e-11);
    }

    #[test]
    fn incomplete_gamma_has_closed_forms() {
        for x in [1e-6_f64, 0.1, 1.0, 3.0, 30.0, 300.0] {
            assert_near(incomplete_gamma(1.0, x).1, (-x).exp());
            assert_near(incomplete_gamma(2.0, x).1, (1.0 + x) * (-x).exp());
        }
        assert_eq!(incomplete_gamma(2.0, 0.0), (0.0, 1.0));
    }
}
