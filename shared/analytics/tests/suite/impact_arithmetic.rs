//! The arithmetic of flag impact, compared with other libraries on 1,000 random tables (`tests/impact/make_golden.py` writes them),
//! and with the published results of two experiments.

use std::sync::LazyLock;

use pennon_analytics::inference::means::{SampleMean, WelchDifference};
use pennon_analytics::inference::posterior::{Posterior, chance_to_be_largest};
use pennon_analytics::inference::proportions::{Proportion, katz_interval, newcombe_interval, z_test};
use pennon_analytics::inference::sample_ratio::SampleRatioTest;
use pennon_analytics::inference::sequential::EstimatedDifference;
use serde::Deserialize;

const TOLERANCE: f64 = 1e-9;

#[derive(Deserialize)]
struct Variant {
    persons: u64,
    converted: u64,
    mean: f64,
    variance: f64,
}

#[derive(Deserialize)]
struct Test {
    p_value: f64,
    interval: (f64, f64),
}

#[derive(Deserialize)]
struct Compared {
    newcombe: (f64, f64),
    z_test: f64,
    katz: Option<(f64, f64)>,
    welch: Test,
    sequential_rate: Option<Test>,
    sequential_mean: Test,
    chance_rate: f64,
    chance_mean: f64,
    rate_difference: Option<(f64, f64)>,
    rate_ratio: Option<(f64, f64)>,
    mean_difference: Option<(f64, f64)>,
}

#[derive(Deserialize)]
struct Table {
    level: f64,
    variants: Vec<Variant>,
    wilson: Vec<(f64, f64)>,
    beta: Vec<(f64, f64)>,
    student: Vec<(f64, f64)>,
    chi_square: Option<(f64, f64)>,
    best_rate: Vec<f64>,
    best_mean: Vec<f64>,
    compared: Vec<Compared>,
}

static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/impact/golden.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
});

impl Variant {
    fn proportion(&self) -> Proportion {
        Proportion { persons: self.persons, converted: self.converted }
    }

    fn sample(&self) -> SampleMean {
        SampleMean { count: self.persons, mean: self.mean, variance: self.variance }
    }

    fn rate(&self) -> Posterior {
        Posterior::of_rate(self.proportion())
    }

    fn student(&self) -> Posterior {
        Posterior::of_mean(self.sample()).unwrap()
    }
}

impl Table {
    /// Each variant but the control, with what it was compared with.
    fn comparisons(&self) -> impl Iterator<Item = (&Variant, &Variant, &Compared)> {
        let control = &self.variants[0];
        self.variants[1..]
            .iter()
            .zip(&self.compared)
            .map(move |(variant, compared)| (control, variant, compared))
    }
}

/// Compares numbers: absolutely, or in relation to `scale` where that is larger than one.
#[track_caller]
fn assert_near(table: usize, got: f64, want: f64, scale: f64) {
    assert!((got - want).abs() <= TOLERANCE * scale.abs().max(1.0), "table {table}: {got} instead of {want}");
}

#[track_caller]
fn assert_interval(table: usize, got: (f64, f64), want: (f64, f64)) {
    let scale = want.0.abs().max(want.1.abs());
    assert_near(table, got.0, want.0, scale);
    assert_near(table, got.1, want.1, scale);
}

#[test]
fn fixed_sample_statistics_are_those_of_scipy_and_statsmodels() {
    assert_eq!(TABLES.len(), 1_000);
    for (index, table) in TABLES.iter().enumerate() {
        for (variant, want) in table.variants.iter().zip(&table.wilson) {
            assert_interval(index, variant.proportion().wilson_interval(table.level), *want);
        }
        for (variant, want) in table.variants.iter().zip(&table.student) {
            assert_interval(index, variant.sample().interval(table.level), *want);
        }
        for (control, variant, compared) in table.comparisons() {
            let (one, other) = (variant.proportion(), control.proportion());
            assert_interval(index, newcombe_interval(one, other, table.level), compared.newcombe);
            assert_near(index, z_test(one, other), compared.z_test, 1.0);
            match (katz_interval(one, other, table.level), compared.katz) {
                (got, None) => assert_eq!(got, None),
                (got, Some(want)) => assert_interval(index, got.unwrap(), want),
            }
            let welch = WelchDifference::new(variant.sample(), control.sample()).unwrap();
            assert_near(index, welch.p_value(), compared.welch.p_value, 1.0);
            assert_interval(index, welch.interval(table.level), compared.welch.interval);
        }
        let persons: Vec<u64> = table.variants.iter().map(|variant| variant.persons).collect();
        let test = SampleRatioTest::new(&persons, &vec![1.0; persons.len()]);
        assert_eq!(test.is_some(), table.chi_square.is_some());
        if let (Some(test), Some((chi_square, p_value))) = (test, table.chi_square) {
            assert_near(index, test.chi_square, chi_square, chi_square);
            assert_near(index, test.p_value, p_value, 1.0);
        }
    }
}

#[test]
fn always_valid_statistics_are_those_of_the_mixture() {
    for (index, table) in TABLES.iter().enumerate() {
        for (control, variant, compared) in table.comparisons() {
            let persons = variant.persons + control.persons;
            let assert_test = |difference: f64, variance: f64, want: &Test| {
                let test = EstimatedDifference { difference, variance, persons };
                assert_near(index, test.p_value(table.level), want.p_value, 1.0);
                assert_interval(index, test.interval(table.level), want.interval);
            };
            let (one, other) = (variant.proportion(), control.proportion());
            if let Some(want) = &compared.sequential_rate {
                assert_test(one.rate() - other.rate(), one.variance() + other.variance(), want);
            }
            let (one, other) = (variant.sample(), control.sample());
            let variance = one.variance_of_mean() + other.variance_of_mean();
            assert_test(one.mean - other.mean, variance, &compared.sequential_mean);
        }
    }
}

#[test]
fn posterior_probabilities_are_those_of_scipy() {
    for (index, table) in TABLES.iter().enumerate() {
        for (variant, want) in table.variants.iter().zip(&table.beta) {
            assert_interval(index, variant.rate().interval(table.level), *want);
        }
        for (control, variant, compared) in table.comparisons() {
            assert_near(index, control.rate().chance_below(&variant.rate()), compared.chance_rate, 1.0);
            assert_near(index, control.student().chance_below(&variant.student()), compared.chance_mean, 1.0);
        }
        let rates: Vec<Posterior> = table.variants.iter().map(Variant::rate).collect();
        let means: Vec<Posterior> = table.variants.iter().map(Variant::student).collect();
        for (position, want) in table.best_rate.iter().enumerate() {
            assert_near(index, chance_to_be_largest(&rates, position), *want, 1.0);
        }
        for (position, want) in table.best_mean.iter().enumerate() {
            assert_near(index, chance_to_be_largest(&means, position), *want, 1.0);
        }
    }
}

#[test]
fn credible_intervals_are_those_of_scipy() {
    let mut compared_intervals = 0;
    for (index, table) in TABLES.iter().enumerate() {
        for (control, variant, compared) in table.comparisons() {
            let (rate, control_rate) = (variant.rate(), control.rate());
            if let Some(want) = compared.rate_difference {
                assert_interval(index, control_rate.difference_interval(&rate, table.level), want);
                compared_intervals += 1;
            }
            if let Some(want) = compared.rate_ratio {
                assert_interval(index, control_rate.ratio_interval(&rate, table.level).unwrap(), want);
            }
            if let Some(want) = compared.mean_difference {
                let got = control.student().difference_interval(&variant.student(), table.level);
                assert_interval(index, got, want);
            }
        }
    }
    assert!(compared_intervals >= 100, "{compared_intervals}");
}

/// The Physicians' Health Study: heart attacks of 22,071 physicians who took aspirin or a placebo (N. Engl. J. Med. 318:262, 1988), as
/// analysed in A. Agresti, An Introduction to Categorical Data Analysis, 2.2 and 2.3: the difference of the proportions is
/// 0.0077 with the interval (0.005, 0.011), their ratio 1.82 with the interval (1.43, 2.30), and X^2 is 25.01.
#[test]
fn the_aspirin_experiment_has_its_published_result() {
    let placebo = Proportion { persons: 11_034, converted: 189 };
    let aspirin = Proportion { persons: 11_037, converted: 104 };
    let rounded = |number: f64, digits: i32| (number * 10_f64.powi(digits)).round() / 10_f64.powi(digits);
    assert_eq!(rounded(placebo.rate() - aspirin.rate(), 4), 0.0077);
    let (low, high) = newcombe_interval(placebo, aspirin, 0.95);
    assert_eq!((rounded(low, 3), rounded(high, 3)), (0.005, 0.011));
    assert_eq!(rounded(placebo.rate() / aspirin.rate(), 2), 1.82);
    let (low, high) = katz_interval(placebo, aspirin, 0.95).unwrap();
    assert!((low - 1.43).abs() < 0.01 && (high - 2.30).abs() < 0.01, "{low} {high}");
    // The square of z has the chi-square distribution with one degree of freedom.
    let p_value = z_test(placebo, aspirin);
    assert!((p_value - pennon_analytics::inference::distributions::chi_square_tail(25.01, 1.0)).abs() < 1e-8);
    let chance = Posterior::of_rate(aspirin).chance_below(&Posterior::of_rate(placebo));
    assert!(chance > 0.999_999, "{chance}");
}

/// Udacity's free trial screener, an A/B test on its web site that its course on A/B testing publishes (numbers changed, patterns kept).
/// Of 17,293 and 17,260 clicks 3,785 and 3,423 became enrolments: the published difference is -0.0206 with the interval
/// (-0.0291, -0.0120). 2,033 and 1,945 became payments: the interval (-0.0116, 0.0019) contains 0. The split of 345,543
/// and 344,660 page views has the one-sided p-value 0.1439.
#[test]
fn the_free_trial_experiment_has_its_published_result() {
    let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-4, "{got} is not {want}");
    for (control, screener, difference, (low, high)) in
        [(3_785, 3_423, -0.0206, (-0.0291, -0.0120)), (2_033, 1_945, -0.0049, (-0.0116, 0.0019))]
    {
        let control = Proportion { persons: 17_293, converted: control };
        let screener = Proportion { persons: 17_260, converted: screener };
        near(screener.rate() - control.rate(), difference);
        let confidence = newcombe_interval(screener, control, 0.95);
        let (posterior, of_control) = (Posterior::of_rate(screener), Posterior::of_rate(control));
        let credible = of_control.difference_interval(&posterior, 0.95);
        for interval in [confidence, credible] {
            near(interval.0, low);
            near(interval.1, high);
        }
    }
    let split = SampleRatioTest::new(&[345_543, 344_660], &[50.0, 50.0]).unwrap();
    assert!(!split.is_mismatch(), "{split:?}");
    near(split.p_value, 2.0 * 0.1439);
}
